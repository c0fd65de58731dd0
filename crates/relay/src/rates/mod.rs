//! The operator's rates at work: which sockets wait for them, and until when.

mod queue;

use crate::config::RelayConfig;
use crate::keys::LinkKey;
use heddle_proto::bucket::{Buckets, Direction, Traffic};
use heddle_proto::cell::CELL_LEN;
use heddle_seam::node::SocketId;
use heddle_seam::time::{Duration, Instant};
use queue::{Queue, Waiting};
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
pub(crate) struct Rates {
    buckets: Arc<Mutex<Buckets>>,
    quantum_bytes: u64,
    /// Who had something to read or to write and was held back. Whoever is over by then is skipped when they look
    /// again.
    read: Waiting,
    write: Waiting,
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
            read: Waiting::default(),
            write: Waiting::default(),
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
        let crowded = !self.waiting(direction).is_empty();
        let parts = if crowded { self.turns(bytes, direction) } else { SHARE_PARTS };
        (self.passes(bytes) / parts).max(least_share(direction)).min(bytes)
    }

    /// How many that wait may look when so much may pass: as many as it serves, each with a share that is worth the
    /// look.
    fn turns(&self, bytes: usize, direction: Direction) -> usize {
        let bytes = self.passes(bytes);
        let shares = bytes / (bytes / SHARE_PARTS).max(least_share(direction));
        shares.max(bytes / QUANTUM_BYTES as usize).max(1)
    }

    fn passes(&self, bytes: usize) -> usize {
        bytes.max(usize::try_from(self.quantum_bytes).unwrap_or(usize::MAX))
    }

    fn waiting(&mut self, direction: Direction) -> &mut Waiting {
        match direction {
            Direction::Read => &mut self.read,
            Direction::Write => &mut self.write,
        }
    }

    /// Wakes the shard up when a few cells may pass again.
    pub fn wait(&mut self, now: Instant, direction: Direction, traffic: Traffic) {
        let until = self.next_quantum(now, direction, traffic).max(now + WAIT_MIN);
        self.waiting(direction).wake_at(until, false);
    }

    fn next_quantum(&self, now: Instant, direction: Direction, traffic: Traffic) -> Instant {
        let until = self.buckets().next_available(now, direction, traffic, self.quantum_bytes);
        until.unwrap_or(now + Duration::from_secs(1))
    }

    pub fn take(&mut self, direction: Direction, traffic: Traffic, bytes: usize) {
        self.buckets().take(direction, traffic, bytes as u64);
    }

    /// When to look again.
    pub fn waiting_until(&self) -> Option<Instant> {
        [self.read.until, self.write.until].into_iter().flatten().min()
    }

    /// A link has something to do once a rate allows more.
    pub fn hold_link(&mut self, link: LinkKey, direction: Direction) {
        self.waiting(direction).links.push(link);
    }

    /// Likewise a stream's connection.
    pub fn hold_socket(&mut self, socket: SocketId, direction: Direction) {
        self.waiting(direction).sockets.push(socket);
    }

    /// Forgets those that are over.
    pub fn sweep(&mut self, has_link: impl Fn(&LinkKey) -> bool, has_socket: impl Fn(&SocketId) -> bool) {
        for waiting in [&mut self.read, &mut self.write] {
            waiting.links.retain(&has_link);
            waiting.sockets.retain(&has_socket);
        }
    }

    /// Who waits, if it is time to look again: links, and connections of streams. Nobody else is told, or idle channels
    /// would cost work a hundred times a second; and no more of them than what may pass is enough for, or thousands
    /// that wait would. Links that are to write and have ranks come in their order.
    pub fn take_due(
        &mut self,
        now: Instant,
        rank: Option<&dyn Fn(&LinkKey) -> f64>,
    ) -> Option<(Vec<LinkKey>, Vec<SocketId>)> {
        let (mut due, mut links, mut sockets) = (false, Vec::new(), Vec::new());
        for direction in [Direction::Read, Direction::Write] {
            let waiting = self.waiting(direction);
            if waiting.until.take_if(|until| *until <= now).is_none() {
                continue;
            }
            due = true;
            let goes_on = core::mem::take(&mut waiting.goes_on);
            let rank = rank.filter(|_| direction == Direction::Write);
            links.extend(self.look(
                now,
                (direction, Traffic::Relayed),
                goes_on,
                |waiting| &mut waiting.links,
                rank,
            ));
            sockets.extend(self.look(
                now,
                (direction, Traffic::Own),
                goes_on,
                |waiting| &mut waiting.sockets,
                None,
            ));
        }
        due.then_some((links, sockets))
    }

    /// Those whose turn it is. The others have theirs when these have passed what they may, be it all that there is or
    /// not.
    fn look<T: Ord + Copy>(
        &mut self,
        now: Instant,
        (direction, traffic): (Direction, Traffic),
        goes_on: bool,
        queue: fn(&mut Waiting) -> &mut Queue<T>,
        rank: Option<&dyn Fn(&T) -> f64>,
    ) -> Vec<T> {
        if queue(self.waiting(direction)).is_empty() {
            return Vec::new();
        }
        let bytes = self.allowance(now, direction, traffic);
        let ready_at = self.next_quantum(now, direction, traffic);
        if bytes == 0 || goes_on && ready_at > now {
            self.waiting(direction).wake_at(ready_at.max(now + WAIT_MIN), false);
            return Vec::new();
        }
        let turns = self.turns(bytes, direction);
        let first = queue(self.waiting(direction)).take(turns, rank);
        if !queue(self.waiting(direction)).is_empty() {
            self.waiting(direction).wake_at(now + WAIT_MIN, true);
        }
        first
    }
}

