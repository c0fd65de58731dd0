//! Connection ids, and how a datagram of a stranger is known by its first bytes alone (RFC 8999, section 5).
//!
//! An id of ours is a random nonce and a MAC over it, so whoever makes one up is found out without a look into any
//! table. A dialler's first id is not ours but the pair's token. The first bytes of all our nonces are the same, a
//! [prefix](IdPrefix). It tells whoever sees it no more than the port does to which all these datagrams go.

use super::crypto::KEY_LEN;
use aws_lc_rs::hmac;
use core::fmt;
use heddle_seam::datagrams::IdPrefix;
use heddle_seam::rng::{Rng, Seed};
use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};
use subtle::ConstantTimeEq;

const NONCE_LEN: usize = 8;
const MAC_LEN: usize = 4;

/// Bytes of a connection id of ours. Every packet to us carries one.
pub(super) const ID_LEN: usize = NONCE_LEN + MAC_LEN;

/// Longest id of version 1 (RFC 9000, section 17.2).
pub(super) const ID_LEN_MAX: usize = 20;

const VERSION: u32 = 1;

/// Makes ids and recognises them.
pub(super) struct Ids {
    key: hmac::Key,
    prefix: IdPrefix,
    rng: Rng,
}

impl Ids {
    pub(super) fn new(seed: &Seed) -> Self {
        let key: [u8; KEY_LEN] = seed.child("key", 0).rng().array();
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        let prefix = IdPrefix(seed.child("prefix", 0).rng().array());
        Ids { key, prefix, rng: seed.child("nonces", 0).rng() }
    }

    /// What ids of ours begin with.
    pub(super) fn id_prefix(&self) -> IdPrefix {
        self.prefix
    }

    /// Whether an id is one that these made.
    pub(super) fn is_ours(&self, id: &[u8]) -> bool {
        let Some((nonce, mac)) = id.split_at_checked(NONCE_LEN) else {
            return false;
        };
        mac.len() == MAC_LEN && bool::from(self.mac(nonce).ct_eq(mac))
    }

    fn mac(&self, nonce: &[u8]) -> [u8; MAC_LEN] {
        let tag = hmac::sign(&self.key, nonce);
        let mut mac = [0; MAC_LEN];
        mac.copy_from_slice(&tag.as_ref()[..MAC_LEN]);
        mac
    }
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; ID_LEN];
        let IdPrefix(prefix) = self.prefix;
        id[..prefix.len()].copy_from_slice(&prefix);
        self.rng.fill(&mut id[prefix.len()..NONCE_LEN]);
        let mac = self.mac(&id[..NONCE_LEN]);
        id[NONCE_LEN..].copy_from_slice(&mac);
        ConnectionId::new(&id)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        if self.is_ours(id) { Ok(()) } else { Err(InvalidCid) }
    }

    fn cid_len(&self) -> usize {
        ID_LEN
    }

    fn cid_lifetime(&self) -> Option<core::time::Duration> {
        None
    }
}

/// Ids that were found to be ours, each in the place that its last byte names: a MAC for each datagram would cost more
/// than its header's protection. Strangers put none here, so these are all the bytes it ever has.
pub(super) struct Recent([[u8; ID_LEN]; RECENT]);

const RECENT: usize = 64;

impl Recent {
    /// None: what is all zeros stands for no id.
    pub(super) fn new() -> Self {
        Recent([[0; ID_LEN]; RECENT])
    }

    /// Whether this is one of `ids`.
    pub(super) fn is_ours(&mut self, ids: &Ids, id: &[u8]) -> bool {
        let Ok(id) = <&[u8; ID_LEN]>::try_from(id) else { return false };
        let place = &mut self.0[usize::from(id[ID_LEN - 1]) % RECENT];
        if place == id && *id != [0; ID_LEN] {
            return true;
        }
        let is_ours = ids.is_ours(id);
        if is_ours {
            *place = *id;
        }
        is_ours
    }
}

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ids(..)")
    }
}

/// What a datagram's first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head<'a> {
    /// Whether it begins with an Initial packet, which alone may carry a token.
    pub(super) is_initial: bool,
    /// The id that it is sent to.
    pub(super) to: &'a [u8],
}

