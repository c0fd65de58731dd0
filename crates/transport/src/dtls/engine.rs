//! DTLS itself: dimpl, fed with records and emptied after each call.

use super::DATAGRAM_BYTES_MIN;
use super::key::{self, OurKey};
use super::options::SessionOptions;
use crate::connections::clock::Clock;
use crate::connections::proof::KEY_LEN;
use core::fmt;
use core::time::Duration;
use dimpl::{Dtls, Error, Output};
use heddle_proto::channel::Role;
use heddle_seam::time::Instant;
use std::collections::VecDeque;

/// What a record takes beside its contents: unified header of five bytes, the content's type, and the tag.
pub(crate) const RECORD_OVERHEAD: usize = 22;

/// Contents of a record that need no larger buffer.
const CONTENTS_LEN: usize = 2048;

/// Bytes that come before the handshake is over, at most: some 20 sendings of a flight and of the first records behind
/// it. No certificate is longer than what came of it, and dimpl panics where the buffer does not hold one.
const HANDSHAKE_BYTES_MAX: usize = 64 * 1024;

/// Datagrams of DTLS itself that wait, while nothing may be sent. Beyond, the eldest are lost, and DTLS repeats what
/// counts.
const OUTBOX_MAX: usize = 64;

/// Why a session cannot go on.
#[derive(Debug)]
pub(crate) enum EngineError {
    /// What DTLS says.
    Dtls(Error),
    /// More came before the handshake was over than an honest peer sends.
    LongHandshake,
    /// There is no key yet for what is to be sent.
    NoKey,
}

