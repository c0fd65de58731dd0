//! A cell on a connection that circuits share.
//!
//! ```text
//!   number (4)   command (1)   body (509)
//! ```
//!
//! Whoever opens a circuit numbers it, from 1 on; the highest bit of a number is set if that was the dialler. Command 0
//! says that what follows of the circuit comes on another connection, whose place is the first byte of the body. With
//! the number 0 it opens a connection, and that byte says how many the dialler opens.

use crate::connections::circuits::FLOW_CELL_LEN;
use heddle_proto::cell::{Body, Command};
use heddle_proto::channel::Role;

/// Bytes of a frame.
pub(super) const FRAME_LEN: usize = 4 + FLOW_CELL_LEN;

/// What sequence numbers count: half a frame.
pub(super) const UNIT_BYTES: u16 = 257;
const _: () = assert!(FRAME_LEN == 2 * UNIT_BYTES as usize);

pub(super) type Frame = [u8; FRAME_LEN];

/// What follows comes on another connection.
pub(super) const MOVED: Command = Command(0);

const DIALLERS: u32 = 1 << 31;

/// What a circuit is called by both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Number(u32);

impl Number {
    /// The circuit that was opened as this one by whoever has this role in the session.
    pub(super) fn new(opener: Role, count: u32) -> Option<Number> {
        let bit = if opener == Role::Initiator { DIALLERS } else { 0 };
        (1..DIALLERS).contains(&count).then_some(Number(bit | count))
    }

    pub(super) fn opener(self) -> Role {
        if self.0 & DIALLERS == 0 { Role::Responder } else { Role::Initiator }
    }

    /// How many its opener had opened with it.
    pub(super) fn count(self) -> u32 {
        self.0 & !DIALLERS
    }
}

pub(super) fn frame(number: Number, command: Command, body: &Body) -> Frame {
    let mut frame = head(number, command);
    frame[5..].copy_from_slice(body);
    frame
}

/// A frame whose body begins with this and has nothing else.
pub(super) fn short_frame(number: Number, command: Command, first: u8) -> Frame {
    let mut frame = head(number, command);
    frame[5] = first;
    frame
}

/// Opens one of so many connections.
pub(super) fn hello(connections: usize) -> Frame {
    let mut frame = [0; FRAME_LEN];
    frame[5] = u8::try_from(connections).unwrap_or(u8::MAX);
    frame
}

fn head(number: Number, command: Command) -> Frame {
    let mut frame = [0; FRAME_LEN];
    frame[..4].copy_from_slice(&number.0.to_be_bytes());
    frame[4] = command.0;
    frame
}

/// The circuit that a frame is of; `None` where it is of none.
pub(super) fn number(frame: &Frame) -> Option<Number> {
    let number = Number(u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]));
    (number.count() > 0).then_some(number)
}

/// Its command, the first byte of its body, and both of them whole.
pub(super) fn contents(frame: &Frame) -> (Command, u8, &[u8]) {
    (Command(frame[4]), frame[5], &frame[4..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_tells_what_it_was_made_of() {
        let body = core::array::from_fn(|at| at as u8);
        for (opener, count) in [(Role::Initiator, 1), (Role::Responder, DIALLERS - 1)] {
            let circuit = Number::new(opener, count).unwrap();
            assert_eq!((circuit.opener(), circuit.count()), (opener, count));
            let made = frame(circuit, Command::RELAY, &body);
            assert_eq!(number(&made), Some(circuit));
            let (command, first, cell) = contents(&made);
            assert_eq!((command, first, cell.len()), (Command::RELAY, body[0], FLOW_CELL_LEN));
            assert_eq!(&cell[1..], body);
            assert_eq!(contents(&short_frame(circuit, MOVED, 3)).1, 3);
        }
        assert_eq!(Number::new(Role::Initiator, 0), None);
        assert_eq!(Number::new(Role::Initiator, DIALLERS), None);
        assert_eq!((number(&hello(4)), contents(&hello(4)).1), (None, 4));
    }
}
