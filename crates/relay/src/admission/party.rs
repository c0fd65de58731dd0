//! For whom something is held: the neighbour through whom it was asked for.

use core::net::IpAddr;
use heddle_proto::addr::AddrKey;
use heddle_proto::ids::RsaId;

/// A neighbour, as far as shares go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// A relay of the consensus that proved its identity, or this relay itself.
    Relay(RsaId),
    /// Whoever connects from an address at which a relay of the consensus listens, before the handshake is over.
    RelayAddr(IpAddr),
    /// Anybody else: clients, and relays that the consensus does not list.
    Stranger(IpAddr),
}

/// Relays of the consensus have reserves that nobody else can use up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Relay,
    Stranger,
}

/// Whose holdings are summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Relay(RsaId),
    Addr(AddrKey),
    /// A neighbour's link, by its number in the shard.
    Link(u64),
    /// A circuit, by its number in the shard.
    Circuit(u64),
}

impl Key {
    /// The first and the last in order.
    pub const FIRST: Key = Key::Relay(RsaId([0; 20]));
    pub(crate) const LAST: Key = Key::Circuit(u64::MAX);
}

/// One who may hold one `part`-th of what is free, and so at most one of `part + 1` parts of what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    pub key: Key,
    pub part: u64,
}

/// An address may hold a fifth of what there is for its class, where nobody else holds anything.
const ADDR_PART: u64 = 4;
/// A site may hold a third of that.
const SITE_PART: u64 = 2;
/// A relay of the consensus may hold half of that: clients of the whole network stand behind it.
const RELAY_PART: u64 = 1;

impl Party {
    /// Somebody at an address. `is_listed` says whether a relay of the consensus listens there.
    pub fn at(addr: IpAddr, is_listed: bool) -> Self {
        let addr = addr.to_canonical();
        if is_listed { Party::RelayAddr(addr) } else { Party::Stranger(addr) }
    }

    pub fn class(&self) -> Class {
        match self {
            Party::Relay(_) | Party::RelayAddr(_) => Class::Relay,
            Party::Stranger(_) => Class::Stranger,
        }
    }

    /// The narrowest network that counts as one neighbour.
    pub fn key(&self) -> Key {
        match *self {
            Party::Relay(rsa) => Key::Relay(rsa),
            Party::RelayAddr(addr) | Party::Stranger(addr) => Key::Addr(AddrKey::of(addr)),
        }
    }

    /// The site that the network of [`Party::key`] is of; a relay, or a network that is of none, is its own.
    pub(crate) fn site_key(&self) -> Key {
        match *self {
            Party::Relay(_) => None,
            Party::RelayAddr(addr) | Party::Stranger(addr) => site_key(addr),
        }
        .unwrap_or(self.key())
    }

    /// Whose shares this party's holdings count against.
    pub(crate) fn holders(&self) -> impl Iterator<Item = Holder> + use<> {
        let (addr, part) = match *self {
            Party::Relay(_) => (None, RELAY_PART),
            Party::RelayAddr(addr) | Party::Stranger(addr) => (Some(addr), ADDR_PART),
        };
        let site = addr.and_then(site_key).map(|key| Holder { key, part: SITE_PART });
        core::iter::once(Holder { key: self.key(), part }).chain(site)
    }
}

fn site_key(addr: IpAddr) -> Option<Key> {
    match addr.to_canonical() {
        IpAddr::V4(_) => None,
        IpAddr::V6(_) => Some(Key::Addr(AddrKey::site_of(addr))),
    }
}
