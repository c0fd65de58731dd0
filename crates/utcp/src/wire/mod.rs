//! The framing of real networks: TCP segments in IPv4 and IPv6 packets, as kernels send and expect them, and how a
//! datagram of UDP is written.
//!
//! Reading checks everything that a stranger may get wrong, checksums included; what fails is dropped in silence.
//! **Not** here: IPv6 extension headers, fragments, the urgent pointer, TCP-MD5 and TCP-AO.

mod checksum;
mod emit;
mod parse;

pub use emit::{emit, emit_datagram};
pub use parse::{PacketError, Parsed, parse};

use crate::segment::{Flags, Header, Range, SACK_BLOCKS_MAX, SynOptions, Timestamps, expand};

/// A TCP header as it stands on the wire: numbers of 32 bits, a window of 16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpHeader {
    /// The sequence number.
    pub seq: u32,
    /// The acknowledgement, with the ACK bit.
    pub ack: Option<u32>,
    /// The other bits.
    pub flags: Flags,
    /// The window, scaled.
    pub window: u16,
    /// The SACK blocks, of which `sack_count` count.
    pub sack: [(u32, u32); SACK_BLOCKS_MAX],
    /// How many SACK blocks there are.
    pub sack_count: u8,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// What a SYN offers.
    pub syn: SynOptions,
}

impl TcpHeader {
    /// The header that a connection understands. `expected` is what the connection
    /// [expects](crate::Connection::expected), `shift` how far the peer's windows are shifted.
    pub fn expand(&self, expected: (u64, u64), shift: u8) -> Header {
        let (their_next, our_una) = expected;
        let blocks = self.sack[..usize::from(self.sack_count).min(SACK_BLOCKS_MAX)].iter();
        let shift = if self.flags.syn { 0 } else { shift };
        Header {
            seq: expand(their_next, self.seq),
            ack: self.ack.map(|ack| expand(our_una, ack)),
            flags: self.flags,
            window_bytes: u32::from(self.window) << shift,
            sack: blocks
                .map(|(start, end)| Range::new(expand(our_una, *start), expand(our_una, *end)))
                .collect(),
            timestamps: self.timestamps,
            syn: self.flags.syn.then_some(self.syn),
        }
    }

    /// The bytes of a connection's header on the wire; `shift` is how far our windows are shifted.
    pub fn truncate(header: &Header, shift: u8) -> Self {
        let shift = if header.flags.syn { 0 } else { shift };
        let mut sack = [(0, 0); SACK_BLOCKS_MAX];
        let blocks = header.sack.as_slice();
        for (slot, block) in sack.iter_mut().zip(blocks) {
            *slot = (block.start as u32, block.end as u32);
        }
        TcpHeader {
            seq: header.seq as u32,
            ack: header.ack.map(|ack| ack as u32),
            flags: header.flags,
            window: u16::try_from(header.window_bytes >> shift).unwrap_or(u16::MAX),
            sack,
            sack_count: blocks.len() as u8,
            timestamps: header.timestamps,
            syn: header.syn.unwrap_or_default(),
        }
    }
}
