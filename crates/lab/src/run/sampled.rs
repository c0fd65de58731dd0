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
    /// When each was, in seconds, where somebody looked again and again; else nothing.
    pub(super) times_s: Vec<f64>,
}

impl Sampled {
    /// Samples of the quantity of this name, without labels.
    pub(super) fn new(name: &str, values: Vec<f64>) -> Sampled {
        let quantity = quantity(name).unwrap_or_else(|| panic!("{name} is not in the table of quantities"));
        Sampled { name: name.to_owned(), quantity, labels: Labels::new(), values, times_s: Vec::new() }
    }

    /// The same of one sample.
    pub(super) fn one(name: &str, value: f64) -> Sampled {
        Sampled::new(name, vec![value])
    }

    /// Samples by when they were, in seconds.
    pub(super) fn over_time(name: &str, points: impl Iterator<Item = (f64, f64)>) -> Sampled {
        let (times_s, values) = points.unzip();
        Sampled { times_s, ..Sampled::new(name, values) }
    }

    /// The same with these labels.
    pub(super) fn with(self, labels: Labels) -> Sampled {
        Sampled { labels, ..self }
    }
}
