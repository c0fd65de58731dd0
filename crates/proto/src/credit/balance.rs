//! What the sending side of a hop may send.

use super::{CreditViolation, N23};
use heddle_seam::time::{Duration, Instant};

/// How long a side without credit waits before it asks the first time; twice as long before each further time.
const ASK_FIRST: Duration = Duration::from_secs(1);
const ASK_MOST: Duration = Duration::from_secs(16);

/// The balance of a circuit on one hop.
#[derive(Clone, Debug)]
pub(super) struct Balance {
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
    pub fn new(n23: N23) -> Self {
        Balance {
            granted_cells: n23.queue_cells_max().into(),
            sent_cells: 0,
            most_cells: n23.queue_cells_max(),
            ask_at: None,
            ask_after: ASK_FIRST,
        }
    }

    /// Cells that may be sent now; zero until more are granted.
    pub fn room(&self) -> u32 {
        u32::try_from(self.granted_cells.saturating_sub(self.sent_cells)).unwrap_or(u32::MAX)
    }

    /// Counts a cell that was sent, which is only right while [`room`](Self::room) is not zero.
    pub fn on_sent(&mut self, now: Instant) {
        self.sent_cells += 1;
        if self.sent_cells >= self.granted_cells {
            self.ask_after = ASK_FIRST;
            self.ask_at = Some(now + ASK_FIRST);
        }
    }

    /// The other side granted so many cells since the circuit's first. Older grants than the best are no news.
    ///
    /// # Errors
    /// It granted more than the agreement has room for.
    pub fn on_granted(&mut self, cells: u64) -> Result<(), CreditViolation> {
        // It cannot have passed on more than was sent.
        if cells > self.sent_cells.saturating_add(self.most_cells.into()) {
            return Err(CreditViolation::Boundless);
        }
        if cells > self.sent_cells {
            self.ask_at = None;
        }
        self.granted_cells = self.granted_cells.max(cells);
        Ok(())
    }

    /// True when the time has come to ask, because a grant may have been lost.
    pub fn take_ask(&mut self, now: Instant) -> bool {
        let due = self.ask_at.is_some_and(|at| at <= now);
        if due {
            self.ask_after = (self.ask_after * 2).min(ASK_MOST);
            self.ask_at = Some(now + self.ask_after);
        }
        due
    }
}
