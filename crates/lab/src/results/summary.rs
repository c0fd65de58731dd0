//! What a run leaves behind as `summary.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::check::Check;
use super::judgement::Judgement;
use crate::costs::Cpu;
use crate::error::{Error, Result};
use crate::figures::Figure;
use crate::machine::conditions::{Conditions, LoadReading, Noise, commit};
use crate::machine::files::{read_json, write_json};

/// What a reason says when an error, Ctrl-C or the end of its time cut a result short.
pub(crate) const NOT_COMPLETED: &str = "not completed";

/// And what it says beside that when time alone was short, so that the rest can follow.
pub(crate) const OUT_OF_TIME: &str = "runs fit into the time";

/// The result of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The plan's name.
    pub plan: String,
    /// What `--set` changed in it.
    pub set: BTreeMap<String, String>,
    /// The names of the arms that were measured.
    #[serde(default)]
    pub arms: Vec<String>,
    /// The names of the phases that were chosen; none means all.
    #[serde(default)]
    pub phases: Vec<String>,
    /// What the hosts and wires were made of.
    pub backend: String,
    /// What each relay computed with, where that was charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Whether links encrypted nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub null_crypto: bool,
    /// The commit that was checked out (see `commit`).
    pub commit: String,
    /// The command that made it, as typed.
    pub command: String,
    /// On what machine; of jobs, the first one's.
    pub conditions: Conditions,
    /// All kinds of machines that made jobs, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<Conditions>,
    /// The version of stock Tor; empty where none took part.
    #[serde(default)]
    pub tor: String,
    /// Over what intervals are.
    #[serde(default)]
    pub intervals_over: Repetition,
    /// The commands by which runs came to be here, in their order: the last one is `command`.
    #[serde(default)]
    pub history: Vec<Invocation>,
    /// The seeds of the runs that are in the figures.
    pub seeds: Vec<u64>,
    /// How many runs there should have been.
    pub runs_wanted: usize,
    /// How long it took, in seconds; of jobs, all together.
    pub seconds: f64,
    /// How quiet the machine was; of jobs, the highest loads of all.
    pub noise: Noise,
    /// What the backend says about itself, by arm: the worst of all runs.
    pub backend_noise: BTreeMap<String, BTreeMap<String, f64>>,
    /// What the hosts were set to, by arm: congestion controls, socket memory in bytes (least, first and most), and
    /// what the machine did not allow.
    pub settings: BTreeMap<String, BTreeSet<String>>,
    /// The hash of all that happened, by arm and run, where one seed gives one run: that of virtual time.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub traces: BTreeMap<String, Vec<String>>,
    /// Whether the figures may be trusted.
    pub valid: bool,
    /// Why not.
    pub reasons: Vec<String>,
    /// What was measured once more because the emulator was late, and why; the first time is in none of `figures`.
    #[serde(default)]
    pub repeated: Vec<String>,
    /// What those first times gave.
    #[serde(default)]
    pub tries: Vec<Try>,
    /// What was measured.
    pub figures: Vec<Figure>,
    /// Ours beside what was known.
    pub checks: Vec<Check>,
    /// Which targets were met.
    #[serde(default)]
    pub targets: Vec<Judgement>,
}

/// A command that made some of the runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invocation {
    /// The command, as typed.
    pub command: String,
    /// How many runs there were before it.
    pub runs_before: usize,
    /// How many there were after it.
    pub runs_after: usize,
    /// How many it was to come to.
    pub runs_wanted: usize,
}

/// An arm of a run that was measured once more, because the emulator was late.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Try {
    /// The arm's name.
    pub arm: String,
    /// The number of the run, from 0.
    pub run: usize,
    /// In what the emulator was late.
    pub reasons: Vec<String>,
    /// What was measured nevertheless.
    pub figures: Vec<Figure>,
}

/// What is measured again and again, for intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repetition {
    /// Runs, each with hosts and processes of its own.
    #[default]
    Runs,
    /// Networks, each with processes of its own, and several rounds in each.
    Networks,
    /// Rounds in one network: intervals do not tell by how much another network would differ.
    RoundsInOneNetwork,
}

impl Summary {
    /// Whether it was cut short.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.reasons.iter().any(|reason| reason.contains(NOT_COMPLETED))
    }

    /// Whether that is for time alone.
    pub(crate) fn ran_out_of_time(&self) -> bool {
        let mut cuts = self.reasons.iter().filter(|reason| reason.contains(NOT_COMPLETED)).peekable();
        cuts.peek().is_some() && cuts.all(|reason| reason.ends_with(OUT_OF_TIME))
    }

    /// Whether the number of runs was chosen anew after there were some ([`was_extended`]).
    pub(crate) fn was_extended(&self) -> bool {
        was_extended(&self.history)
    }

    /// Writes the summary as JSON, creating the directory it lies in.
    pub fn write(&self, path: &Path) -> Result<()> {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(Error::io(format!("making {}", dir.display())))?;
        }
        write_json(path, self, true)
    }

    /// Reads `summary.json` of a run's directory.
    pub fn read(dir: &Path) -> Result<Summary> {
        read_json(&dir.join("summary.json"))
    }
}

/// Whether commands wanted different numbers of runs after there were some: who adds runs until an interval shows what
/// he hoped for, or ends them when it does, finds it too often, so that such intervals are narrower than they say.
pub(crate) fn was_extended(history: &[Invocation]) -> bool {
    history.windows(2).any(|pair| pair[0].runs_after > 0 && pair[0].runs_wanted != pair[1].runs_wanted)
}

/// A measurement without a plan, before it has figures. What is checked out meanwhile made none of it.
#[derive(Clone, Debug)]
pub struct Measurement {
    known: Summary,
    load: LoadReading,
    begun: Instant,
}

impl Measurement {
    /// Begins one: what it is called, how it was asked for, and the congestion control that its TCP connections have.
    pub fn begin(name: &str, command: &str, congestion_control: &str) -> Measurement {
        let setting = format!("TCP with {congestion_control}");
        let known = Summary {
            plan: name.to_owned(),
            command: command.to_owned(),
            commit: commit(),
            backend: "loopback".to_owned(),
            conditions: Conditions::now(),
            intervals_over: Repetition::RoundsInOneNetwork,
            settings: BTreeMap::from([("all arms".to_owned(), BTreeSet::from([setting]))]),
            ..Summary::default()
        };
        Measurement { known, load: LoadReading::now(), begun: Instant::now() }
    }

    /// It is repeated in networks of their own.
    pub(crate) fn in_networks(&mut self) {
        self.known.intervals_over = Repetition::Networks;
    }

    /// What else its hosts and relays were set to.
    pub(crate) fn set(&mut self, setting: &str) {
        self.known.settings.entry("all arms".to_owned()).or_default().insert(setting.to_owned());
    }

    /// Why its figures must not be trusted. Each reason is kept once.
    pub fn doubt(&mut self, reason: String) {
        if !self.known.reasons.contains(&reason) {
            self.known.reasons.push(reason);
        }
    }

    /// What it gave in so many rounds, or networks, beside a stock Tor of this version.
    pub fn end(mut self, figures: Vec<Figure>, rounds: usize, rounds_wanted: usize, tor: String) -> Summary {
        let noise = self.load.until_now();
        self.known.reasons.extend(noise.complaint());
        Summary {
            figures,
            tor,
            seeds: vec![0; rounds],
            runs_wanted: rounds_wanted,
            seconds: self.begun.elapsed().as_secs_f64(),
            noise,
            valid: self.known.reasons.is_empty(),
            ..self.known
        }
    }
}
