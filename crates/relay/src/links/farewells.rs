//! DESTROY cells that wait to be sent. They are no circuits, and still take an id and memory of a channel until its
//! peer reads.
//!
//! 1. A circuit ends, or is refused: DESTROY joins the others of its link. It overtakes cells, but of those of others
//!    one goes between two DESTROYs.
//! 2. A few of each channel are counted by nobody. What is beyond that counts as circuits of who is to read it: a
//!    circuit that is broken makes room for another only when its DESTROY has left.
//! 3. A channel that had more than these few for a minute, in which no more than so many left, is ended, however much
//!    else its peer reads.
//!
//! Connections with flows need no such count: their endpoints take each DESTROY at once, whatever else they can send.

use heddle_seam::time::{Duration, Instant};

/// DESTROY cells of a channel that nobody counts: 256 × 33 bytes for each of a shard's 16,000 channels are 135 MB. A
/// stranger that leaves as many unread gets no circuits and no answers.
const UNCOUNTED_MAX: usize = 256;
/// A peer that reads has so many as may go uncounted within some round trips.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(60);

/// What is counted of a link's DESTROY cells.
#[derive(Debug)]
pub(crate) struct Farewells {
    /// How many wait, and how many of these count as circuits.
    waiting: usize,
    counted: usize,
    /// Since when some do, or so many left as may go uncounted, and how many left since then.
    since: Instant,
    left: usize,
}

impl Default for Farewells {
    fn default() -> Self {
        Farewells { waiting: 0, counted: 0, since: Instant::ZERO, left: 0 }
    }
}

impl Farewells {
    /// Whether a link on which so many wait may have one more without its being counted.
    pub fn are_few(waiting: usize) -> bool {
        waiting < UNCOUNTED_MAX
    }

    /// So many wait now. Returns how many of them count, if these are more or fewer than before.
    pub fn count(&mut self, now: Instant, waiting: usize) -> Option<usize> {
        let counted = waiting.saturating_sub(UNCOUNTED_MAX);
        let before = core::mem::replace(&mut self.counted, counted);
        let waited = core::mem::replace(&mut self.waiting, waiting);
        self.left += waited.saturating_sub(waiting);
        if before == 0 || self.left >= UNCOUNTED_MAX {
            (self.since, self.left) = (now, 0);
        }
        (before != counted).then_some(counted)
    }

    /// Whether the peer leaves many unread.
    pub fn are_left_unread(&self, now: Instant) -> bool {
        self.counted > 0 && now.since(self.since) >= UNREAD_TIMEOUT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds until a channel with more than the few is ended, of which so many leave in a second.
    fn ended_after_s(leave: usize) -> Option<u64> {
        let mut farewells = Farewells::default();
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        (0..600).find(|second| {
            let waiting = 10_000 - leave * *second as usize;
            farewells.count(at(*second), waiting);
            farewells.are_left_unread(at(*second))
        })
    }

    #[test]
    fn a_slow_reader_is_not_one_that_leaves_them_unread() {
        assert_eq!(ended_after_s(0), Some(60));
        assert_eq!(ended_after_s(2), Some(60));
        assert_eq!(ended_after_s(5), None, "256 leave in less than a minute");
    }
}
