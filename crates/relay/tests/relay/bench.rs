//! A driver for the shards of one relay that only does as it is told, and holds them to the
//! contract of [`heddle_seam::node`].
//!
//! - Nothing is sent beyond what the last `Writable` allowed, and no socket is named once it is gone.
//! - `Timeout` comes last: polled again, a shard only repeats it.
//! - On a lane between two shards at most a window of cells is under way.

use super::peer::Peer;
use super::pipe::{Pipe, datagrams};
use super::plain::{CLIENT_LINE, PlainTransport, ids, relay_line};
use heddle_proto::cell::frame::{Framer, write_fixed, write_versions};
use heddle_proto::cell::{CircId, Command};
use heddle_proto::credit::CreditMessage;
use heddle_proto::crypto::NtorKeypair;
use heddle_proto::crypto::onionskin::OnionKeys;
use heddle_proto::endpoint::Endpoint;
use heddle_proto::policy::ExitPolicy;
use heddle_relay::{Control, Crossed, Event, Input, Job, Output, Relay, RelayConfig, ShardMessage};
use heddle_seam::datagrams::Transmit;
use heddle_seam::language::Job as _;
use heddle_seam::node::{
    JobId, Node, PortId, Query, Resolution, ResolveError, ResolveId, ShardId, SocketError, SocketId,
};
use heddle_seam::rng::{Entropy, Repeatable, Seed};
use heddle_seam::time::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// The number of the relay under test, and of its ORPort's address.
pub const OURS: u8 = 100;
/// Cells that may be under way on one lane between two shards.
const CROSSING_WINDOW_CELLS: u64 = 64;
/// The UDP port of the first shard; the others' follow.
pub const UDP_PORT: u16 = 5000;
/// Credit that a willing socket gives.
const QUANTUM: usize = 64 * 1024;
/// More turns of the driver, or outputs of a shard in one turn, mean that somebody goes in circles.
const STEPS_PER_INSTANT_MAX: u32 = 1_000_000;

/// A public address of the test host of that number.
pub fn host(number: u8) -> IpAddr {
    Ipv4Addr::new(198, 51, 101, number).into()
}

/// The ORPort of the test relay of that number.
pub fn or_port(number: u8) -> SocketAddr {
    SocketAddr::new(host(number), 9001)
}

/// The circuit keys of the test relay of that number.
pub fn onion_keys(number: u8) -> OnionKeys {
    OnionKeys {
        rsa_id: ids(number).rsa.0,
        ed25519_id: ids(number).ed25519.0,
        ntor_current: NtorKeypair::from_secret(&[number; 32]),
        ntor_previous: None,
    }
}

/// An exit for everything, without limits that a test would feel.
pub fn config() -> RelayConfig {
    RelayConfig {
        exit_policy: Some(ExitPolicy::from_rules(&["accept *:*".parse().expect("a rule")])),
        ipv6_exit: true,
        extend_to_ipv6: true,
        refuse_unknown_exits: Some(false),
        ..RelayConfig::new(ids(OURS))
    }
}

/// A socket of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sock {
    pub shard: usize,
    pub id: SocketId,
}

/// How a socket ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    Closed,
    Aborted,
    Failed,
}

#[derive(Default)]
struct Socket {
    connected: bool,
    read: bool,
    write: bool,
    credit: usize,
    /// Whether the socket takes bytes at once.
    willing: bool,
    /// What the far end sent and the shard has not read yet, and whether a FIN stands behind it.
    inbound: VecDeque<u8>,
    eof: bool,
    /// What the shard sent and the test has not taken yet.
    outbound: Vec<u8>,
    framer: Option<Framer>,
    /// Bodies of VPADDING that the shard sent and the test has not taken yet.
    paddings: Vec<Vec<u8>>,
}

