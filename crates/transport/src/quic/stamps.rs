//! [Stamps](crate::connections::stamps) in DATAGRAM frames (RFC 9221).

use crate::connections::stamps::{STAMP_LEN, Stamps};
use bytes::Bytes;
use heddle_seam::time::Instant;

/// Bytes that quinn-proto may keep of stamps, each way: one stamp and what it spends on it, 32 bytes.
pub(super) const STAMPS_BYTES: usize = 64;

/// Stamps what leaves next, if it is time and so many bytes of cells wait. A stamp that the window holds back is
/// replaced by the next, so that each says when it really leaves.
pub(super) fn stamp(stamps: &mut Stamps, now: Instant, quinn: &mut quinn_proto::Connection, unsent: usize) {
    let is_unsent = quinn.datagrams().send_buffer_space() < STAMP_LEN;
    if is_unsent || stamps.is_due(now, unsent) {
        let stamp = Bytes::copy_from_slice(&stamps.stamp(now));
        // A peer that takes none has none.
        let _ = quinn.datagrams().send(stamp, true);
    }
}
