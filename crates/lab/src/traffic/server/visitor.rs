//! What a stream of a server gets, without its socket: what has come is told, and what can leave is asked for. The
//! readings are those of the timing server of Reardon's thesis (section 4.3): one of the clock, or no end of them.

use std::time::Duration;

use heddle_seam::time::Instant;
use sha2::{Digest, Sha256};

use super::play::{Play, ScriptError};
use super::wants::{SocketSetting, Wants};
use crate::traffic::clock::{BURST, READING_BYTES};
use crate::traffic::content::ContentStream;
use crate::traffic::pace::Pace;
use crate::traffic::peer::{HEAD_MAX, hex, split_head};
use crate::traffic::request::{Request, content_head};
use crate::traffic::sunk::Sunk;

/// What the system may hold of a stream of readings, in bytes; Linux is told so, and takes twice as much for its
/// bookkeeping. It is fixed because a buffer that grows would add its own delay to the network's. It also bounds the
/// throughput, to this much per round trip between the server and its peer.
const SEND_BUFFER_BYTES: u32 = 256 * 1024;
const REFUSAL: &[u8] = b"HTTP/1.0 400 Bad Request\r\nContent-Length: 0\r\n\r\n";

/// Whoever opened a stream.
pub(crate) struct Visitor {
    doing: Doing,
    setting: Option<SocketSetting>,
}

/// What a visitor gets.
enum Doing {
    /// Nothing yet: this came of its request.
    Asked(Vec<u8>),
    /// These bytes, this content, and then the end.
    Answer { head: Vec<u8>, content: Box<ContentStream> },
    /// The hash of so many bytes that are still to come, and of those that came.
    Hash { hash: Box<Sha256>, left: u64 },
    /// What it sent.
    Echo(Vec<u8>),
    /// Readings of the clock.
    Clocks(Clocks),
    /// Nothing: what comes is counted.
    Sink(usize),
    /// What it asked for, burst by burst.
    Play(Box<Play>),
    /// The end.
    End,
}

impl Default for Visitor {
    fn default() -> Visitor {
        let setting = SocketSetting { nodelay: true, send_buffer_bytes: None };
        Visitor { doing: Doing::Asked(Vec::new()), setting: Some(setting) }
    }
}

impl Visitor {
    /// What its socket is to be like from now on, where that has changed.
    pub(crate) fn take_setting(&mut self) -> Option<SocketSetting> {
        self.setting.take()
    }

    /// Takes what has come.
    pub(crate) fn on_read(&mut self, now: Instant, bytes: &[u8], sunk: &Sunk) {
        match &mut self.doing {
            Doing::Asked(come) => {
                come.extend_from_slice(bytes);
                match split_head(come) {
                    Some((head, rest)) => self.begin(now, &head, &rest, sunk),
                    None if come.len() >= HEAD_MAX => self.doing = answer(REFUSAL),
                    None => {}
                }
            }
            Doing::Hash { hash, left } => {
                hash.update(bytes);
                *left = left.saturating_sub(bytes.len() as u64);
                if *left == 0 {
                    let hash = hex(&std::mem::take(&mut **hash).finalize());
                    let text = format!("HTTP/1.0 200 OK\r\nContent-Length: 64\r\n\r\n{hash}");
                    self.doing = answer(text.as_bytes());
                }
            }
            Doing::Echo(pending) => pending.extend_from_slice(bytes),
            Doing::Sink(number) => sunk.add(*number, bytes.len()),
            Doing::Play(play) => play.on_read(now, bytes),
            Doing::Answer { .. } | Doing::Clocks(_) | Doing::End => {}
        }
    }

    /// Nothing comes any more.
    pub(crate) fn on_end(&mut self) {
        match &mut self.doing {
            // It may still be read.
            Doing::Answer { .. } => {}
            _ => self.doing = Doing::End,
        }
    }

