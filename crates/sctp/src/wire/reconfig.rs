//! RE-CONFIG (RFC 6525): the numbers of a stream's messages begin anew.
//!
//! ```text
//!   13  outgoing request   its number (4)   number of the request it answers (4)   last TSN (4)   streams (2 each)
//!   16  answer             number of the request (4)   result (4)
//! ```

use super::{Chunk, field, parameter, split_parameter};

const OUTGOING: u16 = 13;
const INCOMING: u16 = 14;
const ALL: u16 = 15;
const ADD_OUTGOING: u16 = 17;
const ADD_INCOMING: u16 = 18;
const ANSWER: u16 = 16;

/// Bytes of a request without streams and of an answer, with the chunk's head.
pub(crate) const REQUEST_LEN: usize = 4 + 16;
pub(crate) const ANSWER_LEN: usize = 4 + 12;

/// What an answer says (RFC 6525, section 4.4).
pub(crate) mod result {
    pub(crate) const PERFORMED: u32 = 1;
    pub(crate) const DENIED: u32 = 2;
    pub(crate) const BAD_NUMBER: u32 = 5;
    pub(crate) const IN_PROGRESS: u32 = 6;
}

/// A parameter of such a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconfig<'a> {
    /// The sender's messages on these streams, of two bytes each, begin anew after this TSN; on all if there are none.
    Outgoing {
        number: u32,
        last_tsn: u32,
        streams: &'a [u8],
    },
    /// Some other request.
    Other {
        number: u32,
    },
    Answer {
        number: u32,
        result: u32,
    },
}

/// The parameters of a chunk: two at most, as RFC 6525 permits. What is not understood is passed over.
pub fn parse<'a>(chunk: &Chunk<'a>) -> impl Iterator<Item = Reconfig<'a>> + use<'a> {
    let mut rest = chunk.value;
    let parameters = core::iter::from_fn(move || {
        let (kind, value, after) = split_parameter(rest)?;
        rest = after;
        Some((kind, value))
    });
    parameters.take(2).filter_map(|(kind, value)| {
        let number = field(value, 0)?;
        match kind {
            OUTGOING => {
                let streams = value.get(12..)?;
                Some(Reconfig::Outgoing { number, last_tsn: field(value, 8)?, streams })
            }
            INCOMING | ALL | ADD_OUTGOING | ADD_INCOMING => Some(Reconfig::Other { number }),
            ANSWER => Some(Reconfig::Answer { number, result: field(value, 4)? }),
            _ => None,
        }
    })
}

/// Appends a request for these streams.
pub fn write_request(number: u32, answered: u32, last_tsn: u32, streams: &[u16], out: &mut Vec<u8>) {
    let mut value = Vec::with_capacity(12 + 2 * streams.len());
    for field in [number, answered, last_tsn] {
        value.extend_from_slice(&field.to_be_bytes());
    }
    for stream in streams {
        value.extend_from_slice(&stream.to_be_bytes());
    }
    parameter(OUTGOING, &value, out);
}

/// Appends an answer.
pub fn write_answer(number: u32, result: u32, out: &mut Vec<u8>) {
    let mut value = [0; 8];
    value[..4].copy_from_slice(&number.to_be_bytes());
    value[4..].copy_from_slice(&result.to_be_bytes());
    parameter(ANSWER, &value, out);
}
