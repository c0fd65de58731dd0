//! The wires between hosts: those of `heddle-netem`, packet by packet, with queues.
//!
//! Each two hosts have one, made when the first packet is sent, for whatever they send each other: segments of TCP and
//! datagrams wait in one queue. Or there is one network for all hosts, with links of their own (`network`); then only
//! what a host sends to itself has a wire here.

use super::network::Network;
use super::packet::{HostPair, OnWire, pair};
use super::{Due, HostId, Simulation};
use core::net::{IpAddr, SocketAddr};
use heddle_netem::pcapng::Place;
use heddle_netem::{DirectionOptions, HostOptions, Seed, Topology, TopologyOptions, WireOptions};
use heddle_seam::language::Language;
use heddle_seam::time::Instant;
use std::collections::BTreeMap;

/// The wires that were made, and what those that will be made are like.
#[derive(Default)]
pub(crate) struct Wires {
    options: BTreeMap<HostPair, DirectionOptions>,
    paths: BTreeMap<HostPair, Path>,
    pub network: Option<Network>,
}

/// The wire of two hosts.
#[derive(Default)]
struct Path {
    /// The wire as it is now, and before it those of earlier options that still have packets on them.
    wires: Vec<Topology<OnWire>>,
    wires_made: u64,
    /// Whether the last of `wires` has the present options.
    is_current: bool,
    /// The event that is scheduled; others in the queue are void.
    due: Option<Instant>,
}

impl Path {
    fn next_time(&self) -> Option<Instant> {
        self.wires.iter().filter_map(Topology::next_time).min()
    }
}

impl Wires {
    /// All that there are, those of earlier options included.
    pub fn topologies(&mut self) -> impl Iterator<Item = &mut Topology<OnWire>> {
        let network = self.network.iter_mut().map(Network::topology_mut);
        self.paths.values_mut().flat_map(|path| &mut path.wires).chain(network)
    }

    /// How many wires two hosts have, those of earlier options included.
    #[cfg(test)]
    pub fn between(&self, a: HostId, b: HostId) -> usize {
        self.paths.get(&pair(a, b)).map_or(0, |path| path.wires.len())
    }
}

impl<L: Language> Simulation<L> {
    /// Changes the wire between two hosts, in both directions. What is on the old one already arrives as before.
    pub fn set_wire(&mut self, a: HostId, b: HostId, options: impl Into<DirectionOptions>) {
        self.wires.options.insert(pair(a, b), options.into());
        if let Some(path) = self.wires.paths.get_mut(&pair(a, b)) {
            path.is_current = false;
        }
    }

    /// Sends an IP packet with a segment where it is addressed to.
    pub(crate) fn send_segment(&mut self, from: HostId, packet: Vec<u8>) {
        let [source, destination] = addresses(&packet);
        let known = self.by_addr.get(&source.ip()).and(self.by_addr.get(&destination.ip()));
        match known.copied() {
            Some(to) => self.put_on_wire(from, to, [OnWire::Segment { to, packet }]),
            None => {
                let at = self.now + 2 * self.options.default_wire.latency;
                self.queue.push(at, Due::Unreachable(from, source, destination));
            }
        }
    }

