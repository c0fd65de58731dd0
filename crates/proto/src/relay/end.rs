//! Our end of a circuit: its flow control, and the streams that leave the network here.

use super::message::NetworkParams;
use crate::cell::relay::StreamId;
use crate::flow::{self, Algorithm, Digests, FlowControl, Path, StreamWindow, VegasParams};
use crate::node::{ResolveId, SocketId};
use crate::pool::CellQueue;
use core::net::SocketAddr;
use std::collections::BTreeMap;

/// While this many cells wait towards the client, no stream of the circuit is read (tor:
/// `cell_queue_highwatermark`).
pub(super) const BACKWARD_QUEUE_HIGH_CELLS: u32 = 128;
/// At this many the streams are read again.
pub(super) const BACKWARD_QUEUE_LOW_CELLS: u32 = 48;

pub(super) struct End {
    pub flow: Box<dyn FlowControl + Send>,
    /// Digests of the cells that the client will acknowledge.
    pub digests: Digests,
    /// At most `Limits::streams_per_circuit`.
    pub streams: BTreeMap<StreamId, Stream>,
    /// Whether streams are not read because too many cells wait towards the client.
    pub held_back: bool,
}

/// A stream at the exit.
pub(super) struct Stream {
    pub state: StreamState,
    /// DATA cells that wait for the TCP connection.
    pub queue: CellQueue,
    /// Bytes that the TCP connection takes now.
    pub writable: usize,
    pub window: StreamWindow,
    /// What the driver was last told: read, write.
    pub interest: (bool, bool),
}

/// 1. The name is looked up, unless the client gave an address.
/// 2. The connection is opened.
/// 3. CONNECTED is sent; data flows.
#[derive(Debug)]
pub(super) enum StreamState {
    Resolving(ResolveId),
    Connecting {
        socket: SocketId,
        addr: SocketAddr,
        ttl_s: u32,
    },
    Open(SocketId),
}

impl End {
    pub fn new(congestion_control: bool, params: &NetworkParams) -> Self {
        let algorithm = match congestion_control {
            true => Algorithm::Vegas(VegasParams::from_consensus(Path::Exit, &|name| {
                params.0.get(name).copied()
            })),
            false => Algorithm::Fixed(params.get("circwindow", 1000, 100, 1000) as u16),
        };
        let flow = flow::new(algorithm);
        End {
            digests: Digests::new(flow.pending_max()),
            flow,
            streams: BTreeMap::new(),
            held_back: false,
        }
    }

    /// Cells that wait in the streams.
    pub fn queued_cells(&self) -> u32 {
        self.streams.values().map(|stream| stream.queue.len()).sum()
    }

    /// Cells that may be read from this stream's connection now.
    pub fn room(&self, stream: &Stream) -> u32 {
        match self.held_back {
            true => 0,
            false => self.flow.room().min(stream.window.room()),
        }
    }
}

impl Stream {
    pub fn new(state: StreamState) -> Self {
        Stream {
            state,
            queue: CellQueue::default(),
            writable: 0,
            window: StreamWindow::default(),
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
