//! `MetricsPort`: what the relay does, in Prometheus' text format over HTTP/1.0, as stock Tor has it.
//!
//! 1. Only addresses that `MetricsPortPolicy` accepts get a word in; without that option nobody does.
//! 2. Whoever asks for the metrics has the shards asked what they did, at most once in [`FRESH_FOR`], and waits until
//!    they have said so or [`ANSWER_MAX`] is over; then the driver is asked for what it alone knows.
//! 3. Whoever takes longer than [`EXCHANGE_MAX`] to ask, or to read the answer, is cut off; and whoever waits longer.

mod families;
pub mod fuzz;
mod request;
#[cfg(test)]
mod tests;
mod text;

pub use text::{Exposition, Family, Histograms};

use crate::language::{ControlLanguage, Figures, Standing, Wanted};
use heddle_proto::policy::ExitPolicy;
use heddle_relay::{Control, RelayStats};
use heddle_seam::node::{Input, Output, SocketId};
use heddle_seam::time::{Duration, Instant};
use request::Request;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How long asking may take, and how long reading the answer.
const EXCHANGE_MAX: Duration = Duration::from_secs(5);
/// Shards are asked again only after this time, however often we are.
const FRESH_FOR: Duration = Duration::from_millis(200);
/// How long shards may take to answer. One that takes longer is reported as it was the last time.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Who may ask at once; more are turned away. Each has up to a kilobyte of a request or an answer of some tens of
/// kilobytes.
const VISITORS_MAX: usize = 16;

/// The port: whoever asks there, and what shards said last.
pub(crate) struct MetricsPort {
    policy: ExitPolicy,
    visitors: BTreeMap<SocketId, Visitor>,
    stats: Vec<RelayStats>,
    /// When all shards had said what they did, or had had their time for it.
    fresh_at: Option<Instant>,
    awaited: Awaited,
    outputs: VecDeque<Output<ControlLanguage>>,
    recv_buf: [u8; request::HEAD_BYTES_MAX],
}

/// What is waited for, so that visitors can be answered.
enum Awaited {
    Nothing,
    /// The shards that have not said yet what they did.
    Shards {
        left: BTreeSet<u16>,
        until: Instant,
    },
    /// What the driver knows. It may have had too much to do to say so, and is asked again then.
    Figures {
        until: Instant,
    },
}

struct Visitor {
    phase: Phase,
    credit_bytes: usize,
    ends: Instant,
}

enum Phase {
    Asking(Vec<u8>),
    Waiting,
    /// What is left to be sent.
    Reading(Vec<u8>),
}

impl Visitor {
    fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Waiting)
    }
}

impl MetricsPort {
    pub fn new(policy: ExitPolicy, shards: u16) -> Self {
        MetricsPort {
            policy,
            visitors: BTreeMap::new(),
            stats: vec![RelayStats::default(); usize::from(shards)],
            fresh_at: None,
            awaited: Awaited::Nothing,
            outputs: VecDeque::new(),
            recv_buf: [0; request::HEAD_BYTES_MAX],
        }
    }

    pub fn recv_buf(&mut self) -> &mut [u8] {
        &mut self.recv_buf
    }

    /// Takes an input about a connection that was accepted; others say nothing here.
    pub fn handle(&mut self, now: Instant, input: &Input<ControlLanguage>) {
        match *input {
            Input::Accepted { socket, peer, .. } => {
                // Policies are about addresses here, and any port stands for all.
                if self.visitors.len() >= VISITORS_MAX || !self.policy.allows(peer.ip(), 1) {
                    return self.outputs.push_back(Output::Close { socket });
                }
                let visitor =
                    Visitor { phase: Phase::Asking(Vec::new()), credit_bytes: 0, ends: now + EXCHANGE_MAX };
                self.visitors.insert(socket, visitor);
                self.outputs.push_back(Output::Interest { socket, read: true, write: false });
            }
            Input::Read { socket, len } => self.on_read(now, socket, len),
            Input::Eof { socket } => self.on_request(now, socket, Request::BAD),
            Input::Writable { socket, bytes, .. } => {
                if let Some(visitor) = self.visitors.get_mut(&socket) {
                    visitor.credit_bytes = bytes;
                    self.outputs.push_back(Output::Send { socket });
                }
            }
            Input::Failed { socket, .. } => drop(self.visitors.remove(&socket)),
            _ => {}
        }
    }

    /// A shard says what it did.
    pub(crate) fn on_stats(&mut self, now: Instant, shard: u16, stats: RelayStats) {
        if let Some(of) = self.stats.get_mut(usize::from(shard)) {
            *of = stats;
        }
        if let Awaited::Shards { left, .. } = &mut self.awaited {
            left.remove(&shard);
            self.end_of_shards(now);
        }
    }

    /// The driver says what it knows: all who wait are answered.
    pub(crate) fn on_figures(&mut self, now: Instant, figures: &Figures, standing: &Standing) {
        self.awaited = Awaited::Nothing;
        let mut relay = RelayStats::default();
        self.stats.iter().for_each(|stats| relay.add(stats));
        let answer = ok(&families::render(&relay, standing, figures));
        let waiting = self.visitors.iter().filter(|(_, visitor)| visitor.is_waiting());
        let waiting: Vec<SocketId> = waiting.map(|(socket, _)| *socket).collect();
        waiting.into_iter().for_each(|socket| self.answer(now, socket, answer.clone()));
    }

