//! SCTP: two associations whose packets are lost, repeated, late and bent, with messages and resets as a script says;
//! and chunks of any kind behind the right head.
//!
//! Without bent packets messages come whole, in order and once. With them nothing may panic, and memory stays bounded.

use heddle_sctp::wire::{PacketHead, Writer};
use heddle_sctp::{Association, Event, Options, Random};
use heddle_seam::time::{Duration, Instant};
use std::collections::VecDeque;

const RECEIVE_BYTES: usize = 20_000;
const STREAMS: u16 = 4;

/// The first byte chooses: an honest pair, one with bent packets, with chunks of either kind.
pub fn run(data: &[u8]) {
    if let Some((first, script)) = data.split_first() {
        Pair::new(*first).play(script);
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let script =
        |first: u8, step: u8| [first].into_iter().chain((0..250u8).map(|n| n.wrapping_mul(step))).collect();
    // Chunks as a stranger with the right tag may send them: a fragment, a SACK, a reset, an INIT.
    let fragment = [9, 24, 64, 3, 0, 21, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0];
    let sack = [9, 20, 3, 0, 0, 20, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 2];
    let reset = [9, 24, 130, 0, 0, 22, 0, 13, 0, 18, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0];
    let forged = [&[3][..], &fragment, &sack, &reset].concat();
    vec![script(0, 7), script(2, 11), script(1, 13), script(3, 29), forged]
}

struct Pair {
    ends: [Association; 2],
    ways: [VecDeque<Vec<u8>>; 2],
    now: Instant,
    is_forged: bool,
    may_forge: bool,
    written: [[u32; STREAMS as usize]; 2],
    read: [[u32; STREAMS as usize]; 2],
}

impl Pair {
    fn new(kind: u8) -> Self {
        let options = Options {
            interleaves: kind & 2 == 0,
            streams_max: STREAMS,
            receive_bytes_max: RECEIVE_BYTES,
            message_bytes_max: 4_000,
            timeouts_max: None,
            ..Options::default()
        };
        let end = |tag| Association::new(options.clone(), Random { tag, tsn: 0, cookie: [tag as u8; 32] });
        let mut ends = [end(1), end(2)];
        ends[0].connect();
        let mut pair = Pair {
            ends,
            ways: Default::default(),
            now: Instant::ZERO + Duration::from_secs(1),
            is_forged: false,
            may_forge: kind & 1 != 0,
            written: [[0; STREAMS as usize]; 2],
            read: [[0; STREAMS as usize]; 2],
        };
        for _ in 0..4 {
            pair.check();
            for end in 0..2 {
                while let Some(packet) = pair.ways[end].pop_front() {
                    pair.ends[end].handle_packet(pair.now, &packet);
                }
            }
        }
        pair
    }

    fn play(&mut self, mut script: &[u8]) {
        while let Some((step, rest)) = script.split_first() {
            script = rest;
            let end = usize::from(step >> 7);
            match step % 12 {
                0..=2 => {
                    if let Some(packet) = self.ways[end].pop_front() {
                        self.ends[end].handle_packet(self.now, &packet);
                    }
                }
                3 => drop(self.ways[end].pop_front()),
                4 => {
                    if let Some(packet) = self.ways[end].front() {
                        self.ends[end].handle_packet(self.now, packet);
                    }
                }
                5 => self.ways[end].rotate_left(usize::from(!self.ways[end].is_empty())),
                6 | 7 => self.write(end, take(&mut script)),
                8 => self.pass_time(take(&mut script)),
                9 if self.may_forge => self.forge(end, &mut script),
                10 if self.may_forge => self.bend(end, &mut script),
                _ => self.end(end, take(&mut script)),
            }
            self.check();
        }
    }

    /// A message that says which of its stream it is, of up to 4,000 bytes.
    fn write(&mut self, end: usize, byte: u8) {
        let stream = u16::from(byte) % STREAMS;
        let [sent, _] = self.ends[end].buffered_bytes();
        if sent > 50_000 {
            return;
        }
        let number = &mut self.written[end][usize::from(stream)];
        let mut message = number.to_be_bytes().to_vec();
        message.resize(4 + usize::from(byte) * 15, byte);
        *number += u32::from(self.ends[end].write(stream, message, 0, false));
    }

    fn pass_time(&mut self, tens: u8) {
        let next = self.ends.iter().filter_map(Association::poll_timeout).min();
        let wanted = self.now + Duration::from_millis(u64::from(tens) * 10);
        self.now = next.filter(|next| *next < wanted).unwrap_or(wanted).max(self.now);
        self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now));
    }

    fn end(&mut self, end: usize, how: u8) {
        match how {
            0 => self.ends[end].abort(),
            1 => self.ends[end].shutdown(),
            // Numbers of an honest pair would begin anew with it.
            2..=9 if self.may_forge => {
                self.is_forged = true;
                self.ends[end].reset_stream(u16::from(how) % STREAMS);
            }
            10..=13 => {
                let now = self.now;
                self.ends[end].on_path_back(now);
            }
            _ => {}
        }
    }

    /// Chunks of the script, behind a head that is right.
    fn forge(&mut self, end: usize, script: &mut &[u8]) {
        self.is_forged = true;
        let len = usize::from(take(script)).min(script.len());
        let (chunks, rest) = script.split_at(len);
        *script = rest;
        let mut packet = Vec::new();
        let tag = if chunks.first() == Some(&1) { 0 } else { end as u32 + 1 };
        let mut writer = Writer::begin(&mut packet, PacketHead { source: 5000, destination: 5000, tag });
        if let Some(([kind, flags, _, _], value)) = chunks.split_first_chunk::<4>() {
            writer.chunk(*kind, *flags, |out| out.extend_from_slice(value));
        }
        writer.finish();
        self.ends[end].handle_packet(self.now, &packet);
    }

    /// A bit of the next packet is another one, with a checksum that is right.
    fn bend(&mut self, end: usize, script: &mut &[u8]) {
        let (place, byte) = (usize::from(take(script)), take(script));
        if let Some(packet) = self.ways[end].front_mut() {
            let place = 12 + place % packet.len().saturating_sub(12).max(1);
            if let Some(bent) = packet.get_mut(place) {
                *bent ^= byte;
                packet[8..12].fill(0);
                self.is_forged = true;
            }
        }
    }

    /// Sends what wants to leave, reads what came, and looks at the bounds.
    fn check(&mut self) {
        for end in 0..2 {
            while let Some(event) = self.ends[end].poll_event() {
                if let Event::Readable(stream) = event {
                    self.read(end, stream);
                }
            }
            for turn in 0.. {
                assert!(turn < 1_000, "it does not stop sending");
                let mut packet = Vec::new();
                if self.ends[end].poll_packet(self.now, &mut packet).is_none() {
                    break;
                }
                assert!(packet.len() <= 1200);
                if self.ways[1 - end].len() < 1000 {
                    self.ways[1 - end].push_back(packet);
                }
            }
            let [_, received] = self.ends[end].buffered_bytes();
            assert!(received <= RECEIVE_BYTES, "{received}");
            assert!(self.ends[end].heap_bytes() < 100_000, "{}", self.ends[end].heap_bytes());
        }
    }

    fn read(&mut self, end: usize, stream: u16) {
        while let Some(message) = self.ends[end].read(stream) {
            if self.is_forged {
                continue;
            }
            let read = &mut self.read[end][usize::from(stream)];
            assert_eq!(message.bytes[..4], read.to_be_bytes());
            assert!(message.bytes[4..].iter().all(|byte| usize::from(*byte) * 15 + 4 == message.bytes.len()));
            *read += 1;
            assert!(*read <= self.written[1 - end][usize::from(stream)]);
        }
    }
}

fn take(script: &mut &[u8]) -> u8 {
    let Some((first, rest)) = script.split_first() else { return 0 };
    *script = rest;
    *first
}
