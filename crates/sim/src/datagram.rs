//! Datagrams between hosts, over the wires of `heddle-netem`.
//!
//! Each two hosts have a wire for datagrams, made when the first one is sent. Unless it was given options of its own
//! ([`Simulation::set_datagram_wire`]), it has the latency, jitter, rate and loss of the [`Wire`](crate::Wire) that the
//! two hosts' byte streams take, and a queue in front of the rate. Bytes and datagrams do not share the rate: the
//! model of TCP has no congestion control that could be crowded out.
//!
//! Datagrams that arrive at one instant from one sender, one as long as the other, come as one input, as they do from
//! a kernel that coalesces.

use crate::connection::ActorId;
use crate::simulation::{Due, HostId, Simulation};
use crate::trace::Kind;
use crate::wire::Wire;
use core::net::{IpAddr, SocketAddr};
use heddle_netem::{
    DirectionOptions, HostOptions, Jitter, Loss, Packet, Rate, Seed, Time, Topology, TopologyOptions,
    WireOptions,
};
use heddle_proto::endpoint::{Datagrams, Transmit};
use heddle_proto::node::{Input, PortId};
use heddle_proto::time::Instant;
use std::collections::{BTreeMap, BTreeSet};

/// IP and UDP headers, which a wire's MTU counts.
const HEADERS_V4_BYTES: usize = 28;
const HEADERS_V6_BYTES: usize = 48;
/// What Ethernet adds to a packet, its gap and preamble included.
const FRAMING_BYTES: u64 = 38;
/// As many datagrams as a kernel coalesces.
const COALESCED_MAX: usize = 64;

/// A datagram as somebody on the path sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tapped {
    pub at: Instant,
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub data: Vec<u8>,
}

/// Two hosts, the smaller first.
type HostPair = (HostId, HostId);

/// A datagram on its way.
#[derive(Clone)]
struct Datagram {
    from: SocketAddr,
    to: SocketAddr,
    ecn: u8,
    data: Vec<u8>,
}

impl Packet for Datagram {
    fn len_bytes(&self) -> usize {
        self.data.len() + if self.to.is_ipv4() { HEADERS_V4_BYTES } else { HEADERS_V6_BYTES }
    }

    /// The kernel drops what its checksum does not fit, so a flipped bit leaves nothing that would be delivered.
    fn flip_bit(&mut self, _: usize) {
        self.data.clear();
    }
}

/// Everything about datagrams in a simulation.
#[derive(Default)]
pub(crate) struct DatagramWires {
    /// Whose each UDP port is.
    ports: BTreeMap<(HostId, u16), (ActorId, PortId)>,
    numbers: BTreeMap<(ActorId, PortId), u16>,
    options: BTreeMap<HostPair, DirectionOptions>,
    blocked: BTreeSet<HostPair>,
    paths: BTreeMap<HostPair, DatagramPath>,
    taps: BTreeMap<HostPair, Vec<Tapped>>,
}

/// The wire of two hosts.
#[derive(Default)]
struct DatagramPath {
    /// The wire as it is now, and before it those of earlier options that still have datagrams on them.
    wires: Vec<Topology<Datagram>>,
    wires_made: u64,
    /// Whether the last of `wires` has the present options.
    is_current: bool,
    /// The event that is scheduled; others in the queue are void.
    due: Option<Instant>,
}

impl DatagramPath {
    fn next_time(&self) -> Option<Instant> {
        let next = self.wires.iter().filter_map(Topology::next_time).min();
        next.map(|time| Instant::from_nanos(time.as_nanos()))
    }
}

impl DatagramWires {
    /// The options of a wire changed: what is sent from now on takes a new one.
    pub fn outdate(&mut self, a: HostId, b: HostId) {
        if let Some(path) = self.paths.get_mut(&pair(a, b)) {
            path.is_current = false;
        }
    }
}

impl Simulation {
    /// Opens UDP ports of a shard, numbered from [`PortId`] 0. They stay.
    ///
    /// # Panics
    ///
    /// When one of the host's shards has the port already.
    pub fn open_ports(&mut self, host: HostId, shard: usize, ports: &[u16]) {
        let actor = self.actor(host, shard);
        for (number, id) in ports.iter().zip((0..).map(PortId)) {
            let taken = self.datagrams.ports.insert((host, *number), (actor, id));
            assert!(taken.is_none(), "UDP port {number} is taken");
            self.datagrams.numbers.insert((actor, id), *number);
        }
    }

