//! Channels, and what they vouch for: connections whose secrets come from the channel and from both sides' offers, in
//! slots of time that have a token each.

use super::Place;
use super::offer::{Offer, OfferDigest, OfferedTransport};
use crate::channel::Role;
use crate::transport::TransportId;
use heddle_seam::node::SocketId;
use heddle_seam::time::{Duration, Instant};

/// How long a token is good.
const SLOT: Duration = Duration::from_secs(30);
/// When within a slot, but the first, the dialler begins, and until when it may.
const DIAL_FROM: Duration = Duration::from_secs(10);
const DIAL_UNTIL: Duration = Duration::from_secs(20);

/// A channel to the peer.
pub(super) struct Channel {
    pub role: Role,
    pub place: Place,
    pub exporter: bool,
    /// The digest of our offer and the key in it.
    pub sent: Option<(OfferDigest, [u8; 32])>,
    /// The peer's latest offer.
    pub received: Option<(OfferDigest, Offer)>,
    /// How many came.
    pub offers: u32,
    /// When both offers were known.
    pub vouches_since: Option<Instant>,
}

/// A channel that vouches for connections of a transport.
pub(super) struct Voucher {
    pub channel: SocketId,
    pub role: Role,
    pub place: Place,
    pub since: Instant,
    pub theirs: OfferedTransport,
    /// Digests and keys, the initiator's first.
    pub offers: [OfferDigest; 2],
    pub keys: [[u8; 32]; 2],
}

impl Voucher {
    pub fn peer_key(&self) -> [u8; 32] {
        self.keys[usize::from(self.role == Role::Initiator)]
    }

    pub fn slot_start(&self, slot: u64) -> Instant {
        self.since + SLOT.saturating_mul(u32::try_from(slot).unwrap_or(u32::MAX))
    }

    pub fn slot_at(&self, now: Instant) -> u64 {
        now.since(self.since).as_secs() / SLOT.as_secs()
    }

    /// The first time from `not_before` on at which a slot that is not below `slot_min` may be dialled, and that slot.
    pub fn dial_time(&self, slot_min: u64, not_before: Instant) -> (Instant, u64) {
        let opens = |slot| self.slot_start(slot) + if slot == 0 { Duration::ZERO } else { DIAL_FROM };
        let slot = slot_min.max(self.slot_at(not_before));
        let slot = if not_before < self.slot_start(slot) + DIAL_UNTIL { slot } else { slot + 1 };
        (opens(slot).max(not_before), slot)
    }
}

impl Channel {
    /// One that was just opened.
    pub fn new(role: Role, place: Place, exporter: bool) -> Self {
        Channel { role, place, exporter, sent: None, received: None, offers: 0, vouches_since: None }
    }

    /// What the channel vouches for, once both offers are known and name the transport.
    pub fn voucher(&self, channel: SocketId, transport: TransportId) -> Option<Voucher> {
        let (our_digest, our_key) = self.sent?;
        let (their_digest, theirs) = self.received.as_ref()?;
        let (mut offers, mut keys) = ([our_digest, *their_digest], [our_key, theirs.key]);
        if self.role == Role::Responder {
            offers.reverse();
            keys.reverse();
        }
        let (since, theirs) = (self.vouches_since?, *theirs.transport(transport)?);
        Some(Voucher { channel, role: self.role, place: self.place, since, theirs, offers, keys })
    }
}
