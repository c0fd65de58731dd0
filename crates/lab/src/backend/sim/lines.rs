//! The streams of a host's programs, which are over circuits of its onion proxy or connections of its kernel.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::num::NonZeroU16;

use heddle_client::{CircuitNumber, OnionProxy, OriginEvent, ProxyEvent};
use heddle_proto::cell::measure::Measured;
use heddle_proto::cell::relay::StreamId;
use heddle_proto::cell::stream::{Begin, BeginFlags, Host};
use heddle_relay::RelayLanguage;
use heddle_seam::node::{Input, Output, SocketId};
use heddle_seam::time::Instant;

use crate::error::Error;
use crate::traffic::lines::{LineId, LineState, Lines, WayId};

/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;
/// What a host holds of a stream to its own onion proxy that takes nothing, in bytes. Real ones hold it in the buffers
/// of a loopback connection, at least as much. There is one such buffer for each stream of a program.
const SOCKS_BUFFER_BYTES: usize = 256 * 1024;

/// Streams over circuits.
pub(super) struct OverCircuits {
    pub(super) proxy: OnionProxy,
    ways: Vec<(CircuitNumber, SocketAddr)>,
    lines: BTreeMap<LineId, Stream>,
    by_stream: BTreeMap<(CircuitNumber, StreamId), LineId>,
    made: u64,
    touched: BTreeSet<LineId>,
    /// When each circuit was built that the testbed has not asked for yet.
    built: BTreeMap<CircuitNumber, Instant>,
    /// Of which circuits relays were asked what they counted.
    asked: BTreeMap<CircuitNumber, Asked>,
}

/// What the relays of a circuit were asked and answered.
#[derive(Default)]
struct Asked {
    /// Answers that are not there yet, of all relays.
    open: usize,
    /// By hop, the guard first, in the order of the questions.
    told: Vec<Vec<Measured>>,
}

struct Stream {
    circuit: CircuitNumber,
    /// `None` where the circuit took none.
    stream: Option<StreamId>,
    state: LineState,
    /// Why it is over.
    said: String,
    /// What was written and the circuit took not yet, at most [`SOCKS_BUFFER_BYTES`].
    out: VecDeque<u8>,
    /// Whether less was taken than was given.
    is_short: bool,
}

impl Stream {
    fn end(&mut self, said: String) {
        (self.state, self.said) = (LineState::Over, said);
        self.out.clear();
    }
}

impl OverCircuits {
    pub(super) fn new(proxy: OnionProxy) -> OverCircuits {
        OverCircuits {
            proxy,
            ways: Vec::new(),
            lines: BTreeMap::new(),
            by_stream: BTreeMap::new(),
            made: 0,
            touched: BTreeSet::new(),
            built: BTreeMap::new(),
            asked: BTreeMap::new(),
        }
    }

    /// A way over a circuit.
    pub(super) fn add_way(&mut self, circuit: CircuitNumber, to: SocketAddr) -> WayId {
        self.ways.push((circuit, to));
        WayId(self.ways.len() - 1)
    }

    /// When a circuit was built, once it is.
    pub(super) fn built_at(&self, circuit: CircuitNumber) -> Option<Instant> {
        self.built.get(&circuit).copied()
    }

    /// Asks all relays of a circuit what they counted of it, if it is there.
    pub(super) fn ask_relays(&mut self, number: CircuitNumber) {
        let Some(circuit) = self.proxy.circuit_mut(number) else { return };
        if circuit.measure().is_ok() {
            let hops = circuit.hops();
            let asked = self.asked.entry(number).or_default();
            asked.open += hops;
            asked.told.resize(hops, Vec::new());
        }
    }

    /// Whether relays of a circuit that is there have still to answer.
    pub(super) fn has_questions(&self, circuit: CircuitNumber) -> bool {
        self.asked.get(&circuit).is_some_and(|asked| asked.open > 0) && self.proxy.has_circuit(circuit)
    }

