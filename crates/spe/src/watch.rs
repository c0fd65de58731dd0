//! Who looks at what, and when next. Every observee is off until somebody turns it on.

use core::time::Duration;
use std::collections::BTreeMap;

/// How many watches there are at most.
const WATCHES_MAX: usize = 32;
/// The shortest time between two looks.
pub const PERIOD_MIN: Duration = Duration::from_millis(1);

/// Which watch; none has the number of an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub u64);

/// When somebody looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// Again and again, after so much time.
    Every(Duration),
    /// When the program comes to the place of that name.
    At(String),
}

/// What somebody looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The family, by name.
    pub family: String,
    /// One observee of it. `None`: all.
    pub index: Option<u64>,
    /// When.
    pub when: When,
    /// The observer that makes records of what is seen, by name. `None`: the fields as they are.
    pub observer: Option<String>,
}

/// All that is being looked at.
#[derive(Clone, Debug, Default)]
pub struct Watches {
    kept: BTreeMap<WatchId, Kept>,
    made: u64,
}

#[derive(Clone, Debug)]
struct Kept {
    watch: Watch,
    /// When those that look again and again do so next, by the time that counts from one moment for all.
    next: Option<Duration>,
}

impl Watches {
    /// Begins to look; the first look of one that looks again and again is due now. `None` when there are too many
    /// already. Periods below [`PERIOD_MIN`] become that.
    pub fn begin(&mut self, now: Duration, mut watch: Watch) -> Option<WatchId> {
        if self.kept.len() >= WATCHES_MAX {
            return None;
        }
        let next = match &mut watch.when {
            When::Every(period) => {
                *period = (*period).max(PERIOD_MIN);
                Some(now)
            }
            When::At(_) => None,
        };
        let id = WatchId(self.made);
        self.made += 1;
        self.kept.insert(id, Kept { watch, next });
        Some(id)
    }

    /// Looks no more. Whether there was such a watch.
    pub fn end(&mut self, id: WatchId) -> bool {
        self.kept.remove(&id).is_some()
    }

    /// What is looked at.
    pub fn get(&self, id: WatchId) -> Option<&Watch> {
        self.kept.get(&id).map(|kept| &kept.watch)
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (WatchId, &Watch)> {
        self.kept.iter().map(|(id, kept)| (*id, &kept.watch))
    }

    /// When the next look is due.
    pub fn next(&self) -> Option<Duration> {
        self.kept.values().filter_map(|kept| kept.next).min()
    }

    /// The watches whose time has come. The next time of each is counted from now: who was late makes nothing up.
    pub fn due(&mut self, now: Duration) -> Vec<WatchId> {
        let mut due = Vec::new();
        for (id, kept) in &mut self.kept {
            if let (When::Every(period), Some(next)) = (&kept.watch.when, &mut kept.next)
                && *next <= now
            {
                *next = now + *period;
                due.push(*id);
            }
        }
        due
    }

    /// The watches that look at a place of the program.
    pub fn at<'a>(&'a self, place: &'a str) -> impl Iterator<Item = WatchId> + 'a {
        let looks = move |kept: &Kept| matches!(&kept.watch.when, When::At(at) if at == place);
        self.kept.iter().filter(move |(_, kept)| looks(kept)).map(|(id, _)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(when: When) -> Watch {
        Watch { family: "lanes".to_owned(), index: None, when, observer: None }
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn each_has_its_own_period_and_makes_up_for_nothing() {
        let mut watches = Watches::default();
        let often = watches.begin(Duration::ZERO, watch(When::Every(10 * MS))).unwrap();
        let seldom = watches.begin(Duration::ZERO, watch(When::Every(25 * MS))).unwrap();
        let mut looks = Vec::new();
        while let Some(next) = watches.next().filter(|next| *next <= 50 * MS) {
            looks.extend(watches.due(next).into_iter().map(|id| (next.as_millis(), id)));
        }
        let of = |id| looks.iter().filter(|look| look.1 == id).map(|look| look.0).collect::<Vec<_>>();
        assert_eq!(of(often), [0, 10, 20, 30, 40, 50]);
        assert_eq!(of(seldom), [0, 25, 50]);
        assert_eq!(watches.due(1_000 * MS), [often, seldom]);
        assert_eq!(watches.next(), Some(1_010 * MS));
        assert!(watches.end(often) && !watches.end(often) && watches.get(often).is_none());
        assert_eq!(watches.next(), Some(1_025 * MS));
    }

    #[test]
    fn a_place_is_looked_at_when_the_program_comes_there() {
        let mut watches = Watches::default();
        let id = watches.begin(Duration::ZERO, watch(When::At("before-write".to_owned()))).unwrap();
        assert_eq!(watches.next(), None);
        assert_eq!(watches.at("before-write").collect::<Vec<_>>(), [id]);
        assert_eq!(watches.at("elsewhere").count(), 0);
    }

    #[test]
    fn there_are_so_many_at_most_and_none_too_often() {
        let mut watches = Watches::default();
        let ids: Vec<_> =
            (0..100).map_while(|_| watches.begin(MS, watch(When::Every(Duration::ZERO)))).collect();
        assert_eq!(ids.len(), WATCHES_MAX);
        watches.due(MS);
        assert_eq!(watches.next(), Some(MS + PERIOD_MIN));
        watches.end(ids[0]);
        let again = watches.begin(MS, watch(When::Every(MS))).unwrap();
        assert!(!ids.contains(&again), "numbers are not used again");
    }
}
