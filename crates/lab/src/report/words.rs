//! Labels, numbers and names of figures as people read them.

use toml::Spanned;

use crate::figures::{Better, Labels, quantity};
use crate::plan::{Arm, Compare, Comparison, Plan};

/// The label that says beside what something was measured: it reads as a preposition and stands last.
const BESIDE: &str = "beside";

/// The arm that gave a figure with these labels: of those all of whose labels it has, the one with most of them.
pub(super) fn arm_of<'a>(plan: &'a Plan, labels: &Labels) -> Option<&'a Arm> {
    let is_of = |arm: &&Arm| {
        !arm.labels.is_empty() && arm.labels.iter().all(|(name, value)| labels.get(name) == Some(value))
    };
    // Of several with as many the first one.
    plan.arms.iter().map(Spanned::as_ref).rev().filter(is_of).max_by_key(|arm| arm.labels.len())
}

/// What a set of labels says, piece by piece: the arm's name, then what its own labels do not say.
pub(super) fn pieces(plan: &Plan, labels: &Labels) -> Vec<Piece> {
    let arm = arm_of(plan, labels);
    let is_arms = |name: &str| arm.is_some_and(|arm| arm.labels.contains_key(name));
    let others = labels.iter().filter(|(name, _)| !is_arms(name));
    let (last, first): (Vec<_>, Vec<_>) = others.partition(|(name, _)| *name == BESIDE);
    let arm = arm.map(|arm| Piece { label: None, value: arm.name.clone() });
    let others = first.into_iter().chain(last);
    let others = others.map(|(name, value)| Piece { label: Some(name.clone()), value: value.clone() });
    arm.into_iter().chain(others).collect()
}

/// One thing that labels say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The label; none for the name of an arm.
    pub(super) label: Option<String>,
    value: String,
}

impl Piece {
    /// The value, with the label before it where the value alone says nothing.
    pub(super) fn words(&self) -> String {
        let Piece { label, value } = self;
        let says_nothing =
            value.parse::<f64>().is_ok() || matches!(&**value, "true" | "false" | "yes" | "no");
        match label.as_deref() {
            Some(BESIDE) => format!("{BESIDE} {value}"),
            Some(label) if says_nothing => format!("{} {value}", label.replace('_', " ")),
            _ => value.clone(),
        }
    }

    fn pair(&self) -> String {
        self.label.as_ref().map_or(self.value.clone(), |label| format!("{label}={}", self.value))
    }
}

/// Labels in words.
pub(super) fn say(plan: &Plan, labels: &Labels) -> String {
    all_or(pieces(plan, labels).iter().map(Piece::words).collect())
}

/// What of each set of labels is not the same in all, or all of it when nothing differs.
pub(super) fn short_names<'a>(all: impl Iterator<Item = (&'a Plan, &'a Labels)>) -> Vec<String> {
    let all: Vec<Vec<Piece>> = all.map(|(plan, labels)| pieces(plan, labels)).collect();
    let varies = |piece: &&Piece| all.iter().any(|other| !other.contains(piece));
    let kept: Vec<Vec<&Piece>> = all.iter().map(|pieces| pieces.iter().filter(varies).collect()).collect();
    let short = |say: fn(&Piece) -> String| -> Vec<String> {
        let of = |(kept, all): (&Vec<&Piece>, &Vec<Piece>)| match kept.is_empty() {
            true => all_or(all.iter().map(say).collect()),
            false => all_or(kept.iter().map(|piece| say(piece)).collect()),
        };
        kept.iter().zip(&all).map(of).collect()
    };
    let names = short(Piece::words);
    let is_taken = |(place, name): (usize, &String)| {
        names[..place].iter().zip(&kept).any(|(other, pieces)| other == name && *pieces != kept[place])
    };
    // Values alone may be the same where labels are not.
    if names.iter().enumerate().any(is_taken) { short(Piece::pair) } else { names }
}

/// A title with what its labels say behind it. What says beside what it was follows without a comma.
pub(super) fn with_words(title: String, words: impl Iterator<Item = String>) -> String {
    words.fold(title, |title, words| {
        let comma = if words.starts_with(BESIDE) { "" } else { "," };
        format!("{title}{comma} {words}")
    })
}

fn all_or(words: Vec<String>) -> String {
    let mut words = words.into_iter();
    words.next().map_or("all".to_owned(), |first| with_words(first, words))
}

/// Labels as they stand in plans.
pub(super) fn join(labels: &Labels) -> String {
    let pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    all_or(pairs)
}

/// The comparison that made a figure.
pub(super) fn compared<'a>(plan: &'a Plan, name: &str) -> Option<&'a Compare> {
    plan.compare.iter().map(Spanned::as_ref).find(|compare| compare.name == name)
}

/// What stands above a figure: the title of what is measured, or of what is compared and with what.
pub(crate) fn title_of(plan: &Plan, name: &str) -> String {
    title_within(plan, plan.compare.len(), name)
}

