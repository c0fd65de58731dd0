//! The streams of a traffic program over real sockets, none of which blocks: connections that are opened directly or by
//! a SOCKS port.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use heddle_seam::time::Instant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with, sockopt};

use super::CHUNK;
use super::lines::{LineId, LineState, Lines, WayId};
use super::route::Route;
use crate::error::{Error, Result};
use crate::socks::{Negotiation, Target, closed_early, is_timeout};

/// What may be written to a stream before it is looked again what else there is to do: a reader on the same machine may
/// take bytes as fast as they are written.
const TURN_BYTES_MAX: usize = 1 << 20;

/// Real sockets of one route.
pub(super) struct OverSockets<'a> {
    route: &'a Route,
    lines: BTreeMap<LineId, Socket>,
    made: u64,
    touched: BTreeSet<LineId>,
    /// Where everything is read to first.
    buf: Vec<u8>,
}

/// A stream.
struct Socket {
    stream: Option<TcpStream>,
    stage: Stage,
    /// Why it is over, until somebody asks.
    error: Option<Error>,
    /// Whether there is something to read, as far as is known. It is found out anew only once all was read, lest a
    /// stream that nobody reads wake the program all the time.
    is_readable: bool,
    /// Whether all was taken that was written last.
    is_writable: bool,
    /// What was written since it was looked last.
    turn_bytes: usize,
}

/// How far a stream is.
enum Stage {
    Connecting(Option<Negotiation>),
    Negotiating(Negotiation),
    Open,
    Over,
}

impl<'a> OverSockets<'a> {
    /// The way of every stream.
    pub(super) const WAY: WayId = WayId(0);

    /// No streams yet.
    pub(super) fn new(route: &'a Route) -> OverSockets<'a> {
        OverSockets { route, lines: BTreeMap::new(), made: 0, touched: BTreeSet::new(), buf: vec![0; CHUNK] }
    }

    /// Waits until something is new of a stream, at most so long. What a signal ends was waited for long enough.
    pub(super) fn wait(&mut self, at_most: Duration) -> Result<()> {
        let mut polled: Vec<(LineId, PollFd<'_>)> = Vec::new();
        for (id, socket) in &mut self.lines {
            socket.turn_bytes = 0;
            let wanted = socket.wanted();
            if let Some(stream) = socket.stream.as_ref().filter(|_| !wanted.is_empty()) {
                polled.push((*id, PollFd::new(stream, wanted)));
            }
        }
        let at_most = if self.touched.is_empty() { at_most } else { Duration::ZERO };
        let at_most =
            Timespec { tv_sec: at_most.as_secs().cast_signed(), tv_nsec: at_most.subsec_nanos().into() };
        let (ids, mut fds): (Vec<LineId>, Vec<PollFd<'_>>) = polled.into_iter().unzip();
        match poll(&mut fds, Some(&at_most)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::io("waiting for streams")(error.into())),
        }
        let found: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        drop(fds);
        for (id, found) in ids.into_iter().zip(found).filter(|(_, found)| !found.is_empty()) {
            if let Some(socket) = self.lines.get_mut(&id) {
                socket.hear(found);
                self.touched.insert(id);
            }
        }
        Ok(())
    }

    /// Begins to connect.
    fn begin(&self) -> Result<Socket> {
        let Route { server, proxy, isolation, .. } = self.route;
        let negotiation = match proxy {
            Some(_) => Some(Negotiation::connect(server, isolation.as_ref())?),
            None => None,
        };
        let doing = if proxy.is_some() { "connecting to the SOCKS port" } else { "connecting to the server" };
        let stream =
            begin_connecting(proxy.map_or_else(|| address(server), Ok)?).map_err(Error::io(doing))?;
        Ok(Socket { stream: Some(stream), ..Socket::at(Stage::Connecting(negotiation)) })
    }
}

impl Socket {
    fn at(stage: Stage) -> Socket {
        let (is_readable, is_writable) = (false, true);
        Socket { stream: None, stage, error: None, is_readable, is_writable, turn_bytes: 0 }
    }

    /// What is waited for.
    fn wanted(&self) -> PollFlags {
        let mut wanted = PollFlags::empty();
        match &self.stage {
            Stage::Connecting(_) => wanted |= PollFlags::OUT,
            Stage::Negotiating(negotiation) if negotiation.out().is_empty() => wanted |= PollFlags::IN,
            Stage::Negotiating(_) => wanted |= PollFlags::OUT,
            Stage::Open => {
                wanted.set(PollFlags::IN, !self.is_readable);
                wanted.set(PollFlags::OUT, !self.is_writable);
            }
            Stage::Over => {}
        }
        wanted
    }

    /// Goes on with what was found.
    fn hear(&mut self, found: PollFlags) {
        let is_broken = found.intersects(PollFlags::ERR | PollFlags::HUP);
        self.is_readable |= is_broken || found.contains(PollFlags::IN);
        self.is_writable |= is_broken || found.contains(PollFlags::OUT);
        let result = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Connecting(negotiation) => self.connected(negotiation),
            Stage::Negotiating(negotiation) => self.negotiate(negotiation),
            stage => Ok(stage),
        };
        match result {
            Ok(stage) => self.stage = stage,
            Err(error) => self.fail(error),
        }
    }

    fn connected(&mut self, negotiation: Option<Negotiation>) -> Result<Stage> {
        let Some(stream) = &self.stream else { return Ok(Stage::Over) };
        let doing =
            if negotiation.is_some() { "connecting to the SOCKS port" } else { "connecting to the server" };
        let error = sockopt::socket_error(stream).map_err(|error| Error::io(doing)(error.into()))?;
        error.map_err(|error| Error::io(doing)(error.into()))?;
        stream.set_nodelay(true).map_err(Error::io("preparing a stream"))?;
        // What was found was that it is connected.
        self.is_readable = false;
        negotiation.map_or(Ok(Stage::Open), |negotiation| self.negotiate(negotiation))
    }

    /// Speaks with the SOCKS port as far as that is possible now.
    fn negotiate(&mut self, mut negotiation: Negotiation) -> Result<Stage> {
        let Some(stream) = &mut self.stream else { return Ok(Stage::Over) };
        let mut bytes = [0; 512];
        loop {
            if !negotiation.out().is_empty() {
                match stream.write(negotiation.out()) {
                    Ok(len) => negotiation.on_sent(len),
                    Err(error) if is_timeout(&error) => return Ok(Stage::Negotiating(negotiation)),
                    Err(error) => return Err(Error::io("writing to the SOCKS port")(error)),
                }
                continue;
            }
            let wanted = negotiation.wanted();
            match stream.read(&mut bytes[..wanted]) {
                Ok(0) => return Err(closed_early()),
                Ok(len) => {
                    if negotiation.on_read(&bytes[..len])? {
                        self.is_readable = false;
                        return Ok(Stage::Open);
                    }
                }
                Err(error) if is_timeout(&error) => return Ok(Stage::Negotiating(negotiation)),
                Err(error) => return Err(Error::io("reading from the SOCKS port")(error)),
            }
        }
    }

    fn fail(&mut self, error: Error) {
        (self.stage, self.error, self.stream) = (Stage::Over, Some(error), None);
    }
}

impl Lines for OverSockets<'_> {
    fn open(&mut self, _: Instant, _: WayId) -> LineId {
        let id = LineId(self.made);
        self.made += 1;
        let socket = self.begin().unwrap_or_else(|error| {
            self.touched.insert(id);
            Socket { error: Some(error), ..Socket::at(Stage::Over) }
        });
        self.lines.insert(id, socket);
        id
    }

