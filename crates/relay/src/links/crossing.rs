//! Circuits that cross from one shard of a relay to another.
//!
//! A crossing is a hop that costs no cryptography: the shard with the previous channel keeps the
//! circuit, its layer and its end; the shard with the next channel keeps a *transit* circuit that
//! only moves cells. Between them runs a link like any other, whose lanes have credit:
//!
//! 1. Shard A asks the owner of the directory, shard 0, which shard has a channel to the relay.
//! 2. The owner names the shard that has one or is dialling; else it names A itself.
//! 3. A opens a lane to that shard B with `Crossed::Create`; B goes on as after EXTEND2.
//! 4. Each side sends a few dozen cells at most on a lane (`table/credit.rs`) before it is granted more,
//!    so a ring of (lanes × window) cells never overflows and never holds back another lane.

mod work;

use crate::keys::{CircuitKey, LinkKey};
use heddle_proto::ids::RsaId;
use heddle_seam::node::ShardId;
use slotmap::SecondaryMap;
use std::collections::BTreeMap;

/// What a shard knows of the others.
#[derive(Debug, Default)]
pub(crate) struct Crossings {
    links: BTreeMap<ShardId, LinkKey>,
    /// Which shard has, or is dialling, a channel to a relay. Only the owner's is filled; it has
    /// an entry for each channel and each dial of the relay.
    directory: BTreeMap<RsaId, ShardId>,
    /// Questions to the owner that it has not answered yet.
    asked: BTreeMap<u64, (CircuitKey, RsaId)>,
    /// The question of each circuit that counts: its last, since a circuit may be truncated and
    /// extended to another relay before the answer comes.
    latest: SecondaryMap<CircuitKey, u64>,
    questions: u64,
}

impl Crossings {
    /// Relays that the directory names.
    pub fn directory_len(&self) -> usize {
        self.directory.len()
    }
}
