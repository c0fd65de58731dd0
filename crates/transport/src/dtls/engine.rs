//! DTLS itself: dimpl, fed with records and emptied after each call.

use super::key::{self, KEY_LEN, OurKey};
use super::{DATAGRAM_BYTES_MIN, SessionOptions};
use crate::clock::Clock;
use core::time::Duration;
use dimpl::{Dtls, Error, Output};
use heddle_proto::channel::Role;
use heddle_seam::time::Instant;
use std::collections::VecDeque;

/// What a record takes beside its contents: unified header of five bytes, the content's type, and the tag.
pub(crate) const RECORD_OVERHEAD: usize = 22;

/// Contents of a record that need no larger buffer.
const CONTENTS_LEN: usize = 2048;

/// What came of a datagram or of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The peer showed a certificate with this fingerprint.
    Certificate([u8; KEY_LEN]),
    /// The handshake is over.
    Connected,
    /// The contents of a record, these bytes of what [`Engine::contents`] gives.
    Contents { end: usize },
    /// The peer closed DTLS itself.
    Closed,
}

pub(crate) struct Engine {
    dtls: Dtls,
    clock: Clock,
    /// When dimpl heard the time.
    told_at: Instant,
    timeout: Option<Instant>,
    /// Records that are to be sent, a datagram's in each.
    outbox: VecDeque<Vec<u8>>,
    scratch: Vec<u8>,
}

impl Engine {
    /// An engine before its first message. `seed` is for what is no secret.
    pub(crate) fn new(
        now: Instant,
        role: Role,
        ours: &OurKey,
        options: &SessionOptions,
        seed: u64,
    ) -> Result<Self, Error> {
        let clock = Clock { anchor: options.anchor };
        // The dialler's token is the longest head of a datagram.
        let room = usize::from(DATAGRAM_BYTES_MIN) - crate::links::TOKEN_LEN;
        let (rto, timeout) = (options.initial_rto, options.handshake_timeout);
        let config = key::config(seed, room, rto, timeout, options.key_records_max)?;
        let mut dtls = Dtls::new_13(config, ours.certificate(), clock.std(now));
        dtls.set_active(role == Role::Initiator);
        let scratch = vec![0; CONTENTS_LEN];
        let mut engine =
            Engine { dtls, clock, told_at: now, timeout: None, outbox: VecDeque::new(), scratch };
        engine.dtls.handle_timeout(clock.std(now))?;
        Ok(engine)
    }

    /// Takes the records of a datagram. [`Engine::poll`] must follow.
    pub(crate) fn handle_records(&mut self, now: Instant, records: &[u8]) -> Result<(), Error> {
        /// How old dimpl's time may be. Telling it costs a look at all that it waits for.
        const OLD: Duration = Duration::from_millis(50);
        if now.since(self.told_at) >= OLD {
            self.tell_time(now)?;
        }
        self.dtls.handle_packet(records)
    }

    /// Lets dimpl repeat what was lost. [`Engine::poll`] must follow.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Result<(), Error> {
        match self.timeout {
            Some(timeout) if timeout <= now => self.tell_time(now),
            _ => Ok(()),
        }
    }

    fn tell_time(&mut self, now: Instant) -> Result<(), Error> {
        self.told_at = now;
        self.dtls.handle_timeout(self.clock.std(now))
    }

    /// What came of it, until `None`.
    pub(crate) fn poll(&mut self) -> Option<News> {
        loop {
            match self.dtls.poll_output(&mut self.scratch) {
                Output::Packet(records) => self.outbox.push_back(records.to_vec()),
                Output::PeerCert(certificate) => {
                    return Some(News::Certificate(key::fingerprint(certificate)));
                }
                Output::Connected => return Some(News::Connected),
                Output::ApplicationData(contents) => return Some(News::Contents { end: contents.len() }),
                Output::CloseNotify => return Some(News::Closed),
                Output::BufferTooSmall { needed } => self.scratch.resize(needed, 0),
                Output::Timeout(at) => {
                    self.timeout = Some(self.clock.ours(at));
                    return None;
                }
                _ => {}
            }
        }
    }

    /// The contents of the record that [`News::Contents`] told of last.
    pub(crate) fn contents(&self, end: usize) -> &[u8] {
        self.scratch.get(..end).unwrap_or_default()
    }

    /// Appends a record with these contents to `out`. Records that DTLS itself wants to send go to the outbox.
    pub(crate) fn seal(&mut self, contents: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        self.dtls.send_application_data(contents)?;
        let mut is_sealed = false;
        loop {
            match self.dtls.poll_output(&mut self.scratch) {
                Output::Packet(records) if !is_sealed => {
                    is_sealed = true;
                    out.extend_from_slice(records);
                }
                Output::Packet(records) => self.outbox.push_back(records.to_vec()),
                Output::BufferTooSmall { needed } => self.scratch.resize(needed, 0),
                Output::Timeout(at) => {
                    self.timeout = Some(self.clock.ours(at));
                    return Ok(());
                }
                _ => {}
            }
        }
    }

    /// The next datagram's records of DTLS itself.
    pub(crate) fn poll_records(&mut self) -> Option<Vec<u8>> {
        self.outbox.pop_front()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.timeout
    }
}
