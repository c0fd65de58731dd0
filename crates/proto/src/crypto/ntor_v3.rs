//! The ntor-v3 handshake, which carries an encrypted message each way (tor-spec, "The ntor-v3
//! handshake", and proposal 332).
//!
//! ```text
//! client → relay:  ID | B | X | MSG | MAC    Ed25519 identity, onion key, ephemeral key,
//!                                            encrypted message, MAC
//! relay → client:  Y | AUTH | MSG            ephemeral key, MAC, encrypted message
//! ENC_K1 | MAC_K1 = KDF_msgkdf(X·b | ID | X | B | PROTOID | ENCAP(VER))
//! MAC = MAC_msgmac(MAC_K1, ID | B | X | MSG)
//! secret_input = X·y | X·b | ID | B | X | Y | PROTOID | ENCAP(VER)
//! AUTH = H_auth(H_verify(secret_input) | ID | B | Y | X | MAC | ENCAP(MSG) | PROTOID | "Server")
//! ENC_KEY | keys = KDF_final(H_key_seed(secret_input))
//! ```
//!
//! `H` is SHA3-256, `KDF` SHAKE-256, encryption AES-256-CTR; `ENCAP(s)` is `s` behind its length in
//! eight bytes, and every hash starts with an encapsulated tweak.

use aws_lc_rs::cipher::{AES_256, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::iv::FixedLength;
use sha3::digest::{ExtendableOutput, Update, XofReader};
use sha3::{Digest, Sha3_256, Shake256, Shake256Reader};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::onion_keys::OnionKeys;
use super::refusal::{OnionskinError, ReplyError};
use super::{CircuitKeys, NtorKeypair};

/// The verification string of circuit extension.
pub(super) const CIRCUIT_EXTEND: &[u8] = b"circuit extend";

const PROTOID: &[u8] = b"ntor3-curve25519-sha3_256-1";
const T_MSGKDF: &[u8] = b"ntor3-curve25519-sha3_256-1:kdf_phase1";
const T_MSGMAC: &[u8] = b"ntor3-curve25519-sha3_256-1:msg_mac";
const T_KEY_SEED: &[u8] = b"ntor3-curve25519-sha3_256-1:key_seed";
const T_VERIFY: &[u8] = b"ntor3-curve25519-sha3_256-1:verify";
const T_FINAL: &[u8] = b"ntor3-curve25519-sha3_256-1:kdf_final";
const T_AUTH: &[u8] = b"ntor3-curve25519-sha3_256-1:auth_final";
const SERVER: &[u8] = b"Server";

const KEY_LEN: usize = 32;
const MAC_LEN: usize = 32;
/// Bytes of an onionskin around its message.
const ONIONSKIN_OVERHEAD: usize = 3 * KEY_LEN + MAC_LEN;

/// The relay's side, once the client's message is known to be authentic and the reply is due.
pub(super) struct Relay<'a> {
    /// The client's message.
    pub(super) message: Vec<u8>,
    id: &'a [u8; KEY_LEN],
    onion_key: &'a NtorKeypair,
    x: [u8; KEY_LEN],
    xb: Zeroizing<[u8; KEY_LEN]>,
    mac: [u8; MAC_LEN],
    verification: &'a [u8],
}

impl<'a> Relay<'a> {
    pub(super) fn open(
        keys: &'a OnionKeys,
        onionskin: &[u8],
        verification: &'a [u8],
    ) -> Result<Self, OnionskinError> {
        let message_len = onionskin.len().checked_sub(ONIONSKIN_OVERHEAD).ok_or(OnionskinError::Length)?;
        let (id, rest) = onionskin.split_at(KEY_LEN);
        let (onion_key, rest) = rest.split_at(KEY_LEN);
        let (x, rest) = rest.split_first_chunk().ok_or(OnionskinError::Length)?;
        let (encrypted, mac) = rest.split_at(message_len);
        let mac: [u8; MAC_LEN] = mac.try_into().map_err(|_| OnionskinError::Length)?;
        if !bool::from(id.ct_eq(&keys.ed25519_id)) {
            return Err(OnionskinError::UnknownKey);
        }
        let onion_key = keys.find_ntor(onion_key).ok_or(OnionskinError::UnknownKey)?;

        let xb = onion_key.agree(x).ok_or(OnionskinError::WeakPoint)?;
        let first = Phase1::derive(&xb, &keys.ed25519_id, onion_key.public(), x, verification);
        if !bool::from(first.mac(encrypted).ct_eq(&mac)) {
            return Err(OnionskinError::Authentication);
        }
        Ok(Relay {
            message: first.apply(encrypted),
            id: &keys.ed25519_id,
            onion_key,
            x: *x,
            xb,
            mac,
            verification,
        })
    }