    /// Gives the datagrams between two hosts a wire of their own, in both directions. What is on the old one already
    /// arrives as before.
    pub fn set_datagram_wire(&mut self, a: HostId, b: HostId, options: DirectionOptions) {
        self.datagrams.options.insert(pair(a, b), options);
        self.datagrams.outdate(a, b);
    }

    /// Whether a firewall between two hosts drops all datagrams that are sent from now on.
    pub fn block_datagrams(&mut self, a: HostId, b: HostId, block: bool) {
        if block {
            self.datagrams.blocked.insert(pair(a, b));
        } else {
            self.datagrams.blocked.remove(&pair(a, b));
        }
    }

    /// Keeps a copy of every datagram that is sent between two hosts from now on; returns those kept so far.
    pub fn tap_datagrams(&mut self, a: HostId, b: HostId) -> Vec<Tapped> {
        std::mem::take(self.datagrams.taps.entry(pair(a, b)).or_default())
    }

    /// Puts the bytes of the buffer on the wire as datagrams.
    pub(crate) fn send_datagrams(&mut self, actor: ActorId, port: PortId, transmit: Transmit) {
        let bytes = std::mem::take(&mut self.buf);
        let detail = format!("{} {}", transmit.to, transmit.stride);
        let subject = u64::from(port.0);
        let record = (Kind::SendDatagrams, subject, bytes.len() as u64);
        self.trace.record(self.now, actor.0, record.0, record.1, record.2, detail.as_bytes());
        assert!(transmit.stride > 0, "datagrams have a length");
        let from = self.actors[actor.0].host;
        let number = self.datagrams.numbers.get(&(actor, port)).copied();
        let number = number.expect("a node sends from ports that were opened");
        let to = self.by_addr.get(&transmit.to.ip()).copied();
        let same_family = |addr: &&IpAddr| addr.is_ipv4() == transmit.to.is_ipv4();
        let local = transmit.from.or_else(|| self.hosts[from.0].addrs.iter().find(same_family).copied());
        // What leads nowhere is lost.
        if let (Some(to), Some(local)) = (to.filter(|to| *to != from), local)
            && !self.datagrams.blocked.contains(&pair(from, to))
        {
            let datagram = |data: &[u8]| Datagram {
                from: SocketAddr::new(local, number),
                to: transmit.to,
                ecn: transmit.ecn,
                data: data.to_vec(),
            };
            let datagrams: Vec<_> = bytes.chunks(transmit.stride).map(datagram).collect();
            if let Some(tap) = self.datagrams.taps.get_mut(&pair(from, to)) {
                let at = self.now;
                let copy = |it: &Datagram| Tapped { at, from: it.from, to: it.to, data: it.data.clone() };
                tap.extend(datagrams.iter().map(copy));
            }
            self.put_on_wire(from, to, datagrams);
        }
        self.buf = bytes;
    }

    fn put_on_wire(&mut self, from: HostId, to: HostId, datagrams: Vec<Datagram>) {
        let ends = pair(from, to);
        let options = self.datagrams.options.get(&ends).cloned();
        let options = options.unwrap_or_else(|| as_wire(&self.wire(from, to)));
        let seed = &self.seed;
        let path = self.datagrams.paths.entry(ends).or_default();
        if !path.is_current {
            let index = (ends.0.0 as u64) << 32 | ends.1.0 as u64;
            let seed = seed.child("datagrams", index).child("wire", path.wires_made);
            path.wires.push(new_wire(options, &Seed::from_bytes(seed.rng().array())));
            path.wires_made += 1;
            path.is_current = true;
        }
        let now = Time::from_nanos(self.now.as_nanos());
        let [from, to] = [from, to].map(|host| heddle_netem::HostId(u32::from(host == ends.1)));
        let wire = path.wires.last_mut().expect("it was just made, or is current");
        for datagram in datagrams {
            wire.send(now, from, to, datagram).expect("events come in order, and a datagram has headers");
        }
        self.schedule_datagrams(ends);
    }

