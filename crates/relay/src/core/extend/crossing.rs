//! A circuit goes on from another shard, if that has a channel where it wants to go.

use crate::core::Core;
use crate::keys::{CircuitKey, LinkKey};
use crate::links::OWNER;
use crate::message::{Crossed, ShardMessage};
use crate::table::{Circuit, Lane};
use heddle_proto::cell::create::DestroyReason;
use heddle_seam::node::ShardId;

impl Core {
    /// Asks which shard is to carry a circuit on.
    pub(super) fn ask_directory(&mut self, key: CircuitKey) {
        let Some(wanted) = self.table.get(key).and_then(Circuit::wanted) else { return };
        let rsa = wanted.target.rsa;
        if self.config.shard == OWNER {
            let shard = self.crossings.look_up(OWNER, rsa);
            return self.on_answer(key, shard);
        }
        let request = self.crossings.ask(key, rsa);
        self.send_shard(OWNER, ShardMessage::Ask { request, rsa });
    }

    /// The owner of the directory answered a question of ours.
    pub(in crate::core) fn on_directory_answer(&mut self, request: u64, shard: ShardId) {
        let Some((rsa, waiting)) = self.crossings.on_answer(request) else { return };
        if let Some(key) = waiting {
            self.on_answer(key, shard);
        }
        // The owner believes that this shard dials now. If nobody waits any more, it does not.
        if shard == self.config.shard {
            self.release(rsa);
        }
    }

    fn on_answer(&mut self, key: CircuitKey, shard: ShardId) {
        if self.table.get(key).and_then(Circuit::wanted).is_none() {
            return;
        }
        // A channel may have opened here before the answer came.
        if let Some(link) = self.link_for(key) {
            return self.extend_over(key, link);
        }
        match self.crossings.link_to(shard) {
            Some(link) => self.cross(key, link, shard),
            None => self.dial_for(key, DestroyReason::CONNECTFAILED),
        }
    }

    /// Leads a circuit's next lane to another shard.
    fn cross(&mut self, key: CircuitKey, link_key: LinkKey, shard: ShardId) {
        let Some(circ_id) = self.new_circ_id(link_key) else {
            return self.close_circuit(key, DestroyReason::RESOURCELIMIT);
        };
        let Some(party) = self.table.get(key).map(Circuit::party) else { return };
        if let Some(wanted) = self.table.take_wanted(key) {
            let lane = Lane::crossing(link_key, circ_id);
            self.table.create(key, lane, None, self.now);
            self.log_crossing(key, link_key, circ_id, &wanted.create2);
            self.send_shard(shard, ShardMessage::Crossed(Crossed::Create { circ_id, party, wanted }));
        }
    }
}
