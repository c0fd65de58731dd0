//! Datagrams between hosts.
//!
//! Datagrams that arrive at one instant from one sender, one as long as the other, come as one input, as they do from
//! a kernel that coalesces.

use super::flood::Flooded;
use super::packet::{Datagram, HostPair, OnWire, pair};
use super::watching::{BLOCKED, DATAGRAM_LOSS};
use super::{ActorId, HostId, Simulation};
use crate::trace::Kind;
use core::net::{IpAddr, SocketAddr};
use heddle_netem::pcapng::Place;
use heddle_seam::datagrams::{Datagrams, Transmit};
use heddle_seam::language::Language;
use heddle_seam::node::{Input, PortId};
use heddle_seam::rng::Rng;
use heddle_seam::time::Instant;
use std::collections::{BTreeMap, BTreeSet};

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

/// What happens to datagrams alone.
struct Lossy {
    loss_ppm: u32,
    chance: Rng,
}

impl Lossy {
    fn loses(&mut self) -> bool {
        self.chance.below(1_000_000) < self.loss_ppm.into()
    }
}

/// The UDP ports of a simulation, and what stands in the way of datagrams.
#[derive(Default)]
pub(crate) struct DatagramPorts {
    /// Whose each UDP port is.
    ports: BTreeMap<(HostId, u16), (ActorId, PortId)>,
    numbers: BTreeMap<(ActorId, PortId), u16>,
    blocked: BTreeSet<HostPair>,
    lossy: BTreeMap<HostPair, Lossy>,
    taps: BTreeMap<HostPair, Vec<Tapped>>,
    pub flooded: BTreeMap<(HostId, u16), Flooded>,
}

impl<L: Language> Simulation<L> {
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

    /// Whether a firewall between two hosts drops all datagrams that are sent from now on.
    pub fn block_datagrams(&mut self, a: HostId, b: HostId, block: bool) {
        if block {
            self.datagrams.blocked.insert(pair(a, b));
        } else {
            self.datagrams.blocked.remove(&pair(a, b));
        }
    }

    /// From now on so many in a million of the datagrams between two hosts are lost, whatever their wire does to all
    /// packets.
    pub fn lose_datagrams(&mut self, a: HostId, b: HostId, loss_ppm: u32) {
        let ends = pair(a, b);
        let chance = self.seed.child("lossy", (ends.0.0 as u64) << 32 | ends.1.0 as u64).rng();
        self.datagrams.lossy.insert(ends, Lossy { loss_ppm, chance });
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
        if let (Some(to), Some(local)) = (to.filter(|to| *to != from), local) {
            let datagram = |data: &[u8]| Datagram {
                from: SocketAddr::new(local, number),
                to: transmit.to,
                ecn: transmit.ecn,
                data: data.to_vec(),
            };
            self.offer_datagrams(from, to, bytes.chunks(transmit.stride).map(datagram).collect());
        }
        self.buf = bytes;
    }

    /// Puts datagrams on the wire of two hosts, unless they are lost before.
    fn offer_datagrams(&mut self, from: HostId, to: HostId, mut datagrams: Vec<Datagram>) {
        let (at, ends) = (self.now, pair(from, to));
        let watched = &mut self.watched;
        let mut is_lost = |datagram: &Datagram, why| {
            if watched.is_on() {
                let packet = OnWire::Datagram(datagram.clone());
                [Place::Sent, why].into_iter().for_each(|place| watched.tell(at, from, to, place, &packet));
            }
        };
        if self.datagrams.blocked.contains(&ends) {
            return datagrams.iter().for_each(|datagram| is_lost(datagram, BLOCKED));
        }
        if let Some(tap) = self.datagrams.taps.get_mut(&ends) {
            let copy = |it: &Datagram| Tapped { at, from: it.from, to: it.to, data: it.data.clone() };
            tap.extend(datagrams.iter().map(copy));
        }
        if let Some(lossy) = self.datagrams.lossy.get_mut(&ends) {
            datagrams.retain(|datagram| {
                let loses = lossy.loses();
                if loses {
                    is_lost(datagram, DATAGRAM_LOSS);
                }
                !loses
            });
        }
        self.put_on_wire(from, to, datagrams.into_iter().map(OnWire::Datagram));
    }

    /// Hands what has arrived to its nodes.
    pub(crate) fn on_datagrams(&mut self, mut arrived: Vec<Datagram>) {
        self.buffer_datagrams(&mut arrived);
        let mut rest = &arrived[..];
        while let Some(first) = rest.first() {
            let (together, behind) = rest.split_at(coalesced(rest));
            self.deliver(first, together);
            rest = behind;
        }
    }

    /// Hands over what comes together, of which this is the first.
    pub(crate) fn deliver(&mut self, first: &Datagram, together: &[Datagram]) {
        let host = self.by_addr[&first.to.ip()];
        let Some(&(actor, port)) = self.datagrams.ports.get(&(host, first.to.port())) else { return };
        let len = together.iter().map(|datagram| datagram.data.len()).sum();
        let mut datagrams = Datagrams {
            from: first.from,
            to: Some(first.to.ip()),
            ecn: first.ecn,
            stride: first.data.len().max(1),
            data: Default::default(),
        };
        datagrams.data.reserve(len);
        together.iter().for_each(|datagram| datagrams.data.extend_from_slice(&datagram.data));
        let len = len as u64;
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

#[cfg(test)]
mod tests;
