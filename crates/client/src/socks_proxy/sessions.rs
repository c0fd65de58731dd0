//! Sessions of programs, each a connection to the SOCKS port.

use super::SocksProxy;
use super::circuits::{Needs, Place};
use crate::circuit::OriginError;
use crate::exchange::Destination;
use crate::proxy::CircuitNumber;
use crate::socks::{Bound, Dialogue, Progress, Reply, SocksCommand, SocksRequest};
use core::net::IpAddr;
use core::num::NonZeroU16;
use heddle_proto::cell::relay::StreamId;
use heddle_proto::cell::stream::{Answer, Begin, BeginFlags, EndReason, Host, HostName, Resolve, Resolved};
use heddle_proto::ids::RsaId;
use heddle_seam::node::{Output, SocketId};
use heddle_seam::time::{Duration, Instant};

/// How long a program may take to say what it wants, and to take a reply that is the last.
const DIALOGUE_MAX: Duration = Duration::from_secs(30);
/// How long a request may take to be answered (stock Tor's `SocksTimeout`).
const ANSWER_MAX: Duration = Duration::from_secs(120);
/// How long an exit may take to answer, where another circuit can be tried.
const TRY_MAX: Duration = Duration::from_secs(15);
/// Over how many circuits a stream is tried.
const TRIES_MAX: u32 = 3;
/// Cells of a circuit that may wait for its channel before a stream more is begun there.
const BEGIN_CELLS_MAX: usize = crate::circuit::OUT_CELLS_HIGH;

/// A program's connection.
#[derive(Debug)]
pub(super) struct Session {
    state: State,
    /// What is to be sent before anything else: replies, some hundred bytes at most.
    says: Vec<u8>,
    /// Bytes that the connection takes now.
    credit: usize,
    is_read: bool,
    /// When what is waited for is given up; `None` of a stream that the far end has opened.
    ends: Option<Instant>,
}

/// 1. It says what it wants. 2. It waits for a circuit. 3. BEGIN or RESOLVE is sent. 4. Data flows. 5. What is left for
///    it is sent.
#[derive(Debug)]
enum State {
    Dialogue(Dialogue),
    Waiting(Pending),
    Asked(Pending, CircuitNumber, StreamId),
    Open(CircuitNumber, StreamId),
    Closing,
}

/// A request that is not answered.
#[derive(Clone, Debug)]
struct Pending {
    request: SocksRequest,
    tries: u32,
    /// When it was sent last.
    asked_at: Instant,
    /// The exits that have refused it, at most [`TRIES_MAX`], and how the last of them did.
    refused: Vec<RsaId>,
    refusal: Reply,
}

impl Pending {
    fn new(request: SocksRequest, now: Instant) -> Self {
        Pending { request, tries: 0, asked_at: now, refused: Vec::new(), refusal: Reply::GENERAL_FAILURE }
    }

    /// The port that an exit has to let out.
    fn port(&self) -> Option<u16> {
        Some(self.request.port).filter(|_| self.request.command == SocksCommand::Connect)
    }
}

impl SocksProxy {
    pub(super) fn on_accepted(&mut self, socket: SocketId) {
        if self.sessions.len() >= self.options.sessions_max {
            self.outputs.push_back(Output::Abort { socket });
            return;
        }
        let session = Session {
            state: State::Dialogue(Dialogue::default()),
            says: Vec::new(),
            credit: 0,
            is_read: true,
            ends: Some(self.now + DIALOGUE_MAX),
        };
        self.sessions.insert(socket, session);
        self.outputs.push_back(Output::Interest { socket, read: true, write: true });
    }

    fn set_read(&mut self, socket: SocketId, read: bool) {
        let Some(session) = self.sessions.get_mut(&socket) else { return };
        if session.is_read != read {
            session.is_read = read;
            self.outputs.push_back(Output::Interest { socket, read, write: true });
        }
    }