/// The smallest share.
fn least_share(direction: Direction) -> usize {
    match direction {
        Direction::Read => 1,
        Direction::Write => WRITE_BYTES_MIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_proto::bucket::Limit;
    use heddle_proto::ids::{Ed25519Id, RelayIds, RsaId};
    use proptest::prelude::*;

    const RATE_BYTES_PER_S: u64 = 1_000_000;

    fn shards(count: usize) -> Vec<Rates> {
        let limit = Limit { rate_bytes_per_s: RATE_BYTES_PER_S, burst_bytes: RATE_BYTES_PER_S };
        let ids = RelayIds { rsa: RsaId([1; 20]), ed25519: Ed25519Id([1; 32]) };
        let config = RelayConfig { max_queue_bytes: 1 << 20, bandwidth: limit, ..RelayConfig::new(ids) };
        let mut rates: Vec<Rates> = (0..count).map(|_| Rates::new(&config)).collect();
        let (first, rest) = rates.split_first_mut().expect("there is one");
        rest.iter_mut().for_each(|rates| rates.share_buckets(first));
        rates
    }

    /// A rate that is used up wakes those up that it held back, each once.
    #[test]
    fn nobody_is_told_who_was_not_held_back() {
        let rates = &mut shards(1)[0];
        for round in 1..=2 {
            rates.take(Direction::Write, Traffic::Relayed, 2 * RATE_BYTES_PER_S as usize);
            for number in [7, 5, 7] {
                rates.hold_socket(SocketId::accepted(number), Direction::Write);
            }
            rates.wait(Instant::ZERO, Direction::Write, Traffic::Relayed);
            assert_eq!(rates.take_due(Instant::ZERO, None), None);
            let later = Instant::ZERO + Duration::from_secs(60 * round);
            assert_eq!(rates.take_due(later, None), Some((vec![], [7, 5].map(SocketId::accepted).to_vec())));
            assert_eq!(rates.take_due(later, None), None);
        }
    }

    /// Of many that wait as many are told as the rate serves, first those who came first, and nobody who is over.
    #[test]
    fn no_more_are_told_than_the_rate_serves() {
        let rates = &mut shards(1)[0];
        rates.take(Direction::Read, Traffic::Own, RATE_BYTES_PER_S as usize);
        (0..1000).for_each(|number| rates.hold_socket(SocketId::accepted(number), Direction::Read));
        rates.sweep(|_| true, |socket| socket.get() != SocketId::accepted(3).get());
        rates.wait(Instant::ZERO, Direction::Read, Traffic::Own);
        let mut told = Vec::new();
        while let Some(now) =
            rates.waiting_until().filter(|now| *now < Instant::ZERO + Duration::from_secs(1))
        {
            let (_, sockets) = rates.take_due(now, None).expect("it is time");
            assert!(sockets.len() <= 8, "{} at once", sockets.len());
            if !sockets.is_empty() {
                rates.take(Direction::Read, Traffic::Own, rates.quantum_bytes as usize);
            }
            told.extend(sockets);
        }
        let first = (0..1000).filter(|number| *number != 3).take(told.len());
        assert_eq!(told, first.map(SocketId::accepted).collect::<Vec<_>>());
        assert!((700..=800).contains(&told.len()), "{} in a second", told.len());
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
