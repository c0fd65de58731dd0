//! The messages inside an ntor-v3 handshake: lists of extensions (tor-spec, "ntor-v3", and
//! proposals 324 and 346).
//!
//! ```text
//! N_EXTENSIONS           1 byte
//! N_EXTENSIONS times:
//!     EXT_FIELD_TYPE     1 byte
//!     EXT_FIELD_LEN      1 byte
//!     EXT_FIELD          EXT_FIELD_LEN bytes
//! ```

/// The client asks for congestion control; the body is empty.
pub(super) const CC_FIELD_REQUEST: u8 = 1;
/// The relay agrees to congestion control; the body is its `cc_sendme_inc`, one byte.
pub(super) const CC_FIELD_RESPONSE: u8 = 2;
/// The client asks for subprotocol capabilities: pairs of protocol and capability, one byte each.
pub(super) const SUBPROTOCOL_REQUEST: u8 = 3;

/// A list that is not well formed. "All parties MUST reject" such messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// A well-formed list, borrowed from the message it came in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Extensions<'a>(Vec<(u8, &'a [u8])>);

impl<'a> Extensions<'a> {
    /// Reads a message of at most 255 extensions; bytes behind the last one are an error.
    pub(super) fn decode(message: &'a [u8]) -> Result<Self, Malformed> {
        let (&count, mut rest) = message.split_first().ok_or(Malformed)?;
        let mut list = Vec::new();
        for _ in 0..count {
            let (&[kind, len], behind) = rest.split_first_chunk().ok_or(Malformed)?;
            let (body, behind) = behind.split_at_checked(usize::from(len)).ok_or(Malformed)?;
            list.push((kind, body));
            rest = behind;
        }
        rest.is_empty().then_some(Extensions(list)).ok_or(Malformed)
    }

    /// The body of the first extension of type `kind`: parties ignore all later ones, and those
    /// of types they do not know.
    pub(super) fn first(&self, kind: u8) -> Option<&'a [u8]> {
        let (_, body) = self.0.iter().find(|(other, _)| *other == kind)?;
        Some(body)
    }
}

/// The message of no extension, or of one whose body is shorter than 256 bytes.
pub(super) fn encode(extension: Option<(u8, &[u8])>) -> Vec<u8> {
    let Some((kind, body)) = extension else {
        return vec![0];
    };
    let len = u8::try_from(body.len()).expect("extension bodies are shorter than 256 bytes");
    let mut message = vec![1, kind, len];
    message.extend_from_slice(body);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_of_a_kind_counts_and_unknown_ones_are_kept_apart() {
        let message = [4, 1, 0, 200, 3, 9, 9, 9, 1, 1, 7, 3, 2, 2, 6];
        let list = Extensions::decode(&message).unwrap();
        assert_eq!(list.first(CC_FIELD_REQUEST), Some(&[][..]));
        assert_eq!(list.first(SUBPROTOCOL_REQUEST), Some(&[2, 6][..]));
        assert_eq!(list.first(CC_FIELD_RESPONSE), None);
    }

    #[test]
    fn malformed_lists_are_rejected() {
        let malformed: [&[u8]; 7] = [&[], &[1], &[1, 1], &[1, 1, 1], &[2, 1, 0], &[0, 0], &[1, 1, 0, 0]];
        for message in malformed {
            assert_eq!(Extensions::decode(message), Err(Malformed), "{message:?}");
        }
    }

    #[test]
    fn what_is_encoded_decodes() {
        assert_eq!(encode(None), [0]);
        assert_eq!(encode(Some((1, &[]))), [1, 1, 0]);
        let long = [5; 255];
        let message = encode(Some((9, &long)));
        assert_eq!(Extensions::decode(&message).unwrap().first(9), Some(&long[..]));
    }
}
