//! Bodies of fuzz targets of endpoints, whatever their transport: arbitrary bytes in, and a panic when a promise is
//! broken.

pub mod neighbour;
pub(crate) mod street;

use crate::per_circuit::PerCircuitEndpoint;
use crate::quic::{QuicEndpoint, QuicOptions};
use crate::sctp_dtls::{self, SctpOptions};
use crate::shared_tcp::{self, SharedTcpOptions};
use crate::tcp_dtls::{self, DtlsOptions};
use bytes::BytesMut;
use core::net::SocketAddr;
use core::time::Duration;
use heddle_proto::cell::{BODY_LEN, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{ConnId, ConnectionEvent, ConnectionOptions, Endpoint, PairSecrets};
use heddle_seam::datagrams::{Datagrams, Transmit};
use heddle_seam::rng::Seed;
use heddle_seam::time::Instant;
use std::collections::{BTreeMap, VecDeque};
use zeroize::Zeroizing;

pub(crate) const PEER: SocketAddr =
    SocketAddr::new(core::net::IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 1)), 9000);

/// The token of every dialler's first datagram.
const TOKEN: [u8; 20] = [0xaa; 20];

/// Whose endpoints they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fuzzed {
    Quic,
    Dtls,
    PerCircuit,
    Sctp,
    Imux,
    Torchestra,
}

impl Fuzzed {
    fn endpoint(self, anchor: std::time::Instant, number: u8) -> Box<dyn Endpoint> {
        const GOOD: &str = "the defaults are good";
        let (secret, seed) = (Zeroizing::new([number; 32]), Seed::from_number(u64::from(number)));
        let quic = || QuicEndpoint::new(QuicOptions::new(anchor), &secret, &seed).expect(GOOD);
        match self {
            Fuzzed::Quic => Box::new(quic()),
            Fuzzed::Dtls => tcp_dtls::endpoint(DtlsOptions::new(anchor), &secret, &seed).expect(GOOD),
            Fuzzed::Sctp => sctp_dtls::endpoint(SctpOptions::new(anchor), &secret, &seed).expect(GOOD),
            Fuzzed::Imux => shared_tcp::imux(SharedTcpOptions::new(anchor), &secret, &seed).expect(GOOD),
            Fuzzed::Torchestra => {
                shared_tcp::torchestra(SharedTcpOptions::new(anchor), &secret, &seed).expect(GOOD)
            }
            Fuzzed::PerCircuit => Box::new(PerCircuitEndpoint::new(quic())),
        }
    }

    /// Whether a stranger who sends this may be answered. Arbitrary bytes do not decrypt as a first packet of QUIC, but
    /// DTLS begins in the clear, so that the token is enough.
    fn may_answer(self, bytes: &[u8]) -> bool {
        matches!(self, Fuzzed::Dtls | Fuzzed::Sctp | Fuzzed::Imux | Fuzzed::Torchestra)
            && bytes.windows(TOKEN.len()).any(|window| window == TOKEN)
    }
}

/// A listener to whom somebody at the peer's address sends these bytes, cut into datagrams by their own first bytes.
/// Nothing gets him a connection, and nothing an answer, unless it is DTLS and he has overheard the token.
pub fn stranger_datagrams(fuzzed: Fuzzed, anchor: std::time::Instant, bytes: &[u8]) {
    let mut endpoint = fuzzed.endpoint(anchor, 1);
    endpoint.open(Instant::ZERO, connection(Role::Responder, [4; 32]));
    let mut rest = bytes;
    while let Some((head, tail)) = rest.split_first_chunk::<2>() {
        let len = usize::from(u16::from_be_bytes(*head)) % 1500;
        let (datagram, tail) = tail.split_at(len.min(tail.len()));
        rest = tail;
        let data = BytesMut::from(datagram);
        let stride = datagram.len().max(1);
        endpoint.handle_datagrams(Instant::ZERO, Datagrams { from: PEER, to: None, ecn: 0, stride, data });
    }
    let answer = endpoint.poll_transmit(Instant::ZERO, &mut Vec::new());
    assert!(answer.is_none() || fuzzed.may_answer(bytes), "the port is silent");
    assert!(endpoint.poll_event(Instant::ZERO).is_none());
}

