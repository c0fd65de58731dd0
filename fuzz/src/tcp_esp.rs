//! Behind the decryption of tcp-esp: a peer that has proved who it is says anything on its streams and in authentic
//! datagrams, and a stack and strangers bring any packets and datagrams. We accept, or we dial and wait for the proof.
//!
//! The endpoint keeps to its sockets' credits, names none that it gave up, and lends cells that flows carry alone. Its
//! stack gets segments of its own ports from its peer, strangers are refused, and what is held comes of what was sent.

use heddle_proto::cell::{BODY_LEN, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{ConnId, ConnectionEvent, ConnectionOptions, Endpoint, PairSecrets};
use heddle_seam::datagrams::{Datagrams, Packets};
use heddle_seam::language::Plain;
use heddle_seam::node::{Input, Output, SocketError, SocketId, StackId};
use heddle_seam::time::{Duration, Instant};
use heddle_transport::tcp_esp::fuzz::Sealer;
use heddle_transport::tcp_esp::{EspEndpoint, EspOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use zeroize::Zeroizing;

const STACK: StackId = StackId(2);
/// What an endpoint calls itself, and its first peer, on its stack.
const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(16, 0, 111, 255);
const CONTROL_PORT: u16 = 1;
const FLOW_PORT: u16 = 2;
/// Flows that the peer opens at most, and those that it may have open.
const FLOWS: u64 = 200;
const FLOWS_MAX: u32 = 4;
/// What is permitted, and what may be on its way (a quarter and 64 more).
const FLOWS_BORNE: usize = 69;
/// Names of ours that the script knows.
const NAMES: usize = 7;

/// Where the peer's datagrams come from.
const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9001);
const TCP: u8 = 6;
/// The next header of messages in packets.
const MESSAGE: u8 = 253;
/// Bytes of the headers of IPv4 and TCP, and where kernels connect from.
const HEADER_LEN: usize = 20;
const PORT_CONNECTS_MIN: u16 = 1024;
const SPI_LEN: usize = 4;

/// Kinds of steps.
const KINDS: u8 = 14;
/// A script with this byte first is of one who dials, and whose peer's proof comes when the script says so.
const DIALS: u8 = 255;

/// The most that a step reads of a socket: as many bytes as one says, and the zeros behind.
const READ_BYTES: usize = 255 + 19 * 64;
/// What may wait to be sent, and of what opens flows before the proof came.
const OUTBOX_BYTES: usize = 1000 * 1350;
const OPENINGS_BYTES: usize = 64 * 1350;
/// What was and was not read of a flow by the relay, with a read on top and a list's room, and its own state.
const FLOW_BYTES: usize = 2 * (2 * 16 * 1024 + READ_BYTES) + FLOW_STATE_BYTES;
const FLOW_STATE_BYTES: usize = 2048;
/// What a connection takes that nothing came on, with a control stream that has much to say.
const BASE_BYTES: usize = 64 * 1024;
const HELD_MAX: usize = BASE_BYTES + OUTBOX_BYTES + OPENINGS_BYTES + (FLOWS_BORNE + NAMES) * FLOW_BYTES;
/// How many bytes one that comes, or that the relay sends, may take with what it is kept in.
const KEEPING: usize = 8;

#[derive(Default)]
struct Socket {
    credit: usize,
    read: bool,
    write: bool,
}

struct World {
    endpoint: EspEndpoint,
    role: Role,
    conn: ConnId,
    now: Instant,
    sockets: BTreeMap<SocketId, Socket>,
    control: SocketId,
    accepted: u64,
    /// What the peer's datagrams are sealed with, the last one, and what it says first on the control stream.
    peer: Sealer,
    sealed: Vec<u8>,
    proof: Vec<u8>,
    is_heard: bool,
    is_ready: bool,
    is_over: bool,
    /// Bytes that came, and that our relay sent.
    came: usize,
    sent: usize,
    /// Circuits that the peer has begun and nobody has ended.
    names: BTreeSet<u32>,
    cells: usize,
}

/// Tells how many cells came out.
pub fn run_counting(data: &[u8]) -> usize {
    let (mut world, mut script) = match data.split_first() {
        Some((&DIALS, script)) => (World::dial(), script),
        _ => (World::open(), data),
    };
    while !script.is_empty() {
        world.step(take(&mut script), &mut script);
        world.obey();
    }
    world.cells
}

pub fn run(data: &[u8]) {
    run_counting(data);
}

pub fn seeds() -> Vec<Vec<u8>> {
    // A read of a flow's number, or of nothing, and a cell behind it: with 448 zeros they are as long as they must be.
    let cell = |socket: u8, number: &[u8], command: u8| {
        let bytes = [number, &[command], &[0; 61]].concat();
        [&[1 + 7 * KINDS, socket, bytes.len() as u8], &bytes[..]].concat()
    };
    let (create2, relay) = (Command::CREATE2.0, Command::RELAY.0);
    let begun = [&[0][..], &cell(1, &[0, 0, 0, 1], create2), &cell(1, &[], relay)].concat();
    // Credit and answers; held, read, let go; ended by us, by END of the peer's, by a FIN, by a reset without a reason.
    let end = [5, 7, 2, 1, 0, 0, 0, 1, 9];
    let ends: [&[u8]; 4] = [&[6, 0x80 | 0x40 | 1], &end, &[3, 1], &[4, 1, 8, 19, 8, 19]];
    let relayed = [2, 255, 1, 6, 0x41, 7, 0xc1, 2, 255, 1, 7, 0x41, 6, 1, 6, 0x81];
    let flow = |end: &&[u8]| [&begun[..], &relayed, &cell(1, &[], relay), end].concat();
    let mut seeds: Vec<Vec<u8>> = ends.iter().map(flow).collect();
    let many: Vec<u8> = (0..80u8).flat_map(|_| [0]).chain([4, 3, 8, 1, 8, 255]).collect();
    let noise = (0..200_u32).map(|step| (step * 37 % 251) as u8);
    seeds.extend([many, noise.collect()]);
    seeds.extend(datagrams());
    seeds
}

/// Seeds of what comes in datagrams, and of what our stack sends.
fn datagrams() -> [Vec<u8>; 2] {
    // Two SYNs of flows and a segment of the control stream; a PING, a dummy, and UDP, twice; a stranger's, what was
    // overheard, a flow, and a stranger's again; CLOSE, twice.
    let segments = [11_u8, 0, 2, 0, 11, 3, 2, 4, 0, 0, 0, 0, 11, 4, 16, 8, 0, 0, 0, 0, 1, 2, 3, 4];
    let said = [11, 1, 0, 5, 1, 0, 0, 0, 7, 11, 2, 59, 0, 11, 0x82, 17, 1, 9];
    let strange = [12, 0, 0, 4, 1, 2, 3, 4, 12 + KINDS, 30, 1, 0, 10, 4, 1, 2, 3, 4];
    let closes = [11, 1, 0, 1, 3, 11, 1, 0, 1, 3, 8, 255];
    // A packet of 44 bytes, as long as a stride may be.
    let header = [0x45, 0, 0, 44, 0, 0, 0x40, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 16, 0, 111, 255];
    let segment = [0, 2, 0xc3, 0x50, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 16, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
    let packet = [&[9 + 5 * KINDS, 44][..], &header, &segment].concat();
    let begun = [&segments[..], &said, &strange].concat();
    let accepts = [&begun[..], &packet, &closes].concat();
    let dials = [&[DIALS][..], &begun, &[13, 0], &begun, &packet, &[13]].concat();
    [accepts, dials]
}

fn secrets() -> PairSecrets {
    PairSecrets {
        token: [1; 20],
        dialler_proof: Zeroizing::new([2; 32]),
        listener_proof: Zeroizing::new([3; 32]),
    }
}

fn options(role: Role, peer_key: [u8; 32]) -> ConnectionOptions {
    let (peer, secrets) = (ADDRESS, secrets());
    ConnectionOptions { role, local: None, peer, peer_key, secrets, flows_max: FLOWS_MAX }
}

fn endpoint(key: u8) -> EspEndpoint {
    EspEndpoint::new(EspOptions::default(), STACK, &Zeroizing::new([key; 32])).expect("the options are good")
}

/// What an endpoint writes on its control stream.
fn said(endpoint: &mut EspEndpoint, now: Instant, socket: SocketId) -> Vec<u8> {
    endpoint.handle_stack(now, Input::Writable { socket, bytes: 10_000, window_bytes: usize::MAX });
    let mut out = Vec::new();
    while endpoint.poll_stack(now, &mut out).is_some() {}
    out
}

/// What an honest dialler says first.
fn diallers_proof(now: Instant) -> Vec<u8> {
    let mut dialler = endpoint(1);
    dialler.open(now, options(Role::Initiator, endpoint(2).public_key()));
    let socket = SocketId::dialled(0).on(STACK);
    let local = SocketAddr::new(IpAddr::V4(LOCAL), 50_000);
    dialler.handle_stack(now, Input::Connected { socket, local });
    said(&mut dialler, now, socket)
}

/// What an honest listener says once it has heard that.
fn listeners_proof(now: Instant) -> Vec<u8> {
    let (mut listener, heard) = (endpoint(2), diallers_proof(now));
    listener.open(now, options(Role::Responder, endpoint(1).public_key()));
    let socket = SocketId::accepted(0).on(STACK);
    let local = SocketAddr::new(IpAddr::V4(LOCAL), CONTROL_PORT);
    let peer = SocketAddr::new(IpAddr::V4(PEER), 50_000);
    listener.handle_stack(now, Input::Accepted { socket, local, peer });
    listener.stack_recv_buf(socket)[..heard.len()].copy_from_slice(&heard);
    listener.handle_stack(now, Input::Read { socket, len: heard.len() });
    said(&mut listener, now, socket)
}

/// A segment that says which port of ours it is for, or whence it comes.
fn segment(shape: u8, flags: u8) -> Vec<u8> {
    let port = if shape & 4 == 0 { FLOW_PORT } else { CONTROL_PORT };
    let ends = if shape & 8 == 0 { [50_000, port] } else { [port, 50_000] };
    let mut segment = ends.map(u16::to_be_bytes).concat();
    segment.resize(HEADER_LEN, 0);
    (segment[12], segment[13]) = (5 << 4, flags);
    segment
}

impl World {
    fn new(role: Role, control: SocketId) -> Self {
        let now = Instant::from_nanos(1 << 40);
        let is_dialler = role == Role::Initiator;
        let (ours, theirs) = if is_dialler { (1, 2) } else { (2, 1) };
        let mut endpoint = endpoint(ours);
        let conn = endpoint.open(now, options(role, self::endpoint(theirs).public_key()));
        let mut peer = Sealer::new(now, role.other(), &secrets());
        World {
            endpoint,
            role,
            conn,
            now,
            sockets: BTreeMap::new(),
            control: control.on(STACK),
            accepted: 0,
            // One that was lost.
            sealed: peer.seal(now, TCP, &[]),
            peer,
            proof: if is_dialler { listeners_proof(now) } else { diallers_proof(now) },
            is_heard: is_dialler,
            is_ready: false,
            is_over: false,
            came: 0,
            sent: 0,
            names: BTreeSet::new(),
            cells: 0,
        }
    }

    /// A listener whose peer has proved who it is.
    fn open() -> Self {
        let mut world = World::new(Role::Responder, SocketId::accepted(0));
        world.accept(CONTROL_PORT);
        world.obey();
        world.prove();
        world.obey();
        assert!(world.is_ready, "the proof is right");
        world
    }

    /// A dialler that has heard nothing yet.
    fn dial() -> Self {
        let mut world = World::new(Role::Initiator, SocketId::dialled(0));
        world.obey();
        let local = SocketAddr::new(IpAddr::V4(LOCAL), 50_000);
        world.endpoint.handle_stack(world.now, Input::Connected { socket: world.control, local });
        world.obey();
        world
    }

    /// The peer says on the control stream what it is to say first.
    fn prove(&mut self) {
        let proof = self.proof.clone();
        self.read(self.control, &proof);
    }

    fn accept(&mut self, port: u16) {
        let socket = SocketId::accepted(self.accepted).on(STACK);
        let local = SocketAddr::new(IpAddr::V4(LOCAL), port);
        let peer = SocketAddr::new(IpAddr::V4(PEER), 50_000 + self.accepted as u16);
        self.accepted += 1;
        self.sockets.insert(socket, Socket::default());
        self.endpoint.handle_stack(self.now, Input::Accepted { socket, local, peer });
    }

    /// As a driver would: only what is wanted is read.
    fn read(&mut self, socket: SocketId, bytes: &[u8]) {
        if self.sockets.get(&socket).is_some_and(|socket| socket.read) {
            let buf = self.endpoint.stack_recv_buf(socket);
            let len = bytes.len().min(buf.len());
            self.came += len;
            buf[..len].copy_from_slice(&bytes[..len]);
            self.endpoint.handle_stack(self.now, Input::Read { socket, len });
        }
    }

    fn nth(&self, number: u8) -> Option<SocketId> {
        let count = self.sockets.len().max(1);
        self.sockets.keys().nth(usize::from(number) % count).copied()
    }

    fn step(&mut self, kind: u8, script: &mut &[u8]) {
        let now = self.now;
        match kind % KINDS {
            0 if self.accepted < FLOWS => self.accept(FLOW_PORT),
            1 | 5 => {
                let is_control = kind % KINDS == 5;
                let socket = if is_control { Some(self.control) } else { self.nth(take(script)) };
                let filled = filled(kind, script);
                socket.into_iter().for_each(|socket| self.read(socket, &filled));
            }
            2 => {
                let bytes = usize::from(take(script)) * 20;
                let socket = self.nth(take(script));
                if let Some((id, socket)) = socket.and_then(|id| Some((id, self.sockets.get_mut(&id)?)))
                    && socket.write
                {
                    socket.credit = bytes;
                    let input = Input::Writable { socket: id, bytes, window_bytes: usize::MAX };
                    self.endpoint.handle_stack(now, input);
                }
            }
            3 => {
                if let Some(socket) = self.nth(take(script)) {
                    self.endpoint.handle_stack(now, Input::Eof { socket });
                }
            }
            4 => {
                if let Some(socket) = self.nth(take(script)) {
                    self.sockets.remove(&socket);
                    self.endpoint.handle_stack(now, Input::Failed { socket, error: SocketError::Reset });
                }
            }
            6 | 7 => {
                let byte = take(script);
                let role = if byte & 0x40 == 0 { Role::Responder } else { Role::Initiator };
                let Some(circ_id) = role.circ_id(u32::from(byte % 8)) else { return };
                if kind % KINDS == 7 {
                    return self.endpoint.hold(self.conn, circ_id, byte & 0x80 != 0);
                }
                let command = if byte & 0x80 != 0 { Command::DESTROY } else { Command::RELAY };
                if command == Command::DESTROY {
                    self.names.remove(&circ_id.get());
                }
                if command == Command::DESTROY || self.endpoint.capacity(self.conn) > 0 {
                    self.sent += BODY_LEN;
                    self.endpoint.send(now, self.conn, circ_id, command, &[byte; BODY_LEN]);
                }
            }
            8 => {
                self.now += Duration::from_millis(u64::from(take(script)) * 100);
                self.endpoint.handle_timeout(self.now);
            }
            9 => {
                let (stride, bytes) = (stride(kind), some(script));
                self.came += bytes.len();
                let packets = Packets { stride, data: bytes.into() };
                self.endpoint.handle_stack(now, Input::Packets { stack: STACK, packets });
            }
            10 | 12 => self.hear_stranger(kind, script),
            11 => self.hear_peer(kind, script),
            13 => self.prove(),
            _ => {}
        }
    }

    /// The peer's datagram comes, with anything in it: a segment whose head is not to be guessed, a message, or what
    /// the script says. One that comes again is refused.
    fn hear_peer(&mut self, kind: u8, script: &mut &[u8]) {
        let (shape, what) = (take(script), take(script));
        let bytes = filled(kind, script);
        let (next_header, payload) = match shape % 4 {
            0 | 3 => (TCP, [segment(shape, what), bytes].concat()),
            1 => (MESSAGE, bytes),
            _ => (what, bytes),
        };
        self.sealed = self.peer.seal(self.now, next_header, &payload);
        self.is_heard = true;
        let datagram = self.sealed.clone();
        let refused = self.arrive(ADDRESS, shape >> 4 & 3, datagram.len(), &datagram);
        assert!(self.is_over || refused == 0, "it is authentic");
        if shape & 0x80 != 0 {
            assert_eq!(self.arrive(ADDRESS, 0, datagram.len(), &datagram), 1, "it came before");
        }
    }

    /// A stranger's datagrams come: any bytes from anywhere, any behind an SPI, and what was overheard with a change.
    fn hear_stranger(&mut self, kind: u8, script: &mut &[u8]) {
        let (mut from, mut stride) = (ADDRESS, stride(kind));
        let how = kind / KINDS;
        let data = if kind % KINDS == 10 {
            if how % 3 == 2 {
                from.set_port(9002);
            }
            some(script).to_vec()
        } else {
            let (at, change) = (take(script), take(script));
            let mut datagram = self.sealed.clone();
            if how.is_multiple_of(2) {
                datagram.truncate(SPI_LEN);
                datagram.extend_from_slice(some(script));
                // No packet is shorter, or of another length.
                datagram.resize(datagram.len().next_multiple_of(4).max(36), 0);
            } else {
                let at = usize::from(at) % datagram.len();
                datagram[at] ^= change.max(1);
            }
            stride = datagram.len();
            datagram
        };
        let refused = self.arrive(from, 0, stride, &data);
        assert_eq!(refused, data.len().div_ceil(stride) as u64, "nobody of ours sealed it");
    }

    /// Datagrams come; tells how many of them are refused.
    fn arrive(&mut self, from: SocketAddr, ecn: u8, stride: usize, data: &[u8]) -> u64 {
        let refused = |endpoint: &EspEndpoint| {
            let refused = endpoint.refused_datagrams();
            refused.strangers + refused.peers
        };
        let before = refused(&self.endpoint);
        self.came += data.len();
        let datagrams = Datagrams { from, to: None, ecn, stride, data: data.into() };
        self.endpoint.handle_datagrams(self.now, datagrams);
        refused(&self.endpoint) - before
    }

    /// Does what a driver and a relay do.
    fn obey(&mut self) {
        while let Some((_, event)) = self.endpoint.poll_event(self.now) {
            self.is_ready |= event == ConnectionEvent::Ready;
            self.is_over |= matches!(event, ConnectionEvent::Ended(_));
        }
        if self.is_over {
            self.names.clear();
        }
        let mut destroyed: Option<CircId> = None;
        while let Some(cell) = self.endpoint.next_incoming(self.now) {
            self.cells += 1;
            assert_ne!(destroyed, Some(cell.circ_id), "DESTROY is the last cell");
            destroyed = (cell.command == Command::DESTROY).then_some(cell.circ_id);
            let carried = [Command::CREATE2, Command::CREATED2, Command::RELAY, Command::RELAY_EARLY];
            assert!(destroyed.is_some() || carried.contains(&cell.command), "{:?}", cell.command);
            let (name, is_theirs) = (cell.circ_id.get(), self.role.other().picks(cell.circ_id));
            if is_theirs && destroyed.is_some() {
                assert!(self.names.remove(&name), "the relay hears the end of what it knows");
            } else if is_theirs {
                assert_eq!(self.names.insert(name), cell.command == Command::CREATE2, "how it begins");
            }
        }
        let mut out = Vec::new();
        while let Some(output) = self.endpoint.poll_stack(self.now, &mut out) {
            self.carry_out(output, &out);
            out.clear();
        }
        while let Some(transmit) = self.endpoint.poll_transmit(self.now, &mut out) {
            assert!(self.is_heard && transmit.to == ADDRESS, "a listener answers whom it heard");
            out.clear();
        }
        // And the control stream.
        assert!(self.sockets.len() <= 1 + FLOWS_BORNE + NAMES, "{}", self.sockets.len());
        if self.is_over {
            assert!(self.sockets.is_empty() && self.endpoint.buffered_bytes() == 0);
        }
        self.check_held();
    }

    /// What is held is bounded, and comes of what was sent.
    fn check_held(&self) {
        let held = self.endpoint.buffered_bytes() + self.endpoint.state_bytes();
        // How much a relay gives to flows that take nothing is its own affair.
        let stated = HELD_MAX + KEEPING * self.sent;
        let caused = KEEPING * (self.came + self.sent) + FLOW_STATE_BYTES * self.accepted as usize;
        assert!(held <= stated.min(BASE_BYTES + caused), "{held} bytes are held of {}", self.came);
    }

    /// A packet for the stack is TCP between the two inner addresses, and one end has a port of ours; before the proof
    /// it is of the control stream.
    fn check_packet(&self, packet: &[u8]) {
        let (header, segment) = packet.split_first_chunk::<HEADER_LEN>().expect("a header");
        assert_eq!((header[0], header[1] & !3, header[9]), (0x45, 0, TCP));
        assert_eq!(usize::from(u16::from_be_bytes([header[2], header[3]])), packet.len());
        assert_eq!((&header[12..16], &header[16..]), (&PEER.octets()[..], &LOCAL.octets()[..]));
        assert!(segment.len() >= HEADER_LEN, "{} bytes", segment.len());
        let [from, to] = [[segment[0], segment[1]], [segment[2], segment[3]]].map(u16::from_be_bytes);
        let (known, other) = (from.min(to), from.max(to));
        assert!(known == CONTROL_PORT || (known == FLOW_PORT && self.is_ready), "{from} to {to}");
        assert!(other >= PORT_CONNECTS_MIN, "{from} to {to}");
    }

    fn carry_out(&mut self, output: Output<Plain>, out: &[u8]) {
        let len = out.len();
        match output {
            Output::Packets { stride, .. } => out.chunks(stride).for_each(|packet| self.check_packet(packet)),
            Output::Connect { socket, .. } => drop(self.sockets.insert(socket, Socket::default())),
            Output::Abort { socket } => drop(self.sockets.remove(&socket)),
            // It may name one that has failed just now.
            Output::Interest { socket, read, write } => {
                if let Some(socket) = self.sockets.get_mut(&socket) {
                    (socket.read, socket.write) = (read, write);
                }
            }
            Output::Send { socket } => {
                if let Some(socket) = self.sockets.get_mut(&socket) {
                    assert!(len <= socket.credit, "{len} bytes of {}", socket.credit);
                    socket.credit -= len;
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

fn take(script: &mut &[u8]) -> u8 {
    let Some((first, rest)) = script.split_first() else { return 0 };
    *script = rest;
    *first
}

/// As many of the next bytes as the first one says.
fn some<'a>(script: &mut &'a [u8]) -> &'a [u8] {
    let len = usize::from(take(script)).min(script.len());
    let (bytes, rest) = script.split_at(len);
    *script = rest;
    bytes
}

/// Those, and zeros behind, because cells are long, and a few bytes are to make one.
fn filled(kind: u8, script: &mut &[u8]) -> Vec<u8> {
    let mut bytes = some(script).to_vec();
    bytes.resize(bytes.len() + usize::from(kind / KINDS) * 64, 0);
    bytes
}

/// How long a step's packets and datagrams are.
fn stride(kind: u8) -> usize {
    usize::from(kind / KINDS) * 8 + 4
}
