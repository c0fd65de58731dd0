//! What one measurement gives before it is put to the run's samples.

use crate::figures::{Labels, Quantity, quantity};

/// The samples of one quantity, with labels beyond the arm's.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sampled {
    /// The quantity's own name, or the one that a plan gives it.
    pub(super) name: String,
    pub(super) quantity: &'static Quantity,
    pub(super) labels: Labels,
    pub(super) values: Vec<f64>,
}

impl Sampled {
    /// Samples of the quantity of this name, without labels.
    pub(super) fn new(name: &str, values: Vec<f64>) -> Sampled {
        let quantity = quantity(name).unwrap_or_else(|| panic!("{name} is not in the table of quantities"));
        Sampled { name: name.to_owned(), quantity, labels: Labels::new(), values }
    }

    /// The same of one sample.
    pub(super) fn one(name: &str, value: f64) -> Sampled {
        Sampled::new(name, vec![value])
    }

    /// The same with these labels.
    pub(super) fn with(self, labels: Labels) -> Sampled {
        Sampled { labels, ..self }
    }
}
