//! Records of segments that begin with a [stamp](crate::connections::stamps).
//!
//! ```text
//!   0f   microseconds (4)   counts of marks, perhaps   segments
//! ```

use crate::connections::stamps::STAMP_LEN;

/// What such a record begins with. Its lowest bit is set, which no segment's is.
const STAMPED: u8 = 15;

/// Bytes that this takes.
pub(crate) const STAMPED_LEN: usize = 1 + STAMP_LEN;

pub(crate) fn emit(stamp: [u8; STAMP_LEN], out: &mut Vec<u8>) {
    out.push(STAMPED);
    out.extend_from_slice(&stamp);
}

/// The stamp that a record begins with, if there is one, and what is behind it.
pub(crate) fn split_stamp(contents: &[u8]) -> (Option<u32>, &[u8]) {
    match contents.split_first_chunk::<STAMPED_LEN>() {
        Some(([STAMPED, stamp @ ..], rest)) => (Some(u32::from_be_bytes(*stamp)), rest),
        _ => (None, contents),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_come_back() {
        let mut record = Vec::new();
        emit([1, 2, 3, 4], &mut record);
        record.push(5);
        assert_eq!(split_stamp(&record), (Some(0x0102_0304), &[5][..]));
        for other in [&record[..4], &record[1..], &[]] {
            assert_eq!(split_stamp(other), (None, other));
        }
    }
}
