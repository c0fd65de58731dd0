//! Behind the decryption of tcp-esp: a peer that has proved who it is says anything on its streams, and a stack and
//! strangers bring any packets and datagrams.
//!
//! The endpoint keeps to its sockets' credits, names none that it gave up, and lends cells that flows carry alone.

use heddle_proto::cell::{BODY_LEN, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{ConnId, ConnectionEvent, ConnectionOptions, Endpoint, PairSecrets};
use heddle_seam::datagrams::{Datagrams, Packets};
use heddle_seam::language::Plain;
use heddle_seam::node::{Input, Output, SocketError, SocketId, StackId};
use heddle_seam::time::{Duration, Instant};
use heddle_transport::tcp_esp::{EspEndpoint, EspOptions};
use std::collections::BTreeMap;
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

#[derive(Default)]
struct Socket {
    credit: usize,
    read: bool,
    write: bool,
}

struct World {
    endpoint: EspEndpoint,
    conn: ConnId,
    now: Instant,
    sockets: BTreeMap<SocketId, Socket>,
    accepted: u64,
    is_over: bool,
    cells: usize,
}

/// Tells how many cells came out.
pub fn run_counting(data: &[u8]) -> usize {
    let mut world = World::open();
    let mut script = data;
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
        [&[1 + 7 * 11, socket, bytes.len() as u8], &bytes[..]].concat()
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
    seeds
}

fn options(role: Role, peer_key: [u8; 32]) -> ConnectionOptions {
    let secrets = PairSecrets {
        token: [1; 20],
        dialler_proof: Zeroizing::new([2; 32]),
        listener_proof: Zeroizing::new([3; 32]),
    };
    let peer = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9001);
    ConnectionOptions { role, local: None, peer, peer_key, secrets, flows_max: FLOWS_MAX }
}

fn endpoint(key: u8) -> EspEndpoint {
    EspEndpoint::new(EspOptions::default(), STACK, &Zeroizing::new([key; 32])).expect("the options are good")
}

/// What an honest dialler says first.
fn proof(now: Instant, peer_key: [u8; 32]) -> Vec<u8> {
    let mut dialler = endpoint(1);
    dialler.open(now, options(Role::Initiator, peer_key));
    let mut out = Vec::new();
    let Some(Output::Connect { socket, .. }) = dialler.poll_stack(now, &mut out) else { panic!("it dials") };
    let local = SocketAddr::new(IpAddr::V4(LOCAL), 50_000);
    dialler.handle_stack(now, Input::Connected { socket, local });
    dialler.handle_stack(now, Input::Writable { socket, bytes: 10_000, window_bytes: usize::MAX });
    while dialler.poll_stack(now, &mut out).is_some() {}
    out
}

impl World {
    /// A listener whose peer has proved who it is.
    fn open() -> Self {
        let now = Instant::from_nanos(1 << 40);
        let mut endpoint = endpoint(2);
        let dialler_key = self::endpoint(1).public_key();
        let proof = proof(now, endpoint.public_key());
        let conn = endpoint.open(now, options(Role::Responder, dialler_key));
        let sockets = BTreeMap::new();
        let mut world = World { endpoint, conn, now, sockets, accepted: 0, is_over: false, cells: 0 };
        world.accept(CONTROL_PORT);
        world.obey();
        world.read(SocketId::accepted(0).on(STACK), &proof);
        assert_eq!(world.endpoint.poll_event(now), Some((conn, ConnectionEvent::Ready)));
        world.obey();
        world
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
        match kind % 11 {
            0 if self.accepted < FLOWS => self.accept(FLOW_PORT),
            1 | 5 => {
                let socket = if kind % 11 == 5 { 0 } else { take(script) };
                let len = usize::from(take(script)).min(script.len());
                let (bytes, rest) = script.split_at(len);
                *script = rest;
                // Cells are long, so that a few bytes are to make one.
                let filled = [bytes, &vec![0; usize::from(kind / 11) * 64]].concat();
                self.nth(socket).into_iter().for_each(|socket| self.read(socket, &filled));
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
                if kind % 11 == 7 {
                    return self.endpoint.hold(self.conn, circ_id, byte & 0x80 != 0);
                }
                let command = if byte & 0x80 != 0 { Command::DESTROY } else { Command::RELAY };
                if command == Command::DESTROY || self.endpoint.capacity(self.conn) > 0 {
                    self.endpoint.send(now, self.conn, circ_id, command, &[byte; BODY_LEN]);
                }
            }
            8 => {
                self.now += Duration::from_millis(u64::from(take(script)) * 100);
                self.endpoint.handle_timeout(self.now);
            }
            _ => {
                let len = usize::from(take(script)).min(script.len());
                let (bytes, rest) = script.split_at(len);
                *script = rest;
                let (stride, from) = (usize::from(kind / 11) + 1, SocketAddr::new(IpAddr::V4(PEER), 9001));
                if kind % 11 == 9 {
                    let packets = Packets { stride, data: bytes.into() };
                    self.endpoint.handle_stack(now, Input::Packets { stack: STACK, packets });
                } else {
                    let datagrams = Datagrams { from, to: None, ecn: 0, stride, data: bytes.into() };
                    self.endpoint.handle_datagrams(now, datagrams);
                }
            }
        }
    }

    /// Does what a driver and a relay do.
    fn obey(&mut self) {
        while let Some((_, event)) = self.endpoint.poll_event(self.now) {
            self.is_over |= matches!(event, ConnectionEvent::Ended(_));
        }
        let mut destroyed: Option<CircId> = None;
        while let Some(cell) = self.endpoint.next_incoming(self.now) {
            self.cells += 1;
            assert_ne!(destroyed, Some(cell.circ_id), "DESTROY is the last cell");
            destroyed = (cell.command == Command::DESTROY).then_some(cell.circ_id);
            let carried = [Command::CREATE2, Command::CREATED2, Command::RELAY, Command::RELAY_EARLY];
            assert!(destroyed.is_some() || carried.contains(&cell.command), "{:?}", cell.command);
        }
        let mut out = Vec::new();
        while let Some(output) = self.endpoint.poll_stack(self.now, &mut out) {
            self.carry_out(output, out.len());
            out.clear();
        }
        assert!(self.endpoint.poll_transmit(self.now, &mut out).is_none(), "nobody was heard yet");
        assert!(self.sockets.len() <= FLOWS_BORNE + FLOWS_MAX as usize, "{}", self.sockets.len());
        if self.is_over {
            assert!(self.sockets.is_empty() && self.endpoint.buffered_bytes() == 0);
        }
    }

    fn carry_out(&mut self, output: Output<Plain>, len: usize) {
        match output {
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
