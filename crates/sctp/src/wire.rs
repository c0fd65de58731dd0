//! Packets and chunks as bytes (RFC 9260, section 3).
//!
//! ```text
//!   source port (2)   destination port (2)   verification tag (4)   checksum (4)
//!   then chunks:  type (1)   flags (1)   length (2)   value   zeros up to a multiple of four
//! ```

pub mod data;
pub mod init;
pub mod reconfig;
pub mod sack;

use crc::{CRC_32_ISCSI, Crc, Table};

/// Bytes before the first chunk.
pub const HEADER_LEN: usize = 12;
/// Bytes of a chunk before its value.
pub(crate) const CHUNK_HEAD_LEN: usize = 4;
const CHECKSUM_AT: usize = 8;

/// The checksum of SCTP (RFC 9260, appendix A), which has this name in iSCSI.
static CRC32C: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// Types of chunks.
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const INIT: u8 = 1;
    pub(crate) const INIT_ACK: u8 = 2;
    pub(crate) const SACK: u8 = 3;
    pub(crate) const HEARTBEAT: u8 = 4;
    pub(crate) const HEARTBEAT_ACK: u8 = 5;
    pub(crate) const ABORT: u8 = 6;
    pub(crate) const SHUTDOWN: u8 = 7;
    pub(crate) const SHUTDOWN_ACK: u8 = 8;
    pub(crate) const ERROR: u8 = 9;
    pub(crate) const COOKIE_ECHO: u8 = 10;
    pub(crate) const COOKIE_ACK: u8 = 11;
    pub(crate) const SHUTDOWN_COMPLETE: u8 = 14;
    /// RFC 8260.
    pub(crate) const I_DATA: u8 = 64;
    /// RFC 6525.
    pub(crate) const RE_CONFIG: u8 = 130;
    /// RFC 4820.
    pub(crate) const PAD: u8 = 132;
}

/// What stands before the chunks of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHead {
    pub source: u16,
    pub destination: u16,
    pub tag: u32,
}

/// A chunk, not looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    pub kind: u8,
    pub flags: u8,
    pub value: &'a [u8],
}

/// Why a packet is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// Takes the head off a packet. A checksum of zero is right where `zero_is_right` (RFC 9653), and the right one always
/// is.
///
/// # Errors
///
/// When the packet is too short, or the checksum is another one.
pub fn split_head(packet: &[u8], zero_is_right: bool) -> Result<(PacketHead, &[u8]), Malformed> {
    let Some((head, chunks)) = packet.split_first_chunk::<HEADER_LEN>() else {
        return Err(Malformed("a packet without a head"));
    };
    let sum = [head[8], head[9], head[10], head[11]];
    if !(zero_is_right && sum == [0; 4]) && sum != checksum(packet) {
        return Err(Malformed("a wrong checksum"));
    }
    let head = PacketHead {
        source: u16::from_be_bytes([head[0], head[1]]),
        destination: u16::from_be_bytes([head[2], head[3]]),
        tag: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
    };
    Ok((head, chunks))
}

/// The chunk that stands first, and what is behind it; `None` at the end.
///
/// # Errors
///
/// When a chunk is cut off, or shorter than its own head.
pub fn split_chunk(bytes: &[u8]) -> Result<Option<(Chunk<'_>, &[u8])>, Malformed> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let Some(([kind, flags, high, low], _)) = bytes.split_first_chunk::<CHUNK_HEAD_LEN>() else {
        return Err(Malformed("the head of a chunk is cut off"));
    };
    let len = usize::from(u16::from_be_bytes([*high, *low]));
    let Some(value) = bytes.get(CHUNK_HEAD_LEN..len) else {
        return Err(Malformed("a chunk is cut off"));
    };
    let rest = bytes.get(padded(len)..).unwrap_or(&[]);
    Ok(Some((Chunk { kind: *kind, flags: *flags, value }, rest)))
}

/// A packet that is being put together.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    begin: usize,
}

