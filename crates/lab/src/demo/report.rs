//! The demo's results as a table for people.

use std::fmt::Write;

use super::Position;
use crate::figures::{Figure, Labels, Samples, Summary, ci95, labels, mean};

/// The table: one column per arm, in the given order, and how the first compares with the second.
pub(super) fn text(summary: &Summary, samples: &Samples, arms: &[String]) -> String {
    let mut text = String::new();
    row(&mut text, "relays", arms.iter().cloned());
    let path = arms.iter().map(|arm| path(arm).join(" > "));
    row(&mut text, "path", path);
    let line = |text: &mut String, title: &str, name: &str, extra: &[(&str, &str)]| {
        let cells = arms.iter().map(|arm| cell(find(summary, name, &arm_labels(arm, extra))));
        row(text, title, cells);
    };
    line(&mut text, "download, MB/s", "download_mb_s", &[]);
    line(&mut text, "first byte, ms", "first_byte_ms", &[]);
    for position in Position::ALL {
        let title = format!("{position}, CPU-s per GB");
        line(&mut text, &title, "relay_cpu_s_per_gb", &[("position", position.name())]);
    }
    let hashes = arms.iter().map(|arm| {
        let ok = samples.of("sha256_ok", &arm_labels(arm, &[]));
        format!("{} of {}", ok.iter().filter(|ok| **ok == 1.0).count(), ok.len())
    });
    row(&mut text, "SHA-256 right", hashes);
    if let [a, b] = arms {
        text += &ratio(samples, a, b);
    }
    text
}

fn arm_labels(arm: &str, extra: &[(&str, &str)]) -> Labels {
    let mut all = labels([("relays", arm)]);
    all.extend(extra.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    all
}

fn row(text: &mut String, title: &str, cells: impl Iterator<Item = String>) {
    let _ = write!(text, "{title:<22}");
    for cell in cells {
        let _ = write!(text, "  {cell:<30}");
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
    let interval = figure.ci95.map_or(String::new(), |[low, high]| format!(" ±{:.2}", (high - low) / 2.0));
    format!("{:.2}{interval} (p50 {:.2}, n {})", figure.mean, figure.p50, figure.n)
}

/// How the arms' downloads of the same round compare.
fn ratio(samples: &Samples, a: &str, b: &str) -> String {
    let of = |arm| samples.of("download_mb_s", &arm_labels(arm, &[]));
    let ratios: Vec<f64> = of(a).iter().zip(of(b)).map(|(a, b)| a / b).collect();
    match (mean(&ratios), ci95(&ratios)) {
        (Some(mean), Some([low, high])) => format!(
            "{a} over {b}: {mean:.2} times the download rate (95 % interval {low:.2} to {high:.2}, {} rounds)\n",
            ratios.len()
        ),
        (Some(mean), None) => {
            format!("{a} over {b}: {mean:.2} times the download rate (one round)\n")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_arm() {
        let mut samples = Samples::default();
        for (arm, rate) in [("heddle-middle", 8.0), ("stock", 4.0), ("heddle-middle", 10.0), ("stock", 5.0)] {
            samples.add("download_mb_s", labels([("relays", arm)]), "MB/s", rate);
            samples.add("sha256_ok", labels([("relays", arm)]), "1", 1.0);
        }
        let summary = Summary { commit: "x".into(), figures: samples.figures() };
        let text = text(&summary, &samples, &["heddle-middle".into(), "stock".into()]);
        assert!(text.contains("stock > heddle > stock"), "{text}");
        assert!(text.contains("9.00 ±12.71 (p50 9.00, n 2)"), "{text}");
        assert!(text.contains("2.00 times the download rate (95 % interval 2.00 to 2.00, 2 rounds)"));
        assert!(text.contains("2 of 2"));
    }
}
