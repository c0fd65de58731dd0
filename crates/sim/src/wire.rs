//! A wire in few words.

use heddle_netem::{DirectionOptions, Jitter, Loss, Rate};
use heddle_seam::time::Duration;

/// What Ethernet adds to a packet, its gap and preamble included.
const FRAMING_BYTES: u64 = 38;

/// The path between two hosts, the same in both directions: a queue as long as Linux' in front of the rate, then
/// latency, jitter and loss. [`DirectionOptions`] say more, and [`Simulation::set_wire`](crate::Simulation::set_wire)
/// takes both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// One way.
    pub latency: Duration,
    /// At most this much is added to the latency of each packet. Packets stay in order.
    pub jitter: Duration,
    /// In each direction, headers included; `None` is without limit.
    pub rate_bytes_per_s: Option<u64>,
    /// Lost packets in a million.
    pub loss_ppm: u32,
}

impl Default for Wire {
    /// Ten milliseconds each way, and nothing goes wrong.
    fn default() -> Self {
        Wire {
            latency: Duration::from_millis(10),
            jitter: Duration::ZERO,
            rate_bytes_per_s: None,
            loss_ppm: 0,
        }
    }
}

impl From<Wire> for DirectionOptions {
    fn from(wire: Wire) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let spread_ns = nanos(wire.jitter) / 2;
        DirectionOptions {
            rate: wire
                .rate_bytes_per_s
                .map_or(Rate::Unlimited, |rate| Rate::BitsPerS(rate.saturating_mul(8))),
            framing_bytes: FRAMING_BYTES,
            delay_ns: nanos(wire.latency) + spread_ns,
            jitter: if spread_ns == 0 { Jitter::None } else { Jitter::Uniform { spread_ns } },
            loss: match wire.loss_ppm {
                0 => Loss::None,
                ppm => Loss::Bernoulli { probability: f64::from(ppm) / 1e6 },
            },
            ..DirectionOptions::default()
        }
    }
}
