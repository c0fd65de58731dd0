//! Datagrams between two hosts whose nodes do nothing but send and listen.

use super::*;
use crate::simulation::{Host, Options, WireWatch};
use crate::wire::Wire;
use heddle_netem::{DirectionOptions, HostOptions, QueueOptions, Rate, TopologyOptions};
use heddle_seam::language::Plain;
use heddle_seam::node::{Node, Output, SocketId};
use heddle_seam::time::Duration;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// What came: when, from where, the length of each datagram, and all bytes.
type Heard = (Duration, SocketAddr, usize, Vec<u8>);

/// Sends what the test gives it and remembers what it hears.
#[derive(Default)]
struct Talker {
    to_send: VecDeque<(Transmit, Vec<u8>)>,
    heard: Vec<Heard>,
}

impl Node<Plain> for Talker {
    fn recv_buf(&mut self, _: SocketId) -> &mut [u8] {
        unreachable!("there are no byte streams here")
    }

    fn handle_input(&mut self, now: Instant, input: Input<Plain>) {
        if let Input::Datagrams { port, datagrams } = input {
            assert_eq!((port, datagrams.to), (PortId(0), Some(addr(1).ip())));
            let bytes = datagrams.data.to_vec();
            self.heard.push((now.since(Instant::ZERO), datagrams.from, datagrams.stride, bytes));
        }
    }

    fn poll_output(&mut self, _: Instant, buf: &mut Vec<u8>) -> Output<Plain> {
        let Some((transmit, bytes)) = self.to_send.pop_front() else { return Output::Timeout(None) };
        buf.extend(bytes);
        Output::Datagrams { port: PortId(0), transmit }
    }
}

fn addr(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 443))
}

struct World {
    sim: Simulation<Plain>,
    hosts: [HostId; 2],
}

impl World {
    fn new(seed: u64, wire: Wire) -> Self {
        let mut sim = Simulation::new(seed, Options { default_wire: wire, ..Options::default() });
        let hosts = [0, 1].map(|host| {
            let nodes: Vec<Box<dyn crate::AnyNode<Plain>>> = vec![Box::<Talker>::default()];
            let host = sim.add_host(Host {
                addrs: vec![addr(host).ip()],
                ports: vec![],
                nodes,
                beside: vec![],
                plain: false,
            });
            sim.open_ports(host, 0, &[443]);
            host
        });
        World { sim, hosts }
    }

    fn send(&mut self, to: SocketAddr, stride: usize, bytes: &[u8]) {
        let transmit = Transmit { to, from: None, ecn: 0, stride };
        let bytes = bytes.to_vec();
        self.sim.with(self.hosts[0], 0, |node: &mut Talker, _| node.to_send.push_back((transmit, bytes)));
    }

    fn heard(&mut self) -> Vec<Heard> {
        self.sim.with(self.hosts[1], 0, |node: &mut Talker, _| std::mem::take(&mut node.heard))
    }

    /// Sends so many datagrams, one every millisecond; returns how many came.
    fn count(&mut self, number: usize) -> usize {
        for _ in 0..number {
            self.send(addr(1), 100, &[7; 100]);
            self.sim.run_for(Duration::from_millis(1));
        }
        self.sim.run_for(Duration::from_secs(1));
        self.heard().iter().map(|(_, _, stride, bytes)| bytes.len().div_ceil(*stride)).sum()
    }
}

#[test]
fn what_is_sent_together_comes_together() {
    let mut world = World::new(1, Wire::default());
    let bytes: Vec<u8> = (0..250).collect();
    world.send(addr(1), 100, &bytes);
    world.sim.run_for(Duration::from_secs(1));
    assert_eq!(world.heard(), [(Duration::from_millis(10), addr(0), 100, bytes)]);
}

