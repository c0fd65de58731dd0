//! DATA and SENDME at the exit, and whose turn it is.
//!
//! - A stream's connection is read only while the circuit's window, the stream's own limit, the
//!   operator's rates and the queue towards the client have room: what is read has a place to go.
//! - DATA waits in its slot until the connection takes it. The stream's SENDME goes out when it did,
//!   or XOFF when it does not: that is what holds the client back.

use super::end::{
    BACKWARD_QUEUE_HIGH_CELLS, BACKWARD_QUEUE_LOW_CELLS, End, Hold, READ_CELLS_MAX, StreamState,
};
use crate::admission::StreamPlace;
use crate::core::Core;
use crate::keys::CircuitKey;
use crate::language::Output;
use heddle_proto::bucket::{Direction, Traffic};
use heddle_proto::cell::Command;
use heddle_proto::cell::flow::Sendme;
use heddle_proto::cell::relay::{self, DATA_LEN, HEADER_LEN, RelayCommand, RelayHeader, StreamId};
use heddle_proto::crypto::tor1::CellDigest;
use heddle_proto::flow::{SendmeContext, Signal, Violation};
use heddle_proto::pool::{CellPool, CellQueue, SlotId};
use heddle_seam::node::SocketId;

impl Core {
    /// DATA from the client.
    pub fn on_data(&mut self, key: CircuitKey, header: RelayHeader, slot: SlotId, digest: CellDigest) {
        let now = self.now;
        let Some(end) = self.end_of(key) else { return self.pool.free(slot) };
        // The circuit's SENDME counts cells, whatever becomes of their streams.
        if end.flow.on_received() {
            let mut data = Vec::with_capacity(23);
            Sendme::Authenticated(digest).encode(&mut data);
            self.send_relay(key, RelayCommand::SENDME, None, &data);
        }
        let end = self.table.get_mut(key).and_then(|circuit| circuit.end.as_mut());
        let stream = end.and_then(|end| end.streams.get_mut(&header.stream_id?));
        let (Some(stream), Some(id)) = (stream, header.stream_id) else {
            // The stream was over before the client knew.
            return self.pool.free(slot);
        };
        let mut signal = None;
        match &mut stream.hold {
            Hold::Windows(window) => {
                if window.on_received().is_err() {
                    self.pool.free(slot);
                    return self.punish(key);
                }
            }
            Hold::Signals(signals) => {
                signals.queued_bytes += u64::from(header.length);
                signal = signals.drain.on_queued(now, signals.queued_bytes);
            }
        }
        match header.length {
            0 => self.pool.free(slot),
            _ => self.pool.push(&mut stream.queue, slot, now),
        }
        if let Some(socket) = stream.socket() {
            self.streams.to_flush.push_back(socket);
        }
        self.send_signal(key, id, signal);
    }

    fn send_signal(&mut self, key: CircuitKey, id: StreamId, signal: Option<Signal>) {
        let Some(signal) = signal else { return };
        let mut data = Vec::with_capacity(5);
        let command = signal.encode(&mut data);
        self.send_relay(key, command, Some(id), &data);
    }

    /// A SENDME for the circuit.
    pub fn on_circuit_sendme(&mut self, key: CircuitKey, data: &[u8]) {
        let now = self.now;
        let min_version = self.params.get("sendme_accept_min_version", 1, 0, 255);
        let Some(circuit) = self.table.get_mut(key) else { return };
        let queued_cells = circuit.prev().queued_cells();
        let Some(end) = circuit.end.as_mut() else { return self.punish(key) };
        let checked = match Sendme::parse(data) {
            Ok(Sendme::Authenticated(digest)) => end.digests.check(&digest),
            Ok(Sendme::Unauthenticated) if min_version == 0 => end.digests.check_version_0(),
            _ => Err(Violation::WrongDigest),
        };
        // Our streams are held back at half as many cells as stock's, fewer than Vegas means to have waiting. Said all
        // the time, that would shrink the window until the queue runs dry now and then; in slow start it says that more
        // would only wait.
        let channel_blocked = end.held_back && end.flow.snapshot().slow_start;
        let context = SendmeContext { channel_blocked, queued_cells };
        match checked.and_then(|()| end.flow.on_sendme(now, context)) {
            Ok(()) => self.read_more(key),
            Err(_) => self.punish(key),
        }
    }

