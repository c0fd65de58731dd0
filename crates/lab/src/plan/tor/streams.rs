//! From what clients told to the figures of a phase.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::programs::Log;
use super::{Sampled, Traffic};
use crate::figures::{Labels, mean, quantile};
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

    /// How long it is open, in seconds.
    pub(super) fn length_s(self) -> f64 {
        (self.closes - self.opens).as_secs_f64()
    }

    /// How much of a time that ended then and had lasted so long lies inside, in seconds.
    fn share_s(self, ended: Instant, lasted_s: f64) -> f64 {
        let lasted = Duration::try_from_secs_f64(lasted_s).unwrap_or_default();
        let begun = ended.checked_sub(lasted).unwrap_or(ended).max(self.opens);
        ended.min(self.closes).saturating_duration_since(begun).as_secs_f64()
    }
}

/// One circuit of a client, or one connection of a flow, and what was told of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member<'a> {
    pub(super) name: &'a str,
    pub(super) labels: &'a Labels,
    pub(super) program: &'a Traffic,
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
        groups.entry(member.labels).or_default().push(member);
    }
    groups.into_iter().map(|(labels, members)| Group { labels, members }).collect()
}

impl Group<'_> {
    /// The figures of a phase, and the names of clients that got nothing.
    pub(super) fn figures(&self, window: Window) -> (Vec<Sampled>, Vec<String>) {
        let mut figures = Figures::default();
        let mut seconds: Vec<Vec<f64>> = Vec::new();
        let mut silent = Vec::new();
        let mut received_kb = 0.0;
        for Member { name, program, log, round_trip_ms, .. } in &self.members {
            let is_echo = matches!(program, Traffic::Echo { .. });
            let mut streamed = Vec::new();
            let mut failures = 0.0;
            let mut got = false;
            for (told, event) in log.iter() {
                match *event {
                    Event::Second { throughput_kb_s, .. } if window.has_second(*told) => {
                        got |= throughput_kb_s > 0.0;
                        streamed.push(throughput_kb_s);
                    }
                    // What never came back is told only after the end.
                    Event::Failure { .. } if window.opens <= *told && (is_echo || *told < window.closes) => {
                        failures += 1.0;
                    }
                    ref event => got |= figures.add(window, *told, event, *round_trip_ms),
                }
            }
            received_kb += self::received_kb(log, window);
            figures.push("failures", "1", failures);
            if program.streams() {
                seconds.push(streamed);
            }
            if !got && !program.stalls() && silent.last().is_none_or(|last| last != name) {
                silent.push((*name).to_owned());
            }
        }
        figures.add_streams(&seconds);
        if received_kb > 0.0 {
            figures.push("received_kb_s", "KB/s", received_kb / window.length_s());
        }
        figures.add_quantiles();
        (figures.into_samples(self.labels), silent)
    }
}

/// What one circuit or connection received while the window was open, in 1000 bytes. A download counts as if it had come
/// evenly from its first byte on.
pub(super) fn received_kb(log: &Log, window: Window) -> f64 {
    let of = |(told, event): &(Instant, Event)| match *event {
        Event::Second { throughput_kb_s, .. } => throughput_kb_s * window.share_s(*told, 1.0),
        Event::Fetch { bytes, first_byte_ms, download_s, .. } => {
            let came_s = (download_s - first_byte_ms / 1e3).max(1e-6);
            bytes as f64 / 1e3 * window.share_s(*told, came_s) / came_s
        }
        _ => 0.0,
    };
    log.iter().map(of).sum()
}