#[test]
fn other_ports_and_hosts_hear_nothing() {
    let mut world = World::new(1, Wire::default());
    world.send(SocketAddr::new(addr(1).ip(), 444), 10, &[0; 10]);
    world.send(addr(9), 10, &[0; 10]);
    world.sim.run_for(Duration::from_secs(1));
    assert_eq!(world.heard(), []);
}

#[test]
fn a_firewall_drops_what_is_sent_while_it_is_up() {
    let mut world = World::new(1, Wire::default());
    let [a, b] = world.hosts;
    assert_eq!(world.count(5), 5);
    world.sim.block_datagrams(b, a, true);
    assert_eq!(world.count(5), 0);
    world.sim.block_datagrams(a, b, false);
    assert_eq!(world.count(5), 5);
}

#[test]
fn losses_are_those_of_the_wire() {
    let mut world = World::new(3, Wire { loss_ppm: 100_000, ..Wire::default() });
    let came = world.count(2000);
    assert!((1750..1850).contains(&came), "{came}");
}

#[test]
fn a_rate_has_a_queue_that_overflows() {
    let mut world = World::new(1, Wire::default());
    let [a, b] = world.hosts;
    let queue = QueueOptions { packets_max: 4, ..QueueOptions::default() };
    let rate = Rate::BitsPerS(1_024_000);
    world.sim.set_wire(a, b, DirectionOptions { rate, queue, ..DirectionOptions::default() });
    // Each takes a millisecond with its headers; one is served while four wait.
    world.send(addr(1), 100, &[0; 1000]);
    world.sim.run_for(Duration::from_secs(1));
    let times: Vec<_> = world.heard().iter().map(|(at, ..)| at.as_millis()).collect();
    assert_eq!(times, [1, 2, 3, 4, 5]);
}

#[test]
fn what_is_on_a_wire_when_it_changes_arrives_as_before() {
    let mut world = World::new(1, Wire::default());
    let [a, b] = world.hosts;
    world.send(addr(1), 10, &[1; 10]);
    world.sim.set_wire(a, b, Wire { latency: Duration::from_millis(2), ..Wire::default() });
    world.send(addr(1), 10, &[2; 10]);
    world.sim.run_for(Duration::from_secs(1));
    let heard: Vec<_> = world.heard().into_iter().map(|(at, .., bytes)| (at.as_millis(), bytes[0])).collect();
    assert_eq!(heard, [(2, 2), (10, 1)]);
    assert_eq!(world.sim.wires.between(a, b), 1);
}

#[test]
fn one_seed_makes_one_trace_of_sizes_and_times() {
    let run = |seed, contents: u8| {
        let wire = Wire { loss_ppm: 100_000, jitter: Duration::from_millis(3), ..Wire::default() };
        let mut world = World::new(seed, wire);
        for _ in 0..100 {
            world.send(addr(1), 100, &[contents; 250]);
            world.sim.run_for(Duration::from_millis(2));
        }
        world.sim.trace_hash()
    };
    let hash = run(1, 0);
    assert_eq!(run(1, 9), hash, "ciphertext is not in the trace");
    assert_ne!(run(2, 0), hash);
}

/// What a watch was told: when, from whom, what became of it, and how long the packet is.
type Told = (u64, HostId, Place, usize);

/// Remembers what it is told, but of what the second host sends.
struct Watch(Rc<RefCell<Vec<Told>>>);

impl WireWatch for Watch {
    fn wants(&self, from: HostId, _: HostId) -> bool {
        from == HostId(0)
    }

    fn on_packet(&mut self, at: Instant, from: HostId, to: HostId, place: Place, packet: &[u8]) {
        assert_eq!((to, packet[0], &packet[12..16]), (HostId(1), 0x45, &[10, 0, 0, 0][..]));
        let ms = at.since(Instant::ZERO).as_millis() as u64;
        self.0.borrow_mut().push((ms, from, place, packet.len()));
    }
}