/// Reads the head of a datagram, or `None` for what no peer of ours sends: other versions, Version Negotiation, Retry,
/// 0-RTT, and what is no QUIC at all.
pub(super) fn head(datagram: &[u8]) -> Option<Head<'_>> {
    const LONG: u8 = 0x80;
    const FIXED: u8 = 0x40;
    const INITIAL: u8 = 0;
    const HANDSHAKE: u8 = 2;
    let (&first, rest) = datagram.split_first()?;
    if first & FIXED == 0 {
        return None;
    }
    if first & LONG == 0 {
        return Some(Head { is_initial: false, to: rest.get(..ID_LEN)? });
    }
    let (version, rest) = rest.split_first_chunk::<4>()?;
    let packet_type = (first >> 4) & 3;
    if u32::from_be_bytes(*version) != VERSION || !matches!(packet_type, INITIAL | HANDSHAKE) {
        return None;
    }
    let (&len, rest) = rest.split_first()?;
    if usize::from(len) > ID_LEN_MAX {
        return None;
    }
    Some(Head { is_initial: packet_type == INITIAL, to: rest.get(..usize::from(len))? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_recognised_by_their_maker_alone() {
        let mut ids = Ids::new(&Seed::from_number(1));
        let others = Ids::new(&Seed::from_number(2));
        let id = ids.generate_cid();
        assert!(ids.is_ours(&id) && ids.validate(&id).is_ok());
        assert!(!others.is_ours(&id));
        assert!(!ids.is_ours(&id[..ID_LEN - 1]));
        for bit in 0..ID_LEN * 8 {
            let mut bent = id.to_vec();
            bent[bit / 8] ^= 1 << (bit % 8);
            assert!(!ids.is_ours(&bent), "bit {bit}");
        }
        let other = ids.generate_cid();
        assert_ne!(id, other);
        assert_eq!([id, other].map(|id| IdPrefix([id[0], id[1]])), [ids.id_prefix(); 2]);
        assert_ne!(ids.id_prefix(), others.id_prefix());
    }

    /// More ids than there are places, each asked for twice, with what others made and what is bent between them.
    #[test]
    fn what_was_recognised_before_changes_no_answer() {
        let (mut ids, mut others) = (Ids::new(&Seed::from_number(1)), Ids::new(&Seed::from_number(2)));
        let mut recent = Recent::new();
        for _ in 0..4 * RECENT {
            let (id, other) = (ids.generate_cid(), others.generate_cid());
            for _ in 0..2 {
                assert!(recent.is_ours(&ids, &id));
                assert!(!recent.is_ours(&ids, &other));
                for bit in 0..ID_LEN * 8 {
                    let mut bent = id.to_vec();
                    bent[bit / 8] ^= 1 << (bit % 8);
                    assert!(!recent.is_ours(&ids, &bent), "bit {bit}");
                }
            }
        }
        assert!(!recent.is_ours(&ids, &[0; ID_LEN]) && !recent.is_ours(&ids, &[]));
    }

    #[test]
    fn heads_are_read_as_rfc_9000_draws_them() {
        let long = |first: u8, version: u32, id: &[u8]| {
            let mut datagram = vec![first];
            datagram.extend_from_slice(&version.to_be_bytes());
            datagram.push(id.len() as u8);
            datagram.extend_from_slice(id);
            datagram
        };
        let initial = long(0xc3, 1, b"token");
        assert_eq!(head(&initial), Some(Head { is_initial: true, to: b"token" }));
        let handshake = long(0xe0, 1, b"id");
        assert_eq!(head(&handshake), Some(Head { is_initial: false, to: b"id" }));
        let short = [&[0x41][..], &[7; ID_LEN], b"rest"].concat();
        assert_eq!(head(&short), Some(Head { is_initial: false, to: &[7; ID_LEN] }));
        let retry = long(0xf0, 1, b"id");
        let zero_rtt = long(0xd0, 1, b"id");
        let negotiation = long(0xc0, 0, b"id");
        let draft = long(0xc0, 0xff00_001d, b"id");
        let too_long = long(0xc0, 1, &[0; 21]);
        let unfixed = long(0x83, 1, b"id");
        for stranger in [&retry, &zero_rtt, &negotiation, &draft, &too_long, &unfixed] {
            assert_eq!(head(stranger), None, "{stranger:02x?}");
        }
        for len in 0..initial.len() {
            assert_eq!(head(&initial[..len]), None);
        }
        assert_eq!(head(&short[..ID_LEN]), None);
    }
}
