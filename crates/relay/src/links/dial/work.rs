//! What the core does with dials: it begins them for circuits, and leads circuits on when they end.

use super::{Dial, DialKey};
use crate::admission::{Dialling, Listener, Party, Refusal};
use crate::core::Core;
use crate::keys::{CircuitKey, LinkKey};
use crate::language::Output;
use crate::links::Link;
use crate::message::{Event, Wanted};
use crate::table::Circuit;
use core::net::SocketAddr;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::channel::ChannelError;
use heddle_proto::ids::{Ed25519Id, RsaId};
use heddle_seam::node::SocketId;
use heddle_seam::time::Duration;
use std::collections::BTreeSet;

/// A dial, its handshake included, ends after this time. Stock Tor's clients give up on a circuit
/// after about as long.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);
/// A dial counts for so long at least.
const DIAL_COUNTS: Duration = Duration::from_secs(5);

impl Core {
    /// Finds a link for a circuit that waits for one.
    pub fn find_channel(&mut self, key: CircuitKey) {
        let Some(wanted) = self.table.get(key).and_then(Circuit::wanted) else { return };
        match self.link_to(wanted) {
            Some(link) => self.extend_over(key, link),
            None if self.config.shards > 1 => self.ask_directory(key),
            None => self.dial_for(key, DestroyReason::CONNECTFAILED),
        }
    }

    /// Lets a circuit wait for a dial to the first of its addresses that was not tried. When there is none it is closed
    /// for `failure`.
    pub fn dial_for(&mut self, key: CircuitKey, failure: DestroyReason) {
        let Some(circuit) = self.table.get(key) else { return };
        let Some(wanted) = circuit.wanted() else { return };
        let rsa = wanted.target.rsa;
        let link = Some(circuit.prev().link())
            .filter(|link| self.links.get(*link).is_some_and(|link| link.role().is_some()));
        let refused = match DialKey::of(wanted) {
            Some(dial) if self.dials.join(&dial, Some(key)) => return,
            Some(dial) => match self.start_dial(dial, circuit.party, link, Some(key)) {
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

    /// Dials a relay for nobody's circuit, unless that is under way already.
    pub fn dial_peer(&mut self, rsa: RsaId, ed25519: Ed25519Id, addr: SocketAddr) {
        let dial = DialKey { rsa, ed25519: Some(ed25519), addr };
        if !self.draining && !self.dials.join(&dial, None) {
            let _ = self.start_dial(dial, Party::Relay(rsa), None, None);
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
        let listener = self.listener_for(&dial);
        let dialling = Dialling { party, link, to: dial.addr, listener };
        let instead = self.admission.admit_dial(self.now, &dialling)?;
        instead.into_iter().for_each(|other| self.end_dialled(other));
        let lasts = matches!(listener, Listener::Wanted(_));
        let socket = self.dials.begin(self.now, dial, circuit, lasts);
        self.admission.dial_begins(self.now, socket, &dialling);
        self.outputs.push_back(Output::Connect { socket, to: dial.addr });
        Ok(())
    }

    fn listener_for(&self, dial: &DialKey) -> Listener {
        match &self.listed {
            listed if listed.is_empty() => Listener::Unknown,
            listed if listed.lists_at(dial.rsa, dial.ed25519, dial.addr) => Listener::Wanted(dial.rsa),
            listed if listed.has_port(dial.addr) => Listener::Other,
            _ => Listener::Nobody,
        }
    }

    /// Ends a dial, or a channel that was dialled, for another.
    pub fn end_dialled(&mut self, socket: SocketId) {
        let is_over = self.dials.counting.iter().any(|(_, other)| *other == socket);
        self.dials.counting.retain(|(_, other)| *other != socket);
        self.admission.dial_ends(socket);
        if let Some((rsa, dial)) = self.dials.remove(socket) {
            for circuit in dial.waiting {
                self.close_circuit(circuit, DestroyReason::RESOURCELIMIT);
            }
            self.release(rsa);
        }
        if !is_over {
            self.dials.unneeded.push((socket, ChannelError::Crowded));
        }
    }

    /// A dial is over. Returns whom it was for, and the circuits that wait. It counts as one of the neighbour who
    /// wanted it for a while at least, or else who asks for dials that fail at once could have any number.
    fn end_dial(&mut self, socket: SocketId) -> Option<(RsaId, BTreeSet<CircuitKey>)> {
        let (rsa, dial) = self.dials.remove(socket)?;
        if self.now.since(dial.began_at) < DIAL_COUNTS {
            self.dials.counting.push_back((dial.began_at + DIAL_COUNTS, socket));
        } else {
            self.admission.dial_ends(socket);
        }
        Some((rsa, dial.waiting))
    }

    /// A circuit that waited for a channel waits no longer.
    pub fn stop_waiting(&mut self, key: CircuitKey, wanted: &Wanted) {
        if let Some(socket) = DialKey::of(wanted).and_then(|dial| self.dials.leave(&dial, key)) {
            self.end_dial(socket);
            self.dials.unneeded.push((socket, ChannelError::Idle));
            self.release(wanted.target.rsa);
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
    pub fn extend_waiting(&mut self, rsa: RsaId, link_key: LinkKey, socket: SocketId) {
        let dialled = self.dials.remove(socket).map(|(_, dial)| dial.waiting).unwrap_or_default();
        for circuit in dialled {
            match self.link_for(circuit) {
                Some(link) => self.extend_over(circuit, link),
                None => self.try_next_addr(circuit, DestroyReason::CONNECTFAILED),
            }
        }
        let is_used = |link: &&Link| link.channel().is_some_and(|channel| !channel.retired);
        let Some(link) = self.links.get(link_key).filter(is_used) else { return };
        for key in self.dials.led_to_by(link, rsa) {
            let (circuits, unneeded) = self.dials.leave_all(&key);
            if let Some(socket) = unneeded {
                self.end_dial(socket);
                self.dials.unneeded.push((socket, ChannelError::Idle));
            }
            for circuit in circuits {
                if let Some(link) = self.link_for(circuit) {
                    self.extend_over(circuit, link);
                }
            }
        }
    }

    pub fn link_for(&self, key: CircuitKey) -> Option<LinkKey> {
        self.link_to(self.table.get(key)?.wanted()?)
    }

    /// Gives up all dials; returns their sockets.
    pub fn give_up_dials(&mut self) -> Vec<SocketId> {
        self.end_dials(|_| true)
    }

    /// Once a second: dials that took too long end; returns their sockets.
    pub fn end_late_dials(&mut self) -> Vec<SocketId> {
        let now = self.now;
        while let Some(&(_, socket)) = self.dials.counting.front().filter(|(until, _)| *until <= now) {
            self.dials.counting.pop_front();
            self.admission.dial_ends(socket);
        }
        self.end_dials(|dial| now.since(dial.began_at) >= DIAL_TIMEOUT)
    }

    fn end_dials(&mut self, is_over: impl Fn(&Dial) -> bool) -> Vec<SocketId> {
        let over = self.dials.dials.values().filter(|dial| is_over(dial));
        let sockets: Vec<_> = over.map(|dial| dial.socket).collect();
        for socket in &sockets {
            let Some((rsa, waiting)) = self.end_dial(*socket) else { continue };
            for circuit in waiting {
                self.close_circuit(circuit, DestroyReason::CONNECTFAILED);
            }
            self.release(rsa);
        }
        sockets
    }
}
