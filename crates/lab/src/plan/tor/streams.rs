//! From what clients told to the figures of a phase.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::programs::Log;
use super::{Client, Sampled};
use crate::figures::{Labels, mean};
use crate::traffic::Event;

/// The time in which things count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) opens: Instant,
    pub(super) closes: Instant,
}

impl Window {
    /// Whether something counts that was told then and had begun so much earlier.
    fn counts(self, told: Instant, lasted_s: f64) -> bool {
        let lasted = Duration::try_from_secs_f64(lasted_s).unwrap_or_default();
        told.checked_sub(lasted).is_some_and(|begun| self.opens <= begun && begun < self.closes)
    }

    /// Whether a second that ended then is for its greater part inside.
    fn has_second(self, told: Instant) -> bool {
        let half = Duration::from_millis(500);
        self.opens + half <= told && told < self.closes + half
    }
}

/// A client and what it told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member<'a> {
    pub(super) client: &'a Client,
    pub(super) log: &'a Log,
    /// What the delays of its path's wires add up to, there and back.
    pub(super) round_trip_ms: f64,
}

/// Clients with the same labels.
#[derive(Debug)]
pub(super) struct Group<'a> {
    labels: &'a Labels,
    members: Vec<Member<'a>>,
}

/// Puts clients with the same labels together.
pub(super) fn groups<'a>(members: impl Iterator<Item = Member<'a>>) -> Vec<Group<'a>> {
    let mut groups: BTreeMap<&Labels, Vec<Member<'a>>> = BTreeMap::new();
    for member in members {
        groups.entry(&member.client.labels).or_default().push(member);
    }
    groups.into_iter().map(|(labels, members)| Group { labels, members }).collect()
}

impl Group<'_> {
    /// The figures of a phase, and the names of clients that got nothing.
    pub(super) fn figures(&self, window: Window) -> (Vec<Sampled>, Vec<String>) {
        let mut figures = Figures::default();
        let mut seconds: Vec<Vec<f64>> = Vec::new();
        let mut silent = Vec::new();
        for Member { client, log, round_trip_ms } in &self.members {
            let mut streamed = Vec::new();
            let mut failures = 0.0;
            let mut got = false;
            for (told, event) in log.iter() {
                match *event {
                    Event::Second { throughput_kb_s, .. } if window.has_second(*told) => {
                        got |= throughput_kb_s > 0.0;
                        streamed.push(throughput_kb_s);
                    }
                    Event::Failure { .. } if window.counts(*told, 0.0) => failures += 1.0,
                    ref event => got |= figures.add(window, *told, event, *round_trip_ms),
                }
            }
            figures.push("failures", "1", failures);
            if client.program.streams() {
                seconds.push(streamed);
            }
            if !got {
                silent.push(client.name.clone());
            }
        }
        figures.add_streams(&seconds);
        (figures.into_samples(self.labels), silent)
    }
}

/// Samples by the name of their figure, each with its unit.
#[derive(Default)]
struct Figures(BTreeMap<&'static str, (&'static str, Vec<f64>)>);

impl Figures {
    fn push(&mut self, name: &'static str, unit: &'static str, value: f64) {
        self.0.entry(name).or_insert((unit, Vec::new())).1.push(value);
    }

    /// Takes a probe or a download, and says whether it counts.
    fn add(&mut self, window: Window, told: Instant, event: &Event, round_trip_ms: f64) -> bool {
        match *event {
            Event::Probe { open_ms, latency_ms, echo_ms, .. }
                if window.counts(told, (open_ms + echo_ms) / 1e3) =>
            {
                self.push("open_ms", "ms", open_ms);
                self.push("latency_ms", "ms", latency_ms);
                self.push("echo_ms", "ms", echo_ms);
                self.add_overhead(echo_ms, round_trip_ms);
                true
            }
            Event::Fetch { bytes, open_ms, first_byte_ms, download_s, .. }
                if window.counts(told, download_s) =>
            {
                self.push("open_ms", "ms", open_ms);
                self.push("first_byte_ms", "ms", first_byte_ms);
                // The stream is one round trip, and the request another.
                self.add_overhead(first_byte_ms, 2.0 * round_trip_ms);
                self.push("download_s", "s", download_s);
                self.push("download_kb_s", "KB/s", bytes as f64 / 1e3 / download_s);
                true
            }
            _ => false,
        }
    }

    fn add_overhead(&mut self, total_ms: f64, least_ms: f64) {
        self.push("overhead_ms", "ms", total_ms - least_ms);
        self.push("overhead_pct", "%", 100.0 * (1.0 - least_ms / total_ms));
    }

