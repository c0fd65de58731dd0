//! Channels to guards, from their dial to their end.

use super::{CircuitNumber, Guard, OnionProxy, ProxyEvent};
use heddle_proto::channel::{ChannelError, Target};
use heddle_seam::language::Plain;
use heddle_seam::node::{Output, SocketId};
use heddle_seam::time::Instant;
use std::collections::BTreeMap;

impl OnionProxy {
    pub(super) fn dial(&mut self, target: Target) -> Option<SocketId> {
        let to = *target.addrs.first()?;
        let socket = SocketId::dialled(self.sockets_made);
        self.sockets_made += 1;
        let guard = Guard {
            target,
            socket,
            channel: None,
            open: false,
            writable: 0,
            interest: (false, false),
            circuits: BTreeMap::new(),
            turn: None,
            credit: None,
        };
        self.guards.insert(socket, guard);
        self.outputs.push_back(Output::Connect { socket, to });
        Some(socket)
    }

    /// Gives up the dial of a circuit's guard, if it has come to no channel: no circuit can begin over it.
    pub(crate) fn give_up_dial(&mut self, number: CircuitNumber) {
        let Some(socket) = self.circuits.get(&number).map(|circuit| circuit.guard) else { return };
        if self.guards.get(&socket).is_some_and(|guard| !guard.open) {
            self.end_channel(socket, ChannelError::TimedOut, Some(Output::Abort { socket }));
        }
    }

    pub(super) fn on_connected(&mut self, now: Instant, socket: SocketId) {
        let Some(guard) = self.guards.get_mut(&socket) else { return };
        let Some(&peer) = guard.target.addrs.first() else { return };
        guard.channel = Some(self.transport.dial(now, self.wall, &guard.target, peer));
        self.dirty.insert(socket);
    }

    /// A channel ends, and its circuits with it.
    pub(super) fn end_channel(
        &mut self,
        socket: SocketId,
        error: ChannelError,
        farewell: Option<Output<Plain>>,
    ) {
        if self.guards.remove(&socket).is_none() {
            return;
        }
        self.outputs.extend(farewell);
        let lost: Vec<_> =
            self.circuits.iter().filter(|(_, circuit)| circuit.guard == socket).map(|(n, _)| *n).collect();
        for number in lost {
            self.circuits.remove(&number);
            self.lose_streams(number, None);
        }
        self.event(ProxyEvent::ChannelClosed(error));
    }
}
