//! What a phase put on the wires: how much, what was lost of it, and which wire was the bottleneck.

use std::time::Duration;

use heddle_netem::{DirectionStats, DropReason, Rate};
use toml::Spanned;

use super::streams::{self, Window};
use crate::backend::{Log, Testbed};
use crate::error::Result;
use crate::figures::labels;
use crate::plan::hosts::directions;
use crate::plan::{Bottleneck, Phase, Tor, TorArm, WireGroup};
use crate::run::sampled::Sampled;

/// Bytes of a cell of a circuit, and of those the most that are a stream's (tor-spec 3 and 6.1).
const CELL_BYTES: f64 = 514.0;
const CELL_DATA_BYTES: f64 = 498.0;

/// The counts of every direction of every wire of every group, in the plan's order.
pub(super) type Counts = Vec<[Vec<DirectionStats>; 2]>;

/// Reads the counts now.
pub(super) fn counts(tor: &Tor, testbed: &mut dyn Testbed) -> Result<Counts> {
    let mut counts = Counts::new();
    for group in tor.wires.iter().map(Spanned::as_ref) {
        let mut of_group = [Vec::new(), Vec::new()];
        for [one, other] in &group.between {
            of_group[0].push(testbed.wire(one, other)?);
            of_group[1].push(testbed.wire(other, one)?);
        }
        counts.push(of_group);
    }
    Ok(counts)
}

/// The figures of a phase from the counts at its beginning and its end.
pub(super) fn figures(
    tor: &Tor,
    arm: &TorArm,
    phase: &Phase,
    before: &Counts,
    after: &Counts,
) -> Vec<Sampled> {
    let mut samples = Vec::new();
    let mut all = Sum::default();
    for (group, (before, after)) in tor.wires.iter().map(Spanned::as_ref).zip(before.iter().zip(after)) {
        let rates = rates_bit_s(group, arm, phase);
        for (place, name) in ["there", "back"].into_iter().enumerate() {
            let mut sum = Sum::default();
            for (before, after) in before[place].iter().zip(&after[place]) {
                sum.add(rates[place], before, after, phase.duration.as_secs_f64());
            }
            all.merge(&sum);
            let labels = labels([("group", &group.name), ("direction", name)]);
            let of_group = sum.figures().into_iter();
            samples.extend(of_group.map(|sampled| sampled.with(labels.clone())));
        }
    }
    samples.push(Sampled::one("lost_pct", all.lost_pct()));
    samples
}

/// What the wires of a group carry in a second at most, there and back, in the mean of a phase that may change them;
/// `None` where that has no bound, be it for a part of the phase.
fn rates_bit_s(group: &WireGroup, arm: &TorArm, phase: &Phase) -> [Option<f64>; 2] {
    let begin = phase.wires.get(&group.name).or(arm.wires.get(&group.name));
    let changes =
        phase.changes.iter().filter_map(|change| Some((change.after, change.wires.get(&group.name)?)));
    let mut parts = vec![(Duration::ZERO, begin)];
    parts.extend(changes.map(|(after, wires)| (after, Some(wires))));
    let ends = parts.iter().skip(1).map(|(after, _)| *after).chain([phase.duration]);
    let lasting: Vec<_> =
        parts.iter().zip(ends).map(|((after, wires), end)| (end - *after, *wires)).collect();
    [0, 1].map(|place| {
        let bits = lasting.iter().map(|(length, wires)| match directions(group, *wires)[place].rate {
            Rate::BitsPerS(rate) => Some(rate as f64 * length.as_secs_f64()),
            Rate::Unlimited => None,
        });
        Some(bits.sum::<Option<f64>>()? / phase.duration.as_secs_f64())
    })
}

/// What a phase's traffic did to each of its bottlenecks: how long it kept packets waiting, and what was dropped and
/// marked for it.
pub(super) fn inflicted(tor: &Tor, phase: &Phase, before: &Counts, after: &Counts) -> Vec<Sampled> {
    let groups = tor.wires.iter().map(Spanned::as_ref);
    let counts = groups.zip(before.iter().zip(after));
    let bottlenecks = counts.filter(|(group, _)| phase.bottlenecks.contains(&group.name));
    let of = |(group, (before, after)): (&WireGroup, _)| {
        let (before, after): (&[Vec<DirectionStats>; 2], &[Vec<DirectionStats>; 2]) = (before, after);
        let mut sum = Inflicted::default();
        before[0].iter().zip(&after[0]).for_each(|(before, after)| sum.add(before, after));
        sum.figures().map(|sampled| sampled.with(group.labels.clone()))
    };
    bottlenecks.flat_map(of).collect()
}

