//! Results as they stand in a directory.

use std::collections::BTreeMap;
use std::path::Path;

use super::samples::RunSamples;
use super::summary::Summary;
use crate::error::{Error, Result};
use crate::plan::{Plan, is_of_model};

/// What a report is made of.
#[derive(Clone, Copy, Debug)]
pub struct Results<'a> {
    /// The plan that was run.
    pub plan: &'a Plan,
    /// What came out.
    pub summary: &'a Summary,
    /// The samples behind it.
    pub samples: &'a RunSamples,
}

/// Results that were read from a directory.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The plan that was run.
    pub plan: Plan,
    /// What came out.
    pub summary: Summary,
    /// The samples behind it.
    pub samples: RunSamples,
}

impl Stored {
    /// Reads what a run wrote into a directory.
    pub fn read(dir: &Path) -> Result<Stored> {
        let plan = dir.join("plan.toml");
        let name = plan.to_str().ok_or_else(|| Error::Options(format!("{}: no UTF-8", plan.display())))?;
        let summary = Summary::read(dir)?;
        let plan = Plan::load(name, &BTreeMap::new())?.plan;
        // What has figures of the model speaks of it everywhere.
        let is_modelled = summary.figures.iter().any(|figure| is_of_model(&figure.labels));
        let plan = if is_modelled { plan.with_stock_modelled() } else { plan };
        Ok(Stored { summary, plan, samples: RunSamples::read(dir)? })
    }

    /// The same, for a report.
    pub fn results(&self) -> Results<'_> {
        Results { plan: &self.plan, summary: &self.summary, samples: &self.samples }
    }
}
