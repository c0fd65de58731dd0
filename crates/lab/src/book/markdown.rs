//! Numbers, labels and tables as they stand in Markdown.

use super::record::{Kept, Record};
use crate::figures::Labels;
use crate::report::with_digits;

/// Labels by which arms differ, of which a table makes columns.
const ARM_LABELS: [&str; 2] = ["transport", "relays"];

/// A figure as a cell: the mean and its interval, or of up to three runs, of which an interval says next to nothing,
/// what each gave. Runs that lack it are told.
pub(super) fn cell(record: &Record, kept: &Kept) -> String {
    let means: Vec<String> = kept.by_run.values().map(|mean| number(*mean)).collect();
    let told = match (&means[..], kept.figure.ci95) {
        ([one], _) => one.clone(),
        ([one, two], _) => format!("{one} and {two}"),
        ([one, two, three], _) => format!("{one}, {two} and {three}"),
        (_, Some([low, high])) => {
            format!("{} ({} to {})", number(kept.figure.mean), number(low), number(high))
        }
        _ => number(kept.figure.mean),
    };
    match means.len() {
        some if some > 0 && some < record.runs => format!("{told} (in {some} of {})", record.runs),
        _ => told,
    }
}

/// The same where a bound is judged: with the interval also of two or three runs, because that decides.
pub(super) fn judged_cell(record: &Record, kept: &Kept) -> String {
    let told = cell(record, kept);
    match kept.figure.ci95 {
        Some([low, high]) if (2..=3).contains(&kept.by_run.len()) => {
            format!("{told} ({} to {})", number(low), number(high))
        }
        _ => told,
    }
}

/// A number with three significant digits, or all of those before the point.
pub(super) fn number(value: f64) -> String {
    with_digits(value, 3).replace('-', "−")
}

/// What stands in a cell between two bars.
pub(super) fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

/// The name of the arm that a figure is of, and its other labels in words.
pub(super) fn arm_and_place(labels: &Labels) -> (Option<&str>, String) {
    let arm = ARM_LABELS.iter().find_map(|name| labels.get(*name).map(|value| (*name, value.as_str())));
    let rest = labels.iter().filter(|(name, _)| arm.is_none_or(|(arm, _)| arm != name.as_str()));
    let rest: Vec<String> = rest.map(|(name, value)| format!("{name} {value}")).collect();
    (arm.map(|(_, value)| value), rest.join(", "))
}

/// The arms of figures: what is compared with first, and the others as they come.
pub(super) fn arms<'a>(figures: impl Iterator<Item = &'a Kept>) -> Vec<&'a str> {
    let mut arms: Vec<&str> = Vec::new();
    for kept in figures {
        let arm = arm_and_place(&kept.figure.labels).0;
        arms.extend(arm.filter(|arm| !arms.contains(arm)));
    }
    arms.sort_by_key(|arm| (*arm != "stock", *arm != "tls"));
    arms
}

/// A table: its head and its rows.
pub(super) fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| escaped(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule = format!("|{}\n", "---|".repeat(head.len()));
    let rows: String = rows.iter().map(|row| line(row)).collect();
    line(head) + &rule + &rows + "\n"
}

/// Tables of figures: one of those that no arm has, and one of the others.
pub(super) fn figures(record: &Record, all: &[&Kept]) -> String {
    let of_no_arm = |kept: &&&Kept| arm_and_place(&kept.figure.labels).0.is_none();
    let (of_none, of_arms): (Vec<&Kept>, Vec<&Kept>) = all.iter().partition(of_no_arm);
    let tables = [of_none, of_arms].into_iter().filter(|some| !some.is_empty());
    tables.map(|some| figures_alike(record, &some)).collect()
}

/// A table of figures: a column for each arm, in this order, and a row for each figure and place. Either all have an
/// arm or none has.
fn figures_alike(record: &Record, all: &[&Kept]) -> String {
    /// What one arm has in a row.
    type Entry<'a> = (Option<&'a str>, String);
    let arms = arms(all.iter().copied());
    let mut rows: Vec<(String, Vec<Entry<'_>>)> = Vec::new();
    for kept in all {
        let (arm, place) = arm_and_place(&kept.figure.labels);
        let mut name = record.title(&kept.figure.name, &kept.figure.unit);
        if !place.is_empty() {
            name += &format!(": {place}");
        }
        let entry = (arm, cell(record, kept));
        match rows.iter_mut().find(|(other, _)| *other == name) {
            Some((_, cells)) => cells.push(entry),
            None => rows.push((name, vec![entry])),
        }
    }
    let is_of_arms = !arms.is_empty();
    let mut head = vec![String::new()];
    match is_of_arms {
        true => head.extend(arms.iter().map(|arm| (*arm).to_owned())),
        false => head.push("ours".to_owned()),
    }
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|(name, cells)| {
            let of = |arm: Option<&str>| {
                let found = cells.iter().find(|(of, _)| *of == arm);
                found.map_or(String::new(), |(_, cell)| cell.clone())
            };
            let cells = match is_of_arms {
                true => arms.iter().map(|arm| of(Some(arm))).collect(),
                false => vec![of(None)],
            };
            std::iter::once(name).chain(cells).collect()
        })
        .collect();
    table(&head, &rows)
}
