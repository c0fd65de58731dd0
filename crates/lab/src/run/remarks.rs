//! What is said about runs besides their samples.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::backend::BackendReport;
use crate::results::{Summary, Try};

/// What is said about runs besides their samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Remarks {
    pub(super) reasons: Vec<String>,
    pub(super) repeated: Vec<String>,
    pub(super) tries: Vec<Try>,
    pub(super) noise: BTreeMap<String, BTreeMap<String, f64>>,
    pub(super) settings: BTreeMap<String, BTreeSet<String>>,
    pub(super) traces: BTreeMap<String, Vec<String>>,
}

impl Remarks {
    /// Those of results that are there.
    pub(super) fn of(summary: &Summary) -> Remarks {
        Remarks {
            reasons: summary.reasons.clone(),
            repeated: summary.repeated.clone(),
            tries: summary.tries.clone(),
            noise: summary.backend_noise.clone(),
            settings: summary.settings.clone(),
            traces: summary.traces.clone(),
        }
    }

    /// Adds how well the backend did for an arm.
    pub(super) fn note(&mut self, arm: &str, report: BackendReport, step: &str) {
        self.reasons.extend(report.reasons.iter().map(|reason| format!("{step}: {reason}")));
        self.settings.entry(arm.to_owned()).or_default().extend(report.settings);
        if let Some(trace) = report.trace {
            self.traces.entry(arm.to_owned()).or_default().push(trace);
        }
        self.add_noise(arm, report.noise);
    }

    /// Adds what is not kept, because it is measured once more.
    pub(super) fn note_try(&mut self, step: &str, attempt: Try) {
        self.repeated.extend(attempt.reasons.iter().map(|reason| format!("{step}: {reason}")));
        self.tries.push(attempt);
    }

    /// Noise is told by its worst.
    pub(super) fn add_noise(&mut self, arm: &str, noise: BTreeMap<String, f64>) {
        let worst = self.noise.entry(arm.to_owned()).or_default();
        for (name, value) in noise {
            let slot = worst.entry(name).or_insert(value);
            *slot = slot.max(value);
        }
    }

    pub(super) fn add(&mut self, other: Remarks) {
        self.reasons.extend(other.reasons);
        self.repeated.extend(other.repeated);
        self.tries.extend(other.tries);
        for (arm, noise) in other.noise {
            self.add_noise(&arm, noise);
        }
        for (arm, settings) in other.settings {
            self.settings.entry(arm).or_default().extend(settings);
        }
        for (arm, traces) in other.traces {
            self.traces.entry(arm).or_default().extend(traces);
        }
    }
}
