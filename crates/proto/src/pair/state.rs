//! The state machine of one peer: its channels, and for each transport one `Track`. The diagram is in
//! `docs/reference/pair.md`.
//!
//! 1. A channel opens to a peer that the consensus lists: our offer goes out, once for each key. The peer's comes,
//!    before or after. From then on the channel *vouches*, and its time is cut into slots of 30 s. Each slot has a
//!    token of its own.
//! 2. The initiator of the channel that won duplicate resolution dials: in the first slot at once, in later ones ten
//!    seconds after their beginning. The responder of any vouching channel listens for each slot's token. So the two
//!    clocks may differ by ten seconds, and the sides may disagree about which channel won.
//! 3. A connection that is ready is *live*: new circuits use it. The one before it drains, and is closed when it was
//!    without flows for ten seconds.
//! 4. A try that failed is followed by another in the next slot, the third by a wait that doubles.
//!
//! What happens only changes facts; `settle` then looks at all facts and does what they call for. So races need no code
//! of their own: whatever the order, the same facts lead to the same state.

use super::answers::Answers;
use super::back_off::BackOff;
use super::earliest::Earliest;
use super::live::Live;
use super::offer::{Offer, OfferDigest, OfferError, OfferedTransport};
use super::probation::Probation;
use super::secrets::Purpose;
use super::voucher::{Channel, Voucher};
use super::{AttemptId, ConnKey, Context, Fallback, OpenRequest, Over, Own, PairInput, PairOutput, Place};
use crate::channel::Role;
use crate::endpoint::{ConnId, ConnectionError};
use crate::transport::TransportId;
use heddle_seam::node::SocketId;
use heddle_seam::time::{Duration, Instant};
use std::collections::BTreeMap;

/// The wait after the third failure, and the longest one.
const RETRY_FIRST: Duration = Duration::from_secs(120);
const RETRY_LONGEST: Duration = Duration::from_secs(3600);
/// A connection that lived so long was no failure.
const STEADY: Duration = Duration::from_secs(600);
/// A connection takes new circuits for a week, as a TLS channel does.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long circuits keep to TLS after flows served them worse.
const TLS_PERIOD: Duration = Duration::from_secs(3600);
/// A draining connection without flows is closed after this time: a CREATE2 of the peer may be on its way.
const DRAIN_LINGER: Duration = Duration::from_secs(10);
/// A live connection without flows and without any channel is closed after this time.
const IDLE_MAX: Duration = Duration::from_secs(180);
/// The wait after the third TLS dial that led to nothing, and the longest one.
const REDIAL_FIRST: Duration = Duration::from_secs(4);
const REDIAL_LONGEST: Duration = Duration::from_secs(256);
/// Between TLS dials in any case.
const REDIAL_MIN: Duration = Duration::from_secs(1);
/// Channels to one peer that take part; further ones carry no offers.
const CHANNELS_MAX: usize = 8;
/// Offers that are taken of a peer on one channel: a key lives for a day and a channel takes circuits for a week.
const OFFERS_MAX: u32 = 16;
/// Draining connections of a transport. While there are so many, no other is tried.
const DRAINING_MAX: usize = 3;

pub(super) struct Pair {
    listed: bool,
    /// At most `CHANNELS_MAX`.
    channels: BTreeMap<SocketId, Channel>,
    winner: Option<SocketId>,
    /// When the last channel closed.
    alone_since: Instant,
    redial: BackOff,
    redial_at: Instant,
    tls_answers: Answers,
    /// One for each transport that we offer.
    tracks: Vec<Track>,
    timeout: Option<Instant>,
}

/// One transport's connections to the peer.
struct Track {
    transport: TransportId,
    flows_max: u32,
    /// One dial, and for each channel the listening of this slot and of the one before.
    attempts: Vec<Attempt>,
    /// The first slot of each channel that was not tried yet.
    slots: BTreeMap<SocketId, u64>,
    live: Option<Live>,
    /// At most `DRAINING_MAX`.
    draining: Vec<Live>,
    back_off: BackOff,
    probation: Probation,
    /// The peer's key of the last dial: failures with an older one do not count.
    dialled_key: Option<[u8; 32]>,
    answers: Answers,
    /// Until when circuits keep to TLS.
    tls_until: Instant,
    /// What was said last of [`PairOutput::UseFlows`].
    in_use: Option<ConnId>,
}

