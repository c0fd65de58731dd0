//! Two ends whose circuits move all the time over wires that lose and reorder, and a peer that breaks the rules.

use super::IMUX;
use super::flows::OWED_FRAMES_MAX;
use super::frame::{self, FRAME_LEN, MOVED, Number};
use super::options::SharedTcpOptions;
use super::spread::{Even, Load, Spread};
use super::tunnelled::SharedTcp;
use crate::congestion::Ceiling;
use crate::connections::circuits::Lent;
use crate::dtls::tunnelled::{Opening, Tunnelled};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{BODY_LEN, Body, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{ConnectionError, FlowState};
use heddle_proto::transport::Transport;
use heddle_seam::rng::{Rng, Seed};
use heddle_seam::time::{Duration, Instant};
use heddle_utcp::BufferPool;
use heddle_utcp::compact::{FlowId, Mux};
use std::collections::{BTreeMap, BTreeSet};

const MS: Duration = Duration::from_millis(1);
const ROOM_BYTES: u16 = 1300;

/// Circuits go anywhere with each cell.
struct Restless {
    lanes: usize,
    rng: Rng,
}

impl Spread for Restless {
    const TRANSPORT: &'static Transport = &IMUX;

    fn new(options: &SharedTcpOptions) -> Self {
        Restless { lanes: options.connections, rng: Seed::from_number(options.connections as u64).rng() }
    }

    fn lanes(options: &SharedTcpOptions) -> usize {
        options.connections
    }

    fn first(&self, number: Number) -> usize {
        number.count() as usize % self.lanes
    }

    fn next(&mut self, _now: Instant, _lane: usize, _load: &mut Load) -> usize {
        self.rng.next_u32() as usize % self.lanes
    }
}

#[allow(clippy::disallowed_methods, reason = "an anchor can be had no other way")]
fn options() -> SharedTcpOptions {
    SharedTcpOptions::new(std::time::Instant::now())
}

fn open<S: Spread>(options: &SharedTcpOptions, role: Role, flows_max: u32) -> SharedTcp<S> {
    let opening = Opening {
        options,
        memory: &SharedTcp::<S>::memory(options),
        lot: (),
        ceiling: Ceiling::default(),
        role,
        packet_bytes_max: ROOM_BYTES,
        ours_max: flows_max,
        theirs_max: flows_max,
    };
    SharedTcp::open(Instant::ZERO, opening)
}

fn body(number: u32) -> Body {
    let mut body = [0; BODY_LEN];
    body[..4].copy_from_slice(&number.to_be_bytes());
    body
}

/// One end: what it sent on each circuit, and what it got, DESTROYs without a number.
struct End<S> {
    tunnelled: SharedTcp<S>,
    sent: BTreeMap<CircId, u32>,
    blocked: BTreeSet<CircId>,
    got: BTreeMap<CircId, Vec<(Command, u32)>>,
}

impl<S: Spread> End<S> {
    fn new(options: &SharedTcpOptions, role: Role) -> Self {
        let tunnelled = open(options, role, 1000);
        End { tunnelled, sent: BTreeMap::new(), blocked: BTreeSet::new(), got: BTreeMap::new() }
    }

    /// Sends what may be sent of so many cells on each of its circuits, and reads what there is.
    fn step(&mut self, now: Instant, cells: u32) {
        self.tunnelled.handle_timeout(now).expect("the peer is honest");
        while let Some(circ_id) = self.tunnelled.circuits_mut().poll_writable() {
            self.blocked.remove(&circ_id);
        }
        let names: Vec<CircId> = self.sent.keys().copied().collect();
        for circ_id in names {
            while self.sent[&circ_id] < cells
                && !self.blocked.contains(&circ_id)
                && self.tunnelled.is_ready()
                && self.tunnelled.cells_max() > 0
            {
                let number = self.sent[&circ_id];
                let is_first = number == 0 && self.tunnelled.circuits().is_ours(circ_id);
                let command = if is_first { Command::CREATE2 } else { Command::RELAY };
                if self.tunnelled.send(now, circ_id, command, &body(number)) == FlowState::Blocked {
                    self.blocked.insert(circ_id);
                }
                self.sent.insert(circ_id, number + 1);
            }
        }
        let mut lent = Lent::new();
        while let Some((circ_id, command)) = self.tunnelled.next_cell(now, &mut lent) {
            let [a, b, c, d, ..] = *lent.body();
            let number =
                if command == Command::DESTROY { a.into() } else { u32::from_be_bytes([a, b, c, d]) };
            self.got.entry(circ_id).or_default().push((command, number));
            // It answers on circuits of the other end's.
            self.sent.entry(circ_id).or_default();
        }
    }
}

/// A wire that loses so many packets in a thousand and has each of the others wait as long as chance says.
struct Wire {
    rng: Rng,
    lost_per_mille: u32,
    packets_per_ms: u32,
    under_way: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    count: u64,
}

impl Wire {
    fn new(seed: u64, lost_per_mille: u32) -> Self {
        let rng = Seed::from_number(seed).rng();
        Wire { rng, lost_per_mille, packets_per_ms: 10, under_way: BTreeMap::new(), count: 0 }
    }

    fn step<S: Spread>(&mut self, now: Instant, ends: &mut [End<S>; 2]) {
        for (to, from) in [(1, 0), (0, 1)] {
            let mut packet = Vec::new();
            for _ in 0..self.packets_per_ms {
                if ends[from].tunnelled.poll_packet(now, 0, &mut packet).is_none() {
                    break;
                }
                let packet = core::mem::take(&mut packet);
                assert!(packet.len() <= usize::from(ROOM_BYTES));
                let (is_lost, late) =
                    (self.rng.next_u32() % 1000 < self.lost_per_mille, self.rng.next_u32() % 8);
                self.count += 1;
                if !is_lost {
                    self.under_way.insert((now + 10 * MS + late * MS, self.count), (to, packet));
                }
            }
        }
        while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= now) {
            let (to, packet) = entry.remove();
            ends[to].tunnelled.handle_packet(now, &packet).expect("the peer is honest");
        }
    }
}

