//! What travels between hosts.

use super::HostId;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use heddle_netem::Packet;

/// IP and UDP headers, which a wire's MTU counts.
const HEADERS_V4_BYTES: usize = 28;
const HEADERS_V6_BYTES: usize = 48;

const UDP_HEADER_BYTES: u16 = 8;
/// Its number above IP.
const UDP: u8 = 17;
/// The flag, in the byte that it is in.
const DONT_FRAGMENT: u8 = 0x40;
/// What Linux sends packets with.
const HOPS_MAX: u8 = 64;

/// "Congestion experienced" (RFC 3168, section 5).
const CE: u8 = 3;

fn ipv6(addr: IpAddr) -> Ipv6Addr {
    match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped(),
        IpAddr::V6(addr) => addr,
    }
}

/// Two hosts, the smaller first.
pub(crate) type HostPair = (HostId, HostId);

pub(crate) fn pair(a: HostId, b: HostId) -> HostPair {
    (a.min(b), a.max(b))
}

/// A datagram on its way.
#[derive(Clone)]
pub(crate) struct Datagram {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub ecn: u8,
    pub data: Vec<u8>,
}

impl Datagram {
    /// With the headers of IP and UDP.
    pub fn len_bytes(&self) -> usize {
        self.data.len() + if self.to.is_ipv4() { HEADERS_V4_BYTES } else { HEADERS_V6_BYTES }
    }

    /// With these headers (RFC 791, 8200, 768) and no checksums.
    fn to_ip(&self) -> Vec<u8> {
        let (all, datagram) = (self.len_bytes() as u16, self.data.len() as u16 + UDP_HEADER_BYTES);
        let mut packet = Vec::with_capacity(self.len_bytes());
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                packet.extend([0x45, self.ecn]);
                packet.extend(all.to_be_bytes());
                packet.extend([0, 0, DONT_FRAGMENT, 0, HOPS_MAX, UDP, 0, 0]);
                packet.extend(from.octets());
                packet.extend(to.octets());
            }
            (from, to) => {
                packet.extend([0x60, self.ecn << 4, 0, 0]);
                packet.extend(datagram.to_be_bytes());
                packet.extend([UDP, HOPS_MAX]);
                for addr in [from, to] {
                    packet.extend(ipv6(addr).octets());
                }
            }
        }
        for field in [self.from.port(), self.to.port(), datagram, 0] {
            packet.extend(field.to_be_bytes());
        }
        packet.extend(&self.data);
        packet
    }
}

/// What travels on a wire.
#[derive(Clone)]
pub(crate) enum OnWire {
    /// An IP packet with a segment of TCP.
    Segment {
        to: HostId,
        packet: Vec<u8>,
    },
    Datagram(Datagram),
}

impl OnWire {
    /// The IP packet that it is on a real wire.
    pub fn to_ip(&self) -> Vec<u8> {
        match self {
            OnWire::Segment { packet, .. } => packet.clone(),
            OnWire::Datagram(datagram) => datagram.to_ip(),
        }
    }
}

impl Packet for OnWire {
    fn len_bytes(&self) -> usize {
        match self {
            OnWire::Segment { packet, .. } => packet.len(),
            OnWire::Datagram(datagram) => datagram.len_bytes(),
        }
    }

    /// The kernel drops what its checksum does not fit, so a flipped bit leaves nothing that would be delivered.
    fn flip_bit(&mut self, _: usize) {}

    fn mark_congestion(&mut self) -> bool {
        match self {
            OnWire::Segment { packet, .. } => packet.mark_congestion(),
            OnWire::Datagram(Datagram { ecn: 0, .. }) => false,
            OnWire::Datagram(datagram) => {
                datagram.ecn = CE;
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_has_the_headers_that_its_length_counts() {
        for (from, to, version) in [("10.0.0.1:7", "10.0.0.2:9", 4), ("[fd00::1]:7", "[fd00::2]:9", 6)] {
            let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
            let datagram = Datagram { from, to, ecn: CE, data: b"cell".to_vec() };
            let packet = datagram.to_ip();
            assert_eq!((packet.len(), packet[0] >> 4), (datagram.len_bytes(), version));
            let udp = &packet[packet.len() - 12..];
            assert_eq!(udp, b"\0\x07\0\x09\0\x0c\0\0cell");
            let IpAddr::V4(addr) = to.ip() else { continue };
            assert_eq!((&packet[16..20], packet[1] & CE), (&addr.octets()[..], CE));
        }
    }
}
