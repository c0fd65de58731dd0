//! The seconds of a stream without end: what each brought, and from when on they count.

use std::time::Duration;

use heddle_seam::time::Instant;

use super::program::Journal;
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

/// What a stream without end brings, told second by second since its program began. Who looks too late for one tells a
/// longer one.
#[derive(Clone, Debug)]
pub(crate) struct EachSecond {
    begun: Instant,
    /// How many seconds were told, and when the last one ended.
    told: u64,
    ended: Instant,
    seconds: Seconds,
}

impl EachSecond {
    /// Those of a program that begins now.
    pub(crate) fn new(now: Instant, by: SteadyBy, warmup_max: Duration) -> EachSecond {
        EachSecond { begun: now, told: 0, ended: now, seconds: Seconds::new(by, warmup_max) }
    }

    /// When the second under way ends.
    pub(crate) fn next(&self) -> Instant {
        self.begun.plus_ns((self.told + 1).saturating_mul(SECOND.as_nanos() as u64))
    }

    /// Whether the measurement has begun.
    pub(crate) fn is_measuring(&self) -> bool {
        self.seconds.is_measuring()
    }

    /// Goes on to the next second where one is over, and says whether one is.
    pub(crate) fn tick(&mut self, now: Instant) -> bool {
        let is_over = self.next() <= now;
        if is_over {
            self.told = now.since(self.begun).as_secs();
        }
        is_over
    }

    /// Tells what was found in the second that [`EachSecond::tick`] said is over, or with `is_whole` false in what
    /// there is of one: of one that has just begun nothing is left. Gives whether the measurement begins with it.
    pub(crate) fn tell(&mut self, now: Instant, found: Found, is_whole: bool, journal: &mut Journal) -> bool {
        if now <= self.ended {
            return false;
        }
        let (ended, length) = (now.since(self.begun), now.since(self.ended));
        let (told, measuring) = self.seconds.push(found, ended, length, is_whole);
        self.ended = now;
        journal.say(now, told);
        let begins = measuring.is_some();
        measuring.into_iter().for_each(|measuring| journal.say(now, measuring));
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looks_late_tells_a_longer_second_and_the_next_one_on_time() {
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let mut journal = Journal::new(at(500));
        let mut seconds = EachSecond::new(at(500), SteadyBy::Throughput, SECOND * 20);
        for (ms, is_over) in
            [(1400, false), (1500, true), (1500, false), (4200, true), (4400, false), (4500, true)]
        {
            assert_eq!(seconds.tick(at(ms)), is_over, "{ms}");
            if is_over {
                seconds.tell(at(ms), Found { bytes: 1000, ..Found::default() }, true, &mut journal);
            }
        }
        seconds.tell(at(4500), Found::default(), false, &mut journal);
        seconds.tell(at(4600), Found::default(), false, &mut journal);
        let lengths_s: Vec<f64> = journal.take().iter().map(|(_, event)| length_s(event)).collect();
        assert_eq!(lengths_s, [1.0, 2.7, 0.3, 0.1]);
    }

    fn length_s(event: &Event) -> f64 {
        let Event::Second { length_s, .. } = event else { panic!("{event:?}") };
        (length_s * 10.0).round() / 10.0
    }

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
