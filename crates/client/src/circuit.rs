//! A circuit as its client sees it (tor-spec, "Circuit management").
//!
//! 1. [`OriginCircuit::create`] queues CREATE2 or CREATE_FAST; the answer joins the first hop.
//! 2. [`OriginCircuit::extend`] queues EXTEND2, in a RELAY_EARLY cell, for the last hop; EXTENDED2
//!    joins the next. And so on.
//! 3. Streams begin and end at the last hop (`streams`).
//! 4. DESTROY, a TRUNCATED nobody asked for, or a rule that a hop broke ends the circuit. So does
//!    [`OriginCircuit::close`].
//!
//! The owner hands in the cells of its channel with [`OriginCircuit::handle_cell`], takes those for
//! the channel with [`OriginCircuit::poll_cell`], and asks [`OriginCircuit::poll_event`] until it
//! says `None` before it hands in the next cell: a cell makes at most two events, and one that is a datagram two for
//! each message that it makes whole.

mod forwarding;
mod measure;
mod streams;

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use heddle_forwarding::DIGEST;
use heddle_proto::cell::create::{CREATED2_HDATA_LEN_MAX, Create2, Created2, DestroyReason, FAST_KEY_LEN};
use heddle_proto::cell::extend::{Extend2, ExtendTarget, Extended2};
use heddle_proto::cell::measure::Measured;
use heddle_proto::cell::relay::{self, RelayCommand, RelayHeader, StreamId};
use heddle_proto::cell::stream::{End as EndCell, Resolved};
use heddle_proto::cell::{BODY_LEN, Body, Command};
use heddle_proto::channel::Target;
use heddle_proto::credit::{CreditMessage, CreditViolation, Ledger, N23};
use heddle_proto::crypto::onionskin::{ClientHandshake, HandshakeType};
use heddle_proto::crypto::tor1::{CellDigest, OriginLayers};
use heddle_proto::flow_control::{FlowChoice, VegasParams, sendme_inc_acceptable};
use heddle_proto::params::NetworkParams;
use heddle_seam::rng::Rng;
use heddle_seam::time::{Duration, Instant};
use std::collections::VecDeque;
use std::sync::Arc;

use forwarding::Forwarding;
use measure::Questions;
use streams::End;

/// RELAY_EARLY cells that a circuit may send (tor-spec, "Handling RELAY_EARLY cells").
const RELAY_EARLY_MAX: u8 = 8;
/// While this many cells wait for the channel, no stream's data is packaged.
pub(crate) const OUT_CELLS_HIGH: usize = 128;
/// At this many the circuit ends: answers to what hops send are owed beyond [`OUT_CELLS_HIGH`], and
/// hops that make us owe so many, while the channel takes none, are up to no good.
const OUT_CELLS_MAX: usize = 4 * OUT_CELLS_HIGH;

/// A relay that a circuit is to pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    pub target: Target,
    /// The relay's onion key, from its descriptor.
    pub ntor_key: [u8; 32],
}

/// How a hop is joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// CREATE_FAST, for a first hop only.
    Fast,
    Ntor,
    /// ntor-v3; only the hop at which streams will end is asked for congestion control.
    NtorV3 {
        congestion_control: bool,
    },
}

/// A cell for the owner's channel, under the id that the circuit has there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OriginCell {
    pub command: Command,
    pub body: Body,
}

impl fmt::Debug for OriginCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OriginCell({})", self.command)
    }
}

/// What a circuit tells its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginEvent {
    /// One hop more was joined; there are `hops` now.
    Joined { hops: usize },
    /// The circuit ends after `hops` hops, as [`OriginCircuit::truncate`] wanted.
    Truncated { hops: usize, reason: DestroyReason },
    /// The circuit is over, and all its streams with it.
    Closed(Closed),
    /// A stream is open. The address is the other end's with its time to live in seconds.
    Connected { stream: StreamId, addr: Option<(IpAddr, u32)> },
    /// A stream without data to be read has some now.
    Readable { stream: StreamId },
    /// The far end closed a stream; what came before can still be read.
    Ended { stream: StreamId, end: EndCell },
    /// What a hop, the first being 1, has counted of this circuit since it was asked before.
    Measured { hop: usize, measured: Box<Measured> },
    /// What is said to the last hop goes as datagrams from now on, as [`OriginCircuit::forward_datagrams`] wanted.
    Forwarding,
    /// The answer to [`OriginCircuit::resolve`].
    Resolved { stream: StreamId, resolved: Resolved },
}

