//! The streams of a host's programs, which are over circuits of its onion proxy or connections of its kernel. Programs
//! see only [`Lines`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::num::NonZeroU16;

use heddle_client::{CircuitNumber, OnionProxy, OriginEvent, ProxyEvent};
use heddle_proto::cell::relay::StreamId;
use heddle_proto::cell::stream::{Begin, BeginFlags, Host};
use heddle_relay::RelayLanguage;
use heddle_seam::node::{Input, Output, SocketId};
use heddle_seam::time::Instant;

/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;

/// A stream, by the order in which streams were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LineId(u64);

/// Where a stream goes and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// The circuit; a host's kernel takes none.
    pub(super) circuit: Option<CircuitNumber>,
    pub(super) to: SocketAddr,
}

/// How far a stream is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LineState {
    Asked,
    Open,
    /// It is over; what came before can be read still. By what it ended.
    Over(String),
}

/// What opens, carries and closes streams.
pub(super) trait Lines {
    /// Asks for a stream.
    fn open(&mut self, now: Instant, way: Way) -> LineId;

    /// How far it is.
    fn state(&self, line: LineId) -> LineState;

    /// Appends what has come and returns how many bytes that is. What is not read keeps the far end waiting at last.
    fn read(&mut self, now: Instant, line: LineId, into: &mut Vec<u8>) -> usize;

    /// Takes as many of these bytes as leave promptly, perhaps none, and returns how many.
    fn write(&mut self, now: Instant, line: LineId, bytes: &[u8]) -> usize;

    /// Closes a stream and forgets it.
    fn close(&mut self, now: Instant, line: LineId);

    /// When a line takes bytes again that time alone holds back.
    fn writable_at(&self, now: Instant, line: LineId) -> Option<Instant>;

    /// Streams of which something is new since the last call.
    fn take_touched(&mut self) -> BTreeSet<LineId>;
}

/// Streams over circuits.
pub(super) struct OverCircuits {
    pub(super) proxy: OnionProxy,
    lines: BTreeMap<LineId, Stream>,
    by_stream: BTreeMap<(CircuitNumber, StreamId), LineId>,
    made: u64,
    touched: BTreeSet<LineId>,
    /// When each circuit was built that the testbed has not asked for yet.
    built: BTreeMap<CircuitNumber, Instant>,
}

struct Stream {
    circuit: CircuitNumber,
    /// `None` where the circuit took none.
    stream: Option<StreamId>,
    state: LineState,
}

impl OverCircuits {
    pub(super) fn new(proxy: OnionProxy) -> OverCircuits {
        OverCircuits {
            proxy,
            lines: BTreeMap::new(),
            by_stream: BTreeMap::new(),
            made: 0,
            touched: BTreeSet::new(),
            built: BTreeMap::new(),
        }
    }

    /// When a circuit was built, once it is.
    pub(super) fn built_at(&self, circuit: CircuitNumber) -> Option<Instant> {
        self.built.get(&circuit).copied()
    }

    /// Hears what the proxy tells.
    pub(super) fn hear(&mut self, now: Instant) {
        for event in self.proxy.take_events() {
            match event {
                ProxyEvent::Built(circuit) => {
                    self.built.insert(circuit, now);
                }
                ProxyEvent::Answered(circuit, event) => self.on_answer(circuit, &event),
                ProxyEvent::CircuitClosed(..) | ProxyEvent::ChannelClosed(_) => self.lose_streams(),
                ProxyEvent::Connected(_) | ProxyEvent::Ended(..) => {}
            }
        }
    }

    fn on_answer(&mut self, circuit: CircuitNumber, event: &OriginEvent) {
        let (stream, state) = match event {
            OriginEvent::Connected { stream, .. } => (stream, Some(LineState::Open)),
            OriginEvent::Readable { stream } => (stream, None),
            OriginEvent::Ended { stream, end } => {
                (stream, Some(LineState::Over(format!("the exit ended it: {}", end.reason))))
            }
            _ => return,
        };
        let Some(line) = self.by_stream.get(&(circuit, *stream)).copied() else { return };
        self.touched.insert(line);
        if let (Some(state), Some(of)) = (state, self.lines.get_mut(&line)) {
            of.state = state;
        }
    }

