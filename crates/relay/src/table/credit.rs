//! Lanes whose neighbours count cells: what comes, what is passed on, and what is said about it ([`LaneLedger`]).

use super::ledger::LaneLedger;
use super::{Lane, Table, list};
use crate::keys::{CircuitKey, LinkKey, Side};
use heddle_proto::cell::CircId;
use heddle_proto::credit::{CreditMessage, CreditViolation, N23};
use heddle_seam::time::{Duration, Instant};

/// A word of credit that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CreditWord {
    pub circ_id: CircId,
    pub message: CreditMessage,
}

impl Table {
    /// Both sides of a lane count cells from now on; none has gone over it.
    pub fn count_cells(&mut self, key: CircuitKey, side: Side, ours: N23, theirs: N23) {
        let Some(lane) = self.lane_mut(key, side) else { return };
        let was_counted = lane.ledger.replace(Box::new(LaneLedger::new(ours, theirs))).is_some();
        self.ledgers += usize::from(!was_counted);
    }

    /// What is kept for that.
    pub fn ledger_bytes(&self) -> usize {
        self.ledgers * size_of::<LaneLedger>()
    }

    /// A relay cell came over a lane.
    ///
    /// # Errors
    /// The neighbour had no credit for it.
    pub fn count_arrival(&mut self, key: CircuitKey, side: Side) -> Result<(), CreditViolation> {
        match self.lane_mut(key, side).and_then(|lane| lane.ledger.as_mut()) {
            Some(ledger) => ledger.on_received(),
            None => Ok(()),
        }
    }

    /// Relay cells that came over a lane were passed on, or ended here; the last waited so long for that. The
    /// neighbour may be told.
    pub fn pass_on(&mut self, now: Instant, (key, side): (CircuitKey, Side), cells: u32, waited: Duration) {
        let Some(Lane { link, ledger: Some(ledger), .. }) = self.lane_mut(key, side) else { return };
        ledger.on_passed_on(now, cells, waited);
        if ledger.lists() {
            let link = *link;
            self.say(link, key, side);
        }
    }

    /// A neighbour spoke of credit.
    ///
    /// # Errors
    /// It said what it must not say of this circuit.
    pub fn on_credit(
        &mut self,
        now: Instant,
        link: LinkKey,
        CreditWord { circ_id, message }: CreditWord,
    ) -> Result<(), CircuitKey> {
        // Of a circuit that ended meanwhile, or of one that began before there was an agreement.
        let Some((key, side)) = self.find(link, circ_id) else { return Ok(()) };
        let Some(ledger) = self.lane_mut(key, side).and_then(|lane| lane.ledger.as_mut()) else {
            return Ok(());
        };
        ledger.on_message(message).map_err(|_| key)?;
        if ledger.lists() {
            self.say(link, key, side);
        }
        self.mark_ready(now, key, side);
        Ok(())
    }

    /// Once a second: lanes without credit for long ask, because what granted it may have been lost.
    pub fn ask_for_credit(&mut self, now: Instant) {
        for (key, side) in core::mem::take(&mut self.starved) {
            let Some(Lane { link, ledger: Some(ledger), .. }) = self.lane_mut(key, side) else { continue };
            if !ledger.on_starving(now) {
                continue;
            }
            let (link, says) = (*link, ledger.lists());
            self.starved.push((key, side));
            if says {
                self.say(link, key, side);
            }
        }
    }

    /// What is to be said of a link's lanes.
    pub(super) fn pop_word(&mut self, link: LinkKey) -> Option<CreditWord> {
        loop {
            let (key, side) = self.links.get_mut(link)?.words.pop_front()?;
            let Some(lane) = self.lane_mut(key, side).filter(|lane| lane.link == link) else { continue };
            let circ_id = lane.circ_id;
            let Some(ledger) = &mut lane.ledger else { continue };
            let word = ledger.next_word();
            if ledger.is_listed() {
                self.say(link, key, side);
            }
            if let Some(message) = word {
                return Some(CreditWord { circ_id, message });
            }
        }
    }

    /// A lane has a word to say; its `listed` tells that it is in the list.
    fn say(&mut self, link: LinkKey, key: CircuitKey, side: Side) {
        if let Some(ids) = self.links.get_mut(link) {
            ids.words.push_back((key, side));
            list(ids, link, &mut self.to_flush);
        }
    }
}
