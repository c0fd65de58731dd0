//! From what clients told to the figures of a phase.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::backend::Log;
use crate::figures::Labels;
use crate::plan::Traffic;
use crate::run::sampled::Sampled;
use crate::statistics::{mean, quantile};
use crate::traffic::Event;

/// What share of its rate before a change a group has when it is back, and how far apart the seconds begin that are
/// looked at.
const BACK_SHARE: f64 = 0.8;
const BACK_STEP: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);

/// The time in which things count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) opens: Duration,
    pub(super) closes: Duration,
}

impl Window {
    /// Whether something counts that was told then and had begun so much earlier.
    fn counts(self, told: Duration, lasted_s: f64) -> bool {
        let lasted = Duration::try_from_secs_f64(lasted_s).unwrap_or_default();
        told.checked_sub(lasted).is_some_and(|begun| self.opens <= begun && begun < self.closes)
    }

    /// Whether the greater part of a second lies inside, which ended then and of which so much is told.
    fn has_second(self, told: Duration, length_s: f64) -> bool {
        self.share_s(told, length_s) >= 0.5
    }

    /// How long it is open, in seconds.
    pub(super) fn length_s(self) -> f64 {
        (self.closes - self.opens).as_secs_f64()
    }

    /// How much of a time that ended then and had lasted so long lies inside, in seconds.
    fn share_s(self, ended: Duration, lasted_s: f64) -> f64 {
        let lasted = Duration::try_from_secs_f64(lasted_s).unwrap_or_default();
        let begun = ended.saturating_sub(lasted).max(self.opens);
        ended.min(self.closes).saturating_sub(begun).as_secs_f64()
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
    /// What all of them are labelled with.
    pub(super) fn labels(&self) -> &Labels {
        self.labels
    }

    /// The figures of a phase, and what is wrong with them where nothing may fail.
    pub(super) fn figures(&self, window: Window) -> (Vec<Sampled>, Vec<String>) {
        let mut figures = Figures::default();
        let mut seconds: Vec<Vec<f64>> = Vec::new();
        let mut silent = BTreeSet::new();
        let mut lost: BTreeMap<&str, usize> = BTreeMap::new();
        let mut received_kb = 0.0;
        // Of clients that download; a download that lasts through the window is in no other figure.
        let mut without_downloads: Option<usize> = None;
        for Member { name, program, log, round_trip_ms, .. } in &self.members {
            // None begins after the end, but one that hangs fails minutes later.
            let fetches = matches!(program, Traffic::Fetch { .. });
            let mut streamed = Vec::new();
            let mut failures = 0.0;
            let mut got = false;
            for (told, event) in log.iter() {
                match *event {
                    Event::Second { throughput_kb_s, length_s, .. } if window.has_second(*told, length_s) => {
                        got |= throughput_kb_s > 0.0;
                        streamed.push(throughput_kb_s);
                    }
                    Event::Failure { .. } if window.opens <= *told && (fetches || *told < window.closes) => {
                        failures += 1.0;
                    }
                    Event::EchoLost { age_ms, .. } if window.counts(*told, age_ms / 1e3) => {
                        failures += 1.0;
                        figures.add_echo(window, *told, age_ms, *round_trip_ms);
                    }
                    ref event => got |= figures.add(window, *told, event, *round_trip_ms),
                }
            }
            received_kb += self::received_kb(log, window);
            figures.push("failures", failures);
            if fetches && self.members.len() > 1 {
                figures.add_medians(log, window);
            }
            if program.streams() {
                seconds.push(streamed);
            }
            if fetches {
                *without_downloads.get_or_insert_default() += usize::from(!got);
            }
            if !got && !program.stalls() {
                silent.insert(*name);
            }
            *lost.entry(name).or_default() += echoes_gone(log, window);
        }
        figures.add_streams(&seconds);
        if let Some(count) = without_downloads {
            figures.push("clients_without_downloads", count as f64);
        }
        if received_kb > 0.0 {
            figures.push("received_kb_s", received_kb / window.length_s());
        }
        figures.add_quantiles();
        let lost = lost.into_iter().filter(|(_, count)| *count > 0);
        let faults = silent.into_iter().map(|name| format!("{name} got nothing"));
        let faults =
            faults.chain(lost.map(|(name, count)| format!("echoes of {name} never came back: {count}")));
        (figures.into_samples(self.labels), faults.collect())
    }
}

impl Group<'_> {
    /// How long after the last change of wires, so long after the window's opening, the group still had less than 80 %
    /// of what it had before, over any second. `times` is by how much the change made the wire faster, and what it had
    /// is multiplied by that. `None` without streams that got something before.
    pub(super) fn back(&self, changed: Duration, times: f64, window: Window) -> Option<Sampled> {
        let changed = window.opens + changed;
        let streams: Vec<&Member<'_>> =
            self.members.iter().filter(|member| member.program.streams()).collect();
        let received_kb = |opens: Duration, closes: Duration| -> f64 {
            streams.iter().map(|member| received_kb(member.log, Window { opens, closes })).sum()
        };
        let before_kb = received_kb(window.opens, changed);
        let due_kb_s = times * before_kb / (changed - window.opens).as_secs_f64();
        let seconds =
            (0..).map(|step| changed + BACK_STEP * step).take_while(|begun| *begun + SECOND <= window.closes);
        let is_slow = |begun: &Duration| received_kb(*begun, *begun + SECOND) < BACK_SHARE * due_kb_s;
        let slow_until = seconds.filter(is_slow).last().map_or(changed, |begun| begun + SECOND);
        let back = Sampled::one("back_s", (slow_until - changed).as_secs_f64()).with(self.labels.clone());
        (before_kb > 0.0).then_some(back)
    }
}

