//! What rustls has decrypted and nobody has taken yet.

use super::tls_error;
use heddle_proto::channel::ChannelError;
use rustls::Connection;

/// rustls takes no ciphertext while more plaintext than this waits in it.
const PLAINTEXT_MAX: usize = 16 * 1024;
/// What rustls reads at once.
const READ_LEN: usize = 4_096;
/// What rustls may keep on an open channel: the longest record (RFC 5246, section 6.2.3), of which the last read is all
/// but the end of the one before. Other messages than data are far shorter, but rustls would join 64 KiB of one that
/// never ends.
const UNFINISHED_LEN_MAX: usize = 5 + 16_384 + 2_048 + READ_LEN;

/// What a session has for us.
#[derive(Default)]
pub(super) struct Plaintext {
    /// Bytes in rustls: at most [`PLAINTEXT_MAX`] and a record.
    pub(super) len: usize,
    pub(super) peer_closed: bool,
    /// Bytes that were taken since the last plaintext came: rustls keeps no more than these.
    pub(super) unfinished_len: usize,
    /// Whether [`UNFINISHED_LEN_MAX`] holds.
    pub(super) is_limited: bool,
}

impl Plaintext {
    /// Feeds a session with ciphertext until enough plaintext waits in it; returns how much was taken.
    pub(super) fn read(&mut self, connection: &mut Connection, bytes: &[u8]) -> Result<usize, ChannelError> {
        let mut rest = bytes;
        while !rest.is_empty() && self.len <= PLAINTEXT_MAX {
            let taken =
                connection.read_tls(&mut rest).map_err(|error| ChannelError::Tls(error.to_string()))?;
            let state = connection.process_new_packets().map_err(|error| tls_error(&error))?;
            let has_more = state.plaintext_bytes_to_read() > self.len;
            self.unfinished_len = if has_more { 0 } else { self.unfinished_len + taken };
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
}
