//! The relays of the consensus, as far as a shard asks about them.

use core::net::{IpAddr, SocketAddr};
use heddle_proto::ids::{Ed25519Id, RelayIds, RsaId};

/// A relay of the consensus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRelay {
    pub rsa: RsaId,
    /// `None` while its microdescriptor is not known.
    pub ed25519: Option<Ed25519Id>,
    /// Its ORPorts, over IPv4 and IPv6.
    pub or_addrs: Vec<SocketAddr>,
}

/// Who is a relay, and where relays listen. Sorted arrays, because a network has ten thousand relays and all shards
/// read one copy: 53 bytes a relay and 40 a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relays {
    ids: Box<[(RsaId, Option<Ed25519Id>)]>,
    /// And whose port it is; `None` for an authority's.
    ports: Box<[(IpAddr, u16, Option<RsaId>)]>,
}

impl Relays {
    /// The relays of a consensus, and ports of the network beside theirs: those of the directory authorities, whether
    /// or not the consensus lists them.
    pub fn new(
        relays: impl IntoIterator<Item = ListedRelay>,
        authorities: impl IntoIterator<Item = SocketAddr>,
    ) -> Self {
        let mut ids = Vec::new();
        let mut ports: Vec<_> = authorities.into_iter().map(|addr| port(addr, None)).collect();
        for relay in relays {
            ids.push((relay.rsa, relay.ed25519));
            ports.extend(relay.or_addrs.into_iter().map(|addr| port(addr, Some(relay.rsa))));
        }
        ids.sort_unstable();
        ids.dedup();
        ports.sort_unstable();
        ports.dedup();
        Relays { ids: ids.into(), ports: ports.into() }
    }

    /// How many relays there are.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Whether the consensus lists a relay with both identities. One whose microdescriptor is not known is not told
    /// apart from an impostor, so it does not count.
    pub fn contains(&self, ids: &RelayIds) -> bool {
        self.ids.binary_search(&(ids.rsa, Some(ids.ed25519))).is_ok()
    }

    /// Whether the consensus lists a relay with this RSA identity.
    pub(crate) fn contains_rsa(&self, rsa: &RsaId) -> bool {
        self.of_rsa(rsa).next().is_some()
    }

    /// The Ed25519 identity that the consensus lists beside an RSA identity, if it is known.
    pub(crate) fn ed25519_of(&self, rsa: &RsaId) -> Option<Ed25519Id> {
        self.of_rsa(rsa).flatten().next()
    }

    /// The Ed25519 identities, as far as they are known, of the relays that are listed with an RSA identity.
    fn of_rsa(&self, rsa: &RsaId) -> impl Iterator<Item = Option<Ed25519Id>> {
        let first = self.ids.partition_point(|(listed, _)| listed < rsa);
        let same = self.ids[first..].iter().take_while(move |(listed, _)| listed == rsa);
        same.map(|(_, ed25519)| *ed25519)
    }

    /// Whether a relay or an authority listens at this address and port.
    pub(crate) fn has_port(&self, addr: SocketAddr) -> bool {
        // `None` comes first in order.
        let wanted = port(addr, None);
        let first = self.ports.partition_point(|listed| *listed < wanted);
        self.ports.get(first).is_some_and(|(ip, port, _)| (*ip, *port) == (wanted.0, wanted.1))
    }

    /// Whether the consensus lists a relay with this identity, or both, at this address and port. As for
    /// [`Relays::contains`], an Ed25519 identity that is not known does not count.
    pub(crate) fn lists_at(&self, rsa: RsaId, ed25519: Option<Ed25519Id>, addr: SocketAddr) -> bool {
        self.ports.binary_search(&port(addr, Some(rsa))).is_ok()
            && ed25519.is_none_or(|ed25519| self.contains(&RelayIds { rsa, ed25519 }))
    }

    /// Whether a relay or an authority listens at this address, at whatever port.
    pub(crate) fn has_addr(&self, addr: IpAddr) -> bool {
        let addr = addr.to_canonical();
        let first = self.ports.partition_point(|(listed, ..)| *listed < addr);
        self.ports.get(first).is_some_and(|(listed, ..)| *listed == addr)
    }
}

