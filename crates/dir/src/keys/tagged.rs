//! Stock Tor's tagged key files: 32 bytes of header, `== type: tag ==` padded with zeros, and
//! then the key. The format is in no specification; it was read from files that stock Tor wrote.

use zeroize::Zeroizing;

const HEADER_LENGTH: usize = 32;

/// What a tagged file holds: the two names in its header and the length of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tagged {
    /// The type of key, `ed25519v1-secret` for instance.
    pub kind: &'static str,
    /// What the key is for, `type0` for instance.
    pub tag: &'static str,
    /// The least and the greatest length of the body, in bytes.
    pub body_length: (usize, usize),
}

impl Tagged {
    /// The body of `file`, or `None` when its header or its length is not what is expected.
    pub fn parse<'a>(&self, file: &'a [u8]) -> Option<&'a [u8]> {
        let (header, body) = file.split_at_checked(HEADER_LENGTH)?;
        let (least, greatest) = self.body_length;
        (header == self.header() && (least..=greatest).contains(&body.len())).then_some(body)
    }

    /// The whole file around `body`.
    pub fn encode(&self, body: &[u8]) -> Zeroizing<Vec<u8>> {
        let mut file = Zeroizing::new(Vec::with_capacity(HEADER_LENGTH + body.len()));
        file.extend_from_slice(&self.header());
        file.extend_from_slice(body);
        file
    }

    /// The longest file that can be one of these, in bytes.
    pub(crate) fn file_bytes_max(&self) -> usize {
        HEADER_LENGTH + self.body_length.1
    }

    fn header(&self) -> [u8; HEADER_LENGTH] {
        let text = format!("== {}: {} ==", self.kind, self.tag);
        let mut header = [0; HEADER_LENGTH];
        header[..text.len()].copy_from_slice(text.as_bytes());
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECRET: Tagged = Tagged { kind: "ed25519v1-secret", tag: "type0", body_length: (64, 64) };

    #[test]
    fn the_header_is_stock_tors() {
        let file = SECRET.encode(&[7; 64]);
        assert_eq!(&file[..29], b"== ed25519v1-secret: type0 ==");
        assert_eq!(file[29..32], [0; 3]);
        assert_eq!(SECRET.parse(&file), Some(&[7_u8; 64][..]));
    }

    #[test]
    fn another_type_tag_or_length_is_refused() {
        let file = SECRET.encode(&[7; 64]);
        let other = Tagged { tag: "type4", ..SECRET };
        assert_eq!(other.parse(&file), None);
        assert_eq!(SECRET.parse(&file[..95]), None);
        assert_eq!(SECRET.parse(&[&file[..], &[0]].concat()), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = SECRET.parse(&bytes);
        }
    }
}
