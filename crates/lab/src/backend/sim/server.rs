//! What answers traffic, as [`crate::traffic::Server`] does: the same requests, without threads.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use heddle_relay::RelayLanguage;
use heddle_seam::node::{Input, Node, Output, SocketId};
use heddle_seam::time::Instant;

use crate::traffic::clock::{BURST, READING_BYTES};
use crate::traffic::pace::Pace;
use crate::traffic::peer::{HEAD_MAX, split_head};
use crate::traffic::request::{Request, UPLOADS_MAX, content_head};

/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;

/// What came of uploads, by their numbers.
#[derive(Debug)]
pub(super) struct Sunk([Cell<u64>; UPLOADS_MAX]);

impl Default for Sunk {
    fn default() -> Sunk {
        Sunk([const { Cell::new(0) }; UPLOADS_MAX])
    }
}

impl Sunk {
    /// Bytes that came of the upload with this number.
    pub(super) fn of(&self, number: usize) -> u64 {
        self.0[number].get()
    }

    fn add(&self, number: usize, bytes: usize) {
        self.0[number].set(self.of(number) + bytes as u64);
    }
}

/// The servers of a host.
pub(super) struct ServerNode {
    sunk: Rc<Sunk>,
    visitors: BTreeMap<SocketId, Visitor>,
    dirty: BTreeSet<SocketId>,
    /// Visitors that are held to a rate, by when they may have more.
    paced: BTreeSet<(Instant, SocketId)>,
    outputs: VecDeque<Output<RelayLanguage>>,
    buf: Vec<u8>,
}

struct Visitor {
    doing: Doing,
    writable: usize,
    interest: (bool, bool),
}

/// What a visitor gets.
enum Doing {
    /// Nothing yet: this came of its request.
    Asked(Vec<u8>),
    /// These bytes, so many zeros behind them, and then the end.
    Content { head: Vec<u8>, left: u64 },
    /// What it sent.
    Echo(Vec<u8>),
    /// Readings of the clock, the rest of one first.
    Clocks { pace: Pace, torn: Vec<u8>, waits: Option<Instant> },
    /// Nothing: what comes is counted.
    Sink(usize),
}

impl ServerNode {
    pub(super) fn new(sunk: Rc<Sunk>) -> ServerNode {
        ServerNode {
            sunk,
            visitors: BTreeMap::new(),
            dirty: BTreeSet::new(),
            paced: BTreeSet::new(),
            outputs: VecDeque::new(),
            buf: vec![0; READ_BYTES],
        }
    }

    fn on_read(&mut self, now: Instant, socket: SocketId, len: usize) {
        let Some(visitor) = self.visitors.get_mut(&socket) else { return };
        let bytes = &self.buf[..len];
        match &mut visitor.doing {
            Doing::Asked(come) => {
                come.extend_from_slice(bytes);
                let Some((head, rest)) = split_head(come) else {
                    if come.len() >= HEAD_MAX {
                        visitor.doing = Doing::Content { head: Vec::new(), left: 0 };
                    }
                    return;
                };
                visitor.doing = answer(now, &head, rest, &self.sunk);
            }
            Doing::Echo(pending) => pending.extend_from_slice(bytes),
            Doing::Sink(number) => self.sunk.add(*number, len),
            Doing::Content { .. } | Doing::Clocks { .. } => {}
        }
    }

    /// Appends what a visitor can be sent now, and says what is wanted of its socket.
    fn flush(&mut self, now: Instant, socket: SocketId, out: &mut Vec<u8>) {
        let Some(visitor) = self.visitors.get_mut(&socket) else { return };
        let Visitor { doing, writable, interest } = visitor;
        let (mut reads, mut writes, mut ends) = (true, false, false);
        match doing {
            Doing::Asked(_) | Doing::Sink(_) => {}
            Doing::Content { head, left } => {
                let len = head.len().min(*writable);
                out.extend(head.drain(..len));
                let zeros = (*left).min((*writable - len) as u64);
                out.resize(out.len() + zeros as usize, 0);
                *left -= zeros;
                ends = head.is_empty() && *left == 0;
                (reads, writes) = (false, !ends);
            }
            Doing::Echo(pending) => {
                let len = pending.len().min(*writable);
                out.extend(pending.drain(..len));
                // One read at most waits to go back.
                (reads, writes) = (pending.is_empty(), !pending.is_empty());
            }
            Doing::Clocks { pace, torn, waits } => {
                if let Some(waits) = waits.take() {
                    self.paced.remove(&(waits, socket));
                }
                *waits = stream_time(now, pace, torn, *writable, out);
                writes = waits.is_none();
                self.paced.extend(waits.map(|waits| (waits, socket)));
            }
        }
        *writable -= out.len();
        if ends {
            self.forget(socket);
            return self.outputs.push_back(Output::Close { socket });
        }
        let wanted = (reads, writes || *writable == 0);
        if wanted != *interest {
            *interest = wanted;
            self.outputs.push_back(Output::Interest { socket, read: wanted.0, write: wanted.1 });
        }
    }