pub(crate) fn connection(role: Role, peer_key: [u8; 32]) -> ConnectionOptions {
    let secrets = PairSecrets {
        token: TOKEN,
        dialler_proof: Zeroizing::new([2; 32]),
        listener_proof: Zeroizing::new([3; 32]),
    };
    ConnectionOptions { role, local: None, peer: PEER, peer_key, secrets, flows_max: 10 }
}

/// Two endpoints, and a script of what their relays and the wire do: cells of any command on any circuit, holds, ends,
/// datagrams that are lost, doubled or bent, and time that passes.
///
/// Whatever happens, what a circuit delivers was sent on it, in that order and without a gap. Returns how many cells
/// were delivered.
pub fn flows(fuzzed: Fuzzed, anchor: std::time::Instant, script: &[u8]) -> usize {
    let mut pair = Pair::new([1, 2].map(|number| fuzzed.endpoint(anchor, number)));
    for _ in 0..20 {
        pair.exchange(|_| Fate::Arrives);
    }
    for step in script.chunks_exact(2) {
        pair.step(step[0], step[1]);
    }
    for end in 0..2 {
        for circuit in 1..=CIRCUITS {
            for half in [0, HIGHEST_BIT] {
                pair.hold(end, circuit | half, false);
            }
        }
    }
    for _ in 0..20 {
        pair.exchange(|_| Fate::Arrives);
    }
    pair.delivered
}

const HIGHEST_BIT: u32 = 1 << 31;

/// Circuits that each side uses of each half.
const CIRCUITS: u32 = 4;

enum Fate {
    Arrives,
    IsLost,
    IsDoubled,
    IsBent,
}

/// Two endpoints, one of which dialled the other.
struct Pair {
    now: Instant,
    ends: [Box<dyn Endpoint>; 2],
    conns: [ConnId; 2],
    wire: VecDeque<(usize, Transmit, Vec<u8>)>,
    /// The numbers of the cells sent by an end and not yet read by the other, by a number of the circuit's own that
    /// each of its cells carries.
    sent: BTreeMap<(usize, u32), VecDeque<u32>>,
    /// Which of those numbers an end's circuit has now.
    names: BTreeMap<(usize, u32), u32>,
    made: u32,
    /// Flows that each end may open.
    room: [u32; 2],
    delivered: usize,
}

impl Pair {
    fn new(mut ends: [Box<dyn Endpoint>; 2]) -> Self {
        let keys = [ends[0].public_key(), ends[1].public_key()];
        let there = ends[1].open(Instant::ZERO, connection(Role::Responder, keys[0]));
        let here = ends[0].open(Instant::ZERO, connection(Role::Initiator, keys[1]));
        Pair {
            now: Instant::ZERO,
            ends,
            conns: [here, there],
            wire: VecDeque::new(),
            sent: BTreeMap::new(),
            names: BTreeMap::new(),
            made: 0,
            room: [0; 2],
            delivered: 0,
        }
    }

    fn step(&mut self, what: u8, how: u8) {
        let end = usize::from(how & 1);
        let half = if how & 2 == 0 { 0 } else { HIGHEST_BIT };
        let name = (u32::from(how >> 2) % CIRCUITS + 1) | half;
        match what % 8 {
            0 | 1 => self.send(end, name, Command::RELAY),
            2 => self.send(end, name, Command(what >> 3)),
            3 => self.send(end, name, Command::DESTROY),
            4 => self.hold(end, name, how & 0x80 == 0),
            5 => self.exchange(
                |index| if index % 3 == usize::from(how) % 3 { Fate::IsLost } else { Fate::Arrives },
            ),
            6 => self.exchange(|index| if index == 0 { Fate::IsBent } else { Fate::IsDoubled }),
            _ => self.exchange(|_| Fate::Arrives),
        }
    }

