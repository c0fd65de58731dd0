//! One flow: a circuit's cells on a socket of their own, behind the number by which its opener names it.

use crate::connections::circuits::{FLOW_CELL_LEN, Lent};
use heddle_proto::cell::Command;
use heddle_seam::time::Instant;

/// Bytes that are kept of a flow for the relay before its socket is read no more; one read comes on top.
const UNREAD_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a flow's number, which are the first ones on its socket.
pub(super) const NUMBER_LEN: usize = 4;
/// Room that a flow keeps for the rest of a cell.
const REST_BYTES_MAX: usize = 8 * FLOW_CELL_LEN;

#[derive(Debug)]
pub(super) struct Flow {
    /// Its opener's name for it, once it is known.
    pub(super) number: Option<u32>,
    /// What the driver lets be written.
    pub(super) credit: usize,
    /// What it did not let be written of the last cell.
    pub(super) unwritten: Vec<u8>,
    /// Bytes of memory that the stack keeps of it, as the driver said last.
    pub(super) stack_bytes: usize,
    unread: Vec<u8>,
    /// Where what the relay has not had begins.
    begin: usize,
    /// When the relay last took a cell of it, or when it began: since then it has been idle, if it holds nothing.
    pub(super) moved_at: Instant,
    /// Whether the relay waits to hear that it takes cells again.
    pub(super) is_blocked: bool,
    /// When it ends at the latest, because its socket is gone and only the reason is still waited for.
    pub(super) ends_at: Option<Instant>,
    /// What the driver was told last: whether to read and to grant.
    pub(super) interest: (bool, bool),
}

impl Flow {
    pub(super) fn new(now: Instant, number: Option<u32>) -> Self {
        Flow {
            number,
            credit: 0,
            unwritten: Vec::new(),
            stack_bytes: 0,
            unread: Vec::new(),
            begin: 0,
            moved_at: now,
            is_blocked: false,
            ends_at: None,
            interest: (false, false),
        }
    }

    /// Bytes that it and its socket hold, with room for more.
    pub(super) fn kept_bytes(&self) -> usize {
        self.unread.capacity() + self.unwritten.capacity() + self.stack_bytes
    }

    /// Takes bytes that were read. Gives the flow's number, if that is known from now on.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Option<u32> {
        if self.begin > self.unread.len() / 2 {
            self.unread.drain(..self.begin);
            self.begin = 0;
        }
        self.unread.extend_from_slice(bytes);
        if self.number.is_some() {
            return None;
        }
        let number = u32::from_be_bytes(*self.unread.first_chunk::<NUMBER_LEN>()?);
        self.begin = NUMBER_LEN;
        self.number = Some(number);
        self.number
    }

    /// Whether its socket is to be read.
    pub(super) fn has_room(&self) -> bool {
        self.unread.len() - self.begin < UNREAD_BYTES_MAX
    }

    /// Moves the next cell into `lent`, if all of it is here.
    pub(super) fn next_cell(&mut self, lent: &mut Lent) -> Option<Command> {
        self.number?;
        let cell = self.unread.get(self.begin..self.begin + FLOW_CELL_LEN)?;
        lent.0.copy_from_slice(cell);
        self.begin += FLOW_CELL_LEN;
        Some(Command(lent.0[0]))
    }

    /// Gives back room that a burst took, when less than a cell is left of it.
    pub(super) fn shrink(&mut self) {
        if self.number.is_none() {
            return;
        }
        self.unread.drain(..self.begin);
        self.begin = 0;
        if self.unread.is_empty() {
            self.unread = Vec::new();
        } else if self.unread.capacity() > REST_BYTES_MAX {
            self.unread.shrink_to_fit();
        }
    }

    /// Nothing that it holds is wanted any more.
    pub(super) fn clear(&mut self) {
        (self.unread, self.unwritten, self.begin) = (Vec::new(), Vec::new(), 0);
        self.stack_bytes = 0;
    }
}
