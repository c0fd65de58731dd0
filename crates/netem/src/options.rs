//! The options of hosts and wires: plain structs, written in TOML with units.

use crate::rate::Rate;
use crate::units::read;
use serde::Deserialize;
use std::sync::Arc;

/// The hosts of a topology and the wires between them.
///
/// In TOML: a `[[host]]` for each host, a `[[wire]]` for each wire, and perhaps `[default_wire]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopologyOptions {
    /// The hosts; [`HostId`](crate::HostId) is the place in this list.
    #[serde(default, rename = "host")]
    pub hosts: Vec<HostOptions>,
    /// The wires, at most one between two hosts.
    #[serde(default, rename = "wire")]
    pub wires: Vec<WireOptions>,
    /// What every pair of hosts without a wire of its own gets, in both directions, when it first sends. Without it
    /// such a pair cannot reach each other. A topology of n hosts may then grow to n² directions.
    #[serde(default)]
    pub default_wire: Option<DirectionOptions>,
}

/// A host and its attachment to the network, which all its wires share.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostOptions {
    /// The name, unique among the hosts. It labels the seeds of the host's wires.
    pub name: String,
    /// What everything the host sends passes before it enters a wire.
    #[serde(default)]
    pub up: InterfaceOptions,
    /// What everything the host receives passes after it left a wire.
    #[serde(default)]
    pub down: InterfaceOptions,
}

/// A rate with the queue in front of it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InterfaceOptions {
    /// How fast packets are put on the interface. Default: unlimited, and then nothing ever queues.
    #[serde(deserialize_with = "read::rate")]
    pub rate: Rate,
    /// Bytes that each packet costs beyond its own length, such as 14 for an Ethernet header. They count for the rate
    /// and for the queue. Default: 0.
    #[serde(rename = "framing", deserialize_with = "read::size_bytes")]
    pub framing_bytes: u64,
    /// The queue in front of the rate.
    pub queue: QueueOptions,
    /// When the rate changes, in the order of time. Default: never.
    pub schedule: Vec<RateStep>,
}

/// A change of an interface's rate at a time. The packet that is being put on the interface finishes at the old rate.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateStep {
    /// When, from the driver's origin.
    #[serde(rename = "at", deserialize_with = "read::duration_ns")]
    pub at_ns: u64,
    /// The new rate.
    #[serde(deserialize_with = "read::rate")]
    pub rate: Rate,
}

/// The bound of a queue, and what drops packets before it is reached.
///
/// The packet that is being put on the interface is not in the queue. A packet joins when both bounds hold with it
/// inside.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueOptions {
    /// The most packets that wait. Default: 1000, as Linux' `txqueuelen`.
    #[serde(rename = "packets")]
    pub packets_max: u64,
    /// The most bytes that wait, with framing. Default: 1 500 000.
    #[serde(rename = "bytes", deserialize_with = "read::size_bytes")]
    pub bytes_max: u64,
    /// CoDel (RFC 8289) on top of the bounds. Default: none, that is drop-tail.
    pub codel: Option<CodelOptions>,
}

impl Default for QueueOptions {
    fn default() -> Self {
        QueueOptions { packets_max: 1000, bytes_max: 1_500_000, codel: None }
    }
}

/// CoDel's two parameters (RFC 8289, section 4), and whether it marks.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CodelOptions {
    /// The standing delay that is acceptable. Default: 5 ms.
    #[serde(rename = "target", deserialize_with = "read::duration_ns")]
    pub target_ns: u64,
    /// How long the delay may stay above the target before the first drop; about a worst-case round trip. Default:
    /// 100 ms.
    #[serde(rename = "interval", deserialize_with = "read::duration_ns")]
    pub interval_ns: u64,
    /// Whether it marks packets that can be marked (RFC 3168) where it would drop them. Default: no.
    pub ecn: bool,
}

impl Default for CodelOptions {
    fn default() -> Self {
        CodelOptions { target_ns: 5_000_000, interval_ns: 100_000_000, ecn: false }
    }
}

/// A policer: a token bucket that drops each packet for which it has too few tokens (RFC 2697 with one rate and one
/// burst).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicerOptions {
    /// How fast tokens come. At least 1 bit/s.
    #[serde(rename = "rate", deserialize_with = "read::bits_per_s")]
    pub rate_bits_per_s: u64,
    /// The most tokens there are, and those at the origin. It must hold the longest packet, which passes never
    /// otherwise.
    #[serde(rename = "burst", deserialize_with = "read::size_bytes")]
    pub burst_bytes: u64,
}

