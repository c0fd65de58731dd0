//! A packet and what travels with it.

use heddle_seam::time::Instant;

/// What the driver sends: opaque, but with a length and with bits that a wire may flip.
pub trait Packet: Clone {
    /// The length on the wire in bytes, without framing. It must not change while the packet is inside.
    fn len_bytes(&self) -> usize;

    /// Flips bit `bit`, which is below eight times the length. A packet without contents may mark itself instead.
    fn flip_bit(&mut self, bit: usize);

    /// Marks it as having met congestion (CE), if it says that its ends understand that (ECT, RFC 3168 section 5).
    /// Whether it is marked now. Packets without such a field need not provide this: they never are.
    fn mark_congestion(&mut self) -> bool {
        false
    }
}

impl Packet for Vec<u8> {
    fn len_bytes(&self) -> usize {
        self.len()
    }

    fn flip_bit(&mut self, bit: usize) {
        if let Some(byte) = self.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }

    /// Takes the bytes for an IP packet.
    fn mark_congestion(&mut self) -> bool {
        match self.first().map(|byte| byte >> 4) {
            Some(4) if self.len() >= 20 => mark_ipv4(self),
            Some(6) if self.len() >= 40 => mark_ipv6(self),
            _ => false,
        }
    }
}

/// Both bits of the field set (RFC 3168, section 5).
const CE: u8 = 3;

/// The field is in the last two bits of the second byte; the header's checksum follows the change (RFC 1624, equation
/// 3).
fn mark_ipv4(packet: &mut [u8]) -> bool {
    let before = u16::from_be_bytes([packet[0], packet[1]]);
    if packet[1] & CE == 0 {
        return false;
    }
    packet[1] |= CE;
    let after = u16::from_be_bytes([packet[0], packet[1]]);
    let sum =
        u32::from(!u16::from_be_bytes([packet[10], packet[11]])) + u32::from(!before) + u32::from(after);
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    packet[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    true
}

/// The field is in the middle of the second byte: the traffic class begins four bits into the packet (RFC 8200, section
/// 3).
fn mark_ipv6(packet: &mut [u8]) -> bool {
    let can_be_marked = packet[1] >> 4 & CE != 0;
    if can_be_marked {
        packet[1] |= CE << 4;
    }
    can_be_marked
}

/// A host of a topology, by its place among the options' hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// A packet inside the topology.
#[derive(Clone, Debug)]
pub(crate) struct Transit<P> {
    pub packet: P,
    /// Its length without framing.
    pub len_bytes: u64,
    pub from: HostId,
    pub to: HostId,
    /// The direction that it takes, by its place in the topology.
    pub direction: u32,
    pub sent: Instant,
    /// How long it waited in queues so far.
    pub queued_ns: u64,
    /// The offset to the delay that was drawn for it.
    pub jitter_ns: i64,
    /// How long it is held back to be overtaken.
    pub hold_ns: u64,
    pub corrupted: bool,
    pub copy: bool,
}

/// A packet that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<P> {
    /// When it arrived.
    pub at: Instant,
    /// When it was sent.
    pub sent: Instant,
    pub from: HostId,
    pub to: HostId,
    /// How long it waited in queues, of the at most three that it met.
    pub queued_ns: u64,
    /// Whether a bit of it was flipped.
    pub corrupted: bool,
    /// Whether it is a copy that a wire made.
    pub copy: bool,
    pub packet: P,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of all words of a header with a good checksum (RFC 1071).
    fn sum(header: &[u8]) -> u32 {
        let sum: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
        (sum & 0xffff) + (sum >> 16)
    }

    #[test]
    fn ipv4_packets_are_marked_and_keep_a_good_checksum() {
        for field in 0..4 {
            for id in [0, 0x1234, 0xffff, 0xb861] {
                let mut packet: Vec<u8> =
                    vec![0x45, 0xb8 | field, 0, 20, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
                packet[4..6].copy_from_slice(&u16::to_be_bytes(id));
                let checksum = !(sum(&packet) as u16);
                packet[10..12].copy_from_slice(&checksum.to_be_bytes());
                assert_eq!(packet.mark_congestion(), field != 0);
                assert_eq!(packet[1], if field == 0 { 0xb8 } else { 0xbb });
                assert_eq!(sum(&packet), 0xffff, "{field} {id}");
            }
        }
    }

    #[test]
    fn ipv6_packets_are_marked_and_others_are_not() {
        for (before, after) in
            [(0x00, None), (0x10, Some(0x30)), (0x2f, Some(0x3f)), (0x30, Some(0x30)), (0xc5, None)]
        {
            let mut packet = vec![0u8; 40];
            (packet[0], packet[1]) = (0x6e, before);
            assert_eq!(packet.mark_congestion(), after.is_some());
            assert_eq!((packet[0], packet[1]), (0x6e, after.unwrap_or(before)));
        }
        for other in [vec![], vec![0x45, 3], vec![0x60, 0x30], vec![0xff; 60]] {
            assert!(!other.clone().mark_congestion());
        }
    }
}
