//! The parts of IP packets (RFC 791, 8200, 9293, 768).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use heddle_net::packet::{TCP, UDP, declared_bytes, destination, u16_at, u32_at};

const IPV4_HEADER_BYTES_MIN: usize = 20;
const TCP_HEADER_BYTES_MIN: usize = 20;
const UDP_HEADER_BYTES: usize = 8;

/// A whole segment of TCP, or a datagram of UDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    pub(super) protocol: u8,
    /// Who sent it, and to whom.
    pub(super) ends: [SocketAddr; 2],
    /// What it says of how it is to be treated (RFC 2474), without the bits for congestion.
    pub(super) dscp: u8,
    /// How many routers it may pass still.
    pub(super) hops: u8,
    /// Its length.
    pub(super) bytes: usize,
    /// The number of its first byte, over TCP.
    pub(super) sequence: Option<u32>,
    pub(super) payload: &'a [u8],
}

impl Packet<'_> {
    /// The same for both directions.
    pub(super) fn both_ways(&self) -> [SocketAddr; 2] {
        let [from, to] = self.ends;
        if from < to { [from, to] } else { [to, from] }
    }

    /// What tells its flow, as bytes: whoever sends to a port of its own for each circuit names them by it.
    pub(super) fn tuple(&self) -> Vec<u8> {
        let mut bytes = vec![self.protocol];
        for end in self.ends {
            match end.ip() {
                IpAddr::V4(addr) => bytes.extend(addr.octets()),
                IpAddr::V6(addr) => bytes.extend(addr.octets()),
            }
            bytes.extend(end.port().to_be_bytes());
        }
        bytes
    }
}

/// The parts of a packet; `None` of all that is not whole TCP or UDP, such as ICMP and fragments.
pub(super) fn read(packet: &[u8]) -> Option<Packet<'_>> {
    if declared_bytes(packet) != Some(packet.len()) {
        return None;
    }
    let word = u16_at(packet, 0)?;
    let (protocol, start, class, hops, from) = match packet.first()? >> 4 {
        4 if u16_at(packet, 6)? & 0x3fff == 0 => {
            let from = Ipv4Addr::from(*packet.get(12..16)?.first_chunk::<4>()?);
            let start = 4 * usize::from(packet[0] & 0xf);
            (*packet.get(9)?, start, word as u8, *packet.get(8)?, IpAddr::V4(from))
        }
        6 => {
            let from = Ipv6Addr::from(*packet.get(8..24)?.first_chunk::<16>()?);
            (*packet.get(6)?, 40, (word >> 4) as u8, *packet.get(7)?, IpAddr::V6(from))
        }
        _ => return None,
    };
    let (header, least, sequence) = match protocol {
        TCP => {
            let header = 4 * usize::from(packet.get(start + 12)? >> 4);
            (header, TCP_HEADER_BYTES_MIN, Some(u32_at(packet, start + 4)?))
        }
        UDP => (UDP_HEADER_BYTES, UDP_HEADER_BYTES, None),
        _ => return None,
    };
    // Headers that say that they are shorter than they can be are none.
    if start < IPV4_HEADER_BYTES_MIN || header < least {
        return None;
    }
    let (from_port, to_port) = (u16_at(packet, start)?, u16_at(packet, start + 2)?);
    let ends = [SocketAddr::new(from, from_port), SocketAddr::new(destination(packet)?, to_port)];
    let payload = packet.get(start + header..)?;
    Some(Packet { protocol, ends, dscp: class & 0xfc, hops, bytes: packet.len(), sequence, payload })
}
