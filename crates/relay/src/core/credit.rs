//! Credit from hop to hop: what neighbours agree on, and who breaks it ([`crate::table`] counts).

use super::Core;
use crate::keys::{CircuitKey, LinkKey, Side};
use crate::links::ChannelLink;
use crate::table::CreditWord;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::credit::{CreditCell, HopCredit, N23};
use heddle_seam::time::Duration;

impl Core {
    /// What a channel begins with, if we count cells: whoever proved to be a relay is told so. Also if the consensus
    /// does not list it: ours may be older than the one by which a client chose the two of us, and what is not said
    /// now is never said on this channel.
    pub fn agree_on_credit(&mut self, link: LinkKey) -> Option<CreditCell> {
        self.links.channel(link).and_then(ChannelLink::peer)?;
        self.begin_counting(link)
    }

    /// A neighbour spoke of credit on a channel. Returns the answer: a client that says that it counts is told what a
    /// relay is told at once.
    pub fn on_credit_cell(&mut self, link: LinkKey, cell: CreditCell) -> Option<CreditCell> {
        match cell {
            CreditCell::Agreement(n23) => {
                let is_news_of_client = self.links.set_credit(link, n23);
                if is_news_of_client { self.begin_counting(link) } else { None }
            }
            CreditCell::Circuit { circ_id, message } => {
                self.on_credit(link, CreditWord { circ_id, message });
                None
            }
        }
    }

    fn begin_counting(&mut self, link: LinkKey) -> Option<CreditCell> {
        let n23 = self.our_credit()?;
        self.links.begin_counting(link).then_some(CreditCell::Agreement(n23))
    }

    /// A neighbour, or another shard, spoke of a circuit's credit.
    pub(super) fn on_credit(&mut self, link: LinkKey, word: CreditWord) {
        self.log_credit_in(link, word);
        if let Err(key) = self.table.on_credit(self.now, link, word) {
            self.close_circuit(key, DestroyReason::PROTOCOL);
        }
    }

    /// The next cell of a circuit's lane will be its first relay cell: both sides count if both said so, which each
    /// knows by now, because an agreement comes before all other cells.
    pub(super) fn begin_credit(&mut self, key: CircuitKey, side: Side) {
        let Some(ours) = self.our_credit() else { return };
        let link = self.table.get(key).and_then(|circuit| circuit.lane(side)).map(|lane| lane.link());
        let channel = link.and_then(|link| self.links.channel(link));
        if let Some(theirs) = channel.and_then(ChannelLink::credit) {
            self.table.count_cells(key, side, ours, theirs);
        }
    }

    /// A relay cell came over a lane. False if it was one too many, which ends its circuit.
    pub(super) fn count_arrival(&mut self, key: CircuitKey, side: Side) -> bool {
        let counted = self.table.count_arrival(key, side).is_ok();
        if !counted {
            self.close_circuit(key, DestroyReason::PROTOCOL);
        }
        counted
    }

    /// Relay cells that came over a lane go nowhere from here.
    pub(super) fn end_cells(&mut self, key: CircuitKey, side: Side, cells: u32) {
        self.table.pass_on(self.now, (key, side), cells, Duration::ZERO);
    }

    fn our_credit(&self) -> Option<N23> {
        match self.config.hop_credit {
            HopCredit::None => None,
            HopCredit::N23(n23) => Some(n23),
        }
    }
}
