//! The circuit that was quietest of late goes first: an exponentially weighted moving average of cells sent (Tang and
//! Goldberg, "An Improved Algorithm for Tor Circuit Scheduling", CCS 2010, section 3), which stock Tor used before
//! KIST.
//!
//! - Time goes in ticks, eight to a half-life. With each tick all counts shrink by the same factor, so their order
//!   stays: a lane's count is brought up to date when the lane is touched, and a waiting lane's when the tick changes.
//! - The factors are constants and not computed, so that one seed gives one run on every machine.
//! - Of lanes with the same count, the one that has waited longest goes first.

use super::turn::{Activity, CircuitScheduler, Turn};
use core::cmp::Ordering;
use heddle_seam::time::{Duration, Instant};
use std::collections::BinaryHeap;

/// Ticks in which a count halves.
const TICKS: u64 = 8;

/// 2^(-n/8).
const FACTORS: [f64; TICKS as usize] = [
    1.0,
    0.917_004_043_204_671_2,
    0.840_896_415_253_714_6,
    0.771_105_412_703_970_4,
    core::f64::consts::FRAC_1_SQRT_2,
    0.648_419_777_325_504_8,
    0.594_603_557_501_360_5,
    0.545_253_866_332_628_8,
];

/// A lane and its cells of late, as of [`Ewma::tick`].
#[derive(Debug)]
struct Waiting {
    cells: f64,
    seq: u64,
    turn: Turn,
}

impl Ord for Waiting {
    /// The heap's greatest goes first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.cells.total_cmp(&self.cells).then(other.seq.cmp(&self.seq))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Waiting {}

#[derive(Debug)]
pub(crate) struct Ewma {
    tick_ns: u64,
    tick: u64,
    waiting: BinaryHeap<Waiting>,
    pushed: u64,
}

impl Ewma {
    pub fn new(half_life: Duration) -> Self {
        let half_life_ns = u64::try_from(half_life.as_nanos()).unwrap_or(u64::MAX);
        Ewma { tick_ns: (half_life_ns / TICKS).max(1), tick: 0, waiting: BinaryHeap::new(), pushed: 0 }
    }

    /// Brings the counts of waiting lanes up to date.
    fn advance(&mut self, now: Instant) {
        let tick = now.as_nanos() / self.tick_ns;
        let passed = tick.saturating_sub(self.tick);
        if passed == 0 {
            return;
        }
        self.tick = tick;
        let mut waiting = core::mem::take(&mut self.waiting).into_vec();
        waiting.iter_mut().for_each(|lane| lane.cells = shrunk(lane.cells, passed));
        self.waiting = waiting.into();
    }
}

/// What a count is worth after some ticks.
fn shrunk(cells: f64, ticks: u64) -> f64 {
    // Beyond, the largest count is worth nothing.
    let halvings = i32::try_from(ticks / TICKS).unwrap_or(i32::MAX).min(1000);
    cells * FACTORS[(ticks % TICKS) as usize] * 0.5_f64.powi(halvings)
}

impl CircuitScheduler for Ewma {
    fn push(&mut self, now: Instant, turn: Turn, activity: Activity) {
        self.advance(now);
        let cells = shrunk(activity.cells, self.tick.saturating_sub(activity.tick));
        self.waiting.push(Waiting { cells, seq: self.pushed, turn });
        self.pushed += 1;
    }

    fn pop(&mut self, now: Instant) -> Option<Turn> {
        self.advance(now);
        self.waiting.pop().map(|lane| lane.turn)
    }

    fn charge(&mut self, now: Instant, activity: &mut Activity) {
        self.advance(now);
        let cells = shrunk(activity.cells, self.tick.saturating_sub(activity.tick)) + 1.0;
        *activity = Activity { cells, tick: self.tick };
    }

    fn first_cells(&self, now: Instant) -> f64 {
        let passed = (now.as_nanos() / self.tick_ns).saturating_sub(self.tick);
        self.waiting.peek().map_or(0.0, |first| shrunk(first.cells, passed))
    }

    fn len(&self) -> usize {
        self.waiting.len()
    }

    fn capacity(&self) -> usize {
        self.waiting.capacity()
    }

    fn shrink(&mut self) {
        self.waiting.shrink_to(2 * self.waiting.len());
    }

