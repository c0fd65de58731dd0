//! A stream at the exit: its connection, and what holds its client and its connection back.

use super::owed::Owed;
use core::net::SocketAddr;
use heddle_proto::cell::relay::{DATA_LEN, RelayHeader};
use heddle_proto::flow_control::{
    DrainWatch, ReadLimit, Role, Signal, StreamControl, StreamWindow, Violation, XonXoffParams,
};
use heddle_proto::params::NetworkParams;
use heddle_proto::policy::is_internal;
use heddle_proto::pool::{CellPool, SlotId};
use heddle_seam::node::{ResolveId, SocketId};
use heddle_seam::time::Instant;

/// 1. The name is looked up, unless the client gave an address.
/// 2. The connection is opened.
/// 3. CONNECTED is sent; data flows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StreamState {
    Resolving(ResolveId),
    Connecting {
        socket: SocketId,
        addr: SocketAddr,
        ttl_s: u32,
    },
    Open(SocketId),
    /// The connection failed, and the driver has closed it.
    Failed,
}

/// A stream at the exit.
pub(crate) struct Stream {
    state: StreamState,
    owed: Owed,
    hold: Hold,
    /// When a rate allows the connection to be read again, if the shard is to wake up for it.
    wake: Option<Instant>,
    /// Its turn among the streams that wait until the circuit has room, if it does.
    pub(super) turn: Option<u64>,
    /// What the driver was last told: read, write.
    interest: (bool, bool),
}

/// What holds a stream's client and its connection back.
enum Hold {
    /// Windows of 500 cells and stream SENDMEs.
    Windows(StreamWindow),
    /// XON and XOFF (proposal 324).
    Signals(Box<Signals>),
}

struct Signals {
    /// Watches the queue to the connection: tells the client to stop and go.
    drain: DrainWatch,
    /// Obeys the client: how fast the connection is read.
    limit: ReadLimit,
    /// Bytes in the queue to the connection.
    queued_bytes: u64,
}

/// What a client is to be told when a connection took data.
pub(crate) enum Drained {
    /// So many SENDMEs.
    Sendmes(u32),
    Signal(Option<Signal>),
}

impl Hold {
    fn new(control: StreamControl, params: &NetworkParams) -> Self {
        match control {
            StreamControl::Windows => Hold::Windows(StreamWindow::default()),
            StreamControl::XonXoff => {
                let params = XonXoffParams::from_consensus(&|name| params.0.get(name).copied());
                let drain = DrainWatch::new(Role::Exit, params);
                let limit = ReadLimit::new(Role::Exit, params);
                Hold::Signals(Box::new(Signals { drain, limit, queued_bytes: 0 }))
            }
        }
    }
}

impl Stream {
    pub(super) fn new(state: StreamState, control: StreamControl, params: &NetworkParams) -> Self {
        Stream {
            state,
            owed: Owed::default(),
            hold: Hold::new(control, params),
            wake: None,
            turn: None,
            interest: (false, false),
        }
    }

    pub fn state(&self) -> StreamState {
        self.state
    }

    pub fn is_open(&self) -> bool {
        matches!(self.state, StreamState::Open(_))
    }

    pub fn socket(&self) -> Option<SocketId> {
        match self.state {
            StreamState::Resolving(_) | StreamState::Failed => None,
            StreamState::Connecting { socket, .. } | StreamState::Open(socket) => Some(socket),
        }
    }

    /// When the shard is to wake up for it, and for which connection.
    pub fn wake(&self) -> Option<(Instant, SocketId)> {
        Some((self.wake?, self.socket()?))
    }

    /// What its connection is owed.
    pub fn owed(&self) -> &Owed {
        &self.owed
    }

    pub fn owed_mut(&mut self) -> &mut Owed {
        &mut self.owed
    }

    pub fn into_owed(self) -> Owed {
        self.owed
    }

    /// Its name was looked up, and it goes on with the data that came meanwhile.
    pub fn go_on(&mut self, state: StreamState) {
        self.state = state;
    }

