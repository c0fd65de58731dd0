//! What is kept of a measurement: a small JSON file, from which pages are made.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toml::Spanned;

use super::Wanted;
use crate::error::{Error, Result};
use crate::figures::{Figure, Labels, quantity};
use crate::machine::conditions::{Conditions, Noise};
use crate::machine::files::{read_json, write_json, write_whole};
use crate::plan::{Plan, Target};
use crate::report::title_of;
use crate::results::{Check, Invocation, Judgement, Repetition, RunSamples, Series, Stored, Summary, Try};
use crate::statistics::mean;

/// Digits that a number keeps; more than any interval here is worth.
const DIGITS: i32 = 5;

/// What is kept of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The measurement's name in the book.
    pub name: String,
    /// The command as it would be typed, without `--out`.
    pub command: String,
    /// What was measured, in a few words.
    pub title: String,
    /// The plan's words about it; none in records of before they were kept.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Who wanted to know it first.
    pub source: String,
    /// The commit.
    pub commit: String,
    /// On what machine.
    pub conditions: Conditions,
    /// The version of stock Tor.
    pub tor: String,
    /// What hosts and wires were made of.
    #[serde(default)]
    pub backend: String,
    /// What hosts were set to, by arm.
    pub settings: BTreeMap<String, BTreeSet<String>>,
    /// How quiet the machine was.
    pub noise: Noise,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// How many runs there were, or rounds in one network.
    pub runs: usize,
    /// How many there should have been.
    pub runs_wanted: usize,
    /// What these are, and so over what intervals are.
    pub intervals_over: Repetition,
    /// Seeds of the runs.
    pub seeds: Vec<u64>,
    /// Whether its figures may be trusted.
    pub valid: bool,
    /// Why not.
    pub reasons: Vec<String>,
    /// What was measured once more because the emulator was late, and why.
    pub repeated: Vec<String>,
    /// What those first times gave.
    #[serde(default)]
    pub tries: Vec<Try>,
    /// The commands by which runs came to be here, in their order.
    #[serde(default)]
    pub history: Vec<Invocation>,
    /// How each attempt at it ended, in their order.
    #[serde(default)]
    pub attempts: Vec<Attempt>,
    /// What figures are called that the plan made by comparing others, or to which its phases give names.
    #[serde(default)]
    pub titles: BTreeMap<String, String>,
    /// What was measured.
    pub figures: Vec<Kept>,
    /// Values known from elsewhere beside ours.
    pub known: Vec<Check>,
    /// What became of the plan's targets.
    pub targets: Vec<Judgement>,
    /// The book's aims when it was begun, because an aim that is set afterwards is none. `None` in records of before
    /// they were kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aims: Option<Vec<Target>>,
}

/// An attempt at a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// How its process ended.
    pub ended: String,
}

/// A figure and the runs behind it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// The figure.
    #[serde(flatten)]
    pub figure: Figure,
    /// The mean of each run that has it, by the run's number from 0, or of each round in one network.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_run: BTreeMap<usize, f64>,
}

impl Record {
    /// Whether it has figures of an arm whose transport is called so.
    pub(super) fn has_arm(&self, transport: &str) -> bool {
        self.figures
            .iter()
            .any(|kept| kept.figure.labels.get("transport").is_some_and(|arm| arm == transport))
    }

