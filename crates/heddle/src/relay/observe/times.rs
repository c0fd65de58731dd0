//! The times of a shard's steps, for whoever asked: the metrics (`HeddleTimings`) and those who observe
//! (`HeddleObserve`).

use super::Timings;
use heddle_seam::stopwatch::{Step, Timekeeper};
use heddle_spe::{Clock, Collector, Series, SeriesId};
use std::sync::Arc;
use std::time::Instant;

/// A series for each step, at its place.
pub const SERIES: &[Series; Step::ALL.len()] = &[
    series("demultiplex", "finding out whose a datagram is"),
    series("inject", "decryption of a datagram, and what its connection and flows make of it"),
    series("emit", "the making of one datagram, encryption included"),
    series("timer", "what is done when a connection's time has come"),
    series("send", "a datagram's part of the system call that sends several"),
    series("datapath", "from before the receive until all is sent that followed, for each datagram"),
    series("cell", "what is done with one cell, until it is queued or acted on"),
    series("wait", "a wait of an event loop for news"),
    series("turn", "a turn of an event loop, from the news until all is sent that followed"),
];

const fn series(name: &'static str, about: &'static str) -> Series {
    Series { name, unit: "ns", about }
}

/// The system's clock.
pub struct Since(pub Instant);

impl Clock for Since {
    fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// Takes one shard's times down for all who asked.
pub struct Keeper {
    pub clock: Since,
    pub shard: u32,
    pub timings: Option<Arc<Timings>>,
    pub collector: Option<Arc<Collector>>,
}

impl Timekeeper for Keeper {
    fn is_on(&self) -> bool {
        self.timings.is_some() || self.collector.as_ref().is_some_and(|collector| collector.is_any_on())
    }

    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    fn took(&self, step: Step, ns: u64, times: u64) {
        if let Some(timings) = &self.timings {
            timings.took(step, ns, times);
        }
        if let Some(collector) = &self.collector {
            collector.data_points(SeriesId(step as u8), self.shard, ns, times);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_is_a_series_of_its_name() {
        assert!(Step::ALL.into_iter().zip(SERIES).all(|(step, series)| step.name() == series.name));
    }

    #[test]
    fn times_are_taken_down_by_shard_while_a_series_is_on() {
        let collector = Arc::new(Collector::new(SERIES, Box::new(Since(Instant::now()))));
        let keeper = Keeper {
            clock: Since(Instant::now()),
            shard: 3,
            timings: None,
            collector: Some(collector.clone()),
        };
        assert!(!keeper.is_on());
        collector.turn(SeriesId(Step::Cell as u8), true);
        assert!(keeper.is_on());
        keeper.took(Step::Cell, 100, 2);
        keeper.took(Step::Emit, 100, 2);
        let collected = collector.collected(SeriesId(Step::Cell as u8));
        assert_eq!((collected[0].index, collected[0].count), (heddle_spe::Index::Of(3), 2));
        assert!(collector.collected(SeriesId(Step::Emit as u8)).is_empty());
    }
}