/// How evenly the streams of a phase share what they get: Jain's index of the means of all streams, and for each group
/// of clients with streams its share over the share of its number.
pub(super) fn fairness(groups: &[Group<'_>], window: Window) -> Vec<Sampled> {
    let of = |group: &Group<'_>| -> Vec<f64> {
        let streams = group.members.iter().filter(|member| member.program.streams());
        streams.map(|member| received_kb(member.log, window)).collect()
    };
    let rates: Vec<Vec<f64>> = groups.iter().map(of).collect();
    let all = rates.concat();
    let Some(fair) = mean(&all).filter(|fair| *fair > 0.0) else { return Vec::new() };
    let squares: f64 = all.iter().map(|rate| rate * rate).sum();
    let one = |name: &str, labels: &Labels, value| Sampled {
        name: name.to_owned(),
        labels: labels.clone(),
        unit: "1",
        values: vec![value],
    };
    let shares = groups.iter().zip(&rates).filter_map(|(group, rates)| Some((group.labels, mean(rates)?)));
    let mut samples: Vec<Sampled> =
        shares.map(|(labels, mean)| one("fair_share", labels, mean / fair)).collect();
    samples.push(one("jain", &Labels::new(), fair * fair * all.len() as f64 / squares));
    samples
}

/// What becomes samples of a phase.
#[derive(Default)]
struct Figures {
    /// Samples by the name of their figure, each with its unit.
    by_name: BTreeMap<&'static str, (&'static str, Vec<f64>)>,
    echo_excesses_ms: Vec<f64>,
    first_byte_excesses_ms: Vec<f64>,
    /// By the second of the window in which they began.
    echoes_by_second: BTreeMap<u64, Vec<f64>>,
}

impl Figures {
    fn push(&mut self, name: &'static str, unit: &'static str, value: f64) {
        self.by_name.entry(name).or_insert((unit, Vec::new())).1.push(value);
    }

    /// Takes a probe or a download, and says whether it counts.
    fn add(&mut self, window: Window, told: Instant, event: &Event, round_trip_ms: f64) -> bool {
        match *event {
            Event::Probe { open_ms, latency_ms, echo_ms, .. }
                if window.counts(told, (open_ms + echo_ms) / 1e3) =>
            {
                self.push("open_ms", "ms", open_ms);
                self.push("latency_ms", "ms", latency_ms);
                self.add_echo(window, told, echo_ms, round_trip_ms);
                true
            }
            Event::Echo { echo_ms, .. } if window.counts(told, echo_ms / 1e3) => {
                self.add_echo(window, told, echo_ms, round_trip_ms);
                true
            }
            Event::Fetch { bytes, open_ms, first_byte_ms, download_s, .. }
                if window.counts(told, download_s) =>
            {
                self.push("open_ms", "ms", open_ms);
                self.push("first_byte_ms", "ms", first_byte_ms);
                // The stream is one round trip, and the request another.
                self.add_overhead(first_byte_ms, 2.0 * round_trip_ms);
                self.first_byte_excesses_ms.push(first_byte_ms - 2.0 * round_trip_ms);
                self.push("download_s", "s", download_s);
                self.push("download_kb_s", "KB/s", bytes as f64 / 1e3 / download_s);
                true
            }
            _ => false,
        }
    }

    fn add_echo(&mut self, window: Window, told: Instant, echo_ms: f64, round_trip_ms: f64) {
        self.push("echo_ms", "ms", echo_ms);
        self.add_overhead(echo_ms, round_trip_ms);
        self.echo_excesses_ms.push(echo_ms - round_trip_ms);
        let begun = told - Duration::from_secs_f64(echo_ms / 1e3);
        self.echoes_by_second.entry((begun - window.opens).as_secs()).or_default().push(echo_ms);
    }

    /// Makes of the whole phase what is one sample of it.
    fn add_quantiles(&mut self) {
        let seconds = std::mem::take(&mut self.echoes_by_second);
        for second in seconds.values().filter_map(|second| mean(second)) {
            self.push("echo_second_ms", "ms", second);
        }
        for (from, q, to) in [("echo_ms", 0.9, "echo_p90_ms"), ("first_byte_ms", 0.5, "first_byte_p50_ms")] {
            let samples = self.by_name.get(from).map(|(_, samples)| samples.clone());
            self.push_quantile(samples.unwrap_or_default(), q, to);
        }
        let echoes = std::mem::take(&mut self.echo_excesses_ms);
        if !echoes.is_empty() {
            self.push("echoes", "1", echoes.len() as f64);
        }
        self.push_quantile(echoes, 0.9, "echo_excess_p90_ms");
        let first_bytes = std::mem::take(&mut self.first_byte_excesses_ms);
        self.push_quantile(first_bytes, 0.5, "first_byte_excess_ms");
    }

