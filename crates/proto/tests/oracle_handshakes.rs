//! The handshakes against a second implementation, written from tor-spec over other libraries
//! (dalek's X25519, RustCrypto's HMAC, HKDF and AES) and sharing no code with the crate.

use heddle_proto::crypto::{
    CircuitKeys, ClientHandshake, CongestionOffer, HandshakeType, NtorKeypair, OnionKeys, answer,
};
use heddle_seam::rng::{Rng, Seed};

const OFFER: CongestionOffer = CongestionOffer { sendme_inc: 31 };
const ROUNDS: usize = 30;

fn relay_keys(rng: &mut Rng) -> OnionKeys {
    OnionKeys {
        rsa_id: rng.array(),
        ed25519_id: rng.array(),
        ntor_current: NtorKeypair::generate(rng),
        ntor_previous: None,
    }
}

fn material(bytes: &[u8]) -> CircuitKeys {
    CircuitKeys::from_bytes(bytes[..CircuitKeys::LEN].try_into().unwrap())
}

/// tor-spec, "The ntor handshake".
mod ntor {
    use hkdf::Hkdf;
    use hmac::{Hmac, Mac};
    use sha2::Sha256;
    use x25519_dalek::{PublicKey, StaticSecret};

    const PROTOID: &str = "ntor-curve25519-sha256-1";

    fn h(tweak: &str, input: &[u8]) -> Vec<u8> {
        let mut mac = Hmac::<Sha256>::new_from_slice(tweak.as_bytes()).unwrap();
        mac.update(input);
        mac.finalize().into_bytes().to_vec()
    }

    /// `AUTH` and the key material.
    fn end(xy: &[u8], xb: &[u8], id: &[u8], b: &[u8], x: &[u8], y: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let secret_input = [xy, xb, id, b, x, y, PROTOID.as_bytes()].concat();
        let verify = h(&format!("{PROTOID}:verify"), &secret_input);
        let auth_input = [&verify, id, b, y, x, PROTOID.as_bytes(), b"Server"].concat();
        let auth = h(&format!("{PROTOID}:mac"), &auth_input);
        let salt = format!("{PROTOID}:key_extract");
        let info = format!("{PROTOID}:key_expand");
        let mut keys = vec![0; 92];
        Hkdf::<Sha256>::new(Some(salt.as_bytes()), &secret_input).expand(info.as_bytes(), &mut keys).unwrap();
        (auth, keys)
    }

    pub fn relay(b: [u8; 32], y: [u8; 32], onionskin: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (b, y) = (StaticSecret::from(b), StaticSecret::from(y));
        let x: [u8; 32] = onionskin[52..84].try_into().unwrap();
        let xy = y.diffie_hellman(&PublicKey::from(x));
        let xb = b.diffie_hellman(&PublicKey::from(x));
        let (y_public, b_public) = (PublicKey::from(&y), PublicKey::from(&b));
        let (y, b) = (y_public.as_bytes(), b_public.as_bytes());
        let (auth, keys) = end(xy.as_bytes(), xb.as_bytes(), &onionskin[..20], b, &x, y);
        ([&y[..], &auth].concat(), keys)
    }

    pub fn onionskin(x: [u8; 32], id: &[u8], b: &[u8]) -> Vec<u8> {
        let x = PublicKey::from(&StaticSecret::from(x));
        [id, b, x.as_bytes()].concat()
    }

    /// The key material, if the reply is authentic.
    pub fn client(x: [u8; 32], id: &[u8], b: [u8; 32], reply: &[u8]) -> Option<Vec<u8>> {
        let x = StaticSecret::from(x);
        let y: [u8; 32] = reply[..32].try_into().unwrap();
        let xy = x.diffie_hellman(&PublicKey::from(y));
        let xb = x.diffie_hellman(&PublicKey::from(b));
        let x = PublicKey::from(&x);
        let (auth, keys) = end(xy.as_bytes(), xb.as_bytes(), id, &b, x.as_bytes(), &y);
        (auth == reply[32..]).then_some(keys)
    }
}

/// tor-spec, "The ntor-v3 handshake", for circuit extension.
mod ntor_v3 {
    use aes::Aes256;
    use ctr::Ctr128BE;
    use ctr::cipher::{KeyIvInit, StreamCipher};
    use sha3::digest::{ExtendableOutput, XofReader};
    use sha3::{Digest, Sha3_256, Shake256};
    use x25519_dalek::{PublicKey, StaticSecret};

    const PROTOID: &[u8] = b"ntor3-curve25519-sha3_256-1";
    const VER: &[u8] = b"circuit extend";

    fn encap(bytes: &[u8]) -> Vec<u8> {
        [&(bytes.len() as u64).to_be_bytes(), bytes].concat()
    }

