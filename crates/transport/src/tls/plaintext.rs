//! What rustls has decrypted and nobody has taken yet.

use super::tls_error;
use heddle_proto::channel::ChannelError;
use rustls::Connection;
use std::io::{self, ErrorKind, Read};

/// rustls takes no ciphertext while more plaintext than this waits in it.
const PLAINTEXT_MAX: usize = 16 * 1024;
/// What rustls reads at once.
const READ_LEN: usize = 4_096;
/// What rustls may keep on an open channel: the longest record (RFC 5246, section 6.2.3), of which the last read is all
/// but the end of the one before. Other messages than data are far shorter, but rustls would join 64 KiB of one that
/// never ends.
const UNFINISHED_LEN_MAX: usize = RECORD_LEN_MAX + READ_LEN;
const RECORD_LEN_MAX: usize = HEADER_LEN + 16_384 + 2_048;
/// Bytes of a record before its payload, whose length the last two say (RFC 8446, section 5.1).
const HEADER_LEN: usize = 5;

/// What a session has for us.
#[derive(Default)]
pub(super) struct Plaintext {
    /// Bytes in rustls: at most [`PLAINTEXT_MAX`] and a record.
    pub(super) len: usize,
    pub(super) peer_closed: bool,
    /// Bytes that were taken since the last record of plaintext: rustls keeps no more than these.
    pub(super) unfinished_len: usize,
    begun: Begun,
    input: Input,
    /// Whether [`UNFINISHED_LEN_MAX`] holds.
    pub(super) is_limited: bool,
}

impl Plaintext {
    /// Feeds a session with ciphertext until enough plaintext waits in it; returns how much was taken.
    pub(super) fn read(&mut self, connection: &mut Connection, bytes: &[u8]) -> Result<usize, ChannelError> {
        let mut rest = bytes;
        while !rest.is_empty() && self.len <= PLAINTEXT_MAX {
            let before = rest;
            self.input.prepare(self.begun.len);
            let taken =
                connection.read_tls(&mut rest).map_err(|error| ChannelError::Tls(error.to_string()))?;
            self.begun.pass(&before[..taken]);
            let state = connection.process_new_packets().map_err(|error| tls_error(&error))?;
            let has_more = state.plaintext_bytes_to_read() > self.len;
            self.unfinished_len = if has_more { self.begun.len } else { self.unfinished_len + taken };
            if self.is_limited && self.unfinished_len > UNFINISHED_LEN_MAX {
                return Err(ChannelError::PeerMisbehaved("a message of TLS that is no data does not end"));
            }
            self.len = state.plaintext_bytes_to_read();
            self.peer_closed = state.peer_has_closed();
            if self.peer_closed {
                // Nothing that follows close_notify counts.
                rest = &[];
            } else if taken == 0 {
                return Err(ChannelError::Tls("a record is too long".into()));
            }
        }
        Ok(bytes.len() - rest.len())
    }
    /// What rustls' buffer for ciphertext takes beside the bytes in it.
    pub(super) fn spare_bytes(&self) -> usize {
        self.input.capacity.saturating_sub(self.unfinished_len)
    }

    /// An empty buffer for ciphertext becomes as short as it can be: rustls would do so when the next bytes come, and
    /// keeps up to 32 KiB until then.
    pub(super) fn give_back(&mut self, connection: &mut Connection) {
        if self.begun.len == 0 && self.input.capacity > READ_LEN {
            // It fails, and no byte is read.
            let _ = connection.read_tls(&mut Nothing);
            self.input.prepare(0);
        }
    }
}

/// How much of the last record came.
#[derive(Default)]
struct Begun {
    len: usize,
    payload_len: usize,
}

impl Begun {
    fn pass(&mut self, mut bytes: &[u8]) {
        while let Some((byte, rest)) = bytes.split_first() {
            if self.len == 0
                && let Some(&[_, _, _, high, low]) = bytes.first_chunk::<HEADER_LEN>()
            {
                (self.len, self.payload_len) = (HEADER_LEN, u16::from_be_bytes([high, low]).into());
                bytes = &bytes[HEADER_LEN..];
            } else if self.len < HEADER_LEN {
                // Of the header's bytes only the last two stay.
                self.payload_len = (self.payload_len << 8 | usize::from(*byte)) & 0xffff;
                self.len += 1;
                bytes = rest;
            } else {
                let taken = (HEADER_LEN + self.payload_len - self.len).min(bytes.len());
                self.len += taken;
                bytes = &bytes[taken..];
            }
            if self.len >= HEADER_LEN && self.len == HEADER_LEN + self.payload_len {
                *self = Begun::default();
            }
        }
    }
}

/// How long rustls' buffer for ciphertext is: it says so to nobody.
#[derive(Default)]
struct Input {
    len: usize,
    capacity: usize,
}

impl Input {
    /// What rustls does before it reads, with so many bytes in the buffer (`DeframerVecBuffer::prepare_read`).
    fn prepare(&mut self, used: usize) {
        let wanted = RECORD_LEN_MAX.min(used + READ_LEN);
        if wanted > self.len {
            self.len = wanted;
            if wanted > self.capacity {
                self.capacity = wanted.max(2 * self.capacity);
            }
        } else if used == 0 {
            (self.len, self.capacity) = (wanted, wanted);
        }
    }
}

/// A socket of which there is nothing to read.
struct Nothing;

impl Read for Nothing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// However a stream of records is cut.
        #[test]
        fn what_is_begun_is_what_came_since_the_last_end_of_a_record(
            lens in prop::collection::vec(0_u16..2_000, 1..20),
            cuts in prop::collection::vec(1_usize..1_500, 1..50),
        ) {
            let (mut stream, mut ends) = (Vec::new(), vec![0]);
            for len in lens {
                stream.extend([23, 3, 3]);
                stream.extend(len.to_be_bytes());
                stream.resize(stream.len() + usize::from(len), 0xff);
                ends.push(stream.len());
            }
            let (mut begun, mut at) = (Begun::default(), 0);
            for cut in cuts.into_iter().cycle() {
                let next = (at + cut).min(stream.len());
                begun.pass(&stream[at..next]);
                at = next;
                let end = ends.iter().rfind(|end| **end <= at).copied().unwrap_or(0);
                prop_assert_eq!(begun.len, at - end);
                if at == stream.len() {
                    break;
                }
            }
        }
    }
}
