//! Records of a handshake on their way to a responder's rustls, one by one, because some wait for a turn.
//!
//! rustls signs while it reads the record that ends a ClientHello (RFC 8446, section 4.4.3; RFC 5246, section 7.4.3),
//! the first or, after a HelloRetryRequest, the second. So each record of the handshake in clear that ends a message
//! takes a turn, and then goes to a worker.

use super::signatures::{Signatures, Turn};
use core::net::SocketAddr;
use core::ops::RangeInclusive;
use heddle_proto::channel::ChannelError;
use heddle_seam::time::Instant;

const HEADER_LEN: usize = 5;
const MESSAGE_HEADER_LEN: usize = 4;
const CONTENT_TYPE_HANDSHAKE: u8 = 22;
/// From change_cipher_spec to application_data.
const CONTENT_TYPES: RangeInclusive<u8> = 20..=23;
/// The high byte of the version in every record.
const VERSION_MAJOR: u8 = 3;
/// The longest record in TLS 1.2, which takes more than TLS 1.3 (RFC 5246, section 6.2.3).
const RECORD_LEN_MAX: usize = HEADER_LEN + (1 << 14) + 2_048;

/// Nobody goes on without our answer.
pub(super) const EARLY: ChannelError =
    ChannelError::PeerMisbehaved("more bytes before our answer to a ClientHello");

pub(super) struct HelloGate {
    signatures: Signatures,
    peer: SocketAddr,
    /// A record as far as it came: at most [`RECORD_LEN_MAX`] bytes.
    record: Vec<u8>,
    /// For what the record waits, and when to ask again.
    turn: Option<(Turn, Instant)>,
    /// Whether a worker has the record.
    is_signing: bool,
    /// What the records before have brought of a message of the handshake.
    message: Message,
}

/// A message of the handshake that comes in records cut anywhere (RFC 8446, section 4: a type, and a length of three
/// bytes).
#[derive(Clone, Copy, Default)]
struct Message {
    header: [u8; MESSAGE_HEADER_LEN],
    header_len: usize,
    /// Bytes to come after the header, once that is here.
    missing_len: usize,
}

impl Message {
    /// Takes what a record brings; returns whether a message ends in it.
    fn receive(&mut self, mut payload: &[u8]) -> bool {
        let mut ends = false;
        while !payload.is_empty() {
            let taken = match MESSAGE_HEADER_LEN - self.header_len {
                0 => self.missing_len.min(payload.len()),
                missing => missing.min(payload.len()),
            };
            if self.header_len == MESSAGE_HEADER_LEN {
                self.missing_len -= taken;
            } else {
                self.header[self.header_len..][..taken].copy_from_slice(&payload[..taken]);
                self.header_len += taken;
                let [_, high, middle, low] = self.header;
                self.missing_len = u32::from_be_bytes([0, high, middle, low]) as usize;
            }
            payload = &payload[taken..];
            if self.header_len == MESSAGE_HEADER_LEN && self.missing_len == 0 {
                *self = Message::default();
                ends = true;
            }
        }
        ends
    }
}

/// A record that may go on.
pub(super) enum Passed {
    Read(Vec<u8>),
    /// rustls may sign while it reads this one.
    Sign(Vec<u8>),
}

impl HelloGate {
    pub(super) fn new(signatures: Signatures, peer: SocketAddr) -> Self {
        HelloGate {
            signatures,
            peer,
            record: Vec::new(),
            turn: None,
            is_signing: false,
            message: Message::default(),
        }
    }

    /// Takes bytes up to the end of the record, at least one; returns how many. Fails while the record before is not
    /// answered, because nobody goes on without our answer.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Result<usize, ChannelError> {
        if self.turn.is_some() || self.is_signing {
            return Err(EARLY);
        }
        let missing = self.record_len().unwrap_or(HEADER_LEN) - self.record.len();
        let taken = missing.min(bytes.len());
        self.record.extend_from_slice(&bytes[..taken]);
        if let [content_type, major, _, _, _, ..] = self.record[..]
            && !(CONTENT_TYPES.contains(&content_type) && major == VERSION_MAJOR)
        {
            // What is in place of its length says nothing, so it would be waited for in vain.
            return Err(ChannelError::PeerMisbehaved("no record of TLS"));
        }
        if self.record_len().is_some_and(|len| len > RECORD_LEN_MAX) {
            return Err(ChannelError::PeerMisbehaved("a record is too long"));
        }
        Ok(taken)
    }

    /// The record, once it is whole and has had its turn if it takes one.
    pub(super) fn poll_record(&mut self, now: Instant, is_signed: bool) -> Option<Passed> {
        if self.record_len() != Some(self.record.len()) {
            return None;
        }
        let mut message = self.message;
        let is_of_handshake = self.record[0] == CONTENT_TYPE_HANDSHAKE;
        let signs = is_of_handshake && message.receive(&self.record[HEADER_LEN..]) && !is_signed;
        if signs {
            let turn = self.turn.take().map_or_else(|| self.signatures.join(self.peer), |(turn, _)| turn);
            if let Err(retry_at) = turn.poll(now) {
                self.turn = Some((turn, retry_at));
                return None;
            }
        }
        self.message = message;
        self.is_signing = signs;
        let record = core::mem::take(&mut self.record);
        Some(if signs { Passed::Sign(record) } else { Passed::Read(record) })
    }

    /// A worker has read the record.
    pub(super) fn on_signed(&mut self) {
        self.is_signing = false;
    }

    /// When to poll again though nothing came.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.turn.as_ref().map(|(_, at)| *at)
    }

    /// The length of the record with its header, once that is here.
    fn record_len(&self) -> Option<usize> {
        let header = self.record.get(..HEADER_LEN)?;
        Some(HEADER_LEN + usize::from(u16::from_be_bytes([header[3], header[4]])))
    }
}
