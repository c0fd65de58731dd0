//! A frame of the kernel's, cut into what a wire would carry.

use super::{CWR, FIN, GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP, Header, PSH, TCP_CHECKSUM};
use crate::packet::{self, TCP, UDP};
use crate::tun::HEADER_BYTES;
use bytes::BufMut;

const TCP_BYTES_MIN: usize = 20;
const UDP_BYTES: usize = 8;
const UDP_CHECKSUM: usize = 6;

/// A frame that does not hold what its header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// What is left of a frame that a kernel handed over, as the packets that a card would send. All have one length, but
/// the last, which may be shorter. Their checksums are whole.
#[derive(Clone, Debug)]
pub struct Cut<'a> {
    kind: Kind,
    /// What stands in front of each part of the data.
    headers: &'a [u8],
    /// What is left, at least a byte at first.
    data: &'a [u8],
    /// Data of each packet but the last, at least a byte.
    segment_bytes: usize,
    /// How many packets there were before.
    number: usize,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// One packet, which is all data, and where a checksum is to be finished: its first byte and its field.
    Whole(Option<(usize, usize)>),
    /// The header of TCP begins here, with this sequence number.
    Tcp {
        start: usize,
        sequence: u32,
        flags: u8,
    },
    Udp {
        start: usize,
    },
}

impl<'a> Cut<'a> {
    /// Begins with a frame that was read from a device with a header.
    ///
    /// # Errors
    ///
    /// When it does not hold what its header says, or no packet.
    pub fn new(frame: &'a [u8]) -> Result<Cut<'a>, Malformed> {
        let (header, packet) = frame.split_first_chunk::<HEADER_BYTES>().ok_or(Malformed)?;
        let header = Header::parse(header);
        let start = usize::from(header.checksum_start);
        match header.gso {
            GSO_NONE => {
                let field = start + usize::from(header.checksum_offset);
                if packet.is_empty() || header.needs_checksum && field + 2 > packet.len() {
                    return Err(Malformed);
                }
                let unfinished = header.needs_checksum.then_some((start, field));
                let kind = Kind::Whole(unfinished);
                Ok(Cut { kind, headers: &[], data: packet, segment_bytes: packet.len(), number: 0 })
            }
            GSO_TCPV4 | GSO_TCPV6 => {
                let data_start = packet::tcp_end(packet, start).ok_or(Malformed)?;
                let sequence = packet::u32_at(packet, start + 4).ok_or(Malformed)?;
                let flags = *packet.get(start + 13).ok_or(Malformed)?;
                let kind = Kind::Tcp { start, sequence, flags };
                Cut::of_headers(kind, packet, start, TCP_BYTES_MIN, data_start, header.segment_bytes)
            }
            GSO_UDP => {
                let data_start = start + UDP_BYTES;
                let kind = Kind::Udp { start };
                Cut::of_headers(kind, packet, start, UDP_BYTES, data_start, header.segment_bytes)
            }
            _ => Err(Malformed),
        }
    }

    /// There must be an IP header before `start`, a transport header of at least `transport_bytes` behind it, and data
    /// from `data_start` on.
    fn of_headers(
        kind: Kind,
        packet: &'a [u8],
        start: usize,
        transport_bytes: usize,
        data_start: usize,
        segment_bytes: u16,
    ) -> Result<Cut<'a>, Malformed> {
        let (headers, data) = packet.split_at_checked(data_start).ok_or(Malformed)?;
        let ip_bytes = match headers.first().map(|byte| byte >> 4) {
            Some(4) => 20,
            Some(6) => 40,
            _ => return Err(Malformed),
        };
        let has_headers = start >= ip_bytes && headers.len() >= start + transport_bytes;
        if !has_headers || data.is_empty() || segment_bytes == 0 {
            return Err(Malformed);
        }
        Ok(Cut { kind, headers, data, segment_bytes: segment_bytes.into(), number: 0 })
    }

    /// The length of the next packet; 0 when there is none.
    pub fn next_bytes(&self) -> usize {
        if self.data.is_empty() { 0 } else { self.headers.len() + self.segment_bytes.min(self.data.len()) }
    }

    /// Appends the next packet to a buffer. False when there is none any more.
    pub fn append_next(&mut self, packets: &mut (impl BufMut + AsMut<[u8]>)) -> bool {
        let bytes = self.next_bytes();
        if bytes == 0 {
            return false;
        }
        let (part, rest) = self.data.split_at(bytes - self.headers.len());
        packets.put_slice(self.headers);
        packets.put_slice(part);
        let packets = packets.as_mut();
        // It was put at the end.
        let begin = packets.len() - bytes;
        let packet = &mut packets[begin..];
        match self.kind {
            Kind::Whole(None) => {}
            Kind::Whole(Some((start, field))) => packet::finish_checksum(packet, start, field),
            Kind::Tcp { start, sequence, flags } => {
                packet::set_ip_header(packet, start, self.number as u16);
                let passed = (self.number * self.segment_bytes) as u32;
                packet::set_u32(packet, start + 4, sequence.wrapping_add(passed));
                // What ends the data stands in the last segment only, and the answer to a congestion mark in the
                // first.
                let only_last = if rest.is_empty() { 0 } else { FIN | PSH };
                let only_first = if self.number == 0 { 0 } else { CWR };
                packet[start + 13] = flags & !only_last & !only_first;
                packet::set_checksum(packet, start, start + TCP_CHECKSUM, TCP);
            }
            Kind::Udp { start } => {
                packet::set_ip_header(packet, start, self.number as u16);
                packet::set_u16(packet, start + 4, (bytes - start) as u16);
                packet::set_checksum(packet, start, start + UDP_CHECKSUM, UDP);
            }
        }
        self.data = rest;
        self.number += 1;
        true
    }
}
