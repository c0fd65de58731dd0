//! N3 that follows congestion (DefenestraTor, section 4.2, "adaptive buffer sizes").
//!
//! The paper lowers N3 "when there is downstream congestion, which is detected by monitoring the delay that cells
//! experience in the connection's output buffer", raises it when that subsides, does so "periodically", and bounds it
//! to 100 and 500 cells. By how much, when and at which delays it does not say; these numbers are ours.

use heddle_seam::time::{Duration, Instant};

/// The paper's bounds.
const LEAST_CELLS: u16 = 100;
pub(super) const MOST_CELLS: u16 = 500;

/// How often N3 changes at most: about a round trip between relays.
const PERIOD: Duration = Duration::from_millis(100);
/// A mean delay in a period above which the next hop is congested, and N3 is halved.
const CONGESTED: Duration = Duration::from_millis(50);
/// And one below which it is not, and N3 grows.
const FREE: Duration = Duration::from_millis(10);
const STEP_CELLS: u16 = 50;

#[derive(Clone, Debug)]
pub(super) struct AdaptiveN3 {
    cells: u16,
    /// Of the present period: when it ends, how long its cells waited in all, and how many they were.
    ends: Option<Instant>,
    waited: Duration,
    count: u32,
}

impl Default for AdaptiveN3 {
    fn default() -> Self {
        AdaptiveN3 { cells: MOST_CELLS, ends: None, waited: Duration::ZERO, count: 0 }
    }
}

impl AdaptiveN3 {
    pub fn cells(&self) -> u16 {
        self.cells
    }

    /// A cell left after it waited so long for its connection.
    pub fn on_waited(&mut self, now: Instant, waited: Duration) {
        self.waited = self.waited.saturating_add(waited);
        self.count = self.count.saturating_add(1);
        let ends = *self.ends.get_or_insert(now + PERIOD);
        if now < ends {
            return;
        }
        let mean = self.waited / self.count;
        if mean > CONGESTED {
            self.cells = (self.cells / 2).max(LEAST_CELLS);
        } else if mean < FREE {
            self.cells = (self.cells + STEP_CELLS).min(MOST_CELLS);
        }
        (self.ends, self.waited, self.count) = (Some(now + PERIOD), Duration::ZERO, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One cell for each period, which waited so many milliseconds.
    fn cells_after(waits_ms: &[u64]) -> Vec<u16> {
        let (mut n3, mut now) = (AdaptiveN3::default(), Instant::ZERO);
        n3.on_waited(now, Duration::ZERO);
        let waits = waits_ms.iter().map(|ms| {
            now += PERIOD;
            n3.on_waited(now, Duration::from_millis(*ms));
            n3.cells()
        });
        waits.collect()
    }

    #[test]
    fn it_stays_within_the_papers_bounds_and_follows_the_delay() {
        // The first cell, which did not wait, is of the first period: its mean is 40 ms.
        assert_eq!(cells_after(&[80, 80, 80, 80, 30, 5, 5]), [500, 250, 125, 100, 100, 150, 200]);
        assert_eq!(cells_after(&[0; 5]), [500; 5]);
        assert_eq!(cells_after(&[1000; 5])[4], 100);
    }

    #[test]
    fn it_changes_once_in_a_period() {
        let mut n3 = AdaptiveN3::default();
        for ms in 0..100 {
            n3.on_waited(Instant::ZERO + Duration::from_millis(ms), Duration::from_secs(1));
            assert_eq!(n3.cells(), 500);
        }
        n3.on_waited(Instant::ZERO + PERIOD, Duration::from_secs(1));
        assert_eq!(n3.cells(), 250);
    }
}
