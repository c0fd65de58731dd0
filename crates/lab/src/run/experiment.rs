//! Makes a plan's runs and writes what they measured.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use toml::Spanned;

use super::conclude::{OnResults, Over, conclude, described, prepare};
use super::flows;
use super::measure::{Measuring, drawn};
use super::progress::Screen;
use super::remarks::Remarks;
use super::resume::Earlier;
use super::runs::Runs;
use super::tor::ArmRun;
use crate::backend::Backend;
use crate::backend::emu::Emu;
use crate::backend::sim::Sim;
use crate::costs::Cpu;
use crate::error::{Error, Result};
use crate::machine::conditions::commit;
use crate::machine::interrupt;
use crate::plan::{Loaded, Plan, RUNS_MAX, estimate};
use crate::results::{NOT_COMPLETED, OUT_OF_TIME, Summary};
use crate::trace::Trace;

/// How long runs in virtual time may take: a plan's budget is of the machine's time.
pub(super) const WITHOUT_BUDGET: Duration = Duration::from_secs(30 * 24 * 3600);

/// What is run and where its results go.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The plan.
    pub loaded: Loaded,
    /// Which arms, by name. Default, when it is empty: all.
    pub arms: Vec<String>,
    /// Which phases of its network, by name. Default, when it is empty: all.
    pub phases: Vec<String>,
    /// How many runs. Default: as the plan says.
    pub runs: Option<usize>,
    /// The seed of the first run. Default: the plan's.
    pub seed: Option<u64>,
    /// A directory for the results, made if it is not there. It must not hold results already, unless runs are added.
    pub out: PathBuf,
    /// Whether runs are added to the results in `out`, until there are as many as wanted. Default: no.
    pub resume: bool,
    /// The command as typed, for the report.
    pub command: String,
    /// The Heddle program, for Heddle relays.
    pub heddle: PathBuf,
    /// What hosts and wires are made of.
    pub backend: BackendKind,
    /// What each relay computes with, in virtual time. Default: computing takes no time.
    pub cpu: Option<Cpu>,
    /// Whether links encrypt nothing, in virtual time: for networks of many hosts. Results say so. Default: no.
    pub null_crypto: bool,
    /// What happens on the wires and to circuits is written down here, in virtual time. It is of one run of one arm.
    pub trace: Option<Trace>,
}

/// The backends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendKind {
    /// Network namespaces of this machine, and emulated wires between them.
    #[default]
    Emu,
    /// Virtual time.
    Sim,
}

/// Runs a plan over emulated wires, writes what it gave into the output directory, and hands it over: after an error or
/// Ctrl-C what the runs gave that were complete. A program that is not root must have one thread only when it calls
/// this.
///
/// # Errors
///
/// [`Error::Interrupted`] by Ctrl-C, [`Error::Lacking`] where the machine has no emulated wires. A result that must not
/// be trusted is no error: see [`Summary::valid`].
pub fn run(options: &RunOptions, on_results: OnResults<'_>) -> Result<Summary> {
    interrupt::install()?;
    let mut backend: Box<dyn Backend> = match options.backend {
        BackendKind::Emu => Box::new(Emu { heddle: options.heddle.clone() }),
        BackendKind::Sim => {
            Box::new(Sim::new(options.null_crypto, options.cpu.clone(), options.trace.clone()))
        }
    };
    // What is checked out later made none of the program that is running.
    run_with(options, backend.as_mut(), &commit(), on_results)
}

/// Runs a plan on `backend`. Nothing is written when an error came before anything was measured. `commit` is the
/// program's.
pub(super) fn run_with(
    options: &RunOptions,
    backend: &mut dyn Backend,
    commit: &str,
    on_results: OnResults<'_>,
) -> Result<Summary> {
    let loaded = &options.loaded;
    let is_virtual = backend.clock().is_some();
    let chosen = loaded.plan.with_arms(&options.arms)?.with_phases(&options.phases)?;
    let plan = &if is_virtual { chosen.with_stock_modelled() } else { chosen };
    let (runs, seed) = runs_and_seed(options.runs, options.seed, plan)?;
    check_trace(options, plan, runs)?;
    check_virtual(options)?;
    check_arms(plan, backend, seed)?;
    let wanted = described(loaded, (plan, &options.phases), backend, commit, &options.command);
    let wanted = Summary { runs_wanted: runs, ..wanted };
    let earlier = match options.resume {
        true => Earlier::read(&options.out, &loaded.text, &wanted, seed)?,
        false => prepare(&options.out).map(|()| Earlier::default())?,
    };
    let made = earlier.summary.seeds.len();
    let (begun, quiet) = (Instant::now(), backend.load());
    let to_make = runs.saturating_sub(made);
    let budget = if is_virtual { WITHOUT_BUDGET } else { budget(&loaded.plan, plan, to_make)? };
    let end = begun + budget;
    let screen = Screen::new(begun, estimate(plan) * to_make as u32, backend.clock());
    let mut measuring = Measuring::new(plan, backend, end, screen);
    let mut all = Runs::after(plan, earlier.samples.clone(), Remarks::of(&earlier.summary));
    let (done, result) =
        all.make(made..runs.max(made), seed, end, &mut |wanted, into| measuring.measure(wanted, into));
    measuring.end();
    let failure = reportable(result.err(), all.are_empty())?;
    let seconds = begun.elapsed().as_secs_f64();
    let over = Over {
        loaded,
        plan,
        runs: all,
        done,
        seed,
        not_completed: not_completed(failure.as_ref(), done, runs),
        history: earlier.history(&options.command, done, runs),
        seconds: earlier.summary.seconds + seconds,
        noise: earlier.noise(quiet.until(backend.load()), seconds),
        is_virtual,
    };
    let wanted = Summary { machines: earlier.summary.machines, ..wanted };
    let summary = conclude(wanted, over, &options.out, on_results)?;
    failure.map_or(Ok(summary), Err)
}

