//! Prometheus' text format, version 0.0.4.

use std::fmt::{Display, Write};

/// Families of samples, as text.
#[derive(Default)]
pub struct Exposition {
    text: String,
}

/// A family of histograms.
pub struct Histograms<'a>(Family<'a>);

/// A family whose samples are being written.
pub struct Family<'a> {
    name: &'static str,
    text: &'a mut String,
}

impl Exposition {
    pub fn counter(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "counter", help)
    }

    pub fn gauge(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "gauge", help)
    }

    /// One histogram. `buckets` are upper bounds and how many are at most that, not counting lower buckets; `over` is
    /// how many are above all of them.
    pub fn histogram(&mut self, name: &'static str, help: &str, buckets: &[(f64, u64)], over: u64, sum: f64) {
        let family = self.family(name, "histogram", help);
        let mut below = 0;
        for (bound, count) in buckets {
            below += count;
            let _ = writeln!(family.text, "{name}_bucket{{le=\"{bound}\"}} {below}");
        }
        let count = below + over;
        let _ = writeln!(
            family.text,
            "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}"
        );
    }

    /// Several histograms of one name, which a label tells apart.
    pub fn histograms(&mut self, name: &'static str, help: &str) -> Histograms<'_> {
        Histograms(self.family(name, "histogram", help))
    }

    pub fn into_text(self) -> String {
        self.text
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) -> Family<'_> {
        // Writing into a string does not fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { name, text: &mut self.text }
    }
}

impl Histograms<'_> {
    /// One of them. `buckets` are upper bounds and how many are at most that, not counting lower buckets.
    pub fn labelled(&mut self, (label, of): (&str, &str), buckets: &[(f64, u64)], sum: f64) {
        let Family { name, text } = &mut self.0;
        let mut below = 0;
        for (bound, count) in buckets {
            below += count;
            let _ = writeln!(text, "{name}_bucket{{{label}=\"{of}\",le=\"{bound}\"}} {below}");
        }
        let _ = writeln!(text, "{name}_bucket{{{label}=\"{of}\",le=\"+Inf\"}} {below}");
        let _ =
            writeln!(text, "{name}_sum{{{label}=\"{of}\"}} {sum}\n{name}_count{{{label}=\"{of}\"}} {below}");
    }
}

impl Family<'_> {
    /// A sample without labels.
    pub fn value(&mut self, value: impl Display) {
        let _ = writeln!(self.text, "{} {value}", self.name);
    }

    /// A sample. Names and values of labels are ours, and hold nothing that would have to be escaped.
    pub fn labelled(&mut self, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> = labels.iter().map(|(name, of)| format!("{name}=\"{of}\"")).collect();
        let _ = writeln!(self.text, "{}{{{}}} {value}", self.name, labels.join(","));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_written_as_prometheus_reads_them() {
        let mut exposition = Exposition::default();
        let mut cells = exposition.counter("cells_total", "Cells");
        cells.labelled(&[("transport", "quic"), ("direction", "in")], 7);
        exposition.gauge("links", "Links").value(2);
        exposition.histogram("delay_seconds", "Delays", &[(0.001, 3), (0.002, 4)], 1, 0.5);
        let mut steps = exposition.histograms("step_seconds", "Steps");
        steps.labelled(("step", "emit"), &[(0.001, 3), (0.002, 4)], 0.5);
        let expected = "\
# HELP cells_total Cells
# TYPE cells_total counter
cells_total{transport=\"quic\",direction=\"in\"} 7
# HELP links Links
# TYPE links gauge
links 2
# HELP delay_seconds Delays
# TYPE delay_seconds histogram
delay_seconds_bucket{le=\"0.001\"} 3
delay_seconds_bucket{le=\"0.002\"} 7
delay_seconds_bucket{le=\"+Inf\"} 8
delay_seconds_sum 0.5
delay_seconds_count 8
# HELP step_seconds Steps
# TYPE step_seconds histogram
step_seconds_bucket{step=\"emit\",le=\"0.001\"} 3
step_seconds_bucket{step=\"emit\",le=\"0.002\"} 7
step_seconds_bucket{step=\"emit\",le=\"+Inf\"} 7
step_seconds_sum{step=\"emit\"} 0.5
step_seconds_count{step=\"emit\"} 7
";
        assert_eq!(exposition.into_text(), expected);
    }
}
