//! Our end of a circuit: its flow control, and the streams that leave the network here.

use super::stream::{Stream, StreamState};
use super::unread::Unread;
use heddle_proto::cell::Body;
use heddle_proto::cell::flow_control::Sendme;
use heddle_proto::cell::relay::{self, RelayCommand, StreamId};
use heddle_proto::crypto::onionskin::CongestionOffer;
use heddle_proto::crypto::tor1::CellDigest;
use heddle_proto::flow_control::{
    self, Digests, FlowChoice, FlowControl, SendmeContext, ShortCells, Violation,
};
use heddle_proto::params::NetworkParams;
use heddle_seam::rng::Rng;
use heddle_seam::time::Instant;
use std::collections::BTreeMap;

/// While this many cells wait towards the client, no stream of the circuit is read (tor:
/// `cell_queue_highwatermark`).
const BACKWARD_QUEUE_HIGH_CELLS: u32 = 128;
/// Cells that one read of a connection makes at most, so that no stream holds up the others.
const READ_CELLS_MAX: u32 = 32;
/// At this many the streams are read again.
const BACKWARD_QUEUE_LOW_CELLS: u32 = 48;

pub(crate) struct End {
    flow: Box<dyn FlowControl + Send>,
    /// Digests of the cells that the client will acknowledge.
    digests: Digests,
    /// Which of these cells leave room for padding.
    short_cells: ShortCells,
    /// At most `Limits::streams_per_circuit`.
    streams: BTreeMap<StreamId, Stream>,
    /// Whether streams are not read because too many cells wait towards the client.
    held_back: bool,
    /// Streams that wait until the circuit has room.
    unread: Unread,
}

/// Streams.
impl End {
    /// `congestion` is what the handshake agreed on: the consensus may say otherwise by now.
    pub fn new(
        congestion: Option<CongestionOffer>,
        choice: FlowChoice,
        params: &NetworkParams,
        rng: &mut Rng,
    ) -> Self {
        let lookup = |name: &str| params.0.get(name).copied();
        let flow = flow_control::new(choice.algorithm(congestion.map(|offer| offer.sendme_inc), &lookup));
        End {
            digests: Digests::new(flow.pending_max()),
            flow,
            short_cells: ShortCells::new(rng),
            streams: BTreeMap::new(),
            held_back: false,
            unread: Unread::default(),
        }
    }

    pub fn streams(&self) -> impl Iterator<Item = &Stream> {
        self.streams.values()
    }

    pub fn streams_len(&self) -> usize {
        self.streams.len()
    }

    pub fn stream_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.streams.get_mut(&id)
    }

    /// A stream begins.
    pub fn insert_stream(&mut self, id: StreamId, state: StreamState, params: &NetworkParams) {
        self.streams.insert(id, Stream::new(state, self.flow.stream_control(), params));
    }

    /// A stream ends.
    pub fn remove_stream(&mut self, id: StreamId) -> Option<Stream> {
        let stream = self.streams.remove(&id)?;
        self.unread.forget(stream.turn);
        Some(stream)
    }

    /// All streams end, in the order of their ids.
    pub fn into_streams(self) -> impl Iterator<Item = Stream> {
        self.streams.into_values()
    }
}

/// Cells from the client.
impl End {
    /// DATA came, of whichever stream. Whether the circuit's SENDME is due.
    pub fn on_received(&mut self) -> bool {
        self.flow.on_received()
    }

    /// The circuit's SENDME came, while so many cells wait towards the client. `min_version` is the least that is
    /// accepted.
    pub fn on_sendme(
        &mut self,
        now: Instant,
        data: &[u8],
        min_version: i32,
        queued_cells: u32,
    ) -> Result<(), Violation> {
        match Sendme::parse(data) {
            Ok(Sendme::Authenticated(digest)) => self.digests.check(&digest),
            Ok(Sendme::Unauthenticated) if min_version == 0 => self.digests.check_version_0(),
            _ => Err(Violation::WrongDigest),
        }?;
        // Our streams are held back at half as many cells as stock's, fewer than Vegas means to have waiting. Said all
        // the time, that would shrink the window until the queue runs dry now and then; in slow start it says that more
        // would only wait.
        let channel_blocked = self.held_back && self.flow.snapshot().slow_start;
        self.flow.on_sendme(now, SendmeContext { channel_blocked, queued_cells })
    }
}

/// Cells towards the client.
impl End {
    /// Cells that may be queued towards the client now.
    fn room(&self) -> u32 {
        if self.held_back { 0 } else { self.flow.room() }
    }

    /// Bytes that may be read from a stream's connection now, as far as this circuit goes.
    pub fn read_len(&mut self, id: StreamId, now: Instant) -> usize {
        let cells = self.room().min(READ_CELLS_MAX);
        match self.streams.get_mut(&id).map(|stream| stream.read_max(now)) {
            Some((cells_max, bytes_max)) => self.short_cells.data_len_of(cells.min(cells_max)).min(bytes_max),
            None => 0,
        }
    }

    /// Makes one DATA cell of the first bytes of `data` in `body`. Returns how many they were, and whether the client
    /// will acknowledge the cell. `None` when the stream is over.
    pub fn package(
        &mut self,
        now: Instant,
        id: StreamId,
        data: &[u8],
        body: &mut Body,
        rng: &mut Rng,
    ) -> Option<(usize, bool)> {
        let stream = self.streams.get_mut(&id)?;
        let data = &data[..data.len().min(self.short_cells.data_len_max())];
        self.short_cells.on_packaged(data.len(), rng);
        relay::write(body, RelayCommand::DATA, Some(id), data, rng);
        let is_acknowledged = self.flow.on_sent(now);
        stream.on_packaged(data.len());
        Some((data.len(), is_acknowledged))
    }

    /// A cell with this digest left, which the client will acknowledge.
    pub fn expect(&mut self, digest: CellDigest) {
        self.digests.expect(digest);
    }

    /// So many cells wait towards the client since a stream was read: if these are too many, no stream is.
    pub fn hold_back(&mut self, queued_cells: u32) {
        self.held_back |= queued_cells >= BACKWARD_QUEUE_HIGH_CELLS;
    }

    /// So many cells are left towards the client. Whether streams that were held back are to be read again.
    pub fn let_go(&mut self, queued_cells: u32) -> bool {
        queued_cells <= BACKWARD_QUEUE_LOW_CELLS && core::mem::take(&mut self.held_back)
    }

    /// The streams whose turn it is, as many as fill the room if each has much; they wait no more. Also whether the
    /// circuit is to be listed among those with room for more, which it then is.
    pub fn next_to_read(&mut self) -> (Vec<StreamId>, bool) {
        let streams = self.room().div_ceil(READ_CELLS_MAX);
        let turns = (0..streams).map_while(|_| self.next_unread()).collect();
        (turns, streams > 0 && self.unread.list())
    }

    /// The stream that has waited longest for room, which waits no more.
    fn next_unread(&mut self) -> Option<StreamId> {
        let id = self.unread.pop()?;
        self.streams.get_mut(&id)?.turn = None;
        Some(id)
    }

    /// The circuit is listed no more among those with room.
    pub fn unlist(&mut self) {
        self.unread.unlist();
    }

    /// A stream wants this of its connection: read, write. It waits for room if the circuit has none. Whether the
    /// driver is to be told.
    pub fn set_interest(&mut self, id: StreamId, wanted: (bool, bool)) -> bool {
        let is_full = self.room() == 0;
        let Some(stream) = self.streams.get_mut(&id) else { return false };
        if is_full {
            self.unread.join(id, &mut stream.turn);
        }
        stream.set_interest(wanted)
    }
}
