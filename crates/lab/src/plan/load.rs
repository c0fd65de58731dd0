//! From the text of a plan to a plan that can be run, or one sentence about what is wrong with it and where.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::check::check;
use super::model::Plan;
use super::shipped::shipped;
use super::text::{Source, substitute};
use super::{contest_phases, grid_cases};
use crate::error::{Error, Result};

/// A plan and the text it was read from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The plan.
    pub plan: Plan,
    /// Its text, with the values of `--set` in place.
    pub text: String,
    /// What `--set` changed.
    pub set: BTreeMap<String, String>,
}

impl Plan {
    /// Reads the plan that ships under this name, or else the file of this name. `set` are the values of `--set`.
    ///
    /// # Errors
    ///
    /// One sentence, with the file and the line where there is one.
    pub fn load(name: &str, set: &BTreeMap<String, String>) -> Result<Loaded> {
        if let Some(shipped) = shipped().iter().find(|shipped| shipped.name == name) {
            return parse(&format!("{name}.toml"), shipped.text, set);
        }
        if !name.ends_with(".toml") {
            let names: Vec<&str> = shipped().iter().map(|shipped| shipped.name).collect();
            let names = names.join(", ");
            return Err(Error::Options(format!(
                "there is no plan {name:?}; the plans are {names}, and a file's name ends in .toml"
            )));
        }
        let text = fs::read_to_string(Path::new(name)).map_err(Error::io(format!("reading {name}")))?;
        parse(name, &text, set)
    }
}

/// Reads a plan from its text. `file` is for messages.
pub(crate) fn parse(file: &str, text: &str, set: &BTreeMap<String, String>) -> Result<Loaded> {
    let source = Source { file, text };
    let text = substitute(source, set)?;
    let source = Source { file, text: &text };
    let mut plan: Plan = toml::from_str(&text).map_err(|error| source.toml_error(&error))?;
    grid_cases::expand(&mut plan).map_err(|(at, what)| source.error(at, what))?;
    contest_phases::expand(&mut plan);
    check(&plan, source)?;
    Ok(Loaded { plan, text, set: set.clone() })
}
