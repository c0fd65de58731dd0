//! The operator's rates at work: which sockets wait for them, and until when.

use super::config::RelayConfig;
use super::link::LinkKey;
use crate::bucket::{Buckets, Direction, Traffic};
use crate::cell::CELL_LEN;
use crate::node::SocketId;
use crate::time::{Duration, Instant};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
///
/// The shards of a relay take from the same buckets, so that the sum keeps to the rates and any one shard may use them
/// whole. A lock is taken for each socket that is read or written, not for each cell.
pub(super) struct Rates {
    buckets: Arc<Mutex<Buckets>>,
    quantum_bytes: u64,
    waiting_until: Option<Instant>,
    /// Links, and connections of streams, that had something to do and were held back. Whoever is over by then is skipped when
    /// they look again.
    links: BTreeSet<LinkKey>,
    sockets: BTreeSet<SocketId>,
    /// How often they were told to look again, so that another one comes first each time.
    rounds: usize,
}

impl Rates {
    pub fn new(config: &RelayConfig) -> Self {
        let relayed = config.relay_bandwidth.map_or(u64::MAX, |limit| limit.rate_bytes_per_s);
        let least_rate = config.bandwidth.rate_bytes_per_s.min(relayed);
        Rates {
            quantum_bytes: (least_rate / QUANTUM_PARTS).max(QUANTUM_BYTES),
            buckets: Arc::new(Mutex::new(Buckets::new(
                Instant::ZERO,
                config.bandwidth,
                config.relay_bandwidth,
            ))),
            waiting_until: None,
            links: BTreeSet::new(),
            sockets: BTreeSet::new(),
            rounds: 0,
        }
    }

    /// Takes from the buckets of another shard of the same relay from now on.
    pub fn share_buckets(&mut self, with: &Rates) {
        self.buckets = with.buckets.clone();
    }

    /// What is in the buckets is valid after every call, so a panic elsewhere does not spoil it.
    fn buckets(&self) -> MutexGuard<'_, Buckets> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that may pass now. When that is nothing, the shard wakes up once it is more.
    pub fn allowance(&mut self, now: Instant, direction: Direction, traffic: Traffic) -> usize {
        let bytes = self.buckets().allowance(now, direction, traffic);
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
        let until = self.buckets().next_available(now, direction, traffic, self.quantum_bytes);
        let until = until.unwrap_or(now + Duration::from_secs(1)).max(now + WAIT_MIN);
        self.waiting_until = Some(self.waiting_until.map_or(until, |set| set.min(until)));
    }

    pub fn take(&mut self, direction: Direction, traffic: Traffic, bytes: usize) {
        self.buckets().take(direction, traffic, bytes as u64);
    }

    /// When to look again.
    pub fn waiting_until(&self) -> Option<Instant> {
        self.waiting_until
    }

    /// A link has something to do once a rate allows more.
    pub fn hold_link(&mut self, link: LinkKey) {
        self.links.insert(link);
    }

    /// Likewise a stream's connection.
    pub fn hold_socket(&mut self, socket: SocketId) {
        self.sockets.insert(socket);
    }

    /// Who waits, if it is time to look again: links, and connections of streams. Nobody else is told, or idle channels would cost
    /// work a hundred times a second.
    pub fn take_due(&mut self, now: Instant) -> Option<(Vec<LinkKey>, Vec<SocketId>)> {
        self.waiting_until.take_if(|until| *until <= now)?;
        self.rounds = self.rounds.wrapping_add(1);
        let (links, sockets) = (core::mem::take(&mut self.links), core::mem::take(&mut self.sockets));
        Some((rotated(links, self.rounds), rotated(sockets, self.rounds)))
    }
}

fn rotated<T>(all: BTreeSet<T>, rounds: usize) -> Vec<T> {
    let mut all: Vec<T> = all.into_iter().collect();
    let first = rounds % all.len().max(1);
    all.rotate_left(first);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::Limit;
    use crate::ids::{Ed25519Id, RelayIds, RsaId};
    use crate::node::ShardId;
    use crate::relay::{DosOptions, Limits, Scheduler};
    use proptest::prelude::*;

    const RATE_BYTES_PER_S: u64 = 1_000_000;

    fn shards(count: usize) -> Vec<Rates> {
        let limit = Limit { rate_bytes_per_s: RATE_BYTES_PER_S, burst_bytes: RATE_BYTES_PER_S };
        let config = RelayConfig {
            ids: RelayIds { rsa: RsaId([1; 20]), ed25519: Ed25519Id([1; 32]) },
            addrs: Vec::new(),
            exit_policy: None,
            ipv6_exit: false,
            refuse_unknown_exits: Some(false),
            dos: DosOptions::default(),
            hop_by_hop_flow_control: None,
            extend_to_private: false,
            max_queue_bytes: 1 << 20,
            bandwidth: limit,
            relay_bandwidth: None,
            count_private_bandwidth: false,
            scheduler: Scheduler::RoundRobin,
            shard: ShardId(0),
            shards: 1,
            limits: Limits::default(),
        };
        let mut rates: Vec<Rates> = (0..count).map(|_| Rates::new(&config)).collect();
        let (first, rest) = rates.split_first_mut().expect("there is one");
        rest.iter_mut().for_each(|rates| rates.share_buckets(first));
        rates
    }

    /// A rate that is used up wakes those up that it held back, each once, and another one first each time.
    #[test]
    fn nobody_is_told_who_was_not_held_back() {
        let rates = &mut shards(1)[0];
        let mut firsts = BTreeSet::new();
        for round in 1..=2 {
            rates.take(Direction::Write, Traffic::Relayed, 2 * RATE_BYTES_PER_S as usize);
            for number in [5, 7, 5] {
                rates.hold_socket(SocketId::accepted(number));
            }
            rates.wait(Instant::ZERO, Direction::Write, Traffic::Relayed);
            assert_eq!(rates.take_due(Instant::ZERO), None);
            let (links, sockets) =
                rates.take_due(Instant::ZERO + Duration::from_secs(60 * round)).expect("it is time");
            assert_eq!((links.len(), sockets.len()), (0, 2));
            firsts.insert(sockets[0]);
            assert_eq!(rates.take_due(Instant::ZERO + Duration::from_secs(60 * round)), None);
        }
        assert_eq!(firsts.len(), 2);
    }

    proptest! {
        /// Whichever shards ask, and however often: together they pass the burst and what came since, to the byte.
        #[test]
        fn shards_keep_to_the_rate_in_sum_and_use_it(
            asks in prop::collection::vec((0_usize..4, 1_u64..20_000_000), 1..300),
        ) {
            let (mut shards, mut now, mut passed) = (shards(4), Instant::ZERO, 0);
            for (shard, gap_ns) in asks {
                let rates = &mut shards[shard];
                let bytes = rates.allowance(now, Direction::Write, Traffic::Relayed);
                rates.take(Direction::Write, Traffic::Relayed, bytes);
                passed += bytes as u64;
                now = Instant::from_nanos(now.as_nanos() + gap_ns);
            }
            passed += shards[0].allowance(now, Direction::Write, Traffic::Relayed) as u64;
            let come = u128::from(RATE_BYTES_PER_S) * u128::from(now.as_nanos()) / 1_000_000_000;
            prop_assert_eq!(u128::from(passed), u128::from(RATE_BYTES_PER_S) + come);
        }
    }
}
