//! Packets of QUIC that are copied, with headers in clear.

use crate::{TAG, TAG_LEN, opened_len};
use rustls::Error;
use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::quic::{Algorithm, HeaderProtectionKey, PacketKey, Tag};

/// Takes as many bytes of key as the real one, and changes it as often.
pub(crate) struct NullQuic {
    pub real: &'static dyn Algorithm,
}

impl Algorithm for NullQuic {
    fn packet_key(&self, key: AeadKey, iv: Iv) -> Box<dyn PacketKey> {
        let real = self.real.packet_key(key, iv);
        Box::new(NullPackets {
            confidentiality_limit: real.confidentiality_limit(),
            integrity_limit: real.integrity_limit(),
        })
    }

    fn header_protection_key(&self, key: AeadKey) -> Box<dyn HeaderProtectionKey> {
        Box::new(NullHeaders { sample_len: self.real.header_protection_key(key).sample_len() })
    }

    fn aead_key_len(&self) -> usize {
        self.real.aead_key_len()
    }
}

struct NullPackets {
    confidentiality_limit: u64,
    integrity_limit: u64,
}

impl PacketKey for NullPackets {
    fn encrypt_in_place(&self, _number: u64, _header: &[u8], _payload: &mut [u8]) -> Result<Tag, Error> {
        Ok(Tag::from(&TAG[..]))
    }

    fn decrypt_in_place<'a>(
        &self,
        _number: u64,
        _header: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], Error> {
        let len = opened_len(payload).ok_or(Error::DecryptError)?;
        Ok(&payload[..len])
    }

    fn tag_len(&self) -> usize {
        TAG_LEN
    }

    fn confidentiality_limit(&self) -> u64 {
        self.confidentiality_limit
    }

    fn integrity_limit(&self) -> u64 {
        self.integrity_limit
    }
}

struct NullHeaders {
    sample_len: usize,
}

impl HeaderProtectionKey for NullHeaders {
    fn encrypt_in_place(&self, _sample: &[u8], _first: &mut u8, _number: &mut [u8]) -> Result<(), Error> {
        Ok(())
    }

    fn decrypt_in_place(&self, _sample: &[u8], _first: &mut u8, _number: &mut [u8]) -> Result<(), Error> {
        Ok(())
    }

    fn sample_len(&self) -> usize {
        self.sample_len
    }
}
