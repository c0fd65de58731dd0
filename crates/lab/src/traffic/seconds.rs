//! The seconds of a stream without end: what each brought, and from when on they count.

use std::time::Duration;

use super::report::Event;
use super::steady::Steady;

/// How long a second is.
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// What a second, or what there is of one at the end, brought.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    /// Received in it.
    pub(crate) bytes: u64,
    /// Mean age of the readings that came in it, where there were any.
    pub(crate) delay_ms: Option<f64>,
    /// Mean latency of the probes that ended in it, where there were any.
    pub(crate) latency_ms: Option<f64>,
}

/// By what it is told that a stream is steady.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SteadyBy {
    /// The mean age of its readings.
    Delay,
    /// How much comes, in 1000 bytes a second.
    Throughput,
}

/// Makes events of seconds.
#[derive(Clone, Debug)]
pub(crate) struct Seconds {
    steady: Steady,
    by: SteadyBy,
    /// Whether the measurement has begun.
    measuring: bool,
    warmup_max: Duration,
}

impl Seconds {
    /// The measurement begins when the stream is steady, and after so long at the latest.
    pub(crate) fn new(by: SteadyBy, warmup_max: Duration) -> Seconds {
        Seconds { steady: Steady::default(), by, measuring: false, warmup_max }
    }

    /// Whether the measurement has begun.
    pub(crate) fn is_measuring(&self) -> bool {
        self.measuring
    }

    /// Takes a second that ended so long after the program's beginning and was so long. Gives what is told of it, and
    /// that the measurement begins, if it does: the second in which it begins is no part of it.
    pub(crate) fn push(
        &mut self,
        found: Found,
        ended: Duration,
        length: Duration,
        is_whole: bool,
    ) -> (Event, Option<Event>) {
        let (t_s, length_s) = (ended.as_secs_f64(), length.as_secs_f64());
        let throughput_kb_s = found.bytes as f64 / 1e3 / length_s;
        let Found { delay_ms, latency_ms, .. } = found;
        let measured = is_whole && self.measuring;
        let second = Event::Second { t_s, length_s, measured, throughput_kb_s, delay_ms, latency_ms };
        if !is_whole {
            return (second, None);
        }
        let told = match self.by {
            SteadyBy::Delay => delay_ms,
            SteadyBy::Throughput => Some(throughput_kb_s).filter(|rate| *rate > 0.0),
        };
        let steady = self.steady.push(told);
        let begins = !self.measuring && (steady || ended >= self.warmup_max);
        self.measuring |= begins;
        (second, begins.then_some(Event::Measuring { t_s, steady }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(seconds: &mut Seconds, number: u64, kb: u64) -> (Event, Option<Event>) {
        let found = Found { bytes: kb * 1000, ..Found::default() };
        seconds.push(found, SECOND * number as u32, SECOND, true)
    }

    #[test]
    fn seconds_count_once_the_stream_is_steady() {
        let mut seconds = Seconds::new(SteadyBy::Throughput, SECOND * 20);
        let begun = (1..10).find(|number| pushed(&mut seconds, *number, 100).1.is_some());
        assert_eq!((begun, seconds.is_measuring()), (Some(6), true));
        let (second, begins) = pushed(&mut seconds, 7, 100);
        assert!(matches!(second, Event::Second { measured: true, throughput_kb_s: 100.0, .. }));
        assert_eq!(begins, None);
        // What is left at the end never counts.
        let left = seconds.push(Found::default(), SECOND * 8, SECOND / 2, false).0;
        assert!(matches!(left, Event::Second { measured: false, length_s: 0.5, .. }));
    }

    #[test]
    fn a_stream_that_is_never_steady_is_waited_for_so_long() {
        let mut seconds = Seconds::new(SteadyBy::Throughput, SECOND * 4);
        let told: Vec<_> = (1..6).map(|number| pushed(&mut seconds, number, 1 << number).1).collect();
        let expected = Event::Measuring { t_s: 4.0, steady: false };
        assert_eq!(told, [None, None, None, Some(expected), None]);
    }
}