    fn tweak(name: &str) -> Vec<u8> {
        encap(&[PROTOID, b":", name.as_bytes()].concat())
    }

    fn h(name: &str, input: &[u8]) -> Vec<u8> {
        Sha3_256::digest([&tweak(name), input].concat()).to_vec()
    }

    fn kdf(name: &str, input: &[u8], len: usize) -> Vec<u8> {
        let mut shake = Shake256::default();
        sha3::digest::Update::update(&mut shake, &[&tweak(name), input].concat());
        let mut out = vec![0; len];
        shake.finalize_xof().read(&mut out);
        out
    }

    fn crypt(key: &[u8], message: &[u8]) -> Vec<u8> {
        let mut message = message.to_vec();
        let key: [u8; 32] = key.try_into().unwrap();
        Ctr128BE::<Aes256>::new(&key.into(), &[0; 16].into()).apply_keystream(&mut message);
        message
    }

    /// `ENC_K1` and `MAC_K1`.
    fn phase1(bx: &[u8], id: &[u8], b: &[u8], x: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let input = [bx, id, x, b, PROTOID, &encap(VER)].concat();
        let mut enc = kdf("kdf_phase1", &input, 64);
        let mac = enc.split_off(32);
        (enc, mac)
    }

    fn msg_mac(key: &[u8], id: &[u8], b: &[u8], x: &[u8], msg: &[u8]) -> Vec<u8> {
        h("msg_mac", &[&encap(key), id, b, x, msg].concat())
    }

    pub struct Ends<'a> {
        pub id: &'a [u8],
        pub b: [u8; 32],
    }

    impl Ends<'_> {
        /// `verify`, `ENC_KEY` and the key material.
        fn finish(&self, xy: &[u8], xb: &[u8], x: &[u8], y: &[u8]) -> [Vec<u8>; 3] {
            let input = [xy, xb, self.id, &self.b, x, y, PROTOID, &encap(VER)].concat();
            let mut enc = kdf("kdf_final", &h("key_seed", &input), 32 + 92);
            let keys = enc.split_off(32);
            [h("verify", &input), enc, keys]
        }

        fn auth(&self, verify: &[u8], x: &[u8], y: &[u8], mac: &[u8], msg: &[u8]) -> Vec<u8> {
            let msg = encap(msg);
            let parts = [verify, self.id, &self.b, y, x, mac, &msg, PROTOID, b"Server"];
            h("auth_final", &parts.concat())
        }

        pub fn onionskin(&self, x: [u8; 32], message: &[u8]) -> Vec<u8> {
            let x = StaticSecret::from(x);
            let bx = x.diffie_hellman(&PublicKey::from(self.b));
            let x = PublicKey::from(&x);
            let (enc, mac_key) = phase1(bx.as_bytes(), self.id, &self.b, x.as_bytes());
            let msg = crypt(&enc, message);
            let mac = msg_mac(&mac_key, self.id, &self.b, x.as_bytes(), &msg);
            [self.id, &self.b, x.as_bytes(), &msg, &mac].concat()
        }

        /// The relay's message and the key material.
        pub fn client(&self, x: [u8; 32], onionskin: &[u8], reply: &[u8]) -> (Vec<u8>, Vec<u8>) {
            let x = StaticSecret::from(x);
            let y: [u8; 32] = reply[..32].try_into().unwrap();
            let xy = x.diffie_hellman(&PublicKey::from(y));
            let xb = x.diffie_hellman(&PublicKey::from(self.b));
            let x = PublicKey::from(&x);
            let [verify, enc, keys] = self.finish(xy.as_bytes(), xb.as_bytes(), x.as_bytes(), &y);
            let mac = &onionskin[onionskin.len() - 32..];
            let auth = self.auth(&verify, x.as_bytes(), &y, mac, &reply[64..]);
            assert_eq!(reply[32..64], auth);
            (crypt(&enc, &reply[64..]), keys)
        }

        /// The client's message, the reply that carries `message`, and the key material.
        pub fn relay(
            &self,
            b: [u8; 32],
            y: [u8; 32],
            onionskin: &[u8],
            message: &[u8],
        ) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
            let (b, y) = (StaticSecret::from(b), StaticSecret::from(y));
            let x: [u8; 32] = onionskin[64..96].try_into().unwrap();
            let (msg, mac) = onionskin[96..].split_at(onionskin.len() - 128);
            let xy = y.diffie_hellman(&PublicKey::from(x));
            let xb = b.diffie_hellman(&PublicKey::from(x));
            let (enc, mac_key) = phase1(xb.as_bytes(), self.id, &self.b, &x);
            assert_eq!(msg_mac(&mac_key, self.id, &self.b, &x, msg), mac);
            let request = crypt(&enc, msg);

            let y = PublicKey::from(&y);
            let [verify, enc, keys] = self.finish(xy.as_bytes(), xb.as_bytes(), &x, y.as_bytes());
            let msg = crypt(&enc, message);
            let auth = self.auth(&verify, &x, y.as_bytes(), mac, &msg);
            (request, [y.as_bytes(), &auth[..], &msg].concat(), keys)
        }
    }
}

