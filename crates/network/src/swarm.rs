//! Whatever chance says to a network of whole relays, looked at by the client, the servers and what relays say of
//! themselves.
//!
//! 1. The seed says how many relays there are, how many shards each has, what they speak and over which wires.
//! 2. They come up from nothing. [Before anything goes wrong](calm) strangers want too much, some [keep no
//!    rules](malice), and a client gets all.
//! 3. Then a client builds and closes circuits, begins, stops and ends streams, while relays
//!    are killed and started anew, wires lose, reorder, double, stop, or reset what goes over them, and who kept no
//!    rules goes on.
//! 4. In the end all is mended. What was begun on circuits that still stand brings all of it; then all is closed, and
//!    nothing may be left; and files still go over paths that begin at each relay but the exit, which ends them.
//!
//! Looked at throughout: every byte that arrives is the one that was sent, in its place, and streams carry different
//! bytes; no guard calls another's cells a breach of the protocol; no relay counts more memory than it may have;
//! nothing that a directory sends makes reading it panic. What is broken is a panic that says so.

mod calm;
mod malice;
mod trouble;

pub use crate::mischief::MISCHIEF;

use crate::whole::{ShardNode, WholeNet, WholePlan};
use crate::{
    DIGEST, ECHO, SOURCE, STALL, await_status, begin, build, download, is_breach, pattern_sha256, upload,
};
use heddle_client::{
    CircuitNumber, Exchange, ExchangeNumber, ExchangeState, ExchangeStatus, OnionProxy, ProxyEvent,
};
use heddle_dir::guard::caught;
use heddle_proto::cell::stream::EndReason;
use heddle_proto::pool::SLOT_LEN;
use heddle_relay::{Limits, RelayStats};
use heddle_seam::rng::{Rng, Seed};
use heddle_seam::time::{Duration, Instant};
use heddle_sim::{HostId, Internet, Service, TraceHash, Wire, length, pattern, place};
use malice::{HOSTILE, Malice};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// How long a network may take to come up.
const BOOTSTRAP_MAX: Duration = Duration::from_secs(900);
/// Circuits of a shard, of which a greedy client soon has its share.
const CIRCUITS_OF_SHARD: usize = 400;
/// Memory of a relay in networks where it is short: little enough for circuits to end for want of it in some of them,
/// and enough in each of three shards for the connections of six relays, which take 47 KB each and stay.
const SHORT_MEMORY: u64 = 2_300_000;
/// Circuits and streams that a client has at once; more are closed first.
const CIRCUITS_MAX: usize = 24;
const EXCHANGES_MAX: usize = 60;
/// The most cells that wait in a lane of the exit: at 128 its streams are not read any more, of which one makes 32
/// cells at a time, and beside these wait answers to streams and questions.
const EXIT_LANE_CELLS_MAX: u64 = 128 + 32 + 2 * EXCHANGES_MAX as u64;
/// How long streams may take to bring the rest once nothing is wrong any more.
const REST_MAX: Duration = Duration::from_secs(300);
/// How long what was ended may take to be gone: dials have their own time-outs, and what a server is owed too.
const GONE_MAX: Duration = Duration::from_secs(120);

/// What happened in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub seed: u64,
    /// Of all that happened.
    pub hash: TraceHash,
    /// The virtual time that it took.
    pub time: Duration,
    pub relays: usize,
    pub shards: usize,
    pub circuits: u64,
    pub streams: u64,
    /// Bytes that arrived at clients, each compared with what was sent.
    pub bytes: u64,
    /// Those of them that a malicious relay carried.
    pub rogue_bytes: u64,
    /// Streams that were held to bring all in the end, and did.
    pub brought: u64,
    /// What was done to the network, by name.
    pub faults: BTreeMap<&'static str, u64>,
}

/// What a stream is to bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Expected {
    kind: Service,
    bytes: u64,
    /// By which streams of one kind differ.
    salt: u32,
    circuit: CircuitNumber,
}