    fn push_quantile(&mut self, mut samples: Vec<f64>, q: f64, name: &'static str) {
        samples.sort_by(f64::total_cmp);
        if let Some(value) = quantile(&samples, q) {
            self.push(name, "ms", value);
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
        self.by_name.into_iter().map(sampled).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::labels;
    use crate::plan::tor::{Client, Traffic};

    const BULK: Traffic = Traffic::Bulk { limit_kb_s: 0, reads_for: Duration::ZERO };

    fn client(name: &str, program: Traffic) -> Client {
        let labels = labels([("to", "here")]);
        Client { name: name.into(), path: Vec::new(), circuits: 1, program, labels }
    }

    fn members<'a>(clients: &[&'a Client], logs: &'a [Log]) -> Vec<Group<'a>> {
        let member = |(client, log): (&&'a Client, &'a Log)| {
            let Client { name, labels, program, .. } = client;
            Member { name, labels, program, log, round_trip_ms: 0.25 }
        };
        groups(clients.iter().zip(logs).map(member))
    }

    fn figures(clients: &[&Client], logs: &[Log], window: Window) -> (Vec<Sampled>, Vec<String>) {
        let groups = members(clients, logs);
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
        let (one, two) = (client("one", BULK), client("two", Traffic::Upload {}));
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

    #[test]
    fn echoes_become_percentiles_and_seconds() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let window = Window { opens: at(10_000), closes: at(12_000) };
        let echo = |echo_ms: f64| Event::Echo { t_s: 0.0, echo_ms };
        let failure = Event::Failure { t_s: 0.0, kind: "transfer: closed".into(), error: String::new() };
        let echoing = client("echo", Traffic::Echo { every: Duration::from_millis(20) });
        let mut log: Log = (0..10).map(|n| (at(10_200 + n), echo(100.0 + n as f64))).collect();
        log.extend([(at(11_500), echo(200.0)), (at(10_050), echo(100.0)), (at(15_000), failure)]);
        let logs = [log];
        let (samples, silent) = figures(&[&echoing], &logs, window);
        assert_eq!((values(&samples, "echoes"), silent.len()), (&[11.0][..], 0));
        assert_eq!(values(&samples, "echo_p90_ms"), [109.0]);
        assert_eq!(values(&samples, "echo_excess_p90_ms"), [108.75]);
        assert_eq!(values(&samples, "echo_second_ms"), [104.5, 200.0]);
        // An echo that never came back is told after the end, and counts all the same.
        assert_eq!(values(&samples, "failures"), [1.0]);
    }

    #[test]
    fn fairness_is_over_streams_and_by_group() {
        let start = Instant::now();
        let at = |s: f64| start + Duration::from_secs_f64(s);
        let window = Window { opens: at(10.0), closes: at(12.0) };
        let log = |rate: f64| -> Log { (1..15).map(|n| (at(f64::from(n)), second(rate))).collect() };
        let (mut one, other) = (client("one", BULK), client("other", BULK));
        one.labels = labels([("to", "there")]);
        let logs = [log(300.0), log(100.0), log(100.0), log(100.0)];
        let clients = [&one, &other, &other, &other];
        let groups = members(&clients, &logs);
        let samples = fairness(&groups, window);
        let told: Vec<(&str, f64)> = samples.iter().map(|one| (&*one.name, one.values[0])).collect();
        // Six hundred over four: 360 000 by 4 times 120 000.
        assert_eq!(told, [("fair_share", 100.0 / 150.0), ("fair_share", 2.0), ("jain", 0.75)]);
        assert_eq!(fairness(&members(&[&one], &[Log::new()]), window), []);
        // Half of a download lies inside.
        let fetch =
            Event::Fetch { t_s: 0.0, bytes: 4000, open_ms: 0.0, first_byte_ms: 1000.0, download_s: 3.0 };
        assert_eq!(received_kb(&vec![(at(13.0), fetch)], window), 2.0);
    }
}