    /// What a command left in a directory.
    ///
    /// # Errors
    ///
    /// When it left nothing that can be read.
    pub fn of(wanted: &Wanted, dir: &Path) -> Result<Record> {
        let (summary, samples, plan) = match dir.join("plan.toml").exists() {
            true => {
                let Stored { plan, summary, samples } = Stored::read(dir)?;
                (summary, samples, Some(plan))
            }
            // Earlier programs left no samples of these.
            false if !dir.join("samples.json").exists() => (Summary::read(dir)?, RunSamples::default(), None),
            false => (Summary::read(dir)?, RunSamples::read(dir)?, None),
        };
        let titles = plan.as_ref().map(of_plan).unwrap_or_default();
        let (title, about, source) =
            plan.map(|plan| (plan.title, plan.about, plan.source.unwrap_or_default())).unwrap_or_default();
        let by_run = |figure: &Figure| {
            let series = samples.series(&figure.name, &figure.labels);
            let means = |series: &Series| {
                let of_run = |(run, samples): (&usize, &Vec<f64>)| Some((*run, rounded(mean(samples)?)));
                series.runs.iter().filter_map(of_run).collect()
            };
            series.map(means).unwrap_or_default()
        };
        check_command(wanted, &summary)?;
        let placeless =
            |made: Invocation| Invocation { command: without_directory(&made.command).to_owned(), ..made };
        let kept = |figure: Figure| Kept { by_run: by_run(&figure), figure: shortened(figure) };
        Ok(Record {
            name: wanted.name.clone(),
            command: format!("heddle {}", wanted.command),
            title: if wanted.title.is_empty() { title } else { wanted.title.clone() },
            about,
            source,
            intervals_over: summary.intervals_over,
            commit: summary.commit,
            conditions: summary.conditions,
            tor: summary.tor,
            backend: summary.backend,
            settings: summary.settings,
            tries: summary.tries,
            history: summary.history.into_iter().map(placeless).collect(),
            attempts: attempts(dir)?,
            noise: summary.noise,
            seconds: summary.seconds.round(),
            runs: summary.seeds.len(),
            runs_wanted: summary.runs_wanted,
            seeds: summary.seeds,
            valid: summary.valid,
            reasons: summary.reasons,
            repeated: summary.repeated,
            titles,
            figures: summary.figures.into_iter().map(kept).collect(),
            known: summary.checks,
            targets: summary.targets,
            aims: aims(dir)?,
        })
    }

    /// Whether somebody set this aim when the measurement had begun.
    pub(super) fn is_late(&self, aim: &Target) -> bool {
        let same = |set: &Target| {
            (&set.figure, &set.labels, set.at_most, set.at_least)
                == (&aim.figure, &aim.labels, aim.at_most, aim.at_least)
        };
        self.aims.as_ref().is_some_and(|aims| !aims.iter().any(same))
    }

    /// Reads the record of a measurement from the book's directory; `None` where there is none.
    ///
    /// # Errors
    ///
    /// When the file is not a record.
    pub fn read(docs: &Path, name: &str) -> Result<Option<Record>> {
        let path = docs.join(format!("{name}.json"));
        if path.exists() { read_json(&path).map(Some) } else { Ok(None) }
    }

    /// Writes it into the book's directory, a line for each figure, so that two books can be compared line by line.
    ///
    /// # Errors
    ///
    /// Those of writing a file.
    pub fn write(&self, docs: &Path) -> Result<()> {
        let path = docs.join(format!("{}.json", self.name));
        fs::create_dir_all(docs).map_err(Error::io(format!("making {}", docs.display())))?;
        let value = serde_json::to_value(self);
        let value = value.map_err(|error| Error::Options(format!("{}: {error}", path.display())))?;
        write_whole(&path, lines(value.as_object().unwrap_or(&Map::new())).as_bytes())
    }

    /// What a figure is called, with its unit. A plan may keep one quantity under the name of another.
    pub(super) fn title(&self, name: &str, unit: &str) -> String {
        let of_plan = self.titles.get(name).map(String::as_str);
        let known = of_plan.or_else(|| quantity(name).map(|quantity| quantity.title));
        let title = known.map_or_else(|| format!("`{name}`"), str::to_owned);
        match unit {
            "" | "1" => title,
            unit => format!("{title}, {unit}"),
        }
    }

    /// The figures of a name that have these labels, and maybe others.
    pub(crate) fn figures_of<'a>(
        &'a self,
        name: &'a str,
        labels: &'a Labels,
    ) -> impl Iterator<Item = &'a Kept> {
        self.figures.iter().filter(move |kept| {
            let Figure { name: own, labels: has, .. } = &kept.figure;
            own == name && labels.iter().all(|(label, value)| has.get(label) == Some(value))
        })
    }
}

/// The attempts at what lies in a directory.
pub(super) fn attempts(dir: &Path) -> Result<Vec<Attempt>> {
    let path = dir.with_extension("attempts.json");
    if path.exists() { read_json(&path) } else { Ok(Vec::new()) }
}