impl Expected {
    /// How many bytes come if all goes well.
    fn length(self) -> u64 {
        match self.kind {
            Service::Source => self.bytes,
            Service::Digest if self.bytes == 0 => 0,
            Service::Digest => 32,
            Service::Echo => 8 + self.bytes,
            Service::Endless => u64::MAX,
            Service::Cut | Service::Reset => self.bytes / 2,
            Service::Stall | Service::Mute => 0,
        }
    }

    /// The hash of the first bytes of it.
    fn sha256(self, first: u64) -> [u8; 32] {
        let first = first as usize;
        let hash =
            |bytes: &mut dyn Iterator<Item = u8>| Sha256::digest(bytes.take(first).collect::<Vec<u8>>());
        let from = place(self.salt);
        let body = (0..self.bytes).map(pattern);
        let head = length(self.bytes, self.salt).to_be_bytes();
        match self.kind {
            Service::Source => hash(&mut (from..from + self.bytes).map(pattern)),
            Service::Digest => hash(&mut pattern_sha256(self.bytes).into_iter()),
            Service::Echo => hash(&mut head.into_iter().chain(body)),
            Service::Endless | Service::Cut | Service::Reset => hash(&mut (from..).map(pattern)),
            Service::Stall | Service::Mute => hash(&mut core::iter::empty()),
        }
        .into()
    }
}

/// A run of one seed.
pub struct Swarm {
    net: WholeNet,
    rng: Rng,
    circuits: Vec<CircuitNumber>,
    /// Circuits that were begun to end at the exit.
    to_exit: BTreeSet<CircuitNumber>,
    exchanges: Vec<(ExchangeNumber, Expected)>,
    /// The number of the next stream.
    salt: u32,
    /// Streams that the client ended itself.
    stopped: BTreeSet<ExchangeNumber>,
    /// Streams that servers never read.
    stalled: usize,
    killed: Option<usize>,
    /// Whether the exit was ever killed: a reset of its connections may be lost, and servers never hear of it then.
    exit_killed: bool,
    /// Whether memory is so short that what is honest may end for it.
    is_short: bool,
    /// Whether some relays are parted from the others.
    is_parted: bool,
    malice: Malice,
    /// Bytes that a relay may have for what waits, and for circuits, connections and channels.
    memory_max: u64,
    /// Panics that were stopped on this thread before.
    caught_before: u64,
    outcome: Outcome,
}

/// Runs what `seed` says for so much virtual time after the network has come up.
///
/// # Panics
///
/// When something is broken, with what that is.
pub fn run(seed: u64, time: Duration) -> Outcome {
    Swarm::new(seed).run(time)
}

/// Few enough for turns and shares to matter.
fn few() -> Limits {
    Limits { circuits: CIRCUITS_OF_SHARD, onionskins_at_work: 2, creates_unanswered: 1, ..Limits::default() }
}