    /// Takes the seconds of each stream.
    fn add_streams(&mut self, streams: &[Vec<f64>]) {
        let Some(shortest) = streams.iter().map(Vec::len).min() else { return };
        for second in 0..shortest {
            let sum = streams.iter().map(|stream| stream[second]).sum();
            self.push("throughput_kb_s", "KB/s", sum);
        }
        let means: Vec<f64> = streams.iter().filter_map(|stream| mean(stream)).collect();
        for circuit in &means {
            self.push("circuit_throughput_kb_s", "KB/s", *circuit);
        }
        if let Some(slowest) = means.into_iter().reduce(f64::min) {
            self.push("slowest_throughput_kb_s", "KB/s", slowest);
        }
    }

    fn into_samples(self, labels: &Labels) -> Vec<Sampled> {
        let sampled = |(name, (unit, values)): (&'static str, (&'static str, Vec<f64>))| Sampled {
            name: name.to_owned(),
            labels: labels.clone(),
            unit,
            values,
        };
        self.0.into_iter().map(sampled).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::labels;
    use crate::plan::tor::Traffic;

    fn client(name: &str, program: Traffic) -> Client {
        Client { name: name.into(), path: Vec::new(), program, labels: labels([("to", "here")]) }
    }

    fn figures(clients: &[&Client], logs: &[Log], window: Window) -> (Vec<Sampled>, Vec<String>) {
        let member = |(client, log)| Member { client, log, round_trip_ms: 0.25 };
        let groups = groups(clients.iter().copied().zip(logs).map(member));
        assert_eq!(groups.len(), 1);
        groups[0].figures(window)
    }

    fn second(throughput_kb_s: f64) -> Event {
        Event::Second { t_s: 0.0, measured: false, throughput_kb_s, delay_ms: None, latency_ms: None }
    }

    fn values<'a>(samples: &'a [Sampled], name: &str) -> &'a [f64] {
        let found = samples.iter().find(|sampled| sampled.name == name);
        found.map_or(&[], |sampled| &sampled.values)
    }

    #[test]
    fn streams_are_summed_second_by_second_inside_the_window() {
        let start = Instant::now();
        let at = |s: f64| start + Duration::from_secs_f64(s);
        let window = Window { opens: at(10.0), closes: at(12.0) };
        let log = |offset: f64, rate: f64| -> Log {
            (1..20).map(|n| (at(f64::from(n) + offset), second(rate * f64::from(n)))).collect()
        };
        let (one, two) = (client("one", Traffic::Bulk { limit_kb_s: 0 }), client("two", Traffic::Upload {}));
        let logs = [log(0.1, 1.0), log(-0.3, 100.0)];
        let (samples, silent) = figures(&[&one, &two], &logs, window);
        // Of the first stream the seconds that end at 11.1 and 12.1 count, of the other those at 10.7 and 11.7.
        assert_eq!(values(&samples, "throughput_kb_s"), [1111.0, 1212.0]);
        assert_eq!(values(&samples, "circuit_throughput_kb_s"), [11.5, 1150.0]);
        assert_eq!(values(&samples, "slowest_throughput_kb_s"), [11.5]);
        assert_eq!(values(&samples, "failures"), [0.0, 0.0]);
        assert_eq!((silent.len(), &samples[0].labels), (0, &one.labels));
    }

    #[test]
    fn what_began_outside_the_window_does_not_count() {
        let start = Instant::now();
        let at = |s: f64| start + Duration::from_secs_f64(s);
        let window = Window { opens: at(10.0), closes: at(12.0) };
        let fetch = |first_byte_ms: f64| Event::Fetch {
            t_s: 0.0,
            bytes: 2_000_000,
            open_ms: 1.0,
            first_byte_ms,
            download_s: 2.0,
        };
        let probe =
            Event::Probe { t_s: 0.0, measured: true, open_ms: 500.0, latency_ms: 1.0, echo_ms: 500.0 };
        let failure = Event::Failure { t_s: 0.0, kind: "open: closed".into(), error: String::new() };
        let web = client("web", Traffic::Fetch { size: [1, 1], pause: [Duration::ZERO; 2] });
        let log = vec![
            (at(11.9), fetch(1.0)),
            (at(12.1), fetch(2.0)),
            (at(13.9), fetch(3.0)),
            (at(14.1), fetch(4.0)),
            (at(10.9), probe.clone()),
            (at(11.1), probe),
            (at(11.0), failure.clone()),
            (at(13.0), failure),
        ];
        let logs = [log];
        let (samples, silent) = figures(&[&web], &logs, window);
        assert_eq!(values(&samples, "first_byte_ms"), [2.0, 3.0]);
        assert_eq!(values(&samples, "overhead_ms"), [1.5, 2.5, 499.75]);
        assert_eq!(values(&samples, "overhead_pct")[0], 75.0);
        assert_eq!(values(&samples, "download_kb_s"), [1000.0, 1000.0]);
        assert_eq!((values(&samples, "echo_ms").len(), values(&samples, "failures")), (1, &[1.0][..]));
        assert!(silent.is_empty());
        let (samples, silent) = figures(&[&web], &[Log::new()], window);
        assert_eq!((values(&samples, "first_byte_ms").len(), silent), (0, vec!["web".to_owned()]));
    }
}
