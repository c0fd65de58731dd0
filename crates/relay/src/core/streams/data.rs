//! DATA and SENDME at the exit, and whose turn it is.
//!
//! - A stream's connection is read only while the circuit's window, the stream's own limit, the
//!   operator's rates and the queue towards the client have room: what is read has a place to go.
//! - DATA waits in its slot until the connection takes it. The stream's SENDME goes out when it did,
//!   or XOFF when it does not: that is what holds the client back.

use crate::admission::StreamPlace;
use crate::core::Core;
use crate::exit::{Drained, Owed, Stream};
use crate::keys::CircuitKey;
use crate::language::Output;
use crate::rates::Rates;
use crate::table::Circuit;
use heddle_proto::bucket::{Direction, Traffic};
use heddle_proto::cell::Command;
use heddle_proto::cell::flow_control::Sendme;
use heddle_proto::cell::relay::{RelayCommand, RelayHeader, StreamId};
use heddle_proto::crypto::tor1::CellDigest;
use heddle_proto::flow_control::Signal;
use heddle_proto::pool::{CellPool, SlotId};
use heddle_seam::node::SocketId;
use heddle_seam::time::Instant;

impl Core {
    /// DATA from the client.
    pub(in crate::core) fn on_data(
        &mut self,
        key: CircuitKey,
        header: RelayHeader,
        slot: SlotId,
        digest: CellDigest,
    ) {
        let Some(end) = self.end_of(key) else { return self.pool.free(slot) };
        // The circuit's SENDME counts cells, whatever becomes of their streams.
        if end.on_received() {
            let mut data = Vec::with_capacity(23);
            Sendme::Authenticated(digest).encode(&mut data);
            self.send_relay(key, RelayCommand::SENDME, None, &data);
        }
        let circuit = self.table.get_mut(key);
        let stream = circuit.and_then(|circuit| circuit.stream_mut(header.stream_id?));
        let (Some(stream), Some(id)) = (stream, header.stream_id) else {
            // The stream was over before the client knew.
            return self.pool.free(slot);
        };
        let Ok(signal) = stream.on_data(&mut self.pool, self.now, header, slot) else {
            return self.punish(key);
        };
        if let Some(socket) = stream.socket() {
            self.streams.flush_soon(socket);
        }
        self.send_signal(key, id, signal);
    }

    /// A SENDME for the circuit.
    pub(in crate::core) fn on_circuit_sendme(&mut self, key: CircuitKey, data: &[u8]) {
        let now = self.now;
        let min_version = self.params.get("sendme_accept_min_version", 1, 0, 255);
        let Some(circuit) = self.table.get_mut(key) else { return };
        let queued_cells = circuit.cells_towards_client();
        let end = circuit.end_mut();
        match end.map(|end| end.on_sendme(now, data, min_version, queued_cells)) {
            Some(Ok(())) => self.read_more(key),
            Some(Err(_)) | None => self.punish(key),
        }
    }

    /// A SENDME for a stream.
    pub(super) fn on_stream_sendme(&mut self, key: CircuitKey, id: StreamId) {
        match self.stream_mut(key, id).map(Stream::on_sendme) {
            Some(Ok(())) => self.update_interest(key, id),
            Some(Err(_)) => self.punish(key),
            None => {}
        }
    }

    /// XON or XOFF for a stream. One that cannot be read is ignored, as by stock relays.
    pub(super) fn on_stream_signal(
        &mut self,
        key: CircuitKey,
        id: StreamId,
        command: RelayCommand,
        data: &[u8],
    ) {
        let now = self.now;
        let Ok(signal) = Signal::parse(command, data) else { return };
        if self.stream_mut(key, id).is_some_and(|stream| stream.on_signal(now, signal)) {
            self.update_interest(key, id);
        }
    }

    /// Bytes came from a stream's connection: they are packaged and queued towards the client.
    pub fn on_stream_read(&mut self, socket: SocketId, bytes: &[u8]) {
        let Some((key, id)) = self.streams.find(socket) else { return };
        if self.stream_mut(key, id).is_some_and(|stream| stream.owed().is_limited()) {
            self.rates.take(Direction::Read, Traffic::Own, bytes.len());
        }
        let mut left = bytes;
        while !left.is_empty() {
            let Some(packaged) = self.package(key, id, left) else { return };
            left = &left[packaged..];
        }
        let Some(circuit) = self.table.get_mut(key) else { return };
        let queued_cells = circuit.cells_towards_client();
        let Some(end) = circuit.end_mut() else { return };
        end.hold_back(queued_cells);
        self.update_interest(key, id);
    }

