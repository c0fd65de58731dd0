//! What a shard holds, and the few operations on it that everything else is made of: a cell is
//! queued on a lane, a link's next cell is taken, a circuit ends.
//!
//! Channels themselves are not in here. The shard reads a cell from one and lends it to
//! [`Core::on_cell`]; later it takes cells with [`Core::pop`] and gives them to the channel. So a
//! cell that a channel lends can be worked on while everything else is at hand.

use super::admission::Admission;
use super::buffers::Buffers;
use super::channels::Channels;
use super::circuit::{Circuit, CircuitKey, Credit, Lane, Next, Side};
use super::config::RelayConfig;
use super::crossing::Crossings;
use super::dial::Dials;
use super::dos::Dos;
use super::flows::{Flows, HELD_QUEUE_HIGH_CELLS, HELD_QUEUE_LOW_CELLS};
use super::idle::IdleRound;
use super::jobs::Jobs;
use super::language::Output;
use super::link::{Farewell, Link, LinkKey, LinkKind, Turn};
use super::message::Event;
use super::probe::Probe;
use super::rates::Rates;
use super::relays::Relays;
use super::scheduler::CircuitScheduler;
use super::stats::Meter;
use super::streams::Streams;
use core::net::IpAddr;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::crypto::onionskin::OnionKeys;
use heddle_proto::params::NetworkParams;
use heddle_proto::pool::{CellPool, SlotId};
use heddle_seam::rng::{Entropy, Rng};
use heddle_seam::time::Instant;
use slotmap::SlotMap;
use std::collections::VecDeque;
use std::sync::Arc;

/// Cells that may wait on one lane, unless the consensus (`circ_max_cell_queue_size`, and `circ_max_cell_queue_size_out` away
/// from the client) says less.
/// A stock exit or client keeps far fewer in flight; more is an attack on our memory.
const LANE_CELLS_MAX: i32 = 50_000;
/// Turns of lanes that are over may stand in a link's round up to this many, beside two for each
/// lane that the link has; then they are swept out.
const STALE_TURNS_MAX: usize = 64;

pub(super) struct Core {
    pub config: RelayConfig,
    /// The time of the input that is being handled.
    pub now: Instant,
    pub params: Arc<NetworkParams>,
    /// Cells that may wait on one lane, towards the client and away from it.
    pub lane_cells_max: u32,
    pub lane_cells_out_max: u32,
    /// Whether flows are held while their cells wait.
    pub hop_by_hop: bool,
    /// The relays of the consensus.
    pub listed: Arc<Relays>,
    pub keys: Option<Arc<OnionKeys>>,
    /// Seeds of secrets, each for one use.
    pub entropy: Box<dyn Entropy>,
    /// For what is no secret: circuit ids, padding, hashing.
    pub rng: Rng,
    pub pool: CellPool,
    pub buffers: Buffers,
    /// Each has memory of its own, which is free when it ends: a map never gives back what it once had.
    pub circuits: SlotMap<CircuitKey, Box<Circuit>>,
    pub idle_round: IdleRound,
    pub links: SlotMap<LinkKey, Link>,
    /// Links with output since the shard last flushed; each once, as its `listed` says.
    pub to_flush: VecDeque<LinkKey>,
    /// Outputs other than cells; the driver empties it after each input.
    pub outputs: VecDeque<Output>,
    pub admission: Admission,
    pub dos: Dos,
    pub jobs: Jobs,
    pub channels: Channels,
    pub dials: Dials,
    pub crossings: Crossings,
    pub streams: Streams,
    pub rates: Rates,
    pub probe: Option<Probe>,
    pub flows: Flows,
    pub meter: Meter,
    pub draining: bool,
}

/// What a link sends next.
pub(super) enum Popped {
    Farewell(Farewell),
    Cell { circ_id: CircId, slot: SlotId },
}

impl Core {
    pub fn new(config: RelayConfig, mut entropy: Box<dyn Entropy>) -> Self {
        let pool = CellPool::new(config.max_queue_bytes);
        let mut core = Core {
            admission: Admission::new(&config.limits, pool.max()),
            dos: Dos::new(config.dos.defences(&NetworkParams::default())),
            pool,
            now: Instant::ZERO,
            params: Arc::default(),
            lane_cells_max: LANE_CELLS_MAX as u32,
            lane_cells_out_max: LANE_CELLS_MAX as u32,
            hop_by_hop: config.hop_by_hop_flow_control.unwrap_or(false),
            listed: Arc::default(),
            keys: None,
            rng: entropy.rng(),
            entropy,
            buffers: Buffers::default(),
            circuits: SlotMap::with_key(),
            idle_round: IdleRound::new(),
            links: SlotMap::with_key(),
            to_flush: VecDeque::new(),
            outputs: VecDeque::new(),
            jobs: Jobs::new(config.limits.onionskins_at_work),
            channels: Channels::default(),
            dials: Dials::default(),
            crossings: Crossings::default(),
            streams: Streams::default(),
            rates: Rates::new(&config),
            probe: None,
            flows: Flows::default(),
            meter: Meter::default(),
            draining: false,
            config,
        };
        core.open_crossings();
        core
    }