    fn state(&self, line: LineId) -> LineState {
        match self.lines.get(&line).map(|socket| &socket.stage) {
            Some(Stage::Connecting(_) | Stage::Negotiating(_)) => LineState::Asked,
            Some(Stage::Open) => LineState::Open,
            Some(Stage::Over) | None => LineState::Over,
        }
    }

    fn take_error(&mut self, line: LineId) -> Error {
        let error = self.lines.get_mut(&line).and_then(|socket| socket.error.take());
        error.unwrap_or_else(|| Error::Refused { by: "the far end", said: "the stream was closed".into() })
    }

    fn read(&mut self, _: Instant, line: LineId, into: &mut Vec<u8>) -> usize {
        let Some(socket) = self.lines.get_mut(&line).filter(|socket| socket.is_readable) else { return 0 };
        let (Some(stream), Stage::Open) = (&mut socket.stream, &socket.stage) else { return 0 };
        let read = stream.read(&mut self.buf);
        let len = *read.as_ref().unwrap_or(&0);
        into.extend_from_slice(&self.buf[..len]);
        match read {
            Ok(0) => socket.fail(Error::Refused { by: "the far end", said: "the stream was closed".into() }),
            // There may be more.
            Ok(CHUNK) => drop(self.touched.insert(line)),
            Ok(_) => socket.is_readable = false,
            Err(error) if is_timeout(&error) => socket.is_readable = false,
            Err(error) => socket.fail(Error::io("receiving over a stream")(error)),
        }
        len
    }

    fn write(&mut self, _: Instant, line: LineId, bytes: &[u8]) -> usize {
        let Some(socket) = self.lines.get_mut(&line).filter(|socket| socket.is_writable) else { return 0 };
        let (Some(stream), Stage::Open) = (&mut socket.stream, &socket.stage) else { return 0 };
        let at_most = bytes.len().min(TURN_BYTES_MAX - socket.turn_bytes);
        if at_most == 0 {
            socket.is_writable = bytes.is_empty();
            return 0;
        }
        match stream.write(&bytes[..at_most]) {
            Ok(len) => {
                socket.turn_bytes += len;
                socket.is_writable = len == bytes.len();
                len
            }
            Err(error) if is_timeout(&error) => {
                socket.is_writable = false;
                0
            }
            Err(error) => {
                socket.fail(Error::io("sending over a stream")(error));
                self.touched.insert(line);
                0
            }
        }
    }

    fn close(&mut self, _: Instant, line: LineId) {
        self.lines.remove(&line);
        self.touched.remove(&line);
    }

    fn take_touched(&mut self) -> BTreeSet<LineId> {
        std::mem::take(&mut self.touched)
    }
}

/// Where a server is. Names are looked up by the system, which may take its time.
fn address(server: &Target) -> Result<SocketAddr> {
    match server {
        Target::Addr(addr) => Ok(*addr),
        Target::Name(name, port) => {
            let found = (name.as_str(), *port).to_socket_addrs();
            let found = found.map_err(Error::io("connecting to the server"))?.next();
            found.ok_or_else(|| Error::Options(format!("{name} has no address")))
        }
    }
}

/// A socket that is connected once it can be written.
fn begin_connecting(to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    match connect(&socket, &to) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}
