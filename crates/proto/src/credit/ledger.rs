//! Both ways of a circuit's hop, as one of its sides keeps them.

use super::{Accounts, Balance, CreditMessage, CreditViolation, N23};
use heddle_seam::time::{Duration, Instant};

/// What the two sides of a circuit's hop owe each other.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// What we may send.
    balance: Balance,
    /// What we took.
    accounts: Accounts,
    /// What is to be told: a later grant takes the place of an earlier one.
    grant: Option<CreditMessage>,
    asks: bool,
}

impl Ledger {
    /// `ours`: by which numbers we count; `theirs`: by which the neighbour does.
    pub fn new(ours: N23, theirs: N23) -> Self {
        Ledger { balance: Balance::new(theirs), accounts: Accounts::new(ours), grant: None, asks: false }
    }

    /// Whether the neighbour has credit for a cell.
    pub fn has_room(&self) -> bool {
        self.balance.room() > 0
    }

    /// A cell left.
    pub fn on_sent(&mut self, now: Instant) {
        self.balance.on_sent(now);
    }

    /// A cell came.
    ///
    /// # Errors
    /// There was no credit for it.
    pub fn on_received(&mut self) -> Result<(), CreditViolation> {
        self.accounts.on_received()
    }

    /// Cells that came were passed on, or ended here; the last waited so long for that.
    pub fn on_passed_on(&mut self, now: Instant, cells: u32, waited: Duration) {
        for _ in 0..cells {
            // What this side says itself leaves by the same lanes and came from nobody.
            if self.accounts.queued_cells() > 0 {
                self.grant = self.accounts.on_passed_on(now, waited).or(self.grant);
            }
        }
    }

    /// The neighbour spoke.
    ///
    /// # Errors
    /// It granted more than it has room for.
    pub fn on_message(&mut self, message: CreditMessage) -> Result<(), CreditViolation> {
        match message {
            CreditMessage::Granted { cells } => self.balance.on_granted(cells),
            CreditMessage::Asked => {
                self.grant = Some(self.accounts.on_asked());
                Ok(())
            }
        }
    }

    /// Time passed without credit: the neighbour is asked when that was long enough, because what granted it may have
    /// been lost.
    pub fn on_starving(&mut self, now: Instant) {
        self.asks |= self.balance.take_ask(now);
    }

    /// Whether the neighbour is to be told something.
    pub fn has_word(&self) -> bool {
        self.grant.is_some() || self.asks
    }

    /// What it is to be told first.
    pub fn next_word(&mut self) -> Option<CreditMessage> {
        self.grant.take().or_else(|| core::mem::take(&mut self.asks).then_some(CreditMessage::Asked))
    }
}
