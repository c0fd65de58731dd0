//! What a job gave, as it stands in a file of its own.

use std::fs;
use std::io::ErrorKind;

use serde::{Deserialize, Serialize};

use super::directory::{Job, Jobs, Order};
use crate::machine::conditions::{Conditions, Noise};
use crate::run::measure::Measured;

/// What a job gave, with all that says what it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Given {
    pub(super) order: Order,
    pub(super) job: Job,
    /// On what machine.
    pub(super) conditions: Conditions,
    /// How quiet that was.
    pub(super) noise: Noise,
    /// How long it took.
    pub(super) seconds: f64,
    pub(super) measured: Measured,
}

/// What of it says what it is.
#[derive(Deserialize)]
struct Label {
    order: Order,
    job: Job,
}

impl Jobs {
    /// What a job gave, or else one sentence why that cannot be taken.
    pub(super) fn given(&self, job: &Job) -> Result<Given, String> {
        let (path, told) = (self.file_of(job), job.told(self.order.runs));
        let (file, dir, number) = (path.display(), self.dir.display(), job.number);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(format!(
                    "{told} is missing: there is no {file}; `heddle lab job {dir} {number}` makes it"
                ));
            }
            Err(error) => return Err(format!("{told} cannot be taken: reading {file}: {error}")),
        };
        let refused = |what: &str| {
            format!("{told} cannot be taken: {file} {what}; `heddle lab job {dir} {number}` makes it anew")
        };
        let no_result = |error: serde_json::Error| refused(&format!("is no whole result: {error}"));
        let Label { order, job: of } = serde_json::from_slice(&bytes).map_err(no_result)?;
        if let Some(what) = self.order.differs(&order) {
            return Err(refused(what));
        }
        if of != *job {
            return Err(refused(&format!("is of job {}", of.number)));
        }
        serde_json::from_slice(&bytes).map_err(no_result)
    }
}
