//! The pair: how two upgraded relays find each other over TLS and move new circuits to flows. The contract, the bytes
//! and the diagram of states are in `docs/reference/pair.md`.
//!
//! [`Pairs`] knows all peers of a shard. It does nothing itself: it is told what happens ([`PairInput`]) and says what
//! is to be done ([`PairOutput`]).

mod answers;
mod back_off;
mod earliest;
mod live;
pub mod offer;
mod probation;
pub mod secrets;
mod state;
mod voucher;

use crate::channel::Role;
use crate::endpoint::{ConnId, ConnectionError};
use crate::ids::RelayIds;
use crate::transport::TransportId;
use core::net::IpAddr;
use heddle_seam::node::SocketId;
use heddle_seam::time::Instant;
use offer::{Offer, OfferDigest};
use secrets::Purpose;
use state::Pair;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// A try to make a connection, until it is ready or over. Numbers are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId(u64);

/// A connection, whichever endpoint it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnKey {
    pub transport: TransportId,
    pub conn: ConnId,
}

/// Where a channel leads, and so a connection that it vouches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub addr: IpAddr,
    /// Whether the peer itself names that address, so that circuits go there whatever address their clients asked for.
    pub canonical: bool,
}

impl Place {
    /// Whether what leads here serves circuits that a channel to there would take. Somebody else may stand at an
    /// address that the peer does not name.
    pub(crate) fn serves(&self, there: &Place) -> bool {
        self.canonical || self.addr == there.addr
    }
}

/// Where a CREATE2 went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    Tls,
    Flow(ConnKey),
}

/// What happens to a pair.
#[derive(Clone, Copy, Debug)]
pub enum PairInput<'a> {
    /// A channel is open and the peer proved both its identities on it. `place` is where it leads, `listed` whether
    /// both are in our consensus, `exporter` whether the channel can export secrets (TLS 1.3).
    ChannelOpened {
        channel: SocketId,
        role: Role,
        place: Place,
        listed: bool,
        exporter: bool,
    },
    /// `by_peer` is whether the peer closed or reset it, or somebody in its name.
    ChannelClosed {
        channel: SocketId,
        by_peer: bool,
    },
    /// Which channel to the peer takes new circuits, if any does.
    Winner(Option<SocketId>),
    /// A new consensus lists the peer, or does not.
    Listed(bool),
    /// The body of a VPADDING cell.
    Vpadding {
        channel: SocketId,
        body: &'a [u8],
    },
    /// The endpoint's name for the connection of [`PairOutput::Open`].
    Opened {
        attempt: AttemptId,
        conn: ConnId,
    },
    /// The connection of [`PairOutput::Open`] could not be opened: the channel exports no secrets, or is gone.
    NotOpened {
        attempt: AttemptId,
    },
    Ready {
        conn: ConnKey,
    },
    Ended {
        conn: ConnKey,
        error: &'a ConnectionError,
    },
    /// The peer has not answered on the connection for a while, or has again.
    Suspect {
        conn: ConnKey,
        suspect: bool,
    },
    /// The connection got its first flow, of either side's.
    Occupied {
        conn: ConnKey,
    },
    /// The connection lost its last flow.
    Drained {
        conn: ConnKey,
    },
    /// What became of a CREATE2 of ours. Any answer that clients can bring about is one: CREATED2, and DESTROY for a
    /// fault of protocol or for want of room. Silence and any other DESTROY are failures of the way.
    Created {
        over: Over,
        answered: bool,
    },
    /// The time of [`Pairs::poll_timeout`] has come.
    Timeout,
}

/// What a pair wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PairOutput {
    /// Send this VPADDING body.
    SendOffer { channel: SocketId, body: Arc<[u8]> },
    /// Dial, or get ready to be dialled. [`PairInput::Opened`] or [`PairInput::NotOpened`] must follow before any other
    /// input.
    Open(OpenRequest),
    /// Close a connection; nothing more is said of it. It has no flows, or never was ready.
    Close { conn: ConnKey },
    /// New circuits to the peer may go on flows of this connection, until [`PairOutput::UseTls`].
    UseFlows { conn: ConnKey },
    /// New circuits to the peer take no more flows of this transport. Those that exist go on.
    UseTls { transport: TransportId },
    /// Find out whether the peer still answers on a connection.
    Probe { conn: ConnKey },
    /// Dial the peer: circuits run on flows, and no TLS channel is left for everything else.
    DialTls,
    /// Something went back to TLS, or stayed there. For metrics; nothing is to be done.
    Fallback { transport: TransportId, reason: Fallback },
}

