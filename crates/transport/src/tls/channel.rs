//! A TLS channel, from the first byte to the last.
//!
//! 1. TLS handshake.
//! 2. Link handshake ([`crate::link`]).
//! 3. Open: cells of circuits go through, what concerns the channel itself ends here.
//! 4. Over: the first error is repeated by every later call.

use super::TlsOptions;
use super::config::WallClock;
use super::stream::TlsStream;
use crate::PaddingOptions;
use crate::link::{Context, LinkConfig, LinkHandshake};
use crate::padding::Padding;
use core::net::SocketAddr;
use heddle_proto::cell::frame::{Frame, FrameError, Framer, write_fixed, write_variable};
use heddle_proto::cell::link::PaddingNegotiate;
use heddle_proto::cell::{BODY_LEN, Body, CircId, Command};
use heddle_proto::channel::{
    Channel, ChannelError, Done, Incoming, Opened, Role, Target, VPADDING_LEN_MAX, Work,
};
use heddle_seam::rng::Rng;
use heddle_seam::time::{Instant, UnixTime};
use std::sync::Arc;

/// Bytes that may come from a peer before the channel is open, TLS included.
const HANDSHAKE_BYTES_MAX: usize = 128 * 1024;
/// The longest variable-length cell that we take. The specification allows 65,535 bytes, but the longest that any relay
/// sends is CERTS with about 3 KB, and until the channel is open a begun cell has to be kept. Then only VPADDING of
/// [`VPADDING_LEN_MAX`] bytes at most is of use.
const VAR_BODY_LEN_MAX: usize = 16 * 1024;
/// The first link protocol with padding negotiation (padding-spec).
const PADDING_LINK_PROTOCOL: u16 = 5;

/// Which side of a channel we are.
pub(super) enum Side {
    Initiator { peer: SocketAddr, target: Target },
    Responder { peer: SocketAddr },
}

/// What a transport gives to each of its channels.
pub(super) struct Setup<'a> {
    pub(super) now: Instant,
    pub(super) wall: UnixTime,
    pub(super) link: Arc<LinkConfig>,
    pub(super) options: &'a TlsOptions,
    pub(super) clock: Arc<WallClock>,
    pub(super) rng: Rng,
}

/// A channel over TLS; see the module. [`super::TlsTransport`] makes them.
pub struct TlsChannel {
    stream: TlsStream,
    framer: Framer,
    phase: Phase,
    link: Arc<LinkConfig>,
    padding_options: PaddingOptions,
    role: Role,
    clock: Arc<WallClock>,
    wall: UnixTime,
    rng: Rng,
    received_bytes: usize,
    /// When the handshake is given up.
    deadline: Instant,
    /// Plaintext that the last call lent out or used up, to be dropped by the next.
    used_len: usize,
    /// A cell that straddled two records, lent from here.
    straddler: Box<Body>,
    /// The VPADDING cell that was lent last; at most [`VPADDING_LEN_MAX`] bytes.
    vpadding: Vec<u8>,
}

/// The state, in the order of the protocol.
enum Phase {
    Tls(Side),
    Link(LinkHandshake),
    Open { padding: Padding, peer_is_client: bool, link_protocol: u16 },
    Over(ChannelError),
}

/// A cell of a circuit, and where its body is.
struct Pulled {
    circ_id: CircId,
    command: Command,
    in_chunk: bool,
}

/// What [`TlsChannel::pull`] came upon.
enum Step {
    Opened(Opened),
    Cell(Pulled),
    Vpadding,
    Nothing,
}

impl TlsChannel {
    pub(super) fn new(side: Side, stream: TlsStream, setup: Setup<'_>) -> Self {
        let Setup { now, wall, link, options, clock, rng } = setup;
        let mut framer = Framer::new();
        framer.set_body_len_max(VAR_BODY_LEN_MAX);
        TlsChannel {
            stream,
            framer,
            role: match side {
                Side::Initiator { .. } => Role::Initiator,
                Side::Responder { .. } => Role::Responder,
            },
            phase: Phase::Tls(side),
            link,
            padding_options: options.padding.clone(),
            clock,
            wall,
            rng,
            received_bytes: 0,
            deadline: now + options.handshake_timeout,
            used_len: 0,
            straddler: Box::new([0; BODY_LEN]),
            vpadding: Vec::new(),
        }
    }

