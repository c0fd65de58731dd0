//! Partition diagrams (J. Reardon's thesis, figures 5.7 to 5.11): the distributions of many things at once.
//!
//! From left to right are the percentiles of each one's values, from bottom to top all of them. A shade is a tenfold
//! range of values; how high it is at a percentile says how many of them have theirs in that range.

use serde::Serialize;

use super::chart::{Axis, PLOT_HEIGHT, RIGHT, WIDTH, level, path};
use super::svg::{Size, open, put};
use super::words::escape;

/// Ranges of values at most; what is below the lowest belongs to that.
const RANGES_MAX: usize = 7;
/// Percentiles, from the least to the greatest value.
const PERCENTILES: usize = 101;

/// How many of all things have a percentile in which range.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Partition {
    /// Where one range ends and the next begins, ascending.
    bounds: Vec<f64>,
    /// For each bound, and each percentile from 0 to 100, the share of things that are below.
    below: Vec<Vec<f64>>,
    /// How many things there are.
    pub(super) n: usize,
}

impl Partition {
    /// Of each thing's values. `None` where there is none.
    pub(super) fn of(members: Vec<Vec<f64>>) -> Option<Partition> {
        let sorted = |mut values: Vec<f64>| {
            values.sort_by(f64::total_cmp);
            values
        };
        let members: Vec<_> = members.into_iter().filter(|values| !values.is_empty()).map(sorted).collect();
        let n = members.len();
        let bounds = bounds(members.iter().flatten().copied());
        let share = |bound: f64, percentile: usize| {
            let is_below = |values: &&Vec<f64>| quantile(values, percentile) < bound;
            members.iter().filter(is_below).count() as f64 / n as f64
        };
        let below =
            bounds.iter().map(|bound| (0..PERCENTILES).map(|at| share(*bound, at)).collect()).collect();
        (n > 0).then_some(Partition { bounds, below, n })
    }

    /// What a range is called, by where it begins and ends.
    fn name(&self, range: usize) -> String {
        let bound = |number: usize| self.bounds.get(number);
        match (range.checked_sub(1).and_then(bound), bound(range)) {
            (None, None) => "all values".to_owned(),
            (None, Some(high)) => format!("below {high}"),
            (Some(low), Some(high)) => format!("{low} to below {high}"),
            (Some(low), None) => format!("{low} and more"),
        }
    }
}

/// The powers of ten between the least positive and the greatest value, or the highest of them.
fn bounds(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let (least, greatest) = values
        .filter(|value| *value > 0.0 && value.is_finite())
        .fold((f64::INFINITY, 0.0_f64), |(least, greatest), value| (least.min(value), greatest.max(value)));
    if greatest == 0.0 {
        return Vec::new();
    }
    let highest = greatest.log10().floor() as i32;
    let lowest = (least.log10().floor() as i32 + 1).max(highest - (RANGES_MAX as i32 - 2));
    (lowest..=highest).map(|power| 10_f64.powi(power)).collect()
}

/// The value at or below which so many hundredths of the sorted ones are; the least at 0.
fn quantile(sorted: &[f64], percentile: usize) -> f64 {
    let rank = (sorted.len() * percentile).div_ceil(100);
    sorted[rank.saturating_sub(1)]
}

/// The diagram, and what its shades are.
pub(super) fn partition(title: &str, axis_title: &str, of: &Partition) -> String {
    let left = 48.0;
    let axis = Axis::over([0.0, 100.0].into_iter(), left, WIDTH - left - RIGHT);
    let (top, bottom) = (8.0, 8.0 + PLOT_HEIGHT);
    let ranges = of.bounds.len() + 1;
    let under = bottom + 46.0;
    let mut svg = open(title, WIDTH, under + 18.0 * ranges as f64, Size::OfPage);
    let y = |share: f64| bottom - share * PLOT_HEIGHT;
    let (none, all) = (vec![0.0; PERCENTILES], vec![1.0; PERCENTILES]);
    for range in 0..ranges {
        let low = range.checked_sub(1).map_or(&none, |bound| &of.below[bound]);
        let high = of.below.get(range).unwrap_or(&all);
        let points = |shares: &[f64]| -> Vec<(f64, f64)> {
            shares.iter().enumerate().map(|(at, share)| (at as f64, *share)).collect()
        };
        let around = points(high).into_iter().chain(points(low).into_iter().rev());
        let shade = range as f64 / (ranges - 1).max(1) as f64;
        put(
            &mut svg,
            format_args!(
                r#"<path class="shade" fill-opacity="{shade:.2}" d="{}z"/>"#,
                path(around, &axis, y)
            ),
        );
        let at = under + 18.0 * range as f64;
        put(
            &mut svg,
            format_args!(
                r#"<rect class="shade" fill-opacity="{shade:.2}" x="{left}" y="{:.1}" width="34" height="12"/>"#,
                at - 8.0
            ),
        );
        put(
            &mut svg,
            format_args!(r#"<text x="{:.1}" y="{:.1}">{}</text>"#, left + 42.0, at + 3.0, of.name(range)),
        );
    }
    axis.draw(&mut svg, top, bottom, &format!("percentile of each one's {}", escape(axis_title)));
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        level(&mut svg, left, y(share), &share.to_string());
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_powers_of_ten_and_not_too_many() {
        let of = |values: &[f64]| bounds(values.iter().copied());
        assert_eq!(of(&[0.0, 3.0, 250.0]), [10.0, 100.0]);
        assert_eq!(of(&[10.0, 99.0]), Vec::<f64>::new());
        assert_eq!(of(&[0.0, f64::NAN]), Vec::<f64>::new());
        let many = of(&[1e-9, 1e9]);
        assert_eq!((many.len(), many.last()), (RANGES_MAX - 1, Some(&1e9)));
    }

    /// Two queues that are always short, one that is long half of the time, and one that is always long.
    #[test]
    fn the_height_of_a_shade_is_how_many_are_in_it() {
        let halves = (0..10).map(|at| if at < 5 { 2.0 } else { 500.0 }).collect();
        let of = vec![vec![1.0; 4], vec![5.0], halves, vec![300.0; 3], Vec::new()];
        let partition_of = Partition::of(of).expect("four of them");
        assert_eq!((partition_of.n, &partition_of.bounds[..]), (4, &[10.0, 100.0][..]));
        assert_eq!(partition_of.below[0][50..=51], [0.75, 0.5]);
        assert_eq!(partition_of.below[1][0], 0.75);
        let svg = partition("queues", "length", &partition_of);
        assert!(
            svg.contains("below 10<") && svg.contains("10 to below 100<") && svg.contains("100 and more<")
        );
        assert_eq!(svg.matches("class=\"shade\"").count(), 6);
        // The lightest shade ends at three quarters of the height on the left, and at half of it on the right.
        let drawn = svg.split_once(" d=\"M").and_then(|(_, rest)| rest.split_once('L')).expect("a path").0;
        assert_eq!(drawn, format!("48.0 {:.1}", 8.0 + PLOT_HEIGHT / 4.0));
        assert!(Partition::of(vec![Vec::new()]).is_none());
    }
}
