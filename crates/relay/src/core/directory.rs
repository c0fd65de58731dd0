//! Which shard has a channel to which relay: what this shard says of its own ([`crate::links::Crossings`]).

use super::Core;
use crate::language::Output;
use crate::message::ShardMessage;
use heddle_proto::ids::RsaId;
use heddle_seam::node::ShardId;

/// The shard that owns the directory of channels.
pub(super) const OWNER: ShardId = ShardId(0);

impl Core {
    /// Tells the owner that this shard has a channel to a relay, or has none any more.
    pub(super) fn announce(&mut self, rsa: RsaId, open: bool) {
        if self.config.shards == 1 {
            return;
        }
        match self.config.shard {
            OWNER => self.crossings.on_announce(OWNER, rsa, open),
            _ => self.send_shard(OWNER, ShardMessage::Announce { rsa, open }),
        }
    }

    /// Takes this shard out of the directory unless it has a channel or flows to a relay, or is dialling.
    pub(super) fn release(&mut self, rsa: RsaId) {
        if self.channels.to(&rsa).is_empty()
            && !self.dials.is_dialling(rsa)
            && self.flows.links_to(&rsa).is_empty()
        {
            self.announce(rsa, false);
        }
    }

    pub(super) fn send_shard(&mut self, to: ShardId, message: ShardMessage) {
        self.outputs.push_back(Output::ToShard { to, message });
    }
}
