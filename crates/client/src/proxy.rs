//! An onion proxy: the client of the test bench, with chosen paths and made-up traffic.
//!
//! 1. [`OnionProxy::build`] takes a path. Its first relay is dialled, unless there is a channel
//!    already; then the circuit grows to its last hop.
//! 2. [`OnionProxy::begin`] opens a stream and sends and receives what it was told to.
//! 3. [`OnionProxy::take_events`] and [`OnionProxy::status`] say what came of it.
//!
//! It chooses no paths, keeps no guards and is nobody's way into Tor.

mod credit;
mod datagrams;
mod dials;
mod node;

use super::circuit::{Closed, Handshake, Hop, OriginCircuit, OriginError, OriginEvent};
use super::exchange::{Destination, Exchange, ExchangeState, ExchangeStatus, Running};
use core::num::NonZeroU16;
use core::ops::Bound;
use heddle_proto::cell::relay::StreamId;
use heddle_proto::cell::stream::{Begin, BeginFlags, EndReason, Host, HostName};
use heddle_proto::cell::{Body, CELL_LEN, CircId, Command};
use heddle_proto::channel::{Channel, ChannelError, Incoming, StreamTransport, Target};
use heddle_proto::credit::{CreditCell, HopCredit, N23};
use heddle_proto::flow_control::FlowChoice;
use heddle_proto::params::NetworkParams;
use heddle_seam::language::Plain;
use heddle_seam::node::{Output, SocketId};
use heddle_seam::rng::{Rng, Seed};
use heddle_seam::time::{Instant, UnixTime};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Bytes that are read from a socket at once.
const READ_LEN: usize = 64 * 1024;
/// Events that wait to be taken; older ones are dropped.
const EVENTS_MAX: usize = 4096;

/// A circuit of the proxy; numbers are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CircuitNumber(pub u64);

/// A stream of the proxy; numbers are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExchangeNumber(pub u64);

/// What a proxy tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyEvent {
    /// The first of a circuit's hops is joined.
    Begun(CircuitNumber),
    /// All hops are joined.
    Built(CircuitNumber),
    /// A circuit ended, other than by our wish.
    CircuitClosed(CircuitNumber, Closed),
    /// The channel to a guard ended, and its circuits with it.
    ChannelClosed(ChannelError),
    Connected(ExchangeNumber),
    /// The far end ended a stream.
    Ended(ExchangeNumber, EndReason),
    /// An answer to what was asked of [`OnionProxy::circuit_mut`]: [`OriginEvent::Truncated`],
    /// [`OriginEvent::Resolved`], or whatever becomes of a stream that was begun there.
    Answered(CircuitNumber, OriginEvent),
}

/// A channel to a guard.
struct Guard {
    target: Target,
    socket: SocketId,
    /// `None` until the socket is connected.
    channel: Option<Box<dyn Channel>>,
    open: bool,
    writable: usize,
    interest: (bool, bool),
    circuits: BTreeMap<CircId, CircuitNumber>,
    /// Whose turn it is to send.
    turn: Option<CircId>,
    /// By which numbers it counts what we send, if it does.
    credit: Option<N23>,
}

struct ProxyCircuit {
    origin: OriginCircuit,
    guard: SocketId,
    /// Once the channel is open.
    circ_id: Option<CircId>,
    /// Hops that are still to be asked for.
    path: VecDeque<(Hop, Handshake)>,
    streams: BTreeMap<StreamId, ExchangeNumber>,
}

/// An onion proxy; see the module.
pub struct OnionProxy {
    transport: Box<dyn StreamTransport>,
    params: Arc<NetworkParams>,
    flow_control: FlowChoice,
    hop_credit: HopCredit,
    /// Whether the cells of circuits are to be datagrams.
    forwards: bool,
    seed: Seed,
    rng: Rng,
    /// The time of the last input.
    now: Instant,
    wall: UnixTime,
    guards: BTreeMap<SocketId, Guard>,
    sockets_made: u64,
    circuits: BTreeMap<CircuitNumber, ProxyCircuit>,
    circuits_made: u64,
    exchanges: BTreeMap<ExchangeNumber, (CircuitNumber, Running)>,
    events: VecDeque<ProxyEvent>,
    outputs: VecDeque<Output<Plain>>,
    /// Channels that may have something to send.
    dirty: BTreeSet<SocketId>,
    scratch: Box<[u8]>,
}

