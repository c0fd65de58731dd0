//! Makes a result of runs that are over, and writes it down.

use std::fs;
use std::path::Path;

use super::remarks::Remarks;
use super::runs::Runs;
use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::machine::conditions::{Conditions, Noise};
use crate::machine::files::{write_json, write_whole};
use crate::plan::{Loaded, Plan};
use crate::results::{Check, Invocation, Results, Summary, check, grid, judgement, was_extended};

/// Takes results that were written down, to draw them.
pub type OnResults<'a> = &'a mut dyn FnMut(&Results<'_>) -> Result<()>;

/// Runs that are over, and what is known of how they were made.
pub(super) struct Over<'a> {
    pub(super) loaded: &'a Loaded,
    /// The part of its plan that was run.
    pub(super) plan: &'a Plan,
    pub(super) runs: Runs<'a>,
    /// How many are complete, and the seed of the first.
    pub(super) done: usize,
    pub(super) seed: u64,
    /// Why there are fewer than wanted, where there are.
    pub(super) not_completed: Option<String>,
    /// The commands that made them.
    pub(super) history: Vec<Invocation>,
    /// How long they took.
    pub(super) seconds: f64,
    /// How quiet the machine was meanwhile.
    pub(super) noise: Noise,
    /// Whether it is no matter who had the processors.
    pub(super) is_virtual: bool,
}

/// What is said of an experiment before it began: `plan` is the part of what was loaded that is run, `phases` are those
/// that were asked for.
pub(super) fn described(
    loaded: &Loaded,
    (plan, phases): (&Plan, &[String]),
    backend: &dyn Backend,
    commit: &str,
    command: &str,
) -> Summary {
    Summary {
        plan: plan.name.clone(),
        set: loaded.set.clone(),
        arms: plan.arms.iter().map(|arm| arm.as_ref().name.clone()).collect(),
        phases: phases.to_vec(),
        backend: backend.name().to_owned(),
        cpu: backend.cpu().cloned(),
        null_crypto: backend.null_crypto(),
        commit: commit.to_owned(),
        command: command.to_owned(),
        conditions: Conditions::now(),
        tor: backend.tor_version(),
        ..Summary::default()
    }
}

/// Makes the output directory and refuses one that holds results.
pub(super) fn prepare(out: &Path) -> Result<()> {
    fs::create_dir_all(out).map_err(Error::io(format!("making {}", out.display())))?;
    if out.join("summary.json").exists() {
        let out = out.display();
        return Err(Error::Options(format!("{out} holds the results of a run; choose another directory")));
    }
    Ok(())
}

/// Makes a result of runs that are over, of which `wanted` was said before, writes it into a directory, and hands it
/// over.
pub(super) fn conclude(
    wanted: Summary,
    over: Over<'_>,
    out: &Path,
    on_results: OnResults<'_>,
) -> Result<Summary> {
    let Over { loaded, plan, runs, done, seed, not_completed, history, seconds, noise, is_virtual } = over;
    let (samples, Remarks { mut reasons, repeated, tries, noise: backend_noise, settings, traces }) =
        runs.into_parts();
    reasons.extend(not_completed);
    let checks = check::checks(plan, &samples);
    reasons.extend(checks.iter().filter_map(Check::complaint));
    // In virtual time it is no matter who has the processors.
    reasons.extend(noise.complaint().filter(|_| !is_virtual));
    let may_be_met = reasons.is_empty() && !was_extended(&history);
    let targets = judgement::judgements(plan, &samples, wanted.runs_wanted.max(done), may_be_met);
    let summary = Summary {
        history,
        seeds: (seed..).take(done).collect(),
        seconds,
        noise,
        backend_noise,
        settings,
        traces,
        valid: reasons.is_empty(),
        reasons,
        repeated,
        tries,
        figures: samples.figures().into_iter().chain(grid::whole_grid(&samples)).collect(),
        checks,
        targets,
        ..wanted
    };
    let results = Results { plan: &loaded.plan, summary: &summary, samples: &samples };
    write(out, loaded, &results)?;
    on_results(&results)?;
    Ok(summary)
}

/// Writes results down.
fn write(out: &Path, loaded: &Loaded, results: &Results<'_>) -> Result<()> {
    write_whole(&out.join("plan.toml"), loaded.text.as_bytes())?;
    results.samples.write(out)?;
    write_json(&out.join("summary.json"), results.summary, true)
}
