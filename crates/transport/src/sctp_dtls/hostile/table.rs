//! The peer, our side, and what goes between them.

use crate::connections::circuits::FLOW_CELL_LEN;
use crate::connections::proof::Proofs;
use crate::counting::counted;
use crate::dtls::control::{self, Control};
use crate::dtls::engine::{Engine, News};
use crate::dtls::heads;
use crate::dtls::ids::{SessionId, session_ids};
use crate::dtls::key::OurKey;
use crate::sctp_dtls::{PROTOCOL, SctpEndpoint, SctpOptions};
use bytes::BytesMut;
use core::net::SocketAddr;
use heddle_proto::cell::{BODY_LEN, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{
    ConnId, ConnectionError, ConnectionEvent, ConnectionOptions, Endpoint, PairSecrets,
};
use heddle_sctp::wire::{PacketHead, Writer};
use heddle_sctp::{Association, Event, Random};
use heddle_seam::datagrams::Datagrams;
use heddle_seam::rng::Seed;
use heddle_seam::time::{Duration, Instant};
use zeroize::Zeroizing;

pub(super) const MS: Duration = Duration::from_millis(1);
/// More steps than this at one instant, or datagrams in one, mean that a side goes in circles.
const STEPS_PER_INSTANT_MAX: u32 = 100_000;
/// The first TSN of the peer.
const FIRST_TSN: u32 = 5_000;
const PORT: u16 = 9899;

fn addr(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 9000))
}

fn secrets() -> PairSecrets {
    PairSecrets {
        token: [9; 20],
        dialler_proof: Zeroizing::new([5; 32]),
        listener_proof: Zeroizing::new([6; 32]),
    }
}

pub(super) fn cell(command: Command) -> Vec<u8> {
    let mut cell = vec![0; FLOW_CELL_LEN];
    cell[0] = command.0;
    cell
}

/// The peer, who dialled.
pub(super) struct Peer {
    session: Engine,
    proofs: Proofs,
    certificate: Option<[u8; 32]>,
    token: [u8; 20],
    id: SessionId,
    has_heard: bool,
    association: Association,
    /// The tag that our side wants in packets.
    tag: u32,
    /// Ends of circuits that our side sent, by stream.
    pub(super) ends: Vec<(u16, u8)>,
    /// Other cells of our side.
    pub(super) cells: Vec<(u16, Command)>,
    /// What waits to be sent: contents of records.
    outbox: Vec<Vec<u8>>,
    pub(super) is_closed: bool,
    /// Whether it answers nothing of the association.
    pub(super) is_deaf: bool,
}

/// Both sides, without a wire between them.
pub(super) struct Table {
    pub(super) now: Instant,
    pub(super) ours: SctpEndpoint,
    pub(super) conn: ConnId,
    pub(super) peer: Peer,
    pub(super) events: Vec<ConnectionEvent>,
    pub(super) cells: Vec<(CircId, Command, u8)>,
    /// The stream of the peer's next honest flow, and its messages so far.
    pub(super) next_stream: u16,
    /// Fragments that the peer sent by its association or by hand.
    sent: u32,
}

impl Peer {
    fn dial(options: &SctpOptions, listener: [u8; 32], key: &OurKey) -> Peer {
        let session =
            Engine::new(Instant::ZERO, Role::Initiator, key, &options.session, 3).expect("good options");
        let secrets = secrets();
        let id = session_ids(&secrets)[0];
        let PairSecrets { token, dialler_proof, listener_proof } = secrets;
        let proofs = key.proofs(Role::Initiator, listener, [dialler_proof, listener_proof]);
        let random = Random { tag: 77, tsn: FIRST_TSN, cookie: [3; 32] };
        let mut association = Association::new(options.association(1200, 65_534), random);
        association.set_receive_bytes_max(1 << 20);
        Peer {
            session,
            proofs,
            certificate: None,
            token,
            id,
            has_heard: false,
            association,
            tag: 0,
            ends: Vec::new(),
            cells: Vec::new(),
            outbox: Vec::new(),
            is_closed: false,
            is_deaf: false,
        }
    }

    fn handle(&mut self, now: Instant, datagram: &[u8]) {
        self.has_heard = true;
        self.session.handle_records(now, &datagram[self.id.len()..]).expect("an honest side's records");
        self.on_news(now);
    }

