//! Channels open, grow idle and end, and connections end.

use super::Core;
use crate::keys::{LinkKey, Side};
use crate::links::{FlowLink, Link, LinkKind};
use crate::message::Event;
use crate::stats::CHANNELS;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::channel::{ChannelError, Opened, Role};
use heddle_proto::ids::RelayIds;
use heddle_seam::node::SocketId;
use std::collections::BTreeSet;

impl Core {
    /// A channel's handshake is over. Returns others that are to be ended for it, and fails when there is no place for
    /// it.
    pub fn on_opened(&mut self, link_key: LinkKey, opened: Opened) -> Result<Vec<LinkKey>, ChannelError> {
        let now = self.now;
        let Some(channel) = self.links.get_mut(link_key).and_then(Link::channel_mut) else {
            return Ok(Vec::new());
        };
        channel.identify(&opened);
        let (socket, role, addr) = (channel.socket(), channel.role(), channel.addr());
        let party = self.party_of_peer(opened.peer, addr.ip());
        self.admission.handshake_ends(link_key);
        let mut instead = Vec::new();
        match role {
            Role::Responder => {
                let admitted = self.admission.channel_opens(now, link_key, party);
                instead.extend(admitted.map_err(|_| ChannelError::Crowded)?);
                self.dos_channel_opens(link_key, party, opened.peer);
            }
            Role::Initiator => {
                let admitted = self.admission.dial_opens(now, socket, party);
                let other = admitted.map_err(|_| ChannelError::Crowded)?;
                other.into_iter().for_each(|other| self.end_dialled(other));
            }
        }
        let link = &mut self.links[link_key];
        link.move_to(party);
        if let Some(channel) = link.channel_mut() {
            channel.open(now);
        }
        let Some(peer) = opened.peer else { return Ok(instead) };
        instead.extend(self.surplus_channel(&peer.rsa));
        self.channels.insert(peer.rsa, link_key);
        self.meter.on_link_opened(CHANNELS);
        self.announce(peer.rsa, true);
        self.event(Event::ChannelOpened { role, peer, addr });
        if let Some(ours) = opened.our_addr {
            self.event(Event::OurAddress { ours, by: peer });
        }
        self.retire_duplicates(&peer);
        self.extend_waiting(peer.rsa, link_key, socket);
        Ok(instead)
    }

    /// Once a second: returns the sockets of channels that are to be closed since they are idle.
    pub(super) fn idle_channels(&mut self) -> Vec<SocketId> {
        let now = self.now;
        let mut closing = Vec::new();
        // Flows count as circuits of the channel that vouched for them: it keeps the pair together.
        let occupied = self.links.iter().filter(|(key, _)| !self.table.is_idle(*key));
        let occupied = occupied.filter_map(|(_, link)| link.flows());
        let occupied: BTreeSet<_> = occupied.map(FlowLink::peer).collect();
        for (key, link) in &mut self.links {
            let idle = self.table.is_idle(key);
            let Some(channel) = link.channel_mut().filter(|channel| channel.is_open()) else {
                continue;
            };
            let has_flows =
                channel.peer().is_some_and(|peer| occupied.contains(&peer)) && !channel.is_retired();
            let idle = idle && !has_flows;
            if has_flows {
                // However its flows end: also when their connection takes them all along.
                channel.note_used(now);
            }
            if channel.is_old(now) && channel.retire() {
                channel.peer().into_iter().for_each(|peer| self.flows.note_retired(peer));
            }
            if idle && channel.is_unused(now) {
                closing.push(channel.socket());
            }
        }
        closing
    }

    /// A channel is over. Returns the relay that it led to, if it was open.
    pub fn close_channel(&mut self, link_key: LinkKey, error: ChannelError) -> Option<RelayIds> {
        let channel = self.links.get(link_key)?.channel()?;
        let (socket, open, addr, peer) =
            (channel.socket(), channel.is_open(), channel.addr(), channel.peer());
        self.close_link(link_key);
        if !open {
            self.on_dial_failed(socket, Some(addr), Some(&error));
            return None;
        }
        peer?;
        self.meter.on_ended(CHANNELS, error.label());
        self.event(Event::ChannelClosed { peer, addr, error });
        peer
    }

    /// A connection of a transport is over, for one word's reason.
    pub fn close_connection(&mut self, link_key: LinkKey, transport: &'static str, reason: &'static str) {
        let Some(flows) = self.links.get(link_key).and_then(Link::flows) else { return };
        let (peer, (cells_in, cells_out)) = (flows.peer(), flows.cells());
        self.meter.on_ended(flows.transport(), reason);
        self.close_link(link_key);
        self.event(Event::ConnectionEnded { transport, peer, reason, cells_in, cells_out });
    }

    /// Every circuit of a link ends, since the link did.
    fn close_link(&mut self, link_key: LinkKey) {
        let Some(link) = self.links.remove(link_key) else {
            return;
        };
        let lanes = self.table.remove_link(link_key);
        self.admission.channel_ends(link_key);
        if let Some(channel) = link.channel().filter(|channel| channel.is_open()) {
            self.admission.dial_ends(channel.socket());
            if channel.is_counted() {
                self.dos_channel_ends(channel.addr().ip());
            }
        }
        match (link.kind(), link.peer()) {
            (LinkKind::Channel(_), Some(peer)) => self.forget_channel(link_key, &peer),
            (LinkKind::Flows(_), Some(peer)) => self.forget_flow_link(link_key, &peer),
            _ => {}
        }
        for (key, side) in lanes {
            let goes_on = side == Side::Next && self.extend_again(key);
            if !goes_on && self.table.contains(key) {
                self.end_circuit(key, DestroyReason::CHANNEL_CLOSED, Some(side));
            }
        }
        self.leave_queue(link_key, link.into_unanswered());
    }

    /// An open channel is gone.
    fn forget_channel(&mut self, link_key: LinkKey, peer: &RelayIds) {
        if self.channels.remove(&peer.rsa, link_key) {
            self.release(peer.rsa);
        }
    }

    /// A connection is over.
    fn forget_flow_link(&mut self, link_key: LinkKey, peer: &RelayIds) {
        if self.flows.remove(&peer.rsa, link_key) {
            self.release(peer.rsa);
        }
    }
}
