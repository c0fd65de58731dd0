//! Puts together what jobs gave: goes through the runs as if it measured.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use super::directory::Jobs;
use super::given::Given;
use crate::error::{Error, Result};
use crate::machine::conditions::{Conditions, Noise};
use crate::results::{Invocation, RunSamples, Summary};
use crate::run::conclude::{OnResults, Over, conclude, described, prepare};
use crate::run::experiment::WITHOUT_BUDGET;
use crate::run::measure::Measured;
use crate::run::remarks::Remarks;
use crate::run::runs::Runs;

/// What is put together, and where it goes.
#[derive(Clone, Debug)]
pub struct CollectOptions {
    /// The directory of jobs.
    pub dir: PathBuf,
    /// A directory for the results, made if it is not there. It must not hold results already.
    pub out: PathBuf,
    /// The command as typed, for the report.
    pub command: String,
}

/// Puts together what the jobs of a directory gave, writes it as a run would have, and hands it over. Where jobs are
/// missing or cannot be taken, `on_fault` hears a sentence about each, and nothing is written.
///
/// # Errors
///
/// One sentence about a directory that is not right, or how many jobs there are that `on_fault` heard of.
pub fn collect(
    options: &CollectOptions,
    on_fault: &mut dyn FnMut(&str),
    on_results: OnResults<'_>,
) -> Result<Summary> {
    let jobs = Jobs::read(&options.dir)?;
    let all = given(&jobs, on_fault)?;
    prepare(&options.out)?;
    let (plan, seed) = (&jobs.plan, jobs.order.seed);
    let mut machines: Vec<Conditions> = Vec::new();
    for one in &all {
        if !machines.contains(&one.conditions) {
            machines.push(one.conditions.clone());
        }
    }
    let (noise, seconds) = (noise(&all), all.iter().map(|one| one.seconds).sum());
    let mut measured: BTreeMap<(usize, String), Measured> =
        all.into_iter().map(|one| ((one.job.run, one.job.arm), one.measured)).collect();
    let mut runs = Runs::after(plan, RunSamples::default(), Remarks::default());
    let end = Instant::now() + WITHOUT_BUDGET;
    let (done, result) = runs.make(0..jobs.order.runs, seed, end, &mut |wanted, into| {
        let (run, arm) = (wanted.run, wanted.arm.name.clone());
        let missing =
            || Error::Options(format!("no job is about arm {} of run {}", wanted.arm.name, run + 1));
        *into = measured.remove(&(run, arm)).ok_or_else(missing)?;
        Ok(())
    });
    result?;
    let wanted = described(
        &jobs.loaded,
        (plan, &jobs.order.phases),
        &jobs.order.backend(),
        &jobs.order.commit,
        &options.command,
    );
    let wanted = Summary {
        runs_wanted: done,
        conditions: machines.first().cloned().unwrap_or_default(),
        machines: if machines.len() > 1 { machines } else { Vec::new() },
        ..wanted
    };
    let command = options.command.clone();
    let over = Over {
        loaded: &jobs.loaded,
        plan,
        runs,
        done,
        seed,
        not_completed: None,
        history: vec![Invocation { command, runs_before: 0, runs_after: done, runs_wanted: done }],
        seconds,
        noise,
        is_virtual: true,
    };
    conclude(wanted, over, &options.out, on_results)
}

/// What all jobs gave, in their order.
fn given(jobs: &Jobs, on_fault: &mut dyn FnMut(&str)) -> Result<Vec<Given>> {
    let mut all = Vec::new();
    for job in &jobs.list {
        match jobs.given(job) {
            Ok(one) => all.push(one),
            Err(fault) => on_fault(&fault),
        }
    }
    let (wanted, faults) = (jobs.list.len(), jobs.list.len() - all.len());
    match faults {
        0 => Ok(all),
        _ => Err(Error::Options(format!(
            "{faults} of {wanted} jobs in {} have given nothing that can be taken, so nothing was put together",
            jobs.dir.display()
        ))),
    }
}

/// How quiet the machines were: the highest loads, and the share of all the time.
fn noise(all: &[Given]) -> Noise {
    let most = |load: fn(&Noise) -> f64| all.iter().map(|one| load(&one.noise)).fold(0.0, f64::max);
    let seconds: f64 = all.iter().map(|one| one.seconds).sum();
    let stolen: f64 = all.iter().map(|one| one.noise.stolen_pct * one.seconds).sum();
    Noise {
        load_before: most(|noise| noise.load_before),
        load_after: most(|noise| noise.load_after),
        stolen_pct: if seconds > 0.0 { stolen / seconds } else { 0.0 },
    }
}
