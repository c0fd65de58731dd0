//! Statistics run by run, and what targets and known values make of them.

use std::collections::BTreeMap;

use super::*;
use crate::figures::{Labels, labels, quantity};
use crate::plan::parse;
use crate::plan::tests::SMALL;

#[test]
fn a_mean_is_that_of_the_runs_and_quantiles_are_those_of_all_samples() {
    let mut samples = RunSamples::default();
    let arm = labels([("transport", "stock")]);
    samples.add(0, "delay_ms", &arm, "ms", &[1.0; 98]);
    samples.add(1, "delay_ms", &arm, "ms", &[3.0, 5.0, f64::NAN, f64::INFINITY]);
    let figures = samples.figures();
    let figure = &figures[0];
    // Means 1 and 4; for one degree of freedom t is 12.7062, and half of the difference is the standard error.
    assert_eq!((figures.len(), figure.n, figure.mean, figure.p50), (1, 100, 2.5, 1.0));
    let [low, high] = figure.ci95.unwrap();
    // A delay is never negative: as many times more as less.
    let times = (12.7062_f64 * 1.5 / 2.5).exp();
    assert!((low - 2.5 / times).abs() < 1e-9 && (high - 2.5 * times).abs() < 1e-6);
    samples.forget_run(1);
    assert_eq!(samples.figures()[0].ci95, None);
    samples.forget_run(0);
    assert!(samples.all().is_empty());
}

/// A look that took long, or was left out, is where it was.
#[test]
fn what_was_looked_at_again_and_again_is_drawn_by_the_times_of_the_looks() {
    let mut samples = RunSamples::default();
    let (arm, window) = (Labels::new(), quantity("socket_window_kb").unwrap());
    let values = [1.0, f64::NAN, 3.0, 4.0];
    samples.add_of(0, "window", window, &arm, (&values, &[40.0, 40.1, 40.7, 41.0]));
    samples.add_of(0, "untimed", window, &arm, (&values, &[]));
    let course = |name: &str, step_s| samples.series(name, &arm).unwrap().course(step_s).unwrap();
    let rounded = |points: Vec<(f64, f64)>| -> Vec<(i64, f64)> {
        points.into_iter().map(|(time_s, value)| ((time_s * 1e3).round() as i64, value)).collect()
    };
    assert_eq!(rounded(course("window", 0.1)), [(0, 1.0), (700, 3.0), (1000, 4.0)]);
    assert_eq!(rounded(course("untimed", 0.1)), [(0, 1.0), (100, 3.0), (200, 4.0)]);
    samples.forget_run(0);
    assert!(samples.all().is_empty());
}

#[test]
fn comparisons_are_paired_by_run() {
    let compare = |name: &str, kind: &str| {
        format!(
            "[[compare]]\nfigure = \"rate\"\nlabel = \"transport\"\nbase = \"stock\"\nname = \"{name}\"\nkind = \"{kind}\"\n"
        )
    };
    let only = |name: &str| format!("{}only = {{ wire = \"{name}\" }}\n", compare(name, "ratio"));
    let all = [
        compare("ratio", "ratio"),
        compare("more", "difference"),
        compare("less_pct", "loss_pct"),
        only("shared"),
        only("remaining"),
    ];
    let loaded = parse("small.toml", &format!("{SMALL}{}", all.concat()), &BTreeMap::new()).unwrap();
    let mut samples = RunSamples::default();
    for (run, (stock, tls)) in [(10.0, 20.0), (20.0, 30.0)].into_iter().enumerate() {
        for (transport, value) in [("stock", stock), ("tls", tls)] {
            let labels = labels([("transport", transport), ("wire", "shared")]);
            samples.add(run, "rate", &labels, "MB/s", &[value]);
        }
        // It has no partner, and one without the label is nobody's.
        samples.add(run, "rate", &labels([("transport", "tls"), ("wire", "none")]), "MB/s", &[1.0]);
        samples.add(run, "rate", &labels([("wire", "shared")]), "MB/s", &[1.0]);
        samples.compare(&loaded.plan, run);
    }
    let tls = labels([("transport", "tls"), ("wire", "shared")]);
    let of = |name: &str| samples.series(name, &tls).unwrap().all();
    assert_eq!(
        (of("ratio"), of("more"), of("less_pct")),
        (vec![2.0, 1.5], vec![10.0; 2], vec![-100.0, -50.0])
    );
    assert_eq!(samples.all().iter().filter(|series| series.name == "ratio").count(), 1);
    assert_eq!(of("shared"), of("ratio"));
    assert_eq!(samples.series("remaining", &tls), None);
}

#[test]
fn figures_of_two_names_are_compared_where_their_labels_are_the_same() {
    let compare = "[[compare]]\nfigure = \"delay_ms\"\nto = \"base_delay_ms\"\nname = \"excess_ms\"\nkind = \"difference\"\n";
    let loaded = parse("small.toml", &format!("{SMALL}{compare}"), &BTreeMap::new()).unwrap();
    let mut samples = RunSamples::default();
    let (stock, tls) = (labels([("transport", "stock")]), labels([("transport", "tls")]));
    samples.add(0, "base_delay_ms", &stock, "ms", &[300.0]);
    samples.add(0, "delay_ms", &stock, "ms", &[400.0, 420.0]);
    samples.add(0, "delay_ms", &tls, "ms", &[1.0]);
    samples.compare(&loaded.plan, 0);
    assert_eq!(samples.series("excess_ms", &stock).unwrap().all(), [110.0]);
    assert_eq!(samples.series("excess_ms", &tls), None);
}

