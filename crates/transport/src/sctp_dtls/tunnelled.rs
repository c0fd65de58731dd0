//! The SCTP association of one session, as the session carries it, and its share of memory.
//!
//! ```text
//!   pool = what waits to be sent or acknowledged (1/2) + what came (1/2)
//!   of each half a connection has RESERVE, which is its own whatever others have,
//!                                and a quarter of what all have left of it, but SHARE_MAX at most
//! ```

use super::flows::{Flow, Flows, SLACK_FLOWS};
use super::options::{ACK_DELAY, CongestionControl, SctpOptions};
use super::{PROTOCOL, TRANSPORT};
use crate::connections::circuits::{self, Circuits, FLOW_CELL_LEN, Lent};
use crate::connections::proof::Protocol;
use crate::connections::setup::{EndpointSetup, InvalidOptions};
use crate::connections::state::Part;
use crate::dtls::tunnelled::{CAPACITY_CELLS, Opening, Packet, Tunnelled, Window};
use crate::shared_window::SharedOfSession;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{Backlog, ConnId, ConnectionError, ConnectionStats, FlowState};
use heddle_proto::transport::Transport;
use heddle_sctp::reno::Reno;
use heddle_sctp::{Association, Closed, Content, Event, Random};
use heddle_seam::rng::Rng;
use heddle_seam::time::{Duration, Instant};
use heddle_utcp::congestion::SessionController;
use std::sync::Arc;

/// Streams that an association may have, of which half are each side's to open: there are as many as the flows that
/// either side permits, a quarter more that have not begun anew yet, and some.
const STREAMS_MAX: u32 = 65_534;
/// What a cell takes while it waits and while it is under way, about.
const CELL_BYTES: usize = FLOW_CELL_LEN + 200;
/// What a flow takes beside its circuit's place: streams and a lane, each in a tree.
const FLOW_BYTES: usize = 600;
/// Fragments that wait so long for others cost the connection where memory is short. A dead path is given up before.
const STUCK_FOR: Duration = Duration::from_secs(120);

const RESERVE: usize = 64 * 1024;
const SHARE_MAX: usize = 8 * 1024 * 1024;

/// A stream for each circuit in one association.
pub(crate) struct Sctp {
    association: Association,
    flows: Flows,
    /// When there must be an association.
    deadline: Option<Instant>,
    /// What its messages take, those to be sent and those that came, and what all may.
    buffered: [Part; 2],
    pool_bytes_max: usize,
}

impl Sctp {
    /// Works off what became of the association.
    fn on_events(&mut self, now: Instant) -> Result<(), ConnectionError> {
        while let Some(event) = self.association.poll_event() {
            let fault = match event {
                Event::Connected => {
                    self.deadline = None;
                    continue;
                }
                Event::Closed(Closed::Misbehaved(what)) => what,
                Event::Closed(Closed::NoAnswer) => return Err(ConnectionError::NoAnswer),
                Event::Closed(_) => return Err(ConnectionError::PeerClosed),
                _ => match self.flows.on_event(now, &mut self.association, event) {
                    Ok(()) => continue,
                    Err(fault) => fault.0,
                },
            };
            return Err(ConnectionError::PeerMisbehaved(fault.to_owned()));
        }
        Ok(())
    }

    /// What may take memory of one half of the pool.
    fn share(&self, half: usize) -> usize {
        let used = self.buffered[half].others() + self.association.buffered_bytes()[half];
        RESERVE + ((self.pool_bytes_max / 2).saturating_sub(used) / 4).min(SHARE_MAX)
    }
}

impl Tunnelled for Sctp {
    const TRANSPORT: &'static Transport = &TRANSPORT;
    const PROTOCOL: Protocol = PROTOCOL;

    type Options = SctpOptions;
    /// Bytes that messages take, those to be sent and those that came.
    type Memory = [Arc<AtomicUsize>; 2];
    type Lot = Random;
    type FlowId = u32;
    type Flow = Flow;

    fn options(setup: &EndpointSetup<'_>) -> SctpOptions {
        SctpOptions::from_setup(setup)
    }

    fn check(options: &SctpOptions) -> Result<(), InvalidOptions> {
        options.session.validate()
    }

    fn memory(_options: &SctpOptions) -> Self::Memory {
        Default::default()
    }

    fn buffered_bytes(memory: &Self::Memory) -> usize {
        memory.iter().map(|half| half.load(Relaxed)).sum()
    }

    fn draw(rng: &mut Rng) -> Random {
        let mut rng = rng.split();
        Random { tag: rng.next_u32(), tsn: rng.next_u32(), cookie: rng.array() }
    }

    fn open(now: Instant, opening: Opening<'_, Self>) -> Self {
        let Opening { options, memory, lot, ceiling, role, packet_bytes_max, ours_max, theirs_max } = opening;
        let flows_max = [ours_max, theirs_max].map(|flows| flows.min(STREAMS_MAX));
        let most = flows_max[0].max(flows_max[1]);
        let streams_max = (2 * (most + most / 4 + SLACK_FLOWS)).min(STREAMS_MAX) as u16;
        let mss_bytes = Association::mss_bytes(packet_bytes_max);
        let controller: Box<dyn SessionController> = match options.congestion {
            CongestionControl::Shared => Box::new(SharedOfSession::new(now, mss_bytes, ACK_DELAY, ceiling)),
            CongestionControl::Reno => Box::new(Reno::new(mss_bytes)),
        };
        let of_association = options.association(packet_bytes_max, streams_max);
        let timeouts = &options.session.timeouts;
        let mut sctp = Sctp {
            association: Association::with_controller(of_association, lot, controller),
            flows: Flows::new(role, flows_max, streams_max, timeouts.first_cell),
            deadline: Some(now + timeouts.dial),
            buffered: memory.each_ref().map(Part::of),
            pool_bytes_max: options.session.pool_bytes_max,
        };
        sctp.association.set_receive_bytes_max(sctp.share(1));
        if role == Role::Initiator {
            sctp.association.connect();
        }
        sctp
    }