/// The same, where only so many comparisons have been made: one may be made of those before it.
fn title_within(plan: &Plan, comparisons: usize, name: &str) -> String {
    let mut before = plan.compare[..comparisons].iter().map(Spanned::as_ref);
    if let Some(place) = before.position(|compare| compare.name == name) {
        let compare = plan.compare[place].as_ref();
        let title = title_within(plan, place, &compare.figure);
        let base = match &compare.to {
            Some(to) => format!("“{}”", title_within(plan, place, to)),
            None => compare.base.clone().unwrap_or_default(),
        };
        return match compare.kind {
            Comparison::Ratio => format!("{title}, over {base}"),
            Comparison::Difference => format!("{title}, minus {base}"),
            Comparison::LossPct => format!("{title}, less than {base}"),
            Comparison::Auc => format!("{title}, told from {base}"),
        };
    }
    let (measured, phase) = measured_as(plan, name);
    let title = quantity(measured).map_or(measured, |quantity| quantity.title);
    phase.map_or(title.to_owned(), |phase| format!("{title} ({phase})"))
}

/// The quantity that is kept under a name, and the phase that has it under this name where a single one has.
fn measured_as<'a>(plan: &'a Plan, name: &'a str) -> (&'a str, Option<&'a str>) {
    let phases = plan.tor.iter().flat_map(|tor| &tor.as_ref().phases).map(Spanned::as_ref);
    let mut renamed = phases.flat_map(|phase| {
        let kept = phase.figures.iter().filter(|(measured, kept)| *kept == name && measured != kept);
        kept.map(|(measured, _)| (&**measured, &*phase.name))
    });
    match (renamed.next(), renamed.next()) {
        (Some((measured, phase)), None) => (measured, Some(phase)),
        (Some((measured, _)), Some(_)) => (measured, None),
        _ => (name, None),
    }
}

/// What a sample of a figure is, in Markdown as in the table of quantities.
pub(super) fn meaning_of(plan: &Plan, name: &str) -> Option<String> {
    let mut all = plan.compare.iter().map(Spanned::as_ref);
    if let Some(compare) = all.find(|compare| compare.name == name) {
        let Compare { figure, to, base, .. } = compare;
        let other = match (to, base) {
            (Some(to), _) => format!("`{to}`"),
            (None, base) => format!("that of {}", base.as_deref().unwrap_or_default()),
        };
        return Some(match compare.kind {
            Comparison::Ratio => format!("run by run, the mean of `{figure}` over {other}"),
            Comparison::Difference => format!("run by run, the mean of `{figure}` minus {other}"),
            Comparison::LossPct => {
                format!("run by run, by how many percent the mean of `{figure}` is less than {other}")
            }
            Comparison::Auc => format!(
                "run by run, the probability that a sample of `{figure}` is greater than one of {other}: 0.5 is chance"
            ),
        });
    }
    quantity(measured_as(plan, name).0).map(|quantity| quantity.meaning.to_owned())
}

/// What is better of a figure; of a comparison, of what is compared.
pub(super) fn better(plan: &Plan, name: &str) -> Better {
    let mut name = name;
    for compare in plan.compare.iter().rev().map(Spanned::as_ref) {
        if compare.name == name {
            name = &compare.figure;
        }
    }
    quantity(measured_as(plan, name).0).map_or(Better::Neither, |quantity| quantity.better)
}

/// A unit as it stands behind a number: shares and counts have none.
pub(super) fn unit_after(unit: &str) -> String {
    if unit == "1" || unit.is_empty() { String::new() } else { format!(" {unit}") }
}

/// What stands at an axis.
pub(super) fn axis_title(title: &str, unit: &str) -> String {
    if unit == "1" || unit.is_empty() { title.to_owned() } else { format!("{title}, {unit}") }
}

/// A number with four significant digits.
pub(super) fn number(value: f64) -> String {
    with_digits(value, 4)
}

/// A number with so many significant digits, or all of those before the point.
pub(crate) fn with_digits(value: f64, digits: u32) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let decimals = (f64::from(digits) - 1.0 - value.abs().log10().floor()).clamp(0.0, 9.0) as usize;
    format!("{value:.decimals$}")
}

/// A number with at most three significant digits and no zeros at its end, for sentences.
pub(super) fn round_number(value: f64) -> String {
    let text = with_digits(value, 3);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Text as it stands in HTML, in content and in quoted attributes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            // No XML has them.
            c if c.is_control() && c != '\n' => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Text whose names stand between backticks, as HTML.
pub(super) fn with_names(text: &str) -> String {
    let piece = |(place, piece): (usize, &str)| match place % 2 {
        1 => format!("<code>{}</code>", escape(piece)),
        _ => escape(piece),
    };
    text.split('`').enumerate().map(piece).collect()
}