/// Circuits that have so many cells each way, so many of them of either end, on wires of these losses.
fn both_ways<S: Spread>(seed: u64, connections: usize, lost_per_mille: u32, [circuits, cells]: [u32; 2]) {
    let options = SharedTcpOptions { connections, ..options() };
    let mut ends = [Role::Initiator, Role::Responder].map(|role| End::<S>::new(&options, role));
    for (end, role) in ends.iter_mut().zip([Role::Initiator, Role::Responder]) {
        end.sent = (1..=circuits).filter_map(|number| Some((role.circ_id(number)?, 0))).collect();
    }
    let mut wire = Wire::new(seed, lost_per_mille);
    let mut now = Instant::ZERO;
    let all = 2 * circuits as usize;
    let is_done = |ends: &[End<S>; 2]| {
        ends.iter().all(|end| end.got.values().map(Vec::len).sum::<usize>() == all * cells as usize)
    };
    while !is_done(&ends) {
        assert!(
            now < Instant::ZERO + Duration::from_secs(300),
            "seed {seed}: {:?}",
            ends.each_ref().map(|end| end.got.len())
        );
        now += MS;
        ends.iter_mut().for_each(|end| end.step(now, cells));
        wire.step(now, &mut ends);
    }
    for end in &ends {
        assert_eq!(end.got.len(), all);
        for got in end.got.values() {
            let numbers: Vec<u32> = got.iter().map(|(_, number)| *number).collect();
            assert_eq!(numbers, (0..cells).collect::<Vec<u32>>(), "seed {seed}");
        }
    }
}

#[test]
fn circuits_that_move_with_each_cell_keep_their_order() {
    for (seed, connections, lost_per_mille) in [(1, 2, 0), (2, 4, 10), (3, 16, 30), (4, 1, 20)] {
        both_ways::<Restless>(seed, connections, lost_per_mille, [4, 300]);
    }
}

#[test]
fn circuits_that_stay_keep_their_order() {
    both_ways::<Even>(5, 4, 10, [4, 1000]);
}

/// More circuits than may wait for TCP at once, at both ends.
#[test]
fn ends_that_have_much_to_send_do_not_wait_for_each_other() {
    both_ways::<Even>(6, 4, 10, [900, 6]);
    both_ways::<Restless>(7, 2, 10, [900, 3]);
}

/// A peer whose frames are made by hand.
struct Peer {
    mux: Mux,
    lanes: Vec<FlowId>,
}

