//! What is said at the observers' socket: lines of words with tabs between them, the kind first.

use heddle_relay::{Observees, Place};
use heddle_spe::{Collector, Index, Row, SeriesId, WatchId, Watches};
use std::fmt::Write as _;

/// What there is:
///
/// ```text
/// family  NAME  ABOUT  FIELD:UNIT …
/// series  NAME  UNIT  on|off  ABOUT
/// place  NAME  FAMILY
/// observer  NAME
/// watch  NUMBER  REQUEST
/// ```
pub fn list<'a>(
    collector: &Collector,
    watches: &Watches,
    observers: impl Iterator<Item = &'a String>,
) -> String {
    let mut lines = String::new();
    for family in Observees::ALL.map(Observees::family) {
        let _ = write!(lines, "family\t{}\t{}", family.name, family.about);
        for field in family.fields {
            let _ = write!(lines, "\t{}:{}", field.name, field.unit);
        }
        lines.push('\n');
    }
    for (place, series) in (0..).zip(collector.series()) {
        let on = if collector.is_on(SeriesId(place)) { "on" } else { "off" };
        let _ = writeln!(lines, "series\t{}\t{}\t{on}\t{}", series.name, series.unit, series.about);
    }
    for place in Place::ALL {
        let _ = writeln!(lines, "place\t{}\t{}", place.name(), place.observees().family().name);
    }
    for name in observers {
        let _ = writeln!(lines, "observer\t{name}");
    }
    for (id, watch) in watches.all() {
        let _ = writeln!(lines, "watch\t{}\t{watch}", id.0);
    }
    lines
}

/// A watch that begins: `watching  NUMBER  FAMILY  FIELD:UNIT …`.
pub fn watch(id: WatchId, observees: Observees) -> String {
    let family = observees.family();
    let fields: String =
        family.fields.iter().map(|field| format!("\t{}:{}", field.name, field.unit)).collect();
    format!("watching\t{}\t{}{fields}\n", id.0, family.name)
}

/// An observee: `row  WATCH  TIME_NS  SHARD  INDEX  FIELD …`.
pub fn row(lines: &mut String, id: WatchId, shard: u16, row: &Row<'_>) {
    let _ = write!(lines, "row\t{}\t{}\t{shard}\t{}", id.0, row.time_ns, row.index);
    numbers(lines, row.fields);
}

/// What an observer recorded: `record  WATCH  TIME_NS  SHARD  NUMBER …`. What recorded nothing is not told.
pub fn record(lines: &mut String, id: WatchId, (shard, time_ns): (u16, u64), record: &[i64]) {
    if record.is_empty() {
        return;
    }
    let _ = write!(lines, "record\t{}\t{time_ns}\t{shard}", id.0);
    numbers(lines, record);
}

fn numbers(lines: &mut String, numbers: &[i64]) {
    for number in numbers {
        let _ = write!(lines, "\t{number}");
    }
    lines.push('\n');
}

/// What a series has: `cdf  SERIES  INDEX  COUNT  MEAN  VALUE:SHARE …` for each index.
pub fn collected(collector: &Collector, series: SeriesId) -> String {
    let Some(of) = collector.series().get(usize::from(series.0)) else { return String::new() };
    let mut lines = String::new();
    for collected in collector.collected(series) {
        let index = match collected.index {
            Index::Of(index) => index.to_string(),
            Index::Others => "others".to_owned(),
        };
        let _ = write!(lines, "cdf\t{}\t{index}\t{}\t{:.1}", of.name, collected.count, collected.mean);
        for (value, share) in collected.cdf {
            let _ = write!(lines, "\t{value}:{share:.6}");
        }
        lines.push('\n');
    }
    lines
}