/// The use of each bottleneck: of a wire what `figures` tell of it; of a relay's rate the cells that brought the
/// clients which share it their data. Bottlenecks whose clients did nothing are left out.
pub(super) fn used(
    tor: &Tor,
    names: &[&str],
    logs: &[Log],
    window: Window,
    figures: &[Sampled],
) -> Vec<Sampled> {
    let use_pct = |bottleneck: &Bottleneck, group: &str| {
        let labels = labels([("group", group), ("direction", bottleneck.direction.name())]);
        let is_it = |sampled: &&Sampled| sampled.name == "wire_use_pct" && sampled.labels == labels;
        figures.iter().find(is_it).map(|sampled| sampled.values[0])
    };
    let of_clients = |bottleneck: &Bottleneck, rate_kb_s: f64| {
        let has = |name: &str| bottleneck.clients.iter().any(|client| client == name);
        let received = names.iter().zip(logs).filter(|(name, _)| has(name));
        let received_kb: Vec<f64> = received.map(|(_, log)| streams::received_kb(log, window)).collect();
        let cells_kb = received_kb.iter().sum::<f64>() * CELL_BYTES / CELL_DATA_BYTES;
        (!received_kb.is_empty()).then(|| cells_kb / window.length_s() / rate_kb_s)
    };
    let of = |bottleneck: &Bottleneck| {
        let used = match (&bottleneck.wires, bottleneck.rate_kb_s) {
            (Some(group), _) => use_pct(bottleneck, group).map(|pct| pct / 100.0),
            (None, Some(rate_kb_s)) => of_clients(bottleneck, rate_kb_s),
            (None, None) => None,
        };
        used.map(|used| Sampled::one("bottleneck_used", used).with(bottleneck.labels.clone()))
    };
    tor.bottlenecks.iter().filter_map(|bottleneck| of(bottleneck.as_ref())).collect()
}

/// What several wires of a direction carried together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sum {
    packets: u64,
    lost: u64,
    bytes: u64,
    waits: u64,
    waited_ns: u64,
    /// The share of its rate that the busiest wire carried, in percent; absent where no wire has a rate.
    use_pct: Option<f64>,
}

impl Sum {
    fn add(&mut self, rate_bit_s: Option<f64>, before: &DirectionStats, after: &DirectionStats, s: f64) {
        self.packets += after.packets_in - before.packets_in;
        self.lost += after.drops.get(DropReason::Loss) - before.drops.get(DropReason::Loss);
        let bytes = after.bytes_out - before.bytes_out;
        self.bytes += bytes;
        self.waits += after.queue.sojourns - before.queue.sojourns;
        self.waited_ns += after.queue.sojourn_sum_ns - before.queue.sojourn_sum_ns;
        if let Some(rate) = rate_bit_s {
            let used = 100.0 * bytes as f64 * 8.0 / (rate * s);
            self.use_pct = Some(self.use_pct.map_or(used, |most| most.max(used)));
        }
    }

    fn merge(&mut self, other: &Sum) {
        self.packets += other.packets;
        self.lost += other.lost;
    }

    fn lost_pct(&self) -> f64 {
        if self.packets == 0 { 0.0 } else { 100.0 * self.lost as f64 / self.packets as f64 }
    }

    fn figures(&self) -> Vec<Sampled> {
        let mut samples = vec![
            Sampled::one("wire_mb", self.bytes as f64 / 1e6),
            Sampled::one("wire_lost_pct", self.lost_pct()),
        ];
        if let Some(use_pct) = self.use_pct {
            let wait_ms = if self.waits == 0 { 0.0 } else { self.waited_ns as f64 / self.waits as f64 / 1e6 };
            samples.push(Sampled::one("wire_use_pct", use_pct));
            samples.push(Sampled::one("wire_wait_ms", wait_ms));
        }
        samples
    }
}

/// What traffic did to wires.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Inflicted {
    packets: u64,
    dropped: u64,
    marked: u64,
    waits: u64,
    waited_ns: u64,
}

impl Inflicted {
    fn add(&mut self, before: &DirectionStats, after: &DirectionStats) {
        // What the wire loses on purpose reaches neither policer nor queue.
        let lost = |stats: &DirectionStats| stats.drops.get(DropReason::Loss);
        let for_traffic = [DropReason::Policed, DropReason::QueueFull, DropReason::Codel];
        let dropped =
            |stats: &DirectionStats| for_traffic.map(|reason| stats.drops.get(reason)).iter().sum::<u64>();
        self.packets += (after.packets_in - lost(after)) - (before.packets_in - lost(before));
        self.dropped += dropped(after) - dropped(before);
        self.marked += after.marked - before.marked;
        self.waits += after.queue.sojourns - before.queue.sojourns;
        self.waited_ns += after.queue.sojourn_sum_ns - before.queue.sojourn_sum_ns;
    }

