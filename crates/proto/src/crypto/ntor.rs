//! The ntor handshake (tor-spec, "The ntor handshake").
//!
//! ```text
//! client → relay:  ID | B | X       RSA identity, onion key, ephemeral key
//! relay → client:  Y | AUTH         ephemeral key, MAC
//! secret_input = X·y | X·b | ID | B | X | Y | PROTOID
//! AUTH = H(H(secret_input, t_verify) | ID | B | Y | X | PROTOID | "Server", t_mac)
//! keys = HKDF(t_key, secret_input, m_expand) = Df | Db | Kf | Kb | KH
//! ```

use aws_lc_rs::hmac;
use subtle::ConstantTimeEq;

use super::kdf::hkdf_sha256;
use super::onion_keys::OnionKeys;
use super::refusal::{OnionskinError, ReplyError};
use super::{CircuitKeys, NtorKeypair, concat};
use heddle_seam::rng::Rng;

const PROTOID: &[u8] = b"ntor-curve25519-sha256-1";
const T_MAC: &[u8] = b"ntor-curve25519-sha256-1:mac";
const T_KEY: &[u8] = b"ntor-curve25519-sha256-1:key_extract";
const T_VERIFY: &[u8] = b"ntor-curve25519-sha256-1:verify";
const M_EXPAND: &[u8] = b"ntor-curve25519-sha256-1:key_expand";
const SERVER: &[u8] = b"Server";

const ID_LEN: usize = 20;
const KEY_LEN: usize = 32;
const ONIONSKIN_LEN: usize = ID_LEN + 2 * KEY_LEN;
const REPLY_LEN: usize = 2 * KEY_LEN;

/// The relay's side.
pub(super) fn answer(
    keys: &OnionKeys,
    onionskin: &[u8],
    rng: &mut Rng,
) -> Result<([u8; REPLY_LEN], CircuitKeys), OnionskinError> {
    answer_with(keys, onionskin, &NtorKeypair::generate(rng))
}

fn answer_with(
    keys: &OnionKeys,
    onionskin: &[u8],
    ephemeral: &NtorKeypair,
) -> Result<([u8; REPLY_LEN], CircuitKeys), OnionskinError> {
    let onionskin: &[u8; ONIONSKIN_LEN] = onionskin.try_into().map_err(|_| OnionskinError::Length)?;
    let (id, public_keys) = onionskin.split_at(ID_LEN);
    let (onion_key, x) = public_keys.split_at(KEY_LEN);
    let x: &[u8; KEY_LEN] = x.try_into().map_err(|_| OnionskinError::Length)?;
    if !bool::from(id.ct_eq(&keys.rsa_id)) {
        return Err(OnionskinError::UnknownKey);
    }
    let onion_key = keys.find_ntor(onion_key).ok_or(OnionskinError::UnknownKey)?;

    let transcript = Transcript {
        xy: &*ephemeral.agree(x).ok_or(OnionskinError::WeakPoint)?,
        xb: &*onion_key.agree(x).ok_or(OnionskinError::WeakPoint)?,
        id: &keys.rsa_id,
        b: onion_key.public(),
        x,
        y: ephemeral.public(),
    };
    let (auth, circuit_keys) = transcript.derive();
    let mut reply = [0; REPLY_LEN];
    reply[..KEY_LEN].copy_from_slice(ephemeral.public());
    reply[KEY_LEN..].copy_from_slice(&auth);
    Ok((reply, circuit_keys))
}

/// The client's side, waiting for the reply.
pub(super) struct Client {
    id: [u8; ID_LEN],
    onion_key: [u8; KEY_LEN],
    ephemeral: NtorKeypair,
}

impl Client {
    /// The state for a relay with that RSA identity and onion key, and the onionskin.
    pub(super) fn start(
        id: &[u8; ID_LEN],
        onion_key: &[u8; KEY_LEN],
        ephemeral: NtorKeypair,
    ) -> (Self, Vec<u8>) {
        let onionskin = [&id[..], onion_key, ephemeral.public()].concat();
        let client = Client { id: *id, onion_key: *onion_key, ephemeral };
        (client, onionskin)
    }

