//! The peer, our side, and what goes between them.

use crate::connections::proof::Proofs;
use crate::counting::counted;
use crate::dtls::control::{self, Control};
use crate::dtls::ecn::split_told;
use crate::dtls::engine::{Engine, News};
use crate::dtls::ids::{SessionId, session_ids};
use crate::dtls::key::OurKey;
use crate::dtls::stamped::split_stamp;
use crate::tcp_dtls::{DtlsEndpoint, DtlsOptions};
use bytes::BytesMut;
use core::net::SocketAddr;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{BODY_LEN, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{
    ConnId, ConnectionError, ConnectionEvent, ConnectionOptions, Endpoint, FlowState, PairSecrets,
};
use heddle_seam::datagrams::Datagrams;
use heddle_seam::rng::Seed;
use heddle_seam::time::{Duration, Instant};
use heddle_utcp::compact::PADDING;
use zeroize::Zeroizing;

/// Bits of a segment's first byte: whoever sends chose the port, it opens the flow, it ends it, a reset, an answer to
/// one.
pub(super) const C: u8 = 0x80;
pub(super) const S: u8 = 0x40;
pub(super) const F: u8 = 0x20;
pub(super) const R: u8 = 0x10;
pub(super) const X: u8 = 0x08;
/// What sequence numbers count, and a cell in it.
pub(super) const UNIT: usize = 170;
pub(super) const CELL_UNITS: u32 = 3;
/// A window of 64 KiB.
pub(super) const WIDE: u16 = 385;
pub(super) const PROTOCOL: u8 = DestroyReason::PROTOCOL.0;
pub(super) const RESOURCELIMIT: u8 = DestroyReason::RESOURCELIMIT.0;
pub(super) const MS: Duration = Duration::from_millis(1);
/// More steps than this at one instant, or datagrams in one, mean that a side goes in circles.
pub(super) const STEPS_PER_INSTANT_MAX: u32 = 100_000;

pub(super) fn addr(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 9000))
}

pub(super) fn secrets() -> PairSecrets {
    PairSecrets {
        token: [9; 20],
        dialler_proof: Zeroizing::new([5; 32]),
        listener_proof: Zeroizing::new([6; 32]),
    }
}

/// The peer, who dialled.
pub(super) struct Peer {
    pub(super) session: Engine,
    pub(super) proofs: Proofs,
    pub(super) certificate: Option<[u8; 32]>,
    token: [u8; 20],
    pub(super) id: SessionId,
    pub(super) has_heard: bool,
    /// Records' contents that came and are not of the connection itself.
    pub(super) segments: Vec<Vec<u8>>,
    /// What waits to be sent: contents of records.
    pub(super) outbox: Vec<Vec<u8>>,
    pub(super) is_closed: bool,
}

/// Both sides, without a wire between them.
pub(super) struct Table {
    pub(super) now: Instant,
    pub(super) ours: DtlsEndpoint,
    pub(super) conn: ConnId,
    pub(super) peer: Peer,
    pub(super) events: Vec<ConnectionEvent>,
    pub(super) cells: Vec<(CircId, Command, u8)>,
    /// Whether our relay reads and sends.
    pub(super) reads: bool,
    pub(super) sends: bool,
    /// The port id of the peer's next honest flow.
    pub(super) next_port: u32,
}

impl Peer {
    pub(super) fn dial(
        options: &DtlsOptions,
        listener: [u8; 32],
        key: &OurKey,
        secrets: PairSecrets,
    ) -> Peer {
        let session =
            Engine::new(Instant::ZERO, Role::Initiator, key, &options.session, 3).expect("good options");
        let id = session_ids(&secrets)[0];
        let PairSecrets { token, dialler_proof, listener_proof } = secrets;
        let proofs = key.proofs(Role::Initiator, listener, [dialler_proof, listener_proof]);
        Peer {
            session,
            proofs,
            certificate: None,
            token,
            id,
            has_heard: false,
            segments: Vec::new(),
            outbox: Vec::new(),
            is_closed: false,
        }
    }

