//! Who may have how much of what a shard has: one client must not decide what others get.
//!
//! [`Admission`] holds the accounts. The relay asks before it begins something for a neighbour, and says when that is
//! over.
//!
//! - [`party`]: a neighbour is a relay of the consensus by its identity, or an address: IPv4 /32, IPv6 /64 and /48.
//! - [`share`]: how much of one thing is held, and how much one holder may have of what is free.
//! - [`targets`]: how often an address is dialled.
//! - [`crowd`]: things that stay, of which the greediest gives way when nothing is free.

mod claims;
mod crowd;
mod party;
mod share;
mod targets;

use crate::config::Limits;
use crate::keys::{CircuitKey, LinkKey};
use claims::{ChannelClaim, CircuitClaim, DialClaim, QuestionClaim, StreamClaim};
pub(super) use claims::{CircuitPlace, StreamPlace};
use core::net::SocketAddr;
pub(super) use crowd::Unused;
use crowd::{Admitted, Crowd};
use heddle_proto::pool::SLOT_LEN;
use heddle_seam::node::{ResolveId, SocketId};
use heddle_seam::time::{Duration, Instant};
pub(super) use party::{Class, Key, Party};
pub(super) use share::{Refusal, Share};
use std::collections::BTreeMap;
pub(super) use targets::Listener;
use targets::Targets;

/// What TLS and the channel keep of a handshake that is not over, beside what came: 12,000 were seen to take 273 MB.
const HANDSHAKE_STATE_BYTES: u64 = 24 * 1024;
/// What every handshake is taken to have received: a ClientHello, certificates and AUTHENTICATE are less. Or else
/// whoever says something would hold more than who only knocks.
const HANDSHAKE_RECEIVED_BYTES: u64 = 8 * 1024;
const HANDSHAKE_BYTES: u64 = HANDSHAKE_STATE_BYTES + HANDSHAKE_RECEIVED_BYTES;
/// Handshakes have at most one part in so many of a shard's memory, because they count in it and no circuit's end frees
/// it; but at least so much.
const HANDSHAKES_PART: usize = 8;
const HANDSHAKES_BYTES_LEAST: usize = 1 << 20;
/// A handshake that has had so much time gives way to others. It takes four round trips.
const HANDSHAKE_TIME_ENOUGH: Duration = Duration::from_secs(2);

/// A question that the resolver has not answered after so much time gives way to a circuit that has none. It takes name
/// servers that are there a second or two; the first of them is asked for five (resolv.conf(5)).
const QUESTION_TIME_ENOUGH: Duration = Duration::from_secs(5);

/// What may be refused or end for something else, and why. `docs/reference/metrics.md` explains each.
pub const REFUSALS: &[(&str, &[&str])] = &[
    ("channel", &["full", "share", "gave_way", "rate", "concurrent"]),
    ("handshake", &["full", "share", "gave_way"]),
    ("dial", &["full", "share", "gave_way", "target"]),
    ("circuit", &["full", "share", "gave_way", "idle", "rate"]),
    ("onionskin", &["full", "share", "late"]),
    ("stream", &["full", "share", "gave_way", "rate"]),
    ("question", &["full", "share", "gave_way"]),
];

/// What neighbours were granted, in sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// Channels that others opened, whether or not their handshake is over.
    pub channels: u64,
    /// Channels whose handshake is not over, in either role, and the bytes that they may hold.
    pub handshakes: u64,
    pub handshake_bytes: u64,
    /// Dials under way or not long over, and open channels that were dialled.
    pub dials: u64,
    /// Circuits, those that cross from other shards included, and DESTROY cells that count as such.
    pub circuits: u64,
    pub onionskins: u64,
    /// Streams, questions to the resolver and what ended streams are still owed.
    pub streams: u64,
}

impl Granted {
    pub(super) fn add(&mut self, other: &Granted) {
        self.channels += other.channels;
        self.handshakes += other.handshakes;
        self.handshake_bytes += other.handshake_bytes;
        self.dials += other.dials;
        self.circuits += other.circuits;
        self.onionskins += other.onionskins;
        self.streams += other.streams;
    }
}

/// A dial that a neighbour's circuit wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialling {
    pub party: Party,
    /// The neighbour's link, unless that is another shard's.
    pub link: Option<LinkKey>,
    pub to: SocketAddr,
    pub listener: Listener,
}

impl Dialling {
    fn claim(&self) -> DialClaim {
        let to = match self.listener {
            Listener::Wanted(_) | Listener::Other => Class::Relay,
            Listener::Nobody | Listener::Unknown => Class::Stranger,
        };
        DialClaim { to, party: self.party, link: self.link }
    }
}