#[derive(Clone, Copy)]
struct Attempt {
    id: AttemptId,
    conn: Option<ConnId>,
    channel: SocketId,
    role: Role,
    place: Place,
    peer_key: [u8; 32],
    peer_port: u16,
    /// Whether its failure is worth counting: nobody may dial us later than in the first slot.
    expected: bool,
}

impl Pair {
    pub fn new(own: &Own) -> Self {
        let tracks = own.offer.transports.iter().map(Track::new).collect();
        Pair {
            listed: false,
            channels: BTreeMap::new(),
            winner: None,
            alone_since: Instant::ZERO,
            redial: BackOff::new(REDIAL_FIRST, REDIAL_LONGEST),
            redial_at: Instant::ZERO,
            tls_answers: Answers::default(),
            tracks,
            timeout: None,
        }
    }

    /// When the pair does something by itself.
    pub fn timeout(&self) -> Option<Instant> {
        self.timeout
    }

    /// Whether the pair can be forgotten, once no time-out is left.
    pub fn is_over(&self) -> bool {
        self.channels.is_empty() && self.tracks.iter().all(Track::is_over)
    }

    #[cfg(test)]
    pub fn in_use(&self, transport: TransportId) -> Option<ConnKey> {
        let track = self.tracks.iter().find(|track| track.transport == transport)?;
        track.in_use.map(|conn| track.key(conn))
    }

    pub fn uses_flows(&self) -> bool {
        self.tracks.iter().any(|track| track.in_use.is_some())
    }

    pub fn transport_of(&self, attempt: AttemptId) -> Option<TransportId> {
        let has = |track: &&Track| track.attempts.iter().any(|other| other.id == attempt);
        self.tracks.iter().find(has).map(|track| track.transport)
    }

    pub fn handle(&mut self, context: &mut Context<'_>, input: PairInput<'_>) {
        match input {
            PairInput::ChannelOpened { channel, role, place, listed, exporter } => {
                self.listed = listed;
                self.redial.forget();
                if self.channels.len() < CHANNELS_MAX {
                    self.channels.insert(channel, Channel::new(role, place, exporter));
                }
            }
            PairInput::ChannelClosed { channel, by_peer } => {
                self.on_channel_closed(context, channel, by_peer)
            }
            PairInput::Winner(winner) => self.winner = winner,
            PairInput::Listed(listed) => self.listed = listed,
            PairInput::Vpadding { channel, body } => self.on_vpadding(context, channel, body),
            PairInput::Opened { attempt, conn } => self.on_opened(attempt, conn),
            PairInput::NotOpened { attempt } => self.on_not_opened(context, attempt),
            PairInput::Ready { conn } => self.on_ready(context, conn),
            PairInput::Ended { conn, error } => {
                if let Some(track) = self.track(conn) {
                    track.on_ended(context, conn.conn, error);
                }
            }
            PairInput::Suspect { conn, suspect } => self.on_suspect(context, conn, suspect),
            PairInput::Occupied { conn } => self.set_unused(conn, None),
            PairInput::Drained { conn } => self.set_unused(conn, Some(context.now)),
            PairInput::Created { over, answered } => self.on_created(context, over, answered),
            PairInput::Timeout => {}
        }
        self.settle(context);
    }

    fn track(&mut self, conn: ConnKey) -> Option<&mut Track> {
        self.tracks.iter_mut().find(|track| track.transport == conn.transport)
    }

    fn on_channel_closed(&mut self, context: &mut Context<'_>, channel: SocketId, by_peer: bool) {
        if self.channels.remove(&channel).is_none() {
            return;
        }
        if self.winner == Some(channel) {
            self.winner = None;
        }
        for track in &mut self.tracks {
            track.slots.remove(&channel);
        }
        self.alone_since = context.now;
        self.redial_at = context.now + REDIAL_MIN;
        if by_peer && self.channels.is_empty() {
            self.tracks.iter_mut().for_each(|track| track.on_abandoned(context));
        }
    }

