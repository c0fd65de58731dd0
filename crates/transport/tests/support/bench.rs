//! Endpoints of any transport on emulated wires in virtual time.

use crate::tcp::{Carried, TcpFlow};
use bytes::BytesMut;
use core::net::SocketAddr;
use core::time::Duration;
use heddle_netem::{
    DirectionOptions, HostId, HostOptions, Packet, Seed as NetSeed, Topology, TopologyOptions, WireOptions,
};
use heddle_proto::cell::{BODY_LEN, Body, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{ConnId, ConnectionEvent, ConnectionOptions, Endpoint, PairSecrets};
use heddle_seam::datagrams::{Datagrams, Transmit};
use heddle_seam::rng::Seed;
use heddle_seam::time::Instant;
use heddle_transport::quic::{QuicEndpoint, QuicOptions};
use heddle_transport::sctp_dtls::{self, SctpOptions};
use heddle_transport::tcp_dtls::{self, DtlsOptions};
use zeroize::Zeroizing;

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000 * MS;
/// More steps than this at one instant, or datagrams in one, mean that somebody goes in circles.
const STEPS_PER_INSTANT_MAX: u32 = 100_000;

/// A datagram on a wire.
#[derive(Clone, Debug)]
pub struct Sent {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub ecn: u8,
    pub data: Vec<u8>,
}

impl Packet for Sent {
    fn len_bytes(&self) -> usize {
        self.data.len() + 28
    }

    fn flip_bit(&mut self, bit: usize) {
        if let Some(byte) = self.data.get_mut((bit / 8).saturating_sub(28)) {
            *byte ^= 1 << (bit % 8);
        }
    }

    /// Both bits of the field set (RFC 3168, section 5).
    fn mark_congestion(&mut self) -> bool {
        let can_be_marked = self.ecn != 0;
        if can_be_marked {
            self.ecn = 3;
        }
        can_be_marked
    }
}

/// A cell that came out of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    pub conn: ConnId,
    pub circ_id: CircId,
    pub command: Command,
    pub number: u32,
}

/// Options that endpoints are made with.
pub trait Options: Clone {
    fn endpoint(self, secret: &Zeroizing<[u8; 32]>, seed: &Seed) -> Box<dyn Endpoint>;
}

impl Options for QuicOptions {
    fn endpoint(self, secret: &Zeroizing<[u8; 32]>, seed: &Seed) -> Box<dyn Endpoint> {
        Box::new(QuicEndpoint::new(self, secret, seed).expect("good options"))
    }
}

impl Options for DtlsOptions {
    fn endpoint(self, secret: &Zeroizing<[u8; 32]>, seed: &Seed) -> Box<dyn Endpoint> {
        tcp_dtls::endpoint(self, secret, seed).expect("good options")
    }
}

impl Options for SctpOptions {
    fn endpoint(self, secret: &Zeroizing<[u8; 32]>, seed: &Seed) -> Box<dyn Endpoint> {
        sctp_dtls::endpoint(self, secret, seed).expect("good options")
    }
}

/// One endpoint with what came out of it.
pub struct End {
    pub endpoint: Box<dyn Endpoint>,
    pub host: usize,
    pub addr: SocketAddr,
    pub events: Vec<(ConnId, ConnectionEvent)>,
    pub cells: Vec<Got>,
    /// Whether cells are taken out at all.
    pub reads: bool,
    /// Until then nobody looks after it. Its timers come first then, and afterwards what has arrived meanwhile.
    pub stalled_until: Instant,
    unread: Vec<Sent>,
}

impl End {
    /// When it is looked after next.
    fn next_look(&mut self) -> Option<Instant> {
        let timer = self.endpoint.poll_timeout().map(|at| at.max(self.stalled_until));
        let arrival = (!self.unread.is_empty()).then_some(self.stalled_until);
        timer.into_iter().chain(arrival).min()
    }
}

/// What a test does at each step, after events and cells were taken out.
pub trait Script {
    fn step(&mut self, now: Instant, ends: &mut [End]);
}

impl Script for () {
    fn step(&mut self, _now: Instant, _ends: &mut [End]) {}
}

impl<F: FnMut(Instant, &mut [End])> Script for F {
    fn step(&mut self, now: Instant, ends: &mut [End]) {
        self(now, ends);
    }
}

pub struct Bench {
    pub now: Instant,
    pub ends: Vec<End>,
    pub wires: Topology<Carried>,
    /// TCP beside it.
    pub tcp: Vec<TcpFlow>,
    /// Every datagram that was put on a wire, when recording.
    pub record: Option<Vec<Sent>>,
    /// What routers make of a datagram; whether it goes on.
    pub alter: Option<fn(&mut Sent) -> bool>,
}

