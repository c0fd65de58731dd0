//! The report of one run, or of several side by side: one HTML file that needs nothing else.
//!
//! Its first lines say what came out, arm against arm, then whether to believe it and what was run on which network.
//! Then come the values that were known beforehand beside ours, every figure with its interval, and the plan's
//! distributions. The data of each plot lies folded up under it.

mod chart;
mod looks;
mod network;
mod outcome;
mod page;
mod partition;
mod sheet;
mod sketch;
mod svg;
mod text;
mod wires;
mod words;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::machine::files::write_whole;
use crate::results::{Results, Stored};

pub use page::page;
pub use sheet::{Drawing, Line, sheet};
pub use text::text;
pub(crate) use words::{title_of, with_digits};

/// Writes the report of the runs in `dirs` to `out`.
pub fn write(dirs: &[PathBuf], out: &Path) -> Result<Vec<Stored>> {
    let stored = dirs.iter().map(|dir| Stored::read(dir)).collect::<Result<Vec<_>>>()?;
    let results: Vec<Results<'_>> = stored.iter().map(Stored::results).collect();
    write_whole(out, page(&results).as_bytes())?;
    Ok(stored)
}
