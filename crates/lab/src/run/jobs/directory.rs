//! The directory of jobs: what they are to measure, and which build of the program is to do that.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf, absolute};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::scripts::{Places, scripts};
use crate::backend::sim::Sim;
use crate::costs::Cpu;
use crate::error::{Error, Result};
use crate::machine::conditions::commit;
use crate::machine::files::{read_json, write_json, write_whole};
use crate::plan::{Loaded, Plan};
use crate::run::experiment::{BackendKind, RunOptions, check_arms, runs_and_seed};

/// What there is to do.
const LIST: &str = "jobs.json";
/// The plan, with all values in place.
const PLAN: &str = "plan.toml";
/// Where each job writes what it gave.
const RESULTS: &str = "results";
/// Where jobs say how they are getting on.
const LOGS: &str = "logs";

/// What is measured and by which program: what two jobs must have in common whose results are put together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Order {
    /// The plan's name.
    pub(super) plan: String,
    /// The SHA-256 of its text, with all values in place.
    pub(super) plan_sha256: String,
    /// What `--set` changed in it.
    pub(super) set: BTreeMap<String, String>,
    /// The arms.
    pub(super) arms: Vec<String>,
    /// The phases that were chosen; none means all.
    pub(super) phases: Vec<String>,
    /// How many runs there are.
    pub(super) runs: usize,
    /// The seed of the first.
    pub(super) seed: u64,
    /// What each relay computes with, where that is charged.
    pub(super) cpu: Option<Cpu>,
    /// Whether links encrypt nothing.
    #[serde(default)]
    pub(super) null_crypto: bool,
    /// The commit that was checked out when the jobs were written.
    pub(super) commit: String,
    /// The program.
    pub(super) program: Build,
}

/// A build of this program. Another one may give other bytes under the same seed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Build {
    /// Its version.
    pub(super) heddle: String,
    /// The SHA-256 of its file.
    pub(super) sha256: String,
}

/// An arm of a run under its seed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its number in the directory, from 1.
    pub number: usize,
    /// The number of the run, from 0.
    pub run: usize,
    /// The arm's name.
    pub arm: String,
    /// The run's seed.
    pub seed: u64,
}

/// What `jobs.json` says.
#[derive(Debug, Serialize, Deserialize)]
struct Listed {
    order: Order,
    /// The command that wrote it, as typed.
    command: String,
    jobs: Vec<Job>,
}

/// Jobs as they stand in a directory.
#[derive(Debug)]
pub(super) struct Jobs {
    pub(super) dir: PathBuf,
    pub(super) order: Order,
    /// The plan, as who wrote the jobs had it loaded.
    pub(super) loaded: Loaded,
    /// The part of it that is measured.
    pub(super) plan: Plan,
    pub(super) list: Vec<Job>,
}

/// Writes the jobs of a plan's runs into the options' directory, which must not hold any. The options' program is the
/// one that makes them, by its path on the machines that do.
///
/// # Errors
///
/// [`Error::Options`] for another backend than virtual time, [`Error::Lacking`] where that has not all that an arm
/// wants, and those of writing files.
pub fn write_jobs(options: &RunOptions) -> Result<Vec<Job>> {
    if options.backend != BackendKind::Sim {
        return Err(Error::Options(
            "jobs are of --backend sim alone: emulated wires are one machine's own, and whatever else that does shows \
             in what they measure, so runs on many machines would not be one result; measure with `heddle lab run`, \
             on a machine that does nothing else"
                .into(),
        ));
    }
    let loaded = &options.loaded;
    let plan = loaded.plan.with_arms(&options.arms)?.with_phases(&options.phases)?.with_stock_modelled();
    let (runs, seed) = runs_and_seed(options.runs, options.seed, &plan)?;
    check_arms(&plan, &Sim::new(options.null_crypto, options.cpu.clone(), None), seed)?;
    let order = Order {
        plan: plan.name.clone(),
        plan_sha256: format!("{:x}", Sha256::digest(&loaded.text)),
        set: loaded.set.clone(),
        arms: names_of_arms(&plan),
        phases: options.phases.clone(),
        runs,
        seed,
        cpu: options.cpu.clone(),
        null_crypto: options.null_crypto,
        commit: commit(),
        program: Build::this()?,
    };
    let out = &options.out;
    if out.join(LIST).exists() {
        return Err(Error::Options(format!(
            "{} holds jobs already; choose another directory",
            out.display()
        )));
    }
    let dir = absolute(out).map_err(Error::io(format!("looking for {}", out.display())))?;
    let jobs = order.jobs();
    let places = Places { program: &options.heddle, dir: &dir, logs: &dir.join(LOGS) };
    let scripts = scripts(&order.plan, jobs.len(), places)?;
    for dir in [RESULTS, LOGS] {
        let dir = out.join(dir);
        fs::create_dir_all(&dir).map_err(Error::io(format!("making {}", dir.display())))?;
    }
    for (name, text) in scripts {
        write_whole(&out.join(name), text.as_bytes())?;
    }
    write_whole(&out.join(PLAN), loaded.text.as_bytes())?;
    // Without this one there are no jobs, so it is the last.
    let listed = Listed { order, command: options.command.clone(), jobs };
    write_json(&out.join(LIST), &listed, true)?;
    Ok(listed.jobs)
}

