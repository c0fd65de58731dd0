//! What a watch brings, drawn.

use heddle_lab::report::{Drawing, Line, sheet};
use std::collections::BTreeMap;

/// Lines of a plot over time: the observees with the greatest values.
const LINES_MAX: usize = 8;
/// Rows that are kept, 16 bytes each and twice that while a list grows, so 32 MB, and more where each observee has few;
/// drawing copies them. Of a watch that brings more the rest is left out, and that is said.
const ROWS_MAX: usize = 1_000_000;

/// A shard's observee.
type Observee = (u64, u64);

/// What was seen of one field of a family.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    of: BTreeMap<Observee, Vec<(u64, i64)>>,
    rows: usize,
    left_out: usize,
}

impl Seen {
    /// Takes a line of a watch up; `place` is the field's among those of a row.
    pub(crate) fn take(&mut self, line: &str, place: usize) {
        let words: Vec<&str> = line.split('\t').collect();
        let ["row", _, time_ns, shard, index, values @ ..] = words.as_slice() else { return };
        let number = |word: &str| word.parse::<u64>().ok();
        let value = values.get(place).and_then(|word| word.parse::<i64>().ok());
        let (Some(time_ns), Some(shard), Some(index), Some(value)) =
            (number(time_ns), number(shard), number(index), value)
        else {
            return;
        };
        if self.rows == ROWS_MAX {
            self.left_out += 1;
            return;
        }
        self.rows += 1;
        self.of.entry((shard, index)).or_default().push((time_ns, value));
    }

    /// A document: the greatest over time, the distribution of all, and those of each beside each other. `unit` is the
    /// field's; nanoseconds are drawn as milliseconds.
    pub(crate) fn draw(&self, family: &str, field: &str, unit: &str) -> String {
        let (scale, unit) = if unit == "ns" { (1e-6, "ms") } else { (1.0, unit) };
        let drawn = |value: i64| value as f64 * scale;
        let first_ns = self.of.values().flatten().map(|(time_ns, _)| *time_ns).min().unwrap_or(0);
        let greatest = |points: &Vec<(u64, i64)>| points.iter().map(|(_, value)| *value).max();
        let mut all: Vec<(&Observee, &Vec<(u64, i64)>)> = self.of.iter().collect();
        all.sort_by_key(|(observee, points)| (std::cmp::Reverse(greatest(points)), **observee));
        let over_time = all.iter().take(LINES_MAX).map(|((shard, index), points)| Line::OverTime {
            label: format!("shard {shard}, {index}"),
            points: points
                .iter()
                .map(|(time_ns, value)| (time_ns.saturating_sub(first_ns) as f64 / 1e9, drawn(*value)))
                .collect(),
        });
        let samples = self.of.values().flatten().map(|(_, value)| drawn(*value)).collect();
        let each = |points: &Vec<(u64, i64)>| points.iter().map(|(_, value)| drawn(*value)).collect();
        let members = self.of.values().map(each).collect();
        let axis = if unit == "1" { field.to_owned() } else { format!("{field} in {unit}") };
        let drawing = |title: String, lines| Drawing { title, axis: axis.clone(), lines };
        let drawings = [
            drawing(format!("{field} of the {LINES_MAX} greatest, over time"), over_time.collect()),
            drawing(
                format!("{field} of all, at all looks"),
                vec![Line::Distribution { label: family.to_owned(), samples }],
            ),
            drawing(format!("{field} of each, beside each other"), vec![Line::Partition { members }]),
        ];
        let about = format!(
            "{} observees of the family {family} of a running relay, in {} rows{}. What is shown tells single \
             circuits apart: keep none of it about people's traffic longer than you need it.",
            self.of.len(),
            self.rows,
            if self.left_out > 0 { format!("; {} more were left out", self.left_out) } else { String::new() }
        );
        sheet(&format!("{family}: {field}"), &about, &drawings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_lines_and_a_distribution() {
        let mut seen = Seen::default();
        for index in 0..20 {
            for look in 0..3 {
                seen.take(
                    &format!("row\t1\t{}\t0\t{index}\t0\t{}", look * 1_000_000_000u64, index * 10 + look),
                    1,
                );
            }
        }
        for other in ["row\t1\tx\t0\t1\t0\t1", "row\t1\t5\t0\t1\t0", "left-out\t1\t7", ""] {
            seen.take(other, 1);
        }
        let html = seen.draw("lanes", "cells", "1");
        assert!(html.contains("20 observees of the family lanes of a running relay, in 60 rows."), "{html}");
        assert_eq!(html.matches("shard 0, ").count(), 2 * LINES_MAX, "in the legend and in the data");
        assert!(html.contains("shard 0, 19 (n = 3)") && !html.contains("shard 0, 11 ("));
        assert!(html.contains("lanes (n = 60)"));
        assert!(html.contains("20 of them.") && html.contains("below 10<") && html.contains("100 and more<"));
        let waits = seen.draw("lanes", "oldest", "ns");
        assert!(waits.contains("oldest in ms"), "{waits}");
    }
}