    /// How much may be read of a program now. Nothing: it is not read until its circuit takes something.
    pub(super) fn readable_len(&mut self, socket: SocketId) -> usize {
        let now = self.now;
        let Some(session) = self.sessions.get(&socket) else { return 0 };
        match &session.state {
            State::Dialogue(dialogue) => dialogue.wanted().min(self.scratch.len()),
            State::Open(number, stream) => {
                let (number, stream) = (*number, *stream);
                let len = self.writable(now, number, stream);
                if len == 0 {
                    self.circuits.hold(number, socket);
                    self.set_read(socket, false);
                }
                len.min(self.scratch.len())
            }
            State::Waiting(_) | State::Asked(..) | State::Closing => {
                self.set_read(socket, false);
                0
            }
        }
    }

    fn writable(&mut self, now: Instant, number: CircuitNumber, stream: StreamId) -> usize {
        self.proxy.quiet_circuit_mut(number).map_or(0, |circuit| circuit.writable(now, stream))
    }

    pub(super) fn on_program_read(&mut self, socket: SocketId, len: usize) {
        let Some(session) = self.sessions.get_mut(&socket) else { return };
        match &mut session.state {
            State::Dialogue(dialogue) => match dialogue.push(&self.scratch[..len]) {
                Ok(Progress::More) => {}
                Ok(Progress::Say(says)) => {
                    session.says.extend(says);
                    self.ready.insert(socket);
                }
                Ok(Progress::Asked(request)) => {
                    session.state = State::Waiting(Pending::new(request, self.now));
                    session.ends = Some(self.now + ANSWER_MAX);
                    self.wait_for_circuit(socket);
                    self.set_read(socket, false);
                }
                Err(refusal) => self.say_last(socket, &refusal.says),
            },
            State::Open(number, stream) => {
                let (number, stream) = (*number, *stream);
                let sent = self
                    .proxy
                    .circuit_mut(number)
                    .map_or(0, |circuit| circuit.send(self.now, stream, &self.scratch[..len]));
                // No more was read than the circuit takes, unless that ended a moment ago.
                if sent < len {
                    self.abort(socket);
                }
            }
            State::Waiting(_) | State::Asked(..) | State::Closing => {}
        }
    }

    pub(super) fn on_credit(&mut self, socket: SocketId, bytes: usize) {
        if let Some(session) = self.sessions.get_mut(&socket) {
            session.credit = bytes;
            self.ready.insert(socket);
        }
    }

    /// A program sends nothing more, or is gone. Tor has no half of a stream, so stock Tor ends it as well.
    pub(super) fn on_program_left(&mut self, socket: SocketId, is_there: bool) {
        self.forget(socket);
        if is_there {
            self.outputs.push_back(Output::Close { socket });
        }
    }

    /// Forgets a session, and ends its stream.
    fn forget(&mut self, socket: SocketId) {
        let Some(session) = self.sessions.remove(&socket) else { return };
        self.ready.remove(&socket);
        match session.state {
            State::Waiting(_) => self.waiting.retain(|waiting| *waiting != socket),
            State::Asked(_, number, stream) | State::Open(number, stream) => self.drop_stream(number, stream),
            State::Dialogue(_) | State::Closing => {}
        }
    }

    fn drop_stream(&mut self, number: CircuitNumber, stream: StreamId) {
        self.remove_stream(number, stream);
        if let Some(circuit) = self.proxy.circuit_mut(number) {
            // The far end may have ended it a moment ago.
            let _ = circuit.end_stream(stream);
        }
    }

    /// A stream of a circuit is over, which others may have waited for.
    fn remove_stream(&mut self, number: CircuitNumber, stream: StreamId) {
        self.circuits.remove_stream(number, stream);
        self.unserved = true;
    }

    fn abort(&mut self, socket: SocketId) {
        self.forget(socket);
        self.outputs.push_back(Output::Abort { socket });
    }

    /// The session ends once this is said.
    fn say_last(&mut self, socket: SocketId, says: &[u8]) {
        let Some(session) = self.sessions.get_mut(&socket) else { return };
        session.says.extend(says);
        session.state = State::Closing;
        session.ends = Some(self.now + DIALOGUE_MAX);
        self.set_read(socket, false);
        self.ready.insert(socket);
    }

