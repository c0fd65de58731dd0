//! DESTROY cells that wait to be sent. They are no circuits, and still take an id and memory of a channel until its
//! peer reads.
//!
//! 1. A circuit ends, or is refused: DESTROY joins the others of its link, before all cells.
//! 2. A few of each channel are counted by nobody. What is beyond that counts as circuits of who is to read it: a
//!    circuit that is broken makes room for another only when its DESTROY has left.
//! 3. A channel that had more than these few for a minute is ended, however much of the others its peer reads.
//!
//! Connections with flows need no such count: their endpoints take each DESTROY at once, whatever else they can send.

use heddle_seam::time::{Duration, Instant};

/// DESTROY cells of a channel that nobody counts: 256 × 33 bytes for each of a shard's 16,000 channels are 135 MB. A
/// stranger that leaves as many unread gets no circuits and no answers.
const UNCOUNTED_MAX: usize = 256;
/// A peer that reads has them all within a round trip.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(60);

/// What is counted of a link's DESTROY cells.
#[derive(Debug)]
pub(crate) struct Farewells {
    /// How many count as circuits, and since when some do.
    counted: usize,
    since: Instant,
}

impl Default for Farewells {
    fn default() -> Self {
        Farewells { counted: 0, since: Instant::ZERO }
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
        if before == 0 {
            self.since = now;
        }
        (before != counted).then_some(counted)
    }

    /// Whether the peer leaves many unread.
    pub fn are_left_unread(&self, now: Instant) -> bool {
        self.counted > 0 && now.since(self.since) >= UNREAD_TIMEOUT
    }
}
