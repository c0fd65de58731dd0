//! Adds runs to results that are there: more runs for narrower intervals, or those that an interruption left out.

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};
use crate::machine::conditions::Noise;
use crate::results::{Invocation, NOT_COMPLETED, RunSamples, Summary};

/// What was measured before; nothing in the usual case.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    pub(super) summary: Summary,
    pub(super) samples: RunSamples,
}

impl Earlier {
    /// Reads the results of earlier runs, which must be of the same plan, values, arms, phases, first seed, commit and
    /// machine as those that are `wanted`.
    ///
    /// # Errors
    ///
    /// One sentence about what is not there or not the same.
    pub(super) fn read(out: &Path, plan_text: &str, wanted: &Summary, seed: u64) -> Result<Earlier> {
        let (mut summary, samples) = (Summary::read(out)?, RunSamples::read(out)?);
        let file = out.join("plan.toml");
        let text = fs::read_to_string(&file).map_err(Error::io(format!("reading {}", file.display())))?;
        let differs = [
            ("the plan or its values", text != plan_text),
            ("the arms", summary.arms != wanted.arms),
            ("the phases", summary.phases != wanted.phases),
            ("the backend", summary.backend != wanted.backend),
            ("the cores or costs of relays", summary.cpu != wanted.cpu),
            ("the cryptography of links", summary.null_crypto != wanted.null_crypto),
            ("the first seed", summary.seeds.first().is_some_and(|first| *first != seed)),
            ("the commit", summary.commit != wanted.commit),
            ("the machine, its kernel or the program's version", summary.conditions != wanted.conditions),
        ];
        if let Some((what, _)) = differs.iter().find(|(_, differs)| *differs) {
            let out = out.display();
            return Err(Error::Options(format!(
                "--resume: {what} of the results in {out} differ; choose another directory"
            )));
        }
        if summary.commit.ends_with("-dirty") {
            return Err(Error::Options(
                "--resume: what was measured had changes that are not committed, and nothing says that they are the same now"
                    .into(),
            ));
        }
        // Where no run is complete, there is half of one.
        if summary.seeds.is_empty() {
            let summary = Summary { history: summary.history, ..Summary::default() };
            return Ok(Earlier { summary, ..Earlier::default() });
        }
        // The summary is written last: where that did not come to pass, it knows nothing of the newest samples.
        let samples = samples.of_runs(summary.seeds.len());
        // What is said about all runs together is said anew.
        let of_checks = summary.checks.iter().filter_map(|check| check.complaint());
        let complaints: Vec<String> = of_checks.chain(summary.noise.complaint()).collect();
        summary.reasons.retain(|reason| !complaints.contains(reason) && !reason.starts_with(NOT_COMPLETED));
        Ok(Earlier { summary, samples })
    }

    /// The commands that made runs, with one that came to so many of so many.
    pub(super) fn history(&self, command: &str, runs_after: usize, runs_wanted: usize) -> Vec<Invocation> {
        let runs_before = self.summary.seeds.len();
        let now = Invocation { command: command.to_owned(), runs_before, runs_after, runs_wanted };
        self.summary.history.iter().cloned().chain([now]).collect()
    }

    /// The noise of all the time that was measured.
    pub(super) fn noise(&self, later: Noise, later_s: f64) -> Noise {
        let (noise, seconds) = (&self.summary.noise, self.summary.seconds);
        if seconds == 0.0 {
            return later;
        }
        let stolen = noise.stolen_pct * seconds + later.stolen_pct * later_s;
        Noise { load_before: noise.load_before, stolen_pct: stolen / (seconds + later_s), ..later }
    }
}