impl OnionProxy {
    /// A proxy whose channels are made by `transport`, which has no identity.
    pub fn new(transport: Box<dyn StreamTransport>, params: Arc<NetworkParams>, seed: &Seed) -> Self {
        OnionProxy {
            transport,
            params,
            flow_control: FlowChoice::default(),
            hop_credit: HopCredit::None,
            forwards: false,
            seed: seed.child("circuits of a proxy", 0),
            rng: seed.child("a proxy", 0).rng(),
            now: Instant::ZERO,
            wall: UnixTime::default(),
            guards: BTreeMap::new(),
            sockets_made: 0,
            circuits: BTreeMap::new(),
            circuits_made: 0,
            exchanges: BTreeMap::new(),
            events: VecDeque::new(),
            outputs: VecDeque::new(),
            dirty: BTreeSet::new(),
            scratch: vec![0; READ_LEN].into_boxed_slice(),
        }
    }

    /// Builds a circuit. `None` when the path is empty, or its first relay has no address.
    pub fn build(&mut self, path: Vec<(Hop, Handshake)>) -> Option<CircuitNumber> {
        let target = path.first()?.0.target.clone();
        let guard = match self.guards.values().find(|guard| guard.target == target) {
            Some(guard) => guard.socket,
            None => self.dial(target)?,
        };
        let number = CircuitNumber(self.circuits_made);
        self.circuits_made += 1;
        let rng = self.seed.child("circuit", number.0).rng();
        let mut origin = OriginCircuit::new(self.params.clone(), rng);
        origin.set_flow_control(self.flow_control);
        let circuit =
            ProxyCircuit { origin, guard, circ_id: None, path: path.into(), streams: BTreeMap::new() };
        self.circuits.insert(number, circuit);
        self.start(number);
        Some(number)
    }

    /// Sends the first hop's handshake, if the channel is open.
    fn start(&mut self, number: CircuitNumber) {
        let Some(circuit) = self.circuits.get_mut(&number) else { return };
        let Some(guard) = self.guards.get_mut(&circuit.guard).filter(|guard| guard.open) else { return };
        let Some(channel) = &guard.channel else { return };
        let mut circ_id = channel.propose_circ_id(&mut self.rng);
        while guard.circuits.contains_key(&circ_id) {
            circ_id = channel.propose_circ_id(&mut self.rng);
        }
        circuit.circ_id = Some(circ_id);
        guard.circuits.insert(circ_id, number);
        self.grow(number);
    }

    /// Asks for the next hop, if one is left.
    fn grow(&mut self, number: CircuitNumber) {
        let Some(circuit) = self.circuits.get_mut(&number) else { return };
        let Some((hop, handshake)) = circuit.path.pop_front() else {
            return self.after_last_hop(number);
        };
        let asked = match circuit.origin.hops() {
            0 => circuit.origin.create(&hop, handshake),
            _ => circuit.origin.extend(&hop, handshake),
        };
        self.dirty.insert(circuit.guard);
        if asked.is_err() {
            self.close_circuit(number);
            self.event(ProxyEvent::CircuitClosed(number, Closed::Misbehaved("the path cannot be built")));
        }
    }

    /// Whether a circuit is there, built or not.
    pub fn has_circuit(&self, number: CircuitNumber) -> bool {
        self.circuits.get(&number).is_some_and(|circuit| !circuit.origin.is_closed())
    }

    /// The id that a circuit has on the channel to its guard, once that is open.
    pub fn circ_id(&self, number: CircuitNumber) -> Option<CircId> {
        self.circuits.get(&number)?.circ_id
    }

