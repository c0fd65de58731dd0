//! What other shards say: who has a channel, and what crosses ([`crate::links::Crossings`]).

use super::Core;
use crate::admission::Party;
use crate::keys::LinkKey;
use crate::message::{Crossed, ShardMessage, Wanted};
use crate::table::{Circuit, CreditWord, Lane};
use heddle_proto::cell::CircId;
use heddle_proto::cell::create::DestroyReason;
use heddle_seam::node::ShardId;

impl Core {
    /// A message of another shard.
    pub fn on_shard_message(&mut self, from: ShardId, message: ShardMessage) {
        match message {
            ShardMessage::Ask { request, rsa } => {
                let shard = self.crossings.look_up(from, rsa);
                self.send_shard(from, ShardMessage::Answer { request, shard });
            }
            ShardMessage::Answer { request, shard } => self.on_directory_answer(request, shard),
            ShardMessage::Announce { rsa, open } => self.crossings.on_announce(from, rsa, open),
            ShardMessage::Crossed(crossed) => self.on_crossed(from, crossed),
        }
    }

    fn on_crossed(&mut self, from: ShardId, crossed: Crossed) {
        let Some(link) = self.crossings.link_to(from) else { return };
        match crossed {
            Crossed::Create { circ_id, party, wanted } => self.on_transit(link, circ_id, party, wanted),
            Crossed::Cells(cells) => {
                for cell in cells {
                    self.on_cell(link, cell.circ_id, cell.command, &cell.body);
                }
            }
            Crossed::Credit { circ_id, message } => self.on_credit(link, CreditWord { circ_id, message }),
            Crossed::Destroy { circ_id, reason } => self.on_destroy(link, circ_id, reason),
        }
    }

    /// Another shard's circuit goes on from here.
    fn on_transit(&mut self, link: LinkKey, circ_id: CircId, party: Party, wanted: Box<Wanted>) {
        let Some(key) = self.insert_transit(party, Lane::crossing(link, circ_id), wanted) else {
            let refused = Lane::new(link, circ_id, None);
            return self.drop_lane(refused, Some(DestroyReason::RESOURCELIMIT));
        };
        let Some(wanted) = self.table.get(key).and_then(Circuit::wanted) else { return };
        match self.link_to(wanted) {
            Some(link) => self.extend_over(key, link),
            None => self.dial_for(key, DestroyReason::CONNECTFAILED),
        }
    }
}
