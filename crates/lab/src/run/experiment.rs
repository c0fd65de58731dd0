//! Makes a plan's runs and writes what they measured.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use toml::Spanned;

use super::flows;
use super::progress::Screen;
use super::remarks::Remarks;
use super::resume::Earlier;
use super::sampled::Sampled;
use super::tor::ArmRun;
use crate::backend::emu::Emu;
use crate::backend::sim::Sim;
use crate::backend::{Backend, BackendReport, Outcome};
use crate::error::{Error, Result};
use crate::machine::conditions::{Conditions, LoadReading, commit};
use crate::machine::files::{write_json, write_whole};
use crate::machine::interrupt;
use crate::plan::{Arm, Loaded, Plan, RUNS_MAX, Tor, TorArm, estimate};
use crate::results::{
    Check, NOT_COMPLETED, Results, RunSamples, Summary, Try, check, grid, judgement, was_extended,
};
use crate::trace::Trace;

/// How often an arm of a run is measured in all when the emulator was late.
const ATTEMPTS: usize = 2;
/// How long runs in virtual time may take: a plan's budget is of the machine's time.
const WITHOUT_BUDGET: Duration = Duration::from_secs(30 * 24 * 3600);
/// Takes results that were written down, to draw them.
pub type OnResults<'a> = &'a mut dyn FnMut(&Results<'_>) -> Result<()>;

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

/// One experiment under way.
struct Running<'a> {
    plan: &'a Plan,
    backend: &'a mut dyn Backend,
    samples: RunSamples,
    remarks: Remarks,
    /// Those about the run under way.
    of_run: Remarks,
    end: Instant,
    screen: Screen,
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
        BackendKind::Sim => Box::new(Sim::traced(options.trace.clone())),
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
    let plan = &loaded.plan.with_arms(&options.arms)?.with_phases(&options.phases)?;
    let (runs, seed) = runs_and_seed(options, plan)?;
    check_trace(options, plan, runs)?;
    check_arms(plan, backend, seed)?;
    let wanted = Summary { runs_wanted: runs, ..described(options, plan, backend, commit) };
    let earlier = match options.resume {
        true => Earlier::read(&options.out, &loaded.text, &wanted, seed)?,
        false => prepare(&options.out).map(|()| Earlier::default())?,
    };
    let made = earlier.summary.seeds.len();
    let (begun, quiet) = (Instant::now(), LoadReading::now());
    let to_make = runs.saturating_sub(made);
    let is_virtual = backend.clock().is_some();
    let budget = if is_virtual { WITHOUT_BUDGET } else { budget(&loaded.plan, plan, to_make)? };
    let screen = Screen::new(begun, estimate(plan) * to_make as u32, backend.clock());
    let mut running = Running {
        plan,
        backend,
        samples: earlier.samples.clone(),
        remarks: Remarks::of(&earlier.summary),
        of_run: Remarks::default(),
        end: begun + budget,
        screen,
    };
    let (done, result) = running.all_runs(made..runs.max(made), seed);
    running.screen.end();
    let Running {
        samples, remarks: Remarks { mut reasons, repeated, tries, noise, settings, traces }, ..
    } = running;
    let failure = reportable(result.err(), &samples)?;
    reasons.extend(not_completed(failure.as_ref(), done, runs));
    let checks = check::checks(plan, &samples);
    reasons.extend(checks.iter().filter_map(Check::complaint));
    let seconds = begun.elapsed().as_secs_f64();
    let noise_here = earlier.noise(quiet.until_now(), seconds);
    // In virtual time it is no matter who has the processors.
    reasons.extend(noise_here.complaint().filter(|_| !is_virtual));
    let history = earlier.history(&options.command, done, runs);
    let may_be_met = reasons.is_empty() && !was_extended(&history);
    let targets = judgement::judgements(plan, &samples, runs.max(done), may_be_met);
    let summary = Summary {
        history,
        seeds: (seed..).take(done).collect(),
        seconds: earlier.summary.seconds + seconds,
        noise: noise_here,
        backend_noise: noise,
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
    write(&options.out, loaded, &results)?;
    on_results(&results)?;
    failure.map_or(Ok(summary), Err)
}

/// What ended the runs; where nothing can be run, there is nothing to report.
fn reportable(failure: Option<Error>, samples: &RunSamples) -> Result<Option<Error>> {
    match failure {
        Some(error) if samples.all().is_empty() && !matches!(error, Error::Interrupted) => Err(error),
        failure => Ok(failure),
    }
}

/// Why there are not as many runs as wanted, where there are not.
fn not_completed(failure: Option<&Error>, done: usize, runs: usize) -> Option<String> {
    match failure {
        Some(error) => Some(format!("{NOT_COMPLETED}: run {} of {runs}: {error}", done + 1)),
        None if done < runs => Some(format!("{NOT_COMPLETED}: {done} of {runs} runs fit into the time")),
        None => None,
    }
}

impl Running<'_> {
    /// Makes these of the runs. Returns how many are complete then, and why not all when that was not for want of time.
    fn all_runs(&mut self, numbers: Range<usize>, seed: u64) -> (usize, Result<()>) {
        let mut longest = Duration::ZERO;
        for run in numbers.clone() {
            let start = Instant::now();
            // A run that would not be finished in time is not begun; one is needed in any case.
            if run > numbers.start && start + longest > self.end {
                return (run, Ok(()));
            }
            let made = self.one_run(run, numbers.end, seed + run as u64);
            let remarks = std::mem::take(&mut self.of_run);
            // Half a run has no pairs; but of the very first, half is better than nothing.
            if made.is_err() && run > 0 {
                self.samples.forget_run(run);
            } else {
                self.remarks.add(remarks);
            }
            if let Err(error) = made {
                return (run, Err(error));
            }
            longest = longest.max(start.elapsed());
        }
        (numbers.end, Ok(()))
    }

    fn one_run(&mut self, run: usize, runs: usize, seed: u64) -> Result<()> {
        let count = self.plan.arms.len();
        for place in 0..count {
            let arm = self.plan.arms[(place + run) % count].as_ref();
            let step = format!("run {} of {runs}: {}", run + 1, arm.name);
            match &arm.tor {
                Some(options) => self.tor(arm, options, run, seed, &step)?,
                None => self.flows(arm, run, seed, &step)?,
            }
        }
        self.samples.compare(self.plan, run);
        Ok(())
    }

    fn add(&mut self, arm: &Arm, run: usize, sampled: Vec<Sampled>) {
        add_to(&mut self.samples, arm, run, sampled);
    }

    /// An arm whose flows go over single wires, twice where the plan says so.
    fn flows(&mut self, arm: &Arm, run: usize, seed: u64, step: &str) -> Result<()> {
        let outcomes = self.outcomes(arm, run, seed, step)?;
        self.add(arm, run, flows::samples(arm, &outcomes));
        if arm.repeat {
            let again = self.outcomes(arm, run, seed, &format!("{step}, again"))?;
            self.add(arm, run, flows::differences(arm, &outcomes, &again));
        }
        Ok(())
    }

    fn outcomes(&mut self, arm: &Arm, run: usize, seed: u64, step: &str) -> Result<Vec<Outcome>> {
        let deployment = flows::deployment(arm, &self.plan.kernel, seed);
        let flows = flows::flows(arm, &deployment);
        let samples = |outcomes: &Vec<Outcome>| flows::samples(arm, outcomes);
        self.on_time((arm, run), step, &samples, &mut |backend, screen| {
            let mut testbed = backend.bring_up(&deployment, &mut |_| screen.show(step))?;
            let outcomes = testbed.run_flows(&flows, &mut || screen.show(step));
            // How the backend did is told even where a flow failed.
            let report = testbed.take_down()?;
            Ok((outcomes?, report))
        })
    }

    /// An arm with a Tor network.
    fn tor(&mut self, arm: &Arm, options: &TorArm, run: usize, seed: u64, step: &str) -> Result<()> {
        let network =
            self.plan.tor.as_ref().ok_or_else(|| Error::Options("the plan has no network".into()))?;
        let drawn = drawn(network.as_ref(), seed)?;
        let arm_run = ArmRun { tor: &drawn, arm: options, run, seed };
        let sampled = self.on_time((arm, run), step, &Vec::clone, &mut |backend, screen| {
            arm_run.measure(backend, &mut |what| screen.show(&format!("{step}: {what}")))
        })?;
        self.add(arm, run, sampled);
        Ok(())
    }

    /// Measures an arm of a run, from nothing to nothing: once more under its seed where the backend was late, which
    /// has nothing to do with what was measured, and there is time. What was measured then is kept apart, and that is
    /// reported.
    fn on_time<T>(
        &mut self,
        (arm, run): (&Arm, usize),
        step: &str,
        samples: &dyn Fn(&T) -> Vec<Sampled>,
        measure: Measure<'_, T>,
    ) -> Result<T> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            interrupt::check()?;
            let begun = Instant::now();
            self.screen.show(step);
            let (measured, report) = measure(self.backend, &mut self.screen)?;
            let is_again =
                report.is_late && attempt < ATTEMPTS && Instant::now() + begun.elapsed() <= self.end;
            if !is_again {
                self.of_run.note(&arm.name, report, step);
                return Ok(measured);
            }
            let mut apart = RunSamples::default();
            add_to(&mut apart, arm, run, samples(&measured));
            let figures = apart.figures();
            self.of_run.note_try(step, Try { arm: arm.name.clone(), run, reasons: report.reasons, figures });
        }
    }
}

