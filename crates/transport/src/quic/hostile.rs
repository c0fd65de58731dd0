//! A peer whose key and proof are right and who breaks every other rule: quinn-proto alone, driven by the tests.

mod hoard;
mod relay;
mod state;

use super::crypto::{KEY_LEN, OurKey};
use super::{QuicEndpoint, QuicOptions, fuzz};
use crate::connections::circuits::FLOW_CELL_LEN;
use crate::connections::clock::Clock;
use crate::counting::counted;
use bytes::BytesMut;
use core::net::SocketAddr;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{BODY_LEN, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{
    ConnId, ConnectionError, ConnectionEvent, ConnectionOptions, Endpoint, PairSecrets,
};
use heddle_seam::datagrams::Datagrams;
use heddle_seam::rng::Seed;
use heddle_seam::time::{Duration, Instant};
use quinn_proto::{Connection, DatagramEvent, Dir, Event, StreamEvent, StreamId, TransportConfig, VarInt};
use zeroize::Zeroizing;

const TOKEN: [u8; 20] = [9; 20];
const THEIR_PROOF: [u8; 32] = [5; 32];
const PROTOCOL: u8 = DestroyReason::PROTOCOL.0;
/// More steps than this at one instant, or datagrams in one, mean that a side goes in circles.
const STEPS_PER_INSTANT_MAX: u32 = 100_000;

fn addr(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 9000))
}

/// The peer, who dialled.
struct Peer {
    clock: Clock,
    endpoint: quinn_proto::Endpoint,
    connection: Connection,
    /// Streams that our side stopped, with its codes.
    stopped: Vec<(StreamId, u64)>,
    is_lost: bool,
}

/// Both sides, without a wire between them.
struct Table {
    now: Instant,
    ours: QuicEndpoint,
    peer: Peer,
    conn: ConnId,
    events: Vec<ConnectionEvent>,
    cells: Vec<(CircId, Command, u8)>,
    /// Datagrams of the peer that are lost from now on.
    losing: usize,
    /// Whether our relay takes cells.
    reads: bool,
}

impl Peer {
    fn dial(
        clock: Clock,
        key: &OurKey,
        listener: [u8; KEY_LEN],
        token: [u8; 20],
        transport: TransportConfig,
    ) -> Peer {
        let (endpoint, connection) = fuzz::dial(&clock, key, (addr(2), listener), token, transport);
        Peer { clock, endpoint, connection, stopped: Vec::new(), is_lost: false }
    }

    fn handle(&mut self, now: Instant, data: BytesMut) {
        let at = self.clock.std(now);
        let event = self.endpoint.handle(at, addr(2), Some(addr(1).ip()), None, data, &mut Vec::new());
        if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
            self.connection.handle_event(event);
        }
    }

    fn settle(&mut self, now: Instant) {
        let now = self.clock.std(now);
        if self.connection.poll_timeout().is_some_and(|at| at <= now) {
            self.connection.handle_timeout(now);
        }
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Stream(StreamEvent::Stopped { id, error_code }) => {
                    self.stopped.push((id, error_code.into_inner()));
                }
                Event::ConnectionLost { .. } => self.is_lost = true,
                _ => {}
            }
        }
    }

    fn open(&mut self, dir: Dir, bytes: &[u8]) -> StreamId {
        let id = self.connection.streams().open(dir).expect("our side permits one more");
        self.write(id, bytes);
        id
    }

    fn write(&mut self, id: StreamId, bytes: &[u8]) {
        assert_eq!(self.connection.send_stream(id).write(bytes), Ok(bytes.len()));
    }

    fn finish(&mut self, id: StreamId) {
        self.connection.send_stream(id).finish().expect("it is open");
    }

    /// With what code our side reset a stream. It stopped it with the same one, unless there was nothing left to stop.
    fn ended_with(&mut self, id: StreamId) -> Option<u64> {
        let stopped = self.stopped.iter().find(|(stream, _)| *stream == id).map(|(_, code)| *code);
        let reset = self.connection.recv_stream(id).received_reset().ok().flatten();
        let reset = reset.map(VarInt::into_inner);
        assert!(stopped.is_none() || stopped == reset);
        reset
    }
}

impl Table {
    /// A connection whose TLS is done; the peer has not proved himself.
    fn new() -> Table {
        Table::of(1000, TransportConfig::default())
    }