    /// The reply that carries `message`, and the stream of key material.
    pub(super) fn reply(
        &self,
        message: &[u8],
        ephemeral: &NtorKeypair,
    ) -> Result<(Vec<u8>, KeyMaterial), OnionskinError> {
        let transcript = Transcript {
            xy: &*ephemeral.agree(&self.x).ok_or(OnionskinError::WeakPoint)?,
            xb: &self.xb,
            id: self.id,
            b: self.onion_key.public(),
            x: &self.x,
            y: ephemeral.public(),
            mac: &self.mac,
            verification: self.verification,
        };
        let secrets = transcript.derive();
        let encrypted = apply_aes_256(&secrets.enc_key, message);
        let auth = transcript.auth(&secrets, &encrypted);
        let reply = [ephemeral.public(), &auth[..], &encrypted].concat();
        Ok((reply, secrets.material))
    }
}

/// The client's side, waiting for the reply.
pub(super) struct Client {
    id: [u8; KEY_LEN],
    onion_key: [u8; KEY_LEN],
    ephemeral: NtorKeypair,
    xb: Zeroizing<[u8; KEY_LEN]>,
    mac: [u8; MAC_LEN],
}

impl Client {
    /// The state for a relay with that Ed25519 identity and onion key, and the onionskin that
    /// carries `message`. `None` when the onion key is of small order.
    pub(super) fn start(
        id: &[u8; KEY_LEN],
        onion_key: &[u8; KEY_LEN],
        message: &[u8],
        verification: &[u8],
        ephemeral: NtorKeypair,
    ) -> Option<(Self, Vec<u8>)> {
        let xb = ephemeral.agree(onion_key)?;
        let first = Phase1::derive(&xb, id, onion_key, ephemeral.public(), verification);
        let encrypted = first.apply(message);
        let mac = first.mac(&encrypted);
        let onionskin = [&id[..], onion_key, ephemeral.public(), &encrypted, &mac].concat();
        let client = Client { id: *id, onion_key: *onion_key, ephemeral, xb, mac };
        Some((client, onionskin))
    }

    /// The relay's message, and the stream of key material.
    pub(super) fn finish(
        self,
        reply: &[u8],
        verification: &[u8],
    ) -> Result<(Vec<u8>, KeyMaterial), ReplyError> {
        let (y, rest) = reply.split_first_chunk().ok_or(ReplyError::Length)?;
        let (auth, encrypted) = rest.split_at_checked(MAC_LEN).ok_or(ReplyError::Length)?;
        let transcript = Transcript {
            xy: &*self.ephemeral.agree(y).ok_or(ReplyError::WeakPoint)?,
            xb: &self.xb,
            id: &self.id,
            b: &self.onion_key,
            x: self.ephemeral.public(),
            y,
            mac: &self.mac,
            verification,
        };
        let secrets = transcript.derive();
        if !bool::from(transcript.auth(&secrets, encrypted).ct_eq(auth)) {
            return Err(ReplyError::Authentication);
        }
        let message = apply_aes_256(&secrets.enc_key, encrypted);
        Ok((message, secrets.material))
    }
}

/// The key material behind the relay's encryption key.
pub(super) struct KeyMaterial(Shake256Reader);