pub struct Shard {
    pub relay: Relay,
    sockets: BTreeMap<SocketId, Socket>,
    gone: BTreeMap<SocketId, Gone>,
    /// Sockets that the relay wants connected, oldest first.
    pub connects: VecDeque<(SocketId, SocketAddr)>,
    pub resolves: VecDeque<(ResolveId, Query)>,
    /// What the driver keeps of what was sent; also of sockets that are closed and still send.
    unsent: BTreeMap<SocketId, usize>,
    pub jobs: VecDeque<(JobId, Job)>,
    pub events: Vec<Event>,
    /// How often the shard said what it wants of a socket.
    pub interests: usize,
    /// Datagrams that the shard sent.
    datagrams: VecDeque<(Transmit, Vec<u8>)>,
    timeout: Option<Instant>,
    accepted: u64,
    /// Where each dialled socket was to lead.
    dialled: BTreeMap<SocketId, SocketAddr>,
}

/// A cell as a peer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    pub circ_id: CircId,
    pub command: Command,
    pub body: Vec<u8>,
}

pub struct Bench {
    pub now: Instant,
    pub shards: Vec<Shard>,
    /// Whether onionskins are answered as they come.
    pub working: bool,
    /// Messages between shards, by sender and receiver.
    mail: BTreeMap<(usize, usize), VecDeque<ShardMessage>>,
    /// Whether that mail is delivered as it comes.
    pub delivering: bool,
    /// Relay cells that crossed, and that may cross, by sender, receiver and circuit.
    crossed: BTreeMap<(usize, usize, CircId), (u64, u64)>,
    dead_lanes: BTreeSet<(usize, usize, CircId)>,
    /// The far ends of connections.
    pub peers: Vec<Peer>,
    /// Whether datagrams arrive, and whether they wait on their way.
    pub wires_up: bool,
    pub wires_held: bool,
}

impl Bench {
    pub fn new(config: RelayConfig) -> Self {
        Self::with_seed(config, 1)
    }

    pub fn with_seed(config: RelayConfig, seed: u64) -> Self {
        Self::make(config, seed, None)
    }

    /// A relay that forms pairs. The UDP port of each shard is 5000 and its number.
    pub fn with_pipes(config: RelayConfig) -> Self {
        Self::make(config, 1, Some(Pipe::default))
    }

    pub fn make(config: RelayConfig, seed: u64, pipe: Option<fn() -> Pipe>) -> Self {
        let seed = Seed::from_number(seed);
        let entropy = |shard: u16| -> Box<dyn Entropy> {
            Box::new(Repeatable::new(&seed.child("shard", shard.into())))
        };
        Self::with_entropy(config, &entropy, pipe)
    }

    /// The same, with what the shard of a number draws secrets from.
    pub fn with_entropy(
        config: RelayConfig,
        entropy: &dyn Fn(u16) -> Box<dyn Entropy>,
        pipe: Option<fn() -> Pipe>,
    ) -> Self {
        let shard = |number: u16| {
            let config = RelayConfig { shard: ShardId(number), ..config.clone() };
            let transport = Box::new(PlainTransport { number: OURS, addr: host(OURS), state_bytes: 0 });
            let endpoint = |pipe: fn() -> Pipe| -> Box<dyn Endpoint> { Box::new(pipe()) };
            let endpoints = pipe.map(|pipe| (PortId(0), UDP_PORT + number, endpoint(pipe)));
            Shard {
                relay: Relay::with_endpoints(
                    config,
                    transport,
                    endpoints.into_iter().collect(),
                    entropy(number),
                ),
                datagrams: VecDeque::new(),
                sockets: BTreeMap::new(),
                gone: BTreeMap::new(),
                connects: VecDeque::new(),
                resolves: VecDeque::new(),
                unsent: BTreeMap::new(),
                jobs: VecDeque::new(),
                events: Vec::new(),
                interests: 0,
                timeout: None,
                accepted: 0,
                dialled: BTreeMap::new(),
            }
        };
        let mut bench = Bench {
            now: Instant::ZERO,
            shards: (0..config.shards).map(shard).collect(),
            working: true,
            mail: BTreeMap::new(),
            delivering: true,
            crossed: BTreeMap::new(),
            dead_lanes: BTreeSet::new(),
            peers: Vec::new(),
            wires_up: true,
            wires_held: false,
        };
        if let Some((first, others)) = bench.shards.split_first_mut() {
            others.iter_mut().for_each(|other| other.relay.share_with(&first.relay));
        }
        let keys = Arc::new(onion_keys(OURS));
        for shard in 0..bench.shards.len() {
            bench.control(shard, Control::OnionKeys(keys.clone()));
        }
        bench
    }

