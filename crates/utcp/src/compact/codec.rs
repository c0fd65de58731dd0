//! Segments as bytes.

use crate::segment::{Flags, Header, Range, SACK_BLOCKS_MAX, SEQUENCE_BASE, SynOptions};
use core::fmt;

/// What a segment takes beside its payload and SACK blocks.
pub const HEADER_BYTES: usize = 13;
/// What a SACK block takes.
pub(crate) const SACK_BLOCK_BYTES: usize = 6;
/// What a reset takes. The answer to one takes as much as an acknowledgement.
pub(crate) const RESET_BYTES: usize = 5;
/// What begins padding.
pub const PADDING: u8 = 1;
/// The most SACK blocks in a segment.
const BLOCKS_MAX: usize = 3;
/// The longest payload, in units.
pub(super) const PAYLOAD_UNITS_MAX: usize = 63;
/// The first byte of a flow, in either direction, as connections count: their initial numbers are all zero.
pub(super) const FIRST: u64 = SEQUENCE_BASE + 1;
/// The highest port id.
pub(super) const PORT_MAX: u32 = (1 << 24) - 1;

const C: u8 = 1 << 7;
const S: u8 = 1 << 6;
const F: u8 = 1 << 5;
const R: u8 = 1 << 4;
const X: u8 = 1 << 3;
const Q: u8 = 1 << 2;
const N: u8 = 1 << 1;

/// A datagram that no honest peer sends. What came before in it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

/// A segment as read, before the numbers are made long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    /// Whether the sender chose the port id.
    pub is_connector: bool,
    pub port: u32,
    pub kind: Kind<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    /// The flow is over, or the peer has heard that it is.
    Reset {
        is_answer: bool,
        code: u8,
    },
    Segment(Body<'a>),
}

/// A segment's numbers as they stand on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Body<'a> {
    bits: u8,
    seq: u32,
    ack: u32,
    window: u16,
    blocks: [(u32, u32); BLOCKS_MAX],
    blocks_count: usize,
    pub payload: &'a [u8],
}

impl Body<'_> {
    /// Whether it opens a flow that the sender chose.
    pub(super) fn is_opening(&self) -> bool {
        self.bits & (C | S) == C | S
    }

    /// The header that a connection understands, near what it [expects](crate::Connection::expected).
    pub(super) fn expand(&self, expected: (u64, u64), unit: u64, mss_bytes: u16) -> Header {
        let bit = |mask: u8| self.bits & mask != 0;
        let (their_next, our_una) = expected;
        let syn = bit(S);
        let mut seq = expand(their_next, self.seq, unit);
        if syn {
            seq = SEQUENCE_BASE;
        } else if bit(Q) {
            seq = seq + unit - 1;
        } else if bit(N) {
            seq += 1;
        }
        let ack = expand(our_una, self.ack, unit) + u64::from(bit(X));
        let blocks = self.blocks[..self.blocks_count].iter();
        Header {
            seq,
            ack: (!self.is_opening()).then_some(ack),
            // Whether the flow heeds marks is not asked for on the wire.
            flags: Flags { syn, fin: bit(F), ece: syn, cwr: self.is_opening(), ..Flags::default() },
            window_bytes: u32::try_from(u64::from(self.window) * unit).unwrap_or(u32::MAX),
            sack: blocks
                .map(|(start, end)| Range::new(expand(our_una, *start, unit), expand(our_una, *end, unit)))
                .collect(),
            timestamps: None,
            syn: syn.then_some(SynOptions {
                mss_bytes: Some(mss_bytes),
                window_shift: Some(0),
                sack_permitted: true,
            }),
        }
    }
}

/// The number of a byte whose unit ends in these 24 bits and lies closest to `near`.
fn expand(near: u64, low: u32, unit: u64) -> u64 {
    let near_units = near.saturating_sub(FIRST) / unit;
    let ahead = (low.wrapping_sub(near_units as u32) << 8) as i32 >> 8;
    let units = near_units as i64 + i64::from(ahead);
    // Below the first byte there is only the question about it, which stands one unit below.
    FIRST.wrapping_add_signed(units.max(-1) * unit as i64)
}