/// What became of datagrams of a hundred bytes over a wire.
fn told(wire: DirectionOptions, network: Option<&TopologyOptions>, act: impl Fn(&mut World)) -> Vec<Told> {
    let told = Rc::new(RefCell::new(Vec::new()));
    let mut hashes = Vec::new();
    for is_watched in [true, false] {
        let mut world = World::new(1, Wire::default());
        let [a, b] = world.hosts;
        world.sim.set_wire(a, b, wire.clone());
        // What is there already is watched as what comes.
        world.send(addr(1), 60, &[0; 60]);
        world.sim.run_for(Duration::from_millis(500));
        if let Some(network) = network {
            world.sim.set_network(network, &heddle_netem::Seed::from_number(1)).unwrap();
        }
        if is_watched {
            world.sim.watch_wires(Box::new(Watch(told.clone())));
        }
        act(&mut world);
        world.sim.run_for(Duration::from_millis(500));
        hashes.push(world.sim.trace_hash());
    }
    assert_eq!(hashes[0], hashes[1], "nothing depends on who watches");
    told.take()
}

#[test]
fn who_watches_is_told_what_became_of_each() {
    let usual = || DirectionOptions { delay_ns: 10_000_000, ..DirectionOptions::default() };
    let send = |world: &mut World| world.send(addr(1), 100, &[0; 100]);
    let (from, len) = (HostId(0), 128);
    let sent = (500, from, Place::Sent, len);
    assert_eq!(told(usual(), None, send), [sent, (510, from, Place::Arrived, len)]);
    let dropped = |at_ms, reason| [sent, (at_ms, from, Place::Dropped(reason), len)];
    let down = DirectionOptions { down: true, ..usual() };
    assert_eq!(told(down, None, send), dropped(500, "down"));
    let corrupting = DirectionOptions { corrupt: 1.0, ..usual() };
    assert_eq!(told(corrupting, None, send), dropped(510, "corrupted"));
    let blocked = |world: &mut World| {
        world.sim.block_datagrams(HostId(0), HostId(1), true);
        world.send(addr(1), 100, &[0; 100]);
    };
    assert_eq!(told(usual(), None, blocked), dropped(500, "blocked"));
    let lossy = |world: &mut World| {
        world.sim.lose_datagrams(HostId(0), HostId(1), 1_000_000);
        world.send(addr(1), 100, &[0; 100]);
    };
    assert_eq!(told(usual(), None, lossy), dropped(500, "datagram_loss"));
    // A wire is made anew when it changes.
    let changed = |world: &mut World| {
        world.sim.set_wire(HostId(0), HostId(1), DirectionOptions { down: true, ..usual() });
        world.send(addr(1), 100, &[0; 100]);
    };
    assert_eq!(told(usual(), None, changed), dropped(500, "down"));
}

#[test]
fn who_watches_a_network_is_told_the_same() {
    let host = |name: &str| HostOptions { name: name.to_owned(), ..HostOptions::default() };
    let mut network = TopologyOptions { hosts: vec![host("a"), host("b")], ..TopologyOptions::default() };
    let send = |world: &mut World| world.send(addr(1), 100, &[0; 300]);
    let of = |place| (500, HostId(0), place, 128);
    let no_wire = [of(Place::Sent), of(Place::Dropped("no_wire"))].repeat(3);
    assert_eq!(told(DirectionOptions::default(), Some(&network), send), no_wire);
    // One is served, one waits, and one does not fit.
    let queue = QueueOptions { packets_max: 1, ..QueueOptions::default() };
    network.default_wire =
        Some(DirectionOptions { rate: Rate::BitsPerS(10_240), queue, ..DirectionOptions::default() });
    let full = of(Place::Dropped("queue_full"));
    let arrived = |ms: u64| (500 + ms, HostId(0), Place::Arrived, 128);
    assert_eq!(
        told(DirectionOptions::default(), Some(&network), send),
        [of(Place::Sent), of(Place::Sent), of(Place::Sent), full, arrived(100), arrived(200)]
    );
}