    /// The consensus has these parameters.
    pub fn set_params(&mut self, params: &[(&str, i32)]) {
        let params = params.iter().map(|(name, value)| (String::from(*name), *value)).collect();
        let params = Arc::new(heddle_proto::params::NetworkParams(params));
        for shard in 0..self.shards.len() {
            self.control(shard, Control::Params(params.clone()));
        }
    }

    pub fn control(&mut self, shard: usize, control: Control) {
        self.input(shard, Input::Control(control));
    }

    /// Hands in one input and does what follows.
    pub fn input(&mut self, shard: usize, input: Input) {
        self.shards[shard].relay.handle_input(self.now, input);
        self.settle();
    }

    /// A connection to the ORPort, on which nothing was said yet.
    pub fn accept(&mut self, shard: usize, from: SocketAddr) -> Sock {
        let entry = &mut self.shards[shard];
        let id = SocketId::accepted(entry.accepted);
        entry.accepted += 1;
        entry.sockets.insert(id, Socket { connected: true, willing: true, ..Socket::default() });
        self.input(shard, Input::Accepted { socket: id, local: or_port(OURS), peer: from });
        Sock { shard, id }
    }

    /// A channel from the test relay of that number.
    pub fn relay_channel(&mut self, shard: usize, number: u8) -> Sock {
        let sock = self.accept(shard, or_port(number));
        self.write(sock, &relay_line(number, host(number)));
        sock
    }

    /// A channel from a client.
    pub fn client_channel(&mut self, shard: usize) -> Sock {
        self.client_at(shard, host(250))
    }

    /// A channel from a client at an address; it may be refused.
    pub fn client_at(&mut self, shard: usize, addr: IpAddr) -> Sock {
        let sock = self.accept(shard, SocketAddr::new(addr, 50_000));
        if self.gone(sock).is_none() {
            self.write(sock, CLIENT_LINE);
        }
        sock
    }

    /// The oldest socket that a shard wants connected is, and to where.
    pub fn connect_next(&mut self, shard: usize) -> (Sock, SocketAddr) {
        let (id, to) = self.shards[shard].connects.pop_front().expect("a socket to be connected");
        self.connect(Sock { shard, id });
        (Sock { shard, id }, to)
    }

    pub fn connect(&mut self, sock: Sock) {
        let socket = self.socket(sock);
        socket.connected = true;
        self.input(sock.shard, Input::Connected { socket: sock.id, local: or_port(OURS) });
    }

    /// A dialled channel opens, to the test relay of that number.
    pub fn answer_dial(&mut self, shard: usize, number: u8) -> Sock {
        let (sock, _) = self.connect_next(shard);
        self.write(sock, &relay_line(number, host(number)));
        sock
    }

    /// A socket breaks, or is not connected.
    pub fn fail(&mut self, sock: Sock, error: SocketError) {
        let shard = &mut self.shards[sock.shard];
        shard.sockets.remove(&sock.id).expect("the socket is not gone yet");
        shard.gone.insert(sock.id, Gone::Failed);
        shard.connects.retain(|(id, _)| *id != sock.id);
        self.input(sock.shard, Input::Failed { socket: sock.id, error });
    }

    /// The oldest question is answered; returns it.
    pub fn resolve_next(&mut self, shard: usize, answer: Result<Resolution, ResolveError>) -> Query {
        let (id, query) = self.shards[shard].resolves.pop_front().expect("a question");
        self.input(shard, Input::Resolved { id, answer });
        query
    }

    /// The oldest onionskin is answered.
    pub fn work_next(&mut self, shard: usize) {
        let (id, job) = self.shards[shard].jobs.pop_front().expect("an onionskin");
        self.input(shard, Input::Computed { id, result: job.run() });
    }

