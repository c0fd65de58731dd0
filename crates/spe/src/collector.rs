//! Static collection: times and counts at places of a program that were chosen when it was written, on and off while it
//! runs (`start_timing`, `stop_timing`, `data_point` and `period` of libspe; J. Reardon's thesis, section 4.2).

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hdrhistogram::Histogram;

/// How many series a collector has at most: one bit says whether a series is on.
pub const SERIES_MAX: usize = 64;
/// How many indices of a series are kept apart. What comes at further ones is kept together.
pub const INDICES_MAX: usize = 15;
/// The largest value that is told from larger ones: in nanoseconds 18 minutes.
pub const VALUE_MAX: u64 = 1 << 40;
/// Values are told apart to a hundredth of themselves.
const DIGITS: u8 = 2;

/// What is collected at one place or several: a family in libspe's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Series {
    /// Its name, for people who turn it on.
    pub name: &'static str,
    /// The unit of its values.
    pub unit: &'static str,
    /// What a value is, in a sentence.
    pub about: &'static str,
}

/// Which of a collector's series: its place in their table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeriesId(pub u8);

/// Which of the things that a series is about: a shard, a transport, a scheduler. The program says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Index {
    /// This one.
    Of(u32),
    /// Those beyond the first [`INDICES_MAX`] together.
    Others,
}

/// Tells the time. A program without a clock of its own, as a simulated one, lends what it has.
pub trait Clock: Send + Sync {
    /// Nanoseconds since some moment; never less than before.
    fn now_ns(&self) -> u64;
}

/// When something began, if its series was on then.
#[derive(Clone, Copy, Debug)]
#[must_use = "a time is taken when it is handed to `stop`"]
pub struct Timer(Option<u64>);

/// Takes times and counts down, from any thread.
///
/// What it keeps is bounded by [`SERIES_MAX`] × ([`INDICES_MAX`] + 1) histograms of 35 × 128 counts of 4 bytes:
/// 17.5 MiB if everything was on at once, and nothing while nothing was ever on.
pub struct Collector {
    series: &'static [Series],
    /// A bit for each series.
    on: AtomicU64,
    clock: Box<dyn Clock>,
    kept: Vec<Mutex<BTreeMap<Index, Kept>>>,
}

/// What came at one index of a series.
struct Kept {
    values: Histogram<u32>,
    /// When a period was last begun there.
    last_ns: Option<u64>,
}

/// What was collected at one index of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Collected {
    /// Where.
    pub index: Index,
    /// How many values.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Each value that came, to a hundredth of itself, ascending, and the share of those that are at most that.
    pub cdf: Vec<(u64, f64)>,
}

impl Collector {
    /// One with everything off. Of more than [`SERIES_MAX`] series the last are never on.
    pub fn new(series: &'static [Series], clock: Box<dyn Clock>) -> Self {
        let kept = series.iter().take(SERIES_MAX).map(|_| Mutex::default()).collect();
        Collector { series, on: AtomicU64::new(0), clock, kept }
    }