/// Why a circuit is over, other than by its owner's wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// DESTROY came from the first hop.
    Destroyed(DestroyReason),
    /// A hop lost the next one, or could not reach it.
    Truncated { hops: usize, reason: DestroyReason },
    /// A hop broke the protocol.
    Misbehaved(&'static str),
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Closed::Destroyed(reason) => write!(f, "the circuit was destroyed: {reason}"),
            Closed::Truncated { hops, reason } => {
                write!(f, "the circuit was truncated after {hops} hops: {reason}")
            }
            Closed::Misbehaved(what) => write!(f, "a hop broke the protocol: {what}"),
        }
    }
}

/// Why an owner's wish cannot be fulfilled. The circuit is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginError {
    /// The circuit is over.
    Closed,
    /// Not in this state: a hop is being joined, there is none yet, or streams exist.
    State,
    /// CREATE_FAST is for first hops, and ntor-v3 needs an Ed25519 identity.
    Handshake,
    /// The hop's onion key is no key, or it has no address.
    BadHop,
    /// All RELAY_EARLY cells are used.
    TooLong,
    /// All stream ids are taken.
    TooManyStreams,
    /// There is no such stream, or it is over.
    NoStream,
}

impl fmt::Display for OriginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OriginError::Closed => "the circuit is over",
            OriginError::State => "the circuit is not in the state for it",
            OriginError::Handshake => "the handshake does not suit the hop",
            OriginError::BadHop => "the hop has no usable key or address",
            OriginError::TooLong => "the circuit cannot grow any more",
            OriginError::TooManyStreams => "all stream ids are taken",
            OriginError::NoStream => "there is no such stream",
        })
    }
}

impl core::error::Error for OriginError {}

/// A circuit from its client's end; see the module.
pub struct OriginCircuit {
    layers: OriginLayers,
    joining: Option<ClientHandshake>,
    /// The hop that was sent TRUNCATE.
    truncating: Option<usize>,
    early_left: u8,
    closed: bool,
    /// At most [`OUT_CELLS_MAX`].
    out: VecDeque<OriginCell>,
    events: VecDeque<OriginEvent>,
    /// What each hop and we agreed about congestion control: cells per SENDME, or windows.
    sendme_incs: Vec<Option<u8>>,
    /// What is run of the old windows where congestion control was not agreed on.
    flow_control: FlowChoice,
    /// What the guard and we owe each other, if both count cells.
    /// Of the hop to the guard (`docs/reference/pair.md`, "Credit on the TLS channel").
    credit: Option<Ledger>,
    /// Flow control with the last hop, made when the first stream begins.
    end: Option<End>,
    /// What was asked of the hops about datagrams, if anything was.
    forwarding: Option<Box<Forwarding>>,
    questions: Questions,
    params: Arc<NetworkParams>,
    rng: Rng,
}

impl OriginCircuit {
    /// A circuit without hops.
    pub fn new(params: Arc<NetworkParams>, rng: Rng) -> Self {
        OriginCircuit {
            layers: OriginLayers::new(),
            joining: None,
            truncating: None,
            early_left: RELAY_EARLY_MAX,
            closed: false,
            out: VecDeque::new(),
            events: VecDeque::new(),
            sendme_incs: Vec::new(),
            flow_control: FlowChoice::default(),
            credit: None,
            end: None,
            forwarding: None,
            questions: Questions::default(),
            params,
            rng,
        }
    }

    /// Chooses the flow control, before the first stream begins. Whether congestion control is asked for stands in
    /// [`Handshake`].
    pub(crate) fn set_flow_control(&mut self, choice: FlowChoice) {
        self.flow_control = choice;
    }

    /// Hops that are joined.
    pub fn hops(&self) -> usize {
        self.layers.hops()
    }

    /// Whether the circuit is over.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Cells that wait for the channel, and messages that wait to become some.
    pub fn queued_cells(&self) -> usize {
        self.out.len() + self.waiting_messages()
    }

    /// Bytes that came for streams and were not taken yet.
    pub(crate) fn received_bytes(&self) -> usize {
        self.end.as_ref().map_or(0, End::received_bytes)
    }

    /// Begins the circuit with the relay at the other end of the owner's channel.
    pub fn create(&mut self, hop: &Hop, handshake: Handshake) -> Result<(), OriginError> {
        self.check_idle()?;
        if self.hops() > 0 {
            return Err(OriginError::State);
        }
        let (client, onionskin) = self.start(hop, handshake)?;
        let mut bytes = Vec::with_capacity(BODY_LEN);
        let command = match client.handshake_type().htype() {
            Some(htype) => {
                Create2 { htype, hdata: &onionskin }.encode(&mut bytes);
                Command::CREATE2
            }
            None => {
                bytes.extend_from_slice(&onionskin[..FAST_KEY_LEN]);
                Command::CREATE_FAST
            }
        };
        self.joining = Some(client);
        self.queue(command, padded(&bytes));
        Ok(())
    }

