//! Writing a packet.

use super::TcpHeader;
use super::checksum::{Sum, TCP, UDP};
use crate::segment::Ecn;
use core::net::{IpAddr, SocketAddr};

/// Hops that a packet lives, as on Linux.
const HOPS: u8 = 64;

/// The longer of IP's headers, which is that of IPv6.
const IP_BYTES_MAX: usize = 40;

/// Appends the packet of a segment to `packet`. Source and destination must be of one family, and the payload at most
/// 65,000 bytes.
pub fn emit(
    source: SocketAddr,
    destination: SocketAddr,
    ecn: Ecn,
    tcp: &TcpHeader,
    payload: &[u8],
    packet: &mut Vec<u8>,
) {
    let begin = packet.len();
    let options_len = options_len(tcp);
    let segment_len = 20 + options_len + payload.len();
    let class = match ecn {
        Ecn::NotEct => 0,
        Ecn::Ect => 2,
        Ecn::Ce => 3,
    };
    packet.reserve(IP_BYTES_MAX + segment_len);
    emit_ip(source.ip(), destination.ip(), (class, TCP), segment_len, packet);
    let segment = packet.len();
    packet.extend_from_slice(&source.port().to_be_bytes());
    packet.extend_from_slice(&destination.port().to_be_bytes());
    packet.extend_from_slice(&tcp.seq.to_be_bytes());
    packet.extend_from_slice(&tcp.ack.unwrap_or(0).to_be_bytes());
    let bits = [
        tcp.flags.fin,
        tcp.flags.syn,
        tcp.flags.rst,
        tcp.flags.psh,
        tcp.ack.is_some(),
        false,
        tcp.flags.ece,
        tcp.flags.cwr,
    ];
    let bits = bits.iter().rev().fold(0u8, |byte, bit| byte << 1 | u8::from(*bit));
    packet.extend_from_slice(&[((20 + options_len) as u8 / 4) << 4, bits]);
    packet.extend_from_slice(&tcp.window.to_be_bytes());
    packet.extend_from_slice(&[0; 4]);
    emit_options(tcp, packet);
    debug_assert_eq!(packet.len() - segment, 20 + options_len);
    packet.extend_from_slice(payload);
    let sum =
        Sum::default().add_pseudo(source.ip(), destination.ip(), TCP, segment_len).add(&packet[segment..]);
    packet[segment + 16..segment + 18].copy_from_slice(&sum.finish().to_be_bytes());
    debug_assert!(packet.len() - begin <= 60 + 40 + segment_len);
}

/// Appends the packet of a UDP datagram (RFC 768) with this ECN field. Source and destination must be of one family,
/// and the payload at most 65,000 bytes.
pub fn emit_datagram(
    source: SocketAddr,
    destination: SocketAddr,
    ecn: u8,
    payload: &[u8],
    packet: &mut Vec<u8>,
) {
    let len = 8 + payload.len();
    emit_ip(source.ip(), destination.ip(), (ecn & 3, UDP), len, packet);
    let datagram = packet.len();
    packet.extend_from_slice(&source.port().to_be_bytes());
    packet.extend_from_slice(&destination.port().to_be_bytes());
    packet.extend_from_slice(&(len as u16).to_be_bytes());
    packet.extend_from_slice(&[0; 2]);
    packet.extend_from_slice(payload);
    let sum = Sum::default().add_pseudo(source.ip(), destination.ip(), UDP, len).add(&packet[datagram..]);
    // Zero says that there is none.
    let checksum = match sum.finish() {
        0 => u16::MAX,
        checksum => checksum,
    };
    packet[datagram + 6..datagram + 8].copy_from_slice(&checksum.to_be_bytes());
}

/// A header in front of so many bytes of a protocol, with this traffic class.
fn emit_ip(
    source: IpAddr,
    destination: IpAddr,
    (class, protocol): (u8, u8),
    segment_len: usize,
    packet: &mut Vec<u8>,
) {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let begin = packet.len();
            let total = (20 + segment_len) as u16;
            packet.extend_from_slice(&[0x45, class]);
            packet.extend_from_slice(&total.to_be_bytes());
            // No identification, don't fragment.
            packet.extend_from_slice(&[0, 0, 0x40, 0, HOPS, protocol, 0, 0]);
            packet.extend_from_slice(&source.octets());
            packet.extend_from_slice(&destination.octets());
            let checksum = Sum::default().add(&packet[begin..]).finish();
            packet[begin + 10..begin + 12].copy_from_slice(&checksum.to_be_bytes());
        }
        (source, destination) => {
            let octets = |address: IpAddr| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            };
            packet.extend_from_slice(&[0x60 | class >> 4, class << 4, 0, 0]);
            packet.extend_from_slice(&(segment_len as u16).to_be_bytes());
            packet.extend_from_slice(&[protocol, HOPS]);
            packet.extend_from_slice(&octets(source));
            packet.extend_from_slice(&octets(destination));
        }
    }
}

fn options_len(tcp: &TcpHeader) -> usize {
    let syn = if tcp.flags.syn {
        4 * usize::from(tcp.syn.mss_bytes.is_some())
            + 4 * usize::from(tcp.syn.window_shift.is_some())
            + 4 * usize::from(tcp.syn.sack_permitted)
    } else {
        0
    };
    let timestamps = 12 * usize::from(tcp.timestamps.is_some());
    let sack = if tcp.sack_count > 0 { 4 + 8 * usize::from(tcp.sack_count) } else { 0 };
    syn + timestamps + sack
}

/// Writes the options, each padded to four bytes, in the order that Linux has.
fn emit_options(tcp: &TcpHeader, packet: &mut Vec<u8>) {
    if tcp.flags.syn {
        if let Some(mss_bytes) = tcp.syn.mss_bytes {
            packet.extend_from_slice(&[2, 4]);
            packet.extend_from_slice(&mss_bytes.to_be_bytes());
        }
        if tcp.syn.sack_permitted {
            packet.extend_from_slice(&[1, 1, 4, 2]);
        }
    }
    if let Some(timestamps) = tcp.timestamps {
        packet.extend_from_slice(&[1, 1, 8, 10]);
        packet.extend_from_slice(&timestamps.value.to_be_bytes());
        packet.extend_from_slice(&timestamps.echo.to_be_bytes());
    }
    if let Some(shift) = tcp.syn.window_shift.filter(|_| tcp.flags.syn) {
        packet.extend_from_slice(&[1, 3, 3, shift]);
    }
    if tcp.sack_count > 0 {
        packet.extend_from_slice(&[1, 1, 5, 2 + 8 * tcp.sack_count]);
        for (start, end) in &tcp.sack[..usize::from(tcp.sack_count)] {
            packet.extend_from_slice(&start.to_be_bytes());
            packet.extend_from_slice(&end.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scapy 2.5.0 makes the same of these.
    #[test]
    fn datagrams_are_those_of_scapy() {
        let v4 = "4502002200004000401126c70a0000010a00000201bb114e000e9f97686564646c65";
        let v6 = "60100000000f1140fc000000000000000000000000000001fc00000000000000000000000000000201bb114e000f9a93\
                  686564646c6521";
        for (from, to, ecn, payload, expected) in [
            ("10.0.0.1:443", "10.0.0.2:4430", 2, "heddle", v4),
            ("[fc00::1]:443", "[fc00::2]:4430", 1, "heddle!", v6),
        ] {
            let mut packet = Vec::new();
            let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
            emit_datagram(from, to, ecn, payload.as_bytes(), &mut packet);
            let hex: String = packet.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, expected);
        }
    }
}