    /// What can be collected.
    pub fn series(&self) -> &'static [Series] {
        self.series
    }

    /// The series of that name.
    pub fn named(&self, name: &str) -> Option<SeriesId> {
        let place = self.series.iter().take(SERIES_MAX).position(|series| series.name == name)?;
        u8::try_from(place).ok().map(SeriesId)
    }

    /// Whether a series is on. This is all that a place costs while it is not.
    #[inline]
    pub fn is_on(&self, series: SeriesId) -> bool {
        self.on.load(Ordering::Relaxed) & bit(series) != 0
    }

    /// Begins or ends to take a series down. What it has stays, but a period that ends after a pause is none.
    pub fn turn(&self, series: SeriesId, on: bool) {
        let Some(mut kept) = self.kept(series) else { return };
        for kept in kept.values_mut() {
            kept.last_ns = None;
        }
        match on {
            true => self.on.fetch_or(bit(series), Ordering::Relaxed),
            false => self.on.fetch_and(!bit(series), Ordering::Relaxed),
        };
    }

    /// Something begins.
    #[inline]
    pub fn start(&self, series: SeriesId) -> Timer {
        Timer(self.is_on(series).then(|| self.clock.now_ns()))
    }

    /// It has ended, and the time that it took is a value. What began while its series was off is passed over.
    #[inline]
    pub fn stop(&self, series: SeriesId, index: u32, timer: Timer) {
        if let Timer(Some(begun)) = timer {
            self.data_point(series, index, self.clock.now_ns().saturating_sub(begun));
        }
    }

    /// A value by itself.
    #[inline]
    pub fn data_point(&self, series: SeriesId, index: u32, value: u64) {
        self.data_points(series, index, value, 1);
    }

    /// The same value so many times.
    #[inline]
    pub fn data_points(&self, series: SeriesId, index: u32, value: u64, times: u64) {
        if self.is_on(series) {
            self.keep(series, index, value, times);
        }
    }

    /// Whether any series is on.
    #[inline]
    pub fn is_any_on(&self) -> bool {
        self.on.load(Ordering::Relaxed) != 0
    }

    /// The program came by here. The time from one call to the next is a value; the first one begins.
    #[inline]
    pub fn period(&self, series: SeriesId, index: u32) {
        if self.is_on(series) {
            self.keep_period(series, index);
        }
    }

    #[cold]
    fn keep(&self, series: SeriesId, index: u32, value: u64, times: u64) {
        if let Some(mut kept) = self.kept(series) {
            let times = u32::try_from(times).unwrap_or(u32::MAX);
            at(&mut kept, index).values.saturating_record_n(value.min(VALUE_MAX), times);
        }
    }

    #[cold]
    fn keep_period(&self, series: SeriesId, index: u32) {
        let now = self.clock.now_ns();
        if let Some(mut kept) = self.kept(series) {
            let kept = at(&mut kept, index);
            if let Some(last) = kept.last_ns.replace(now) {
                kept.values.saturating_record(now.saturating_sub(last).min(VALUE_MAX));
            }
        }
    }

    /// What a series has, by index.
    pub fn collected(&self, series: SeriesId) -> Vec<Collected> {
        let Some(kept) = self.kept(series) else { return Vec::new() };
        let with_values = kept.iter().filter(|(_, kept)| !kept.values.is_empty());
        let copies: Vec<_> = with_values.map(|(index, kept)| (*index, kept.values.clone())).collect();
        // Whoever has something to keep waits for the copies alone.
        drop(kept);
        copies.into_iter().map(|(index, values)| collected(index, &values)).collect()
    }

    /// Forgets what a series has.
    pub fn clear(&self, series: SeriesId) {
        if let Some(mut kept) = self.kept(series) {
            kept.clear();
        }
    }

    fn kept(&self, series: SeriesId) -> Option<MutexGuard<'_, BTreeMap<Index, Kept>>> {
        let kept = self.kept.get(usize::from(series.0))?;
        // Whoever panicked while it was locked left counts, which are as good as ever.
        Some(kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn bit(series: SeriesId) -> u64 {
    1_u64.checked_shl(series.0.into()).unwrap_or(0)
}

/// What is kept at an index, or with the others if there are too many.
fn at(kept: &mut BTreeMap<Index, Kept>, index: u32) -> &mut Kept {
    let index = Index::Of(index);
    let is_full = kept.keys().filter(|index| **index != Index::Others).count() >= INDICES_MAX;
    let index = if is_full && !kept.contains_key(&index) { Index::Others } else { index };
    kept.entry(index).or_insert_with(|| Kept { values: empty(), last_ns: None })
}

fn empty() -> Histogram<u32> {
    // The bounds are constants that the library takes: at least 1, and twice that at most.
    Histogram::new_with_bounds(1, VALUE_MAX, DIGITS).expect("the bounds are good")
}

fn collected(index: Index, values: &Histogram<u32>) -> Collected {
    let count = values.len();
    let mut below = 0;
    let mut cdf = Vec::new();
    for step in values.iter_recorded() {
        below += step.count_since_last_iteration();
        cdf.push((step.value_iterated_to(), below as f64 / count as f64));
    }
    Collected { index, count, mean: values.mean(), cdf }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const SERIES: &[Series] = &[
        Series { name: "cell", unit: "ns", about: "the time that a cell takes" },
        Series { name: "queue", unit: "cells", about: "cells in a queue" },
    ];
    const CELL: SeriesId = SeriesId(0);
    const QUEUE: SeriesId = SeriesId(1);

    #[derive(Default)]
    struct Set(AtomicU64);

    impl Clock for Arc<Set> {
        fn now_ns(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn collector() -> (Collector, Arc<Set>) {
        let clock = Arc::new(Set::default());
        (Collector::new(SERIES, Box::new(clock.clone())), clock)
    }

    #[test]
    fn nothing_is_kept_while_a_series_is_off() {
        let (collector, clock) = collector();
        let early = collector.start(CELL);
        clock.0.store(50, Ordering::Relaxed);
        collector.turn(CELL, true);
        collector.stop(CELL, 0, early);
        collector.data_point(QUEUE, 0, 3);
        assert!(collector.collected(CELL).is_empty() && collector.collected(QUEUE).is_empty());
        let late = collector.start(CELL);
        collector.turn(CELL, false);
        clock.0.store(60, Ordering::Relaxed);
        collector.stop(CELL, 0, late);
        assert!(collector.collected(CELL).is_empty(), "its end came after the series was off");
    }

    #[test]
    fn times_values_and_periods_are_told_by_index() {
        let (collector, clock) = collector();
        collector.turn(CELL, true);
        for (begin, end) in [(0, 10), (10, 20), (20, 50)] {
            clock.0.store(begin, Ordering::Relaxed);
            let timer = collector.start(CELL);
            clock.0.store(end, Ordering::Relaxed);
            collector.stop(CELL, 7, timer);
        }
        let collected = collector.collected(CELL);
        assert_eq!(collected.len(), 1);
        assert_eq!((collected[0].index, collected[0].count), (Index::Of(7), 3));
        assert_eq!(collected[0].cdf, [(10, 2.0 / 3.0), (30, 1.0)]);

        collector.turn(QUEUE, true);
        for (index, now) in [(1, 100), (2, 105), (1, 120), (2, 145)] {
            clock.0.store(now, Ordering::Relaxed);
            collector.period(QUEUE, index);
        }
        let cdfs: Vec<_> = collector.collected(QUEUE).into_iter().map(|collected| collected.cdf).collect();
        assert_eq!(cdfs, [vec![(20, 1.0)], vec![(40, 1.0)]]);
        collector.turn(QUEUE, false);
        collector.turn(QUEUE, true);
        clock.0.store(1_000_000, Ordering::Relaxed);
        collector.period(QUEUE, 1);
        assert_eq!(collector.collected(QUEUE)[0].count, 1, "a pause is no period");
        collector.clear(QUEUE);
        assert!(collector.collected(QUEUE).is_empty());
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (collector, _) = collector();
        collector.turn(QUEUE, true);
        for index in 0..1_000 {
            collector.data_point(QUEUE, index, u64::MAX);
        }
        let collected = collector.collected(QUEUE);
        assert_eq!(collected.len(), INDICES_MAX + 1);
        let others = collected.iter().find(|collected| collected.index == Index::Others).unwrap();
        assert_eq!(others.count, 1_000 - INDICES_MAX as u64);
        assert!(others.cdf[0].0 >= VALUE_MAX);
        assert_eq!(empty().distinct_values(), 35 * 128, "as the bound of a collector says");
        collector.turn(SeriesId(200), true);
        assert!(!collector.is_on(SeriesId(200)) && collector.named("none").is_none());
        assert_eq!(collector.named("queue"), Some(QUEUE));
    }
}