    fn on_news(&mut self, now: Instant) {
        while let Some(news) = self.session.poll() {
            match news {
                News::Certificate(fingerprint) => self.certificate = Some(fingerprint),
                News::Connected => {
                    let certificate = self.certificate.expect("it was shown");
                    self.outbox.push(control::proof(&self.proofs, &certificate, 1000, 0));
                }
                News::Contents { end } => self.on_contents(now, end),
                News::Closed => self.is_closed = true,
            }
        }
    }

    fn on_contents(&mut self, now: Instant, end: usize) {
        let contents = self.session.contents(end);
        let Some(read) = heads::read(contents) else {
            match control::parse(contents) {
                Some(Control::Proof(_)) => {
                    self.outbox.push(control::seen(1300));
                    self.association.connect();
                }
                Some(Control::Ping { number }) => self.outbox.push(control::pong(number)),
                Some(Control::Close { .. }) => self.is_closed = true,
                _ => {}
            }
            return;
        };
        if self.is_deaf {
            return;
        }
        self.association.handle_packet(now, read.contents);
        while let Some(event) = self.association.poll_event() {
            let Event::Readable(stream) = event else { continue };
            while let Some(message) = self.association.read(stream) {
                match Command(message.bytes[0]) {
                    Command::DESTROY => self.ends.push((stream, message.bytes[1])),
                    command => self.cells.push((stream, command)),
                }
            }
        }
    }

    /// Has a stream begin anew, as an honest peer does when its circuit ended.
    pub(super) fn reset_stream(&mut self, stream: u16) {
        self.association.reset_stream(stream);
    }

    /// The next datagram to our side.
    fn poll_datagram(&mut self, now: Instant) -> Option<Vec<u8>> {
        let mut datagram = if self.has_heard { self.id.to_vec() } else { self.token.to_vec() };
        if let Some(records) = self.session.poll_records() {
            datagram.extend_from_slice(&records);
            return Some(datagram);
        }
        if self.outbox.is_empty() && !self.is_deaf {
            let mut packet = Vec::new();
            self.association.poll_packet(now, &mut packet)?;
            self.tag = u32::from_be_bytes([packet[4], packet[5], packet[6], packet[7]]);
            self.outbox.push(packet);
        }
        if self.outbox.is_empty() {
            return None;
        }
        let contents = self.outbox.remove(0);
        self.session.seal(&contents, &mut datagram).expect("the handshake is over");
        Some(datagram)
    }
}

