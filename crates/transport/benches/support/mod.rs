//! What a cell costs over a transport: two endpoints in memory, one sends and one reads, without a kernel between them.
//! Prints nanoseconds per cell for each side, and how many cells a datagram and a call of `poll_transmit` carried.
#![allow(clippy::disallowed_methods, reason = "a benchmark looks at the clock")]

use bytes::BytesMut;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use heddle_proto::cell::{BODY_LEN, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{ConnId, ConnectionOptions, Endpoint, FlowState, PairSecrets};
use heddle_seam::datagrams::{Datagrams, Transmit};
use heddle_seam::rng::Seed;
use heddle_seam::time::Instant;
use std::time::Duration;
use zeroize::Zeroizing;

const CIRCUITS: u32 = 8;
const CELLS: u64 = 400_000;

/// How long a datagram is on its way.
const DELAY: Duration = Duration::from_millis(5);

/// Runs endpoints that `make` makes of an anchor, a key and a seed.
pub fn run(make: impl Fn(std::time::Instant, &Zeroizing<[u8; 32]>, &Seed) -> Box<dyn Endpoint>) {
    let clock = std::time::Instant::now;
    let anchor = clock();
    let mut ends = [0_u8, 1].map(|end| {
        let seed = Seed::from_number(u64::from(end));
        make(anchor, &Zeroizing::new([end + 1; 32]), &seed)
    });
    let mut now = Instant::ZERO;
    let conns = open(now, &mut ends);
    let (mut spent, mut calls, mut datagrams) = ([Duration::ZERO; 2], 0_u64, 0_u64);
    let (mut sent, mut read, mut turn) = (0_u64, 0_u64, 0_u32);
    let mut blocked = [false; CIRCUITS as usize];
    let mut wire: Vec<(usize, Transmit, Vec<u8>)> = Vec::new();
    while read < CELLS {
        // One half trip's worth of work at each end, and then everything arrives.
        let mut on_its_way = Vec::new();
        for end in [0, 1] {
            let started = clock();
            let endpoint = &mut ends[end];
            for (_, transmit, data) in wire.extract_if(.., |(to, ..)| *to == end) {
                let data = BytesMut::from(&data[..]);
                let from = addr(1 - end);
                let stride = transmit.stride;
                endpoint.handle_datagrams(now, Datagrams { from, to: None, ecn: transmit.ecn, stride, data });
            }
            endpoint.handle_timeout(now);
            while let Some((_, event)) = endpoint.poll_event(now) {
                if let heddle_proto::endpoint::ConnectionEvent::Writable(id) = event {
                    blocked[((id.get() - 1) & 0xff) as usize] = false;
                }
            }
            while endpoint.next_incoming(now).is_some() {
                read += 1;
            }
            loop {
                while end == 0 && endpoint.capacity(conns[0]) > 0 && blocked.contains(&false) {
                    turn = (turn + 1) % CIRCUITS;
                    if blocked[turn as usize] {
                        continue;
                    }
                    let command = if sent < u64::from(CIRCUITS) { Command::CREATE2 } else { Command::RELAY };
                    let id = CircId::new(1 << 31 | (turn + 1)).expect("not zero");
                    let state = endpoint.send(now, conns[0], id, command, &[7; BODY_LEN]);
                    blocked[turn as usize] = state == FlowState::Blocked;
                    sent += 1;
                }
                let mut out = Vec::new();
                let Some(transmit) = endpoint.poll_transmit(now, &mut out) else {
                    break;
                };
                if end == 0 {
                    calls += 1;
                    datagrams += out.len().div_ceil(transmit.stride) as u64;
                }
                on_its_way.push((1 - end, transmit, out));
            }
            spent[end] += started.elapsed();
        }
        wire = on_its_way;
        let timer = ends.iter_mut().filter_map(|end| end.poll_timeout()).min();
        now = match timer {
            Some(at) if wire.is_empty() => at.max(now),
            _ => now + DELAY,
        };
    }
    let per_cell = |time: Duration| time.as_nanos() as f64 / read as f64;
    println!("sender    {:>6.0} ns per cell", per_cell(spent[0]));
    println!("receiver  {:>6.0} ns per cell", per_cell(spent[1]));
    println!("cells per datagram {:.2}, per call {:.1}", ratio(sent, datagrams), ratio(sent, calls));
}

fn ratio(of: u64, by: u64) -> f64 {
    of as f64 / by.max(1) as f64
}

fn addr(end: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, end as u8 + 1)), 9000)
}

fn open(now: Instant, ends: &mut [Box<dyn Endpoint>; 2]) -> [ConnId; 2] {
    let keys = [ends[0].public_key(), ends[1].public_key()];
    let mut open = |end: usize, role: Role| {
        let secrets = PairSecrets {
            token: [1; 20],
            dialler_proof: Zeroizing::new([2; 32]),
            listener_proof: Zeroizing::new([3; 32]),
        };
        let (peer, peer_key) = (addr(1 - end), keys[1 - end]);
        ends[end].open(now, ConnectionOptions { role, local: None, peer, peer_key, secrets, flows_max: 100 })
    };
    let there = open(1, Role::Responder);
    [open(0, Role::Initiator), there]
}
