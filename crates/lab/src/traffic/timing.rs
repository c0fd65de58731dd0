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

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use heddle_netem::{Rng, Seed};

use super::CHUNK;
use super::clock::{READING_BYTES, Readings, monotonic_ns, ms_between};
use super::peer::closed;
use super::report::{Event, Identity, Journal, Report};
use super::request::Request;
use super::route::{Route, Stage};
use super::seconds::{Found, SECOND, Seconds, SteadyBy};
use super::stop::Stop;
use crate::error::{Error, Result};
use crate::statistics::mean;

pub use super::steady::Steady;

/// How long a client that stopped reading goes on with that.
const STALL: Duration = Duration::from_secs(24 * 3600);
/// How long the bulk client waits before it opens a broken stream again.
pub(crate) const REOPEN: Duration = Duration::from_secs(1);

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
    /// How long the bulk stream is read from its opening on; then the client stops reading and leaves it open. `None`
    /// is to the end.
    pub bulk_reads_for: Option<Duration>,
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
            bulk_reads_for: None,
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
}

/// Measures until the duration is over, or until stopped.
///
/// Figures, of what happened after the measurement began: `throughput_kb_s` and `delay_ms` with a
/// sample for each second of the bulk stream; `latency_ms`, `echo_ms` and `open_ms` with a sample for
/// each probe.
pub fn run_timing(options: &TimingOptions, stop: &Stop, on_event: &mut dyn FnMut(&Event)) -> Result<Report> {
    options.validate()?;
    let journal = Journal::new("timing", &options.identity, on_event);
    let tally = Mutex::new(Tally::default());
    // Ends the two threads, whoever ends the whole.
    let over = Stop::default();
    let (notes, heard) = mpsc::channel();
    thread::scope(|scope| {
        let _at_end = over.ask_at_end();
        if options.bulk {
            let (notes, tally, over) = (notes.clone(), &tally, &over);
            scope.spawn(move || stream_readings(options, tally, notes, over));
        }
        if let Some(pause) = options.probe_pause {
            let over = &over;
            scope.spawn(move || probe_now_and_then(options, pause, notes, over));
        }
        let mut ticker = Ticker::new(options, journal);
        ticker.run(&tally, &heard, stop);
        Ok(ticker.journal.finish(stop))
    })
}

/// What one of the threads tells the ticker.
enum Note {
    Probed(Probe),
    Failed(Stage, Error),
}

struct Probe {
    begun: Instant,
    open_ms: f64,
    latency_ms: f64,
    echo_ms: f64,
}

/// What the bulk stream brought since the last tick.
#[derive(Default)]
struct Tally {
    bytes: u64,
    delays_ms: f64,
    delays: u64,
}

/// Nothing panics while it holds a tally, and a tally is whole at any time.
fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread that makes seconds of what the others find.
struct Ticker<'a> {
    options: &'a TimingOptions,
    journal: Journal<'a>,
    seconds: Seconds,
    /// When the measurement began.
    measuring: Option<Instant>,
    /// Of the probes that ended in this second.
    latencies_ms: Vec<f64>,
}

impl<'a> Ticker<'a> {
    fn new(options: &'a TimingOptions, journal: Journal<'a>) -> Ticker<'a> {
        let seconds = Seconds::new(SteadyBy::Delay, options.warmup_max);
        Ticker { options, journal, seconds, measuring: None, latencies_ms: Vec::new() }
    }

    fn run(&mut self, tally: &Mutex<Tally>, heard: &Receiver<Note>, stop: &Stop) {
        let begun = self.journal.begun();
        let mut ticked = begun;
        if !self.options.bulk {
            self.measure(true);
        }
        let mut measured_s = 0;
        for tick in 1.. {
            let is_whole = self.listen_until(begun + SECOND * tick, heard, stop);
            // The second in which the measurement begins is not part of it, and the next one is, however late this is.
            let counts = is_whole && self.measuring.is_some();
            let now = Instant::now();
            let found = std::mem::take(&mut *lock(tally));
            if self.options.bulk {
                self.second(&found, now, ticked, is_whole);
            }
            if !is_whole {
                return;
            }
            ticked = now;
            measured_s += u64::from(counts);
            if measured_s >= self.options.duration.as_secs() {
                return;
            }
        }
    }

    fn measure(&mut self, steady: bool) {
        self.measuring = Some(Instant::now());
        let t_s = self.journal.t_s();
        self.journal.say(&Event::Measuring { t_s, steady });
    }

    /// Hears notes until then; `false` when somebody asked for the end.
    fn listen_until(&mut self, then: Instant, heard: &Receiver<Note>, stop: &Stop) -> bool {
        loop {
            if stop.is_asked() {
                return false;
            }
            let left = then.saturating_duration_since(Instant::now());
            match heard.recv_timeout(left.min(Duration::from_millis(50))) {
                Ok(Note::Probed(probe)) => self.probed(&probe),
                Ok(Note::Failed(stage, error)) => self.journal.failed(stage, &error),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return true,
                Err(RecvTimeoutError::Timeout) => {}
                // Both threads are gone only when nothing is left to hear.
                Err(RecvTimeoutError::Disconnected) => return stop.sleep_until(then),
            }
        }
    }

    fn probed(&mut self, probe: &Probe) {
        let Probe { begun, open_ms, latency_ms, echo_ms } = *probe;
        let measured = self.measuring.is_some_and(|since| begun >= since);
        if measured {
            self.journal.sample("open_ms", "ms", open_ms);
            self.journal.sample("latency_ms", "ms", latency_ms);
            self.journal.sample("echo_ms", "ms", echo_ms);
        }
        self.latencies_ms.push(latency_ms);
        let t_s = self.journal.t_s();
        self.journal.say(&Event::Probe { t_s, measured, open_ms, latency_ms, echo_ms });
    }

    /// Tells a second of the bulk stream, or what there is of one at the end, and looks whether the stream has become
    /// steady.
    fn second(&mut self, found: &Tally, now: Instant, ticked: Instant, is_whole: bool) {
        let delay_ms = (found.delays > 0).then(|| found.delays_ms / found.delays as f64);
        let found = Found { bytes: found.bytes, delay_ms, latency_ms: mean(&self.latencies_ms) };
        self.latencies_ms.clear();
        let (told, measuring) = self.seconds.push(found, now - self.journal.begun(), now - ticked, is_whole);
        if let Event::Second { measured: true, throughput_kb_s, .. } = told {
            self.journal.sample("throughput_kb_s", "kB/s", throughput_kb_s);
            if let Some(delay_ms) = delay_ms {
                self.journal.sample("delay_ms", "ms", delay_ms);
            }
        }
        self.journal.say(&told);
        if let Some(Event::Measuring { t_s, steady }) = measuring {
            self.journal.steady_after_s = steady.then_some(t_s);
            self.measure(steady);
        }
    }
}