    /// Asks the last hop for one more.
    pub fn extend(&mut self, hop: &Hop, handshake: Handshake) -> Result<(), OriginError> {
        self.check_idle()?;
        if self.hops() == 0 || self.end.is_some() || self.forwarding.is_some() {
            return Err(OriginError::State);
        }
        if self.early_left == 0 {
            return Err(OriginError::TooLong);
        }
        let target = extend_target(&hop.target).ok_or(OriginError::BadHop)?;
        let (client, onionskin) = self.start(hop, handshake)?;
        let htype = client.handshake_type().htype().ok_or(OriginError::Handshake)?;
        let mut data = Vec::with_capacity(relay::DATA_LEN);
        Extend2 { specs: target.specs(), htype, hdata: &onionskin }.encode(&mut data);
        self.joining = Some(client);
        self.early_left -= 1;
        let last = self.hops() - 1;
        self.send_as(Command::RELAY_EARLY, last, RelayCommand::EXTEND2, None, &data);
        Ok(())
    }

    fn start(&mut self, hop: &Hop, handshake: Handshake) -> Result<(ClientHandshake, Vec<u8>), OriginError> {
        let rng = &mut self.rng;
        match handshake {
            Handshake::Fast => Ok(ClientHandshake::fast(rng)),
            Handshake::Ntor => Ok(ClientHandshake::ntor(&hop.target.rsa.0, &hop.ntor_key, rng)),
            Handshake::NtorV3 { congestion_control } => {
                let id = hop.target.ed25519.ok_or(OriginError::Handshake)?;
                ClientHandshake::ntor_v3(&id.0, &hop.ntor_key, congestion_control, rng)
                    .map_err(|_| OriginError::BadHop)
            }
        }
    }

    fn check_idle(&self) -> Result<(), OriginError> {
        match () {
            () if self.closed => Err(OriginError::Closed),
            () if self.joining.is_some() || self.truncating.is_some() => Err(OriginError::State),
            () => Ok(()),
        }
    }

    /// Asks hop number `hops` (the first is 1) to end the circuit with itself. The streams of a
    /// later hop end at once; those of that hop go on, if it is the last already.
    /// [`OriginEvent::Truncated`] says when that is done.
    pub fn truncate(&mut self, hops: usize) -> Result<(), OriginError> {
        if self.closed {
            return Err(OriginError::Closed);
        }
        if hops == 0 || hops > self.hops() || self.truncating.is_some() || self.forwarding.is_some() {
            return Err(OriginError::State);
        }
        if hops < self.hops() {
            self.end = None;
        }
        self.joining = None;
        self.truncating = Some(hops - 1);
        self.send_as(Command::RELAY, hops - 1, RelayCommand::TRUNCATE, None, &[DestroyReason::NONE.0]);
        Ok(())
    }

    /// Ends the circuit: DESTROY is the one cell left to send. "Origins MUST NOT give a reason."
    pub fn close(&mut self) {
        if self.closed {
            return;
        }
        self.close_silently();
        let body = padded(&[DestroyReason::NONE.0]);
        self.out.push_back(OriginCell { command: Command::DESTROY, body });
    }

    /// The channel is gone, and so is the circuit.
    pub(crate) fn close_silently(&mut self) {
        self.closed = true;
        self.end = None;
        self.joining = None;
        self.forwarding = None;
        // A circuit that is over owes nothing.
        self.credit = None;
        self.out.clear();
    }

    /// A cell that the channel brought for this circuit.
    pub fn handle_cell(&mut self, now: Instant, command: Command, body: &Body) {
        if self.closed {
            return;
        }
        let handled = match command {
            Command::CREATED2 | Command::CREATED_FAST => self.on_created(command, body),
            Command::RELAY => self.count_arrival(now).and_then(|()| self.on_relay(now, body)),
            Command::DATAGRAM => self.count_arrival(now).and_then(|()| self.on_datagram(now, body)),
            Command::DESTROY => {
                self.close_silently();
                let reason = DestroyReason::parse(body);
                self.events.push_back(OriginEvent::Closed(Closed::Destroyed(reason)));
                Ok(())
            }
            // Towards a client RELAY_EARLY only ever marked circuits for an observer.
            Command::RELAY_EARLY => Err("RELAY_EARLY towards the client"),
            _ => Ok(()),
        };
        if let Err(fault) = handled {
            self.end_for(fault);
        }
    }

