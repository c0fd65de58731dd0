//! Streams at the client's end, and the flow control of their circuit.
//!
//! 1. [`OriginCircuit::begin`] queues BEGIN; CONNECTED opens the stream, END refuses it.
//! 2. [`OriginCircuit::send`] packages data as far as every window has room, and says how much it
//!    took. What comes waits in the stream's buffer until [`OriginCircuit::recv`] takes it; only
//!    then does the far end hear that it may send more.
//! 3. [`OriginCircuit::end_stream`], or END from the far end, is its end.

use super::{Fault, OUT_CELLS_HIGH, OriginCircuit, OriginError, OriginEvent};
use heddle_proto::cell::flow_control::Sendme;
use heddle_proto::cell::relay::{DATA_LEN, RelayCommand, StreamId};
use heddle_proto::cell::stream::{Begin, Connected, End as EndCell, EndReason, Resolve, Resolved};
use heddle_proto::crypto::tor1::CellDigest;
use heddle_proto::flow_control::{
    self, Digests, DrainWatch, FlowControl, ReadLimit, Role, SendmeContext, Signal, StreamControl,
    StreamWindow, XonXoffParams,
};
use heddle_seam::time::Instant;
use std::collections::{BTreeMap, VecDeque};

/// Bytes that may wait in one stream's buffer. A far end that obeys windows never sends a tenth of
/// it unread; one that ignores XOFF costs the circuit its life here.
const STREAM_BUFFER_MAX_BYTES: usize = 8 << 20;
/// Streams of one circuit. Those that are over count until they are read.
const STREAMS_MAX: usize = 1000;

/// Flow control with the last hop, and the streams that end there.
pub(super) struct End {
    flow: Box<dyn FlowControl + Send>,
    /// Digests of the cells that the far end will acknowledge.
    digests: Digests,
    streams: BTreeMap<StreamId, Stream>,
    /// Bytes in the buffers of all of them.
    received_bytes: usize,
    next_id: u16,
}

/// What holds a stream back, in both directions.
enum Hold {
    Windows(StreamWindow),
    Signals(Box<(DrainWatch, ReadLimit)>),
}

/// 1. BEGIN (or RESOLVE) is sent. 2. CONNECTED came. 3. END came; what is left is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asked,
    Resolving,
    Open,
    Ended,
}

struct Stream {
    state: State,
    hold: Hold,
    /// At most [`STREAM_BUFFER_MAX_BYTES`].
    received: VecDeque<u8>,
}

impl End {
    fn new(circuit: &OriginCircuit, first_id: u16) -> Self {
        let lookup = |name: &str| circuit.param(name);
        let flow = flow_control::new(circuit.flow_control.algorithm(circuit.sendme_inc(), &lookup));
        End {
            digests: Digests::new(flow.pending_max()),
            flow,
            streams: BTreeMap::new(),
            received_bytes: 0,
            next_id: first_id,
        }
    }

    pub fn received_bytes(&self) -> usize {
        self.received_bytes
    }

    /// An id that no stream has; ids go round, as those of stock clients do.
    fn new_id(&mut self) -> Option<StreamId> {
        if self.streams.len() >= STREAMS_MAX {
            return None;
        }
        loop {
            self.next_id = self.next_id.wrapping_add(1);
            if let Some(id) = StreamId::new(self.next_id).filter(|id| !self.streams.contains_key(id)) {
                return Some(id);
            }
        }
    }
}

impl OriginCircuit {
    /// Asks for a stream. Data may be sent at once, and is lost if the stream is refused.
    pub fn begin(&mut self, begin: &Begin<'_>) -> Result<StreamId, OriginError> {
        let mut data = Vec::with_capacity(DATA_LEN);
        begin.encode(&mut data);
        self.open_stream(State::Asked, RelayCommand::BEGIN, &data)
    }

    /// Looks a name up at the last hop; the id is only there to tell answers apart.
    pub fn resolve(&mut self, resolve: &Resolve<'_>) -> Result<StreamId, OriginError> {
        let mut data = Vec::with_capacity(DATA_LEN);
        resolve.encode(&mut data);
        self.open_stream(State::Resolving, RelayCommand::RESOLVE, &data)
    }

    fn open_stream(
        &mut self,
        state: State,
        command: RelayCommand,
        data: &[u8],
    ) -> Result<StreamId, OriginError> {
        self.check_idle()?;
        if self.hops() == 0 || self.is_forwarding_asked() {
            return Err(OriginError::State);
        }
        if self.end.is_none() {
            let first_id = self.rng.next_u32() as u16;
            self.end = Some(End::new(self, first_id));
        }
        let params = XonXoffParams::from_consensus(&|name| self.param(name));
        let end = self.end.as_mut().ok_or(OriginError::State)?;
        let id = end.new_id().ok_or(OriginError::TooManyStreams)?;
        let hold = match end.flow.stream_control() {
            StreamControl::Windows => Hold::Windows(StreamWindow::default()),
            StreamControl::XonXoff => Hold::Signals(Box::new((
                DrainWatch::new(Role::Origin, params),
                ReadLimit::new(Role::Origin, params),
            ))),
        };
        end.streams.insert(id, Stream { state, hold, received: VecDeque::new() });
        self.send_to_end(command, Some(id), data);
        Ok(id)
    }

