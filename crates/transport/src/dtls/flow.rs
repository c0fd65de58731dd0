//! One flow: a circuit's cells in a TCP connection of its own, 510 bytes each, command and body.

use crate::congestion::Share;
use heddle_proto::cell::{BODY_LEN, Body, CircId, Command};
use heddle_proto::time::Instant;
use heddle_utcp::compact::FlowId;

/// Bytes of a cell on a flow: its command and its body, since the connection says which circuit it is of.
pub(super) const FLOW_CELL_LEN: usize = 1 + BODY_LEN;

/// Where a flow stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The peer opened it and its first cell has not come: the relay knows nothing of it.
    Unborn {
        due: Instant,
    },
    Open,
    /// It is over, and the relay has not been told yet. Its name stays taken so long.
    Ended,
}

/// One flow.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) circ_id: CircId,
    pub(super) id: FlowId,
    pub(super) stage: Stage,
    /// What TCP did not take of the last cell, for want of room or of memory.
    pub(super) unwritten: Vec<u8>,
    /// What TCP gave and the relay has not had, from `begin` on.
    pub(super) unread: Vec<u8>,
    pub(super) begin: usize,
    pub(super) is_held: bool,
    /// Whether it stands in the queue of readable flows.
    pub(super) is_queued: bool,
    /// Whether the relay waits to hear that it takes cells again.
    pub(super) is_blocked: bool,
    /// Cells lent in this turn.
    pub(super) turn_cells: u32,
    /// Its part in what the connection sends.
    pub(super) share: Share,
}

impl Flow {
    pub(super) fn new(circ_id: CircId, id: FlowId, stage: Stage) -> Self {
        Flow {
            circ_id,
            id,
            stage,
            unwritten: Vec::new(),
            unread: Vec::new(),
            begin: 0,
            is_held: false,
            is_queued: false,
            is_blocked: false,
            turn_cells: 0,
            share: Share::default(),
        }
    }

    /// Whether a cell of this command may come now.
    pub(super) fn takes(&self, command: Command) -> bool {
        match self.stage {
            Stage::Unborn { .. } => command == Command::CREATE2,
            _ => matches!(command, Command::CREATED2 | Command::RELAY | Command::RELAY_EARLY),
        }
    }

    pub(super) fn unread_bytes(&self) -> usize {
        self.unread.len() - self.begin
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

    /// Takes bytes behind those that are unread. What was read goes before it is more than what was not: a reader who always
    /// leaves something would let it grow without end.
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
}

/// The cell that an endpoint lends.
#[derive(Debug)]
pub(super) struct Lent([u8; FLOW_CELL_LEN]);

impl Lent {
    pub(super) fn new() -> Self {
        Lent([0; FLOW_CELL_LEN])
    }

    pub(super) fn body(&self) -> &Body {
        self.0[1..].try_into().expect("a cell of a flow is a command and a body")
    }

    /// Lends the cell that says why a circuit ended.
    pub(super) fn destroy(&mut self, reason: u8) {
        self.0 = [0; FLOW_CELL_LEN];
        (self.0[0], self.0[1]) = (Command::DESTROY.0, reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_that_is_never_worked_off_holds_no_more_than_itself() {
        let circ_id = CircId::new(1).expect("not zero");
        let mut flow = Flow::new(circ_id, FlowId { is_ours: true, port: 1 }, Stage::Open);
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
