//! Credit from hop to hop (`heddle_proto::credit`): lanes whose neighbour counts cells, a relay that agreed to it or
//! another shard of this one.
//!
//! - A cell of such a lane leaves when the neighbour has credit for it.
//! - A cell that came from there and was passed on, or ended here, counts; now and then the neighbour is told.
//!
//! Relay cells alone are counted: what begins and ends circuits comes once.

use super::{Lane, Table, list};
use crate::keys::{CircuitKey, LinkKey, Side};
use heddle_proto::cell::{CircId, Command};
use heddle_proto::credit::{Accounts, Balance, CreditMessage, CreditViolation, HopCredit, N3, N23};
use heddle_seam::time::{Duration, Instant};

/// Between shards of one relay: 64 cells under way on each lane, told in portions of 16.
pub(super) const CROSSING: N23 = N23 { n2_cells: 16, n3: N3::Static(48) };

/// What the two sides of a lane's hop owe each other.
#[derive(Debug)]
pub(super) struct Hop {
    /// What we may send.
    balance: Balance,
    /// What we took.
    accounts: Accounts,
    /// What is to be told: a later grant takes the place of an earlier one.
    grant: Option<CreditMessage>,
    ask: bool,
    /// Whether the link holds a word of this lane.
    listed: bool,
    /// Whether the table's list of those without credit holds it.
    starved: bool,
}

impl Hop {
    /// `ours`: by which numbers we count; `theirs`: by which the neighbour does.
    pub fn new(ours: N23, theirs: N23) -> Self {
        Hop {
            balance: Balance::new(HopCredit::N23(theirs)),
            accounts: Accounts::new(HopCredit::N23(ours)),
            grant: None,
            ask: false,
            listed: false,
            starved: false,
        }
    }

    /// Of a lane to another shard.
    pub fn crossing() -> Self {
        Hop::new(CROSSING, CROSSING)
    }

    pub fn has_room(&self) -> bool {
        self.balance.room() > 0
    }

    /// Cells that came from there and are not passed on.
    pub fn queued_cells(&self) -> u64 {
        self.accounts.queued_cells()
    }

    /// A cell left. Returns whether that was the last one for now, and nobody knows of it yet.
    pub fn on_sent(&mut self, now: Instant) -> bool {
        self.balance.on_sent(now);
        !self.has_room() && !core::mem::replace(&mut self.starved, true)
    }

    fn next_word(&mut self) -> Option<CreditMessage> {
        let word =
            self.grant.take().or_else(|| core::mem::take(&mut self.ask).then_some(CreditMessage::Asked));
        self.listed = self.grant.is_some() || self.ask;
        word
    }
}

/// A word of credit that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CreditWord {
    pub circ_id: CircId,
    pub message: CreditMessage,
}

/// Whether a neighbour counts such a cell.
pub(super) fn is_counted(command: Command) -> bool {
    matches!(command, Command::RELAY | Command::RELAY_EARLY)
}

impl Table {
    /// Both sides of a lane's hop count cells from now on; none has gone over it.
    pub fn count_cells(&mut self, key: CircuitKey, side: Side, ours: N23, theirs: N23) {
        let Some(lane) = self.lane_mut(key, side) else { return };
        let was_counted = lane.hop.replace(Box::new(Hop::new(ours, theirs))).is_some();
        self.hops += usize::from(!was_counted);
    }

    /// What is kept of hops for that.
    pub fn hop_bytes(&self) -> usize {
        self.hops * size_of::<Hop>()
    }

    /// A relay cell came over a lane.
    ///
    /// # Errors
    /// The neighbour had no credit for it.
    pub fn count_arrival(&mut self, key: CircuitKey, side: Side) -> Result<(), CreditViolation> {
        match self.lane_mut(key, side).and_then(|lane| lane.hop.as_mut()) {
            Some(hop) => hop.accounts.on_received(),
            None => Ok(()),
        }
    }

    /// Relay cells that came over a lane were passed on, or ended here; the last waited so long for that. The
    /// neighbour may be told.
    pub fn pass_on(&mut self, now: Instant, (key, side): (CircuitKey, Side), cells: u32, waited: Duration) {
        let Some(Lane { link, circ_id, hop: Some(hop), .. }) = self.lane_mut(key, side) else { return };
        for _ in 0..cells {
            // What we say ourselves leaves by the same lanes and came from nobody.
            if hop.queued_cells() > 0
                && let Some(grant) = hop.accounts.on_passed_on(now, waited)
            {
                hop.grant = Some(grant);
            }
        }
        let (link, circ_id) = (*link, *circ_id);
        if hop.grant.is_some() && !core::mem::replace(&mut hop.listed, true) {
            self.say(link, circ_id);
        }
    }

    /// A neighbour spoke of credit.
    ///
    /// # Errors
    /// It said what it must not say, of this circuit's lane.
    pub fn on_credit(
        &mut self,
        now: Instant,
        link: LinkKey,
        CreditWord { circ_id, message }: CreditWord,
    ) -> Result<(), (CircuitKey, Side, CreditViolation)> {
        // Of a circuit that ended meanwhile, or of one that began before there was an agreement.
        let Some((key, side)) = self.find(link, circ_id) else { return Ok(()) };
        let Some(hop) = self.lane_mut(key, side).and_then(|lane| lane.hop.as_mut()) else { return Ok(()) };
        match message {
            CreditMessage::Granted { cells } => {
                hop.balance.on_granted(cells).map_err(|violation| (key, side, violation))?;
                self.mark_ready(now, key, side);
            }
            CreditMessage::Asked => {
                hop.grant = hop.accounts.on_asked().or(hop.grant);
                if !core::mem::replace(&mut hop.listed, true) {
                    self.say(link, circ_id);
                }
            }
        }
        Ok(())
    }

    /// Once a second: lanes without credit for long ask, because what granted it may have been lost.
    pub fn ask_for_credit(&mut self, now: Instant) {
        for (key, side) in core::mem::take(&mut self.starved) {
            let Some(Lane { link, circ_id, hop: Some(hop), .. }) = self.lane_mut(key, side) else { continue };
            if hop.has_room() {
                hop.starved = false;
                continue;
            }
            let (link, circ_id, asks) = (*link, *circ_id, hop.balance.take_ask(now));
            hop.ask |= asks;
            let says = asks && !core::mem::replace(&mut hop.listed, true);
            self.starved.push((key, side));
            if says {
                self.say(link, circ_id);
            }
        }
    }

    /// What is to be said of a link's lanes.
    pub(super) fn pop_word(&mut self, link: LinkKey) -> Option<CreditWord> {
        loop {
            let circ_id = self.links.get_mut(link)?.words.pop_front()?;
            let Some((key, side)) = self.find(link, circ_id) else { continue };
            let Some(hop) = self.lane_mut(key, side).and_then(|lane| lane.hop.as_mut()) else { continue };
            let word = hop.next_word();
            if hop.listed {
                self.say(link, circ_id);
            }
            if let Some(message) = word {
                return Some(CreditWord { circ_id, message });
            }
        }
    }

    /// A lane has a word to say; its `listed` tells that it is in the list.
    fn say(&mut self, link: LinkKey, circ_id: CircId) {
        if let Some(ids) = self.links.get_mut(link) {
            ids.words.push_back(circ_id);
            list(ids, link, &mut self.to_flush);
        }
    }
}
