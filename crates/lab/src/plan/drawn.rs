//! Values that are not the same for all members of a group, but drawn for each by the seed.

use heddle_netem::{Rng, Seed};
use serde::Deserialize;

/// The most values of a list or a distribution.
const VALUES_MAX: usize = 1000;

/// From what a value is drawn. In TOML `{ one_of = [75, 128] }` or `{ quantiles = [75, 100, 7168] }`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Drawn {
    /// One of these, each with the same chance.
    OneOf(Vec<f64>),
    /// The distribution with these quantiles, from the least value to the greatest in equal steps of probability, and
    /// uniform from each to the next.
    Quantiles(Vec<f64>),
}

impl Drawn {
    /// Its values, as the plan has them.
    fn values(&self) -> &[f64] {
        match self {
            Drawn::OneOf(values) | Drawn::Quantiles(values) => values,
        }
    }

    /// The least and the greatest value that can be drawn; both are zero where there is none.
    pub(crate) fn bounds(&self) -> [f64; 2] {
        let values = || self.values().iter().copied();
        let least = values().reduce(f64::min).unwrap_or_default();
        [least, values().reduce(f64::max).unwrap_or_default()]
    }

    /// What is wrong with it. `least` is the least value that means something.
    pub(super) fn fault(&self, least: f64) -> Option<String> {
        let values = self.values();
        if !(1..=VALUES_MAX).contains(&values.len()) {
            return Some(format!("{} values to draw from; possible is from 1 to {VALUES_MAX}", values.len()));
        }
        if let Some(value) = values.iter().find(|value| !value.is_finite() || **value < least) {
            return Some(format!(
                "{value} is among the values to draw from; the least that is possible is {least}"
            ));
        }
        let is_sorted = matches!(self, Drawn::OneOf(_)) || values.is_sorted();
        (!is_sorted).then(|| "quantiles go from the least to the greatest".to_owned())
    }

    /// Draws a value. It takes one number of `rng`, whatever it is.
    pub(super) fn draw(&self, rng: &mut Rng) -> f64 {
        let at = rng.unit();
        let values = self.values();
        let Some(last) = values.len().checked_sub(1) else { return 0.0 };
        match self {
            Drawn::OneOf(_) => values[((at * values.len() as f64) as usize).min(last)],
            Drawn::Quantiles(_) => {
                let place = at * last as f64;
                let below = (place as usize).min(last);
                let (low, high) = (values[below], values[(below + 1).min(last)]);
                low + (place - below as f64) * (high - low)
            }
        }
    }
}

/// The chance of one value, by what it is and whose.
pub(super) fn chance(seed: u64, what: &str, whose: &[&str]) -> Rng {
    Seed::from_number(seed).child(&["network", what]).child(whose).rng()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(from: &Drawn, count: usize) -> Vec<f64> {
        let mut rng = Seed::from_number(1).rng();
        (0..count).map(|_| from.draw(&mut rng)).collect()
    }

    #[test]
    fn values_of_a_list_come_equally_often() {
        let values = drawn(&Drawn::OneOf(vec![1.0, 2.0, 4.0]), 9000);
        for wanted in [1.0, 2.0, 4.0] {
            let count = values.iter().filter(|value| **value == wanted).count();
            assert!((2800..3200).contains(&count), "{wanted}: {count}");
        }
    }

    #[test]
    fn a_distribution_has_the_quantiles_that_it_is_told() {
        let from = Drawn::Quantiles(vec![10.0, 20.0, 40.0, 40.0, 1000.0]);
        let mut values = drawn(&from, 10_000);
        values.sort_by(f64::total_cmp);
        assert_eq!(from.bounds(), [10.0, 1000.0]);
        assert!(values[0] >= 10.0 && values[9999] <= 1000.0);
        for (place, wanted) in [(1250, 15.0), (2500, 20.0), (3750, 30.0), (6000, 40.0), (8750, 520.0)] {
            assert!((values[place] / wanted - 1.0).abs() < 0.05, "{place}: {}", values[place]);
        }
        assert_eq!(drawn(&Drawn::Quantiles(vec![7.0]), 2), [7.0, 7.0]);
    }

    #[test]
    fn what_nothing_can_be_drawn_from_is_said() {
        for (from, what) in [
            (Drawn::OneOf(vec![]), "0 values"),
            (Drawn::Quantiles(vec![1.0; 1001]), "1001 values"),
            (Drawn::OneOf(vec![3.0, 1.0]), "least that is possible is 2"),
            (Drawn::Quantiles(vec![f64::NAN]), "NaN"),
            (Drawn::Quantiles(vec![4.0, 3.0]), "least to the greatest"),
        ] {
            assert!(from.fault(2.0).is_some_and(|fault| fault.contains(what)), "{from:?}");
        }
        assert_eq!(Drawn::OneOf(vec![4.0, 3.0]).fault(2.0), None);
    }
}
