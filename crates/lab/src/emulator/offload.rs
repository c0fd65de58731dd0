//! What a network card does for the kernel: segments and checksums on the way out, coalesces on the way in.
//!
//! A host's kernel hands over up to 64 KiB at once. A wire must see the packets that would be on it, or one lost packet
//! would be forty: so everything is cut here before loss, queue and delay, and put together again after them only where
//! packets of a connection arrive together.

use std::io::IoSlice;

use heddle_net::tun::HEADER_BYTES;

use super::packet::{self, TCP, UDP};

// From linux/virtio_net.h.
const NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const CWR: u8 = 0x80;

/// The longest that coalesced packets become.
const COALESCED_BYTES_MAX: usize = 65_535;
/// The most packets that are written as one: the kernel takes 1024 parts in a write, more than 64 KiB ever needs.
const COALESCED_PACKETS_MAX: usize = 64;

/// A frame that does not hold what its header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The header in front of a packet (VIRTIO 1.2, section 5.1.6), in the machine's byte order.
#[derive(Clone, Copy, Debug)]
struct Header {
    needs_checksum: bool,
    gso: u8,
    header_bytes: u16,
    segment_bytes: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

impl Header {
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Header {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Header {
            needs_checksum: bytes[0] & NEEDS_CSUM != 0,
            gso: bytes[1] & !GSO_ECN,
            header_bytes: word(2),
            segment_bytes: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        }
    }

    fn write(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = if self.needs_checksum { NEEDS_CSUM } else { 0 };
        bytes[1] = self.gso;
        let words = [self.header_bytes, self.segment_bytes, self.checksum_start, self.checksum_offset];
        for (place, word) in bytes[2..].chunks_exact_mut(2).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// Cuts a frame that a kernel handed over into the packets that a card would send, and calls `each` with them.
pub(super) fn segment(frame: &[u8], each: &mut impl FnMut(Vec<u8>)) -> Result<(), Malformed> {
    let (header, packet) = frame.split_first_chunk::<HEADER_BYTES>().ok_or(Malformed)?;
    let header = Header::parse(header);
    let start = usize::from(header.checksum_start);
    match header.gso {
        GSO_NONE if header.needs_checksum => {
            let field = start + usize::from(header.checksum_offset);
            if field + 2 > packet.len() {
                return Err(Malformed);
            }
            let mut packet = packet.to_vec();
            packet::finish_checksum(&mut packet, start, field);
            each(packet);
            Ok(())
        }
        GSO_NONE => {
            each(packet.to_vec());
            Ok(())
        }
        GSO_TCPV4 | GSO_TCPV6 => segment_tcp(packet, start, header.segment_bytes.into(), each),
        GSO_UDP => segment_udp(packet, start, header.segment_bytes.into(), each),
        _ => Err(Malformed),
    }
}

fn segment_tcp(
    packet: &[u8],
    start: usize,
    segment_bytes: usize,
    each: &mut impl FnMut(Vec<u8>),
) -> Result<(), Malformed> {
    let data_start = start + 4 * usize::from(packet.get(start + 12).ok_or(Malformed)? >> 4);
    let (headers, data) = packet.split_at_checked(data_start).ok_or(Malformed)?;
    if !holds_headers(headers, start, 20) || segment_bytes == 0 {
        return Err(Malformed);
    }
    let sequence = packet::u32_at(headers, start + 4).ok_or(Malformed)?;
    let flags = headers[start + 13];
    let last = data.len().div_ceil(segment_bytes).saturating_sub(1);
    for (number, part) in data.chunks(segment_bytes).enumerate() {
        let mut segment = [headers, part].concat();
        packet::set_ip_header(&mut segment, start, number as u16);
        packet::set_u32(&mut segment, start + 4, sequence.wrapping_add((number * segment_bytes) as u32));
        // What ends the data stands in the last segment only, and the answer to a congestion mark in the first.
        let only_last = if number == last { 0 } else { FIN | PSH };
        let only_first = if number == 0 { 0 } else { CWR };
        segment[start + 13] = flags & !only_last & !only_first;
        packet::set_checksum(&mut segment, start, start + TCP_CHECKSUM, TCP);
        each(segment);
    }
    Ok(())
}

fn segment_udp(
    packet: &[u8],
    start: usize,
    segment_bytes: usize,
    each: &mut impl FnMut(Vec<u8>),
) -> Result<(), Malformed> {
    let (headers, data) = packet.split_at_checked(start + 8).ok_or(Malformed)?;
    if !holds_headers(headers, start, 8) || segment_bytes == 0 {
        return Err(Malformed);
    }
    for (number, part) in data.chunks(segment_bytes).enumerate() {
        let mut datagram = [headers, part].concat();
        packet::set_ip_header(&mut datagram, start, number as u16);
        packet::set_u16(&mut datagram, start + 4, (part.len() + 8) as u16);
        packet::set_checksum(&mut datagram, start, start + UDP_CHECKSUM, UDP);
        each(datagram);
    }
    Ok(())
}

/// Whether there is an IP header before `start` and a transport header of at least `transport_bytes` behind it.
fn holds_headers(headers: &[u8], start: usize, transport_bytes: usize) -> bool {
    let ip_bytes = match headers.first().map(|byte| byte >> 4) {
        Some(4) => 20,
        Some(6) => 40,
        _ => return false,
    };
    start >= ip_bytes && headers.len() >= start + transport_bytes
}

/// Packets that arrived at a host together, in order, on their way into its kernel.
///
/// What waits here is given to the kernel before the emulator does anything else, so it is bounded by what one turn of
/// the emulator delivers to a host.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    packets: Vec<Arrival>,
}

#[derive(Debug)]
struct Arrival {
    packet: Vec<u8>,
    /// Where its data begins, when it may be put together with others of its connection.
    data_start: Option<usize>,
    due_ns: u64,
}

/// What goes into a kernel at once.
#[derive(Debug)]
pub(super) struct Together<'a> {
    /// The header and the packet.
    pub parts: &'a [IoSlice<'a>],
    /// How many packets of the wire that is.
    pub packets: u64,
    /// When the first of them was due.
    pub due_ns: u64,
}

