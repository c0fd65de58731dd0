//! DATA (RFC 9260, section 3.3.1) and I-DATA (RFC 8260, section 2.1): a fragment of a message.
//!
//! ```text
//!   DATA     TSN (4)   stream (2)   SSN (2)        PPID (4)                                bytes
//!   I-DATA   TSN (4)   stream (2)   zeros (2)      MID (4)   PPID or, but first, FSN (4)   bytes
//! ```

use super::{CHUNK_HEAD_LEN, Chunk, Malformed, Writer, field, half, kind, padded};

const END: u8 = 1;
const BEGIN: u8 = 2;
const UNORDERED: u8 = 4;
const IMMEDIATE: u8 = 8;

/// Bytes before the payload, with the chunk's head.
pub(crate) const DATA_HEAD_LEN: usize = CHUNK_HEAD_LEN + 12;
pub const I_DATA_HEAD_LEN: usize = CHUNK_HEAD_LEN + 16;

/// What is said of a fragment, but for its TSN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragment {
    pub stream: u16,
    /// The message on its stream: its SSN in DATA, its MID in I-DATA.
    pub message: u32,
    /// Its place in the message, in I-DATA alone; the first has 0.
    pub number: u32,
    /// What the payload is, which nobody but the users knows; with the first fragment of a message alone in I-DATA.
    pub ppid: u32,
    pub is_begin: bool,
    pub is_end: bool,
    pub is_unordered: bool,
    /// An acknowledgement is wanted at once (RFC 7053).
    pub is_immediate: bool,
}

/// A fragment with its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    pub tsn: u32,
    pub fragment: Fragment,
    pub payload: &'a [u8],
}

/// Bytes that a fragment's chunk takes.
pub(crate) const fn chunk_len(is_interleaved: bool, payload: usize) -> usize {
    padded(head_len(is_interleaved) + payload)
}

pub(crate) const fn head_len(is_interleaved: bool) -> usize {
    if is_interleaved { I_DATA_HEAD_LEN } else { DATA_HEAD_LEN }
}

/// Reads a chunk of either kind.
///
/// # Errors
///
/// When it is cut off, or has no payload.
pub fn parse<'a>(chunk: &Chunk<'a>) -> Result<Data<'a>, Malformed> {
    let is_interleaved = chunk.kind == kind::I_DATA;
    let short = Malformed("a fragment is cut off");
    let number = |at| field(chunk.value, at).ok_or(short);
    let stream = half(chunk.value, 4).ok_or(short)?;
    let is_begin = chunk.flags & BEGIN != 0;
    let (message, number, ppid) = if is_interleaved {
        let last = number(12)?;
        (number(8)?, if is_begin { 0 } else { last }, if is_begin { last } else { 0 })
    } else {
        (half(chunk.value, 6).ok_or(short)?.into(), 0, number(8)?)
    };
    let tsn = field(chunk.value, 0).ok_or(short)?;
    let payload = chunk.value.get(head_len(is_interleaved) - CHUNK_HEAD_LEN..).unwrap_or(&[]);
    if payload.is_empty() {
        return Err(Malformed("a fragment of nothing"));
    }
    let fragment = Fragment {
        stream,
        message,
        number,
        ppid,
        is_begin,
        is_end: chunk.flags & END != 0,
        is_unordered: chunk.flags & UNORDERED != 0,
        is_immediate: chunk.flags & IMMEDIATE != 0,
    };
    Ok(Data { tsn, fragment, payload })
}

/// Appends a chunk of the kind that is asked for.
pub fn write(writer: &mut Writer<'_>, is_interleaved: bool, data: &Data<'_>) {
    let fragment = &data.fragment;
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let flags = flag(fragment.is_end, END)
        | flag(fragment.is_begin, BEGIN)
        | flag(fragment.is_unordered, UNORDERED)
        | flag(fragment.is_immediate, IMMEDIATE);
    let kind = if is_interleaved { kind::I_DATA } else { kind::DATA };
    writer.chunk(kind, flags, |out| {
        out.extend_from_slice(&data.tsn.to_be_bytes());
        out.extend_from_slice(&fragment.stream.to_be_bytes());
        if is_interleaved {
            out.extend_from_slice(&[0; 2]);
            out.extend_from_slice(&fragment.message.to_be_bytes());
            let last = if fragment.is_begin { fragment.ppid } else { fragment.number };
            out.extend_from_slice(&last.to_be_bytes());
        } else {
            out.extend_from_slice(&(fragment.message as u16).to_be_bytes());
            out.extend_from_slice(&fragment.ppid.to_be_bytes());
        }
        out.extend_from_slice(data.payload);
    });
}