    pub fn set_params(&mut self, params: Arc<NetworkParams>) {
        let cells_max = |name, default| params.get(name, default, 1000, LANE_CELLS_MAX);
        let lane_cells_max = cells_max("circ_max_cell_queue_size", LANE_CELLS_MAX);
        self.lane_cells_max = lane_cells_max.unsigned_abs();
        self.lane_cells_out_max = cells_max("circ_max_cell_queue_size_out", lane_cells_max).unsigned_abs();
        self.dos.defences = self.config.dos.defences(&params);
        self.params = params;
        self.choose_hop_by_hop();
    }

    pub fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    /// A cell of a circuit came in on `link`.
    pub fn on_cell(&mut self, link: LinkKey, circ_id: CircId, command: Command, body: &Body) {
        match command {
            Command::RELAY | Command::RELAY_EARLY => drop(self.on_relay(link, circ_id, command, body)),
            Command::CREATE2 | Command::CREATE_FAST | Command::CREATE => {
                self.on_create(link, circ_id, command, body)
            }
            Command::CREATED2 | Command::CREATED_FAST | Command::CREATED => {
                self.on_created(link, circ_id, command, body)
            }
            Command::DESTROY => self.on_destroy(link, circ_id, DestroyReason::parse(body)),
            // Unknown commands are ignored (tor-spec, "Cell packet format").
            _ => {}
        }
    }

    /// The circuit that `circ_id` names on `link`, and which of its lanes that is.
    pub fn find(&self, link: LinkKey, circ_id: CircId) -> Option<(CircuitKey, Side)> {
        let found = *self.links.get(link)?.lanes.get(&circ_id)?;
        self.circuits.contains_key(found.0).then_some(found)
    }

    /// Queues a cell on a lane. The circuit may be gone when this returns: a lane that is too long
    /// ends its circuit.
    pub fn enqueue(&mut self, key: CircuitKey, side: Side, slot: SlotId) {
        let Some(lane) = self.circuits.get_mut(key).and_then(|circuit| circuit.lane_mut(side)) else {
            self.pool.free(slot);
            return;
        };
        self.pool.push(&mut lane.queue, slot, self.now);
        let len = lane.queue.len();
        self.meter.queue_cells_max = self.meter.queue_cells_max.max(len);
        let cells_max = match side {
            Side::Prev => self.lane_cells_max,
            Side::Next => self.lane_cells_out_max,
        };
        if len > cells_max {
            if side == Side::Next {
                self.dos_on_full_queue(key);
            }
            self.close_circuit(key, DestroyReason::RESOURCELIMIT);
            return;
        }
        if self.hop_by_hop && len >= HELD_QUEUE_HIGH_CELLS {
            self.hold_supply(key, side.opposite(), len);
        }
        self.mark_ready(key, side);
    }

    /// Puts a lane that can send at the end of its link's round, unless it is in it.
    pub fn mark_ready(&mut self, key: CircuitKey, side: Side) {
        let Some(lane) = self.circuits.get_mut(key).and_then(|circuit| circuit.lane_mut(side)) else {
            return;
        };
        if lane.ready || lane.queue.is_empty() || !lane.credit.allows() {
            return;
        }
        lane.ready = true;
        let (now, link, circ_id, activity) = (self.now, lane.link, lane.circ_id, lane.activity);
        if let Some(link) = self.links.get_mut(link) {
            link.ready.push(now, Turn { circuit: key, side, circ_id }, activity);
        }
        self.list(link);
    }

    /// Notes that a link has output.
    pub fn list(&mut self, key: LinkKey) {
        let Some(link) = self.links.get_mut(key) else {
            return;
        };
        if !link.listed {
            link.listed = true;
            self.to_flush.push_back(key);
        }
    }

    /// Whether a DESTROY waits on `link`.
    pub fn has_farewell(&self, link: LinkKey) -> bool {
        self.links.get(link).is_some_and(|link| !link.farewells.is_empty())
    }

