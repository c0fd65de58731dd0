//! `MetricsPort`: what the relay does, in Prometheus' text format over HTTP/1.0, as stock Tor has it.
//!
//! One thread answers one request after the other. It may wait for whoever asks, within [`EXCHANGE_MAX`]; the shards
//! never wait for it: they are asked by a control message, at most once in [`FRESH_FOR`], and answer by an event. Only
//! addresses that `MetricsPortPolicy` accepts get a word in; without that option nobody does.

mod deadline;
mod families;
mod request;
mod text;
mod timings;

use super::Failure;
use crate::torrc::Options;
use deadline::DeadlineStream;
use families::Snapshot;
use heddle_control::Facts;
use heddle_net::LoopHandle;
use heddle_proto::policy::ExitPolicy;
use heddle_relay::{Control, RelayLanguage, RelayStats};
use heddle_seam::stopwatch::Stopwatch;
use request::Request;
use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use timings::Timings;

/// How long one exchange may take.
const EXCHANGE_MAX: Duration = Duration::from_secs(5);
/// Shards are asked again only after this time, however often we are.
const FRESH_FOR: Duration = Duration::from_millis(200);
/// How long shards may take to answer. One that takes longer is reported as it was the last time.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Answers of shards that may wait.
const ANSWERS_MAX: usize = 256;

/// Takes what a shard reports, by the shard's number.
pub type StatsSender = SyncSender<(usize, Box<RelayStats>)>;

/// The port, bound and not answering yet.
pub struct MetricsPort {
    listener: Option<TcpListener>,
    policy: ExitPolicy,
    sender: StatsSender,
    stats: Receiver<(usize, Box<RelayStats>)>,
    known: Known,
    timings: Option<Arc<Timings>>,
}

/// What the control plane knows and the port tells.
#[derive(Clone, Default)]
pub struct Known(Arc<Mutex<Facts>>);

impl Known {
    pub fn set(&self, facts: Facts) {
        *self.facts() = facts;
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MetricsPort {
    /// Binds the port, if the operator wants one.
    pub fn bind(options: &Options) -> Result<Self, Failure> {
        let bind = |addr| {
            let refused = |error| format!("MetricsPort {addr} cannot be opened: {error}; choose another");
            heddle_net::listen(addr).map_err(refused)
        };
        let listener = options.metrics_port.map(bind).transpose()?;
        let (sender, stats) = mpsc::sync_channel(ANSWERS_MAX);
        let policy = ExitPolicy::from_rules(&options.metrics_port_policy);
        let timings = options.heddle.timings.then(|| Arc::new(Timings::new()));
        Ok(MetricsPort { listener, policy, sender, stats, known: Known::default(), timings })
    }

    /// Where shards report to.
    pub fn sender(&self) -> StatsSender {
        self.sender.clone()
    }

    /// What loops and endpoints tell their times to: to nobody, unless the operator wants to hear them.
    pub fn stopwatch(&self) -> Stopwatch {
        self.timings.as_ref().map_or_else(Stopwatch::default, |timings| Stopwatch::new(timings.clone()))
    }

    pub fn known(&self) -> Known {
        self.known.clone()
    }

    /// Answers from now on. `sockets_max` is the limit of descriptors.
    pub fn start(
        self,
        shards: Vec<LoopHandle<RelayLanguage>>,
        sockets_max: Option<u64>,
    ) -> std::io::Result<()> {
        let Some(listener) = self.listener else { return Ok(()) };
        log::info!("Metrics are served at {}", listener.local_addr()?);
        let mut server = Server {
            policy: self.policy,
            stats: vec![RelayStats::default(); shards.len()],
            shards,
            answers: self.stats,
            asked_at: None,
            known: self.known,
            timings: self.timings,
            sockets_max,
        };
        std::thread::Builder::new().name("metrics".into()).spawn(move || server.run(&listener))?;
        Ok(())
    }
}

struct Server {
    policy: ExitPolicy,
    shards: Vec<LoopHandle<RelayLanguage>>,
    /// What each shard said last.
    stats: Vec<RelayStats>,
    answers: Receiver<(usize, Box<RelayStats>)>,
    asked_at: Option<Instant>,
    known: Known,
    timings: Option<Arc<Timings>>,
    sockets_max: Option<u64>,
}

impl Server {
    fn run(&mut self, listener: &TcpListener) {
        for stream in listener.incoming() {
            match stream {
                // Whoever leaves early has seen what he wanted.
                Ok(stream) => drop(self.serve(&stream)),
                // Out of descriptors, most likely: it gets better or it does not, but not by asking at once.
                Err(_) => std::thread::sleep(Duration::from_secs(1)),
            }
        }
    }

    fn serve(&mut self, stream: &TcpStream) -> std::io::Result<()> {
        // Policies are about addresses here, and any port stands for all.
        let allowed = self.policy.allows(stream.peer_addr()?.ip(), 1);
        if !allowed {
            return stream.shutdown(Shutdown::Both);
        }
        let mut within = DeadlineStream::new(stream, Instant::now() + EXCHANGE_MAX)?;
        let answer = match request::read(&mut within)? {
            Request::Metrics => ok(&self.render()),
            Request::Refused(status) => format!("HTTP/1.0 {status}\r\n\r\n").into_bytes(),
        };
        DeadlineStream::new(stream, Instant::now() + EXCHANGE_MAX)?.write_all(&answer)?;
        stream.shutdown(Shutdown::Write)
    }

    fn render(&mut self) -> String {
        self.refresh();
        let mut relay = RelayStats::default();
        self.stats.iter().for_each(|stats| relay.add(stats));
        let counters = self.shards.iter().map(LoopHandle::counters).collect();
        let facts = self.known.facts().clone();
        let timings = self.timings.iter().flat_map(|timings| timings.told()).collect();
        families::render(&Snapshot { relay, counters, facts, timings, sockets_max: self.sockets_max })
    }

    /// Asks all shards, and waits for those that answer soon.
    fn refresh(&mut self) {
        if self.asked_at.is_some_and(|at| at.elapsed() < FRESH_FOR) {
            return;
        }
        // What came too late for the last request is older than what comes now.
        while let Ok((shard, stats)) = self.answers.try_recv() {
            self.stats[shard] = *stats;
        }
        let told = self.shards.iter().filter(|shard| shard.control(Control::Stats).is_ok()).count();
        let deadline = Instant::now() + ANSWER_MAX;
        for _ in 0..told {
            let patience = deadline.saturating_duration_since(Instant::now());
            let Ok((shard, stats)) = self.answers.recv_timeout(patience) else { break };
            self.stats[shard] = *stats;
        }
        self.asked_at = Some(Instant::now());
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

#[cfg(test)]
mod tests;
