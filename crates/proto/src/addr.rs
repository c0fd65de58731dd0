//! What counts as one address.

use core::net::IpAddr;

/// An IPv4 address, or the network of an IPv6 address in which one customer picks addresses at will.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddrKey {
    Ipv4(u32),
    /// The 64 highest bits.
    Ipv6Net64(u64),
    /// The 48 highest bits: one site, to which a provider may give 65,536 networks.
    Ipv6Net48(u64),
}

impl AddrKey {
    /// An IPv4 address that is mapped into IPv6 is the IPv4 address.
    pub fn of(addr: IpAddr) -> Self {
        match addr.to_canonical() {
            IpAddr::V4(addr) => AddrKey::Ipv4(addr.to_bits()),
            IpAddr::V6(addr) => AddrKey::Ipv6Net64((addr.to_bits() >> 64) as u64),
        }
    }

    /// The site that it is of: an IPv4 address is its own.
    pub fn site_of(addr: IpAddr) -> Self {
        match addr.to_canonical() {
            IpAddr::V4(addr) => AddrKey::Ipv4(addr.to_bits()),
            IpAddr::V6(addr) => AddrKey::Ipv6Net48((addr.to_bits() >> 80) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(addr: &str) -> AddrKey {
        AddrKey::of(addr.parse().unwrap())
    }

    #[test]
    fn what_counts_as_one_address() {
        assert_eq!(key("192.0.2.1"), key("::ffff:192.0.2.1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:0:0:1"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
    }

    #[test]
    fn what_counts_as_one_site() {
        let site = |addr: &str| AddrKey::site_of(addr.parse().unwrap());
        assert_eq!(site("2001:db8::1"), site("2001:db8:0:1::1"));
        assert_ne!(site("2001:db8::1"), site("2001:db8:1::1"));
        assert_eq!(site("::ffff:192.0.2.1"), key("192.0.2.1"));
    }
}
