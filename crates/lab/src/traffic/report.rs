//! What a traffic program says while it runs and when it ends.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;

use super::route::{Failures, Stage, kind};
use super::stop::Stop;
use crate::error::Error;
use crate::figures::{Figure, Labels, Samples};

/// Something that happened. Serialised it is one line of JSON with its kind as `event`.
/// Times `t_s` are seconds since the program began.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A server listens.
    Listening {
        /// On this address and port.
        addr: String,
    },
    /// The measurement begins: the bulk stream is steady, or it is not and the wait was over.
    Measuring {
        /// When.
        t_s: f64,
        /// Whether the stream was steady.
        steady: bool,
    },
    /// What one second of a bulk stream brought, or when the program is stopped what has come since the last one.
    Second {
        /// The end of the second.
        t_s: f64,
        /// How long it was.
        length_s: f64,
        /// Whether it counts: false before the measurement begins, and for what is left at the end.
        measured: bool,
        /// Received in it, in units of 1000 bytes per second.
        throughput_kb_s: f64,
        /// Mean age of the readings that came in it; absent when none came.
        #[serde(skip_serializing_if = "Option::is_none")]
        delay_ms: Option<f64>,
        /// Mean one-way latency of the probes that ended in it; absent when none did.
        #[serde(skip_serializing_if = "Option::is_none")]
        latency_ms: Option<f64>,
    },
    /// One probe.
    Probe {
        /// Its end.
        t_s: f64,
        /// Whether it counts.
        measured: bool,
        /// From the request for a stream to the stream.
        open_ms: f64,
        /// From the server's reading of the clock to its arrival: the thesis' latency.
        latency_ms: f64,
        /// From the request over the stream to the answer: one cell each way.
        echo_ms: f64,
    },
    /// One echo over a stream that stays.
    Echo {
        /// Its end.
        t_s: f64,
        /// From the message to its coming back: one cell each way.
        echo_ms: f64,
    },
    /// An echo that had not come back when its stream ended, or when it was not waited for any longer.
    EchoLost {
        /// When that was.
        t_s: f64,
        /// How long the message had been on the way then.
        age_ms: f64,
    },
    /// One download.
    Fetch {
        /// Its end.
        t_s: f64,
        /// Its size.
        bytes: u64,
        /// From the request for a stream to the stream.
        open_ms: f64,
        /// From the request for a stream to the first byte of the answer.
        first_byte_ms: f64,
        /// From the request for a stream to the last byte of the answer.
        download_s: f64,
    },
    /// One stream of a Markov model.
    Stream {
        /// Its end.
        t_s: f64,
        /// Which flow it belongs to, from 0.
        flow: u64,
        /// Which stream of the flow it is, from 0.
        stream: u64,
        /// Payload from client to server.
        up_bytes: u64,
        /// Payload from server to client.
        down_bytes: u64,
        /// From the request for a stream to the stream.
        open_ms: f64,
        /// From the request for a stream to the first byte from the server, without the pause that
        /// the script has before it; absent when the script brings nothing.
        #[serde(skip_serializing_if = "Option::is_none")]
        first_byte_ms: Option<f64>,
        /// From the request for a stream to its end.
        stream_s: f64,
    },
    /// Something failed; the program goes on.
    Failure {
        /// When.
        t_s: f64,
        /// Its kind, as the report counts it.
        kind: String,
        /// The error in full.
        error: String,
    },
}

impl Event {
    /// One line of JSON, without the line's end.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("an event is made of numbers and text")
    }
}

/// How a program came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// It did what it was asked to.
    Complete,
    /// Somebody stopped it: the report covers what was done until then.
    Interrupted,
}

/// What a program found. Serialised it is the last line, with `event` = `summary`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename = "summary")]
pub struct Report {
    /// Which program: `timing`, `web`, `bulk` or `markov`.
    pub program: String,
    /// What names this client; with the seed it chooses every random number.
    pub label: String,
    /// The seed.
    pub seed: u64,
    /// How it ended.
    pub ended: Ended,
    /// How long it ran, in seconds.
    pub seconds: f64,
    /// For a timing client with a bulk stream: when that became steady, in seconds, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady_after_s: Option<f64>,
    /// How often what failed.
    pub failures: Failures,
    /// What was measured.
    pub figures: Vec<Figure>,
}

