//! Which streams' connections are read, and whose turn it is.

use crate::core::Core;
use crate::exit::StreamState;
use crate::keys::CircuitKey;
use crate::language::Output;
use heddle_proto::bucket::{Direction, Traffic};
use heddle_proto::cell::relay::StreamId;
use heddle_seam::node::SocketId;

impl Core {
    /// A circuit may have room: it is the next streams' turn.
    pub(super) fn read_more(&mut self, key: CircuitKey) {
        let Some(end) = self.end_mut(key) else { return };
        let (turns, lists) = end.next_to_read();
        if lists {
            self.streams.list_unread(key);
        }
        turns.into_iter().for_each(|id| self.update_interest(key, id));
    }

    /// The driver has read what it could: circuits that still have room let more streams be read.
    pub(in crate::core) fn go_on_reading(&mut self) {
        for key in self.streams.take_unread() {
            if let Some(end) = self.end_mut(key) {
                end.unlist();
                self.read_more(key);
            }
        }
    }

    /// How many bytes may be read from a stream's connection now.
    fn stream_read_len(&mut self, socket: SocketId) -> usize {
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
        let Some((key, id)) = self.streams.find(socket) else { return 1 };
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
        let Some((key, id)) = self.streams.find(socket) else { return (0, false) };
        let Some(end) = self.end_mut(key) else { return (0, false) };
        (end.read_len(id, now), end.stream_mut(id).is_some_and(|stream| stream.owed().is_limited()))
    }

    /// Tells the driver what a stream wants of its connection, if that changed. Writing is asked for
    /// whenever there is no credit, so that data that comes later leaves at once.
    pub(super) fn update_interest(&mut self, key: CircuitKey, id: StreamId) {
        let Some(stream) = self.stream_mut(key, id) else { return };
        let StreamState::Open(socket) = stream.state() else { return };
        let write = !stream.owed().takes();
        let read = self.stream_read_len(socket) > 0;
        self.wake_for_rate(key, id, socket, read);
        if self.end_mut(key).is_some_and(|end| end.set_interest(id, (read, write))) {
            self.outputs.push_back(Output::Interest { socket, read, write });
        }
    }

    /// A stream that waits for nothing but the rate of its client's last XON is looked at again when
    /// that allows a cell.
    fn wake_for_rate(&mut self, key: CircuitKey, id: StreamId, socket: SocketId, may_read: bool) {
        let now = self.now;
        let moved = self.stream_mut(key, id).and_then(|stream| stream.set_wake(now, may_read));
        if let Some(wakes) = moved {
            self.streams.move_wake(socket, wakes);
        }
    }

    /// Streams whose rate allows them to be read again.
    pub(in crate::core) fn wake_streams(&mut self) {
        while let Some(socket) = self.streams.pop_wake(self.now) {
            if let Some((key, id)) = self.streams.find(socket) {
                self.update_interest(key, id);
            }
        }
    }

    /// The queue towards the client is shorter: its streams may be read again.
    pub(in crate::core) fn on_backward_queue(&mut self, key: CircuitKey) {
        let Some(circuit) = self.table.get_mut(key) else { return };
        let left = circuit.cells_towards_client();
        if circuit.end_mut().is_some_and(|end| end.let_go(left)) {
            self.read_more(key);
        }
    }

    /// Once a second: who is over waits for the operator's rates no more.
    pub(in crate::core) fn forget_who_waited(&mut self) {
        let (links, streams) = (&self.links, &self.streams);
        self.rates.sweep(|link| links.get(*link).is_some(), |socket| streams.has_socket(*socket));
    }
}