    pub(super) fn handle(&mut self, now: Instant, datagram: &[u8]) {
        self.has_heard = true;
        self.session.handle_records(now, &datagram[self.id.len()..]).expect("an honest side's records");
        self.on_news();
    }

    pub(super) fn on_news(&mut self) {
        while let Some(news) = self.session.poll() {
            match news {
                News::Certificate(fingerprint) => self.certificate = Some(fingerprint),
                News::Connected => {
                    let certificate = self.certificate.expect("it was shown");
                    self.outbox.push(control::proof(&self.proofs, &certificate, 1000, 0));
                }
                News::Contents { end } => self.on_contents(end),
                News::Closed => self.is_closed = true,
            }
        }
    }

    pub(super) fn on_contents(&mut self, end: usize) {
        let contents = self.session.contents(end);
        let answer = match control::parse(contents).filter(|_| control::is_control(contents)) {
            Some(Control::Proof(_)) => control::seen(1300),
            Some(Control::Ping { number }) => control::pong(number),
            Some(Control::Close { .. }) => return self.is_closed = true,
            Some(_) => return,
            None => {
                let (_, contents) = split_stamp(contents);
                let segments = split_told(contents).map_or(contents, |(_, segments)| segments);
                return self.segments.push(segments.to_vec());
            }
        };
        self.outbox.push(answer);
    }

    /// The next datagram to our side.
    pub(super) fn poll_datagram(&mut self) -> Option<Vec<u8>> {
        let mut datagram = if self.has_heard { self.id.to_vec() } else { self.token.to_vec() };
        if let Some(records) = self.session.poll_records() {
            datagram.extend_from_slice(&records);
            return Some(datagram);
        }
        if self.outbox.is_empty() {
            return None;
        }
        let contents = self.outbox.remove(0);
        self.session.seal(&contents, &mut datagram).expect("the handshake is over");
        Some(datagram)
    }

    /// Resets that our side sent, with their reasons; answers are left out.
    pub(super) fn resets(&self) -> Vec<(u32, u8)> {
        let frames = self.segments.iter().flat_map(|contents| frames(contents));
        frames.filter(|frame| frame.bits & (R | X) == R).map(|frame| (frame.port, frame.code)).collect()
    }

    /// The number after the last one that came on a flow of the peer's own.
    pub(super) fn received(&self, port: u32) -> u32 {
        let frames = self.segments.iter().flat_map(|contents| frames(contents));
        let of_port = frames.filter(|frame| frame.bits & (C | R) == 0 && frame.port == port);
        of_port.map(|frame| frame.seq + frame.units as u32).max().unwrap_or(0)
    }

    /// The latest acknowledgement of a flow of the peer's own.
    pub(super) fn acknowledged(&self, port: u32) -> Option<u32> {
        let frames = self.segments.iter().flat_map(|contents| frames(contents));
        let of_port = frames.filter(|frame| frame.bits & (C | R) == 0 && frame.port == port);
        of_port.map(|frame| frame.ack).next_back()
    }
}

/// A segment of ours, as far as tests look at it.
pub(super) struct Frame {
    pub(super) bits: u8,
    pub(super) port: u32,
    pub(super) code: u8,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) units: usize,
}

pub(super) fn frames(mut contents: &[u8]) -> Vec<Frame> {
    let mut found = Vec::new();
    while !contents.is_empty() {
        let number = |at: usize| u32::from_be_bytes([0, contents[at], contents[at + 1], contents[at + 2]]);
        let (bits, port) = (contents[0], number(1));
        let mut frame = Frame { bits, port, code: contents[4], seq: 0, ack: 0, units: 0 };
        if bits & PADDING != 0 {
            break;
        }
        let len = if bits & (R | X) == R {
            5
        } else if bits & R != 0 {
            13
        } else {
            (frame.seq, frame.ack) = (number(4), number(7));
            frame.units = usize::from(contents[12] & 63);
            13 + 6 * usize::from(contents[12] >> 6) + UNIT * frame.units
        };
        found.push(frame);
        contents = &contents[len..];
    }
    found
}

