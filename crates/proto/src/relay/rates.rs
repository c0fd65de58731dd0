//! The operator's rates at work: which sockets wait for them, and until when.

use super::config::RelayConfig;
use crate::bucket::{Buckets, Direction, Traffic};
use crate::cell::CELL_LEN;
use crate::time::{Duration, Instant};

/// A rate that is used up is waited for until this many bytes may pass, so that sockets do not wake
/// up for every byte.
const QUANTUM_BYTES: u64 = 4 * CELL_LEN as u64;

/// `BandwidthRate` and `RelayBandwidthRate`, and the one moment at which whoever waits for them
/// looks again.
pub(super) struct Rates {
    buckets: Buckets,
    waiting_until: Option<Instant>,
}

impl Rates {
    pub fn new(config: &RelayConfig) -> Self {
        Rates {
            buckets: Buckets::new(Instant::ZERO, config.bandwidth, config.relay_bandwidth),
            waiting_until: None,
        }
    }

    /// Bytes that may pass now. When that is nothing, the shard wakes up once it is more.
    pub fn allowance(&mut self, now: Instant, direction: Direction, traffic: Traffic) -> usize {
        let bytes = self.buckets.allowance(now, direction, traffic);
        if bytes == 0 {
            self.wait(now, direction, traffic);
        }
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Wakes the shard up when a few cells may pass again.
    pub fn wait(&mut self, now: Instant, direction: Direction, traffic: Traffic) {
        let until = self.buckets.next_available(now, direction, traffic, QUANTUM_BYTES);
        let until = until.unwrap_or(now + Duration::from_secs(1));
        self.waiting_until = Some(self.waiting_until.map_or(until, |set| set.min(until)));
    }

    pub fn take(&mut self, direction: Direction, traffic: Traffic, bytes: usize) {
        self.buckets.take(direction, traffic, bytes as u64);
    }

    /// When to look again.
    pub fn waiting_until(&self) -> Option<Instant> {
        self.waiting_until
    }

    /// Whether whoever waits is to look again now.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let due = self.waiting_until.is_some_and(|until| until <= now);
        if due {
            self.waiting_until = None;
        }
        due
    }
}