    /// What they answered, by hop.
    pub(super) fn take_told(&mut self, circuit: CircuitNumber) -> Vec<Vec<Measured>> {
        self.asked.remove(&circuit).unwrap_or_default().told
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
                ProxyEvent::Begun(_) | ProxyEvent::Connected(_) | ProxyEvent::Ended(..) => {}
            }
        }
    }

    fn on_answer(&mut self, circuit: CircuitNumber, event: &OriginEvent) {
        if let OriginEvent::Measured { hop, measured } = event {
            let Some(asked) = self.asked.get_mut(&circuit) else { return };
            asked.open = asked.open.saturating_sub(1);
            let told = hop.checked_sub(1).and_then(|place| asked.told.get_mut(place));
            return told.into_iter().for_each(|told| told.push(**measured));
        }
        let (OriginEvent::Connected { stream, .. }
        | OriginEvent::Readable { stream }
        | OriginEvent::Ended { stream, .. }) = event
        else {
            return;
        };
        let Some(line) = self.by_stream.get(&(circuit, *stream)).copied() else { return };
        let Some(of) = self.lines.get_mut(&line) else { return };
        self.touched.insert(line);
        match event {
            OriginEvent::Connected { .. } => of.state = LineState::Open,
            OriginEvent::Ended { end, .. } => of.end(format!("the exit ended it: {}", end.reason)),
            _ => {}
        }
    }

    /// Streams end with their circuits.
    fn lose_streams(&mut self) {
        for (id, line) in &mut self.lines {
            if line.state != LineState::Over && !self.proxy.has_circuit(line.circuit) {
                line.end("the circuit was closed".to_owned());
                self.touched.insert(*id);
            }
        }
    }

    /// Hands circuits what they take now of what was written.
    pub(super) fn pump(&mut self, now: Instant) {
        for (id, line) in self.lines.iter_mut().filter(|(_, line)| !line.out.is_empty()) {
            let Some((circuit, stream)) = self.proxy.circuit_mut(line.circuit).zip(line.stream) else {
                continue;
            };
            let len = circuit.send(now, stream, line.out.make_contiguous());
            line.out.drain(..len);
            if len > 0 && std::mem::take(&mut line.is_short) {
                self.touched.insert(*id);
            }
        }
    }

    /// When a circuit takes bytes again that time alone holds back.
    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let waiting = self.lines.values().filter(|line| !line.out.is_empty());
        waiting.filter_map(|line| self.proxy.circuit(line.circuit)?.poll_timeout(now, line.stream?)).min()
    }
}

impl Lines for OverCircuits {
    fn open(&mut self, _: Instant, WayId(way): WayId) -> LineId {
        let id = LineId(self.made);
        self.made += 1;
        let (circuit, to) = self.ways[way];
        let asked = begin(to).and_then(|begin| {
            let circuit =
                self.proxy.circuit_mut(circuit).ok_or_else(|| "the circuit was closed".to_owned())?;
            circuit.begin(&begin).map_err(|error| error.to_string())
        });
        let (stream, state, said) = match asked {
            Ok(stream) => (Some(stream), LineState::Asked, String::new()),
            Err(said) => (None, LineState::Over, said),
        };
        if let Some(stream) = stream {
            self.by_stream.insert((circuit, stream), id);
        } else {
            self.touched.insert(id);
        }
        let line = Stream { circuit, stream, state, said, out: VecDeque::new(), is_short: false };
        self.lines.insert(id, line);
        id
    }

    fn state(&self, line: LineId) -> LineState {
        self.lines.get(&line).map_or(LineState::Over, |line| line.state)
    }

    fn take_error(&mut self, line: LineId) -> Error {
        ended(self.lines.get(&line).map(|line| line.said.clone()))
    }

    fn read(&mut self, now: Instant, line: LineId, into: &mut Vec<u8>) -> usize {
        let Some(Stream { circuit, stream: Some(stream), .. }) = self.lines.get(&line) else { return 0 };
        let Some(circuit) = self.proxy.circuit_mut(*circuit) else { return 0 };
        circuit.recv(now, *stream, into, usize::MAX)
    }