    /// A relay cell came. It ends here: what streams hold of it their windows bound.
    fn count_arrival(&mut self, now: Instant) -> Result<(), Fault> {
        let Some(credit) = &mut self.credit else { return Ok(()) };
        credit.on_received().map_err(CreditViolation::name)?;
        credit.on_passed_on(now, 1, Duration::ZERO);
        Ok(())
    }

    fn end_for(&mut self, fault: Fault) {
        self.close();
        self.events.push_back(OriginEvent::Closed(Closed::Misbehaved(fault)));
    }

    /// The next cell for the channel, if the guard takes it now.
    pub fn poll_cell(&mut self) -> Option<OriginCell> {
        if !self.has_cell() {
            return None;
        }
        let cell = self.out.pop_front()?;
        if let Some(credit) = self.credit.as_mut().filter(|_| cell.command.is_relay()) {
            // When is no matter: we never ask, because TLS loses nothing.
            credit.on_sent(Instant::ZERO);
        }
        Some(cell)
    }

    /// Whether there is a cell that the guard takes now.
    pub(crate) fn has_cell(&self) -> bool {
        let has_room = self.credit.as_ref().is_none_or(Ledger::has_room);
        self.out.front().is_some_and(|cell| has_room || !cell.command.is_relay())
    }

    /// The guard and we count relay cells from the first on.
    pub(crate) fn count_cells(&mut self, ours: N23, theirs: N23) {
        self.credit = Some(Ledger::new(ours, theirs));
    }

    /// The guard spoke of this circuit's credit.
    pub(crate) fn handle_credit(&mut self, message: CreditMessage) {
        let Some(credit) = self.credit.as_mut().filter(|_| !self.closed) else { return };
        if let Err(violation) = credit.on_message(message) {
            self.end_for(violation.name());
        }
    }

    /// Whether the guard is to be told something of this circuit's credit.
    pub(crate) fn has_credit_word(&self) -> bool {
        self.credit.as_ref().is_some_and(Ledger::has_word)
    }

    /// What that is.
    pub(crate) fn next_credit_word(&mut self) -> Option<CreditMessage> {
        self.credit.as_mut()?.next_word()
    }

    /// What happened, oldest first.
    pub fn poll_event(&mut self) -> Option<OriginEvent> {
        self.events.pop_front()
    }

    fn on_created(&mut self, command: Command, body: &Body) -> Result<(), Fault> {
        let expected = match &self.joining {
            Some(client) if self.hops() == 0 => match client.handshake_type() {
                HandshakeType::Fast => Command::CREATED_FAST,
                HandshakeType::Ntor | HandshakeType::NtorV3 => Command::CREATED2,
            },
            _ => return Err("CREATED2 out of place"),
        };
        if command != expected {
            return Err("the wrong answer to CREATE2");
        }
        let reply = match command {
            Command::CREATED_FAST => &body[..2 * FAST_KEY_LEN],
            _ => Created2::parse(body).map_err(|_| "malformed CREATED2")?.hdata,
        };
        self.join(reply)
    }

    /// Takes the answer to a handshake; the hop is part of the circuit from now on.
    fn join(&mut self, reply: &[u8]) -> Result<(), Fault> {
        debug_assert!(reply.len() <= CREATED2_HDATA_LEN_MAX, "no cell holds more");
        let client = self.joining.take().ok_or("an answer to no handshake")?;
        let established = client.finish(reply).map_err(|_| "a handshake that does not fit")?;
        if let Some(offer) = established.congestion {
            let ours =
                VegasParams::from_consensus(heddle_proto::flow_control::Path::Exit, &|name| self.param(name));
            if !sendme_inc_acceptable(ours.sendme_cells as u8, offer.sendme_inc) {
                return Err("an unacceptable number of cells per SENDME");
            }
        }
        self.sendme_incs.push(established.congestion.map(|offer| offer.sendme_inc));
        self.layers.add_hop(&established.keys);
        self.events.push_back(OriginEvent::Joined { hops: self.hops() });
        Ok(())
    }

