//! One flow: a circuit's cells in a TCP connection of its own, 510 bytes each, command and body.

use crate::connections::circuits::{FLOW_CELL_LEN, Lent};
use heddle_proto::cell::Command;
use heddle_seam::time::Instant;

/// Room that a flow keeps for the rest of a cell: most datagrams end within one, and the next brings more.
const REST_BYTES_MAX: usize = 8 * FLOW_CELL_LEN;

/// One flow.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// What TCP did not take of the last cell, for want of room or of memory.
    pub(super) unwritten: Vec<u8>,
    /// What TCP gave and the relay has not had, from `begin` on.
    pub(super) unread: Vec<u8>,
    begin: usize,
    /// When the relay last took a cell of it, or when it began: since then it has been idle, if it holds nothing.
    pub(super) moved_at: Instant,
    /// Whether the relay waits to hear that it takes cells again.
    pub(super) is_blocked: bool,
}

impl Flow {
    pub(super) fn new(now: Instant) -> Self {
        Flow { moved_at: now, ..Flow::default() }
    }

    pub(super) fn unread_bytes(&self) -> usize {
        self.unread.len() - self.begin
    }

    /// What these take, with room for more.
    pub(super) fn kept_bytes(&self) -> usize {
        self.unread.capacity()
    }

    /// Moves the next cell into `lent`, if all of it is here.
    pub(super) fn next_cell(&mut self, lent: &mut Lent) -> Option<Command> {
        let cell = self.unread.get(self.begin..self.begin + FLOW_CELL_LEN)?;
        lent.0.copy_from_slice(cell);
        self.begin += FLOW_CELL_LEN;
        if self.begin == self.unread.len() {
            self.unread.clear();
            self.begin = 0;
        }
        Some(Command(lent.0[0]))
    }

    /// Takes bytes behind those that are unread. What was read goes before it is more than what was not: a reader who
    /// always leaves something would let it grow without end.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        if self.begin > self.unread.len() / 2 {
            self.compact();
        }
        self.unread.extend_from_slice(bytes);
    }

    /// Makes room before more is appended.
    pub(super) fn compact(&mut self) {
        self.unread.drain(..self.begin);
        self.begin = 0;
    }

    /// Gives back room that a burst took, when less than a cell is left of it.
    pub(super) fn shrink(&mut self) {
        if self.unread.is_empty() {
            self.unread = Vec::new();
        } else if self.unread.capacity() > REST_BYTES_MAX {
            self.compact();
            self.unread.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_that_is_never_worked_off_holds_no_more_than_itself() {
        let mut flow = Flow::default();
        let mut lent = Lent::new();
        let cell = |number: usize| [number as u8; FLOW_CELL_LEN];
        (0..3).for_each(|number| flow.append(&cell(number)));
        for number in 3..10_000 {
            flow.append(&cell(number));
            assert_eq!(flow.next_cell(&mut lent), Some(Command((number - 3) as u8)));
            assert_eq!(flow.unread_bytes(), 3 * FLOW_CELL_LEN);
            assert!(flow.unread.len() <= 8 * FLOW_CELL_LEN, "{}", flow.unread.len());
        }
    }
}
