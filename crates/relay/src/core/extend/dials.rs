//! Dials begin for circuits, and circuits are led on when they end ([`crate::links::Dials`]).

use crate::admission::{Dialling, Listener, Party, Refusal};
use crate::core::Core;
use crate::keys::{CircuitKey, LinkKey};
use crate::language::Output;
use crate::links::{DialKey, Link, ReadyConnection};
use crate::message::Event;
use crate::table::Circuit;
use core::net::SocketAddr;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::channel::{ChannelError, Role};
use heddle_proto::ids::{RelayIds, RsaId};
use heddle_seam::node::SocketId;

impl Core {
    /// Lets a circuit wait for a dial to the first of its addresses that was not tried. When there is none it is closed
    /// for `failure`.
    pub(in crate::core) fn dial_for(&mut self, key: CircuitKey, failure: DestroyReason) {
        let Some(circuit) = self.table.get(key) else { return };
        let Some(wanted) = circuit.wanted() else { return };
        let rsa = wanted.target.rsa;
        let link = Some(circuit.prev().link())
            .filter(|link| self.links.get(*link).is_some_and(|link| link.role().is_some()));
        let refused = match DialKey::of(wanted) {
            // Where we publish no IPv6 address we show none to whom clients have us dial; as stock Tor.
            Some(dial) if dial.addr().is_ipv6() && !self.config.extend_to_ipv6 => {
                return self.try_next_addr(key, failure);
            }
            Some(dial) if self.dials.join(&dial, Some(key)) => return,
            Some(dial) => match self.start_dial(dial, circuit.party(), link, Some(key)) {
                Ok(()) => return,
                // Others used this address up, not the next.
                Err(Refusal::Target) => return self.try_next_addr(key, DestroyReason::RESOURCELIMIT),
                Err(Refusal::Full | Refusal::Share) => DestroyReason::RESOURCELIMIT,
            },
            None => failure,
        };
        self.close_circuit(key, refused);
        self.release(rsa);
    }

    /// Dials a relay whose circuits run on flows while no channel is left. Only who dialled the channel does: the other
    /// side never learned a port to connect to.
    pub fn dial_again(&mut self, peer: &RelayIds) {
        let flows = self.links.to(&peer.rsa).filter_map(Link::flows);
        let dialled =
            flows.map(|flows| flows.connection()).find(|of| of.role == Role::Initiator && of.peer == *peer);
        let Some(ReadyConnection { addr, .. }) = dialled else { return };
        self.dial_for_nobody(peer, addr, Party::Relay(peer.rsa));
    }

    /// Dials a relay to hear how it sees our address.
    pub fn ask_address(&mut self, relay: &RelayIds, at: SocketAddr) {
        self.asked = Some((*relay, at));
        // It is our own, like a probe, and no neighbour's: those dial as they like.
        self.dial_for_nobody(relay, at, Party::Relay(self.config.ids.rsa));
    }

    /// Dials a relay for no circuit, if whoever it is counted for may have one more.
    fn dial_for_nobody(&mut self, relay: &RelayIds, at: SocketAddr, party: Party) {
        let dial = DialKey::of_peer(relay.rsa, relay.ed25519, at);
        if !self.draining && !self.dials.join(&dial, None) {
            let _ = self.start_dial(dial, party, None, None);
        }
    }

    /// Begins a dial, if the neighbour who wants it may have one.
    fn start_dial(
        &mut self,
        dial: DialKey,
        party: Party,
        link: Option<LinkKey>,
        circuit: Option<CircuitKey>,
    ) -> Result<(), Refusal> {
        let listener = self.links.listener(&dial);
        let dialling = Dialling { party, link, to: dial.addr(), listener };
        let instead = self.admission.admit_dial(self.now, &dialling)?;
        instead.into_iter().for_each(|other| self.end_dialled(other));
        let lasts = matches!(listener, Listener::Wanted(_));
        let socket = self.dials.begin(self.now, dial, circuit, lasts);
        self.admission.dial_begins(self.now, socket, &dialling);
        self.outputs.push_back(Output::Connect { socket, to: dial.addr() });
        Ok(())
    }