    /// The far end sends bytes.
    pub fn write(&mut self, sock: Sock, bytes: &[u8]) {
        self.socket(sock).inbound.extend(bytes);
        self.settle();
    }

    /// The far end sends a FIN.
    pub fn finish(&mut self, sock: Sock) {
        self.socket(sock).eof = true;
        self.settle();
    }

    /// The far end of a channel sends a cell.
    pub fn send(&mut self, sock: Sock, circ_id: CircId, command: Command, body: &[u8]) {
        let mut bytes = Vec::new();
        write_fixed(&mut bytes, circ_id.get(), command, body);
        self.write(sock, &bytes);
    }

    /// Takes what the shard sent on a socket.
    pub fn received(&mut self, sock: Sock) -> Vec<u8> {
        core::mem::take(&mut self.socket(sock).outbound)
    }

    /// Takes the cells that came on a channel.
    pub fn cells(&mut self, sock: Sock) -> Vec<Cell> {
        let socket = self.socket(sock);
        let bytes = core::mem::take(&mut socket.outbound);
        let mut rest = &bytes[..];
        if socket.framer.is_none() {
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { return Vec::new() };
            rest = &rest[end + 1..];
            let mut versions = Vec::new();
            write_versions(&mut versions, &[5]);
            socket.framer.insert(Framer::new()).next(&versions).expect("VERSIONS comes first");
        }
        let framer = socket.framer.as_mut().expect("there is one by now");
        let mut cells = Vec::new();
        loop {
            let (used, frame) = framer.next(rest).expect("the relay sends cells");
            rest = &rest[used..];
            let Some(frame) = frame else { return cells };
            if frame.command == Command::VPADDING && frame.circ_id.is_none() {
                socket.paddings.push(frame.body.to_vec());
                continue;
            }
            let circ_id = frame.circ_id.expect("other cells are of circuits");
            cells.push(Cell { circ_id, command: frame.command, body: frame.body.to_vec() });
        }
    }

    /// Takes the bodies of VPADDING cells that came on a channel. Other cells are lost.
    pub fn paddings(&mut self, sock: Sock) -> Vec<Vec<u8>> {
        self.cells(sock);
        self.seen_paddings(sock)
    }

    /// Takes the bodies of VPADDING cells that came before cells that were taken.
    pub fn seen_paddings(&mut self, sock: Sock) -> Vec<Vec<u8>> {
        core::mem::take(&mut self.socket(sock).paddings)
    }

    /// Whether a socket takes bytes at once.
    pub fn set_willing(&mut self, sock: Sock, willing: bool) {
        self.socket(sock).willing = willing;
        self.settle();
    }

    /// An unwilling socket takes so many bytes.
    pub fn grant(&mut self, sock: Sock, bytes: usize) {
        self.socket(sock).credit = bytes;
        self.input(sock.shard, Input::Writable { socket: sock.id, bytes, window_bytes: usize::MAX });
    }

    /// The driver keeps so many bytes for a socket.
    pub fn set_unsent(&mut self, sock: Sock, bytes: usize) {
        let unsent = &mut self.shards[sock.shard].unsent;
        match bytes {
            0 => unsent.remove(&sock.id),
            _ => unsent.insert(sock.id, bytes),
        };
        self.input(sock.shard, Input::Unsent { socket: sock.id, bytes });
    }

    /// What the first shard counts of buffers.
    pub fn held_buffers(&self) -> usize {
        self.shards[0].relay.in_use().buffer_bytes
    }

    /// The sockets for which it keeps something.
    pub fn unsent(&self, shard: usize) -> Vec<Sock> {
        self.shards[shard].unsent.keys().map(|id| Sock { shard, id: *id }).collect()
    }

    /// Whether a shard wants to read a socket.
    pub fn is_read(&mut self, sock: Sock) -> bool {
        self.socket(sock).read
    }

    /// Whether a shard asks for credit on a socket.
    pub fn is_write_wanted(&mut self, sock: Sock) -> bool {
        self.socket(sock).write
    }

