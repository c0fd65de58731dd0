//! Two hosts, one wire, and packets that know their number.
#![allow(dead_code, reason = "each test uses a part of it")]

use heddle_netem::{
    Delivery, DirectionOptions, HostId, HostOptions, Instant, Packet, Seed, Topology, TopologyOptions,
    WireOptions,
};

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000 * MS;
pub const A: HostId = HostId(0);
pub const B: HostId = HostId(1);

/// A packet without contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered {
    pub number: u64,
    pub bytes: usize,
    /// The bits that wires flipped.
    pub flipped: Vec<usize>,
}

impl Packet for Numbered {
    fn len_bytes(&self) -> usize {
        self.bytes
    }

    fn flip_bit(&mut self, bit: usize) {
        assert!(bit < self.bytes * 8);
        self.flipped.push(bit);
    }
}

pub fn host(name: &str) -> HostOptions {
    HostOptions { name: name.to_owned(), ..HostOptions::default() }
}

pub fn wire(from: &str, to: &str, there: DirectionOptions) -> WireOptions {
    WireOptions { from: from.to_owned(), to: to.to_owned(), there, back: None }
}

/// Hosts `a` and `b` and a wire between them.
pub fn options(there: DirectionOptions) -> TopologyOptions {
    TopologyOptions {
        hosts: vec![host("a"), host("b")],
        wires: vec![wire("a", "b", there)],
        default_wire: None,
    }
}

pub fn topology(there: DirectionOptions, seed: u64) -> Topology<Numbered> {
    Topology::new(&options(there), &Seed::from_number(seed)).expect("good options")
}

/// Sends packets from `a` to `b`, numbered from 0, each at a time in nanoseconds and with a length, and gives what
/// arrives.
pub fn carry(
    topology: &mut Topology<Numbered>,
    sends: impl IntoIterator<Item = (u64, usize)>,
) -> Vec<Delivery<Numbered>> {
    let mut arrived = Vec::new();
    for ((at_ns, bytes), number) in sends.into_iter().zip(0..) {
        let now = Instant::from_nanos(at_ns);
        arrived.extend(core::iter::from_fn(|| topology.poll(now)));
        topology.send(now, A, B, Numbered { number, bytes, flipped: Vec::new() }).expect("a wire");
    }
    arrived.extend(drain(topology));
    arrived
}

/// Everything that is still to arrive, polled one event at a time.
pub fn drain(topology: &mut Topology<Numbered>) -> Vec<Delivery<Numbered>> {
    let mut arrived = Vec::new();
    // No test has so much under way; a topology that is never empty would else be drained for ever.
    for _ in 0..10_000_000 {
        let Some(time) = topology.next_time() else { return arrived };
        arrived.extend(core::iter::from_fn(|| topology.poll(time)));
    }
    panic!("the topology does not get empty, at {:?}", topology.next_time());
}

/// `count` packets of 1000 bytes, `spacing_ns` apart.
pub fn evenly(count: u64, spacing_ns: u64) -> impl Iterator<Item = (u64, usize)> {
    (0..count).map(move |number| (number * spacing_ns, 1000))
}

/// The delay of each packet that arrived, in milliseconds.
pub fn delays_ms(arrived: &[Delivery<Numbered>]) -> Vec<f64> {
    arrived.iter().map(|delivery| delivery.at.ns_since(delivery.sent) as f64 / MS as f64).collect()
}

/// The numbers of the packets that arrived, in the order of arrival.
pub fn numbers(arrived: &[Delivery<Numbered>]) -> Vec<u64> {
    arrived.iter().map(|delivery| delivery.packet.number).collect()
}
