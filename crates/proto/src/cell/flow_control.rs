//! Flow control messages: SENDME (tor-spec, "SENDME Cell Format"), XON and XOFF (proposal 324).

use core::num::NonZeroU32;

use super::read::{Malformed, Reader};

/// Bytes of the digest in an authenticated SENDME.
pub(crate) const SENDME_DIGEST_LEN: usize = 20;

/// SENDME: more may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sendme {
    /// Version 0 and stream-level SENDMEs say nothing else.
    Unauthenticated,
    /// Version 1 proves that the cells it acknowledges were received: the running digest of the
    /// last of them.
    Authenticated([u8; SENDME_DIGEST_LEN]),
}

impl Sendme {
    pub fn parse(data: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(data);
        if reader.is_empty() {
            return Ok(Sendme::Unauthenticated);
        }
        match reader.u8()? {
            0 => Ok(Sendme::Unauthenticated),
            1 => match reader.counted()?.try_into() {
                Ok(digest) => Ok(Sendme::Authenticated(digest)),
                Err(_) => Err(Malformed::Invalid("SENDME has a digest of the wrong length")),
            },
            _ => Err(Malformed::Invalid("SENDME has an unknown version")),
        }
    }

    /// Version 0 is sent without a body, as stock relays do.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if let Sendme::Authenticated(digest) = self {
            out.extend_from_slice(&[1, 0, SENDME_DIGEST_LEN as u8]);
            out.extend_from_slice(digest);
        }
    }
}

/// XON: the stream's sender may go on, at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xon {
    /// Thousands of bytes per second that the receiver drains; `None` is no limit.
    pub kbytes_per_s: Option<NonZeroU32>,
}

impl Xon {
    pub fn parse(data: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(data);
        if reader.u8()? != 0 {
            return Err(Malformed::Invalid("XON has an unknown version"));
        }
        Ok(Xon { kbytes_per_s: NonZeroU32::new(reader.u32()?) })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(0);
        out.extend_from_slice(&self.kbytes_per_s.map_or(0, NonZeroU32::get).to_be_bytes());
    }
}

/// XOFF: the stream's sender has to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xoff;

impl Xoff {
    pub fn parse(data: &[u8]) -> Result<Self, Malformed> {
        match Reader::new(data).u8()? {
            0 => Ok(Xoff),
            _ => Err(Malformed::Invalid("XOFF has an unknown version")),
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(0);
    }
}