    /// A SENDME for a stream, which only streams with windows have.
    pub fn on_stream_sendme(&mut self, key: CircuitKey, id: StreamId) {
        let Some(stream) = self.stream_mut(key, id) else { return };
        let accepted = match &mut stream.hold {
            Hold::Windows(window) => window.on_sendme(),
            Hold::Signals(_) => Err(Violation::UnexpectedSendme),
        };
        match accepted {
            Ok(()) => self.update_interest(key, id),
            Err(_) => self.punish(key),
        }
    }

    /// XON or XOFF for a stream, which only streams without windows have.
    pub fn on_stream_signal(&mut self, key: CircuitKey, id: StreamId, command: RelayCommand, data: &[u8]) {
        let now = self.now;
        let signal = Signal::parse(command, data);
        let Some(stream) = self.stream_mut(key, id) else { return };
        // Stock relays ignore a signal that comes twice, cannot be read, or is for a stream with windows.
        let Hold::Signals(signals) = &mut stream.hold else { return };
        if let Ok(signal) = signal
            && signals.limit.on_signal(now, signal).is_ok()
        {
            self.update_interest(key, id);
        }
    }

    /// A circuit may have room: it is the next streams' turn.
    pub fn read_more(&mut self, key: CircuitKey) {
        let Some(end) = self.table.get_mut(key).and_then(|circuit| circuit.end.as_mut()) else { return };
        let streams = end.room().div_ceil(READ_CELLS_MAX);
        let turns: Vec<_> = (0..streams).map_while(|_| end.next_unread()).collect();
        if streams > 0 && end.unread.list() {
            self.streams.unread.push_back(key);
        }
        turns.into_iter().for_each(|id| self.update_interest(key, id));
    }

    /// The driver has read what it could: circuits that still have room let more streams be read.
    pub fn go_on_reading(&mut self) {
        for key in core::mem::take(&mut self.streams.unread) {
            if let Some(end) = self.table.get_mut(key).and_then(|circuit| circuit.end.as_mut()) {
                end.unread.unlist();
                self.read_more(key);
            }
        }
    }

    /// How many bytes may be read from a stream's connection now.
    pub fn stream_read_len(&mut self, socket: SocketId) -> usize {
        let (len, limited) = self.stream_room(socket);
        if !limited || len == 0 {
            return len;
        }
        let share = self.rates.share(self.now, Direction::Read, Traffic::Own);
        if share == 0 {
            self.rates.hold_socket(socket, Direction::Read);
        }
        len.min(share)
    }

    /// What may be read from a stream's connection in whose bytes interest was shown before. Other streams of the
    /// circuit may have used up its window since, and then it is nothing. If it is only the operator's rate, it is a
    /// byte.
    pub fn stream_recv_len(&mut self, socket: SocketId) -> usize {
        let Some(&(key, id)) = self.streams.by_socket.get(&socket) else { return 1 };
        if self.stream_room(socket).0 == 0 {
            // The driver is told when it asks next.
            self.update_interest(key, id);
            return 0;
        }
        self.stream_read_len(socket).max(1)
    }

    /// What flow control lets be read from a stream's connection, and whether the operator's rates hold for it.
    fn stream_room(&mut self, socket: SocketId) -> (usize, bool) {
        let now = self.now;
        let Some(&(key, id)) = self.streams.by_socket.get(&socket) else { return (0, false) };
        let Some(end) = self.table.get_mut(key).and_then(|circuit| circuit.end.as_mut()) else {
            return (0, false);
        };
        (end.read_len(id, now), end.streams.get(&id).is_some_and(|stream| stream.limited))
    }

    /// Bytes came from a stream's connection: they are packaged and queued towards the client.
    pub fn on_stream_read(&mut self, socket: SocketId, bytes: &[u8]) {
        let Some(&(key, id)) = self.streams.by_socket.get(&socket) else { return };
        if self.stream_mut(key, id).is_some_and(|stream| stream.limited) {
            self.rates.take(Direction::Read, Traffic::Own, bytes.len());
        }
        let mut left = bytes;
        while !left.is_empty() {
            let Some(packaged) = self.package(key, id, left) else { return };
            left = &left[packaged..];
        }
        let full = self
            .table
            .get(key)
            .is_some_and(|circuit| circuit.prev().queued_cells() >= BACKWARD_QUEUE_HIGH_CELLS);
        let Some(end) = self.table.get_mut(key).and_then(|circuit| circuit.end.as_mut()) else { return };
        end.held_back |= full;
        self.update_interest(key, id);
    }

