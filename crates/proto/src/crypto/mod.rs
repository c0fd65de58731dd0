//! Relay cryptography and circuit handshakes.
//!
//! A client and a relay agree on [`CircuitKeys`] with a handshake ([`onionskin`], over [`fast`],
//! [`ntor`] and [`ntor_v3`]); from then on every relay cell of the circuit passes through a
//! [`tor1`] layer at each hop. No primitive is made here: AES, X25519, HMAC and HKDF come from
//! AWS-LC, SHA-1 and SHA-3 from RustCrypto.

mod curve25519;
mod extensions;
mod fast;
mod kdf;
mod keystream;
mod ntor;
mod ntor_v3;
mod onion_keys;
pub mod onionskin;
mod refusal;
pub mod tor1;

pub use curve25519::NtorKeypair;
pub use onionskin::{
    Answer, ClientHandshake, CongestionOffer, Established, HandshakeType, OnionKeys, OnionskinError, answer,
};
pub use tor1::{CircuitKeys, OriginLayers, Recognized, RelayLayer};

use zeroize::Zeroizing;

/// The parts of a secret hash input, one after the other. The lengths must add up to `N`.
fn concat<const N: usize>(parts: &[&[u8]]) -> Zeroizing<[u8; N]> {
    let mut whole = Zeroizing::new([0; N]);
    let mut rest = &mut whole[..];
    for part in parts {
        let (here, behind) = rest.split_at_mut(part.len());
        here.copy_from_slice(part);
        rest = behind;
    }
    assert!(rest.is_empty(), "the parts fill their array exactly");
    whole
}
