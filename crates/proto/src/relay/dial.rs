//! Finding a channel to a relay, and opening one when there is none.
//!
//! 1. An open channel to the relay is used.
//! 2. With several shards the owner of the directory says which shard has one, or is to dial.
//! 3. A dial tries the addresses of its target in order. Circuits wait for it; each is extended
//!    when the channel opens and closed when the last address failed.
//! 4. When two channels join the same two relays, both sides retire the same one: it takes no new
//!    circuits and is closed when its last circuit left.

use super::circuit::{CircuitKey, Next};
use super::core::Core;
use super::link::{ChannelLink, Link, LinkKey, LinkKind};
use super::message::Event;
use super::scheduler::LinkScheduler;
use super::stats::CHANNELS;
use crate::cell::create::DestroyReason;
use crate::channel::{ChannelError, Opened, Role, Target};
use crate::ids::{Ed25519Id, RelayIds, RsaId};
use crate::node::{Output, SocketId};
use crate::time::{Duration, Instant};
use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

/// A dial, its handshake included, ends after this time. Stock Tor's clients give up on a circuit
/// after about as long.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);
/// A channel without circuits is closed after this time, and a random part of as much again
/// (stock Tor: 180 s, and 900 s for relays that pad).
const IDLE_TIMEOUT: Duration = Duration::from_secs(180);
/// A channel takes new circuits for a week (tor: `TIME_BEFORE_OR_CONN_IS_TOO_OLD`).
const CHANNEL_AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Whom a dial is for; two clients that name different identities share nothing.
type DialKey = (RsaId, Option<Ed25519Id>);

fn dial_key(target: &Target) -> DialKey {
    (target.rsa, target.ed25519)
}

#[derive(Debug)]
struct Dial {
    target: Target,
    /// The address after the one that is being tried.
    next_addr: usize,
    /// At most `Limits::waiting_per_dial`.
    waiting: Vec<CircuitKey>,
    /// The socket of the address that is being tried.
    socket: Option<SocketId>,
    deadline: Instant,
}

/// Dials under way, and open channels by identity.
#[derive(Debug, Default)]
pub(super) struct Dials {
    /// Together with the links at most `Limits::channels`. A dial goes on when nobody waits any more.
    dials: BTreeMap<DialKey, Dial>,
    /// The dials by their sockets.
    sockets: BTreeMap<SocketId, DialKey>,
    channels: BTreeMap<RsaId, Vec<LinkKey>>,
    sockets_made: u64,
}

impl Dials {
    /// A name for a socket that we dial.
    pub fn new_socket(&mut self) -> SocketId {
        let socket = SocketId::dialled(self.sockets_made);
        self.sockets_made += 1;
        socket
    }

    /// The open channels to a relay.
    pub fn channels_to(&self, rsa: &RsaId) -> &[LinkKey] {
        self.channels.get(rsa).map_or(&[], Vec::as_slice)
    }

    /// A circuit no longer waits.
    pub fn forget(&mut self, target: &Target, circuit: CircuitKey) {
        if let Some(dial) = self.dials.get_mut(&dial_key(target)) {
            dial.waiting.retain(|key| *key != circuit);
        }
    }

    /// The relay that `socket` is being dialled to, and at which address.
    pub fn under_way(&self, socket: SocketId) -> Option<(&Target, SocketAddr)> {
        let dial = self.dials.get(self.sockets.get(&socket)?)?;
        let addr = dial.target.addrs.get(dial.next_addr.checked_sub(1)?)?;
        Some((&dial.target, *addr))
    }

    /// Whether a relay is being dialled, whichever Ed25519 identity it is to have.
    pub fn is_dialling(&self, rsa: RsaId) -> bool {
        let last = Some(Ed25519Id([u8::MAX; 32]));
        self.dials.range((rsa, None)..=(rsa, last)).next().is_some()
    }

    /// Relays that are being dialled.
    pub fn count(&self) -> usize {
        self.dials.len()
    }