    /// The same with so many flows of the peer at most, who sends in another way.
    fn of(flows_max: u32, transport: TransportConfig) -> Table {
        #[allow(clippy::disallowed_methods, reason = "an anchor can be had no other way")]
        let anchor = std::time::Instant::now();
        let secret = Zeroizing::new([1; 32]);
        let seed = Seed::from_number(1);
        let options = QuicOptions::new(anchor);
        let mut ours = counted(|| QuicEndpoint::new(options, &secret, &seed)).expect("good options");
        let their_key = OurKey::new(&Zeroizing::new([2; 32])).expect("every seed makes a key");
        let options = ConnectionOptions {
            role: Role::Responder,
            local: Some(addr(2).ip()),
            peer: addr(1),
            peer_key: their_key.public(),
            secrets: PairSecrets {
                token: TOKEN,
                dialler_proof: Zeroizing::new(THEIR_PROOF),
                listener_proof: Zeroizing::new([6; 32]),
            },
            flows_max,
        };
        let conn = counted(|| ours.open(Instant::ZERO, options));
        let peer = Peer::dial(Clock { anchor }, &their_key, ours.public_key(), TOKEN, transport);
        let (now, events, cells) = (Instant::ZERO, Vec::new(), Vec::new());
        let mut table = Table { now, ours, peer, conn, events, cells, losing: 0, reads: true };
        table.run(Duration::from_millis(100));
        assert!(!table.peer.connection.is_handshaking());
        table
    }

    /// A connection that is open.
    fn proven() -> Table {
        Table::new().prove()
    }

