//! The book's pages and the README's table, made from records alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::markdown::{self, arm_and_place, arms, cell, judged_cell, number, table};
use super::record::{Kept, Record};
use super::{Book, Page, Row, Wanted, beside, papers};
use crate::error::{Error, Result};
use crate::figures::Labels;
use crate::machine::conditions::Conditions;
use crate::machine::files::write_whole;
use crate::plan::Target;
use crate::results::{Check, Judgement, Outcome, Repetition, was_extended};

/// Between these lines of the README its table stands.
const MARKS: [&str; 2] = ["<!-- results -->\n", "<!-- /results -->\n"];

/// Where the pages are in the repository.
pub(super) const DOCS: &str = "docs/results";

/// Writes pages and table of a repository from the records in it.
///
/// # Errors
///
/// When a record cannot be read or a file cannot be written.
pub fn draw(book: &Book, root: &Path) -> Result<Vec<PathBuf>> {
    let docs = root.join(DOCS);
    fs::create_dir_all(&docs).map_err(Error::io(format!("making {}", docs.display())))?;
    let mut written = Vec::new();
    for (path, text) in wanted(book, root)? {
        if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            write_whole(&path, text.as_bytes())?;
            written.push(path);
        }
    }
    Ok(written)
}

/// The files of a repository that are not what its records say.
///
/// # Errors
///
/// When a record cannot be read.
pub fn stale(book: &Book, root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = wanted(book, root)?;
    files.retain(|(path, text)| fs::read_to_string(path).ok().as_ref() != Some(text));
    Ok(files.into_iter().map(|(path, _)| path).collect())
}

/// Every file that is drawn, and its text.
fn wanted(book: &Book, root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let docs = root.join(DOCS);
    let mut records = Vec::new();
    for wanted in &book.measurements {
        records.push((wanted, Record::read(&docs, &wanted.name)?));
    }
    let record_of = |name: &str| {
        records.iter().find(|(wanted, _)| wanted.name == name).and_then(|(_, record)| record.clone())
    };
    let mut files = Vec::new();
    for page in &book.pages {
        let of_page = records.iter().filter(|(wanted, _)| wanted.page == page.name);
        let of_page = of_page.map(|(wanted, record)| (*wanted, record.as_ref(), emulated(wanted, &records)));
        let of_paper = papers::text(&book.items, &page.name, &record_of);
        files.push((docs.join(format!("{}.md", page.name)), page_text(page, &of_paper, of_page)));
    }
    files.push((docs.join("README.md"), overview(book, &records)));
    let path = root.join("README.md");
    let readme = fs::read_to_string(&path).map_err(Error::io(format!("reading {}", path.display())))?;
    let all: Vec<&Record> = records.iter().filter_map(|(_, record)| record.as_ref()).collect();
    let around = readme.split_once(MARKS[0]).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(MARKS[1])?;
        Some((before, after))
    });
    let (before, after) =
        around.ok_or_else(|| Error::Options("README.md has no marks of its results".to_owned()))?;
    let results = readme_table(book, &all);
    files.push((path, format!("{before}{}{results}{}{after}", MARKS[0], MARKS[1])));
    Ok(files)
}

/// The record over emulated wires that one in virtual time stands beside.
fn emulated<'a>(wanted: &Wanted, records: &'a [(&Wanted, Option<Record>)]) -> Option<&'a Record> {
    let name = wanted.beside.as_ref()?;
    records.iter().find(|(other, _)| other.name == *name)?.1.as_ref()
}

/// What stands at the top of what is drawn.
fn heading(title: &str) -> String {
    format!(
        "# {title}\n\n<!-- Drawn by `heddle lab book draw` from the JSON files beside it: change those, or book.toml. -->\n\n"
    )
}