    /// The connection is there. Returns its address, and how long the client may believe in that. `None` if it was not
    /// awaited.
    pub fn open(&mut self, limits_private: bool) -> Option<(SocketAddr, u32)> {
        let StreamState::Connecting { socket, addr, ttl_s } = self.state else { return None };
        self.state = StreamState::Open(socket);
        self.owed.limit(limits_private || !is_internal(addr.ip()));
        Some((addr, ttl_s))
    }

    /// The connection failed. Returns when it was to be woken up for, which it is no more.
    pub fn fail(&mut self) -> Option<Instant> {
        self.state = StreamState::Failed;
        self.wake.take()
    }

    /// DATA came. Returns what the client is to be told, or that it broke its window; the slot is kept or free.
    pub fn on_data(
        &mut self,
        pool: &mut CellPool,
        now: Instant,
        header: RelayHeader,
        slot: SlotId,
    ) -> Result<Option<Signal>, Violation> {
        let mut signal = None;
        match &mut self.hold {
            Hold::Windows(window) => {
                if let Err(violation) = window.on_received() {
                    pool.free(slot);
                    return Err(violation);
                }
            }
            Hold::Signals(signals) => {
                signals.queued_bytes += u64::from(header.length);
                signal = signals.drain.on_queued(now, signals.queued_bytes);
            }
        }
        match header.length {
            0 => pool.free(slot),
            _ => self.owed.push(pool, slot, now),
        }
        Ok(signal)
    }

    /// Whether SENDMEs hold its client back, and not XOFF.
    pub fn has_windows(&self) -> bool {
        matches!(self.hold, Hold::Windows(_))
    }

    /// A SENDME, which only streams with windows have.
    pub fn on_sendme(&mut self) -> Result<(), Violation> {
        match &mut self.hold {
            Hold::Windows(window) => window.on_sendme(),
            Hold::Signals(_) => Err(Violation::UnexpectedSendme),
        }
    }

    /// XON or XOFF. False when it is ignored: when it comes twice, or for a stream with windows, as by stock relays.
    pub fn on_signal(&mut self, now: Instant, signal: Signal) -> bool {
        match &mut self.hold {
            Hold::Windows(_) => false,
            Hold::Signals(signals) => signals.limit.on_signal(now, signal).is_ok(),
        }
    }

    /// The connection took so many bytes.
    pub fn on_drained(&mut self, now: Instant, bytes: u64) -> Drained {
        match &mut self.hold {
            // No SENDME while data waits for the connection.
            Hold::Windows(window) => {
                let mut due = 0;
                while self.owed.queue().is_empty() && window.take_sendme() {
                    due += 1;
                }
                Drained::Sendmes(due)
            }
            Hold::Signals(signals) => {
                signals.queued_bytes -= bytes;
                Drained::Signal(signals.drain.on_drained(now, bytes, signals.queued_bytes))
            }
        }
    }

    /// A DATA cell was made of so many bytes of the connection.
    pub(super) fn on_packaged(&mut self, bytes: usize) {
        match &mut self.hold {
            Hold::Windows(window) => window.on_sent(),
            Hold::Signals(signals) => signals.limit.on_read(bytes as u64),
        }
    }

    /// What the stream itself lets be read: cells, and bytes.
    pub(super) fn read_max(&mut self, now: Instant) -> (u32, usize) {
        match &mut self.hold {
            Hold::Windows(window) => (window.room(), usize::MAX),
            Hold::Signals(signals) => {
                (u32::MAX, usize::try_from(signals.limit.may_read(now)).unwrap_or(usize::MAX))
            }
        }
    }

    /// Sets when to wake up for it: when it waits for nothing but the rate of its client's last XON and that allows a
    /// cell. Returns that time before and now, if they differ.
    pub fn set_wake(&mut self, now: Instant, may_read: bool) -> Option<[Option<Instant>; 2]> {
        let wake = match &self.hold {
            Hold::Signals(signals) if !may_read => signals.limit.next_read(now, DATA_LEN as u64),
            _ => None,
        };
        let wake = wake.filter(|at| *at > now);
        let before = core::mem::replace(&mut self.wake, wake);
        (before != wake).then_some([before, wake])
    }

    /// Whether the driver is to be told that this is wanted now: read, write.
    pub(super) fn set_interest(&mut self, wanted: (bool, bool)) -> bool {
        core::mem::replace(&mut self.interest, wanted) != wanted
    }
}
