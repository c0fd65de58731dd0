//! Circuits that cross from one shard of a relay to another.
//!
//! A crossing is a hop that costs no cryptography: the shard with the previous channel keeps the
//! circuit, its layer and its end; the shard with the next channel keeps a *transit* circuit that
//! only moves cells. Between them runs a link like any other, whose lanes have credit:
//!
//! 1. Shard A asks the owner of the directory, shard 0, which shard has a channel to the relay.
//! 2. The owner names the shard that has one or is dialling; else it names A itself.
//! 3. If a channel to the relay has opened at A meanwhile, A goes on by itself. Else it opens a lane to that shard B
//!    with `Crossed::Create`; B goes on as after EXTEND2.
//! 4. Each side sends a few dozen cells at most on a lane (`table/credit.rs`) before it is granted more,
//!    so a ring of (lanes × window) cells never overflows and never holds back another lane.

use super::outlet::Outlet;
use crate::keys::{CircuitKey, LinkKey};
use crate::message::{Crossed, CrossedCell, ShardMessage};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::credit::CreditMessage;
use heddle_proto::endpoint::FlowState;
use heddle_proto::ids::RsaId;
use heddle_seam::node::ShardId;
use heddle_seam::time::Instant;
use slotmap::SecondaryMap;
use std::collections::BTreeMap;

/// The shard that owns the directory of channels.
pub(crate) const OWNER: ShardId = ShardId(0);

/// What a shard knows of the others.
#[derive(Debug)]
pub(crate) struct Crossings {
    ours: ShardId,
    links: BTreeMap<ShardId, LinkKey>,
    /// Which shard has, or is dialling, a channel to a relay. Only the owner's is filled; it has
    /// an entry for each channel and each dial of the relay.
    directory: BTreeMap<RsaId, ShardId>,
    /// Questions to the owner that it has not answered yet.
    asked: BTreeMap<u64, (CircuitKey, RsaId)>,
    /// The question of each circuit that counts: its last, because a circuit may be truncated and
    /// extended to another relay before the answer comes.
    latest: SecondaryMap<CircuitKey, u64>,
    questions: u64,
}

/// The links.
impl Crossings {
    /// Those of a shard that has been told of no other yet.
    pub fn new(ours: ShardId) -> Self {
        Crossings {
            ours,
            links: BTreeMap::new(),
            directory: BTreeMap::new(),
            asked: BTreeMap::new(),
            latest: SecondaryMap::new(),
            questions: 0,
        }
    }

    pub fn insert(&mut self, shard: ShardId, link: LinkKey) {
        self.links.insert(shard, link);
    }

    pub fn link_to(&self, shard: ShardId) -> Option<LinkKey> {
        self.links.get(&shard).copied()
    }
}

/// The directory, at its owner.
impl Crossings {
    /// Relays that the directory names.
    pub fn directory_len(&self) -> usize {
        self.directory.len()
    }

    /// The shard that has a channel to a relay, or that is to dial it: the asking one.
    pub fn look_up(&mut self, asking: ShardId, rsa: RsaId) -> ShardId {
        *self.directory.entry(rsa).or_insert(asking)
    }

    /// A shard has a channel to a relay, or has none any more.
    pub fn on_announce(&mut self, shard: ShardId, rsa: RsaId, open: bool) {
        if open {
            self.directory.insert(rsa, shard);
        } else if self.directory.get(&rsa) == Some(&shard) {
            self.directory.remove(&rsa);
        }
    }
}

/// Questions to the owner, and news for it.
impl Crossings {
    /// This shard has a channel to a relay, or has none any more. Returns what the owner is to be told.
    pub fn announce(&mut self, rsa: RsaId, open: bool) -> Option<ShardMessage> {
        if self.links.is_empty() {
            return None;
        }
        if self.ours == OWNER {
            self.on_announce(OWNER, rsa, open);
            return None;
        }
        Some(ShardMessage::Announce { rsa, open })
    }

    /// A circuit that is to go on to a relay asks. Returns the question's number.
    pub fn ask(&mut self, circuit: CircuitKey, rsa: RsaId) -> u64 {
        let request = self.questions;
        self.questions += 1;
        self.asked.insert(request, (circuit, rsa));
        self.latest.insert(circuit, request);
        request
    }

    /// A question was answered. Returns the relay, and the circuit if it waits for this answer.
    pub fn on_answer(&mut self, request: u64) -> Option<(RsaId, Option<CircuitKey>)> {
        let (circuit, rsa) = self.asked.remove(&request)?;
        let counts = self.latest.get(circuit) == Some(&request);
        if counts {
            self.latest.remove(circuit);
        }
        Some((rsa, counts.then_some(circuit)))
    }
}

/// Cells that one message carries at most.
const BATCH_CELLS: usize = 64;

/// What goes to another shard. Lanes have credit, so whatever leaves them may cross.
#[derive(Default)]
pub(crate) struct Crossing {
    cells: Vec<CrossedCell>,
    messages: Vec<Crossed>,
}

impl Crossing {
    /// What crosses, in order.
    pub fn into_messages(mut self) -> Vec<Crossed> {
        self.send_cells();
        self.messages
    }

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

    fn tell(&mut self, _now: Instant, circ_id: CircId, message: CreditMessage) {
        self.messages.push(Crossed::Credit { circ_id, message });
    }

    fn end(&mut self, _now: Instant, circ_id: CircId, reason: DestroyReason) {
        // What a lane sent before its end was cleared with it; order among lanes is free.
        self.messages.push(Crossed::Destroy { circ_id, reason });
    }
}
