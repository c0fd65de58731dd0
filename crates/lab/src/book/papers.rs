//! What the papers have, and where each of it is here.

use serde::Deserialize;

use super::Record;
use super::markdown::table;

/// A result, or a system, of a paper.
#[derive(Clone, Debug, Deserialize)]
pub struct Item {
    /// The page of the book that is about the paper.
    pub page: String,
    /// The paper's own numbers of it: experiments, tables, figures, sections.
    pub numbers: Vec<String>,
    /// What it is.
    pub about: String,
    /// What the paper found, in a few words.
    pub found: String,
    /// Where it is here.
    #[serde(flatten)]
    pub place: Place,
}

/// Where it is here.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// A measurement of the book.
    Measurement(String),
    /// Elsewhere, in Markdown.
    Elsewhere(String),
    /// Nowhere, and why.
    Missing(String),
}

/// A page's table of its paper; nothing where it is about none.
pub(super) fn text(items: &[Item], page: &str, record_of: &dyn Fn(&str) -> Option<Record>) -> String {
    let rows: Vec<Vec<String>> = items
        .iter()
        .filter(|item| item.page == page)
        .map(|item| {
            let here = match &item.place {
                Place::Measurement(name) => match record_of(name) {
                    Some(record) if record.valid => format!("[`{name}`]({name}.json)"),
                    Some(_) => format!("[`{name}`]({name}.json), **not valid**"),
                    None => format!("`{name}`, **not measured** yet"),
                },
                Place::Elsewhere(place) => place.clone(),
                Place::Missing(why) => format!("**not here**: {why}"),
            };
            vec![item.numbers.join(", "), item.about.clone(), item.found.clone(), here]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = ["in the paper", "what it is", "what it found", "here"].map(str::to_owned);
    format!("## What the papers have\n\n{}", table(&head, &rows))
}
