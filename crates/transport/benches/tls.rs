//! What a cell costs over TLS, by the window that the system has: `cargo bench -p heddle-transport --bench tls`. Two
//! channels in memory, one sends and one reads, without a kernel between them. With `-- WINDOW_BYTES CELLS` one window
//! alone, of which callgrind counts instructions.
#![allow(clippy::disallowed_methods, reason = "a benchmark looks at the clock")]

use core::net::SocketAddr;
use heddle_proto::cell::{BODY_LEN, CELL_LEN, CircId, Command};
use heddle_proto::channel::{Channel, Incoming, StreamTransport, Target};
use heddle_seam::time::{Duration, Instant, UnixTime};
use heddle_transport::tls::TlsOptions;

#[path = "../tests/support/mod.rs"]
mod support;

const CELLS: usize = 400_000;
const UNIX_S: u64 = 1_798_000_000;
/// What a driver lets a channel send at once, and what it reads at once.
const QUANTUM: usize = 32 << 10;
const READ_LEN: usize = 64 << 10;
/// More turns than a handshake takes.
const TURNS: usize = 10;

fn main() {
    let args: Vec<usize> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    match args[..] {
        [window_bytes, cells] => run(window_bytes, cells),
        _ => [14_480, 60_000, usize::MAX].into_iter().for_each(|window_bytes| run(window_bytes, CELLS)),
    }
}

fn run(window_bytes: usize, cells: usize) {
    let [mut from, mut to] = open();
    let clock = std::time::Instant::now;
    let (mut spent, mut sent_bytes, mut sent, mut read) = ([Duration::ZERO; 2], 0, 0, 0);
    // As busy as a channel gets: never idle for long.
    let mut now = Instant::ZERO;
    while read < cells {
        now += Duration::from_micros(50);
        let started = clock();
        let mut out = Vec::with_capacity(QUANTUM);
        from.handle_window(window_bytes);
        from.handle_writable(now, QUANTUM);
        while from.capacity() > 0 && sent < cells {
            from.send(now, CircId::new(1 << 31 | 1).expect("not zero"), Command::RELAY, &[7; BODY_LEN]);
            sent += 1;
        }
        from.poll_transmit(now, &mut out);
        spent[0] += started.elapsed();
        sent_bytes += out.len();
        let started = clock();
        read += receive(&mut *to, now, &out);
        spent[1] += started.elapsed();
    }
    let per_cell = |time: Duration| time.as_nanos() as f64 / cells as f64;
    println!(
        "window {window_bytes}: sender {:.0}, receiver {:.0} ns per cell; {:.1} bytes per cell beyond {CELL_LEN}",
        per_cell(spent[0]),
        per_cell(spent[1]),
        sent_bytes as f64 / cells as f64 - CELL_LEN as f64
    );
}

/// Gives a channel what was sent, and counts the cells that come out.
fn receive(channel: &mut dyn Channel, now: Instant, bytes: &[u8]) -> usize {
    let mut cells = 0;
    for mut rest in bytes.chunks(READ_LEN) {
        while !rest.is_empty() {
            let taken = channel.handle_read(now, rest).expect("nobody spoils it");
            support::work_off(channel, now).expect("nobody spoils it");
            rest = &rest[taken..];
            while let Some(incoming) = channel.next_incoming(now).expect("nobody spoils it") {
                cells += usize::from(matches!(incoming, Incoming::Cell { .. }));
            }
        }
    }
    cells
}

fn open() -> [Box<dyn Channel>; 2] {
    let addr: SocketAddr = "127.0.0.1:9001".parse().expect("an address");
    let (now, wall) = (Instant::ZERO, UnixTime { ns: UNIX_S * 1_000_000_000 });
    let identity = support::relay_identity(1, UNIX_S);
    let ids = identity.link.ids;
    let mut listener = support::transport(TlsOptions::default(), Some(identity), 1);
    let mut dialler = support::transport(TlsOptions::default(), None, 2);
    let target = Target { rsa: ids.rsa, ed25519: Some(ids.ed25519), addrs: vec![addr] };
    let mut channels = [dialler.dial(now, wall, &target, addr), listener.accept(now, wall, addr, addr)];
    for _ in 0..TURNS {
        for from in [0, 1] {
            let mut out = Vec::new();
            channels[from].handle_writable(now, usize::MAX);
            channels[from].poll_transmit(now, &mut out);
            receive(&mut *channels[1 - from], now, &out);
        }
    }
    channels
}
