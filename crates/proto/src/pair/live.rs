//! A connection that was ready and has not ended.

use super::Place;
use super::offer::Offer;
use crate::channel::Role;
use crate::endpoint::ConnId;
use crate::transport::TransportId;
use heddle_seam::node::SocketId;
use heddle_seam::time::{Duration, Instant};

/// How long after a peer was started anew, or may have ended, its silence on an old connection is put down to that.
const GONE_BELIEVED: Duration = Duration::from_secs(60);

#[derive(Clone, Copy)]
pub(super) struct Live {
    pub conn: ConnId,
    /// The channel that vouched for it, or took it over.
    pub channel: SocketId,
    pub role: Role,
    /// Where the first of these leads.
    pub place: Place,
    pub peer_key: [u8; 32],
    /// Where the peer listens: each of its shards has a port of its own, and a key.
    pub peer_port: u16,
    /// The latest key that was offered for that port.
    pub latest_key: [u8; 32],
    pub ready_at: Instant,
    /// Whether the peer has answered nothing for a while: new circuits go over TLS.
    pub suspect: bool,
    /// Until when silence means that the peer's process ended, and nobody knows of it.
    pub gone_until: Instant,
    /// Since when it has no flows.
    pub unused_since: Option<Instant>,
}

impl Live {
    /// The peer offers something; `is_first` is whether on a channel that is new. A key that is replaced is offered on
    /// the channels that are there, so one that comes first on a new channel belongs to a process that was started
    /// anew.
    pub fn on_offer(&mut self, now: Instant, transport: TransportId, offer: &Offer, is_first: bool) {
        if offer.transport(transport).is_none_or(|theirs| theirs.port != self.peer_port) {
            return;
        }
        if is_first {
            let is_new = self.latest_key != offer.key;
            self.gone_until = if is_new { now + GONE_BELIEVED } else { Instant::ZERO };
        }
        self.latest_key = offer.key;
    }

    /// The peer closed the last channel, as the system does for a process that ends. Somebody else may have in its
    /// name, so it takes silence, too.
    pub fn on_abandoned(&mut self, now: Instant) {
        self.gone_until = now + GONE_BELIEVED;
    }

    /// Whether the peer no longer knows it: its circuits would wait in vain until the path counts as dead.
    pub fn is_orphan(&self, now: Instant) -> bool {
        self.suspect && now < self.gone_until
    }
}
