//! Channels: which relay an open one leads to, which of several takes new circuits, and when one is closed.
//!
//! When two channels join the same two relays, both sides retire the same one: it takes no new circuits and is closed
//! when its last circuit left.

use crate::keys::LinkKey;
use heddle_proto::ids::RsaId;
use std::collections::BTreeMap;

/// Channels to one relay, retired ones included. Two are usual; but anybody may prove an identity of his own on as many
/// as his addresses have shares for, and each that opens or ends is compared with all others.
const CHANNELS_PER_RELAY: usize = 64;

/// The open channels to relays.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    /// Of each relay at most [`CHANNELS_PER_RELAY`], and one that is to end for another.
    by_relay: BTreeMap<RsaId, Vec<LinkKey>>,
}

impl Channels {
    /// The open channels to a relay, in the order in which they opened.
    pub fn to(&self, rsa: &RsaId) -> &[LinkKey] {
        self.by_relay.get(rsa).map_or(&[], Vec::as_slice)
    }

    /// Whether there are so many that one is to end when another opens.
    pub fn are_many(&self, rsa: &RsaId) -> bool {
        self.to(rsa).len() >= CHANNELS_PER_RELAY
    }

    pub fn insert(&mut self, rsa: RsaId, link: LinkKey) {
        self.by_relay.entry(rsa).or_default().push(link);
    }

    /// Returns whether it was the last one to this relay.
    pub fn remove(&mut self, rsa: &RsaId, link: LinkKey) -> bool {
        let Some(links) = self.by_relay.get_mut(rsa) else { return false };
        links.retain(|key| *key != link);
        let is_last = links.is_empty();
        if is_last {
            self.by_relay.remove(rsa);
        }
        is_last
    }
}
