//! AES-128 in counter mode, one cell body at a time, from one buffer into another.

use aws_lc_rs::cipher::{AES_128, EncryptionContext, StreamingEncryptingKey, UnboundCipherKey};
use aws_lc_rs::iv::FixedLength;
use zeroize::Zeroize;

use crate::cell::{BODY_LEN, Body};

const BLOCK_LEN: usize = 16;

/// The whole blocks that a cell takes at most.
const FRESH_LEN: usize = BODY_LEN.next_multiple_of(BLOCK_LEN);

/// The keystream of one direction of one hop: AES-128-CTR that starts at counter zero.
///
/// AWS-LC's streaming interface wants room for a whole block at the end of the output, which a
/// cell body does not have. So the keystream of a cell is made apart, in whole blocks and with one
/// call, and what the last block has left is kept for the next cell.
pub(super) struct Keystream {
    cipher: StreamingEncryptingKey,
    /// The straddling block; its last `spare` bytes are still unused.
    block: [u8; BLOCK_LEN],
    spare: usize,
}

impl Keystream {
    pub(super) fn new(key: &[u8; 16]) -> Self {
        let counter = EncryptionContext::Iv128(FixedLength::from([0; BLOCK_LEN]));
        let cipher = UnboundCipherKey::new(&AES_128, key)
            .and_then(|key| StreamingEncryptingKey::less_safe_ctr(key, counter))
            .expect("AES-128 takes any key of 16 bytes");
        Keystream { cipher, block: [0; BLOCK_LEN], spare: 0 }
    }

    /// Writes `src` with the next 509 bytes of the keystream applied to `dst`.
    pub(super) fn apply(&mut self, src: &Body, dst: &mut Body) {
        let (src_head, src_rest) = src.split_at(self.spare);
        let (dst_head, dst_rest) = dst.split_at_mut(self.spare);
        xor(src_head, &self.block[BLOCK_LEN - self.spare..], dst_head);

        let mut fresh = [0; FRESH_LEN];
        let fresh = &mut fresh[..src_rest.len().next_multiple_of(BLOCK_LEN)];
        self.cipher
            .less_safe_update(&[0; FRESH_LEN][..fresh.len()], fresh)
            .expect("the output of whole blocks is as long as the input");
        xor(src_rest, fresh, dst_rest);

        self.spare = fresh.len() - src_rest.len();
        self.block.copy_from_slice(&fresh[fresh.len() - BLOCK_LEN..]);
    }

    /// Applies the next 509 bytes of the keystream to `body`.
    pub(super) fn apply_in_place(&mut self, body: &mut Body) {
        let src = *body;
        self.apply(&src, body);
    }
}

impl Drop for Keystream {
    fn drop(&mut self) {
        self.block.zeroize();
    }
}

fn xor(src: &[u8], keystream: &[u8], dst: &mut [u8]) {
    for ((dst, src), key) in dst.iter_mut().zip(src).zip(keystream) {
        *dst = src ^ key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_continue_one_keystream() {
        // AES-128-CTR of zeros under the zero key: the AES known-answer vector of the zero block,
        // and then the cells of one stream must equal one encryption of the whole.
        let mut pieces = Vec::new();
        let mut keystream = Keystream::new(&[0; 16]);
        for _ in 0..40 {
            let mut dst = [0xff; BODY_LEN];
            keystream.apply(&[0; BODY_LEN], &mut dst);
            pieces.extend_from_slice(&dst);
        }
        assert_eq!(hex::encode(&pieces[..16]), "66e94bd4ef8a2c3b884cfa59ca342b2e");

        let key = UnboundCipherKey::new(&AES_128, &[0; 16]).unwrap();
        let counter = EncryptionContext::Iv128(FixedLength::from([0; BLOCK_LEN]));
        let mut whole = vec![0; 40 * BODY_LEN];
        aws_lc_rs::cipher::EncryptingKey::ctr(key).unwrap().less_safe_encrypt(&mut whole, counter).unwrap();
        assert!(pieces == whole);
    }

    #[test]
    fn in_place_equals_the_move() {
        let mut moved = Keystream::new(&[3; 16]);
        let mut placed = Keystream::new(&[3; 16]);
        for fill in 0..20 {
            let mut dst = [0; BODY_LEN];
            let mut body = [fill; BODY_LEN];
            moved.apply(&body, &mut dst);
            placed.apply_in_place(&mut body);
            assert!(body == dst);
        }
    }
}
