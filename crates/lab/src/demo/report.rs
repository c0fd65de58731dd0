//! The demo's results as a table for people.

use std::fmt::Write;

use super::{Position, Wires};
use crate::figures::{Figure, Labels, labels};
use crate::results::{RunSamples, Series, Summary};

/// A line of the table: what stands before it, and the figure with its labels beyond the arm's.
type Line = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const ON_WIRES: &[Line] = &[
    ("web page alone: first byte, ms", "first_byte_ms", &[("client", "web"), ("beside", "nothing")]),
    ("  whole page, s", "page_s", &[("client", "web"), ("beside", "nothing")]),
    ("web page beside bulk: first byte, ms", "first_byte_ms", &[("client", "web"), ("beside", "bulk")]),
    ("  whole page, s", "page_s", &[("client", "web"), ("beside", "bulk")]),
    ("bulk download: first byte, ms", "first_byte_ms", &[("client", "bulk"), ("beside", "web")]),
    ("  rate, MB/s", "download_mb_s", &[]),
    ("middle, packets by UDP, %", "middle_udp_pct", &[]),
];

const ON_LOOPBACK: &[Line] =
    &[("download, MB/s", "download_mb_s", &[]), ("first byte, ms", "first_byte_ms", &[])];

/// What is compared: a figure of ratios, what it is a ratio of, and the labels beyond the arm's.
const RATIOS_ON_WIRES: &[Line] = &[
    ("first byte of a web page alone", "first_byte_over_stock", &[("client", "web"), ("beside", "nothing")]),
    (
        "first byte of a web page beside bulk",
        "first_byte_over_stock",
        &[("client", "web"), ("beside", "bulk")],
    ),
    ("time of a web page beside bulk", "page_over_stock", &[("client", "web"), ("beside", "bulk")]),
    ("bulk download rate", "download_over_stock", &[]),
];

const RATIOS_ON_LOOPBACK: &[Line] =
    &[("download rate", "download_over_stock", &[]), ("first byte", "first_byte_over_stock", &[])];

/// The table: one column per arm, in the given order, how others compare with stock, and whether to believe it.
pub(super) fn text(summary: &Summary, samples: &RunSamples, wires: Wires, arms: &[String]) -> String {
    let mut text = String::new();
    let (lines, ratios) = match wires {
        Wires::Emulated => (ON_WIRES, RATIOS_ON_WIRES),
        Wires::Loopback => (ON_LOOPBACK, RATIOS_ON_LOOPBACK),
    };
    row(&mut text, "relays", arms.iter().cloned());
    row(&mut text, "path", arms.iter().map(|arm| path(arm).join(" > ")));
    for (title, name, extra) in lines {
        let cells = arms.iter().map(|arm| cell(find(summary, name, &arm_labels(arm, extra))));
        row(&mut text, title, cells);
    }
    for position in Position::ALL {
        let extra = [("position", position.name())];
        let cells =
            arms.iter().map(|arm| cell(find(summary, "relay_cpu_s_per_gb", &arm_labels(arm, &extra))));
        row(&mut text, &format!("{position}, CPU-s per GB"), cells);
    }
    let hashes = arms.iter().map(|arm| {
        let series = samples.series("sha256_ok", &arm_labels(arm, &[]));
        let ok = series.map(Series::all).unwrap_or_default();
        format!("{} of {}", ok.iter().filter(|ok| **ok == 1.0).count(), ok.len())
    });
    row(&mut text, "SHA-256 right", hashes);
    text.push('\n');
    for arm in arms {
        for (what, name, extra) in ratios {
            text += &ratio(arm, what, find(summary, name, &arm_labels(arm, extra)));
        }
    }
    match wires {
        Wires::Emulated => text += "wires: emulated\n",
        Wires::Loopback => text += "wires: none, all on loopback\n",
    }
    text += "intervals of 95 % are over rounds in one network: another network may differ by more\n";
    if !summary.valid {
        let reasons = summary.reasons.join("\n  ");
        text += &format!("NOT VALID, do not trust these figures:\n  {reasons}\n");
    }
    text
}

fn arm_labels(arm: &str, extra: &[(&str, &str)]) -> Labels {
    let mut all = labels([("relays", arm)]);
    all.extend(extra.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    all
}

fn row(text: &mut String, title: &str, cells: impl Iterator<Item = String>) {
    let _ = write!(text, "{title:<38}");
    for cell in cells {
        let _ = write!(text, "  {cell:<34}");
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
}

/// The programs on an arm's path, by the arm's name.
fn path(arm: &str) -> [&'static str; 3] {
    Position::ALL.map(|position| match arm {
        "heddle" => "heddle",
        _ if arm.split('-').skip(1).any(|name| name == position.name()) => "heddle",
        _ => "stock",
    })
}

fn find<'a>(summary: &'a Summary, name: &str, labels: &Labels) -> Option<&'a Figure> {
    summary.figures.iter().find(|figure| figure.name == name && figure.labels == *labels)
}

fn cell(figure: Option<&Figure>) -> String {
    let Some(figure) = figure else {
        return "-".to_owned();
    };
    let decimals = if figure.mean >= 100.0 { 0 } else { 2 };
    let interval =
        figure.ci95.map_or(String::new(), |[low, high]| format!(" ({low:.decimals$} to {high:.decimals$})"));
    format!("{:.decimals$}{interval}, n {}", figure.mean, figure.n)
}

/// How an arm's turns compare with stock's of the same rounds. An arm is not compared with itself.
fn ratio(arm: &str, what: &str, figure: Option<&Figure>) -> String {
    let Some(Figure { mean, ci95, .. }) = figure.filter(|_| arm != "stock") else {
        return String::new();
    };
    match ci95 {
        Some([low, high]) => {
            format!("{arm} over stock, {what}: {mean:.2} times (95 % interval {low:.2} to {high:.2})\n")
        }
        None => format!("{arm} over stock, {what}: {mean:.2} times (one round)\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_arm() {
        let mut samples = RunSamples::default();
        for (round, arm, rate) in
            [(0, "heddle-middle", 8.0), (0, "stock", 4.0), (1, "heddle-middle", 10.0), (1, "stock", 5.0)]
        {
            let labels = labels([("relays", arm)]);
            samples.add(round, "download_mb_s", &labels, "MB/s", &[rate]);
            samples.add(
                round,
                "download_over_stock",
                &labels,
                "1",
                &[rate / if round == 0 { 4.0 } else { 5.0 }],
            );
            samples.add(round, "sha256_ok", &labels, "1", &[1.0]);
        }
        let reasons = vec!["late".to_owned()];
        let summary = Summary { figures: samples.figures(), reasons, ..Summary::default() };
        let arms = ["heddle-middle".into(), "stock".into()];
        let shown = text(&summary, &samples, Wires::Emulated, &arms);
        assert!(shown.contains("stock > heddle > stock"), "{shown}");
        // The error of the mean is 1, and t is 12.7: 9 times or by exp(12.7 / 9).
        assert!(shown.contains("9.00 (2.19 to 36.93), n 2"), "{shown}");
        assert!(shown.contains("in one network"), "{shown}");
        let times = "bulk download rate: 2.00 times (95 % interval 2.00 to 2.00)";
        assert_eq!(shown.matches("bulk download rate").count(), 1);
        assert!(shown.contains(times) && shown.contains("2 of 2"), "{shown}");
        assert!(shown.contains("NOT VALID") && shown.contains("late"), "{shown}");
        let shown = text(&Summary { valid: true, ..summary }, &samples, Wires::Loopback, &arms);
        assert!(shown.contains("on loopback") && !shown.contains("NOT VALID"), "{shown}");
    }
}
