//! Where circuits' lanes lead: channels, connections with flows and other shards, and how a circuit comes to one.
//!
//! [`Links`] owns all links and what is known of who is behind them; which of them carries a circuit on is chosen in
//! `ways`, what pairs are to be told is noted in `answers`. How many circuits a link carries the table of circuits
//! knows, so whoever asks says it. [`Dials`] and [`Crossings`] are parts of their own: of links that are not there
//! yet, and of what other shards have.

mod answers;
mod channel_link;
mod channels;
mod crossing;
mod dial;
mod farewells;
mod flow_link;
mod flows;
mod late;
mod link;
mod outlet;
mod parties;
mod unanswered;
mod ways;

pub(crate) use answers::{ANSWER_PATIENCE, Answer};
pub(crate) use channel_link::ChannelLink;
pub(crate) use crossing::{Crossing, Crossings, OWNER};
pub(crate) use dial::{DialKey, Dials, EndedDial};
pub(crate) use farewells::Farewells;
pub(crate) use flow_link::{FlowLink, ReadyConnection};
pub(crate) use flows::{HELD_QUEUE_HIGH_CELLS, HELD_QUEUE_LOW_CELLS, Hold};
pub(crate) use link::{Link, LinkKind};
pub(crate) use outlet::{Outlet, destroy};

use crate::admission::Party;
use crate::keys::{CircuitKey, LinkKey};
use crate::relays::Relays;
use channels::Channels;
use core::net::SocketAddr;
use flows::Flows;
use heddle_proto::cell::CircId;
use heddle_proto::channel::{Opened, Role};
use heddle_proto::credit::N23;
use heddle_proto::endpoint::ConnId;
use heddle_proto::ids::{RelayIds, RsaId};
use heddle_seam::node::{ShardId, SocketId};
use heddle_seam::time::{Duration, Instant};
use slotmap::SlotMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How many idle channels between relays are closed early in a second, where channels are many. Whoever brings that
/// about does not have all of them closed at once.
const EARLY_MAX: usize = 32;

/// See the [module](self).
pub(crate) struct Links {
    all: SlotMap<LinkKey, Link>,
    channels: Channels,
    flows: Flows,
    /// The relays of the consensus.
    listed: Arc<Relays>,
    ours: RelayIds,
    /// Circuits that a channel or a connection may carry.
    circuits_max: usize,
}

/// Links come and go.
impl Links {
    /// Of a relay that is called so.
    pub fn new(ours: RelayIds, circuits_max: usize) -> Self {
        Links {
            all: SlotMap::with_key(),
            channels: Channels::default(),
            flows: Flows::default(),
            listed: Arc::default(),
            ours,
            circuits_max,
        }
    }

    /// A link to another shard, which stays.
    pub fn add_crossing(&mut self, shard: ShardId) -> LinkKey {
        self.insert(LinkKind::Shard(shard))
    }

    /// A link of a connected socket, in either role.
    pub fn add_channel(&mut self, now: Instant, socket: SocketId, role: Role, addr: SocketAddr) -> LinkKey {
        self.insert(LinkKind::Channel(ChannelLink::new(now, socket, role, addr)))
    }

    /// A link of a connection that is ready.
    pub fn add_flows(&mut self, now: Instant, connection: ReadyConnection) -> LinkKey {
        let link = self.insert(LinkKind::Flows(FlowLink::new(now, connection)));
        self.flows.insert(connection.peer.rsa, link);
        link
    }

    fn insert(&mut self, kind: LinkKind) -> LinkKey {
        let party = self.party_of(&kind);
        self.all.insert(Link::new(kind, party))
    }

    /// The handshake of a channel said who the peer is.
    pub fn identify(&mut self, link: LinkKey, opened: &Opened) -> Option<&ChannelLink> {
        let channel = self.channel_mut(link)?;
        channel.identify(opened);
        Some(channel)
    }

    /// There is a place for a channel, of which the handshake said who the peer is: circuits may go over it.
    pub fn open(&mut self, now: Instant, link: LinkKey, party: Party) {
        let Some(opened) = self.all.get_mut(link) else { return };
        opened.move_to(party);
        if let Some(channel) = opened.channel_mut() {
            channel.open(now);
        }
    }

    /// An open channel leads to a relay.
    pub fn list_channel(&mut self, rsa: RsaId, link: LinkKey) {
        self.channels.insert(rsa, link);
    }

    /// A link is over. Returns it, and the relay to which it was the last of its kind.
    pub fn remove(&mut self, key: LinkKey) -> Option<(Link, Option<RsaId>)> {
        let link = self.all.remove(key)?;
        let rsa = link.peer().map(|peer| peer.rsa);
        let was_last = rsa.is_some_and(|rsa| match link.kind() {
            LinkKind::Channel(_) => self.channels.remove(&rsa, key),
            LinkKind::Flows(_) => self.flows.remove(&rsa, key),
            LinkKind::Shard(_) => false,
        });
        Some((link, rsa.filter(|_| was_last)))
    }

