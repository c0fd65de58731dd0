//! What the receiving side of a hop has taken, passed on and granted.

use super::adaptive::AdaptiveN3;
use super::{CreditMessage, CreditViolation, HopCredit, N3, N23};
use heddle_seam::time::{Duration, Instant};

/// The accounts of a circuit on one hop.
#[derive(Clone, Debug)]
pub struct Accounts {
    received_cells: u64,
    passed_on_cells: u64,
    /// `None`: whatever comes is taken.
    bound: Option<Bound>,
}

#[derive(Clone, Debug)]
struct Bound {
    n23: N23,
    adaptive: Option<AdaptiveN3>,
    /// What the other side may send, counted from the circuit's first cell. It is never taken back.
    granted_cells: u64,
    until_granted_cells: u32,
}

impl Bound {
    /// N3 as it is now.
    fn n3_cells(&self) -> u16 {
        match (&self.adaptive, self.n23.n3) {
            (Some(adaptive), _) => adaptive.cells(),
            (None, n3) => n3.most_cells(),
        }
    }

    fn grant(&mut self, passed_on_cells: u64) -> CreditMessage {
        let ahead_cells = self.n23.period_cells() + u32::from(self.n3_cells());
        self.granted_cells = self.granted_cells.max(passed_on_cells + u64::from(ahead_cells));
        self.until_granted_cells = self.n23.period_cells();
        CreditMessage::Granted { cells: self.granted_cells }
    }
}

impl Accounts {
    pub fn new(credit: HopCredit) -> Self {
        let bound = match credit {
            HopCredit::None => None,
            HopCredit::N23(n23) => Some(Bound {
                n23,
                adaptive: (n23.n3 == N3::Adaptive).then(AdaptiveN3::default),
                granted_cells: n23.queue_cells_max().into(),
                until_granted_cells: n23.period_cells(),
            }),
        };
        Accounts { received_cells: 0, passed_on_cells: 0, bound }
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
        if self.bound.as_ref().is_some_and(|bound| self.received_cells >= bound.granted_cells) {
            return Err(CreditViolation::Overrun);
        }
        self.received_cells += 1;
        Ok(())
    }

    /// Counts a cell that was passed on, or that ended here, after it waited so long for its next hop's connection.
    /// What is returned goes to the other side.
    pub fn on_passed_on(&mut self, now: Instant, waited: Duration) -> Option<CreditMessage> {
        self.passed_on_cells += 1;
        let bound = self.bound.as_mut()?;
        if let Some(adaptive) = &mut bound.adaptive {
            adaptive.on_waited(now, waited);
        }
        bound.until_granted_cells = bound.until_granted_cells.saturating_sub(1);
        (bound.until_granted_cells == 0).then(|| bound.grant(self.passed_on_cells))
    }

    /// The other side asks how much it may send. One answer for each question, of the same length.
    pub fn on_asked(&mut self) -> Option<CreditMessage> {
        let passed_on_cells = self.passed_on_cells;
        self.bound.as_mut().map(|bound| bound.grant(passed_on_cells))
    }

    /// N3 as it is now, for metrics.
    pub fn n3_cells(&self) -> Option<u16> {
        self.bound.as_ref().map(Bound::n3_cells)
    }
}
