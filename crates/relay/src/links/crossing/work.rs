//! What the core does with crossings: it asks who has a channel, and moves cells to other shards and from them.

use crate::admission::Party;
use crate::core::Core;
use crate::keys::{CircuitKey, LinkKey, Side};
use crate::language::Output;
use crate::links::{LinkKind, Outlet};
use crate::message::{Crossed, CrossedCell, ShardMessage, Wanted};
use crate::table::{Circuit, Credit, Grant, Lane};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::endpoint::FlowState;
use heddle_proto::ids::RsaId;
use heddle_seam::node::ShardId;
use heddle_seam::time::Instant;

/// Cells that one message carries at most.
const BATCH_CELLS: usize = 64;
/// The shard that owns the directory of channels.
const OWNER: ShardId = ShardId(0);

impl Core {
    /// Links to all other shards; they stay.
    pub fn open_crossings(&mut self) {
        let ours = self.config.shard;
        for shard in (0..self.config.shards).map(ShardId).filter(|shard| *shard != ours) {
            let hash_seed = self.rng.next_u64();
            let link = self.insert_link(LinkKind::Shard(shard), hash_seed);
            self.crossings.links.insert(shard, link);
        }
    }

    fn send_shard(&mut self, to: ShardId, message: ShardMessage) {
        self.outputs.push_back(Output::ToShard { to, message });
    }

    /// Asks which shard is to carry a circuit on.
    pub fn ask_directory(&mut self, key: CircuitKey) {
        let Some(wanted) = self.table.get(key).and_then(Circuit::wanted) else { return };
        let rsa = wanted.target.rsa;
        if self.config.shard == OWNER {
            let shard = self.look_up(OWNER, rsa);
            return self.on_answer(key, shard);
        }
        let request = self.crossings.questions;
        self.crossings.questions += 1;
        self.crossings.asked.insert(request, (key, rsa));
        self.crossings.latest.insert(key, request);
        self.send_shard(OWNER, ShardMessage::Ask { request, rsa });
    }

    /// The shard that has a channel to a relay, or that is to dial it: the asking one.
    fn look_up(&mut self, asking: ShardId, rsa: RsaId) -> ShardId {
        *self.crossings.directory.entry(rsa).or_insert(asking)
    }

    fn on_directory_answer(&mut self, request: u64, key: CircuitKey, rsa: RsaId, shard: ShardId) {
        if self.crossings.latest.get(key) == Some(&request) {
            self.crossings.latest.remove(key);
            self.on_answer(key, shard);
        }
        // The owner believes that this shard dials now. If nobody waits any more, it does not.
        if shard == self.config.shard {
            self.release(rsa);
        }
    }

    /// Takes this shard out of the directory unless it has a channel or flows to a relay, or is dialling.
    pub fn release(&mut self, rsa: RsaId) {
        if self.channels.to(&rsa).is_empty()
            && !self.dials.is_dialling(rsa)
            && self.flows.links_to(&rsa).is_empty()
        {
            self.announce(rsa, false);
        }
    }

    fn on_answer(&mut self, key: CircuitKey, shard: ShardId) {
        if self.table.get(key).and_then(Circuit::wanted).is_none() {
            return;
        }
        match self.crossings.links.get(&shard) {
            Some(&link) => self.cross(key, link, shard),
            None => self.dial_for(key, DestroyReason::CONNECTFAILED),
        }
    }

    /// Tells the owner that this shard has a channel to a relay, or has none any more.
    pub fn announce(&mut self, rsa: RsaId, open: bool) {
        if self.config.shards == 1 {
            return;
        }
        match self.config.shard {
            OWNER => self.on_announce(OWNER, rsa, open),
            _ => self.send_shard(OWNER, ShardMessage::Announce { rsa, open }),
        }
    }

    fn on_announce(&mut self, shard: ShardId, rsa: RsaId, open: bool) {
        if open {
            self.crossings.directory.insert(rsa, shard);
        } else if self.crossings.directory.get(&rsa) == Some(&shard) {
            self.crossings.directory.remove(&rsa);
        }
    }

    /// Leads a circuit's next lane to another shard.
    fn cross(&mut self, key: CircuitKey, link_key: LinkKey, shard: ShardId) {
        let Some(circ_id) = self.new_circ_id(link_key) else {
            return self.close_circuit(key, DestroyReason::RESOURCELIMIT);
        };
        let Some(party) = self.table.get(key).map(|circuit| circuit.party) else { return };
        if let Some(wanted) = self.table.take_wanted(key) {
            let lane = Lane::new(link_key, circ_id, Credit::crossing());
            self.table.create(key, lane, None, self.now);
            self.send_shard(shard, ShardMessage::Crossed(Crossed::Create { circ_id, party, wanted }));
        }
    }