/// The page that lists all others.
fn overview(book: &Book, records: &[(&Wanted, Option<Record>)]) -> String {
    let mut text = heading("The book of results");
    text += "What `heddle lab book` measured, page by page. Each measurement is one command, made once at a commit, \
             and what it gave is in the JSON file of its name beside these pages, with every attempt at it at that \
             commit. What was tried at other commits is told in \
             [experiments](../notes/experiments.md#not-here-yet). \
             [The lab](../guide/lab.md#the-book-of-results) tells how a book is made; \
             [notes](../notes/overview.md) have what was measured before there was one. Where a row of a table has \
             two or three numbers, each is one run's; with intervals they are means.\n\n";
    let rows: Vec<Vec<String>> = records
        .iter()
        .map(|(wanted, record)| {
            let page = book.pages.iter().find(|page| page.name == wanted.page).map_or("", |page| &page.title);
            let name = match record {
                Some(_) => format!("[`{0}`]({0}.json)", wanted.name),
                None => format!("`{}`", wanted.name),
            };
            let emu = emulated(wanted, records);
            let told = |record: &Record| match emu {
                Some(emu) if record.valid && emu.valid => {
                    beside::outcome(wanted, &beside::ratios(wanted, emu, record), emu)
                }
                _ => outcomes(wanted, record),
            };
            let (command, commit, outcome) = match record {
                Some(record) => (record.command.clone(), short(&record.commit), told(record)),
                None => (format!("heddle {}", wanted.command), String::new(), "not measured".to_owned()),
            };
            vec![name, format!("[{page}]({}.md)", wanted.page), format!("`{command}`"), commit, outcome]
        })
        .collect();
    let head = ["measurement", "page", "command", "commit", "bounds"].map(str::to_owned);
    text + table(&head, &rows).trim_end() + "\n"
}

/// How many bounds were met, missed and left open.
fn outcomes(wanted: &Wanted, record: &Record) -> String {
    if !record.valid {
        return "**not valid**".to_owned();
    }
    let bounds = bounds(wanted, record);
    let count = |outcome: Outcome| bounds.iter().filter(|bound| bound.outcome == outcome).count();
    let all = [Outcome::Met, Outcome::Missed, Outcome::Open, Outcome::NotMeasured];
    let told = all.map(|outcome| (count(outcome), outcome.name()));
    let told = told.iter().filter(|(count, _)| *count > 0).map(|(count, name)| format!("{count} {name}"));
    let told: Vec<String> = told.collect();
    if told.is_empty() { "none".to_owned() } else { told.join(", ") }
}

fn page_text<'a>(
    page: &Page,
    of_paper: &str,
    records: impl Iterator<Item = (&'a Wanted, Option<&'a Record>, Option<&'a Record>)>,
) -> String {
    let mut text = heading(&page.title) + page.about.trim() + "\n\n" + of_paper;
    for (wanted, record, emu) in records {
        match record {
            Some(record) => text += &section(wanted, record, emu),
            None => {
                text +=
                    &format!("## {}\n\n**Not measured** yet: `heddle {}`.\n\n", wanted.name, wanted.command);
            }
        }
    }
    text.trim_end().to_owned() + "\n"
}

/// What a page says of a measurement, and of the same over emulated wires if there is one.
fn section(wanted: &Wanted, record: &Record, emu: Option<&Record>) -> String {
    let mut text = format!("## {}\n\n", record.title);
    text += &format!("[`{}`]({}.json): {}.\n", record.command, record.name, conditions(record));
    let of_book = format!("heddle {}", wanted.command);
    if record.command != of_book {
        text += &format!("**Made by another command than the book's**, which is `{of_book}`.\n");
    }
    if !record.source.is_empty() {
        text += &format!("After {}.\n", record.source);
    }
    if !record.valid {
        text += &format!("**Not valid**, so no bound counts as met: {}.\n", record.reasons.join("; "));
    }
    if !record.repeated.is_empty() {
        text += &format!("Measured once more: {}.\n", record.repeated.join("; "));
    }
    if !record.about.is_empty() {
        text += &format!("\n{}\n", record.about);
    }
    text.push('\n');
    if let Some(emu) = emu {
        return text + &beside::text(wanted, &beside::ratios(wanted, emu, record), emu, record);
    }
    let bounds = bounds(wanted, record);
    if !bounds.is_empty() {
        let head = ["bound", "ours", "by the 95 % interval", "whose"].map(str::to_owned);
        let rows: Vec<Vec<String>> = bounds.into_iter().map(Bound::row).collect();
        text += &table(&head, &rows);
    }
    text += &known(record);
    let all = Labels::new();
    let shown: Vec<&Kept> = wanted.figures.iter().flat_map(|name| record.figures_of(name, &all)).collect();
    if !shown.is_empty() {
        text += &markdown::figures(record, &shown);
    }
    text
}