    fn on_vpadding(&mut self, context: &mut Context<'_>, channel: SocketId, body: &[u8]) {
        let offer = match Offer::parse(body) {
            Ok(offer) => offer,
            Err(OfferError::NoOffer) => return,
            Err(_) => {
                context.counters.offers_refused += 1;
                return;
            }
        };
        let Some(channel) = self.channels.get_mut(&channel) else { return };
        // Only another key makes another offer.
        let is_known = channel.received.as_ref().is_some_and(|(_, known)| known.key == offer.key);
        if is_known || channel.offers == OFFERS_MAX {
            context.counters.offers_refused += 1;
            return;
        }
        channel.offers += 1;
        context.counters.offers_received += 1;
        for track in &mut self.tracks {
            let lives = track.live.iter_mut().chain(&mut track.draining);
            let (transport, is_first) = (track.transport, channel.offers == 1);
            lives.for_each(|live| live.on_offer(context.now, transport, &offer, is_first));
        }
        channel.received = Some((OfferDigest::of(body), offer));
    }

    fn on_opened(&mut self, attempt: AttemptId, conn: ConnId) {
        let mut attempts = self.tracks.iter_mut().flat_map(|track| &mut track.attempts);
        if let Some(attempt) = attempts.find(|other| other.id == attempt) {
            attempt.conn = Some(conn);
        }
    }

    fn on_not_opened(&mut self, context: &mut Context<'_>, attempt: AttemptId) {
        for track in &mut self.tracks {
            if let Some(at) = track.attempts.iter().position(|other| other.id == attempt) {
                track.attempts.remove(at);
                track.back_off.on_failure(context.now);
                context.fall_back(track.transport, Fallback::NoSecrets);
            }
        }
    }

    fn on_ready(&mut self, context: &mut Context<'_>, conn: ConnKey) {
        let winner = self.winner;
        if let Some(track) = self.track(conn) {
            track.on_ready(context, conn.conn, winner);
        }
    }

    fn on_suspect(&mut self, context: &mut Context<'_>, conn: ConnKey, suspect: bool) {
        let Some(track) = self.track(conn) else { return };
        let Some(live) = track.known(conn.conn) else { return };
        live.suspect = suspect;
        if track.live.is_some_and(|live| live.conn == conn.conn) {
            track.probation.on_change(context.now, suspect);
        }
        if suspect && track.in_use == Some(conn.conn) {
            context.fall_back(track.transport, Fallback::Suspect);
        }
    }

    fn set_unused(&mut self, conn: ConnKey, since: Option<Instant>) {
        if let Some(live) = self.track(conn).and_then(|track| track.known(conn.conn)) {
            live.unused_since = since;
        }
    }

    fn on_created(&mut self, context: &mut Context<'_>, over: Over, answered: bool) {
        let Over::Flow(conn) = over else { return self.tls_answers.count(answered) };
        let tls_answers = self.tls_answers;
        let Some(track) = self.track(conn) else { return };
        track.answers.count(answered);
        if track.answers.worse_than(&tls_answers) {
            track.answers = Answers::default();
            track.tls_until = context.now + TLS_PERIOD;
            context.fall_back(track.transport, Fallback::WorseThanTls);
        }
    }

    /// Does what the facts call for, and finds the time at which they call for more.
    fn settle(&mut self, context: &mut Context<'_>) {
        self.exchange_offers(context);
        let mut earliest = Earliest(None);
        let may_try = self.listed && !context.pads;
        for track in &mut self.tracks {
            let voucher = |(id, channel): (&SocketId, &Channel)| {
                channel.voucher(*id, track.transport).filter(|_| may_try)
            };
            let vouchers: Vec<_> = self.channels.iter().filter_map(voucher).collect();
            track.end_orphans(context);
            track.drain(context, &mut earliest, self.channels.is_empty().then_some(self.alone_since));
            track.dial(context, &mut earliest, &vouchers, &self.channels, self.winner);
            track.listen(context, &mut earliest, &vouchers, self.winner);
            track.announce(context, &mut earliest);
            // What failed in the past is remembered while it matters.
            earliest.due(context.now, track.back_off.not_before());
        }
        self.redial(context, &mut earliest);
        self.timeout = earliest.0;
    }

