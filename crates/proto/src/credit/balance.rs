//! What the sending side of a hop may send.

use super::{CreditViolation, HopCredit};
use heddle_seam::time::{Duration, Instant};

/// How long a side without credit waits before it asks the first time; twice as long before each further time.
const ASK_FIRST: Duration = Duration::from_secs(1);
const ASK_MOST: Duration = Duration::from_secs(16);

/// The balance of a circuit on one hop.
#[derive(Clone, Debug)]
pub struct Balance {
    /// `None`: without credit there is no bound here.
    bound: Option<Bound>,
}

#[derive(Clone, Debug)]
struct Bound {
    /// Cells that may be sent, counted from the circuit's first.
    granted_cells: u64,
    sent_cells: u64,
    /// N2 + N3 at their most.
    most_cells: u32,
    ask_at: Option<Instant>,
    ask_after: Duration,
}

impl Balance {
    /// The initial balance: N2 + N3 cells.
    pub fn new(credit: HopCredit) -> Self {
        let bound = match credit {
            HopCredit::None => None,
            HopCredit::N23(n23) => Some(Bound {
                granted_cells: n23.queue_cells_max().into(),
                sent_cells: 0,
                most_cells: n23.queue_cells_max(),
                ask_at: None,
                ask_after: ASK_FIRST,
            }),
        };
        Balance { bound }
    }

    /// Cells that may be sent now; zero until more are granted.
    pub fn room(&self) -> u32 {
        let left = |bound: &Bound| bound.granted_cells.saturating_sub(bound.sent_cells);
        self.bound.as_ref().map_or(u32::MAX, |bound| u32::try_from(left(bound)).unwrap_or(u32::MAX))
    }

    /// Counts a cell that was sent, which is only right while [`room`](Self::room) is not zero.
    pub fn on_sent(&mut self, now: Instant) {
        let Some(bound) = &mut self.bound else { return };
        bound.sent_cells += 1;
        if bound.sent_cells >= bound.granted_cells {
            bound.ask_after = ASK_FIRST;
            bound.ask_at = Some(now + ASK_FIRST);
        }
    }

    /// The other side granted so many cells since the circuit's first. Older grants than the best are no news.
    ///
    /// # Errors
    /// It granted more than the agreement has room for, or granted where none is kept.
    pub fn on_granted(&mut self, cells: u64) -> Result<(), CreditViolation> {
        let Some(bound) = &mut self.bound else { return Err(CreditViolation::Boundless) };
        // It cannot have passed on more than was sent.
        if cells > bound.sent_cells.saturating_add(bound.most_cells.into()) {
            return Err(CreditViolation::Boundless);
        }
        if cells > bound.sent_cells {
            bound.ask_at = None;
        }
        bound.granted_cells = bound.granted_cells.max(cells);
        Ok(())
    }

    /// When to ask for credit.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.bound.as_ref()?.ask_at
    }

    /// True when the time has come to ask, because a grant may have been lost.
    pub fn take_ask(&mut self, now: Instant) -> bool {
        let Some(bound) = &mut self.bound else { return false };
        let due = bound.ask_at.is_some_and(|at| at <= now);
        if due {
            bound.ask_after = (bound.ask_after * 2).min(ASK_MOST);
            bound.ask_at = Some(now + bound.ask_after);
        }
        due
    }
}