/// A bound and what became of it.
struct Bound {
    what: String,
    ours: String,
    outcome: Outcome,
    /// By what, where it is not the interval, or why it says less than others.
    by: &'static str,
    source: String,
}

impl Bound {
    fn row(self) -> Vec<String> {
        vec![self.what, self.ours, emphasised(self.outcome) + self.by, self.source]
    }
}

/// What is not met stands out.
fn emphasised(outcome: Outcome) -> String {
    if outcome == Outcome::Met { outcome.name().to_owned() } else { format!("**{}**", outcome.name()) }
}

/// The plan's targets and the book's aims.
fn bounds(wanted: &Wanted, record: &Record) -> Vec<Bound> {
    let mut all: Vec<Bound> = record.targets.iter().map(|target| of_target(target, record)).collect();
    for aim in &wanted.aims {
        let mut figures = record.figures_of(&aim.figure, &aim.labels).peekable();
        if figures.peek().is_none() {
            let what = demand(record.title(&aim.figure, ""), &aim.labels, (aim.at_most, aim.at_least));
            all.push(Bound {
                what,
                ours: String::new(),
                outcome: Outcome::NotMeasured,
                by: "",
                source: aim.source.clone(),
            });
        }
        all.extend(figures.map(|kept| of_aim(aim, kept, record)));
    }
    all
}

fn of_target(target: &Judgement, record: &Record) -> Bound {
    let kept =
        record.figures_of(&target.figure, &target.labels).find(|kept| kept.figure.labels == target.labels);
    let ours = match (kept, target.ci95, target.ours) {
        (Some(kept), Some(_), _) => judged_cell(record, kept),
        (_, _, Some(ours)) => number(ours),
        _ => String::new(),
    };
    let by = match (target.ci95, target.outcome) {
        (None, Outcome::Met | Outcome::Missed) => " (every sample)",
        (None, Outcome::Open) if record.runs == 1 => " (one run decides nothing)",
        _ => "",
    };
    Bound {
        by,
        what: demand(
            record.title(&target.figure, &target.unit),
            &target.labels,
            (target.at_most, target.at_least),
        ),
        ours,
        outcome: target.outcome,
        source: target.source.clone(),
    }
}

fn of_aim(aim: &Target, kept: &Kept, record: &Record) -> Bound {
    let figure = &kept.figure;
    let what = demand(record.title(&figure.name, &figure.unit), &figure.labels, (aim.at_most, aim.at_least));
    let outcome = aim.outcome(figure, may_meet(record, kept));
    let by = if record.is_late(aim) { " (an aim set after it was measured)" } else { "" };
    Bound { what, ours: judged_cell(record, kept), outcome, by, source: aim.source.clone() }
}

/// What is demanded of a figure.
fn demand(what: String, labels: &Labels, (most, least): (Option<f64>, Option<f64>)) -> String {
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let mut what = what;
    if !labels.is_empty() {
        what += &format!(" ({})", labels.join(", "));
    }
    let bounds = [("at most", most), ("at least", least)];
    let bounds =
        bounds.iter().filter_map(|(word, bound)| bound.map(|bound| format!("{word} {}", number(bound))));
    let bounds: Vec<String> = bounds.collect();
    format!("{what}: {}", bounds.join(", "))
}