    /// Once a second: channels that were idle for too long, which between relays is this in the mean. Where channels
    /// are many, some of those go too that were idle for as long as others' may be. Their sockets are to be closed.
    pub fn idle_channels(
        &mut self,
        now: Instant,
        between_relays: Duration,
        are_many: bool,
        is_idle: impl Fn(LinkKey) -> bool,
    ) -> Vec<SocketId> {
        let (mut closing, mut early) = (Vec::new(), Vec::new());
        // Flows count as circuits of the channel that vouched for them: it keeps the pair together.
        let occupied = self.all.iter().filter(|(key, _)| !is_idle(*key));
        let occupied: BTreeSet<_> =
            occupied.filter_map(|(_, link)| link.flows()).map(FlowLink::peer).collect();
        for (key, link) in &mut self.all {
            let between_relays = Some(between_relays).filter(|_| matches!(link.party(), Party::Relay(_)));
            let Some(channel) = link.channel_mut().filter(|channel| channel.is_open()) else {
                continue;
            };
            let has_flows =
                channel.peer().is_some_and(|peer| occupied.contains(&peer)) && !channel.is_retired();
            if has_flows {
                // However its flows end: also when their connection takes them all along.
                channel.note_used(now);
            }
            if channel.is_old(now) && channel.retire() {
                channel.peer().into_iter().for_each(|peer| self.flows.note_retired(peer));
            }
            if !is_idle(key) || has_flows {
                continue;
            }
            if channel.is_unused(now, between_relays) {
                closing.push(channel.socket());
            } else if are_many && channel.is_unused(now, None) {
                early.push((channel.idle_since(), channel.socket()));
            }
        }
        early.sort_unstable();
        closing.extend(early.into_iter().take(EARLY_MAX).map(|(_, socket)| socket));
        closing
    }
}

/// What is known of links.
impl Links {
    pub fn get(&self, link: LinkKey) -> Option<&Link> {
        self.all.get(link)
    }

    pub fn channel(&self, link: LinkKey) -> Option<&ChannelLink> {
        self.get(link)?.channel()
    }

    pub fn flows(&self, link: LinkKey) -> Option<&FlowLink> {
        self.get(link)?.flows()
    }

    pub fn iter(&self) -> impl Iterator<Item = (LinkKey, &Link)> {
        self.all.iter()
    }

    /// The open channels to a relay, and the connections that are ready.
    pub fn to(&self, rsa: &RsaId) -> impl Iterator<Item = &Link> {
        let keys = self.channels.to(rsa).iter().chain(self.flows.links_to(rsa));
        keys.filter_map(|key| self.all.get(*key))
    }

    fn channel_mut(&mut self, link: LinkKey) -> Option<&mut ChannelLink> {
        self.all.get_mut(link)?.channel_mut()
    }

    fn flows_mut(&mut self, link: LinkKey) -> Option<&mut FlowLink> {
        self.all.get_mut(link)?.flows_mut()
    }
}

/// What passes on channels.
impl Links {
    /// Bytes came on a channel. Returns how many did before, if its handshake is not over.
    pub fn on_received(&mut self, link: LinkKey, bytes: u64) -> Option<u64> {
        self.channel_mut(link)?.on_received(bytes)
    }

    /// So many DESTROY cells wait on a channel. Returns who is to read them and how many count, if that is news.
    pub fn count_farewells(&mut self, now: Instant, link: LinkKey, waiting: usize) -> Option<(Party, usize)> {
        let link = self.all.get_mut(link).filter(|link| link.channel().is_some())?;
        let counted = link.farewells_mut().count(now, waiting)?;
        Some((link.party(), counted))
    }

    /// Whether the peer of a channel leaves DESTROY cells unread.
    pub fn leaves_farewells(&self, now: Instant, link: LinkKey) -> bool {
        self.get(link).is_some_and(|link| link.farewells().are_left_unread(now))
    }

    /// We told the peer of a channel that we count cells. False if there is no such channel.
    pub fn begin_counting(&mut self, link: LinkKey) -> bool {
        self.channel_mut(link).map(ChannelLink::begin_counting).is_some()
    }

    /// The peer of a channel counts cells. Whether it is no relay and we did not know.
    pub fn set_credit(&mut self, link: LinkKey, n23: N23) -> bool {
        let Some(channel) = self.channel_mut(link) else { return false };
        channel.set_credit(n23) && channel.peer().is_none()
    }
}

/// CREATE2 cells that the next relay has not answered.
impl Links {
    /// Whether one more may go out at once.
    pub fn takes_create(&self, link: LinkKey, max: usize) -> bool {
        self.get(link).is_some_and(|link| link.unanswered().has_room(max))
    }

    /// One goes out. Whether it does so on a flow that we begin.
    pub fn begin_create(&mut self, now: Instant, link: LinkKey, circuit: CircuitKey) -> bool {
        let Some(link) = self.all.get_mut(link) else { return false };
        link.unanswered_mut().take();
        let Some(flows) = link.flows_mut() else { return false };
        flows.begin_flow();
        self.flows.late_mut().watch(now, circuit);
        true
    }

