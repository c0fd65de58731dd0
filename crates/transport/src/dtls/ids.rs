//! The clear head of a datagram, and what may stand behind it.
//!
//! ```text
//!   dialler's first datagrams   token (20 bytes)       DTLS records
//!   all others                  session id (8 bytes)   DTLS records
//! ```
//!
//! Both sides derive the two session ids, one for each direction, from the pair's secrets. So no message carries them
//! and nobody can guess them. An id only says whose the records are: with another id they are another session's, which
//! cannot decrypt them.

use crate::connections::TOKEN_LEN;
use aws_lc_rs::hmac;
use heddle_proto::endpoint::PairSecrets;

/// Bytes of a session id.
pub(crate) const ID_LEN: usize = 8;

/// Names a session to the side that it is sent to.
pub(crate) type SessionId = [u8; ID_LEN];

/// The ids of a pair's session: that of what the dialler sends, and that of what the listener sends.
pub(crate) fn session_ids(secrets: &PairSecrets) -> [SessionId; 2] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &secrets.dialler_proof[..]);
    [&b"id to the listener"[..], b"id to the dialler"].map(|label| {
        let mut id = [0; ID_LEN];
        id.copy_from_slice(&hmac::sign(&key, label).as_ref()[..ID_LEN]);
        id
    })
}

/// The session id that a datagram begins with, and what follows it.
pub(crate) fn split_id(datagram: &[u8]) -> Option<(&SessionId, &[u8])> {
    datagram.split_first_chunk()
}

/// The token that a datagram begins with, if it begins with one, and what follows it.
pub(crate) fn split_token(datagram: &[u8]) -> Option<(&[u8; TOKEN_LEN], &[u8])> {
    datagram.split_first_chunk()
}

/// Which records may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Records {
    /// Encrypted ones, and handshake messages in clear.
    Handshake,
    /// Encrypted ones alone.
    Encrypted,
}

/// Whether dimpl may see these records. Alerts and data in clear are nobody's: whoever forges them could end a
/// handshake, or put data in front of the peer's.
pub(crate) fn may_come(records: Records, mut bytes: &[u8]) -> bool {
    /// The unified header of RFC 9147, section 4, with 16 bits of the number and a length, without a connection id:
    /// what dimpl writes.
    const UNIFIED: u8 = 0b0010_1100;
    const UNIFIED_MASK: u8 = 0b1111_1100;
    const UNIFIED_LEN: usize = 5;
    /// DTLSPlaintext of RFC 9147, section 4, with epoch 0.
    const PLAIN_LEN: usize = 13;
    const HANDSHAKE: u8 = 22;
    if bytes.is_empty() {
        return false;
    }
    while let Some(&first) = bytes.first() {
        let header_len = if first & UNIFIED_MASK == UNIFIED {
            UNIFIED_LEN
        } else if first == HANDSHAKE && records == Records::Handshake {
            PLAIN_LEN
        } else {
            return false;
        };
        let Some((header, rest)) = bytes.split_at_checked(header_len) else {
            return false;
        };
        let len = usize::from(u16::from_be_bytes([header[header_len - 2], header[header_len - 1]]));
        let Some((_, rest)) = rest.split_at_checked(len) else {
            return false;
        };
        bytes = rest;
    }
    true
}

/// Whether these records may be the first of a dialler: a ClientHello stands first (RFC 9147, section 5.2), or a piece
/// of one.
pub(crate) fn is_hello(records: &[u8]) -> bool {
    const RECORD_HEADER_LEN: usize = 13;
    const HANDSHAKE: u8 = 22;
    const CLIENT_HELLO: u8 = 1;
    let is_hello =
        records.first() == Some(&HANDSHAKE) && records.get(RECORD_HEADER_LEN) == Some(&CLIENT_HELLO);
    is_hello && may_come(Records::Handshake, records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zeroize::Zeroizing;

    #[test]
    fn ids_follow_from_the_secrets() {
        let secrets = |number| PairSecrets {
            token: [1; 20],
            dialler_proof: Zeroizing::new([number; 32]),
            listener_proof: Zeroizing::new([7; 32]),
        };
        let [to_listener, to_dialler] = session_ids(&secrets(1));
        assert_ne!(to_listener, to_dialler);
        assert_eq!(session_ids(&secrets(1)), [to_listener, to_dialler]);
        assert_ne!(session_ids(&secrets(2)), [to_listener, to_dialler]);
    }

    #[test]
    fn records_are_told_apart() {
        let unified = [0x2f, 9, 9, 0, 2, 1, 1];
        let plain = |kind| [&[kind, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1][..], &[5]].concat();
        let both = |first: &[u8], second: &[u8]| [first, second].concat();
        for encrypted in [unified.to_vec(), both(&unified, &unified)] {
            assert!(may_come(Records::Encrypted, &encrypted));
            assert!(may_come(Records::Handshake, &encrypted));
        }
        for handshake in [plain(22), both(&unified, &plain(22)), both(&plain(22), &unified)] {
            assert!(may_come(Records::Handshake, &handshake));
            assert!(!may_come(Records::Encrypted, &handshake));
        }
        let bad = [plain(21), plain(23), plain(26), both(&unified, &plain(23)), vec![], vec![0x3f; 40]];
        for forged in bad {
            assert!(!may_come(Records::Handshake, &forged), "{forged:02x?}");
        }
        for len in 0..unified.len() {
            assert!(!may_come(Records::Encrypted, &unified[..len]));
        }
        assert!(!may_come(Records::Encrypted, &both(&unified, &[0x2f, 9, 9, 0, 2, 1])));
    }
}
