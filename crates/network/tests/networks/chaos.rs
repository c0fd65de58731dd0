//! Whatever happens at random to circuits and streams, nothing is left when they are over.

use heddle_client::{CircuitNumber, Closed, Exchange, ExchangeNumber, Handshake, OnionProxy, ProxyEvent};
use heddle_netem::{DirectionOptions, Jitter, Loss, Reorder};
use heddle_network::{ECHO, Net, Plan, STALL, download, upload};
use heddle_proto::cell::create::DestroyReason;
use heddle_relay::Relay;
use heddle_seam::rng::Rng;
use heddle_seam::time::Duration;
use heddle_sim::{HostId, Internet, Service, TraceHash, Wire};
use heddle_transport::registry;
use std::collections::BTreeSet;

/// What relays speak to each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    Tls,
    Quic,
    /// tcp-dtls, and QUIC where that fails.
    Both,
}

struct Chaos {
    net: Net,
    rng: Rng,
    circuits: Vec<CircuitNumber>,
    exchanges: Vec<ExchangeNumber>,
    killed: Option<usize>,
    /// Whether relays have flows, and their wires are in trouble.
    flows: bool,
    /// Circuits that were extended to any relay at all, which may be one that must refuse.
    odd: BTreeSet<CircuitNumber>,
    /// Exchanges with the server that never reads.
    stalled: usize,
}

/// What came about in a run.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    hash: TraceHash,
    /// Circuits that were built.
    built: usize,
    /// Bytes that came for exchanges.
    received_bytes: u64,
}

/// Connections of servers that read which may be left: the reset that would tell them can be lost on the wire.
const FORGOTTEN_MAX: usize = 5;

impl Chaos {
    fn new(seed: u64, over: Over) -> Self {
        let mut rng = heddle_seam::rng::Seed::from_number(seed).child("chaos", 0).rng();
        let wire = Wire {
            latency: Duration::from_millis(1 + rng.below(30)),
            jitter: Duration::from_millis(rng.below(5)),
            loss_ppm: rng.below(3) as u32 * 3_000,
            rate_bytes_per_s: (rng.below(2) == 0).then_some(2_000_000),
        };
        let receive_buffer_max_bytes = 16_000 << rng.below(5);
        let shards = (0..5).map(|_| 1 + rng.below(3) as usize).collect();
        let max_queue_bytes = if rng.below(4) == 0 { 100_000 } else { 4 << 20 };
        // The last relay but one is as stock Tor in this.
        let spoken: &[&str] = match over {
            Over::Tls => &[],
            Over::Quic => &["quic"],
            Over::Both => &["quic", "tcp-dtls"],
        };
        let mut plan = Plan { seed, wire, receive_buffer_max_bytes, shards, ..Plan::default() };
        plan.torrc.max_mem_in_queues = max_queue_bytes;
        for name in spoken {
            let transport = registry::named(name).expect("a transport of the registry");
            plan = plan.speaking(transport, &[0, 1, 2, 4]);
        }
        Chaos {
            net: Net::new(&plan),
            rng,
            circuits: Vec::new(),
            exchanges: Vec::new(),
            killed: None,
            flows: over != Over::Tls,
            odd: BTreeSet::new(),
            stalled: 0,
        }
    }

    fn pick<T: Copy>(&mut self, list: fn(&Self) -> &Vec<T>) -> Option<T> {
        let index = self.rng.below(list(self).len() as u64) as usize;
        list(self).get(index).copied()
    }

    /// A path of up to four relays; the exit comes last, or not at all.
    fn path(&mut self) -> Vec<usize> {
        let mut others = vec![0, 1, 2, 3];
        let len = 1 + self.rng.below(3) as usize;
        let mut path: Vec<usize> =
            (0..len).map(|_| others.remove(self.rng.below(others.len() as u64) as usize)).collect();
        path.extend((self.rng.below(5) > 0).then_some(4));
        path
    }