    /// Bytes that a shard has not read yet.
    pub fn unread(&mut self, sock: Sock) -> usize {
        self.socket(sock).inbound.len()
    }

    pub fn gone(&self, sock: Sock) -> Option<Gone> {
        self.shards[sock.shard].gone.get(&sock.id).copied()
    }

    /// Where a dialled socket was to lead; nowhere for others.
    pub fn dialled_to(&self, sock: Sock) -> SocketAddr {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        self.shards[sock.shard].dialled.get(&sock.id).copied().unwrap_or(nowhere)
    }

    /// Sockets that are not gone.
    pub fn sockets(&self, shard: usize) -> Vec<Sock> {
        self.shards[shard].sockets.keys().map(|id| Sock { shard, id: *id }).collect()
    }

    /// The sockets that are connected.
    pub fn connected(&self, shard: usize) -> Vec<Sock> {
        let sockets = self.shards[shard].sockets.iter().filter(|(_, socket)| socket.connected);
        sockets.map(|(id, _)| Sock { shard, id: *id }).collect()
    }

    fn socket(&mut self, sock: Sock) -> &mut Socket {
        let shard = &mut self.shards[sock.shard];
        shard.sockets.get_mut(&sock.id).unwrap_or_else(|| panic!("{sock:?}: {:?}", shard.gone.get(&sock.id)))
    }

    /// Cells that wait in all shards.
    pub fn queued_cells(&self) -> u32 {
        self.shards.iter().map(|shard| shard.relay.queued_cells()).sum()
    }

    pub fn circuits(&self) -> usize {
        self.shards.iter().map(|shard| shard.relay.circuits()).sum()
    }