/// Known values beside ours, with a column for each arm.
fn known(record: &Record) -> String {
    if record.known.is_empty() {
        return String::new();
    }
    let arms = arms(record.figures.iter());
    let mut head = vec!["known".to_owned(), "paper".to_owned()];
    head.extend(arms.iter().map(|arm| (*arm).to_owned()));
    let row = |check: &Check| {
        let (arm, place) = arm_and_place(&check.labels);
        let mut name = record.title(&check.figure, &check.unit);
        let place: Vec<&str> =
            [place.as_str(), check.statistic.name()].into_iter().filter(|word| !word.is_empty()).collect();
        name += &format!(" ({}; {})", place.join(", "), check.source);
        let is_first = |other: &str| arms.first().is_some_and(|first| *first == other);
        let beside = arms.iter().map(|other| {
            // What no arm has is told once.
            if arm.is_none() && !is_first(other) {
                return String::new();
            }
            let mut labels = check.labels.clone();
            for (_, value) in labels.iter_mut().filter(|(_, value)| Some(value.as_str()) == arm) {
                (*other).clone_into(value);
            }
            let kept = record.figures_of(&check.figure, &labels).next();
            kept.map_or(String::new(), |kept| number(check.statistic.of(&kept.figure)))
        });
        [name, number(check.known)].into_iter().chain(beside).collect::<Vec<String>>()
    };
    let rows: Vec<Vec<String>> = record.known.iter().map(row).collect();
    table(&head, &rows)
}

/// Under what conditions a record came to be.
fn conditions(record: &Record) -> String {
    let Record { commit, conditions, tor, noise, runs, runs_wanted, seconds, .. } = record;
    let (what, within) = match record.intervals_over {
        Repetition::RoundsInOneNetwork => ("round", " in one network"),
        Repetition::Networks => ("network", ""),
        Repetition::Runs => ("run", ""),
    };
    let plural = if *runs_wanted == 1 { "" } else { "s" };
    let runs = match runs == runs_wanted {
        true => format!("{runs} {what}{plural}{within}"),
        false => format!("**{runs} of {runs_wanted} {what}{plural}**{within}"),
    };
    let seeds = match (record.intervals_over, &record.seeds[..]) {
        (Repetition::Runs, [first, .., last]) => format!(", seeds {first} to {last}"),
        (Repetition::Runs, [only]) => format!(", seed {only}"),
        _ => String::new(),
    };
    let tor = if tor.is_empty() { String::new() } else { format!(", tor {tor}") };
    let backend = match record.backend.as_str() {
        "emu" => "emulated wires",
        "loopback" => "**loopback**",
        "sim" => "virtual time",
        other => other,
    };
    format!(
        "commit {}{tor}, {} cores ({}), Linux {}, {backend}{}; {runs}{seeds}{}, {:.0} min, load {} before and {} \
         after, {} % stolen",
        short(commit),
        conditions.cores,
        conditions.processor,
        conditions.kernel,
        settings(record),
        attempts(record),
        seconds / 60.0,
        number(noise.load_before),
        number(noise.load_after),
        number(noise.stolen_pct)
    )
}

/// What hosts were set to: where all arms agree once, and then what else each had.
fn settings(record: &Record) -> String {
    let mut each = record.settings.values();
    let first = each.next().cloned().unwrap_or_default();
    let common = each.fold(first, |common, settings| &common & settings);
    let phrase = |settings: &BTreeSet<String>| settings.iter().cloned().collect::<Vec<_>>().join(", ");
    let of_arm = |(arm, settings): (&String, &BTreeSet<String>)| {
        let more = settings - &common;
        (!more.is_empty()).then(|| format!("{arm}: {}", phrase(&more)))
    };
    let of_all = (!common.is_empty()).then(|| phrase(&common));
    of_all
        .into_iter()
        .chain(record.settings.iter().filter_map(of_arm))
        .map(|told| format!(", {told}"))
        .collect()
}

/// How often it was tried, where that was not once.
fn attempts(record: &Record) -> String {
    let all: Vec<&str> = record.attempts.iter().map(|attempt| attempt.ended.as_str()).collect();
    match (all.len(), record.history.len()) {
        (0 | 1, 0 | 1) => String::new(),
        (0 | 1, more) => format!(", **made by {more} commands**"),
        (more, _) => format!(", **{more} attempts** ({})", all.join("; ")),
    }
}

/// Whether a bound may be met by what was measured: of a result that must not be trusted none is, nor of one with fewer
/// rounds than were wanted.
fn may_be_met(record: &Record) -> bool {
    record.valid && record.runs >= record.runs_wanted && !was_extended(&record.history)
}

/// Whether an aim may be met by this figure: a run without it may be the one that does not keep the bound.
fn may_meet(record: &Record, kept: &Kept) -> bool {
    may_be_met(record) && (kept.by_run.is_empty() || kept.by_run.len() >= record.runs_wanted)
}

