//! Figures that documents tell, in virtual time: `cargo bench -p heddle-network --bench figures -- lossy` prints how
//! long circuits take to be built where packets are lost, `exit-by-round-trip` how well a guard guesses the exit, and
//! without a name the names. Each takes minutes.

// What the tests share has what they need, and their own modules have the tests' imports.
#![allow(dead_code, unused_imports, reason = "of use to the tests alone")]

#[path = "../tests/networks/datagrams/exit_by_round_trip.rs"]
mod exit_by_round_trip;
#[path = "../tests/networks/upgraded/lossy.rs"]
mod lossy;
#[path = "../tests/networks/upgraded/transport.rs"]
mod transport;

use exit_by_round_trip::{ALL_COUNTRIES, Attack, Cells, Guess, RELAYS_COUNTRIES, success};
use heddle_seam::time::Duration;
use lossy::{Lost, Path, builds, percentile};
use transport::{Transport, find_each_other};

/// Circuits of the table's rows.
const COUNT: usize = 200;

fn lossy() {
    println!("{COUNT} circuits, seed 1, packets lost between the first two of three relays; seconds");
    println!("lost       loss  one way  over        median    95 %    99 %  longest  over 5 s");
    for (lost, latency_ms) in
        [(Lost::Datagrams, 10), (Lost::All, 10), (Lost::Datagrams, 100), (Lost::All, 100)]
    {
        for loss_ppm in [100_000, 200_000, 300_000] {
            for over in [None, Some("quic"), Some("tcp-dtls")].map(|over| over.map(Transport::named)) {
                let times = builds(Path { over, at: 0, lost, loss_ppm, latency_ms }, 1, COUNT);
                let [half, p95, p99, most] = [50, 95, 99, 100].map(|p| percentile(&times, p).as_secs_f64());
                let long = times.iter().filter(|time| **time > Duration::from_secs(5)).count();
                println!(
                    "{:<9} {:>3} % {latency_ms:>5} ms  {:<8} {half:>9.2} {p95:>7.2} {p99:>7.2} {most:>8.2} {long:>9}",
                    format!("{lost:?}"),
                    loss_ppm / 10_000,
                    over.map_or("tls", Transport::name),
                );
            }
        }
    }
}

fn exit_by_round_trip() {
    println!(
        "{COUNT} circuits over relays at drawn distances, seeds from 1 on; jitter of 0.5 ms on each wire"
    );
    println!("relays in      cells      answers  error, ms   exit is the first of 20   of 100   of 600");
    for (place, delays) in [("28 countries", RELAYS_COUNTRIES), ("183 countries", ALL_COUNTRIES)] {
        for (cells, often) in [(Cells::Forwarded, 3), (Cells::HopByHop, 3), (Cells::HopByHop, 1)] {
            let attack = Attack { cells, delays, jitter: Duration::from_micros(500), often };
            let guesses: Vec<Guess> = (1..=COUNT as u64).map(|seed| attack.on_circuit(seed)).collect();
            let right = [20, 100, 600].map(|relays| success(&guesses, delays, relays));
            let percent = right.map(|(_, right)| (100.0 * right).round());
            println!(
                "{place:<14} {:<10} {often:>7} {:>10.2} {:>22} % {:>7} % {:>6} %",
                format!("{cells:?}"),
                right[0].0,
                percent[0],
                percent[1],
                percent[2],
            );
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a program takes arguments")]
fn main() {
    // What cargo adds begins with a dash.
    match std::env::args().skip(1).find(|name| !name.starts_with('-')).as_deref() {
        Some("lossy") => lossy(),
        Some("exit-by-round-trip") => exit_by_round_trip(),
        Some(other) => panic!("no figure is called {other}"),
        None => println!("lossy\nexit-by-round-trip"),
    }
}