    fn exchange_offers(&mut self, context: &mut Context<'_>) {
        for (&id, channel) in &mut self.channels {
            let is_current = channel.sent.is_some_and(|(_, key)| key == context.own.offer.key);
            if self.listed && channel.exporter && !is_current {
                channel.sent = Some((context.own.digest, context.own.offer.key));
                context.counters.offers_sent += 1;
                let body = context.own.body.clone();
                context.outputs.push(PairOutput::SendOffer { channel: id, body });
            }
            if channel.sent.is_some() && channel.received.is_some() && channel.vouches_since.is_none() {
                channel.vouches_since = Some(context.now);
            }
        }
    }

    /// The dialler of a connection that still has flows also dials TLS when no channel is left.
    fn redial(&mut self, context: &mut Context<'_>, earliest: &mut Earliest) {
        let needs = |live: &Live| live.role == Role::Initiator && live.unused_since.is_none();
        let mut conns = self.tracks.iter().flat_map(|track| track.live.iter().chain(&track.draining));
        if self.channels.is_empty() && conns.any(needs) && earliest.due(context.now, self.redial_at) {
            self.redial.on_failure(context.now);
            self.redial_at = self.redial.not_before().max(context.now + REDIAL_MIN);
            earliest.due(context.now, self.redial_at);
            context.outputs.push(PairOutput::DialTls);
        }
    }
}

impl Track {
    fn new(own: &OfferedTransport) -> Self {
        Track {
            transport: own.id,
            flows_max: own.flows_max,
            attempts: Vec::new(),
            slots: BTreeMap::new(),
            live: None,
            draining: Vec::new(),
            back_off: BackOff::new(RETRY_FIRST, RETRY_LONGEST),
            probation: Probation::new(),
            dialled_key: None,
            answers: Answers::default(),
            tls_until: Instant::ZERO,
            in_use: None,
        }
    }

    fn is_over(&self) -> bool {
        self.attempts.is_empty() && self.live.is_none() && self.draining.is_empty()
    }

    fn key(&self, conn: ConnId) -> ConnKey {
        ConnKey { transport: self.transport, conn }
    }

    /// A connection that was ready and has not ended.
    fn known(&mut self, conn: ConnId) -> Option<&mut Live> {
        self.live.iter_mut().chain(&mut self.draining).find(|live| live.conn == conn)
    }

    fn take_attempt(&mut self, conn: ConnId) -> Option<Attempt> {
        let at = self.attempts.iter().position(|attempt| attempt.conn == Some(conn))?;
        Some(self.attempts.remove(at))
    }

    fn on_ready(&mut self, context: &mut Context<'_>, conn: ConnId, winner: Option<SocketId>) {
        let Some(Attempt { channel, role, place, peer_key, peer_port, .. }) = self.take_attempt(conn) else {
            return;
        };
        context.counters.ready += 1;
        let now = context.now;
        let mut drains = Some(Live {
            conn,
            channel,
            role,
            place,
            peer_key,
            peer_port,
            latest_key: peer_key,
            ready_at: now,
            suspect: false,
            gone_until: Instant::ZERO,
            unused_since: Some(now),
        });
        let has_winners = self.live.is_some_and(|live| Some(live.channel) == winner);
        if !has_winners || Some(channel) == winner {
            std::mem::swap(&mut self.live, &mut drains);
        }
        let Some(mut drains) = drains else { return };
        drains.unused_since = drains.unused_since.map(|_| now);
        if self.draining.len() < DRAINING_MAX {
            return self.draining.push(drains);
        }
        // The newcomer goes: the others may carry circuits.
        if drains.conn != conn {
            self.live = Some(drains);
        }
        context.outputs.push(PairOutput::Close { conn: self.key(conn) });
        context.fall_back(self.transport, Fallback::Crowded);
    }