/// A full-duplex wire between two hosts.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WireOptions {
    /// The host at one end.
    pub from: String,
    /// The host at the other end.
    pub to: String,
    /// The direction from `from` to `to`.
    #[serde(default)]
    pub there: DirectionOptions,
    /// The direction from `to` to `from`. Default: the options of `there`, with draws of its own.
    #[serde(default)]
    pub back: Option<DirectionOptions>,
}

/// One direction of a wire.
///
/// A packet meets, in this order: the MTU, blackhole and flap, loss, corruption, duplication, the policer, the queue,
/// the rate, and then delay, jitter and reordering.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DirectionOptions {
    /// How fast packets are put on the wire. Default: unlimited.
    #[serde(deserialize_with = "read::rate")]
    pub rate: Rate,
    /// Bytes that each packet costs beyond its own length, for the rate and the queue. Default: 0.
    #[serde(rename = "framing", deserialize_with = "read::size_bytes")]
    pub framing_bytes: u64,
    /// The queue in front of the rate.
    pub queue: QueueOptions,
    /// What drops packets beyond a rate without letting them wait. Default: none.
    pub policer: Option<PolicerOptions>,
    /// The longest packet, without framing; longer ones are dropped. At most 16 MiB. Default: 1500 bytes.
    #[serde(rename = "mtu", deserialize_with = "read::size_bytes")]
    pub mtu_bytes: u64,
    /// What every packet takes from leaving the rate to arriving. Default: 0.
    #[serde(rename = "delay", deserialize_with = "read::duration_ns")]
    pub delay_ns: u64,
    /// A random offset to the delay, drawn for each packet. Where the sum is negative the delay is zero.
    pub jitter: Jitter,
    /// Whether a packet with a shorter delay overtakes the one before. Default: no, and then a packet arrives no
    /// earlier than its predecessor, so jitter that is large beside the distance of packets adds more delay than it
    /// drew. (Linux' netem always reorders here.)
    pub jitter_reorders: bool,
    /// Which packets vanish.
    pub loss: Loss,
    /// Which packets are held back so that later ones overtake them. Default: none.
    pub reorder: Option<Reorder>,
    /// The probability that a packet is followed by a copy of itself. Default: 0.
    #[serde(deserialize_with = "read::probability")]
    pub duplicate: f64,
    /// The probability that one random bit of a packet is flipped. Default: 0.
    #[serde(deserialize_with = "read::probability")]
    pub corrupt: f64,
    /// A direction that is down drops what enters it and what leaves its queue; what is on its way still arrives.
    /// Default: up.
    pub down: bool,
    /// A direction that goes down and up again and again. Default: none.
    pub flap: Option<Flap>,
    /// What changes when, in the order of time. Default: nothing.
    pub schedule: Vec<Step>,
    /// The most packets on their way between the rate and the far end; more are dropped as
    /// [`InFlightFull`](crate::DropReason::InFlightFull), which means that the emulation, not the wire, was too small.
    /// Default: 100 000.
    #[serde(rename = "in_flight_packets")]
    pub in_flight_packets_max: u64,
    /// The same bound in bytes. Default: 256 MiB.
    #[serde(rename = "in_flight_bytes", deserialize_with = "read::size_bytes")]
    pub in_flight_bytes_max: u64,
}

impl Default for DirectionOptions {
    fn default() -> Self {
        DirectionOptions {
            rate: Rate::Unlimited,
            framing_bytes: 0,
            queue: QueueOptions::default(),
            policer: None,
            mtu_bytes: 1500,
            delay_ns: 0,
            jitter: Jitter::None,
            jitter_reorders: false,
            loss: Loss::None,
            reorder: None,
            duplicate: 0.0,
            corrupt: 0.0,
            down: false,
            flap: None,
            schedule: Vec::new(),
            in_flight_packets_max: 100_000,
            in_flight_bytes_max: 256 << 20,
        }
    }
}

impl DirectionOptions {
    /// The part that a direction has in common with a host's attachment. A direction's schedule is its own.
    pub fn interface(&self) -> InterfaceOptions {
        let DirectionOptions { rate, framing_bytes, queue, .. } = self;
        InterfaceOptions {
            rate: *rate,
            framing_bytes: *framing_bytes,
            queue: queue.clone(),
            schedule: Vec::new(),
        }
    }
}