    fn retain(&mut self, keep: &dyn Fn(&Turn) -> bool) {
        self.waiting.retain(|lane| keep(&lane.turn));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{CircuitKey, Side};
    use heddle_proto::cell::CircId;
    use proptest::prelude::*;

    const HALF_LIFE: Duration = Duration::from_secs(8);

    fn at_s(s: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(s)
    }

    fn turn(lane: usize) -> Turn {
        let circ_id = CircId::new(lane as u32 + 1).expect("not zero");
        Turn { circuit: CircuitKey::default(), side: Side::Prev, circ_id }
    }

    fn lane(turn: Turn) -> usize {
        turn.circ_id.get() as usize - 1
    }

    /// Lets the lane whose turn it is send a cell and wait again.
    fn step(ewma: &mut Ewma, activities: &mut [Activity], now: Instant) -> usize {
        let popped = ewma.pop(now).expect("a lane waits");
        let lane = lane(popped);
        ewma.charge(now, &mut activities[lane]);
        ewma.push(now, popped, activities[lane]);
        lane
    }

    #[test]
    fn a_quiet_lane_goes_before_a_busy_one_until_it_caught_up() {
        let mut ewma = Ewma::new(HALF_LIFE);
        let mut activities = [Activity::default(); 2];
        ewma.push(at_s(0), turn(0), activities[0]);
        for _ in 0..100 {
            assert_eq!(step(&mut ewma, &mut activities, at_s(0)), 0);
        }
        ewma.push(at_s(0), turn(1), activities[1]);
        for _ in 0..100 {
            assert_eq!(step(&mut ewma, &mut activities, at_s(0)), 1);
        }
        let next: Vec<usize> = (0..10).map(|_| step(&mut ewma, &mut activities, at_s(0))).collect();
        assert_eq!(next, [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
    }

    #[test]
    fn the_past_counts_half_after_a_half_life() {
        let mut ewma = Ewma::new(HALF_LIFE);
        let mut activities = [Activity::default(); 2];
        for _ in 0..64 {
            ewma.charge(at_s(0), &mut activities[0]);
        }
        for (seconds, cells) in [(8, 32.0), (24, 8.0), (48, 1.0)] {
            let now = at_s(seconds);
            ewma.push(now, turn(0), activities[0]);
            let waiting = ewma.waiting.pop().expect("it was pushed");
            assert!((waiting.cells - cells).abs() < 1e-9, "{} after {seconds} s", waiting.cells);
        }
        ewma.charge(at_s(1_000_000), &mut activities[0]);
        assert_eq!(activities[0].cells, 1.0);
    }

    #[test]
    fn the_first_lanes_cells_are_told_without_touching_it() {
        let mut ewma = Ewma::new(HALF_LIFE);
        assert_eq!(ewma.first_cells(at_s(0)), 0.0);
        let mut busy = Activity::default();
        (0..8).for_each(|_| ewma.charge(at_s(0), &mut busy));
        ewma.push(at_s(0), turn(0), busy);
        assert_eq!([0, 8, 16].map(|s| ewma.first_cells(at_s(s))), [8.0, 4.0, 2.0]);
        ewma.push(at_s(16), turn(1), Activity::default());
        assert_eq!(ewma.first_cells(at_s(16)), 0.0);
    }

    #[test]
    fn the_constants_are_right() {
        for (n, factor) in FACTORS.iter().enumerate() {
            assert!((factor - (-(n as f64) / TICKS as f64).exp2()).abs() < 1e-15);
        }
    }

    proptest! {
        /// Against averages that are computed for every lane and every cell: no lane goes before one that sent
        /// notably less.
        #[test]
        fn the_quietest_goes_first(
            steps in prop::collection::vec((0_u64..3_000, any::<bool>()), 1..300),
        ) {
            let mut ewma = Ewma::new(HALF_LIFE);
            let mut activities = [Activity::default(); 4];
            let mut model = [0.0_f64; 4];
            let (mut now, mut tick) = (Instant::ZERO, 0);
            (0..4).for_each(|lane| ewma.push(now, turn(lane), activities[lane]));
            for (pass_ms, sends) in steps {
                now += Duration::from_millis(pass_ms);
                for _ in tick..now.as_nanos() / 1_000_000_000 {
                    model.iter_mut().for_each(|cells| *cells *= (-1.0 / TICKS as f64).exp2());
                }
                tick = now.as_nanos() / 1_000_000_000;
                if sends {
                    let lane = step(&mut ewma, &mut activities, now);
                    let least = model.iter().copied().fold(f64::INFINITY, f64::min);
                    prop_assert!(model[lane] <= least + 1e-6);
                    model[lane] += 1.0;
                }
            }
        }

        /// Every lane that waits gets its turn once, and those that were swept out get none.
        #[test]
        fn no_turn_is_lost(swept in prop::collection::vec(any::<bool>(), 1..50)) {
            let mut ewma = Ewma::new(HALF_LIFE);
            (0..swept.len()).for_each(|lane| ewma.push(at_s(0), turn(lane), Activity::default()));
            ewma.retain(&|turn| !swept[lane(*turn)]);
            let popped: Vec<usize> = core::iter::from_fn(|| ewma.pop(at_s(9))).map(lane).collect();
            let kept: Vec<usize> = (0..swept.len()).filter(|lane| !swept[*lane]).collect();
            prop_assert_eq!(popped, kept);
        }
    }
}
