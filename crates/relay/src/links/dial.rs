//! Opening channels: a dial goes to one address and asks for one pair of identities.
//!
//! 1. A circuit that finds no open channel waits for a dial to the first address that its client named. With several
//!    shards the owner of the directory says which shard has a channel, or is to dial.
//! 2. Circuits that name the same identities and the same address share a dial. Whoever names another address shares
//!    nothing, so nobody decides where the circuits of others lead.
//! 3. The channel opens: circuits go over it. The dial fails: each circuit waits for a dial to its next address.
//! 4. A dial ends with the last circuit that waits for it, unless it leads to a relay where the consensus says that
//!    relay is: then the next circuit may find a channel.

mod work;

use super::link::Link;
use crate::keys::CircuitKey;
use crate::message::Wanted;
use core::net::{Ipv4Addr, SocketAddr};
use heddle_proto::channel::{ChannelError, Target};
use heddle_proto::ids::{Ed25519Id, RsaId};
use heddle_seam::node::SocketId;
use heddle_seam::time::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

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
    fn join(&mut self, key: &DialKey, circuit: Option<CircuitKey>) -> bool {
        let Some(dial) = self.dials.get_mut(key) else { return false };
        dial.waiting.extend(circuit);
        dial.lasts |= circuit.is_none();
        true
    }

    fn begin(&mut self, now: Instant, key: DialKey, circuit: Option<CircuitKey>, lasts: bool) -> SocketId {
        let socket = self.new_socket();
        let waiting = circuit.into_iter().collect();
        self.dials.insert(key, Dial { socket, waiting, lasts: lasts || circuit.is_none(), began_at: now });
        self.sockets.insert(socket, key);
        socket
    }

    /// A circuit waits no longer. Returns the dial's socket if nobody needs that any more.
    fn leave(&mut self, key: &DialKey, circuit: CircuitKey) -> Option<SocketId> {
        let dial = self.dials.get_mut(key)?;
        let is_last = dial.waiting.remove(&circuit) && dial.waiting.is_empty();
        (is_last && !dial.lasts).then_some(dial.socket)
    }

    /// The dials to a relay whose circuits a link carries where they want to go.
    fn led_to_by(&self, link: &Link, rsa: RsaId) -> Vec<DialKey> {
        self.to(rsa).map(|(key, _)| *key).filter(|key| link.leads_to(&key.target())).collect()
    }

    /// All circuits leave that wait for a dial. Returns them, and the dial's socket if nobody needs that any more.
    fn leave_all(&mut self, key: &DialKey) -> (BTreeSet<CircuitKey>, Option<SocketId>) {
        let Some(dial) = self.dials.get_mut(key) else { return Default::default() };
        (core::mem::take(&mut dial.waiting), (!dial.lasts).then_some(dial.socket))
    }

    fn remove(&mut self, socket: SocketId) -> Option<(RsaId, Dial)> {
        let key = self.sockets.remove(&socket)?;
        Some((key.rsa, self.dials.remove(&key)?))
    }
}
