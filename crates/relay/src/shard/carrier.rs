//! A channel with its socket: what passes between both, and what the driver is told of it.

use crate::core::Core;
use crate::keys::LinkKey;
use crate::language::Output;
use crate::links::{Outlet, destroy};
use crate::stats::CHANNELS;
use core::net::{IpAddr, SocketAddr};
use heddle_proto::bucket::Direction;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{Body, CELL_LEN, CircId, Command};
use heddle_proto::channel::{Channel, ChannelError};
use heddle_proto::credit::{CreditCell, CreditMessage};
use heddle_proto::endpoint::FlowState;
use heddle_seam::node::SocketId;
use heddle_seam::time::{Duration, Instant};

/// What an open channel takes beside itself: its places among sockets, links, timers and accounts, and what the driver
/// knows of its socket. `transport/tests/channel_memory.rs` measures it.
const CHANNEL_PARTS: usize = 2 * 1024;
/// A peer takes nothing of what waits for it for 50 minutes, as in stock Tor: ten times `KeepalivePeriod`. A kernel
/// that acknowledges and reads nothing keeps a TCP connection for ever, and with it a channel, its circuits and the
/// cells that wait.
const STUCK_TIMEOUT: Duration = Duration::from_secs(3000);

/// See the [module](self).
pub(super) struct Carrier {
    channel: Box<dyn Channel>,
    socket: SocketId,
    /// Our end of it.
    local: SocketAddr,
    /// Bytes the driver takes now, and what that was when it last said so.
    writable: usize,
    granted: usize,
    /// What the driver was last told: read, write.
    interest: (bool, bool),
    /// Since when the driver is asked for credit and gives none.
    stuck_since: Option<Instant>,
    /// Whether the operator's rates hold for this peer.
    limited: bool,
    /// Bytes that the channel kept when it was last looked at.
    kept_bytes: usize,
    /// Bytes that it takes itself.
    state_bytes: usize,
    /// Whether anything passed since the last tick.
    has_passed: bool,
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
            limited,
            kept_bytes: 0,
            state_bytes: 0,
            has_passed: false,
        }
    }

    pub fn channel(&self) -> &dyn Channel {
        self.channel.as_ref()
    }

    /// The channel, for what takes no bytes of its socket.
    pub fn channel_mut(&mut self) -> &mut dyn Channel {
        self.channel.as_mut()
    }

    pub fn socket(&self) -> SocketId {
        self.socket
    }

    /// The address of our end.
    pub fn local_ip(&self) -> IpAddr {
        self.local.ip()
    }

    /// Whether the operator's rates hold for this peer.
    pub fn is_limited(&self) -> bool {
        self.limited
    }

    /// Bytes that the driver takes now.
    pub fn writable(&self) -> usize {
        self.writable
    }

    /// Bytes that the channel takes itself.
    pub fn state_bytes(&self) -> usize {
        self.state_bytes
    }

    /// Whether the peer has taken nothing of what waits for it for too long.
    pub fn is_stuck(&self, now: Instant) -> bool {
        self.stuck_since.is_some_and(|since| now.since(since) >= STUCK_TIMEOUT)
    }

    /// The driver takes so many bytes from now on, and the system lets so many be on their way.
    pub fn on_writable(&mut self, now: Instant, bytes: usize, window_bytes: usize) {
        (self.writable, self.granted) = (bytes, bytes);
        self.stuck_since = self.interest.1.then_some(now);
        self.channel.handle_window(window_bytes);
    }

    /// Bytes came. Returns how many of them the channel took.
    pub fn handle_read(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, ChannelError> {
        self.has_passed = true;
        self.channel.handle_read(now, bytes)
    }

    /// Says farewell on the channel's own terms. Returns what is still to be sent.
    pub fn close(mut self, now: Instant) -> Vec<u8> {
        self.channel.close();
        self.channel.handle_writable(now, self.writable);
        let mut last_words = Vec::new();
        self.channel.poll_transmit(now, &mut last_words);
        last_words
    }

    /// Once a second: if nothing passed, what is not needed is given back.
    pub fn give_back(&mut self, core: &mut Core) {
        if !core::mem::take(&mut self.has_passed) {
            self.channel.give_back();
            self.tell_state(core);
        }
    }

    /// It ends, so what it kept and took counts no more.
    pub fn tell_gone(&self, core: &mut Core) {
        core.on_kept(self.socket, 0);
        core.on_channel_state(self.state_bytes, 0);
    }

    /// Takes the cells that leave promptly, and gives their bytes to the driver.
    pub fn flush(&mut self, core: &mut Core, now: Instant, link: LinkKey, out: &mut Vec<u8>) {
        let mut allowed = self.writable;
        if self.limited {
            allowed = allowed.min(core.share(Direction::Write));
        }
        core.before_write(link, allowed);
        self.channel.handle_writable(now, allowed);
        let cells_max = core.cells_of_choice();
        let cells = core.fill(link, self.channel.as_mut(), cells_max);
        core.count_cells_out(CHANNELS, cells);
        let waits_for_run = core.waits_for_run(link, cells);
        let more = self.channel.poll_transmit(now, out);
        self.has_passed |= !out.is_empty();
        self.writable = self.writable.saturating_sub(out.len());
        if self.limited {
            core.on_passed(Direction::Write, out.len());
        }
        let waiting = more || core.has_output(link) && !waits_for_run;
        let throttled = waiting && allowed < self.writable + out.len();
        let share_taken = throttled && !out.is_empty();
        if share_taken || cells > 0 && cells == cells_max {
            // The others come first; whether anything is left is seen then.
            core.list(link);
        }
        let may_read = !self.limited || core.allowance(Direction::Read) > 0;
        self.tell_interest(core, now, may_read, waiting && !throttled);
        self.tell_kept(core);
        self.tell_state(core);
        if throttled && !share_taken {
            core.wait_for_rate(Direction::Write);
            core.hold_link(link, Direction::Write);
        }
        if !may_read {
            core.hold_link(link, Direction::Read);
        }
    }

    /// Tells the driver what the channel wants of its socket.
    fn tell_interest(&mut self, core: &mut Core, now: Instant, may_read: bool, waiting: bool) {
        // Credit is asked for again early, or a burst that meets the small rest costs two sends.
        let low = (self.granted / 2).max(CELL_LEN * 2);
        let wanted = (may_read, waiting || self.writable < low);
        if wanted == self.interest {
            return;
        }
        if wanted.1 != self.interest.1 {
            self.stuck_since = wanted.1.then_some(now);
        }
        self.interest = wanted;
        core.push(Output::Interest { socket: self.socket, read: wanted.0, write: wanted.1 });
    }

    /// What the channel keeps of messages that are not whole counts.
    fn tell_kept(&mut self, core: &mut Core) {
        let kept_bytes = self.channel.buffered_bytes();
        if kept_bytes != self.kept_bytes {
            self.kept_bytes = kept_bytes;
            core.on_kept(self.socket, kept_bytes);
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