/// Reads the first segment of `datagram` and gives it with what is left.
pub(super) fn parse(datagram: &[u8], unit: usize) -> Result<(Frame<'_>, &[u8]), Malformed> {
    let (head, rest) = datagram.split_first_chunk::<5>().ok_or(Malformed("a segment is cut short"))?;
    let bits = head[0];
    let port = u32::from_be_bytes([0, head[1], head[2], head[3]]);
    let is_connector = bits & C != 0;
    if bits & (R | X) == R {
        let kind = Kind::Reset { is_answer: false, code: head[4] };
        return Ok((Frame { is_connector, port, kind }, rest));
    }
    let cut = Malformed("a segment is cut short");
    let (fixed, rest) = datagram.split_first_chunk::<HEADER_BYTES>().ok_or(cut)?;
    if bits & R != 0 {
        let kind = Kind::Reset { is_answer: true, code: head[4] };
        return Ok((Frame { is_connector, port, kind }, rest));
    }
    let number = |bytes: &[u8]| u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]);
    let blocks_count = usize::from(fixed[12] >> 6);
    let (blocks_bytes, rest) = rest.split_at_checked(blocks_count * SACK_BLOCK_BYTES).ok_or(cut)?;
    let mut blocks = [(0, 0); BLOCKS_MAX];
    for (slot, block) in blocks.iter_mut().zip(blocks_bytes.chunks_exact(SACK_BLOCK_BYTES)) {
        *slot = (number(&block[..3]), number(&block[3..]));
    }
    let length = usize::from(fixed[12] & 63) * unit;
    let (payload, rest) = rest.split_at_checked(length).ok_or(cut)?;
    let body = Body {
        bits,
        seq: number(&fixed[4..7]),
        ack: number(&fixed[7..10]),
        window: u16::from_be_bytes([fixed[10], fixed[11]]),
        blocks,
        blocks_count,
        payload,
    };
    Ok((Frame { is_connector, port, kind: Kind::Segment(body) }, rest))
}

/// Whether a segment that was written carries payload.
pub(super) fn has_payload(segment: &[u8]) -> bool {
    segment.get(HEADER_BYTES - 1).is_some_and(|counts| counts & 63 > 0)
}

/// Appends a segment of a connection. `payload` is whole units.
pub(super) fn emit(
    is_connector: bool,
    port: u32,
    header: &Header,
    unit: u64,
    payload: &[u8],
    out: &mut Vec<u8>,
) {
    let begins = header.payload_seq();
    let (seq, beyond) = units(begins, unit);
    let (ack, past_fin) = header.ack.map_or((0, 0), |ack| units(ack, unit));
    let mut bits = 0;
    for (mask, is_set) in [
        (C, is_connector),
        (S, header.flags.syn),
        (F, header.flags.fin),
        (X, past_fin == 1),
        (Q, beyond == unit - 1),
        (N, beyond == 1),
    ] {
        bits |= if is_set { mask } else { 0 };
    }
    let blocks = &header.sack.as_slice()[..header.sack.as_slice().len().min(BLOCKS_MAX)];
    let window = u16::try_from(u64::from(header.window_bytes) / unit).unwrap_or(u16::MAX);
    let length = payload.len() / unit as usize;
    debug_assert!(length <= PAYLOAD_UNITS_MAX && payload.len().is_multiple_of(unit as usize));
    out.push(bits);
    out.extend_from_slice(&port.to_be_bytes()[1..]);
    out.extend_from_slice(&seq.to_be_bytes()[1..]);
    out.extend_from_slice(&ack.to_be_bytes()[1..]);
    out.extend_from_slice(&window.to_be_bytes());
    out.push((blocks.len() as u8) << 6 | length as u8);
    for block in blocks {
        out.extend_from_slice(&units(block.start, unit).0.to_be_bytes()[1..]);
        out.extend_from_slice(&units(block.end, unit).0.to_be_bytes()[1..]);
    }
    out.extend_from_slice(payload);
}

/// Appends a reset.
pub(super) fn emit_reset(is_connector: bool, port: u32, code: u8, out: &mut Vec<u8>) {
    out.push(R | if is_connector { C } else { 0 });
    out.extend_from_slice(&port.to_be_bytes()[1..]);
    out.push(code);
}

/// Appends the answer to a reset.
pub(super) fn emit_answer(is_connector: bool, port: u32, out: &mut Vec<u8>) {
    let end = out.len() + HEADER_BYTES;
    out.push(R | X | if is_connector { C } else { 0 });
    out.extend_from_slice(&port.to_be_bytes()[1..]);
    out.resize(end, 0);
}

