//! What the relay knows of a channel, beside the channel itself.
//!
//! 1. A socket connected: the handshake is under way, and what comes is counted.
//! 2. The handshake is over: the peer is known, the channel is open.
//! 3. A better channel to the same relay exists, or this one is too old: it is retired, and takes no new circuits.
//! 4. It had no circuit for a while: it is to be closed.

use core::net::SocketAddr;
use heddle_proto::channel::{Opened, Role};
use heddle_proto::credit::N23;
use heddle_proto::ids::RelayIds;
use heddle_seam::node::SocketId;
use heddle_seam::time::{Duration, Instant};

/// A channel without circuits is closed after this time, and a part of half as much again, as by stock Tor
/// (`channelpadding_get_channel_idle_timeout`).
const IDLE_TIMEOUT: Duration = Duration::from_secs(180);
/// A retired one is closed after this time.
const RETIRED_TIMEOUT: Duration = Duration::from_secs(10);
/// A channel takes new circuits for a week (tor: `TIME_BEFORE_OR_CONN_IS_TOO_OLD`).
const CHANNEL_AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

#[derive(Debug)]
pub(crate) struct ChannelLink {
    socket: SocketId,
    role: Role,
    addr: SocketAddr,
    /// Whom the peer proved to be: `None` before the handshake is over, and for clients.
    peer: Option<RelayIds>,
    open: bool,
    /// Bytes that came before it was.
    handshake_bytes: u64,
    /// Whether it is one of its address' connections, as far as stock's defences go.
    counted: bool,
    /// Whether the peer itself names the address that we are connected to.
    canonical: bool,
    /// When the handshake was over.
    opened_at: Instant,
    /// When the last circuit left.
    idle_since: Instant,
    /// Which part of what it may be idle for is its own, in 65 536ths, so that channels do not close together.
    spread: u16,
    /// Takes no new circuits: a better channel to the same relay exists, or it is too old.
    retired: bool,
    /// Whether we told the peer that we count what it sends.
    counting: bool,
    /// By which numbers the peer counts what we send, if it does.
    credit: Option<N23>,
}

impl ChannelLink {
    /// A channel whose handshake begins.
    pub fn new(now: Instant, socket: SocketId, role: Role, addr: SocketAddr) -> Self {
        ChannelLink {
            socket,
            role,
            addr,
            peer: None,
            open: false,
            handshake_bytes: 0,
            counted: false,
            canonical: false,
            opened_at: now,
            idle_since: now,
            spread: 0,
            retired: false,
            counting: false,
            credit: None,
        }
    }

    pub fn socket(&self) -> SocketId {
        self.socket
    }

    pub fn role(&self) -> Role {
        self.role
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn peer(&self) -> Option<RelayIds> {
        self.peer
    }

    pub fn is_canonical(&self) -> bool {
        self.canonical
    }

    pub fn is_open(&self) -> bool {
        self.open
    }

    pub fn opened_at(&self) -> Instant {
        self.opened_at
    }

    /// When the last circuit left.
    pub fn idle_since(&self) -> Instant {
        self.idle_since
    }

    /// Whether it is one of its address' connections, as far as stock's defences go.
    pub fn is_counted(&self) -> bool {
        self.counted
    }

    pub fn is_retired(&self) -> bool {
        self.retired
    }

    /// By which numbers the peer counts what we send, if both sides said that they count.
    pub fn credit(&self) -> Option<N23> {
        self.credit.filter(|_| self.counting)
    }

    /// We told the peer that we count.
    pub fn begin_counting(&mut self) {
        self.counting = true;
    }

    /// The peer counts. What it said first holds; whether that is it.
    pub fn set_credit(&mut self, n23: N23) -> bool {
        let is_news = self.credit.is_none();
        self.credit.get_or_insert(n23);
        is_news
    }

    /// Bytes came. Returns how many did before, if the handshake is not over.
    pub fn on_received(&mut self, bytes: u64) -> Option<u64> {
        let before = self.handshake_bytes;
        self.handshake_bytes += if self.open { 0 } else { bytes };
        (!self.open).then_some(before)
    }

    /// The handshake said who the peer is.
    pub fn identify(&mut self, opened: &Opened) {
        self.peer = opened.peer;
        self.canonical = opened.peer_addrs.contains(&self.addr.ip());
    }

    /// It is a client's, and counts among those of its address.
    pub fn count(&mut self) {
        self.counted = true;
    }

    /// There is a place for it: circuits may go over it.
    pub fn open(&mut self, now: Instant) {
        self.open = true;
        self.opened_at = now;
        self.idle_since = now;
        // Nobody else knows when that was to the nanosecond, which is all that a guess would need.
        let mixed = (now.as_nanos() ^ self.socket.get()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.spread = (mixed >> 48) as u16;
    }

    /// It has circuits, or flows that it vouched for, until now at least.
    pub fn note_used(&mut self, now: Instant) {
        self.idle_since = now;
    }

    /// It takes no new circuits from now on. Whether that is news.
    pub fn retire(&mut self) -> bool {
        !core::mem::replace(&mut self.retired, true)
    }

    /// Whether it is too old for new circuits.
    pub fn is_old(&self, now: Instant) -> bool {
        now.since(self.opened_at) >= CHANNEL_AGE_MAX
    }

    /// Whether it is to be closed, if it has no circuits. `between_relays` is how long a channel of two relays of the
    /// consensus lasts in the mean: whether there is one tells who knocks less about the last minutes if it lasts long.
    pub fn is_unused(&self, now: Instant, between_relays: Option<Duration>) -> bool {
        let (least, span) = match between_relays.filter(|_| self.canonical) {
            Some(mean) => (mean * 3 / 4, mean / 2),
            None => (IDLE_TIMEOUT, IDLE_TIMEOUT / 2),
        };
        let lasts = least + span * u32::from(self.spread) / (1 << 16);
        let unused = now.since(self.idle_since);
        unused >= lasts || self.retired && unused >= RETIRED_TIMEOUT
    }
}
