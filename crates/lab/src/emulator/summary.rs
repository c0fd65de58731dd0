//! What a run was like, for people and for programs.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use heddle_netem::{DropReason, Drops, InterfaceStats, Topology};
use serde::Serialize;

use super::attack::AttackSummary;
use super::engine::Tally;
use super::histogram::{BySecond, Times};
use super::options::{KernelOptions, LatenessOptions};

/// What a run was like.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Whether the emulator kept up, so that what programs saw was the network and not the emulator.
    pub valid: bool,
    /// Whether it was late, which it may not be at a quieter time.
    pub is_late: bool,
    /// Why it must not be trusted.
    pub reasons: Vec<String>,
    /// The seed of all that chance did.
    pub seed: u64,
    /// How long the wires existed.
    pub duration_s: f64,
    /// What the machine did not allow, which may make the emulator late but not wrong, and what it was made to do.
    pub notes: Vec<String>,
    /// How late packets were given to their hosts.
    pub lateness: Times,
    /// How long the devices were not looked at: what came in then was stamped up to this much too late.
    pub unattended: Times,
    /// How long what came while nothing else was due waited for the emulator, as a packet does that reaches an idle
    /// wire.
    pub waking: Times,
    /// The 99th percentiles of these three in each second.
    pub by_second: BySecondTimes,
    /// The same of the times in which something was measured, each of which counts once.
    pub measured: BySecondTimes,
    /// How late the emulator woke up when a packet was due: the machine's part of the lateness.
    pub oversleeping: Times,
    /// How long kernels took for packets that were given to them at once: the receivers' part.
    pub giving: Times,
    /// CPU time of the thread that moves packets.
    pub cpu_s: f64,
    /// Packets that were put on wires, after segmentation.
    pub packets_sent: u64,
    /// Packets that were given to their hosts.
    pub packets_delivered: u64,
    /// Packets to an address that no host has or no wire leads to.
    pub packets_unrouted: u64,
    /// What hosts sent that was no packet, and packets that their kernel did not take.
    pub packets_refused: u64,
    /// Packets that are missing in the captures.
    pub captures_missed: u64,
    /// What every host's kernel was set to.
    pub kernel: KernelOptions,
    /// The hosts.
    pub hosts: Vec<HostSummary>,
    /// Each direction of each wire.
    pub wires: Vec<WireSummary>,
    /// What attackers did.
    pub attacks: Vec<AttackSummary>,
}

/// The 99th percentiles of the seconds of a run; `n` is how many seconds there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct BySecondTimes {
    /// Of `lateness`.
    pub lateness: Times,
    /// Of `unattended`.
    pub unattended: Times,
    /// Of `waking`.
    pub waking: Times,
}

impl From<[Times; 3]> for BySecondTimes {
    fn from([lateness, unattended, waking]: [Times; 3]) -> BySecondTimes {
        BySecondTimes { lateness, unattended, waking }
    }
}

/// One host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostSummary {
    /// Its name.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// What TCP uses, unless a program asks for something else.
    pub congestion_control: String,
    /// Packets that the kernel dropped because the emulator did not read them in time.
    pub device_drops: u64,
    /// What its uplink dropped, by reason.
    pub up_drops: BTreeMap<&'static str, u64>,
    /// What its downlink dropped, by reason.
    pub down_drops: BTreeMap<&'static str, u64>,
}

/// One direction of a wire.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WireSummary {
    /// The host that sends.
    pub from: String,
    /// The host that receives.
    pub to: String,
    /// Packets that entered it.
    pub packets_in: u64,
    /// Packets that arrived.
    pub packets_out: u64,
    /// Bytes that arrived, with their IP headers.
    pub bytes_out: u64,
    /// Copies that it made.
    pub duplicated: u64,
    /// Packets in which it flipped a bit.
    pub corrupted: u64,
    /// Packets that CoDel marked as having met congestion instead of dropping them.
    pub marked: u64,
    /// The most packets that waited in its queue.
    pub queue_packets_most: u64,
    /// What it dropped, by reason; only reasons that occurred.
    pub drops: BTreeMap<&'static str, u64>,
}

/// The share of seconds in which the emulator has to be on time.
const SECONDS_SHARE: f64 = 0.95;