    fn fail(&mut self, socket: SocketId, reply: Reply) {
        self.say_last(socket, &reply.encode(&Bound::Nothing));
    }

    fn wait_for_circuit(&mut self, socket: SocketId) {
        self.waiting.push_back(socket);
        self.unserved = true;
    }

    /// Finds circuits for the requests that wait, if anything has changed for them.
    pub(super) fn serve(&mut self) {
        if !core::mem::take(&mut self.unserved) || self.directory.is_none() {
            return;
        }
        for _ in 0..self.waiting.len() {
            let Some(socket) = self.waiting.pop_front() else { break };
            let pending = match self.sessions.get(&socket).map(|session| &session.state) {
                Some(State::Waiting(pending)) => pending.clone(),
                _ => continue,
            };
            let needs = Needs {
                isolation: &pending.request.isolation,
                port: pending.port(),
                not_exits: &pending.refused,
            };
            match self.place(needs) {
                Place::At(number) => self.attach(socket, number, pending),
                Place::Later => self.waiting.push_back(socket),
                Place::Nowhere => self.fail(socket, pending.refusal),
            }
        }
        self.build_ahead();
    }

    /// Sends BEGIN or RESOLVE, unless the circuit has too much to send already.
    fn attach(&mut self, socket: SocketId, number: CircuitNumber, pending: Pending) {
        let Some(circuit) = self.proxy.circuit_mut(number) else { return self.wait_for_circuit(socket) };
        if circuit.queued_cells() >= BEGIN_CELLS_MAX {
            return self.wait_for_circuit(socket);
        }
        let asked = match ask(&pending.request) {
            Some(Ask::Begin(begin)) => circuit.begin(&begin),
            Some(Ask::Resolve(resolve)) => circuit.resolve(&resolve),
            None => Err(OriginError::NoStream),
        };
        let stream = match asked {
            Ok(stream) => stream,
            Err(OriginError::TooManyStreams | OriginError::Closed | OriginError::State) => {
                return self.wait_for_circuit(socket);
            }
            Err(_) => return self.fail(socket, Reply::GENERAL_FAILURE),
        };
        self.circuits.add_stream(number, stream, socket, self.now);
        let is_told = self.options.optimistic && pending.request.command == SocksCommand::Connect;
        let Some(session) = self.sessions.get_mut(&socket) else { return };
        let pending = Pending { tries: pending.tries + 1, asked_at: self.now, ..pending };
        session.state = State::Asked(pending, number, stream);
        if is_told {
            self.open(socket, number, stream);
        }
    }

    /// Tells the program that its stream is open, and reads from it. Until the far end says so too it may be given up.
    fn open(&mut self, socket: SocketId, number: CircuitNumber, stream: StreamId) {
        let Some(session) = self.sessions.get_mut(&socket) else { return };
        session.state = State::Open(number, stream);
        session.says.extend(Reply::SUCCEEDED.encode(&Bound::Nothing));
        self.ready.insert(socket);
        self.set_read(socket, true);
    }

    pub(super) fn on_stream_open(&mut self, number: CircuitNumber, stream: StreamId) {
        let Some(socket) = self.circuits.session(number, stream) else { return };
        let Some(session) = self.sessions.get_mut(&socket) else { return };
        session.ends = None;
        if matches!(session.state, State::Asked(..)) {
            self.open(socket, number, stream);
        }
    }

    /// The far end ended a stream. One that was never open is tried over another circuit where that may help.
    pub(super) fn on_stream_end(&mut self, number: CircuitNumber, stream: StreamId, reason: EndReason) {
        let Some(socket) = self.circuits.session(number, stream) else { return };
        let Some(session) = self.sessions.get_mut(&socket) else { return };
        match &session.state {
            State::Asked(pending, ..) => {
                let mut pending = pending.clone();
                self.remove_stream(number, stream);
                pending.refusal = Reply::of_end(reason);
                if self.options.path.is_some() || !is_of_the_exit(reason) {
                    return self.fail(socket, pending.refusal);
                }
                pending.refused.extend(self.circuits.exit(number));
                // A policy says something of one address, all else of the exit.
                if reason != EndReason::EXITPOLICY {
                    self.circuits.retire(number);
                }
                self.try_again(socket, pending);
            }
            // What came before is sent first.
            _ => {
                self.set_read(socket, false);
                self.ready.insert(socket);
            }
        }
    }