    /// One was answered, or never will be. Whether somebody waits for its place.
    pub fn end_create(&mut self, link: LinkKey) -> bool {
        self.all.get_mut(link).is_some_and(|link| link.unanswered_mut().give())
    }

    /// A circuit of `party` that came over `prev` waits for its turn. Those that do so no more are swept out now and
    /// then.
    pub fn queue_create(
        &mut self,
        link: LinkKey,
        (party, prev, circuit): (Party, LinkKey, CircuitKey),
        is_queued: &dyn Fn(&CircuitKey) -> bool,
    ) {
        let Some(link) = self.all.get_mut(link) else { return };
        let unanswered = link.unanswered_mut();
        unanswered.push(party, prev, circuit);
        unanswered.sweep(is_queued);
    }

    /// The circuit that is next, if one more may go out.
    pub fn next_create(&mut self, link: LinkKey, max: usize) -> Option<CircuitKey> {
        self.all.get_mut(link)?.unanswered_mut().next(max)
    }

    /// A circuit that has waited for its answer on a flow for long, if it still does, and since when.
    pub fn pop_late_create(&mut self, now: Instant) -> Option<(Instant, CircuitKey)> {
        self.flows.late_mut().pop_circuit(now)
    }

    /// A circuit that a connection has not answered `since` CREATE2 left goes over a channel. If the peer had its time,
    /// and is not slow by what else it answers there, the channel's answer tells whether the flow failed.
    pub fn ask_again(&mut self, now: Instant, circuit: CircuitKey, link: LinkKey, since: Instant) {
        let had_time = now.since(since) >= unanswered::CREATE_PATIENCE;
        if had_time && self.get(link).is_some_and(|link| !link.unanswered().is_late(now)) {
            self.flows.late_mut().ask_again(now, circuit, link);
        }
    }

    /// A CREATE2 that left on `link` `since` then was answered, if only by a refusal for want of room.
    pub fn on_create_answered(&mut self, now: Instant, link: LinkKey, since: Instant, has_room: bool) {
        if let Some(link) = self.all.get_mut(link) {
            link.unanswered_mut().on_answer(now, since, has_room);
        }
    }

    /// A circuit's CREATE2 led to CREATED2.
    pub fn on_created(&mut self, now: Instant, circuit: CircuitKey) {
        self.flows.late_mut().on_created(now, circuit);
    }

    /// What was asked again over channels and came there too late is forgotten.
    pub fn forget_late_creates(&mut self, now: Instant) {
        self.flows.late_mut().forget_late(now);
    }

    /// A connection in use that has owed an answer for too long.
    pub fn pop_late_link(&mut self, now: Instant) -> Option<LinkKey> {
        loop {
            let link = self.flows.late_mut().pop_link(now)?;
            if self.flows(link).is_some_and(FlowLink::is_in_use) {
                return Some(link);
            }
        }
    }
}

/// Flows of connections.
impl Links {
    /// A connection says how many flows we may open.
    pub fn on_flow_room(&mut self, link: LinkKey, flows_max: u32) {
        if let Some(flows) = self.flows_mut(link) {
            flows.on_room(flows_max);
        }
    }

    /// CREATE2 left on a flow, so that the flow exists.
    pub fn on_flow_begun(&mut self, link: LinkKey) {
        if let Some(flows) = self.flows_mut(link) {
            flows.on_flow_begun();
        }
    }

    /// CREATE2 did not leave on a flow, and will not. False if the link is gone.
    pub fn give_up_flow(&mut self, link: LinkKey) -> bool {
        self.flows_mut(link).map(FlowLink::give_up_flow).is_some()
    }

    /// From now on circuits to a relay prefer this connection of an endpoint, or none of it.
    pub fn use_flows(&mut self, rsa: &RsaId, port: usize, in_use: Option<ConnId>) {
        for key in self.flows.links_to(rsa) {
            let flows = self.all.get_mut(*key).and_then(Link::flows_mut);
            if let Some(flows) = flows.filter(|flows| flows.connection().port == port) {
                flows.prefer(in_use == Some(flows.connection().conn));
            }
        }
    }

    /// A cell came in on a connection. Whether the operator's rates hold for that.
    pub fn count_in(&mut self, link: LinkKey) -> bool {
        let Some(flows) = self.flows_mut(link) else { return false };
        flows.count_in();
        flows.connection().limited
    }

    /// Cells went out on a connection. Returns its place in the counts by transport.
    pub fn count_out(&mut self, link: LinkKey, cells: usize) -> Option<usize> {
        let flows = self.flows_mut(link)?;
        flows.count_out(cells as u64);
        Some(flows.transport())
    }

    /// An endpoint is to be told whether a flow is to be read.
    pub fn hold(&mut self, link: LinkKey, circ_id: CircId, hold: bool) {
        self.flows.hold(Hold { link, circ_id, hold });
    }

    /// What an endpoint is to be told next, and of which connection.
    pub fn pop_hold(&mut self) -> Option<(ReadyConnection, Hold)> {
        loop {
            let hold = self.flows.pop_hold()?;
            if let Some(flows) = self.flows(hold.link) {
                return Some((flows.connection(), hold));
            }
        }
    }
}