    fn act(&mut self) {
        match self.rng.below(20) {
            0..4 => {
                let path = self.path();
                let path = self.net.path(&path, self.rng.below(2) == 0);
                self.circuits.extend(self.net.proxy(|proxy| proxy.build(path)));
            }
            4..10 => self.begin(),
            10..12 => {
                let Some(id) = self.pick(|chaos| &chaos.exchanges) else { return };
                self.proxy(|proxy, now| proxy.end(now, id));
            }
            12..15 => {
                let Some(id) = self.pick(|chaos| &chaos.exchanges) else { return };
                let reading = self.rng.below(2) == 0;
                self.proxy(|proxy, now| proxy.set_reading(now, id, reading));
            }
            15 => {
                let Some(circuit) = self.pick(|chaos| &chaos.circuits) else { return };
                self.proxy(|proxy, _| proxy.close_circuit(circuit));
            }
            16 => {
                let Some(circuit) = self.pick(|chaos| &chaos.circuits) else { return };
                let hops = 1 + self.rng.below(3) as usize;
                // Not every circuit is long enough, or still there.
                let _ = self.proxy(|proxy, _| proxy.truncate(circuit, hops));
            }
            17 => {
                let Some(circuit) = self.pick(|chaos| &chaos.circuits) else { return };
                self.odd.insert(circuit);
                let relay = self.rng.below(5) as usize;
                let hop = self.net.relays[relay].hop.clone();
                self.proxy(|proxy, _| {
                    proxy.circuit_mut(circuit).map(|circuit| circuit.extend(&hop, Handshake::Ntor))
                });
            }
            18 if self.killed.is_none() && self.rng.below(20) == 0 => {
                let relay = self.rng.below(4) as usize;
                self.net.sim.kill(self.net.relays[relay].host);
                self.killed = Some(relay);
            }
            19 if self.flows => self.trouble(),
            _ => {
                let pause = Duration::from_millis(1 << self.rng.below(12));
                self.net.sim.run_for(pause);
            }
        }
    }

    /// Something happens to the wire between two relays.
    fn trouble(&mut self) {
        let (a, b) = (self.rng.below(5) as usize, self.rng.below(5) as usize);
        let hosts = (self.net.relays[a].host, self.net.relays[b].host);
        match self.rng.below(6) {
            _ if a == b => {}
            0..2 => self.net.sim.block_datagrams(hosts.0, hosts.1, true),
            2..4 => self.net.sim.block_datagrams(hosts.0, hosts.1, false),
            4 => self.net.sim.reset_streams(hosts.0, hosts.1),
            _ => self.net.sim.set_wire(
                hosts.0,
                hosts.1,
                DirectionOptions {
                    delay_ns: 1_000_000 * self.rng.below(50),
                    jitter: Jitter::Exponential { mean_ns: 2_000_000 },
                    jitter_reorders: true,
                    loss: Loss::Bernoulli { probability: self.rng.below(30) as f64 / 1000.0 },
                    reorder: Some(Reorder { probability: 0.05, hold_ns: 20_000_000 }),
                    duplicate: 0.01,
                    ..DirectionOptions::default()
                },
            ),
        }
    }

    fn begin(&mut self) {
        let Some(circuit) = self.pick(|chaos| &chaos.circuits) else { return };
        let bytes = self.rng.below(1_000_000);
        let exchange = match self.rng.below(4) {
            0 => download(bytes),
            1 => upload(bytes),
            2 => Exchange { port: STALL, ..upload(bytes) },
            _ => Exchange { port: ECHO, ..upload(bytes) },
        };
        let is_stalled = exchange.port == STALL;
        let begun = self.proxy(|proxy, now| proxy.begin(now, circuit, exchange));
        self.stalled += usize::from(is_stalled && begun.is_ok());
        self.exchanges.extend(begun);
    }

