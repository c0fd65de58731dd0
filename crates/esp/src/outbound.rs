//! An association towards the peer.

use crate::cipher::{Cipher, aad};
use crate::keys::{Keys, Spi};
use crate::lifetime::{Lifetime, Used};
use crate::packet::{HEADER_LEN, PAYLOAD_LEN_MAX, TRAILER_LEN, sealed_len};
use core::fmt;
use heddle_seam::time::Instant;

/// Why a packet was not sealed. Nothing was written then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealError {
    /// No UDP datagram holds its packet.
    TooLong,
    /// The association's lifetime is over; another one must take its place.
    Expired,
    /// All sequence numbers are used up, and none may come twice (RFC 4303, section 3.3.3).
    Exhausted,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SealError::TooLong => "no packet holds so much",
            SealError::Expired => "the association's lifetime is over",
            SealError::Exhausted => "the association's sequence numbers are used up",
        })
    }
}

impl core::error::Error for SealError {}

/// An association towards the peer: it seals.
pub struct Outbound {
    spi: Spi,
    cipher: Cipher,
    /// The sequence number of the last packet.
    last: u64,
    used: Used,
}

impl Outbound {
    /// `keys` must be this association's alone.
    pub fn new(now: Instant, spi: Spi, keys: &Keys, lifetime: Lifetime) -> Self {
        Outbound { spi, cipher: Cipher::new(keys), last: 0, used: Used::new(now, lifetime) }
    }

    /// Appends the packet of a payload to `out`, [`sealed_len`] bytes. The padding is the shortest there may be.
    ///
    /// The initialization vector is the sequence number, because it must differ for each packet of a key and need not
    /// be secret (RFC 4106, section 3.1).
    ///
    /// # Errors
    /// If the association may seal it no more.
    pub fn seal(
        &mut self,
        now: Instant,
        next_header: u8,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), SealError> {
        if payload.len() > PAYLOAD_LEN_MAX {
            return Err(SealError::TooLong);
        }
        let len = sealed_len(payload.len());
        if !self.used.allows(now, len) {
            return Err(SealError::Expired);
        }
        let sequence = self.last.checked_add(1).ok_or(SealError::Exhausted)?;
        self.last = sequence;
        self.used.count(len);
        let iv = sequence.to_be_bytes();
        out.extend_from_slice(&self.spi.get().to_be_bytes());
        out.extend_from_slice(&iv[4..]);
        out.extend_from_slice(&iv);
        let begin = out.len();
        out.extend_from_slice(payload);
        let pad_len = (payload.len() + TRAILER_LEN).wrapping_neg() % crate::packet::ALIGN;
        // 1, 2, 3, … as RFC 4303 has it by default (section 2.4).
        out.extend_from_slice(&[1, 2, 3][..pad_len]);
        out.extend_from_slice(&[pad_len as u8, next_header]);
        let icv = self.cipher.seal(&iv, &aad(self.spi, sequence), &mut out[begin..]);
        out.extend_from_slice(&icv);
        debug_assert_eq!(out.len() - begin + HEADER_LEN, len);
        Ok(())
    }

    /// Whether another association is due because three quarters of its lifetime are used up.
    pub fn is_short(&self, now: Instant) -> bool {
        self.used.is_short(now)
    }

    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, last: u64) {
        self.last = last;
    }
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbound").field("spi", &self.spi).field("last", &self.last).finish_non_exhaustive()
    }
}