/// The reasons for which the emulator was late.
pub(super) fn late(tally: &Tally, limits: &LatenessOptions) -> Vec<String> {
    let mut reasons = Vec::new();
    let ms = |ns: u64| ns as f64 / 1e6;
    let allowed = ms(limits.p99_max_ns);
    let mut compare = |what: &str, times: &BySecond| {
        let (p99_ns, most_ns) = (times.all().quantile_ns(0.99), times.all().most_ns());
        if p99_ns > limits.p99_max_ns {
            let p99 = ms(p99_ns);
            reasons
                .push(format!("{what} by {p99:.3} ms at the 99th percentile, at most {allowed} ms is valid"));
        } else if times.p99s().quantile_ns(SECONDS_SHARE) > limits.p99_max_ns {
            let (usual, worst) = (ms(times.p99s().quantile_ns(SECONDS_SHARE)), ms(times.p99s().most_ns()));
            reasons.push(format!(
                "{what} by {usual:.3} ms at the 99th percentile of a second in more than one second in twenty, and by \
                 {worst:.3} ms in the worst, at most {allowed} ms is valid"
            ));
        }
        if most_ns > limits.most_max_ns {
            let (most, allowed) = (ms(most_ns), ms(limits.most_max_ns));
            reasons.push(format!("{what} by {most:.3} ms once, at most {allowed} ms is valid"));
        }
    };
    compare("packets were delivered late", &tally.lateness);
    compare("what hosts sent was taken late", &tally.unattended);
    compare("what hosts sent while nothing was due was taken late", &tally.waking);
    if !reasons.is_empty() {
        let (p99, most) = (ms(tally.oversleeping.quantile_ns(0.99)), ms(tally.oversleeping.most_ns()));
        reasons.push(format!(
            "the machine woke the emulator up late by {p99:.3} ms at the 99th percentile and by {most:.3} ms once"
        ));
    }
    reasons
}

/// The other reasons for which the emulator's own doing shows in what programs saw.
pub(super) fn faults(hosts: &[HostSummary], wires: &[WireSummary]) -> Vec<String> {
    let mut reasons = Vec::new();
    for host in hosts.iter().filter(|host| host.device_drops > 0) {
        let (name, drops) = (&host.name, host.device_drops);
        reasons.push(format!("{drops} packets that {name} sent were never taken"));
    }
    for WireSummary { from, to, drops, .. } in wires {
        if let Some(drops) = drops.get(DropReason::InFlightFull.name()) {
            reasons.push(format!(
                "{drops} packets from {from} to {to} were dropped because more were on their way than \
                 in_flight_packets or in_flight_bytes allows"
            ));
        }
    }
    reasons
}

/// The directions of a topology.
pub(super) fn wires(topology: &Topology<Vec<u8>>) -> Vec<WireSummary> {
    let name = |host| topology.host_name(host).unwrap_or_default().to_owned();
    let of = |(from, to)| {
        let stats = topology.direction_stats(from, to)?;
        Some(WireSummary {
            from: name(from),
            to: name(to),
            packets_in: stats.packets_in,
            packets_out: stats.packets_out,
            bytes_out: stats.bytes_out,
            duplicated: stats.duplicated,
            corrupted: stats.corrupted,
            marked: stats.marked,
            queue_packets_most: stats.queue.packets_most,
            drops: by_reason(&stats.drops),
        })
    };
    topology.directions().filter_map(of).collect()
}

/// What a host's attachment dropped.
pub(super) fn interface_drops(stats: Option<InterfaceStats>) -> BTreeMap<&'static str, u64> {
    stats.map(|stats| by_reason(&stats.drops)).unwrap_or_default()
}

fn by_reason(drops: &Drops) -> BTreeMap<&'static str, u64> {
    let reasons = DropReason::ALL.into_iter().map(|reason| (reason.name(), drops.get(reason)));
    reasons.filter(|(_, count)| *count > 0).collect()
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "emulated for {:.1} s with seed {}", self.duration_s, self.seed)?;
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        for wire in &self.wires {
            let WireSummary { from, to, packets_in, packets_out, bytes_out, drops, .. } = wire;
            write!(f, "{from} -> {to}: {packets_in} packets in, {packets_out} out ({bytes_out} bytes)")?;
            write_drops(f, "dropped", drops)?;
            writeln!(f)?;
        }
        for host in &self.hosts {
            if !host.up_drops.is_empty() || !host.down_drops.is_empty() {
                write!(f, "{}:", host.name)?;
                write_drops(f, "up dropped", &host.up_drops)?;
                write_drops(f, "down dropped", &host.down_drops)?;
                writeln!(f)?;
            }
        }
        for AttackSummary { from, to, kind, seen, acted } in &self.attacks {
            writeln!(f, "attack {kind} on {from} -> {to}: {acted} times, of {seen} packets of interest")?;
        }
        if self.packets_unrouted > 0 {
            writeln!(f, "{} packets to nowhere", self.packets_unrouted)?;
        }
        if self.packets_refused > 0 {
            writeln!(f, "{} packets were broken or not taken by their kernel", self.packets_refused)?;
        }
        if self.captures_missed > 0 {
            writeln!(f, "{} packets are missing in the captures", self.captures_missed)?;
        }
        let (packets, cpu_s) = (self.packets_sent, self.cpu_s);
        writeln!(f, "moved {packets} packets in {cpu_s:.2} s of CPU time")?;
        write_times(f, "lateness", &self.lateness)?;
        write_times(f, "unattended", &self.unattended)?;
        write_times(f, "waking", &self.waking)?;
        write_times(f, "oversleeping", &self.oversleeping)?;
        write_times(f, "giving", &self.giving)?;
        for reason in &self.reasons {
            writeln!(f, "INVALID: {reason}")?;
        }
        Ok(())
    }
}