impl Jobs {
    /// Reads the jobs of a directory, which this very build of the program must have written.
    ///
    /// # Errors
    ///
    /// One sentence about what is not there or not right.
    pub(super) fn read(dir: &Path) -> Result<Jobs> {
        let list = dir.join(LIST);
        let Listed { order, jobs, .. } = read_json(&list)?;
        let wrong = |what: String| {
            Error::Options(format!("{}: {what}; write the jobs anew with heddle lab jobs", list.display()))
        };
        let ours = Build::this()?;
        if order.program != ours {
            let Build { heddle, sha256 } = &order.program;
            return Err(Error::Options(format!(
                "{}: its jobs are for heddle {heddle} whose SHA-256 is {sha256}, and this is heddle {} with {}; use \
                 that one on each machine",
                list.display(),
                ours.heddle,
                ours.sha256
            )));
        }
        let file = dir.join(PLAN);
        let name = file.to_str().ok_or_else(|| Error::Options(format!("{}: no UTF-8", file.display())))?;
        let mut loaded = Plan::load(name, &BTreeMap::new())?;
        if format!("{:x}", Sha256::digest(&loaded.text)) != order.plan_sha256 {
            return Err(wrong(format!("{} is another plan than its jobs are of", file.display())));
        }
        loaded.set.clone_from(&order.set);
        let plan = loaded.plan.with_arms(&order.arms)?.with_phases(&order.phases)?.with_stock_modelled();
        runs_and_seed(Some(order.runs), Some(order.seed), &plan).map_err(|error| wrong(error.to_string()))?;
        if names_of_arms(&plan) != order.arms || order.jobs() != jobs {
            return Err(wrong("its jobs are not those of its arms and runs".into()));
        }
        Ok(Jobs { dir: dir.to_owned(), order, loaded, plan, list: jobs })
    }

    /// The job of this number.
    pub(super) fn find(&self, number: usize) -> Result<&Job> {
        self.list.iter().find(|job| job.number == number).ok_or_else(|| {
            let (dir, last) = (self.dir.display(), self.list.len());
            Error::Options(format!("there is no job {number} in {dir}; there are 1 to {last}"))
        })
    }

    /// The file of what a job gave.
    pub(super) fn file_of(&self, job: &Job) -> PathBuf {
        self.dir.join(RESULTS).join(format!("{}.json", job.number))
    }
}

impl Order {
    /// The jobs: run by run all arms, in the plan's order.
    fn jobs(&self) -> Vec<Job> {
        let runs = (0..self.runs).flat_map(|run| self.arms.iter().map(move |arm| (run, arm)));
        let job = |(place, (run, arm)): (usize, (usize, &String))| Job {
            number: place + 1,
            run,
            arm: arm.clone(),
            seed: self.seed + run as u64,
        };
        runs.enumerate().map(job).collect()
    }

    /// What its jobs run on.
    pub(super) fn backend(&self) -> Sim {
        Sim::new(self.null_crypto, self.cpu.clone(), None)
    }

    /// In what another one differs, to be read after the name of a file that has it.
    pub(super) fn differs(&self, other: &Order) -> Option<&'static str> {
        let is_of_another_plan =
            (&self.plan, &self.plan_sha256, &self.set) != (&other.plan, &other.plan_sha256, &other.set);
        let differs = [
            ("is of another plan or of other values", is_of_another_plan),
            ("is of other arms or phases", (&self.arms, &self.phases) != (&other.arms, &other.phases)),
            ("is of other runs or seeds", (self.runs, self.seed) != (other.runs, other.seed)),
            ("is of other cores or costs of relays", self.cpu != other.cpu),
            ("is of another cryptography of links", self.null_crypto != other.null_crypto),
            ("is of another commit", self.commit != other.commit),
            ("was made by another build of the program", self.program != other.program),
        ];
        differs.into_iter().find(|(_, differs)| *differs).map(|(what, _)| what)
    }
}

impl Job {
    /// What it is, of so many runs.
    pub(super) fn told(&self, runs: usize) -> String {
        let Job { number, run, arm, seed } = self;
        format!("job {number} (run {} of {runs}, arm {arm}, seed {seed})", run + 1)
    }
}

impl Build {
    /// The one that is running.
    fn this() -> Result<Build> {
        let mut hash = Sha256::new();
        // By this name it is there also where another one has taken its place.
        let read = File::open("/proc/self/exe").and_then(|mut file| io::copy(&mut file, &mut hash));
        read.map_err(Error::io("reading the program's own file"))?;
        let sha256 = format!("{:x}", hash.finalize());
        Ok(Build { heddle: env!("CARGO_PKG_VERSION").to_owned(), sha256 })
    }
}

fn names_of_arms(plan: &Plan) -> Vec<String> {
    plan.arms.iter().map(|arm| arm.as_ref().name.clone()).collect()
}
