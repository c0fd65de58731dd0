//! Stock's defences at work: what they refuse connections, circuits and streams ([`crate::dos`]).

use super::Core;
use crate::admission::{Class, Party};
use crate::dos::StreamAction;
use crate::keys::{CircuitKey, LinkKey};
use crate::links::Link;
use core::net::IpAddr;
use heddle_proto::ids::RelayIds;

impl Core {
    /// Whether somebody may connect, as far as stock's defences go.
    pub(super) fn dos_admits_connection(&mut self, addr: IpAddr) -> bool {
        let Some(defence) = self.dos.defences().connections else { return true };
        if self.listed.has_addr(addr) {
            return true;
        }
        let refused = self.dos.clients().refuses_connection(self.now, addr, &defence);
        refused.inspect(|why| self.admission.note("channel", why)).is_none()
    }

    /// A channel that somebody opened is there. If it is a client's it counts, whether or not a defence is on.
    pub(super) fn dos_channel_opens(&mut self, link: LinkKey, party: Party, peer: Option<RelayIds>) {
        let is_client = self.is_client(party, peer);
        let Some(channel) = self.links.get_mut(link).and_then(Link::channel_mut) else { return };
        let addr = channel.addr().ip();
        if is_client && !self.listed.has_addr(addr) {
            channel.count();
            self.dos.clients().connect(self.now, addr, self.dos.defences().connections, &mut self.rng);
        }
    }

    /// A channel is over that counted.
    pub(super) fn dos_channel_ends(&mut self, addr: IpAddr) {
        self.dos.clients().disconnect(self.now, addr);
    }

    /// Whether a neighbour may begin a circuit, as far as stock's defences go.
    pub(super) fn dos_admits_circuit(&mut self, link: LinkKey) -> bool {
        let Some(defence) = self.dos.defences().circuits else { return true };
        let Some(addr) = self.dos_client(link) else { return true };
        let created = self.dos.clients().create(self.now, addr, &defence, &mut self.rng);
        self.meter.on_held_off(created.is_first);
        if !created.may {
            self.admission.note("circuit", "rate");
        }
        created.may
    }

    /// A circuit ends since its queue towards the next relay is full: no honest client sends so much.
    pub(super) fn dos_on_full_queue(&mut self, key: CircuitKey) {
        let Some(defence) = self.dos.defences().circuits else { return };
        let Some(link) = self.table.get(key).map(|circuit| circuit.prev().link()) else { return };
        let Some(addr) = self.dos_client(link) else { return };
        let held_off = self.dos.clients().fill_queue(self.now, addr, &defence, &mut self.rng);
        self.meter.on_held_off_for_queues(held_off);
    }

    /// The address of a client whose channel counts.
    fn dos_client(&self, link: LinkKey) -> Option<IpAddr> {
        let link = self.links.get(link)?;
        let channel = link.channel().filter(|channel| channel.is_counted())?;
        self.is_client(link.party(), channel.peer()).then_some(channel.addr().ip())
    }

    /// What becomes of one more stream or question of a circuit, as far as stock's defences go.
    pub(super) fn dos_on_stream(&mut self, key: CircuitKey) -> StreamAction {
        let Some(defence) = self.dos.defences().streams else { return StreamAction::Admit };
        let now = self.now;
        let Some(circuit) = self.table.get_mut(key) else { return StreamAction::Admit };
        if circuit.may_begin_stream(now, defence.rate) {
            return StreamAction::Admit;
        }
        self.admission.note("stream", "rate");
        defence.action
    }

    /// Whether a neighbour counts as a client. While we know no consensus, whoever proves an identity may be a relay.
    pub(super) fn is_client(&self, party: Party, peer: Option<RelayIds>) -> bool {
        party.class() == Class::Stranger && (!self.listed.is_empty() || peer.is_none())
    }
}