/// A connection to be opened. The secrets are those of `purpose` over `channel` ([`secrets::pair_secrets`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    pub attempt: AttemptId,
    pub role: Role,
    pub channel: SocketId,
    /// The UDP port of the peer, at the address that the channel is connected to.
    pub peer_port: u16,
    pub peer_key: [u8; 32],
    /// Flows that we said the peer may have open at once.
    pub flows_max: u32,
    pub purpose: Purpose,
}

/// Why circuits go over TLS though both relays speak the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fallback {
    /// Nobody answered our dial, or nobody dialled though it was the peer's turn.
    NoAnswer,
    WrongProof,
    PathDead,
    /// The peer answered nothing for some seconds.
    Suspect,
    Misbehaved,
    PeerClosed,
    /// The channel would not export secrets.
    NoSecrets,
    /// The peer answers CREATE2 worse on flows than on TLS.
    WorseThanTls,
    /// Too many connections of the pair were still draining.
    Crowded,
}

impl Fallback {
    /// All reasons, in the order of their counters.
    pub const ALL: [Fallback; 9] = [
        Fallback::NoAnswer,
        Fallback::WrongProof,
        Fallback::PathDead,
        Fallback::Suspect,
        Fallback::Misbehaved,
        Fallback::PeerClosed,
        Fallback::NoSecrets,
        Fallback::WorseThanTls,
        Fallback::Crowded,
    ];

    /// One word for metrics.
    pub fn label(self) -> &'static str {
        match self {
            Fallback::NoAnswer => "no_answer",
            Fallback::WrongProof => "wrong_proof",
            Fallback::PathDead => "path_dead",
            Fallback::Suspect => "suspect",
            Fallback::Misbehaved => "misbehaved",
            Fallback::PeerClosed => "peer_closed",
            Fallback::NoSecrets => "no_secrets",
            Fallback::WorseThanTls => "worse_than_tls",
            Fallback::Crowded => "crowded",
        }
    }
}

/// What all pairs of a shard did since the start, for metrics. Nothing in it tells peers apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairCounters {
    pub offers_sent: u64,
    pub offers_received: u64,
    /// Offers that could not be read, or that say nothing new.
    pub offers_refused: u64,
    pub dials: u64,
    pub listens: u64,
    pub ready: u64,
    /// In the order of [`Fallback::ALL`].
    pub fallbacks: [u64; Fallback::ALL.len()],
}

/// What we offer, and its bytes.
struct Own {
    offer: Offer,
    body: Arc<[u8]>,
    digest: OfferDigest,
}

impl Own {
    fn new(offer: Offer) -> Self {
        let body: Arc<[u8]> = offer.encode().into();
        Own { digest: OfferDigest::of(&body), body, offer }
    }
}

/// What a pair needs of its surroundings while it handles one input.
struct Context<'a> {
    now: Instant,
    own: &'a Own,
    /// Whether connections between relays are to be padded.
    pads: bool,
    attempts_made: &'a mut u64,
    counters: &'a mut PairCounters,
    outputs: Vec<PairOutput>,
}

impl Context<'_> {
    fn new_attempt(&mut self) -> AttemptId {
        *self.attempts_made += 1;
        AttemptId(*self.attempts_made)
    }

    fn fall_back(&mut self, transport: TransportId, reason: Fallback) {
        self.counters.fallbacks[reason as usize] += 1;
        self.outputs.push(PairOutput::Fallback { transport, reason });
    }
}

/// All peers of a shard with a channel that is open, a connection, or a time to be waited out.
pub struct Pairs {
    own: Own,
    pads: bool,
    pairs_max: usize,
    /// At most `pairs_max`.
    pairs: BTreeMap<RelayIds, Pair>,
    /// When each pair has something to do by itself.
    timeouts: BTreeSet<(Instant, RelayIds)>,
    /// Whose connections are whose: a bounded number for each pair.
    conns: BTreeMap<ConnKey, RelayIds>,
    outputs: VecDeque<(RelayIds, PairOutput)>,
    attempts_made: u64,
    counters: PairCounters,
}

