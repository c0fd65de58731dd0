//! What a shard holds, and the few operations on it that everything else is made of: a cell is
//! queued on a lane, a link's next cell is taken, a circuit ends.
//!
//! Channels themselves are not in here. The shard reads a cell from one and lends it to
//! [`Core::on_cell`]; later it takes cells with [`Core::pop`] and gives them to the channel. So a
//! cell that a channel lends can be worked on while everything else is at hand.

mod defences;
mod stats;

use crate::admission::Admission;
use crate::circuits::IdleRound;
use crate::circuits::Jobs;
use crate::circuits::Probe;
use crate::config::RelayConfig;
use crate::dos::Dos;
use crate::exit::Streams;
use crate::keys::{CircuitKey, LinkKey, Side};
use crate::language::Output;
use crate::links::Channels;
use crate::links::Crossings;
use crate::links::Dials;
use crate::links::{Flows, HELD_QUEUE_HIGH_CELLS, HELD_QUEUE_LOW_CELLS};
use crate::links::{Link, LinkKind};
use crate::memory::Buffers;
use crate::message::Event;
use crate::rates::Rates;
use crate::relays::Relays;
use crate::stats::Meter;
use crate::table::{Credit, Departure, Lane, Next, Popped, Pushed, Table};
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

/// Cells that may wait on one lane, unless the consensus (`circ_max_cell_queue_size`, and
/// `circ_max_cell_queue_size_out` away from the client) says less. A stock exit or client keeps far fewer in flight;
/// more is an attack on our memory.
const LANE_CELLS_MAX: i32 = 50_000;

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
    pub table: Table,
    pub idle_round: IdleRound,
    pub links: SlotMap<LinkKey, Link>,
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
            table: Table::default(),
            idle_round: IdleRound::default(),
            links: SlotMap::with_key(),
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
        self.dos.set_defences(self.config.dos.defences(&params));
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

    /// Queues a cell on a lane. The circuit may be gone when this returns: a lane that is too long
    /// ends its circuit.
    pub fn enqueue(&mut self, key: CircuitKey, side: Side, slot: SlotId) {
        let Pushed::Queued(len) = self.table.push(&mut self.pool, self.now, (key, side), slot) else {
            return;
        };
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
        self.table.mark_ready(self.now, key, side);
    }

    /// Whether the operator's rates hold for a neighbour at this address.
    pub fn is_limited(&self, addr: IpAddr) -> bool {
        self.config.count_private_bandwidth || !heddle_proto::policy::is_private(addr)
    }

    /// What `link` sends next. The caller frees the slot.
    pub fn pop(&mut self, link: LinkKey) -> Option<Popped> {
        let popped = self.table.pop(&mut self.pool, self.now, link)?;
        match &popped {
            Popped::Farewell(_) => {
                self.count_farewells(link);
                self.note_if_idle(link);
            }
            Popped::Cell(departure) => self.on_departed(departure),
        }
        Some(popped)
    }

    /// A cell left a lane: whoever supplies the lane may supply more.
    fn on_departed(&mut self, &Departure { circuit: key, side, left, .. }: &Departure) {
        let supply = side.opposite();
        match self.table.credit(key, supply) {
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
        let max = match self.links.get(link_key)?.kind {
            LinkKind::Channel(_) | LinkKind::Flows(_) => self.config.limits.circuits_per_channel,
            // Clients of all channels share it, so the circuits' shares alone decide who has how many.
            LinkKind::Shard(_) => usize::MAX,
        };
        if self.table.ids_len(link_key) >= max {
            return None;
        }
        self.table.free_id(link_key, &mut self.rng, candidate)
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
        let Some(mut circuit) = self.table.remove(key) else {
            return;
        };
        self.admission.circuit_ends(key);
        self.give_up_onionskin(&circuit.state);
        if let Some(end) = circuit.end.take() {
            self.drop_end(*end);
        }
        let (prev, next) = circuit.into_lanes();
        match next {
            Next::None | Next::Queued { .. } => {}
            Next::Waiting(wanted) => self.stop_waiting(key, &wanted),
            Next::Creating { lane, .. } | Next::Joined(lane) => {
                self.drop_lane(lane, (silent != Some(Side::Next)).then_some(reason));
            }
        }
        self.drop_lane(prev, (silent != Some(Side::Prev)).then_some(reason));
    }

    /// Gives up a lane and its cells; says DESTROY with `farewell`, or nothing.
    pub fn drop_lane(&mut self, lane: Lane, mut farewell: Option<DestroyReason>) {
        let link_key = lane.link();
        if lane.is_unanswered() {
            self.give_unanswered(link_key);
        }
        if lane.is_flow_to_begin()
            && let Some(flows) = self.links.get_mut(link_key).and_then(Link::flows_mut)
        {
            // The flow was never opened, so there is nothing to end.
            flows.opening -= 1;
            farewell = None;
        }
        self.table.drop_lane(&mut self.pool, lane, farewell);
        match farewell {
            Some(_) => self.count_farewells(link_key),
            None => self.note_if_idle(link_key),
        }
    }

    /// DESTROY came. From behind or from ahead, it ends the circuit and goes on: "relays now
    /// propagate DESTROY cells in either direction" (tor-spec, "Tearing down circuits"). What a peer
    /// gives as its reason stays here, or reasons would be a side channel.
    pub fn on_destroy(&mut self, link: LinkKey, circ_id: CircId, reason: DestroyReason) {
        let from_shard = self.links.get(link).is_some_and(|link| matches!(link.kind, LinkKind::Shard(_)));
        if let Some((key, side)) = self.table.find(link, circ_id) {
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
        let lanes = self.table.remove_link(link_key);
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
        for (key, side) in lanes {
            let goes_on = side == Side::Next && self.extend_again(key);
            if !goes_on && self.table.contains(key) {
                self.end_circuit(key, DestroyReason::CHANNEL_CLOSED, Some(side));
            }
        }
        self.leave_queue(link_key, link.unanswered);
    }

    /// Notes when a link's last circuit leaves, for idle closing.
    fn note_if_idle(&mut self, link_key: LinkKey) {
        if !self.table.is_idle(link_key) {
            return;
        }
        match self.links.get_mut(link_key).and_then(Link::channel_mut) {
            Some(channel) => channel.idle_since = self.now,
            None => self.touch(link_key),
        }
    }
}
