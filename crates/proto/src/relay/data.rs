//! DATA and SENDME at the exit, and whose turn it is.
//!
//! - A stream's connection is read only while the circuit's window, the stream's window and the
//!   queue towards the client have room: what is read has a place to go.
//! - DATA waits in its slot until the connection takes it; the stream's SENDME goes out when it did,
//!   which is what holds the client back.

use super::circuit::CircuitKey;
use super::core::Core;
use super::end::{BACKWARD_QUEUE_HIGH_CELLS, BACKWARD_QUEUE_LOW_CELLS, Stream, StreamState};
use crate::cell::Command;
use crate::cell::flow::Sendme;
use crate::cell::relay::{self, DATA_LEN, HEADER_LEN, RelayCommand, RelayHeader, StreamId};
use crate::crypto::tor1::CellDigest;
use crate::flow::{SendmeContext, StreamControl, Violation};
use crate::node::{Output, SocketId};
use crate::pool::{CellPool, CellQueue, SlotId};

/// Cells that one read of a connection makes at most, so that no stream holds up the others.
const READ_CELLS_MAX: u32 = 32;

impl Core {
    /// DATA from the client.
    pub fn on_data(
        &mut self,
        key: CircuitKey,
        header: RelayHeader,
        slot: SlotId,
        digest: CellDigest,
    ) {
        let Some(end) = self.end_of(key) else {
            return self.pool.free(slot);
        };
        // The circuit's SENDME counts cells, whatever becomes of their streams.
        if end.flow.on_received() {
            let mut data = Vec::with_capacity(23);
            Sendme::Authenticated(digest).encode(&mut data);
            self.send_relay(key, RelayCommand::SENDME, None, &data);
        }
        let xon_xoff = self.uses_xon_xoff(key);
        let Some(stream) = header.stream_id.and_then(|id| self.stream_mut(key, id)) else {
            // The stream was over before the client knew.
            return self.pool.free(slot);
        };
        if !xon_xoff && stream.window.on_received().is_err() {
            self.pool.free(slot);
            return self.punish(key);
        }
        let socket = stream.socket();
        let mut queue = core::mem::take(&mut stream.queue);
        match header.length {
            0 => self.pool.free(slot),
            _ => self.pool.push(&mut queue, slot),
        }
        if let Some(stream) = header.stream_id.and_then(|id| self.stream_mut(key, id)) {
            stream.queue = queue;
        }
        if let Some(socket) = socket {
            self.streams.to_flush.push(socket);
        }
    }

    fn uses_xon_xoff(&self, key: CircuitKey) -> bool {
        let end = self
            .circuits
            .get(key)
            .and_then(|circuit| circuit.end.as_ref());
        end.is_some_and(|end| end.flow.stream_control() == StreamControl::XonXoff)
    }

    /// A SENDME for the circuit.
    pub fn on_circuit_sendme(&mut self, key: CircuitKey, data: &[u8]) {
        let now = self.now;
        let min_version = self.params.get("sendme_accept_min_version", 1, 0, 255);
        let Some(circuit) = self.circuits.get_mut(key) else {
            return;
        };
        let queued_cells = circuit.prev.queue.len();
        let Some(end) = circuit.end.as_mut() else {
            return self.punish(key);
        };
        let checked = match Sendme::parse(data) {
            Ok(Sendme::Authenticated(digest)) => end.digests.check(&digest),
            Ok(Sendme::Unauthenticated) if min_version == 0 => end.digests.check_version_0(),
            _ => Err(Violation::WrongDigest),
        };
        let context = SendmeContext {
            channel_blocked: queued_cells > 0,
            queued_cells,
        };
        match checked.and_then(|()| end.flow.on_sendme(now, context)) {
            Ok(()) => self.update_interests(key),
            Err(_) => self.punish(key),
        }
    }

    /// A SENDME for a stream.
    pub fn on_stream_sendme(&mut self, key: CircuitKey, id: StreamId) {
        if self.uses_xon_xoff(key) {
            return self.punish(key);
        }
        let Some(stream) = self.stream_mut(key, id) else {
            return;
        };
        match stream.window.on_sendme() {
            Ok(()) => self.update_interest(key, id),
            Err(_) => self.punish(key),
        }
    }

    /// How many bytes may be read from a stream's connection now.
    pub fn stream_read_len(&self, socket: SocketId) -> usize {
        let Some((key, id)) = self.streams.by_socket.get(&socket) else {
            return 0;
        };
        let end = self
            .circuits
            .get(*key)
            .and_then(|circuit| circuit.end.as_ref());
        let Some((end, stream)) = end.and_then(|end| Some((end, end.streams.get(id)?))) else {
            return 0;
        };
        end.room(stream).min(READ_CELLS_MAX) as usize * DATA_LEN
    }

    /// Bytes came from a stream's connection: they are packaged and queued towards the client.
    pub fn on_stream_read(&mut self, socket: SocketId, bytes: &[u8]) {
        let Some(&(key, id)) = self.streams.by_socket.get(&socket) else {
            return;
        };
        for chunk in bytes.chunks(DATA_LEN) {
            if self.package(key, id, chunk).is_none() {
                return;
            }
        }
        let full = self
            .circuits
            .get(key)
            .is_some_and(|circuit| circuit.prev.queue.len() >= BACKWARD_QUEUE_HIGH_CELLS);
        let Some(end) = self
            .circuits
            .get_mut(key)
            .and_then(|circuit| circuit.end.as_mut())
        else {
            return;
        };
        if full && !end.held_back || end.flow.room() == 0 {
            end.held_back |= full;
            self.update_interests(key);
        } else {
            self.update_interest(key, id);
        }
    }