#[test]
fn ntor_relay() {
    let mut rng = Seed::from_number(1).rng();
    for _ in 0..ROUNDS {
        let keys = relay_keys(&mut rng);
        let x: [u8; 32] = rng.array();
        let onion_key = *keys.ntor_current.public();
        let onionskin = ntor::onionskin(x, &keys.rsa_id, &onion_key);
        let ours = answer(&keys, HandshakeType::Ntor, &onionskin, Some(OFFER), &mut rng).unwrap();
        let theirs = ntor::client(x, &keys.rsa_id, onion_key, &ours.reply).unwrap();
        assert!(ours.keys == material(&theirs));
        assert!(!ours.congestion_control);
    }
}

#[test]
fn ntor_client() {
    let mut rng = Seed::from_number(2).rng();
    for _ in 0..ROUNDS {
        let keys = relay_keys(&mut rng);
        let onion_key = &keys.ntor_current;
        let (client, onionskin) = ClientHandshake::ntor(&keys.rsa_id, onion_key.public(), &mut rng);
        let (reply, theirs) = ntor::relay(*onion_key.secret(), rng.array(), &onionskin);
        assert!(client.finish(&reply).unwrap().keys == material(&theirs));
    }
}

#[test]
fn ntor_v3_relay() {
    let mut rng = Seed::from_number(3).rng();
    let requests: [&[u8]; 4] = [&[0], &[1, 1, 0], &[1, 9, 2, 1, 1], &[2, 1, 0, 200, 1, 0]];
    for round in 0..ROUNDS {
        let keys = relay_keys(&mut rng);
        let ends = ntor_v3::Ends { id: &keys.ed25519_id, b: *keys.ntor_current.public() };
        let x: [u8; 32] = rng.array();
        let request = requests[round % requests.len()];
        let onionskin = ends.onionskin(x, request);
        let ours = answer(&keys, HandshakeType::NtorV3, &onionskin, Some(OFFER), &mut rng).unwrap();
        let (message, theirs) = ends.client(x, &onionskin, &ours.reply);
        assert!(ours.keys == material(&theirs));
        let asked = request.get(1) == Some(&1);
        assert_eq!(ours.congestion_control, asked);
        let expected: &[u8] = if asked { &[1, 2, 1, 31] } else { &[0] };
        assert_eq!(message, expected);
    }
}

#[test]
fn ntor_v3_client() {
    let mut rng = Seed::from_number(4).rng();
    for round in 0..ROUNDS {
        let keys = relay_keys(&mut rng);
        let ends = ntor_v3::Ends { id: &keys.ed25519_id, b: *keys.ntor_current.public() };
        let ask = round % 2 == 0;
        let (client, onionskin) = ClientHandshake::ntor_v3(&keys.ed25519_id, &ends.b, ask, &mut rng).unwrap();
        let secret = *keys.ntor_current.secret();
        let message: &[u8] = if ask { &[1, 2, 1, 31] } else { &[0] };
        let (request, reply, theirs) = ends.relay(secret, rng.array(), &onionskin, message);
        let expected: &[u8] = if ask { &[1, 1, 0] } else { &[0] };
        assert_eq!(request, expected);
        let ours = client.finish(&reply).unwrap();
        assert!(ours.keys == material(&theirs));
        assert_eq!(ours.congestion, ask.then_some(OFFER));
    }
}

#[test]
fn create_fast() {
    use sha1::{Digest, Sha1};
    let mut rng = Seed::from_number(5).rng();
    for _ in 0..ROUNDS {
        let keys = relay_keys(&mut rng);
        let (client, x) = ClientHandshake::fast(&mut rng);
        let ours = answer(&keys, HandshakeType::Fast, &x, None, &mut rng).unwrap();
        let stream: Vec<u8> =
            (0..5_u8).flat_map(|n| Sha1::digest([&x, &ours.reply[..20], &[n]].concat())).collect();
        assert_eq!(ours.reply[20..], stream[..20]);
        let theirs = material(&[&stream[20..92], &stream[..20]].concat());
        assert!(ours.keys == theirs);
        assert!(client.finish(&ours.reply).unwrap().keys == theirs);
    }
}
