//! Writing a packet.

use super::TcpHeader;
use super::checksum::{Sum, TCP};
use crate::segment::Ecn;
use core::net::{IpAddr, SocketAddr};

/// Hops that a packet lives, as on Linux.
const HOPS: u8 = 64;

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
    emit_ip(source.ip(), destination.ip(), class, segment_len, packet);
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
    let sum = Sum::default().add_pseudo(source.ip(), destination.ip(), segment_len).add(&packet[segment..]);
    packet[segment + 16..segment + 18].copy_from_slice(&sum.finish().to_be_bytes());
    debug_assert!(packet.len() - begin <= 60 + 40 + segment_len);
}

fn emit_ip(source: IpAddr, destination: IpAddr, class: u8, segment_len: usize, packet: &mut Vec<u8>) {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let begin = packet.len();
            let total = (20 + segment_len) as u16;
            packet.extend_from_slice(&[0x45, class]);
            packet.extend_from_slice(&total.to_be_bytes());
            // No identification, don't fragment.
            packet.extend_from_slice(&[0, 0, 0x40, 0, HOPS, TCP, 0, 0]);
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
            packet.extend_from_slice(&[TCP, HOPS]);
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