    /// A request waits for another circuit, unless it has had its tries.
    fn try_again(&mut self, socket: SocketId, pending: Pending) {
        if pending.tries >= TRIES_MAX {
            return self.fail(socket, pending.refusal);
        }
        if let Some(session) = self.sessions.get_mut(&socket) {
            session.state = State::Waiting(pending);
            self.wait_for_circuit(socket);
        }
    }

    /// A session's circuit is over. What the program was promised cannot be kept, and it should know.
    pub(super) fn on_circuit_lost(&mut self, socket: SocketId) {
        match self.sessions.get(&socket).map(|session| &session.state) {
            Some(State::Asked(pending, ..)) => {
                let pending = pending.clone();
                self.try_again(socket, pending);
            }
            Some(_) => self.abort(socket),
            None => {}
        }
    }

    pub(super) fn on_resolved(&mut self, number: CircuitNumber, stream: StreamId, resolved: &Resolved) {
        let Some(socket) = self.circuits.session(number, stream) else { return };
        self.remove_stream(number, stream);
        let command = match self.sessions.get(&socket).map(|session| &session.state) {
            Some(State::Asked(pending, ..)) => pending.request.command,
            _ => return,
        };
        let found = resolved.answers().iter().find_map(|(answer, _)| match (command, answer) {
            (SocksCommand::Resolve, Answer::Addr(addr)) => Some(Bound::Addr(*addr)),
            (SocksCommand::ResolvePtr, Answer::Name(name)) => Some(Bound::Name(name.clone())),
            _ => None,
        });
        match found {
            Some(bound) => self.say_last(socket, &Reply::SUCCEEDED.encode(&bound)),
            None => self.fail(socket, Reply::HOST_UNREACHABLE),
        }
    }

    /// Appends what a session has to send to `buf`, as far as its connection has credit. True when there is something.
    pub(super) fn send(&mut self, now: Instant, socket: SocketId, buf: &mut Vec<u8>) -> bool {
        let Some(session) = self.sessions.get_mut(&socket) else { return false };
        let len = session.says.len().min(session.credit);
        buf.extend(session.says.drain(..len));
        session.credit -= len;
        if !session.says.is_empty() {
            return len > 0;
        }
        match session.state {
            State::Open(number, stream) => {
                let credit = session.credit;
                let Some(circuit) = self.proxy.circuit_mut(number) else { return len > 0 };
                let received = circuit.recv(now, stream, buf, credit);
                session.credit -= received;
                let is_over = circuit.has_ended(stream) && circuit.readable(stream) == 0;
                if is_over {
                    session.state = State::Closing;
                    self.ready.insert(socket);
                    self.remove_stream(number, stream);
                }
            }
            // The rest was handed to the driver a moment ago.
            State::Closing if buf.is_empty() => {
                self.sessions.remove(&socket);
                self.outputs.push_back(Output::Close { socket });
            }
            State::Closing => drop(self.ready.insert(socket)),
            State::Dialogue(_) | State::Waiting(_) | State::Asked(..) => {}
        }
        !buf.is_empty()
    }

    /// Reads again from programs whose circuits take something. True when there were any.
    pub(super) fn read_again(&mut self, now: Instant) -> bool {
        let held: Vec<_> = self.circuits.held().collect();
        let mut any = false;
        for (number, socket) in held {
            let Some(State::Open(_, stream)) = self.sessions.get(&socket).map(|session| &session.state)
            else {
                continue;
            };
            let stream = *stream;
            if self.writable(now, number, stream) > 0 {
                self.circuits.release(number, socket);
                self.set_read(socket, true);
                any = true;
            }
        }
        any
    }

