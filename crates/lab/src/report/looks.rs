//! What a series looks like in plots: an arm has one colour and one marker in all plots of a report, and runs of the
//! same arm side by side differ by their dashes, as do curves of one arm.

use std::collections::BTreeMap;

use toml::Spanned;

use super::words::arm_of;
use crate::figures::Labels;
use crate::plan::Plan;
use crate::results::Results;

/// How many colours there are, each with a marker of its own; further arms begin anew.
pub(super) const COLOURS: usize = 8;
/// How many patterns of dashes there are.
pub(super) const DASHES: usize = 8;

/// What a series looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// Its colour and marker.
    pub(super) colour: usize,
    /// Its run, of how many.
    pub(super) run: usize,
    pub(super) runs: usize,
    /// How many of its colour and run are before it in the plot.
    pub(super) place: usize,
}

impl Look {
    /// The dashes of a row, which has a name beside it: those of its run.
    pub(super) fn row_dash(self) -> usize {
        self.run % DASHES
    }

    /// The dashes of a curve. Several of one colour in a run have every so many-th pattern, so that no other run has
    /// it.
    pub(super) fn curve_dash(self) -> usize {
        (self.run + self.runs * self.place) % DASHES
    }
}

/// A series of a plot: of which run, and with which labels.
pub(super) struct Place<'a> {
    pub(super) run: usize,
    pub(super) plan: &'a Plan,
    pub(super) labels: &'a Labels,
}

/// The arms of a report in the order of their colours.
pub(super) struct Looks<'a> {
    arms: Vec<&'a str>,
    runs: usize,
}

impl<'a> Looks<'a> {
    /// Gives every arm of the plans its colour, whether or not it was measured.
    pub(super) fn of(results: &[Results<'a>]) -> Looks<'a> {
        let mut arms: Vec<&str> = Vec::new();
        let all = results.iter().flat_map(|result| &result.plan.arms).map(Spanned::as_ref);
        for arm in all.filter(|arm| !arm.labels.is_empty()) {
            if !arms.contains(&&*arm.name) {
                arms.push(&arm.name);
            }
        }
        Looks { arms, runs: results.len().max(1) }
    }

    /// What the series of a plot look like. Those of no arm get the colours that no arm has, in their order.
    pub(super) fn of_plot(&self, series: &[Place<'_>]) -> Vec<Look> {
        let mut armless: Vec<&Labels> = Vec::new();
        let mut drawn: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        let mut looks = Vec::new();
        for Place { run, plan, labels } in series {
            let arm = arm_of(plan, labels);
            let arm = arm.and_then(|arm| self.arms.iter().position(|name| *name == arm.name));
            if arm.is_none() && !armless.contains(labels) {
                armless.push(labels);
            }
            let place = armless.iter().position(|other| other == labels).unwrap_or(0);
            let colour = arm.unwrap_or(self.arms.len() + place) % COLOURS;
            let before = drawn.entry((colour, *run)).or_default();
            looks.push(Look { colour, run: *run, place: *before, runs: self.runs });
            *before += 1;
        }
        looks
    }
}
