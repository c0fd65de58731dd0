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
        // Two words that follow each other have the same sum as the number that they are, but for multiples of 0xffff
        // (RFC 1071, section 2), so eight bytes go at once.
        let (eights, rest) = bytes.as_chunks::<8>();
        let sum = eights.iter().map(|eight| u128::from(u64::from_be_bytes(*eight))).sum::<u128>();
        let folded = (sum & 0xffff_ffff) + (sum >> 32 & 0xffff_ffff) + (sum >> 64);
        // At most 2⁵⁸, where there are no more than 2⁶⁰ bytes.
        self.0 += folded as u64;
        let (words, rest) = rest.as_chunks::<2>();
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

    /// Word for word, as the RFC has it.
    #[test]
    fn eight_bytes_at_once_have_the_sum_of_their_words() {
        for len in 0..70 {
            for fill in [0x00, 0x01, 0x7f, 0xff] {
                let bytes: Vec<u8> =
                    (0..len).map(|place| if place % 3 == 0 { fill } else { 255 - place }).collect();
                let words = bytes.chunks(2);
                let words =
                    words.map(|word| u64::from(word[0]) << 8 | word.get(1).map_or(0, |low| u64::from(*low)));
                assert_eq!(Sum::default().add(&bytes).finish(), Sum(words.sum()).finish(), "{bytes:?}");
            }
        }
    }

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::default().add(&bytes).finish(), !0xddf2);
        assert_eq!(Sum::default().add(&bytes).add(&(!0xddf2u16).to_be_bytes()).finish(), 0);
    }
}