impl Peer {
    /// A dialler, whose listener is ready.
    fn new(ours: &mut SharedTcp<Even>, options: &SharedTcpOptions) -> Self {
        let mut mux = Mux::new(options.mux(ROOM_BYTES), BufferPool::new(64 << 20));
        let lanes: Vec<FlowId> = (0..4).filter_map(|_| mux.open(Instant::ZERO)).collect();
        lanes.iter().for_each(|lane| assert_eq!(mux.write(*lane, &frame::hello(4)), FRAME_LEN));
        let mut peer = Peer { mux, lanes };
        peer.exchange(Instant::ZERO, ours).expect("nothing is wrong");
        assert!(ours.is_ready());
        peer
    }

    /// Takes its packets to ours, and ours to it, until there are none.
    fn exchange(&mut self, now: Instant, ours: &mut SharedTcp<Even>) -> Result<(), ConnectionError> {
        loop {
            let (mut there, mut back) = (Vec::new(), Vec::new());
            let is_sent = self.mux.poll_datagram(now, &mut there).is_some();
            if is_sent {
                ours.handle_packet(now, &there)?;
            }
            let is_answered = ours.poll_packet(now, 0, &mut back).is_some();
            if is_answered {
                self.mux.handle_datagram(now, &back, &mut |_, _| 0).expect("ours is honest");
                while self.mux.poll_event().is_some() {}
            }
            if !is_sent && !is_answered {
                return Ok(());
            }
        }
    }

    fn write(&mut self, lane: usize, frames: &[frame::Frame]) {
        for frame in frames {
            assert_eq!(self.mux.write(self.lanes[lane], frame), FRAME_LEN);
        }
    }

    /// The commands that came back on a connection, with the first byte of each body.
    fn read(&mut self, now: Instant, lane: usize) -> Vec<(u8, u8)> {
        let mut bytes = vec![0; 1 << 20];
        let count = self.mux.read(now, self.lanes[lane], &mut bytes);
        bytes[..count].chunks(FRAME_LEN).map(|frame| (frame[4], frame[5])).collect()
    }
}

fn theirs(count: u32) -> Number {
    Number::new(Role::Initiator, count).expect("a number")
}

fn cells(now: Instant, ours: &mut SharedTcp<Even>) -> Vec<(CircId, Command)> {
    let mut lent = Lent::new();
    core::iter::from_fn(|| ours.next_cell(now, &mut lent)).collect()
}

fn listener() -> (SharedTcp<Even>, Peer) {
    let options = options();
    let mut ours = open(&options, Role::Responder, 100);
    let peer = Peer::new(&mut ours, &options);
    (ours, peer)
}

#[test]
fn a_peer_that_breaks_the_rules_of_a_circuit_loses_that_one() {
    let (mut ours, mut peer) = listener();
    let now = Instant::ZERO + MS;
    let create = |count| frame::frame(theirs(count), Command::CREATE2, &body(0));
    // On its own connection; on another one than its number says; before it began; of ours, that we never opened.
    peer.write(1, &[create(1)]);
    peer.write(2, &[create(3), frame::frame(theirs(2), Command::RELAY, &body(0))]);
    let of_ours = Number::new(Role::Responder, 4).expect("a number");
    peer.write(
        0,
        &[Command::RELAY, Command::CREATE2].map(|command| frame::frame(of_ours, command, &body(0))),
    );
    peer.exchange(now, &mut ours).expect("it costs circuits alone");
    let name = Role::Initiator.circ_id(1).expect("a name");
    assert_eq!(cells(now, &mut ours), [(name, Command::CREATE2)]);
    // A second beginning, a command that there is not, and a connection that there is not.
    for (count, bad) in [
        (1, frame::frame(theirs(1), Command::CREATE2, &body(0))),
        (5, frame::frame(theirs(5), Command(200), &body(0))),
        (9, frame::short_frame(theirs(9), MOVED, 4)),
    ] {
        if count > 1 {
            peer.write(1, &[create(count)]);
            peer.exchange(now, &mut ours).expect("it costs circuits alone");
            assert_eq!(cells(now, &mut ours).len(), 1);
        }
        peer.write(1, &[bad]);
        peer.exchange(now, &mut ours).expect("it costs circuits alone");
        assert_eq!(
            cells(now, &mut ours).iter().map(|(_, command)| *command).collect::<Vec<_>>(),
            [Command::DESTROY]
        );
        peer.exchange(now, &mut ours).expect("it costs circuits alone");
        assert_eq!(peer.read(now, 1), [(Command::DESTROY.0, DestroyReason::PROTOCOL.0)], "{count}");
    }
    assert_eq!(ours.circuits().len(), 0);
}

