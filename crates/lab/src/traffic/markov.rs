//! A client that behaves as measured users do: flows, their streams, and the packets of those.
//!
//! 1. Flows begin as the model's flow chain says, or at exponential intervals. Through SOCKS each has
//!    a user name of its own, so that Tor gives it circuits of its own.
//! 2. A flow walks the stream chain: every step opens a stream and waits its delay, whether or not
//!    the streams before have ended.
//! 3. For a stream the packet chain is walked to its end beforehand. The result is a [`Script`]: the
//!    client sends the server its part of it and plays its own part meanwhile.
//!
//! The models are those of TGen, which tornettools generates its users with (Jansen and others, "Once
//! is Never Enough", USENIX Security 2021). Unlike TGen's server, ours does not walk the chain
//! itself: it does what the script says, eight bytes for a burst.
//!
//! Which streams there are and what they carry follows from seed and label alone; when they end is
//! the network's doing.

mod chain;
mod distribution;
mod model;
mod play;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use heddle_netem::{Rng, Seed};

use super::report::{Event, Identity, Report, Reporter};
use super::route::{Route, Stage};
use super::script::BURSTS_MAX;
use super::stop::Stop;
use crate::error::{Error, Result};
use crate::socks::Isolation;
use chain::Walk;
use play::{Played, play};

pub use model::{MarkovModel, Script};

/// Flows that open streams at one time; those beyond are left out and counted.
const FLOWS_MAX: usize = 1024;

/// What a Markov client does. It ends at the first of its bounds; it needs one.
#[derive(Clone, Debug)]
pub struct MarkovOptions {
    /// Where to and how. With an isolation, all flows share it.
    pub route: Route,
    /// Whose random numbers and labels.
    pub identity: Identity,
    /// How users behave.
    pub model: MarkovModel,
    /// The mean of the exponential intervals between the beginnings of flows; `None` leaves them to
    /// the model.
    pub flow_interval: Option<Duration>,
    /// How many flows; the client waits for their streams.
    pub flows: Option<u64>,
    /// How long: streams that are not at their end then are left out.
    pub duration: Option<Duration>,
    /// Streams at one time; those beyond are left out and counted.
    pub streams_max: usize,
    /// Packets of one stream in both directions; longer ones are cut. At most 20,000.
    pub packets_max: usize,
}

impl MarkovOptions {
    /// One client of the model for a minute, with at most 64 streams at one time.
    pub fn new(route: Route, identity: Identity, model: MarkovModel) -> MarkovOptions {
        MarkovOptions {
            route,
            identity,
            model,
            flow_interval: None,
            flows: None,
            duration: Some(Duration::from_secs(60)),
            streams_max: 64,
            packets_max: BURSTS_MAX,
        }
    }

    /// Fails with what is wrong with the options.
    pub fn validate(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::Options(what.to_owned()));
        if self.flow_interval.is_none() && !self.model.has_flows() {
            return wrong("the model has no flow_model, so the interval between flows must be given");
        }
        if self.flows.is_none() && self.duration.is_none() {
            return wrong("a Markov client needs a number of flows or a duration");
        }
        if self.streams_max == 0 || self.packets_max == 0 || self.packets_max > BURSTS_MAX {
            return wrong("a Markov client needs 1 or more streams and 1 to 20000 packets for each");
        }
        Ok(())
    }
}

/// Generates flows until the bounds, or until stopped.
///
/// Figures of complete streams: `open_ms`, `first_byte_ms` (without the pause that the script has
/// before it), `stream_s`, `up_kb` and `down_kb`. The report's failures also count what was left out.
pub fn run_markov(options: &MarkovOptions, stop: &Stop, on_event: &mut dyn FnMut(&Event)) -> Result<Report> {
    options.validate()?;
    let reporter = Reporter::new("markov", &options.identity, on_event);
    let over = Stop::default();
    let (notes, heard) = mpsc::channel();
    thread::scope(|scope| {
        let _at_end = over.ask_at_end();
        let seed = Seed::from_number(options.identity.seed);
        let seed = seed.child(&["traffic", "markov", &options.identity.label]);
        let mut client = Client {
            options,
            intervals: Intervals::new(options, &seed),
            seed,
            reporter,
            agenda: BinaryHeap::new(),
            flows: BTreeMap::new(),
            flows_begun: 0,
            running: 0,
            notes,
            over: &over,
        };
        client.run(scope, &heard, stop);
        over.ask();
        client.hear_the_rest(&heard);
        Ok(client.reporter.finish(stop))
    })
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// The next flow.
    Flow,
    /// The next stream of this flow.
    Stream(u64),
}

/// How long after a flow the next one begins.
enum Intervals<'a> {
    Model(Walk<'a>),
    Exponential(Duration, Rng),
}

impl<'a> Intervals<'a> {
    fn new(options: &'a MarkovOptions, seed: &Seed) -> Intervals<'a> {
        let rng = seed.child(&["flows"]).rng();
        match (options.flow_interval, options.model.flows(rng.clone())) {
            (None, Some(walk)) => Intervals::Model(walk),
            (mean, _) => Intervals::Exponential(mean.unwrap_or_default(), rng),
        }
    }

    /// The next interval; none when the chain of flows has come to its end.
    fn next(&mut self) -> Option<Duration> {
        match self {
            Intervals::Model(walk) => walk.next().map(|(_, us)| Duration::from_micros(us.into())),
            Intervals::Exponential(mean, rng) => Some(mean.mul_f64(-(1.0 - rng.unit()).ln())),
        }
    }
}

/// A flow that will open more streams.
struct Flow<'a> {
    streams: Walk<'a>,
    streams_begun: u64,
    isolation: Isolation,
}

