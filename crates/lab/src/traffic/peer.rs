//! A stream with a deadline, and the heads that begin what goes over it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::stop::Stop;
use crate::error::{Error, Result};
use crate::machine::interrupt;
use crate::socks::is_timeout;

/// How long one read or write may block before Ctrl-C, the stop and the deadline are looked at.
pub(super) const SLICE: Duration = Duration::from_millis(200);
/// The longest head of a request or an answer, in bytes.
pub(crate) const HEAD_MAX: usize = 4096;

/// A stream with a deadline.
#[derive(Debug)]
pub(super) struct Peer {
    stream: TcpStream,
    start: Instant,
    timeout: Duration,
    stop: Option<Stop>,
}

impl Peer {
    pub(super) fn new(stream: TcpStream, timeout: Duration) -> Result<Peer> {
        let ready = stream
            .set_read_timeout(Some(SLICE))
            .and_then(|()| stream.set_write_timeout(Some(SLICE)))
            .and_then(|()| stream.set_nodelay(true));
        ready.map_err(Error::io("preparing a stream"))?;
        Ok(Peer { stream, start: Instant::now(), timeout, stop: None })
    }

    /// The same peer, which also gives up with [`Error::Interrupted`] when told to stop.
    pub(super) fn stopped_by(self, stop: &Stop) -> Peer {
        Peer { stop: Some(stop.clone()), ..self }
    }

    /// The same peer with another time-out.
    pub(super) fn patient_for(self, timeout: Duration) -> Peer {
        Peer { timeout, ..self }
    }

    /// Another handle of the same stream, with a deadline of its own.
    pub(super) fn try_clone(&self) -> Result<Peer> {
        let stream = self.stream.try_clone().map_err(Error::io("sharing a stream"))?;
        Ok(Peer { stream, start: Instant::now(), timeout: self.timeout, stop: self.stop.clone() })
    }

    /// Lets the time-out count from now, and says when that was.
    pub(super) fn begin(&mut self) -> Instant {
        self.start = Instant::now();
        self.start
    }

    pub(super) fn send(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let written = self.stream.write(bytes);
            let len = self.progress("sending over a stream", written)?;
            bytes = &bytes[len..];
        }
        Ok(())
    }

    /// Reads what there is; 0 is the end. Waits at most until the deadline.
    pub(super) fn receive(&mut self, buf: &mut [u8]) -> Result<usize> {
        loop {
            let read = self.stream.read(buf);
            let end = matches!(read, Ok(0));
            match self.progress("receiving over a stream", read)? {
                0 if !end => {}
                len => return Ok(len),
            }
        }
    }

    /// The bytes moved, 0 when the slice passed without any, or why to give up.
    fn progress(&self, doing: &str, moved: io::Result<usize>) -> Result<usize> {
        interrupt::check()?;
        if self.stop.as_ref().is_some_and(Stop::is_asked) {
            return Err(Error::Interrupted);
        }
        match moved {
            Ok(len) => Ok(len),
            Err(error) if !is_timeout(&error) => Err(Error::io(doing)(error)),
            Err(_) if self.start.elapsed() < self.timeout => Ok(0),
            Err(_) => {
                let waiting_for = format!("progress while {doing}");
                Err(Error::Deadline { waiting_for, after: self.timeout })
            }
        }
    }

    /// Reads an answer's head, and what came with it of the body.
    pub(super) fn receive_head(&mut self) -> Result<(String, Vec<u8>)> {
        let mut bytes = Vec::new();
        let mut chunk = [0; HEAD_MAX];
        loop {
            if let Some((head, body)) = split_head(&bytes) {
                return Ok((head, body));
            }
            let len = self.receive(&mut chunk)?;
            if len == 0 || bytes.len() >= HEAD_MAX {
                return Err(closed("the file server"));
            }
            bytes.extend(&chunk[..len]);
        }
    }
}

pub(crate) fn closed(by: &'static str) -> Error {
    Error::Refused { by, said: "the stream was closed".into() }
}

/// Splits a head from what follows its empty line, once that line is there.
pub(crate) fn split_head(bytes: &[u8]) -> Option<(String, Vec<u8>)> {
    let at = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    Some((String::from_utf8_lossy(&bytes[..at]).into_owned(), bytes[at + 4..].to_vec()))
}

/// The value of a head's `Content-Length`.
pub(crate) fn content_length(head: &str) -> Option<u64> {
    number_field(head, "content-length")
}

/// The number in the first field of this name.
pub(super) fn number_field(head: &str, name: &str) -> Option<u64> {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let mut found = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
    found.next()?.1.trim().parse().ok()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