    /// Once there is an association.
    fn is_ready(&self) -> bool {
        self.deadline.is_none()
    }

    fn circuits(&self) -> &Circuits<u32, Flow> {
        &self.flows.circuits
    }

    fn circuits_mut(&mut self) -> &mut Circuits<u32, Flow> {
        &mut self.flows.circuits
    }

    fn controller_mut(&mut self) -> Option<&mut dyn SessionController> {
        Some(self.association.controller_mut())
    }

    fn window(&self) -> Option<Window> {
        let [bytes, _, waiting_bytes] = self.association.window();
        Some(Window { bytes, waiting_bytes, waiting_cells: self.association.queued_messages() })
    }

    fn handle_packet(&mut self, now: Instant, packet: &[u8]) -> Result<(), ConnectionError> {
        self.association.set_receive_bytes_max(self.share(1));
        self.association.handle_packet(now, packet);
        self.on_events(now)
    }

    fn on_marked(&mut self) {
        self.association.on_marked();
    }

    fn set_packet_bytes_max(&mut self, bytes: u16) {
        self.association.set_packet_bytes_max(bytes);
    }

    fn on_path_back(&mut self, now: Instant) {
        self.association.on_path_back(now);
    }

    fn take_answered(&mut self) -> bool {
        self.association.take_answered()
    }

    fn smoothed_rtt_ns(&self) -> Option<u64> {
        self.association.round_trip().map(|rtt| u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX))
    }

    fn poll_packet(&mut self, now: Instant, _head_bytes: usize, out: &mut Vec<u8>) -> Option<Packet> {
        let content = self.association.poll_packet(now, out)?;
        // What only acknowledges asks for nothing.
        Some(if matches!(content, Content::Messages | Content::Control) {
            Packet::Asks
        } else {
            Packet::Tells
        })
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ConnectionError> {
        self.association.handle_timeout(now);
        self.flows.handle_timeout(now, &mut self.association);
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            return Err(ConnectionError::NoAnswer);
        }
        self.on_events(now)
    }

    fn take_expired(&mut self) -> bool {
        self.association.take_expired()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.association.poll_timeout(), self.deadline].into_iter().flatten().min()
    }

    fn poll_room(&mut self) -> Option<u32> {
        self.flows.poll_room()
    }

    fn send(&mut self, now: Instant, circ_id: CircId, command: Command, body: &Body) -> FlowState {
        self.flows.send(now, &mut self.association, circ_id, command, body)
    }

    fn next_cell(&mut self, now: Instant, lent: &mut Lent) -> Option<(CircId, Command)> {
        self.flows.next_cell(now, &mut self.association, lent)
    }

    fn cells_max(&self) -> usize {
        let [sent, _] = self.association.buffered_bytes();
        (self.share(0).saturating_sub(sent) / CELL_BYTES).min(CAPACITY_CELLS)
    }

    /// Gives the connection up if its peer keeps what nobody can take back: ends of circuits that it does not agree to
    /// and fragments of messages that it does not send.
    fn forget_ended(&mut self, now: Instant) -> Result<(), ConnectionError> {
        if self.flows.owes_ends(now) || self.association.is_stuck(now, STUCK_FOR) {
            return Err(ConnectionError::PeerMisbehaved("it keeps memory that is short".to_owned()));
        }
        Ok(())
    }

    fn heap_bytes(&self) -> usize {
        self.association.heap_bytes() + self.flows.heap_bytes()
    }

    fn count_buffered(&mut self) {
        let taken = self.association.buffered_bytes();
        self.buffered.iter_mut().zip(taken).for_each(|(part, taken)| part.set(taken));
    }

    fn add_stats(&self, stats: &mut ConnectionStats) {
        let [window_bytes, in_flight, _] = self.association.window();
        stats.window_bytes = window_bytes;
        stats.lost_packets = self.association.retransmissions();
        stats.queued_cells = self.association.queued_messages() as u64 + in_flight / FLOW_CELL_LEN as u64;
    }

    fn backlogs(&self, conn: ConnId, each: &mut dyn FnMut(Backlog)) {
        for circuit in self.flows.circuits.iter() {
            let ([sent, received], since) = self.association.stream_bytes(circuit.flow.stream);
            let written = (sent > 0).then(|| circuit.flow.written_since());
            let since = since.into_iter().chain(written).min().unwrap_or(circuit.flow.moved_at);
            let bytes = sent + received;
            let state_bytes = FLOW_BYTES + circuits::PLACE_BYTES + size_of::<Flow>();
            each(Backlog { conn, circ_id: circuit.circ_id, bytes, state_bytes, since });
        }
    }
}
