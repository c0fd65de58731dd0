//! Opening channels: a dial goes to one address and asks for one pair of identities.
//!
//! 1. A circuit that finds no open channel waits for a dial to the first address that its client named. With several
//!    shards the owner of the directory says which shard has a channel, or is to dial.
//! 2. Circuits that name the same identities and the same address share a dial. Whoever names another address shares
//!    nothing, so nobody decides where the circuits of others lead.
//! 3. The channel opens: circuits go over it. The dial fails: each circuit waits for a dial to its next address.
//! 4. A dial ends with the last circuit that waits for it.

use super::circuit::{CircuitKey, Next};
use super::core::Core;
use super::link::LinkKey;
use super::message::{Event, Wanted};
use crate::cell::create::DestroyReason;
use crate::channel::{ChannelError, Target};
use crate::ids::{Ed25519Id, RsaId};
use crate::node::{Output, SocketId};
use crate::time::{Duration, Instant};
use core::net::{Ipv4Addr, SocketAddr};
use std::collections::{BTreeMap, BTreeSet};

/// A dial, its handshake included, ends after this time. Stock Tor's clients give up on a circuit
/// after about as long.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);

/// Whom a dial is for, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DialKey {
    rsa: RsaId,
    ed25519: Option<Ed25519Id>,
    addr: SocketAddr,
}

impl DialKey {
    /// The dial that a circuit waits for, or is to begin. `None` when it has no address left.
    fn of(wanted: &Wanted) -> Option<Self> {
        let Target { rsa, ed25519, addrs } = &wanted.target;
        Some(DialKey { rsa: *rsa, ed25519: *ed25519, addr: *addrs.get(wanted.addrs_tried)? })
    }
}

#[derive(Debug)]
struct Dial {
    socket: SocketId,
    /// Each circuit waits for one dial, so all together are at most `Limits::circuits`.
    waiting: BTreeSet<CircuitKey>,
    /// Whether it goes on when nobody waits.
    lasts: bool,
    deadline: Instant,
}

/// Dials under way.
#[derive(Debug, Default)]
pub(super) struct Dials {
    /// Together with the links at most `Limits::channels`.
    dials: BTreeMap<DialKey, Dial>,
    /// The dials by their sockets.
    sockets: BTreeMap<SocketId, DialKey>,
    /// Sockets of dials that nobody needed any more, until the shard ends them.
    unneeded: Vec<SocketId>,
    sockets_made: u64,
}

impl Dials {
    /// A name for a socket that we dial.
    pub fn new_socket(&mut self) -> SocketId {
        let socket = SocketId::dialled(self.sockets_made);
        self.sockets_made += 1;
        socket
    }

    /// Whom `socket` is being dialled for, and its address.
    pub fn under_way(&self, socket: SocketId) -> Option<(Target, SocketAddr)> {
        let DialKey { rsa, ed25519, addr } = *self.sockets.get(&socket)?;
        Some((Target { rsa, ed25519, addrs: vec![addr] }, addr))
    }

    /// Whether a relay is being dialled, at whichever address and whichever Ed25519 identity it is to have.
    pub fn is_dialling(&self, rsa: RsaId) -> bool {
        self.to(rsa).next().is_some()
    }

    /// Dials under way.
    pub fn count(&self) -> usize {
        self.dials.len()
    }

    /// Takes the sockets that are to be ended.
    pub fn take_unneeded(&mut self) -> Vec<SocketId> {
        core::mem::take(&mut self.unneeded)
    }

    fn to(&self, rsa: RsaId) -> impl Iterator<Item = &Dial> {
        let first = DialKey { rsa, ed25519: None, addr: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0) };
        self.dials.range(first..).take_while(move |(key, _)| key.rsa == rsa).map(|(_, dial)| dial)
    }

    /// Joins a dial that is under way; false when there is none.
    fn join(&mut self, key: &DialKey, circuit: Option<CircuitKey>) -> bool {
        let Some(dial) = self.dials.get_mut(key) else { return false };
        dial.waiting.extend(circuit);
        dial.lasts |= circuit.is_none();
        true
    }

    fn begin(&mut self, key: DialKey, circuit: Option<CircuitKey>, deadline: Instant) -> SocketId {
        let socket = self.new_socket();
        let waiting = circuit.into_iter().collect();
        self.dials.insert(key, Dial { socket, waiting, lasts: circuit.is_none(), deadline });
        self.sockets.insert(socket, key);
        socket
    }

    /// A circuit waits no longer. True when its dial ended with it.
    fn leave(&mut self, key: &DialKey, circuit: CircuitKey) -> bool {
        let Some(dial) = self.dials.get_mut(key) else { return false };
        let ends = dial.waiting.remove(&circuit) && dial.waiting.is_empty() && !dial.lasts;
        if ends {
            self.unneeded.push(dial.socket);
            self.sockets.remove(&dial.socket);
            self.dials.remove(key);
        }
        ends
    }

    /// A dial is over. Returns whom it was for, and the circuits that wait.
    fn end(&mut self, socket: SocketId) -> Option<(RsaId, BTreeSet<CircuitKey>)> {
        let key = self.sockets.remove(&socket)?;
        let dial = self.dials.remove(&key)?;
        Some((key.rsa, dial.waiting))
    }
}