impl From<Error> for EngineError {
    fn from(error: Error) -> Self {
        EngineError::Dtls(error)
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineError::Dtls(error) => write!(f, "{error}"),
            EngineError::LongHandshake => f.write_str("its handshake is too long"),
            EngineError::NoKey => f.write_str("there is no key yet"),
        }
    }
}

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
    /// Bytes that may come before the handshake is over; `None` once it is.
    handshake_left: Option<usize>,
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
        let room = usize::from(DATAGRAM_BYTES_MIN) - crate::connections::TOKEN_LEN;
        let (rto, timeouts) = (options.initial_rto, &options.timeouts);
        let timeout = timeouts.dial.max(timeouts.listen);
        let config = key::config(seed, room, rto, timeout, options)?;
        let mut dtls = Dtls::new_13(config, ours.certificate(), clock.std(now));
        dtls.set_active(role == Role::Initiator);
        let scratch = vec![0; HANDSHAKE_BYTES_MAX];
        let mut engine = Engine {
            dtls,
            clock,
            told_at: now,
            timeout: None,
            outbox: VecDeque::new(),
            handshake_left: Some(HANDSHAKE_BYTES_MAX),
            scratch,
        };
        engine.dtls.handle_timeout(clock.std(now))?;
        Ok(engine)
    }

    /// Takes the records of a datagram. [`Engine::poll`] must follow.
    pub(crate) fn handle_records(&mut self, now: Instant, records: &[u8]) -> Result<(), EngineError> {
        /// How old dimpl's time may be. Telling it costs a look at all that it waits for.
        const OLD: Duration = Duration::from_millis(50);
        if let Some(left) = &mut self.handshake_left {
            *left = left.checked_sub(records.len()).ok_or(EngineError::LongHandshake)?;
        }
        if now.since(self.told_at) >= OLD {
            self.tell_time(now)?;
        }
        Ok(self.dtls.handle_packet(records)?)
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
                Output::Packet(records) => post(&mut self.outbox, records),
                Output::PeerCert(certificate) => {
                    return Some(News::Certificate(key::fingerprint(certificate)));
                }
                Output::Connected => {
                    self.handshake_left = None;
                    self.scratch = vec![0; CONTENTS_LEN];
                    return Some(News::Connected);
                }
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
    pub(crate) fn seal(&mut self, contents: &[u8], out: &mut Vec<u8>) -> Result<(), EngineError> {
        // DTLS would keep it for later, and what comes out now would be of the handshake.
        if self.handshake_left.is_some() {
            return Err(EngineError::NoKey);
        }
        self.dtls.send_application_data(contents)?;
        let mut is_sealed = false;
        loop {
            match self.dtls.poll_output(&mut self.scratch) {
                Output::Packet(records) if !is_sealed => {
                    is_sealed = true;
                    out.extend_from_slice(records);
                }
                Output::Packet(records) => post(&mut self.outbox, records),
                Output::BufferTooSmall { needed } => self.scratch.resize(needed, 0),
                Output::Timeout(at) => {
                    self.timeout = Some(self.clock.ours(at));
                    return if is_sealed { Ok(()) } else { Err(EngineError::NoKey) };
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

fn post(outbox: &mut VecDeque<Vec<u8>>, records: &[u8]) {
    if outbox.len() == OUTBOX_MAX {
        outbox.pop_front();
    }
    outbox.push_back(records.to_vec());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::proof::Protocol;
    use zeroize::Zeroizing;

    #[allow(clippy::disallowed_methods, reason = "an anchor can be had no other way")]
    fn options() -> SessionOptions {
        SessionOptions {
            initial_rto: Duration::from_secs(1),
            ..SessionOptions::new(std::time::Instant::now())
        }
    }

    fn engine(role: Role, seed: u8, certificate_bytes: Option<usize>) -> Engine {
        const PROTOCOL: Protocol = Protocol { transport: "a", version: 1 };
        let key = OurKey::new(PROTOCOL, &Zeroizing::new([seed; KEY_LEN])).unwrap();
        let key = match certificate_bytes {
            Some(bytes) => key.with_certificate_of(bytes),
            None => key,
        };
        Engine::new(Instant::ZERO, role, &key, &options(), seed.into()).unwrap()
    }

    /// What one side makes of a peer whose certificate has so many bytes.
    fn met(ours: Role, certificate_bytes: Option<usize>) -> Result<Vec<News>, EngineError> {
        let mut here = engine(ours, 1, None);
        let mut there = engine(ours.other(), 2, certificate_bytes);
        let mut news = Vec::new();
        for _ in 0..20 {
            news.extend(std::iter::from_fn(|| here.poll()));
            while there.poll().is_some() {}
            while let Some(records) = there.poll_records() {
                here.handle_records(Instant::ZERO, &records)?;
                news.extend(std::iter::from_fn(|| here.poll()));
            }
            while let Some(records) = here.poll_records() {
                // It may not like us, either.
                let _ = there.handle_records(Instant::ZERO, &records);
                while there.poll().is_some() {}
            }
        }
        Ok(news)
    }

    #[test]
    fn no_certificate_is_too_long_for_the_buffer() {
        for role in [Role::Initiator, Role::Responder] {
            assert!(met(role, None).unwrap().contains(&News::Connected));
            // More records than these need dimpl does not send in one flight; another implementation may.
            for bytes in [2_047, 2_049, 3_000, 5_000] {
                // Whether it is liked is another question.
                let news = met(role, Some(bytes));
                let is_seen = |news: &Vec<News>| news.iter().any(|one| matches!(one, News::Certificate(_)));
                assert!(news.as_ref().map_or(true, is_seen), "{bytes}: {news:?}");
            }
        }
    }

    #[test]
    fn a_handshake_that_never_ends_is_not_borne() {
        let mut here = engine(Role::Responder, 1, None);
        // Handshake messages in clear, a piece of each.
        let mut piece = vec![22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 3, 232];
        piece.extend([0; 1000]);
        let borne = (0..1000).take_while(|_| here.handle_records(Instant::ZERO, &piece).is_ok()).count();
        assert!(borne <= HANDSHAKE_BYTES_MAX / 1000, "{borne}");
    }

    #[test]
    fn what_cannot_leave_does_not_pile_up() {
        let mut outbox = VecDeque::new();
        (0..1000_u32).for_each(|number| post(&mut outbox, &number.to_be_bytes()));
        assert_eq!((outbox.len(), outbox.back()), (OUTBOX_MAX, Some(&999_u32.to_be_bytes().to_vec())));
    }

    #[test]
    fn nothing_is_sealed_before_there_is_a_key() {
        let mut out = Vec::new();
        let sealed = engine(Role::Initiator, 1, None).seal(b"too soon", &mut out);
        assert!(matches!(sealed, Err(EngineError::NoKey)) && out.is_empty());
    }
}
