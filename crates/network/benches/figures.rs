//! Figures that documents tell, in virtual time: `cargo bench -p heddle-network --bench figures -- lossy` prints how
//! long circuits take to be built where packets are lost, and without a name the names. It takes minutes.

// What the tests share has what they need, and their own modules have the tests' imports.
#![allow(dead_code, unused_imports, reason = "of use to the tests alone")]

#[path = "../tests/upgraded/lossy.rs"]
mod lossy;
#[path = "../tests/upgraded/transport.rs"]
mod transport;

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

#[allow(clippy::disallowed_methods, reason = "a program takes arguments")]
fn main() {
    // What cargo adds begins with a dash.
    match std::env::args().skip(1).find(|name| !name.starts_with('-')).as_deref() {
        Some("lossy") => lossy(),
        Some(other) => panic!("no figure is called {other}"),
        None => println!("lossy"),
    }
}
