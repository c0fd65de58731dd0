//! Makes a plan's runs and writes what they measured.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::cases::{self, Outcome};
use super::parse::RUNS_MAX;
use super::resume::{Earlier, NOT_COMPLETED};
use super::summary::{self, Summary, write_json, write_whole};
use super::tor::ArmRun;
use super::wires::{Backend, Conduct, Emulator};
use super::{Arm, Loaded, Plan, RunSamples, TorArm, grid, parse};
use crate::error::{Error, Result};
use crate::machine::conditions::{Conditions, LoadReading};
use crate::machine::interrupt;
use crate::{figures, report};

/// How often an arm of a run is measured in all when the emulator was late.
const ATTEMPTS: usize = 2;
/// What the coming and going of an arm's hosts takes, for the estimate of the time left.
const SETUP_ESTIMATE: Duration = Duration::from_secs(1);

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
}

/// One experiment under way.
struct Running<'a> {
    plan: &'a Plan,
    heddle: &'a Path,
    backend: &'a mut dyn Backend,
    samples: RunSamples,
    remarks: Remarks,
    /// Those about the run under way.
    of_run: Remarks,
    end: Instant,
    screen: Screen,
}

/// What is said about runs besides their samples.
#[derive(Clone, Debug, Default)]
struct Remarks {
    reasons: Vec<String>,
    repeated: Vec<String>,
    noise: BTreeMap<String, BTreeMap<String, f64>>,
    settings: BTreeMap<String, BTreeSet<String>>,
}

impl Remarks {
    /// Those of results that are there.
    fn of(summary: &Summary) -> Remarks {
        Remarks {
            reasons: summary.reasons.clone(),
            repeated: summary.repeated.clone(),
            noise: summary.backend_noise.clone(),
            settings: summary.settings.clone(),
        }
    }

    /// Adds how well the backend did for an arm.
    fn note(&mut self, arm: &str, conduct: Conduct, step: &str) {
        self.reasons.extend(conduct.reasons.iter().map(|reason| format!("{step}: {reason}")));
        self.settings.entry(arm.to_owned()).or_default().extend(conduct.settings);
        self.add_noise(arm, conduct.noise);
    }

    /// Noise is told by its worst.
    fn add_noise(&mut self, arm: &str, noise: BTreeMap<String, f64>) {
        let worst = self.noise.entry(arm.to_owned()).or_default();
        for (name, value) in noise {
            let slot = worst.entry(name).or_insert(value);
            *slot = slot.max(value);
        }
    }

    fn add(&mut self, other: Remarks) {
        self.reasons.extend(other.reasons);
        self.repeated.extend(other.repeated);
        for (arm, noise) in other.noise {
            self.add_noise(&arm, noise);
        }
        for (arm, settings) in other.settings {
            self.settings.entry(arm).or_default().extend(settings);
        }
    }
}

/// Runs a plan over emulated wires and writes results and report into the output directory: after an error or Ctrl-C
/// those of the runs that were complete. A program that is not root must have one thread only when it calls this.
///
/// # Errors
///
/// [`Error::Interrupted`] by Ctrl-C, [`Error::Lacking`] where the machine has no emulated wires. A result that must not
/// be trusted is no error: see [`Summary::valid`].
pub fn run(options: &RunOptions) -> Result<Summary> {
    interrupt::install()?;
    // What is checked out later made none of the program that is running.
    run_with(options, &mut Emulator, &figures::commit())
}

