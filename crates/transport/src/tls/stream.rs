//! rustls as a byte stream without a socket: ciphertext in and out, plaintext in and out.
//!
//! Copies of a cell that comes in: into rustls' buffer, where it is decrypted in place, and out of
//! it into a vector per record, from which it is lent. Copies of a cell that goes out: into
//! `gathered`, into the record where it is encrypted in place, and into the driver's buffer.

use super::hello::{EARLY, HelloGate, Passed};
use super::plaintext::Plaintext;
use super::record::{RECORD_OVERHEAD, RecordLimit};
use super::signing::{Signed, Signing};
use super::tls_error;
use crate::link::TlsBinding;
use heddle_proto::cell::CELL_LEN;
use heddle_proto::cell::link::AUTH_EXPORTER_LABEL;
use heddle_proto::channel::{ChannelError, Done, Work};
use heddle_seam::time::Instant;
use rustls::{ClientConnection, Connection, ProtocolVersion, ServerConnection};
use std::io::{self, BufRead, Write};

/// rustls begins another record after so much plaintext (RFC 8446, section 5.1).
const FRAGMENT_LEN: usize = 16_384;

/// What an open session takes beside its place in the channel: keys and their round keys in the C library's heap, the
/// transcript's hash, the peer's certificate. `transport/tests/channel_memory.rs` measures it.
const SESSION_BYTES: usize = 6 * 1024;

pub(super) struct TlsStream {
    session: Session,
    /// What a responder has read and may not answer yet, until the handshake is over.
    gate: Option<HelloGate>,
    /// The responder's certificate, if that is us.
    own_cert_der: Option<Vec<u8>>,
    plaintext: Plaintext,
    record_limit: RecordLimit,
    /// Plaintext of the record to come: at most [`RecordLimit::plaintext_max`] and a cell once open.
    gathered: Vec<u8>,
    /// Ciphertext in rustls, at most: bytes of sealed records that were not sent.
    sealed_len: usize,
    /// Bytes that may still be sent.
    writable: usize,
    closing: bool,
}

/// Where the session is.
enum Session {
    Here(Connection),
    /// It is to go to a worker.
    Waiting(Signing),
    WithWorker,
}

impl TlsStream {
    pub(super) fn client(connection: ClientConnection) -> Self {
        Self::new(connection.into(), None, None)
    }

    pub(super) fn server(connection: ServerConnection, gate: HelloGate, own_cert_der: Vec<u8>) -> Self {
        Self::new(connection.into(), Some(gate), Some(own_cert_der))
    }

    fn new(mut connection: Connection, gate: Option<HelloGate>, own_cert_der: Option<Vec<u8>>) -> Self {
        // What is written is bounded by what may be sent, here and not by rustls.
        connection.set_buffer_limit(None);
        TlsStream {
            session: Session::Here(connection),
            gate,
            own_cert_der,
            plaintext: Plaintext::default(),
            record_limit: RecordLimit::new(),
            gathered: Vec::new(),
            sealed_len: 0,
            writable: 0,
            closing: false,
        }
    }

    fn connection(&self) -> Option<&Connection> {
        match &self.session {
            Session::Here(connection) => Some(connection),
            Session::Waiting(_) | Session::WithWorker => None,
        }
    }

    fn connection_mut(&mut self) -> Option<&mut Connection> {
        match &mut self.session {
            Session::Here(connection) => Some(connection),
            Session::Waiting(_) | Session::WithWorker => None,
        }
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.connection().is_none_or(|connection| connection.is_handshaking())
    }

    /// Whether something waits in rustls to be sent.
    fn wants_write(&self) -> bool {
        self.connection().is_some_and(|connection| connection.wants_write())
    }

    /// Takes ciphertext until enough plaintext waits to be consumed; returns how much was taken.
    pub(super) fn receive(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, ChannelError> {
        let mut taken = 0;
        while let Some(gate) = &mut self.gate
            && taken < bytes.len()
        {
            taken += gate.receive(&bytes[taken..])?;
            self.pass_gate(now)?;
        }
        if taken < bytes.len() {
            taken += self.read(&bytes[taken..])?;
        }
        Ok(taken)
    }

    /// Answers what waited for its turn, if that has come.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Result<(), ChannelError> {
        self.pass_gate(now)
    }

