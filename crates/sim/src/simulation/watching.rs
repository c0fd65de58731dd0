//! Somebody looks at wires: what is sent, what arrives, and what does not. Nothing that happens depends on it.

use super::packet::OnWire;
use super::{HostId, Simulation};
use heddle_netem::pcapng::Place;
use heddle_netem::{Delivery, Dropped, Topology};
use heddle_seam::language::Language;
use heddle_seam::time::Instant;

/// Why packets do not arrive that no wire dropped.
pub(crate) const BLOCKED: Place = Place::Dropped("blocked");
pub(crate) const DATAGRAM_LOSS: Place = Place::Dropped("datagram_loss");
pub(crate) const NO_WIRE: Place = Place::Dropped("no_wire");
const CORRUPTED: Place = Place::Dropped("corrupted");

/// Hears of packets on wires.
pub trait WireWatch {
    /// Whether it wants to hear of those that one host sends to another.
    fn wants(&self, from: HostId, to: HostId) -> bool;

    /// A packet of `from` for `to`, as it would be on a real wire, with its IP header.
    fn on_packet(&mut self, at: Instant, from: HostId, to: HostId, place: Place, packet: &[u8]);
}

/// All who watch.
#[derive(Default)]
pub(crate) struct Watched(Vec<Box<dyn WireWatch>>);

impl Watched {
    pub fn is_on(&self) -> bool {
        !self.0.is_empty()
    }

    /// A packet was seen.
    pub fn tell(&mut self, at: Instant, from: HostId, to: HostId, place: Place, packet: &OnWire) {
        for watch in self.0.iter_mut().filter(|watch| watch.wants(from, to)) {
            watch.on_packet(at, from, to, place, &packet.bytes());
        }
    }

    /// A packet that somebody on the path made reaches a host.
    pub fn tell_forged(&mut self, at: Instant, from: HostId, to: HostId, packet: &[u8]) {
        for watch in self.0.iter_mut().filter(|watch| watch.wants(from, to)) {
            watch.on_packet(at, from, to, Place::Forged, packet);
        }
    }

    /// From now on a topology keeps what it drops, if somebody wants to hear of it: no more than is on its way.
    pub fn prepare(&self, topology: &mut Topology<OnWire>) {
        if self.is_on() {
            topology.log_drops(usize::MAX);
        }
    }

    /// What a topology, some of whose hosts these are, gave and dropped. Returns what reached its host whole.
    pub fn take(
        &mut self,
        now: Instant,
        topology: &mut Topology<OnWire>,
        host: impl Fn(heddle_netem::HostId) -> HostId,
    ) -> Vec<OnWire> {
        let mut arrived = Vec::new();
        while let Some(Delivery { from, to, corrupted, packet, .. }) = topology.poll(now) {
            let place = if corrupted { CORRUPTED } else { Place::Arrived };
            self.tell(now, host(from), host(to), place, &packet);
            if !corrupted {
                arrived.push(packet);
            }
        }
        self.take_drops(topology, host);
        arrived
    }

    /// What a topology dropped at once.
    pub fn take_drops(
        &mut self,
        topology: &mut Topology<OnWire>,
        host: impl Fn(heddle_netem::HostId) -> HostId,
    ) {
        for Dropped { at, from, to, reason, packet, .. } in topology.take_drops() {
            self.tell(at, host(from), host(to), Place::Dropped(reason.name()), &packet);
        }
    }
}

impl<L: Language> Simulation<L> {
    /// Has somebody hear of all packets from now on, beside those who do already.
    pub fn watch_wires(&mut self, watch: Box<dyn WireWatch>) {
        self.watched.0.push(watch);
        let watched = &self.watched;
        self.wires.topologies().for_each(|topology| watched.prepare(topology));
    }
}