impl Swarm {
    /// The network of a seed, in which nothing has happened yet.
    pub fn new(seed: u64) -> Self {
        let mut rng = Seed::from_number(seed).child("swarm", 0).rng();
        let wire = Wire {
            latency: Duration::from_millis(1 + rng.below(60)),
            jitter: Duration::from_millis(rng.below(5)),
            loss_ppm: rng.below(3) as u32 * 2_000,
            rate_bytes_per_s: (rng.below(2) == 0).then_some(2_000_000),
        };
        let shards: Vec<usize> = (0..4 + rng.below(3)).map(|_| 1 + rng.below(3) as usize).collect();
        let mut torrc = WholePlan::default().torrc;
        let transports = &mut torrc.heddle.transports;
        match rng.below(4) {
            0 => transports.clear(),
            // Whichever but QUIC comes first.
            1 => {
                transports.reverse();
                let others = transports.len() as u64 - 1;
                transports[..others as usize].rotate_left((seed % others) as usize);
            }
            2 => transports.truncate(1),
            _ => {}
        }
        let is_short = rng.below(4) == 0;
        if is_short {
            torrc.max_mem_in_queues = SHORT_MEMORY;
        }
        let limits = few();
        let resolve_spread = Duration::from_millis(300);
        let memory_max = torrc.max_mem_in_queues;
        let malice = Malice::new(seed, shards.len());
        let plan = WholePlan { seed, shards, torrc, wire, limits, resolve_spread, ..WholePlan::default() };
        let plan = WholePlan { rogue: malice.rogue(), ..plan };
        let mut net = WholeNet::new(&plan);
        (0..HOSTILE).for_each(|_| _ = net.add_hostile());
        let outcome = Outcome {
            seed,
            hash: net.sim.trace_hash(),
            time: Duration::ZERO,
            relays: plan.shards.len(),
            shards: plan.shards.iter().sum(),
            circuits: 0,
            streams: 0,
            bytes: 0,
            rogue_bytes: 0,
            brought: 0,
            faults: BTreeMap::new(),
        };
        Swarm {
            net,
            rng,
            circuits: Vec::new(),
            to_exit: BTreeSet::new(),
            exchanges: Vec::new(),
            salt: 0,
            stopped: BTreeSet::new(),
            stalled: 0,
            killed: None,
            exit_killed: false,
            is_short,
            is_parted: false,
            malice,
            memory_max,
            caught_before: caught(),
            outcome,
        }
    }

    /// The network, for whoever wants to look at it.
    pub fn net(&mut self) -> &mut WholeNet {
        &mut self.net
    }

    /// The same as [`run`].
    ///
    /// # Panics
    ///
    /// Likewise.
    pub fn run(mut self, time: Duration) -> Outcome {
        self.bootstrap();
        if !self.is_short {
            self.be_calm();
        }
        self.begin_malice(false);
        let ends = self.net.sim.now() + time;
        while self.net.sim.now() < ends {
            self.act();
        }
        self.finish()
    }

    fn relays(&self) -> usize {
        self.net.relays.len()
    }

    /// Waits until every relay knows of all.
    fn bootstrap(&mut self) {
        loop {
            self.net.sim.run_for(Duration::from_secs(5));
            let all = self.relays();
            if (0..all).all(|relay| self.net.known(relay).len() == all) {
                return;
            }
            let took = self.net.sim.now().since(Instant::ZERO);
            assert!(took < BOOTSTRAP_MAX, "after {took:?} not every relay knows of all");
        }
    }

    fn act(&mut self) {
        match self.rng.below(24) {
            0..4 => self.build(),
            4..10 => self.begin(),
            10..12 => {
                if let Some(id) = self.pick_exchange() {
                    self.stop(id);
                }
            }
            12..16 => {
                let reading = self.rng.below(2) == 0;
                if let Some(id) = self.pick_exchange() {
                    self.proxy(|proxy, now| proxy.set_reading(now, id, reading));
                }
            }
            16 => self.close_one(),
            17..19 => self.make_trouble(),
            19 if self.rng.below(8) == 0 => self.kill_or_start(),
            _ => {
                let pause = Duration::from_millis(1 << self.rng.below(13));
                self.net.sim.run_for(pause);
                self.look();
                let circuits = self.circuits.clone();
                self.go_on_with_malice(&circuits);
            }
        }
    }

    fn proxy<R>(&mut self, speak: impl FnOnce(&mut OnionProxy, Instant) -> R) -> R {
        self.net.sim.with(self.net.client, 0, speak)
    }

