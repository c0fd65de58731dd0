//! What a network card does for a kernel: any frame is cut, and any packets are put together.
//!
//! What is put together and cut again is what it was, but for numbers and checksums; what stays alone is not touched.

use heddle_net::offload::{Cut, Run};
use heddle_net::packet::{self, TCP};

/// Bytes of the header in front of a frame.
const HEADER_LEN: usize = 10;

pub fn run(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind % 3 {
        0 => cut_any(rest),
        1 => put_together(rest),
        _ => cut_and_put_together(rest),
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for ipv6 in [false, true] {
        let packets: Vec<Vec<u8>> = (0..6u32).map(|number| segment(ipv6, number * 100, 100)).collect();
        let whole = segment(ipv6, 0, 550);
        let start = if ipv6 { 40 } else { 20 };
        let header = |gso: u8| {
            let bytes = [100u16, start, 16].map(u16::to_ne_bytes).concat();
            [&[1, gso, 0, 0][..], &bytes].concat()
        };
        let gso = if ipv6 { 4 } else { 1 };
        all.extend([gso, 0, 5].map(|gso| [&[0][..], &header(gso), &whole].concat()));
        let stride = packets[0].len() as u8;
        all.push([&[1, stride][..], &packets.concat()].concat());
        all.push([&[2][..], &header(gso), &whole].concat());
    }
    all
}

/// A segment of a connection, from this byte on.
fn segment(ipv6: bool, sequence: u32, data_len: usize) -> Vec<u8> {
    let mut packet = if ipv6 {
        [&[0x60, 0, 0, 0, 0, 0, TCP, 64][..], &[7; 32]].concat()
    } else {
        vec![0x45, 0, 0, 0, 0, 9, 64, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]
    };
    let start = packet.len();
    packet.extend([0, 80, 1, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0x50, 0x10, 16, 0, 0, 0, 0, 0]);
    packet.resize(start + 20 + data_len, 5);
    packet::set_u32(&mut packet, start + 4, sequence);
    packet::set_ip_header(&mut packet, start, 0);
    packet::set_checksum(&mut packet, start, start + 16, TCP);
    packet
}

/// All packets of a frame, in one buffer, and their lengths. They have one, but the last, which is no longer.
fn cut(frame: &[u8]) -> Option<(Vec<u8>, Vec<usize>)> {
    let mut cut = Cut::new(frame).ok()?;
    let (mut packets, mut lengths) = (Vec::new(), Vec::new());
    loop {
        let (before, next) = (packets.len(), cut.next_bytes());
        if !cut.append_next(&mut packets) {
            break;
        }
        assert!(next > 0 && packets.len() == before + next);
        lengths.push(next);
    }
    let (last, others) = lengths.split_last().expect("a frame holds a packet");
    assert!(others.iter().all(|len| *len == lengths[0]) && *last <= lengths[0]);
    Some((packets, lengths))
}

fn cut_any(frame: &[u8]) {
    let Some((packets, lengths)) = cut(frame) else { return };
    // Headers come once more for each.
    let whole = frame.len() - HEADER_LEN;
    let headers = (packets.len() - whole).checked_div(lengths.len() - 1).unwrap_or(0);
    assert_eq!(packets.len(), whole + headers * (lengths.len() - 1));
    assert!(headers < lengths[0], "each has data");
}

/// The frames that a kernel gets, each with how many packets it is of.
fn frames(packets: &mut [u8], stride: usize) -> Vec<(Vec<u8>, usize)> {
    let (mut frames, mut rest) = (Vec::new(), packets);
    while !rest.is_empty() {
        let (first, others) = rest.split_at(stride.min(rest.len()));
        let run = Run::of(first, others.chunks(stride));
        let (first_len, bytes) = (first.len(), rest.len().min(run.packets() * stride));
        let (together, others) = rest.split_at_mut(bytes);
        let header = run.begin(&mut together[..first_len]);
        let parts = run.parts(&header, together.chunks(stride));
        let frame = parts.as_slice().iter().flat_map(|part| part.to_vec()).collect();
        frames.push((frame, run.packets()));
        rest = others;
    }
    frames
}

fn put_together(data: &[u8]) {
    let Some((stride, packets)) = data.split_first() else { return };
    let stride = usize::from(*stride).max(1);
    let mut buffer = packets.to_vec();
    let mut came = Vec::new();
    for (frame, count) in frames(&mut buffer, stride) {
        if count == 1 {
            assert_eq!(frame[..HEADER_LEN], [0; HEADER_LEN]);
            came.extend_from_slice(&frame[HEADER_LEN..]);
            continue;
        }
        let (again, lengths) = cut(&frame).expect("it is a good one");
        assert_eq!(lengths.len(), count);
        came.extend(again);
    }
    assert_eq!(came.len(), packets.len());
    for (came, went) in came.chunks(stride).zip(packets.chunks(stride)) {
        assert!(came == went || without_sums(came) == without_sums(went));
    }
}

/// A segment without what is another when it is made anew: the packet's number, and checksums.
fn without_sums(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let start = if packet[0] >> 4 == 4 { 20 } else { 40 };
    if start == 20 {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
    }
    packet[start + 16..start + 18].fill(0);
    packet
}

/// What was cut of a frame can be put together, and is cut into the same again.
fn cut_and_put_together(frame: &[u8]) {
    let Some((packets, lengths)) = cut(frame) else { return };
    let mut all = Vec::new();
    for (frame, count) in frames(&mut packets.clone(), lengths[0]) {
        if count == 1 {
            all.extend_from_slice(&frame[HEADER_LEN..]);
        } else {
            all.extend(cut(&frame).expect("it is a good one").0);
        }
    }
    assert_eq!(all.len(), packets.len());
}
