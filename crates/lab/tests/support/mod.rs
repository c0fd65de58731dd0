//! Runs of plans that tests write, and what they gave.

use std::collections::BTreeMap;
use std::path::Path;

use heddle_lab::error::Result;
use heddle_lab::figures::Figure;
use heddle_lab::plan::Plan;
use heddle_lab::results::Summary;
use heddle_lab::run::{BackendKind, RunOptions, run};

/// What is measured of a plan.
pub struct Wanted<'a> {
    pub set: &'a [(&'a str, &'a str)],
    pub arms: &'a [&'a str],
    pub seed: u64,
    pub backend: BackendKind,
}

/// Runs the plan of this text; results are in `out` below `dir`.
pub fn measured(dir: &Path, text: &str, wanted: &Wanted<'_>, out: &str) -> Result<Summary> {
    run(&options(dir, text, wanted, out)?, &mut |_| Ok(()))
}

/// What it is run with.
pub fn options(dir: &Path, text: &str, wanted: &Wanted<'_>, out: &str) -> Result<RunOptions> {
    let file = dir.join("plan.toml");
    std::fs::write(&file, text).unwrap();
    let set: BTreeMap<String, String> =
        wanted.set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Ok(RunOptions {
        loaded: Plan::load(file.to_str().unwrap(), &set)?,
        arms: wanted.arms.iter().map(|arm| (*arm).to_owned()).collect(),
        phases: Vec::new(),
        runs: None,
        seed: Some(wanted.seed),
        out: dir.join(out),
        resume: false,
        command: "a test".to_owned(),
        heddle: Default::default(),
        backend: wanted.backend,
        cpu: None,
        null_crypto: false,
        trace: None,
    })
}

/// The figure that has this name and these labels.
pub fn figure<'a>(summary: &'a Summary, name: &str, labels: &[(&str, &str)]) -> &'a Figure {
    let has = |figure: &&Figure| {
        let all = labels.iter().all(|(label, value)| figure.labels.get(*label).is_some_and(|of| of == value));
        figure.name == name && all
    };
    summary.figures.iter().find(has).unwrap_or_else(|| panic!("{name} {labels:?} is not there"))
}
