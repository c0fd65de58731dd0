//! Credit between this end of a circuit and its guard (`docs/reference/pair.md`, "Credit on the TLS channel").

use super::Fault;
use heddle_proto::credit::{Accounts, Balance, CreditMessage, HopCredit, N23};
use heddle_seam::time::{Duration, Instant};

/// What the guard and we owe each other.
pub(super) struct GuardCredit {
    balance: Balance,
    accounts: Accounts,
    /// What it is to be told; a later grant takes the place of an earlier one.
    grant: Option<CreditMessage>,
}

impl GuardCredit {
    pub fn new(ours: N23, theirs: N23) -> Self {
        GuardCredit {
            balance: Balance::new(HopCredit::N23(theirs)),
            accounts: Accounts::new(HopCredit::N23(ours)),
            grant: None,
        }
    }

    pub fn has_room(&self) -> bool {
        self.balance.room() > 0
    }

    pub fn on_sent(&mut self) {
        // We never ask: TLS loses nothing, and a guard that grants nothing costs its own circuits only.
        self.balance.on_sent(Instant::ZERO);
    }

    /// A relay cell came. It ends here: what streams hold of it their windows bound.
    pub fn on_received(&mut self, now: Instant) -> Result<(), Fault> {
        self.accounts.on_received().map_err(|_| "a cell beyond the hop's credit")?;
        self.grant = self.accounts.on_passed_on(now, Duration::ZERO).or(self.grant);
        Ok(())
    }

    /// The guard spoke.
    pub fn on_message(&mut self, message: CreditMessage) -> Result<(), Fault> {
        match message {
            CreditMessage::Granted { cells } => {
                self.balance.on_granted(cells).map_err(|_| "credit beyond what the hop agreed on")
            }
            CreditMessage::Asked => {
                self.grant = self.accounts.on_asked().or(self.grant);
                Ok(())
            }
        }
    }

    pub fn owes_grant(&self) -> bool {
        self.grant.is_some()
    }

    pub fn take_grant(&mut self) -> Option<CreditMessage> {
        self.grant.take()
    }
}
