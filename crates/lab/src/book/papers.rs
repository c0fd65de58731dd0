//! What the papers have, and where each of it is here.

use serde::Deserialize;

use super::Record;
use super::markdown::table;

/// A result, or a system, of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// The page of the book that is about the paper.
    pub page: String,
    /// The paper's own numbers of it: experiments, tables, figures, sections.
    pub numbers: Vec<String>,
    /// What it is.
    pub about: String,
    /// What the paper found, in a few words.
    pub found: String,
    /// The measurement of the book that has it.
    pub measurement: Option<String>,
    /// The arms that the measurement needs for it, beside those that others need.
    #[serde(default)]
    pub arms: Vec<String>,
    /// The plan that has it and is not in the book.
    pub plan: Option<String>,
    /// Where else it is, in Markdown.
    pub elsewhere: Option<String>,
    /// Why it is not here.
    pub missing: Option<String>,
}

impl Item {
    /// What is wrong with it beside what it names.
    pub(super) fn fault(&self) -> Option<String> {
        let places = [&self.measurement, &self.plan, &self.elsewhere, &self.missing];
        let count = places.into_iter().flatten().count();
        (count != 1).then(|| format!("{:?} is in {count} places, and has to be in one", self.numbers))
    }
}

/// A page's table of its paper; nothing where it is about none.
pub(super) fn text(items: &[Item], page: &str, record_of: &dyn Fn(&str) -> Option<Record>) -> String {
    let rows: Vec<Vec<String>> = items
        .iter()
        .filter(|item| item.page == page)
        .map(|item| {
            vec![item.numbers.join(", "), item.about.clone(), item.found.clone(), here(item, record_of)]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = ["in the paper", "what it is", "what it found", "here"].map(str::to_owned);
    format!("## What the papers have\n\n{}", table(&head, &rows))
}

/// Where an item is here, in Markdown.
fn here(item: &Item, record_of: &dyn Fn(&str) -> Option<Record>) -> String {
    if let Some(why) = &item.missing {
        return format!("**not here**: {why}");
    }
    if let Some(plan) = &item.plan {
        return format!("plan `{plan}`, **not measured** yet");
    }
    let Some(name) = &item.measurement else { return item.elsewhere.clone().unwrap_or_default() };
    let Some(record) = record_of(name) else { return format!("`{name}`, **not measured** yet") };
    let lacking: Vec<String> =
        item.arms.iter().filter(|arm| !record.has_arm(arm)).map(|arm| format!("`{arm}`")).collect();
    match (record.valid, lacking.is_empty()) {
        (false, _) => format!("[`{name}`]({name}.json), **not valid**"),
        (true, true) => format!("[`{name}`]({name}.json)"),
        (true, false) => format!("[`{name}`]({name}.json) **without** {}", lacking.join(", ")),
    }
}
