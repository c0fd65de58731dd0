//! What a connection is owed: DATA cells that wait until it takes them.

use heddle_proto::cell::relay::HEADER_LEN;
use heddle_proto::pool::{CellPool, CellQueue, SlotId};
use heddle_seam::time::Instant;

/// Cells that wait for a connection, and what it takes of them.
#[derive(Default)]
pub(crate) struct Owed {
    queue: CellQueue,
    /// Bytes that the connection takes now.
    writable: usize,
    /// Whether the operator's rates hold for this connection.
    limited: bool,
}

impl Owed {
    pub fn queue(&self) -> &CellQueue {
        &self.queue
    }

    pub fn is_limited(&self) -> bool {
        self.limited
    }

    /// The connection is there, and the operator's rates hold for it or do not.
    pub fn limit(&mut self, limited: bool) {
        self.limited = limited;
    }

    /// One cell more waits.
    pub fn push(&mut self, pool: &mut CellPool, slot: SlotId, now: Instant) {
        pool.push(&mut self.queue, slot, now);
    }

    /// The connection takes so many bytes.
    pub fn on_writable(&mut self, bytes: usize) {
        self.writable = bytes;
    }

    /// Whether the connection takes anything now.
    pub fn takes(&self) -> bool {
        self.writable > 0
    }

    /// Whether there is more, and the connection takes it.
    pub fn goes_on(&self) -> bool {
        self.takes() && !self.queue.is_empty()
    }

    /// Moves data to `out`, which is empty, as far as the connection and `share` bytes go.
    pub fn write(&mut self, pool: &mut CellPool, share: usize, out: &mut Vec<u8>) {
        let mut allowed = self.writable.min(share);
        drain(pool, &mut self.queue, &mut allowed, out);
        self.writable -= out.len();
    }

    /// Nobody gets what waits.
    pub fn clear(&mut self, pool: &mut CellPool) {
        pool.clear(&mut self.queue);
    }
}

/// Moves data from a queue to `out`, as far as `allowed` bytes go.
fn drain(pool: &mut CellPool, queue: &mut CellQueue, allowed: &mut usize, out: &mut Vec<u8>) {
    while let Some((body, offset)) = pool.front(queue) {
        let end = HEADER_LEN + usize::from(u16::from_be_bytes([body[9], body[10]]));
        let offset = offset.max(HEADER_LEN);
        let data = &body[offset..end];
        let len = data.len().min(*allowed);
        out.extend_from_slice(&data[..len]);
        *allowed -= len;
        if offset + len < end {
            return pool.set_front_offset(queue, offset + len);
        }
        if let Some(slot) = pool.pop(queue) {
            pool.free(slot);
        }
    }
}