    /// Ends a dial, or a channel that was dialled, for another.
    pub(in crate::core) fn end_dialled(&mut self, socket: SocketId) {
        let is_over = self.dials.stop_counting(socket);
        self.admission.dial_ends(socket);
        if let Some((rsa, waiting)) = self.dials.take(socket) {
            for circuit in waiting {
                self.close_circuit(circuit, DestroyReason::RESOURCELIMIT);
            }
            self.release(rsa);
        }
        if !is_over {
            self.dials.end_soon(socket, ChannelError::Crowded);
        }
    }

    /// A dialled socket failed, or its handshake did. True when the socket was a dial's.
    pub fn on_dial_failed(
        &mut self,
        socket: SocketId,
        addr: Option<SocketAddr>,
        error: Option<&ChannelError>,
    ) -> bool {
        let Some((rsa, waiting)) = self.end_dial(socket) else { return false };
        if let (Some(addr), Some(error)) = (addr, error) {
            self.event(Event::ChannelClosed { peer: None, addr, error: error.clone() });
        }
        let reason = match error {
            Some(ChannelError::WrongIdentity) => DestroyReason::OR_IDENTITY,
            Some(_) => DestroyReason::CHANNEL_CLOSED,
            None => DestroyReason::CONNECTFAILED,
        };
        waiting.into_iter().for_each(|circuit| self.try_next_addr(circuit, reason));
        self.release(rsa);
        true
    }

    fn try_next_addr(&mut self, key: CircuitKey, failure: DestroyReason) {
        if self.table.get_mut(key).is_some_and(Circuit::try_next_addr) {
            match self.link_for(key) {
                Some(link) => self.extend_over(key, link),
                None => self.dial_for(key, failure),
            }
        }
    }

    /// A channel to a relay opened on `socket`. Circuits that waited for this dial go over a link that leads where they
    /// want to go. Of those that wait for other dials of the same relay only those are looked at to whose addresses the
    /// new link leads, and these leave: however many circuits wait, channels that are no news to them cost nothing.
    pub(in crate::core) fn extend_waiting(&mut self, rsa: RsaId, link_key: LinkKey, socket: SocketId) {
        let dialled = self.dials.take(socket).map(|(_, waiting)| waiting).unwrap_or_default();
        for circuit in dialled {
            match self.link_for(circuit) {
                Some(link) => self.extend_over(circuit, link),
                None => self.try_next_addr(circuit, DestroyReason::CONNECTFAILED),
            }
        }
        let is_used = |link: &&Link| link.channel().is_some_and(|channel| !channel.is_retired());
        let Some(link) = self.links.get(link_key).filter(is_used) else { return };
        for key in self.dials.led_to_by(link, rsa) {
            let (circuits, unneeded) = self.dials.leave_all(&key);
            if let Some(socket) = unneeded {
                self.end_dial(socket);
                self.dials.end_soon(socket, ChannelError::Idle);
            }
            for circuit in circuits {
                if let Some(link) = self.link_for(circuit) {
                    self.extend_over(circuit, link);
                }
            }
        }
    }

    /// Gives up all dials; returns their sockets.
    pub fn give_up_dials(&mut self) -> Vec<SocketId> {
        let all = self.dials.all();
        self.end_dials(&all);
        all
    }

    /// Once a second: dials that took too long end; returns their sockets.
    pub(in crate::core) fn end_late_dials(&mut self) -> Vec<SocketId> {
        while let Some(socket) = self.dials.pop_counted_out(self.now) {
            self.admission.dial_ends(socket);
        }
        let late = self.dials.late(self.now);
        self.end_dials(&late);
        late
    }

    fn end_dials(&mut self, sockets: &[SocketId]) {
        for socket in sockets {
            let Some((rsa, waiting)) = self.end_dial(*socket) else { continue };
            for circuit in waiting {
                self.close_circuit(circuit, DestroyReason::CONNECTFAILED);
            }
            self.release(rsa);
        }
    }
}