    /// Runs one step of a call; its error is the end of the channel.
    fn guard<T>(
        &mut self,
        step: impl FnOnce(&mut Self) -> Result<T, ChannelError>,
    ) -> Result<T, ChannelError> {
        if let Phase::Over(error) = &self.phase {
            return Err(error.clone());
        }
        step(self).inspect_err(|error| self.phase = Phase::Over(error.clone()))
    }

    fn receive(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, ChannelError> {
        self.drop_used();
        let taken = self.stream.receive(now, bytes)?;
        if !matches!(self.phase, Phase::Open { .. }) {
            self.received_bytes += taken;
            if self.received_bytes > HANDSHAKE_BYTES_MAX {
                return Err(ChannelError::PeerMisbehaved("too many bytes before the channel is open"));
            }
        }
        self.on_tls_progress();
        Ok(taken)
    }

    /// Goes from TLS to the link handshake when TLS is done.
    fn on_tls_progress(&mut self) {
        let Phase::Tls(side) = &self.phase else {
            return;
        };
        if self.stream.is_handshaking() {
            return;
        }
        let link = self.link.clone();
        self.phase = Phase::Link(match side {
            Side::Initiator { peer, target } => {
                LinkHandshake::initiate(link, target.clone(), *peer, self.stream.gather())
            }
            Side::Responder { peer } => LinkHandshake::respond(link, *peer),
        });
    }

    fn drop_used(&mut self) {
        self.stream.consume(core::mem::take(&mut self.used_len));
    }

    /// Goes through cells until one is for the caller.
    fn pull(&mut self, now: Instant) -> Result<Step, ChannelError> {
        loop {
            self.drop_used();
            let has_plaintext = self.stream.has_plaintext()?;
            self.on_tls_progress();
            if !has_plaintext {
                return Ok(Step::Nothing);
            }
            let chunk = self.stream.chunk();
            let (used, frame) = self.framer.next(chunk).map_err(frame_error)?;
            self.used_len = used;
            let Some(frame) = frame else {
                continue;
            };
            match &mut self.phase {
                Phase::Open { padding, peer_is_client, link_protocol } => {
                    if let (Some(circ_id), Some(body), true) =
                        (frame.circ_id, frame.fixed_body(), is_of_circuit(frame.command))
                    {
                        padding.on_circuit_cell(frame.command);
                        let in_chunk = frame.bytes.len() == used;
                        if !in_chunk {
                            self.straddler.copy_from_slice(body);
                        }
                        return Ok(Step::Cell(Pulled { circ_id, command: frame.command, in_chunk }));
                    }
                    let is_vpadding = frame.command == Command::VPADDING && frame.circ_id.is_none();
                    if is_vpadding {
                        self.vpadding.clear();
                        self.vpadding.extend_from_slice(frame.body);
                        return Ok(Step::Vpadding);
                    }
                    let we_are_client = self.link.identity.is_none();
                    on_channel_cell(frame, padding, *peer_is_client, we_are_client, *link_protocol)?;
                }
                _ => {
                    let (command, circ_id) = (frame.command, frame.circ_id);
                    let bytes = frame.bytes.to_vec();
                    let body = &bytes[bytes.len() - frame.body.len()..];
                    let frame = Frame { circ_id, command, body, bytes: &bytes };
                    if let Some(opened) = self.on_handshake_cell(now, frame)? {
                        return Ok(Step::Opened(opened));
                    }
                }
            }
        }
    }

    fn on_handshake_cell(&mut self, now: Instant, cell: Frame<'_>) -> Result<Option<Opened>, ChannelError> {
        let Phase::Link(handshake) = &mut self.phase else {
            return Err(ChannelError::PeerMisbehaved("a cell before the end of the TLS handshake"));
        };
        let mut out = Vec::new();
        let mut cx = Context { tls: &self.stream, wall: self.wall, rng: &mut self.rng, out: &mut out };
        let opened = handshake.handle_cell(cell, &mut cx)?;
        self.stream.gather().append(&mut out);
        let Some(opened) = opened else {
            return Ok(None);
        };
        let peer_is_client = opened.peer.is_none();
        let to_client = peer_is_client || self.link.identity.is_none();
        let is_padded =
            opened.link_protocol >= PADDING_LINK_PROTOCOL && (to_client || self.padding_options.relays);
        let padding = Padding::new(self.padding_options.clone(), is_padded, now, self.rng.split());
        self.phase = Phase::Open { padding, peer_is_client, link_protocol: opened.link_protocol };
        self.framer.set_used_len_max(VPADDING_LEN_MAX);
        self.stream.limit_messages();
        Ok(Some(opened))
    }

    fn on_timeout(&mut self, now: Instant) -> Result<(), ChannelError> {
        match &mut self.phase {
            Phase::Open { padding, .. } => {
                // What waits to be sent tells the same to an observer as padding would.
                if padding.handle_timeout(now) && self.stream.is_idle() && !self.stream.is_closing() {
                    self.give_back();
                    write_fixed(self.stream.gather(), 0, Command::PADDING, &[]);
                }
                Ok(())
            }
            _ if now >= self.deadline => Err(ChannelError::TimedOut),
            _ => self.stream.handle_timeout(now),
        }
    }
}

impl Channel for TlsChannel {
    fn buffered_bytes(&self) -> usize {
        match self.phase {
            Phase::Open { .. } => self.stream.buffered_bytes().saturating_sub(self.used_len),
            _ => 0,
        }
    }

