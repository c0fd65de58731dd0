//! `tor1` relay cryptography against cells that C Tor and Arti made, and against a second
//! implementation written from tor-spec over other libraries, which keeps every plaintext and
//! derives all it needs from the beginning again at each cell.

use aes::Aes128;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use ctr::Ctr128BE;
use ctr::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use heddle_proto::cell::{BODY_LEN, Body};
use heddle_proto::crypto::{CircuitKeys, OriginLayers, Recognized, RelayLayer};
use heddle_seam::rng::{Rng, Seed};
use sha2::{Digest, Sha256};
use sha3::Shake256;
use sha3::digest::{ExtendableOutput, Update, XofReader};

const HOPS: usize = 3;
const CELLS: usize = 100;

/// One direction of one hop, by the specification's text.
struct Direction {
    key: [u8; 16],
    /// `Df` or `Db`, and every cell recognized or stamped since, with a zero digest field.
    hashed: Vec<u8>,
    cells: u64,
}

impl Direction {
    fn new(key: &[u8], digest_seed: &[u8]) -> Self {
        Direction { key: key.try_into().unwrap(), hashed: digest_seed.to_vec(), cells: 0 }
    }

    fn crypt(&mut self, body: &mut Body) {
        let mut cipher = Ctr128BE::<Aes128>::new(&self.key.into(), &[0; 16].into());
        cipher.seek(self.cells * BODY_LEN as u64);
        cipher.apply_keystream(body);
        self.cells += 1;
    }

    fn digest_with(&self, body: &Body) -> (Vec<u8>, [u8; 20]) {
        let mut zeroed = *body;
        zeroed[5..9].fill(0);
        let hashed = [&self.hashed[..], &zeroed].concat();
        let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, &hashed);
        (hashed, digest.as_ref().try_into().unwrap())
    }

    fn stamp(&mut self, body: &mut Body) -> [u8; 20] {
        body[1..3].fill(0);
        let (hashed, digest) = self.digest_with(body);
        self.hashed = hashed;
        body[5..9].copy_from_slice(&digest[..4]);
        digest
    }

    fn recognize(&mut self, body: &Body) -> Option<[u8; 20]> {
        let (hashed, digest) = self.digest_with(body);
        if body[1..3] != [0, 0] || body[5..9] != digest[..4] {
            return None;
        }
        self.hashed = hashed;
        Some(digest)
    }
}

/// One end's view of one hop.
struct Hop {
    forward: Direction,
    backward: Direction,
}

impl Hop {
    fn new(material: &[u8; CircuitKeys::LEN]) -> Self {
        let (df, rest) = material.split_at(20);
        let (db, rest) = rest.split_at(20);
        let (kf, rest) = rest.split_at(16);
        Hop { forward: Direction::new(kf, df), backward: Direction::new(&rest[..16], db) }
    }
}

/// A circuit of which one end is ours and the other the oracle's.
struct Circuit {
    our_origin: OriginLayers,
    our_relays: Vec<RelayLayer>,
    their_origin: Vec<Hop>,
    their_relays: Vec<Hop>,
}

fn circuit(rng: &mut Rng) -> Circuit {
    let materials: Vec<[u8; CircuitKeys::LEN]> = (0..HOPS).map(|_| rng.array()).collect();
    let mut our_origin = OriginLayers::new();
    for material in &materials {
        our_origin.add_hop(&CircuitKeys::from_bytes(material));
    }
    Circuit {
        our_origin,
        our_relays: materials
            .iter()
            .map(|material| RelayLayer::new(&CircuitKeys::from_bytes(material)))
            .collect(),
        their_origin: materials.iter().map(Hop::new).collect(),
        their_relays: materials.iter().map(Hop::new).collect(),
    }
}

/// The relay of ours that recognizes a forward cell, with the digest and the plaintext.
fn deliver(relays: &mut [RelayLayer], body: &Body) -> Option<(usize, [u8; 20], Body)> {
    let mut src = *body;
    for (hop, relay) in relays.iter_mut().enumerate() {
        let mut dst = [0; BODY_LEN];
        if let Recognized::Yes { digest } = relay.forward(&src, &mut dst) {
            return Some((hop, digest, dst));
        }
        src = dst;
    }
    None
}