    /// Makes one DATA cell. `None` when its circuit or stream did not survive it.
    fn package(&mut self, key: CircuitKey, id: StreamId, data: &[u8]) -> Option<()> {
        let now = self.now;
        let slot = self.take_slot(Command::RELAY)?;
        relay::write(
            self.pool.body_mut(&slot),
            RelayCommand::DATA,
            Some(id),
            data,
            &mut self.rng,
        );
        let Some(end) = self
            .circuits
            .get_mut(key)
            .and_then(|circuit| circuit.end.as_mut())
        else {
            self.pool.free(slot);
            return None;
        };
        let acknowledged = end.flow.on_sent(now);
        if end.flow.stream_control() == StreamControl::Windows {
            end.streams.get_mut(&id)?.window.on_sent();
        }
        let digest = self.seal_and_queue(key, slot)?;
        let end = self.circuits.get_mut(key)?.end.as_mut()?;
        if acknowledged {
            end.digests.expect(digest);
        }
        Some(())
    }

    /// The queue towards the client is shorter: its streams may be read again.
    pub fn on_backward_queue(&mut self, key: CircuitKey, left: u32) {
        if left > BACKWARD_QUEUE_LOW_CELLS {
            return;
        }
        let Some(end) = self
            .circuits
            .get_mut(key)
            .and_then(|circuit| circuit.end.as_mut())
        else {
            return;
        };
        if core::mem::take(&mut end.held_back) {
            self.update_interests(key);
        }
    }

    /// Tells the driver about every stream of a circuit whose interest changed.
    fn update_interests(&mut self, key: CircuitKey) {
        let Some(end) = self
            .circuits
            .get(key)
            .and_then(|circuit| circuit.end.as_ref())
        else {
            return;
        };
        let ids: Vec<StreamId> = end.streams.keys().copied().collect();
        ids.into_iter().for_each(|id| self.update_interest(key, id));
    }

    /// Tells the driver what a stream wants of its connection, if that changed. Writing is asked for
    /// whenever there is no credit, so that data that comes later leaves at once.
    pub fn update_interest(&mut self, key: CircuitKey, id: StreamId) {
        let Some(end) = self
            .circuits
            .get_mut(key)
            .and_then(|circuit| circuit.end.as_mut())
        else {
            return;
        };
        let Some(stream) = end.streams.get(&id) else {
            return;
        };
        let StreamState::Open(socket) = stream.state else {
            return;
        };
        let wanted = (end.room(stream) > 0, stream.writable == 0);
        if wanted == stream.interest {
            return;
        }
        if let Some(stream) = end.streams.get_mut(&id) {
            stream.interest = wanted;
        }
        self.outputs.push_back(Output::Interest {
            socket,
            read: wanted.0,
            write: wanted.1,
        });
    }

    /// A connection takes more.
    pub fn on_stream_writable(&mut self, socket: SocketId, bytes: usize) {
        if let Some(leftover) = self.streams.leftovers.get_mut(&socket) {
            leftover.writable = bytes;
        } else if let Some(&(key, id)) = self.streams.by_socket.get(&socket) {
            let Some(stream) = self.stream_mut(key, id) else {
                return;
            };
            stream.writable = bytes;
            self.update_interest(key, id);
        }
        self.streams.to_flush.push(socket);
    }

    /// Appends what a connection takes now to `out`; afterwards it may have ended.
    pub fn flush_stream(&mut self, socket: SocketId, out: &mut Vec<u8>) {
        if let Some(leftover) = self.streams.leftovers.get_mut(&socket) {
            drain(
                &mut self.pool,
                &mut leftover.queue,
                &mut leftover.writable,
                out,
            );
            if leftover.queue.is_empty() {
                self.streams.leftovers.remove(&socket);
                self.outputs.push_back(Output::Close { socket });
            }
            return;
        }
        let Some(&(key, id)) = self.streams.by_socket.get(&socket) else {
            return;
        };
        let Some(end) = self
            .circuits
            .get_mut(key)
            .and_then(|circuit| circuit.end.as_mut())
        else {
            return;
        };
        let control = end.flow.stream_control();
        let Some(stream) = end.streams.get_mut(&id) else {
            return;
        };
        if !matches!(stream.state, StreamState::Open(_)) {
            return;
        }
        drain(&mut self.pool, &mut stream.queue, &mut stream.writable, out);
        let due = match control {
            StreamControl::Windows => take_sendmes(stream),
            StreamControl::XonXoff => 0,
        };
        for _ in 0..due {
            self.send_relay(key, RelayCommand::SENDME, Some(id), &[]);
        }
        self.update_interest(key, id);
    }
}

/// SENDMEs that a stream owes its client: none while its data waits for the connection.
fn take_sendmes(stream: &mut Stream) -> u32 {
    let mut due = 0;
    while stream.queue.is_empty() && stream.window.take_sendme() {
        due += 1;
    }
    due
}

/// Moves data from a stream's queue to `out`, as far as the connection's credit goes.
fn drain(pool: &mut CellPool, queue: &mut CellQueue, writable: &mut usize, out: &mut Vec<u8>) {
    while let Some((body, offset)) = pool.front(queue) {
        let end = HEADER_LEN + usize::from(u16::from_be_bytes([body[9], body[10]]));
        let offset = offset.max(HEADER_LEN);
        let data = &body[offset..end];
        let len = data.len().min(*writable);
        out.extend_from_slice(&data[..len]);
        *writable -= len;
        if offset + len < end {
            return pool.set_front_offset(queue, offset + len);
        }
        if let Some(slot) = pool.pop(queue) {
            pool.free(slot);
        }
    }
}