impl Table {
    /// A connection that is open, on which the peer may have so many flows.
    pub(super) fn new(flows_max: u32) -> Table {
        #[allow(clippy::disallowed_methods, reason = "an anchor can be had no other way")]
        let options = SctpOptions::new(std::time::Instant::now());
        let seed = Seed::from_number(1);
        let secret = Zeroizing::new([1; 32]);
        let mut ours = counted(|| SctpEndpoint::new(options.clone(), &secret, &seed)).expect("good options");
        let key = OurKey::new(PROTOCOL, &Zeroizing::new([2; 32])).expect("every seed makes a key");
        let connection = ConnectionOptions {
            role: Role::Responder,
            local: Some(addr(2).ip()),
            peer: addr(1),
            peer_key: key.public(),
            secrets: secrets(),
            flows_max,
        };
        let conn = counted(|| ours.open(Instant::ZERO, connection));
        let peer = Peer::dial(&options, ours.public_key(), &key);
        let (events, cells, now) = (Vec::new(), Vec::new(), Instant::ZERO);
        let mut table = Table { now, ours, conn, peer, events, cells, next_stream: 0, sent: 0 };
        table.peer.on_news(now);
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
            let theirs = self.peer.association.poll_timeout().filter(|_| !self.peer.is_deaf);
            let next = [self.ours.poll_timeout(), theirs].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            still = if next > self.now { 0 } else { still + 1 };
            assert!(still < STEPS_PER_INSTANT_MAX, "time stands still at {:?}", self.now);
            self.now = self.now.max(next);
            counted(|| self.ours.handle_timeout(self.now));
            self.peer.association.handle_timeout(self.now);
        }
    }

    /// Carries what there is from each side to the other, until neither has anything more to say.
    pub(super) fn exchange_all(&mut self) {
        let mut turns = 0;
        while self.exchange() {
            turns += 1;
            assert!(turns < STEPS_PER_INSTANT_MAX, "there is always more to say at {:?}", self.now);
        }
    }

    fn exchange(&mut self) -> bool {
        let mut moved = 0;
        let mut out = Vec::with_capacity(1 << 17);
        while let Some(transmit) = counted(|| self.ours.poll_transmit(self.now, &mut out)) {
            moved += 1;
            assert!(moved < STEPS_PER_INSTANT_MAX, "our side does not stop sending at {:?}", self.now);
            out.chunks(transmit.stride).for_each(|datagram| self.peer.handle(self.now, datagram));
            out.clear();
        }
        while let Some(datagram) = self.peer.poll_datagram(self.now) {
            moved += 1;
            assert!(moved < STEPS_PER_INSTANT_MAX, "the peer does not stop sending at {:?}", self.now);
            counted(|| {
                let (to, data) = (Some(addr(2).ip()), BytesMut::from(&datagram[..]));
                let stride = datagram.len();
                self.ours.handle_datagrams(self.now, Datagrams { from: addr(1), to, ecn: 0, stride, data });
            });
        }
        while let Some((_, event)) = counted(|| self.ours.poll_event(self.now)) {
            self.events.push(event);
        }
        while let Some(cell) = counted(|| self.ours.next_incoming(self.now)) {
            self.cells.push((cell.circ_id, cell.command, cell.body[0]));
        }
        moved > 0
    }

    /// Lets the peer send a record with these contents.
    pub(super) fn send(&mut self, contents: Vec<u8>) {
        self.peer.outbox.push(contents);
        self.exchange_all();
    }

    /// A TSN that the peer's association has not used: forging takes its place.
    pub(super) fn next_tsn(&mut self) -> u32 {
        self.sent += 1;
        FIRST_TSN + self.sent - 1
    }

    /// Where the numbers of the peer's requests begin.
    pub(super) fn peer_first_tsn(&self) -> u32 {
        FIRST_TSN
    }

    /// Lets the peer send a packet with the right head and chunks made by hand.
    pub(super) fn forge(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        let mut packet = Vec::new();
        let head = PacketHead { source: PORT, destination: PORT, tag: self.peer.tag };
        let mut writer = Writer::begin(&mut packet, head);
        write(&mut writer);
        writer.finish();
        self.send(packet);
    }

    /// Lets the peer's association send a message.
    pub(super) fn write(&mut self, stream: u16, message: Vec<u8>) {
        self.sent += 1;
        assert!(self.peer.association.write(stream, message, 0, false));
    }

    /// Opens an honest flow with a CREATE2; returns its stream and the circuit's name.
    pub(super) fn open(&mut self) -> (u16, CircId) {
        let stream = self.next_stream;
        self.next_stream += 2;
        self.cells.clear();
        self.write(stream, cell(Command::CREATE2));
        self.run(50 * MS);
        let [(name, Command::CREATE2, 0)] = self.cells[..] else { panic!("{:?}", self.cells) };
        self.cells.clear();
        (stream, name)
    }

    /// Sends cells on a circuit as the relay would, as many as it may.
    pub(super) fn fill(&mut self, circ_id: CircId, cells_max: usize) {
        for _ in 0..cells_max {
            if self.ours.capacity(self.conn) == 0 {
                return;
            }
            let (now, body) = (self.now, [0; BODY_LEN]);
            counted(|| self.ours.send(now, self.conn, circ_id, Command::RELAY, &body));
        }
    }

    /// A flow that keeps the rules works in both directions, beside those that do not.
    pub(super) fn assert_others_live(&mut self) {
        assert_eq!(self.ended(), None);
        let (stream, name) = self.open();
        self.write(stream, cell(Command::RELAY));
        self.run(50 * MS);
        assert_eq!(self.cells, [(name, Command::RELAY, 0)]);
        let (now, body) = (self.now, [0; BODY_LEN]);
        self.ours.send(now, self.conn, name, Command::CREATED2, &body);
        self.run(50 * MS);
        assert!(self.peer.cells.contains(&(stream, Command::CREATED2)), "{:?}", self.peer.cells);
        self.cells.clear();
    }

    pub(super) fn ended(&self) -> Option<&ConnectionError> {
        self.events.iter().find_map(|event| match event {
            ConnectionEvent::Ended(error) => Some(error),
            _ => None,
        })
    }
}