impl KeyMaterial {
    /// The keys of a circuit, which are the first bytes.
    pub(super) fn circuit_keys(mut self) -> CircuitKeys {
        let mut material = Zeroizing::new([0; CircuitKeys::LEN]);
        self.0.read(&mut material[..]);
        CircuitKeys::from_bytes(&material)
    }
}

/// What protects the client's message, before the relay has said anything.
struct Phase1 {
    enc_key: Zeroizing<[u8; KEY_LEN]>,
    /// The MAC up to the encrypted message.
    mac: Sha3_256,
}

impl Phase1 {
    fn derive(
        xb: &[u8; KEY_LEN],
        id: &[u8; KEY_LEN],
        b: &[u8; KEY_LEN],
        x: &[u8; KEY_LEN],
        verification: &[u8],
    ) -> Self {
        let mut kdf = Shake256::default();
        encap(&mut kdf, T_MSGKDF);
        for part in [xb, id, x, b, PROTOID] {
            kdf.update(part);
        }
        encap(&mut kdf, verification);
        let mut stream = kdf.finalize_xof();
        let mut enc_key = Zeroizing::new([0; KEY_LEN]);
        let mut mac_key = Zeroizing::new([0; MAC_LEN]);
        stream.read(&mut enc_key[..]);
        stream.read(&mut mac_key[..]);

        let mut mac = Sha3_256::default();
        encap(&mut mac, T_MSGMAC);
        encap(&mut mac, &mac_key[..]);
        for part in [id, b, x] {
            Update::update(&mut mac, part);
        }
        Phase1 { enc_key, mac }
    }

    fn mac(&self, encrypted: &[u8]) -> [u8; MAC_LEN] {
        self.mac.clone().chain(encrypted).finalize().into()
    }

    fn apply(&self, message: &[u8]) -> Vec<u8> {
        apply_aes_256(&self.enc_key, message)
    }
}

/// What both ends know at the end, by the specification's names.
struct Transcript<'a> {
    xy: &'a [u8; KEY_LEN],
    xb: &'a [u8; KEY_LEN],
    id: &'a [u8; KEY_LEN],
    b: &'a [u8; KEY_LEN],
    x: &'a [u8; KEY_LEN],
    y: &'a [u8; KEY_LEN],
    /// The MAC of the client's message.
    mac: &'a [u8; MAC_LEN],
    verification: &'a [u8],
}

struct Secrets {
    verify: Zeroizing<[u8; 32]>,
    enc_key: Zeroizing<[u8; KEY_LEN]>,
    material: KeyMaterial,
}

impl Transcript<'_> {
    fn derive(&self) -> Secrets {
        let key_seed = self.hash_secret_input(T_KEY_SEED);
        let mut kdf = Shake256::default();
        encap(&mut kdf, T_FINAL);
        kdf.update(&key_seed[..]);
        let mut material = kdf.finalize_xof();
        let mut enc_key = Zeroizing::new([0; KEY_LEN]);
        material.read(&mut enc_key[..]);
        Secrets { verify: self.hash_secret_input(T_VERIFY), enc_key, material: KeyMaterial(material) }
    }

    fn hash_secret_input(&self, tweak: &[u8]) -> Zeroizing<[u8; 32]> {
        let Transcript { xy, xb, id, b, x, y, .. } = self;
        let mut hash = Sha3_256::default();
        encap(&mut hash, tweak);
        for part in [&xy[..], &xb[..], &id[..], &b[..], &x[..], &y[..], PROTOID] {
            Update::update(&mut hash, part);
        }
        encap(&mut hash, self.verification);
        Zeroizing::new(hash.finalize().into())
    }

    fn auth(&self, secrets: &Secrets, encrypted: &[u8]) -> [u8; MAC_LEN] {
        let Transcript { id, b, x, y, mac, .. } = self;
        let mut hash = Sha3_256::default();
        encap(&mut hash, T_AUTH);
        for part in [&secrets.verify[..], &id[..], &b[..], &y[..], &x[..], &mac[..]] {
            Update::update(&mut hash, part);
        }
        encap(&mut hash, encrypted);
        hash.chain(PROTOID).chain(SERVER).finalize().into()
    }
}

