//! Opening channels: a dial goes to one address and asks for one pair of identities.
//!
//! 1. A circuit that finds no open channel waits for a dial to the first address that its client named. With several
//!    shards the owner of the directory says which shard has a channel, or is to dial.
//! 2. Circuits that name the same identities and the same address share a dial. Whoever names another address shares
//!    nothing, so nobody decides where the circuits of others lead.
//! 3. The channel opens: circuits go over it. The dial fails: each circuit waits for a dial to its next address.
//! 4. A dial ends with the last circuit that waits for it, unless it leads to a relay where the consensus says that
//!    relay is: then the next circuit may find a channel.

use super::link::Link;
use crate::admission::Listener;
use crate::keys::CircuitKey;
use crate::message::Wanted;
use crate::relays::Relays;
use core::net::{Ipv4Addr, SocketAddr};
use heddle_proto::channel::{ChannelError, Target};
use heddle_proto::ids::{Ed25519Id, RsaId};
use heddle_seam::node::SocketId;
use heddle_seam::time::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A dial, its handshake included, ends after this time. Stock Tor's clients give up on a circuit
/// after about as long.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);
/// A dial counts for so long at least.
const DIAL_COUNTS: Duration = Duration::from_secs(5);

/// Whom a dial is for, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DialKey {
    rsa: RsaId,
    ed25519: Option<Ed25519Id>,
    addr: SocketAddr,
}

impl DialKey {
    /// The dial that a circuit waits for, or is to begin. `None` when it has no address left.
    pub fn of(wanted: &Wanted) -> Option<Self> {
        let Target { rsa, ed25519, addrs } = &wanted.target;
        Some(DialKey { rsa: *rsa, ed25519: *ed25519, addr: *addrs.get(wanted.addrs_tried)? })
    }

    /// The dial of a relay for nobody's circuit.
    pub fn of_peer(rsa: RsaId, ed25519: Ed25519Id, addr: SocketAddr) -> Self {
        DialKey { rsa, ed25519: Some(ed25519), addr }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Who listens there, as far as the consensus says.
    pub fn listener(&self, listed: &Relays) -> Listener {
        match listed {
            listed if listed.is_empty() => Listener::Unknown,
            listed if listed.lists_at(self.rsa, self.ed25519, self.addr) => Listener::Wanted(self.rsa),
            listed if listed.has_port(self.addr) => Listener::Other,
            _ => Listener::Nobody,
        }
    }

    fn target(&self) -> Target {
        Target { rsa: self.rsa, ed25519: self.ed25519, addrs: vec![self.addr] }
    }
}

#[derive(Debug)]
struct Dial {
    socket: SocketId,
    /// Each circuit waits for one dial, so all together are at most `Limits::circuits`.
    waiting: BTreeSet<CircuitKey>,
    /// Whether it goes on when nobody waits.
    lasts: bool,
    began_at: Instant,
}

/// Dials under way.
#[derive(Debug, Default)]
pub(crate) struct Dials {
    /// As many as [`Admission`](crate::admission::Admission) grants.
    dials: BTreeMap<DialKey, Dial>,
    /// The dials by their sockets.
    sockets: BTreeMap<SocketId, DialKey>,
    /// Dials that are over and still count, the oldest first.
    counting: VecDeque<(Instant, SocketId)>,
    /// Sockets that are to be ended, and why, until the shard does.
    unneeded: Vec<(SocketId, ChannelError)>,
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
        let key = self.sockets.get(&socket)?;
        Some((key.target(), key.addr))
    }

    /// Whether a relay is being dialled, at whichever address and whichever Ed25519 identity it is to have.
    pub fn is_dialling(&self, rsa: RsaId) -> bool {
        self.to(rsa).next().is_some()
    }

    /// Dials under way.
    pub fn count(&self) -> usize {
        self.dials.len()
    }

    /// A socket is to be ended, when the shard is done with what it does.
    pub fn end_soon(&mut self, socket: SocketId, error: ChannelError) {
        if !self.unneeded.iter().any(|(other, _)| *other == socket) {
            self.unneeded.push((socket, error));
        }
    }

    /// Takes the sockets that are to be ended.
    pub fn take_unneeded(&mut self) -> Vec<(SocketId, ChannelError)> {
        core::mem::take(&mut self.unneeded)
    }