fn write_drops(f: &mut fmt::Formatter<'_>, what: &str, drops: &BTreeMap<&'static str, u64>) -> fmt::Result {
    if drops.is_empty() {
        return Ok(());
    }
    let each: Vec<String> = drops.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    write!(f, "; {what}: {}", each.join(", "))
}

fn write_times(f: &mut fmt::Formatter<'_>, what: &str, times: &Times) -> fmt::Result {
    let Times { p50_us, p99_us, max_us, .. } = times;
    writeln!(f, "{what}: median {p50_us:.0} us, p99 {p99_us:.0} us, most {max_us:.0} us")
}

#[cfg(test)]
mod tests {
    use heddle_netem::Instant as Time;

    use super::*;

    fn summary() -> Summary {
        Summary {
            valid: true,
            is_late: false,
            reasons: Vec::new(),
            seed: 1,
            duration_s: 1.0,
            notes: Vec::new(),
            lateness: Times::default(),
            unattended: Times::default(),
            waking: Times::default(),
            by_second: BySecondTimes::default(),
            measured: BySecondTimes::default(),
            oversleeping: Times::default(),
            giving: Times::default(),
            cpu_s: 0.0,
            packets_sent: 0,
            packets_delivered: 0,
            packets_unrouted: 0,
            packets_refused: 0,
            captures_missed: 0,
            kernel: KernelOptions::default(),
            hosts: Vec::new(),
            wires: Vec::new(),
            attacks: Vec::new(),
        }
    }

    fn wire(reason: DropReason) -> WireSummary {
        WireSummary {
            from: "a".to_owned(),
            to: "b".to_owned(),
            packets_in: 9,
            packets_out: 2,
            bytes_out: 200,
            duplicated: 0,
            corrupted: 0,
            marked: 0,
            queue_packets_most: 0,
            drops: BTreeMap::from([(reason.name(), 7)]),
        }
    }

    #[test]
    fn only_losses_that_the_emulator_makes_are_faults() {
        let faults = |wire| faults(&[], &[wire]);
        let found = faults(wire(DropReason::InFlightFull));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("7 packets from a to b were dropped because"), "{}", found[0]);
        assert!(faults(wire(DropReason::QueueFull)).is_empty());
    }

    /// What is said of so many seconds of 2000 packets, of which those of a class are as late as 20 ms for a part of
    /// the second.
    fn late_in(seconds: u64, is_bad: impl Fn(u64) -> bool) -> Vec<String> {
        let mut tally = Tally::default();
        for number in 0..seconds * 2000 {
            let now = Time::from_nanos(number * 500_000);
            let ns = if is_bad(number / 2000) && number % 2000 < 50 { 20_000_000 } else { 50_000 };
            tally.waking.add(now, ns, 1);
        }
        late(&tally, &LatenessOptions::default())
    }

    #[test]
    fn bad_seconds_count_and_not_only_the_whole_time() {
        assert_eq!(late_in(60, |_| false), [""; 0]);
        // A quarter of a percent of all packets is late in both cases.
        assert_eq!(late_in(60, |second| second == 7), [""; 0]);
        let often = late_in(60, |second| second % 10 == 7);
        assert!(often[0].contains("taken late by") && often[0].contains("one second in twenty"), "{often:?}");
        assert!(late_in(60, |_| true)[0].contains("at the 99th percentile, at most 1 ms"));
    }

    #[test]
    fn packets_that_were_refused_are_printed() {
        let refused = |packets_refused| Summary { packets_refused, ..summary() }.to_string();
        assert!(
            refused(3).contains("\n3 packets were broken or not taken by their kernel\n"),
            "{}",
            refused(3)
        );
        assert!(!refused(0).contains("not taken"));
    }
}