/// Runs a plan with what `backend` makes, and writes results and report into the output directory: after an error or
/// Ctrl-C those of the runs that were complete, and none when an error came before anything was measured. `commit` is the
/// program's.
pub(super) fn run_with(options: &RunOptions, backend: &mut dyn Backend, commit: &str) -> Result<Summary> {
    let loaded = &options.loaded;
    let plan = &loaded.plan.with_arms(&options.arms)?.with_phases(&options.phases)?;
    let arms: Vec<String> = plan.arms.iter().map(|arm| arm.as_ref().name.clone()).collect();
    let (runs, seed) = runs_and_seed(options, plan)?;
    let wanted = Summary {
        plan: plan.name.clone(),
        set: loaded.set.clone(),
        arms,
        phases: options.phases.clone(),
        backend: backend.name().to_owned(),
        commit: commit.to_owned(),
        command: options.command.clone(),
        conditions: Conditions::now(),
        runs_wanted: runs,
        ..Summary::default()
    };
    let earlier = match options.resume {
        true => Earlier::read(options, &wanted, seed)?,
        false => prepare(&options.out).map(|()| Earlier::default())?,
    };
    let made = earlier.summary.seeds.len();
    let (begun, quiet) = (Instant::now(), LoadReading::now());
    let to_make = runs.saturating_sub(made);
    let budget = budget(&loaded.plan, plan, to_make)?;
    let screen = Screen::new(begun, estimate(plan) * to_make as u32);
    let mut running = Running {
        plan,
        heddle: &options.heddle,
        backend,
        samples: earlier.samples.clone(),
        remarks: Remarks::of(&earlier.summary),
        of_run: Remarks::default(),
        end: begun + budget,
        screen,
    };
    let (done, result) = running.all_runs(made..runs.max(made), seed);
    running.screen.end();
    let Running { samples, remarks: Remarks { mut reasons, repeated, noise, settings }, .. } = running;
    let failure = match result.err() {
        // Where nothing can be run, there is nothing to report.
        Some(error) if samples.all().is_empty() && !matches!(error, Error::Interrupted) => return Err(error),
        failure => failure,
    };
    if let Some(error) = &failure {
        reasons.push(format!("{NOT_COMPLETED}run {} of {runs}: {error}", done + 1));
    }
    let checks = summary::checks(plan, &samples);
    reasons.extend(checks.iter().filter_map(summary::Check::complaint));
    let seconds = begun.elapsed().as_secs_f64();
    let summary = Summary {
        seeds: (seed..).take(done).collect(),
        seconds: earlier.summary.seconds + seconds,
        noise: earlier.noise(quiet.until_now(), seconds),
        backend_noise: noise,
        settings,
        valid: reasons.is_empty(),
        reasons,
        repeated,
        figures: samples.figures().into_iter().chain(grid::whole_grid(&samples)).collect(),
        checks,
        targets: summary::judgements(plan, &samples, done),
        ..wanted
    };
    write(&options.out, loaded, &summary, &samples)?;
    failure.map_or(Ok(summary), Err)
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
            // All arms of a batch are left out of a run or none, because ratios come when the run is over.
            if grid::is_settled(self.plan, &self.samples, arm) {
                continue;
            }
            let step = format!("run {} of {runs}: {}", run + 1, arm.name);
            if let Some(options) = &arm.tor {
                self.tor(arm, options, run, seed, &step)?;
                continue;
            }
            let outcomes = self.arm(arm, seed, &step)?;
            for (case, outcome) in arm.flows().zip(&outcomes) {
                let labels = parse::case_labels(arm, case);
                for (name, unit, values) in cases::samples(outcome) {
                    self.samples.add(run, name, &labels, unit, &values);
                }
            }
            if arm.repeat {
                let again = self.arm(arm, seed, &format!("{step}, again"))?;
                for ((case, first), second) in arm.flows().zip(&outcomes).zip(&again) {
                    let labels = parse::case_labels(arm, case);
                    for (name, (unit, values)) in cases::differences(first, second) {
                        self.samples.add(run, name, &labels, unit, &values);
                    }
                }
            }
        }
        self.samples.compare(self.plan, run);
        Ok(())
    }

    /// One arm of a run, from nothing to nothing.
    fn arm(&mut self, arm: &Arm, seed: u64, step: &str) -> Result<Vec<Outcome>> {
        interrupt::check()?;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let begun = Instant::now();
            self.screen.show(step);
            let wires = self.backend.start(arm, &self.plan.kernel, seed)?;
            let outcomes = cases::run_all(arm, wires.as_ref(), &mut || self.screen.show(step));
            let conduct = wires.finish()?;
            let outcomes = outcomes?;
            if !self.is_repeated(&conduct, step, attempt, begun) {
                self.of_run.note(&arm.name, conduct, step);
                return Ok(outcomes);
            }
        }
    }

    /// The same for an arm with a Tor network.
    fn tor(&mut self, arm: &Arm, options: &TorArm, run: usize, seed: u64, step: &str) -> Result<()> {
        if !self.backend.has_hosts() {
            return Err(Error::Options(format!("the backend {} has no hosts for Tor", self.backend.name())));
        }
        let network =
            self.plan.tor.as_ref().ok_or_else(|| Error::Options("the plan has no network".into()))?;
        let arm_run = ArmRun { tor: network.as_ref(), arm: options, run, seed, heddle: self.heddle };
        let mut attempt = 0;
        let measured = loop {
            attempt += 1;
            let begun = Instant::now();
            let mut on_step = |what: &str| self.screen.show(&format!("{step}: {what}"));
            let measured = arm_run.measure(&mut on_step)?;
            if !self.is_repeated(&measured.conduct, step, attempt, begun) {
                break measured;
            }
        };
        for sampled in measured.samples {
            let labels = arm.labels.clone().into_iter().chain(sampled.labels).collect();
            self.samples.add(run, &sampled.name, &labels, sampled.unit, &sampled.values);
        }
        self.of_run.note(&arm.name, measured.conduct, step);
        Ok(())
    }

    /// Whether an arm is measured once more under its seed: the emulator was late, which has nothing to do with what was
    /// measured, and there is time. What was measured then is left out, and that is reported.
    fn is_repeated(&mut self, conduct: &Conduct, step: &str, attempt: usize, begun: Instant) -> bool {
        let again = conduct.is_late && attempt < ATTEMPTS && Instant::now() + begun.elapsed() <= self.end;
        if again {
            self.of_run.repeated.extend(conduct.reasons.iter().map(|reason| format!("{step}: {reason}")));
        }
        again
    }
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