/// The accounts of a shard; see [the module](self).
#[derive(Debug)]
pub(super) struct Admission {
    /// Channels that others opened, whether or not their handshake is over.
    channels: Crowd<ChannelClaim>,
    /// Bytes that channels hold whose handshake is not over, in either role. What came is counted, which is at least
    /// what waits to be worked off.
    handshakes: Crowd<ChannelClaim>,
    /// Dials under way or not long over, and open channels that were dialled.
    dials: Crowd<DialClaim>,
    targets: Targets,
    /// Circuits, those that cross from other shards included, and DESTROY cells that count as such.
    circuits: Crowd<CircuitClaim>,
    /// Onionskins that wait for a worker or are with one.
    onionskins: Share,
    /// Streams, questions to the resolver and what ended streams are still owed.
    streams: Crowd<StreamClaim>,
    /// Questions that the resolver is at work for.
    questions: Crowd<QuestionClaim>,
    refused: BTreeMap<(&'static str, &'static str), u64>,
}

impl Admission {
    /// `pool_slots_max` bounds circuits too: two slots for each is the least with which it moves. And it says how much
    /// memory there is.
    pub fn new(limits: &Limits, pool_slots_max: u32) -> Self {
        let of_memory = pool_slots_max as usize * SLOT_LEN / HANDSHAKES_PART;
        let handshake_bytes = limits.handshake_bytes.min(of_memory.max(HANDSHAKES_BYTES_LEAST));
        Admission {
            channels: Crowd::new(Share::new(limits.channels_accepted()), None),
            handshakes: Crowd::new(Share::new(handshake_bytes), Some(HANDSHAKE_TIME_ENOUGH)),
            // Nearly all lead to relays, of which there are thousands.
            dials: Crowd::new(Share::for_relays(limits.channels_dialled()), None),
            targets: Targets::default(),
            circuits: Crowd::new(Share::new(limits.circuits.min((pool_slots_max / 2) as usize)), None),
            onionskins: Share::new(limits.onionskins),
            // Strangers may have none, as a rule (`RefuseUnknownExits`).
            streams: Crowd::new(Share::for_relays(limits.streams), None),
            questions: Crowd::new(Share::for_relays(limits.questions), Some(QUESTION_TIME_ENOUGH)),
            refused: BTreeMap::new(),
        }
    }

    /// Whether half of the channels that there may be are there, of those that others opened or of those that we did.
    pub fn channels_are_many(&self) -> bool {
        self.channels.is_half_full() || self.dials.is_half_full()
    }

    /// Whether somebody may open a channel. Others may have to end for it, which are returned.
    pub fn admit_channel(&mut self, now: Instant, party: Party) -> Result<Vec<LinkKey>, Refusal> {
        let handshake = self.admit_handshake(now, party)?;
        let admitted = self.channels.admit(now, ChannelClaim(party), 1);
        let channel = self.note_crowd("channel", admitted)?;
        Ok(handshake.into_iter().chain(channel).collect())
    }

    /// Whether there may be one handshake more, as in [`Admission::admit_channel`].
    pub fn admit_handshake(&mut self, now: Instant, party: Party) -> Result<Option<LinkKey>, Refusal> {
        let admitted = self.handshakes.admit(now, ChannelClaim(party), HANDSHAKE_BYTES);
        self.note_crowd("handshake", admitted)
    }

    /// A channel that somebody opens is there, until [`Admission::channel_ends`].
    pub fn channel_begins(&mut self, now: Instant, link: LinkKey, party: Party) {
        self.channels.insert(now, link, ChannelClaim(party), 1);
    }

    /// Its handshake begins, or that of one that we open.
    pub fn handshake_begins(&mut self, now: Instant, link: LinkKey, party: Party) {
        self.handshakes.insert(now, link, ChannelClaim(party), HANDSHAKE_BYTES);
    }

    /// Bytes of a handshake came that is not over, after so many before. Fails when that is more than its party may
    /// hold.
    pub fn handshake_received(&mut self, link: LinkKey, before: u64, bytes: u64) -> Result<(), Refusal> {
        let beyond = |bytes: u64| bytes.saturating_sub(HANDSHAKE_RECEIVED_BYTES);
        let grown = self.handshakes.try_grow(link, beyond(before + bytes) - beyond(before));
        grown.inspect_err(|why| self.note("handshake", why.label()))
    }

