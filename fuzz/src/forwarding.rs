//! What hops and ends of circuits whose cells are datagrams read: FORWARD, FORWARDED, cells, and behind a cell's tag
//! the packets and messages of a session.

use heddle_forwarding::{Forward, Forwarded, HopKeys, Session};
use heddle_proto::cell::relay::{self, RelayCommand, StreamId};
use heddle_proto::cell::{BODY_LEN, Body};
use heddle_seam::rng::Seed;
use heddle_seam::time::{Duration, Instant};
use heddle_utcp::BufferPool;

/// The first byte chooses.
pub fn run(data: &[u8]) {
    let Some((which, rest)) = data.split_first() else {
        return;
    };
    match which % 3 {
        0 => requests(rest),
        1 => cells(rest),
        _ => packets(rest),
    }
}

/// What is read is said again.
fn requests(data: &[u8]) {
    let mut said = Vec::new();
    if let Some(forward) = Forward::parse(data) {
        forward.encode(&mut said);
        assert_eq!(Forward::parse(&said), Some(forward));
    }
    said.clear();
    if let Some(forwarded) = Forwarded::parse(data) {
        forwarded.encode(&mut said);
        assert_eq!(Forwarded::parse(&said), Some(forwarded));
    }
}

fn session() -> Session {
    Session::accept(&HopKeys::new([1; 16], [2; 16]), BufferPool::new(1 << 20))
}

/// Nobody guesses a tag.
fn cells(data: &[u8]) {
    let mut session = session();
    for bytes in data.chunks(BODY_LEN) {
        let mut body = [0; BODY_LEN];
        body[..bytes.len()].copy_from_slice(bytes);
        assert!(session.handle_cell(Instant::ZERO, &mut body).is_ok());
    }
    assert_eq!(session.stats().received_cells, 0);
}

/// A client that says anything, byte by byte: what it is answered is bounded, and so is what is kept of it. A byte of
/// length begins each packet, and the byte after it says what happens besides.
fn packets(mut data: &[u8]) {
    let mut session = session();
    let mut now = Instant::from_nanos(1_000_000_000);
    let mut body: Body = [0; BODY_LEN];
    let mut answer: Body = [0; BODY_LEN];
    relay::write(
        &mut answer,
        RelayCommand::DATA,
        StreamId::new(1),
        &[7; 300],
        &mut Seed::from_number(1).rng(),
    );
    while let Some((&[len, what], rest)) = data.split_first_chunk() {
        let (packet, rest) = rest.split_at(rest.len().min(2 * usize::from(len)));
        data = rest;
        if session.handle_packet(now, packet).is_err() || session.is_over() {
            return;
        }
        loop {
            match session.next_message(now, &mut body) {
                Ok(true) => assert!(relay::parse(&body).is_ok()),
                Ok(false) => break,
                Err(_) => return,
            }
        }
        if what & 1 == 1 && session.send(&answer).is_err() {
            return;
        }
        now += Duration::from_millis(u64::from(what >> 1) * 10);
        if session.poll_timeout().is_some_and(|at| at <= now) {
            session.handle_timeout(now);
        }
        let cells = (0..1000).take_while(|_| session.poll_cell(now, &mut body)).count();
        assert!(cells < 1000, "it sends without end");
        assert!(session.bytes() < 4 << 20, "{}", session.bytes());
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut forward = vec![0];
    let keys = HopKeys::new([3; 16], [4; 16]);
    Forward { part: heddle_forwarding::Part::Pass, keys: keys.clone() }.encode(&mut forward);
    let cells = core::iter::once(1).chain((0..1100u32).map(|at| at as u8)).collect();
    // The opening segment of flow 0 with a message of sixteen bytes, and an acknowledgement.
    let opening = [0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 1];
    let message = [1, 0, 7, 0, 3, b'a', b'b', b'c', 0, 0, 0, 0, 0, 0, 0, 0];
    let acknowledgement = [0x80, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0xff, 0];
    let mut packets = vec![2, 15, 1];
    packets.extend(opening.into_iter().chain(message).chain([1]));
    packets.extend([7, 9]);
    packets.extend(acknowledgement.into_iter().chain([1]));
    vec![forward, cells, packets]
}
