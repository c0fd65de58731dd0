//! What the two ends say to each other beside cells.
//!
//! Messages of the control stream, a TCP connection inside that the dialler opens:
//!
//! ```text
//!   PROOF  01  MAC (32)  signature (64)  flows (4)            the first one each way
//!   END    02  whose (1)  number (4)  reason (1)
//!   ROOM   03  flows (4)
//! ```
//!
//! - The MAC is HMAC-SHA-256 under the pair's proof of the sender's role, over the keys of both offers, the dialler's
//!   first, and what the connection's secrets say it is. The signature is that of the sender's key over the same.
//! - `flows` is how many flows the reader may have open at once, of those it opens.
//! - END says that a flow was reset, and why: 0 is a flow that the reader opened, 1 one that the writer did. The reset
//!   itself, which may overtake it or be lost, says no reason.
//! - ROOM says anew how many flows the reader may have open, zero while the writer is out of sockets. Those that are
//!   open stay.
//!
//! Packets of ESP whose next header is 253 (for experiments: RFC 3692):
//!
//! ```text
//!   PING   01  number (4)
//!   PONG   02  number (4)
//!   CLOSE  03
//! ```

use crate::dtls::key::{KEY_LEN, OurKey, SIGNATURE_LEN, is_signed};
use aws_lc_rs::hmac;
use heddle_proto::channel::Role;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// The next header of messages in packets.
pub(super) const MESSAGE: u8 = 253;

const PROOF: u8 = 1;
const END: u8 = 2;
const ROOM: u8 = 3;
const PING: u8 = 1;
const PONG: u8 = 2;
const CLOSE: u8 = 3;

const MAC_LEN: usize = 32;
const PROOF_LEN: usize = 1 + MAC_LEN + SIGNATURE_LEN + 4;
const END_LEN: usize = 7;
const ROOM_LEN: usize = 5;

/// A message of the control stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control<'a> {
    Proof(Proof<'a>),
    End { is_readers: bool, number: u32, reason: u8 },
    Room { flows_max: u32 },
}

/// What a peer says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proof<'a> {
    mac: &'a [u8; MAC_LEN],
    signature: &'a [u8; SIGNATURE_LEN],
    pub(super) flows_max: u32,
}

/// No peer says this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nonsense;

/// The first message and its length; `None` while it is not all here.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Control<'_>, usize)>, Nonsense> {
    let len = match bytes.first() {
        None => return Ok(None),
        Some(&PROOF) => PROOF_LEN,
        Some(&END) => END_LEN,
        Some(&ROOM) => ROOM_LEN,
        Some(_) => return Err(Nonsense),
    };
    let Some(message) = bytes.get(1..len) else { return Ok(None) };
    let control = match bytes[0] {
        PROOF => proof(message),
        END => end(message),
        _ => message.try_into().ok().map(|max| Control::Room { flows_max: u32::from_be_bytes(max) }),
    };
    control.map(|control| Some((control, len))).ok_or(Nonsense)
}

fn proof(message: &[u8]) -> Option<Control<'_>> {
    let (mac, rest) = message.split_first_chunk()?;
    let (signature, rest) = rest.split_first_chunk()?;
    let flows_max = u32::from_be_bytes(rest.try_into().ok()?);
    Some(Control::Proof(Proof { mac, signature, flows_max }))
}

fn end(message: &[u8]) -> Option<Control<'_>> {
    let (&[whose], rest) = message.split_first_chunk()?;
    let (number, reason) = rest.split_first_chunk()?;
    let is_readers = match whose {
        0 => true,
        1 => false,
        _ => return None,
    };
    Some(Control::End { is_readers, number: u32::from_be_bytes(*number), reason: *reason.first()? })
}

/// Bytes of an END.
pub(super) const END_BYTES: usize = 7;

pub(super) fn write_end(is_ours: bool, number: u32, reason: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(&[END, u8::from(is_ours)]);
    out.extend_from_slice(&number.to_be_bytes());
    out.push(reason);
}

pub(super) fn write_room(flows_max: u32, out: &mut Vec<u8>) {
    out.push(ROOM);
    out.extend_from_slice(&flows_max.to_be_bytes());
}

/// A message in a packet of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Ping(u32),
    Pong(u32),
    Close,
}

impl Message {
    /// `None` for what no peer says.
    pub(super) fn parse(payload: &[u8]) -> Option<Self> {
        let (&kind, rest) = payload.split_first()?;
        let number = || rest.try_into().ok().map(u32::from_be_bytes);
        match kind {
            PING => number().map(Message::Ping),
            PONG => number().map(Message::Pong),
            CLOSE if rest.is_empty() => Some(Message::Close),
            _ => None,
        }
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        let (kind, number) = match self {
            Message::Ping(number) => (PING, Some(number)),
            Message::Pong(number) => (PONG, Some(number)),
            Message::Close => (CLOSE, None),
        };
        let number = number.map(u32::to_be_bytes);
        [&[kind][..], number.as_ref().map_or(&[], |number| &number[..])].concat()
    }
}