    fn build(&mut self) {
        if self.circuits.len() >= CIRCUITS_MAX {
            return self.close_one();
        }
        // Two to four relays, of which the exit is the last or none is.
        let mut others = self.middles();
        let len = 1 + self.rng.below(3) as usize;
        let mut path: Vec<usize> =
            (0..len).map(|_| others.remove(self.rng.below(others.len() as u64) as usize)).collect();
        let is_to_exit = self.rng.below(5) > 0;
        path.extend(is_to_exit.then_some(self.relays() - 1));
        if self.killed == Some(path[0]) {
            return;
        }
        let Some(path) = self.net.path(&path) else { return };
        let built = self.proxy(|proxy, _| proxy.build(path));
        self.outcome.circuits += u64::from(built.is_some());
        self.circuits.extend(built);
        self.to_exit.extend(built.filter(|_| is_to_exit));
    }

    fn close_one(&mut self) {
        if self.circuits.is_empty() {
            return;
        }
        let index = self.rng.below(self.circuits.len() as u64) as usize;
        let circuit = self.circuits.swap_remove(index);
        self.proxy(|proxy, _| proxy.close_circuit(circuit));
    }

    fn begin(&mut self) {
        if self.circuits.is_empty() {
            return;
        }
        if self.exchanges.len() >= EXCHANGES_MAX {
            let (oldest, expected) = self.exchanges.remove(0);
            self.stop(oldest);
            self.check(oldest, expected);
        }
        let circuit = self.circuits[self.rng.below(self.circuits.len() as u64) as usize];
        let bytes = self.rng.below(400_000);
        let (kind, port) = [
            (Service::Source, SOURCE),
            (Service::Digest, DIGEST),
            (Service::Echo, ECHO),
            (Service::Stall, STALL),
        ][self.rng.below(4) as usize];
        self.salt += 1;
        let expected = Expected { kind, bytes, salt: self.salt, circuit };
        let body_bytes = if kind == Service::Source { 0 } else { bytes };
        let head = length(bytes, self.salt).to_be_bytes().to_vec();
        let exchange = Exchange { port, head, body_bytes, ..upload(bytes) };
        let begun = self.proxy(|proxy, now| proxy.begin(now, circuit, exchange));
        self.outcome.streams += u64::from(begun.is_ok());
        self.stalled += usize::from(begun.is_ok() && kind == Service::Stall);
        self.exchanges.extend(begun.ok().map(|begun| (begun, expected)));
    }

    fn pick_exchange(&mut self) -> Option<ExchangeNumber> {
        let index = self.rng.below(self.exchanges.len() as u64) as usize;
        self.exchanges.get(index).map(|(id, _)| *id)
    }

    fn stop(&mut self, exchange: ExchangeNumber) {
        self.stopped.insert(exchange);
        self.proxy(|proxy, now| proxy.end(now, exchange));
    }

    /// What must hold at any time. Returns what the client has seen since the last look.
    fn look(&mut self) -> Vec<ProxyEvent> {
        let events = self.proxy(|proxy, _| proxy.take_events());
        for event in &events {
            let ProxyEvent::CircuitClosed(number, why) = event else { continue };
            self.circuits.retain(|circuit| circuit != number);
            assert!(!is_breach(why), "{number:?} ended by a breach of the protocol: {why}");
        }
        self.net.sim.take_events();
        assert_eq!(caught(), self.caught_before, "what a directory sent made reading it panic");
        for relay in 0..self.relays() {
            if self.killed != Some(relay) {
                self.look_at(relay);
            }
        }
        events
    }

    /// What a relay holds is within its bounds, and somebody's.
    fn look_at(&mut self, relay: usize) {
        let (host, shards) = (self.net.relays[relay].host, self.net.relays[relay].shards);
        for shard in 0..shards {
            let look = |node: &mut ShardNode, _| (node.relay.in_use(), node.relay.stats());
            let (held, stats) = self.net.sim.with(host, shard, look);
            let cells = held.circuit_cells + held.leftover_cells;
            assert_eq!(
                held.slots, cells,
                "slots of relay {relay}, shard {shard}, that no queue has: {held:?}"
            );
            let (used, max) = (memory(&stats), self.memory_max / shards as u64);
            assert!(used <= max, "relay {relay}, shard {shard} has {used} bytes of {max}: {stats:?}");
            let is_exit = relay + 1 == self.relays();
            let longest = stats.queue_cells_max;
            assert!(!is_exit || longest <= EXIT_LANE_CELLS_MAX, "a lane of the exit had {longest} cells");
        }
    }

