//! An endpoint without cryptography, loss or congestion: tokens and proofs are compared, cells are carried as they are.
//!
//! A datagram is a connection's token, the side that sends it, its number, and frames. Nothing is sent again: a
//! datagram that is missing costs the connection its life, as a dead path does.
//!
//! ```text
//!   0 hello   proof (32), flows that the other side may open (4)
//!   1 cell    flow (4), command (1), body (509)
//!   2 reset   flow (4), reason (1)
//!   3 credit  flow (4), cells that may be sent beside (4)
//!   4 ack     frames that came, of them cells (4, 4)
//!   5 close
//!   6 ping
//! ```

use heddle_proto::cell::{BODY_LEN, Body, CELL_LEN, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{
    Backlog, CongestionParams, ConnId, ConnectionError, ConnectionEvent, ConnectionOptions, ConnectionStats,
    Endpoint, FlowCell, FlowState, RefusedDatagrams,
};
use heddle_proto::transport::{Isolation, Scope, Transport, TransportId};
use heddle_seam::datagrams::{Datagrams, Transmit};
use heddle_seam::time::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use zeroize::Zeroizing;

/// Cells that a flow's reader takes ahead of reading.
pub const FLOW_WINDOW_CELLS: u32 = 100;
/// Cells of a connection that may be under way.
pub const CONN_WINDOW_CELLS: usize = 300;
/// What a flow takes itself in a pipe of heavy flows.
pub const FLOW_STATE_BYTES: usize = 10_000;
/// Datagrams are at most this long.
const DATAGRAM_LEN_MAX: usize = 1300;
/// How long a connection may take to be made.
const OPENING_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection with flows is looked after so often.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// A connection is dead when nothing was acknowledged for so long.
const PATH_TIMEOUT: Duration = Duration::from_secs(5);

const HEADER_LEN: usize = 25;

struct Flow {
    /// With the times at which they came.
    incoming: VecDeque<(Instant, Command, Body)>,
    held: bool,
    /// The peer's last word, which overtakes cells.
    reset: Option<u8>,
    /// Cells that the peer still takes, and those read that it was not told of.
    credit: u32,
    read_cells: u32,
    blocked: bool,
    /// A cell that was taken beyond the credit, in a pipe of batches.
    kept: Option<Vec<u8>>,
    /// When the last cell came.
    idle_since: Instant,
}

struct Conn {
    options: ConnectionOptions,
    peer: SocketAddr,
    ready: bool,
    opened_at: Instant,
    flows: BTreeMap<CircId, Flow>,
    room: u32,
    /// Cells under way; frames under way but for acknowledgements, and when the last of them was acknowledged or the
    /// first was sent.
    under_way: usize,
    frames_under_way: u32,
    /// Cells taken since all that could leave had left.
    batch: usize,
    heard_at: Instant,
    /// Datagrams sent and taken.
    sent: u32,
    taken: u32,
    frames: VecDeque<Vec<u8>>,
    /// Flows whose turn it is to be read.
    turns: VecDeque<CircId>,
}

#[derive(Default)]
pub struct Pipe {
    key: [u8; 32],
    conns: BTreeMap<ConnId, Conn>,
    conns_made: u64,
    events: VecDeque<(ConnId, ConnectionEvent)>,
    lent: Option<(Command, Body)>,
    /// Takes so many cells before it is asked what is to leave, and a cell more than a flow's credit; there is no such
    /// bound when it is 0.
    batch_cells: usize,
    /// What a flow is said to take itself.
    flow_state_bytes: usize,
    /// What the relay wanted of congestion control, each time.
    pub congestion: Arc<Mutex<Vec<CongestionParams>>>,
    last_words: VecDeque<(SocketAddr, Vec<u8>)>,
    /// What it says it is; [`PIPE`] where nothing is said.
    transport: Option<&'static Transport>,
}

fn frame(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    [&[kind][..], &parts.concat()].concat()
}

impl Conn {
    fn is_dialler(&self) -> bool {
        self.options.role == Role::Initiator
    }

    fn hello(&mut self) {
        let secrets = &self.options.secrets;
        let proof = if self.is_dialler() { &secrets.dialler_proof } else { &secrets.listener_proof };
        let hello = frame(0, &[&proof[..], &self.options.flows_max.to_be_bytes()]);
        self.frames.push_back(hello);
    }

    fn header(&mut self) -> Vec<u8> {
        self.sent += 1;
        let side = [u8::from(self.is_dialler())];
        [&self.options.secrets.token[..], &side, &self.sent.to_be_bytes()].concat()
    }

    /// Takes a datagram's frames; what it causes, and what is to be acknowledged.
    fn on_frames(&mut self, now: Instant, mut rest: &[u8]) -> Vec<ConnectionEvent> {
        let (mut events, mut frames, mut cells) = (Vec::new(), 0_u32, 0_u32);
        while !rest.is_empty() {
            frames += u32::from(rest[0] != 4);
            cells += u32::from(rest[0] == 1);
            let (used, caused) = self.on_frame(now, rest);
            rest = &rest[used..];
            events.extend(caused);
            if events.iter().any(|event| matches!(event, ConnectionEvent::Ended(_))) {
                return events;
            }
        }
        if frames > 0 {
            self.frames.push_back(frame(4, &[&frames.to_be_bytes(), &cells.to_be_bytes()]));
        }
        events
    }

    fn flow(&mut self, circ_id: CircId) -> &mut Flow {
        self.flows.entry(circ_id).or_insert(Flow {
            incoming: VecDeque::new(),
            held: false,
            reset: None,
            credit: FLOW_WINDOW_CELLS,
            read_cells: 0,
            blocked: false,
            kept: None,
            idle_since: Instant::ZERO,
        })
    }

    /// A flow is no more; one of ours leaves room for another.
    fn forget(&mut self, circ_id: CircId) -> Option<ConnectionEvent> {
        self.flows.remove(&circ_id).expect("a flow that is open");
        self.is_mine(circ_id).then(|| {
            self.room += 1;
            ConnectionEvent::FlowRoom(self.room)
        })
    }

    fn is_mine(&self, circ_id: CircId) -> bool {
        (circ_id.get() >> 31 == 1) == self.is_dialler()
    }

    fn turn(&mut self, circ_id: CircId) {
        if !self.turns.contains(&circ_id) {
            self.turns.push_back(circ_id);
        }
    }

    fn on_frame(&mut self, now: Instant, bytes: &[u8]) -> (usize, Vec<ConnectionEvent>) {
        let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let circ_id = || CircId::new(number(1)).expect("not zero");
        let mut events = Vec::new();
        let len = match bytes[0] {
            0 => {
                let secrets = &self.options.secrets;
                let proof = if self.is_dialler() { &secrets.listener_proof } else { &secrets.dialler_proof };
                let right = bytes[1..33] == proof[..];
                self.room = number(33);
                match (right, self.ready) {
                    (true, false) => {
                        self.ready = true;
                        self.heard_at = now;
                        events = vec![ConnectionEvent::Ready, ConnectionEvent::FlowRoom(self.room)];
                        if !self.is_dialler() {
                            self.hello();
                        }
                    }
                    (true, true) => {}
                    (false, _) => events.push(ConnectionEvent::Ended(ConnectionError::WrongProof)),
                }
                37
            }
            1 => {
                let circ_id = circ_id();
                // Cells of a flow that we reset were on their way.
                if self.flows.contains_key(&circ_id) || !self.is_mine(circ_id) {
                    let body = bytes[6..6 + BODY_LEN].try_into().expect("a whole body");
                    let flow = self.flow(circ_id);
                    flow.incoming.push_back((now, Command(bytes[5]), body));
                    flow.idle_since = now;
                    assert!(self.flow(circ_id).incoming.len() <= FLOW_WINDOW_CELLS as usize);
                    self.turn(circ_id);
                }
                6 + BODY_LEN
            }
            2 => {
                let circ_id = circ_id();
                if let Some(flow) = self.flows.get_mut(&circ_id) {
                    flow.incoming.clear();
                    flow.reset = Some(bytes[5]);
                    self.turn(circ_id);
                }
                6
            }
            3 => {
                let circ_id = circ_id();
                if let Some(flow) = self.flows.get_mut(&circ_id) {
                    flow.credit += number(5);
                    if let Some(kept) = flow.kept.take() {
                        flow.credit -= 1;
                        self.frames.push_back(kept);
                    }
                    if std::mem::take(&mut flow.blocked) {
                        events.push(ConnectionEvent::Writable(circ_id));
                    }
                }
                9
            }
            4 => {
                if self.under_way >= CONN_WINDOW_CELLS && number(5) > 0 {
                    events.push(ConnectionEvent::Capacity);
                }
                self.frames_under_way -= number(1);
                self.under_way -= number(5) as usize;
                self.heard_at = now;
                9
            }
            6 => 1,
            _ => {
                events.push(ConnectionEvent::Ended(ConnectionError::PeerClosed));
                1
            }
        };
        (len, events)
    }

    /// When the connection ends by itself.
    fn deadline(&self) -> Option<Instant> {
        match (self.ready, self.frames_under_way) {
            (false, _) => Some(self.opened_at + OPENING_TIMEOUT),
            (true, 0) => None,
            (true, _) => Some(self.heard_at + PATH_TIMEOUT),
        }
    }

    /// When the connection is to be looked after.
    fn keep_alive(&self) -> Option<Instant> {
        let quiet = self.ready && self.frames_under_way == 0 && !self.flows.is_empty();
        quiet.then_some(self.heard_at + KEEP_ALIVE)
    }
}

impl Pipe {
    fn on_datagram(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) {
        let found = self.conns.iter_mut().find(|(_, conn)| {
            conn.options.secrets.token[..] == bytes[..20]
                && conn.peer.ip() == from.ip()
                && (bytes[20] == 1) != conn.is_dialler()
        });
        let Some((&id, conn)) = found else { return };
        conn.peer = from;
        conn.taken += 1;
        let events = match bytes[21..25] == conn.taken.to_be_bytes() {
            true => conn.on_frames(now, &bytes[HEADER_LEN..]),
            false => {
                self.last_words.push_back((from, [conn.header(), vec![5]].concat()));
                vec![ConnectionEvent::Ended(ConnectionError::PathDead)]
            }
        };
        let over = events.iter().any(|event| matches!(event, ConnectionEvent::Ended(_)));
        self.events.extend(events.into_iter().map(|event| (id, event)));
        if over {
            self.conns.remove(&id);
        }
    }

    /// One that takes one cell at a time: whether its flow has credit it only finds out later.
    pub fn of_single_cells() -> Self {
        Pipe { batch_cells: 1, ..Pipe::default() }
    }

    /// One that says that a flow which is not read holds back all others.
    pub fn of_one_credit() -> Self {
        Pipe { transport: Some(&PIPE_OF_ONE_CREDIT), ..Pipe::default() }
    }

    /// One whose flows are said to take [`FLOW_STATE_BYTES`] each.
    pub fn of_heavy_flows() -> Self {
        Pipe { flow_state_bytes: FLOW_STATE_BYTES, ..Pipe::default() }
    }

    /// All that can leave has left, so that the next batch may come.
    fn rest(&mut self) {
        for (&id, conn) in &mut self.conns {
            if core::mem::take(&mut conn.batch) == self.batch_cells && self.batch_cells > 0 {
                self.events.push_back((id, ConnectionEvent::Capacity));
            }
        }
    }

    /// Opens a flow with any cell.
    pub fn forge_flow(&mut self, conn: ConnId, circ_id: CircId, command: Command) {
        let Some(conn) = self.conns.get_mut(&conn) else { return };
        conn.flow(circ_id);
        conn.under_way += 1;
        conn.frames.push_back(frame(1, &[&circ_id.get().to_be_bytes(), &[command.0], &[1; BODY_LEN]]));
    }

    /// The names of a connection's flows.
    pub fn names(&self, conn: ConnId) -> Vec<CircId> {
        self.conns.get(&conn).map_or(Vec::new(), |conn| conn.flows.keys().copied().collect())
    }

    /// Flows that may still be opened on a connection.
    pub fn room(&self, conn: ConnId) -> u32 {
        self.conns.get(&conn).map_or(0, |conn| conn.room)
    }

    /// Flows that are open on a connection.
    pub fn flows(&self, conn: ConnId) -> usize {
        self.conns.get(&conn).map_or(0, |conn| conn.flows.len())
    }
}

/// A transport that this program alone has.
pub static PIPE: Transport = Transport {
    name: "pipe",
    id: TransportId(128),
    isolation: Isolation {
        ordering: Scope::Circuit,
        congestion: Scope::Channel,
        backpressure: Scope::Circuit,
    },
};

static PIPE_OF_ONE_CREDIT: Transport = Transport {
    name: "pipe",
    id: TransportId(128),
    isolation: Isolation {
        ordering: Scope::Circuit,
        congestion: Scope::Channel,
        backpressure: Scope::Channel,
    },
};

impl Endpoint for Pipe {
    fn transport(&self) -> &'static Transport {
        self.transport.unwrap_or(&PIPE)
    }

    fn public_key(&self) -> [u8; 32] {
        self.key
    }

    fn set_key(&mut self, secret: &Zeroizing<[u8; 32]>) {
        self.key = **secret;
    }

    fn set_congestion(&mut self, params: CongestionParams) {
        self.congestion.lock().expect("nobody panicked").push(params);
    }

    fn open(&mut self, now: Instant, options: ConnectionOptions) -> ConnId {
        let id = ConnId(self.conns_made);
        self.conns_made += 1;
        let mut conn = Conn {
            peer: options.peer,
            options,
            ready: false,
            opened_at: now,
            flows: BTreeMap::new(),
            room: 0,
            under_way: 0,
            frames_under_way: 0,
            batch: 0,
            heard_at: now,
            sent: 0,
            taken: 0,
            frames: VecDeque::new(),
            turns: VecDeque::new(),
        };
        if conn.is_dialler() {
            conn.hello();
        }
        self.conns.insert(id, conn);
        id
    }

    fn close(&mut self, _: Instant, conn: ConnId) {
        if let Some(mut conn) = self.conns.remove(&conn) {
            self.last_words.push_back((conn.peer, [conn.header(), vec![5]].concat()));
        }
    }

    fn probe(&mut self, _: Instant, _: ConnId) {}

    fn handle_datagrams(&mut self, now: Instant, datagrams: Datagrams) {
        for bytes in datagrams.data.chunks(datagrams.stride) {
            self.on_datagram(now, datagrams.from, bytes);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        let late = self.conns.iter().filter(|(_, conn)| conn.deadline().is_some_and(|at| at <= now));
        let late: Vec<ConnId> = late.map(|(id, _)| *id).collect();
        for id in late {
            let conn = self.conns.remove(&id).expect("it was found");
            let error = if conn.ready { ConnectionError::PathDead } else { ConnectionError::NoAnswer };
            self.events.push_back((id, ConnectionEvent::Ended(error)));
        }
        for conn in self.conns.values_mut() {
            if conn.keep_alive().is_some_and(|at| at <= now) {
                conn.heard_at = now;
                conn.frames.push_back(vec![6]);
            }
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.conns.values().flat_map(|conn| [conn.deadline(), conn.keep_alive()]).flatten().min()
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        if let Some((to, bytes)) = self.last_words.pop_front() {
            out.extend(bytes);
            return Some(Transmit { to, from: None, ecn: 0, stride: out.len() });
        }
        let Some(conn) = self.conns.values_mut().find(|conn| !conn.frames.is_empty()) else {
            self.rest();
            return None;
        };
        out.extend(conn.header());
        while let Some(next) = conn.frames.front().filter(|next| out.len() + next.len() <= DATAGRAM_LEN_MAX) {
            out.extend_from_slice(next);
            if next[0] != 4 {
                if conn.frames_under_way == 0 {
                    conn.heard_at = now;
                }
                conn.frames_under_way += 1;
            }
            conn.frames.pop_front();
        }
        Some(Transmit { to: conn.peer, from: None, ecn: 0, stride: out.len() })
    }

    fn poll_event(&mut self, _: Instant) -> Option<(ConnId, ConnectionEvent)> {
        self.events.pop_front()
    }

    fn next_incoming(&mut self, _: Instant) -> Option<FlowCell<'_>> {
        for (&id, conn) in &mut self.conns {
            for _ in 0..conn.turns.len() {
                let circ_id = conn.turns.pop_front().expect("they were counted");
                let Some(flow) = conn.flows.get_mut(&circ_id) else { continue };
                if let Some(reason) = flow.reset {
                    let room = conn.forget(circ_id);
                    self.events.extend(room.map(|room| (id, room)));
                    let mut body = [0; BODY_LEN];
                    body[0] = reason;
                    let (command, body) = self.lent.insert((Command::DESTROY, body));
                    return Some(FlowCell { conn: id, circ_id, command: *command, body });
                }
                if flow.held {
                    continue;
                }
                let Some((_, command, body)) = flow.incoming.pop_front() else { continue };
                flow.read_cells += 1;
                if flow.read_cells == FLOW_WINDOW_CELLS / 4 {
                    flow.read_cells = 0;
                    let cells = (FLOW_WINDOW_CELLS / 4).to_be_bytes();
                    conn.frames.push_back(frame(3, &[&circ_id.get().to_be_bytes(), &cells]));
                }
                conn.turns.push_back(circ_id);
                let (command, body) = self.lent.insert((command, body));
                return Some(FlowCell { conn: id, circ_id, command: *command, body });
            }
        }
        None
    }

    fn buffered_bytes(&self) -> usize {
        let mut sum = 0;
        self.backlogs(&mut |backlog| sum += backlog.bytes);
        sum
    }

    fn state_bytes(&self) -> usize {
        self.conns.values().map(|conn| conn.flows.len() * self.flow_state_bytes).sum()
    }

    fn backlogs(&self, each: &mut dyn FnMut(Backlog)) {
        for (&conn, of) in &self.conns {
            for (&circ_id, flow) in &of.flows {
                let since = flow.incoming.front().map_or(flow.idle_since, |(since, ..)| *since);
                let (bytes, state_bytes) = (flow.incoming.len() * CELL_LEN, self.flow_state_bytes);
                each(Backlog { conn, circ_id, bytes, state_bytes, since });
            }
        }
    }

    fn hold(&mut self, conn: ConnId, circ_id: CircId, hold: bool) {
        let Some(conn) = self.conns.get_mut(&conn) else { return };
        let Some(flow) = conn.flows.get_mut(&circ_id) else { return };
        assert_ne!(flow.held, hold, "a flow is held once");
        flow.held = hold;
        if !hold {
            conn.turn(circ_id);
        }
    }

    fn capacity(&self, conn: ConnId) -> usize {
        let Some(conn) = self.conns.get(&conn) else { return 0 };
        let batch = if self.batch_cells > 0 { self.batch_cells - conn.batch } else { CONN_WINDOW_CELLS };
        batch.min(CONN_WINDOW_CELLS - conn.under_way)
    }

    fn send(&mut self, _: Instant, id: ConnId, circ_id: CircId, command: Command, body: &Body) -> FlowState {
        let conn = self.conns.get_mut(&id).expect("a connection that is ready");
        let name = circ_id.get().to_be_bytes();
        if command == Command::DESTROY {
            let room = conn.forget(circ_id);
            self.events.extend(room.map(|room| (id, room)));
            // What is queued is discarded: nothing of it counts as under way any more.
            let before = conn.frames.len();
            conn.frames.retain(|frame| frame[0] != 1 || frame[1..5] != name);
            let discarded = before - conn.frames.len();
            if discarded > 0 && conn.under_way >= CONN_WINDOW_CELLS {
                self.events.push_back((id, ConnectionEvent::Capacity));
            }
            conn.under_way -= discarded;
            conn.frames.push_back(frame(2, &[&name, &body[..1]]));
            return FlowState::Open;
        }
        assert!(conn.ready && conn.under_way < CONN_WINDOW_CELLS, "at most the capacity is sent");
        if !conn.flows.contains_key(&circ_id) {
            assert!(conn.is_mine(circ_id), "only names of our half are opened");
            assert_eq!(command, Command::CREATE2, "a flow begins with CREATE2");
            conn.room = conn.room.checked_sub(1).expect("there is room for a flow");
        }
        conn.under_way += 1;
        conn.batch += 1;
        let frame = frame(1, &[&name, &[command.0], body]);
        let flow = conn.flow(circ_id);
        assert!(!flow.blocked, "a blocked flow is left alone");
        if self.batch_cells > 0 && flow.credit == 0 {
            (flow.kept, flow.blocked) = (Some(frame), true);
            return FlowState::Blocked;
        }
        conn.frames.push_back(frame);
        let flow = conn.flow(circ_id);
        flow.credit -= 1;
        flow.blocked = flow.credit == 0 && self.batch_cells == 0;
        if flow.blocked { FlowState::Blocked } else { FlowState::Open }
    }

    fn stats(&self, _: ConnId) -> ConnectionStats {
        ConnectionStats::default()
    }

    fn refused_datagrams(&self) -> RefusedDatagrams {
        RefusedDatagrams::default()
    }
}

/// Datagrams of one length that came together.
pub fn datagrams(from: SocketAddr, stride: usize, bytes: &[u8]) -> Datagrams {
    Datagrams { from, to: None, ecn: 0, stride, data: bytes.into() }
}