/// Feeds `ENCAP(bytes)`.
fn encap(hash: &mut impl Update, bytes: &[u8]) {
    hash.update(&(bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}

/// AES-256-CTR from counter zero, which both encrypts and decrypts; each key is used once.
fn apply_aes_256(key: &[u8; KEY_LEN], message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    let counter = EncryptionContext::Iv128(FixedLength::from([0; 16]));
    UnboundCipherKey::new(&AES_256, key)
        .and_then(EncryptingKey::ctr)
        .and_then(|key| key.less_safe_encrypt(&mut message, counter))
        .expect("AES-256 takes any key of 32 bytes and counter mode any message");
    message
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
    fn vector_of_proposal_332() {
        let b = unhex("4051daa5921cfa2a1c27b08451324919538e79e788a81b38cbed097a5dff454a");
        let x = unhex("b825a3719147bcbe5fb1d0b0fcb9c09e51948048e2e3283d2ab7b45b5ef38b49");
        let y = unhex("4865a5b7689dafd978f529291c7171bc159be076b92186405d13220b80e2a053");
        let id = unhex("9fad2af287ef942632833d21f946c6260c33fae6172b60006e86e4a6911753a2");
        let mut keys = relay_keys(&mut Seed::from_number(6).rng());
        keys.ed25519_id = id;
        keys.ntor_current = NtorKeypair::from_secret(&b);
        let verification = b"xyzzy";

        let onion_key = keys.ntor_current.public();
        let ephemeral = NtorKeypair::from_secret(&x);
        let (client, onionskin) =
            Client::start(&id, onion_key, b"hello world", verification, ephemeral).unwrap();
        assert_eq!(
            hex::encode(&onionskin),
            "9fad2af287ef942632833d21f946c6260c33fae6172b60006e86e4a6911753a2\
             f8307a2bc1870b00b828bb74dbb8fd88e632a6375ab3bcd1ae706aaa8b6cdd1d\
             252fe9ae91264c91d4ecb8501f79d0387e34ad8ca0f7c995184f7d11d5da4f46\
             3bebd9151fd3b47c180abc\
             9e044d53565f04d82bbb3bebed3d06cea65db8be9c72b68cd461942088502f67"
        );

        let relay = Relay::open(&keys, &onionskin, verification).unwrap();
        assert_eq!(relay.message, b"hello world");
        let ephemeral = NtorKeypair::from_secret(&y);
        let (reply, relay) = relay.reply(b"Hola Mundo", &ephemeral).unwrap();
        assert_eq!(
            hex::encode(&reply),
            "4bf4814326fdab45ad5184f5518bd7fae25dc59374062698201a50a22954246d\
             2fc5f8773ca824542bc6cf6f57c7c29bbf4e5476461ab130c5b18ab0a9127665\
             1202c3e1e87c0d32054c"
        );
        let (message, client) = client.finish(&reply, verification).unwrap();
        assert_eq!(message, b"Hola Mundo");

        let expected = CircuitKeys::from_bytes(&unhex(
            "9c19b631fd94ed86a817e01f6c80b0743a43f5faebd39cfaa8b00fa8bcc65c3bfeaa403d91acbd68\
             a821bf6ee8504602b094a254392a07737d5662768c7a9fb1b2814bb34780eaee6e867c773e28c212\
             ead563e98a1cd5d5b4576f5e",
        ));
        assert!(relay.circuit_keys() == expected);
        assert!(client.circuit_keys() == expected);
    }

    #[test]
    fn the_verification_string_is_bound() {
        let mut rng = Seed::from_number(7).rng();
        let keys = relay_keys(&mut rng);
        let ephemeral = NtorKeypair::generate(&mut rng);
        let onion_key = keys.ntor_current.public();
        let (_, onionskin) = Client::start(&keys.ed25519_id, onion_key, b"", b"one", ephemeral).unwrap();
        assert_eq!(Relay::open(&keys, &onionskin, b"two").err(), Some(OnionskinError::Authentication));
    }
}
