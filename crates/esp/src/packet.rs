//! Where things lie in a packet (RFC 4303, section 2; RFC 4106, section 3), and what may come to a UDP port that takes
//! ESP (RFC 3948, section 2).
//!
//! ```text
//!   0  SPI                     4 bytes
//!   4  sequence number, low    4 bytes   the high half is authenticated and not sent
//!   8  initialization vector   8 bytes
//!  16  payload, padding, pad length (1), next header (1)   encrypted, a multiple of 4 bytes
//!      integrity check value  16 bytes
//! ```

use crate::keys::Spi;

/// The next header of an IPv4 packet (tunnel mode).
pub const IPV4: u8 = 4;
/// The next header of a segment of TCP (transport mode and BEET).
pub const TCP: u8 = 6;
/// The next header of a dummy packet, which is dropped (RFC 4303, section 2.6).
pub const DUMMY: u8 = 59;

/// What is in front of the encrypted part.
pub(crate) const HEADER_LEN: usize = 16;
pub(crate) const ICV_LEN: usize = 16;
/// Pad length and next header.
pub(crate) const TRAILER_LEN: usize = 2;
/// What the encrypted part's length is a multiple of.
pub(crate) const ALIGN: usize = 4;
/// An empty payload has two bytes of padding.
const PACKET_LEN_MIN: usize = HEADER_LEN + ALIGN + ICV_LEN;
/// The longest payload of a UDP datagram over IPv4.
const PACKET_LEN_MAX: usize = 65_507;

/// The longest payload that a packet takes, in bytes.
pub(crate) const PAYLOAD_LEN_MAX: usize =
    (PACKET_LEN_MAX - HEADER_LEN - ICV_LEN) / ALIGN * ALIGN - TRAILER_LEN;

/// What keeps a translator's mapping alive and means nothing (RFC 3948, section 2.3).
pub const KEEP_ALIVE: [u8; 1] = [0xff];

/// How long the packet of a payload is, in bytes.
pub const fn sealed_len(payload_len: usize) -> usize {
    HEADER_LEN + (payload_len + TRAILER_LEN).next_multiple_of(ALIGN) + ICV_LEN
}

/// The longest payload whose packet has at most so many bytes; none if no packet is so short.
pub const fn payload_len_max(packet_len: usize) -> Option<usize> {
    if packet_len < PACKET_LEN_MIN {
        return None;
    }
    let payload_len = (packet_len - HEADER_LEN - ICV_LEN) / ALIGN * ALIGN - TRAILER_LEN;
    Some(if payload_len < PAYLOAD_LEN_MAX { payload_len } else { PAYLOAD_LEN_MAX })
}

/// What a datagram is by its first bytes, which anybody can write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// It says that it is a packet of this association, and is as long as one can be.
    Esp(Spi),
    KeepAlive,
    /// Neither: of IKE, with a reserved SPI, or of a length that no packet has.
    Other,
}

/// Tells what a datagram is.
pub fn classify(datagram: &[u8]) -> Arrived {
    if datagram == KEEP_ALIVE {
        return Arrived::KeepAlive;
    }
    let fits =
        (PACKET_LEN_MIN..=PACKET_LEN_MAX).contains(&datagram.len()) && datagram.len().is_multiple_of(ALIGN);
    match datagram.first_chunk().and_then(|spi| Spi::new(u32::from_be_bytes(*spi))) {
        Some(spi) if fits => Arrived::Esp(spi),
        _ => Arrived::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_are_told_apart() {
        let packet = |spi: u32, len: usize| [&spi.to_be_bytes()[..], &vec![7; len - 4]].concat();
        let spi = Spi::new(256).expect("the lowest");
        assert_eq!(classify(&packet(256, 36)), Arrived::Esp(spi));
        assert_eq!(classify(&packet(256, 65_504)), Arrived::Esp(spi));
        assert_eq!(classify(&[0xff]), Arrived::KeepAlive);
        assert_eq!(classify(&packet(0, 40)), Arrived::Other, "IKE's marker");
        assert_eq!(classify(&packet(255, 40)), Arrived::Other, "reserved");
        for other in [&[][..], &[0xfe], &[0xff; 2], &packet(256, 32), &packet(256, 37), &packet(256, 65_508)]
        {
            assert_eq!(classify(other), Arrived::Other, "{} bytes", other.len());
        }
    }

    #[test]
    fn lengths_agree() {
        assert_eq!((payload_len_max(35), payload_len_max(36)), (None, Some(2)));
        for len in 36..3000 {
            let payload = payload_len_max(len).expect("long enough");
            assert!(sealed_len(payload) <= len && sealed_len(payload + 1) > len, "{len}");
        }
        assert!(sealed_len(PAYLOAD_LEN_MAX) <= PACKET_LEN_MAX);
        assert_eq!(payload_len_max(70_000), Some(PAYLOAD_LEN_MAX));
    }
}
