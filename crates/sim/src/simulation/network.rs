//! One network of `heddle-netem` that joins all hosts: the very topology that emulated wires have.

use super::packet::OnWire;
use super::watching::NO_WIRE;
use super::{Due, HostId, Simulation};
use heddle_netem::pcapng::Place;
use heddle_netem::{DirectionStats, OptionsError, Seed, SendError, Step, Topology, TopologyOptions, Totals};
use heddle_seam::language::Language;
use heddle_seam::time::Instant;

/// The network and when something happens in it.
pub(crate) struct Network {
    topology: Topology<OnWire>,
    /// The event that is scheduled; others in the queue are void.
    due: Option<Instant>,
}

impl Network {
    pub fn topology_mut(&mut self) -> &mut Topology<OnWire> {
        &mut self.topology
    }
}

/// A host of the topology in the simulation.
fn host_of(id: heddle_netem::HostId) -> HostId {
    HostId(id.0 as usize)
}

/// A host of the simulation in the topology.
fn host(id: HostId) -> heddle_netem::HostId {
    heddle_netem::HostId(u32::try_from(id.0).expect("no simulation has so many hosts"))
}

impl<L: Language> Simulation<L> {
    /// Joins all hosts by one network, whose hosts are those of the simulation in the order in which they are added.
    /// What a host sends to itself takes the wire that [`set_wire`](Self::set_wire) gave it, or the default one. All
    /// chance of its wires comes of `seed`.
    ///
    /// # Errors
    ///
    /// The first fault of the options.
    pub fn set_network(&mut self, options: &TopologyOptions, seed: &Seed) -> Result<(), OptionsError> {
        let mut topology = Topology::new(options, seed)?;
        self.watched.prepare(&mut topology);
        self.wires.network = Some(Network { topology, due: None });
        Ok(())
    }

    /// Changes one direction of a wire of the network now. What the step says about its time does not matter.
    ///
    /// # Errors
    ///
    /// When no wire joins the two, or there is no network.
    pub fn change_network(&mut self, from: HostId, to: HostId, step: &Step) -> Result<(), SendError> {
        let now = self.now;
        let network = self.wires.network.as_mut().ok_or(SendError::NoWire(host(from), host(to)))?;
        network.topology.change(now, host(from), host(to), step)?;
        self.schedule_network();
        Ok(())
    }

    /// What has happened on one direction of a wire of the network; nothing on one that nobody used yet.
    pub fn network_stats(&self, from: HostId, to: HostId) -> DirectionStats {
        let network = self.wires.network.as_ref();
        let stats = network.and_then(|network| network.topology.direction_stats(host(from), host(to)));
        stats.unwrap_or_default()
    }

    /// The counts of the whole network.
    pub fn network_totals(&self) -> Totals {
        self.wires.network.as_ref().map(|network| network.topology.totals()).unwrap_or_default()
    }

    pub(crate) fn put_on_network(
        &mut self,
        from: HostId,
        to: HostId,
        packets: impl IntoIterator<Item = OnWire>,
    ) {
        let now = self.now;
        let Some(network) = &mut self.wires.network else { return };
        for packet in packets {
            self.watched.tell(now, from, to, Place::Sent, &packet);
            let copy = self.watched.is_on().then(|| packet.clone());
            match network.topology.send(now, host(from), host(to), packet) {
                Ok(()) => {}
                // What leads nowhere is lost.
                Err(SendError::NoWire(..) | SendError::NoHost(_)) => {
                    copy.iter().for_each(|packet| self.watched.tell(now, from, to, NO_WIRE, packet));
                }
                Err(error) => panic!("events come in order, and a packet has headers: {error}"),
            }
        }
        self.watched.take_drops(&mut network.topology, host_of);
        self.schedule_network();
    }

    fn schedule_network(&mut self) {
        let Some(network) = &mut self.wires.network else { return };
        let next = network.topology.next_time();
        if next != network.due {
            network.due = next;
            if let Some(at) = next {
                self.queue.push(at, Due::Network(at));
            }
        }
    }

    /// Something happens in the network; what arrives is handed to its hosts.
    pub(crate) fn on_network(&mut self, at: Instant) {
        let Some(network) = self.wires.network.as_mut().filter(|network| network.due == Some(at)) else {
            return;
        };
        network.due = None;
        let arrived = self.watched.take(self.now, &mut network.topology, host_of);
        self.schedule_network();
        self.on_packets(arrived);
    }
}