/// How many echoes will not come back. Of those that were waited for until after the end, some may be under way still:
/// they are not older than others were that came back.
fn echoes_gone(log: &Log, window: Window) -> usize {
    let came = log.iter().filter_map(|(_, event)| match event {
        Event::Echo { echo_ms, .. } => Some(*echo_ms),
        _ => None,
    });
    let slowest_ms = came.fold(0.0, f64::max);
    let is_gone = |(told, event): &&(Duration, Event)| match *event {
        Event::EchoLost { age_ms, .. } => {
            window.counts(*told, age_ms / 1e3) && (*told < window.closes || age_ms > slowest_ms)
        }
        _ => false,
    };
    log.iter().filter(is_gone).count()
}

/// What one circuit or connection received while the window was open, in 1000 bytes. A download counts as if it had
/// come evenly from its first byte on.
pub(super) fn received_kb(log: &Log, window: Window) -> f64 {
    let of = |(told, event): &(Duration, Event)| match *event {
        Event::Second { throughput_kb_s, length_s, .. } => throughput_kb_s * window.share_s(*told, length_s),
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
    let one = |name: &str, labels: &Labels, value| Sampled::one(name, value).with(labels.clone());
    let shares = groups.iter().zip(&rates).filter_map(|(group, rates)| Some((group.labels, mean(rates)?)));
    let mut samples: Vec<Sampled> =
        shares.map(|(labels, mean)| one("fair_share", labels, mean / fair)).collect();
    samples.push(one("jain", &Labels::new(), fair * fair * all.len() as f64 / squares));
    samples
}

/// What becomes samples of a phase.
#[derive(Default)]
struct Figures {
    /// Samples by the name of their quantity.
    by_name: BTreeMap<&'static str, Vec<f64>>,
    /// How many came back.
    echoes: usize,
    echo_excesses_ms: Vec<f64>,
    first_byte_excesses_ms: Vec<f64>,
    first_bytes_over_floor: Vec<f64>,
    /// By the second of the window in which they began.
    echoes_by_second: BTreeMap<u64, Vec<f64>>,
}

impl Figures {
    fn push(&mut self, name: &'static str, value: f64) {
        self.by_name.entry(name).or_default().push(value);
    }

    /// Takes a probe or a download, and says whether it counts.
    fn add(&mut self, window: Window, told: Duration, event: &Event, round_trip_ms: f64) -> bool {
        match *event {
            Event::Probe { open_ms, latency_ms, echo_ms, .. }
                if window.counts(told, (open_ms + echo_ms) / 1e3) =>
            {
                self.push("open_ms", open_ms);
                self.push("latency_ms", latency_ms);
                self.echoes += 1;
                self.add_echo(window, told, echo_ms, round_trip_ms);
                true
            }
            Event::Echo { echo_ms, .. } if window.counts(told, echo_ms / 1e3) => {
                self.echoes += 1;
                self.add_echo(window, told, echo_ms, round_trip_ms);
                true
            }
            Event::Fetch { bytes, open_ms, first_byte_ms, download_s, .. }
                if window.counts(told, download_s) =>
            {
                self.push("open_ms", open_ms);
                self.push("first_byte_ms", first_byte_ms);
                // The stream is one round trip, and the request another.
                let floor_ms = 2.0 * round_trip_ms;
                self.add_overhead(first_byte_ms, floor_ms);
                self.first_byte_excesses_ms.push(first_byte_ms - floor_ms);
                if floor_ms > 0.0 {
                    self.first_bytes_over_floor.push(first_byte_ms / floor_ms);
                }
                self.push("download_s", download_s);
                self.push("download_kb_s", bytes as f64 / 1e3 / download_s);
                true
            }
            _ => false,
        }
    }

    /// Takes one client's medians, of downloads that count.
    fn add_medians(&mut self, log: &Log, window: Window) {
        let (mut first_bytes_ms, mut downloads_s) = (Vec::new(), Vec::new());
        for (told, event) in log {
            if let Event::Fetch { first_byte_ms, download_s, .. } = event
                && window.counts(*told, *download_s)
            {
                first_bytes_ms.push(*first_byte_ms);
                downloads_s.push(*download_s);
            }
        }
        self.push_quantile(first_bytes_ms, 0.5, "client_first_byte_ms");
        self.push_quantile(downloads_s, 0.5, "client_download_s");
    }

    /// Takes the time of an echo, or the least that it can have been of one that did not come back.
    fn add_echo(&mut self, window: Window, told: Duration, echo_ms: f64, round_trip_ms: f64) {
        self.push("echo_ms", echo_ms);
        self.add_overhead(echo_ms, round_trip_ms);
        self.echo_excesses_ms.push(echo_ms - round_trip_ms);
        let begun = told - Duration::from_secs_f64(echo_ms / 1e3);
        self.echoes_by_second.entry((begun - window.opens).as_secs()).or_default().push(echo_ms);
    }

    /// Makes of the whole phase what is one sample of it.
    fn add_quantiles(&mut self) {
        let seconds = std::mem::take(&mut self.echoes_by_second);
        for second in seconds.values().filter_map(|second| mean(second)) {
            self.push("echo_second_ms", second);
        }
        for (from, q, to) in [("echo_ms", 0.9, "echo_p90_ms"), ("first_byte_ms", 0.5, "first_byte_p50_ms")] {
            let samples = self.by_name.get(from).cloned().unwrap_or_default();
            self.push_quantile(samples, q, to);
        }
        let echoes = std::mem::take(&mut self.echo_excesses_ms);
        if self.echoes > 0 {
            self.push("echoes", self.echoes as f64);
        }
        self.push_quantile(echoes, 0.9, "echo_excess_p90_ms");
        let first_bytes = std::mem::take(&mut self.first_byte_excesses_ms);
        self.push_quantile(first_bytes, 0.5, "first_byte_excess_ms");
        let over_floor = std::mem::take(&mut self.first_bytes_over_floor);
        self.push_quantile(over_floor, 0.5, "first_byte_over_floor");
    }

    fn push_quantile(&mut self, mut samples: Vec<f64>, q: f64, name: &'static str) {
        samples.sort_by(f64::total_cmp);
        if let Some(value) = quantile(&samples, q) {
            self.push(name, value);
        }
    }

    fn add_overhead(&mut self, total_ms: f64, least_ms: f64) {
        self.push("overhead_ms", total_ms - least_ms);
        self.push("overhead_pct", 100.0 * (1.0 - least_ms / total_ms));
    }

    /// Takes the seconds of each stream.
    fn add_streams(&mut self, streams: &[Vec<f64>]) {
        let Some(shortest) = streams.iter().map(Vec::len).min() else { return };
        for second in 0..shortest {
            let sum = streams.iter().map(|stream| stream[second]).sum();
            self.push("throughput_kb_s", sum);
        }
        let means: Vec<f64> = streams.iter().filter_map(|stream| mean(stream)).collect();
        for circuit in &means {
            self.push("circuit_throughput_kb_s", *circuit);
        }
        if let Some(slowest) = means.into_iter().reduce(f64::min) {
            self.push("slowest_throughput_kb_s", slowest);
        }
    }

    fn into_samples(self, labels: &Labels) -> Vec<Sampled> {
        let named = self.by_name.into_iter();
        named.map(|(name, values)| Sampled::new(name, values).with(labels.clone())).collect()
    }
}

#[cfg(test)]
mod tests;