    /// Whether the operator's rates hold for a neighbour at this address.
    pub fn is_limited(&self, addr: IpAddr) -> bool {
        self.config.count_private_bandwidth || !heddle_proto::policy::is_private(addr)
    }

    /// What `link` sends next: every DESTROY first, then the cell of the lane whose turn it is. The caller frees the
    /// slot.
    pub fn pop(&mut self, link_key: LinkKey) -> Option<Popped> {
        let link = self.links.get_mut(link_key)?;
        if let Some(farewell) = link.farewells.pop_front() {
            link.lanes.remove(&farewell.circ_id);
            if link.farewells_counted > 0 {
                self.count_farewells(link_key);
            }
            self.note_if_idle(link_key);
            return Some(Popped::Farewell(farewell));
        }
        loop {
            let now = self.now;
            let scheduler = &mut self.links.get_mut(link_key)?.ready;
            let turn = scheduler.pop(now)?;
            let Turn { circuit: key, side, circ_id } = turn;
            let Some(lane) = self.circuits.get_mut(key).and_then(|circuit| circuit.lane_mut(side)) else {
                continue;
            };
            // A lane that is over leaves its old turn behind.
            if lane.link != link_key || lane.circ_id != circ_id {
                continue;
            }
            lane.ready = false;
            lane.moved = true;
            if !lane.credit.allows() {
                continue;
            }
            let Some(slot) = self.pool.pop(&mut lane.queue) else {
                continue;
            };
            scheduler.charge(now, &mut lane.activity);
            if let Credit::Cells { to_send, .. } = &mut lane.credit {
                *to_send -= 1;
            }
            let waited = now.since(self.pool.queued_at(&slot));
            self.meter.queue_delay.record_us(u32::try_from(waited.as_micros()).unwrap_or(u32::MAX));
            let left = lane.queue.len();
            self.mark_ready(key, side);
            self.on_popped(key, side, left);
            return Some(Popped::Cell { circ_id, slot });
        }
    }

    /// A cell left a lane: whoever supplies the lane may supply more.
    fn on_popped(&mut self, key: CircuitKey, side: Side, left: u32) {
        let supply = side.opposite();
        match self.circuits.get(key).and_then(|circuit| circuit.lane(supply)).map(|lane| lane.credit) {
            Some(Credit::Cells { .. }) => self.grant(key, supply),
            Some(Credit::Flow { held: true, .. }) if left <= HELD_QUEUE_LOW_CELLS => {
                self.release_supply(key, supply);
            }
            _ => {}
        }
        if side == Side::Prev {
            self.on_backward_queue(key, left);
        }
    }

    /// Makes room for a circuit on a link, under an id of our choice. `None` when the link is full.
    pub fn open_lane(&mut self, link_key: LinkKey, candidate: &dyn Fn(&mut Rng) -> CircId) -> Option<CircId> {
        // Stock Tor tries 64 times as well; with half the ids taken all fail once in 2^64.
        const TRIES: usize = 64;
        let link = self.links.get(link_key)?;
        let max = match link.kind {
            LinkKind::Channel(_) | LinkKind::Flows(_) => self.config.limits.circuits_per_channel,
            // Clients of all channels share it, so the circuits' shares alone decide who has how many.
            LinkKind::Shard(_) => usize::MAX,
        };
        if link.lanes.len() >= max {
            return None;
        }
        let mut candidates = (0..TRIES).map(|_| candidate(&mut self.rng));
        candidates.find(|id| !link.lanes.contains_key(id))
    }

    /// Ends a circuit: DESTROY goes both ways.
    pub fn close_circuit(&mut self, key: CircuitKey, reason: DestroyReason) {
        self.end_circuit(key, reason, None);
    }

    /// Ends a circuit without a word on `silent`, where the end came from.
    pub fn end_circuit(&mut self, key: CircuitKey, reason: DestroyReason, silent: Option<Side>) {
        if silent != Some(Side::Next) {
            self.note_no_answer(key);
        }
        let Some(mut circuit) = self.circuits.remove(key) else {
            return;
        };
        self.admission.circuit_ends(key);
        self.give_up_onionskin(&circuit.state);
        if let Some(end) = circuit.end.take() {
            self.drop_end(*end);
        }
        if let Next::Waiting(wanted) = &circuit.next {
            self.stop_waiting(key, wanted);
        }
        if let Next::Creating { lane, .. } | Next::Joined(lane) =
            core::mem::replace(&mut circuit.next, Next::None)
        {
            self.drop_lane(lane, (silent != Some(Side::Next)).then_some(reason));
        }
        self.drop_lane(circuit.prev, (silent != Some(Side::Prev)).then_some(reason));
    }

