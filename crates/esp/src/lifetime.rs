//! How long an association may serve (RFC 4301, section 4.4.2.1: lifetimes, soft and hard).

use heddle_seam::time::{Duration, Instant};

/// The most that an association may carry. When three quarters of any of these are used up, another one is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    pub packets_max: u64,
    /// Of whole packets.
    pub bytes_max: u64,
    pub age_max: Duration,
}

impl Default for Lifetime {
    /// 2^28 packets and 2^39 bytes, so that an adversary's advantage over AES-128-GCM with packets of 2,048 bytes stays
    /// below 2^-57 as in QUIC (RFC 9001, appendix B.1), and 8 hours, after which old keys open no new packets.
    fn default() -> Self {
        Lifetime { packets_max: 1 << 28, bytes_max: 1 << 39, age_max: Duration::from_secs(8 * 3600) }
    }
}

/// What of an association's lifetime is used up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    lifetime: Lifetime,
    since: Instant,
    packets: u64,
    bytes: u64,
}

impl Used {
    pub(crate) fn new(now: Instant, lifetime: Lifetime) -> Self {
        Used { lifetime, since: now, packets: 0, bytes: 0 }
    }

    /// A packet of so many bytes was carried.
    pub(crate) fn count(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    /// Whether it may carry a packet of so many bytes still.
    pub(crate) fn allows(&self, now: Instant, bytes: usize) -> bool {
        let Lifetime { packets_max, bytes_max, age_max } = self.lifetime;
        let fits = self.bytes.saturating_add(bytes as u64) <= bytes_max;
        self.packets < packets_max && fits && now.since(self.since) < age_max
    }

    /// Whether another association is due.
    pub(crate) fn is_short(&self, now: Instant) -> bool {
        let Lifetime { packets_max, bytes_max, age_max } = self.lifetime;
        let is_old = now.since(self.since) >= age_max - age_max / 4;
        is_old || self.packets >= packets_max - packets_max / 4 || self.bytes >= bytes_max - bytes_max / 4
    }
}
