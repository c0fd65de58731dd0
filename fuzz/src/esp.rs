//! ESP: a tunnel that takes any datagrams among authentic ones, changed, repeated and late, while its keys change.
//!
//! What comes out was put in, and comes out once. What a stranger writes never comes out.

use heddle_esp::beet::Inner;
use heddle_esp::packet::{DUMMY, TCP, classify, payload_len_max};
use heddle_esp::{Arrived, Keys, Lifetime, Spi, Tunnel};
use heddle_seam::time::{Duration, Instant};
use std::net::Ipv4Addr;

const LIFETIME: Lifetime =
    Lifetime { packets_max: 8, bytes_max: 1 << 20, age_max: Duration::from_secs(1000) };
/// Packets that are on their way at most.
const PACKETS_MAX: usize = 64;

struct Ends {
    from: Tunnel,
    to: Tunnel,
    now: Instant,
    /// Of the keys that `from` seals with, and of the newest that `to` takes.
    generations: [u32; 2],
    /// What was sealed, and whether it has come out.
    packets: Vec<(Vec<u8>, bool)>,
}

pub fn run(data: &[u8]) {
    inner(data);
    let mut script = data;
    let mut ends = Ends::new();
    while !script.is_empty() {
        let step = take(&mut script);
        match step % 8 {
            0..=2 => ends.seal(take(&mut script)),
            3 => ends.deliver(take(&mut script), None),
            4 => {
                let flip = (take(&mut script), take(&mut script));
                ends.deliver(take(&mut script), Some(flip));
            }
            5 => ends.pass_time(take(&mut script)),
            _ => {
                let len = usize::from(take(&mut script)).min(script.len());
                let (datagram, rest) = script.split_at(len);
                script = rest;
                assert!(ends.to.open(ends.now, &mut datagram.to_vec()).is_err(), "nobody sealed it");
            }
        }
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let calm = (0..100u8).flat_map(|n| [0, n, 3, n]).collect();
    let late = (0..60u8).flat_map(|n| [0, n, 3, 60 - n, 3, n, 5, 1]).collect();
    let changed = (0..60u8).flat_map(|n| [0, n, 4, n.wrapping_mul(7), n, n, 3, n]).collect();
    let spi = generation(0).0.get().to_be_bytes();
    let stranger = [&[6, 40][..], &spi, &[0; 36], &[6, 1, 0xff]].concat();
    let packet = [&[0x45, 0, 0, 24][..], &[0, 0, 0x40, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2], b"data"];
    vec![calm, late, changed, stranger, packet.concat()]
}

/// Any inner packet: what is left out comes back but for what means nothing.
fn inner(packet: &[u8]) {
    let [local, remote] = [1, 2].map(|host| Ipv4Addr::new(10, 0, 0, host));
    let Some(stripped) = (Inner { local, remote }).strip(packet) else { return };
    let there = Inner { local: remote, remote: local };
    let header =
        there.header(stripped.protocol, stripped.ecn, stripped.payload.len()).expect("as long as before");
    let again = [&header[..], stripped.payload].concat();
    assert_eq!((Inner { local, remote }).strip(&again), Some(stripped));
}

impl Ends {
    fn new() -> Self {
        let now = Instant::from_nanos(1 << 40);
        let (spi, keys) = generation(0);
        let (back, back_keys) = generation(u32::MAX / 2);
        let from = Tunnel::new(now, (spi, &keys), (back, &back_keys), LIFETIME);
        let to = Tunnel::new(now, (back, &back_keys), (spi, &keys), LIFETIME);
        let mut ends = Ends { from, to, now, generations: [0; 2], packets: Vec::new() };
        ends.expect_next();
        ends
    }

    fn expect_next(&mut self) {
        self.generations[1] += 1;
        let (spi, keys) = generation(self.generations[1]);
        self.to.expect(spi, &keys);
    }

    fn seal(&mut self, kind: u8) {
        // Only what the other end expects is used.
        if self.from.is_short(self.now) && self.generations[0] < self.generations[1] {
            self.generations[0] += 1;
            let (spi, keys) = generation(self.generations[0]);
            self.from.renew(self.now, spi, &keys);
        }
        let number = self.packets.len();
        let next_header = if kind.is_multiple_of(16) { DUMMY } else { TCP };
        let mut packet = Vec::new();
        let payload = vec![number as u8; usize::from(kind) * 5];
        if number < PACKETS_MAX && self.from.seal(self.now, next_header, &payload, &mut packet).is_ok() {
            assert!(matches!(classify(&packet), Arrived::Esp(_)));
            assert!(payload_len_max(packet.len()).is_some_and(|max| max >= payload.len()));
            self.packets.push((packet, next_header == DUMMY));
        }
    }

    fn deliver(&mut self, which: u8, flip: Option<(u8, u8)>) {
        if self.packets.is_empty() {
            return;
        }
        let which = usize::from(which) % self.packets.len();
        let mut packet = self.packets[which].0.clone();
        if let Some((at, bit)) = flip {
            let at = usize::from(at) % packet.len();
            packet[at] ^= 1 << (bit % 8);
            assert!(self.to.open(self.now, &mut packet).is_err(), "it was changed");
            return;
        }
        if let Ok(Some(opened)) = self.to.open(self.now, &mut packet) {
            assert!(opened.payload.iter().all(|byte| usize::from(*byte) == which));
            assert!(!std::mem::replace(&mut self.packets[which].1, true), "it came out twice, or is a dummy");
        }
        if self.to.is_newest_used() {
            self.expect_next();
        }
    }

    fn pass_time(&mut self, tens: u8) {
        self.now += Duration::from_secs(u64::from(tens) * 10);
        while self.to.retired(self.now).is_some() {}
        assert!(self.to.inbound_spis().count() <= 3);
    }
}

fn generation(number: u32) -> (Spi, Keys) {
    let spi = Spi::new(0x1000 + number).expect("none of the reserved ones");
    let mut material = [7; 20];
    material[..4].copy_from_slice(&number.to_be_bytes());
    (spi, Keys::from_material(&material))
}

fn take(script: &mut &[u8]) -> u8 {
    let Some((first, rest)) = script.split_first() else { return 0 };
    *script = rest;
    *first
}