    /// Begins with what a request asks for, behind which this came already.
    fn begin(&mut self, now: Instant, head: &str, rest: &[u8], sunk: &Sunk) {
        self.doing = match Request::parse(head) {
            Some(Request::Get(content)) => Doing::Answer {
                head: content_head(content).into_bytes(),
                content: Box::new(ContentStream::new(content)),
            },
            Some(Request::Hash(left)) => Doing::Hash { hash: Box::default(), left },
            Some(Request::Echo) => Doing::Echo(Vec::new()),
            Some(Request::Clock) => answer(&now.as_nanos().to_be_bytes()),
            Some(Request::Clocks(limit)) => {
                let send_buffer_bytes = Some(SEND_BUFFER_BYTES);
                self.setting = Some(SocketSetting { nodelay: limit > 0, send_buffer_bytes });
                Doing::Clocks(Clocks::new(now, limit))
            }
            Some(Request::Sink(number)) => Doing::Sink(number),
            Some(Request::Play { script_bytes, upload_bytes }) => {
                match Play::new(script_bytes, upload_bytes) {
                    Ok(play) => Doing::Play(Box::new(play)),
                    Err(ScriptError) => answer(REFUSAL),
                }
            }
            None => answer(REFUSAL),
        };
        self.on_read(now, rest, sunk);
    }

    /// Hands what can leave now to `take`, which says how much of it was taken. To be called again as long as it is
    /// wanted to write and something is taken.
    pub(crate) fn write(&mut self, now: Instant, take: &mut dyn FnMut(&[u8]) -> usize) {
        match &mut self.doing {
            Doing::Answer { head, content } => {
                if !head.is_empty() {
                    let len = take(head);
                    head.drain(..len);
                }
                if head.is_empty() && !content.is_over() {
                    let len = take(content.peek());
                    content.advance(len);
                }
                if head.is_empty() && content.is_over() {
                    self.doing = Doing::End;
                }
            }
            Doing::Echo(pending) if !pending.is_empty() => {
                let len = take(pending);
                pending.drain(..len);
            }
            Doing::Clocks(clocks) => clocks.write(now, take),
            Doing::Play(play) => {
                play.write(now, take);
                if play.is_over() {
                    self.doing = Doing::End;
                }
            }
            Doing::Asked(_) | Doing::Hash { .. } | Doing::Echo(_) | Doing::Sink(_) | Doing::End => {}
        }
    }

    /// What it waits for now.
    pub(crate) fn wants(&self) -> Wants {
        let reads = Wants { read: true, ..Wants::default() };
        match &self.doing {
            Doing::Asked(_) | Doing::Hash { .. } | Doing::Sink(_) => reads,
            Doing::Answer { .. } => Wants { write: true, ..Wants::default() },
            // One read at most waits to go back.
            Doing::Echo(pending) => Wants { read: pending.is_empty(), write: !pending.is_empty(), ..reads },
            Doing::Clocks(Clocks { waits, .. }) => Wants { write: waits.is_none(), wakes: *waits, ..reads },
            Doing::Play(play) => play.wants(),
            Doing::End => Wants { end: true, ..Wants::default() },
        }
    }
}

fn answer(bytes: &[u8]) -> Doing {
    Doing::Answer { head: bytes.to_vec(), content: Box::new(ContentStream::empty()) }
}

/// Readings until the client leaves, as fast as they are taken or at a rate.
///
/// A reading is taken when the socket can be written, as the thesis' `select` did, so that its age is what the network
/// adds and not how long a write was blocked.
struct Clocks {
    pace: Pace,
    begun: Instant,
    /// What a write left of a reading, which goes first.
    torn: Vec<u8>,
    /// Until when the rate allows no more.
    waits: Option<Instant>,
}

impl Clocks {
    /// Zero bytes a second are no limit.
    fn new(now: Instant, bytes_per_s: u64) -> Clocks {
        Clocks { pace: Pace::new(bytes_per_s, Duration::ZERO), begun: now, torn: Vec::new(), waits: None }
    }

