//! Thousands of TLS handshakes from one address that are begun and not gone on with, beside those of others.
//!
//! Whoever comes from elsewhere gets in. That it takes no more than a second is tested in virtual time
//! (`crates/relay/tests/relay/floods.rs`), because the flood is this machine's own work and delays this clock.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::StreamOwned;

use super::hostile::{VERSIONS, or_port, tls_client};
use super::house;
use super::support::TIMEOUT;
use super::support::not_run::not_run;

/// The relay that nobody else uses.
const FLOODED: &str = "heddleflooded";
/// What one address begins.
const KNOCKS: u64 = 15_000;
/// Descriptors of this process for all else.
const OTHER_DESCRIPTORS: u64 = 1_000;
/// Who comes after the flood has come, while all of it is held.
const GUESTS_AFTERWARDS: usize = 5;
/// How long the quickest of these takes at most: what any handshake may take in virtual time, where nobody else works.
const SOONEST_MAX: Duration = Duration::from_secs(1);
/// An address may have 153 handshakes at once (docs/reference/architecture.md), of 32 KB at most while they send no
/// more than a hello: 5 MB. The rest is for the guests and for what the allocator keeps.
const GROWTH_MAX_BYTES: u64 = 16 << 20;
/// Of what one address begins, so many get an answer at least, and are half-finished then.
const ANSWERED_MIN: usize = 100;

/// No address at which a relay listens: a handshake from there might be that relay's, and would have its reserve.
const FLOOD_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 2, 1);

fn tcp_from(address: Ipv4Addr) -> io::Result<TcpStream> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrV4::new(address, 0))?;
    connect(&socket, &or_port(FLOODED))?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// As many handshakes as there are descriptors for, each stopped after its ClientHello.
fn knock() -> Vec<TcpStream> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let knocks = KNOCKS.min(maximum.unwrap_or(u64::MAX).saturating_sub(OTHER_DESCRIPTORS));
    if knocks < KNOCKS {
        not_run(&format!("{KNOCKS} handshakes from one address: there are descriptors for {knocks}"));
    }
    let mut hello = Vec::new();
    tls_client().write_tls(&mut hello).unwrap();
    let knock = |_| {
        // The relay resets most of them, and some before the kernel told us that they are there.
        let mut stream = match tcp_from(FLOOD_ADDRESS) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return None,
            connected => connected.unwrap(),
        };
        let _ = stream.write_all(&hello);
        Some(stream)
    };
    (0..knocks).filter_map(knock).collect()
}

/// Whether the relay answered the ClientHello, also if it has closed the connection since.
fn is_answered(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    matches!(stream.peek(&mut [0]), Ok(1))
}

/// How long a handshake takes until the relay has answered VERSIONS. Who gets no answer in time fails.
fn guest(number: usize) -> Duration {
    let begun = Instant::now();
    let stream = tcp_from(Ipv4Addr::new(127, 0, 3, number as u8)).unwrap();
    let mut stream = StreamOwned::new(tls_client(), stream);
    stream.write_all(VERSIONS).unwrap();
    stream.read_exact(&mut vec![0; VERSIONS.len()]).unwrap();
    begun.elapsed()
}

#[test]
fn thousands_of_half_finished_handshakes_keep_nobody_else_out() {
    let relay = house().lab.network.relay(FLOODED).unwrap();
    let memory = || relay.usage().unwrap().rss_bytes;
    guest(0);
    let before = memory();
    let (held, took, afterwards) = thread::scope(|scope| {
        let flood = scope.spawn(knock);
        let mut took = Vec::new();
        while !flood.is_finished() {
            took.push(guest(took.len() % 250));
        }
        let held = flood.join().unwrap();
        let afterwards: Vec<Duration> = (0..GUESTS_AFTERWARDS).map(guest).collect();
        (held, took, afterwards)
    });
    let growth = memory().saturating_sub(before);
    let answered = held.iter().filter(|stream| is_answered(stream)).count();
    let [longest, soonest] = [took.iter().max().unwrap(), afterwards.iter().min().unwrap()];
    println!(
        "{} knocks, {answered} answered, {growth} bytes; {} guests, {longest:?}, {soonest:?} afterwards",
        held.len(),
        took.len()
    );
    // Others' work makes a guest late, and what a relay does for those who hang about makes all of them late.
    assert!(*soonest <= SOONEST_MAX, "{afterwards:?} after the flood");
    assert!(answered >= ANSWERED_MIN, "only {answered} handshakes are half-finished");
    assert!(growth <= GROWTH_MAX_BYTES, "{growth} bytes for {} handshakes", held.len());
    house().lab.check();
}
