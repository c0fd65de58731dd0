//! Memory of sockets that is in no cell: what was handed to the driver and the system did not take yet, and what channels keep
//! of messages that are not whole.
//!
//! It counts against `MaxMemInQueues`, or whoever opens many channels and reads none of them, or begins a record on each, would
//! have tens of kilobytes of each for nothing ([`super::pressure`]).

use core::cmp::Reverse;
use foldhash::fast::FixedState;
use heddle_seam::node::SocketId;
use heddle_seam::time::Instant;
use std::collections::HashMap;

/// One socket's.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    unsent_bytes: usize,
    kept_bytes: usize,
    /// Since when it never was less: what moves on does not grow old.
    since: Instant,
}

impl Buffer {
    fn bytes(&self) -> usize {
        self.unsent_bytes + self.kept_bytes
    }
}

/// All of a shard.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// Those that are not empty. Whoever goes through them sorts what is found.
    all: HashMap<SocketId, Buffer, FixedState>,
    bytes: usize,
}

impl Buffers {
    /// Bytes of all.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The driver keeps so many bytes for a socket, which may be one that we have closed.
    pub fn set_unsent(&mut self, now: Instant, socket: SocketId, bytes: usize) {
        self.change(now, socket, |buffer| buffer.unsent_bytes = bytes);
    }

    /// A channel keeps so many bytes.
    pub fn set_kept(&mut self, now: Instant, socket: SocketId, bytes: usize) {
        self.change(now, socket, |buffer| buffer.kept_bytes = bytes);
    }

    /// A socket ends with all that waits for it.
    pub fn forget(&mut self, socket: SocketId) {
        if let Some(buffer) = self.all.remove(&socket) {
            self.bytes -= buffer.bytes();
        }
    }

    /// The sockets, with since when and how much: in no order.
    pub fn holders(&self) -> Vec<(Instant, Reverse<usize>, SocketId)> {
        self.all.iter().map(|(socket, buffer)| (buffer.since, Reverse(buffer.bytes()), *socket)).collect()
    }

    fn change(&mut self, now: Instant, socket: SocketId, change: impl FnOnce(&mut Buffer)) {
        let empty = Buffer { unsent_bytes: 0, kept_bytes: 0, since: now };
        let buffer = self.all.entry(socket).or_insert(empty);
        let before = buffer.bytes();
        change(buffer);
        let bytes = buffer.bytes();
        if bytes < before {
            buffer.since = now;
        }
        if bytes == 0 {
            self.all.remove(&socket);
        }
        self.bytes = self.bytes - before + bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_seam::time::Duration;

    #[test]
    fn what_moves_on_is_young_and_what_only_grows_is_not() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let (moving, growing) = (SocketId::accepted(0), SocketId::accepted(1));
        let mut buffers = Buffers::default();
        for ms in 0..10 {
            buffers.set_unsent(at(ms), moving, 100 * (ms as usize % 2));
            buffers.set_kept(at(ms), growing, ms as usize);
        }
        let mut holders = buffers.holders();
        holders.sort_unstable();
        let expected = [(at(1), Reverse(9), growing), (at(9), Reverse(100), moving)];
        assert_eq!((holders.as_slice(), buffers.bytes()), (&expected[..], 109));
        buffers.set_kept(at(10), moving, 5);
        assert_eq!(buffers.bytes(), 114);
        buffers.forget(moving);
        buffers.set_kept(at(11), growing, 0);
        assert_eq!((buffers.bytes(), buffers.holders().len()), (0, 0));
    }
}