    /// Ends what has taken its time.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.end_of_shards(now);
        if let Awaited::Figures { until } = self.awaited
            && until <= now
        {
            self.ask_driver(now);
        }
        let late = self.visitors.iter().filter(|(_, visitor)| visitor.ends <= now);
        for socket in late.map(|(socket, _)| *socket).collect::<Vec<_>>() {
            self.visitors.remove(&socket);
            self.outputs.push_back(Output::Abort { socket });
        }
    }

    /// When the next thing's time is up.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        let awaited = match self.awaited {
            Awaited::Shards { until, .. } | Awaited::Figures { until } => Some(until),
            Awaited::Nothing => None,
        };
        self.visitors.values().map(|visitor| visitor.ends).chain(awaited).min()
    }

    /// What the driver is to do next; bytes to send are appended to `buf`.
    pub fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<Output<ControlLanguage>> {
        loop {
            match self.outputs.pop_front()? {
                Output::Send { socket } if !self.flush(socket, buf) => {}
                output => return Some(output),
            }
        }
    }

    fn on_read(&mut self, now: Instant, socket: SocketId, len: usize) {
        let Some(Visitor { phase: Phase::Asking(head), .. }) = self.visitors.get_mut(&socket) else { return };
        let room = request::HEAD_BYTES_MAX - head.len();
        head.extend_from_slice(&self.recv_buf[..len.min(room)]);
        let is_full = head.len() == request::HEAD_BYTES_MAX;
        if let Some(request) = request::parse(head).or(is_full.then_some(Request::BAD)) {
            self.on_request(now, socket, request);
        }
    }

    fn on_request(&mut self, now: Instant, socket: SocketId, request: Request) {
        let Some(visitor) = self.visitors.get_mut(&socket) else { return };
        if !matches!(visitor.phase, Phase::Asking(_)) {
            return;
        }
        match request {
            Request::Refused(status) => {
                self.answer(now, socket, format!("HTTP/1.0 {status}\r\n\r\n").into_bytes());
            }
            Request::Metrics => {
                // He has asked in time, and is not to blame for whoever is slow to answer.
                visitor.phase = Phase::Waiting;
                visitor.ends = now + EXCHANGE_MAX;
                self.outputs.push_back(Output::Interest { socket, read: false, write: false });
                self.refresh(now);
            }
        }
    }

    /// Asks the shards, or the driver alone while what they said is fresh; unless somebody is asked already.
    fn refresh(&mut self, now: Instant) {
        if !matches!(self.awaited, Awaited::Nothing) {
            return;
        }
        if self.fresh_at.is_some_and(|at| now.since(at) < FRESH_FOR) {
            return self.ask_driver(now);
        }
        let left: BTreeSet<u16> = (0..u16::try_from(self.stats.len()).unwrap_or(u16::MAX)).collect();
        for shard in &left {
            self.outputs.push_back(Output::Event(Wanted::Tell { shard: *shard, control: Control::Stats }));
        }
        self.awaited = Awaited::Shards { left, until: now + ANSWER_MAX };
        self.end_of_shards(now);
    }

    /// Unless nobody waits for it any more.
    fn ask_driver(&mut self, now: Instant) {
        if !self.visitors.values().any(Visitor::is_waiting) {
            self.awaited = Awaited::Nothing;
            return;
        }
        self.awaited = Awaited::Figures { until: now + ANSWER_MAX };
        self.outputs.push_back(Output::Event(Wanted::Figures));
    }

    /// Asks the driver once all shards have said what they did, or have had their time.
    fn end_of_shards(&mut self, now: Instant) {
        let Awaited::Shards { left, until } = &self.awaited else { return };
        if left.is_empty() || *until <= now {
            self.fresh_at = Some(now);
            self.ask_driver(now);
        }
    }

    fn answer(&mut self, now: Instant, socket: SocketId, answer: Vec<u8>) {
        if let Some(visitor) = self.visitors.get_mut(&socket) {
            *visitor = Visitor { phase: Phase::Reading(answer), credit_bytes: 0, ends: now + EXCHANGE_MAX };
            self.outputs.push_back(Output::Interest { socket, read: false, write: true });
        }
    }

    /// Appends what a visitor can be sent now; false when that is nothing.
    fn flush(&mut self, socket: SocketId, buf: &mut Vec<u8>) -> bool {
        let Some(visitor) = self.visitors.get_mut(&socket) else { return false };
        let Phase::Reading(answer) = &mut visitor.phase else { return false };
        let bytes = answer.len().min(core::mem::take(&mut visitor.credit_bytes));
        buf.extend(answer.drain(..bytes));
        if answer.is_empty() {
            self.visitors.remove(&socket);
            self.outputs.push_back(Output::Close { socket });
        }
        bytes > 0
    }
}

fn ok(body: &str) -> Vec<u8> {
    let head = format!(
        "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    (head + body).into_bytes()
}
