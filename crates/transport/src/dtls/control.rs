//! Records of the connection itself, beside those with segments of flows. Their first byte has its lowest bit set,
//! which no segment's has.
//!
//! ```text
//!   PROOF   01   MAC (32)   signature (64)   flows (4)   zeros
//!   SEEN    03   bytes of the datagram that a proof or a probe came in (2)
//!   PING    05   number (4)
//!   PONG    07   number (4)
//!   CLOSE   09   0: done, 1: a fault
//!   PROBE   0d   zeros
//!   (0b and 0f begin records of segments, see `ecn.rs` and `stamped.rs`)
//! ```
//!
//! - The MAC is HMAC-SHA-256 under the pair's proof of the sender's role, over the transport's name and both
//!   certificates' fingerprints, the dialler's first. Whoever stands in the middle of DTLS has another certificate on
//!   either side, and no key to say so.
//! - The signature is that of the key in the sender's offer, over the same.
//! - `flows` is how many flows the reader may have open at once, of those it opens.
//! - A probe asks whether datagrams of its length come, and SEEN answers it as it answers a proof.
//! - A proof is as long as the longest datagram that is to be sent, so the path is known to carry that when it is seen.
//!   It is repeated, shorter after two tries, until it is.

use super::Protocol;
use super::key::{self, KEY_LEN, OurKey, SIGNATURE_LEN};
use aws_lc_rs::hmac;
use heddle_proto::channel::Role;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

const PROOF: u8 = 1;
const SEEN: u8 = 3;
const PING: u8 = 5;
const PONG: u8 = 7;
const CLOSE: u8 = 9;
const PROBE: u8 = 13;

/// Bytes of a MAC.
const MAC_LEN: usize = 32;
/// Bytes of a proof before its zeros.
const PROOF_LEN: usize = 1 + MAC_LEN + SIGNATURE_LEN + 4;

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

/// What a peer says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proof<'a> {
    mac: &'a [u8; MAC_LEN],
    signature: &'a [u8; SIGNATURE_LEN],
    pub(crate) flows_max: u32,
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
        PROOF => {
            let (mac, rest) = rest.split_first_chunk()?;
            let (signature, rest) = rest.split_first_chunk()?;
            let (flows, _) = rest.split_first_chunk()?;
            Some(Control::Proof(Proof { mac, signature, flows_max: u32::from_be_bytes(*flows) }))
        }
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

/// What both proofs of a connection are about.
pub(crate) struct Proofs {
    role: Role,
    /// Keys of the MACs, from the TLS channel's exporter: ours and the peer's.
    our_secret: Zeroizing<[u8; KEY_LEN]>,
    their_secret: Zeroizing<[u8; KEY_LEN]>,
    /// The key of the peer's offer.
    peer_key: [u8; KEY_LEN],
    our_key: OurKey,
}

impl Proofs {
    pub(crate) fn new(
        role: Role,
        our_key: OurKey,
        peer_key: [u8; KEY_LEN],
        secrets: [Zeroizing<[u8; KEY_LEN]>; 2],
    ) -> Self {
        let [our_secret, their_secret] = secrets;
        Proofs { role, our_secret, their_secret, peer_key, our_key }
    }

    /// Our proof to a peer with this certificate, filled up to `bytes`.
    pub(crate) fn write(&self, their_fingerprint: &[u8; KEY_LEN], flows_max: u32, bytes: usize) -> Vec<u8> {
        let subject = self.subject(self.role, their_fingerprint);
        let mut record = Vec::with_capacity(bytes.max(PROOF_LEN));
        record.push(PROOF);
        record.extend_from_slice(&mac(&self.our_secret, &subject));
        record.extend_from_slice(&self.our_key.sign(&subject));
        record.extend_from_slice(&flows_max.to_be_bytes());
        record.resize(bytes.max(PROOF_LEN), 0);
        record
    }

    /// Whether the peer with this certificate is whom the channel vouched for.
    pub(crate) fn is_right(&self, their_fingerprint: &[u8; KEY_LEN], proof: &Proof<'_>) -> bool {
        let subject = self.subject(self.role.other(), their_fingerprint);
        let has_secret = bool::from(mac(&self.their_secret, &subject).ct_eq(&proof.mac[..]));
        has_secret && key::is_signed(&self.peer_key, &subject, proof.signature)
    }