    /// Streams end with their circuits.
    fn lose_streams(&mut self) {
        for (id, line) in &mut self.lines {
            let is_over = matches!(line.state, LineState::Over(_));
            if !is_over && !self.proxy.has_circuit(line.circuit) {
                line.state = LineState::Over("the circuit was closed".to_owned());
                self.touched.insert(*id);
            }
        }
    }
}

impl Lines for OverCircuits {
    fn open(&mut self, _: Instant, way: Way) -> LineId {
        let id = LineId(self.made);
        self.made += 1;
        let circuit = way.circuit.expect("a program over Tor has a circuit");
        let port = NonZeroU16::new(way.to.port()).expect("servers have ports");
        let host = match way.to {
            SocketAddr::V4(to) => Host::Ipv4(*to.ip()),
            SocketAddr::V6(to) => Host::Ipv6(*to.ip()),
        };
        let begin = Begin { host, port, flags: BeginFlags(0) };
        let asked = self.proxy.circuit_mut(circuit).map(|circuit| circuit.begin(&begin));
        let (stream, state) = match asked {
            Some(Ok(stream)) => (Some(stream), LineState::Asked),
            Some(Err(error)) => (None, LineState::Over(error.to_string())),
            None => (None, LineState::Over("the circuit was closed".to_owned())),
        };
        if let Some(stream) = stream {
            self.by_stream.insert((circuit, stream), id);
        } else {
            self.touched.insert(id);
        }
        self.lines.insert(id, Stream { circuit, stream, state });
        id
    }

    fn state(&self, line: LineId) -> LineState {
        let gone = || LineState::Over("it was closed".to_owned());
        self.lines.get(&line).map_or_else(gone, |line| line.state.clone())
    }

    fn read(&mut self, now: Instant, line: LineId, into: &mut Vec<u8>) -> usize {
        let Some(Stream { circuit, stream: Some(stream), .. }) = self.lines.get(&line) else { return 0 };
        let Some(circuit) = self.proxy.circuit_mut(*circuit) else { return 0 };
        circuit.recv(now, *stream, into, usize::MAX)
    }

    fn write(&mut self, now: Instant, line: LineId, bytes: &[u8]) -> usize {
        let Some(Stream { circuit, stream: Some(stream), state: LineState::Open }) = self.lines.get(&line)
        else {
            return 0;
        };
        let Some(circuit) = self.proxy.circuit_mut(*circuit) else { return 0 };
        circuit.send(now, *stream, bytes)
    }

    fn close(&mut self, _: Instant, line: LineId) {
        let Some(Stream { circuit, stream: Some(stream), .. }) = self.lines.remove(&line) else { return };
        self.by_stream.remove(&(circuit, stream));
        if let Some(circuit) = self.proxy.circuit_mut(circuit) {
            // The far end may have ended it before.
            let _ = circuit.end_stream(stream);
        }
    }

    fn writable_at(&self, now: Instant, line: LineId) -> Option<Instant> {
        let Stream { circuit, stream, .. } = self.lines.get(&line)?;
        self.proxy.circuit(*circuit)?.poll_timeout(now, (*stream)?)
    }

    fn take_touched(&mut self) -> BTreeSet<LineId> {
        std::mem::take(&mut self.touched)
    }
}

/// Streams that are connections of the host's own kernel.
pub(super) struct OverKernel {
    lines: BTreeMap<LineId, Connection>,
    touched: BTreeSet<LineId>,
    /// Connections that may want something of the kernel.
    dirty: BTreeSet<LineId>,
    made: u64,
    outputs: VecDeque<Output<RelayLanguage>>,
    /// What is read from a socket, before its line has it.
    buf: Vec<u8>,
}

struct Connection {
    state: LineState,
    /// What came and was not read; no more is read from the socket meanwhile, so this is one read at most.
    received: Vec<u8>,
    /// What leaves with the next output, at most `credit` bytes.
    out: Vec<u8>,
    credit: usize,
    interest: (bool, bool),
    /// Whether somebody wrote more than was taken.
    is_short: bool,
}

fn socket(line: LineId) -> SocketId {
    SocketId::dialled(line.0)
}

/// Dialled sockets have even numbers.
fn line(socket: SocketId) -> LineId {
    LineId(socket.get() / 2)
}