    pub(crate) fn put_on_wire(
        &mut self,
        from: HostId,
        to: HostId,
        packets: impl IntoIterator<Item = OnWire>,
    ) {
        if from != to && self.wires.network.is_some() {
            return self.put_on_network(from, to, packets);
        }
        let ends = pair(from, to);
        let path = self.wires.paths.entry(ends).or_default();
        if !path.is_current {
            let options = self.wires.options.get(&ends).cloned();
            let options = options.unwrap_or_else(|| self.options.default_wire.into());
            let index = (ends.0.0 as u64) << 32 | ends.1.0 as u64;
            let seed = self.seed.child("wires", index).child("wire", path.wires_made);
            let mut wire = new_wire(options, &Seed::from_bytes(seed.rng().array()));
            self.watched.prepare(&mut wire);
            path.wires.push(wire);
            path.wires_made += 1;
            path.is_current = true;
        }
        let now = self.now;
        // A host that sends to itself does so in one direction.
        let (first, second) = (heddle_netem::HostId(0), heddle_netem::HostId(1));
        let (here, there) = if from == ends.0 { (first, second) } else { (second, first) };
        let wire = path.wires.last_mut().expect("it was just made, or is current");
        for packet in packets {
            self.watched.tell(now, from, to, Place::Sent, &packet);
            wire.send(now, here, there, packet).expect("events come in order, and a packet has headers");
        }
        self.watched.take_drops(wire, end_of(ends));
        self.schedule_wires(ends);
    }

    fn schedule_wires(&mut self, ends: HostPair) {
        let Some(path) = self.wires.paths.get_mut(&ends) else { return };
        let next = path.next_time();
        if next != path.due {
            path.due = next;
            if let Some(at) = next {
                self.queue.push(at, Due::Wires(ends, at));
            }
        }
    }

    /// Something happens on a wire; what arrives is handed to its host.
    pub(crate) fn on_wires(&mut self, ends: HostPair, at: Instant) {
        let Some(path) = self.wires.paths.get_mut(&ends).filter(|path| path.due == Some(at)) else {
            return;
        };
        path.due = None;
        let now = self.now;
        let mut arrived = Vec::new();
        for wire in &mut path.wires {
            arrived.extend(self.watched.take(now, wire, end_of(ends)));
        }
        let old = path.wires.len().saturating_sub(1);
        let mut place = 0;
        path.wires.retain(|wire| {
            place += 1;
            place > old || wire.next_time().is_some()
        });
        self.schedule_wires(ends);
        self.on_packets(arrived);
    }

    /// Hands packets to the hosts that they reached.
    pub(crate) fn on_packets(&mut self, arrived: Vec<OnWire>) {
        let mut datagrams = Vec::new();
        for packet in arrived {
            match packet {
                OnWire::Segment { to, packet } => self.on_segment(self.hosts[to.0].kernel, &packet),
                OnWire::Datagram(datagram) => datagrams.push(datagram),
            }
        }
        self.on_datagrams(datagrams);
    }
}

/// The hosts of the wire of two.
fn end_of(ends: HostPair) -> impl Fn(heddle_netem::HostId) -> HostId {
    move |end| if end == heddle_netem::HostId(0) { ends.0 } else { ends.1 }
}

/// Where an IP packet of our own kernels comes from and where it goes, with TCP's ports.
fn addresses(packet: &[u8]) -> [SocketAddr; 2] {
    let is_v4 = packet[0] >> 4 == 4;
    let (first, len) = if is_v4 { (12, 4) } else { (8, 16) };
    let tcp = first + 2 * len;
    [0, 1].map(|place| {
        let ip = &packet[first + place * len..][..len];
        let ip = match <[u8; 4]>::try_from(ip) {
            Ok(v4) => IpAddr::from(v4),
            Err(_) => IpAddr::from(<[u8; 16]>::try_from(ip).expect("an address has 4 or 16 bytes")),
        };
        let port = &packet[tcp + 2 * place..][..2];
        SocketAddr::new(ip, u16::from_be_bytes([port[0], port[1]]))
    })
}

fn new_wire(options: DirectionOptions, seed: &Seed) -> Topology<OnWire> {
    let host = |name: &str| HostOptions { name: name.to_owned(), ..HostOptions::default() };
    let wire = WireOptions { from: "a".to_owned(), to: "b".to_owned(), there: options, back: None };
    let options = TopologyOptions {
        hosts: vec![host("a"), host("b")],
        wires: vec![wire],
        ..TopologyOptions::default()
    };
    Topology::new(&options, seed).expect("the test's wire is one that can be")
}
