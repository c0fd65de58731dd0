//! Relay cryptography `tor1`: AES-128-CTR and a running SHA-1 (tor-spec, "Relay cells").
//!
//! Every hop shares with the client one keystream and one digest for each direction. A cell that
//! a client makes for hop *n* is stamped with hop *n*'s forward digest and encrypted for hops *n*
//! to 1; each relay removes its layer and looks whether the cell is *recognized*: two zero bytes,
//! and the digest's first four bytes. Backward cells gain a layer at every relay.

use sha1::{Digest, Sha1};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::keystream::Keystream;
use crate::cell::Body;
use crate::cell::relay::{DIGEST, RECOGNIZED};

/// The whole running digest as of a cell; a SENDME of version 1 proves it to the sender.
pub type CellDigest = [u8; 20];

/// What a handshake makes: the keys of one hop in both directions. They are wiped when they are dropped, and lie on the
/// heap, because whatever moves a value leaves a copy behind: a queue, for one.
pub struct CircuitKeys(Box<Zeroizing<[u8; Self::LEN]>>);

impl CircuitKeys {
    /// Bytes of key material: `Df` (20), `Db` (20), `Kf` (16), `Kb` (16) and `KH` (20).
    pub const LEN: usize = 92;

    /// The keys in the key material `Df | Db | Kf | Kb | KH`.
    pub fn from_bytes(material: &[u8; Self::LEN]) -> Self {
        let mut keys = CircuitKeys(Box::new(Zeroizing::new([0; Self::LEN])));
        keys.0.copy_from_slice(material);
        keys
    }

    /// `KH`: what binds an onion service's ESTABLISH_INTRO to this circuit.
    pub fn nonce(&self) -> &[u8; 20] {
        self.part(72)
    }

    fn forward(&self) -> Direction {
        Direction::new(self.part(40), self.part(0))
    }

    fn backward(&self) -> Direction {
        Direction::new(self.part(56), self.part(20))
    }

    fn part<const N: usize>(&self, start: usize) -> &[u8; N] {
        self.0[start..].first_chunk().expect("every part ends within the key material")
    }
}

/// In constant time.
impl PartialEq for CircuitKeys {
    fn eq(&self, other: &Self) -> bool {
        self.0[..].ct_eq(&other.0[..]).into()
    }
}

impl core::fmt::Debug for CircuitKeys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("CircuitKeys(..)")
    }
}

/// Whether a forward cell ends at this hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recognized {
    /// The cell is for us; `digest` is the running digest including it.
    Yes { digest: CellDigest },
    /// The cell is for a later hop, or forged.
    No,
}

/// A relay's layer on one circuit.
pub struct RelayLayer {
    forward: Direction,
    backward: Direction,
}

impl RelayLayer {
    /// The layer at the start of the circuit's life.
    pub fn new(keys: &CircuitKeys) -> Self {
        RelayLayer { forward: keys.forward(), backward: keys.backward() }
    }

    /// Takes our layer off a cell from the client while moving it from `src` to `dst`.
    pub fn forward(&mut self, src: &Body, dst: &mut Body) -> Recognized {
        self.forward.keystream.apply(src, dst);
        match self.forward.recognize(dst) {
            Some(digest) => Recognized::Yes { digest },
            None => Recognized::No,
        }
    }

    /// Puts our layer on a cell towards the client while moving it from `src` to `dst`.
    pub fn backward(&mut self, src: &Body, dst: &mut Body) {
        self.backward.keystream.apply(src, dst);
    }

    /// Stamps and encrypts a cell of our own towards the client, and returns the running digest
    /// that a SENDME for this cell has to carry.
    pub fn originate(&mut self, body: &mut Body) -> CellDigest {
        let digest = self.backward.stamp(body);
        self.backward.keystream.apply_in_place(body);
        digest
    }
}

/// The client's layers of a circuit, nearest hop first.
#[derive(Default)]
pub struct OriginLayers {
    hops: Vec<RelayLayer>,
}

impl OriginLayers {
    /// No hop yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the hop behind the last one.
    pub fn add_hop(&mut self, keys: &CircuitKeys) {
        self.hops.push(RelayLayer::new(keys));
    }

    /// Drops every hop behind the first `hops`.
    pub fn truncate(&mut self, hops: usize) {
        self.hops.truncate(hops);
    }

    /// How many hops there are.
    pub fn hops(&self) -> usize {
        self.hops.len()
    }

    /// Stamps a cell for hop number `hop`, counted from zero, and encrypts it; returns the running
    /// digest that the hop's SENDME for this cell has to carry.
    ///
    /// # Panics
    ///
    /// When there is no such hop.
    pub fn seal(&mut self, hop: usize, body: &mut Body) -> CellDigest {
        let digest = self.hops[hop].forward.stamp(body);
        for layer in self.hops[..=hop].iter_mut().rev() {
            layer.forward.keystream.apply_in_place(body);
        }
        digest
    }

    /// Takes layers off a cell from the circuit until some hop's digest fits; returns that hop,
    /// counted from zero, and its running digest. `None` means a corrupt cell, after which the
    /// circuit cannot go on.
    pub fn open(&mut self, body: &mut Body) -> Option<(usize, CellDigest)> {
        for (hop, layer) in self.hops.iter_mut().enumerate() {
            layer.backward.keystream.apply_in_place(body);
            if let Some(digest) = layer.backward.recognize(body) {
                return Some((hop, digest));
            }
        }
        None
    }
}

/// One direction of one hop.
struct Direction {
    keystream: Keystream,
    digest: Sha1,
}