pub fn addr(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8 + 1], 9000 + host as u16))
}

/// A wire that only delays, by so much one way.
pub fn delay(delay_ns: u64) -> DirectionOptions {
    DirectionOptions { delay_ns, ..DirectionOptions::default() }
}

/// The anchor of tests. Nothing depends on which instant it is.
#[allow(clippy::disallowed_methods, reason = "an anchor can be had no other way")]
pub fn anchor() -> std::time::Instant {
    std::time::Instant::now()
}

pub fn secret(host: usize) -> Zeroizing<[u8; 32]> {
    Zeroizing::new([host as u8 + 1; 32])
}

impl Bench {
    /// Two hosts with a wire like `there` in both directions.
    pub fn pair(there: DirectionOptions, options: &impl Options) -> Self {
        Bench::pair_of(there, None, options, 1)
    }

    /// Two hosts with a wire like `there`, and like `back` in the other direction if that differs.
    pub fn pair_of(
        there: DirectionOptions,
        back: Option<DirectionOptions>,
        options: &impl Options,
        seed: u64,
    ) -> Self {
        let host = |name: &str| HostOptions { name: name.to_owned(), ..HostOptions::default() };
        let wires = TopologyOptions {
            hosts: vec![host("a"), host("b")],
            wires: vec![WireOptions { from: "a".to_owned(), to: "b".to_owned(), there, back }],
            default_wire: None,
        };
        Bench::new(&wires, options, seed)
    }

    /// One endpoint at each host.
    pub fn new(wires: &TopologyOptions, options: &impl Options, seed: u64) -> Self {
        Bench::of(wires, (0..wires.hosts.len()).map(|host| (host, options.clone())), seed)
    }

    /// Endpoints at hosts.
    pub fn of(
        wires: &TopologyOptions,
        ends: impl IntoIterator<Item = (usize, impl Options)>,
        seed: u64,
    ) -> Self {
        let made = |(index, (host, options)): (usize, (usize, _))| {
            let seed = Seed::from_number(seed).child("end", index as u64);
            let endpoint = Options::endpoint(options, &secret(index), &seed);
            let (events, cells, unread) = (Vec::new(), Vec::new(), Vec::new());
            let stalled_until = Instant::ZERO;
            End { endpoint, host, addr: addr(index), events, cells, reads: true, stalled_until, unread }
        };
        let ends = ends.into_iter().enumerate().map(made).collect();
        let wires = Topology::new(wires, &NetSeed::from_number(seed)).expect("good options");
        Bench { now: Instant::ZERO, ends, wires, tcp: Vec::new(), record: None, alter: None }
    }

    /// What `from` would open a connection to `to` with.
    pub fn connection(&self, from: usize, to: usize, role: Role) -> ConnectionOptions {
        let listener = if role == Role::Initiator { to } else { from };
        ConnectionOptions {
            role,
            local: Some(self.ends[from].addr.ip()),
            peer: self.ends[to].addr,
            peer_key: self.ends[to].endpoint.public_key(),
            secrets: secrets(listener as u8),
            flows_max: 1000,
        }
    }

    /// Opens a connection that `dialler` dials; returns its names at the dialler's and at the listener's.
    pub fn open(&mut self, dialler: usize, listener: usize) -> (ConnId, ConnId) {
        let there = self.connection(listener, dialler, Role::Responder);
        let here = self.connection(dialler, listener, Role::Initiator);
        let theirs = self.ends[listener].endpoint.open(self.now, there);
        let ours = self.ends[dialler].endpoint.open(self.now, here);
        (ours, theirs)
    }

    /// Opens a connection and waits until it is ready.
    pub fn open_ready(&mut self) -> (ConnId, ConnId) {
        let (a, b) = self.open(0, 1);
        self.run_for(2 * S, &mut ());
        for (end, conn) in [(0, a), (1, b)] {
            assert_eq!(self.ends[end].events.first(), Some(&(conn, ConnectionEvent::Ready)), "end {end}");
            self.ends[end].events.clear();
        }
        (a, b)
    }

    pub fn run_for(&mut self, ns: u64, script: &mut impl Script) {
        self.run_until(self.now + Duration::from_nanos(ns), script);
    }

