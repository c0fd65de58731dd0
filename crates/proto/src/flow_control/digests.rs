//! The digests of cells that await an authenticated SENDME (tor-spec, "SENDME cell format").

use super::Violation;
use std::collections::VecDeque;
use subtle::ConstantTimeEq;

/// What a SENDME must carry to acknowledge a cell: 20 bytes of the running digest with the tor1
/// relay crypto, a 16-byte tag with Counter Galois Onion.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    bytes: [u8; 20],
    len: u8,
}

impl Tag {
    /// The tag's bytes, as they stand in the SENDME.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl From<[u8; 20]> for Tag {
    fn from(bytes: [u8; 20]) -> Self {
        Tag { bytes, len: 20 }
    }
}

impl From<[u8; 16]> for Tag {
    fn from(short: [u8; 16]) -> Self {
        let mut bytes = [0; 20];
        bytes[..16].copy_from_slice(&short);
        Tag { bytes, len: 16 }
    }
}

impl core::fmt::Debug for Tag {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Tag(..)")
    }
}

/// The queue of tags to expect, oldest first.
///
/// It holds at most the `pending_max` of the circuit's flow control, at 21 bytes each: 10 tags
/// with the old windows, and what the largest congestion window allows with Vegas.
#[derive(Debug)]
pub struct Digests {
    tags: VecDeque<Tag>,
    max: usize,
}

impl Digests {
    /// An empty queue for at most `max` tags.
    pub fn new(max: usize) -> Self {
        Digests { tags: VecDeque::new(), max }
    }

    /// Remembers the tag of a cell that the far end will acknowledge.
    ///
    /// A full queue forgets the new tag rather than grow, so the circuit ends with a violation
    /// when it is acknowledged. Only a sender that ignores its own window comes here.
    pub fn expect(&mut self, tag: impl Into<Tag>) {
        if self.tags.len() < self.max {
            self.tags.push_back(tag.into());
        }
    }

    /// Takes the oldest tag off the queue and compares it with that of a version 1 SENDME, in a
    /// time that depends on the lengths alone.
    pub fn check(&mut self, tag: &[u8]) -> Result<(), Violation> {
        let expected = self.tags.pop_front().ok_or(Violation::UnexpectedSendme)?;
        match bool::from(expected.as_bytes().ct_eq(tag)) {
            true => Ok(()),
            false => Err(Violation::WrongDigest),
        }
    }

    /// Takes the oldest tag off the queue for a version 0 SENDME, which names none. Only right
    /// while the consensus parameter `sendme_accept_min_version` is zero.
    pub fn check_version_0(&mut self) -> Result<(), Violation> {
        let oldest = self.tags.pop_front();
        oldest.map(|_| ()).ok_or(Violation::UnexpectedSendme)
    }

    /// Tags that await their SENDME.
    pub fn len(&self) -> usize {
        self.tags.len()
    }

    /// Whether no SENDME is awaited.
    pub fn is_empty(&self) -> bool {
        self.tags.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_checked_in_the_order_they_were_sent() {
        let mut digests = Digests::new(10);
        digests.expect([1; 20]);
        digests.expect([2; 20]);
        assert_eq!(digests.check(&[1; 20]), Ok(()));
        assert_eq!(digests.check(&[3; 20]), Err(Violation::WrongDigest));
        assert_eq!(digests.check(&[2; 20]), Err(Violation::UnexpectedSendme));
    }

    #[test]
    fn a_tag_of_the_wrong_length_is_wrong() {
        let mut digests = Digests::new(10);
        for wrong in [&[][..], &[0; 16], &[0; 19], &[0; 21]] {
            digests.expect([0; 20]);
            assert_eq!(digests.check(wrong), Err(Violation::WrongDigest));
        }
        digests.expect([7; 16]);
        assert_eq!(digests.check(&[7; 16]), Ok(()));
        digests.expect([0; 16]);
        assert_eq!(digests.check(&[0; 20]), Err(Violation::WrongDigest));
        assert!(digests.is_empty());
    }

    #[test]
    fn version_0_still_needs_a_cell_to_acknowledge() {
        let mut digests = Digests::new(10);
        assert_eq!(digests.check_version_0(), Err(Violation::UnexpectedSendme));
        digests.expect([1; 20]);
        assert_eq!(digests.check_version_0(), Ok(()));
    }

    #[test]
    fn the_queue_never_grows_beyond_its_bound() {
        let mut digests = Digests::new(2);
        for byte in 0..100 {
            digests.expect([byte; 20]);
        }
        assert_eq!(digests.len(), 2);
    }
}
