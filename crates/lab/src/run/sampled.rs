//! What one measurement gives before it is put to the run's samples.

use crate::figures::Labels;

/// The samples of one figure, with its labels beyond the arm's.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sampled {
    pub(super) name: String,
    pub(super) labels: Labels,
    pub(super) unit: &'static str,
    pub(super) values: Vec<f64>,
}

impl Sampled {
    /// A figure with one sample and no labels of its own.
    pub(super) fn one(name: &str, unit: &'static str, value: f64) -> Sampled {
        Sampled { name: name.to_owned(), labels: Labels::new(), unit, values: vec![value] }
    }

    /// The same with these labels.
    pub(super) fn with(self, labels: Labels) -> Sampled {
        Sampled { labels, ..self }
    }
}