    fn stats(&mut self, relay: usize) -> RelayStats {
        let (host, shards) = (self.net.relays[relay].host, self.net.relays[relay].shards);
        let mut stats = RelayStats::default();
        for shard in 0..shards {
            stats.add(&self.net.sim.with(host, shard, |node: &mut ShardNode, _| node.relay.stats()));
        }
        stats
    }

    /// Compares what a stream brought with what was sent, however far it came.
    fn check(&mut self, exchange: ExchangeNumber, expected: Expected) -> Option<ExchangeStatus> {
        self.check_of(self.net.client, exchange, expected)
    }

    /// The same of this client's.
    fn check_of(
        &mut self,
        client: HostId,
        exchange: ExchangeNumber,
        expected: Expected,
    ) -> Option<ExchangeStatus> {
        let status = |proxy: &mut OnionProxy, _| proxy.status(exchange);
        let status = self.net.sim.with(client, 0, status)?;
        self.net.sim.note(&status);
        let received = status.received_bytes;
        self.outcome.bytes += received;
        self.outcome.rogue_bytes += if client == self.net.victim { received } else { 0 };
        assert!(received <= expected.length(), "{expected:?} brought too much: {status:?}");
        let is_right = status.received_sha256 == expected.sha256(received);
        assert!(is_right, "{expected:?} brought other bytes than were sent: {status:?}");
        Some(status)
    }

    /// All is mended and ended; nothing may be left, and the network still carries what it should.
    fn finish(mut self) -> Outcome {
        self.look();
        if self.killed.is_some() {
            self.kill_or_start();
        }
        self.mend();
        self.end_malice();
        self.bring_the_rest();
        for circuit in std::mem::take(&mut self.circuits) {
            self.proxy(|proxy, _| proxy.close_circuit(circuit));
        }
        self.net.sim.run_for(GONE_MAX);
        self.look();
        self.look_for_leftovers();
        for first in 0..self.relays() - 1 {
            self.carry_a_file(first);
        }
        let freed =
            |net: &mut WholeNet, relay| net.control(relay, |control| control.plane.standing().freed_cells);
        let freed = (0..self.relays()).map(|relay| freed(&mut self.net, relay)).sum();
        self.outcome.faults.insert("cells freed for want of memory", freed);
        self.net.note_all();
        self.outcome.hash = self.net.sim.trace_hash();
        self.outcome.time = self.net.sim.now().since(Instant::ZERO);
        self.outcome
    }

    /// Whatever was begun on circuits that stand, and was not stopped, comes to its end.
    fn bring_the_rest(&mut self) {
        let exchanges = std::mem::take(&mut self.exchanges);
        for (exchange, _) in &exchanges {
            self.proxy(|proxy, now| proxy.set_reading(now, *exchange, true));
        }
        self.net.sim.run_for(REST_MAX);
        self.look();
        for (exchange, expected) in exchanges {
            let Some(status) = self.check(exchange, expected) else { continue };
            let is_there = self.proxy(|proxy, _| proxy.has_circuit(expected.circuit));
            let stands = is_there && !self.stopped.contains(&exchange);
            // Not every circuit ends at the exit, memory may be short, and an exit that was started anew knows no
            // relays before it has a consensus, so that it takes them for clients that found a way round being one.
            let is_at_exit = self.to_exit.contains(&expected.circuit);
            let is_refused = match status.state {
                ExchangeState::Ended(EndReason::EXITPOLICY) => !is_at_exit || self.exit_killed,
                ExchangeState::Ended(EndReason::RESOURCELIMIT) => true,
                ExchangeState::Ended(EndReason::MISC) => self.exit_killed && status.connected_at.is_none(),
                _ => false,
            };
            // Nor does a name lead anywhere while resolvers are bad.
            let is_over = matches!(status.state, ExchangeState::Ended(_));
            let is_lost = self.malice.resolver_was_bad && is_over && status.connected_at.is_none();
            let is_refused = is_refused || is_lost;
            let is_complete = is_refused || status.received_bytes == expected.length();
            assert!(!stands || is_complete, "{expected:?} did not bring all: {status:?}");
            self.outcome.brought += u64::from(stands && !is_refused && expected.length() > 0);
        }
    }