    /// Time passes; timers fire when they are due.
    pub fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some((at, shard)) = self.next_timer().filter(|(at, _)| *at <= until) {
            self.now = self.now.max(at);
            self.input(shard, Input::Timeout);
            let next = self.shards[shard].timeout;
            assert!(next.is_none_or(|at| at > self.now), "a timer that is due again would fire for ever");
        }
        self.now = until;
        for peer in &mut self.peers {
            peer.pipe.handle_timeout(until);
        }
        self.settle();
    }

    /// Time passes, and whoever handles inputs before timers has not fired these yet.
    pub fn skip(&mut self, time: Duration) {
        self.now += time;
    }

    fn next_timer(&self) -> Option<(Instant, usize)> {
        let timers = self.shards.iter().enumerate();
        timers.filter_map(|(index, shard)| Some((shard.timeout?, index))).min()
    }

    /// Does all that can be done without the test.
    pub fn settle(&mut self) {
        for turn in 0.. {
            assert!(turn < STEPS_PER_INSTANT_MAX, "there is always more to do at {:?}", self.now);
            for shard in 0..self.shards.len() {
                self.poll(shard);
            }
            let more = (self.working && self.work()) | (self.delivering && self.deliver());
            if !more && !self.move_bytes() && !self.move_datagrams() {
                return;
            }
        }
    }

    /// Moves datagrams between shards and far ends.
    fn move_datagrams(&mut self) -> bool {
        let mut moved = false;
        if self.wires_held {
            return false;
        }
        for index in 0..self.shards.len() {
            let from = SocketAddr::new(host(OURS), UDP_PORT + index as u16);
            while let Some((transmit, bytes)) = self.shards[index].datagrams.pop_front() {
                moved = true;
                let peer = self.peers.iter_mut().find(|peer| peer.addr() == transmit.to);
                if let Some(peer) = peer.filter(|_| self.wires_up) {
                    peer.pipe.handle_datagrams(self.now, datagrams(from, transmit.stride, &bytes));
                }
            }
        }
        for index in 0..self.peers.len() {
            self.peers[index].work(self.now);
            while let Some((to, bytes)) = self.peers[index].transmit(self.now) {
                moved = true;
                let shard = usize::from(to.port() - UDP_PORT);
                if self.wires_up && shard < self.shards.len() {
                    let datagrams = datagrams(self.peers[index].addr(), bytes.len(), &bytes);
                    let input = Input::Datagrams { port: PortId(0), datagrams };
                    self.shards[shard].relay.handle_input(self.now, input);
                    self.poll(shard);
                }
            }
        }
        moved
    }

    fn work(&mut self) -> bool {
        let mut worked = false;
        for shard in &mut self.shards {
            while let Some((id, job)) = shard.jobs.pop_front() {
                shard.relay.handle_input(self.now, Input::Computed { id, result: job.run() });
                worked = true;
            }
        }
        worked
    }

    /// Delivers one message between each two shards.
    pub fn deliver(&mut self) -> bool {
        let mut delivered = false;
        for ((from, to), mail) in &mut self.mail {
            let Some(message) = mail.pop_front() else { continue };
            let from = ShardId(*from as u16);
            self.shards[*to].relay.handle_input(self.now, Input::FromShard { from, message });
            delivered = true;
        }
        delivered
    }

    /// Moves bytes where interest and willingness allow it: one step of every socket.
    fn move_bytes(&mut self) -> bool {
        let mut moved = false;
        for index in 0..self.shards.len() {
            for sock in self.connected(index) {
                moved |= self.move_bytes_of(sock);
            }
        }
        moved
    }

    fn move_bytes_of(&mut self, sock: Sock) -> bool {
        let (now, id) = (self.now, sock.id);
        let Shard { relay, sockets, .. } = &mut self.shards[sock.shard];
        let Some(socket) = sockets.get_mut(&id) else { return false };
        if socket.write && socket.willing && socket.credit < QUANTUM {
            socket.credit = QUANTUM;
            let input = Input::Writable { socket: id, bytes: QUANTUM, window_bytes: usize::MAX };
            relay.handle_input(now, input);
            self.poll(sock.shard);
            return true;
        }
        if !socket.read {
            return false;
        }
        if socket.inbound.is_empty() {
            if core::mem::take(&mut socket.eof) {
                socket.read = false;
                relay.handle_input(now, Input::Eof { socket: id });
                self.poll(sock.shard);
                return true;
            }
            return false;
        }
        let buf = relay.recv_buf(id);
        if buf.is_empty() {
            self.poll(sock.shard);
            assert!(!self.is_read(sock), "{sock:?} is to be read into nothing");
            return true;
        }
        let len = buf.len().min(socket.inbound.len());
        socket.inbound.read_exact(&mut buf[..len]).expect("so many are there");
        relay.handle_input(now, Input::Read { socket: id, len });
        self.poll(sock.shard);
        true
    }

    /// Does what a shard wants.
    fn poll(&mut self, index: usize) {
        let mut buf = Vec::new();
        for outputs in 0.. {
            buf.clear();
            let output = self.shards[index].relay.poll_output(self.now, &mut buf);
            assert!(outputs < STEPS_PER_INSTANT_MAX, "shard {index} never names its time-out: {output:?}");
            if !matches!(output, Output::Send { .. } | Output::Datagrams { .. }) {
                assert!(buf.is_empty(), "bytes come with Send and Datagrams only");
            }
            if let Output::Timeout(at) = output {
                let again = self.shards[index].relay.poll_output(self.now, &mut buf);
                assert!(
                    matches!(again, Output::Timeout(same) if same == at),
                    "Timeout comes last: {again:?}"
                );
                self.shards[index].timeout = at;
                return;
            }
            self.obey(index, output, &buf);
        }
    }

    fn obey(&mut self, index: usize, output: Output, buf: &[u8]) {
        let shard = &mut self.shards[index];
        match output {
            Output::Send { socket } => {
                let entry = shard.sockets.get_mut(&socket).expect("only living sockets are sent to");
                assert!(entry.connected && !buf.is_empty());
                assert!(buf.len() <= entry.credit, "{} bytes are sent on {}", buf.len(), entry.credit);
                entry.credit -= buf.len();
                entry.outbound.extend_from_slice(buf);
            }
            Output::Connect { socket, to } => {
                assert!(socket.is_dialled() && !shard.gone.contains_key(&socket));
                let before = shard.sockets.insert(socket, Socket { willing: true, ..Socket::default() });
                assert!(before.is_none(), "a socket's number is never used again");
                shard.connects.push_back((socket, to));
                shard.dialled.insert(socket, to);
            }
            Output::Interest { socket, read, write } => {
                let entry = shard.sockets.get_mut(&socket).expect("only living sockets are of interest");
                assert!(entry.connected);
                (entry.read, entry.write) = (read, write);
                shard.interests += 1;
            }
            Output::ShutdownWrite { socket } => assert!(shard.sockets.contains_key(&socket)),
            Output::Close { socket } => Self::end(shard, socket, Gone::Closed),
            Output::Abort { socket } => {
                let still_sends = shard.unsent.remove(&socket).is_some() && shard.gone.contains_key(&socket);
                match still_sends {
                    true => shard.gone.extend([(socket, Gone::Aborted)]),
                    false => Self::end(shard, socket, Gone::Aborted),
                }
                shard.relay.handle_input(self.now, Input::Unsent { socket, bytes: 0 });
            }
            Output::Resolve { id, query } => shard.resolves.push_back((id, query)),
            Output::StopResolving { id } => shard.resolves.retain(|(other, _)| *other != id),
            Output::Compute { id, job } => shard.jobs.push_back((id, job)),
            Output::ToShard { to, message } => self.post(index, usize::from(to.0), message),
            Output::Datagrams { port, transmit } => {
                assert!(port == PortId(0) && !buf.is_empty());
                shard.datagrams.push_back((transmit, buf.to_vec()));
            }
            Output::Packets { .. } => unreachable!("no endpoint of these tests has a stack"),
            Output::Event(event) => shard.events.push(event),
            Output::Timeout(_) => unreachable!("handled by the caller"),
        }
    }

    fn end(shard: &mut Shard, socket: SocketId, how: Gone) {
        let entry = shard.sockets.remove(&socket).expect("only living sockets are ended");
        shard.gone.insert(socket, how);
        shard.connects.retain(|(id, _)| *id != socket);
        drop(entry);
    }

    fn post(&mut self, from: usize, to: usize, message: ShardMessage) {
        assert!(from != to && to < self.shards.len());
        match &message {
            ShardMessage::Crossed(Crossed::Cells(cells)) => {
                let is_counted = |command| [Command::RELAY, Command::RELAY_EARLY].contains(&command);
                for cell in cells.iter().filter(|cell| is_counted(cell.command)) {
                    let lane = (from, to, cell.circ_id);
                    let (sent, granted) = self.crossed.entry(lane).or_insert((0, CROSSING_WINDOW_CELLS));
                    *sent += 1;
                    let dead = self.dead_lanes.contains(&lane);
                    assert!(dead || *sent <= *granted, "{lane:?}: {sent} cells, {granted} granted");
                }
            }
            ShardMessage::Crossed(Crossed::Credit { circ_id, message: CreditMessage::Granted { cells } }) => {
                let lane = (to, from, *circ_id);
                let (sent, granted) = self.crossed.entry(lane).or_insert((0, CROSSING_WINDOW_CELLS));
                let dead = self.dead_lanes.contains(&lane);
                assert!(
                    dead || *cells <= *sent + CROSSING_WINDOW_CELLS,
                    "{lane:?}: {cells} granted after {sent}"
                );
                *granted = (*granted).max(*cells);
            }
            ShardMessage::Crossed(Crossed::Create { circ_id, .. }) => {
                for lane in [(from, to, *circ_id), (to, from, *circ_id)] {
                    self.crossed.remove(&lane);
                    self.dead_lanes.remove(&lane);
                }
            }
            ShardMessage::Crossed(Crossed::Destroy { circ_id, .. }) => {
                self.dead_lanes.extend([(from, to, *circ_id), (to, from, *circ_id)]);
            }
            _ => {}
        }
        self.mail.entry((from, to)).or_default().push_back(message);
    }
}
