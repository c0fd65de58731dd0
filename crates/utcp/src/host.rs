//! Many connections behind one or more addresses: what a kernel's TCP does between IP and the sockets.
//!
//! 1. [`handle_packet`](Host::handle_packet) finds the connection of a packet, makes one for a SYN to a port that
//!    listens, or answers with a reset.
//! 2. [`poll_accept`](Host::poll_accept) hands new connections to the application, which talks to them through
//!    [`get_mut`](Host::get_mut).
//! 3. [`poll_packet`](Host::poll_packet) gives what has to leave, [`poll_timeout`](Host::poll_timeout) when to come
//!    back, and [`poll_changed`](Host::poll_changed) which connections are worth a look.

use crate::connection::{Connection, reset_for};
use crate::options::Options;
use crate::pool::BufferPool;
use crate::segment::{Ecn, Header, SEQUENCE_BASE};
use crate::time::Instant;
use crate::wire::{self, Parsed, TcpHeader};
use core::fmt;
use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The first port that [`Host::connect`] picks, as IANA has it.
const EPHEMERAL_FIRST: u16 = 49_152;
/// Resets that wait to be sent to strangers.
const RESETS_MAX: usize = 64;

/// A connection of a host. Numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

/// How many connections a host takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostLimits {
    /// Connections in all. Default: 65,536.
    pub connections_max: usize,
    /// Connections that strangers opened and the application has not accepted. Default: 4,096, as Linux' `somaxconn`.
    pub backlog_max: usize,
}

impl Default for HostLimits {
    fn default() -> Self {
        HostLimits { connections_max: 65_536, backlog_max: 4096 }
    }
}

/// A source of random numbers: they become initial sequence numbers and ports, so nobody must be able to guess them.
pub type Random = Box<dyn FnMut() -> u64 + Send>;

/// The connections of a host.
pub struct Host {
    /// For IPv4 and for IPv6, whose header is longer.
    options: [Arc<Options>; 2],
    pool: BufferPool,
    limits: HostLimits,
    random: Random,
    listening: BTreeSet<u16>,
    by_pair: BTreeMap<(SocketAddr, SocketAddr), ConnectionId>,
    /// Boxed, because a tree moves its entries about.
    entries: BTreeMap<ConnectionId, Box<Entry>>,
    next_id: u64,
    /// Connections that may have something to send.
    ready: BTreeSet<ConnectionId>,
    /// Connections that a packet or a timer changed since the application was told. None that is forgotten.
    changed: BTreeSet<ConnectionId>,
    timers: BTreeSet<(Instant, ConnectionId)>,
    /// Connections that strangers opened, in the order of their SYNs.
    backlog: VecDeque<ConnectionId>,
    resets: VecDeque<(SocketAddr, SocketAddr, Header)>,
    /// Room for the payload of the segment that is being made.
    payload: Vec<u8>,
}

struct Entry {
    connection: Connection,
    local: SocketAddr,
    remote: SocketAddr,
    timer: Option<Instant>,
    /// The application is done with it: it goes as soon as it is closed.
    released: bool,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Host({} connections, listening on {:?})", self.entries.len(), self.listening)
    }
}

impl Host {
    /// A host without connections. All its connections have the same options, whose `mss_bytes` holds for IPv4; over
    /// IPv6 it is 20 bytes less.
    pub fn new(options: Options, pool: BufferPool, limits: HostLimits, random: Random) -> Self {
        let for_v6 = Options { mss_bytes: options.mss_bytes.saturating_sub(20).max(64), ..options.clone() };
        Host {
            options: [Arc::new(options), Arc::new(for_v6)],
            pool,
            limits,
            random,
            listening: BTreeSet::new(),
            by_pair: BTreeMap::new(),
            entries: BTreeMap::new(),
            next_id: 0,
            ready: BTreeSet::new(),
            changed: BTreeSet::new(),
            timers: BTreeSet::new(),
            backlog: VecDeque::new(),
            resets: VecDeque::new(),
            payload: Vec::new(),
        }
    }

    /// Takes connections to this port, at any address.
    pub fn listen(&mut self, port: u16) {
        self.listening.insert(port);
    }

