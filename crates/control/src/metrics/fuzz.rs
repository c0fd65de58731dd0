//! The body of a fuzz target: visitors of the port who say anything, leave and come again, and a driver that answers at
//! any time and sends in pieces.

use super::request::HEAD_BYTES_MAX;
use super::{EXCHANGE_MAX, MetricsPort, Phase, VISITORS_MAX};
use crate::language::{Figures, Standing, Wanted};
use core::net::SocketAddr;
use heddle_proto::policy::ExitPolicy;
use heddle_relay::{Control, RelayStats};
use heddle_seam::node::{Input, Output, SocketError, SocketId};
use heddle_seam::time::{Duration, Instant};
use std::collections::BTreeMap;

/// Shards that there are to ask.
const SHARDS: u16 = 2;
/// No answer is longer: those of a relay without circuits have some ten kilobytes.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Whoever has a connection, as the driver knows him.
#[derive(Debug)]
struct Guest {
    may_ask: bool,
    heard: Vec<u8>,
}

struct Hall {
    port: MetricsPort,
    now: Instant,
    guests: BTreeMap<SocketId, Guest>,
    /// How many have come so far.
    came: u64,
    credit_bytes: usize,
}

/// Each byte is something that somebody does; what is said follows it behind its length.
pub fn visitors(mut script: &[u8]) {
    let local = "accept 127.0.0.1".parse().expect("a good rule");
    let port = MetricsPort::new(ExitPolicy::from_rules(&[local]), SHARDS);
    let mut hall = Hall { port, now: Instant::ZERO, guests: BTreeMap::new(), came: 0, credit_bytes: 1000 };
    while let Some((&what, rest)) = script.split_first() {
        script = rest;
        hall.step(what, &mut script);
        hall.settle();
        hall.check();
    }
    // The first turn may ask the driver for the sake of those that it then cuts off.
    for _ in 0..2 {
        hall.pass(EXCHANGE_MAX);
    }
    assert!(hall.guests.is_empty() && hall.port.next_end().is_none(), "everybody's time is over");
}

impl Hall {
    fn step(&mut self, what: u8, script: &mut &[u8]) {
        let which = usize::from(what >> 3);
        match what % 8 {
            0 => self.come(which.is_multiple_of(4)),
            1..=3 => {
                let Some((&len, rest)) = script.split_first() else { return };
                let (said, rest) = rest.split_at(usize::from(len).min(rest.len()));
                *script = rest;
                if let Some(socket) = self.guest(which).filter(|_| !said.is_empty()) {
                    self.port.recv_buf()[..said.len()].copy_from_slice(said);
                    self.port.handle(self.now, &Input::Read { socket, len: said.len() });
                }
            }
            4 => {
                if let Some(socket) = self.guest(which) {
                    self.port.handle(self.now, &Input::Eof { socket });
                }
            }
            5 => {
                if let Some(socket) = self.guest(which) {
                    self.guests.remove(&socket);
                    self.port.handle(self.now, &Input::Failed { socket, error: SocketError::Reset });
                }
            }
            6 => self.pass(Duration::from_millis(u64::from(what >> 3) * 100)),
            _ => match u16::from(what >> 3) {
                shard @ 0..3 => self.port.on_stats(self.now, shard, RelayStats::default()),
                3 => self.port.on_figures(self.now, &Figures::default(), &Standing::default()),
                credit => self.credit_bytes = usize::from(credit) * 16,
            },
        }
    }

    fn come(&mut self, may_ask: bool) {
        let socket = SocketId::accepted(self.came);
        self.came += 1;
        let peer = SocketAddr::from((if may_ask { [127, 0, 0, 1] } else { [192, 0, 2, 1] }, 5000));
        self.guests.insert(socket, Guest { may_ask, heard: Vec::new() });
        self.port.handle(self.now, &Input::Accepted { socket, local: peer, peer });
    }

    /// Who is the one of that number, counted round.
    fn guest(&self, which: usize) -> Option<SocketId> {
        self.guests.keys().nth(which % self.guests.len().max(1)).copied()
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.port.expire(self.now);
        self.settle();
    }

    /// Carries out what the port wants.
    fn settle(&mut self) {
        let (mut buf, credit) = (Vec::new(), self.credit_bytes);
        let writable = |socket| Input::Writable { socket, bytes: credit, window_bytes: credit };
        while let Some(output) = self.port.poll_output(&mut buf) {
            match output {
                Output::Send { socket } => {
                    assert!(!buf.is_empty() && buf.len() <= credit, "it sends what may be sent");
                    let guest = self.guests.get_mut(&socket).expect("he is there");
                    assert!(guest.may_ask, "a stranger is told nothing");
                    guest.heard.append(&mut buf);
                    assert!(guest.heard.len() <= ANSWER_BYTES_MAX);
                    self.port.handle(self.now, &writable(socket));
                }
                Output::Interest { socket, write: true, .. } => {
                    self.port.handle(self.now, &writable(socket));
                }
                Output::Interest { .. } => {}
                Output::Close { socket } => {
                    let guest = self.guests.remove(&socket).expect("he is there");
                    assert!(!guest.may_ask || guest.heard.is_empty() || is_whole(&guest.heard), "{guest:?}");
                }
                Output::Abort { socket } => drop(self.guests.remove(&socket).expect("he is there")),
                Output::Event(Wanted::Tell { shard, control: Control::Stats }) => assert!(shard < SHARDS),
                Output::Event(Wanted::Figures) => {}
                output => panic!("{output:?}"),
            }
        }
    }

    fn check(&self) {
        let visitors = &self.port.visitors;
        assert!(visitors.len() <= VISITORS_MAX && visitors.keys().eq(self.guests.keys()));
        for visitor in visitors.values() {
            assert!(visitor.ends <= self.now + EXCHANGE_MAX);
            match &visitor.phase {
                Phase::Asking(head) => assert!(head.len() < HEAD_BYTES_MAX),
                Phase::Waiting => {}
                Phase::Reading(rest) => assert!(rest.len() <= ANSWER_BYTES_MAX),
            }
        }
    }
}

/// Whether an answer is one of ours from its first byte to its last.
fn is_whole(answer: &[u8]) -> bool {
    let text = core::str::from_utf8(answer).unwrap_or_default();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    match head.strip_prefix("HTTP/1.0 200 OK\r\n") {
        Some(fields) => fields.contains(&format!("Content-Length: {}\r\n", body.len())),
        None => head.starts_with("HTTP/1.0 40") && body.is_empty(),
    }
}
