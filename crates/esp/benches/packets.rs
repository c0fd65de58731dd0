//! What a packet costs: `cargo bench -p heddle-esp --bench packets`. With `-- seal PACKETS` or `-- open PACKETS` one
//! direction alone, of which `perf stat -e instructions:u` or callgrind counts instructions; the difference of two
//! counts is that of their packets.
#![allow(clippy::disallowed_methods, reason = "a benchmark takes arguments and looks at the clock")]

use heddle_esp::packet::TCP;
use heddle_esp::{Inbound, Keys, Lifetime, Outbound, Spi};
use heddle_seam::time::Instant;
use std::hint::black_box;

const PAYLOAD_LEN: usize = 1_400;
const PACKETS: usize = 1_000_000;
/// Packets that are sealed before they are opened: what fits a processor's cache.
const BATCH: usize = 64;
const NOW: Instant = Instant::ZERO;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let packets = args.last().and_then(|last| last.parse().ok()).unwrap_or(PACKETS);
    let has = |word: &str| args.iter().any(|arg| arg == word);
    let both = !has("seal") && !has("open");
    run(packets, both || has("seal"), both || has("open"));
}

/// What is not measured is done all the same, but for opening, which nothing needs.
fn run(packets: usize, shows_seal: bool, opens: bool) {
    let (spi, keys) = (Spi::new(1_000).expect("an SPI"), Keys::from_material(&[1; 20]));
    let mut outbound = Outbound::new(NOW, spi, &keys, Lifetime::default());
    let mut inbound = Inbound::new(spi, &keys, Lifetime::default());
    let payload = [7; PAYLOAD_LEN];
    let mut batch: Vec<Vec<u8>> = (0..BATCH).map(|_| Vec::with_capacity(2 * PAYLOAD_LEN)).collect();
    let clock = std::time::Instant::now;
    let (mut sealing, mut opening) = (std::time::Duration::ZERO, std::time::Duration::ZERO);
    for _ in 0..packets / BATCH {
        let started = clock();
        for packet in &mut batch {
            packet.clear();
            outbound.seal(NOW, TCP, black_box(&payload), packet).expect("it may seal");
        }
        sealing += started.elapsed();
        if opens {
            let started = clock();
            for packet in &mut batch {
                black_box(inbound.open(NOW, packet).expect("authentic"));
            }
            opening += started.elapsed();
        }
    }
    let done = (packets / BATCH * BATCH) as f64;
    let show = |what: &str, time: std::time::Duration| {
        let ns = time.as_nanos() as f64 / done;
        println!(
            "{what} {ns:.0} ns for a packet of {PAYLOAD_LEN} bytes, {:.2} GB/s",
            PAYLOAD_LEN as f64 / ns
        );
    };
    if shows_seal {
        show("seal", sealing);
    }
    if opens {
        show("open", opening);
    }
}
