//! Buffers that are used again, because packets come and go in batches, and a batch that grows from nothing is copied
//! with each doubling.

/// Buffers that are kept, because a batch of datagrams has those of several circuits in it: each of these ends a batch
/// of packets and begins another one.
const KEPT_MAX: usize = 16;
/// The most that each of them may hold; larger ones go.
const KEPT_BYTES_MAX: usize = 128 * 1024;

/// Empty buffers of an endpoint: at most [`KEPT_MAX`] times [`KEPT_BYTES_MAX`], 2 MiB.
#[derive(Debug, Default)]
pub(super) struct Spares(Vec<Vec<u8>>);

impl Spares {
    /// An empty buffer.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_default()
    }

    /// Appends to `out`, without a copy where nothing is there yet; what was its buffer is kept instead.
    pub(super) fn hand_over(&mut self, mut bytes: Vec<u8>, out: &mut Vec<u8>) {
        if out.is_empty() {
            core::mem::swap(&mut bytes, out);
        } else {
            out.extend_from_slice(&bytes);
        }
        bytes.clear();
        if self.0.len() < KEPT_MAX && (1..=KEPT_BYTES_MAX).contains(&bytes.capacity()) {
            self.0.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_handed_over_and_its_place_is_used_again() {
        let mut spares = Spares::default();
        let mut out = Vec::with_capacity(100);
        let mut batch = spares.take();
        batch.extend_from_slice(b"first");
        let place = batch.as_ptr();
        spares.hand_over(batch, &mut out);
        assert_eq!((&out[..], out.as_ptr()), (&b"first"[..], place));
        spares.hand_over(b" and more".to_vec(), &mut out);
        assert_eq!(out, b"first and more");
        let kept: Vec<usize> = spares.0.iter().map(Vec::capacity).collect();
        assert!(kept.len() == 2 && kept[0] >= 100, "{kept:?}");
        assert!(spares.take().is_empty() && spares.take().is_empty());
    }

    #[test]
    fn few_are_kept_and_none_that_is_large() {
        let mut spares = Spares::default();
        for _ in 0..2 * KEPT_MAX {
            spares.hand_over(Vec::with_capacity(1000), &mut vec![1]);
        }
        assert_eq!(spares.0.len(), KEPT_MAX);
        let mut spares = Spares::default();
        spares.hand_over(Vec::with_capacity(KEPT_BYTES_MAX + 1), &mut vec![1]);
        spares.hand_over(Vec::new(), &mut vec![1]);
        assert!(spares.0.is_empty());
    }
}