    /// Gives up a lane and its cells; says DESTROY with `farewell`, or nothing.
    pub fn drop_lane(&mut self, mut lane: Lane, farewell: Option<DestroyReason>) {
        self.pool.clear(&mut lane.queue);
        if lane.unanswered {
            self.give_unanswered(lane.link);
        }
        let Some(link) = self.links.get_mut(lane.link) else {
            return;
        };
        if link.ready.len() > link.lanes.len() * 2 + STALE_TURNS_MAX {
            let lane_link = lane.link;
            let circuits = &self.circuits;
            link.ready.retain(&|turn| {
                let lane = circuits.get(turn.circuit).and_then(|circuit| circuit.lane(turn.side));
                lane.is_some_and(|other| other.link == lane_link && other.circ_id == turn.circ_id)
            });
        }
        if let (Credit::Flow { begun: false, .. }, LinkKind::Flows(flows)) = (lane.credit, &mut link.kind) {
            // The flow was never opened, so there is nothing to end.
            flows.opening -= 1;
            link.lanes.remove(&lane.circ_id);
            return self.note_if_idle(lane.link);
        }
        match farewell {
            Some(reason) => {
                // From now on the id leads nowhere, whatever becomes of the circuit.
                link.lanes.insert(lane.circ_id, (CircuitKey::default(), Side::Prev));
                link.farewells.push_back(Farewell { circ_id: lane.circ_id, reason });
                self.count_farewells(lane.link);
                self.list(lane.link);
            }
            None => {
                link.lanes.remove(&lane.circ_id);
                self.note_if_idle(lane.link);
            }
        }
    }

    /// DESTROY came. From behind or from ahead, it ends the circuit and goes on: "relays now
    /// propagate DESTROY cells in either direction" (tor-spec, "Tearing down circuits"). What a peer
    /// gives as its reason stays here, or reasons would be a side channel.
    pub fn on_destroy(&mut self, link: LinkKey, circ_id: CircId, reason: DestroyReason) {
        let from_shard = self.links.get(link).is_some_and(|link| matches!(link.kind, LinkKind::Shard(_)));
        if let Some((key, side)) = self.find(link, circ_id) {
            if side == Side::Next && self.unanswered(key).is_some() {
                // The onionskin is refused, or the peer has no room for one more: it is there, and any client can bring
                // about either.
                let refused = [DestroyReason::PROTOCOL, DestroyReason::RESOURCELIMIT].contains(&reason);
                self.note_answer(link, refused);
            }
            let reason = if from_shard { reason } else { DestroyReason::DESTROYED };
            self.end_circuit(key, reason, Some(side));
        }
    }

    /// Every circuit of a link ends, since the link did.
    pub fn close_link(&mut self, link_key: LinkKey) {
        let Some(link) = self.links.remove(link_key) else {
            return;
        };
        self.admission.channel_ends(link_key);
        if let Some(channel) = link.channel().filter(|channel| channel.open) {
            self.admission.dial_ends(channel.socket);
            if channel.counted {
                self.dos_channel_ends(channel.addr.ip());
            }
        }
        match (&link.kind, link.peer()) {
            (LinkKind::Channel(_), Some(peer)) => self.forget_channel(link_key, &peer),
            (LinkKind::Flows(_), Some(peer)) => self.forget_flow_link(link_key, &peer),
            _ => {}
        }
        let mut lanes: Vec<_> = link.lanes.into_iter().collect();
        lanes.sort_unstable_by_key(|(circ_id, _)| *circ_id);
        for (_, (key, side)) in lanes {
            let goes_on = side == Side::Next && self.extend_again(key);
            if !goes_on && self.circuits.contains_key(key) {
                self.end_circuit(key, DestroyReason::CHANNEL_CLOSED, Some(side));
            }
        }
        self.leave_queue(link_key, link.unanswered);
    }

    /// Notes when a link's last circuit leaves, for idle closing.
    fn note_if_idle(&mut self, link_key: LinkKey) {
        let now = self.now;
        let Some(link) = self.links.get_mut(link_key) else {
            return;
        };
        if link.lanes.is_empty() {
            match link.channel_mut() {
                Some(channel) => channel.idle_since = now,
                None => self.touch(link_key),
            }
        }
    }
}
