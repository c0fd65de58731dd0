//! The book of results: a list of measurements, made at one commit on one machine, and the pages that are drawn from
//! what they gave.
//!
//! 1. `book.toml` lists pages and measurements, each a command of this program ([`Book`]).
//! 2. [`measure()`] runs what has not been run yet at this commit.
//! 3. A [`Record`] is what is kept of a measurement: all that a page says comes from there.
//! 4. `papers.toml` lists what the papers have, and where it is here.
//! 5. [`draw()`] makes the pages and the README's table anew, and tells which of them are not what the records say.

mod beside;
mod draw;
mod markdown;
mod measure;
mod papers;
mod record;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::figures::Labels;
use crate::plan::{Target, shipped};

pub use draw::{draw, stale};
pub use measure::{MeasureOptions, Step, collect, measure};
pub use papers::Item;
pub use record::Record;

/// The list that comes with the program: what is measured, and what the papers have.
const LIST: &str = concat!(include_str!("../book.toml"), include_str!("../papers.toml"));

/// What a book is made of.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Book {
    /// Its pages, in order.
    #[serde(rename = "page")]
    pub pages: Vec<Page>,
    /// What is measured, in the order in which it is.
    #[serde(rename = "measurement")]
    pub measurements: Vec<Wanted>,
    /// The lines of the README's table.
    #[serde(rename = "row")]
    pub rows: Vec<Row>,
    /// What the papers have that pages are about.
    #[serde(default, rename = "item")]
    pub items: Vec<Item>,
}

/// A page of the book.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// Its file's name without the ending, which measurements name.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// What it is about, in Markdown.
    pub about: String,
}

/// A measurement of the book.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Its name, which is that of its file too.
    pub name: String,
    /// The page that shows it.
    pub page: String,
    /// Its heading, where the plan's title is not meant.
    #[serde(default)]
    pub title: String,
    /// What this program is called with, without `--out`.
    pub command: String,
    /// About how long it takes.
    pub minutes: u64,
    /// The measurement over emulated wires of which this is the same in virtual time: then its page shows both.
    pub beside: Option<String>,
    /// The figures that its page shows, besides bounds and known values.
    #[serde(default)]
    pub figures: Vec<String>,
    /// Aims that no plan has.
    #[serde(default)]
    pub aims: Vec<Target>,
}

/// A line of the README's table. Where the measurement has an aim for its figure, that and what became of it is told.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// What it is, with its unit.
    pub title: String,
    /// The measurement.
    pub measurement: String,
    /// The figure's name.
    pub figure: String,
    /// Labels by which Heddle's figure is told from others.
    pub heddle: Labels,
    /// The same of stock's; a ratio to stock has none.
    pub stock: Option<Labels>,
}

impl Book {
    /// The book that comes with the program.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn shipped() -> Result<Book> {
        Book::parse(LIST, "book.toml")
    }

    /// Reads a list from a file.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and in which line.
    pub fn read(path: &Path) -> Result<Book> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(Error::io(format!("reading {}", path.display())))?;
        Book::parse(&text, &path.display().to_string())
    }

    fn parse(text: &str, file: &str) -> Result<Book> {
        let book: Book = toml::from_str(text).map_err(|error| Error::Options(format!("{file}: {error}")))?;
        book.check().map_err(|what| Error::Options(format!("{file}: {what}")))?;
        Ok(book)
    }

    /// Names are unique and fit for files, and what is named is there.
    fn check(&self) -> std::result::Result<(), String> {
        let mut names: Vec<&str> = self.pages.iter().map(|page| page.name.as_str()).collect();
        names.extend(self.measurements.iter().map(|wanted| wanted.name.as_str()));
        for (place, name) in names.iter().enumerate() {
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            if name.is_empty() || !name.chars().all(is_plain) {
                return Err(format!("{name:?} is no name: small letters, digits and hyphens"));
            }
            if names[..place].contains(name) {
                return Err(format!("{name:?} is there twice"));
            }
        }
        self.measurements.iter().try_for_each(|wanted| self.check_measurement(wanted))?;
        let of_emu = |name: &str| self.wanted(name).is_some_and(|wanted| !wanted.is_in_virtual_time());
        let besides = self.measurements.iter().filter_map(|wanted| Some((wanted, wanted.beside.as_deref()?)));
        for (wanted, beside) in besides {
            if !wanted.is_in_virtual_time() || !of_emu(beside) {
                return Err(format!(
                    "measurement {:?}: beside is for one in virtual time, and names one over emulated wires",
                    wanted.name
                ));
            }
        }
        for row in &self.rows {
            if self.wanted(&row.measurement).is_none() {
                return Err(format!(
                    "row {:?} is of {:?}, which nobody measures",
                    row.title, row.measurement
                ));
            }
        }
        for item in &self.items {
            if let Some(fault) = item.fault() {
                return Err(fault);
            }
            if let Some(name) = item.measurement.as_ref().filter(|name| self.wanted(name).is_none()) {
                return Err(format!("{:?} is measured by {name:?}, which the list has not", item.numbers));
            }
            if let Some(name) = item.plan.as_ref().filter(|name| !is_shipped(name)) {
                return Err(format!("{:?} is planned in {name:?}, which is no plan", item.numbers));
            }
        }
        Ok(())
    }

    fn check_measurement(&self, wanted: &Wanted) -> std::result::Result<(), String> {
        if !self.pages.iter().any(|page| page.name == wanted.page) {
            return Err(format!(
                "measurement {:?} is for a page {:?}, which is not there",
                wanted.name, wanted.page
            ));
        }
        if let Some(aim) = wanted.aims.iter().find(|aim| aim.always) {
            return Err(format!(
                "measurement {:?}: the aim for {:?} is about samples (`always`), and a book has means; a plan's \
                 target can say it",
                wanted.name, aim.figure
            ));
        }
        let words: Vec<&str> = wanted.command.split_whitespace().collect();
        if !matches!(words[..], ["demo" | "bench", ..] | ["lab", "run", ..])
            || words.iter().any(|word| word.starts_with("--out"))
        {
            return Err(format!(
                "measurement {:?}: its command begins with demo, bench or lab run, and has no --out",
                wanted.name
            ));
        }
        Ok(())
    }

    /// The measurement of this name.
    pub fn wanted(&self, name: &str) -> Option<&Wanted> {
        self.measurements.iter().find(|wanted| wanted.name == name)
    }
}

fn is_shipped(name: &str) -> bool {
    shipped().iter().any(|plan| plan.name == name)
}

impl Wanted {
    /// About how long it takes.
    pub fn time(&self) -> Duration {
        Duration::from_secs(60 * self.minutes)
    }

    /// Whether it is made in virtual time, so that what else the machine does changes nothing but how long it takes.
    fn is_in_virtual_time(&self) -> bool {
        self.command.contains("--backend sim")
    }
}