impl Arrivals {
    pub(super) fn push(&mut self, packet: Vec<u8>, corrupted: bool, due_ns: u64) {
        // A corrupted packet goes to the kernel as it is: coalescing would give it a good checksum.
        let data_start = if corrupted { None } else { tcp_data_start(&packet) };
        self.packets.push(Arrival { packet, data_start, due_ns });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Hands everything over to `give`, put together where possible.
    pub(super) fn hand_over(&mut self, give: &mut impl FnMut(Together<'_>)) {
        let mut rest = self.packets.as_mut_slice();
        while !rest.is_empty() {
            let (together, others) = rest.split_at_mut(run_length(rest));
            let header = merge_headers(together);
            let mut parts = [IoSlice::new(&[]); COALESCED_PACKETS_MAX + 1];
            parts[0] = IoSlice::new(&header);
            for (number, arrival) in together.iter().enumerate() {
                let from = if number == 0 { 0 } else { arrival.data_start.unwrap_or(0) };
                parts[number + 1] = IoSlice::new(&arrival.packet[from..]);
            }
            let parts = &parts[..=together.len()];
            give(Together { parts, packets: together.len() as u64, due_ns: together[0].due_ns });
            rest = others;
        }
        self.packets.clear();
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
    let data_start = start + 4 * usize::from(packet.get(start + 12)? >> 4);
    let is_plain = packet.get(start + 13)? & !PSH == ACK;
    let is_whole = packet::declared_bytes(packet) == Some(packet.len());
    (is_plain && is_whole && data_start >= start + 20 && data_start < packet.len()).then_some(data_start)
}

/// How many of the first packets become one.
fn run_length(packets: &[Arrival]) -> usize {
    let Some((first, others)) = packets.split_first() else { return 0 };
    let Some(data_start) = first.data_start else { return 1 };
    let segment_bytes = first.packet.len() - data_start;
    let mut total_bytes = first.packet.len();
    let mut previous = first;
    for (number, next) in others.iter().enumerate() {
        let full = previous.packet.len() - data_start == segment_bytes && !has_push(previous);
        let fits = total_bytes + next.packet.len() - data_start.min(next.packet.len()) <= COALESCED_BYTES_MAX;
        let sequence_step = (number + 1) * segment_bytes;
        if !full || !fits || number + 1 == COALESCED_PACKETS_MAX || !continues(first, next, sequence_step) {
            return number + 1;
        }
        total_bytes += next.packet.len() - data_start;
        previous = next;
    }
    packets.len()
}

fn has_push(arrival: &Arrival) -> bool {
    arrival.packet[tcp_start(&arrival.packet) + 13] & PSH != 0
}

fn tcp_start(packet: &[u8]) -> usize {
    if packet[0] >> 4 == 4 { 20 } else { 40 }
}

/// Whether `next` is of the same connection as `first`, `sequence_step` bytes further on, and alike in all else.
fn continues(first: &Arrival, next: &Arrival, sequence_step: usize) -> bool {
    let (Some(data_start), true) = (first.data_start, first.data_start == next.data_start) else {
        return false;
    };
    let (one, other) = (&first.packet[..data_start], &next.packet[..data_start]);
    let start = tcp_start(one);
    let sequence = |packet: &[u8]| packet::u32_at(packet, start + 4).unwrap_or(0);
    let same = |range: std::ops::Range<usize>| one[range.clone()] == other[range];
    // All but length, number and checksum of the header.
    let same_ip =
        if start == 20 { same(0..2) && same(6..10) && same(12..20) } else { same(0..4) && same(6..40) };
    same_ip
        && next.packet.len() <= first.packet.len()
        && sequence(other) == sequence(one).wrapping_add(sequence_step as u32)
        && same(start..start + 4)
        && same(start + 8..start + 13)
        && same(start + 14..start + 16)
        && same(start + 18..data_start)
}

/// Makes the first of these packets the header of all, and gives what stands in front of it.
fn merge_headers(together: &mut [Arrival]) -> [u8; HEADER_BYTES] {
    let plain = [0; HEADER_BYTES];
    let Some((first, others)) = together.split_first_mut() else { return plain };
    let (Some(data_start), Some(last)) = (first.data_start, others.last()) else { return plain };
    let total_bytes: usize =
        first.packet.len() + others.iter().map(|other| other.packet.len() - data_start).sum::<usize>();
    let segment_bytes = first.packet.len() - data_start;
    let push = if has_push(last) { PSH } else { 0 };
    let packet = &mut first.packet;
    let start = tcp_start(packet);
    packet[start + 13] |= push;
    set_merged_lengths(packet, start, total_bytes);
    packet::begin_checksum(packet, total_bytes - start, start + TCP_CHECKSUM, TCP);
    let gso = if start == 20 { GSO_TCPV4 } else { GSO_TCPV6 };
    let header = Header {
        needs_checksum: true,
        gso,
        header_bytes: data_start as u16,
        segment_bytes: segment_bytes as u16,
        checksum_start: start as u16,
        checksum_offset: TCP_CHECKSUM as u16,
    };
    header.write()
}

fn set_merged_lengths(packet: &mut [u8], start: usize, total_bytes: usize) {
    if start == 20 {
        packet::set_u16(packet, 2, total_bytes as u16);
        packet::set_ipv4_checksum(packet, start);
    } else {
        packet::set_u16(packet, 4, (total_bytes - start) as u16);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A TCP packet as a kernel hands it over: the sum of the pseudo header stands in its checksum field.
    fn unsegmented(ipv6: bool, options: &[u8], flags: u8, data: &[u8]) -> Vec<u8> {
        let start = if ipv6 { 40 } else { 20 };
        let bytes = start + 20 + options.len() + data.len();
        let mut packet = vec![0; start];
        if ipv6 {
            packet[0] = 0x60;
            packet::set_u16(&mut packet, 4, (bytes - 40) as u16);
            packet[6..8].copy_from_slice(&[TCP, 64]);
            packet[8..40].copy_from_slice(&[7; 32]);
        } else {
            packet[..20]
                .copy_from_slice(&[69, 0, 0, 0, 255, 255, 64, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            packet::set_u16(&mut packet, 2, bytes as u16);
            packet::set_ipv4_checksum(&mut packet, 20);
        }
        packet.extend([0, 80, 1, 0, 0xff, 0xff, 0xf0, 0, 0, 0, 0, 9]);
        packet.extend([(5 + options.len() as u8 / 4) << 4, flags, 16, 0, 0, 0, 0, 0]);
        packet.extend(options);
        packet.extend(data);
        packet::begin_checksum(&mut packet, bytes - start, start + TCP_CHECKSUM, TCP);
        packet
    }

    fn frame(packet: &[u8], segment_bytes: u16) -> Vec<u8> {
        let start = tcp_start(packet);
        let header = Header {
            needs_checksum: true,
            gso: if start == 20 { GSO_TCPV4 } else { GSO_TCPV6 },
            header_bytes: (start + 4 * usize::from(packet[start + 12] >> 4)) as u16,
            segment_bytes,
            checksum_start: start as u16,
            checksum_offset: TCP_CHECKSUM as u16,
        };
        [&header.write()[..], packet].concat()
    }

    fn cut(frame: &[u8]) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        segment(frame, &mut |packet| packets.push(packet)).unwrap();
        packets
    }

    /// The checksums of a packet by the definition, with the sums of 16-bit words.
    fn has_good_checksums(packet: &[u8], protocol: u8) -> bool {
        let add = |bytes: &[u8]| -> u64 {
            bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0))).sum()
        };
        let start = tcp_start(packet);
        let addresses = if start == 20 { &packet[12..20] } else { &packet[8..40] };
        let whole =
            add(addresses) + u64::from(protocol) + (packet.len() - start) as u64 + add(&packet[start..]);
        let folds_to_ones = |sum: u64| sum > 0 && sum.is_multiple_of(0xffff);
        folds_to_ones(whole) && (start == 40 || folds_to_ones(add(&packet[..20])))
    }

    /// What a kernel would get for these packets arriving together.
    fn put_together(packets: Vec<Vec<u8>>, corrupted: bool) -> Vec<Vec<u8>> {
        let mut arrivals = Arrivals::default();
        packets.into_iter().for_each(|packet| arrivals.push(packet, corrupted, 0));
        let mut frames = Vec::new();
        arrivals.hand_over(&mut |together| {
            frames.push(together.parts.iter().flat_map(|part| part.to_vec()).collect());
        });
        frames
    }

    proptest! {
        #[test]
        fn what_is_cut_has_good_checksums_and_is_put_together_again(
            ipv6 in any::<bool>(),
            options in prop::sample::select(vec![0, 12, 40]),
            segment_bytes in 500u16..1461,
            data in prop::collection::vec(any::<u8>(), 1..20_000),
            push in any::<bool>(),
        ) {
            let flags = if push { ACK | PSH } else { ACK };
            let packet = unsegmented(ipv6, &vec![1; options], flags, &data);
            let handed_over = frame(&packet, segment_bytes);
            let packets = cut(&handed_over);
            prop_assert_eq!(packets.len(), data.len().div_ceil(segment_bytes.into()));
            for segment in &packets {
                prop_assert!(has_good_checksums(segment, TCP));
                prop_assert_eq!(packet::declared_bytes(segment), Some(segment.len()));
            }
            let alone = packets.len() == 1;
            let whole = put_together(packets, false);
            prop_assert_eq!(whole.len(), 1);
            if !alone {
                prop_assert_eq!(&whole[0], &handed_over);
            }
        }

        #[test]
        fn no_frame_makes_it_panic(
            mut frame in prop::collection::vec(any::<u8>(), 0..120),
            gso in prop::sample::select(vec![GSO_NONE, GSO_TCPV4, GSO_UDP]),
            start in 0u8..60,
        ) {
            if frame.len() > HEADER_BYTES + 9 {
                frame[1] = gso;
                frame[6..8].copy_from_slice(&[start, 0]);
                frame[HEADER_BYTES] = 0x45;
                frame[HEADER_BYTES + 6..HEADER_BYTES + 8].fill(0);
                frame[HEADER_BYTES + 9] = TCP;
            }
            let _ = segment(&frame, &mut |packet| {
                let _ = (packet::destination(&packet), put_together(vec![packet.clone(), packet], false));
            });
        }
    }

    #[test]
    fn what_is_not_contiguous_or_differs_stays_apart() {
        let packets = cut(&frame(&unsegmented(false, &[], ACK, &[5; 4000]), 1000));
        assert_eq!(put_together(packets.clone(), false).len(), 1);
        assert_eq!(put_together(packets.clone(), true).len(), 4);
        let lost: Vec<_> =
            packets.iter().enumerate().filter(|(n, _)| *n != 1).map(|(_, p)| p.clone()).collect();
        assert_eq!(put_together(lost, false).len(), 2);
        for (at, what) in [
            (1, "type of service"),
            (8, "time to live"),
            (21, "port"),
            (31, "acknowledgement"),
            (35, "window"),
        ] {
            let mut changed = packets.clone();
            changed[2][at] ^= 4;
            assert_eq!(put_together(changed, false).len(), 3, "{what}");
        }
        let twice = [packets.clone(), packets].concat();
        assert_eq!(put_together(twice, false).len(), 2);
    }

    #[test]
    fn only_the_last_segment_ends_the_data_and_only_the_first_answers_congestion() {
        let packets = cut(&frame(&unsegmented(false, &[], ACK | PSH | FIN | CWR, &[5; 3000]), 1000));
        let flags: Vec<u8> = packets.iter().map(|packet| packet[33]).collect();
        assert_eq!(flags, [ACK | CWR, ACK, ACK | PSH | FIN]);
        assert_eq!(packets.iter().map(|p| packet::u16_at(p, 4).unwrap()).collect::<Vec<_>>(), [0xffff, 0, 1]);
        let sequence = |p: &Vec<u8>| packet::u32_at(p, 24).unwrap();
        assert_eq!(packets.iter().map(sequence).collect::<Vec<_>>(), [0xffff_f000, 0xffff_f3e8, 0xffff_f7d0]);
    }

    #[test]
    fn datagrams_are_cut_and_a_lone_checksum_is_finished() {
        let mut packet = vec![69, 0, 0, 0, 0, 1, 64, 0, 64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        packet.extend([0, 7, 0, 9, 0, 0, 0, 0]);
        packet.extend([3; 250]);
        let mut header = Header {
            needs_checksum: true,
            gso: GSO_UDP,
            header_bytes: 28,
            segment_bytes: 100,
            checksum_start: 20,
            checksum_offset: 6,
        };
        let datagrams = cut(&[&header.write()[..], &packet].concat());
        assert_eq!(datagrams.iter().map(Vec::len).collect::<Vec<_>>(), [128, 128, 78]);
        assert!(datagrams.iter().all(|datagram| has_good_checksums(datagram, UDP)));
        assert_eq!(packet::u16_at(&datagrams[2], 24), Some(58));

        header.gso = GSO_NONE;
        packet::set_ip_header(&mut packet, 20, 0);
        packet::set_u16(&mut packet, 24, 258);
        packet::begin_checksum(&mut packet, 258, 26, UDP);
        let whole = cut(&[&header.write()[..], &packet].concat());
        assert!(whole.len() == 1 && has_good_checksums(&whole[0], UDP));
    }
}
