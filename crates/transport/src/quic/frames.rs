//! The frames of a packet (RFC 9000, section 19) from which something is kept: what came on streams, the peer's
//! [stamp](crate::connections::stamps), and by how much it put its acknowledgement off.

use crate::connections::stamps::STAMP_LEN;
use core::time::Duration;

/// A delay is told in units of so many times two microseconds as a power (RFC 9000, section 18.2); quinn-proto has no
/// other.
const ACK_DELAY_EXPONENT: u32 = 3;

/// A frame that says something which is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Stream(StreamFrame),
    /// The peer sends nothing more on a stream.
    Reset(u64),
    /// A DATAGRAM frame (RFC 9221) as long as a stamp.
    Stamp(u32),
    /// An ACK frame, for so long put off.
    Ack(Duration),
}

/// What a packet says beside what comes on streams.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OfPacket {
    pub(super) stamp: Option<u32>,
    pub(super) put_off: Duration,
}

impl OfPacket {
    pub(super) fn note(&mut self, frame: Frame) {
        match frame {
            Frame::Stamp(stamp) => self.stamp = Some(stamp),
            Frame::Ack(put_off) => self.put_off = put_off,
            Frame::Stream(_) | Frame::Reset(_) => {}
        }
    }
}

/// A STREAM frame's stream and the offset behind its last byte. One without data says nothing that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamFrame {
    pub(super) stream: u64,
    pub(super) end: u64,
}

/// The frames of a packet's payload that are kept, up to the first thing that is none: quinn-proto ends the connection
/// there.
pub(super) fn frames(payload: &[u8]) -> impl Iterator<Item = Frame> {
    let mut rest = Reader(payload);
    core::iter::from_fn(move || rest.next_frame())
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn next_frame(&mut self) -> Option<Frame> {
        loop {
            let kind = self.varint()?;
            let frame = match kind {
                // RESET_STREAM: the stream, a code, and how long it was.
                0x04 => {
                    let stream = self.varint()?;
                    self.skip_varints(2)?;
                    Some(Frame::Reset(stream))
                }
                0x02 | 0x03 => Some(self.ack(kind == 0x03)?),
                0x08..=0x0f => self.stream(kind)?,
                // DATAGRAM with a length.
                0x31 => {
                    <[u8; STAMP_LEN]>::try_from(self.sized()?).ok().map(u32::from_be_bytes).map(Frame::Stamp)
                }
                _ => self.skip_frame(kind).map(|()| None)?,
            };
            if frame.is_some() {
                return frame;
            }
        }
    }

    /// A STREAM frame, if it has data: its stream, perhaps an offset, and perhaps a length.
    fn stream(&mut self, kind: u64) -> Option<Option<Frame>> {
        let stream = self.varint()?;
        let offset = if kind & 4 != 0 { self.varint()? } else { 0 };
        let len = if kind & 2 != 0 { self.varint()? } else { self.0.len() as u64 };
        self.take(len)?;
        Some((len > 0).then_some(Frame::Stream(StreamFrame { stream, end: offset + len })))
    }

    /// The largest, the delay, how many ranges follow the first, and the ranges; perhaps three counts of marks.
    fn ack(&mut self, has_marks: bool) -> Option<Frame> {
        self.skip_varints(1)?;
        let delay = self.varint()?;
        let ranges = self.varint()?;
        self.skip_varints(1)?;
        // Each has two bytes at least, so the payload's end ends it.
        (0..ranges).try_for_each(|_| self.skip_varints(2))?;
        self.skip_varints(if has_marks { 3 } else { 0 })?;
        Some(Frame::Ack(Duration::from_micros(delay << ACK_DELAY_EXPONENT)))
    }

    /// Passes over what follows the type of any other frame.
    fn skip_frame(&mut self, kind: u64) -> Option<()> {
        match kind {
            // PADDING, PING, HANDSHAKE_DONE, IMMEDIATE_ACK.
            0x00 | 0x01 | 0x1e | 0x1f => Some(()),
            // STOP_SENDING, MAX_STREAM_DATA, STREAM_DATA_BLOCKED.
            0x05 | 0x11 | 0x15 => self.skip_varints(2),
            // CRYPTO: an offset, and data.
            0x06 => self.skip_varints(1).and_then(|()| self.skip_sized()),
            // NEW_TOKEN.
            0x07 => self.skip_sized(),
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

    /// Two numbers, an id with its length in one byte, and a reset token.
    fn skip_new_connection_id(&mut self) -> Option<()> {
        self.skip_varints(2)?;
        let (&len, rest) = self.0.split_first()?;
        self.0 = rest;
        self.skip(u64::from(len) + 16)
    }

    /// Data that follow their length.
    fn sized(&mut self) -> Option<&[u8]> {
        let len = self.varint()?;
        self.take(len)
    }

    fn skip_sized(&mut self) -> Option<()> {
        self.sized().map(drop)
    }

    fn skip_varints(&mut self, count: usize) -> Option<()> {
        (0..count).try_for_each(|_| self.varint().map(drop))
    }

    fn skip(&mut self, len: u64) -> Option<()> {
        self.take(len).map(drop)
    }

    fn take(&mut self, len: u64) -> Option<&[u8]> {
        let (bytes, rest) = self.0.split_at_checked(usize::try_from(len).ok()?)?;
        self.0 = rest;
        Some(bytes)
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
            let found = [(0x401, 0x103), (8, 2), (4, 4)]
                .map(|(stream, end)| Frame::Stream(StreamFrame { stream, end }));
            let streams = frames(&payload).filter(|frame| matches!(frame, Frame::Stream(_)));
            assert_eq!(streams.collect::<Vec<_>>(), found, "{other:02x?}");
        }
    }

    #[test]
    fn an_acknowledgement_says_by_how_much_it_was_put_off() {
        let payload = [&[0x02, 9, 0x47, 0xd0, 1, 2, 3, 4][..], &[0x03, 9, 2, 0, 1, 1, 1, 1]].concat();
        let found: Vec<_> = frames(&payload).collect();
        assert_eq!(found, [Duration::from_millis(16), Duration::from_micros(16)].map(Frame::Ack));
        // The longest number there is.
        assert_eq!(frames(&[&[0x02, 9][..], &[0xff; 8], &[0, 2]].concat()).count(), 1);
    }

    #[test]
    fn a_reset_says_of_which_stream() {
        let payload = [&[0x04, 0x44, 0x01, 7, 0x40, 9][..], &[0x01], &[0x04, 8, 0, 0], &[0x04, 12, 0]];
        let found: Vec<_> = frames(&payload.concat()).collect();
        assert_eq!(found, [Frame::Reset(0x401), Frame::Reset(8)], "the last is cut off");
    }

    #[test]
    fn a_datagram_of_four_bytes_is_a_stamp() {
        let payload = [
            &[0x01, 0x31, 4, 1, 2, 3, 4][..],
            &[0x31, 3, 1, 2, 3],
            &[0x31, 5, 1, 2, 3, 4, 5],
            &[0x30, 1, 2, 3, 4],
        ];
        assert_eq!(frames(&payload.concat()).collect::<Vec<_>>(), [Frame::Stamp(0x0102_0304)]);
        assert_eq!(frames(&[0x31, 4, 1, 2, 3]).count(), 0, "it is cut off");
    }

    proptest! {
        #[test]
        fn nothing_is_read_beyond_the_payload(payload in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(frames(&payload).count() <= payload.len());
        }
    }
}
