//! The operator's rates at work: which sockets wait for them, and until when.

use super::config::RelayConfig;
use crate::bucket::{Buckets, Direction, Traffic};
use crate::cell::CELL_LEN;
use crate::time::{Duration, Instant};

/// A rate that is used up is waited for until at least this many bytes may pass, so that sockets do
/// not wake up for every byte.
const QUANTUM_BYTES: u64 = 8 * CELL_LEN as u64;
/// ... and at least what a rate lets pass in this part of a second.
const QUANTUM_PARTS: u64 = 100;
/// A socket takes at most this part of what may pass before it is the others' turn (as in stock tor's
/// `connection_bucket_get_share`), or of a quantum.
const SHARE_PARTS: usize = 8;
/// The smallest share for writing: a cell in a record of its own is longer than the cell.
const WRITE_BYTES_MIN: usize = 4 * CELL_LEN;
/// Whoever cannot use what there is looks again after this time.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// `BandwidthRate` and `RelayBandwidthRate`, and the one moment at which whoever waits for them
/// looks again.
pub(super) struct Rates {
    buckets: Buckets,
    quantum_bytes: u64,
    waiting_until: Option<Instant>,
    /// How often sockets were told to look again, so that another one comes first each time.
    pub rounds: usize,
}

impl Rates {
    pub fn new(config: &RelayConfig) -> Self {
        let relayed = config.relay_bandwidth.map_or(u64::MAX, |limit| limit.rate_bytes_per_s);
        let least_rate = config.bandwidth.rate_bytes_per_s.min(relayed);
        Rates {
            quantum_bytes: (least_rate / QUANTUM_PARTS).max(QUANTUM_BYTES),
            buckets: Buckets::new(Instant::ZERO, config.bandwidth, config.relay_bandwidth),
            waiting_until: None,
            rounds: 0,
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

    /// Bytes that one socket may pass before it is the others' turn; nothing only when the rate is
    /// used up.
    pub fn share(&mut self, now: Instant, direction: Direction, traffic: Traffic) -> usize {
        let bytes = self.allowance(now, direction, traffic);
        let least = match direction {
            Direction::Read => 1,
            Direction::Write => WRITE_BYTES_MIN,
        };
        (bytes.max(self.quantum_bytes as usize) / SHARE_PARTS).max(least).min(bytes)
    }

    /// Wakes the shard up when a few cells may pass again.
    pub fn wait(&mut self, now: Instant, direction: Direction, traffic: Traffic) {
        let until = self.buckets.next_available(now, direction, traffic, self.quantum_bytes);
        let until = until.unwrap_or(now + Duration::from_secs(1)).max(now + WAIT_MIN);
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
            self.rounds = self.rounds.wrapping_add(1);
        }
        due
    }
}
