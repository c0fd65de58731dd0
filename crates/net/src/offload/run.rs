//! Packets that came together, as one for the kernel, without moving a byte of them.

use super::{ACK, GSO_TCPV4, GSO_TCPV6, Header, PSH, TCP_CHECKSUM};
use crate::packet::{self, TCP};
use crate::tun::HEADER_BYTES;
use std::io::IoSlice;

/// The longest that packets put together become: what an IP packet can be.
const BYTES_MAX: usize = 65_535;
/// The most packets that are written as one: the kernel takes 1024 parts in a write, more than 64 KiB ever needs.
const PACKETS_MAX: usize = 64;

/// Packets of one TCP connection, each going on where the one before ended and alike in all else, which the kernel may
/// have as one. A packet that is not like that is a run of its own.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    packets: usize,
    /// Of all of them as one.
    bytes: usize,
    /// Whether the last of them says that the data are to be handed on.
    has_push: bool,
    /// Where the data of each begin; 0 in a packet that stays as it is.
    data_start: usize,
}

/// What goes into a kernel at once: the header and the packet, in parts.
#[derive(Debug)]
pub struct Parts<'a> {
    parts: [IoSlice<'a>; PACKETS_MAX + 1],
    count: usize,
}

impl Run {
    /// The run that begins with `first`, of it and of those that came behind it, in their order.
    pub fn of<'a>(first: &[u8], others: impl IntoIterator<Item = &'a [u8]>) -> Run {
        let Some(data_start) = tcp_data_start(first) else { return Run::alone(first) };
        let has_push = |packet: &[u8]| packet[tcp_start(packet) + 13] & PSH != 0;
        let segment_bytes = first.len() - data_start;
        let mut run = Run { packets: 1, bytes: first.len(), has_push: has_push(first), data_start };
        let mut is_full = true;
        for next in others {
            let sequence_step = run.bytes - data_start;
            if run.packets == PACKETS_MAX
                || run.has_push
                || !is_full
                || tcp_data_start(next) != Some(data_start)
                || run.bytes + next.len() - data_start > BYTES_MAX
                || !continues(first, next, data_start, sequence_step)
            {
                break;
            }
            run.packets += 1;
            run.bytes += next.len() - data_start;
            run.has_push = has_push(next);
            is_full = next.len() - data_start == segment_bytes;
        }
        run
    }

    /// A packet that stays as it is.
    pub fn alone(packet: &[u8]) -> Run {
        Run { packets: 1, bytes: packet.len(), has_push: false, data_start: 0 }
    }

    /// How many packets of the wire it is, at least one.
    pub fn packets(&self) -> usize {
        self.packets
    }

    /// Makes the first of the packets the header of all, and gives what stands in front of it.
    ///
    /// The kernel takes the checksum of packets put together for granted, so one that was wrong is no more: who has not
    /// made sure of the packets in another way leaves them alone.
    pub fn begin(&self, first: &mut [u8]) -> [u8; HEADER_BYTES] {
        if self.packets == 1 {
            return [0; HEADER_BYTES];
        }
        let start = tcp_start(first);
        let segment_bytes = first.len() - self.data_start;
        if self.has_push {
            first[start + 13] |= PSH;
        }
        if start == 20 {
            packet::set_u16(first, 2, self.bytes as u16);
            packet::set_ipv4_checksum(first, start);
        } else {
            packet::set_u16(first, 4, (self.bytes - start) as u16);
        }
        packet::begin_checksum(first, self.bytes - start, start + TCP_CHECKSUM, TCP);
        let header = Header {
            needs_checksum: true,
            gso: if start == 20 { GSO_TCPV4 } else { GSO_TCPV6 },
            header_bytes: self.data_start as u16,
            segment_bytes: segment_bytes as u16,
            checksum_start: start as u16,
            checksum_offset: TCP_CHECKSUM as u16,
        };
        header.write()
    }

    /// What is to be written: the header that [`Self::begin`] gave, and of `packets` those of the run.
    pub fn parts<'a>(&self, header: &'a [u8], packets: impl IntoIterator<Item = &'a [u8]>) -> Parts<'a> {
        let mut parts = Parts { parts: [IoSlice::new(&[]); PACKETS_MAX + 1], count: 1 };
        parts.parts[0] = IoSlice::new(header);
        for (number, packet) in packets.into_iter().take(self.packets).enumerate() {
            let from = if number == 0 { 0 } else { self.data_start };
            parts.parts[number + 1] = IoSlice::new(packet.get(from..).unwrap_or(&[]));
            parts.count += 1;
        }
        parts
    }
}

impl<'a> Parts<'a> {
    /// They, in their order.
    pub fn as_slice(&self) -> &[IoSlice<'a>] {
        &self.parts[..self.count]
    }
}

/// Where the data of a packet begins, if it is a TCP segment that carries data and nothing special.
fn tcp_data_start(packet: &[u8]) -> Option<usize> {
    let start = match packet.first()? {
        // No options, no fragment.
        0x45 if packet::u16_at(packet, 6)? & 0x3fff == 0 && *packet.get(9)? == TCP => 20,
        first if first >> 4 == 6 && *packet.get(6)? == TCP => 40,
        _ => return None,
    };
    let data_start = packet::tcp_end(packet, start)?;
    let is_plain = packet.get(start + 13)? & !PSH == ACK;
    let is_whole = packet::declared_bytes(packet) == Some(packet.len());
    (is_plain && is_whole && data_start >= start + 20 && data_start < packet.len()).then_some(data_start)
}

/// Where TCP begins in a packet that [`tcp_data_start`] knows.
fn tcp_start(packet: &[u8]) -> usize {
    if packet[0] >> 4 == 4 { 20 } else { 40 }
}

/// Whether `next` is of the same connection as `first`, `sequence_step` bytes further on, and alike in all else. Both
/// have their data begin at `data_start`.
fn continues(first: &[u8], next: &[u8], data_start: usize, sequence_step: usize) -> bool {
    let (one, other) = (&first[..data_start], &next[..data_start]);
    let start = tcp_start(one);
    let sequence = |packet: &[u8]| packet::u32_at(packet, start + 4).unwrap_or(0);
    let same = |range: std::ops::Range<usize>| one[range.clone()] == other[range];
    // All but length, number and checksum of the header.
    let same_ip =
        if start == 20 { same(0..2) && same(6..10) && same(12..20) } else { same(0..4) && same(6..40) };
    same_ip
        && next.len() <= first.len()
        && sequence(other) == sequence(one).wrapping_add(sequence_step as u32)
        && same(start..start + 4)
        && same(start + 8..start + 13)
        && same(start + 14..start + 16)
        && same(start + 18..data_start)
}