    /// A message of another shard.
    pub fn on_shard_message(&mut self, from: ShardId, message: ShardMessage) {
        match message {
            ShardMessage::Ask { request, rsa } => {
                let shard = self.look_up(from, rsa);
                self.send_shard(from, ShardMessage::Answer { request, shard });
            }
            ShardMessage::Answer { request, shard } => {
                if let Some((key, rsa)) = self.crossings.asked.remove(&request) {
                    self.on_directory_answer(request, key, rsa, shard);
                }
            }
            ShardMessage::Announce { rsa, open } => self.on_announce(from, rsa, open),
            ShardMessage::Crossed(crossed) => self.on_crossed(from, crossed),
        }
    }

    fn on_crossed(&mut self, from: ShardId, crossed: Crossed) {
        let Some(&link) = self.crossings.links.get(&from) else {
            return;
        };
        match crossed {
            Crossed::Create { circ_id, party, wanted } => self.on_transit(link, circ_id, party, wanted),
            Crossed::Cells(cells) => {
                for cell in cells {
                    self.table.count_arrival(link, cell.circ_id);
                    self.on_cell(link, cell.circ_id, cell.command, &cell.body);
                }
            }
            Crossed::Credit { circ_id, cells } => self.table.on_credit(self.now, link, circ_id, cells),
            Crossed::Destroy { circ_id, reason } => self.on_destroy(link, circ_id, reason),
        }
    }

    /// Another shard's circuit goes on from here.
    fn on_transit(&mut self, link: LinkKey, circ_id: CircId, party: Party, wanted: Box<Wanted>) {
        let prev = || Lane::new(link, circ_id, Credit::crossing());
        let Some(key) = self.insert_transit(party, prev(), wanted) else {
            return self.drop_lane(prev(), Some(DestroyReason::RESOURCELIMIT));
        };
        let Some(wanted) = self.table.get(key).and_then(Circuit::wanted) else { return };
        match self.link_to(wanted) {
            Some(link) => self.extend_over(key, link),
            None => self.dial_for(key, DestroyReason::CONNECTFAILED),
        }
    }

    /// A circuit without a layer, if there is room for one.
    pub fn insert_transit(&mut self, party: Party, prev: Lane, wanted: Box<Wanted>) -> Option<CircuitKey> {
        self.make_room(party).ok()?;
        let key = self.table.insert(Circuit::transit(self.now, party, prev, wanted));
        self.admission.circuit_begins(self.now, key, party);
        self.watch_idle(key);
        Some(key)
    }

    /// A cell left on a circuit's other lane: another shard may be told that it may send more over this one.
    pub fn grant(&mut self, key: CircuitKey, side: Side) {
        let Some(Grant { link, circ_id, cells }) = self.table.grant(key, side) else { return };
        if let Some(LinkKind::Shard(shard)) = self.links.get(link).map(|link| &link.kind) {
            let shard = *shard;
            self.send_shard(shard, ShardMessage::Crossed(Crossed::Credit { circ_id, cells }));
        }
    }

    /// Sends what waits on the link to another shard.
    pub fn flush_crossing(&mut self, link_key: LinkKey) {
        let Some(LinkKind::Shard(shard)) = self.links.get(link_key).map(|link| &link.kind) else {
            return;
        };
        let shard = *shard;
        let mut crossing = Crossing::default();
        self.fill(link_key, &mut crossing, usize::MAX);
        crossing.send_cells();
        for crossed in crossing.messages {
            self.send_shard(shard, ShardMessage::Crossed(crossed));
        }
    }
}

/// What goes to another shard. Lanes have credit, so whatever leaves them may cross.
#[derive(Default)]
struct Crossing {
    cells: Vec<CrossedCell>,
    messages: Vec<Crossed>,
}

impl Crossing {
    fn send_cells(&mut self) {
        if !self.cells.is_empty() {
            self.messages.push(Crossed::Cells(core::mem::take(&mut self.cells)));
        }
    }
}

impl Outlet for Crossing {
    const ENDS_WAIT: bool = false;

    fn capacity(&self) -> usize {
        usize::MAX
    }

    fn send(&mut self, _now: Instant, circ_id: CircId, command: Command, body: &Body) -> FlowState {
        self.cells.push(CrossedCell { circ_id, command, body: *body });
        if self.cells.len() == BATCH_CELLS {
            self.send_cells();
        }
        FlowState::Open
    }

    fn end(&mut self, _now: Instant, circ_id: CircId, reason: DestroyReason) {
        // What a lane sent before its end was cleared with it; order among lanes is free.
        self.messages.push(Crossed::Destroy { circ_id, reason });
    }
}