    fn remove(&mut self, key: &DialKey) -> Option<Dial> {
        let dial = self.dials.remove(key)?;
        dial.socket.map(|socket| self.sockets.remove(&socket));
        Some(dial)
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
            None => self.dial_for(key),
        }
    }

    /// Dials the relay that a circuit waits for, unless that is under way already.
    pub fn dial_for(&mut self, key: CircuitKey) {
        let Some(Next::Waiting(wanted)) = self.circuits.get(key).map(|circuit| &circuit.next) else {
            return;
        };
        let target = wanted.target.clone();
        if let Some(dial) = self.dials.dials.get_mut(&dial_key(&target)) {
            if dial.waiting.len() < self.config.limits.waiting_per_dial {
                return dial.waiting.push(key);
            }
            return self.close_circuit(key, DestroyReason::RESOURCELIMIT);
        }
        if self.links.len() + self.dials.dials.len() >= self.config.limits.channels {
            self.close_circuit(key, DestroyReason::RESOURCELIMIT);
            return self.release(target.rsa);
        }
        self.start_dial(target, vec![key]);
    }

    /// Dials a relay for nobody's circuit, unless that is under way already.
    pub fn dial_peer(&mut self, target: Target) {
        let full = self.links.len() + self.dials.dials.len() >= self.config.limits.channels;
        if !self.draining && !full && !self.dials.dials.contains_key(&dial_key(&target)) {
            self.start_dial(target, Vec::new());
        }
    }

    fn start_dial(&mut self, target: Target, waiting: Vec<CircuitKey>) {
        let dial = Dial { next_addr: 0, waiting, socket: None, deadline: self.now + DIAL_TIMEOUT, target };
        let key = dial_key(&dial.target);
        self.dials.dials.insert(key, dial);
        self.try_next_addr(key, DestroyReason::CONNECTFAILED);
    }

    /// Tries the next address of a dial, or gives it up for `reason`.
    fn try_next_addr(&mut self, key: DialKey, reason: DestroyReason) {
        let socket = self.dials.new_socket();
        let Some(dial) = self.dials.dials.get_mut(&key) else {
            return;
        };
        match dial.target.addrs.get(dial.next_addr) {
            Some(&to) => {
                dial.next_addr += 1;
                if let Some(before) = dial.socket.replace(socket) {
                    self.dials.sockets.remove(&before);
                }
                self.dials.sockets.insert(socket, key);
                self.outputs.push_back(Output::Connect { socket, to });
            }
            None => self.give_up_dial(key, reason),
        }
    }

    fn give_up_dial(&mut self, key: DialKey, reason: DestroyReason) {
        let Some(dial) = self.dials.remove(&key) else {
            return;
        };
        self.release(dial.target.rsa);
        for circuit in dial.waiting {
            self.close_circuit(circuit, reason);
        }
    }

    /// A dialled socket failed, or its handshake did. True when the socket was a dial's.
    pub fn on_dial_failed(
        &mut self,
        socket: SocketId,
        addr: Option<SocketAddr>,
        error: Option<&ChannelError>,
    ) -> bool {
        let Some(&key) = self.dials.sockets.get(&socket) else { return false };
        if let (Some(addr), Some(error)) = (addr, error) {
            self.event(Event::ChannelClosed { peer: None, addr, error: error.clone() });
        }
        let reason = match error {
            Some(ChannelError::WrongIdentity) => DestroyReason::OR_IDENTITY,
            Some(_) => DestroyReason::CHANNEL_CLOSED,
            None => DestroyReason::CONNECTFAILED,
        };
        self.try_next_addr(key, reason);
        true
    }

    /// Makes a link of a connected socket, in either role.
    pub fn add_channel(&mut self, socket: SocketId, role: Role, addr: SocketAddr) -> LinkKey {
        let hash_seed = self.rng.next_u64();
        let channel = ChannelLink {
            socket,
            role,
            addr,
            peer: None,
            open: false,
            canonical: false,
            opened_at: self.now,
            idle_since: self.now,
            retired: false,
        };
        self.insert_link(LinkKind::Channel(channel), hash_seed)
    }

    /// A link without lanes, served as the operator chose.
    pub fn insert_link(&mut self, kind: LinkKind, hash_seed: u64) -> LinkKey {
        self.links.insert(Link::new(kind, LinkScheduler::new(self.config.scheduler), hash_seed))
    }

    /// A channel's handshake is over.
    pub fn on_opened(&mut self, link_key: LinkKey, opened: Opened) {
        let now = self.now;
        let Some(channel) = self.links.get_mut(link_key).and_then(Link::channel_mut) else {
            return;
        };
        channel.open = true;
        channel.opened_at = now;
        channel.idle_since = now;
        channel.peer = opened.peer;
        channel.canonical = opened.peer_addrs.contains(&channel.addr.ip());
        let (socket, role, addr) = (channel.socket, channel.role, channel.addr);
        let Some(peer) = opened.peer else { return };
        self.dials.channels.entry(peer.rsa).or_default().push(link_key);
        self.meter.transports[CHANNELS].links_opened += 1;
        self.announce(peer.rsa, true);
        self.event(Event::ChannelOpened { role, peer, addr });
        if let Some(ours) = opened.our_addr {
            self.event(Event::OurAddress { ours, by: peer });
        }
        self.retire_duplicates(&peer);
        let dialled = self.dials.sockets.get(&socket).copied();
        if let Some(dial) = dialled.and_then(|key| self.dials.remove(&key)) {
            for circuit in dial.waiting {
                self.extend_over(circuit, link_key);
            }
        }
        self.extend_waiting(peer.rsa);
    }

    /// Circuits that wait for a dial to a relay go over a link to it that opened meanwhile. The dial goes on for nobody.
    fn extend_waiting(&mut self, rsa: RsaId) {
        let last = Some(Ed25519Id([u8::MAX; 32]));
        let keys: Vec<_> = self.dials.dials.range((rsa, None)..=(rsa, last)).map(|(key, _)| *key).collect();
        for key in keys {
            let waiting = self.dials.dials.get_mut(&key).map(|dial| core::mem::take(&mut dial.waiting));
            for circuit in waiting.unwrap_or_default() {
                let found = match self.circuits.get(circuit).map(|circuit| &circuit.next) {
                    Some(Next::Waiting(wanted)) => self.link_to(wanted),
                    _ => continue,
                };
                match found {
                    Some(link) => self.extend_over(circuit, link),
                    None => {
                        let dial = self.dials.dials.get_mut(&key);
                        dial.into_iter().for_each(|dial| dial.waiting.push(circuit));
                    }
                }
            }
        }
    }

    /// Of several channels that join us and `peer`, one goes on. Both sides choose alike: first
    /// those of the relay with the smaller identity, then the oldest. Those that were retired before, also for their age,
    /// have no say: a new one would be retired beside them at its birth.
    fn retire_duplicates(&mut self, peer: &RelayIds) {
        let ours = self.config.ids.rsa;
        let goes_on = |key: &LinkKey| {
            self.links.get(*key).and_then(Link::channel).is_some_and(|channel| !channel.retired)
        };
        let channels = self.dials.channels_to(&peer.rsa).iter().copied();
        let mut ranked: Vec<_> = channels.filter(goes_on).collect();
        let rank = |key: &LinkKey| {
            let channel = self.links.get(*key).and_then(Link::channel)?;
            let by_smaller = (channel.role == Role::Initiator) == (ours < peer.rsa);
            Some((!channel.canonical, !by_smaller, channel.opened_at, *key))
        };
        ranked.sort_by_key(rank);
        for (place, key) in ranked.into_iter().enumerate() {
            if let Some(channel) = self.links.get_mut(key).and_then(Link::channel_mut) {
                channel.retired |= place > 0;
            }
        }
    }

    /// An open channel is gone.
    pub fn forget_channel(&mut self, link_key: LinkKey, peer: &RelayIds) {
        let Some(channels) = self.dials.channels.get_mut(&peer.rsa) else {
            return;
        };
        channels.retain(|key| *key != link_key);
        if channels.is_empty() {
            self.dials.channels.remove(&peer.rsa);
            self.release(peer.rsa);
        }
    }

    /// Gives up all dials; returns their sockets.
    pub fn give_up_dials(&mut self) -> Vec<SocketId> {
        let keys: Vec<_> = self.dials.dials.keys().copied().collect();
        let sockets = self.dials.sockets.keys().copied().collect();
        keys.into_iter().for_each(|key| self.give_up_dial(key, DestroyReason::CONNECTFAILED));
        sockets
    }

    /// Once a second: dials that took too long end; returns the sockets of channels to be closed,
    /// those that are idle and those that do not open.
    pub fn on_tick(&mut self) -> Vec<SocketId> {
        let now = self.now;
        let late = self.dials.dials.iter().filter(|(_, dial)| dial.deadline <= now);
        let late: Vec<_> = late.map(|(key, dial)| (*key, dial.socket)).collect();
        let mut closing = Vec::with_capacity(late.len());
        for (key, socket) in late {
            self.give_up_dial(key, DestroyReason::CONNECTFAILED);
            closing.extend(socket);
        }
        // Flows count as circuits of the channel that vouched for them: it keeps the pair together.
        let occupied = self.links.values().filter(|link| !link.lanes.is_empty()).filter_map(Link::flows);
        let occupied: BTreeSet<_> = occupied.map(|flows| flows.peer).collect();
        for (_, link) in &mut self.links {
            let idle = link.lanes.is_empty();
            let Some(channel) = link.channel_mut().filter(|channel| channel.open) else {
                continue;
            };
            let has_flows = channel.peer.is_some_and(|peer| occupied.contains(&peer)) && !channel.retired;
            let idle = idle && !has_flows;
            if has_flows {
                // However its flows end: also when their connection takes them all along.
                channel.idle_since = now;
            }
            if now.since(channel.opened_at) >= CHANNEL_AGE_MAX
                && !core::mem::replace(&mut channel.retired, true)
            {
                self.flows.retired.extend(channel.peer);
            }
            // The socket's number spreads the moment, so that channels that opened together do
            // not close together.
            let spread = Duration::from_secs(channel.socket.get() % 180);
            let unused = now.since(channel.idle_since);
            if idle
                && (unused >= IDLE_TIMEOUT + spread || channel.retired && unused >= Duration::from_secs(10))
            {
                closing.push(channel.socket);
            }
        }
        closing
    }
}
