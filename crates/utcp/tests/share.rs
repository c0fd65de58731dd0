//! How two connections share a wire in virtual time: one that paces, as ours do, and one that sends in bursts, as
//! Linux' do without the queueing discipline `fq`. Real Linux is in the plan `utcp-fidelity`.

use heddle_netem::{
    DirectionOptions, HostId, HostOptions, Loss, QueueOptions, Rate, Seed, Topology, TopologyOptions,
    WireOptions,
};
use heddle_utcp::{BufferPool, ConnectionId, Host, HostLimits, Instant, Options};
use std::net::SocketAddr;

const S: u64 = 1_000_000_000;
const APART: u64 = 3 * S;
const WARM_UP: u64 = 7 * S;
const END: u64 = 47 * S;
/// More steps than this at one instant mean that somebody goes in circles.
const STEPS_PER_INSTANT_MAX: u32 = 100_000;
/// The senders' addresses, and the port at which the receiver takes the connection of each.
const SENDERS: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 1, 0, 1]];
const RECEIVER: [u8; 4] = [10, 0, 0, 2];
const PORTS: [u16; 2] = [8001, 8002];

/// Mbit/s, round trip in milliseconds, loss, queue in round trips.
type Wire = (u64, u64, f64, f64);

struct Road {
    topology: Topology<Vec<u8>>,
    senders: [Host; 2],
    receiver: Host,
    now: u64,
    connections: [Option<ConnectionId>; 2],
    accepted: Vec<ConnectionId>,
    read: [u64; 2],
}

impl Road {
    fn new(&(mbit, rtt_ms, loss, queue): &Wire, options: [Options; 2], seed: u64) -> Self {
        let host = |name: &str| HostOptions { name: name.to_owned(), ..HostOptions::default() };
        let bytes_max = ((mbit * 125 * rtt_ms) as f64 * queue) as u64;
        let back = DirectionOptions {
            rate: Rate::BitsPerS(mbit * 1_000_000),
            delay_ns: rtt_ms * 500_000,
            queue: QueueOptions { bytes_max: bytes_max.max(4500), packets_max: 100_000, codel: None },
            ..DirectionOptions::default()
        };
        let loss = if loss > 0.0 { Loss::Bernoulli { probability: loss } } else { Loss::None };
        let there = DirectionOptions { loss, ..back.clone() };
        let wires = vec![WireOptions { from: "a".into(), to: "b".into(), there, back: Some(back) }];
        let hosts = vec![host("a"), host("b")];
        let wires = TopologyOptions { hosts, wires, default_wire: None };
        let topology = Topology::new(&wires, &Seed::from_number(seed)).expect("good options");
        let make = |options: Options, label: &str| {
            let mut rng = Seed::from_number(seed).child(&[label]).rng();
            let random = Box::new(move || rng.next_u64());
            Host::new(options, BufferPool::new(64 << 20), HostLimits::default(), random)
        };
        let mut receiver = make(Options::linux(), "receiver");
        PORTS.iter().for_each(|port| receiver.listen(*port));
        let [one, other] = options;
        let senders = [make(one, "one"), make(other, "other")];
        let (connections, accepted, read) = ([None; 2], Vec::new(), [0; 2]);
        Road { topology, senders, receiver, now: S, connections, accepted, read }
    }

    /// The first one's part of what both got, where the sender with this number begins.
    fn share(mut self, first: usize) -> f64 {
        self.connect(first);
        self.run_until(S + APART);
        self.connect(1 - first);
        self.run_until(S + APART + WARM_UP);
        let before = self.read;
        self.run_until(S + END);
        let got = [0, 1].map(|number| (self.read[number] - before[number]) as f64);
        got[0] / (got[0] + got[1])
    }

    fn connect(&mut self, number: usize) {
        let (from, to) =
            (SocketAddr::from((SENDERS[number], 0)), SocketAddr::from((RECEIVER, PORTS[number])));
        self.connections[number] = self.senders[number].connect(Instant::from_nanos(self.now), from, to);
    }

    fn run_until(&mut self, end: u64) {
        let mut still = 0;
        while self.now < end {
            self.settle();
            let hosts = self.senders.iter().chain([&self.receiver]);
            let timers = hosts.filter_map(|host| host.poll_timeout().map(Instant::as_nanos));
            let next = timers.chain(self.topology.next_time().map(Instant::as_nanos)).min();
            let next = next.unwrap_or(end).clamp(self.now, end);
            still = if next > self.now { 0 } else { still + 1 };
            assert!(still < STEPS_PER_INSTANT_MAX, "time stands still at {next} ns");
            self.now = next;
            let now = Instant::from_nanos(self.now);
            while let Some(delivery) = self.topology.poll(Instant::from_nanos(self.now)) {
                let to = SENDERS.iter().position(|sender| delivery.packet[16..20] == *sender);
                let host = to.map_or(&mut self.receiver, |number| &mut self.senders[number]);
                host.handle_packet(now, &delivery.packet);
            }
            self.senders.iter_mut().for_each(|host| host.handle_timeout(now));
            self.receiver.handle_timeout(now);
        }
    }

    /// Lets the applications write and read, and sends what wants to leave.
    fn settle(&mut self) {
        let now = Instant::from_nanos(self.now);
        for (host, id) in self.senders.iter_mut().zip(self.connections) {
            if let Some(connection) = id.and_then(|id| host.get_mut(id)) {
                while connection.write(&[0; 4096]) > 0 {}
            }
        }
        self.accepted.extend(self.receiver.poll_accept());
        for id in &self.accepted {
            let port = self.receiver.addresses(*id).expect("it is there").0.port();
            let connection = self.receiver.get_mut(*id).expect("it is there");
            let mut buffer = [0; 4096];
            while let count @ 1.. = connection.read(now, &mut buffer) {
                self.read[usize::from(port == PORTS[1])] += count as u64;
            }
        }
        let time = Instant::from_nanos(self.now);
        let mut packet = Vec::new();
        for host in &mut self.senders {
            while host.poll_packet(now, &mut packet) {
                let sent = self.topology.send(time, HostId(0), HostId(1), std::mem::take(&mut packet));
                sent.expect("there is a wire");
            }
        }
        while self.receiver.poll_packet(now, &mut packet) {
            let sent = self.topology.send(time, HostId(1), HostId(0), std::mem::take(&mut packet));
            sent.expect("there is a wire");
        }
    }
}

/// The shares of the one that paces, for both orders and these seeds.
fn shares(wire: &Wire, seeds: u64) -> Vec<f64> {
    let share = |seed, first| Road::new(wire, [Options::default(), Options::linux()], seed).share(first);
    (0..seeds).flat_map(|seed| [0, 1].map(|first| share(seed, first))).collect()
}

#[test]
fn pacing_neither_gains_nor_loses() {
    let shares = shares(&(4, 50, 0.0, 1.0), 1);
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    println!("{mean:.3} of {shares:.3?}");
    assert!((0.4..0.6).contains(&mean), "{shares:?}");
}

#[test]
#[ignore = "a minute in release"]
fn shares_over_many_wires() {
    let wires = [
        (10, 100, 0.0, 1.0),
        (10, 100, 0.01, 1.0),
        (10, 50, 0.0, 4.0),
        (20, 20, 0.0, 1.0),
        (20, 50, 0.0, 1.0),
        (20, 50, 0.0, 0.5),
        (50, 50, 0.001, 1.0),
    ];
    for wire in wires {
        let shares = shares(&wire, 5);
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        println!("{wire:?}: {mean:.3} of {shares:.2?}");
        assert!((0.4..0.6).contains(&mean), "{wire:?}: {shares:?}");
    }
}
