//! Captures that somebody made up: what is told apart must be seen, and what is not must not.

use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use super::*;
use heddle_net::packet::UDP;

const HOSTS: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 2]];
const BUSY: usize = 8;
const SECONDS: u64 = 6;

/// A packet from the first host or the second with these ports; a segment of TCP with this number, or a datagram.
fn packet(is_there: bool, ports: [u16; 2], number: Option<u32>, payload: &[u8]) -> Vec<u8> {
    let (mut ends, mut ports) = (HOSTS, ports);
    if !is_there {
        ends.reverse();
        ports.reverse();
    }
    let header = if number.is_some() { 20 } else { 8 };
    let all = (20 + header + payload.len()) as u16;
    let protocol = if number.is_some() { TCP } else { UDP };
    let mut packet = vec![0x45, 0];
    packet.extend(all.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    packet.extend(ends.concat());
    ports.iter().for_each(|port| packet.extend(port.to_be_bytes()));
    match number {
        Some(number) => {
            packet.extend(number.to_be_bytes());
            packet.extend([0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        }
        None => packet.extend([(all - 20).to_be_bytes(), [0, 0]].concat()),
    }
    packet.extend(payload);
    packet
}

/// What chance gives, as ciphertext looks.
struct Chance(ChaCha8Rng);

impl Chance {
    fn new() -> Chance {
        Chance(ChaCha8Rng::seed_from_u64(7))
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.fill_bytes(&mut bytes);
        bytes
    }
}

/// Packets of circuits that are busy together, 30 a second of each and as many answers. `make` has one's number, the
/// direction, and how many of its packets were before.
fn busy(mut make: impl FnMut(usize, bool, usize) -> Vec<u8>) -> Capture {
    let mut capture = Capture::default();
    for turn in 0..30 * SECONDS as usize {
        for circuit in 0..BUSY {
            let at = Duration::from_micros(33_333 * turn as u64 + 4000 * circuit as u64);
            for is_there in [true, false] {
                capture.add(at, is_there, &make(circuit, is_there, turn));
            }
        }
    }
    capture
}

/// A record of TLS with so many encrypted bytes.
fn record(chance: &mut Chance, count: usize) -> Vec<u8> {
    let mut record = vec![23, 3, 3];
    record.extend((count as u16).to_be_bytes());
    record.extend(chance.bytes(count));
    record
}

#[test]
fn a_connection_of_the_kernels_for_each_circuit_tells_all_apart() {
    let mut chance = Chance::new();
    // Each has its port, and what is above TCP is encrypted.
    let shown = view(
        &busy(|circuit, is_there, turn| {
            let record = record(&mut chance, 514);
            let number = (turn * record.len()) as u32;
            packet(is_there, [4000 + circuit as u16, 9001], Some(number), &record)
        }),
        Format::Unknown,
    );
    assert_eq!((shown.circuits, shown.flows), (Some(BUSY), [BUSY, 0]));
    for way in &shown.ways {
        assert_eq!((way.names["addresses and ports"], way.names["dscp"]), (BUSY, 1));
        assert_eq!((way.unread, way.unexplained, way.lengths), (0, Some(0), 1));
        let clear = 45.0 / (45.0 + 514.0);
        assert!(way.clear.is_some_and(|share| (share - clear).abs() < 1e-9), "{way:?}");
    }
}

#[test]
fn an_id_of_quic_for_each_circuit_tells_all_apart_and_one_for_all_none() {
    for ids in [BUSY, 1] {
        let mut chance = Chance::new();
        let capture = busy(|circuit, is_there, _| {
            // The first byte's lowest six bits are encrypted or drawn.
            let mut payload = vec![0x40 | chance.bytes(1)[0] & 0x3f];
            payload.extend([u8::from(is_there), (circuit % ids) as u8]);
            payload.extend([7; 10]);
            payload.extend(chance.bytes(560));
            packet(is_there, [443, 443], None, &payload)
        });
        let shown = view(&capture, Format::Quic);
        assert_eq!((shown.circuits, shown.flows), (Some(ids), [0, 1]));
        assert!(shown.ways.iter().all(|way| way.names["id"] == ids && way.names["flags"] == 1));
        assert!(shown.ways.iter().all(|way| way.unexplained == Some(0) && way.unread == 0));
        // Who does not know the format sees that its beginning is not encrypted.
        let unknown = view(&capture, Format::Unknown);
        assert!(unknown.ways.iter().all(|way| way.unexplained == Some(13)), "{unknown:?}");
    }
}

#[test]
fn sessions_of_dtls_and_associations_of_esp_tell_no_circuits_apart() {
    let mut chance = Chance::new();
    let dtls = busy(|circuit, is_there, _| {
        let mut payload = vec![u8::from(is_there); 8];
        payload.push(0x2f);
        payload.extend(chance.bytes(2));
        payload.extend([2, circuit as u8]);
        payload.extend(chance.bytes(512 + circuit));
        packet(is_there, [9001, 9001], None, &payload)
    });
    let shown = view(&dtls, Format::SessionDtls);
    assert_eq!(shown.circuits, Some(1));
    assert!(shown.ways.iter().all(|way| (way.unexplained, way.unread, way.lengths) == (Some(0), 0, BUSY)));
    let mut number = [0_u32; 2];
    let esp = busy(|_, is_there, _| {
        let number = &mut number[usize::from(is_there)];
        *number += 1;
        let mut payload = vec![9, 9, 9, u8::from(is_there)];
        payload.extend(number.to_be_bytes());
        payload.extend(u64::from(*number).to_be_bytes());
        payload.extend(chance.bytes(600));
        packet(is_there, [4500, 4500], None, &payload)
    });
    let shown = view(&esp, Format::Esp);
    assert_eq!(shown.circuits, Some(1));
    assert!(shown.ways.iter().all(|way| (way.unexplained, way.unread) == (Some(0), 0)));
}

#[test]
fn a_number_of_the_circuit_anywhere_in_clear_does_not_look_encrypted() {
    let mut chance = Chance::new();
    let capture = busy(|circuit, is_there, _| {
        let mut payload = vec![u8::from(is_there); 8];
        payload.extend([0x2b, 0, 0]);
        payload[9..].copy_from_slice(&chance.bytes(2));
        payload.extend(chance.bytes(500));
        payload[300] = circuit as u8;
        packet(is_there, [9001, 9001], None, &payload)
    });
    let shown = view(&capture, Format::SessionDtls);
    assert!(shown.ways.iter().all(|way| way.unexplained == Some(1)), "{shown:?}");
}

#[test]
fn records_are_followed_over_segments_and_sent_again_they_are_left_out() {
    let mut chance = Chance::new();
    let stream: Vec<u8> = (0..40).flat_map(|_| record(&mut chance, 700)).collect();
    let mut records = Records::default();
    let mut headers = 0;
    // Begun in the middle of one, nothing is known until a segment begins with one.
    assert_eq!(records.read(100, &stream[100..300]), None);
    for (segment, bytes) in stream.chunks(333).enumerate() {
        let number = (segment * 333) as u32;
        let clear = records.read(number, bytes).unwrap();
        headers += clear.ranges.iter().map(|range| range.len()).sum::<usize>();
        assert_eq!(records.read(number, bytes), None, "sent again");
    }
    assert_eq!(headers, 40 * 5);
    // After a hole nothing is known.
    assert_eq!(records.read(stream.len() as u32 + 9, &stream[9..80]), None);
    assert!(records.read(stream.len() as u32 + 1000, &stream[..80]).is_some());
}

#[test]
fn who_is_busy_for_a_moment_and_what_runs_on_are_no_names() {
    let mut chance = Chance::new();
    let mut capture = busy(|_, is_there, turn| {
        let record = record(&mut chance, 300);
        packet(is_there, [4000, 9001], Some((turn * record.len()) as u32), &record)
    });
    // Sixty packets of another connection in the last second, and one of another in each.
    for n in 0..60 {
        let other = packet(true, [4001, 9001], Some(n), &[0; 9]);
        capture.add(Duration::from_millis(1000 * (SECONDS - 1) + u64::from(n)), true, &other);
    }
    for second in 0..SECONDS {
        capture.add(Duration::from_secs(second), true, &packet(true, [4002, 9001], Some(0), &[]));
    }
    let shown = view(&capture, Format::Unknown);
    assert_eq!((shown.circuits, shown.flows), (Some(1), [3, 0]));
    assert_eq!(view(&Capture::default(), Format::Quic).circuits, None);
}

#[test]
fn lengths_gaps_and_what_is_no_packet_are_told() {
    let mut capture = Capture::default();
    for (ms, bytes) in [(0, 40), (5, 600), (7, 600), (8, 1500)] {
        let payload = vec![1; bytes - 28];
        capture.add(Duration::from_millis(ms), false, &packet(false, [1, 2], None, &payload));
    }
    capture.add(Duration::from_millis(9), false, &[0x45, 0, 0, 9]);
    let way = &view(&capture, Format::Unknown).ways[1];
    assert_eq!((way.packets, way.unread, way.lengths), (5, 1, 4));
    assert_eq!(way.by_length, [2, 0, 2, 0, 1]);
    assert_eq!(way.gaps, [5, 2, 1, 1].map(Duration::from_millis));
}

/// A second in which three packets of 600 bytes pass; in every other one, a tenth of a second on, another packet.
fn with_openings(bytes: usize) -> (Capture, [Vec<Duration>; 2]) {
    let mut capture = Capture::default();
    let mut moments = [Vec::new(), Vec::new()];
    for second in 0..24 {
        let at = Duration::from_secs(second);
        moments[usize::from(second % 2 == 1)].push(at);
        (1..4).for_each(|n| capture.add(at + Duration::from_millis(20 * n), true, &[0; 600]));
        if second % 2 == 0 {
            capture.add(at + Duration::from_millis(100), false, &vec![0; bytes]);
        }
        capture.add(at + Duration::from_millis(110), false, &[0; 600]);
        capture.add(at + Duration::from_millis(600), true, &[0; 77]);
    }
    (capture, moments)
}

fn judged(capture: &Capture, moments: &[Vec<Duration>; 2]) -> Option<f64> {
    let [happened, nothing] =
        moments.each_ref().map(|moments| lengths(capture, moments, Duration::from_millis(250)));
    told_apart(&happened, &nothing)
}

#[test]
fn a_length_of_its_own_or_one_packet_more_tells_an_opening() {
    for bytes in [590, 600] {
        let (capture, moments) = with_openings(bytes);
        assert_eq!(judged(&capture, &moments), Some(1.0));
        assert_eq!(judged(&capture, &[moments[0][..3].to_vec(), moments[1].clone()]), None);
    }
    let (capture, moments) = with_openings(590);
    let seen = lengths(&capture, &moments[0][..1], Duration::from_millis(250));
    let expected = [((false, 0), 2), ((false, 590), 1), ((false, 600), 1), ((true, 0), 3), ((true, 600), 3)];
    assert_eq!(seen, [Lengths::from(expected)]);
}

#[test]
fn what_chance_did_is_not_taken_for_an_opening() {
    let mut chance = Chance::new();
    let mut capture = Capture::default();
    let mut moments = [Vec::new(), Vec::new()];
    for second in 0..80 {
        let at = Duration::from_secs(second);
        moments[usize::from(second % 2 == 1)].push(at);
        // Lengths are all different, so that a rule for any of them fits where it was learnt.
        for n in 0..6 {
            let bytes = usize::from(u16::from_le_bytes([chance.bytes(1)[0], chance.bytes(1)[0] & 3]));
            capture.add(at + Duration::from_millis(n), true, &vec![0; bytes]);
        }
    }
    let right = judged(&capture, &moments).unwrap();
    assert!((0.3..0.7).contains(&right), "{right}");
}

#[test]
fn each_transports_datagrams_have_a_format() {
    for transport in Transport::all() {
        let is_known = Format::of(transport) != Format::Unknown;
        assert_eq!(is_known, !["stock", "tls"].contains(&transport.name()), "{transport}");
    }
}

fn any_packet() -> impl Strategy<Value = Vec<u8>> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
    let payload = (any::<bool>(), any::<[u16; 2]>(), any::<Option<u32>>(), bytes());
    let made =
        payload.prop_map(|(is_there, ports, number, payload)| packet(is_there, ports, number, &payload));
    // Whole ones of which some bytes are others.
    let bent = (made, proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6));
    let bent = bent.prop_map(|(mut packet, changes)| {
        changes.iter().for_each(|(at, value)| *at.get_mut(&mut packet) = *value);
        packet
    });
    prop_oneof![bytes(), bent]
}

proptest! {
    #[test]
    fn any_packets_are_read(packets in proptest::collection::vec((any::<u64>(), any_packet()), 0..40)) {
        let mut capture = Capture::default();
        for (at, packet) in &packets {
            capture.add(Duration::from_nanos(*at), at % 2 == 0, packet);
        }
        for format in [Format::Unknown, Format::Quic, Format::SessionDtls, Format::Esp] {
            let shown = view(&capture, format);
            let counted: usize = shown.ways.iter().map(|way| way.packets).sum();
            prop_assert_eq!(counted, packets.len());
            for way in &shown.ways {
                prop_assert_eq!(way.by_length.iter().sum::<usize>(), way.packets);
                prop_assert!(way.unread <= way.packets && way.lengths <= way.packets);
                prop_assert!(way.clear.is_none_or(|share| (0.0..=1.0).contains(&share)));
            }
        }
        let moments = [Duration::ZERO, Duration::from_secs(3), Duration::MAX];
        lengths(&capture, &moments, Duration::from_secs(1));
    }

    #[test]
    fn what_is_in_clear_lies_in_the_payload(payload in proptest::collection::vec(any::<u8>(), 0..300)) {
        let datagrams = [Format::Quic, Format::SessionDtls, Format::Esp].map(|format| format.read(&payload));
        let segment = Records::default().read(7, &payload);
        for clear in datagrams.into_iter().chain(segment) {
            let mut end = 0;
            for range in &clear.ranges {
                prop_assert!(end <= range.start && range.end <= payload.len(), "{:?}", clear);
                end = range.end;
            }
        }
    }
}
