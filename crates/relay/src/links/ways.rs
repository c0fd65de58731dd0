//! Which of a relay's links carries a circuit on, and which of several channels goes on.

use super::{ChannelLink, Link, Links};
use crate::keys::LinkKey;
use crate::message::Wanted;
use heddle_proto::channel::{Role, Target};
use heddle_proto::ids::{RelayIds, RsaId};
use heddle_seam::time::Instant;
use std::collections::BTreeSet;

impl Links {
    /// The link that is to carry a circuit on: a connection if one has room, else a channel.
    pub fn way_to(&self, wanted: &Wanted, circuits: impl Fn(LinkKey) -> usize) -> Option<LinkKey> {
        let flows = (!wanted.over_channel).then(|| self.flow_link_to(&wanted.target, circuits)).flatten();
        flows.or_else(|| self.channel_to(&wanted.target))
    }

    /// The best connection to `target` that takes one circuit more.
    fn flow_link_to(&self, target: &Target, circuits: impl Fn(LinkKey) -> usize) -> Option<LinkKey> {
        let usable = |key: &LinkKey| {
            let link = self.all.get(*key)?;
            let flows = link.flows().filter(|flows| flows.takes_circuits())?;
            let has_room = circuits(*key) < self.circuits_max;
            (has_room && link.leads_to(target)).then_some((flows.connection().port, flows.opened_at(), *key))
        };
        let best = self.flows.links_to(&target.rsa).iter().filter_map(usable).min();
        best.map(|(_, _, key)| key)
    }

    /// The best open channel that leads to `target`.
    fn channel_to(&self, target: &Target) -> Option<LinkKey> {
        let usable = |key: &LinkKey| {
            let link = self.all.get(*key)?;
            let channel = link.channel().filter(|channel| channel.is_open() && !channel.is_retired())?;
            link.leads_to(target).then_some((!channel.is_canonical(), channel.opened_at(), *key))
        };
        let keys = self.channels.to(&target.rsa);
        keys.iter().filter_map(usable).min().map(|(_, _, key)| key)
    }

    /// The channel to `peer` that takes new circuits.
    pub fn best_channel(&self, peer: &RelayIds) -> Option<&ChannelLink> {
        let best = *self.ranked(peer).first()?;
        self.all.get(best).and_then(Link::channel)
    }

    /// The channels to `peer` that take new circuits, the best first.
    fn ranked(&self, peer: &RelayIds) -> Vec<LinkKey> {
        let goes_on = |key: &LinkKey| {
            let channel = self.all.get(*key).and_then(Link::channel);
            channel.is_some_and(|channel| !channel.is_retired() && channel.peer() == Some(*peer))
        };
        let mut ranked: Vec<_> = self.channels.to(&peer.rsa).iter().copied().filter(goes_on).collect();
        ranked.sort_by_cached_key(|key| self.rank(*key));
        ranked
    }

    /// In the order of preference: canonical channels first, then those of the relay with the smaller identity, then
    /// the oldest. Both sides choose alike.
    fn rank(&self, key: LinkKey) -> Option<(bool, bool, Instant, LinkKey)> {
        let channel = self.all.get(key).and_then(Link::channel)?;
        let by_smaller = (channel.role() == Role::Initiator) == (self.ours.rsa < channel.peer()?.rsa);
        Some((!channel.is_canonical(), !by_smaller, channel.opened_at(), key))
    }

    /// Of several channels that join us and `peer`, the best goes on. Those that were retired before, also for their
    /// age, have no say: a new one would be retired beside them at its birth. Nor has one that is not canonical, about
    /// channels to other addresses: it may be a stranger's who stands between.
    pub fn retire_duplicates(&mut self, peer: &RelayIds) {
        let mut kept = BTreeSet::new();
        let mut has_canonical = false;
        for key in self.ranked(peer) {
            let Some(channel) = self.all.get_mut(key).and_then(Link::channel_mut) else { continue };
            if has_canonical || !kept.insert(channel.addr().ip()) {
                channel.retire();
            }
            has_canonical |= channel.is_canonical();
        }
    }

    /// Channels to a relay that we dialled and that nobody uses take no circuits any more, and end before long. What
    /// vouches for flows is used.
    pub fn retire_dialled(&mut self, rsa: &RsaId, is_unused: impl Fn(LinkKey) -> bool) {
        if !self.flows.links_to(rsa).is_empty() {
            return;
        }
        for key in self.channels.to(rsa).iter().filter(|key| is_unused(**key)) {
            let channel = self.all.get_mut(*key).and_then(Link::channel_mut);
            if let Some(channel) = channel.filter(|channel| channel.role() == Role::Initiator) {
                channel.retire();
            }
        }
    }

    /// Which channel to a relay is to be ended for a new one: of those that the relay itself does not vouch for by
    /// naming their address the one with fewest circuits, because whoever stands between may have made any number of
    /// these.
    pub fn surplus_channel(&self, rsa: &RsaId, circuits: impl Fn(LinkKey) -> usize) -> Option<LinkKey> {
        let channels = self.channels.to(rsa);
        let worth = |key: &LinkKey| {
            let channel = self.all.get(*key)?.channel()?;
            Some((channel.is_canonical(), circuits(*key), channel.opened_at(), *key))
        };
        let least = channels.iter().filter_map(worth).min().map(|(.., key)| key);
        least.filter(|_| self.channels.are_many(rsa))
    }
}