    fn on_relay(&mut self, now: Instant, body: &Body) -> Result<(), Fault> {
        let mut body = *body;
        let (hop, digest) = self.layers.open(&mut body).ok_or("a cell that no hop made")?;
        let (header, data) = relay::parse(&body).map_err(|_| "a relay cell that is too long")?;
        match (header.command, header.stream_id) {
            (RelayCommand::TRUNCATED, None) => self.on_truncated(hop, DestroyReason::parse(data)),
            // What was sent before the hops heard of the circuit's new end.
            _ if self.truncating.is_some_and(|last| hop > last || self.end.is_none()) => Ok(()),
            (RelayCommand::EXTENDED2, None) => {
                if hop + 1 != self.hops() {
                    return Err("EXTENDED2 from the wrong hop");
                }
                let extended = Extended2::parse(data).map_err(|_| "malformed EXTENDED2")?;
                self.join(extended.hdata())
            }
            (RelayCommand::FORWARDED, None) => self.on_forwarded(now, hop, data),
            (RelayCommand::MEASURED, None) => self.on_measured(hop, data),
            (RelayCommand::DROP, _) => Ok(()),
            _ if hop + 1 != self.hops() => Err("a relay cell from the wrong hop"),
            _ => self.on_end_cell(now, header, data, digest),
        }
    }

    fn on_truncated(&mut self, hop: usize, reason: DestroyReason) -> Result<(), Fault> {
        let hops = hop + 1;
        if self.truncating == Some(hop) {
            self.truncating = None;
            self.layers.truncate(hops);
            self.sendme_incs.truncate(hops);
            self.questions.truncate(hops);
            self.events.push_back(OriginEvent::Truncated { hops, reason });
        } else {
            // Stock clients give the whole circuit up as well.
            self.close();
            self.events.push_back(OriginEvent::Closed(Closed::Truncated { hops, reason }));
        }
        Ok(())
    }

    /// A cell of the last hop about streams or flow control.
    fn on_end_cell(
        &mut self,
        now: Instant,
        header: RelayHeader,
        data: &[u8],
        digest: CellDigest,
    ) -> Result<(), Fault> {
        match (header.command, header.stream_id) {
            (RelayCommand::SENDME, None) => self.on_circuit_sendme(now, data),
            (RelayCommand::DATA, id) => self.on_data(now, id, data, digest),
            (command, Some(id)) => self.on_stream_cell(now, command, id, data),
            _ => Ok(()),
        }
    }

    /// Cells per SENDME, if the last hop agreed to congestion control.
    fn sendme_inc(&self) -> Option<u8> {
        self.sendme_incs.last().copied().flatten()
    }

    fn param(&self, name: &str) -> Option<i32> {
        self.params.0.get(name).copied()
    }

    /// Sends a relay cell to the last hop; returns the digest with which it may be acknowledged.
    fn send_to_end(&mut self, command: RelayCommand, stream: Option<StreamId>, data: &[u8]) -> CellDigest {
        let last = self.hops() - 1;
        self.send_as(Command::RELAY, last, command, stream, data)
    }

    fn send_as(
        &mut self,
        cell_command: Command,
        hop: usize,
        command: RelayCommand,
        stream: Option<StreamId>,
        data: &[u8],
    ) -> CellDigest {
        let mut body = [0; BODY_LEN];
        relay::write(&mut body, command, stream, data, &mut self.rng);
        if hop + 1 == self.hops() && self.send_message(&body) {
            return DIGEST;
        }
        let digest = self.layers.seal(hop, &mut body);
        self.queue(cell_command, body);
        digest
    }

    fn queue(&mut self, command: Command, body: Body) {
        if self.closed {
            return;
        }
        if self.out.len() >= OUT_CELLS_MAX {
            self.close();
            self.events.push_back(OriginEvent::Closed(Closed::Misbehaved("too many answers are owed")));
            return;
        }
        self.out.push_back(OriginCell { command, body });
    }
}

impl fmt::Debug for OriginCircuit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let closed = if self.closed { ", closed" } else { "" };
        write!(f, "OriginCircuit({} hops, {} cells wait{closed})", self.hops(), self.out.len())
    }
}

/// What a hop did wrong; it costs the circuit its life.
type Fault = &'static str;

fn padded(bytes: &[u8]) -> Body {
    let mut body = [0; BODY_LEN];
    body[..bytes.len()].copy_from_slice(bytes);
    body
}

/// The first address of each family, which is what EXTEND2 has room for.
fn extend_target(target: &Target) -> Option<ExtendTarget> {
    let mut found = ExtendTarget {
        ipv4: None,
        ipv6: None,
        rsa_id: target.rsa.0,
        ed25519_id: target.ed25519.map(|id| id.0),
    };
    for addr in &target.addrs {
        match addr {
            SocketAddr::V4(addr) => found.ipv4 = found.ipv4.or(Some(*addr)),
            SocketAddr::V6(addr) => found.ipv6 = found.ipv6.or(Some(*addr)),
        }
    }
    (found.ipv4.is_some() || found.ipv6.is_some()).then_some(found)
}
