//! How long the datagrams are that the path carries. The proofs find it first; a path may carry less later, and says so
//! by losing all that is longer (a black hole: RFC 8899, section 4.3).
//!
//! 1. A flow whose timer expires asks for a check, because all that it sends again is as long as before.
//! 2. Probes as long as the longest datagrams ask the peer for their length, three times. From the second on shorter
//!    ones do, too.
//! 3. If some come and the longest does not, datagrams are as long as the longest that came from then on. If none
//!    comes, the path is gone, and that is another's business.
//! 4. Every ten minutes longer ones are tried again.

use super::DATAGRAM_BYTES_MIN;
use heddle_seam::time::{Duration, Instant};

/// What paths carry that tunnels have narrowed.
const DATAGRAM_BYTES_TUNNELLED: u16 = 1350;

/// Probes of each length before it is given up.
const TRIES_MAX: u32 = 3;
/// How long the answers to probes are waited for at least.
const ANSWER_MIN: Duration = Duration::from_millis(100);
/// From the beginning of a check to the next one at least, because a path may lose so much that flows' timers expire
/// all the time.
const CHECK_EVERY: Duration = Duration::from_secs(2);

/// How often longer datagrams are tried than the path was found to carry (RFC 8899, section 5.1.1).
const RAISE_EVERY: Duration = Duration::from_secs(600);

/// The lengths that are tried, none longer than `most`.
pub(crate) fn lengths(most: u16) -> [u16; 3] {
    [most, DATAGRAM_BYTES_TUNNELLED.min(most), DATAGRAM_BYTES_MIN]
}

#[derive(Debug)]
pub(crate) struct Reach {
    /// Bytes of the longest datagrams, and what they would have on a path that carries them.
    bytes: u16,
    most: u16,
    raise_at: Instant,
    /// Whether longer ones are on their way.
    is_raising: bool,
    checked_at: Option<Instant>,
    check: Option<Check>,
}

#[derive(Debug)]
struct Check {
    /// When the next probes leave, or the check is over.
    due: Instant,
    tries: u32,
    /// The longest probe that came.
    seen_bytes: u16,
}

/// What is to be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Probes of these lengths leave.
    Probe(Vec<u16>),
    /// From now on datagrams have so many bytes at most.
    Shorten(u16),
}

impl Reach {
    /// Datagrams of so many bytes came. Longer ones than `most` are never sent.
    pub(crate) fn new(now: Instant, bytes: u16, most: u16) -> Self {
        Reach { bytes, most, raise_at: now + RAISE_EVERY, is_raising: false, checked_at: None, check: None }
    }

    /// A flow's timer expired.
    pub(crate) fn on_expired(&mut self, now: Instant) {
        // One that is under way goes on: on a path of a second it takes six.
        let is_late = self.check.is_none() && self.checked_at.is_none_or(|at| now.since(at) >= CHECK_EVERY);
        if is_late && self.bytes > DATAGRAM_BYTES_MIN {
            self.checked_at = Some(now);
            self.check = Some(Check { due: now, tries: 0, seen_bytes: 0 });
        }
    }

    /// A probe of so many bytes came. Gives how long datagrams are from now on, if they are longer than before.
    pub(crate) fn on_seen(&mut self, bytes: u16) -> Option<u16> {
        let bytes = bytes.min(self.most);
        if bytes >= self.bytes {
            self.check = None;
        } else if let Some(check) = &mut self.check {
            check.seen_bytes = check.seen_bytes.max(bytes);
        }
        let is_more = self.is_raising && bytes > self.bytes;
        is_more.then(|| {
            self.bytes = bytes;
            bytes
        })
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let raise_at = Some(self.raise_at).filter(|_| self.bytes < self.most);
        self.check.as_ref().map(|check| check.due).or(raise_at)
    }