    /// The handshake of a channel that somebody opened is over, and shows whose it is. Another may have to end for it.
    pub fn channel_opens(
        &mut self,
        now: Instant,
        link: LinkKey,
        party: Party,
    ) -> Result<Option<LinkKey>, Refusal> {
        self.channels.remove(link);
        let admitted = self.channels.admit(now, ChannelClaim(party), 1);
        let instead = self.note_crowd("channel", admitted)?;
        self.channel_begins(now, link, party);
        Ok(instead)
    }

    /// A handshake is over, well or badly.
    pub fn handshake_ends(&mut self, link: LinkKey) {
        self.handshakes.remove(link);
    }

    /// The peer of a channel turned out to be another party: the consensus changed.
    pub fn channel_moves(&mut self, link: LinkKey, to: Party) {
        self.channels.reclaim(link, ChannelClaim(to));
        self.circuits.reclaim(CircuitPlace::Farewells(link), CircuitClaim(to));
    }

    pub fn channel_ends(&mut self, link: LinkKey) {
        self.channels.remove(link);
        self.handshakes.remove(link);
        self.circuits.remove(CircuitPlace::Farewells(link));
    }

    /// Whether an address may be dialled for a neighbour's circuit. Another dial, or a channel that was dialled, may
    /// have to end for it.
    pub fn admit_dial(&mut self, now: Instant, dial: &Dialling) -> Result<Option<SocketId>, Refusal> {
        let admitted = self.dials.admit(now, dial.claim(), 1);
        if !matches!(admitted, Admitted::No(_)) && !self.targets.dial(now, dial.party, dial.to, dial.listener)
        {
            self.note("dial", Refusal::Target.label());
            return Err(Refusal::Target);
        }
        self.note_crowd("dial", admitted)
    }

    /// A dial is under way, until [`Admission::dial_ends`] or [`Admission::dial_opens`].
    pub fn dial_begins(&mut self, now: Instant, socket: SocketId, dial: &Dialling) {
        self.dials.insert(now, socket, dial.claim(), 1);
    }

    /// A dial led to a channel, which is its peer's from now on, until [`Admission::dial_ends`]. Another may have to
    /// end for it.
    pub fn dial_opens(
        &mut self,
        now: Instant,
        socket: SocketId,
        party: Party,
    ) -> Result<Option<SocketId>, Refusal> {
        self.dials.remove(socket);
        let admitted = self.dials.admit(now, DialClaim::of_peer(party), 1);
        let instead = self.note_crowd("dial", admitted)?;
        self.dials.insert(now, socket, DialClaim::of_peer(party), 1);
        Ok(instead)
    }

    /// The peer of a channel that was dialled turned out to be another party: the consensus changed.
    pub fn dial_moves(&mut self, socket: SocketId, to: Party) {
        self.dials.reclaim(socket, DialClaim::of_peer(to));
    }

    pub fn dial_ends(&mut self, socket: SocketId) {
        self.dials.remove(socket);
    }

    /// Whether a neighbour may have one onionskin more.
    pub fn admit_onionskin(&mut self, party: Party) -> Result<(), Refusal> {
        let admitted = self.onionskins.admits(party.class(), party.holders(), 1);
        admitted.inspect_err(|why| self.note("onionskin", why.label()))
    }

    /// An onionskin counts from now on, until [`Admission::onionskin_ends`].
    pub fn onionskin_begins(&mut self, party: Party) {
        self.onionskins.take(party.class(), party.holders(), 1);
    }

    /// Whether there may be one circuit more. Another may have to end for it, or a channel, which is returned.
    pub fn admit_circuit(&mut self, now: Instant, party: Party) -> Result<Option<CircuitPlace>, Refusal> {
        match self.circuits.admit(now, CircuitClaim(party), 1) {
            Admitted::Yes => Ok(None),
            Admitted::InsteadOf(other) => Ok(Some(other)),
            Admitted::No(why) => {
                self.note("circuit", why.label());
                Err(why)
            }
        }
    }

    /// Nobody uses a circuit since a time, so that it is among the first to give way; or somebody does.
    pub fn circuit_unused(&mut self, circuit: CircuitKey, unused: Option<(Unused, Instant)>) {
        self.circuits.set_unused(CircuitPlace::Circuit(circuit), unused);
    }

    /// A circuit ends for another.
    pub fn note_circuit_gave_way(&mut self) {
        self.note("circuit", "gave_way");
    }

    /// A circuit is there, until [`Admission::circuit_ends`].
    pub fn circuit_begins(&mut self, now: Instant, circuit: CircuitKey, party: Party) {
        self.circuits.insert(now, CircuitPlace::Circuit(circuit), CircuitClaim(party), 1);
    }

    /// The neighbour of a circuit turned out to be another party: the consensus changed.
    pub fn circuit_moves(&mut self, circuit: CircuitKey, to: Party) {
        self.circuits.reclaim(CircuitPlace::Circuit(circuit), CircuitClaim(to));
    }

