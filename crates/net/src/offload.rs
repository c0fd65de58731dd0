//! What a network card does for the kernel behind a TUN device: segments and checksums on the way out, coalesces on the
//! way in.
//!
//! A kernel hands over up to 64 KiB at once. Whoever is on the other side must see the packets that would be on a wire:
//! [`Cut`] makes them. Packets of a connection that arrive together go to the kernel as one: [`Run`] finds them, and
//! they stay where they are.
//!
//! Frames are the kernel's, so a bad one is only refused. Packets may be a stranger's: what is not plainly a segment
//! like the one before it goes to the kernel alone, as it is.

mod cut;
mod run;

pub use cut::{Cut, Malformed};
pub use run::{Parts, Run};

use crate::tun::HEADER_BYTES;

// From linux/virtio_net.h.
const NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// Where a segment of TCP has its checksum.
const TCP_CHECKSUM: usize = 16;

// Flags of TCP.
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const CWR: u8 = 0x80;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{self, TCP, UDP};
    use bytes::BytesMut;
    use proptest::prelude::*;

    /// Where TCP begins.
    fn tcp_start(packet: &[u8]) -> usize {
        if packet[0] >> 4 == 4 { 20 } else { 40 }
    }

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
        let (mut cut, mut packets) = (Cut::new(frame).unwrap(), Vec::new());
        let mut packet = Vec::new();
        while cut.append_next(&mut packet) {
            packets.push(std::mem::take(&mut packet));
        }
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
    fn put_together(mut packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let mut rest = packets.as_mut_slice();
        while let Some((first, others)) = rest.split_first() {
            let run = Run::of(first, others.iter().map(Vec::as_slice));
            let (together, others) = rest.split_at_mut(run.packets());
            let header = run.begin(&mut together[0]);
            let parts = run.parts(&header, together.iter().map(Vec::as_slice));
            frames.push(parts.as_slice().iter().flat_map(|part| part.to_vec()).collect());
            rest = others;
        }
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
            let whole = put_together(packets);
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
            let Ok(mut cut) = Cut::new(&frame) else { return Ok(()) };
            let mut packet = Vec::new();
            while cut.append_next(&mut packet) {
                let packet = std::mem::take(&mut packet);
                let _ = (packet::destination(&packet), put_together(vec![packet.clone(), packet]));
            }
        }
    }

    #[test]
    fn packets_of_one_frame_lie_behind_one_another_in_one_buffer() {
        let frame = frame(&unsegmented(false, &[1; 12], ACK | PSH, &[5; 4100]), 1000);
        let mut buffer = BytesMut::from(&b"before"[..]);
        let mut cut_up = Cut::new(&frame).unwrap();
        let lengths: Vec<usize> =
            std::iter::from_fn(|| Some(cut_up.next_bytes()).filter(|_| cut_up.append_next(&mut buffer)))
                .collect();
        assert_eq!(lengths, [1052, 1052, 1052, 1052, 152]);
        assert!(!cut_up.append_next(&mut buffer) && cut_up.next_bytes() == 0);
        assert_eq!(buffer, [&b"before"[..], &cut(&frame).concat()].concat());
        // As one again, of that buffer, in which only the first of the headers changes.
        let packets = &mut buffer[6..];
        let after = packets[1052..].to_vec();
        let run = Run::of(&packets[..1052], packets[1052..].chunks(1052));
        let header = run.begin(&mut packets[..1052]);
        let parts = run.parts(&header, packets.chunks(1052));
        assert_eq!(parts.as_slice().iter().flat_map(|part| part.to_vec()).collect::<Vec<u8>>(), frame);
        assert!(run.packets() == 5 && packets[1052..] == after);
    }

    #[test]
    fn a_run_ends_with_a_push_or_a_shorter_packet_or_where_an_ip_packet_does() {
        let lengths = |packets: &[Vec<u8>]| -> Vec<usize> {
            let frames = put_together(packets.to_vec());
            frames.iter().map(|frame| (frame.len() - HEADER_BYTES - 40).div_ceil(1000)).collect()
        };
        let packets = cut(&frame(&unsegmented(false, &[], ACK, &[5; 65_000]), 1000));
        assert_eq!(lengths(&packets), [64, 1], "as many as are written at once");
        let mut pushed = packets[..5].to_vec();
        pushed[2][33] |= PSH;
        assert_eq!(lengths(&pushed), [3, 2]);
        let short = cut(&frame(&unsegmented(false, &[], ACK, &[5; 2500]), 1000));
        assert_eq!(put_together([&short[..], &short[..]].concat()).len(), 2);
        let long = cut(&frame(&unsegmented(false, &[], ACK, &[5; 65_000]), 1400));
        let bytes = |frame: &Vec<u8>| frame.len() - HEADER_BYTES;
        let one_more = cut(&frame(&unsegmented(false, &[], ACK, &[5; 60_000]), 30_000));
        assert_eq!(put_together(long.clone()).iter().map(bytes).collect::<Vec<_>>(), [65_040]);
        let mut three = one_more.clone();
        three.push(one_more[1].clone());
        packet::set_u32(&mut three[2], 24, 0xffff_f000_u32.wrapping_add(60_000));
        assert_eq!(put_together(three).iter().map(bytes).collect::<Vec<_>>(), [60_040, 30_040]);
    }

    #[test]
    fn what_is_no_plain_segment_stays_as_it_is() {
        let packets = cut(&frame(&unsegmented(false, &[], ACK, &[5; 2000]), 1000));
        assert_eq!(put_together(packets.clone()).len(), 1);
        for (at, bits, what) in [
            (0, 1, "options of IP"),
            (0, 0x20, "IPv6"),
            (3, 1, "a length that is not its own"),
            (6, 0x20, "more fragments"),
            (7, 1, "a fragment"),
            (9, 1, "no TCP"),
            (32, 0x10, "a header that is too short"),
            (32, 0x50, "no header"),
            (33, FIN, "an end"),
            (33, 2, "a beginning"),
            (33, 4, "a reset"),
            (33, ACK, "no acknowledgement"),
            (33, 0x20, "something urgent"),
            (33, CWR, "an answer to congestion"),
            (33, 0x40, "an echo of congestion"),
        ] {
            let mut changed = packets.clone();
            changed.iter_mut().for_each(|packet| packet[at] ^= bits);
            let whole = put_together(changed.clone());
            let plain: Vec<Vec<u8>> =
                changed.iter().map(|packet| [&[0; HEADER_BYTES][..], packet].concat()).collect();
            assert_eq!(whole, plain, "{what}");
        }
        for len in [0, 1, 19, 20, 39, 40] {
            let cut_off = packets[0][..len].to_vec();
            assert_eq!(put_together(vec![cut_off.clone(), cut_off]).len(), 2, "{len} bytes");
        }
    }

    #[test]
    fn frames_that_do_not_hold_what_they_say_are_refused() {
        let good = frame(&unsegmented(false, &[], ACK, &[5; 2000]), 1000);
        assert!(Cut::new(&good).is_ok());
        for (at, value, what) in [
            (1, 2, "a kind that there is not"),
            (4, 0, "no bytes of a segment"),
            (6, 19, "a header that begins in another"),
            (6, 255, "a header of other bytes"),
            (HEADER_BYTES, 0x15, "a version that there is not"),
            (HEADER_BYTES + 32, 0x40, "a header that is too short"),
        ] {
            let mut bad = good.clone();
            bad[at] = value;
            if at == 4 {
                bad[5] = 0;
            }
            assert_eq!(Cut::new(&bad).err(), Some(Malformed), "{what}");
        }
        for len in [0, 9, 10, 29, 49, 50] {
            assert_eq!(Cut::new(&good[..len]).err(), Some(Malformed), "{len} bytes");
        }
        let far = [&[1, 0, 0, 0, 0, 0, 20, 0, 16, 0][..], &[0; 37]].concat();
        assert!(Cut::new(&far).is_err() && Cut::new(&[&far[..], &[0]].concat()).is_ok());
    }

    #[test]
    fn what_is_not_contiguous_or_differs_stays_apart() {
        let packets = cut(&frame(&unsegmented(false, &[], ACK, &[5; 4000]), 1000));
        assert_eq!(put_together(packets.clone()).len(), 1);
        let lost: Vec<_> =
            packets.iter().enumerate().filter(|(n, _)| *n != 1).map(|(_, p)| p.clone()).collect();
        assert_eq!(put_together(lost).len(), 2);
        for (at, what) in [
            (1, "type of service"),
            (8, "time to live"),
            (21, "port"),
            (31, "acknowledgement"),
            (35, "window"),
        ] {
            let mut changed = packets.clone();
            changed[2][at] ^= 4;
            assert_eq!(put_together(changed).len(), 3, "{what}");
        }
        let twice = [packets.clone(), packets].concat();
        assert_eq!(put_together(twice).len(), 2);
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
