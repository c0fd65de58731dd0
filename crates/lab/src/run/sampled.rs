//! What one measurement gives before it is put to the run's samples.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::figures::{Labels, Quantity, quantity};
use crate::plan::Arm;
use crate::results::RunSamples;

/// The samples of one quantity, with labels beyond the arm's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Sampled {
    /// The quantity's own name, or the one that a plan gives it.
    pub(super) name: String,
    #[serde(serialize_with = "as_name", deserialize_with = "by_name")]
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

    /// The same without values that are no finite numbers, of which no figure can be made.
    pub(super) fn finite(self) -> Sampled {
        let is_kept = |value: &f64| value.is_finite();
        let timed = self.times_s.iter().zip(&self.values).filter(|(_, value)| is_kept(value));
        let times_s = timed.map(|(time_s, _)| *time_s).collect();
        Sampled { times_s, values: self.values.iter().copied().filter(is_kept).collect(), ..self }
    }

    /// Adds them to those of a run, with the labels of their arm.
    pub(super) fn add_to(self, samples: &mut RunSamples, arm: &Arm, run: usize) {
        let Sampled { name, quantity, labels, values, times_s } = self;
        let labels = arm.labels.clone().into_iter().chain(labels).collect();
        samples.add_of(run, &name, quantity, &labels, (&values, &times_s));
    }
}

fn as_name<S: Serializer>(quantity: &Quantity, into: S) -> Result<S::Ok, S::Error> {
    quantity.name.serialize(into)
}

fn by_name<'de, D: Deserializer<'de>>(from: D) -> Result<&'static Quantity, D::Error> {
    let name = String::deserialize(from)?;
    quantity(&name).ok_or_else(|| serde::de::Error::custom(format!("there is no quantity {name:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::labels;

    #[test]
    fn samples_read_back_as_what_they_were() {
        let points = [(0.1, 1.0 / 3.0), (0.2, f64::NAN), (0.3, -0.0), (0.4, 1e-300)];
        let sampled = Sampled::over_time("echo_ms", points.into_iter()).with(labels([("client", "a")]));
        let sampled = Sampled { name: "echo_beside_bulk_ms".into(), ..sampled }.finite();
        assert_eq!(
            (&*sampled.values, &*sampled.times_s),
            (&[1.0 / 3.0, -0.0, 1e-300][..], &[0.1, 0.3, 0.4][..])
        );
        let json = serde_json::to_string(&sampled).unwrap();
        let again: Sampled = serde_json::from_str(&json).unwrap();
        let bits = |sampled: &Sampled| sampled.values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!((&again, bits(&again)), (&sampled, bits(&sampled)));
        let error =
            serde_json::from_str::<Sampled>(&json.replace("\"echo_ms\"", "\"nonesuch\"")).unwrap_err();
        assert!(error.to_string().contains("there is no quantity \"nonesuch\""), "{error}");
    }
}
