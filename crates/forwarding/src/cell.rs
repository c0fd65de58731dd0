//! What a DATAGRAM cell's body is, and how its ends seal it.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use heddle_esp::Window;
use heddle_proto::cell::{BODY_LEN, Body};

/// Bytes of the counter, which is in clear.
pub(crate) const COUNTER_LEN: usize = 8;
const TAG_LEN: usize = 16;
/// Bytes of the session's packet in a cell.
pub const PACKET_LEN: usize = BODY_LEN - COUNTER_LEN - TAG_LEN;

/// Where the tag begins.
const TAG_START: usize = COUNTER_LEN + PACKET_LEN;

/// One end's key of one direction.
struct EndKey(LessSafeKey);

impl EndKey {
    fn new(key: &[u8; 16]) -> Self {
        let key = UnboundKey::new(&AES_128_GCM, key).expect("AES-128 takes any key of 16 bytes");
        EndKey(LessSafeKey::new(key))
    }

    /// Seals the packet that stands in `body`, as the cell of this number.
    fn seal(&self, counter: u64, body: &mut Body) {
        let counter = counter.to_be_bytes();
        body[..COUNTER_LEN].copy_from_slice(&counter);
        let (packet, tag) = body[COUNTER_LEN..].split_at_mut(PACKET_LEN);
        let sealed = self.0.seal_in_place_separate_tag(nonce(counter), Aad::empty(), packet);
        tag.copy_from_slice(sealed.expect("a packet is short enough").as_ref());
    }

    /// The packet in `body`, if the other end sealed it.
    fn open<'a>(&self, body: &'a mut Body) -> Option<&'a [u8]> {
        let (counter, sealed) = body.split_first_chunk_mut::<COUNTER_LEN>()?;
        self.0.open_in_place(nonce(*counter), Aad::empty(), sealed).ok().map(|packet| &*packet)
    }
}

/// What one end sends.
pub(crate) struct Sealing {
    key: EndKey,
    /// The number of the last cell. No two cells may have the same, or their tags tell the key.
    counter: u64,
}

impl Sealing {
    pub(crate) fn new(key: &[u8; 16]) -> Self {
        Sealing { key: EndKey::new(key), counter: 0 }
    }

    /// Seals the packet that stands in `body` as the next cell.
    pub(crate) fn seal(&mut self, body: &mut Body) {
        self.counter += 1;
        self.key.seal(self.counter, body);
    }
}

/// What one end takes.
pub(crate) struct Opening {
    key: EndKey,
    /// Which came: a segment from long ago would be taken for a new one, because TCP's numbers begin anew here after
    /// 256 MiB.
    window: Window,
}

impl Opening {
    pub(crate) fn new(key: &[u8; 16]) -> Self {
        Opening { key: EndKey::new(key), window: Window::new() }
    }

    /// The packet in `body`, if the other end sealed it and it has not come before.
    pub(crate) fn open<'a>(&mut self, body: &'a mut Body) -> Option<&'a [u8]> {
        let counter = u64::from_be_bytes(*body.first_chunk()?);
        if !self.window.is_new(counter) {
            return None;
        }
        let packet = self.key.open(body)?;
        self.window.mark(counter);
        Some(packet)
    }
}

fn nonce(counter: [u8; COUNTER_LEN]) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[NONCE_LEN - COUNTER_LEN..].copy_from_slice(&counter);
    Nonce::assume_unique_for_key(nonce)
}

const _: () = assert!(TAG_START + TAG_LEN == BODY_LEN);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_opens_once_sealed_and_not_once_touched() {
        let key = EndKey::new(&[7; 16]);
        let mut sealed = [0x5a; BODY_LEN];
        key.seal(9, &mut sealed);
        let mut body = sealed;
        assert_eq!(key.open(&mut body), Some(&[0x5a; PACKET_LEN][..]));
        for at in 0..BODY_LEN {
            let mut body = sealed;
            body[at] ^= 1;
            assert_eq!(key.open(&mut body), None, "byte {at}");
        }
    }

    #[test]
    fn a_cell_is_taken_once_however_late() {
        let (mut sealing, mut opening) = (Sealing::new(&[7; 16]), Opening::new(&[7; 16]));
        let cells: Vec<Body> = (0..20_000)
            .map(|_| {
                let mut body = [1; BODY_LEN];
                sealing.seal(&mut body);
                body
            })
            .collect();
        let mut take = |at: usize| opening.open(&mut { cells[at] }).is_some();
        assert!(take(0) && !take(0));
        assert!(take(5_000) && take(10) && !take(10) && take(4_999) && !take(5_000));
        assert!(take(19_999) && !take(11) && !take(5_000) && take(15_000) && !take(15_000));
    }

    #[test]
    fn equal_packets_differ_by_their_counters() {
        let key = EndKey::new(&[7; 16]);
        let (mut one, mut other) = ([0; BODY_LEN], [0; BODY_LEN]);
        key.seal(1, &mut one);
        key.seal(2, &mut other);
        assert!(one[COUNTER_LEN..].iter().zip(&other[COUNTER_LEN..]).filter(|(a, b)| a == b).count() < 20);
    }
}
