//! The report of one run, or of several side by side: one HTML file that needs nothing else.
//!
//! Its first page says what was run and whether to believe it; then come the values that were known beforehand beside
//! ours, every figure with its interval, and the plan's distributions. The data of each plot lies folded up under it.

mod chart;
mod page;
mod text;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::plan::{Plan, RunSamples, Summary, write_whole};

pub use page::page;
pub use text::text;

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
        Ok(Stored {
            summary: Summary::read(dir)?,
            plan: Plan::load(name, &BTreeMap::new())?.plan,
            samples: RunSamples::read(dir)?,
        })
    }

    /// The same, for a report.
    pub fn results(&self) -> Results<'_> {
        Results { plan: &self.plan, summary: &self.summary, samples: &self.samples }
    }
}

/// Writes the report of the runs in `dirs` to `out`.
pub fn write(dirs: &[PathBuf], out: &Path) -> Result<Vec<Stored>> {
    let stored = dirs.iter().map(|dir| Stored::read(dir)).collect::<Result<Vec<_>>>()?;
    let results: Vec<Results<'_>> = stored.iter().map(Stored::results).collect();
    write_whole(out, page(&results).as_bytes())?;
    Ok(stored)
}
