//! What a Heddle relay tells at its `MetricsPort`; `docs/reference/metrics.md` has the names.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::error::{Error, Result};

/// How old the counts may be that a relay tells: it asks its shards five times a second at most.
pub const COUNTS_AGE_MAX: Duration = Duration::from_millis(250);
/// The least share of a relay's cells that its transport must carry: a silent return to TLS is no result.
pub const SHARE_MIN: f64 = 0.99;

/// The longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// Samples at one moment, by name and labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    samples: BTreeMap<String, Vec<(Labels, f64)>>,
}

type Labels = Vec<(String, String)>;

impl Metrics {
    /// Asks a relay, within `timeout` for each step.
    pub fn scrape(addr: SocketAddr, timeout: Duration) -> Result<Metrics> {
        let io = || Error::io(format!("asking {addr} for metrics"));
        let mut stream = TcpStream::connect_timeout(&addr, timeout).map_err(io())?;
        stream.set_read_timeout(Some(timeout)).map_err(io())?;
        stream.set_write_timeout(Some(timeout)).map_err(io())?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").map_err(io())?;
        let mut answer = String::new();
        stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer).map_err(io())?;
        match answer.split_once("\r\n\r\n") {
            Some((head, body)) if head.split(' ').nth(1) == Some("200") => Ok(Metrics::parse(body)),
            _ => {
                let said = answer.lines().next().unwrap_or("nothing; see MetricsPortPolicy").to_owned();
                Err(Error::Refused { by: "the MetricsPort", said })
            }
        }
    }

    /// Reads Prometheus' text format, as far as Heddle writes it: one sample a line, labels without escapes. What is
    /// none is passed over.
    pub fn parse(text: &str) -> Metrics {
        let mut metrics = Metrics::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse() else { continue };
            let (name, labels) = match series.strip_suffix('}').and_then(|series| series.split_once('{')) {
                Some((name, labels)) => (name, parse_labels(labels)),
                None => (series, Labels::new()),
            };
            metrics.samples.entry(name.to_owned()).or_default().push((labels, value));
        }
        metrics
    }

    /// The sum of a name's samples that have all of these labels; 0 when there is none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let samples = self.samples.get(name).into_iter().flatten();
        let chosen = samples.filter(|(of, _)| labels.iter().all(|label| has(of, *label)));
        chosen.map(|(_, value)| value).sum()
    }

    /// The values that a label has among a name's samples, in the order of the answer.
    pub(crate) fn values_of<'a>(&'a self, name: &str, label: &'a str) -> impl Iterator<Item = &'a str> {
        let labels = self.samples.get(name).into_iter().flatten().flat_map(|(labels, _)| labels);
        labels.filter(move |(name, _)| name == label).map(|(_, value)| &**value)
    }

    /// What a histogram with these labels counted since `before`: upper bounds of its buckets, ascending, and how many
    /// are at most that and above the bound before.
    pub(crate) fn histogram_since(
        &self,
        before: &Metrics,
        name: &str,
        labels: &[(&str, &str)],
    ) -> Vec<(f64, u64)> {
        let name = format!("{name}_bucket");
        let earlier = before.buckets(&name, labels);
        let mut counts = Vec::new();
        let mut below = 0.0;
        for (bound, count) in self.buckets(&name, labels) {
            // Buckets with nothing in them are left out, and those below them count in the next.
            let place = earlier.partition_point(|(other, _)| *other <= bound);
            let since = count - place.checked_sub(1).map_or(0.0, |place| earlier[place].1);
            if since > below {
                counts.push((bound, (since - below) as u64));
                below = since;
            }
        }
        counts
    }

    /// The finite bounds of a histogram, ascending, and how many are at most that.
    fn buckets(&self, name: &str, labels: &[(&str, &str)]) -> Vec<(f64, f64)> {
        let samples = self.samples.get(name).into_iter().flatten();
        let chosen = samples.filter(|(of, _)| labels.iter().all(|label| has(of, *label)));
        let bound = |of: &Labels| of.iter().find(|(name, _)| name == "le")?.1.parse::<f64>().ok();
        let buckets = chosen.filter_map(|(of, count)| Some((bound(of)?, *count)));
        let mut buckets: Vec<(f64, f64)> = buckets.filter(|(bound, _)| bound.is_finite()).collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        buckets
    }

    /// The share of cells, in and out, that went over `transport` since `before`, from 0 to 1. `None` when none went
    /// over any.
    pub fn cell_share(&self, before: &Metrics, transport: &str) -> Option<f64> {
        let since = |labels: &[(&str, &str)]| {
            self.sum("heddle_cells_total", labels) - before.sum("heddle_cells_total", labels)
        };
        let all = since(&[]);
        (all > 0.0).then(|| since(&[("transport", transport)]) / all)
    }
}

fn has(labels: &Labels, (name, value): (&str, &str)) -> bool {
    labels.iter().any(|(n, v)| n == name && v == value)
}

fn parse_labels(text: &str) -> Labels {
    let labels = text.split(',').filter_map(|label| label.split_once('='));
    labels.map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_by_labels() {
        let text = "# HELP x y\nheddle_cells_total{transport=\"tls\",direction=\"in\"} 10\n\
                    heddle_cells_total{transport=\"quic\",direction=\"in\"} 20\n\
                    heddle_cells_total{transport=\"quic\",direction=\"out\"} 70\nheddle_shards 2\nnonsense\n a b\n";
        let metrics = Metrics::parse(text);
        assert_eq!(metrics.sum("heddle_cells_total", &[]), 100.0);
        assert_eq!(metrics.sum("heddle_cells_total", &[("direction", "in")]), 30.0);
        assert_eq!(metrics.sum("heddle_cells_total", &[("transport", "quic"), ("direction", "in")]), 20.0);
        assert_eq!((metrics.sum("heddle_shards", &[]), metrics.sum("heddle", &[])), (2.0, 0.0));
        let ways: Vec<&str> = metrics.values_of("heddle_cells_total", "direction").collect();
        assert_eq!((ways, metrics.values_of("x", "y").count()), (vec!["in", "in", "out"], 0));
        assert_eq!(metrics.cell_share(&Metrics::default(), "quic"), Some(0.9));
        assert_eq!(metrics.cell_share(&metrics, "quic"), None);
    }

    #[test]
    fn histograms_are_told_by_bucket_since_another_reading() {
        let told = |lines: &[(&str, u32)]| {
            let line = |(le, count): &(&str, u32)| format!("x_bucket{{step=\"emit\",le=\"{le}\"}} {count}\n");
            Metrics::parse(&lines.iter().map(line).collect::<String>())
        };
        let before = told(&[("0.001", 2), ("0.004", 5), ("+Inf", 5)]);
        // Of a new bucket, one that grew, and one that did not.
        let after = told(&[("0.001", 2), ("0.002", 6), ("0.004", 10), ("0.008", 10), ("+Inf", 10)]);
        let emit = [("step", "emit")];
        assert_eq!(after.histogram_since(&before, "x", &emit), [(0.002, 4), (0.004, 1)]);
        assert_eq!(before.histogram_since(&Metrics::default(), "x", &emit), [(0.001, 2), (0.004, 3)]);
        assert_eq!(after.histogram_since(&before, "x", &[("step", "send")]), []);
    }
}