    fn to(&self, rsa: RsaId) -> impl Iterator<Item = (&DialKey, &Dial)> {
        let first = DialKey { rsa, ed25519: None, addr: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0) };
        self.dials.range(first..).take_while(move |(key, _)| key.rsa == rsa)
    }

    /// Joins a dial that is under way; false when there is none.
    pub fn join(&mut self, key: &DialKey, circuit: Option<CircuitKey>) -> bool {
        let Some(dial) = self.dials.get_mut(key) else { return false };
        dial.waiting.extend(circuit);
        dial.lasts |= circuit.is_none();
        true
    }

    /// Begins a dial, for a circuit or for nobody's. Returns its socket.
    pub fn begin(
        &mut self,
        now: Instant,
        key: DialKey,
        circuit: Option<CircuitKey>,
        lasts: bool,
    ) -> SocketId {
        let socket = self.new_socket();
        let waiting = circuit.into_iter().collect();
        self.dials.insert(key, Dial { socket, waiting, lasts: lasts || circuit.is_none(), began_at: now });
        self.sockets.insert(socket, key);
        socket
    }

    /// A circuit waits no longer. Returns the dial's socket if nobody needs that any more.
    pub fn leave(&mut self, key: &DialKey, circuit: CircuitKey) -> Option<SocketId> {
        let dial = self.dials.get_mut(key)?;
        let is_last = dial.waiting.remove(&circuit) && dial.waiting.is_empty();
        (is_last && !dial.lasts).then_some(dial.socket)
    }

    /// The dials to a relay whose circuits a link carries where they want to go.
    pub fn led_to_by(&self, link: &Link, rsa: RsaId) -> Vec<DialKey> {
        self.to(rsa).map(|(key, _)| *key).filter(|key| link.leads_to(&key.target())).collect()
    }

    /// All circuits leave that wait for a dial. Returns them, and the dial's socket if nobody needs that any more.
    pub fn leave_all(&mut self, key: &DialKey) -> (BTreeSet<CircuitKey>, Option<SocketId>) {
        let Some(dial) = self.dials.get_mut(key) else { return Default::default() };
        (core::mem::take(&mut dial.waiting), (!dial.lasts).then_some(dial.socket))
    }

    /// A dial is over. Returns whom it was for and the circuits that wait, and whether it counts no longer: it does for
    /// a while at least, or else who asks for dials that fail at once could have any number.
    pub fn end(&mut self, now: Instant, socket: SocketId) -> Option<EndedDial> {
        let (rsa, dial) = self.remove(socket)?;
        let is_counted_out = now.since(dial.began_at) >= DIAL_COUNTS;
        if !is_counted_out {
            self.counting.push_back((dial.began_at + DIAL_COUNTS, socket));
        }
        Some(EndedDial { rsa, waiting: dial.waiting, is_counted_out })
    }

    /// A dial is over at once: it led to a channel, or ends for another. Returns whom it was for and the circuits that
    /// wait.
    pub fn take(&mut self, socket: SocketId) -> Option<(RsaId, BTreeSet<CircuitKey>)> {
        self.remove(socket).map(|(rsa, dial)| (rsa, dial.waiting))
    }

    /// A dial that was over counts no longer. False if it did not.
    pub fn stop_counting(&mut self, socket: SocketId) -> bool {
        let before = self.counting.len();
        self.counting.retain(|(_, other)| *other != socket);
        self.counting.len() < before
    }

    /// A dial that was over and need count no longer.
    pub fn pop_counted_out(&mut self, now: Instant) -> Option<SocketId> {
        let &(_, socket) = self.counting.front().filter(|(until, _)| *until <= now)?;
        self.counting.pop_front();
        Some(socket)
    }

    /// All that are under way.
    pub fn all(&self) -> Vec<SocketId> {
        self.dials.values().map(|dial| dial.socket).collect()
    }

    /// Those that take too long.
    pub fn late(&self, now: Instant) -> Vec<SocketId> {
        let late = self.dials.values().filter(|dial| now.since(dial.began_at) >= DIAL_TIMEOUT);
        late.map(|dial| dial.socket).collect()
    }

    fn remove(&mut self, socket: SocketId) -> Option<(RsaId, Dial)> {
        let key = self.sockets.remove(&socket)?;
        Some((key.rsa, self.dials.remove(&key)?))
    }
}

/// A dial that is over.
#[derive(Debug)]
pub(crate) struct EndedDial {
    pub rsa: RsaId,
    /// The circuits that wait.
    pub waiting: BTreeSet<CircuitKey>,
    /// Whether it counts no longer as one of the neighbour who wanted it.
    pub is_counted_out: bool,
}