    /// Bytes that [`OriginCircuit::send`] would take now.
    pub fn writable(&mut self, now: Instant, id: StreamId) -> usize {
        let cells = OUT_CELLS_HIGH.saturating_sub(self.queued_cells());
        let Some(end) = &mut self.end else { return 0 };
        let cells = cells.min(end.flow.room() as usize);
        match end.streams.get_mut(&id) {
            Some(Stream { state: State::Asked | State::Open, hold, .. }) => match hold {
                Hold::Windows(window) => cells.min(window.room() as usize) * DATA_LEN,
                Hold::Signals(signals) => {
                    let bytes = usize::try_from(signals.1.may_read(now)).unwrap_or(usize::MAX);
                    bytes.min(cells * DATA_LEN)
                }
            },
            _ => 0,
        }
    }

    /// Sends data on a stream; returns how many bytes were taken, perhaps none. More may be taken
    /// once cells came in or went out, or at [`OriginCircuit::poll_timeout`].
    pub fn send(&mut self, now: Instant, id: StreamId, data: &[u8]) -> usize {
        let len = self.writable(now, id).min(data.len());
        for chunk in data[..len].chunks(DATA_LEN) {
            let digest = self.send_to_end(RelayCommand::DATA, Some(id), chunk);
            let Some(end) = &mut self.end else { return len };
            if end.flow.on_sent(now) {
                end.digests.expect(digest);
            }
            match end.streams.get_mut(&id).map(|stream| &mut stream.hold) {
                Some(Hold::Windows(window)) => window.on_sent(),
                Some(Hold::Signals(signals)) => signals.1.on_read(chunk.len() as u64),
                None => {}
            }
        }
        len
    }

    /// When a stream that the far end slowed down may send at least a cell; to be asked after
    /// [`OriginCircuit::send`] took less than it was given.
    pub fn poll_timeout(&self, now: Instant, id: StreamId) -> Option<Instant> {
        match &self.end.as_ref()?.streams.get(&id)?.hold {
            Hold::Windows(_) => None,
            Hold::Signals(signals) => signals.1.next_read(now, DATA_LEN as u64).filter(|at| *at > now),
        }
    }

    /// Bytes that came on a stream and were not taken yet.
    pub fn readable(&self, id: StreamId) -> usize {
        let stream = self.end.as_ref().and_then(|end| end.streams.get(&id));
        stream.map_or(0, |stream| stream.received.len())
    }

    /// Whether the far end ended a stream, so that nothing more comes than can be read.
    pub(crate) fn has_ended(&self, id: StreamId) -> bool {
        let stream = self.end.as_ref().and_then(|end| end.streams.get(&id));
        stream.is_none_or(|stream| stream.state == State::Ended)
    }

    /// Appends at most `max` bytes that came on a stream to `into`, and returns how many. The far
    /// end may send more then.
    pub fn recv(&mut self, now: Instant, id: StreamId, into: &mut Vec<u8>, max: usize) -> usize {
        let Some(end) = &mut self.end else { return 0 };
        let Some(stream) = end.streams.get_mut(&id) else { return 0 };
        let len = stream.received.len().min(max);
        let (front, back) = stream.received.as_slices();
        let of_front = len.min(front.len());
        into.extend_from_slice(&front[..of_front]);
        into.extend_from_slice(&back[..len - of_front]);
        stream.received.drain(..len);
        end.received_bytes -= len;
        let left = stream.received.len();
        if stream.state == State::Ended {
            if left == 0 {
                end.streams.remove(&id);
            }
            return len;
        }
        let mut sendmes = 0;
        let mut signal = None;
        match &mut stream.hold {
            Hold::Windows(window) => {
                while left == 0 && window.take_sendme() {
                    sendmes += 1;
                }
            }
            Hold::Signals(signals) => signal = signals.0.on_drained(now, len as u64, left as u64),
        }
        for _ in 0..sendmes {
            self.send_to_end(RelayCommand::SENDME, Some(id), &[]);
        }
        self.send_signal(id, signal);
        len
    }

    /// Ends a stream; what came for it and what is still to come is dropped.
    ///
    /// # Errors
    ///
    /// When there is no such stream, or it is over.
    pub fn end_stream(&mut self, id: StreamId) -> Result<(), OriginError> {
        let end = self.end.as_mut().ok_or(OriginError::NoStream)?;
        let stream = end.streams.remove(&id).ok_or(OriginError::NoStream)?;
        end.received_bytes -= stream.received.len();
        if matches!(stream.state, State::Asked | State::Open) {
            // "Origins SHOULD send no other reason", lest it says something about them.
            self.send_to_end(RelayCommand::END, Some(id), &[EndReason::MISC.0]);
        }
        Ok(())
    }

