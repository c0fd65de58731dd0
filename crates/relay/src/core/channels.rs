//! Channels open, grow idle and end, and connections end.

use super::Core;
use crate::admission::Party;
use crate::keys::{LinkKey, Side};
use crate::message::Event;
use crate::stats::CHANNELS;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::channel::{ChannelError, Opened, Role};
use heddle_proto::ids::RelayIds;

/// How far a relay's clock may be from ours before anybody hears of it, as in stock Tor (`NETINFO_NOTICE_SKEW`).
const CLOCK_DIFFERS_S: i64 = 3600;

impl Core {
    /// A channel's handshake is over. Returns others that are to be ended for it, and fails when there is no place for
    /// it.
    pub fn on_opened(&mut self, link_key: LinkKey, opened: Opened) -> Result<Vec<LinkKey>, ChannelError> {
        let now = self.now;
        let Some(channel) = self.links.identify(link_key, &opened) else {
            return Ok(Vec::new());
        };
        let (socket, role, addr) = (channel.socket(), channel.role(), channel.addr());
        let party = self.links.party_of_peer(opened.peer, addr.ip());
        self.admission.handshake_ends(link_key);
        let mut instead = Vec::new();
        match role {
            Role::Responder => {
                let admitted = self.admission.channel_opens(now, link_key, party);
                instead.extend(admitted.map_err(|_| ChannelError::Crowded)?);
                if let Some(addr) = self.links.count_channel(link_key, party, opened.peer) {
                    self.dos.connect(now, addr, &mut self.rng);
                }
            }
            Role::Initiator => {
                let admitted = self.admission.dial_opens(now, socket, party);
                let other = admitted.map_err(|_| ChannelError::Crowded)?;
                other.into_iter().for_each(|other| self.end_dialled(other));
            }
        }
        self.links.open(now, link_key, party);
        let Some(peer) = opened.peer else { return Ok(instead) };
        instead.extend(self.links.surplus_channel(&peer.rsa, |link| self.table.ids_len(link)));
        self.links.list_channel(peer.rsa, link_key);
        self.meter.on_link_opened(CHANNELS);
        self.announce(peer.rsa, true);
        self.event(Event::ChannelOpened { role, peer, addr });
        // Whoever is no relay of the consensus may say what it likes.
        if opened.clock_ahead_s.abs() > CLOCK_DIFFERS_S && matches!(party, Party::Relay(_)) {
            self.event(Event::ClockDiffers { peer, ahead_s: opened.clock_ahead_s });
        }
        // A circuit of somebody else's may have had us dial the same relay at an address that he chose, where what he
        // has built between says what it wants.
        if let (Role::Initiator, Some(ours)) = (role, opened.our_addr)
            && self.asked.take_if(|asked| *asked == (peer, addr)).is_some()
        {
            self.event(Event::OurAddress { ours, by: peer, at: addr });
        }
        self.links.retire_duplicates(&peer);
        self.extend_waiting(peer.rsa, link_key, socket);
        Ok(instead)
    }

    /// A channel is over. Returns the relay that it led to, if it was open.
    pub fn close_channel(&mut self, link_key: LinkKey, error: ChannelError) -> Option<RelayIds> {
        let channel = self.links.channel(link_key)?;
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
        let Some(flows) = self.links.flows(link_key) else { return };
        let (peer, (cells_in, cells_out)) = (flows.peer(), flows.cells());
        self.meter.on_ended(flows.transport(), reason);
        self.close_link(link_key);
        self.event(Event::ConnectionEnded { transport, peer, reason, cells_in, cells_out });
    }

    /// Every circuit of a link ends, because the link did.
    fn close_link(&mut self, link_key: LinkKey) {
        let Some((link, left)) = self.links.remove(link_key) else {
            return;
        };
        let lanes = self.table.remove_link(link_key);
        self.admission.channel_ends(link_key);
        if let Some(channel) = link.channel().filter(|channel| channel.is_open()) {
            self.admission.dial_ends(channel.socket());
            if channel.is_counted() {
                self.dos.disconnect(self.now, channel.addr().ip());
            }
        }
        left.into_iter().for_each(|rsa| self.release(rsa));
        for (key, side) in lanes {
            let goes_on = side == Side::Next && self.extend_again(key);
            if !goes_on && self.table.contains(key) {
                self.end_circuit(key, DestroyReason::CHANNEL_CLOSED, Some(side));
            }
        }
        self.leave_queue(link_key, link);
    }
}
