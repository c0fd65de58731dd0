//! The ledgers of credit (`heddle_proto::credit`) of lanes whose neighbour counts cells, a relay that agreed to it or
//! another shard of this one.
//!
//! - A cell of such a lane leaves when the neighbour has credit for it.
//! - A cell that came from there and was passed on, or ended here, counts; now and then the neighbour is told.
//!
//! Relay cells alone are counted: what begins and ends circuits comes once.

use heddle_proto::credit::{CreditMessage, CreditViolation, Ledger, N3, N23};
use heddle_seam::time::{Duration, Instant};

/// Between shards of one relay: 64 cells under way on each lane, told in portions of 16.
const CROSSING: N23 = N23 { n2_cells: 16, n3: N3::Static(48) };

/// A lane's ledger, and which of the table's lists hold the lane because of it.
#[derive(Debug)]
pub(super) struct LaneLedger {
    ledger: Ledger,
    /// Whether the link holds a word of this lane.
    listed: bool,
    /// Whether the table's list of those without credit holds it.
    starved: bool,
}

impl LaneLedger {
    /// `ours`: by which numbers we count; `theirs`: by which the neighbour does.
    pub fn new(ours: N23, theirs: N23) -> Self {
        LaneLedger { ledger: Ledger::new(ours, theirs), listed: false, starved: false }
    }

    /// Of a lane to another shard.
    pub fn crossing() -> Self {
        LaneLedger::new(CROSSING, CROSSING)
    }

    pub fn has_room(&self) -> bool {
        self.ledger.has_room()
    }

    /// A cell left. Returns whether that was the last one for now, and nobody knows of it yet.
    pub fn on_sent(&mut self, now: Instant) -> bool {
        self.ledger.on_sent(now);
        !self.has_room() && !core::mem::replace(&mut self.starved, true)
    }

    /// A cell came.
    ///
    /// # Errors
    /// There was no credit for it.
    pub fn on_received(&mut self) -> Result<(), CreditViolation> {
        self.ledger.on_received()
    }

    /// Cells that came were passed on, the last after it waited so long.
    pub fn on_passed_on(&mut self, now: Instant, cells: u32, waited: Duration) {
        self.ledger.on_passed_on(now, cells, waited);
    }

    /// The neighbour spoke.
    ///
    /// # Errors
    /// It granted more than it has room for.
    pub fn on_message(&mut self, message: CreditMessage) -> Result<(), CreditViolation> {
        self.ledger.on_message(message)
    }

    /// Time passed without credit. Returns whether there is none still.
    pub fn on_starving(&mut self, now: Instant) -> bool {
        self.starved = !self.has_room();
        if self.starved {
            self.ledger.on_starving(now);
        }
        self.starved
    }

    /// Whether the link holds a word of the lane.
    pub fn is_listed(&self) -> bool {
        self.listed
    }

    /// Whether the link is to hold one from now on.
    pub fn lists(&mut self) -> bool {
        self.ledger.has_word() && !core::mem::replace(&mut self.listed, true)
    }

    /// What is to be said first.
    pub fn next_word(&mut self) -> Option<CreditMessage> {
        let word = self.ledger.next_word();
        self.listed = self.ledger.has_word();
        word
    }
}