    pub fn circuit_ends(&mut self, circuit: CircuitKey) {
        self.circuits.remove(CircuitPlace::Circuit(circuit));
    }

    /// So many DESTROY cells on a channel count as circuits, until there are none or [`Admission::channel_ends`].
    pub fn farewells_wait(&mut self, now: Instant, link: LinkKey, party: Party, count: usize) {
        let place = CircuitPlace::Farewells(link);
        match (count as u64, self.circuits.holds(place)) {
            (0, _) => self.circuits.remove(place),
            (count, true) => self.circuits.set_amount(place, count),
            (count, false) => self.circuits.insert(now, place, CircuitClaim(party), count),
        }
    }

    /// A circuit is closed because it carries nothing.
    pub fn note_idle_circuit(&mut self) {
        self.note("circuit", "idle");
    }

    /// An onionskin has waited for too long, and will not be answered.
    pub fn onionskin_is_late(&mut self, party: Party) {
        self.note("onionskin", "late");
        self.onionskin_ends(party);
    }

    /// An onionskin was answered, or will not be.
    pub fn onionskin_ends(&mut self, party: Party) {
        self.onionskins.give(party.class(), party.holders(), 1);
    }

    /// Whether a circuit may have one stream or question more. Another may have to end for it, which is returned.
    pub fn admit_stream(
        &mut self,
        now: Instant,
        party: Party,
        circuit: CircuitKey,
    ) -> Result<Option<StreamPlace>, Refusal> {
        let admitted = self.streams.admit(now, StreamClaim { party, circuit }, 1);
        self.note_crowd("stream", admitted)
    }

    /// A stream or question is there, until [`Admission::stream_ends`].
    pub fn stream_begins(&mut self, now: Instant, place: StreamPlace, party: Party, circuit: CircuitKey) {
        self.streams.insert(now, place, StreamClaim { party, circuit }, 1);
    }

    pub fn stream_ends(&mut self, place: StreamPlace) {
        self.streams.remove(place);
    }

    /// Whether the resolver may be asked for a circuit. Another question may have to be given up for it, which is
    /// returned.
    pub fn admit_question(
        &mut self,
        now: Instant,
        party: Party,
        circuit: CircuitKey,
    ) -> Result<Option<ResolveId>, Refusal> {
        let claim = QuestionClaim(StreamClaim { party, circuit });
        let admitted = self.questions.admit(now, claim, 1);
        self.note_crowd("question", admitted)
    }

    /// The resolver is at work, until [`Admission::question_ends`]. The question has a place among the streams, too.
    pub fn question_begins(&mut self, now: Instant, id: ResolveId, party: Party, circuit: CircuitKey) {
        self.questions.insert(now, id, QuestionClaim(StreamClaim { party, circuit }), 1);
        self.stream_begins(now, StreamPlace::Question(id), party, circuit);
    }

    /// A question was answered, or given up.
    pub fn question_ends(&mut self, id: ResolveId) {
        self.questions.remove(id);
        self.stream_ends(StreamPlace::Question(id));
    }

    /// Bytes that channels hold whose handshake is not over.
    pub fn handshake_bytes(&self) -> u64 {
        self.handshakes.used()
    }

    pub fn granted(&self) -> Granted {
        Granted {
            channels: self.channels.used(),
            handshakes: self.handshakes.len() as u64,
            handshake_bytes: self.handshake_bytes(),
            dials: self.dials.used(),
            circuits: self.circuits.used(),
            onionskins: self.onionskins.used(),
            streams: self.streams.used(),
        }
    }

    /// How often what was refused or ended, and why.
    pub fn refused(&self) -> &BTreeMap<(&'static str, &'static str), u64> {
        &self.refused
    }

    /// Something is refused, or ends for something else.
    pub fn note(&mut self, what: &'static str, why: &'static str) {
        let is_known = || REFUSALS.iter().any(|(of, whys)| *of == what && whys.contains(&why));
        debug_assert!(is_known(), "{what} {why} is not among the refusals that are told of");
        *self.refused.entry((what, why)).or_default() += 1;
    }

    fn note_crowd<Id>(&mut self, what: &'static str, admitted: Admitted<Id>) -> Result<Option<Id>, Refusal> {
        match admitted {
            Admitted::Yes => Ok(None),
            Admitted::InsteadOf(other) => {
                self.note(what, "gave_way");
                Ok(Some(other))
            }
            Admitted::No(why) => {
                self.note(what, why.label());
                Err(why)
            }
        }
    }
}