fn write(out: &Path, loaded: &Loaded, summary: &Summary, samples: &RunSamples) -> Result<()> {
    write_whole(&out.join("plan.toml"), loaded.text.as_bytes())?;
    write_json(&out.join("samples.json"), samples, false)?;
    write_json(&out.join("summary.json"), summary, true)?;
    let page = report::page(&[report::Results { plan: &loaded.plan, summary, samples }]);
    write_whole(&out.join("report.html"), page.as_bytes())
}

/// The time for so many runs of the arms that were chosen of a plan. Its budget is for the usual arms and number of runs, and
/// more get more in proportion.
fn budget(plan: &Plan, chosen: &Plan, runs: usize) -> Result<Duration> {
    let usual = estimate(&plan.with_arms(&[])?).as_secs_f64() * plan.runs as f64;
    let wanted = estimate(chosen).as_secs_f64() * runs as f64;
    Ok(plan.budget.mul_f64((wanted / usual.max(1.0)).max(1.0)))
}

/// How long one run of a plan takes.
pub fn estimate(plan: &Plan) -> Duration {
    let of = |arm: &Arm| match (&arm.tor, &plan.tor) {
        (Some(arm), Some(network)) => network.as_ref().duration(arm),
        _ => (cases::duration(arm) + SETUP_ESTIMATE) * (1 + u32::from(arm.repeat)),
    };
    plan.arms.iter().map(|arm| of(arm.as_ref())).sum()
}

/// One line of progress on standard error: rewritten on a terminal, one line per step elsewhere.
struct Screen {
    begun: Instant,
    expected: Duration,
    terminal: bool,
    last: String,
}

impl Screen {
    fn new(begun: Instant, expected: Duration) -> Screen {
        Screen { begun, expected, terminal: io::stderr().is_terminal(), last: String::new() }
    }

    fn show(&mut self, step: &str) {
        let elapsed = self.begun.elapsed();
        let left = self.expected.saturating_sub(elapsed).as_secs();
        let line = format_args!("[{:>3} s, about {left:>3} s left] {step}", elapsed.as_secs());
        // Progress is a courtesy: a terminal that is gone must not end the run.
        let _ = match self.terminal {
            true => write!(io::stderr(), "\r\x1b[K{line}"),
            false if self.last != step => writeln!(io::stderr(), "{line}"),
            false => Ok(()),
        };
        step.clone_into(&mut self.last);
    }

    fn end(&mut self) {
        if self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