fn short(commit: &str) -> String {
    let (hash, dirty) = commit.split_once('-').map_or((commit, ""), |(hash, _)| (hash, " with changes"));
    format!("{}{dirty}", hash.get(..7).unwrap_or(hash))
}

/// The README's table and the conditions under it.
fn readme_table(book: &Book, records: &[&Record]) -> String {
    let find = |name: &str| records.iter().find(|record| record.name == name);
    let versions: BTreeSet<&str> =
        records.iter().map(|record| record.tor.as_str()).filter(|version| !version.is_empty()).collect();
    let versions: Vec<&str> = versions.into_iter().collect();
    let head = [String::new(), "Heddle".to_owned(), format!("stock tor {}", versions.join(", "))];
    let row =
        |row: &Row| Some(readme_row(row, book.wanted(&row.measurement)?, find(&row.measurement).copied()));
    let rows: Vec<Vec<String>> = book.rows.iter().filter_map(row).collect();
    let used: Vec<&&Record> =
        records.iter().filter(|record| book.rows.iter().any(|row| row.measurement == record.name)).collect();
    if used.is_empty() {
        return table(&head, &rows) + "Nothing of this has been measured yet.\n";
    }
    let mut made: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for record in &used {
        let Conditions { cores, processor, kernel, .. } = &record.conditions;
        let at = format!("commit {} on {cores} cores ({processor}, Linux {kernel})", short(&record.commit));
        made.entry(at).or_default().push(format!("`{}`", record.name));
    }
    let made: Vec<String> =
        made.into_iter().map(|(at, names)| format!("{} at {at}", names.join(", "))).collect();
    let invalid: Vec<&str> =
        used.iter().filter(|record| !record.valid).map(|record| record.name.as_str()).collect();
    let invalid = match invalid.is_empty() {
        true => String::new(),
        false => format!(" **Not valid: {}.**", invalid.join(", ")),
    };
    let of_rounds: Vec<String> = used
        .iter()
        .filter(|record| record.intervals_over == Repetition::RoundsInOneNetwork)
        .map(|record| format!("`{}`", record.name))
        .collect();
    let narrow = match of_rounds.is_empty() {
        true => String::new(),
        false => {
            format!(
                ", those of {} over rounds in one network and so rather too narrow",
                of_rounds.join(" and ")
            )
        }
    };
    table(&head, &rows)
        + &format!(
            "Heddle's pairs use QUIC. All relays, clients, authorities and servers of a measurement share its \
             machine's cores, so compare columns, not rows.\nMeans with 95 % intervals{narrow}, or the result of \
             each run where there are up to three; a single number is one run's.{invalid} Made: {}.\n\
             [Everything measured, with its command and conditions](docs/results/README.md).\n",
            made.join("; ")
        )
}

fn readme_row(row: &Row, wanted: &Wanted, record: Option<&Record>) -> Vec<String> {
    let of = |labels: &Labels| {
        let Some(record) = record else { return "not measured".to_owned() };
        let found: Vec<&Kept> = record.figures_of(&row.figure, labels).collect();
        match found[..] {
            [kept] if !record.valid => format!("{} (**not valid**)", cell(record, kept)),
            [kept] => cell(record, kept),
            [] => "not measured".to_owned(),
            _ => format!("{} figures have these labels", found.len()),
        }
    };
    let mut title = row.title.clone();
    let is_of_row = |aim: &&Target| {
        aim.figure == row.figure && aim.labels.iter().all(|(name, value)| row.heddle.get(name) == Some(value))
    };
    if let Some(aim) = wanted.aims.iter().find(is_of_row) {
        let kept =
            record.and_then(|record| record.figures_of(&row.figure, &row.heddle).next().zip(Some(record)));
        let judged = |(kept, record): (&Kept, &Record)| aim.outcome(&kept.figure, may_meet(record, kept));
        let outcome = emphasised(kept.map_or(Outcome::NotMeasured, judged));
        title +=
            &format!(" (aim {}: {outcome})", aim.at_most.or(aim.at_least).map(number).unwrap_or_default());
    }
    let stock = row.stock.as_ref().map_or_else(|| "1".to_owned(), of);
    vec![title, of(&row.heddle), stock]
}
