//! Packets per second that the emulator moves, what they cost, and how late they are:
//! `cargo bench -p heddle-lab --bench emulator`. It needs what the emulator needs.
//!
//! A row is one emulation: some pairs of hosts, with a stream of kernel TCP each over a wire of the rate, for a few
//! seconds. The cost is the CPU time of the threads that move packets, with what the kernels do on their behalf.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use heddle_lab::emulator::{EmulatedHostOptions, Emulation, NetworkOptions, RunOptions, Summary};
use heddle_lab::{Error, Result};
use heddle_netem::{DirectionOptions, Rate, WireOptions};

const LASTS: Duration = Duration::from_secs(6);

fn main() -> Result<()> {
    println!("streams  Mbit/s each  packets/s  packets/CPU-s  lateness us: p50     p99     max  valid");
    for (streams, mbit_s) in [(1, 10), (8, 10), (40, 5), (4, 50), (8, 50), (1, 400), (1, 2000)] {
        let summary = run(streams, mbit_s)?;
        let packets = summary.packets_sent as f64;
        println!(
            "{streams:>7}  {mbit_s:>11}  {:>9.0}  {:>13.0}  {:>16.0}  {:>6.0}  {:>6.0}  {}",
            packets / summary.duration_s,
            packets / summary.cpu_s,
            summary.lateness.p50_us,
            summary.lateness.p99_us,
            summary.lateness.max_us,
            if summary.valid { "yes" } else { "no" },
        );
    }
    Ok(())
}

/// Pairs of hosts that are joined by a wire each.
fn network(streams: usize, mbit_s: u64) -> NetworkOptions {
    let names = |stream: usize| [format!("from{stream}"), format!("to{stream}")];
    let host = |name| EmulatedHostOptions { name, ..EmulatedHostOptions::default() };
    let wire = |[from, to]: [String; 2]| WireOptions {
        from,
        to,
        there: DirectionOptions {
            rate: Rate::BitsPerS(mbit_s * 1_000_000),
            delay_ns: 10_000_000,
            ..DirectionOptions::default()
        },
        back: None,
    };
    NetworkOptions {
        hosts: (0..streams).flat_map(names).map(host).collect(),
        wires: (0..streams).map(names).map(wire).collect(),
        ..NetworkOptions::default()
    }
}

fn run(streams: usize, mbit_s: u64) -> Result<Summary> {
    let emulation = Emulation::start(&network(streams, mbit_s), &RunOptions::default())?;
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for stream in 0..streams {
            let (from, to) = connect(&emulation, stream)?;
            scope.spawn(|| send(from, &ended));
            scope.spawn(move || receive(to));
        }
        thread::sleep(LASTS);
        ended.store(true, Ordering::Relaxed);
        Ok::<(), Error>(())
    })?;
    emulation.stop()
}

fn connect(emulation: &Emulation, stream: usize) -> Result<(TcpStream, TcpStream)> {
    let (from, to) = (format!("from{stream}"), format!("to{stream}"));
    let address = SocketAddr::new(emulation.addresses(&to).unwrap_or_default()[0], 9);
    let doing = || Error::io("connecting two hosts");
    let listener = emulation.inside(&to, || TcpListener::bind(address))?.map_err(doing())?;
    let sender = emulation.inside(&from, || TcpStream::connect(address))?.map_err(doing())?;
    let (receiver, _) = listener.accept().map_err(doing())?;
    Ok((sender, receiver))
}

/// Sends until somebody says that it is enough. What a full buffer keeps waiting ends with the receiver.
fn send(mut stream: TcpStream, ended: &AtomicBool) -> io::Result<()> {
    stream.set_write_timeout(Some(Duration::from_millis(100)))?;
    while !ended.load(Ordering::Relaxed) {
        match stream.write(&[0; 65_536]) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn receive(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; 262_144];
    while stream.read(&mut buffer)? > 0 {}
    Ok(())
}
