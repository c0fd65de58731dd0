//! What a simulated relay tells of itself, by the names that a real one has for it at its `MetricsPort`.

use std::fmt::Write;

use heddle_relay::RelayStats;

use crate::metrics::Metrics;

/// As many of them as plans look at.
pub(super) fn metrics(stats: &RelayStats) -> Metrics {
    let mut text = String::new();
    let mut line = |series: &str, value: u64| {
        // Writing to a text does not fail.
        let _ = writeln!(text, "{series} {value}");
    };
    for of in &stats.transports {
        let name = of.name;
        line(&format!("heddle_cells_total{{transport=\"{name}\",direction=\"in\"}}"), of.cells_in);
        line(&format!("heddle_cells_total{{transport=\"{name}\",direction=\"out\"}}"), of.cells_out);
        line(&format!("heddle_lanes{{transport=\"{name}\"}}"), of.lanes);
    }
    for (reason, count) in &stats.fallbacks {
        line(&format!("heddle_fallbacks_total{{reason=\"{reason}\"}}"), *count);
    }
    line("heddle_queue_cells_max", stats.queue_cells_max);
    line("heddle_held_queue_cells_max", stats.held_queue_cells_max);
    Metrics::parse(&text)
}
