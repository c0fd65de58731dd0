//! What the receiving side of a hop has taken, passed on and granted.

use super::adaptive::AdaptiveN3;
use super::{CreditMessage, CreditViolation, N3, N23};
use heddle_seam::time::{Duration, Instant};

/// The accounts of a circuit on one hop.
#[derive(Clone, Debug)]
pub(super) struct Accounts {
    received_cells: u64,
    passed_on_cells: u64,
    n23: N23,
    adaptive: Option<AdaptiveN3>,
    /// What the other side may send, counted from the circuit's first cell. It is never taken back.
    granted_cells: u64,
    until_granted_cells: u32,
}

impl Accounts {
    pub fn new(n23: N23) -> Self {
        Accounts {
            received_cells: 0,
            passed_on_cells: 0,
            n23,
            adaptive: (n23.n3 == N3::Adaptive).then(AdaptiveN3::default),
            granted_cells: n23.queue_cells_max().into(),
            until_granted_cells: n23.period_cells(),
        }
    }

    /// Cells that came and wait.
    pub fn queued_cells(&self) -> u64 {
        self.received_cells.saturating_sub(self.passed_on_cells)
    }

    /// Counts a cell that came.
    ///
    /// # Errors
    /// There was no credit for it.
    pub fn on_received(&mut self) -> Result<(), CreditViolation> {
        if self.received_cells >= self.granted_cells {
            return Err(CreditViolation::Overrun);
        }
        self.received_cells += 1;
        Ok(())
    }

    /// Counts a cell that was passed on, or that ended here, after it waited so long for its next hop's connection.
    /// What is returned goes to the other side.
    pub fn on_passed_on(&mut self, now: Instant, waited: Duration) -> Option<CreditMessage> {
        self.passed_on_cells += 1;
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.on_waited(now, waited);
        }
        self.until_granted_cells = self.until_granted_cells.saturating_sub(1);
        (self.until_granted_cells == 0).then(|| self.grant())
    }

    /// The other side asks how much it may send. One answer for each question, of the same length.
    pub fn on_asked(&mut self) -> CreditMessage {
        self.grant()
    }

    fn grant(&mut self) -> CreditMessage {
        let n3_cells = match (&self.adaptive, self.n23.n3) {
            (Some(adaptive), _) => adaptive.cells(),
            (None, n3) => n3.most_cells(),
        };
        let ahead_cells = self.n23.period_cells() + u32::from(n3_cells);
        self.granted_cells = self.granted_cells.max(self.passed_on_cells + u64::from(ahead_cells));
        self.until_granted_cells = self.n23.period_cells();
        CreditMessage::Granted { cells: self.granted_cells }
    }
}