    fn on_ended(&mut self, context: &mut Context<'_>, conn: ConnId, error: &ConnectionError) {
        let now = context.now;
        self.draining.retain(|live| live.conn != conn);
        if let Some(live) = self.live.take_if(|live| live.conn == conn) {
            if now.since(live.ready_at) >= STEADY {
                self.back_off.forget();
            }
            self.back_off.on_failure(now);
        } else if let Some(attempt) = self.take_attempt(conn) {
            if attempt.role == Role::Initiator {
                self.back_off.on_failure(now);
            }
            if !attempt.expected && *error == ConnectionError::NoAnswer {
                return;
            }
        } else {
            return;
        }
        let reason = match error {
            ConnectionError::NoAnswer => Fallback::NoAnswer,
            ConnectionError::WrongProof => Fallback::WrongProof,
            ConnectionError::PathDead => Fallback::PathDead,
            ConnectionError::PeerMisbehaved(_) => Fallback::Misbehaved,
            ConnectionError::PeerClosed | ConnectionError::Closed => Fallback::PeerClosed,
        };
        context.fall_back(self.transport, reason);
    }

    /// No channel is left, by the peer's doing: whether the peer is there shows soon.
    fn on_abandoned(&mut self, context: &mut Context<'_>) {
        for live in self.live.iter_mut().chain(&mut self.draining) {
            live.on_abandoned(context.now);
            let conn = ConnKey { transport: self.transport, conn: live.conn };
            context.outputs.push(PairOutput::Probe { conn });
        }
    }

    /// Ends what a peer that is gone, or was started anew, no longer knows.
    fn end_orphans(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        let live = self.live.take_if(|live| live.is_orphan(now));
        for orphan in live.into_iter().chain(self.draining.extract_if(.., |live| live.is_orphan(now))) {
            let conn = ConnKey { transport: self.transport, conn: orphan.conn };
            context.outputs.push(PairOutput::Close { conn });
            context.fall_back(self.transport, Fallback::PeerClosed);
        }
    }

    /// A connection that is old, or that nobody needs, makes way.
    fn drain(&mut self, context: &mut Context<'_>, earliest: &mut Earliest, alone_since: Option<Instant>) {
        let now = context.now;
        if let Some(live) = self.live {
            let unneeded = alone_since.zip(live.unused_since).map(|(alone, unused)| alone.max(unused));
            let idle = unneeded.is_some_and(|since| earliest.due(now, since + IDLE_MAX));
            let old = earliest.due(now, live.ready_at + CONNECTION_AGE_MAX);
            if (idle || old) && self.draining.len() < DRAINING_MAX {
                self.live = None;
                self.draining.push(Live { unused_since: live.unused_since.map(|_| now), ..live });
            }
        }
        let (transport, outputs) = (self.transport, &mut context.outputs);
        self.draining.retain(|live| {
            let over = live.unused_since.is_some_and(|since| earliest.due(now, since + DRAIN_LINGER));
            if over {
                outputs.push(PairOutput::Close { conn: ConnKey { transport, conn: live.conn } });
            }
            !over
        });
    }

    /// A live connection whose channel is gone goes on with the winner, if the peer's key is still the same and
    /// circuits that the winner takes can use it. A peer with another key may have been started anew, and know of no
    /// connection.
    fn adopt(&mut self, winner: &Voucher, channels: &BTreeMap<SocketId, Channel>) {
        if let Some(live) = &mut self.live
            && !channels.contains_key(&live.channel)
            && live.peer_key == winner.peer_key()
            && live.place.serves(&winner.place)
        {
            live.channel = winner.channel;
        }
    }

    /// Whether what is live serves a channel: it belongs to that channel or to the winner.
    fn serves(&self, voucher: &Voucher, winner: Option<SocketId>) -> bool {
        self.live.is_some_and(|live| live.channel == voucher.channel || Some(live.channel) == winner)
    }