    pub(super) fn finish(self, reply: &[u8]) -> Result<CircuitKeys, ReplyError> {
        let reply: &[u8; REPLY_LEN] = reply.try_into().map_err(|_| ReplyError::Length)?;
        let (y, auth) = reply.split_first_chunk().ok_or(ReplyError::Length)?;
        let agree = |peer| self.ephemeral.agree(peer).ok_or(ReplyError::WeakPoint);
        let transcript = Transcript {
            xy: &*agree(y)?,
            xb: &*agree(&self.onion_key)?,
            id: &self.id,
            b: &self.onion_key,
            x: self.ephemeral.public(),
            y,
        };
        let (expected, circuit_keys) = transcript.derive();
        if !bool::from(expected.ct_eq(auth)) {
            return Err(ReplyError::Authentication);
        }
        Ok(circuit_keys)
    }
}

/// What both ends know at the end, by the specification's names.
struct Transcript<'a> {
    xy: &'a [u8; KEY_LEN],
    xb: &'a [u8; KEY_LEN],
    id: &'a [u8; ID_LEN],
    b: &'a [u8; KEY_LEN],
    x: &'a [u8; KEY_LEN],
    y: &'a [u8; KEY_LEN],
}

impl Transcript<'_> {
    /// `AUTH`, and the circuit's keys.
    fn derive(&self) -> ([u8; 32], CircuitKeys) {
        const SECRET_LEN: usize = 5 * KEY_LEN + ID_LEN + PROTOID.len();
        const AUTH_LEN: usize = 4 * KEY_LEN + ID_LEN + PROTOID.len() + SERVER.len();
        let Transcript { xy, xb, id, b, x, y } = self;

        let secret = concat::<SECRET_LEN>(&[*xy, *xb, *id, *b, *x, *y, PROTOID]);
        let verify = hash(&secret[..], T_VERIFY);
        let auth = concat::<AUTH_LEN>(&[verify.as_ref(), *id, *b, *y, *x, PROTOID, SERVER]);
        let mut mac = [0; 32];
        mac.copy_from_slice(hash(&auth[..], T_MAC).as_ref());
        let material = hkdf_sha256::<{ CircuitKeys::LEN }>(T_KEY, &secret[..], M_EXPAND);
        (mac, CircuitKeys::from_bytes(&material))
    }
}

/// The specification's `H(x, t)`: HMAC-SHA256 of `x` with the tweak `t` as the key.
fn hash(input: &[u8], tweak: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, tweak), input)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::onionskin::tests::relay_keys;
    use heddle_seam::rng::Seed;

    fn unhex<const N: usize>(text: &str) -> [u8; N] {
        hex::decode(text).unwrap().try_into().unwrap()
    }

    #[test]
    fn vector_of_arti() {
        let b = unhex("4820544f4c4420594f5520444f474954204b454550532048415050454e494e47");
        let x = unhex("706f6461792069207075742e2e2e2e2e2e2e2e4a454c4c59206f6e2074686973");
        let y = unhex("70686520737175697272656c2e2e2e2e2e2e2e2e686173206869732067616d65");
        let id = unhex("69546f6c64596f7541626f75745374616972732e");
        let mut keys = relay_keys(&mut Seed::from_number(5).rng());
        keys.rsa_id = id;
        keys.ntor_current = NtorKeypair::from_secret(&b);

        let onion_key = keys.ntor_current.public();
        let (client, onionskin) = Client::start(&id, onion_key, NtorKeypair::from_secret(&x));
        assert_eq!(
            hex::encode(&onionskin),
            "69546f6c64596f7541626f75745374616972732eccbc8541904d18af08753eae967874749e6149f8\
             73de937f57f8fd903a21c471e65dfdbef8b2635837fe2cebc086a8096eae3213e6830dc407516083\
             d412b078"
        );
        let (reply, relay) = answer_with(&keys, &onionskin, &NtorKeypair::from_secret(&y)).unwrap();
        assert_eq!(
            hex::encode(reply),
            "390480a14362761d6aec1fea840f6e9e928fb2adb7b25c670be1045e35133a371cbdf68b89923e1f\
             85e8e18ee6e805ea333fe4849c790ffd2670bd80fec95cc8"
        );
        let client = client.finish(&reply).unwrap();
        assert!(client == relay);

        // The vector ends with Kb, so KH stands in for itself.
        let mut material = hex::decode(
            "0c62dee7f48893370d0ef896758d35729867beef1a5121df80e00f79ed349af39b51cae125719182\
             f19d932a667dae1afbf2e336e6910e7822223e763afad0a13342157969dc6b79",
        )
        .unwrap();
        material.extend_from_slice(client.nonce());
        assert!(client == CircuitKeys::from_bytes(&material.try_into().unwrap()));
    }
}
