//! The life of a pair's further connections.
//!
//! ```text
//!   opened ──▶ Making ──▶ Spare ──CREATE2──▶ Carrying ──DESTROY──▶ Over ──▶ closed, forgotten
//!                │          │                   │ the connection breaks: the relay gets DESTROY
//!                └──────────┴───────────────────┴──▶ forgotten
//! ```
//!
//! 1. Once the pair is ready the listener awaits the next [`WINDOW`] numbers of each half, counted from the latest that
//!    came, and the dialler keeps [`SPARES`] connections of each half ready. A number is dialled once. One that nobody
//!    dials is awaited again after 30 s.
//! 2. The first CREATE2 turns a spare into a carrier. Whoever gets a DESTROY closes the connection.
//! 3. A dialler has [`CONNECTIONS_MAX`] at most, a listener takes twice as many. Beyond that there is no room.

use super::{LINGER, PerCircuitEndpoint};
use core::net::{IpAddr, SocketAddr};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{
    ConnId, ConnectionError, ConnectionEvent, ConnectionOptions, ConnectionStats, Endpoint,
};
use heddle_proto::pair::secrets::FurtherSecrets;
use heddle_seam::time::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Connections of each half that are ready, or about to be. So many circuits may begin in one round trip.
pub(super) const SPARES: u32 = 16;

/// Numbers of each half that a listener awaits beyond the latest that came, and that a dialler goes beyond it.
pub(super) const WINDOW: u32 = 2 * SPARES;

/// Further connections of a pair that its dialler makes: each costs both sides some tens of kilobytes.
pub(super) const CONNECTIONS_MAX: usize = 256;

/// What the endpoint knows of a pair.
pub(super) struct Pair {
    role: Role,
    local: Option<IpAddr>,
    peer: SocketAddr,
    peer_key: [u8; 32],
    flows_max: u32,
    secrets: FurtherSecrets,
    pub(super) is_ready: bool,
    halves: [Half; 2],
    /// All its further connections, and those of them that carry circuits.
    pub(super) further: BTreeSet<ConnId>,
    pub(super) carriers: BTreeMap<CircId, ConnId>,
    /// Those that wait for circuits of ours.
    spares: VecDeque<ConnId>,
    /// What connections did that are gone.
    pub(super) gone: ConnectionStats,
}

/// The connections for circuits of one side. Those of the dialler come first.
#[derive(Clone, Copy, Default)]
struct Half {
    /// How many were opened so far, and one more than the latest that came to be ready.
    opened: u32,
    reached: u32,
    /// Those that are made or spare.
    idle: u32,
}

/// A further connection.
pub(super) struct Further {
    pair: ConnId,
    half: usize,
    /// Its place in its half.
    index: u32,
    pub(super) stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Making,
    Spare,
    Carrying {
        /// The circuit's name on the pair, and on the connection itself.
        outer: CircId,
        inner: CircId,
        /// Whether the flow waits for the peer, and whether the connection does for the wire.
        is_blocked: bool,
        is_full: bool,
    },
    Over,
}

impl Further {
    /// The pair and the name of the circuit that it carries.
    pub(super) fn circuit(&self) -> Option<(ConnId, CircId)> {
        match self.stage {
            Stage::Carrying { outer, .. } => Some((self.pair, outer)),
            Stage::Making | Stage::Spare | Stage::Over => None,
        }
    }
}

impl Pair {
    pub(super) fn new(options: &ConnectionOptions) -> Self {
        Pair {
            role: options.role,
            local: options.local,
            peer: options.peer,
            peer_key: options.peer_key,
            flows_max: options.flows_max,
            secrets: FurtherSecrets::of(&options.secrets),
            is_ready: false,
            halves: [Half::default(); 2],
            further: BTreeSet::new(),
            carriers: BTreeMap::new(),
            spares: VecDeque::new(),
            gone: ConnectionStats::default(),
        }
    }

    /// The half whose circuits are ours.
    fn our_half(&self) -> usize {
        usize::from(self.role == Role::Responder)
    }

    /// What the peer's circuit is called that comes on this connection. Connections' numbers are not used twice.
    fn name_of_theirs(&self, index: u32) -> Option<CircId> {
        self.role.other().circ_id(index + 1)
    }

    /// Whether another connection of a half is to be dialled or awaited.
    fn wants(&self, half: usize) -> bool {
        let Half { opened, reached, idle } = self.halves[half];
        let is_near = opened < reached.saturating_add(WINDOW);
        is_near
            && match self.role {
                Role::Initiator => idle < SPARES && self.further.len() < CONNECTIONS_MAX,
                Role::Responder => self.further.len() < 2 * CONNECTIONS_MAX,
            }
    }

