//! Packets that nobody sent: made from one that somebody did (RFC 791, 8200, 9293, 768, 792, 4443).
//!
//! All functions take a packet with the [`View`] that [`view`] gave of it, and leave or make its checksums good.

use heddle_net::packet::{self, TCP, UDP, u16_at, u32_at};
use heddle_netem::Rng;

const TCP_HEADER_BYTES: usize = 20;
const UDP_HEADER_BYTES: usize = 8;
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
const ICMPV4: u8 = 1;
const ICMPV6: u8 = 58;
/// The most of a packet that an ICMPv6 message quotes: it fits into the least MTU (RFC 4443, section 2.4).
const QUOTED_BYTES_MAX: usize = 1280 - 48;

/// Where the parts of a packet lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    /// TCP or UDP.
    pub protocol: u8,
    /// Where its header begins.
    pub start: usize,
    /// Where its payload begins.
    pub payload: usize,
    /// How long that is.
    pub payload_bytes: usize,
    pub from_port: u16,
    pub to_port: u16,
}

/// The parts of a whole TCP segment or UDP datagram; `None` for anything else, such as fragments and IPv6 with
/// extension headers.
pub(super) fn view(packet: &[u8]) -> Option<View> {
    let (protocol, start) = match packet.first()? >> 4 {
        4 if u16_at(packet, 6)? & 0x3fff == 0 => (*packet.get(9)?, 4 * usize::from(packet[0] & 0xf)),
        6 => (*packet.get(6)?, 40),
        _ => return None,
    };
    if packet::declared_bytes(packet) != Some(packet.len()) || start < 20 {
        return None;
    }
    let header_bytes = match protocol {
        TCP => 4 * usize::from(packet.get(start + 12)? >> 4),
        UDP => UDP_HEADER_BYTES,
        _ => return None,
    };
    let least = if protocol == TCP { TCP_HEADER_BYTES } else { UDP_HEADER_BYTES };
    let payload = start + header_bytes;
    if header_bytes < least || payload > packet.len() {
        return None;
    }
    let (from_port, to_port) = (u16_at(packet, start)?, u16_at(packet, start + 2)?);
    Some(View { protocol, start, payload, payload_bytes: packet.len() - payload, from_port, to_port })
}

/// A RST behind a TCP segment, to whom that is for.
pub(super) fn reset(packet: &[u8], view: &View) -> Vec<u8> {
    let mut forged = packet[..view.start + TCP_HEADER_BYTES].to_vec();
    bare_reset(&mut forged, view.start, next(packet, view), word(packet, view.start + 8));
    forged
}

/// A RST to the sender of a TCP segment, as from whom the segment is for. It has the number that the segment
/// acknowledges, and acknowledges the segment: without that nobody who sent a SYN heeds it (RFC 9293, section
/// 3.10.7.3).
pub(super) fn reset_back(packet: &[u8], view: &View) -> Vec<u8> {
    let mut forged = packet[..view.start + TCP_HEADER_BYTES].to_vec();
    swap_ends(&mut forged, view.start);
    packet::set_u16(&mut forged, view.start, view.to_port);
    packet::set_u16(&mut forged, view.start + 2, view.from_port);
    bare_reset(&mut forged, view.start, word(packet, view.start + 8), next(packet, view));
    forged
}

/// The sequence number behind a TCP segment.
fn next(packet: &[u8], view: &View) -> u32 {
    let flags = packet[view.start + 13];
    let counted = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
    word(packet, view.start + 4).wrapping_add(view.payload_bytes as u32).wrapping_add(counted)
}

fn bare_reset(forged: &mut [u8], start: usize, sequence: u32, acknowledged: u32) {
    packet::set_u32(forged, start + 4, sequence);
    packet::set_u32(forged, start + 8, acknowledged);
    forged[start + 12] = (TCP_HEADER_BYTES as u8 / 4) << 4;
    forged[start + 13] = RST | ACK;
    // Window, and the urgent pointer behind the checksum.
    packet::set_u16(forged, start + 14, 0);
    packet::set_u16(forged, start + 18, 0);
    finish(forged, start, TCP);
}

/// Sets the RST flag of a TCP segment.
pub(super) fn set_reset(packet: &mut [u8], view: &View) {
    packet[view.start + 13] |= RST;
    finish(packet, view.start, view.protocol);
}