    /// Makes one DATA cell of the first bytes of `data`, and says how many they were. `None` when its circuit or stream
    /// did not survive it.
    fn package(&mut self, key: CircuitKey, id: StreamId, data: &[u8]) -> Option<usize> {
        let now = self.now;
        let slot = self.take_slot(Command::RELAY)?;
        let end = self.table.get_mut(key).and_then(|circuit| circuit.end.as_deref_mut());
        let parts = end.and_then(|End { streams, flow, short_cells, .. }| {
            Some((streams.get_mut(&id)?, flow, short_cells))
        });
        let Some((stream, flow, short_cells)) = parts else {
            self.pool.free(slot);
            return None;
        };
        let data = &data[..data.len().min(short_cells.data_len_max())];
        short_cells.on_packaged(data.len(), &mut self.rng);
        relay::write(self.pool.body_mut(&slot), RelayCommand::DATA, Some(id), data, &mut self.rng);
        let acknowledged = flow.on_sent(now);
        match &mut stream.hold {
            Hold::Windows(window) => window.on_sent(),
            Hold::Signals(signals) => signals.limit.on_read(data.len() as u64),
        }
        let digest = self.seal_and_queue(key, slot)?;
        let end = self.table.get_mut(key)?.end.as_mut()?;
        if acknowledged {
            end.digests.expect(digest);
        }
        Some(data.len())
    }

    /// The queue towards the client is shorter: its streams may be read again.
    pub fn on_backward_queue(&mut self, key: CircuitKey, left: u32) {
        if left > BACKWARD_QUEUE_LOW_CELLS {
            return;
        }
        let Some(end) = self.table.get_mut(key).and_then(|circuit| circuit.end.as_mut()) else { return };
        if core::mem::take(&mut end.held_back) {
            self.read_more(key);
        }
    }

    /// Tells the driver what a stream wants of its connection, if that changed. Writing is asked for
    /// whenever there is no credit, so that data that comes later leaves at once.
    pub fn update_interest(&mut self, key: CircuitKey, id: StreamId) {
        let Some(stream) = self.stream_mut(key, id) else { return };
        let StreamState::Open(socket) = stream.state else { return };
        let wanted = (
            self.stream_read_len(socket) > 0,
            self.stream_mut(key, id).is_some_and(|stream| stream.writable == 0),
        );
        self.wake_for_rate(key, id, socket, wanted.0);
        let Some(end) = self.table.get_mut(key).and_then(|circuit| circuit.end.as_mut()) else { return };
        let is_full = end.room() == 0;
        let Some(stream) = end.streams.get_mut(&id) else { return };
        if is_full {
            end.unread.join(id, &mut stream.turn);
        }
        if wanted != stream.interest {
            stream.interest = wanted;
            self.outputs.push_back(Output::Interest { socket, read: wanted.0, write: wanted.1 });
        }
    }

    /// A stream that waits for nothing but the rate of its client's last XON is looked at again when
    /// that allows a cell.
    fn wake_for_rate(&mut self, key: CircuitKey, id: StreamId, socket: SocketId, may_read: bool) {
        let now = self.now;
        let Some(stream) = self.stream_mut(key, id) else { return };
        let wake = match &stream.hold {
            Hold::Signals(signals) if !may_read => signals.limit.next_read(now, DATA_LEN as u64),
            _ => None,
        };
        let wake = wake.filter(|at| *at > now);
        let before = core::mem::replace(&mut stream.wake, wake);
        if before != wake {
            before.map(|at| self.streams.wakes.remove(&(at, socket)));
            wake.map(|at| self.streams.wakes.insert((at, socket)));
        }
    }

    /// Streams whose rate allows them to be read again.
    pub fn wake_streams(&mut self) {
        while let Some(&(at, socket)) = self.streams.wakes.first().filter(|(at, _)| *at <= self.now) {
            self.streams.wakes.remove(&(at, socket));
            if let Some(&(key, id)) = self.streams.by_socket.get(&socket) {
                self.update_interest(key, id);
            }
        }
    }

    /// The operator's rates allow more: a stream that they held back looks again.
    pub fn list_stream(&mut self, socket: SocketId) {
        if let Some(&(key, id)) = self.streams.by_socket.get(&socket) {
            self.update_interest(key, id);
        }
        self.streams.to_flush.push_back(socket);
    }

    /// Once a second: who is over waits for the operator's rates no more.
    pub fn forget_who_waited(&mut self) {
        let (links, streams) = (&self.links, &self.streams);
        let has_socket =
            |id: &SocketId| streams.by_socket.contains_key(id) || streams.leftovers.contains_key(id);
        self.rates.sweep(|link| links.contains_key(*link), has_socket);
    }