    fn state_bytes(&self) -> usize {
        match self.phase {
            Phase::Open { .. } => {
                let buffers = self.framer.state_bytes() + self.vpadding.capacity() + BODY_LEN;
                size_of::<Self>() + buffers + self.stream.state_bytes()
            }
            _ => 0,
        }
    }

    fn give_back(&mut self) {
        self.vpadding = Vec::new();
        self.stream.give_back();
    }

    fn handle_read(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, ChannelError> {
        self.guard(|channel| channel.receive(now, bytes))
    }

    /// Stock relays leave without close_notify, so a bare FIN is an ordinary end. Whoever could
    /// forge it could as well forge a reset, and circuits die of either.
    fn handle_eof(&mut self, _now: Instant) -> Result<(), ChannelError> {
        self.guard(|_| Err(ChannelError::PeerClosed))
    }

    fn handle_writable(&mut self, now: Instant, bytes: usize) {
        self.stream.set_writable(now, bytes);
    }

    fn handle_window(&mut self, bytes: usize) {
        self.stream.set_window(bytes);
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ChannelError> {
        self.guard(|channel| channel.on_timeout(now))
    }

    fn poll_work(&mut self) -> Option<Work> {
        self.stream.poll_work()
    }

    fn handle_work(&mut self, _now: Instant, done: Done) -> Result<(), ChannelError> {
        self.guard(|channel| {
            channel.stream.handle_work(done)?;
            channel.on_tls_progress();
            Ok(())
        })
    }

    fn handle_wall_clock(&mut self, now: UnixTime) {
        self.wall = now;
        self.clock.set(now);
    }

    fn next_incoming(&mut self, now: Instant) -> Result<Option<Incoming<'_>>, ChannelError> {
        match self.guard(|channel| channel.pull(now))? {
            Step::Nothing => Ok(None),
            Step::Opened(opened) => Ok(Some(Incoming::Opened(opened))),
            Step::Vpadding => Ok(Some(Incoming::Vpadding { body: &self.vpadding })),
            Step::Cell(Pulled { circ_id, command, in_chunk }) => {
                let body = if in_chunk {
                    self.stream.chunk()[..self.used_len]
                        .last_chunk()
                        .expect("a whole fixed-length cell is used, and its body stands last")
                } else {
                    &*self.straddler
                };
                Ok(Some(Incoming::Cell { circ_id, command, body }))
            }
        }
    }

    fn capacity(&self) -> usize {
        if matches!(self.phase, Phase::Open { .. }) { self.stream.capacity_cells() } else { 0 }
    }

    fn send(&mut self, now: Instant, circ_id: CircId, command: Command, body: &Body) {
        if let Phase::Open { padding, .. } = &mut self.phase
            && !self.stream.is_closing()
        {
            padding.on_sent(now);
            padding.on_circuit_cell(command);
            write_fixed(self.stream.gather(), circ_id.get(), command, body);
            self.stream.seal_full();
        }
    }

    fn send_vpadding(&mut self, now: Instant, body: &[u8]) {
        let body = &body[..body.len().min(VPADDING_LEN_MAX)];
        if let Phase::Open { padding, .. } = &mut self.phase
            && !self.stream.is_closing()
        {
            padding.on_sent(now);
            write_variable(self.stream.gather(), 0, Command::VPADDING, body);
            self.stream.seal_full();
        }
    }

    fn export_secret(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> bool {
        matches!(self.phase, Phase::Open { .. }) && self.stream.export_secret(label, context, out)
    }

    fn propose_circ_id(&self, rng: &mut Rng) -> CircId {
        // Zero is no id; one is as good as any.
        self.role.circ_id(rng.next_u32()).or(CircId::new(1)).expect("one is not zero")
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        self.stream.transmit(now, out)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Tls(_) | Phase::Link(_) => {
                Some(self.stream.poll_timeout().map_or(self.deadline, |at| at.min(self.deadline)))
            }
            Phase::Open { padding, .. } => Some(padding.deadline()),
            Phase::Over(_) => None,
        }
    }

    fn close(&mut self) {
        self.stream.close();
    }
}

/// Whether cells of this command belong to a circuit, as far as link protocols 4 and 5 and we know.
fn is_of_circuit(command: Command) -> bool {
    matches!(
        command,
        Command::CREATE
            | Command::CREATED
            | Command::RELAY
            | Command::DESTROY
            | Command::CREATE_FAST
            | Command::CREATED_FAST
            | Command::RELAY_EARLY
            | Command::CREATE2
            | Command::CREATED2
            | Command::DATAGRAM
    )
}

/// A cell on an open channel that is not for a circuit. What has no meaning is ignored.
fn on_channel_cell(
    cell: Frame<'_>,
    padding: &mut Padding,
    peer_is_client: bool,
    we_are_client: bool,
    link_protocol: u16,
) -> Result<(), ChannelError> {
    match cell.command {
        Command::CERTS | Command::AUTH_CHALLENGE | Command::AUTHENTICATE => {
            Err(ChannelError::PeerMisbehaved("a cell of the handshake on an open channel"))
        }
        // "Clients and bridges MUST reject padding negotiation messages from relays, and close the
        // channel if they receive one."
        Command::PADDING_NEGOTIATE if we_are_client => {
            Err(ChannelError::PeerMisbehaved("a relay wants to negotiate a client's padding"))
        }
        Command::PADDING_NEGOTIATE if peer_is_client && link_protocol >= PADDING_LINK_PROTOCOL => {
            if let Ok(wanted) = PaddingNegotiate::parse(cell.body) {
                padding.on_negotiate(wanted);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn frame_error(error: FrameError) -> ChannelError {
    ChannelError::PeerMisbehaved(match error {
        FrameError::NotVersions(_) => "the first cell is not VERSIONS",
        FrameError::VersionsCircId(_) => "the first VERSIONS cell names a circuit",
        FrameError::TooLong { .. } => "a variable-length cell is too long",
    })
}
