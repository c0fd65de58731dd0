//! Streams at work: they begin, are answered, carry data and end ([`crate::exit`]).

mod begin;
mod data;
mod leaving;
mod places;
mod reading;
mod replies;
mod resolve;

use crate::core::Core;
use crate::keys::CircuitKey;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::relay::{RelayCommand, StreamId};
use heddle_proto::cell::stream::EndReason;

impl Core {
    /// A relay cell of a stream that is not DATA.
    pub(in crate::core) fn on_stream_cell(
        &mut self,
        key: CircuitKey,
        id: StreamId,
        command: RelayCommand,
        data: &[u8],
    ) {
        match command {
            RelayCommand::BEGIN => self.on_begin(key, id, data),
            RelayCommand::BEGIN_DIR => self.send_end(key, id, EndReason::NOTDIRECTORY),
            RelayCommand::RESOLVE => self.on_resolve(key, id, data),
            RelayCommand::END => self.on_end(key, id),
            RelayCommand::SENDME => self.on_stream_sendme(key, id),
            RelayCommand::XON | RelayCommand::XOFF => self.on_stream_signal(key, id, command, data),
            // These are for clients to hear. As stock Tor, which drops them, too, where no such stream is open.
            RelayCommand::CONNECTED | RelayCommand::RESOLVED if self.is_stream_open(key, id) => {
                self.close_circuit(key, DestroyReason::PROTOCOL);
            }
            _ => {}
        }
    }
}