    /// When a program may be read again that the far end slowed down.
    pub(super) fn next_read(&mut self, now: Instant) -> Option<Instant> {
        let due = |(number, socket)| match self.sessions.get(&socket)?.state {
            State::Open(_, stream) => self.proxy.circuit(number)?.poll_timeout(now, stream),
            _ => None,
        };
        self.circuits.held().filter_map(due).min()
    }

    /// Gives up what took too long. The circuit of an exit that has not answered takes no new streams.
    pub(super) fn expire_sessions(&mut self) {
        let now = self.now;
        self.try_unanswered_again();
        let late = self.sessions.iter().filter(|(_, session)| session.ends.is_some_and(|ends| ends <= now));
        for socket in late.map(|(socket, _)| *socket).collect::<Vec<_>>() {
            match self.sessions.get(&socket).map(|session| &session.state) {
                Some(State::Waiting(_)) => {
                    self.waiting.retain(|waiting| *waiting != socket);
                    self.fail(socket, Reply::TTL_EXPIRED);
                }
                Some(State::Asked(_, number, stream)) => {
                    let (number, stream) = (*number, *stream);
                    self.circuits.retire(number);
                    self.drop_stream(number, stream);
                    self.fail(socket, Reply::TTL_EXPIRED);
                }
                Some(State::Open(number, _)) => {
                    self.circuits.retire(*number);
                    self.abort(socket);
                }
                _ => self.abort(socket),
            }
        }
    }

    /// Requests that an exit has not answered for long are tried over another circuit, where paths are chosen.
    fn try_unanswered_again(&mut self) {
        if self.options.path.is_some() {
            return;
        }
        let is_late =
            |pending: &Pending| pending.tries < TRIES_MAX && self.now.since(pending.asked_at) >= TRY_MAX;
        let late = |(socket, session): (&SocketId, &Session)| match &session.state {
            State::Asked(pending, number, stream) if is_late(pending) => {
                Some((*socket, pending.clone(), *number, *stream))
            }
            _ => None,
        };
        for (socket, pending, number, stream) in self.sessions.iter().filter_map(late).collect::<Vec<_>>() {
            self.circuits.retire(number);
            self.drop_stream(number, stream);
            self.try_again(socket, pending);
        }
    }
}

/// What is asked of an exit.
enum Ask<'a> {
    Begin(Begin<'a>),
    Resolve(Resolve<'a>),
}

fn ask(request: &SocksRequest) -> Option<Ask<'_>> {
    Some(match (request.command, &request.to) {
        (SocksCommand::Connect, to) => {
            let host = match to {
                Destination::Name(name) => Host::Name(HostName::new(name)?),
                Destination::Addr(IpAddr::V4(addr)) => Host::Ipv4(*addr),
                Destination::Addr(IpAddr::V6(addr)) => Host::Ipv6(*addr),
            };
            // IPv6 is welcome.
            Ask::Begin(Begin { host, port: NonZeroU16::new(request.port)?, flags: BeginFlags(1) })
        }
        (SocksCommand::Resolve, Destination::Name(name)) => Ask::Resolve(Resolve::Name(HostName::new(name)?)),
        (SocksCommand::Resolve, Destination::Addr(addr)) => Ask::Resolve(Resolve::Addr(*addr)),
        (SocksCommand::ResolvePtr, Destination::Addr(addr)) => Ask::Resolve(Resolve::Reverse(*addr)),
        (SocksCommand::ResolvePtr, Destination::Name(_)) => return None,
    })
}

/// Whether another exit may do better (stock Tor's `edge_reason_is_retriable`).
fn is_of_the_exit(reason: EndReason) -> bool {
    matches!(
        reason,
        EndReason::HIBERNATING
            | EndReason::RESOURCELIMIT
            | EndReason::EXITPOLICY
            | EndReason::RESOLVEFAILED
            | EndReason::MISC
            | EndReason::NOROUTE
    )
}