    fn look_for_leftovers(&mut self) {
        for relay in 0..self.relays() {
            let stats = self.stats(relay);
            let lanes: u64 = stats.transports.iter().map(|of| of.lanes).sum();
            let left = [
                ("circuits", stats.circuits),
                ("cells", stats.queue_cells),
                ("slots", stats.pool_slots),
                ("lanes", lanes),
                ("circuits of neighbours", stats.granted.circuits),
                ("onionskins", stats.granted.onionskins),
                ("streams", stats.granted.streams),
            ];
            let left: Vec<_> = left.into_iter().filter(|(_, count)| *count > 0).collect();
            assert!(left.is_empty(), "at relay {relay} are left: {left:?}");
            for shard in 0..self.net.relays[relay].shards {
                let look = |node: &mut ShardNode, _| node.relay.in_use();
                let held = self.net.sim.with(self.net.relays[relay].host, shard, look);
                let left = (held.circ_ids, held.connections, held.questions, held.onionskins, held.wakes);
                assert_eq!(
                    left,
                    (0, 0, 0, 0, 0),
                    "at relay {relay}, shard {shard} is left something: {held:?}"
                );
            }
        }
        if self.exit_killed {
            return;
        }
        let server = self.net.server;
        let read = [Service::Echo, Service::Source, Service::Digest, Service::Mute];
        for service in read.into_iter().chain([Service::Endless, Service::Cut, Service::Reset]) {
            let count = |server: &mut Internet, _: Instant| server.visitors_of(service);
            let left = self.net.sim.with(server, 0, count);
            assert_eq!(left, 0, "connections to {service:?} are left at the server");
        }
        // Who is never read from never learns that the other side left.
        let stalled =
            self.net.sim.with(server, 0, |server: &mut Internet, _| server.visitors_of(Service::Stall));
        assert!(stalled <= self.stalled, "{stalled} connections that nobody reads, of {}", self.stalled);
    }

    /// A file goes over a path that begins with this relay.
    fn carry_a_file(&mut self, first: usize) {
        const BYTES: u64 = 50_000;
        let middle = (first + 1) % (self.relays() - 1);
        self.look();
        let path = self.net.path(&[first, middle, self.relays() - 1]).expect("relays know of each other");
        let circuit = build(&mut self.net.sim, self.net.client, path);
        let exchange = begin(&mut self.net.sim, self.net.client, circuit, download(BYTES));
        let is_over = |status: &ExchangeStatus| status.state == ExchangeState::Ended(EndReason::DONE);
        let patience = Duration::from_secs(120);
        let status = await_status(&mut self.net.sim, self.net.client, exchange, patience, is_over);
        assert_eq!(status.received_sha256, pattern_sha256(BYTES));
        self.outcome.bytes += status.received_bytes;
    }
}

/// Bytes that a shard counts for what waits in it, and for circuits, connections and channels themselves.
fn memory(stats: &RelayStats) -> u64 {
    stats.pool_slots * SLOT_LEN as u64
        + stats.flow_bytes
        + stats.flow_state_bytes
        + stats.circuit_state_bytes
        + stats.channel_state_bytes
        + stats.buffer_bytes
}