/// The bulk stream: opened, read, and opened again when it breaks.
fn stream_readings(options: &TimingOptions, tally: &Mutex<Tally>, notes: Sender<Note>, over: &Stop) {
    while !over.is_asked() {
        let failed = read_stream(options, tally, over);
        // Nobody listens any more when the client is at its end.
        if notes.send(failed).is_err() || !over.sleep_until(Instant::now() + REOPEN) {
            return;
        }
    }
}

/// Reads one bulk stream until it breaks, which it always does in the end.
fn read_stream(options: &TimingOptions, tally: &Mutex<Tally>, over: &Stop) -> Note {
    let mut peer = match options.route.open_peer(over) {
        Ok(peer) => peer,
        Err(error) => return Note::Failed(Stage::Open, error),
    };
    let request = Request::Clocks(options.bulk_limit_b_s).head();
    if let Err(error) = peer.send(request.as_bytes()) {
        return Note::Failed(Stage::Transfer, error);
    }
    let mut readings = Readings::default();
    let mut chunk = vec![0; CHUNK];
    let stalls = options.bulk_reads_for.map(|reads_for| Instant::now() + reads_for);
    loop {
        if stalls.is_some_and(|stalls| stalls <= Instant::now()) {
            // Long beyond any program's end.
            over.sleep_until(Instant::now() + STALL);
            return Note::Failed(Stage::Transfer, Error::Interrupted);
        }
        peer.begin();
        let len = match peer.receive(&mut chunk) {
            Ok(0) => return Note::Failed(Stage::Transfer, closed("the timing server")),
            Ok(len) => len,
            Err(error) => return Note::Failed(Stage::Transfer, error),
        };
        let now_ns = monotonic_ns();
        let mut tally = lock(tally);
        tally.bytes += len as u64;
        if let Some(reading_ns) = readings.push(&chunk[..len]) {
            tally.delays_ms += ms_between(reading_ns, now_ns);
            tally.delays += 1;
        }
    }
}

/// The pauses between probes, which are exponential.
#[derive(Clone, Debug)]
pub(crate) struct Pauses {
    mean: Duration,
    rng: Rng,
}

impl Pauses {
    /// Those of a client.
    pub(crate) fn new(identity: &Identity, mean: Duration) -> Pauses {
        let Identity { label, seed, .. } = identity;
        Pauses { mean, rng: Seed::from_number(*seed).child(&["traffic", "probes", label]).rng() }
    }

    /// From the end of a probe to the beginning of the next.
    pub(crate) fn next_pause(&mut self) -> Duration {
        // 1 - unit() is never zero.
        self.mean.mul_f64(-libm::log(1.0 - self.rng.unit()))
    }
}

fn probe_now_and_then(options: &TimingOptions, pause: Duration, notes: Sender<Note>, over: &Stop) {
    let mut pauses = Pauses::new(&options.identity, pause);
    loop {
        let pause = pauses.next_pause();
        if !over.sleep_until(Instant::now() + pause) {
            return;
        }
        let note = match probe(&options.route, over) {
            Ok(probe) => Note::Probed(probe),
            Err((stage, error)) => Note::Failed(stage, error),
        };
        if notes.send(note).is_err() {
            return;
        }
    }
}

fn probe(route: &Route, over: &Stop) -> std::result::Result<Probe, (Stage, Error)> {
    let begun = Instant::now();
    let mut peer = route.open_peer(over).map_err(|error| (Stage::Open, error))?;
    let open_ms = begun.elapsed().as_secs_f64() * 1e3;
    let asked_ns = monotonic_ns();
    let mut reading = [0; READING_BYTES];
    let answered = peer
        .send(Request::Clock.head().as_bytes())
        .and_then(|()| peer.receive_exact(&mut reading, "the timing server"));
    let now_ns = monotonic_ns();
    answered.map_err(|error| (Stage::Transfer, error))?;
    let latency_ms = ms_between(u64::from_be_bytes(reading), now_ns);
    Ok(Probe { begun, open_ms, latency_ms, echo_ms: ms_between(asked_ns, now_ns) })
}

#[cfg(test)]
mod tests;