impl Report {
    /// One line of JSON, without the line's end.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a report is made of numbers, text and maps of text")
    }
}

/// Who a client is: what its random numbers follow from, and how its figures are labelled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// A name that differs between the clients of an experiment.
    pub label: String,
    /// The experiment's seed.
    pub seed: u64,
    /// Labels of every figure.
    pub labels: Labels,
}

/// Makes a report of what a program tells, and passes that on.
pub(super) struct Reporter<'a> {
    program: String,
    identity: Identity,
    begun: Instant,
    samples: Samples,
    failures: Failures,
    /// See [`Report::steady_after_s`].
    pub(super) steady_after_s: Option<f64>,
    on_event: &'a mut dyn FnMut(&Event),
}

impl<'a> Reporter<'a> {
    pub(super) fn new(
        program: &str,
        identity: &Identity,
        on_event: &'a mut dyn FnMut(&Event),
    ) -> Reporter<'a> {
        Reporter {
            program: program.to_owned(),
            identity: identity.clone(),
            begun: Instant::now(),
            samples: Samples::default(),
            failures: BTreeMap::new(),
            steady_after_s: None,
            on_event,
        }
    }

    /// When the program began.
    pub(super) fn begun(&self) -> Instant {
        self.begun
    }

    /// Seconds since then.
    pub(super) fn t_s(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// Takes the samples of an event and counts what failed.
    pub(super) fn say(&mut self, event: &Event) {
        match event {
            Event::Second { measured: true, throughput_kb_s, delay_ms, .. } => {
                self.sample("throughput_kb_s", "KB/s", *throughput_kb_s);
                delay_ms.iter().for_each(|delay_ms| self.sample("delay_ms", "ms", *delay_ms));
            }
            Event::Probe { measured: true, open_ms, latency_ms, echo_ms, .. } => {
                self.sample("open_ms", "ms", *open_ms);
                self.sample("latency_ms", "ms", *latency_ms);
                self.sample("echo_ms", "ms", *echo_ms);
            }
            Event::Echo { echo_ms, .. } => self.sample("echo_ms", "ms", *echo_ms),
            Event::EchoLost { .. } => self.left_out("transfer: lost"),
            Event::Fetch { bytes, open_ms, first_byte_ms, download_s, .. } => {
                self.sample("open_ms", "ms", *open_ms);
                self.sample("first_byte_ms", "ms", *first_byte_ms);
                self.sample("download_s", "s", *download_s);
                self.sample("download_kb_s", "KB/s", *bytes as f64 / 1e3 / download_s);
            }
            Event::Stream { up_bytes, down_bytes, open_ms, first_byte_ms, stream_s, .. } => {
                self.sample("open_ms", "ms", *open_ms);
                first_byte_ms.iter().for_each(|ms| self.sample("first_byte_ms", "ms", *ms));
                self.sample("stream_s", "s", *stream_s);
                self.sample("up_kb", "KB", *up_bytes as f64 / 1e3);
                self.sample("down_kb", "KB", *down_bytes as f64 / 1e3);
            }
            Event::Failure { kind, .. } => self.left_out(kind),
            Event::Second { .. }
            | Event::Probe { .. }
            | Event::Measuring { .. }
            | Event::Listening { .. } => {}
        }
        (self.on_event)(event);
    }

    /// Adds one sample; the unit is the last word of the name, as figures are named.
    fn sample(&mut self, name: &str, unit: &str, value: f64) {
        self.samples.add(name, self.identity.labels.clone(), unit, value);
    }

    /// Tells a failure.
    pub(super) fn failed(&mut self, stage: Stage, error: &Error) {
        let (t_s, kind) = (self.t_s(), kind(stage, error));
        self.say(&Event::Failure { t_s, kind, error: error.to_string() });
    }

    /// Counts something left out.
    pub(super) fn left_out(&mut self, kind: &str) {
        *self.failures.entry(kind.to_owned()).or_default() += 1;
    }

    pub(super) fn finish(self, stop: &Stop) -> Report {
        Report {
            program: self.program,
            label: self.identity.label,
            seed: self.identity.seed,
            ended: if stop.is_asked() { Ended::Interrupted } else { Ended::Complete },
            seconds: self.begun.elapsed().as_secs_f64(),
            steady_after_s: self.steady_after_s,
            failures: self.failures,
            figures: self.samples.figures(),
        }
    }
}