impl<'a> Writer<'a> {
    /// Begins a packet behind what `out` has.
    pub fn begin(out: &'a mut Vec<u8>, head: PacketHead) -> Self {
        let begin = out.len();
        out.extend_from_slice(&head.source.to_be_bytes());
        out.extend_from_slice(&head.destination.to_be_bytes());
        out.extend_from_slice(&head.tag.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        Writer { out, begin }
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.out.len() - self.begin
    }

    /// Whether there is no chunk.
    pub fn is_empty(&self) -> bool {
        self.len() == HEADER_LEN
    }

    /// Appends a chunk whose value `write` appends.
    pub fn chunk(&mut self, kind: u8, flags: u8, write: impl FnOnce(&mut Vec<u8>)) {
        let at = self.out.len();
        self.out.extend_from_slice(&[kind, flags, 0, 0]);
        write(self.out);
        let len = self.out.len() - at;
        let field = u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
        self.out[at + 2..at + 4].copy_from_slice(&field);
        self.out.resize(at + padded(len), 0);
    }

    /// Fills the packet up with a chunk that says nothing, if it is shorter and there is room for one.
    pub(crate) fn pad_to(&mut self, bytes: usize) {
        let missing = bytes.saturating_sub(self.len());
        if missing >= CHUNK_HEAD_LEN {
            let zeros = missing - CHUNK_HEAD_LEN;
            self.chunk(kind::PAD, 0, |out| out.resize(out.len() + zeros, 0));
        }
    }

    /// Writes the checksum.
    pub fn finish(self) {
        let packet = &self.out[self.begin..];
        let sum = checksum(packet);
        self.out[self.begin + CHECKSUM_AT..self.begin + HEADER_LEN].copy_from_slice(&sum);
    }

    /// Leaves the checksum zero.
    pub(crate) fn finish_without_checksum(self) {}

    /// Takes the packet back.
    pub(crate) fn undo(self) {
        self.out.truncate(self.begin);
    }
}

/// The length of a chunk with what fills it up.
pub(crate) const fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// The checksum of a packet, as it stands there: over all of it with zeros in its place, lowest byte first (RFC 9260,
/// appendix A).
fn checksum(packet: &[u8]) -> [u8; 4] {
    let (before, after) = packet.split_at(CHECKSUM_AT);
    let mut digest = CRC32C.digest();
    [before, &[0; 4], &after[4..]].into_iter().for_each(|part| digest.update(part));
    digest.finalize().to_le_bytes()
}

/// A parameter of a chunk, and what is behind it.
pub(crate) fn split_parameter(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let ([kind_high, kind_low, high, low], _) = bytes.split_first_chunk::<4>()?;
    let len = usize::from(u16::from_be_bytes([*high, *low]));
    let value = bytes.get(4..len)?;
    Some((u16::from_be_bytes([*kind_high, *kind_low]), value, bytes.get(padded(len)..).unwrap_or(&[])))
}

/// Appends a parameter with what fills it up.
pub(crate) fn parameter(kind: u16, value: &[u8], out: &mut Vec<u8>) {
    let len = 4 + value.len();
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(value);
    out.resize(out.len() + padded(len) - len, 0);
}

/// The number of 32 bits that a field of chunk has at `at`.
pub(crate) fn field(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*bytes))
}

/// The same of 16 bits.
pub(crate) fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, appendix B.4.
    #[test]
    fn the_checksum_is_the_one_of_the_rfcs() {
        let rising: Vec<u8> = (0..32).collect();
        for (bytes, sum) in [(&[0; 32][..], 0x8a91_36aa), (&[0xff; 32], 0x62a8_ab43), (&rising, 0x46dd_794e)]
        {
            assert_eq!(CRC32C.checksum(bytes), sum);
        }
    }

    const HEAD: PacketHead = PacketHead { source: 9899, destination: 9899, tag: 0x0102_0304 };

    fn packet(finish: fn(Writer<'_>)) -> Vec<u8> {
        let mut out = vec![7];
        let mut writer = Writer::begin(&mut out, HEAD);
        assert!(writer.is_empty());
        writer.chunk(9, 1, |out| out.extend_from_slice(b"abcde"));
        writer.chunk(11, 0, |_| {});
        writer.pad_to(40);
        assert_eq!(writer.len(), 40);
        finish(writer);
        out.remove(0);
        out
    }

    #[test]
    fn chunks_come_back() {
        let packet = packet(|writer| writer.finish());
        let (head, mut rest) = split_head(&packet, false).expect("its checksum is right");
        assert_eq!(head, HEAD);
        let mut chunks = Vec::new();
        while let Some((chunk, after)) = split_chunk(rest).expect("it is whole") {
            chunks.push((chunk.kind, chunk.flags, chunk.value.to_vec()));
            rest = after;
        }
        assert_eq!(chunks, [(9, 1, b"abcde".to_vec()), (11, 0, vec![]), (kind::PAD, 0, vec![0; 8])]);
    }

    #[test]
    fn a_checksum_that_is_wrong_or_zero_is_seen() {
        let mut packet = packet(|writer| writer.finish());
        packet[20] ^= 1;
        assert_eq!(split_head(&packet, true), Err(Malformed("a wrong checksum")));
        let packet = self::packet(|writer| writer.finish_without_checksum());
        assert!(split_head(&packet, true).is_ok() && split_head(&packet, false).is_err());
        assert!(split_head(&packet[..11], true).is_err());
    }

    #[test]
    fn what_is_cut_off_is_no_chunk() {
        let bytes = [9, 0, 0, 8, 1, 2, 3, 4];
        for len in 1..bytes.len() {
            assert!(split_chunk(&bytes[..len]).is_err(), "{len}");
        }
        assert!(split_chunk(&[9, 0, 0, 3]).is_err());
        assert_eq!(split_chunk(&[]), Ok(None));
        // What fills the last chunk up may be missing.
        assert!(matches!(split_chunk(&[9, 0, 0, 5, 1]), Ok(Some((Chunk { value: [1], .. }, [])))));
    }
}