    /// Takes connections to no port any more. Those that were accepted stay; those that were not are reset, as Linux
    /// does. `poll_packet` has to follow.
    pub fn stop_listening(&mut self) {
        self.listening.clear();
        for id in core::mem::take(&mut self.backlog) {
            if let Some(connection) = self.get_mut(id) {
                connection.abort(0);
            }
            self.release(id);
        }
    }

    /// Opens a connection from an address to a peer; port 0 picks one. `None` when the pair is in use, no port is
    /// free, or the host is full.
    pub fn connect(
        &mut self,
        now: Instant,
        mut local: SocketAddr,
        remote: SocketAddr,
    ) -> Option<ConnectionId> {
        if self.entries.len() >= self.limits.connections_max {
            return None;
        }
        if local.port() == 0 {
            local.set_port(self.free_port(local, remote)?);
        }
        if self.by_pair.contains_key(&(local, remote)) {
            return None;
        }
        let random = (self.random)();
        let connection = Connection::connect(now, self.options_for(remote), &self.pool, random);
        Some(self.insert(connection, local, remote))
    }

    fn options_for(&self, remote: SocketAddr) -> Arc<Options> {
        Arc::clone(&self.options[usize::from(remote.is_ipv6())])
    }

    fn free_port(&mut self, local: SocketAddr, remote: SocketAddr) -> Option<u16> {
        let count = u16::MAX - EPHEMERAL_FIRST;
        let first = (self.random)() as u16 % count;
        (0..count)
            .map(|step| EPHEMERAL_FIRST + ((u32::from(first) + u32::from(step)) % u32::from(count)) as u16)
            .find(|port| !self.by_pair.contains_key(&(SocketAddr::new(local.ip(), *port), remote)))
    }

    fn insert(&mut self, connection: Connection, local: SocketAddr, remote: SocketAddr) -> ConnectionId {
        let id = ConnectionId(self.next_id);
        self.next_id += 1;
        self.by_pair.insert((local, remote), id);
        let entry = Entry { connection, local, remote, timer: None, released: false };
        self.entries.insert(id, Box::new(entry));
        self.ready.insert(id);
        id
    }

    /// A connection that a stranger opened and whose handshake is done, or that carried data already.
    pub fn poll_accept(&mut self) -> Option<ConnectionId> {
        let place = self.backlog.iter().position(|id| {
            let entry = self.entries.get(id);
            entry.is_none_or(|entry| {
                entry.connection.state().may_write() && entry.connection.state() != crate::State::SynReceived
                    || entry.connection.readable() > 0
                    || entry.connection.is_closed()
            })
        })?;
        let id = self.backlog.remove(place)?;
        self.entries.contains_key(&id).then_some(id)
    }

    /// A connection that a packet or a timer touched since it was given last: it may be connected or closed now, or
    /// have something to read or room to write. The application's own calls do not count.
    pub fn poll_changed(&mut self) -> Option<ConnectionId> {
        self.changed.pop_first()
    }

    /// The connection between two addresses that is not closed.
    pub fn find(&self, local: SocketAddr, remote: SocketAddr) -> Option<ConnectionId> {
        self.by_pair.get(&(local, remote)).copied()
    }

