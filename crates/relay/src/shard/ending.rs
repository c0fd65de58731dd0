//! Channels end: by a fault of their peers, with their sockets, because nobody needs them, or because memory is short.

use super::Relay;
use crate::keys::LinkKey;
use crate::language::Output;
use heddle_proto::channel::ChannelError;
use heddle_seam::node::{SocketError, SocketId};
use heddle_seam::time::Instant;

impl Relay {
    /// A channel ends by a fault of its peer, or because it is not needed.
    pub(super) fn end_channel(&mut self, now: Instant, link: LinkKey, error: ChannelError) {
        let Some(carrier) = self.carriers.remove(&mut self.core, link) else {
            return;
        };
        let socket = carrier.socket();
        self.goodbyes.push_back((socket, carrier.close(now)));
        self.forget_link(now, link, socket, error);
    }

    /// The peer has ended its direction, and with it the channel.
    pub(super) fn on_channel_eof(&mut self, now: Instant, link: LinkKey) {
        if let Some(carrier) = self.carriers.get_mut(link) {
            let error = carrier.channel_mut().handle_eof(now).err().unwrap_or(ChannelError::PeerClosed);
            self.end_channel(now, link, error);
        }
    }

    /// A channel's socket is gone.
    pub(super) fn on_channel_failed(&mut self, now: Instant, link: LinkKey, error: SocketError) {
        if let Some(carrier) = self.carriers.remove(&mut self.core, link) {
            self.forget_link(now, link, carrier.socket(), ChannelError::Socket(error));
        }
    }

    /// Ends a socket that nobody needs any more: of a channel, or one that is being dialled.
    pub(super) fn end_unneeded(&mut self, now: Instant, socket: SocketId, error: ChannelError) {
        match self.carriers.link_of(socket) {
            Some(link) => self.end_channel(now, link, error),
            None => self.core.push(Output::Abort { socket }),
        }
    }

    /// A socket ends with all that waits for it, because memory is short: that of a channel, of a stream, or of neither
    /// any more.
    pub(super) fn abort_socket(&mut self, now: Instant, socket: SocketId) {
        self.core.forget_buffer(socket);
        if !self.core.abort_stream(socket) {
            self.core.push(Output::Abort { socket });
        }
        if let Some(link) = self.carriers.link_of(socket) {
            self.carriers.remove(&mut self.core, link);
            self.forget_link(now, link, socket, ChannelError::Crowded);
        }
    }

    /// Once a second: channels end that are stuck, or whose peers leave many DESTROY cells unread for a minute
    /// (`farewells`).
    pub(super) fn end_stuck_channels(&mut self, now: Instant) {
        let stuck = self
            .carriers
            .iter()
            .filter(|(link, carrier)| carrier.is_stuck(now) || self.core.leaves_farewells(*link));
        let stuck: Vec<LinkKey> = stuck.map(|(link, _)| link).collect();
        stuck.into_iter().for_each(|link| self.end_channel(now, link, ChannelError::Stuck));
    }

    /// Ends all channels and dials: the relay stops.
    pub(super) fn end_all_channels(&mut self, now: Instant) {
        for socket in self.core.give_up_dials() {
            if self.carriers.link_of(socket).is_none() {
                self.core.push(Output::Abort { socket });
            }
        }
        let all: Vec<_> = self.carriers.iter().map(|(link, _)| link).collect();
        all.into_iter().for_each(|link| self.end_channel(now, link, ChannelError::Shutdown));
    }

    fn forget_link(&mut self, now: Instant, link: LinkKey, socket: SocketId, error: ChannelError) {
        let by_peer = matches!(error, ChannelError::PeerClosed | ChannelError::Socket(_));
        if let Some(relay) = self.core.close_channel(link, error) {
            self.on_channel_closed(now, relay, socket, by_peer);
        }
    }
}