/// An ICMP message to the sender of a packet, as from whom that is for. `code` is one of ICMPv4's type 3; 4, "too big",
/// names `mtu`.
pub(super) fn unreachable(packet: &[u8], code: u8, mtu: u16) -> Vec<u8> {
    if packet[0] >> 4 == 4 { unreachable_v4(packet, code, mtu) } else { unreachable_v6(packet, code, mtu) }
}

fn unreachable_v4(packet: &[u8], code: u8, mtu: u16) -> Vec<u8> {
    // "Internet Header + 64 bits of Original Data Datagram" (RFC 792).
    let quoted = packet.len().min(4 * usize::from(packet[0] & 0xf) + 8);
    let mut forged = vec![0; 28];
    forged[..20].copy_from_slice(&packet[..20]);
    forged[0] = 0x45;
    forged[9] = ICMPV4;
    packet::set_u16(&mut forged, 6, 0);
    swap_ends(&mut forged, 20);
    (forged[20], forged[21]) = (3, code);
    if code == 4 {
        packet::set_u16(&mut forged, 26, mtu);
    }
    forged.extend(&packet[..quoted]);
    packet::set_ip_header(&mut forged, 20, 0);
    packet::set_plain_checksum(&mut forged, 20, 22);
    forged
}

fn unreachable_v6(packet: &[u8], code: u8, mtu: u16) -> Vec<u8> {
    // RFC 4443, sections 3.1 and 3.2; the codes that IPv6 has no equivalent of say "no route".
    let (kind, code) = match code {
        4 => (2, 0),
        3 => (1, 4),
        1 => (1, 3),
        9 | 10 | 13 => (1, 1),
        _ => (1, 0),
    };
    let quoted = packet.len().min(QUOTED_BYTES_MAX);
    let mut forged = packet[..40].to_vec();
    forged[6] = ICMPV6;
    swap_ends(&mut forged, 40);
    forged.extend([kind, code, 0, 0]);
    forged.extend(if kind == 2 { u32::from(mtu).to_be_bytes() } else { [0; 4] });
    forged.extend(&packet[..quoted]);
    packet::set_ip_header(&mut forged, 40, 0);
    packet::set_checksum(&mut forged, 40, 42, ICMPV6);
    forged
}

/// A packet of the same flow and length whose payload is random behind its first `keep` bytes.
pub(super) fn garbage(packet: &[u8], view: &View, keep: usize, rng: &mut Rng) -> Vec<u8> {
    let mut forged = packet.to_vec();
    for byte in forged[view.payload..].iter_mut().skip(keep) {
        *byte = rng.below(256) as u8;
    }
    finish(&mut forged, view.start, view.protocol);
    forged
}

/// Flips one bit of the payload. A packet without payload stays as it is.
pub(super) fn tamper(packet: &mut [u8], view: &View, rng: &mut Rng) {
    let bit = rng.below(8 * view.payload_bytes as u64) as usize;
    if let Some(byte) = packet[view.payload..].get_mut(bit / 8) {
        *byte ^= 1 << (bit % 8);
        finish(packet, view.start, view.protocol);
    }
}

/// Leaves at most `keep` bytes of the payload.
pub(super) fn truncate(packet: &mut Vec<u8>, view: &View, keep: usize) {
    packet.truncate(view.payload.saturating_add(keep));
    packet::set_ip_header(packet, view.start, 0);
    if view.protocol == UDP {
        let bytes = packet.len() - view.start;
        packet::set_u16(packet, view.start + 4, bytes as u16);
    }
    finish(packet, view.start, view.protocol);
}

/// Lengths and checksums of a packet whose transport header begins at `start`.
fn finish(packet: &mut [u8], start: usize, protocol: u8) {
    packet::set_ip_header(packet, start, 0);
    let field = if protocol == TCP { TCP_CHECKSUM } else { UDP_CHECKSUM };
    packet::set_checksum(packet, start, start + field, protocol);
}

/// Exchanges the addresses in an IP header that ends at `end`.
fn swap_ends(packet: &mut [u8], end: usize) {
    let (first, bytes) = if packet[0] >> 4 == 4 { (12, 4) } else { (8, 16) };
    debug_assert!(first + 2 * bytes <= end);
    for place in first..first + bytes {
        packet.swap(place, place + bytes);
    }
}

/// A word of a header that [`view`] found to be there.
fn word(packet: &[u8], at: usize) -> u32 {
    u32_at(packet, at).unwrap_or(0)
}