#[test]
fn our_relays_understand_the_oracles_client() {
    let mut rng = Seed::from_number(1).rng();
    let mut circuit = circuit(&mut rng);
    for round in 0..CELLS {
        let hop = rng.below(HOPS as u64) as usize;
        let mut body: Body = rng.array();
        let sealed = circuit.their_origin[hop].forward.stamp(&mut body);
        let plain = body;
        for layer in circuit.their_origin[..=hop].iter_mut().rev() {
            layer.forward.crypt(&mut body);
        }
        let got = deliver(&mut circuit.our_relays, &body);
        assert!(got == Some((hop, sealed, plain)), "round {round}");
    }
}

#[test]
fn the_oracles_relays_understand_our_client() {
    let mut rng = Seed::from_number(2).rng();
    let mut circuit = circuit(&mut rng);
    for round in 0..CELLS {
        let hop = rng.below(HOPS as u64) as usize;
        let mut body: Body = rng.array();
        let plain = body;
        let sealed = circuit.our_origin.seal(hop, &mut body);
        let got = circuit.their_relays.iter_mut().position(|relay| {
            relay.forward.crypt(&mut body);
            relay.forward.recognize(&body) == Some(sealed)
        });
        assert_eq!(got, Some(hop), "round {round}");
        assert!(body[9..] == plain[9..], "round {round}");
    }
}

#[test]
fn our_client_understands_the_oracles_relays() {
    let mut rng = Seed::from_number(3).rng();
    let mut circuit = circuit(&mut rng);
    for round in 0..CELLS {
        let hop = rng.below(HOPS as u64) as usize;
        let mut body: Body = rng.array();
        let sent = circuit.their_relays[hop].backward.stamp(&mut body);
        let plain = body;
        for relay in circuit.their_relays[..=hop].iter_mut().rev() {
            relay.backward.crypt(&mut body);
        }
        assert_eq!(circuit.our_origin.open(&mut body), Some((hop, sent)));
        assert!(body == plain, "round {round}");
    }
}

#[test]
fn the_oracles_client_understands_our_relays() {
    let mut rng = Seed::from_number(4).rng();
    let mut circuit = circuit(&mut rng);
    for round in 0..CELLS {
        let hop = rng.below(HOPS as u64) as usize;
        let mut body: Body = rng.array();
        let plain = body;
        let sent = circuit.our_relays[hop].originate(&mut body);
        for relay in circuit.our_relays[..hop].iter_mut().rev() {
            relay.backward(&body.clone(), &mut body);
        }
        let got = circuit.their_origin.iter_mut().position(|layer| {
            layer.backward.crypt(&mut body);
            layer.backward.recognize(&body) == Some(sent)
        });
        assert_eq!(got, Some(hop), "round {round}");
        assert!(body[9..] == plain[9..], "round {round}");
    }
}

/// The key material of C Tor's test_relaycrypt.c, three hops.
const MATERIAL: [&[u8; CircuitKeys::LEN]; HOPS] = [
    b"    'My public key is in this signed x509 object', said Tom assertively.      (N-PREG-VIRYL)",
    b"'Let's chart the pedal phlanges in the tomb', said Tom cryptographically.  (PELCG-GBR-TENCU)",
    b"     'Segmentation fault bugs don't _just happen_', said Tom seethingly.        (P-GUVAT-YL)",
];

/// What that test fills its cells from, by SHAKE-256.
const PAYLOAD_SEED: &[u8] = b"'You mean to tell me that there's a version of Sha-3 with no limit \
    on the output length?', said Tom shakily.";

