//! What relays are called on the stack. Nobody else ever sees it.
//!
//! A relay calls itself the same everywhere, and each peer by a number of its own choice, so peers' addresses differ at
//! the two ends of a connection. They are chosen so that their halves' sum is always the same, modulo 2^16 - 1: then
//! TCP's checksum, which is over the addresses, too, is right at both ends though the header between them was left out
//! ([`heddle_esp::beet`]; RFC 6296, section 2.6, maps prefixes in the same way).

use crate::connections::ConnKey;
use core::net::{IpAddr, Ipv4Addr};
use heddle_esp::beet::{self, Inner};
use heddle_esp::packet::{payload_len_max, sealed_len};
use heddle_seam::node::StackOptions;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Where the control stream is dialled.
pub(super) const CONTROL_PORT: u16 = 1;
/// Where flows are dialled.
pub(super) const FLOW_PORT: u16 = 2;
/// The longest datagram, without headers of UDP and IP: what paths carry that tunnels have narrowed, because nobody
/// looks whether more would arrive.
pub(super) const DATAGRAM_BYTES_MAX: usize = 1350;

/// Ourselves.
const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The upper halves of peers' addresses: 16.0 to 126.255, so that none is ourselves, loopback or a group.
const UPPER_FIRST: u16 = 0x1000;
const UPPER_END: u16 = 0x7f00;
/// The sum of both halves. With it no lower half is zero or 0xffff, which are one number to a checksum.
const SUM: u16 = 0x7fff;

/// The stack that the driver has to open.
pub(super) const STACK: StackOptions = StackOptions {
    addr: LOCAL,
    ports: &[CONTROL_PORT, FLOW_PORT],
    packet_bytes_max: match payload_len_max(DATAGRAM_BYTES_MAX) {
        Some(payload) => (payload + beet::HEADER_LEN) as u16,
        None => panic!("such a datagram holds a packet"),
    },
};
const _: () = assert!(sealed_len(STACK.packet_bytes_max as usize - beet::HEADER_LEN) <= DATAGRAM_BYTES_MAX);

/// Who has which address.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    taken: BTreeMap<Ipv4Addr, ConnKey>,
    /// Addresses that were given.
    given: u16,
}

impl Addresses {
    /// An address for a peer, of all that are free the one that was longest so; `None` if 28,416 peers have one.
    pub(super) fn give(&mut self, key: ConnKey) -> Option<Inner> {
        let count = UPPER_END - UPPER_FIRST;
        for _ in 0..count {
            let upper = UPPER_FIRST + self.given % count;
            self.given = (self.given + 1) % count;
            let [[a, b], [c, d]] = [upper, SUM - upper].map(u16::to_be_bytes);
            let remote = Ipv4Addr::new(a, b, c, d);
            if let Entry::Vacant(entry) = self.taken.entry(remote) {
                entry.insert(key);
                return Some(Inner { local: LOCAL, remote });
            }
        }
        None
    }

    pub(super) fn take_back(&mut self, inner: &Inner) {
        self.taken.remove(&inner.remote);
    }

    pub(super) fn of(&self, remote: IpAddr) -> Option<ConnKey> {
        match remote {
            IpAddr::V4(remote) => self.taken.get(&remote).copied(),
            IpAddr::V6(_) => None,
        }
    }

    /// Whom a packet of our stack is for.
    pub(super) fn of_packet(&self, packet: &[u8]) -> Option<ConnKey> {
        const DESTINATION: usize = 16;
        let destination: [u8; 4] = *packet.get(DESTINATION..)?.first_chunk()?;
        self.of(IpAddr::V4(destination.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum by which TCP's checksum takes addresses in (RFC 9293, section 3.1).
    fn sum(addr: Ipv4Addr) -> u32 {
        let [a, b, c, d] = addr.octets().map(u32::from);
        (a << 8 | b) + (c << 8 | d)
    }

    #[test]
    fn all_addresses_are_one_to_a_checksum() {
        let mut addresses = Addresses::default();
        let mut first = None;
        for given in 0..UPPER_END - UPPER_FIRST {
            let inner = addresses.give(ConnKey::default()).expect("some are free");
            assert_eq!(sum(inner.remote), SUM.into());
            assert!(inner.remote != LOCAL && !inner.remote.is_loopback() && !inner.remote.is_multicast());
            assert_eq!(addresses.taken.len(), usize::from(given) + 1);
            first.get_or_insert(inner);
        }
        assert_eq!(addresses.give(ConnKey::default()), None);
        let first = first.expect("there were some");
        addresses.take_back(&first);
        assert_eq!(addresses.give(ConnKey::default()), Some(first));
    }
}