    /// What a further connection is opened with. Each carries one flow at most, of the side whose half it is.
    fn options(&self, half: usize, index: u32) -> ConnectionOptions {
        let is_theirs = half != self.our_half();
        ConnectionOptions {
            role: self.role,
            local: self.local,
            peer: self.peer,
            peer_key: self.peer_key,
            secrets: self.secrets.nth(2 * index + half as u32),
            flows_max: self.flows_max.min(u32::from(is_theirs)),
        }
    }
}

impl PerCircuitEndpoint {
    pub(super) fn on_pair_event(&mut self, now: Instant, conn: ConnId, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Ready => {
                if let Some(pair) = self.pairs.get_mut(&conn) {
                    pair.is_ready = true;
                }
                self.events.push_back((conn, ConnectionEvent::Ready));
                self.refill(now, conn);
            }
            ConnectionEvent::Ended(_) => {
                self.forget_pair(now, conn);
                self.events.push_back((conn, event));
            }
            ConnectionEvent::Suspect(_) => self.events.push_back((conn, event)),
            // The first connection carries no flows.
            ConnectionEvent::FlowRoom(_) | ConnectionEvent::Writable(_) | ConnectionEvent::Capacity => {}
        }
    }

    pub(super) fn on_further_event(&mut self, now: Instant, conn: ConnId, event: ConnectionEvent) {
        let Some(further) = self.further.get_mut(&conn) else { return };
        let Some(pair) = self.pairs.get_mut(&further.pair) else { return };
        match (event, &mut further.stage) {
            (ConnectionEvent::Ready, _) => {
                let half = &mut pair.halves[further.half];
                half.reached = half.reached.max(further.index + 1);
                let of = further.pair;
                self.refill(now, of);
            }
            (ConnectionEvent::FlowRoom(1..), stage @ Stage::Making) if further.half == pair.our_half() => {
                *stage = Stage::Spare;
                pair.spares.push_back(conn);
                self.tell_room(self.further[&conn].pair);
            }
            (ConnectionEvent::Writable(_), Stage::Carrying { outer, is_blocked, is_full, .. }) => {
                // A connection that lost packets may tell of capacity that nobody lacked.
                let was_blocked = core::mem::take(is_blocked);
                if was_blocked && !*is_full {
                    self.events.push_back((further.pair, ConnectionEvent::Writable(*outer)));
                }
            }
            (ConnectionEvent::Capacity, Stage::Carrying { outer, is_blocked, is_full, .. }) => {
                let was_full = core::mem::take(is_full);
                if was_full && !*is_blocked {
                    self.events.push_back((further.pair, ConnectionEvent::Writable(*outer)));
                }
            }
            // It is one circuit's alone, and the pair's first connection says whether the path is good for others.
            (ConnectionEvent::Suspect(true), _) => {
                self.quic.close(now, conn);
                self.on_further_ended(now, conn, &ConnectionError::PathDead);
            }
            (ConnectionEvent::Ended(error), _) => self.on_further_ended(now, conn, &error),
            _ => {}
        }
    }

    fn on_further_ended(&mut self, now: Instant, conn: ConnId, error: &ConnectionError) {
        let Some(Further { pair: of, half, index, stage }) = self.forget_further(conn) else { return };
        if let Stage::Carrying { outer, .. } = stage {
            self.broken.push_back((of, outer, DestroyReason::CHANNEL_CLOSED));
        }
        let Some(pair) = self.pairs.get(&of) else { return };
        let is_still_ahead = index >= pair.halves[half].reached;
        if pair.role == Role::Responder && *error == ConnectionError::NoAnswer && is_still_ahead {
            self.open_further(now, of, half, index);
        }
        if stage == Stage::Spare {
            self.tell_room(of);
        }
        self.refill(now, of);
    }

    fn tell_room(&mut self, of: ConnId) {
        if let Some(pair) = self.pairs.get(&of) {
            let room = u32::try_from(pair.spares.len()).unwrap_or(u32::MAX);
            self.events.push_back((of, ConnectionEvent::FlowRoom(room)));
        }
    }

    /// Opens what is wanted of both halves.
    fn refill(&mut self, now: Instant, of: ConnId) {
        for half in [0, 1] {
            while let Some(pair) = self.pairs.get_mut(&of).filter(|pair| pair.wants(half)) {
                let index = pair.halves[half].opened;
                pair.halves[half].opened += 1;
                self.open_further(now, of, half, index);
            }
        }
    }

    fn open_further(&mut self, now: Instant, of: ConnId, half: usize, index: u32) {
        let Some(pair) = self.pairs.get_mut(&of) else { return };
        let conn = self.quic.open(now, pair.options(half, index));
        pair.halves[half].idle += 1;
        pair.further.insert(conn);
        self.further.insert(conn, Further { pair: of, half, index, stage: Stage::Making });
    }

    /// The connection that carries a circuit. A name of our half that is new takes a spare.
    pub(super) fn carrier(
        &mut self,
        now: Instant,
        of: ConnId,
        circ_id: CircId,
        command: Command,
    ) -> Option<ConnId> {
        let pair = self.pairs.get_mut(&of)?;
        if let Some(&carrier) = pair.carriers.get(&circ_id) {
            return Some(carrier);
        }
        if command == Command::DESTROY {
            self.broken.retain(|(pair, broken, _)| (*pair, *broken) != (of, circ_id));
            return None;
        }
        if !pair.role.picks(circ_id) {
            return None;
        }
        let Some(carrier) = pair.spares.pop_front() else {
            self.broken.push_back((of, circ_id, DestroyReason::RESOURCELIMIT));
            return None;
        };
        self.begin(carrier, circ_id, circ_id);
        self.refill(now, of);
        Some(carrier)
    }

    /// A circuit begins on a connection.
    fn begin(&mut self, conn: ConnId, outer: CircId, inner: CircId) {
        let Some(further) = self.further.get_mut(&conn) else { return };
        further.stage = Stage::Carrying { outer, inner, is_blocked: false, is_full: false };
        if let Some(pair) = self.pairs.get_mut(&further.pair) {
            pair.halves[further.half].idle -= 1;
            pair.carriers.insert(outer, conn);
        }
    }

    /// A cell came on a further connection; returns its pair and its circuit, unless it belongs to none.
    pub(super) fn on_cell(
        &mut self,
        now: Instant,
        conn: ConnId,
        inner: CircId,
        command: Command,
    ) -> Option<(ConnId, CircId)> {
        let further = self.further.get(&conn)?;
        let (of, pair) = (further.pair, self.pairs.get(&further.pair)?);
        match further.stage {
            Stage::Carrying { outer, inner: known, .. } if known == inner => {
                if command == Command::DESTROY {
                    self.close_further(now, conn);
                }
                Some((of, outer))
            }
            Stage::Making if command == Command::CREATE2 && further.half != pair.our_half() => {
                let outer = pair.name_of_theirs(further.index)?;
                self.begin(conn, outer, inner);
                self.refill(now, of);
                Some((of, outer))
            }
            _ => None,
        }
    }

    /// We ended a connection's circuit; the peer closes the connection when it hears of that.
    pub(super) fn linger(&mut self, now: Instant, conn: ConnId) {
        let Some(further) = self.further.get_mut(&conn) else { return };
        if let Stage::Carrying { outer, .. } = core::mem::replace(&mut further.stage, Stage::Over)
            && let Some(pair) = self.pairs.get_mut(&further.pair)
        {
            pair.carriers.remove(&outer);
        }
        self.closing.insert((now + LINGER, conn));
    }

    pub(super) fn close_further(&mut self, now: Instant, conn: ConnId) {
        let further = self.forget_further(conn);
        self.quic.close(now, conn);
        if let Some(further) = further {
            self.refill(now, further.pair);
        }
    }

    fn forget_further(&mut self, conn: ConnId) -> Option<Further> {
        let further = self.further.remove(&conn)?;
        if further.stage == Stage::Over {
            self.closing.retain(|(_, closing)| *closing != conn);
        }
        if let Some(pair) = self.pairs.get_mut(&further.pair) {
            pair.further.remove(&conn);
            let counts = ConnectionStats { window_bytes: 0, queued_cells: 0, ..self.quic.stats(conn) };
            add(&mut pair.gone, &counts);
            match further.stage {
                Stage::Making | Stage::Spare => {
                    pair.halves[further.half].idle -= 1;
                    pair.spares.retain(|spare| *spare != conn);
                }
                Stage::Carrying { outer, .. } => drop(pair.carriers.remove(&outer)),
                Stage::Over => {}
            }
        }
        Some(further)
    }

    /// The first connection is over, and so are all.
    pub(super) fn forget_pair(&mut self, now: Instant, conn: ConnId) {
        let Some(pair) = self.pairs.remove(&conn) else { return };
        for further in pair.further {
            self.close_further(now, further);
        }
        self.broken.retain(|(of, ..)| *of != conn);
    }
}

/// Adds what one connection did to a sum. The round trip stays.
pub(super) fn add(sum: &mut ConnectionStats, of: &ConnectionStats) {
    sum.window_bytes += of.window_bytes;
    sum.sent_bytes += of.sent_bytes;
    sum.received_bytes += of.received_bytes;
    sum.lost_packets += of.lost_packets;
    sum.sent_packets += of.sent_packets;
    sum.queued_cells += of.queued_cells;
}