    fn forget(&mut self, socket: SocketId) {
        if let Some(Visitor { doing: Doing::Clocks { waits: Some(waits), .. }, .. }) =
            self.visitors.remove(&socket)
        {
            self.paced.remove(&(waits, socket));
        }
    }
}

/// What somebody gets who asked for this. Who asked for nothing that there is gets the end.
fn answer(now: Instant, head: &str, rest: Vec<u8>, sunk: &Sunk) -> Doing {
    match Request::parse(head) {
        Some(Request::Get(content)) => {
            Doing::Content { head: content_head(content).into_bytes(), left: content.len }
        }
        Some(Request::Echo) => Doing::Echo(rest),
        Some(Request::Clock) => Doing::Content { head: now.as_nanos().to_be_bytes().to_vec(), left: 0 },
        Some(Request::Clocks(limit)) => {
            Doing::Clocks { pace: Pace::new(limit, since_start(now)), torn: Vec::new(), waits: None }
        }
        Some(Request::Sink(number)) => {
            sunk.add(number, rest.len());
            Doing::Sink(number)
        }
        Some(Request::Hash(_) | Request::Play { .. }) | None => Doing::Content { head: Vec::new(), left: 0 },
    }
}

fn since_start(now: Instant) -> Duration {
    Duration::from_nanos(now.as_nanos())
}

/// Appends readings of the clock as far as they can be written and the rate allows, and returns when the rate allows
/// more, where it does not now.
fn stream_time(
    now: Instant,
    pace: &mut Pace,
    torn: &mut Vec<u8>,
    writable: usize,
    out: &mut Vec<u8>,
) -> Option<Instant> {
    let reading = now.as_nanos().to_be_bytes();
    while out.len() < writable {
        if let Some(wait) = pace.wait(since_start(now)) {
            return Some(now + wait.max(Duration::from_nanos(1)));
        }
        let mut burst = std::mem::take(torn);
        let carried = burst.len();
        while burst.len() < BURST {
            burst.extend(reading);
        }
        let len = burst.len().min(writable - out.len());
        out.extend_from_slice(&burst[..len]);
        pace.sent(len);
        // What is left of a reading goes first the next time.
        let begun = len.saturating_sub(carried) % READING_BYTES;
        *torn = match len < carried {
            true => burst[len..carried].to_vec(),
            false if begun > 0 => reading[begun..].to_vec(),
            false => Vec::new(),
        };
    }
    None
}

impl Node<RelayLanguage> for ServerNode {
    fn recv_buf(&mut self, _: SocketId) -> &mut [u8] {
        &mut self.buf
    }

    fn handle_input(&mut self, now: Instant, input: Input<RelayLanguage>) {
        let socket = match input {
            Input::Accepted { socket, .. } => {
                let doing = Doing::Asked(Vec::new());
                self.visitors.insert(socket, Visitor { doing, writable: 0, interest: (false, false) });
                socket
            }
            Input::Read { socket, len } => {
                self.on_read(now, socket, len);
                socket
            }
            Input::Writable { socket, bytes, .. } => {
                if let Some(visitor) = self.visitors.get_mut(&socket) {
                    visitor.writable = bytes;
                }
                socket
            }
            Input::Eof { socket } => {
                self.forget(socket);
                return self.outputs.push_back(Output::Close { socket });
            }
            Input::Failed { socket, .. } => return self.forget(socket),
            Input::Timeout => {
                let due = self.paced.iter().take_while(|(at, _)| *at <= now).map(|(_, socket)| *socket);
                return self.dirty.extend(due);
            }
            _ => return,
        };
        self.dirty.insert(socket);
    }

    fn poll_output(&mut self, now: Instant, buf: &mut Vec<u8>) -> Output<RelayLanguage> {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return output;
            }
            let Some(socket) = self.dirty.pop_first() else {
                return Output::Timeout(self.paced.first().map(|(at, _)| *at));
            };
            self.flush(now, socket, buf);
            if !buf.is_empty() {
                return Output::Send { socket };
            }
        }
    }
}