    /// Whether cells are counted with guards that count, too, on channels and circuits that begin from now on.
    pub fn set_hop_credit(&mut self, hop_credit: HopCredit) {
        self.hop_credit = hop_credit;
    }

    /// What the consensus asks, and what is chosen, of circuits that are begun from now on.
    pub(crate) fn set_params(&mut self, params: Arc<NetworkParams>, flow_control: FlowChoice) {
        (self.params, self.flow_control) = (params, flow_control);
    }

    /// Bytes that came for streams and that nobody has taken yet, and the circuit that has most of them.
    pub(crate) fn received_bytes(&self) -> (usize, Option<CircuitNumber>) {
        let each = || self.circuits.iter().map(|(number, of)| (of.origin.received_bytes(), *number));
        (each().map(|(bytes, _)| bytes).sum(), each().max().map(|(_, number)| number))
    }

    /// The circuit itself, for questions that have it queue no cells.
    pub(crate) fn quiet_circuit_mut(&mut self, number: CircuitNumber) -> Option<&mut OriginCircuit> {
        self.circuits.get_mut(&number).map(|circuit| &mut circuit.origin)
    }

    /// The circuit itself, for what the proxy has no call for. Cells that it queues leave when outputs are polled.
    pub fn circuit_mut(&mut self, number: CircuitNumber) -> Option<&mut OriginCircuit> {
        let circuit = self.circuits.get_mut(&number)?;
        self.dirty.insert(circuit.guard);
        Some(&mut circuit.origin)
    }

    /// The circuit itself, to look at.
    pub fn circuit(&self, number: CircuitNumber) -> Option<&OriginCircuit> {
        self.circuits.get(&number).map(|circuit| &circuit.origin)
    }

    /// Ends a circuit with hop number `hops`, and the streams of later hops.
    pub fn truncate(&mut self, number: CircuitNumber, hops: usize) -> Result<(), OriginError> {
        let circuit = self.circuits.get_mut(&number).ok_or(OriginError::Closed)?;
        let shorter = hops < circuit.origin.hops();
        circuit.origin.truncate(hops)?;
        self.dirty.insert(circuit.guard);
        circuit.path.clear();
        if shorter {
            self.lose_streams(number, None);
        }
        Ok(())
    }

    /// Ends a circuit.
    pub fn close_circuit(&mut self, number: CircuitNumber) {
        let Some(circuit) = self.circuits.get_mut(&number) else { return };
        circuit.origin.close();
        self.dirty.insert(circuit.guard);
        let unknown_to_guard = circuit.circ_id.is_none();
        self.lose_streams(number, None);
        if unknown_to_guard {
            self.circuits.remove(&number);
        }
    }

    /// Opens a stream at the last hop of a circuit.
    pub fn begin(
        &mut self,
        now: Instant,
        number: CircuitNumber,
        exchange: Exchange,
    ) -> Result<ExchangeNumber, OriginError> {
        let circuit = self.circuits.get_mut(&number).ok_or(OriginError::Closed)?;
        let host = match &exchange.to {
            Destination::Name(name) => Host::Name(HostName::new(name).ok_or(OriginError::NoStream)?),
            Destination::Addr(core::net::IpAddr::V4(addr)) => Host::Ipv4(*addr),
            Destination::Addr(core::net::IpAddr::V6(addr)) => Host::Ipv6(*addr),
        };
        let port = NonZeroU16::new(exchange.port).ok_or(OriginError::NoStream)?;
        // IPv6 is welcome.
        let flags = BeginFlags(1);
        let stream = circuit.origin.begin(&Begin { host, port, flags })?;
        let id = ExchangeNumber(self.exchanges.len() as u64);
        circuit.streams.insert(stream, id);
        self.dirty.insert(circuit.guard);
        self.exchanges.insert(id, (number, Running::new(exchange, stream, now)));
        Ok(id)
    }