    fn write(&mut self, now: Instant, line: LineId, bytes: &[u8]) -> usize {
        let Some(line) = self.lines.get_mut(&line).filter(|line| line.state == LineState::Open) else {
            return 0;
        };
        let Some((circuit, stream)) = self.proxy.circuit_mut(line.circuit).zip(line.stream) else { return 0 };
        let sent = if line.out.is_empty() { circuit.send(now, stream, bytes) } else { 0 };
        let room = SOCKS_BUFFER_BYTES - line.out.len();
        let len = bytes.len().min(sent + room);
        line.out.extend(&bytes[sent..len]);
        line.is_short = len < bytes.len();
        len
    }

    fn close(&mut self, _: Instant, line: LineId) {
        let Some(Stream { circuit, stream: Some(stream), .. }) = self.lines.remove(&line) else { return };
        self.by_stream.remove(&(circuit, stream));
        if let Some(circuit) = self.proxy.circuit_mut(circuit) {
            // The far end may have ended it before.
            let _ = circuit.end_stream(stream);
        }
    }

    fn take_touched(&mut self) -> BTreeSet<LineId> {
        std::mem::take(&mut self.touched)
    }
}

/// What begins a stream to an address.
fn begin(to: SocketAddr) -> Result<Begin<'static>, String> {
    let port = NonZeroU16::new(to.port()).ok_or_else(|| "the server has no port".to_owned())?;
    let host = match to {
        SocketAddr::V4(to) => Host::Ipv4(*to.ip()),
        SocketAddr::V6(to) => Host::Ipv6(*to.ip()),
    };
    Ok(Begin { host, port, flags: BeginFlags(0) })
}

/// That a stream is over, for this reason.
fn ended(said: Option<String>) -> Error {
    Error::Refused { by: "the stream's end", said: said.unwrap_or_else(|| "it was closed".to_owned()) }
}

/// Streams that are connections of the host's own kernel.
pub(super) struct OverKernel {
    ways: Vec<SocketAddr>,
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
    /// Why it is over.
    said: String,
    /// What came and was not read; no more is read from the socket meanwhile, so this is one read at most.
    received: Vec<u8>,
    /// What leaves with the next output, at most `credit` bytes.
    out: Vec<u8>,
    credit: usize,
    interest: (bool, bool),
    /// Whether somebody wrote more than was taken.
    is_short: bool,
}

impl Connection {
    fn end(&mut self, said: String) {
        (self.state, self.said) = (LineState::Over, said);
    }
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
            ways: Vec::new(),
            lines: BTreeMap::new(),
            touched: BTreeSet::new(),
            dirty: BTreeSet::new(),
            made: 0,
            outputs: VecDeque::new(),
            buf: vec![0; READ_BYTES],
        }
    }

    /// A way to an address.
    pub(super) fn add_way(&mut self, to: SocketAddr) -> WayId {
        self.ways.push(to);
        WayId(self.ways.len() - 1)
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
                self.at(socket, |line, _| line.end(format!("the kernel says {error:?}")));
            }
            Input::Read { socket, len } => {
                self.at(socket, |line, buf| line.received.extend_from_slice(&buf[..len]));
            }
            Input::Writable { socket, bytes, .. } => self.at(socket, |line, _| line.credit = bytes),
            Input::Eof { socket } => {
                self.at(socket, |line, _| line.end("the stream was closed".to_owned()));
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
    fn open(&mut self, _: Instant, WayId(way): WayId) -> LineId {
        let id = LineId(self.made);
        self.made += 1;
        self.outputs.push_back(Output::Connect { socket: socket(id), to: self.ways[way] });
        let connection = Connection {
            state: LineState::Asked,
            said: String::new(),
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
        self.lines.get(&line).map_or(LineState::Over, |line| line.state)
    }

    fn take_error(&mut self, line: LineId) -> Error {
        ended(self.lines.get(&line).map(|line| line.said.clone()))
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
            LineState::Over => Output::Close { socket: socket(line) },
            _ => Output::Abort { socket: socket(line) },
        });
    }

    fn take_touched(&mut self) -> BTreeSet<LineId> {
        std::mem::take(&mut self.touched)
    }
}
