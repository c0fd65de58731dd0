//! A channel with its socket: what the driver is told of it, and how it ends.

use crate::core::Core;
use crate::keys::LinkKey;
use crate::language::Output;
use crate::links::{Outlet, destroy};
use crate::shard::Relay;
use core::net::SocketAddr;
use heddle_proto::bucket::Direction;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{Body, CELL_LEN, CircId, Command};
use heddle_proto::channel::{Channel, ChannelError};
use heddle_proto::credit::{CreditCell, CreditMessage};
use heddle_proto::endpoint::FlowState;
use heddle_seam::node::SocketId;
use heddle_seam::time::Instant;

/// What an open channel takes beside itself: its places among sockets, links, timers and accounts, and what the driver
/// knows of its socket. `transport/tests/channel_memory.rs` measures it.
const CHANNEL_PARTS: usize = 2 * 1024;

pub(crate) struct Carrier {
    pub channel: Box<dyn Channel>,
    pub socket: SocketId,
    /// Our end of it.
    pub local: SocketAddr,
    /// Bytes the driver takes now, and what that was when it last said so.
    pub writable: usize,
    pub granted: usize,
    /// What the driver was last told: read, write.
    pub interest: (bool, bool),
    /// Since when the driver is asked for credit and gives none.
    pub stuck_since: Option<Instant>,
    pub timer: Option<Instant>,
    /// Whether the operator's rates hold for this peer.
    pub limited: bool,
    /// Bytes that the channel kept when it was last looked at.
    pub kept_bytes: usize,
    /// Bytes that it takes itself.
    pub state_bytes: usize,
    /// Whether anything passed since the last tick.
    pub has_passed: bool,
}

impl Carrier {
    pub fn new(channel: Box<dyn Channel>, socket: SocketId, local: SocketAddr, limited: bool) -> Self {
        Carrier {
            channel,
            socket,
            local,
            writable: 0,
            granted: 0,
            interest: (false, false),
            stuck_since: None,
            timer: None,
            limited,
            kept_bytes: 0,
            state_bytes: 0,
            has_passed: false,
        }
    }

    /// What the channel takes itself counts.
    fn tell_state(&mut self, core: &mut Core) {
        let of_channel = self.channel.state_bytes();
        // Before it is open its handshake counts.
        let state_bytes = if of_channel == 0 { 0 } else { of_channel + CHANNEL_PARTS };
        core.on_channel_state(self.state_bytes, state_bytes);
        self.state_bytes = state_bytes;
    }
}

/// All lanes of a channel are written into one stream of bytes.
impl Outlet for dyn Channel {
    const ENDS_WAIT: bool = true;

    fn capacity(&self) -> usize {
        Channel::capacity(self)
    }

    fn send(&mut self, now: Instant, circ_id: CircId, command: Command, body: &Body) -> FlowState {
        Channel::send(self, now, circ_id, command, body);
        FlowState::Open
    }

    fn tell(&mut self, now: Instant, circ_id: CircId, message: CreditMessage) {
        Channel::send_vpadding(self, now, &CreditCell::Circuit { circ_id, message }.encode());
    }

    fn end(&mut self, now: Instant, circ_id: CircId, reason: DestroyReason) {
        Channel::send(self, now, circ_id, Command::DESTROY, &destroy(reason));
    }
}

impl Relay {
    pub(crate) fn remove_carrier(&mut self, _now: Instant, link: LinkKey) -> Option<Carrier> {
        let carrier = self.carriers.remove(link)?;
        self.links.remove(&carrier.socket);
        self.core.on_kept(carrier.socket, 0);
        self.core.on_channel_state(carrier.state_bytes, 0);
        if let Some(at) = carrier.timer {
            self.timers.remove(&(at, carrier.socket));
        }
        Some(carrier)
    }

    /// A socket ends with all that waits for it, since memory is short: that of a channel, of a stream, or of neither
    /// any more.
    pub(crate) fn abort_socket(&mut self, now: Instant, socket: SocketId) {
        self.core.forget_buffer(socket);
        if !self.core.abort_stream(socket) {
            self.core.push(Output::Abort { socket });
        }
        if let Some(&link) = self.links.get(&socket) {
            self.remove_carrier(now, link);
            self.forget_link(now, link, socket, ChannelError::Crowded);
        }
    }

    /// Once a second: channels on which nothing passed give back what they do not need.
    pub(crate) fn give_back_buffers(&mut self) {
        for carrier in self.carriers.values_mut() {
            if core::mem::take(&mut carrier.has_passed) {
                continue;
            }
            carrier.channel.give_back();
            carrier.tell_state(&mut self.core);
        }
    }

    /// Tells the driver what a channel wants of its socket, and sets its timer.
    pub(crate) fn update_carrier(&mut self, now: Instant, link: LinkKey, waiting: bool, throttled: bool) {
        let Some(carrier) = self.carriers.get_mut(link) else {
            return;
        };
        let may_read = !carrier.limited || self.core.allowance(Direction::Read) > 0;
        // Credit is asked for again early, or a burst that meets the small rest costs two sends.
        let low = (carrier.granted / 2).max(CELL_LEN * 2);
        let wanted = (may_read, waiting || carrier.writable < low);
        let socket = carrier.socket;
        if wanted != carrier.interest {
            if wanted.1 != carrier.interest.1 {
                carrier.stuck_since = wanted.1.then_some(now);
            }
            carrier.interest = wanted;
            self.core.push(Output::Interest { socket, read: wanted.0, write: wanted.1 });
        }
        let kept_bytes = carrier.channel.held_bytes();
        if kept_bytes != carrier.kept_bytes {
            carrier.kept_bytes = kept_bytes;
            self.core.on_kept(socket, kept_bytes);
        }
        carrier.tell_state(&mut self.core);
        let timer = carrier.channel.poll_timeout();
        // A timer that moved on is left where it is; it looks again when it fires.
        if let Some(at) = timer
            && carrier.timer.is_none_or(|set| at < set)
        {
            if let Some(set) = carrier.timer.replace(at) {
                self.timers.remove(&(set, socket));
            }
            self.timers.insert((at, socket));
        }
        if throttled {
            self.core.wait_for_rate(Direction::Write);
            self.core.hold_link(link, Direction::Write);
        }
        if !may_read {
            self.core.hold_link(link, Direction::Read);
        }
    }
}