    fn send(&mut self, end: usize, name: u32, command: Command) {
        let circ_id = CircId::new(name).expect("circuits are counted from one");
        let mut body = [0; BODY_LEN];
        if command == Command::DESTROY {
            self.names.remove(&(end, name));
        } else if self.ends[end].capacity(self.conns[end]) == 0 {
            return;
        }
        let opens = !self.names.contains_key(&(end, name)) && command != Command::DESTROY;
        if opens {
            let is_ours = (name & HIGHEST_BIT != 0) == (end == 0);
            if !is_ours || self.room[end] == 0 {
                return;
            }
            self.room[end] -= 1;
        }
        let command = if opens && command == Command::RELAY { Command::CREATE2 } else { command };
        if command != Command::DESTROY {
            let made = &mut self.made;
            let circuit = *self.names.entry((end, name)).or_insert_with(|| {
                *made += 1;
                *made
            });
            let sent = self.sent.entry((end, circuit)).or_default();
            let number = sent.back().map_or(0, |last| last + 1);
            sent.push_back(number);
            body[..4].copy_from_slice(&circuit.to_be_bytes());
            body[4..8].copy_from_slice(&number.to_be_bytes());
        }
        self.ends[end].send(self.now, self.conns[end], circ_id, command, &body);
    }

    fn hold(&mut self, end: usize, name: u32, hold: bool) {
        if let Some(circ_id) = CircId::new(name) {
            self.ends[end].hold(self.conns[end], circ_id, hold);
        }
    }

    /// Reads what came, sends what is to be sent, and lets ten milliseconds pass in which it meets its fate.
    fn exchange(&mut self, fate: impl Fn(usize) -> Fate) {
        for end in 0..2 {
            self.read(end);
            let mut out = Vec::new();
            while let Some(transmit) = self.ends[end].poll_transmit(self.now, &mut out) {
                self.wire.push_back((1 - end, transmit, core::mem::take(&mut out)));
            }
        }
        self.now += Duration::from_millis(10);
        for (index, (end, transmit, data)) in core::mem::take(&mut self.wire).into_iter().enumerate() {
            let copies = match fate(index) {
                Fate::IsLost => 0,
                Fate::IsDoubled => 2,
                Fate::Arrives | Fate::IsBent => 1,
            };
            for _ in 0..copies {
                let mut data = BytesMut::from(&data[..]);
                if matches!(fate(index), Fate::IsBent) {
                    let middle = data.len() / 2;
                    data[middle] ^= 1;
                }
                let (stride, ecn) = (transmit.stride, transmit.ecn);
                let datagrams = Datagrams { from: PEER, to: None, ecn, stride, data };
                self.ends[end].handle_datagrams(self.now, datagrams);
            }
        }
        for end in &mut self.ends {
            end.handle_timeout(self.now);
        }
    }

    fn read(&mut self, end: usize) {
        while let Some((_, event)) = self.ends[end].poll_event(self.now) {
            if let ConnectionEvent::FlowRoom(room) = event {
                self.room[end] = room;
            }
        }
        while let Some(cell) = self.ends[end].next_incoming(self.now) {
            let name = cell.circ_id.get();
            if cell.command == Command::DESTROY {
                self.names.remove(&(end, name));
                continue;
            }
            let word = |at: usize| cell.body[at..].first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
            let (circuit, number) = (word(0).unwrap_or(0), word(4));
            let sent = self.sent.get_mut(&(1 - end, circuit)).and_then(VecDeque::pop_front);
            assert_eq!(sent, number, "cells come as they were sent");
            self.delivered += 1;
            // The circuit's own number lets this end's answers be told apart from those of later circuits of that name.
            if !self.names.contains_key(&(end, name)) {
                self.made += 1;
                self.names.insert((end, name), self.made);
            }
        }
    }
}
