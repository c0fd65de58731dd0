//! A segment without its framing: what the connection reads and writes, whatever the bytes on the wire look like.
//!
//! Sequence numbers are 64 bits wide here and never wrap. A framing with 32 bits keeps the lower half and finds the
//! upper half again with [`expand`], near the number that the connection expects. Initial sequence numbers are placed
//! at [`SEQUENCE_BASE`] plus the number on the wire, so that numbers a little below an initial one stay positive.

/// What is added to an initial sequence number of the wire. It leaves the lower 32 bits alone.
pub const SEQUENCE_BASE: u64 = 1 << 32;

/// The 64-bit number that ends in `low` and lies closest to `near`. Where both neighbours are equally far, the lower.
pub fn expand(near: u64, low: u32) -> u64 {
    let ahead = low.wrapping_sub(near as u32) as i32;
    near.wrapping_add_signed(i64::from(ahead))
}

/// A range of sequence numbers, `start` included and `end` not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The first number.
    pub start: u64,
    /// The number after the last one.
    pub end: u64,
}

impl Range {
    /// The numbers from `start` up to but without `end`.
    pub const fn new(start: u64, end: u64) -> Self {
        Range { start, end }
    }

    /// How many numbers.
    pub const fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// Whether all of `other` lies in here.
    pub const fn contains(self, other: Range) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}

/// The most SACK blocks in a segment (RFC 2018): four fit into a TCP header, three beside timestamps.
pub const SACK_BLOCKS_MAX: usize = 4;

/// The SACK blocks of a segment in the order that the receiver reports them (RFC 2018, RFC 2883).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [Range; SACK_BLOCKS_MAX],
    count: u8,
}

impl SackBlocks {
    /// No blocks.
    pub const NONE: SackBlocks = SackBlocks { blocks: [Range::new(0, 0); SACK_BLOCKS_MAX], count: 0 };

    /// Adds a block, unless there are four.
    pub fn push(&mut self, block: Range) {
        if let Some(slot) = self.blocks.get_mut(usize::from(self.count)) {
            *slot = block;
            self.count += 1;
        }
    }

    /// The blocks.
    pub fn as_slice(&self) -> &[Range] {
        &self.blocks[..usize::from(self.count)]
    }

    /// Drops all blocks but the first `count`.
    pub fn truncate(&mut self, count: usize) {
        self.count = self.count.min(count as u8);
    }
}

impl FromIterator<Range> for SackBlocks {
    fn from_iter<I: IntoIterator<Item = Range>>(ranges: I) -> Self {
        let mut blocks = SackBlocks::NONE;
        ranges.into_iter().for_each(|range| blocks.push(range));
        blocks
    }
}

/// The timestamps option (RFC 7323). The unit is the sender's own; this crate counts milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the peer's clock as it was last seen; meaningful with an acknowledgement only.
    pub echo: u32,
}

/// What a SYN offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SynOptions {
    /// The longest payload that the sender of the SYN takes, in bytes. Absent: 536 (RFC 9293, section 3.7.1).
    pub mss_bytes: Option<u16>,
    /// The shift of its windows (RFC 7323), at most 14. Absent: no scaling in either direction.
    pub window_shift: Option<u8>,
    /// Whether it understands SACK (RFC 2018).
    pub sack_permitted: bool,
}

/// The control bits (RFC 9293, section 3.1) without ACK, which [`Header::ack`] tells, and URG, which is not supported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Opens a connection and takes one sequence number.
    pub syn: bool,
    /// The sender sends no more; takes one sequence number.
    pub fin: bool,
    /// The connection is over.
    pub rst: bool,
    /// The sender sends nothing more at the moment.
    pub psh: bool,
    /// The sender saw congestion marks (RFC 3168); on a SYN, part of the offer of ECN.
    pub ece: bool,
    /// The sender reacted to congestion marks; on a SYN, part of the offer of ECN.
    pub cwr: bool,
}

/// A segment without its payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The sequence number of the first thing in the segment: SYN, payload or FIN, in this order.
    pub seq: u64,
    /// The next sequence number that the sender expects; `None` without the ACK bit.
    pub ack: Option<u64>,
    /// The control bits.
    pub flags: Flags,
    /// How many bytes beyond `ack` the sender of the segment takes, scaling undone. A connection makes it a multiple of
    /// its scale.
    pub window_bytes: u32,
    /// What arrived out of order.
    pub sack: SackBlocks,
    /// Timestamps, when both ends use them.
    pub timestamps: Option<Timestamps>,
    /// The offer of a SYN.
    pub syn: Option<SynOptions>,
}

impl Header {
    /// The sequence numbers of a segment with this header and `payload_bytes` of payload.
    pub fn range(&self, payload_bytes: usize) -> Range {
        let controls = u64::from(self.flags.syn) + u64::from(self.flags.fin);
        Range::new(self.seq, self.seq + payload_bytes as u64 + controls)
    }

    /// Where the payload begins.
    pub(crate) fn payload_seq(&self) -> u64 {
        self.seq + u64::from(self.flags.syn)
    }
}

/// The two ECN bits of the packet around a segment (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// The transport does not take part.
    #[default]
    NotEct,
    /// It takes part.
    Ect,
    /// It takes part, and a router was congested.
    Ce,
}

/// A segment to be sent; its payload was appended to the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The header.
    pub header: Header,
    /// How many bytes of payload were appended.
    pub payload_bytes: usize,
    /// The mark that the packet has to carry.
    pub ecn: Ecn,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_half_finds_the_whole() {
        for near in [SEQUENCE_BASE, SEQUENCE_BASE + 5, 7 << 32, (9 << 32) - 3] {
            for offset in [-(1i64 << 31), -70_000, -1, 0, 1, 70_000, (1 << 31) - 1] {
                let whole = near.wrapping_add_signed(offset);
                assert_eq!(expand(near, whole as u32), whole, "{near} {offset}");
            }
        }
    }

    #[test]
    fn blocks_are_bounded() {
        let mut blocks: SackBlocks = (0..9).map(|n| Range::new(n, n + 1)).collect();
        assert_eq!(blocks.as_slice().len(), SACK_BLOCKS_MAX);
        blocks.truncate(3);
        assert_eq!(blocks.as_slice().last(), Some(&Range::new(2, 3)));
    }
}