    fn proxy<R>(&mut self, speak: impl FnOnce(&mut OnionProxy, heddle_seam::time::Instant) -> R) -> R {
        self.net.sim.with(self.net.client, 0, speak)
    }

    /// Ends all circuits; nothing of them may be left anywhere, and nobody may have blamed anybody.
    fn finish(mut self, seed: u64) -> Outcome {
        let mut built = 0;
        for event in self.proxy(|proxy, _| proxy.take_events()) {
            built += usize::from(matches!(event, ProxyEvent::Built(_)));
            let ProxyEvent::CircuitClosed(number, why) = event else { continue };
            let blamed = match why {
                Closed::Misbehaved(_) => true,
                Closed::Destroyed(reason) | Closed::Truncated { reason, .. } => {
                    reason == DestroyReason::PROTOCOL && !self.odd.contains(&number)
                }
            };
            assert!(!blamed, "seed {seed}: {number:?}: {why}");
        }
        let mut received_bytes = 0;
        for exchange in std::mem::take(&mut self.exchanges) {
            let status = self.proxy(|proxy, _| proxy.status(exchange));
            received_bytes += status.map_or(0, |status| status.received_bytes);
        }
        for circuit in std::mem::take(&mut self.circuits) {
            self.proxy(|proxy, _| proxy.close_circuit(circuit));
        }
        self.net.sim.run_for(Duration::from_secs(90));
        let killed = self.killed;
        for relay in (0..5).filter(|relay| killed != Some(*relay)) {
            for shard in 0..self.net.shards[relay] {
                let left = self.shard(self.net.relays[relay].host, shard);
                assert_eq!(left, (0, 0), "seed {seed}: circuits and cells of relay {relay}, shard {shard}");
            }
        }
        let count = |server: &mut Internet, _| (server.visitors(), server.visitors_of(Service::Stall));
        let (visitors, stalled) = self.net.sim.with(self.net.server, 0, count);
        // Who is never read from never learns that the other side left.
        assert!(stalled <= self.stalled, "seed {seed}: {stalled} connections stall, of {}", self.stalled);
        let left = visitors - stalled;
        assert!(left <= FORGOTTEN_MAX, "seed {seed}: {left} connections are left");
        Outcome { hash: self.net.sim.trace_hash(), built, received_bytes }
    }

    fn shard(&mut self, host: HostId, shard: usize) -> (usize, u32) {
        self.net.sim.with(host, shard, |relay: &mut Relay, _| (relay.circuits(), relay.queued_cells()))
    }
}

fn run(seed: u64, over: Over) -> Outcome {
    let mut chaos = Chaos::new(seed, over);
    for _ in 0..300 {
        chaos.act();
    }
    chaos.finish(seed)
}

/// Runs these seeds. Were there no circuits and no bytes, nothing could be left of them.
fn run_all(seeds: core::ops::Range<u64>, over: Over) {
    let outcomes: Vec<Outcome> = seeds.map(|seed| run(seed, over)).collect();
    let built: usize = outcomes.iter().map(|outcome| outcome.built).sum();
    let received_bytes: u64 = outcomes.iter().map(|outcome| outcome.received_bytes).sum();
    assert!(built >= 20 && received_bytes >= 100_000, "{outcomes:?}");
}

#[test]
fn nothing_is_left_in_the_end() {
    // Each takes a second or two, so that these are few.
    run_all(0..8, Over::Tls);
}

#[test]
fn nothing_is_left_of_circuits_on_quic() {
    run_all(0..5, Over::Quic);
}

#[test]
fn nothing_is_left_of_circuits_on_tcp_dtls() {
    run_all(100..105, Over::Both);
}

#[test]
fn chaos_repeats() {
    assert_eq!(run(77, Over::Tls), run(77, Over::Tls));
    assert_eq!(run(78, Over::Quic), run(78, Over::Quic));
    assert_eq!(run(79, Over::Both), run(79, Over::Both));
}