/// An IPv4-mapped address is the IPv4 address that a connection to it reaches.
fn port(addr: SocketAddr, whose: Option<RsaId>) -> (IpAddr, u16, Option<RsaId>) {
    (addr.ip().to_canonical(), addr.port(), whose)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relay(number: u8, ed25519: bool, or_addrs: &[&str]) -> ListedRelay {
        ListedRelay {
            rsa: RsaId([number; 20]),
            ed25519: ed25519.then_some(Ed25519Id([number; 32])),
            or_addrs: or_addrs.iter().map(|addr| addr.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn a_relay_is_found_by_its_identities_and_its_ports() {
        let two = ["192.0.2.1:9001", "[2001:db8::1]:443"];
        let authority = "192.0.2.9:80".parse().unwrap();
        let relays = Relays::new([relay(2, true, &two), relay(1, false, &["192.0.2.2:9001"])], [authority]);
        assert_eq!(relays.len(), 2);
        let ids = |rsa, ed25519| RelayIds { rsa: RsaId([rsa; 20]), ed25519: Ed25519Id([ed25519; 32]) };
        assert!(relays.contains(&ids(2, 2)));
        assert!(!relays.contains(&ids(2, 3)) && !relays.contains(&ids(1, 1)) && !relays.contains(&ids(3, 3)));
        let by_rsa = [0, 1, 2, 3].map(|number| relays.contains_rsa(&RsaId([number; 20])));
        assert_eq!(by_rsa, [false, true, true, false]);
        let ed25519 = [0, 1, 2, 3].map(|number| relays.ed25519_of(&RsaId([number; 20])));
        assert_eq!(ed25519, [None, None, Some(Ed25519Id([2; 32])), None]);
        for (addr, is_port, is_addr) in [
            ("192.0.2.1:9001", true, true),
            ("[::ffff:192.0.2.1]:9001", true, true),
            ("192.0.2.1:443", false, true),
            ("[2001:db8::1]:443", true, true),
            ("[2001:db8::1]:9001", false, true),
            ("192.0.2.2:9001", true, true),
            ("192.0.2.9:80", true, true),
            ("192.0.2.3:9001", false, false),
            ("[2001:db8::2]:443", false, false),
        ] {
            let addr: SocketAddr = addr.parse().unwrap();
            assert_eq!((relays.has_port(addr), relays.has_addr(addr.ip())), (is_port, is_addr), "{addr}");
        }
    }

    #[test]
    fn a_relay_is_listed_at_its_own_ports_with_its_own_identities() {
        let authority = "192.0.2.1:9001".parse().unwrap();
        let [one, shared] = ["192.0.2.1:9001", "192.0.2.1:9002"];
        let relays = [relay(1, true, &[one, shared]), relay(2, true, &[shared]), relay(3, false, &[shared])];
        let relays = Relays::new(relays, [authority]);
        for (addr, rsa, ed25519, is_listed) in [
            (one, 1, None, true),
            (one, 1, Some(1), true),
            (one, 1, Some(2), false),
            (one, 2, None, false),
            (shared, 1, Some(1), true),
            (shared, 2, Some(2), true),
            (shared, 3, None, true),
            (shared, 3, Some(3), false),
            ("[::ffff:192.0.2.1]:9001", 1, Some(1), true),
            ("192.0.2.1:9003", 1, None, false),
        ] {
            let ed25519 = ed25519.map(|number| Ed25519Id([number; 32]));
            let found = relays.lists_at(RsaId([rsa; 20]), ed25519, addr.parse().unwrap());
            assert_eq!(found, is_listed, "{addr} {rsa} {ed25519:?}");
        }
    }

    #[test]
    fn before_the_first_consensus_there_is_nobody() {
        let none = Relays::default();
        assert!(none.is_empty() && !none.contains_rsa(&RsaId([0; 20])));
        assert!(!none.has_addr("192.0.2.1".parse().unwrap()));
    }
}
