//! IP packets as who drives a TUN device needs them: where their parts lie, and their checksums (RFC 791, 8200, 9293,
//! 768, 1071).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;

/// The destination of a packet; `None` when it is too short or of no known version.
pub fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(Ipv4Addr::from(*packet.get(16..20)?.first_chunk::<4>()?).into()),
        6 => Some(Ipv6Addr::from(*packet.get(24..40)?.first_chunk::<16>()?).into()),
        _ => None,
    }
}

/// What the length fields of a packet say about it, which may be less than what follows them.
pub fn declared_bytes(packet: &[u8]) -> Option<usize> {
    match packet.first()? >> 4 {
        4 => Some(usize::from(u16_at(packet, 2)?)),
        6 => Some(usize::from(u16_at(packet, 4)?) + 40),
        _ => None,
    }
}

/// Where the header of TCP that begins at `start` ends by its own length, if that byte is there; what follows may be
/// missing.
pub(crate) fn tcp_end(packet: &[u8], start: usize) -> Option<usize> {
    Some(start + 4 * usize::from(packet.get(start + 12)? >> 4))
}

/// Writes the packet's length, and a number after the one that it had (RFC 791), into its IP header, which ends at
/// `end`.
pub fn set_ip_header(packet: &mut [u8], end: usize, number: u16) {
    let bytes = packet.len();
    if packet[0] >> 4 == 4 {
        set_u16(packet, 2, bytes as u16);
        let id = u16_at(packet, 4).unwrap_or(0).wrapping_add(number);
        set_u16(packet, 4, id);
        set_ipv4_checksum(packet, end);
    } else {
        set_u16(packet, 4, (bytes - 40) as u16);
    }
}

/// Writes the checksum of an IPv4 header that ends at `end`.
pub(crate) fn set_ipv4_checksum(packet: &mut [u8], end: usize) {
    set_u16(packet, 10, 0);
    let checksum = !fold(sum(&packet[..end]));
    set_u16(packet, 10, checksum);
}

/// Writes the checksum of a transport's segment that begins at `start` and has its checksum field at `field`.
pub fn set_checksum(packet: &mut [u8], start: usize, field: usize, protocol: u8) {
    set_u16(packet, field, 0);
    let total = pseudo_header(packet, packet.len() - start, protocol) + sum(&packet[start..]);
    set_u16(packet, field, transport_checksum(total, protocol));
}

/// Writes the checksum of what begins at `start`, without a pseudo header, as ICMPv4 has it.
pub fn set_plain_checksum(packet: &mut [u8], start: usize, field: usize) {
    set_u16(packet, field, 0);
    let checksum = !fold(sum(&packet[start..]));
    set_u16(packet, field, checksum);
}

/// Finishes a checksum: the field holds the sum of the pseudo header so far.
pub(crate) fn finish_checksum(packet: &mut [u8], start: usize, field: usize) {
    let checksum = transport_checksum(sum(&packet[start..]), 0);
    // Zero means to UDP that there is none; TCP may use either form of zero.
    set_u16(packet, field, if checksum == 0 { 0xffff } else { checksum });
}

/// Writes the sum of the pseudo header, which the kernel will finish.
pub(crate) fn begin_checksum(packet: &mut [u8], segment_bytes: usize, field: usize, protocol: u8) {
    let begun = fold(pseudo_header(packet, segment_bytes, protocol));
    set_u16(packet, field, begun);
}

fn transport_checksum(sum: u64, protocol: u8) -> u16 {
    match !fold(sum) {
        0 if protocol == UDP => 0xffff,
        checksum => checksum,
    }
}

fn pseudo_header(packet: &[u8], segment_bytes: usize, protocol: u8) -> u64 {
    let addresses = if packet[0] >> 4 == 4 { 12..20 } else { 8..40 };
    sum(&packet[addresses]) + segment_bytes as u64 + u64::from(protocol)
}

/// The sum of 16-bit words of RFC 1071. Words of 32 bits in the machine's own order are added instead, which folds to
/// the same with its two bytes in that order, and which a processor does several at a time: every byte that a stack of
/// a relay's sends is added up here.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let words: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    u64::from(u16::from_be(fold(words + u64::from(u32::from_ne_bytes(last)))))
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..at + 2)?.first_chunk()?))
}

pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..at + 4)?.first_chunk()?))
}

pub fn set_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

pub fn set_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_a_published_header() {
        // The example of Wikipedia's article on the IPv4 header checksum.
        let mut header = hex("45000073000040004011 0000 c0a80001c0a800c7");
        header.resize(0x73, 0);
        set_ip_header(&mut header, 20, 0);
        assert_eq!(u16_at(&header, 10), Some(0xb861));
        assert_eq!(fold(sum(&header[..20])), 0xffff);
    }

    #[test]
    fn sums_by_words_of_any_length_agree_with_the_definition() {
        for len in 0..70 {
            let bytes: Vec<u8> = (0..len).map(|n| (n * 37 + 11) as u8).collect();
            let by_pairs = bytes
                .chunks(2)
                .map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0)))
                .sum();
            assert_eq!(fold(sum(&bytes)), fold(by_pairs), "{len}");
        }
    }

    #[test]
    fn begun_and_finished_is_the_whole_checksum() {
        let mut packet = hex("4500001e000040004011 0000 c0a80001c0a800c7 1f902710000a0000 4869");
        let mut whole = packet.clone();
        set_checksum(&mut whole, 20, 26, UDP);
        begin_checksum(&mut packet, 10, 26, UDP);
        finish_checksum(&mut packet, 20, 26);
        assert_eq!(packet, whole);
    }

    #[test]
    fn short_packets_have_no_destination() {
        let packet = hex("4500001e000040004011 0000 c0a80001c0a800c7");
        assert_eq!(destination(&packet), Some("192.168.0.199".parse().unwrap()));
        assert!((0..20).all(|len| destination(&packet[..len]).is_none()));
        assert_eq!(destination(&[0x60; 39]), None);
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b' ').collect();
        let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(pair).collect()
    }
}