/// What ended the runs; where nothing can be run, there is nothing to report.
fn reportable(failure: Option<Error>, nothing_was_measured: bool) -> Result<Option<Error>> {
    match failure {
        Some(error) if nothing_was_measured && !matches!(error, Error::Interrupted) => Err(error),
        failure => Ok(failure),
    }
}

/// Why there are not as many runs as wanted, where there are not.
fn not_completed(failure: Option<&Error>, done: usize, runs: usize) -> Option<String> {
    match failure {
        Some(error) => Some(format!("{NOT_COMPLETED}: run {} of {runs}: {error}", done + 1)),
        None if done < runs => Some(format!("{NOT_COMPLETED}: {done} of {runs} {OUT_OF_TIME}")),
        None => None,
    }
}

/// A trace is of one network in virtual time.
fn check_trace(options: &RunOptions, plan: &Plan, runs: usize) -> Result<()> {
    let what = match (&options.trace, options.backend) {
        (None, _) => return Ok(()),
        (Some(_), BackendKind::Emu) => {
            "a trace is of virtual time: add --backend sim; `heddle emulate --pcap` captures emulated wires"
        }
        (Some(_), BackendKind::Sim) if runs != 1 || plan.arms.len() != 1 => {
            "a trace is of one run of one arm: add --runs 1 and one name for --arms"
        }
        (Some(_), BackendKind::Sim) => return Ok(()),
    };
    Err(Error::Options(what.to_owned()))
}

/// Processors are charged, and links encrypt nothing, in virtual time alone.
fn check_virtual(options: &RunOptions) -> Result<()> {
    let what = match options.backend {
        BackendKind::Emu if options.cpu.is_some() => {
            "--cpu charges relays in virtual time: add --backend sim; on emu this machine's own processors work"
        }
        BackendKind::Emu if options.null_crypto => "--null-crypto is of virtual time: add --backend sim",
        _ => return Ok(()),
    };
    Err(Error::Options(what.to_owned()))
}

/// Looks whether the backend has all that the arms want, before the first begins.
pub(super) fn check_arms(plan: &Plan, backend: &dyn Backend, seed: u64) -> Result<()> {
    let tor = plan.tor.as_ref().map(|tor| drawn(tor.as_ref(), seed)).transpose()?;
    for arm in plan.arms.iter().map(Spanned::as_ref) {
        let deployment = match (&arm.tor, &tor) {
            (Some(options), Some(tor)) => ArmRun { tor, arm: options, run: 0, seed }.deployment(),
            _ => flows::deployment(arm, &plan.kernel, seed),
        };
        backend.check(arm, tor.as_ref(), &deployment)?;
    }
    Ok(())
}

/// How many runs there are to be, and the seed of the first, where the plan has to say what is not said.
pub(super) fn runs_and_seed(runs: Option<usize>, seed: Option<u64>, plan: &Plan) -> Result<(usize, u64)> {
    let (runs, seed) = (runs.unwrap_or(plan.runs), seed.unwrap_or(plan.seed));
    match (1..=RUNS_MAX).contains(&runs) && seed.checked_add(runs as u64).is_some() {
        true => Ok((runs, seed)),
        false => Err(Error::Options(format!(
            "{runs} runs from seed {seed} on are not possible; there are 1 to {RUNS_MAX}"
        ))),
    }
}

/// The time for so many runs of the arms that were chosen of a plan. Its budget is for the usual arms and number of
/// runs, and more get more in proportion.
fn budget(plan: &Plan, chosen: &Plan, runs: usize) -> Result<Duration> {
    let usual = estimate(&plan.with_arms(&[])?).as_secs_f64() * plan.runs as f64;
    let wanted = estimate(chosen).as_secs_f64() * runs as f64;
    Ok(plan.budget.mul_f64((wanted / usual.max(1.0)).max(1.0)))
}