/// A random offset to the delay of each packet. In TOML: `{ exponential = { mean = "5 ms" } }` and so on, or `"none"`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Jitter {
    /// Every packet takes the delay itself.
    #[default]
    None,
    /// An exponential distribution, as in section 4.2 of Reardon's thesis.
    Exponential {
        #[serde(rename = "mean", deserialize_with = "read::duration_ns")]
        mean_ns: u64,
    },
    /// A normal distribution around zero.
    Normal {
        #[serde(rename = "std_dev", deserialize_with = "read::duration_ns")]
        std_dev_ns: u64,
    },
    /// Every offset from minus to plus `spread` is as likely as another.
    Uniform {
        #[serde(rename = "spread", deserialize_with = "read::duration_ns")]
        spread_ns: u64,
    },
    /// One of these measured offsets, each as likely as another; repeat one to make it likelier. From 1 to 65 536, in
    /// TOML with units: `{ table = { offsets = ["-0.2 ms", "0 ms", "3 ms"] } }`.
    Table {
        #[serde(rename = "offsets", deserialize_with = "read::offsets_ns")]
        offsets_ns: Arc<[i64]>,
    },
}

/// Which packets vanish. In TOML: `{ bernoulli = { probability = "1 %" } }` and so on, or `"none"`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Loss {
    /// None do.
    #[default]
    None,
    /// Each with the same probability, independently of the others.
    Bernoulli {
        #[serde(deserialize_with = "read::probability")]
        probability: f64,
    },
    /// Losses in bursts: a chain with a good and a bad state that begins in the good one. A packet is lost with the
    /// probability of the present state, and then the state may change (Gilbert 1960, Elliott 1963). With the defaults
    /// the share of lost packets is `good_to_bad / (good_to_bad + bad_to_good)` and a burst has `1 / bad_to_good`
    /// packets on average.
    GilbertElliott {
        #[serde(deserialize_with = "read::probability")]
        good_to_bad: f64,
        #[serde(deserialize_with = "read::probability")]
        bad_to_good: f64,
        /// The probability of a loss in the good state. Default: 0.
        #[serde(default, deserialize_with = "read::probability")]
        loss_good: f64,
        /// The probability of a loss in the bad state. Default: 1.
        #[serde(default = "certain", deserialize_with = "read::probability")]
        loss_bad: f64,
    },
    /// The n-th packet, the 2n-th, and so on, counted from where this loss began.
    EveryNth { n: u64 },
    /// Exactly the packets with these numbers, rising, where 1 is the first that was ever offered to the direction.
    Listed { packets: Arc<[u64]> },
}

fn certain() -> f64 {
    1.0
}

/// Holds some packets back so that later ones overtake them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// The probability that a packet is held back.
    #[serde(deserialize_with = "read::probability")]
    pub probability: f64,
    /// How much longer than the others it takes.
    #[serde(rename = "hold", deserialize_with = "read::duration_ns")]
    pub hold_ns: u64,
}

/// A direction that goes down at `first`, stays down for `down`, up for `up`, and so on for ever.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flap {
    /// When it first goes down, from the driver's origin.
    #[serde(rename = "first", deserialize_with = "read::duration_ns")]
    pub first_ns: u64,
    /// How long it stays down.
    #[serde(rename = "down", deserialize_with = "read::duration_ns")]
    pub down_ns: u64,
    /// How long it stays up.
    #[serde(rename = "up", deserialize_with = "read::duration_ns")]
    pub up_ns: u64,
}

/// A change of a direction at a time. What is absent stays as it was.
///
/// A packet that is being put on the wire finishes at the old rate; one that is on its way arrives when it would have.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// When, from the driver's origin.
    #[serde(rename = "at", deserialize_with = "read::duration_ns")]
    pub at_ns: u64,
    #[serde(default, deserialize_with = "read::option_rate")]
    pub rate: Option<Rate>,
    #[serde(default, rename = "mtu", deserialize_with = "read::option_size_bytes")]
    pub mtu_bytes: Option<u64>,
    #[serde(default, rename = "delay", deserialize_with = "read::option_duration_ns")]
    pub delay_ns: Option<u64>,
    #[serde(default)]
    pub jitter: Option<Jitter>,
    /// A new loss begins anew: in the good state, or at the first of n packets.
    #[serde(default)]
    pub loss: Option<Loss>,
    /// A `probability` of 0 ends it.
    #[serde(default)]
    pub reorder: Option<Reorder>,
    #[serde(default, deserialize_with = "read::option_probability")]
    pub duplicate: Option<f64>,
    #[serde(default, deserialize_with = "read::option_probability")]
    pub corrupt: Option<f64>,
    /// `true` makes a blackhole, `false` ends it.
    #[serde(default)]
    pub down: Option<bool>,
}