    fn dial(
        &mut self,
        context: &mut Context<'_>,
        earliest: &mut Earliest,
        vouchers: &[Voucher],
        channels: &BTreeMap<SocketId, Channel>,
        winner: Option<SocketId>,
    ) {
        let Some(voucher) = vouchers.iter().find(|voucher| Some(voucher.channel) == winner) else { return };
        self.adopt(voucher, channels);
        self.give_up_losers(context, voucher, channels);
        let dialling = self.attempts.iter().any(|attempt| attempt.role == Role::Initiator);
        let crowded = self.draining.len() >= DRAINING_MAX;
        if voucher.role == Role::Responder || dialling || crowded || self.serves(voucher, winner) {
            return;
        }
        if self.dialled_key != Some(voucher.peer_key()) {
            self.back_off.forget();
        }
        let slot_min = self.slots.get(&voucher.channel).copied().unwrap_or(0);
        let (at, slot) = voucher.dial_time(slot_min, self.back_off.not_before().max(context.now));
        if earliest.due(context.now, at) {
            self.dialled_key = Some(voucher.peer_key());
            context.counters.dials += 1;
            self.open(context, voucher, slot, true);
        }
    }

    /// Dials over channels that lost to `winner` end. A channel that is gone did not lose.
    fn give_up_losers(
        &mut self,
        context: &mut Context<'_>,
        winner: &Voucher,
        channels: &BTreeMap<SocketId, Channel>,
    ) {
        let (transport, outputs) = (self.transport, &mut context.outputs);
        self.attempts.retain(|attempt| {
            let lost = attempt.role == Role::Initiator
                && attempt.channel != winner.channel
                && channels.contains_key(&attempt.channel);
            if let Some(conn) = attempt.conn.filter(|_| lost) {
                outputs.push(PairOutput::Close { conn: ConnKey { transport, conn } });
            }
            !lost
        });
    }

    fn listen(
        &mut self,
        context: &mut Context<'_>,
        earliest: &mut Earliest,
        vouchers: &[Voucher],
        winner: Option<SocketId>,
    ) {
        let crowded = self.draining.len() >= DRAINING_MAX;
        for voucher in vouchers.iter().filter(|voucher| voucher.role == Role::Responder && !crowded) {
            let slot = voucher.slot_at(context.now);
            let serves = self.serves(voucher, winner);
            // A channel's first slot is listened to in any case: the peer may have lost what is live here.
            if serves && slot > 0 {
                continue;
            }
            let slot_min = self.slots.get(&voucher.channel).copied().unwrap_or(0);
            if slot >= slot_min {
                context.counters.listens += 1;
                self.open(context, voucher, slot, slot == 0 && !serves);
            }
            earliest.due(context.now, voucher.slot_start(slot + 1));
        }
    }

    fn open(&mut self, context: &mut Context<'_>, voucher: &Voucher, slot: u64, expected: bool) {
        let (id, channel) = (context.new_attempt(), voucher.channel);
        let (role, place) = (voucher.role, voucher.place);
        let (peer_key, peer_port) = (voucher.peer_key(), voucher.theirs.port);
        self.slots.insert(channel, slot + 1);
        self.attempts.push(Attempt { id, conn: None, channel, role, place, peer_key, peer_port, expected });
        let (transport, offers, keys) = (self.transport, voucher.offers, voucher.keys);
        context.outputs.push(PairOutput::Open(OpenRequest {
            attempt: id,
            role,
            channel,
            peer_port,
            peer_key,
            flows_max: self.flows_max,
            purpose: Purpose { transport, slot, offers, keys },
        }));
    }

    /// Says which connection new circuits may use, when that changed.
    fn announce(&mut self, context: &mut Context<'_>, earliest: &mut Earliest) {
        let open = earliest.due(context.now, self.tls_until)
            && earliest.due(context.now, self.probation.until())
            && !context.pads;
        let young = |live: &Live| context.now.since(live.ready_at) < CONNECTION_AGE_MAX;
        let in_use = self.live.filter(|live| open && young(live) && !live.suspect).map(|live| live.conn);
        if in_use == self.in_use {
            return;
        }
        self.in_use = in_use;
        context.outputs.push(match in_use {
            Some(conn) => PairOutput::UseFlows { conn: self.key(conn) },
            None => PairOutput::UseTls { transport: self.transport },
        });
    }
}

#[cfg(test)]
mod tests;
