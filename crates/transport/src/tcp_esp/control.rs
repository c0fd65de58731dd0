//! What the two ends say to each other beside cells.
//!
//! Messages of the control stream, a TCP connection inside that the dialler opens:
//!
//! ```text
//!   PROOF  01  proof (100)                                    the first one each way
//!   END    02  whose (1)  number (4)  reason (1)
//!   ROOM   03  flows (4)
//! ```
//!
//! - The proof is that of `proof.rs`; in it the sides stand by the keys of their offers, and the connection by what its
//!   secrets say it is.
//! - END says that a flow was reset, and why: 0 is a flow that the reader opened, 1 one that the writer did. The reset
//!   itself, which may overtake it or be lost, says no reason.
//! - ROOM says anew how many flows the reader may have open, zero while the writer is out of sockets. Those that are
//!   open stay.
//!
//! Packets of ESP whose next header is 253 (for experiments: RFC 3692):
//!
//! ```text
//!   PING   01  number (4)
//!   PONG   02  number (4)
//!   CLOSE  03
//! ```

use crate::connections::proof::{self, Proof, Proofs};

/// The next header of messages in packets.
pub(super) const MESSAGE: u8 = 253;

const PROOF: u8 = 1;
const END: u8 = 2;
const ROOM: u8 = 3;
const PING: u8 = 1;
const PONG: u8 = 2;
const CLOSE: u8 = 3;

const PROOF_LEN: usize = 1 + proof::PROOF_LEN;
/// Bytes of an END.
pub(super) const END_LEN: usize = 7;
const ROOM_LEN: usize = 5;

/// A message of the control stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control<'a> {
    Proof(Proof<'a>),
    End { is_readers: bool, number: u32, reason: u8 },
    Room { flows_max: u32 },
}

/// No peer says this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nonsense;

/// The first message and its length; `None` while it is not all here.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Control<'_>, usize)>, Nonsense> {
    let len = match bytes.first() {
        None => return Ok(None),
        Some(&PROOF) => PROOF_LEN,
        Some(&END) => END_LEN,
        Some(&ROOM) => ROOM_LEN,
        Some(_) => return Err(Nonsense),
    };
    let Some(message) = bytes.get(1..len) else { return Ok(None) };
    let control = match bytes[0] {
        PROOF => Proof::split(message).map(|(proof, _)| Control::Proof(proof)),
        END => end(message),
        _ => message.try_into().ok().map(|max| Control::Room { flows_max: u32::from_be_bytes(max) }),
    };
    control.map(|control| Some((control, len))).ok_or(Nonsense)
}

fn end(message: &[u8]) -> Option<Control<'_>> {
    let (&[whose], rest) = message.split_first_chunk()?;
    let (number, reason) = rest.split_first_chunk()?;
    let is_readers = match whose {
        0 => true,
        1 => false,
        _ => return None,
    };
    Some(Control::End { is_readers, number: u32::from_be_bytes(*number), reason: *reason.first()? })
}

/// Our proof, as the first message. The peer shows nothing but the key of its offer.
pub(super) fn write_proof(proofs: &Proofs, flows_max: u32, out: &mut Vec<u8>) {
    out.push(PROOF);
    proofs.write(&proofs.peer_key, flows_max, out);
}

/// Whether a proof is the peer's.
pub(super) fn is_right(proofs: &Proofs, proof: &Proof<'_>) -> bool {
    proofs.is_right(&proofs.peer_key, proof)
}

pub(super) fn write_end(is_ours: bool, number: u32, reason: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(&[END, u8::from(is_ours)]);
    out.extend_from_slice(&number.to_be_bytes());
    out.push(reason);
}

pub(super) fn write_room(flows_max: u32, out: &mut Vec<u8>) {
    out.push(ROOM);
    out.extend_from_slice(&flows_max.to_be_bytes());
}

/// A message in a packet of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Ping(u32),
    Pong(u32),
    Close,
}

impl Message {
    /// `None` for what no peer says.
    pub(super) fn parse(payload: &[u8]) -> Option<Self> {
        let (&kind, rest) = payload.split_first()?;
        let number = || rest.try_into().ok().map(u32::from_be_bytes);
        match kind {
            PING => number().map(Message::Ping),
            PONG => number().map(Message::Pong),
            CLOSE if rest.is_empty() => Some(Message::Close),
            _ => None,
        }
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        let (kind, number) = match self {
            Message::Ping(number) => (PING, Some(number)),
            Message::Pong(number) => (PONG, Some(number)),
            Message::Close => (CLOSE, None),
        };
        let number = number.map(u32::to_be_bytes);
        [&[kind][..], number.as_ref().map_or(&[], |number| &number[..])].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_nonsense_does_not() {
        let mut bytes = Vec::new();
        write_end(true, 77, 5, &mut bytes);
        let end = Control::End { is_readers: false, number: 77, reason: 5 };
        assert_eq!(parse(&bytes), Ok(Some((end, END_LEN))));
        assert!((0..END_LEN).all(|len| parse(&bytes[..len]) == Ok(None)));
        bytes[1] = 2;
        assert_eq!((parse(&bytes), parse(&[9])), (Err(Nonsense), Err(Nonsense)));
        for message in [Message::Ping(5), Message::Pong(u32::MAX), Message::Close] {
            let bytes = message.to_bytes();
            assert_eq!(Message::parse(&bytes), Some(message));
            assert_eq!(Message::parse(&[&bytes[..], &[0]].concat()), None);
            assert_eq!(Message::parse(&bytes[..bytes.len() - 1]), None);
        }
    }
}