    /// Ends a stream.
    pub fn end(&mut self, now: Instant, id: ExchangeNumber) {
        let Some((number, running)) = self.exchanges.get_mut(&id) else { return };
        running.on_over(now, ExchangeState::Ended(EndReason::MISC));
        if let Some(circuit) = self.circuits.get_mut(number) {
            // The far end may have ended it a moment ago.
            let _ = circuit.origin.end_stream(running.stream);
            circuit.streams.remove(&running.stream);
            self.dirty.insert(circuit.guard);
        }
    }

    /// Stops or goes on reading what comes on a stream.
    pub fn set_reading(&mut self, now: Instant, id: ExchangeNumber, reading: bool) {
        let Some((number, running)) = self.exchanges.get_mut(&id) else { return };
        running.set_reading(reading);
        if let Some(circuit) = self.circuits.get_mut(number) {
            running.drain(now, &mut circuit.origin);
            self.dirty.insert(circuit.guard);
        }
    }

    /// How an exchange stands; `None` when there was none of that number.
    pub fn status(&self, id: ExchangeNumber) -> Option<ExchangeStatus> {
        self.exchanges.get(&id).map(|(_, running)| running.status())
    }

    /// What happened since the last call, at most the last 4096 events.
    pub fn take_events(&mut self) -> Vec<ProxyEvent> {
        self.events.drain(..).collect()
    }

