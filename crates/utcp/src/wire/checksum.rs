//! The Internet checksum (RFC 1071).

use core::net::IpAddr;

/// The protocol numbers of TCP and UDP.
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;

/// A sum of 16-bit words, not yet folded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum(u64);

impl Sum {
    /// Adds bytes, the last one padded with a zero. Only the last piece may be of odd length.
    pub(super) fn add(mut self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<2>();
        self.0 += words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>();
        if let [last] = rest {
            self.0 += u64::from(*last) << 8;
        }
        self
    }

    /// Adds the pseudo header of a protocol's segment of `len` bytes (RFC 9293, section 3.1; RFC 768).
    pub(super) fn add_pseudo(self, source: IpAddr, destination: IpAddr, protocol: u8, len: usize) -> Self {
        let sum = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                self.add(&source.octets()).add(&destination.octets())
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                self.add(&source.octets()).add(&destination.octets())
            }
            _ => self,
        };
        Sum(sum.0 + u64::from(protocol) + len as u64)
    }

    /// The checksum: zero over data that holds its own.
    pub(super) fn finish(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::default().add(&bytes).finish(), !0xddf2);
        assert_eq!(Sum::default().add(&bytes).add(&(!0xddf2u16).to_be_bytes()).finish(), 0);
    }
}
