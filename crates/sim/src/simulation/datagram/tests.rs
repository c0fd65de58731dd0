//! Datagrams between two hosts whose nodes do nothing but send and listen.

use super::*;
use crate::simulation::{Host, Options};
use crate::wire::Wire;
use heddle_netem::{DirectionOptions, QueueOptions, Rate};
use heddle_seam::language::Plain;
use heddle_seam::node::{Node, Output, SocketId};
use heddle_seam::time::Duration;
use std::collections::VecDeque;

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
