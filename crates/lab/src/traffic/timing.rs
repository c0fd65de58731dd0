//! The timing client of Reardon's thesis (section 4.3).
//!
//! 1. A bulk stream brings readings of the server's clock as fast as the network takes them. The
//!    client counts its bytes and takes the age of the newest reading whenever something comes.
//! 2. The measurement begins when that age is steady (see [`Steady`]), at the latest after
//!    [`TimingOptions::warmup_max`]; without a bulk stream it begins at once.
//! 3. Beside it, probes ask for a stream of their own, one at a time. Each sends a request of one
//!    cell and gets one reading back. Its age is the latency of the thesis, one way from the server
//!    to the client; `echo_ms` is both ways, `open_ms` what it took to get the stream.
//! 4. Every second is told and forgotten, and so is what there is of one when the client is stopped.
//!
//! Pauses between probes are exponential ("sporadically", experiment 11), so that probes do not keep
//! step with anything periodic. A bulk stream that breaks is opened again a second later; seconds
//! without a stream have the throughput zero, as they are the network's.
//!
//! One-way figures mean something only on one machine, whose processes share a clock. Seconds that
//! follow each other are not independent: compare runs by their means, and take the interval of
//! those.

mod probes;
mod readings;

use std::time::Duration;

use heddle_seam::time::Instant;

use super::drive::drive;
use super::lines::{LineId, Lines, WayId};
use super::program::{Journal, Program, STREAMS_MAX};
use super::report::{Event, Identity, Report, Reporter};
use super::route::Route;
use super::seconds::{EachSecond, Found, SECOND, SteadyBy};
use super::stop::Stop;
use crate::error::{Error, Result};
use crate::statistics::mean;
use probes::Probes;
use readings::ReadingStream;

pub use super::steady::Steady;

/// What a timing client does. At least one of `bulk` and `probe_pause` is needed.
#[derive(Clone, Debug)]
pub struct TimingOptions {
    /// Where to and how. The time-out is that of a stream's opening and of a stall.
    pub route: Route,
    /// Whose random numbers and labels.
    pub identity: Identity,
    /// Whether there is a bulk stream.
    pub bulk: bool,
    /// The rate at which the server sends the bulk stream, in bytes per second; 0 is no limit.
    pub bulk_limit_b_s: u64,
    /// The mean pause from the end of a probe to the beginning of the next; `None` is no probes.
    pub probe_pause: Option<Duration>,
    /// How long the measurement takes, in whole seconds, at least one.
    pub duration: Duration,
    /// The longest wait for a steady bulk stream.
    pub warmup_max: Duration,
}

impl TimingOptions {
    /// Bulk stream and probes for a minute, as in the thesis' experiments 8 and 9.
    pub fn new(route: Route, identity: Identity) -> TimingOptions {
        TimingOptions {
            route,
            identity,
            bulk: true,
            bulk_limit_b_s: 0,
            probe_pause: Some(Duration::from_millis(500)),
            duration: Duration::from_secs(60),
            warmup_max: Duration::from_secs(30),
        }
    }

    /// Fails with what is wrong with the options.
    pub fn validate(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::Options(what.to_owned()));
        if !self.bulk && self.probe_pause.is_none() {
            return wrong("a timing client needs a bulk stream or probes");
        }
        if self.duration < SECOND {
            return wrong("a timing client measures for at least a second");
        }
        Ok(())
    }

    /// What the program does by these options.
    fn work(&self) -> TimingWork {
        TimingWork {
            bulk: self.bulk.then_some(BulkStream { limit_b_s: self.bulk_limit_b_s, reads_for: None }),
            probe_pause: self.probe_pause,
            measured_s_max: Some(self.duration.as_secs()),
            warmup_max: self.warmup_max,
            timeout: self.route.timeout,
        }
    }
}

/// Measures until the duration is over, or until stopped.
///
/// Figures, of what happened after the measurement began: `throughput_kb_s` and `delay_ms` with a
/// sample for each second of the bulk stream; `latency_ms`, `echo_ms` and `open_ms` with a sample for
/// each probe.
pub fn run_timing(options: &TimingOptions, stop: &Stop, on_event: &mut dyn FnMut(&Event)) -> Result<Report> {
    options.validate()?;
    run_work(&options.work(), options, stop, on_event)
}

fn run_work(
    work: &TimingWork,
    options: &TimingOptions,
    stop: &Stop,
    on_event: &mut dyn FnMut(&Event),
) -> Result<Report> {
    let mut reporter = Reporter::new("timing", &options.identity, on_event);
    let make = |now, way| -> Box<dyn Program> { Box::new(Timing::new(now, way, &options.identity, work)) };
    drive(make, &options.route, stop, &Stop::default(), &mut |event| {
        if let Event::Measuring { t_s, steady: true } = event
            && options.bulk
        {
            reporter.steady_after_s = Some(*t_s);
        }
        reporter.say(event);
    })?;
    Ok(reporter.finish(stop))
}

