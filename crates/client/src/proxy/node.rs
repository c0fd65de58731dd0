//! An onion proxy as drivers see it.

use super::OnionProxy;
use heddle_proto::channel::ChannelError;
use heddle_seam::language::Language;
use heddle_seam::node::{Input, Node, Output, SocketId};
use heddle_seam::time::Instant;

impl<L: Language> Node<L> for OnionProxy {
    fn recv_buf(&mut self, _: SocketId) -> &mut [u8] {
        &mut self.scratch
    }

    fn handle_input(&mut self, now: Instant, input: Input<L>) {
        self.now = now;
        match input {
            Input::Timeout => self.on_timeout(now),
            Input::WallClock(wall) => {
                self.wall = wall;
                let channels = self.guards.values_mut().filter_map(|guard| guard.channel.as_mut());
                channels.for_each(|channel| channel.handle_wall_clock(wall));
            }
            Input::Connected { socket, .. } => self.on_connected(now, socket),
            Input::Failed { socket, error } => self.end_channel(socket, ChannelError::Socket(error), None),
            Input::Read { socket, len } => self.on_read(now, socket, len),
            Input::Writable { socket, bytes, window_bytes } => {
                if let Some(guard) = self.guards.get_mut(&socket) {
                    guard.writable = bytes;
                    if let Some(channel) = &mut guard.channel {
                        channel.handle_window(window_bytes);
                    }
                    self.dirty.insert(socket);
                }
            }
            Input::Eof { socket } => {
                let channel = self.guards.get_mut(&socket).and_then(|guard| guard.channel.as_mut());
                let error = channel.and_then(|channel| channel.handle_eof(now).err());
                let error = error.unwrap_or(ChannelError::PeerClosed);
                self.end_channel(socket, error, Some(Output::Close { socket }));
            }
            // A proxy takes no connections, asks no resolver and has no shards.
            _ => {}
        }
    }

    fn poll_output(&mut self, now: Instant, buf: &mut Vec<u8>) -> Output<L> {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return output.widen();
            }
            let Some(socket) = self.dirty.pop_first() else {
                return Output::Timeout(self.next_timeout(now));
            };
            self.flush(now, socket, buf);
            if !buf.is_empty() {
                return Output::Send { socket };
            }
        }
    }
}
