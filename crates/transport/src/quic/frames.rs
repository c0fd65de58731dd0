//! The STREAM frames of a packet (RFC 9000, section 19), passing over all others.

/// A STREAM frame's stream and the offset behind its last byte. One without data says nothing that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamFrame {
    pub(super) stream: u64,
    pub(super) end: u64,
}

/// The STREAM frames with data in a packet's payload, up to the first thing that is no frame: quinn-proto ends the connection
/// there.
pub(super) fn stream_frames(payload: &[u8]) -> impl Iterator<Item = StreamFrame> {
    let mut rest = Reader(payload);
    core::iter::from_fn(move || rest.next_stream_frame())
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn next_stream_frame(&mut self) -> Option<StreamFrame> {
        loop {
            let kind = self.varint()?;
            if let 0x08..=0x0f = kind {
                let stream = self.varint()?;
                let offset = if kind & 4 != 0 { self.varint()? } else { 0 };
                let len = if kind & 2 != 0 { self.varint()? } else { self.0.len() as u64 };
                self.skip(len)?;
                if len > 0 {
                    return Some(StreamFrame { stream, end: offset + len });
                }
            } else {
                self.skip_frame(kind)?;
            }
        }
    }

    /// Passes over what follows the type of a frame that is not STREAM.
    fn skip_frame(&mut self, kind: u64) -> Option<()> {
        match kind {
            // PADDING, PING, HANDSHAKE_DONE, IMMEDIATE_ACK.
            0x00 | 0x01 | 0x1e | 0x1f => Some(()),
            0x02 | 0x03 => self.skip_ack(kind == 0x03),
            // RESET_STREAM.
            0x04 => self.skip_varints(3),
            // STOP_SENDING, MAX_STREAM_DATA, STREAM_DATA_BLOCKED.
            0x05 | 0x11 | 0x15 => self.skip_varints(2),
            // CRYPTO: an offset, and data.
            0x06 => self.skip_varints(1).and_then(|()| self.skip_sized()),
            // NEW_TOKEN, and DATAGRAM with a length (RFC 9221).
            0x07 | 0x31 => self.skip_sized(),
            // MAX_DATA, MAX_STREAMS, DATA_BLOCKED, STREAMS_BLOCKED, RETIRE_CONNECTION_ID.
            0x10 | 0x12 | 0x13 | 0x14 | 0x16 | 0x17 | 0x19 => self.skip_varints(1),
            0x18 => self.skip_new_connection_id(),
            // PATH_CHALLENGE, PATH_RESPONSE.
            0x1a | 0x1b => self.skip(8),
            // CONNECTION_CLOSE of the transport, with the type of a frame, and of the application.
            0x1c => self.skip_varints(2).and_then(|()| self.skip_sized()),
            0x1d => self.skip_varints(1).and_then(|()| self.skip_sized()),
            // ACK_FREQUENCY (draft-ietf-quic-ack-frequency).
            0xaf => self.skip_varints(4),
            // DATAGRAM without a length takes the rest, and what is none of these ends the connection.
            _ => None,
        }
    }

    /// The largest, the delay, how many ranges follow the first, and the ranges; perhaps three counts of marks.
    fn skip_ack(&mut self, has_marks: bool) -> Option<()> {
        self.skip_varints(2)?;
        let ranges = self.varint()?;
        self.skip_varints(1)?;
        // Each has two bytes at least, so the payload's end ends it.
        (0..ranges).try_for_each(|_| self.skip_varints(2))?;
        if has_marks { self.skip_varints(3) } else { Some(()) }
    }

    /// Two numbers, an id with its length in one byte, and a reset token.
    fn skip_new_connection_id(&mut self) -> Option<()> {
        self.skip_varints(2)?;
        let (&len, rest) = self.0.split_first()?;
        self.0 = rest;
        self.skip(u64::from(len) + 16)
    }

    /// Data that follow their length.
    fn skip_sized(&mut self) -> Option<()> {
        let len = self.varint()?;
        self.skip(len)
    }

    fn skip_varints(&mut self, count: usize) -> Option<()> {
        (0..count).try_for_each(|_| self.varint().map(drop))
    }

    fn skip(&mut self, len: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(len).ok()?..)?;
        Some(())
    }

    /// A number whose first two bits say how long it is (RFC 9000, section 16).
    fn varint(&mut self) -> Option<u64> {
        let &first = self.0.first()?;
        let (bytes, rest) = self.0.split_at_checked(1 << (first >> 6))?;
        self.0 = rest;
        let number = bytes[1..].iter().fold(u64::from(first & 0x3f), |sum, byte| sum << 8 | u64::from(*byte));
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One frame of each kind that passes before STREAM frames.
    const OTHERS: &[&[u8]] = &[
        &[0x00],
        &[0x01],
        &[0x02, 9, 1, 2, 3, 1, 1, 1, 1],
        &[0x03, 9, 1, 0, 3, 7, 7, 7],
        &[0x04, 4, 1, 9],
        &[0x05, 4, 1],
        &[0x06, 0, 3, 0x0a, 0x0a, 0x0a],
        &[0x07, 2, 0x0a, 0x0a],
        &[0x0e, 4, 9, 0],
        &[0x10, 0xc0, 0, 0, 0, 0, 0, 0, 1],
        &[0x11, 4, 0x40, 1],
        &[0x12, 1],
        &[0x13, 1],
        &[0x14, 1],
        &[0x15, 4, 1],
        &[0x16, 1],
        &[0x17, 1],
        &[0x18, 1, 0, 1, 7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
        &[0x19, 1],
        &[0x1a, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0x1b, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0x1c, 1, 0x0a, 2, 0x0a, 0x0a],
        &[0x1d, 1, 2, 0x0a, 0x0a],
        &[0x1e],
        &[0x1f],
        &[0x31, 2, 0x0a, 0x0a],
        &[0x40, 0xaf, 1, 2, 3, 4],
    ];

    #[test]
    fn stream_frames_are_found_behind_all_others() {
        let with_all: &[u8] = &[0x0e, 0x44, 0x01, 0x80, 0, 1, 0, 3, 1, 2, 3];
        let at_zero: &[u8] = &[0x0a, 8, 2, 1, 2];
        let to_the_end: &[u8] = &[0x09, 4, 1, 2, 3, 4];
        for other in OTHERS {
            let payload = [other, with_all, other, at_zero, other, to_the_end].concat();
            let found: Vec<_> = stream_frames(&payload).map(|frame| (frame.stream, frame.end)).collect();
            assert_eq!(found, [(0x401, 0x103), (8, 2), (4, 4)], "{other:02x?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_read_beyond_the_payload(payload in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(stream_frames(&payload).count() <= payload.len());
        }
    }
}