    fn event(&mut self, event: ProxyEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn lose_streams(&mut self, number: CircuitNumber, why: Option<Closed>) {
        if let Some(circuit) = self.circuits.get_mut(&number) {
            circuit.streams.clear();
        }
        for (_, running) in self.exchanges.values_mut().filter(|(of, _)| *of == number) {
            running.on_over(self.now, ExchangeState::Lost(why));
        }
    }

    fn on_read(&mut self, now: Instant, socket: SocketId, len: usize) {
        let mut used = 0;
        while used < len {
            let Some(channel) = self.guards.get_mut(&socket).and_then(|guard| guard.channel.as_mut()) else {
                return;
            };
            match channel.handle_read(now, &self.scratch[used..len]) {
                Ok(taken) => used += taken,
                Err(error) => return self.end_channel(socket, error, Some(Output::Close { socket })),
            }
            self.drain_channel(now, socket);
        }
    }

    fn drain_channel(&mut self, now: Instant, socket: SocketId) {
        loop {
            let Some(guard) = self.guards.get_mut(&socket) else { return };
            let Some(channel) = &mut guard.channel else { return };
            match channel.next_incoming(now) {
                Ok(Some(Incoming::Opened(_))) => {
                    guard.open = true;
                    if let HopCredit::N23(ours) = self.hop_credit {
                        channel.send_vpadding(now, &CreditCell::Agreement(ours).encode());
                    }
                    let waiting = self.circuits.iter().filter(|(_, circuit)| circuit.guard == socket);
                    let waiting: Vec<_> = waiting.map(|(number, _)| *number).collect();
                    waiting.into_iter().for_each(|number| self.start(number));
                }
                Ok(Some(Incoming::Cell { circ_id, command, body })) => {
                    let body: Body = *body;
                    if let Some(&number) = guard.circuits.get(&circ_id) {
                        self.on_cell(now, number, command, &body);
                    }
                }
                Ok(Some(Incoming::Vpadding { body })) => {
                    // A relay's offer is for relays.
                    if let Some(Ok(cell)) = CreditCell::parse(body) {
                        self.on_credit(now, socket, cell);
                    }
                }
                Ok(None) => break,
                Err(error) => return self.end_channel(socket, error, Some(Output::Close { socket })),
            }
        }
        self.dirty.insert(socket);
    }

    fn on_cell(&mut self, now: Instant, number: CircuitNumber, command: Command, body: &Body) {
        let Some(circuit) = self.circuits.get_mut(&number) else { return };
        if matches!(command, Command::CREATED2 | Command::CREATED_FAST) && circuit.origin.hops() == 0 {
            // An agreement comes before all other cells of a channel, so both know by now whether they count.
            let theirs = self.guards.get(&circuit.guard).and_then(|guard| guard.credit);
            if let (HopCredit::N23(ours), Some(theirs)) = (self.hop_credit, theirs) {
                circuit.origin.count_cells(ours, theirs);
            }
        }
        circuit.origin.handle_cell(now, command, body);
        self.after_cell(now, number);
    }

    fn after_cell(&mut self, now: Instant, number: CircuitNumber) {
        self.take_circuit_events(now, number);
        // After DESTROY there is nothing to say; what else ends a circuit is said first.
        if self.circuits.get(&number).is_some_and(|c| c.origin.is_closed() && !c.has_cells()) {
            self.forget_circuit(number);
        }
    }

    fn take_circuit_events(&mut self, now: Instant, number: CircuitNumber) {
        while let Some(event) = self.circuits.get_mut(&number).and_then(|c| c.origin.poll_event()) {
            self.on_event(now, number, event);
        }
    }

    fn forget_circuit(&mut self, number: CircuitNumber) {
        let Some(circuit) = self.circuits.remove(&number) else { return };
        if let Some(guard) = self.guards.get_mut(&circuit.guard) {
            guard.circuits.retain(|_, of| *of != number);
        }
    }

    fn on_event(&mut self, now: Instant, number: CircuitNumber, event: OriginEvent) {
        let is_ours = match &event {
            OriginEvent::Connected { stream, .. }
            | OriginEvent::Readable { stream }
            | OriginEvent::Ended { stream, .. } => self.running(number, *stream).is_some(),
            OriginEvent::Truncated { .. } | OriginEvent::Measured { .. } | OriginEvent::Resolved { .. } => {
                false
            }
            OriginEvent::Joined { .. } | OriginEvent::Forwarding | OriginEvent::Closed(_) => true,
        };
        if !is_ours {
            return self.event(ProxyEvent::Answered(number, event));
        }
        match event {
            OriginEvent::Joined { .. } => {
                if self.circuit(number).is_some_and(|circuit| circuit.hops() == 1) {
                    self.event(ProxyEvent::Begun(number));
                }
                self.grow(number);
            }
            OriginEvent::Forwarding => self.event(ProxyEvent::Built(number)),
            OriginEvent::Truncated { .. } | OriginEvent::Measured { .. } | OriginEvent::Resolved { .. } => {}
            OriginEvent::Closed(why) => {
                self.lose_streams(number, Some(why));
                self.event(ProxyEvent::CircuitClosed(number, why));
            }
            OriginEvent::Connected { stream, .. } => {
                if let Some((id, running, _)) = self.running(number, stream) {
                    running.on_connected(now);
                    self.event(ProxyEvent::Connected(id));
                }
            }
            OriginEvent::Readable { stream } => {
                if let Some((_, running, origin)) = self.running(number, stream) {
                    running.drain(now, origin);
                }
            }
            OriginEvent::Ended { stream, end } => {
                if let Some((id, running, origin)) = self.running(number, stream) {
                    running.drain(now, origin);
                    running.on_over(now, ExchangeState::Ended(end.reason));
                    self.event(ProxyEvent::Ended(id, end.reason));
                }
                let circuit = self.circuits.get_mut(&number);
                circuit.into_iter().for_each(|circuit| _ = circuit.streams.remove(&stream));
            }
        }
    }

    fn running(
        &mut self,
        number: CircuitNumber,
        stream: StreamId,
    ) -> Option<(ExchangeNumber, &mut Running, &mut OriginCircuit)> {
        let circuit = self.circuits.get_mut(&number)?;
        let id = *circuit.streams.get(&stream)?;
        let (_, running) = self.exchanges.get_mut(&id)?;
        Some((id, running, &mut circuit.origin))
    }

    fn on_timeout(&mut self, now: Instant) {
        self.wake_sessions(now);
        let sockets: Vec<SocketId> = self.guards.keys().copied().collect();
        for socket in sockets {
            let Some(guard) = self.guards.get_mut(&socket) else { continue };
            let Some(channel) = &mut guard.channel else { continue };
            let due = channel.poll_timeout().is_some_and(|at| at <= now);
            match if due { channel.handle_timeout(now) } else { Ok(()) } {
                Ok(()) => {
                    self.dirty.insert(socket);
                }
                Err(error) => self.end_channel(socket, error, Some(Output::Close { socket })),
            }
        }
    }

    /// Gives a channel the cells it takes, a circuit at a time, and its bytes to the driver.
    fn flush(&mut self, now: Instant, socket: SocketId, out: &mut Vec<u8>) {
        self.pump(now, socket);
        while self.send_cell(now, socket) {
            self.pump(now, socket);
        }
        let Some(guard) = self.guards.get_mut(&socket) else { return };
        let Some(channel) = &mut guard.channel else { return };
        channel.handle_writable(now, guard.writable);
        let more = channel.poll_transmit(now, out);
        guard.writable -= out.len();
        let circuits = &self.circuits;
        let queued = guard.circuits.values().any(|n| circuits.get(n).is_some_and(ProxyCircuit::has_cells));
        let wanted = (true, more || queued || guard.writable < 2 * CELL_LEN);
        if wanted != guard.interest {
            guard.interest = wanted;
            self.outputs.push_back(Output::Interest { socket, read: wanted.0, write: wanted.1 });
        }
    }

    /// Lets the circuits of a channel package what they may.
    fn pump(&mut self, now: Instant, socket: SocketId) {
        for (number, running) in self.exchanges.values_mut() {
            let circuit = self.circuits.get_mut(number).filter(|circuit| circuit.guard == socket);
            if let Some(circuit) = circuit.filter(|_| running.wants_to_send()) {
                running.pump(now, &mut circuit.origin);
            }
        }
        self.pump_sessions(now, socket);
    }

    /// Sends one cell of the circuit whose turn it is; false when there is none or no room.
    fn send_cell(&mut self, now: Instant, socket: SocketId) -> bool {
        let Some(guard) = self.guards.get_mut(&socket) else { return false };
        let Some(channel) = guard.channel.as_mut().filter(|_| guard.open) else { return false };
        channel.handle_writable(now, guard.writable);
        if channel.capacity() == 0 {
            return false;
        }
        let turn = guard.turn.map_or(Bound::Unbounded, Bound::Excluded);
        let candidates = guard.circuits.range((turn, Bound::Unbounded)).chain(guard.circuits.iter());
        let circuits = &self.circuits;
        let next = candidates
            .map(|(id, n)| (*id, *n))
            .find(|(_, n)| circuits.get(n).is_some_and(ProxyCircuit::has_cells));
        let Some((circ_id, number)) = next else { return false };
        let Some(circuit) = self.circuits.get_mut(&number) else { return false };
        if let Some(message) = circuit.origin.next_credit_word() {
            channel.send_vpadding(now, &CreditCell::Circuit { circ_id, message }.encode());
            return true;
        }
        let Some(cell) = circuit.origin.poll_cell() else { return false };
        channel.send(now, circ_id, cell.command, &cell.body);
        guard.turn = Some(circ_id);
        if circuit.origin.is_closed() && !circuit.has_cells() {
            // It may have ended over a cell that its owner had it make.
            self.take_circuit_events(now, number);
            self.forget_circuit(number);
        }
        true
    }

    fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let channels = self.guards.values().filter_map(|guard| guard.channel.as_ref()?.poll_timeout());
        let running = self.exchanges.values().filter(|(_, running)| running.wants_to_send());
        let rates = running
            .filter_map(|(number, run)| self.circuits.get(number)?.origin.poll_timeout(now, run.stream));
        channels.chain(rates).chain(self.session_timeouts()).min()
    }
}

impl ProxyCircuit {
    /// Whether it has something that the guard takes now.
    fn has_cells(&self) -> bool {
        self.origin.has_cell() || self.origin.has_credit_word()
    }
}