    /// What is due now; `round_trip` is the path's.
    pub(crate) fn handle_timeout(&mut self, now: Instant, round_trip: Duration) -> Option<Step> {
        if self.check.is_none() {
            let is_due = self.bytes < self.most && self.raise_at <= now;
            return is_due.then(|| {
                (self.raise_at, self.is_raising) = (now + RAISE_EVERY, true);
                Step::Probe(lengths(self.most).into_iter().filter(|bytes| *bytes > self.bytes).collect())
            });
        }
        let check = self.check.as_mut().filter(|check| check.due <= now)?;
        check.tries += 1;
        check.due = now + ANSWER_MIN.max(2 * round_trip);
        if check.tries <= TRIES_MAX {
            let mut probed = lengths(self.bytes).to_vec();
            probed.dedup();
            probed.truncate(if check.tries == 1 { 1 } else { probed.len() });
            return Some(Step::Probe(probed));
        }
        let seen_bytes = check.seen_bytes;
        self.check = None;
        let longest = lengths(self.bytes).into_iter().find(|bytes| *bytes <= seen_bytes)?;
        self.bytes = longest;
        (self.raise_at, self.is_raising) = (now + RAISE_EVERY, false);
        Some(Step::Shorten(longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a check comes to on a path that carries so many bytes.
    fn check(reach: &mut Reach, at_s: u64, carries: u16) -> Vec<Step> {
        let mut now = Instant::ZERO + Duration::from_secs(at_s);
        reach.on_expired(now);
        let mut steps = Vec::new();
        while let Some(due) = reach.check.as_ref().map(|check| check.due) {
            now = now.max(due);
            let Some(step) = reach.handle_timeout(now, Duration::ZERO) else { break };
            if let Step::Probe(probed) = &step {
                for bytes in probed.iter().filter(|bytes| **bytes <= carries) {
                    assert_eq!(reach.on_seen(*bytes), None);
                }
            }
            steps.push(step);
        }
        steps
    }

    #[test]
    fn a_path_that_carries_less_is_found_out_step_by_step() {
        let mut reach = Reach::new(Instant::ZERO, 1452, 1452);
        assert_eq!(check(&mut reach, 0, 1500), [Step::Probe(vec![1452])]);
        let all = || Step::Probe(vec![1452, 1350, 1200]);
        assert_eq!(check(&mut reach, 10, 0), [Step::Probe(vec![1452]), all(), all()]);
        let steps = [Step::Probe(vec![1452]), all(), all(), Step::Shorten(1350)];
        assert_eq!(check(&mut reach, 20, 1400), steps);
        let less = || Step::Probe(vec![1350, 1200]);
        let steps = [Step::Probe(vec![1350]), less(), less(), Step::Shorten(1200)];
        assert_eq!(check(&mut reach, 30, 1252), steps);
        assert_eq!(check(&mut reach, 40, 0), []);
    }

    #[test]
    fn timers_that_expire_meanwhile_begin_no_check_anew() {
        let mut reach = Reach::new(Instant::ZERO, 1452, 1452);
        let round_trip = Duration::from_millis(900);
        let found = (0..20_000).step_by(100).find_map(|ms| {
            let now = Instant::ZERO + Duration::from_millis(ms);
            reach.on_expired(now);
            let step = reach.handle_timeout(now, round_trip)?;
            if let Step::Probe(probed) = &step {
                probed.iter().filter(|bytes| **bytes < 1452).for_each(|bytes| _ = reach.on_seen(*bytes));
            }
            matches!(step, Step::Shorten(1350)).then_some(ms)
        });
        assert_eq!(found, Some(5_400), "three times two round trips");
    }

    #[test]
    fn longer_ones_are_tried_again() {
        let mut reach = Reach::new(Instant::ZERO, 1200, 1452);
        assert_eq!(reach.poll_timeout(), Some(Instant::ZERO + RAISE_EVERY));
        // Nothing was asked.
        assert_eq!(reach.on_seen(1452), None);
        let mut try_at =
            |times: u32| reach.handle_timeout(Instant::ZERO + times * RAISE_EVERY, Duration::ZERO);
        assert_eq!(try_at(1), Some(Step::Probe(vec![1452, 1350])));
        assert_eq!(try_at(2), Some(Step::Probe(vec![1452, 1350])));
        assert_eq!((reach.on_seen(1350), reach.on_seen(9000)), (Some(1350), Some(1452)));
        assert_eq!(reach.poll_timeout(), None);
    }

    #[test]
    fn timers_that_expire_all_the_time_ask_for_few_checks() {
        let mut reach = Reach::new(Instant::ZERO, 1452, 1452);
        let expired = |reach: &mut Reach, ms: u64| {
            reach.on_expired(Instant::ZERO + Duration::from_millis(ms));
            let is_checked = reach.check.is_some();
            reach.on_seen(1452);
            is_checked
        };
        let checks = (0..60_000).step_by(100).filter(|ms| expired(&mut reach, *ms)).count();
        assert_eq!(checks, 30);
    }
}