/// Notes another attempt before it begins, because nobody could note the end of one that ends with its book. Returns
/// its place.
pub(super) fn note_attempt(dir: &Path, began: u64) -> Result<usize> {
    let mut all = attempts(dir)?;
    all.push(Attempt { began, ended: "nobody saw its end".to_owned() });
    write_json(&dir.with_extension("attempts.json"), &all, true)?;
    Ok(all.len() - 1)
}

/// The aims that what lies in a directory had when it was begun.
fn aims(dir: &Path) -> Result<Option<Vec<Target>>> {
    let path = dir.with_extension("aims.json");
    if path.exists() { read_json(&path).map(Some) } else { Ok(None) }
}

/// Notes the aims of a measurement that begins; of one that goes on they are noted.
pub(super) fn note_aims(dir: &Path, aims: &[Target]) -> Result<()> {
    let path = dir.with_extension("aims.json");
    if path.exists() { Ok(()) } else { write_json(&path, &aims, true) }
}

/// Notes how an attempt ended.
pub(super) fn end_attempt(dir: &Path, place: usize, ended: String) -> Result<()> {
    let mut all = attempts(dir)?;
    if let Some(attempt) = all.get_mut(place) {
        attempt.ended = ended;
    }
    write_json(&dir.with_extension("attempts.json"), &all, true)
}

/// A command but for where its results went, which is a matter of one machine, and what follows.
fn without_directory(command: &str) -> &str {
    command.split(" --out ").next().unwrap_or(command)
}

/// What lies in a directory was made by the command that the book names.
fn check_command(wanted: &Wanted, summary: &Summary) -> Result<()> {
    let made_by = without_directory(&summary.command);
    // The program may have been called by another name.
    let made_by = made_by.split_once(' ').map_or("", |(_, arguments)| arguments);
    if summary.command.is_empty() || made_by == wanted.command {
        return Ok(());
    }
    let Wanted { name, command, .. } = wanted;
    Err(Error::Options(format!("the results of {name:?} were made by {made_by:?}, not by {command:?}")))
}

/// What those of a plan's figures are called that it compares, or that its phases give names of their own.
fn of_plan(plan: &Plan) -> BTreeMap<String, String> {
    let compared = plan.compare.iter().map(|compare| compare.as_ref().name.clone());
    let phases = plan.tor.iter().flat_map(|tor| tor.as_ref().phases.iter().map(Spanned::as_ref));
    let renamed = phases.flat_map(|phase| phase.figures.iter());
    let renamed = renamed.filter(|(name, given)| name != given).map(|(_, given)| given.clone());
    compared.chain(renamed).map(|name| (name.clone(), title_of(plan, &name))).collect()
}

/// JSON with a line for each member, and for each element of lists of objects.
fn lines(record: &Map<String, Value>) -> String {
    let mut text = String::from("{\n");
    for (place, (name, value)) in record.iter().enumerate() {
        let name = Value::from(name.as_str());
        match value.as_array().filter(|list| list.iter().any(Value::is_object)) {
            Some(list) => {
                let rows: Vec<String> = list.iter().map(|row| format!("    {row}")).collect();
                text += &format!("  {name}: [\n{}\n  ]", rows.join(",\n"));
            }
            None => text += &format!("  {name}: {value}"),
        }
        text += if place + 1 == record.len() { "\n" } else { ",\n" };
    }
    text + "}\n"
}

fn shortened(figure: Figure) -> Figure {
    let Figure { name, labels, unit, n, mean, ci95, p50, p90, p99 } = figure;
    let ci95 = ci95.map(|bounds| bounds.map(rounded));
    let [mean, p50, p90, p99] = [mean, p50, p90, p99].map(rounded);
    Figure { name, labels, unit, n, mean, ci95, p50, p90, p99 }
}

/// The number with as many digits as are kept.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let places = DIGITS - 1 - value.abs().log10().floor() as i32;
    let text = if places > 0 {
        format!("{value:.places$}", places = places as usize)
    } else {
        let unit = 10_f64.powi(-places);
        format!("{:.0}", (value / unit).round() * unit)
    };
    text.parse().unwrap_or(value)
}
