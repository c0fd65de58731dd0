//! The report as a table for terminals.

use std::fmt::Write;

use super::outcome::sentences;
use super::page::{demanded, how_runs_came_about, judged};
use super::words::{join, number};
use crate::results::Results;

/// Every figure of some results, one line each, and whether to trust them.
pub fn text(results: &[Results<'_>]) -> String {
    let mut text = String::new();
    let mut put =
        |line: std::fmt::Arguments<'_>| writeln!(text, "{line}").expect("a string takes everything");
    for result in results {
        let summary = result.summary;
        put(format_args!("{} ({}), seeds {:?}", summary.plan, summary.commit, summary.seeds));
        if !summary.valid {
            put(format_args!("  not to be trusted, for the reasons at the end"));
        }
        let [shown, folded] = sentences(result);
        for sentence in &shown {
            put(format_args!("  {}", sentence.text));
        }
        if !folded.is_empty() {
            put(format_args!("  and {} more of the kind, which the figures below tell", folded.len()));
        }
        let history = how_runs_came_about(summary);
        if !history.is_empty() {
            put(format_args!("  {history}"));
        }
        let names =
            summary.figures.iter().map(|figure| format!("{} ({})", figure.name, join(&figure.labels)));
        let names: Vec<String> = names.collect();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        for (figure, name) in summary.figures.iter().zip(&names) {
            let interval = figure.ci95.map(|[low, high]| format!(" [{}, {}]", number(low), number(high)));
            put(format_args!(
                "  {name:width$}  {:>9}{} {}  p50 {}, p99 {}, n {}",
                number(figure.mean),
                interval.unwrap_or_default(),
                figure.unit,
                number(figure.p50),
                number(figure.p99),
                figure.n
            ));
        }
        for check in summary.checks.iter().filter(|check| check.holds == Some(true)) {
            let ours = check.ours.map(number).unwrap_or_default();
            let [low, high] = check.bounds.unwrap_or_default();
            put(format_args!(
                "  holds: {} of {} ({}) is {ours} {}, demanded {} to {}",
                check.statistic.name(),
                check.figure,
                join(&check.labels),
                check.unit,
                number(low),
                number(high)
            ));
        }
        for repeated in &summary.repeated {
            put(format_args!("  measured once more: {repeated}"));
        }
        for target in &summary.targets {
            let labels = join(&target.labels);
            let (ours, bounds) = (judged(target), demanded(target));
            let outcome = target.outcome.name();
            put(format_args!("  target {outcome}: {} ({labels}) is {ours}, to be {bounds}", target.figure));
        }
        match summary.valid {
            true => put(format_args!("  valid")),
            false => put(format_args!("  NOT VALID:\n    {}", summary.reasons.join("\n    "))),
        }
    }
    text
}
