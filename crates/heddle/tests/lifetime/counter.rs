//! Counts what passes between a relay and those who connect to it, TLS and all.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use heddle_lab::machine::ports::PortBlock;

/// A port that others know in place of the relay's. Its threads pass bytes on until the program
/// ends.
pub struct Counter {
    port: u16,
    relay_port: u16,
    _ports: Mutex<PortBlock>,
}

/// Bytes passed on so far, to the relay and from it.
static PASSED: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

impl Counter {
    pub fn start() -> Counter {
        let mut ports = PortBlock::reserve().unwrap();
        let relay_port = ports.take().unwrap();
        let port = ports.take().unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        thread::spawn(move || {
            for outside in listener.incoming().map(Result::unwrap) {
                // The relay may not listen yet, or no longer.
                if let Ok(inside) = TcpStream::connect((Ipv4Addr::LOCALHOST, relay_port)) {
                    join(outside, inside);
                }
            }
        });
        Counter { port, relay_port, _ports: Mutex::new(ports) }
    }

    /// The port that the relay advertises.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port that the relay listens on.
    pub fn relay_port(&self) -> u16 {
        self.relay_port
    }

    /// Bytes passed on so far, to the relay and from it.
    pub fn passed(&self) -> [u64; 2] {
        PASSED.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

fn join(outside: TcpStream, inside: TcpStream) {
    let (outside_too, inside_too) = (outside.try_clone().unwrap(), inside.try_clone().unwrap());
    thread::spawn(move || pass(outside, inside, &PASSED[0]));
    thread::spawn(move || pass(inside_too, outside_too, &PASSED[1]));
}

/// Passes bytes on one way until either side ends.
fn pass(mut from: TcpStream, mut to: TcpStream, count: &AtomicU64) {
    let mut chunk = vec![0; 64 * 1024];
    while let Ok(len @ 1..) = from.read(&mut chunk) {
        count.fetch_add(len as u64, Ordering::Relaxed);
        if to.write_all(&chunk[..len]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Read), to.shutdown(Shutdown::Write));
}