fn add_to(samples: &mut RunSamples, arm: &Arm, run: usize, sampled: Vec<Sampled>) {
    for Sampled { name, quantity, labels, values, times_s } in sampled {
        let labels = arm.labels.clone().into_iter().chain(labels).collect();
        samples.add_of(run, &name, quantity, &labels, (&values, &times_s));
    }
}

/// Something that is measured on a backend, and how well that did.
type Measure<'a, T> = &'a mut dyn FnMut(&mut dyn Backend, &mut Screen) -> Result<(T, BackendReport)>;

/// What is said of an experiment before it began.
fn described(options: &RunOptions, plan: &Plan, backend: &dyn Backend, commit: &str) -> Summary {
    Summary {
        plan: plan.name.clone(),
        set: options.loaded.set.clone(),
        arms: plan.arms.iter().map(|arm| arm.as_ref().name.clone()).collect(),
        phases: options.phases.clone(),
        backend: backend.name().to_owned(),
        commit: commit.to_owned(),
        command: options.command.clone(),
        conditions: Conditions::now(),
        tor: backend.tor_version(),
        ..Summary::default()
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

/// Looks whether the backend has all that the arms want, before the first begins.
fn check_arms(plan: &Plan, backend: &dyn Backend, seed: u64) -> Result<()> {
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

/// The plan's network as this seed draws it.
fn drawn(tor: &Tor, seed: u64) -> Result<Tor> {
    tor.drawn(seed).map_err(|(_, what)| Error::Options(format!("the network of seed {seed}: {what}")))
}

/// How many runs there are to be, and the seed of the first.
fn runs_and_seed(options: &RunOptions, plan: &Plan) -> Result<(usize, u64)> {
    let runs = options.runs.unwrap_or(plan.runs);
    let seed = options.seed.unwrap_or(plan.seed);
    match (1..=RUNS_MAX).contains(&runs) && seed.checked_add(runs as u64).is_some() {
        true => Ok((runs, seed)),
        false => Err(Error::Options(format!(
            "{runs} runs from seed {seed} on are not possible; there are 1 to {RUNS_MAX}"
        ))),
    }
}

/// Makes the output directory and refuses one that holds results.
fn prepare(out: &Path) -> Result<()> {
    fs::create_dir_all(out).map_err(Error::io(format!("making {}", out.display())))?;
    if out.join("summary.json").exists() {
        let out = out.display();
        return Err(Error::Options(format!("{out} holds the results of a run; choose another directory")));
    }
    Ok(())
}

/// Writes results down.
fn write(out: &Path, loaded: &Loaded, results: &Results<'_>) -> Result<()> {
    write_whole(&out.join("plan.toml"), loaded.text.as_bytes())?;
    results.samples.write(out)?;
    write_json(&out.join("summary.json"), results.summary, true)
}

/// The time for so many runs of the arms that were chosen of a plan. Its budget is for the usual arms and number of
/// runs, and more get more in proportion.
fn budget(plan: &Plan, chosen: &Plan, runs: usize) -> Result<Duration> {
    let usual = estimate(&plan.with_arms(&[])?).as_secs_f64() * plan.runs as f64;
    let wanted = estimate(chosen).as_secs_f64() * runs as f64;
    Ok(plan.budget.mul_f64((wanted / usual.max(1.0)).max(1.0)))
}