    fn schedule_datagrams(&mut self, ends: HostPair) {
        let Some(path) = self.datagrams.paths.get_mut(&ends) else { return };
        let next = path.next_time();
        if next != path.due {
            path.due = next;
            if let Some(at) = next {
                self.queue.push(at, Due::Datagrams(ends, at));
            }
        }
    }

    /// Something happens on a wire; what arrives is handed to its nodes.
    pub(crate) fn on_datagrams(&mut self, ends: HostPair, at: Instant) {
        let Some(path) = self.datagrams.paths.get_mut(&ends).filter(|path| path.due == Some(at)) else {
            return;
        };
        path.due = None;
        let now = Time::from_nanos(self.now.as_nanos());
        let mut arrived: Vec<Datagram> = Vec::new();
        for wire in &mut path.wires {
            arrived.extend(
                std::iter::from_fn(|| wire.poll(now))
                    .filter(|delivery| !delivery.corrupted)
                    .map(|delivery| delivery.packet),
            );
        }
        let old = path.wires.len().saturating_sub(1);
        let mut place = 0;
        path.wires.retain(|wire| {
            place += 1;
            place > old || wire.next_time().is_some()
        });
        self.schedule_datagrams(ends);
        let mut rest = &arrived[..];
        while let Some(first) = rest.first() {
            let count = coalesced(rest);
            let (together, behind) = rest.split_at(count);
            self.deliver(first, together);
            rest = behind;
        }
    }

    fn deliver(&mut self, first: &Datagram, together: &[Datagram]) {
        let host = self.by_addr[&first.to.ip()];
        let Some(&(actor, port)) = self.datagrams.ports.get(&(host, first.to.port())) else { return };
        let data: Vec<u8> = together.iter().flat_map(|datagram| &datagram.data).copied().collect();
        let len = data.len() as u64;
        let datagrams = Datagrams {
            from: first.from,
            to: Some(first.to.ip()),
            ecn: first.ecn,
            stride: first.data.len().max(1),
            data: data[..].into(),
        };
        self.input(actor, Kind::Datagrams, u64::from(port.0), len, Input::Datagrams { port, datagrams });
    }
}

/// How many of these come as one: alike but for the last, which may be shorter.
fn coalesced(arrived: &[Datagram]) -> usize {
    let Some(first) = arrived.first() else { return 0 };
    let alike = |other: &&Datagram| {
        (other.from, other.to, other.ecn) == (first.from, first.to, first.ecn)
            && other.data.len() == first.data.len()
    };
    let same = arrived.iter().take(COALESCED_MAX).take_while(alike).count();
    let shorter = arrived.get(same).filter(|_| same < COALESCED_MAX).is_some_and(|last| {
        (last.from, last.to, last.ecn) == (first.from, first.to, first.ecn)
            && (1..first.data.len()).contains(&last.data.len())
    });
    same + usize::from(shorter)
}

fn pair(a: HostId, b: HostId) -> HostPair {
    (a.min(b), a.max(b))
}

/// A wire that does to packets what `wire` does to segments.
fn as_wire(wire: &Wire) -> DirectionOptions {
    let nanos = |time: core::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let spread_ns = nanos(wire.jitter) / 2;
    DirectionOptions {
        rate: wire.rate_bytes_per_s.map_or(Rate::Unlimited, |rate| Rate::BitsPerS(rate.saturating_mul(8))),
        framing_bytes: FRAMING_BYTES,
        delay_ns: nanos(wire.latency) + spread_ns,
        jitter: if spread_ns == 0 { Jitter::None } else { Jitter::Uniform { spread_ns } },
        loss: match wire.loss_ppm {
            0 => Loss::None,
            ppm => Loss::Bernoulli { probability: f64::from(ppm) / 1e6 },
        },
        ..DirectionOptions::default()
    }
}

fn new_wire(options: DirectionOptions, seed: &Seed) -> Topology<Datagram> {
    let host = |name: &str| HostOptions { name: name.to_owned(), ..HostOptions::default() };
    let wire = WireOptions { from: "a".to_owned(), to: "b".to_owned(), there: options, back: None };
    let options = TopologyOptions {
        hosts: vec![host("a"), host("b")],
        wires: vec![wire],
        ..TopologyOptions::default()
    };
    Topology::new(&options, seed).expect("the test's wire is one that can be")
}

#[cfg(test)]
mod tests;