impl Direction {
    fn new(key: &[u8; 16], digest_seed: &[u8; 20]) -> Self {
        Direction { keystream: Keystream::new(key), digest: Sha1::new_with_prefix(digest_seed) }
    }

    /// Sets `recognized` and `digest` of a plaintext cell and returns the whole digest.
    fn stamp(&mut self, body: &mut Body) -> CellDigest {
        body[RECOGNIZED].fill(0);
        body[DIGEST].fill(0);
        self.digest.update(&body[..]);
        let digest: CellDigest = self.digest.clone().finalize().into();
        body[DIGEST].copy_from_slice(&digest[..DIGEST.len()]);
        digest
    }

    /// The running digest with this cell, if the cell carries its first bytes; otherwise the
    /// running digest stays as it was, as only recognized cells count.
    ///
    /// A cell for another hop looks random here, so that all but one in 65,536 end at the zero
    /// test and cost no SHA-1.
    fn recognize(&mut self, body: &Body) -> Option<CellDigest> {
        if body[RECOGNIZED] != [0, 0] {
            return None;
        }
        let running = self
            .digest
            .clone()
            .chain_update(&body[..DIGEST.start])
            .chain_update([0; DIGEST.end - DIGEST.start])
            .chain_update(&body[DIGEST.end..]);
        let digest: CellDigest = running.clone().finalize().into();
        if !bool::from(digest[..DIGEST.len()].ct_eq(&body[DIGEST])) {
            return None;
        }
        self.digest = running;
        Some(digest)
    }
}

/// The hash cannot wipe itself, and until 64 bytes have come it keeps its seed as it is.
impl Drop for Direction {
    fn drop(&mut self) {
        self.digest = Sha1::new();
        // Somebody may look at it, so it has to be written.
        core::hint::black_box(&mut self.digest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::BODY_LEN;
    use heddle_seam::rng::{Rng, Seed};

    fn circuit(hops: usize, rng: &mut Rng) -> (OriginLayers, Vec<RelayLayer>) {
        let mut origin = OriginLayers::new();
        let mut relays = Vec::new();
        for _ in 0..hops {
            let keys = CircuitKeys::from_bytes(&rng.array());
            origin.add_hop(&keys);
            relays.push(RelayLayer::new(&keys));
        }
        (origin, relays)
    }

    /// Which relay recognizes a cell that the origin sealed, with what plaintext and digest.
    fn deliver(relays: &mut [RelayLayer], body: &Body) -> Option<(usize, Body, CellDigest)> {
        let mut src = *body;
        for (hop, relay) in relays.iter_mut().enumerate() {
            let mut dst = [0; BODY_LEN];
            if let Recognized::Yes { digest } = relay.forward(&src, &mut dst) {
                return Some((hop, dst, digest));
            }
            src = dst;
        }
        None
    }

    fn send_back(relays: &mut [RelayLayer], from: usize, body: &mut Body) -> CellDigest {
        let digest = relays[from].originate(body);
        for relay in relays[..from].iter_mut().rev() {
            let src = *body;
            relay.backward(&src, body);
        }
        digest
    }

    #[test]
    fn every_hop_can_be_reached_and_can_answer() {
        let mut rng = Seed::from_number(1).rng();
        let (mut origin, mut relays) = circuit(3, &mut rng);
        for round in 0..300 {
            let hop = rng.below(3) as usize;
            let mut body: Body = rng.array();
            let plain = body;
            let sealed = origin.seal(hop, &mut body);
            let (at, got, opened) = deliver(&mut relays, &body).expect("recognized somewhere");
            assert_eq!((at, opened), (hop, sealed), "forward, round {round}");
            assert!(got[0] == plain[0] && got[3..5] == plain[3..5] && got[9..] == plain[9..]);

            let mut body: Body = rng.array();
            let plain = body;
            let sent = send_back(&mut relays, hop, &mut body);
            assert_eq!(origin.open(&mut body), Some((hop, sent)), "backward, round {round}");
            assert!(body[9..] == plain[9..]);
        }
    }

    #[test]
    fn a_forged_cell_is_not_recognized_and_changes_no_digest() {
        let mut rng = Seed::from_number(2).rng();
        let (mut origin, mut relays) = circuit(1, &mut rng);
        for byte in [0, 1, 2, 4, 5, 8, 9, 508] {
            let mut body = [7; BODY_LEN];
            let undo = relays[0].forward.digest.clone();
            origin.seal(0, &mut body);
            body[byte] ^= 0x10;
            assert_eq!(deliver(&mut relays, &body), None, "byte {byte}");
            // The relay has not counted the cell that the origin did: a rolled-back digest makes
            // an origin that forgets the cell too agree with it.
            assert_eq!(relays[0].forward.digest.clone().finalize(), undo.clone().finalize());
            origin.hops[0].forward.digest = undo;
        }
        let mut body = [7; BODY_LEN];
        let sealed = origin.seal(0, &mut body);
        let (_, _, opened) = deliver(&mut relays, &body).expect("the streams are still in step");
        assert_eq!(sealed, opened);
    }

    #[test]
    fn random_cells_are_not_opened() {
        let mut rng = Seed::from_number(3).rng();
        let (mut origin, mut relays) = circuit(3, &mut rng);
        for _ in 0..2000 {
            assert_eq!(deliver(&mut relays, &rng.array()), None);
            assert_eq!(origin.open(&mut rng.array()), None);
        }
    }

    #[test]
    fn layers_may_move_between_threads() {
        fn assert_send<T: Send>() {}
        assert_send::<RelayLayer>();
        assert_send::<OriginLayers>();
        assert_send::<CircuitKeys>();
    }
}
