//! Credit from hop to hop (`heddle_proto::credit`): lanes whose neighbour counts cells, a relay that agreed to it or
//! another shard of this one.
//!
//! - A cell of such a lane leaves when the neighbour has credit for it.
//! - A cell that came from there and was passed on, or ended here, counts; now and then the neighbour is told.
//!
//! Relay cells alone are counted: what begins and ends circuits comes once.

use heddle_proto::cell::Command;
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

    /// A cell left. Returns whether that was the last one for now, and nobody knows of it yet.
    pub fn on_sent(&mut self, now: Instant) -> bool {
        self.balance.on_sent(now);
        !self.has_room() && !core::mem::replace(&mut self.starved, true)
    }

    /// A cell came.
    ///
    /// # Errors
    /// There was no credit for it.
    pub fn on_received(&mut self) -> Result<(), CreditViolation> {
        self.accounts.on_received()
    }

    /// Cells that came were passed on, the last after it waited so long. Returns whether the link is to hold a word.
    pub fn on_passed_on(&mut self, now: Instant, cells: u32, waited: Duration) -> bool {
        for _ in 0..cells {
            // What we say ourselves leaves by the same lanes and came from nobody.
            if self.accounts.queued_cells() > 0
                && let Some(grant) = self.accounts.on_passed_on(now, waited)
            {
                self.grant = Some(grant);
            }
        }
        self.grant.is_some() && self.lists()
    }

    /// The neighbour granted so many cells.
    ///
    /// # Errors
    /// They are more than it has room for.
    pub fn on_granted(&mut self, cells: u64) -> Result<(), CreditViolation> {
        self.balance.on_granted(cells)
    }

    /// The neighbour asks. Returns whether the link is to hold a word.
    pub fn on_asked(&mut self) -> bool {
        self.grant = self.accounts.on_asked().or(self.grant);
        self.lists()
    }

    /// Time passed without credit, if there is none still: `None` if there is. Returns whether the link is to hold a
    /// word.
    pub fn on_starving(&mut self, now: Instant) -> Option<bool> {
        self.starved = !self.has_room();
        if !self.starved {
            return None;
        }
        let asks = self.balance.take_ask(now);
        self.ask |= asks;
        Some(asks && self.lists())
    }

    /// Whether a word of the lane waits on its link.
    pub fn is_listed(&self) -> bool {
        self.listed
    }

    fn lists(&mut self) -> bool {
        !core::mem::replace(&mut self.listed, true)
    }

    /// What is to be said first.
    pub fn next_word(&mut self) -> Option<CreditMessage> {
        let word =
            self.grant.take().or_else(|| core::mem::take(&mut self.ask).then_some(CreditMessage::Asked));
        self.listed = self.grant.is_some() || self.ask;
        word
    }
}

/// Whether a neighbour counts such a cell.
pub(super) fn is_counted(command: Command) -> bool {
    matches!(command, Command::RELAY | Command::RELAY_EARLY)
}