#[test]
fn an_interval_is_demanded_of_all_samples() {
    let known = "[[known]]\nfigure = \"x\"\nvalue = 1.0\nwithin_interval = true\nsource = \"chance\"\n";
    let loaded = parse("small.toml", &format!("{SMALL}{known}"), &BTreeMap::new()).unwrap();
    let holds = |offset: f64| {
        let mut samples = RunSamples::default();
        // Mean 1 + offset, standard deviation 1.0005 and 1000 samples: the interval is 0.1041 to each side.
        let values: Vec<f64> = (0..1000).map(|n| f64::from(n % 2 * 2) + offset).collect();
        samples.add(0, "x", &Labels::new(), "1", &values);
        check::checks(&loaded.plan, &samples)[1].holds
    };
    assert_eq!(
        [holds(0.10), holds(-0.10), holds(0.11), holds(-0.11)].map(Option::unwrap),
        [true, true, false, false]
    );
    assert_eq!(check::checks(&loaded.plan, &RunSamples::default())[1].holds, Some(false));
}

#[test]
fn a_target_is_met_by_the_whole_interval_and_missed_by_none_of_it() {
    let target = "[[target]]\nfigure = \"x\"\nlabels = { a = \"1\" }\nat_most = 1.0\nsource = \"us\"\n";
    let text = format!("{SMALL}{target}{}", target.replace("\"x\"", "\"y\""));
    let loaded = parse("small.toml", &text, &BTreeMap::new()).unwrap();
    let judged = |runs: &[f64]| {
        let mut samples = RunSamples::default();
        let labels = crate::figures::labels([("a", "1"), ("b", "2")]);
        for (run, value) in runs.iter().enumerate() {
            samples.add(run, "x", &labels, "1", &[*value]);
        }
        let judgements = judgement::judgements(&loaded.plan, &samples, runs.len(), true);
        assert_eq!((judgements.len(), &judgements[0].labels), (2, &labels));
        assert_eq!(judgements[1].outcome, Outcome::NotMeasured);
        judgements[0].outcome
    };
    assert_eq!(judged(&[0.8, 0.81, 0.8]), Outcome::Met);
    assert_eq!(judged(&[0.8, 1.1, 0.9]), Outcome::Open);
    assert_eq!(judged(&[1.1, 1.11, 1.1]), Outcome::Missed);
    // Of a result that must not be trusted none is met.
    let mut samples = RunSamples::default();
    for (run, value) in [0.8, 0.81, 0.8].into_iter().enumerate() {
        samples.add(run, "x", &crate::figures::labels([("a", "1")]), "1", &[value]);
    }
    let outcome = |runs, is_valid| judgement::judgements(&loaded.plan, &samples, runs, is_valid)[0].outcome;
    assert_eq!(
        [outcome(3, true), outcome(3, false), outcome(4, true)],
        [Outcome::Met, Outcome::Open, Outcome::Open]
    );
    // One run has no interval.
    assert_eq!(judged(&[0.1]), Outcome::Open);
    // A ratio over nothing is no number, and the other runs do not speak for that one.
    assert_eq!(judged(&[0.8, 0.81, 0.8, f64::INFINITY]), Outcome::Open);
    assert_eq!(judged(&[1.1, 1.11, 1.1, f64::INFINITY]), Outcome::Open);
}

#[test]
fn a_limit_is_kept_by_every_sample_or_missed() {
    let target = "[[target]]\nfigure = \"x\"\nalways = true\nat_most = 160\nat_least = 10\nsource = \"us\"\n";
    let loaded = parse("small.toml", &format!("{SMALL}{target}"), &BTreeMap::new()).unwrap();
    let judged = |runs: &[&[f64]]| {
        let mut samples = RunSamples::default();
        for (run, values) in runs.iter().enumerate() {
            samples.add(run, "x", &crate::figures::Labels::new(), "cells", values);
        }
        let judgement = judgement::judgements(&loaded.plan, &samples, runs.len(), true).remove(0);
        (judgement.ours, judgement.outcome)
    };
    // The interval of the mean of these reaches beyond the limit; no sample does.
    assert_eq!(judged(&[&[154.0, 120.0], &[157.0], &[160.0]]), (Some(160.0), Outcome::Met));
    assert_eq!(judged(&[&[15.0, 120.0]]), (Some(15.0), Outcome::Met));
    assert_eq!(judged(&[&[1.0, 161.0], &[100.0]]), (Some(1.0), Outcome::Missed));
    assert_eq!(judged(&[]), (None, Outcome::NotMeasured));
    // In the second run nothing was measured: that leaves open what no other run decides.
    assert_eq!(judged(&[&[100.0], &[]]), (Some(100.0), Outcome::Open));
    assert_eq!(judged(&[&[161.0], &[]]), (Some(161.0), Outcome::Missed));
}

#[test]
fn the_area_under_the_curve_counts_pairs() {
    let mut samples = RunSamples::default();
    let of = |on: &str| crate::figures::labels([("a", on)]);
    samples.add(0, "delay_ms", &of("off"), "ms", &[1.0, 2.0, 3.0]);
    samples.add(0, "delay_ms", &of("on"), "ms", &[2.0, 4.0]);
    let compare =
        "[[compare]]\nfigure = \"delay_ms\"\nlabel = \"a\"\nbase = \"off\"\nname = \"auc\"\nkind = \"auc\"\n";
    let loaded = parse("small.toml", &format!("{SMALL}{compare}"), &BTreeMap::new()).unwrap();
    samples.compare(&loaded.plan, 0);
    // Of six pairs four are greater and one is equal.
    assert_eq!(samples.series("auc", &of("on")).unwrap().all(), [4.5 / 6.0]);
}