    /// What `prover` speaks about.
    fn subject(&self, prover: Role, their_fingerprint: &[u8; KEY_LEN]) -> Vec<u8> {
        let label: &[u8] = if prover == Role::Initiator { b"dialler" } else { b"listener" };
        let ours = self.our_key.fingerprint();
        let [dialler, listener] = match self.role {
            Role::Initiator => [&ours, their_fingerprint],
            Role::Responder => [their_fingerprint, &ours],
        };
        let Protocol { transport, version } = self.our_key.protocol();
        [format!("heddle {transport} {version} ").as_bytes(), label, dialler, listener].concat()
    }
}

fn mac(secret: &Zeroizing<[u8; KEY_LEN]>, subject: &[u8]) -> [u8; MAC_LEN] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret[..]), subject);
    let mut bytes = [0; MAC_LEN];
    bytes.copy_from_slice(tag.as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOCOL: Protocol = Protocol { transport: "tcp-dtls", version: 3 };

    fn key_of(protocol: Protocol, number: u8) -> OurKey {
        OurKey::new(protocol, &Zeroizing::new([number; KEY_LEN])).expect("every seed makes one")
    }

    fn key(number: u8) -> OurKey {
        key_of(PROTOCOL, number)
    }

    fn proofs(role: Role, ours: &OurKey, theirs: &OurKey, secrets: [u8; 2]) -> Proofs {
        let secrets = secrets.map(|number| Zeroizing::new([number; KEY_LEN]));
        Proofs::new(role, ours.clone(), theirs.public(), secrets)
    }

    fn proof(record: &[u8]) -> Proof<'_> {
        match parse(record) {
            Some(Control::Proof(proof)) => proof,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_side_believes_the_others_proof_and_no_other() {
        let (dialler_key, listener_key) = (key(1), key(2));
        let dialler = proofs(Role::Initiator, &dialler_key, &listener_key, [8, 9]);
        let listener = proofs(Role::Responder, &listener_key, &dialler_key, [9, 8]);
        let [ours, theirs] = [dialler_key.fingerprint(), listener_key.fingerprint()];
        let from_dialler = dialler.write(&theirs, 7, 1300);
        let from_listener = listener.write(&ours, 8, 0);
        assert_eq!((from_dialler.len(), from_listener.len()), (1300, PROOF_LEN));
        assert!(listener.is_right(&ours, &proof(&from_dialler)));
        assert!(dialler.is_right(&theirs, &proof(&from_listener)));
        assert_eq!(proof(&from_dialler).flows_max, 7);
        // The bytes of the wire format (`docs/reference/tcp-dtls.md`).
        let subject = [&b"heddle tcp-dtls 3 dialler"[..], &ours, &theirs].concat();
        assert_eq!(dialler.subject(Role::Initiator, &theirs), subject);
        // Another certificate, a reflected proof, another secret, another key, another transport.
        assert!(!listener.is_right(&key(3).fingerprint(), &proof(&from_dialler)));
        assert!(!dialler.is_right(&theirs, &proof(&from_dialler)));
        let other_transport = Protocol { transport: "sctp-dtls", ..PROTOCOL };
        let others = [
            proofs(Role::Initiator, &dialler_key, &listener_key, [7, 9]),
            proofs(Role::Initiator, &key(3), &listener_key, [8, 9]),
            proofs(Role::Initiator, &key_of(other_transport, 1), &listener_key, [8, 9]),
        ];
        for other in others {
            let record = other.write(&theirs, 7, 0);
            assert!(!listener.is_right(&ours, &proof(&record)));
        }
        for bit in (8..8 * (1 + MAC_LEN + SIGNATURE_LEN)).step_by(31) {
            let mut bent = from_dialler.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            assert!(!listener.is_right(&ours, &proof(&bent)), "bit {bit}");
        }
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
        assert_eq!(parse(&[PROOF; PROOF_LEN - 1]), None);
        assert_eq!(parse(&[11, 0]), None);
        assert!(!is_control(&[0xc0, 1]) && !is_control(&[]));
    }
}
