//! Datagrams that wait to be sent, in batches that a system cuts by one length.

use super::spares::Spares;
use heddle_seam::datagrams::Transmit;
use std::collections::VecDeque;

/// Bytes that wait at most: what a device's queue has, a thousand packets, and more is lost as it would be there.
const BYTES_MAX: usize = 1000 * 1350;
/// Bytes of a batch, which one call sends.
const BATCH_BYTES_MAX: usize = 60_000;

#[derive(Debug)]
struct Batch {
    ecn: u8,
    stride: usize,
    bytes: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct Outbox {
    batches: VecDeque<Batch>,
    bytes: usize,
}

impl Outbox {
    /// Adds a datagram of `len` bytes, which `write` appends unless there is no room; says whether it is there.
    pub(super) fn push(
        &mut self,
        (ecn, len): (u8, usize),
        batches: bool,
        spares: &mut Spares,
        write: impl FnOnce(&mut Vec<u8>) -> bool,
    ) -> bool {
        if self.bytes + len > BYTES_MAX {
            return false;
        }
        let fits = |batch: &Batch| {
            let is_whole = batch.bytes.len().is_multiple_of(batch.stride);
            let alike = batch.ecn == ecn && is_whole && len <= batch.stride;
            batches && alike && batch.bytes.len() + len <= BATCH_BYTES_MAX
        };
        if !self.batches.back().is_some_and(fits) {
            self.batches.push_back(Batch { ecn, stride: len, bytes: spares.take() });
        }
        let Some(batch) = self.batches.back_mut() else { return false };
        let is_there = write(&mut batch.bytes);
        if is_there {
            self.bytes += len;
        } else if batch.bytes.is_empty() {
            self.batches.pop_back();
        }
        is_there
    }

    /// The next batch, appended to `out`; whoever sends it says where to.
    pub(super) fn pop(&mut self, spares: &mut Spares, out: &mut Vec<u8>) -> Option<(u8, usize)> {
        let batch = self.batches.pop_front()?;
        self.bytes -= batch.bytes.len();
        spares.hand_over(batch.bytes, out);
        Some((batch.ecn, batch.stride))
    }

    pub(super) fn clear(&mut self) {
        *self = Outbox::default();
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Where a batch goes.
pub(super) fn transmit(
    to: core::net::SocketAddr,
    from: Option<core::net::IpAddr>,
    (ecn, stride): (u8, usize),
) -> Transmit {
    Transmit { to, from, ecn, stride }
}
