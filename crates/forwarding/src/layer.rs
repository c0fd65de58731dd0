//! The layer of a hop between the ends: a keystream for each cell, whichever came before.

use crate::cell::COUNTER_LEN;
use crate::keys::HopKeys;
use aws_lc_rs::cipher::{AES_128, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::iv::FixedLength;
use heddle_proto::cell::Body;

const BLOCK_LEN: usize = 16;

/// What a hop between the ends does with DATAGRAM cells. Putting a layer on and taking it off is the same.
pub struct HopLayer {
    forward: Keystream,
    backward: Keystream,
}

impl HopLayer {
    /// What one takes: its ciphers hold their round keys themselves.
    pub const BYTES: usize = size_of::<Self>();

    pub fn new(keys: &HopKeys) -> Self {
        HopLayer { forward: Keystream::new(keys.forward()), backward: Keystream::new(keys.backward()) }
    }

    /// The layer of a cell from the client.
    pub fn forward(&self, body: &mut Body) {
        self.forward.apply(body);
    }

    /// The layer of a cell to the client.
    pub fn backward(&self, body: &mut Body) {
        self.backward.apply(body);
    }
}

struct Keystream(EncryptingKey);

impl Keystream {
    fn new(key: &[u8; 16]) -> Self {
        let key = UnboundCipherKey::new(&AES_128, key).and_then(EncryptingKey::ctr);
        Keystream(key.expect("AES-128 takes any key of 16 bytes"))
    }

    fn apply(&self, body: &mut Body) {
        let (counter, rest) = body.split_at_mut(COUNTER_LEN);
        let mut block = [0; BLOCK_LEN];
        block[..COUNTER_LEN].copy_from_slice(counter);
        let context = EncryptionContext::Iv128(FixedLength::from(block));
        self.0.less_safe_encrypt(rest, context).expect("a cell is short enough");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctr::cipher::{KeyIvInit, StreamCipher};
    use heddle_proto::cell::BODY_LEN;

    /// The same by another library.
    fn oracle(key: &[u8; 16], body: &mut Body) {
        let (counter, rest) = body.split_at_mut(COUNTER_LEN);
        let mut block = [0; BLOCK_LEN];
        block[..COUNTER_LEN].copy_from_slice(counter);
        ctr::Ctr128BE::<aes::Aes128>::new(key.into(), (&block).into()).apply_keystream(rest);
    }

    #[test]
    fn a_layer_is_aes_in_counter_mode_from_the_cells_counter_on() {
        let layer = HopLayer::new(&HopKeys::new([1; 16], [2; 16]));
        for counter in [0, 1, 1 << 40, u64::MAX] {
            let mut body = [0x33; BODY_LEN];
            body[..COUNTER_LEN].copy_from_slice(&u64::to_be_bytes(counter));
            let (mut expected, mut back) = (body, body);
            layer.forward(&mut body);
            oracle(&[1; 16], &mut expected);
            assert!(body == expected && body != back);
            layer.backward(&mut back);
            oracle(&[2; 16], &mut expected);
            layer.forward(&mut expected);
            assert!(back == expected, "layers may come in any order");
        }
    }
}