    /// The connections that are not closed, with their local and remote addresses.
    pub fn open_connections(&self) -> impl Iterator<Item = (SocketAddr, SocketAddr, ConnectionId)> + '_ {
        self.by_pair.iter().map(|((local, remote), id)| (*local, *remote, *id))
    }

    /// A connection, to look at.
    pub fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.entries.get(&id).map(|entry| &entry.connection)
    }

    /// A connection, to write, read and so on. `poll_packet` has to follow.
    pub fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.ready.insert(id);
        self.entries.get_mut(&id).map(|entry| &mut entry.connection)
    }

    /// The local and the remote address of a connection.
    pub fn addresses(&self, id: ConnectionId) -> Option<(SocketAddr, SocketAddr)> {
        self.entries.get(&id).map(|entry| (entry.local, entry.remote))
    }

    /// The application is done with a connection: it is forgotten when it is closed.
    pub fn release(&mut self, id: ConnectionId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.released = true;
            self.ready.insert(id);
        }
    }

    /// How many connections there are, in any state.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes a packet. What is damaged or not TCP is dropped.
    pub fn handle_packet(&mut self, now: Instant, packet: &[u8]) {
        if let Ok(parsed) = wire::parse(packet) {
            self.handle_parsed(now, &parsed);
        }
    }

    fn handle_parsed(&mut self, now: Instant, parsed: &Parsed<'_>) {
        let pair = (parsed.destination, parsed.source);
        if let Some(id) = self.by_pair.get(&pair).copied()
            && let Some(entry) = self.entries.get_mut(&id)
        {
            let connection = &mut entry.connection;
            let begins = connection.state() == crate::State::SynSent;
            let (their_next, our_una) = connection.expected();
            let near = if begins { SEQUENCE_BASE | u64::from(parsed.tcp.seq) } else { their_next };
            let header = parsed.tcp.expand((near, our_una), connection.window_shifts().1);
            connection.handle_segment(now, &header, parsed.payload, parsed.ecn);
            self.ready.insert(id);
            self.changed.insert(id);
            return;
        }
        let near = SEQUENCE_BASE | u64::from(parsed.tcp.seq);
        let header = parsed.tcp.expand((near, SEQUENCE_BASE), 0);
        let is_open = self.listening.contains(&parsed.destination.port());
        let is_syn = header.flags.syn && header.ack.is_none() && !header.flags.rst;
        if is_open && is_syn {
            self.open(now, parsed, &header);
        } else if let Some(reset) = reset_for(&header, parsed.payload.len())
            && self.resets.len() < RESETS_MAX
        {
            self.resets.push_back((parsed.destination, parsed.source, reset));
        }
    }

    /// A stranger's SYN. Beyond the bounds it is dropped, and the stranger tries again.
    fn open(&mut self, now: Instant, parsed: &Parsed<'_>, header: &Header) {
        let is_full = self.entries.len() >= self.limits.connections_max;
        if is_full || self.backlog.len() >= self.limits.backlog_max {
            return;
        }
        let random = (self.random)();
        let options = self.options_for(parsed.source);
        let accepted = Connection::accept(now, options, &self.pool, random, header, parsed.payload);
        if let Some(connection) = accepted {
            let id = self.insert(connection, parsed.destination, parsed.source);
            self.backlog.push_back(id);
        }
    }

    /// Appends the next packet that has to leave to `packet`; false when there is none.
    pub fn poll_packet(&mut self, now: Instant, packet: &mut Vec<u8>) -> bool {
        if let Some((local, remote, header)) = self.resets.pop_front() {
            wire::emit(local, remote, Ecn::NotEct, &TcpHeader::truncate(&header, 0), &[], packet);
            return true;
        }
        while let Some(id) = self.ready.first().copied() {
            let Some(entry) = self.entries.get_mut(&id) else {
                self.ready.remove(&id);
                continue;
            };
            self.payload.clear();
            if let Some(transmit) = entry.connection.poll_transmit(now, &mut self.payload) {
                let shift = entry.connection.window_shifts().0;
                let tcp = TcpHeader::truncate(&transmit.header, shift);
                wire::emit(entry.local, entry.remote, transmit.ecn, &tcp, &self.payload, packet);
                return true;
            }
            self.settle(id);
        }
        false
    }

    /// A connection has nothing to send: notes its timer, or forgets it.
    fn settle(&mut self, id: ConnectionId) {
        self.ready.remove(&id);
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let timer = entry.connection.poll_timeout();
        if entry.timer != timer {
            if let Some(timer) = entry.timer {
                self.timers.remove(&(timer, id));
            }
            entry.timer = timer;
            if let Some(timer) = timer {
                self.timers.insert((timer, id));
            }
        }
        if entry.connection.is_closed() {
            // The pair is free for a new connection at once; the entry waits for the application.
            let pair = (entry.local, entry.remote);
            if self.by_pair.get(&pair) == Some(&id) {
                self.by_pair.remove(&pair);
            }
            if entry.released {
                self.entries.remove(&id);
                self.changed.remove(&id);
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) has to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(timer, _)| *timer)
    }

    /// Handles the timers that are due. `poll_packet` has to follow.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((timer, id)) = self.timers.first().copied().filter(|(timer, _)| *timer <= now) {
            self.timers.remove(&(timer, id));
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.timer = None;
                entry.connection.handle_timeout(now);
                self.ready.insert(id);
                self.changed.insert(id);
            }
        }
    }
}
