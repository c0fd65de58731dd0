//! What is kept of one flow's bytes, at most, and since when.
//!
//! Every frame that came is charged what it takes while it is kept ([`Arrival`]). Bytes go as the relay takes cells, in
//! order; which frames they came in is not followed one by one, but by a *mark*: once everything below the end that the
//! flow had when the mark was set has been taken, nothing is left of what had come by then.

use super::arrivals::Arrival;
use heddle_seam::time::Instant;

/// What quinn-proto may keep beyond the bytes themselves before it copies them together (`assembler.rs` of quinn-proto
/// 0.11: one and a half times the bytes, and 32 KiB at least), and for how many pieces of what it then has.
const SLACK_MIN: u64 = 32 * 1024;
const PIECES_MAX: u64 = 2048;
const PIECE_BYTES: u64 = 112;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backlog {
    /// The offset behind the last byte that came, and behind the last that was taken.
    end: u64,
    taken: u64,
    /// What was charged for all that came, and for that of it which is gone.
    charged: u64,
    gone: u64,
    /// How many frames came, and how many of them are gone.
    frames: u64,
    frames_gone: u64,
    since: Instant,
    mark: Mark,
    /// Bytes of ours that the peer's windows did not take.
    unwritten: usize,
}

/// What had come by a time.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    end: u64,
    charged: u64,
    frames: u64,
    at: Instant,
}

impl Backlog {
    pub(super) fn new(now: Instant) -> Self {
        Backlog { since: now, ..Backlog::default() }
    }

    pub(super) fn arrive(&mut self, now: Instant, arrival: &Arrival) {
        if arrival.end <= self.taken {
            return;
        }
        let is_first = self.taken == self.end;
        self.end = self.end.max(arrival.end);
        self.charged += arrival.bytes;
        self.frames += arrival.frames;
        if is_first {
            self.set_mark(now);
        }
        if is_first && self.unwritten == 0 {
            self.since = now;
        }
    }

    /// So many bytes of ours wait for the peer's windows.
    pub(super) fn set_unwritten(&mut self, now: Instant, bytes: usize) {
        if self.buffered_bytes() == 0 {
            self.since = now;
        }
        self.unwritten = bytes;
    }

    /// The relay took so many bytes more.
    pub(super) fn take(&mut self, now: Instant, bytes: u64) {
        self.taken += bytes;
        if self.taken >= self.end {
            (self.gone, self.frames_gone) = (self.charged, self.frames);
            self.since = if self.unwritten == 0 { now } else { self.since };
        } else if self.taken >= self.mark.end {
            (self.gone, self.frames_gone, self.since) = (self.mark.charged, self.mark.frames, self.mark.at);
            self.set_mark(now);
        }
    }

    fn set_mark(&mut self, now: Instant) {
        self.mark = Mark { end: self.end, charged: self.charged, frames: self.frames, at: now };
    }

    /// Bytes of memory that what came takes, at most: no more than was charged, and no more than quinn-proto keeps of a
    /// stream.
    pub(super) fn kept_bytes(&self) -> usize {
        let span = self.end.saturating_sub(self.taken);
        if span == 0 {
            return 0;
        }
        let kept_max = span + SLACK_MIN.max(span + span / 2) + span.min(PIECES_MAX) * PIECE_BYTES;
        usize::try_from(kept_max.min(self.charged - self.gone)).unwrap_or(usize::MAX)
    }

    /// Frames of which something may be kept.
    pub(super) fn pieces(&self) -> u64 {
        self.frames - self.frames_gone
    }

    /// The same with what waits to be written.
    pub(super) fn buffered_bytes(&self) -> usize {
        self.kept_bytes() + self.unwritten
    }

    /// The oldest that is kept came no sooner; without any: since when there is none.
    pub(super) fn since(&self) -> Instant {
        self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use quinn_proto::{Dir, Side, StreamId};

    fn arrival(end: u64, bytes: u64) -> Arrival {
        Arrival { stream: StreamId::new(Side::Client, Dir::Bi, 0), end, frames: 1, bytes, is_reset: false }
    }

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    #[test]
    fn what_is_taken_is_gone_and_what_is_kept_is_as_old_as_it_says() {
        let mut backlog = Backlog::default();
        backlog.arrive(at(1), &arrival(1000, 1100));
        backlog.arrive(at(2), &arrival(2000, 1100));
        assert_eq!((backlog.buffered_bytes(), backlog.since()), (2200, at(1)));
        backlog.take(at(3), 1000);
        assert_eq!((backlog.buffered_bytes(), backlog.since()), (1100, at(1)));
        backlog.arrive(at(4), &arrival(3000, 1100));
        backlog.take(at(5), 1000);
        assert_eq!((backlog.buffered_bytes(), backlog.since()), (1100, at(3)));
        backlog.take(at(6), 1000);
        assert_eq!(backlog.buffered_bytes(), 0);
        backlog.arrive(at(7), &arrival(3000, 1100));
        assert_eq!(backlog.buffered_bytes(), 0, "it was taken before");
        backlog.arrive(at(8), &arrival(3001, 1100));
        assert_eq!((backlog.buffered_bytes(), backlog.since()), (1100, at(8)));
    }

    #[test]
    fn what_comes_again_is_kept_once() {
        let mut backlog = Backlog::default();
        for _ in 0..1_000_000 {
            backlog.arrive(at(0), &arrival(2, 1500));
        }
        assert!(backlog.buffered_bytes() < 40_000, "{}", backlog.buffered_bytes());
    }

    proptest! {
        /// Frames that cover the stream in any order, and a reader who takes what is there in order: what is charged
        /// for the frames that are not wholly taken is never more than what is said to be held.
        #[test]
        fn no_frame_that_is_kept_is_forgotten(
            order in Just((0_u64..100).collect::<Vec<_>>()).prop_shuffle(),
            reads in prop::collection::vec(any::<bool>(), 100),
        ) {
            let (mut backlog, mut came, mut taken) = (Backlog::default(), [false; 100], 0);
            for (step, (frame, reads)) in order.into_iter().zip(reads).enumerate() {
                let now = at(step as u64);
                backlog.arrive(now, &arrival((frame + 1) * 100, 300));
                came[frame as usize] = true;
                while reads && taken < 100 && came[taken] {
                    backlog.take(now, 100);
                    taken += 1;
                }
                let kept = came[taken..].iter().filter(|came| **came).count();
                prop_assert!(backlog.buffered_bytes() >= kept * 300);
                prop_assert_eq!(backlog.buffered_bytes() == 0, kept == 0);
            }
        }
    }
}