    fn prove(self) -> Table {
        let mut table = self;
        table.peer.open(Dir::Uni, &THEIR_PROOF);
        table.run(Duration::from_millis(100));
        assert_eq!(table.events.first(), Some(&ConnectionEvent::Ready));
        table.events.clear();
        table
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        let mut still = 0;
        loop {
            self.exchange_all();
            let peers = self.peer.connection.poll_timeout().map(|at| self.peer.clock.ours(at));
            let next = [self.ours.poll_timeout(), peers].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            still = if next > self.now { 0 } else { still + 1 };
            assert!(still < STEPS_PER_INSTANT_MAX, "time stands still at {:?}", self.now);
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
    fn exchange(&mut self) -> bool {
        let mut moved = 0;
        let mut out = Vec::with_capacity(1 << 17);
        while let Some(transmit) = counted(|| self.ours.poll_transmit(self.now, &mut out)) {
            moved += 1;
            assert!(moved < STEPS_PER_INSTANT_MAX, "our side does not stop sending at {:?}", self.now);
            for datagram in out.chunks(transmit.stride) {
                self.peer.handle(self.now, BytesMut::from(datagram));
            }
            out.clear();
        }
        self.peer.settle(self.now);
        let at = self.peer.clock.std(self.now);
        while let Some(transmit) = self.peer.connection.poll_transmit(at, 1, &mut out) {
            moved += 1;
            assert!(moved < STEPS_PER_INSTANT_MAX, "the peer does not stop sending at {:?}", self.now);
            if self.losing > 0 {
                self.losing -= 1;
                out.clear();
                continue;
            }
            self.deliver(&out[..transmit.size]);
            out.clear();
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

    /// Gives our side a datagram of the peer's.
    fn deliver(&mut self, datagram: &[u8]) {
        counted(|| {
            let (to, stride, data) = (Some(addr(2).ip()), datagram.len(), BytesMut::from(datagram));
            self.ours.handle_datagrams(self.now, Datagrams { from: addr(1), to, ecn: 0, stride, data });
        });
    }

    /// The commands of the cells that came since the last call, with the first byte of DESTROY's body.
    fn commands(&mut self) -> Vec<(Command, u8)> {
        self.cells.drain(..).map(|(_, command, first)| (command, first)).collect()
    }

    /// An honest flow beside the broken ones still works.
    fn assert_others_live(&mut self) {
        let id = self.peer.open(Dir::Bi, &[cell(Command::CREATE2), cell(Command::RELAY)].concat());
        self.run(Duration::from_millis(100));
        assert_eq!(self.commands(), [(Command::CREATE2, 0), (Command::RELAY, 0)]);
        assert_eq!(self.peer.ended_with(id), None);
        assert!(!self.peer.is_lost);
    }
}

fn cell(command: Command) -> [u8; FLOW_CELL_LEN] {
    let mut cell = [0; FLOW_CELL_LEN];
    cell[0] = command.0;
    cell
}

fn misbehaved(events: &[ConnectionEvent]) -> bool {
    matches!(events, [ConnectionEvent::Ended(ConnectionError::PeerMisbehaved(_))])
}

#[test]
fn a_flow_that_ends_without_a_reset_is_reset() {
    for rest in [&[][..], &[3; 1], &[3; 400]] {
        let mut table = Table::proven();
        let id = table.peer.open(Dir::Bi, &[&cell(Command::CREATE2)[..], rest].concat());
        table.run(Duration::from_millis(100));
        assert_eq!(table.commands(), [(Command::CREATE2, 0)]);
        table.peer.finish(id);
        table.run(Duration::from_millis(100));
        assert_eq!(table.commands(), [(Command::DESTROY, PROTOCOL)]);
        assert_eq!(table.peer.ended_with(id), Some(u64::from(PROTOCOL)));
        table.assert_others_live();
    }
}

#[test]
fn flows_whose_first_cell_does_not_come_in_time_are_reset_and_nobody_hears_of_them() {
    let mut table = Table::proven();
    let mut ids: Vec<StreamId> = Vec::new();
    // As many as are permitted; half a cell opens none.
    while let Some(id) = table.peer.connection.streams().open(Dir::Bi) {
        table.peer.write(id, &cell(Command::CREATE2)[..300]);
        ids.push(id);
        if ids.len() == 48 {
            break;
        }
    }
    table.run(Duration::from_millis(9_800));
    assert!(ids.iter().all(|id| table.peer.ended_with(*id).is_none()));
    table.run(Duration::from_millis(1_000));
    for id in ids {
        assert_eq!(table.peer.ended_with(id), Some(u64::from(PROTOCOL)));
    }
    assert_eq!(table.commands(), []);
    table.assert_others_live();
}

/// The peer may permit 2^60 flows; here it is as many as it can count itself.
#[test]
fn of_endless_permission_some_is_kept_ready_and_more_is_taken_when_it_is_used() {
    let room = |table: &Table| {
        let mut rooms = table.events.iter().filter_map(|event| match event {
            ConnectionEvent::FlowRoom(room) => Some(*room),
            _ => None,
        });
        rooms.next_back()
    };
    let mut table = Table::proven();
    table.peer.connection.set_max_concurrent_streams(Dir::Bi, VarInt::from_u32(20_000));
    table.run(Duration::from_millis(100));
    assert_eq!(room(&table), Some(2048));
    table.events.clear();
    let conn = table.conn;
    for number in 1..=1100 {
        let name = CircId::new(number).expect("not zero");
        table.ours.send(table.now, conn, name, Command::CREATE2, &[0; BODY_LEN]);
        table.run(Duration::from_millis(1));
    }
    assert_eq!(room(&table), Some(2048), "when half of them were used");
    table.assert_others_live();
}

/// What cannot be read since the first packet was lost is counted, as its flow's, until that comes again.
#[test]
fn bytes_behind_a_hole_count() {
    let mut table = Table::proven();
    table.losing = 1;
    let cells = [[cell(Command::CREATE2); 1].concat(), [cell(Command::RELAY); 15].concat()].concat();
    table.peer.open(Dir::Bi, &cells);
    table.exchange();
    let held = table.ours.buffered_bytes();
    // All but one packet, with what keeping them costs.
    let behind = cells.len() - 1400;
    assert!((behind..2 * behind).contains(&held), "{held} bytes");
    let mut backlogs = Vec::new();
    table.ours.backlogs(&mut |backlog| backlogs.push((backlog.conn, backlog.bytes, backlog.since)));
    assert_eq!(backlogs, [(table.conn, held, table.now)]);
    table.run(Duration::from_secs(1));
    assert_eq!((table.commands().len(), table.ours.buffered_bytes()), (16, 0));
}

/// The relay ends a flow whose first cell never came, and what it held is free.
#[test]
fn a_flow_that_the_relay_ends_holds_nothing() {
    let mut table = Table::proven();
    let id = table.peer.open(Dir::Bi, &cell(Command::CREATE2)[..300]);
    table.run(Duration::from_millis(100));
    assert!(table.ours.buffered_bytes() >= 300);
    let mut names = Vec::new();
    table.ours.backlogs(&mut |backlog| names.push(backlog.circ_id));
    let mut reason = [0; BODY_LEN];
    reason[0] = DestroyReason::RESOURCELIMIT.0;
    table.ours.send(table.now, table.conn, names[0], Command::DESTROY, &reason);
    assert_eq!(table.ours.buffered_bytes(), 0);
    table.run(Duration::from_millis(100));
    assert_eq!(table.peer.ended_with(id), Some(u64::from(DestroyReason::RESOURCELIMIT.0)));
    table.assert_others_live();
}

/// What comes before the proof counts as well, and so does a connection that is over until it is forgotten.
#[test]
fn bytes_before_the_proof_count_and_go_with_the_connection() {
    let mut table = Table::new();
    table.peer.open(Dir::Bi, &cell(Command::CREATE2));
    table.run(Duration::from_secs(5));
    assert!(table.ours.buffered_bytes() >= FLOW_CELL_LEN);
    table.run(Duration::from_secs(60));
    assert_eq!(table.ours.buffered_bytes(), 0);
}

/// Streams of ours that carry no flow are known to nobody, so what comes on one is a fault.
#[test]
fn nobody_sends_on_a_stream_that_carries_no_flow() {
    let mut table = Table::proven();
    let unused = StreamId::new(quinn_proto::Side::Server, Dir::Bi, 7);
    table.peer.write(unused, &[0; 100]);
    table.run(Duration::from_millis(100));
    assert!(misbehaved(&table.events), "{:?}", table.events);
}

#[test]
fn a_code_that_is_no_reason_says_nothing() {
    for code in [256, 1 << 40] {
        let mut table = Table::proven();
        let stopped = table.peer.open(Dir::Bi, &cell(Command::CREATE2));
        let reset = table.peer.open(Dir::Bi, &cell(Command::CREATE2));
        table.run(Duration::from_millis(100));
        assert_eq!(table.commands().len(), 2);
        let code = VarInt::from_u64(code).expect("it is short enough");
        table.peer.connection.recv_stream(stopped).stop(code).expect("it is open");
        table.peer.connection.send_stream(reset).reset(code).expect("it is open");
        table.run(Duration::from_millis(100));
        assert_eq!(table.commands(), [(Command::DESTROY, 0), (Command::DESTROY, 0)]);
        table.assert_others_live();
    }
}

#[test]
fn a_proof_is_the_right_one_and_nothing_else() {
    let wrong = || {
        let mut wrong = THEIR_PROOF;
        wrong[31] ^= 1;
        wrong.to_vec()
    };
    let mut table = Table::new();
    table.peer.open(Dir::Uni, &wrong());
    table.run(Duration::from_millis(100));
    assert_eq!(table.events, [ConnectionEvent::Ended(ConnectionError::WrongProof)]);

    let mut table = Table::new();
    table.peer.open(Dir::Uni, &[&THEIR_PROOF[..], &[0]].concat());
    table.run(Duration::from_millis(100));
    assert!(misbehaved(&table.events), "{:?}", table.events);

    let mut table = Table::new();
    let id = table.peer.open(Dir::Uni, &THEIR_PROOF[..31]);
    table.peer.finish(id);
    table.run(Duration::from_millis(100));
    assert!(misbehaved(&table.events), "{:?}", table.events);
    assert!(table.peer.is_lost);
}

#[test]
fn flows_before_the_proof_wait_and_whoever_does_not_prove_himself_is_given_up() {
    let mut table = Table::new();
    table.peer.open(Dir::Bi, &cell(Command::CREATE2));
    table.run(Duration::from_secs(5));
    assert_eq!((table.commands(), table.events.len()), (vec![], 0));
    table.run(Duration::from_secs(60));
    assert_eq!(table.events, [ConnectionEvent::Ended(ConnectionError::NoAnswer)]);
    assert!(table.commands().is_empty() && table.peer.is_lost);
}

/// The relay never hears of such flows, so none of its limits is about them.
#[test]
fn whoever_keeps_opening_flows_and_resetting_them_is_permitted_few_of_them() {
    const SECONDS: u64 = 60;
    let mut table = Table::of(50_000, TransportConfig::default()).prove();
    let (mut begun, mut at_once) = (0, 0);
    for _ in 0..SECONDS * 100 {
        let mut ids = Vec::new();
        while let Some(id) = table.peer.connection.streams().open(Dir::Bi) {
            ids.push(id);
        }
        (begun, at_once) = (begun + ids.len(), at_once.max(ids.len()));
        for id in ids {
            table.peer.connection.send_stream(id).reset(VarInt::from_u32(1)).expect("it is open");
        }
        table.run(Duration::from_millis(10));
    }
    // What may be at once, then 500 a second, and what it was permitted already when that was too much.
    assert!(begun <= 5_000 + 500 * SECONDS as usize + 2_000 && begun > 5_000, "{begun} flows");
    assert!(table.commands().is_empty() && at_once <= 256, "{at_once} at once");
    table.run(Duration::from_secs(11));
    table.assert_others_live();
}

#[test]
fn nobody_opens_a_second_stream_for_proofs() {
    let mut table = Table::proven();
    assert_eq!(table.peer.connection.streams().open(Dir::Uni), None);
    table.assert_others_live();
}
