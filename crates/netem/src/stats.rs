//! What is counted, and why packets are dropped.

use heddle_seam::time::Instant;

/// Why a packet did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// It was longer than the MTU.
    TooBig,
    /// The direction was down.
    Down,
    /// The loss process took it.
    Loss,
    /// The policer had too few tokens for it.
    Policed,
    /// It did not fit into the queue of a rate.
    QueueFull,
    /// CoDel took it out of the queue.
    Codel,
    /// The bound on packets on their way was reached: the emulation was too small, not the wire.
    InFlightFull,
}

impl DropReason {
    /// Every reason.
    pub const ALL: [DropReason; 7] = [
        DropReason::TooBig,
        DropReason::Down,
        DropReason::Loss,
        DropReason::Policed,
        DropReason::QueueFull,
        DropReason::Codel,
        DropReason::InFlightFull,
    ];

    /// A name for reports.
    pub fn name(self) -> &'static str {
        match self {
            DropReason::TooBig => "too_big",
            DropReason::Down => "down",
            DropReason::Loss => "loss",
            DropReason::Policed => "policed",
            DropReason::QueueFull => "queue_full",
            DropReason::Codel => "codel",
            DropReason::InFlightFull => "in_flight_full",
        }
    }
}

/// Dropped packets by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops([u64; DropReason::ALL.len()]);

impl Drops {
    /// Packets dropped for this reason.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Packets dropped for any reason.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) fn count(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    pub(crate) fn add(&mut self, other: &Drops) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }
}

/// The state and the history of one queue. The packet that is being put on the interface is not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Packets that wait now.
    pub packets: u64,
    /// Bytes that wait now, with framing.
    pub bytes: u64,
    /// The most packets that ever waited at once.
    pub packets_most: u64,
    /// The most bytes that ever waited at once, with framing.
    pub bytes_most: u64,
    /// Packets that left towards the interface, which is how many sojourns are summed below.
    pub sojourns: u64,
    /// How long they waited in all.
    pub sojourn_sum_ns: u64,
    /// How long one waited at most.
    pub sojourn_most_ns: u64,
    /// Packets times nanoseconds that they waited, up to `changed`.
    pub(crate) packet_ns: u128,
    /// When the length last changed.
    pub(crate) changed: Instant,
}

impl QueueStats {
    /// How long a packet waited on average; zero before the first.
    pub fn sojourn_mean_ns(&self) -> f64 {
        if self.sojourns == 0 { 0.0 } else { self.sojourn_sum_ns as f64 / self.sojourns as f64 }
    }

    /// The average of the queue's length over the time from the origin to `now`, in packets.
    pub fn packets_mean(&self, now: Instant) -> f64 {
        let since = self.packet_ns + u128::from(self.packets) * u128::from(now.ns_since(self.changed));
        if now == Instant::ZERO { 0.0 } else { since as f64 / now.as_nanos() as f64 }
    }

    pub(crate) fn on_enter(&mut self, now: Instant, bytes: u64) {
        self.on_change(now);
        self.packets += 1;
        self.bytes += bytes;
        self.packets_most = self.packets_most.max(self.packets);
        self.bytes_most = self.bytes_most.max(self.bytes);
    }

    pub(crate) fn on_leave(&mut self, now: Instant, bytes: u64) {
        self.on_change(now);
        self.packets -= 1;
        self.bytes -= bytes;
    }

    pub(crate) fn on_sojourn(&mut self, sojourn_ns: u64) {
        self.sojourns += 1;
        self.sojourn_sum_ns = self.sojourn_sum_ns.saturating_add(sojourn_ns);
        self.sojourn_most_ns = self.sojourn_most_ns.max(sojourn_ns);
    }

    fn on_change(&mut self, now: Instant) {
        self.packet_ns += u128::from(self.packets) * u128::from(now.ns_since(self.changed));
        self.changed = now;
    }
}

/// The counts of a host's attachment in one direction: `packets_in` = `packets_out` + drops + what is inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceStats {
    /// Packets that were offered.
    pub packets_in: u64,
    /// Packets that passed.
    pub packets_out: u64,
    /// Bytes that passed, with framing.
    pub bytes_out: u64,
    /// What was dropped.
    pub drops: Drops,
    /// Packets that CoDel marked instead.
    pub marked: u64,
    /// The queue in front of the rate.
    pub queue: QueueStats,
}

/// The counts of one direction of a wire: `packets_in` + `duplicated` = `packets_out` + drops + what is inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionStats {
    /// Packets that were offered.
    pub packets_in: u64,
    /// Copies that were made.
    pub duplicated: u64,
    /// Packets in which a bit was flipped.
    pub corrupted: u64,
    /// Packets that were held back to be overtaken.
    pub held_back: u64,
    /// Packets that arrived at the far end.
    pub packets_out: u64,
    /// Bytes that arrived at the far end, without framing.
    pub bytes_out: u64,
    /// What was dropped anywhere in the direction, its queue included.
    pub drops: Drops,
    /// Packets that CoDel marked instead.
    pub marked: u64,
    /// Packets on their way now, between the rate and the far end.
    pub in_flight_packets: u64,
    /// Their bytes.
    pub in_flight_bytes: u64,
    /// The queue in front of the rate.
    pub queue: QueueStats,
}

/// The counts of a whole topology: `sent` + `duplicated` = `delivered` + drops + `inside`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets that were sent.
    pub sent: u64,
    /// Copies that wires made.
    pub duplicated: u64,
    /// Packets that were delivered.
    pub delivered: u64,
    /// What was dropped.
    pub drops: Drops,
    /// Packets that wait, are being put on an interface, or are on their way.
    pub inside: u64,
}