    /// Lets time pass.
    pub fn run_until(&mut self, end: Instant, script: &mut impl Script) {
        let mut still = 0;
        loop {
            self.pump(script);
            let wire = self.wires.next_time();
            let timers = self.ends.iter_mut().filter_map(|end| end.next_look());
            let tcp = self.tcp.iter().filter_map(TcpFlow::poll_timeout);
            let Some(next) = timers.chain(wire).chain(tcp).min().filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            still = if next > self.now { 0 } else { still + 1 };
            assert!(still < STEPS_PER_INSTANT_MAX, "time stands still at {:?}", self.now);
            self.now = self.now.max(next);
            while let Some(delivery) = self.wires.poll(self.now) {
                match delivery.packet {
                    Carried::Datagram(sent) => {
                        let to = self.ends.iter().position(|end| end.addr == sent.to);
                        self.deliver(to.expect("an endpoint's address"), sent);
                    }
                    Carried::Segment(segment) => self.tcp[segment.flow].handle_segment(self.now, &segment),
                }
            }
            for end in 0..self.ends.len() {
                if self.ends[end].stalled_until <= self.now {
                    self.ends[end].endpoint.handle_timeout(self.now);
                    let unread = core::mem::take(&mut self.ends[end].unread);
                    unread.into_iter().for_each(|sent| self.deliver(end, sent));
                }
            }
            for flow in &mut self.tcp {
                flow.handle_timeout(self.now);
            }
        }
    }

    /// Hands a datagram to an endpoint.
    pub fn deliver(&mut self, end: usize, sent: Sent) {
        let end = &mut self.ends[end];
        if end.stalled_until > self.now {
            return end.unread.push(sent);
        }
        let stride = sent.data.len().max(1);
        let to = Some(end.addr.ip());
        let data = BytesMut::from(&sent.data[..]);
        end.endpoint
            .handle_datagrams(self.now, Datagrams { from: sent.from, to, ecn: sent.ecn, stride, data });
    }

    fn pump(&mut self, script: &mut impl Script) {
        for turn in 0.. {
            assert!(turn < STEPS_PER_INSTANT_MAX, "there is always more to send at {:?}", self.now);
            for end in self.ends.iter_mut().filter(|end| end.stalled_until <= self.now) {
                while let Some(event) = end.endpoint.poll_event(self.now) {
                    end.events.push(event);
                }
                while end.reads
                    && let Some(cell) = end.endpoint.next_incoming(self.now)
                {
                    let (number, _) = cell.body.split_first_chunk::<4>().expect("a body is longer");
                    let number = u32::from_be_bytes(*number);
                    let got = Got { conn: cell.conn, circ_id: cell.circ_id, command: cell.command, number };
                    end.cells.push(got);
                }
            }
            script.step(self.now, &mut self.ends);
            let mut moved = false;
            for end in 0..self.ends.len() {
                moved |= self.ends[end].stalled_until <= self.now && self.transmit(end);
            }
            if !moved {
                break;
            }
        }
        for flow in &mut self.tcp {
            while let Some(segment) = flow.poll_transmit(self.now) {
                let [writer, reader] = flow.hosts.map(|host| HostId(host as _));
                let (from, to) = if segment.to_reader { (writer, reader) } else { (reader, writer) };
                let now = self.now;
                self.wires.send(now, from, to, Carried::Segment(segment)).expect("a wire");
            }
        }
    }

    fn transmit(&mut self, end: usize) -> bool {
        let mut out = Vec::new();
        let mut sent = 0;
        while let Some(Transmit { to, from, ecn, stride }) =
            self.ends[end].endpoint.poll_transmit(self.now, &mut out)
        {
            sent += 1;
            assert!(sent < STEPS_PER_INSTANT_MAX, "end {end} does not stop sending at {:?}", self.now);
            assert_eq!(from, Some(self.ends[end].addr.ip()));
            let target = self.ends.iter().find(|end| end.addr == to).expect("an endpoint's address").host;
            for data in out.chunks(stride) {
                let mut sent = Sent { from: self.ends[end].addr, to, ecn, data: data.to_vec() };
                if let Some(record) = &mut self.record {
                    record.push(sent.clone());
                }
                if self.alter.is_some_and(|alter| !alter(&mut sent)) {
                    continue;
                }
                let (from, to) = (HostId(self.ends[end].host as _), HostId(target as _));
                let now = self.now;
                self.wires.send(now, from, to, Carried::Datagram(sent)).expect("a wire");
            }
            out.clear();
        }
        sent > 0
    }
}

pub fn secrets(which: u8) -> PairSecrets {
    PairSecrets {
        token: [which | 0x80; 20],
        dialler_proof: Zeroizing::new([which | 0x40; 32]),
        listener_proof: Zeroizing::new([which | 0x20; 32]),
    }
}

pub fn body(number: u32) -> Body {
    let mut body = [0; BODY_LEN];
    body[..4].copy_from_slice(&number.to_be_bytes());
    body
}

/// A circuit id of the dialler's half.
pub fn dialled(number: u32) -> CircId {
    CircId::new(number | 1 << 31).expect("not zero")
}

pub fn awaited(number: u32) -> CircId {
    CircId::new(number).expect("not zero")
}
