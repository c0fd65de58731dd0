//! When channels may send cells: always, or in runs that are an interval apart, as under stock Tor's KIST.

use crate::keys::LinkKey;
use heddle_seam::time::{Duration, Instant};
use std::collections::BTreeSet;

/// Stock's scheduler runs, gives each channel what its kernel would send soon, and does not run again before an
/// interval is over (`KISTSchedRunInterval`, 10 ms; `kist_scheduler_schedule` of tor). Where it did not run for longer,
/// a cell leaves at once.
#[derive(Debug)]
pub(crate) struct Runs {
    /// Zero where there are no runs, and cells leave whenever there is room.
    interval: Duration,
    last: Option<Instant>,
    /// Links with cells that came between two runs: at most each link of the shard once.
    waiting: BTreeSet<LinkKey>,
}

impl Runs {
    pub fn new(interval: Duration) -> Self {
        Runs { interval, last: None, waiting: BTreeSet::new() }
    }

    /// Whether cells may leave now.
    pub fn is_on(&self, now: Instant) -> bool {
        self.last.is_none_or(|last| now == last || now >= last + self.interval)
    }

    /// Cells left, so that this is when the scheduler ran. Those that waited are part of the run: whoever begins one
    /// would put it off for them else.
    pub fn begin(&mut self, now: Instant) -> impl Iterator<Item = LinkKey> + use<> {
        self.last = Some(now);
        core::mem::take(&mut self.waiting).into_iter()
    }

    /// The link has cells for the next run.
    pub fn wait(&mut self, link: LinkKey) {
        self.waiting.insert(link);
    }

    /// When somebody waits for a run, and that is.
    pub fn next(&self) -> Option<Instant> {
        self.last.filter(|_| !self.waiting.is_empty()).map(|last| last + self.interval)
    }

    /// Those that waited, if the next run is on.
    pub fn take_due(&mut self, now: Instant) -> impl Iterator<Item = LinkKey> + use<> {
        let is_due = self.next().is_some_and(|next| next <= now);
        is_due.then(|| core::mem::take(&mut self.waiting)).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotmap::SlotMap;

    #[test]
    fn runs_are_an_interval_apart_and_the_first_is_at_once() {
        let mut links: SlotMap<LinkKey, ()> = SlotMap::with_key();
        let (one, other) = (links.insert(()), links.insert(()));
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut runs = Runs::new(Duration::from_millis(10));
        assert!(runs.is_on(at(3)) && runs.next().is_none());
        assert_eq!(runs.begin(at(3)).count(), 0);
        assert!(runs.is_on(at(3)) && !runs.is_on(at(4)) && !runs.is_on(at(12)) && runs.is_on(at(13)));
        assert_eq!(runs.next(), None, "nobody waits");
        [other, one, other].into_iter().for_each(|link| runs.wait(link));
        assert_eq!((runs.next(), runs.take_due(at(12)).count()), (Some(at(13)), 0));
        assert_eq!(runs.take_due(at(13)).collect::<Vec<_>>(), [one, other]);
        assert_eq!((runs.next(), runs.take_due(at(99)).count()), (None, 0));
        // After a pause it runs at once again.
        runs.wait(other);
        assert_eq!(runs.begin(at(14)).collect::<Vec<_>>(), [other], "it need not wait for a time-out");
        assert!(runs.is_on(at(50)));
    }

    #[test]
    fn without_an_interval_there_is_no_waiting() {
        let mut runs = Runs::new(Duration::ZERO);
        assert_eq!(runs.begin(Instant::ZERO).count(), 0);
        assert!(runs.is_on(Instant::ZERO) && runs.is_on(Instant::ZERO + Duration::from_nanos(1)));
    }
}
