//! For whom what is held, kind by kind.

use super::crowd::Claim;
use super::party::{Class, Holder, Key, Party};
use crate::keys::{CircuitKey, LinkKey};
use heddle_seam::node::{ResolveId, SocketId};
use slotmap::Key as _;

/// One link of an address may use a ninth of what dials share.
const LINK_PART: u64 = 8;
/// A circuit may have a seventeenth of the streams.
const CIRCUIT_PART: u64 = 16;

/// A channel is its peer's.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChannelClaim(pub Party);

impl Claim for ChannelClaim {
    type Id = LinkKey;

    fn class(&self) -> Class {
        self.0.class()
    }

    fn key(&self) -> Key {
        self.0.key()
    }

    fn holders(&self) -> impl Iterator<Item = Holder> {
        self.0.holders()
    }
}

/// What takes the place of a circuit, or of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CircuitPlace {
    Circuit(CircuitKey),
    /// DESTROY cells that a channel's peer leaves unread.
    Farewells(LinkKey),
}

/// A circuit is its previous neighbour's; a DESTROY cell is who is to read it's.
#[derive(Clone, Copy, Debug)]
pub(super) struct CircuitClaim(pub Party);

impl Claim for CircuitClaim {
    type Id = CircuitPlace;

    fn class(&self) -> Class {
        self.0.class()
    }

    fn key(&self) -> Key {
        self.0.key()
    }

    fn holders(&self) -> impl Iterator<Item = Holder> {
        self.0.holders()
    }
}

/// A dial is whose circuit began it, until the channel opens: then it is its peer's. Dials to where relays of the
/// consensus listen are of their class, because all honest ones lead there.
#[derive(Clone, Copy, Debug)]
pub(super) struct DialClaim {
    pub to: Class,
    pub party: Party,
    /// The neighbour's link, unless that is another shard's.
    pub link: Option<LinkKey>,
}

impl DialClaim {
    /// Of a channel that opened.
    pub fn of_peer(party: Party) -> Self {
        DialClaim { to: party.class(), party, link: None }
    }
}

impl Claim for DialClaim {
    type Id = SocketId;

    fn class(&self) -> Class {
        self.to
    }

    fn key(&self) -> Key {
        self.party.key()
    }

    fn holders(&self) -> impl Iterator<Item = Holder> {
        // A relay's one channel carries the circuits of many.
        let link = self.link.filter(|_| self.party.class() == Class::Stranger);
        let link = link.map(|link| Holder { key: Key::Link(link.data().as_ffi()), part: LINK_PART });
        self.party.holders().chain(link)
    }
}

/// What a stream takes a place with: one of both at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StreamPlace {
    /// At the resolver, for a name that is to be connected to or only looked up.
    Question(ResolveId),
    /// A connection, also one whose stream is over and that is still owed something.
    Socket(SocketId),
}

/// A stream is its circuit's: neighbours only pass it on, so the circuit with most gives way and not the neighbour,
/// also when the neighbour has its share.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamClaim {
    pub party: Party,
    pub circuit: CircuitKey,
}

impl Claim for StreamClaim {
    type Id = StreamPlace;

    fn class(&self) -> Class {
        self.party.class()
    }

    fn key(&self) -> Key {
        Key::Circuit(self.circuit.data().as_ffi())
    }

    fn neighbour(&self) -> Key {
        self.party.key()
    }

    fn holders(&self) -> impl Iterator<Item = Holder> {
        self.party.holders().chain([Holder { key: self.key(), part: CIRCUIT_PART }])
    }
}

/// A question to the resolver is its circuit's, whichever neighbour passes the circuit on: who wants them all chooses
/// neighbours as well.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuestionClaim(pub StreamClaim);

impl Claim for QuestionClaim {
    type Id = ResolveId;

    fn class(&self) -> Class {
        self.0.class()
    }

    fn key(&self) -> Key {
        self.0.key()
    }

    /// Circuits have no shares of what is free; what one may have is `exit::streams`' to say.
    fn holders(&self) -> impl Iterator<Item = Holder> {
        core::iter::empty()
    }
}
