//! Our end of a circuit: its flow control, and the streams that leave the network here.

use super::unread::Unread;
use core::net::SocketAddr;
use heddle_proto::cell::relay::StreamId;
use heddle_proto::crypto::onionskin::CongestionOffer;
use heddle_proto::flow::{
    self, Algorithm, Digests, DrainWatch, FlowControl, Path, ReadLimit, Role, ShortCells, StreamControl,
    StreamWindow, VegasParams, XonXoffParams,
};
use heddle_proto::params::NetworkParams;
use heddle_proto::pool::CellQueue;
use heddle_seam::node::{ResolveId, SocketId};
use heddle_seam::rng::Rng;
use heddle_seam::time::Instant;
use std::collections::BTreeMap;

/// While this many cells wait towards the client, no stream of the circuit is read (tor:
/// `cell_queue_highwatermark`).
pub(crate) const BACKWARD_QUEUE_HIGH_CELLS: u32 = 128;
/// Cells that one read of a connection makes at most, so that no stream holds up the others.
pub(crate) const READ_CELLS_MAX: u32 = 32;
/// At this many the streams are read again.
pub(crate) const BACKWARD_QUEUE_LOW_CELLS: u32 = 48;

pub(crate) struct End {
    pub flow: Box<dyn FlowControl + Send>,
    /// Digests of the cells that the client will acknowledge.
    pub digests: Digests,
    /// Which of these cells leave room for padding.
    pub short_cells: ShortCells,
    /// At most `Limits::streams_per_circuit`.
    pub streams: BTreeMap<StreamId, Stream>,
    /// Whether streams are not read because too many cells wait towards the client.
    pub held_back: bool,
    /// Streams that wait until the circuit has room.
    pub unread: Unread,
}

/// A stream at the exit.
pub(crate) struct Stream {
    pub state: StreamState,
    /// DATA cells that wait for the TCP connection.
    pub queue: CellQueue,
    /// Bytes that the TCP connection takes now.
    pub writable: usize,
    /// What holds its client and its connection back.
    pub hold: Hold,
    /// When a rate allows the connection to be read again, if the shard is to wake up for it.
    pub wake: Option<Instant>,
    /// Its turn among the streams that wait until the circuit has room, if it does.
    pub turn: Option<u64>,
    /// Whether the operator's rates hold for this connection.
    pub limited: bool,
    /// What the driver was last told: read, write.
    pub interest: (bool, bool),
}

/// 1. The name is looked up, unless the client gave an address.
/// 2. The connection is opened.
/// 3. CONNECTED is sent; data flows.
#[derive(Debug)]
pub(crate) enum StreamState {
    Resolving(ResolveId),
    Connecting { socket: SocketId, addr: SocketAddr, ttl_s: u32 },
    Open(SocketId),
}

impl End {
    /// The stream that has waited longest for room, which waits no more.
    pub fn next_unread(&mut self) -> Option<StreamId> {
        let id = self.unread.pop()?;
        self.streams.get_mut(&id)?.turn = None;
        Some(id)
    }

    /// `congestion` is what the handshake agreed on: the consensus may say otherwise by now.
    pub fn new(congestion: Option<CongestionOffer>, params: &NetworkParams, rng: &mut Rng) -> Self {
        let algorithm = match congestion {
            Some(offer) => {
                let lookup = |name: &str| params.0.get(name).copied();
                let vegas = VegasParams::from_consensus(Path::Exit, &lookup);
                Algorithm::Vegas(VegasParams { sendme_cells: offer.sendme_inc.into(), ..vegas })
            }
            None => Algorithm::Fixed(params.get("circwindow", 1000, 100, 1000) as u16),
        };
        let flow = flow::new(algorithm);
        End {
            digests: Digests::new(flow.pending_max()),
            flow,
            short_cells: ShortCells::new(rng),
            streams: BTreeMap::new(),
            held_back: false,
            unread: Unread::default(),
        }
    }

    /// Cells that may be queued towards the client now.
    pub fn room(&self) -> u32 {
        if self.held_back { 0 } else { self.flow.room() }
    }

    /// Bytes that may be read from a stream's connection now, as far as this circuit goes.
    pub fn read_len(&mut self, id: StreamId, now: Instant) -> usize {
        let cells = self.room().min(READ_CELLS_MAX);
        match self.streams.get_mut(&id).map(|stream| &mut stream.hold) {
            Some(Hold::Windows(window)) => self.short_cells.data_len_of(cells.min(window.room())),
            Some(Hold::Signals(signals)) => {
                let bytes = signals.limit.may_read(now);
                self.short_cells.data_len_of(cells).min(usize::try_from(bytes).unwrap_or(usize::MAX))
            }
            None => 0,
        }
    }

    /// What holds a new stream of this circuit back.
    pub fn new_hold(&self, params: &NetworkParams) -> Hold {
        match self.flow.stream_control() {
            StreamControl::Windows => Hold::Windows(StreamWindow::default()),
            StreamControl::XonXoff => {
                let params = XonXoffParams::from_consensus(&|name| params.0.get(name).copied());
                let drain = DrainWatch::new(Role::Exit, params);
                let limit = ReadLimit::new(Role::Exit, params);
                Hold::Signals(Box::new(Signals { drain, limit, queued_bytes: 0 }))
            }
        }
    }
}

/// What holds a stream's client and its connection back.
pub(crate) enum Hold {
    /// Windows of 500 cells and stream SENDMEs.
    Windows(StreamWindow),
    /// XON and XOFF (proposal 324).
    Signals(Box<Signals>),
}

pub(crate) struct Signals {
    /// Watches the queue to the connection: tells the client to stop and go.
    pub drain: DrainWatch,
    /// Obeys the client: how fast the connection is read.
    pub limit: ReadLimit,
    /// Bytes in the queue to the connection.
    pub queued_bytes: u64,
}

impl Stream {
    pub fn new(state: StreamState, hold: Hold) -> Self {
        Stream {
            state,
            queue: CellQueue::default(),
            writable: 0,
            hold,
            wake: None,
            turn: None,
            limited: false,
            interest: (false, false),
        }
    }

    pub fn socket(&self) -> Option<SocketId> {
        match self.state {
            StreamState::Resolving(_) => None,
            StreamState::Connecting { socket, .. } | StreamState::Open(socket) => Some(socket),
        }
    }
}