#[test]
fn what_comes_on_another_connection_waits_for_the_word() {
    let (mut ours, mut peer) = listener();
    let now = Instant::ZERO + MS;
    let relay = frame::frame(theirs(1), Command::RELAY, &body(0));
    peer.write(1, &[frame::frame(theirs(1), Command::CREATE2, &body(0))]);
    peer.write(3, &[relay, frame::frame(theirs(3), Command::CREATE2, &body(0))]);
    peer.exchange(now, &mut ours).expect("nothing is wrong");
    assert_eq!(cells(now, &mut ours).len(), 1, "the other circuit waits behind it");
    assert!(!ours.has_readable());
    peer.write(1, &[frame::short_frame(theirs(1), MOVED, 3)]);
    peer.exchange(now, &mut ours).expect("nothing is wrong");
    assert_eq!(cells(now, &mut ours).len(), 2);
    // A circuit that ends holds nobody back.
    peer.write(2, &[relay, frame::frame(theirs(2), Command::CREATE2, &body(0))]);
    peer.exchange(now, &mut ours).expect("nothing is wrong");
    assert_eq!(cells(now, &mut ours).len(), 0);
    let name = Role::Initiator.circ_id(1).expect("a name");
    ours.send(now, name, Command::DESTROY, &body(0));
    assert_eq!(cells(now, &mut ours).len(), 1);
}

#[test]
fn a_circuit_that_is_held_holds_what_stands_behind_it() {
    let (mut ours, mut peer) = listener();
    let now = Instant::ZERO + MS;
    peer.write(1, &[frame::frame(theirs(1), Command::CREATE2, &body(0))]);
    peer.exchange(now, &mut ours).expect("nothing is wrong");
    let (name, _) = cells(now, &mut ours)[0];
    ours.hold(name, true);
    peer.write(
        1,
        &[
            frame::frame(theirs(1), Command::RELAY, &body(0)),
            frame::frame(theirs(5), Command::CREATE2, &body(0)),
        ],
    );
    peer.write(2, &[frame::frame(theirs(2), Command::CREATE2, &body(0))]);
    peer.exchange(now, &mut ours).expect("nothing is wrong");
    assert_eq!(cells(now, &mut ours).len(), 1);
    ours.hold(name, false);
    assert_eq!(cells(now, &mut ours).len(), 2);
}

/// What the session hears within the next moment.
fn fault(ours: &mut SharedTcp<Even>) -> Option<ConnectionError> {
    ours.handle_timeout(Instant::ZERO + 20 * MS).err()
}

#[test]
fn a_peer_that_ends_a_connection_or_opens_one_more_ends_all() {
    let misbehaved = |fault| matches!(fault, Some(ConnectionError::PeerMisbehaved(_)));
    // Nothing unread stands before the end, or a cell does.
    for is_behind_a_cell in [false, true] {
        let (mut ours, mut peer) = listener();
        let now = Instant::ZERO + MS;
        if is_behind_a_cell {
            peer.write(2, &[frame::frame(theirs(2), Command::CREATE2, &body(0))]);
        }
        peer.mux.shutdown(peer.lanes[2]);
        peer.exchange(now, &mut ours).expect("it is read later");
        assert_eq!(cells(now, &mut ours).len(), usize::from(is_behind_a_cell));
        assert!(ours.is_starved() && misbehaved(fault(&mut ours)), "{is_behind_a_cell}");
    }
    let (mut ours, mut peer) = listener();
    peer.mux.reset(Instant::ZERO, peer.lanes[1], 0);
    assert!(misbehaved(peer.exchange(Instant::ZERO, &mut ours).err()));
    let (mut ours, mut peer) = listener();
    let more = peer.mux.open(Instant::ZERO).expect("a port");
    peer.mux.write(more, &frame::hello(4));
    assert!(misbehaved(peer.exchange(Instant::ZERO, &mut ours).err()));
    let (mut ours, mut peer) = listener();
    peer.write(0, &[frame::hello(4)]);
    peer.exchange(Instant::ZERO, &mut ours).expect("it is read later");
    assert_eq!(cells(Instant::ZERO, &mut ours), []);
    assert!(misbehaved(fault(&mut ours)));
}