/// What both proofs of a connection are about, and with what they are made.
pub(super) struct Proofs {
    pub(super) role: Role,
    pub(super) our_key: OurKey,
    /// The key of the peer's offer.
    pub(super) peer_key: [u8; KEY_LEN],
    /// Keys of the MACs: the dialler's and the listener's.
    pub(super) secrets: [Zeroizing<[u8; KEY_LEN]>; 2],
    /// What the connection's secrets say it is.
    pub(super) binding: Zeroizing<[u8; KEY_LEN]>,
}

impl Proofs {
    pub(super) fn write(&self, flows_max: u32, out: &mut Vec<u8>) {
        let subject = self.subject(self.role);
        out.push(PROOF);
        out.extend_from_slice(&mac(self.secret(self.role), &subject));
        out.extend_from_slice(&self.our_key.sign(&subject));
        out.extend_from_slice(&flows_max.to_be_bytes());
    }

    /// Whether the peer is whom the channel vouched for.
    pub(super) fn is_right(&self, proof: &Proof<'_>) -> bool {
        let prover = self.role.other();
        let subject = self.subject(prover);
        let has_secret = bool::from(mac(self.secret(prover), &subject).ct_eq(&proof.mac[..]));
        has_secret && is_signed(&self.peer_key, &subject, proof.signature)
    }

    fn secret(&self, prover: Role) -> &Zeroizing<[u8; KEY_LEN]> {
        &self.secrets[usize::from(prover == Role::Responder)]
    }

    /// What `prover` speaks about.
    fn subject(&self, prover: Role) -> Zeroizing<Vec<u8>> {
        let label: &[u8] = if prover == Role::Initiator { b"dialler" } else { b"listener" };
        let ours = self.our_key.public();
        let [dialler, listener] = match self.role {
            Role::Initiator => [&ours, &self.peer_key],
            Role::Responder => [&self.peer_key, &ours],
        };
        Zeroizing::new([b"heddle tcp-esp 1 ", label, dialler, listener, &self.binding[..]].concat())
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

    fn key(number: u8) -> OurKey {
        OurKey::new(crate::tcp_esp::PROTOCOL, &Zeroizing::new([number; KEY_LEN]))
            .expect("every seed makes one")
    }

    fn proofs(role: Role, ours: u8, theirs: u8, [secrets, binding]: [u8; 2]) -> Proofs {
        let of = |number| Zeroizing::new([number; KEY_LEN]);
        let (our_key, peer_key) = (key(ours), key(theirs).public());
        Proofs { role, our_key, peer_key, secrets: [of(secrets), of(secrets + 1)], binding: of(binding) }
    }

    fn is_right(of: &Proofs, bytes: &[u8]) -> bool {
        let Ok(Some((Control::Proof(proof), PROOF_LEN))) = parse(bytes) else { panic!("a proof") };
        of.is_right(&proof)
    }

    #[test]
    fn each_side_believes_the_others_proof_and_no_other() {
        let dialler = proofs(Role::Initiator, 1, 2, [8, 5]);
        let listener = proofs(Role::Responder, 2, 1, [8, 5]);
        let written = |of: &Proofs| {
            let mut bytes = Vec::new();
            of.write(7, &mut bytes);
            bytes
        };
        let from_dialler = written(&dialler);
        assert!(is_right(&listener, &from_dialler) && is_right(&dialler, &written(&listener)));
        assert!(!is_right(&dialler, &from_dialler), "reflected");
        // Another key, other secrets, another connection.
        for other in [(3, [8, 5]), (1, [7, 5]), (1, [8, 6])] {
            assert!(!is_right(&listener, &written(&proofs(Role::Initiator, other.0, 2, other.1))));
        }
        for bit in (8..8 * (1 + MAC_LEN + SIGNATURE_LEN)).step_by(31) {
            let mut bent = from_dialler.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_right(&listener, &bent), "bit {bit}");
        }
    }

    #[test]
    fn messages_come_back_and_nonsense_does_not() {
        let mut bytes = Vec::new();
        write_end(true, 77, 5, &mut bytes);
        let end = Control::End { is_readers: false, number: 77, reason: 5 };
        assert_eq!(parse(&bytes), Ok(Some((end, END_LEN))));
        assert!((0..END_LEN).all(|len| parse(&bytes[..len]) == Ok(None)));
        bytes[1] = 2;
        assert_eq!((parse(&bytes), parse(&[9])), (Err(Nonsense), Err(Nonsense)));
        for message in [Message::Ping(5), Message::Pong(u32::MAX), Message::Close] {
            let bytes = message.to_bytes();
            assert_eq!(Message::parse(&bytes), Some(message));
            assert_eq!(Message::parse(&[&bytes[..], &[0]].concat()), None);
            assert_eq!(Message::parse(&bytes[..bytes.len() - 1]), None);
        }
    }
}