    fn write(&mut self, now: Instant, take: &mut dyn FnMut(&[u8]) -> usize) {
        let wait = self.pace.wait(now.since(self.begun));
        self.waits = wait.map(|wait| now + wait.max(Duration::from_nanos(1)));
        if self.waits.is_some() {
            return;
        }
        let reading = now.as_nanos().to_be_bytes();
        let mut burst = std::mem::take(&mut self.torn);
        let carried = burst.len();
        while burst.len() < BURST {
            burst.extend(reading);
        }
        let len = take(&burst);
        self.pace.sent(len);
        let begun = len.saturating_sub(carried) % READING_BYTES;
        if len < carried {
            self.torn = burst[len..carried].to_vec();
        } else if begun > 0 {
            self.torn = reading[begun..].to_vec();
        }
        // The next burst waits for its credit already.
        let wait = self.pace.wait(now.since(self.begun));
        self.waits = wait.map(|wait| now + wait.max(Duration::from_nanos(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Content;
    use crate::traffic::clock::Readings;
    use proptest::prelude::*;

    fn asked(request: Request) -> Visitor {
        let mut visitor = Visitor::default();
        visitor.on_read(Instant::from_nanos(7), request.head().as_bytes(), &Sunk::default());
        visitor
    }

    /// Takes what a visitor writes, by these numbers of bytes in turn, until it ends or `most` came.
    fn take(visitor: &mut Visitor, rooms: &[usize], most: usize) -> Vec<u8> {
        let (mut all, mut turn, mut now) = (Vec::new(), 0, Instant::from_nanos(1000));
        while all.len() < most && !visitor.wants().end {
            let room = rooms[turn % rooms.len()];
            turn += 1;
            now = visitor.wants().wakes.unwrap_or(now + Duration::from_nanos(1));
            visitor.write(now, &mut |bytes| {
                let len = bytes.len().min(room);
                all.extend_from_slice(&bytes[..len]);
                len
            });
        }
        all
    }

    proptest! {
        #[test]
        fn what_is_written_does_not_depend_on_how_much_is_taken(
            rooms in proptest::collection::vec(1_usize..5000, 1..20),
        ) {
            let content = Content { seed: 5, len: 70_000 };
            let whole = take(&mut asked(Request::Get(content)), &[usize::MAX], usize::MAX);
            prop_assert_eq!(take(&mut asked(Request::Get(content)), &rooms, usize::MAX), whole);
            // Readings are whole and never go back, wherever a write was cut.
            let readings = take(&mut asked(Request::Clocks(0)), &rooms, 50_000);
            let mut parser = Readings::default();
            let mut last = 0;
            for byte in readings {
                if let Some(reading) = parser.push(&[byte]) {
                    prop_assert!((last..last + 50_000).contains(&reading) && reading >= 1000, "{last} {reading}");
                    last = reading;
                }
            }
        }
    }

    #[test]
    fn a_rate_is_held() {
        let mut visitor = asked(Request::Clocks(100_000));
        let (mut now, mut bytes) = (Instant::from_nanos(7), 0);
        while now < Instant::from_nanos(10_000_000_007) {
            visitor.write(now, &mut |burst| {
                bytes += burst.len();
                burst.len()
            });
            now = visitor.wants().wakes.unwrap_or(now);
        }
        assert!((1_000_000..1_010_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn sockets_are_asked_for_what_the_request_needs() {
        let mut visitor = Visitor::default();
        let usual = SocketSetting { nodelay: true, send_buffer_bytes: None };
        assert_eq!((visitor.take_setting(), visitor.take_setting()), (Some(usual), None));
        for (limit, nodelay) in [(0, false), (5, true)] {
            let setting = SocketSetting { nodelay, send_buffer_bytes: Some(SEND_BUFFER_BYTES) };
            assert_eq!(asked(Request::Clocks(limit)).take_setting(), Some(setting));
        }
    }
}