    /// Makes one DATA cell of the first bytes of `data`, and says how many they were. `None` when its circuit or stream
    /// did not survive it.
    fn package(&mut self, key: CircuitKey, id: StreamId, data: &[u8]) -> Option<usize> {
        let slot = self.take_slot(Command::RELAY)?;
        let end = self.table.get_mut(key).and_then(Circuit::end_mut);
        let body = self.pool.body_mut(&slot);
        let packaged = end.and_then(|end| end.package(self.now, id, data, body, &mut self.rng));
        let Some((len, is_acknowledged)) = packaged else {
            self.pool.free(slot);
            return None;
        };
        let digest = self.seal_and_queue(key, slot)?;
        let end = self.end_mut(key)?;
        if is_acknowledged {
            end.expect(digest);
        }
        Some(len)
    }

    /// The operator's rates allow more: a stream that they held back looks again.
    pub(in crate::core) fn list_stream(&mut self, socket: SocketId) {
        if let Some((key, id)) = self.streams.find(socket) {
            self.update_interest(key, id);
        }
        self.streams.flush_soon(socket);
    }

    /// A connection takes more.
    pub fn on_stream_writable(&mut self, socket: SocketId, bytes: usize) {
        if let Some(owed) = self.streams.leftover_mut(socket) {
            owed.on_writable(bytes);
        } else if let Some((key, id)) = self.streams.find(socket) {
            let Some(stream) = self.stream_mut(key, id) else { return };
            stream.owed_mut().on_writable(bytes);
            self.update_interest(key, id);
        }
        self.streams.flush_soon(socket);
    }

    /// Appends what a connection takes now to `out`; afterwards it may have ended.
    pub fn flush_stream(&mut self, socket: SocketId, out: &mut Vec<u8>) {
        if let Some(owed) = self.streams.leftover_mut(socket) {
            write(owed, &mut self.pool, &mut self.rates, self.now, out);
            if owed.goes_on() {
                self.flush_again(socket, out.is_empty());
            } else if owed.queue().is_empty() {
                self.streams.end_leftover(socket);
                self.admission.stream_ends(StreamPlace::Socket(socket));
                self.outputs.push_back(Output::Close { socket });
            }
            return;
        }
        let Some((key, id)) = self.streams.find(socket) else { return };
        let stream = self.table.get_mut(key).and_then(|circuit| circuit.stream_mut(id));
        let Some(stream) = stream.filter(|stream| stream.is_open()) else { return };
        let has_windows = stream.has_windows();
        let owed = stream.owed_mut();
        if owed.queue().is_empty() {
            // Cells without data have left for their reader already, and count for SENDMEs like any other.
            if has_windows {
                self.on_drained(key, id, 0);
            }
            return;
        }
        write(owed, &mut self.pool, &mut self.rates, self.now, out);
        if owed.goes_on() {
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
            self.streams.flush_soon(socket);
        }
    }

    /// A connection took `bytes`: the client may be told to send more.
    fn on_drained(&mut self, key: CircuitKey, id: StreamId, bytes: u64) {
        let now = self.now;
        match self.stream_mut(key, id).map(|stream| stream.on_drained(now, bytes)) {
            Some(Drained::Sendmes(due)) => {
                for _ in 0..due {
                    self.send_relay(key, RelayCommand::SENDME, Some(id), &[]);
                }
            }
            Some(Drained::Signal(signal)) => self.send_signal(key, id, signal),
            None => {}
        }
    }
}

/// Moves what a connection takes now to `out`, as far as the operator's rates go.
fn write(owed: &mut Owed, pool: &mut CellPool, rates: &mut Rates, now: Instant, out: &mut Vec<u8>) {
    if !owed.is_limited() {
        return owed.write(pool, usize::MAX, out);
    }
    owed.write(pool, rates.share(now, Direction::Write, Traffic::Own), out);
    rates.take(Direction::Write, Traffic::Own, out.len());
}