    /// A connection takes more.
    pub fn on_stream_writable(&mut self, socket: SocketId, bytes: usize) {
        if let Some(leftover) = self.streams.leftovers.get_mut(&socket) {
            leftover.writable = bytes;
        } else if let Some(&(key, id)) = self.streams.by_socket.get(&socket) {
            let Some(stream) = self.stream_mut(key, id) else { return };
            stream.writable = bytes;
            self.update_interest(key, id);
        }
        self.streams.to_flush.push_back(socket);
    }

    /// Appends what a connection takes now to `out`; afterwards it may have ended.
    pub fn flush_stream(&mut self, socket: SocketId, out: &mut Vec<u8>) {
        if let Some(leftover) = self.streams.leftovers.get_mut(&socket) {
            let mut allowed = leftover.writable;
            if leftover.limited {
                allowed = allowed.min(self.rates.share(self.now, Direction::Write, Traffic::Own));
            }
            drain(&mut self.pool, &mut leftover.queue, &mut allowed, out);
            leftover.writable -= out.len();
            if leftover.limited {
                self.rates.take(Direction::Write, Traffic::Own, out.len());
            }
            if !leftover.queue.is_empty() {
                if leftover.writable > 0 {
                    self.flush_again(socket, out.is_empty());
                }
            } else {
                self.streams.leftovers.remove(&socket);
                self.admission.stream_ends(StreamPlace::Socket(socket));
                self.outputs.push_back(Output::Close { socket });
            }
            return;
        }
        let now = self.now;
        let Some(&(key, id)) = self.streams.by_socket.get(&socket) else { return };
        let stream = self.table.get_mut(key).and_then(|circuit| circuit.end.as_mut()?.streams.get_mut(&id));
        let Some(stream) = stream.filter(|stream| matches!(stream.state, StreamState::Open(_))) else {
            return;
        };
        if stream.queue.is_empty() {
            return;
        }
        let mut allowed = stream.writable;
        if stream.limited {
            allowed = allowed.min(self.rates.share(now, Direction::Write, Traffic::Own));
        }
        drain(&mut self.pool, &mut stream.queue, &mut allowed, out);
        stream.writable -= out.len();
        if stream.limited {
            self.rates.take(Direction::Write, Traffic::Own, out.len());
        }
        if stream.writable > 0 && !stream.queue.is_empty() {
            self.flush_again(socket, out.is_empty());
        }
        self.on_drained(key, id, out.len() as u64);
        self.update_interest(key, id);
    }

    /// A connection has more to write, and takes it: it goes on after the others if it took its share, and otherwise
    /// when the operator's rates allow more.
    fn flush_again(&mut self, socket: SocketId, was_held_back: bool) {
        if was_held_back {
            self.rates.hold_socket(socket, Direction::Write);
        } else {
            self.streams.to_flush.push_back(socket);
        }
    }

    /// A connection took `bytes`: the client may be told to send more.
    fn on_drained(&mut self, key: CircuitKey, id: StreamId, bytes: u64) {
        let now = self.now;
        let Some(stream) = self.stream_mut(key, id) else { return };
        match &mut stream.hold {
            // No SENDME while data waits for the connection.
            Hold::Windows(window) => {
                let mut due = 0;
                while stream.queue.is_empty() && window.take_sendme() {
                    due += 1;
                }
                for _ in 0..due {
                    self.send_relay(key, RelayCommand::SENDME, Some(id), &[]);
                }
            }
            Hold::Signals(signals) => {
                signals.queued_bytes -= bytes;
                let signal = signals.drain.on_drained(now, bytes, signals.queued_bytes);
                self.send_signal(key, id, signal);
            }
        }
    }
}

/// Moves data from a stream's queue to `out`, as far as `allowed` bytes go.
fn drain(pool: &mut CellPool, queue: &mut CellQueue, allowed: &mut usize, out: &mut Vec<u8>) {
    while let Some((body, offset)) = pool.front(queue) {
        let end = HEADER_LEN + usize::from(u16::from_be_bytes([body[9], body[10]]));
        let offset = offset.max(HEADER_LEN);
        let data = &body[offset..end];
        let len = data.len().min(*allowed);
        out.extend_from_slice(&data[..len]);
        *allowed -= len;
        if offset + len < end {
            return pool.set_front_offset(queue, offset + len);
        }
        if let Some(slot) = pool.pop(queue) {
            pool.free(slot);
        }
    }
}
