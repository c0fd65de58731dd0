//! Records of the connection itself, beside those with segments of flows. Their first byte has its lowest bit set,
//! which no segment's has.
//!
//! ```text
//!   PROOF   01   proof (100)   zeros
//!   SEEN    03   bytes of the datagram that a proof or a probe came in (2)
//!   PING    05   number (4)
//!   PONG    07   number (4)
//!   CLOSE   09   0: done, 1: a fault
//!   PROBE   0d   zeros
//!   (0b and 0f begin records of segments, see `ecn.rs` and `stamped.rs`)
//! ```
//!
//! - The proof is that of `proof.rs`; in it the sides stand by their certificates' fingerprints.
//! - A probe asks whether datagrams of its length come, and SEEN answers it as it answers a proof.
//! - A proof is as long as the longest datagram that is to be sent, so the path is known to carry that when it is seen.
//!   It is repeated, shorter after two tries, until it is.

use crate::connections::proof::{KEY_LEN, PROOF_LEN, Proof, Proofs};

const PROOF: u8 = 1;
const SEEN: u8 = 3;
const PING: u8 = 5;
const PONG: u8 = 7;
const CLOSE: u8 = 9;
const PROBE: u8 = 13;

/// A record of the connection itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control<'a> {
    Proof(Proof<'a>),
    Seen { datagram_bytes: u16 },
    Ping { number: u32 },
    Pong { number: u32 },
    Close { is_fault: bool },
    Probe,
}

/// Whether a record is the connection's own and no segments.
pub(crate) fn is_control(contents: &[u8]) -> bool {
    contents.first().is_some_and(|first| first & 1 == 1)
}

/// Reads a record; `None` for what no peer sends.
pub(crate) fn parse(contents: &[u8]) -> Option<Control<'_>> {
    let (&kind, rest) = contents.split_first()?;
    let number = || <[u8; 4]>::try_from(rest).ok().map(u32::from_be_bytes);
    match kind {
        PROOF => Proof::split(rest).map(|(proof, _)| Control::Proof(proof)),
        SEEN => {
            let bytes = <[u8; 2]>::try_from(rest).ok()?;
            Some(Control::Seen { datagram_bytes: u16::from_be_bytes(bytes) })
        }
        PING => Some(Control::Ping { number: number()? }),
        PONG => Some(Control::Pong { number: number()? }),
        PROBE => Some(Control::Probe),
        CLOSE => match rest {
            [code @ (0 | 1)] => Some(Control::Close { is_fault: *code == 1 }),
            _ => None,
        },
        _ => None,
    }
}

/// Our proof to a peer with this certificate, filled up to `bytes`.
pub(crate) fn proof(
    proofs: &Proofs,
    their_fingerprint: &[u8; KEY_LEN],
    flows_max: u32,
    bytes: usize,
) -> Vec<u8> {
    let mut record = Vec::with_capacity(bytes.max(1 + PROOF_LEN));
    record.push(PROOF);
    proofs.write(their_fingerprint, flows_max, &mut record);
    record.resize(bytes.max(record.len()), 0);
    record
}

pub(crate) fn seen(datagram_bytes: u16) -> Vec<u8> {
    [&[SEEN][..], &datagram_bytes.to_be_bytes()].concat()
}

pub(crate) fn ping(number: u32) -> Vec<u8> {
    [&[PING][..], &number.to_be_bytes()].concat()
}

pub(crate) fn pong(number: u32) -> Vec<u8> {
    [&[PONG][..], &number.to_be_bytes()].concat()
}

pub(crate) fn probe(bytes: usize) -> Vec<u8> {
    let mut record = vec![0; bytes.max(1)];
    record[0] = PROBE;
    record
}

pub(crate) fn close(is_fault: bool) -> Vec<u8> {
    vec![CLOSE, u8::from(is_fault)]
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::connections::proof::{OfferKey, Protocol};
    use heddle_proto::channel::Role;
    use zeroize::Zeroizing;

    #[test]
    fn a_proof_is_filled_up_and_may_be_as_long_as_a_datagram() {
        let our_key = OfferKey::new(Protocol { transport: "a", version: 1 }, &Zeroizing::new([1; KEY_LEN]))
            .expect("every seed makes one");
        let proofs = Proofs {
            role: Role::Initiator,
            peer_key: our_key.public(),
            our_key,
            shown: [1; KEY_LEN],
            secrets: [2, 3].map(|secret| Zeroizing::new([secret; KEY_LEN])),
            connection: Zeroizing::default(),
        };
        let [long, short] = [1300, 0].map(|bytes| proof(&proofs, &[4; KEY_LEN], 7, bytes));
        assert_eq!((long.len(), short.len()), (1300, 1 + PROOF_LEN));
        assert_eq!(parse(&long), parse(&short));
        assert!(matches!(parse(&short), Some(Control::Proof(Proof { flows_max: 7, .. }))));
    }

    #[test]
    fn records_come_back_and_nonsense_does_not() {
        assert_eq!(parse(&seen(1452)), Some(Control::Seen { datagram_bytes: 1452 }));
        assert_eq!(parse(&ping(5)), Some(Control::Ping { number: 5 }));
        assert_eq!(parse(&pong(6)), Some(Control::Pong { number: 6 }));
        assert_eq!(parse(&close(true)), Some(Control::Close { is_fault: true }));
        assert_eq!((parse(&probe(1300)), probe(1300).len()), (Some(Control::Probe), 1300));
        for record in [seen(1), ping(1), pong(1), close(false)] {
            assert!(is_control(&record));
            assert_eq!(parse(&[&record[..], &[0]].concat()), None);
            for len in 0..record.len() {
                assert_eq!(parse(&record[..len]), None);
            }
        }
        assert_eq!(parse(&[PROOF; PROOF_LEN]), None);
        assert_eq!(parse(&[11, 0]), None);
        assert!(!is_control(&[0xc0, 1]) && !is_control(&[]));
    }
}
