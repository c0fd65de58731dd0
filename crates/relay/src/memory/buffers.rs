//! Memory of sockets that is in no cell: what was handed to the driver and the system did not take yet, what channels
//! keep of messages that are not whole, and, apart from these bytes, what channels take themselves.
//!
//! It counts against `MaxMemInQueues`, or whoever opens many channels and reads none of them, or begins a record on
//! each, would have tens of kilobytes of each for nothing ([`crate::memory::pressure`]).

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
    /// None of its bytes came before.
    since: Instant,
    /// When bytes were last marked, and how many of those that were there then have not left. Once they have, none of
    /// the others came before that.
    marked_at: Instant,
    marked_bytes: usize,
}

impl Buffer {
    fn bytes(&self) -> usize {
        self.unsent_bytes + self.kept_bytes
    }

    /// So many bytes were seen to leave. Who takes a few of many now and then stays as old as the others are.
    fn left(&mut self, now: Instant, bytes: usize) {
        self.marked_bytes = self.marked_bytes.saturating_sub(bytes);
        if self.marked_bytes == 0 {
            self.since = self.marked_at;
            (self.marked_at, self.marked_bytes) = (now, self.bytes());
        }
    }
}

/// All of a shard.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// Those that are not empty. Whoever goes through them sorts what is found.
    all: HashMap<SocketId, Buffer, FixedState>,
    bytes: usize,
    /// What open channels take themselves.
    state_bytes: usize,
}

impl Buffers {
    /// What open channels take themselves.
    pub fn state_bytes(&self) -> usize {
        self.state_bytes
    }

    /// What one of them takes has changed.
    pub fn change_state(&mut self, before: usize, after: usize) {
        self.state_bytes = self.state_bytes - before + after;
    }

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
        let empty = Buffer { unsent_bytes: 0, kept_bytes: 0, since: now, marked_at: now, marked_bytes: 0 };
        let buffer = self.all.entry(socket).or_insert(empty);
        let before = buffer.bytes();
        change(buffer);
        let bytes = buffer.bytes();
        match before.checked_sub(bytes) {
            _ if before == 0 => buffer.marked_bytes = bytes,
            Some(left) if left > 0 => buffer.left(now, left),
            _ => {}
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

    /// A reader that takes a byte a second of 60,000 is older than one that has stalled for a moment, and one that
    /// takes a third of them each second is not.
    #[test]
    fn a_hoard_that_trickles_grows_old() {
        let at = |s| Instant::ZERO + Duration::from_secs(s);
        let [hoarder, reader, stalled] = [0, 1, 2].map(SocketId::accepted);
        let mut buffers = Buffers::default();
        for s in 0..100 {
            for (socket, taken) in [(hoarder, 1), (reader, 20_000)] {
                buffers.set_unsent(at(s), socket, 60_000 - taken);
                buffers.set_unsent(at(s), socket, 60_000);
            }
        }
        buffers.set_unsent(at(90), stalled, 100);
        let mut holders = buffers.holders();
        holders.sort_unstable();
        let order: Vec<_> = holders.into_iter().map(|(_, _, socket)| socket).collect();
        assert_eq!(order, [hoarder, stalled, reader]);
    }
}