/// What a segment of the peer says.
#[derive(Clone, Copy)]
pub(super) struct Segment<'a> {
    pub(super) bits: u8,
    pub(super) port: u32,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) window: u16,
    pub(super) sack: &'a [(u32, u32)],
    pub(super) payload: &'a [u8],
}

pub(super) const BARE: Segment<'static> =
    Segment { bits: C, port: 0, seq: 0, ack: 0, window: WIDE, sack: &[], payload: &[] };

impl Segment<'_> {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let number = |number: u32| number.to_be_bytes()[1..].to_vec();
        let counts = (self.sack.len() as u8) << 6 | (self.payload.len() / UNIT) as u8;
        let mut bytes = [&[self.bits][..], &number(self.port), &number(self.seq), &number(self.ack)].concat();
        bytes.extend_from_slice(&self.window.to_be_bytes());
        bytes.push(counts);
        for (start, end) in self.sack {
            bytes.extend([number(*start), number(*end)].concat());
        }
        bytes.extend_from_slice(self.payload);
        bytes
    }
}

pub(super) fn reset(port: u32) -> Vec<u8> {
    [&[C | R][..], &port.to_be_bytes()[1..], &[4]].concat()
}

pub(super) fn cell(command: Command) -> Vec<u8> {
    let mut cell = vec![0; 1 + BODY_LEN];
    cell[0] = command.0;
    cell
}

impl Table {
    /// A connection that is open.
    pub(super) fn new(change: impl FnOnce(&mut DtlsOptions)) -> Table {
        Table::with(1000, change)
    }