impl OverKernel {
    pub(super) fn new() -> OverKernel {
        OverKernel {
            lines: BTreeMap::new(),
            touched: BTreeSet::new(),
            dirty: BTreeSet::new(),
            made: 0,
            outputs: VecDeque::new(),
            buf: vec![0; READ_BYTES],
        }
    }

    pub(super) fn recv_buf(&mut self) -> &mut [u8] {
        &mut self.buf
    }

    fn at(&mut self, socket: SocketId, change: impl FnOnce(&mut Connection, &[u8])) {
        let line = line(socket);
        if let Some(connection) = self.lines.get_mut(&line) {
            change(connection, &self.buf);
            self.touched.insert(line);
            self.dirty.insert(line);
        }
    }

    pub(super) fn handle_input(&mut self, input: &Input<RelayLanguage>) {
        match *input {
            Input::Connected { socket, .. } => self.at(socket, |line, _| line.state = LineState::Open),
            Input::Failed { socket, error } => {
                self.at(socket, |line, _| line.state = LineState::Over(format!("the kernel says {error:?}")));
            }
            Input::Read { socket, len } => {
                self.at(socket, |line, buf| line.received.extend_from_slice(&buf[..len]));
            }
            Input::Writable { socket, bytes, .. } => self.at(socket, |line, _| line.credit = bytes),
            Input::Eof { socket } => {
                self.at(socket, |line, _| line.state = LineState::Over("the stream was closed".to_owned()));
            }
            _ => {}
        }
    }

    /// The next thing that is wanted of the kernel; none but these.
    pub(super) fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<Output<RelayLanguage>> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        while let Some(line) = self.dirty.first().copied() {
            let open = self.lines.get_mut(&line).filter(|connection| connection.state == LineState::Open);
            if let Some(connection) = open {
                if !connection.out.is_empty() {
                    buf.append(&mut connection.out);
                    return Some(Output::Send { socket: socket(line) });
                }
                let wanted = (connection.received.is_empty(), connection.is_short || connection.credit == 0);
                if wanted != connection.interest {
                    connection.interest = wanted;
                    return Some(Output::Interest { socket: socket(line), read: wanted.0, write: wanted.1 });
                }
            }
            self.dirty.remove(&line);
        }
        None
    }
}

impl Lines for OverKernel {
    fn open(&mut self, _: Instant, way: Way) -> LineId {
        let id = LineId(self.made);
        self.made += 1;
        self.outputs.push_back(Output::Connect { socket: socket(id), to: way.to });
        let connection = Connection {
            state: LineState::Asked,
            received: Vec::new(),
            out: Vec::new(),
            credit: 0,
            interest: (false, false),
            is_short: false,
        };
        self.lines.insert(id, connection);
        id
    }

    fn state(&self, line: LineId) -> LineState {
        let gone = || LineState::Over("it was closed".to_owned());
        self.lines.get(&line).map_or_else(gone, |line| line.state.clone())
    }

    fn read(&mut self, _: Instant, line: LineId, into: &mut Vec<u8>) -> usize {
        let Some(connection) = self.lines.get_mut(&line) else { return 0 };
        let len = connection.received.len();
        self.dirty.insert(line);
        into.append(&mut connection.received);
        len
    }

    fn write(&mut self, _: Instant, line: LineId, bytes: &[u8]) -> usize {
        let Some(connection) = self.lines.get_mut(&line).filter(|line| line.state == LineState::Open) else {
            return 0;
        };
        let len = bytes.len().min(connection.credit);
        connection.out.extend_from_slice(&bytes[..len]);
        connection.credit -= len;
        connection.is_short = len < bytes.len();
        self.dirty.insert(line);
        len
    }

    fn close(&mut self, _: Instant, line: LineId) {
        let Some(connection) = self.lines.remove(&line) else { return };
        // A connection that failed has no socket any more.
        self.outputs.push_back(match connection.state {
            LineState::Over(_) => Output::Close { socket: socket(line) },
            _ => Output::Abort { socket: socket(line) },
        });
    }

    fn writable_at(&self, _: Instant, _: LineId) -> Option<Instant> {
        None
    }

    fn take_touched(&mut self) -> BTreeSet<LineId> {
        std::mem::take(&mut self.touched)
    }
}