impl Pairs {
    /// Pairs of a relay that makes this offer. Peers beyond `pairs_max` stay on TLS.
    pub fn new(offer: Offer, pairs_max: usize) -> Self {
        Pairs {
            own: Own::new(offer),
            pads: false,
            pairs_max,
            pairs: BTreeMap::new(),
            timeouts: BTreeSet::new(),
            conns: BTreeMap::new(),
            outputs: VecDeque::new(),
            attempts_made: 0,
            counters: PairCounters::default(),
        }
    }

    /// Offers another key from now on, also on channels that are open. Connections that exist live on.
    pub fn replace_key(&mut self, now: Instant, key: [u8; 32]) {
        self.own = Own::new(Offer { key, ..self.own.offer.clone() });
        self.each(now, |_| PairInput::Timeout);
    }

    /// Whether the consensus asks relays to pad what joins them (`nf_pad_relays`). Flows are not padded but TLS
    /// channels are, so new circuits go over TLS meanwhile.
    pub fn handle_padding(&mut self, now: Instant, pads: bool) {
        if self.pads != pads {
            self.pads = pads;
            self.each(now, |_| PairInput::Timeout);
        }
    }

    /// A new consensus came.
    pub fn handle_consensus(&mut self, now: Instant, lists: impl Fn(&RelayIds) -> bool) {
        self.each(now, |peer| PairInput::Listed(lists(peer)));
    }

    /// Something happened to the pair with `peer`.
    pub fn handle(&mut self, now: Instant, peer: RelayIds, input: PairInput<'_>) {
        if matches!(input, PairInput::ChannelOpened { .. })
            && !self.pairs.contains_key(&peer)
            && self.pairs.len() < self.pairs_max
        {
            self.pairs.insert(peer, Pair::new(&self.own));
        }
        let Some(pair) = self.pairs.get_mut(&peer) else { return };
        if let Some(at) = pair.timeout() {
            self.timeouts.remove(&(at, peer));
        }
        let mut context = Context {
            now,
            own: &self.own,
            pads: self.pads,
            attempts_made: &mut self.attempts_made,
            counters: &mut self.counters,
            outputs: Vec::new(),
        };
        pair.handle(&mut context, input);
        let outputs = context.outputs;
        match pair.timeout() {
            Some(at) => drop(self.timeouts.insert((at, peer))),
            None if pair.is_over() => drop(self.pairs.remove(&peer)),
            None => {}
        }
        self.note_conns(peer, &input, &outputs);
        self.outputs.extend(outputs.into_iter().map(|output| (peer, output)));
    }

    /// Whatever is due by itself happens.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, peer)) = self.timeouts.first() {
            if at > now {
                break;
            }
            self.handle(now, peer, PairInput::Timeout);
        }
    }

    /// When [`Pairs::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timeouts.first().map(|(at, _)| *at)
    }

    /// What is to be done next. After every input, until `None`.
    pub fn poll_output(&mut self) -> Option<(RelayIds, PairOutput)> {
        self.outputs.pop_front()
    }

    /// Whose connection this is.
    pub fn peer_of(&self, conn: ConnKey) -> Option<RelayIds> {
        self.conns.get(&conn).copied()
    }

    /// The connection that new circuits to `peer` may use.
    #[cfg(test)]
    pub(crate) fn flows_to(&self, peer: &RelayIds, transport: TransportId) -> Option<ConnKey> {
        self.pairs.get(peer)?.in_use(transport)
    }

    /// Pairs that have a connection new circuits may use.
    pub fn in_use(&self) -> usize {
        self.pairs.values().filter(|pair| pair.uses_flows()).count()
    }

    /// What was done so far.
    pub fn counters(&self) -> &PairCounters {
        &self.counters
    }

    fn each<'a>(&mut self, now: Instant, input: impl Fn(&RelayIds) -> PairInput<'a>) {
        let peers: Vec<_> = self.pairs.keys().copied().collect();
        for peer in peers {
            self.handle(now, peer, input(&peer));
        }
    }

    fn note_conns(&mut self, peer: RelayIds, input: &PairInput<'_>, outputs: &[PairOutput]) {
        match *input {
            PairInput::Opened { attempt, conn } => {
                if let Some(transport) = self.pairs.get(&peer).and_then(|pair| pair.transport_of(attempt)) {
                    self.conns.insert(ConnKey { transport, conn }, peer);
                }
            }
            PairInput::Ended { conn, .. } => drop(self.conns.remove(&conn)),
            _ => {}
        }
        for output in outputs {
            if let PairOutput::Close { conn } = output {
                self.conns.remove(conn);
            }
        }
    }
}