/// What a stream's thread says at its end.
struct Note {
    flow: u64,
    stream: u64,
    script: Script,
    result: std::result::Result<Played, (Stage, Error)>,
}

/// Says that a stream's thread is at its end, and how the stream ended unless the thread panicked. The client would
/// wait for ever for a thread that says nothing, and nobody would hear of the panic.
struct Ending {
    notes: Sender<Option<Note>>,
    note: Option<Note>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        // The client listens until the last stream has ended.
        let _ = self.notes.send(self.note.take());
    }
}

struct Client<'a> {
    options: &'a MarkovOptions,
    seed: Seed,
    intervals: Intervals<'a>,
    reporter: Reporter<'a>,
    agenda: BinaryHeap<Reverse<(Instant, Due)>>,
    flows: BTreeMap<u64, Flow<'a>>,
    flows_begun: u64,
    /// Streams whose threads have not ended.
    running: usize,
    notes: Sender<Option<Note>>,
    over: &'a Stop,
}

impl<'a> Client<'a> {
    fn run<'scope>(&mut self, scope: &'scope Scope<'scope, '_>, heard: &Receiver<Option<Note>>, stop: &Stop)
    where
        'a: 'scope,
    {
        let begun = self.reporter.begun();
        let end = self.options.duration.map(|duration| begun + duration);
        self.agenda.push(Reverse((begun, Due::Flow)));
        while self.running > 0 || !self.agenda.is_empty() {
            let now = Instant::now();
            if stop.is_asked() || end.is_some_and(|end| now >= end) {
                return;
            }
            match self.agenda.peek() {
                Some(Reverse((when, due))) if *when <= now => {
                    let due = *due;
                    self.agenda.pop();
                    match due {
                        Due::Flow => self.flow(now),
                        Due::Stream(flow) => self.stream(scope, flow, now),
                    }
                }
                next => {
                    let next = next.map_or(now + Duration::from_secs(1), |Reverse((when, _))| *when);
                    let wait = next.min(end.unwrap_or(next)).saturating_duration_since(now);
                    match heard.recv_timeout(wait.min(Duration::from_millis(50))) {
                        Ok(note) => self.ended(note),
                        // The client keeps a sender itself, so the channel never closes.
                        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
                    }
                }
            }
        }
    }

    /// Begins a flow and puts the next one on the agenda.
    fn flow(&mut self, now: Instant) {
        let number = self.flows_begun;
        self.flows_begun += 1;
        if let Some(interval) = self.intervals.next()
            && self.options.flows.is_none_or(|flows| self.flows_begun < flows)
        {
            self.agenda.push(Reverse((now + interval, Due::Flow)));
        }
        if self.flows.len() >= FLOWS_MAX {
            return self.reporter.left_out("left out: too many flows");
        }
        let seed = self.seed.child(&["flow", &number.to_string()]);
        let username = format!("{:016x}", seed.child(&["user name"]).rng().next_u64());
        let isolation = Isolation { username, password: "x".into() };
        let streams = self.options.model.streams(seed.child(&["streams"]).rng());
        self.flows.insert(number, Flow { streams, streams_begun: 0, isolation });
        self.agenda.push(Reverse((now, Due::Stream(number))));
    }

    /// Takes a flow's next step.
    fn stream<'scope>(&mut self, scope: &'scope Scope<'scope, '_>, number: u64, now: Instant)
    where
        'a: 'scope,
    {
        let Some(flow) = self.flows.get_mut(&number) else { return };
        let Some((_, delay_us)) = flow.streams.next() else {
            self.flows.remove(&number);
            return;
        };
        self.agenda.push(Reverse((now + Duration::from_micros(delay_us.into()), Due::Stream(number))));
        let stream = flow.streams_begun;
        flow.streams_begun += 1;
        if self.running >= self.options.streams_max {
            return self.reporter.left_out("left out: too many streams");
        }
        let mut route = self.options.route.clone();
        route.isolation.get_or_insert_with(|| flow.isolation.clone());
        let seed = self.seed.child(&["flow", &number.to_string(), "stream", &stream.to_string()]);
        let script = self.options.model.script(seed.rng(), self.options.packets_max);
        let (notes, over) = (self.notes.clone(), self.over);
        self.running += 1;
        scope.spawn(move || {
            let mut ending = Ending { notes, note: None };
            let result = play(&route, &script, over);
            ending.note = Some(Note { flow: number, stream, script, result });
        });
    }

    fn ended(&mut self, note: Option<Note>) {
        self.running -= 1;
        // The scope passes a panic on when all threads are at their end.
        let Some(note) = note else { return };
        if note.script.cut {
            self.reporter.left_out("left out: packets beyond the most of a stream");
        }
        let Played { open_ms, first_byte_ms, stream_s } = match note.result {
            Ok(played) => played,
            Err((_, Error::Interrupted)) => {
                return self.reporter.left_out("left out: streams not at their end");
            }
            Err((stage, error)) => return self.reporter.failed(stage, &error),
        };
        let (up_bytes, down_bytes) = (note.script.up_bytes(), note.script.down_bytes());
        let (flow, stream, t_s) = (note.flow, note.stream, self.reporter.t_s());
        self.reporter.say(&Event::Stream {
            t_s,
            flow,
            stream,
            up_bytes,
            down_bytes,
            open_ms,
            first_byte_ms,
            stream_s,
        });
    }

    /// Waits for the streams that were told to end.
    fn hear_the_rest(&mut self, heard: &Receiver<Option<Note>>) {
        while self.running > 0 {
            match heard.recv() {
                Ok(note) => self.ended(note),
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests;