#[test]
fn both_ends_have_the_same_number_of_connections_or_none() {
    for theirs in [2, 8] {
        let other = SharedTcpOptions { connections: theirs, ..options() };
        let mut dialler: SharedTcp<Even> = open(&other, Role::Initiator, 100);
        let mut listener: SharedTcp<Even> = open(&options(), Role::Responder, 100);
        let mut packet = Vec::new();
        let mut said = None;
        while dialler.poll_packet(Instant::ZERO, 0, &mut packet).is_some() {
            said = said.or(listener.handle_packet(Instant::ZERO, &packet).err());
            packet.clear();
        }
        let Some(ConnectionError::PeerMisbehaved(what)) = said else { panic!("{said:?}") };
        assert!(what.contains("number of connections"), "{what}");
        assert!(!listener.is_ready());
    }
    // Who opens none is not waited for.
    let mut alone: SharedTcp<Even> = open(&options(), Role::Responder, 100);
    let dial = options().session.timeouts.dial;
    assert_eq!(alone.poll_timeout(), Some(Instant::ZERO + dial));
    assert_eq!(alone.handle_timeout(Instant::ZERO + dial), Err(ConnectionError::NoAnswer));
}

/// One connection's beginning is late, and the circuit on another waits for it.
#[test]
fn nothing_is_read_before_all_connections_are_open() {
    let options = options();
    let mut ours: SharedTcp<Even> = open(&options, Role::Responder, 100);
    let mut mux = Mux::new(options.mux(ROOM_BYTES), BufferPool::new(64 << 20));
    let lanes: Vec<FlowId> = (0..4).filter_map(|_| mux.open(Instant::ZERO)).collect();
    let mut peer = Peer { mux, lanes };
    for lane in 0..3 {
        peer.write(
            lane,
            &[frame::hello(4), frame::frame(theirs(lane as u32 + 4), Command::CREATE2, &body(0))],
        );
    }
    peer.exchange(Instant::ZERO, &mut ours).expect("nothing is wrong");
    assert!(!ours.is_ready() && !ours.has_readable());
    assert_eq!(cells(Instant::ZERO, &mut ours), []);
    peer.write(3, &[frame::hello(4)]);
    peer.exchange(Instant::ZERO, &mut ours).expect("nothing is wrong");
    assert!(ours.is_ready() && ours.has_readable());
    assert_eq!(cells(Instant::ZERO, &mut ours).len(), 3);
}

/// More circuits than are permitted, to a peer that reads none of the refusals, and then all.
#[test]
fn refusals_that_nobody_reads_do_not_pile_up() {
    let (mut ours, mut peer) = listener();
    let mut now = Instant::ZERO;
    let (mut sent, mut most) = (0, 0);
    let mut step = |ours: &mut SharedTcp<Even>, peer: &mut Peer, sends: bool| {
        now += 10 * MS;
        for _ in 0..200 {
            let lane = (sent as usize + 1) % 4;
            if sends && peer.mux.capacity(peer.lanes[lane]) > 2 * FRAME_LEN {
                sent += 1;
                peer.write(lane, &[frame::frame(theirs(sent), Command::CREATE2, &body(0))]);
            }
        }
        peer.mux.handle_timeout(now);
        ours.handle_timeout(now).expect("nothing is wrong");
        peer.exchange(now, ours).expect("nothing is wrong");
        let began = cells(now, ours).len();
        most = most.max(ours.unwritten_bytes());
        assert!(most <= (OWED_FRAMES_MAX + 1) * FRAME_LEN, "{most}");
        let refused: usize = if sends { 0 } else { (0..4).map(|lane| peer.read(now, lane).len()).sum() };
        (began, refused, sent as usize)
    };
    let (mut began, mut refused, mut all) = (0, 0, 0);
    for at in 0..4000 {
        let (more, answered, so_far) = step(&mut ours, &mut peer, at < 300);
        (began, refused, all) = (began + more, refused + answered, so_far);
    }
    assert!(most >= OWED_FRAMES_MAX * FRAME_LEN / 2, "it came to that: {most} of {all}");
    assert_eq!(began, 100 + 25 + 64);
    assert_eq!(began + refused, all);
}