impl Core {
    /// Finds a link for a circuit that waits for one.
    pub fn find_channel(&mut self, key: CircuitKey) {
        let Some(Next::Waiting(wanted)) = self.circuits.get(key).map(|circuit| &circuit.next) else {
            return;
        };
        match self.link_to(wanted) {
            Some(link) => self.extend_over(key, link),
            None if self.config.shards > 1 => self.ask_directory(key),
            None => self.dial_for(key, DestroyReason::CONNECTFAILED),
        }
    }

    /// Lets a circuit wait for a dial to the first of its addresses that was not tried. When there is none it is closed
    /// for `failure`.
    pub fn dial_for(&mut self, key: CircuitKey, failure: DestroyReason) {
        let Some(Next::Waiting(wanted)) = self.circuits.get(key).map(|circuit| &circuit.next) else {
            return;
        };
        let rsa = wanted.target.rsa;
        let refused = match DialKey::of(wanted) {
            Some(dial) if self.dials.join(&dial, Some(key)) => return,
            Some(dial) if self.has_room_for_dial() => return self.start_dial(dial, Some(key)),
            Some(_) => DestroyReason::RESOURCELIMIT,
            None => failure,
        };
        self.close_circuit(key, refused);
        self.release(rsa);
    }

    /// Dials a relay for nobody's circuit, unless that is under way already.
    pub fn dial_peer(&mut self, rsa: RsaId, ed25519: Ed25519Id, addr: SocketAddr) {
        let dial = DialKey { rsa, ed25519: Some(ed25519), addr };
        if !self.draining && !self.dials.join(&dial, None) && self.has_room_for_dial() {
            self.start_dial(dial, None);
        }
    }

    fn has_room_for_dial(&self) -> bool {
        self.links.len() + self.dials.count() < self.config.limits.channels
    }

    fn start_dial(&mut self, dial: DialKey, circuit: Option<CircuitKey>) {
        let socket = self.dials.begin(dial, circuit, self.now + DIAL_TIMEOUT);
        self.outputs.push_back(Output::Connect { socket, to: dial.addr });
    }

    /// A circuit that waited for a channel waits no longer.
    pub fn stop_waiting(&mut self, key: CircuitKey, wanted: &Wanted) {
        if DialKey::of(wanted).is_some_and(|dial| self.dials.leave(&dial, key)) {
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
        let Some((rsa, waiting)) = self.dials.end(socket) else { return false };
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
        if let Some(Next::Waiting(wanted)) = self.circuits.get_mut(key).map(|circuit| &mut circuit.next) {
            wanted.addrs_tried += 1;
            self.dial_for(key, failure);
        }
    }

    /// A channel to a relay opened on `socket`. Circuits that wait for that relay, whichever dial they wait for, go over a
    /// link that leads where they want to go.
    pub fn extend_waiting(&mut self, rsa: RsaId, socket: SocketId) {
        let dialled = self.dials.end(socket).map(|(_, waiting)| waiting).unwrap_or_default();
        for circuit in dialled {
            match self.link_for(circuit) {
                Some(link) => self.extend_over(circuit, link),
                None => self.try_next_addr(circuit, DestroyReason::CONNECTFAILED),
            }
        }
        let others: Vec<_> = self.dials.to(rsa).flat_map(|dial| dial.waiting.iter().copied()).collect();
        for circuit in others {
            let Some(link) = self.link_for(circuit) else { continue };
            if let Some(Next::Waiting(wanted)) = self.circuits.get(circuit).map(|circuit| &circuit.next)
                && let Some(dial) = DialKey::of(wanted)
            {
                self.dials.leave(&dial, circuit);
            }
            self.extend_over(circuit, link);
        }
    }

    fn link_for(&self, key: CircuitKey) -> Option<LinkKey> {
        match &self.circuits.get(key)?.next {
            Next::Waiting(wanted) => self.link_to(wanted),
            _ => None,
        }
    }

    /// Gives up all dials; returns their sockets.
    pub fn give_up_dials(&mut self) -> Vec<SocketId> {
        self.end_dials(|_| true)
    }

    /// Once a second: dials that took too long end; returns their sockets.
    pub fn end_late_dials(&mut self) -> Vec<SocketId> {
        let now = self.now;
        self.end_dials(|dial| dial.deadline <= now)
    }

    fn end_dials(&mut self, is_over: impl Fn(&Dial) -> bool) -> Vec<SocketId> {
        let over = self.dials.dials.values().filter(|dial| is_over(dial));
        let sockets: Vec<_> = over.map(|dial| dial.socket).collect();
        for socket in &sockets {
            let Some((rsa, waiting)) = self.dials.end(*socket) else { continue };
            for circuit in waiting {
                self.close_circuit(circuit, DestroyReason::CONNECTFAILED);
            }
            self.release(rsa);
        }
        sockets
    }
}
