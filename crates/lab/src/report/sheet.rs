//! Drawings of what is not a result: of a running relay, for one.

use super::chart::{self, Curve, TAIL, Trace};
use super::looks::{COLOURS, Look};
use super::page::{begin, data};
use super::partition::{self, Partition};
use super::words::escape;

/// A plot.
#[derive(Clone, Debug)]
pub struct Drawing {
    /// What stands above it.
    pub title: String,
    /// What its values are, with their unit.
    pub axis: String,
    /// Its lines, of which the first eight differ in colour.
    pub lines: Vec<Line>,
}

/// A line of a plot.
#[derive(Clone, Debug)]
pub enum Line {
    /// What something was over time.
    OverTime {
        /// What it is called.
        label: String,
        /// Times in seconds, ascending, and what it was then.
        points: Vec<(f64, f64)>,
    },
    /// How often it was what.
    Distribution {
        /// What it is called.
        label: String,
        /// What it was each time.
        samples: Vec<f64>,
    },
    /// How the distributions of many things differ: a partition diagram of its own.
    Partition {
        /// What each of them was each time.
        members: Vec<Vec<f64>>,
    },
}

/// Drawings as one HTML document that needs nothing else. Its first lines are the title and what it is about.
pub fn sheet(title: &str, about: &str, drawings: &[Drawing]) -> String {
    let (title, about) = (escape(title), escape(about));
    let mut html = begin(&title) + &format!("<h1>{title}</h1>\n<p>{about}</p>\n");
    for drawing in drawings {
        html += &figure(drawing);
    }
    html + "</body>\n</html>\n"
}

fn figure(drawing: &Drawing) -> String {
    let (mut traces, mut curves, mut partitions) = (Vec::new(), Vec::new(), Vec::new());
    for (number, line) in drawing.lines.iter().enumerate() {
        let look = Look { colour: number % COLOURS, run: 0, runs: 1, place: number / COLOURS };
        match line.clone() {
            Line::OverTime { label, points } => traces.push(Trace { label, points, look }),
            Line::Distribution { label, samples } => curves.extend(Curve::of(label, look, samples)),
            Line::Partition { members } => partitions.extend(Partition::of(members)),
        }
    }
    let title = escape(&drawing.title);
    let axis = escape(&drawing.axis);
    let mut html = format!("<h3>{title}</h3>\n");
    if !traces.is_empty() {
        let svg = chart::over_time(&drawing.title, &traces);
        html +=
            &format!("<figure>{svg}<figcaption>{axis} over time.</figcaption></figure>\n{}", data(&traces));
    }
    if !curves.is_empty() {
        let svg = chart::distributions(&drawing.title, &drawing.axis, &curves);
        html += &format!(
            "<figure>{svg}<figcaption>Share of samples at or below a value, with a 95 % band for independent \
             samples. The axis ends where {} % of every curve are shown.</figcaption></figure>\n{}",
            100.0 * TAIL,
            data(&curves)
        );
    }
    for of in &partitions {
        let svg = partition::partition(&drawing.title, &drawing.axis, of);
        html += &format!(
            "<figure>{svg}<figcaption>{} of them. How high a shade is at a percentile says how many have theirs in \
             that range of values.</figcaption></figure>\n{}",
            of.n,
            data(of)
        );
    }
    if traces.is_empty() && curves.is_empty() && partitions.is_empty() {
        html += "<p class=\"soft\">Nothing of it was seen.</p>\n";
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sheet_has_its_drawings_and_says_where_there_is_nothing() {
        let line = Line::OverTime { label: "lane 7 <b>".into(), points: vec![(0.0, 1.0), (0.5, 9.0)] };
        let curve = Line::Distribution { label: "all".into(), samples: vec![1.0, 2.0] };
        let all = Line::Partition { members: vec![vec![1.0, 20.0], vec![3.0]] };
        let drawing = |title: &str, lines| Drawing { title: title.into(), axis: "cells".into(), lines };
        let html = sheet(
            "Lanes",
            "A & B",
            &[drawing("Queues", vec![line, curve, all]), drawing("None", Vec::new())],
        );
        assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>\n"));
        assert!(html.contains("lane 7 &lt;b&gt;") && html.contains("A &amp; B") && !html.contains("7 <b>"));
        assert_eq!(html.matches("<svg").count(), 3);
        assert!(html.contains("2 of them.") && html.contains("percentile of each one's cells"), "{html}");
        assert_eq!(html.matches("Nothing of it was seen").count(), 1);
        let outside = html.matches("http://").count() - html.matches("http://www.w3.org").count();
        assert_eq!((outside, html.matches("https://").count()), (0, 0), "it needs nothing else");
    }
}