    /// When [`TlsStream::handle_timeout`] is to be called.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.gate.as_ref()?.retry_at()
    }

    fn pass_gate(&mut self, now: Instant) -> Result<(), ChannelError> {
        // In TLS 1.2 the signature is made when the version is known, in TLS 1.3 perhaps only after a second
        // ClientHello.
        let Session::Here(connection) = &self.session else { return Ok(()) };
        let is_signed = connection.protocol_version() == Some(ProtocolVersion::TLSv1_2);
        match self.gate.as_mut().and_then(|gate| gate.poll_record(now, is_signed)) {
            None => Ok(()),
            Some(Passed::Read(record)) => {
                self.read(&record)?;
                self.leave_gate();
                Ok(())
            }
            Some(Passed::Sign(record)) => {
                if let Session::Here(connection) = core::mem::replace(&mut self.session, Session::WithWorker)
                {
                    self.session = Session::Waiting(Signing { connection, record });
                }
                Ok(())
            }
        }
    }

    fn leave_gate(&mut self) {
        if !self.is_handshaking() {
            self.gate = None;
        }
    }

    /// Work for a worker, if there is some.
    pub(super) fn poll_work(&mut self) -> Option<Work> {
        match core::mem::replace(&mut self.session, Session::WithWorker) {
            Session::Waiting(signing) => Some(signing.into_work()),
            session => {
                self.session = session;
                None
            }
        }
    }

    /// A worker is done.
    pub(super) fn handle_work(&mut self, done: Done) -> Result<(), ChannelError> {
        let Ok(signed) = done.downcast::<Signed>() else {
            return Err(ChannelError::Tls("what a worker did is not ours".into()));
        };
        let Signed { connection, read } = *signed;
        self.session = Session::Here(connection);
        if let Some(gate) = &mut self.gate {
            gate.on_signed();
        }
        self.plaintext = read?;
        self.leave_gate();
        Ok(())
    }

    /// The channel is open: no message but data is long any more.
    pub(super) fn limit_messages(&mut self) {
        self.plaintext.is_limited = true;
    }

    fn read(&mut self, bytes: &[u8]) -> Result<usize, ChannelError> {
        match &mut self.session {
            Session::Here(connection) => self.plaintext.read(connection, bytes),
            // The gate lets nothing through.
            Session::Waiting(_) | Session::WithWorker => Err(EARLY),
        }
    }

    /// Whether there is plaintext. Fails when there is none and there will be none.
    pub(super) fn has_plaintext(&self) -> Result<bool, ChannelError> {
        if self.plaintext.len > 0 {
            return Ok(true);
        }
        if self.plaintext.peer_closed { Err(ChannelError::PeerClosed) } else { Ok(false) }
    }

    /// The first plaintext, up to the end of its record; empty when there is none.
    pub(super) fn chunk(&mut self) -> &[u8] {
        let connection = self.connection_mut();
        connection.and_then(|connection| connection.reader().into_first_chunk().ok()).unwrap_or_default()
    }

    /// Drops the first `len` bytes of plaintext, which are at most one chunk.
    pub(super) fn consume(&mut self, len: usize) {
        if let Some(connection) = self.connection_mut() {
            connection.reader().consume(len);
            self.plaintext.len -= len;
        }
    }

    pub(super) fn set_writable(&mut self, now: Instant, bytes: usize) {
        self.writable = bytes;
        self.record_limit.on_turn(now);
    }

    pub(super) fn set_window(&mut self, bytes: usize) {
        self.record_limit.set_window(bytes);
    }

    /// Whole cells that could be gathered, sealed and sent at once.
    pub(super) fn capacity_cells(&self) -> usize {
        let only_handshake = self.wants_write() && self.sealed_len == 0;
        if self.closing || only_handshake {
            return 0;
        }
        let room = self.writable.saturating_sub(self.sealed_len);
        let record_plaintext = self.record_limit.plaintext_max();
        let full_record = record_plaintext + RECORD_OVERHEAD;
        let last_record = (room % full_record).saturating_sub(RECORD_OVERHEAD);
        let plaintext = room / full_record * record_plaintext + last_record;
        plaintext.saturating_sub(self.gathered.len()) / CELL_LEN
    }

    /// The plaintext to come; [`TlsStream::seal_full`] is to be called after appending.
    pub(super) fn gather(&mut self) -> &mut Vec<u8> {
        &mut self.gathered
    }

    /// Whether anything waits to be sealed or sent.
    pub(super) fn is_idle(&self) -> bool {
        self.gathered.is_empty() && !self.wants_write()
    }

    /// Gives back the memory of buffers that are empty.
    pub(super) fn give_back(&mut self) {
        self.gathered.shrink_to_fit();
        if let Session::Here(connection) = &mut self.session {
            self.plaintext.give_back(connection);
        }
    }

    /// What an open channel takes beside [`TlsStream::buffered_bytes`].
    pub(super) fn state_bytes(&self) -> usize {
        let own_cert = self.own_cert_der.as_ref().map_or(0, Vec::capacity);
        let gathered = self.gathered.capacity() - self.gathered.len();
        SESSION_BYTES + own_cert + gathered + self.plaintext.spare_bytes()
    }

    /// Seals what was gathered when it fills a record.
    pub(super) fn seal_full(&mut self) {
        if self.gathered.len() >= self.record_limit.plaintext_max() {
            self.seal();
        }
    }

    fn seal(&mut self) {
        let Session::Here(connection) = &mut self.session else { return };
        if self.gathered.is_empty() || connection.is_handshaking() {
            return;
        }
        let records = self.gathered.len().div_ceil(FRAGMENT_LEN);
        // Without a limit rustls takes everything; it fails only after a fatal alert, and then
        // nothing more is to be said.
        let _ = connection.writer().write_all(&self.gathered);
        self.sealed_len += self.gathered.len() + records * RECORD_OVERHEAD;
        self.gathered.clear();
    }

    /// Appends what may be sent to `out`; returns whether more waits.
    pub(super) fn transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        self.seal();
        let before = out.len();
        if let Session::Here(connection) = &mut self.session {
            while connection.wants_write() && self.writable > 0 {
                let mut limited = Limited { out, left: self.writable };
                let Ok(written) = connection.write_tls(&mut limited) else {
                    break;
                };
                self.writable -= written;
                self.sealed_len = self.sealed_len.saturating_sub(written);
            }
        }
        if out.len() > before {
            self.record_limit.on_sent(now);
        }
        if !self.wants_write() {
            self.sealed_len = 0;
        }
        !self.is_idle()
    }

    /// Sends close_notify after what was gathered, and nothing after it.
    pub(super) fn close(&mut self) {
        if !self.closing {
            self.seal();
            self.gathered.clear();
            if let Some(connection) = self.connection_mut() {
                connection.send_close_notify();
            }
            self.closing = true;
        }
    }

    /// Fills `out` from the exporter; false unless the session is TLS 1.3.
    pub(super) fn export_secret(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> bool {
        self.connection().is_some_and(|connection| {
            connection.protocol_version() == Some(ProtocolVersion::TLSv1_3)
                && connection.export_keying_material(out, label, Some(context)).is_ok()
        })
    }

    /// What came and is not whole yet, and what is to be sent.
    pub(super) fn buffered_bytes(&self) -> usize {
        self.plaintext.len + self.plaintext.unfinished_len + self.gathered.len() + self.sealed_len
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing
    }
}

impl TlsBinding for TlsStream {
    fn responder_cert_der(&self) -> Option<&[u8]> {
        match &self.own_cert_der {
            Some(own) => Some(own),
            None => self.connection()?.peer_certificates()?.first().map(|cert| cert.as_ref()),
        }
    }

    fn export_auth_secret(&self, context: &[u8]) -> Result<[u8; 32], ChannelError> {
        let connection = self.connection().ok_or(ChannelError::Tls("the handshake is not over".into()))?;
        let exported = connection.export_keying_material([0; 32], AUTH_EXPORTER_LABEL, Some(context));
        exported.map_err(|error| tls_error(&error))
    }
}

/// Takes what fits and no more.
struct Limited<'a> {
    out: &'a mut Vec<u8>,
    left: usize,
}

impl Write for Limited<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len().min(self.left);
        self.out.extend_from_slice(&bytes[..len]);
        self.left -= len;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