    fn send_signal(&mut self, id: StreamId, signal: Option<Signal>) {
        let Some(signal) = signal else { return };
        let mut data = Vec::with_capacity(5);
        let command = signal.encode(&mut data);
        self.send_to_end(command, Some(id), &data);
    }

    /// DATA counts for the circuit even when its stream is over.
    pub(super) fn on_data(
        &mut self,
        now: Instant,
        id: Option<StreamId>,
        data: &[u8],
        digest: CellDigest,
    ) -> Result<(), Fault> {
        let Some(end) = &mut self.end else { return Err("DATA before the first stream") };
        let id = id.ok_or("DATA for no stream")?;
        if end.flow.on_received() {
            let mut sendme = Vec::with_capacity(23);
            Sendme::Authenticated(digest).encode(&mut sendme);
            self.send_to_end(RelayCommand::SENDME, None, &sendme);
        }
        let Some(end) = &mut self.end else { return Ok(()) };
        let Some(stream) = end.streams.get_mut(&id) else {
            // It was on its way when we ended the stream.
            return Ok(());
        };
        if stream.state != State::Open {
            return Err("DATA on a stream that is not open");
        }
        if stream.received.len() + data.len() > STREAM_BUFFER_MAX_BYTES {
            return Err("DATA that nobody allowed");
        }
        let was_empty = stream.received.is_empty();
        stream.received.extend(data);
        end.received_bytes += data.len();
        let mut signal = None;
        match &mut stream.hold {
            Hold::Windows(window) => {
                window.on_received().map_err(|_| "DATA beyond the stream's window")?;
            }
            Hold::Signals(signals) => signal = signals.0.on_queued(now, stream.received.len() as u64),
        }
        if was_empty && !stream.received.is_empty() {
            self.events.push_back(OriginEvent::Readable { stream: id });
        }
        self.send_signal(id, signal);
        Ok(())
    }

    pub(super) fn on_circuit_sendme(&mut self, now: Instant, data: &[u8]) -> Result<(), Fault> {
        let queued = self.queued_cells();
        let end = self.end.as_mut().ok_or("a SENDME before the first stream")?;
        let Ok(Sendme::Authenticated(digest)) = Sendme::parse(data) else {
            return Err("a SENDME that proves nothing");
        };
        end.digests.check(&digest).map_err(|_| "a SENDME that proves the wrong thing")?;
        let context =
            SendmeContext { channel_blocked: queued >= OUT_CELLS_HIGH, queued_cells: queued as u32 };
        end.flow.on_sendme(now, context).map_err(|_| "a SENDME for nothing")
    }

    /// A cell of a stream, other than DATA. Those of streams that are over change nothing.
    pub(super) fn on_stream_cell(
        &mut self,
        now: Instant,
        command: RelayCommand,
        id: StreamId,
        data: &[u8],
    ) -> Result<(), Fault> {
        let Some(end) = &mut self.end else { return Err("a stream's cell before the first stream") };
        let Some(stream) = end.streams.get_mut(&id) else { return Ok(()) };
        match (command, stream.state) {
            (RelayCommand::CONNECTED, State::Asked) => {
                let connected = Connected::parse(data).map_err(|_| "malformed CONNECTED")?;
                stream.state = State::Open;
                self.events.push_back(OriginEvent::Connected { stream: id, addr: connected.addr });
            }
            (RelayCommand::RESOLVED, State::Resolving) => {
                let resolved = Resolved::parse(data).map_err(|_| "malformed RESOLVED")?;
                end.streams.remove(&id);
                self.events.push_back(OriginEvent::Resolved { stream: id, resolved });
            }
            (RelayCommand::END, State::Asked | State::Open | State::Resolving) => {
                stream.state = State::Ended;
                if stream.received.is_empty() {
                    end.streams.remove(&id);
                }
                self.events.push_back(OriginEvent::Ended { stream: id, end: EndCell::parse(data) });
            }
            (RelayCommand::SENDME, State::Asked | State::Open) => match &mut stream.hold {
                Hold::Windows(window) => window.on_sendme().map_err(|_| "a stream's SENDME for nothing")?,
                Hold::Signals(_) => return Err("a stream's SENDME though XON and XOFF were agreed on"),
            },
            (RelayCommand::XON | RelayCommand::XOFF, State::Asked | State::Open) => {
                let Hold::Signals(signals) = &mut stream.hold else {
                    return Err("XON or XOFF though windows were agreed on");
                };
                let signal = Signal::parse(command, data).map_err(|_| "malformed XON or XOFF")?;
                signals.1.on_signal(now, signal).map_err(|_| "more XON or XOFF than data can explain")?;
            }
            (RelayCommand::CONNECTED | RelayCommand::RESOLVED, _) => return Err("an answer out of place"),
            _ => {}
        }
        Ok(())
    }
}