    /// A connection that is open, on which the peer may have so many flows.
    pub(super) fn with(flows_max: u32, change: impl FnOnce(&mut DtlsOptions)) -> Table {
        #[allow(clippy::disallowed_methods, reason = "an anchor can be had no other way")]
        let mut options = DtlsOptions::new(std::time::Instant::now());
        change(&mut options);
        let seed = Seed::from_number(1);
        let secret = Zeroizing::new([1; 32]);
        let mut ours = counted(|| DtlsEndpoint::new(options.clone(), &secret, &seed)).expect("good options");
        let key =
            OurKey::new(crate::tcp_dtls::PROTOCOL, &Zeroizing::new([2; 32])).expect("every seed makes a key");
        let connection = ConnectionOptions {
            role: Role::Responder,
            local: Some(addr(2).ip()),
            peer: addr(1),
            peer_key: key.public(),
            secrets: secrets(),
            flows_max,
        };
        let conn = counted(|| ours.open(Instant::ZERO, connection));
        let peer = Peer::dial(&options, ours.public_key(), &key, secrets());
        let (events, cells) = (Vec::new(), Vec::new());
        let now = Instant::ZERO;
        let mut table =
            Table { now, ours, conn, peer, events, cells, reads: true, sends: true, next_port: 0 };
        table.peer.on_news();
        table.run(100 * MS);
        assert_eq!(table.events.first(), Some(&ConnectionEvent::Ready));
        table.events.clear();
        table
    }

    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        let mut still = 0;
        loop {
            self.exchange_all();
            let next = self.ours.poll_timeout().filter(|next| *next <= end && self.sends);
            let Some(next) = next else {
                self.now = end;
                return;
            };
            still = if next > self.now { 0 } else { still + 1 };
            assert!(still < STEPS_PER_INSTANT_MAX, "time stands still at {:?}", self.now);
            // A timer that was due before does not turn time back.
            self.now = self.now.max(next);
            counted(|| self.ours.handle_timeout(self.now));
        }
    }

    /// Carries what there is from each side to the other, until neither has anything more to say.
    fn exchange_all(&mut self) {
        let mut turns = 0;
        while self.exchange() {
            turns += 1;
            assert!(turns < STEPS_PER_INSTANT_MAX, "there is always more to say at {:?}", self.now);
        }
    }

    /// Carries what there is from each side to the other; whether there was something.
    pub(super) fn exchange(&mut self) -> bool {
        let mut moved = 0;
        let mut out = Vec::with_capacity(1 << 17);
        while self.sends
            && let Some(transmit) = counted(|| self.ours.poll_transmit(self.now, &mut out))
        {
            moved += 1;
            assert!(moved < STEPS_PER_INSTANT_MAX, "our side does not stop sending at {:?}", self.now);
            out.chunks(transmit.stride).for_each(|datagram| self.peer.handle(self.now, datagram));
            out.clear();
        }
        while let Some(datagram) = self.peer.poll_datagram() {
            moved += 1;
            assert!(moved < STEPS_PER_INSTANT_MAX, "the peer does not stop sending at {:?}", self.now);
            self.deliver(datagram.len(), &datagram);
        }
        while let Some((_, event)) = counted(|| self.ours.poll_event(self.now)) {
            self.events.push(event);
        }
        while self.reads
            && let Some(cell) = counted(|| self.ours.next_incoming(self.now))
        {
            self.cells.push((cell.circ_id, cell.command, cell.body[0]));
        }
        moved > 0
    }

    /// Gives our side datagrams of the peer's, of which each but the last has `stride` bytes.
    pub(super) fn deliver(&mut self, stride: usize, datagrams: &[u8]) {
        counted(|| {
            let (to, data) = (Some(addr(2).ip()), BytesMut::from(datagrams));
            self.ours.handle_datagrams(self.now, Datagrams { from: addr(1), to, ecn: 0, stride, data });
        });
    }

    /// Lets the peer send a record with these contents.
    pub(super) fn send(&mut self, contents: Vec<u8>) {
        self.peer.outbox.push(contents);
        self.exchange_all();
    }

    /// Opens an honest flow with a CREATE2; returns its port id and the circuit's name.
    pub(super) fn open(&mut self) -> (u32, CircId) {
        let port = self.next_port;
        self.next_port += 1;
        self.cells.clear();
        let payload = cell(Command::CREATE2);
        self.send(Segment { bits: C | S, port, payload: &payload, ..BARE }.bytes());
        let [(name, Command::CREATE2, 0)] = self.cells[..] else { panic!("{:?}", self.cells) };
        self.cells.clear();
        (port, name)
    }

    /// Sends cells on a circuit as the relay would, until it is told to stop. Returns how many.
    pub(super) fn fill(&mut self, circ_id: CircId, cells_max: usize) -> usize {
        let mut sent = 0;
        while sent < cells_max && self.ours.capacity(self.conn) > 0 {
            sent += 1;
            let body = [0; BODY_LEN];
            if self.ours.send(self.now, self.conn, circ_id, Command::RELAY, &body) == FlowState::Blocked {
                break;
            }
        }
        self.run(10 * MS);
        sent
    }

    /// A flow that keeps the rules works in both directions, beside those that do not.
    pub(super) fn assert_others_live(&mut self) {
        assert!(
            self.events.iter().all(|event| !matches!(event, ConnectionEvent::Ended(_))),
            "{:?}",
            self.events
        );
        let (port, name) = self.open();
        let payload = cell(Command::RELAY);
        self.peer.segments.clear();
        self.send(Segment { port, seq: CELL_UNITS, payload: &payload, ..BARE }.bytes());
        assert_eq!(self.cells, [(name, Command::RELAY, 0)]);
        self.run(10 * MS);
        assert_eq!(self.peer.acknowledged(port).map(|ack| ack.min(2 * CELL_UNITS)), Some(2 * CELL_UNITS));
        let created = [0; BODY_LEN];
        self.ours.send(self.now, self.conn, name, Command::CREATED2, &created);
        self.run(500 * MS);
        let frames: Vec<Frame> = self.peer.segments.iter().flat_map(|contents| frames(contents)).collect();
        assert!(frames.iter().any(|frame| frame.port == port && frame.units == CELL_UNITS as usize));
        self.send(Segment { port, seq: 2 * CELL_UNITS, ack: CELL_UNITS, ..BARE }.bytes());
        self.send(reset(port));
        assert_eq!(self.cells.last(), Some(&(name, Command::DESTROY, 4)));
        self.cells.clear();
    }

    pub(super) fn ended(&self) -> Option<&ConnectionError> {
        self.events.iter().find_map(|event| match event {
            ConnectionEvent::Ended(error) => Some(error),
            _ => None,
        })
    }
}
