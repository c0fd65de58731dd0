//! What goes through a session's TCP: relay messages, one behind the other.
//!
//! | bytes | |
//! |---|---|
//! | 1 | relay command |
//! | 2 | stream id, zero for the circuit |
//! | 2 | length of the data |
//! | length | data |
//! | rest | zeros up to the next multiple of [`UNIT_BYTES`] |

use crate::fault::Fault;
use heddle_proto::cell::Body;
use heddle_proto::cell::relay::{DATA_LEN, HEADER_LEN};
use heddle_proto::crypto::tor1::CellDigest;
use std::collections::VecDeque;

/// What a session's TCP counts, in bytes: 16 bits of window are a MiB of these, and a cell has 28.
pub(crate) const UNIT_BYTES: u16 = 16;

const HEAD_LEN: usize = 5;
/// What stands for the digest of a message's cell where one is asked for: TCP acknowledges, so that no cell's digest
/// proves anything, and it is the same at both ends.
pub const DIGEST: CellDigest = [0; 20];

/// Bytes of the longest message.
pub(crate) const MESSAGE_LEN_MAX: usize = (HEAD_LEN + DATA_LEN).next_multiple_of(UNIT_BYTES as usize);

/// Appends the message of a relay cell before it is encrypted.
pub(crate) fn append(body: &Body, out: &mut VecDeque<u8>) {
    let length = usize::from(u16::from_be_bytes([body[9], body[10]])).min(DATA_LEN);
    out.extend([body[0], body[3], body[4], body[9], body[10]]);
    out.extend(&body[HEADER_LEN..][..length]);
    let padding = padded_len(length) - HEAD_LEN - length;
    out.extend(core::iter::repeat_n(0, padding));
}

/// Moves the next message into `body`, as a relay cell that is decrypted and recognized. False when not all of it is
/// here.
pub(crate) fn take(from: &mut VecDeque<u8>, body: &mut Body) -> Result<bool, Fault> {
    let mut head = [0; HEAD_LEN];
    if from.len() < HEAD_LEN {
        return Ok(false);
    }
    head.iter_mut().zip(from.iter()).for_each(|(to, byte)| *to = *byte);
    let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
    if length > DATA_LEN {
        return Err(Fault("a message longer than a relay cell"));
    }
    let whole = padded_len(length);
    if from.len() < whole {
        return Ok(false);
    }
    body.fill(0);
    body[0] = head[0];
    body[3..5].copy_from_slice(&head[1..3]);
    body[9..HEADER_LEN].copy_from_slice(&head[3..5]);
    let data = from.drain(..whole).skip(HEAD_LEN);
    body[HEADER_LEN..][..length].iter_mut().zip(data).for_each(|(to, byte)| *to = byte);
    Ok(true)
}

fn padded_len(length: usize) -> usize {
    (HEAD_LEN + length).next_multiple_of(UNIT_BYTES.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_proto::cell::BODY_LEN;
    use heddle_proto::cell::relay::{self, RelayCommand, StreamId};
    use heddle_seam::rng::Seed;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_come_back(
            said in prop::collection::vec(
                (1u8..60, 0u16..5, prop::collection::vec(any::<u8>(), 0..=DATA_LEN)), 1..8,
            ),
        ) {
            let mut rng = Seed::from_number(1).rng();
            let mut bytes = VecDeque::new();
            for (command, stream, data) in &said {
                let mut body = [0; BODY_LEN];
                relay::write(&mut body, RelayCommand(*command), StreamId::new(*stream), data, &mut rng);
                append(&body, &mut bytes);
                prop_assert!(bytes.len().is_multiple_of(UNIT_BYTES.into()));
            }
            let mut body = [0xff; BODY_LEN];
            for (command, stream, data) in &said {
                prop_assert_eq!(take(&mut bytes, &mut body), Ok(true));
                let (header, heard) = relay::parse(&body).expect("it is no longer than a cell");
                prop_assert_eq!((header.command.0, header.stream_id), (*command, StreamId::new(*stream)));
                prop_assert_eq!(heard, &data[..]);
            }
            prop_assert_eq!(take(&mut bytes, &mut body), Ok(false));
            prop_assert!(bytes.is_empty());
        }

        #[test]
        fn any_bytes_are_taken_or_refused(bytes: Vec<u8>) {
            let mut bytes = VecDeque::from(bytes);
            let mut body = [0; BODY_LEN];
            while let Ok(true) = take(&mut bytes, &mut body) {
                prop_assert!(relay::parse(&body).is_ok());
            }
        }
    }
}
