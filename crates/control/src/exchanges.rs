//! Exchanges with directories: a connection, a request, an answer.
//!
//! 1. The request leaves as the connection gives credit.
//! 2. The answer is read as it comes, and no further than its limit.
//! 3. What is not over when its time is up is given up, and its connection reset.
//!
//! Nobody but the relay itself begins one: a round of fetches has one at a time, and a descriptor goes once to each
//! authority.

use heddle_dir::guard::guarded;
use heddle_dir::http::{Answer, HttpError, HttpResponse, Request};
use heddle_seam::language::{Language, Plain};
use heddle_seam::node::{Input, Output, SocketError, SocketId};
use heddle_seam::time::Instant;
use std::collections::{BTreeMap, VecDeque};

/// Bytes that are read at once.
const READ_BYTES: usize = 16 * 1024;

/// What came of one.
pub type Outcome<P> = (P, Result<HttpResponse, HttpError>);

/// Exchanges under way, each for a purpose.
pub(crate) struct Exchanges<P> {
    open: BTreeMap<SocketId, Exchange<P>>,
    dialled: u64,
    recv_buf: Vec<u8>,
    outputs: VecDeque<Output<Plain>>,
}

struct Exchange<P> {
    purpose: P,
    /// What is left to send of it.
    request: Vec<u8>,
    credit_bytes: usize,
    answer: Answer,
    ends: Instant,
}

impl<P> Exchanges<P> {
    pub fn new() -> Self {
        Exchanges {
            open: BTreeMap::new(),
            dialled: 0,
            recv_buf: vec![0; READ_BYTES],
            outputs: VecDeque::new(),
        }
    }

    pub fn start(&mut self, now: Instant, request: Request, purpose: P) {
        let socket = SocketId::dialled(self.dialled);
        self.dialled += 1;
        let exchange = Exchange {
            purpose,
            request: request.bytes,
            credit_bytes: 0,
            answer: Answer::new(request.body_bytes_max),
            ends: now + request.within,
        };
        self.open.insert(socket, exchange);
        self.outputs.push_back(Output::Connect { socket, to: request.to });
        self.outputs.push_back(Output::Interest { socket, read: true, write: true });
    }

    pub fn recv_buf(&mut self) -> &mut [u8] {
        &mut self.recv_buf
    }

    /// Takes an input about a socket; others say nothing here.
    pub fn handle<L: Language>(&mut self, input: &Input<L>) -> Option<Outcome<P>> {
        match *input {
            Input::Writable { socket, bytes, .. } => {
                let exchange = self.open.get_mut(&socket)?;
                exchange.credit_bytes = bytes;
                if !exchange.request.is_empty() {
                    self.outputs.push_back(Output::Send { socket });
                }
                None
            }
            Input::Read { socket, len } => {
                let answer = &mut self.open.get_mut(&socket)?.answer;
                let done = read(|| answer.push(&self.recv_buf[..len])).transpose()?;
                self.close(socket, done)
            }
            Input::Eof { socket } => {
                let exchange = self.open.remove(&socket)?;
                self.outputs.push_back(Output::Close { socket });
                Some((exchange.purpose, read(|| exchange.answer.end())))
            }
            // It is gone, and is not to be closed any more.
            Input::Failed { socket, error } => {
                let exchange = self.open.remove(&socket)?;
                let error = match error {
                    SocketError::TimedOut => HttpError::TimedOut,
                    error => HttpError::Socket(error),
                };
                Some((exchange.purpose, Err(error)))
            }
            _ => None,
        }
    }

    /// An exchange whose time is up, if there is one.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<Outcome<P>> {
        let socket =
            self.open.iter().find(|(_, exchange)| exchange.ends <= now).map(|(socket, _)| *socket)?;
        self.close(socket, Err(HttpError::TimedOut))
    }

    /// When the next one's time is up.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.open.values().map(|exchange| exchange.ends).min()
    }

    /// What the driver is to do next; bytes to send are appended to `buf`.
    pub fn poll_output<L: Language>(&mut self, buf: &mut Vec<u8>) -> Option<Output<L>> {
        loop {
            let output = self.outputs.pop_front()?;
            let Output::Send { socket } = output else { return Some(output.widen()) };
            // It may have ended in the meantime.
            let Some(exchange) = self.open.get_mut(&socket) else { continue };
            let bytes = exchange.request.len().min(core::mem::take(&mut exchange.credit_bytes));
            if bytes == 0 {
                continue;
            }
            buf.extend(exchange.request.drain(..bytes));
            if exchange.request.is_empty() {
                self.outputs.push_back(Output::Interest { socket, read: true, write: false });
            }
            return Some(Output::Send { socket });
        }
    }

    fn close(&mut self, socket: SocketId, result: Result<HttpResponse, HttpError>) -> Option<Outcome<P>> {
        let exchange = self.open.remove(&socket)?;
        self.outputs.push_back(match result {
            Ok(_) => Output::Close { socket },
            Err(_) => Output::Abort { socket },
        });
        Some((exchange.purpose, result))
    }
}

/// Reads an answer, which is dropped after an error. A panic over what a directory sent ends that exchange alone.
fn read<T>(reading: impl FnOnce() -> Result<T, HttpError>) -> Result<T, HttpError> {
    guarded(reading).unwrap_or_else(|panic| {
        log::error!("A directory's answer could not be read, which is a fault of ours: {panic}");
        Err(HttpError::Malformed("what this relay cannot read"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_of_that_exchange() {
        assert!(matches!(read::<()>(|| panic!("as the test wants")), Err(HttpError::Malformed(_))));
        assert_eq!(read(|| Ok(7)), Ok(7));
    }
}