/// The lower 24 bits of a number's unit, and how far into the unit it lies.
fn units(number: u64, unit: u64) -> (u32, u64) {
    let offset = number as i64 - FIRST as i64;
    let units = offset.div_euclid(unit as i64);
    (units as u32 & PORT_MAX, offset.rem_euclid(unit as i64) as u64)
}

const _: () = assert!(BLOCKS_MAX <= SACK_BLOCKS_MAX && BLOCKS_MAX == 3);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNIT: u64 = 170;

    fn round_trip(header: &Header, payload: &[u8], near: (u64, u64)) -> Header {
        let mut bytes = Vec::new();
        emit(false, 77, header, UNIT, payload, &mut bytes);
        let (frame, rest) = parse(&bytes, UNIT as usize).expect("it was written");
        assert!(rest.is_empty());
        assert_eq!((frame.is_connector, frame.port), (false, 77));
        let Kind::Segment(body) = frame.kind else { panic!("not a reset") };
        assert_eq!(body.payload, payload);
        body.expand(near, UNIT, 1360)
    }

    proptest! {
        #[test]
        fn segments_come_back(
            seq in 0u64..1 << 40,
            ack in 0u64..1 << 40,
            at in 0u64..3,
            past_fin in 0u64..2,
            window in 0u64..60_000,
            fin in any::<bool>(),
            blocks in prop::collection::vec((0u64..5000, 1u64..100), 0..4),
            off in (-1_000_000i64..1_000_000, -1_000_000i64..1_000_000),
            units in 0usize..8,
        ) {
            let seq = FIRST + seq * UNIT + [0, 1, UNIT - 1][at as usize];
            let ack = FIRST + ack * UNIT;
            let header = Header {
                seq,
                ack: Some(ack + past_fin),
                flags: Flags { fin, ..Flags::default() },
                window_bytes: (window * UNIT) as u32,
                sack: blocks
                    .iter()
                    .map(|(start, len)| Range::new(ack + start * UNIT, ack + (start + len) * UNIT))
                    .collect(),
                ..Header::default()
            };
            let payload = vec![5; units * UNIT as usize];
            let near = (seq.saturating_add_signed(off.0), ack.saturating_add_signed(off.1));
            prop_assert_eq!(round_trip(&header, &payload, near), header);
        }
    }

    #[test]
    fn the_first_segments_byte_by_byte() {
        let mut header = Header { seq: SEQUENCE_BASE, window_bytes: 65_535, ..Header::default() };
        header.flags.syn = true;
        let mut bytes = Vec::new();
        emit(true, 0x01_02_03, &header, UNIT, &[9; 510], &mut bytes);
        assert_eq!(bytes[..13], [0xc0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 1, 0x81, 3]);
        assert_eq!(bytes.len(), 13 + 510);
        header.ack = Some(FIRST + 510);
        bytes.clear();
        emit(false, 0x01_02_03, &header, UNIT, &[], &mut bytes);
        assert_eq!(bytes, [0x40, 1, 2, 3, 0, 0, 0, 0, 0, 3, 1, 0x81, 0]);
        bytes.clear();
        emit_reset(true, 5, 8, &mut bytes);
        assert_eq!(bytes, [0x90, 0, 0, 5, 8]);
        bytes.clear();
        emit_answer(false, 5, &mut bytes);
        assert_eq!(bytes, [0x18, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn the_question_below_the_first_byte_comes_back() {
        let header = Header { seq: FIRST - 1, ack: Some(FIRST), ..Header::default() };
        assert_eq!(round_trip(&header, &[], (FIRST, FIRST)), header);
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        let header = Header { seq: FIRST, ack: Some(FIRST), ..Header::default() };
        let mut bytes = Vec::new();
        emit(true, 1, &header, UNIT, &[1; 340], &mut bytes);
        for len in 1..bytes.len() {
            assert!(parse(&bytes[..len], UNIT as usize).is_err(), "{len}");
        }
        bytes.clear();
        emit_answer(true, 1, &mut bytes);
        for len in 1..bytes.len() {
            assert!(parse(&bytes[..len], UNIT as usize).is_err(), "{len}");
        }
    }
}
