//! How many cells go into one record.
//!
//! Long records cost the least: each has a header, a tag and two allocations. But a reader can decrypt nothing of a
//! record before the last byte of it has come. Of a record that is longer than what the system lets be on its way, the
//! end leaves a round trip later, and then the first cell in it has waited for that as well, at every channel of a
//! path. A system sends ten segments at first and again after a pause (RFC 6928, RFC 5681 section 4.1), which is less
//! than the longest record.
//!
//! So a record takes at most an eighth of the congestion window: it has left an eighth of a round trip after it began
//! to, whatever the rate. A busy channel's window soon is eight times the longest record, and what is said here costs
//! it nothing.

use heddle_proto::cell::CELL_LEN;
use heddle_seam::time::{Duration, Instant};

/// What a record adds, at most: header 5, and nonce 8 and tag 16 of AES-GCM in TLS 1.2.
pub(super) const RECORD_OVERHEAD: usize = 5 + 8 + 16;
/// Cells in the longest record: as many as fit 16,384 bytes of plaintext (RFC 8446, section 5.1).
pub(super) const RECORD_CELLS_MAX: usize = 16_384 / CELL_LEN;
/// What part of the congestion window a record may take.
const WINDOW_PARTS: usize = 8;
/// What leaves at once where nothing was sent for a while: ten segments, with timestamps, over IPv6 in Ethernet. A
/// system that would send more is only given shorter records.
const INITIAL_WINDOW_BYTES: usize = 10 * 1428;
/// After such a pause the window may have shrunk to the initial one. Linux halves it for every retransmission time-out
/// that passes, of which none is shorter than this.
const IDLE: Duration = Duration::from_millis(200);

/// The length of the records to come.
#[derive(Debug)]
pub(super) struct RecordLimit {
    /// What the system said last, or the initial window since the last pause.
    window_bytes: usize,
    /// What follows from that: it is asked for with every cell.
    plaintext_max: usize,
    sent_at: Option<Instant>,
}

impl RecordLimit {
    pub fn new() -> Self {
        let mut limit = RecordLimit { window_bytes: 0, plaintext_max: 0, sent_at: None };
        limit.set_window(INITIAL_WINDOW_BYTES);
        limit
    }

    /// The system lets so many bytes be on their way.
    pub fn set_window(&mut self, bytes: usize) {
        let cells = (bytes / WINDOW_PARTS).saturating_sub(RECORD_OVERHEAD) / CELL_LEN;
        self.window_bytes = bytes;
        self.plaintext_max = cells.clamp(1, RECORD_CELLS_MAX) * CELL_LEN;
    }

    /// Something may be sent now.
    pub fn on_turn(&mut self, now: Instant) {
        if self.sent_at.is_none_or(|at| now.since(at) >= IDLE) {
            self.set_window(self.window_bytes.min(INITIAL_WINDOW_BYTES));
        }
    }

    /// Something was sent.
    pub fn on_sent(&mut self, now: Instant) {
        self.sent_at = Some(now);
    }

    /// Bytes of plaintext in a record: whole cells.
    pub fn plaintext_max(&self) -> usize {
        self.plaintext_max
    }
}