/// SHA-256 of some cells from the client to the third hop, as C Tor encrypts them: the number of
/// the cell, and its hash. From the vectors that Arti ships.
const FORWARD: [(usize, &str); 8] = [
    (0, "f3cc9a1db3b472b95a5344d4bd9756bf8a1b827b4b65770f4bea3e2486e37ad6"),
    (1, "d531b194233f70e76d72e4d5b656099328ae95634401bbb26ae71904b26b65a6"),
    (2, "7b3ad754d16c2e10b790fc5ffd51dd4d80df776bd47d1db6ad76fc1b17f1c971"),
    (10, "afcc7f1a9728fe1c23a221aafca03d0d1cf351036d3c95b01ed3f724d0c69e25"),
    (20, "0828e919c87184df3558c66fb747960dfbd08a504174ee3ff2145aa17743a775"),
    (30, "d9eb99e28ee8358ea8cc1b59fe324e4f50706389be5d0672e2e7da800c11cc45"),
    (40, "4690cad7853f177cb199da6cc9a8e57c58b441208bde486022df2d4bc16a5951"),
    (50, "0ceaabe1dd9fd32184163dcf130543ec24c58f4aa5c3a718a782e01cfa2305fb"),
];

/// The same cells from the third hop to the client, as Arti's relay code (tor-proto 0.47)
/// encrypts them: number, hash, and the running digest for the SENDME.
const BACKWARD: [(usize, &str, &str); 4] = [
    (
        0,
        "0688b55e553ed8549c45963b37d8edf0e56fd085384734775c4131371cd0298a",
        "e58df93c8404b9c813e23b8c38d6e5a70dd8be67",
    ),
    (
        1,
        "2f4b9c719e87305b54f54b11a082b25cf08e7797e3553bef845654b641c24d57",
        "5ea3de23d718a67d91c989b497da0c908c45b668",
    ),
    (
        20,
        "aadbfee71f621c056e67f0a5916bdebf18d078d26462341930178b2ec83b2b99",
        "54eccab4ffa7fdc135de5ed44d0b429552661428",
    ),
    (
        50,
        "77ee69f4a21e8b8cb7b7ed858a1dba4366ab10e070f3ab01a93e86ab020f5fff",
        "d7904f983e854581f5dc65fb634c4b17dc5b2ee9",
    ),
];

/// The 51 DATA cells of the vectors, full, on stream 1.
fn vector_cells() -> Vec<Body> {
    let mut shake = Shake256::default();
    Update::update(&mut shake, PAYLOAD_SEED);
    let mut payload = shake.finalize_xof();
    let mut cell = || {
        let mut body = [0; BODY_LEN];
        (body[0], body[4]) = (2, 1);
        body[9..11].copy_from_slice(&498_u16.to_be_bytes());
        payload.read(&mut body[11..]);
        body
    };
    (0..51).map(|_| cell()).collect()
}

#[test]
fn forward_cells_are_c_tors() {
    let mut origin = OriginLayers::new();
    let mut relays = Vec::new();
    for material in MATERIAL {
        let keys = CircuitKeys::from_bytes(material);
        origin.add_hop(&keys);
        relays.push(RelayLayer::new(&keys));
    }
    for (number, plain) in vector_cells().into_iter().enumerate() {
        let mut body = plain;
        let sealed = origin.seal(2, &mut body);
        if let Some((_, expected)) = FORWARD.iter().find(|(at, _)| *at == number) {
            assert_eq!(hex::encode(Sha256::digest(body)), *expected, "cell {number}");
        }
        let (hop, digest, got) = deliver(&mut relays, &body).expect("recognized");
        assert_eq!((hop, digest), (2, sealed));
        assert!(got[9..] == plain[9..]);
    }
}

#[test]
fn backward_cells_are_artis() {
    let mut relays = MATERIAL.map(|material| RelayLayer::new(&CircuitKeys::from_bytes(material)));
    for (number, mut body) in vector_cells().into_iter().enumerate() {
        let sent = relays[2].originate(&mut body);
        for relay in relays[..2].iter_mut().rev() {
            let src = body;
            relay.backward(&src, &mut body);
        }
        if let Some((_, cell, digest)) = BACKWARD.iter().find(|(at, ..)| *at == number) {
            assert_eq!(hex::encode(Sha256::digest(body)), *cell, "cell {number}");
            assert_eq!(hex::encode(sent), *digest, "cell {number}");
        }
    }
}