    fn figures(&self) -> [Sampled; 3] {
        let of = |sum: f64, count: u64| if count == 0 { 0.0 } else { sum / count as f64 };
        [
            Sampled::one("queue_delay_ms", of(self.waited_ns as f64 / 1e6, self.waits)),
            Sampled::one("loss_inflicted_pct", of(100.0 * self.dropped as f64, self.packets)),
            Sampled::one("marked_pct", of(100.0 * self.marked as f64, self.packets)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::network_tests::{network_of, small};
    use crate::traffic::Event;

    #[test]
    fn the_busiest_wire_and_the_share_of_lost_packets_stand_out() {
        let stats =
            |packets_in, bytes_out| DirectionStats { packets_in, bytes_out, ..DirectionStats::default() };
        let mut waited = stats(2000, 3_000_000);
        waited.queue.sojourns = 1000;
        waited.queue.sojourn_sum_ns = 5_000_000_000;
        let slow = Some(1e6);
        let mut sum = Sum::default();
        sum.add(slow, &stats(0, 500_000), &waited, 25.0);
        sum.add(slow, &stats(0, 0), &stats(1000, 1_000_000), 25.0);
        sum.lost = 6;
        let figures: Vec<(String, f64)> =
            sum.figures().into_iter().map(|sampled| (sampled.name, sampled.values[0])).collect();
        let expected =
            [("wire_mb", 3.5), ("wire_lost_pct", 0.2), ("wire_use_pct", 80.0), ("wire_wait_ms", 5.0)];
        assert_eq!(figures, expected.map(|(name, value)| (name.to_owned(), value)));
        // Wires without a rate are nobody's bottleneck.
        let mut free = Sum::default();
        free.add(None, &stats(0, 0), &stats(0, 0), 1.0);
        assert_eq!((free.use_pct, free.lost_pct(), free.figures().len()), (None, 0.0, 2));
    }

    #[test]
    fn a_rate_that_changes_counts_for_as_long_as_it_lasts() {
        let change = "duration = \"5 s\"\nwires = { path = { there = { rate = \"10 Mbit/s\" } } }\n\
                      changes = [{ after = \"1 s\", wires = { path = { there = { rate = \"5 Mbit/s\" } } } }]";
        let loaded = small(("duration = \"5 s\"", change)).unwrap();
        let (tor, arm) = network_of(&loaded.plan);
        let (group, phase) = (tor.wires[0].as_ref(), tor.phases[0].as_ref());
        assert_eq!(rates_bit_s(group, arm, phase), [Some(6e6), Some(6e6)]);
        let mut free = phase.clone();
        free.changes[0].wires.get_mut("path").unwrap().there.rate = Rate::Unlimited;
        assert_eq!(rates_bit_s(group, arm, &free), [None, None], "who has no bound is nobody's bottleneck");
    }

    #[test]
    fn what_traffic_inflicts_is_apart_from_what_the_wire_loses() {
        let loaded = small(("duration = \"5 s\"", "duration = \"5 s\"\nbottlenecks = [\"path\"]")).unwrap();
        let (tor, _) = network_of(&loaded.plan);
        let phase = tor.phases[0].as_ref();
        let before = DirectionStats { packets_in: 500, marked: 7, ..DirectionStats::default() };
        let mut after = DirectionStats { packets_in: 1500, marked: 17, ..before };
        after.queue.sojourns = 100;
        after.queue.sojourn_sum_ns = 300_000_000;
        let idle = DirectionStats::default();
        let counts = |stats: DirectionStats| vec![[vec![stats, idle], vec![idle, idle]]];
        let told = |after: &DirectionStats| -> Vec<(String, f64)> {
            let samples = inflicted(tor, phase, &counts(before), &counts(*after));
            samples.into_iter().map(|sampled| (sampled.name, sampled.values[0])).collect()
        };
        let expected = [("queue_delay_ms", 3.0), ("loss_inflicted_pct", 0.0), ("marked_pct", 1.0)];
        assert_eq!(told(&after), expected.map(|(name, value)| (name.to_owned(), value)));
        assert_eq!(inflicted(tor, &Phase::default(), &counts(before), &counts(after)), []);
    }

    #[test]
    fn a_bottlenecks_use_is_of_its_wire_or_of_its_clients_cells() {
        let bottleneck = "[[tor.bottleneck]]\nlabels = { at = \"wire\" }\nwires = \"path\"\n\n\
                          [[tor.bottleneck]]\nlabels = { at = \"relay\" }\nclients = [\"up\"]\nrate_kb_s = 514\n\n[[tor.phase]]";
        let loaded = small(("[[tor.phase]]", bottleneck)).unwrap();
        let (tor, _) = network_of(&loaded.plan);
        let at = Duration::from_secs_f64;
        let window = Window { opens: Duration::ZERO, closes: at(2.0) };
        let second = Event::Second {
            t_s: 0.0,
            length_s: 1.0,
            measured: true,
            throughput_kb_s: 249.0,
            delay_ms: None,
            latency_ms: None,
        };
        let logs = [Log::new(), vec![(at(1.0), second.clone()), (at(2.0), second)]];
        let wire = labels([("group", "path"), ("direction", "there")]);
        let of_wire = [Sampled::one("wire_use_pct", 80.0).with(wire)];
        let told = used(tor, &["web", "up"], &logs, window, &of_wire);
        let told: Vec<(&str, f64)> = told.iter().map(|one| (&*one.labels["at"], one.values[0])).collect();
        assert_eq!(told, [("wire", 0.8), ("relay", 0.5)]);
    }
}