/// What a timing program does.
#[derive(Clone, Debug)]
pub(crate) struct TimingWork {
    /// The stream of readings, if there is one.
    pub(crate) bulk: Option<BulkStream>,
    /// The mean pause from the end of a probe to the beginning of the next; `None` is no probes.
    pub(crate) probe_pause: Option<Duration>,
    /// How many seconds are measured; `None` is until it is stopped.
    pub(crate) measured_s_max: Option<u64>,
    /// The longest wait for a steady bulk stream.
    pub(crate) warmup_max: Duration,
    /// How long a stream may take to open, and how long the bulk stream may bring nothing.
    pub(crate) timeout: Duration,
}

/// A stream of readings without end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BulkStream {
    /// The rate at which the server sends it, in bytes per second; 0 is no limit.
    pub(crate) limit_b_s: u64,
    /// How long it is read from its opening on; then the client stops reading and leaves it open. `None` is to the end.
    pub(crate) reads_for: Option<Duration>,
}

/// The program.
pub(crate) struct Timing {
    bulk: Option<ReadingStream>,
    probes: Option<Probes>,
    each_second: EachSecond,
    /// When the measurement began.
    measuring: Option<Instant>,
    /// Of the probes that ended in this second.
    latencies_ms: Vec<f64>,
    /// Seconds that are still to be measured.
    left_s: Option<u64>,
    has_begun: bool,
    is_asked: bool,
    is_over: bool,
}

impl Timing {
    /// Begins now.
    pub(crate) fn new(now: Instant, way: WayId, identity: &Identity, work: &TimingWork) -> Timing {
        let TimingWork { bulk, probe_pause, measured_s_max, warmup_max, timeout } = *work;
        Timing {
            bulk: bulk.map(|bulk| ReadingStream::new(now, way, bulk, timeout)),
            probes: probe_pause.map(|pause| Probes::new(now, way, identity, pause, timeout)),
            each_second: EachSecond::new(now, SteadyBy::Delay, warmup_max),
            measuring: None,
            latencies_ms: Vec::new(),
            left_s: measured_s_max,
            has_begun: false,
            is_asked: false,
            is_over: false,
        }
    }

    fn begin(&mut self, now: Instant, journal: &mut Journal) {
        self.has_begun = true;
        if self.bulk.is_none() {
            self.measuring = Some(now);
            let t_s = journal.t_s(now);
            journal.say(now, Event::Measuring { t_s, steady: true });
        }
    }

    fn probe(&mut self, now: Instant, lines: &mut dyn Lines, journal: &mut Journal) {
        let Some(probed) = self.probes.as_mut().and_then(|probes| probes.step(now, lines, journal)) else {
            return;
        };
        let measured = self.measuring.is_some_and(|since| probed.begun >= since);
        let t_s = journal.t_s(now);
        let probes::Probed { open_ms, latency_ms, echo_ms, .. } = probed;
        self.latencies_ms.push(latency_ms);
        journal.say(now, Event::Probe { t_s, measured, open_ms, latency_ms, echo_ms });
    }

    /// Tells a second of the bulk stream, or what there is of one at the end.
    fn tell(&mut self, now: Instant, is_whole: bool, journal: &mut Journal) {
        let Some(bulk) = &mut self.bulk else { return self.latencies_ms.clear() };
        let found = Found { latency_ms: mean(&self.latencies_ms), ..bulk.take_found() };
        self.latencies_ms.clear();
        if self.each_second.tell(now, found, is_whole, journal) {
            self.measuring = Some(now);
        }
    }

    fn end(&mut self, now: Instant, lines: &mut dyn Lines) {
        self.bulk.iter_mut().for_each(|bulk| bulk.close(now, lines));
        self.probes.iter_mut().for_each(|probes| probes.close(now, lines));
        self.is_over = true;
    }
}

impl Program for Timing {
    fn step(&mut self, now: Instant, lines: &mut dyn Lines, journal: &mut Journal) {
        if self.is_over {
            return;
        }
        if !self.has_begun {
            self.begin(now, journal);
        }
        if let Some(bulk) = &mut self.bulk {
            bulk.step(now, lines, journal);
        }
        if !self.is_asked {
            self.probe(now, lines, journal);
        }
        if self.each_second.tick(now) {
            // The second in which the measurement begins is not part of it, and the next one is, however late this is.
            let counts = self.measuring.is_some();
            self.tell(now, true, journal);
            self.left_s = self.left_s.map(|left_s| left_s.saturating_sub(u64::from(counts)));
            if self.left_s == Some(0) {
                return self.end(now, lines);
            }
        }
        if self.is_asked {
            self.tell(now, false, journal);
            self.end(now, lines);
        }
    }

    fn wakes(&self) -> Option<Instant> {
        let bulk = self.bulk.as_ref().and_then(ReadingStream::wakes);
        let probes = self.probes.as_ref().and_then(Probes::wakes);
        bulk.into_iter().chain(probes).chain([self.each_second.next()]).min()
    }

    fn lines(&self) -> [Option<LineId>; STREAMS_MAX] {
        [self.bulk.as_ref().and_then(ReadingStream::line), self.probes.as_ref().and_then(Probes::line)]
    }

    fn stop(&mut self, _: Instant) {
        self.is_asked = true;
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn is_steady(&self) -> bool {
        self.measuring.is_some()
    }
}

#[cfg(test)]
mod tests;
