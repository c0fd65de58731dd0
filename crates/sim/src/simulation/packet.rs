//! What travels between hosts.

use super::HostId;
use core::net::SocketAddr;
use heddle_netem::Packet;
use heddle_utcp::wire::emit_datagram;
use std::borrow::Cow;

/// IP and UDP headers, which a wire's MTU counts.
const HEADERS_V4_BYTES: usize = 28;
const HEADERS_V6_BYTES: usize = 48;

/// "Congestion experienced" (RFC 3168, section 5).
const CE: u8 = 3;

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
    /// It as it would be on a real wire, beginning with its IP header.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        match self {
            OnWire::Segment { packet, .. } => Cow::Borrowed(packet),
            OnWire::Datagram(Datagram { from, to, ecn, data }) => {
                let mut packet = Vec::with_capacity(HEADERS_V6_BYTES + data.len());
                emit_datagram(*from, *to, *ecn, data, &mut packet);
                Cow::Owned(packet)
            }
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
