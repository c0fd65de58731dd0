//! The loop that runs one node on one thread.
//!
//! A turn, in order:
//!
//! 1. wait for the kernel or for another thread, until the node's time-out at the latest;
//! 2. note what the events say, accept connections, take the mail of other threads;
//! 3. up to [`ROUNDS`] times, and for [`TURN_READ_BYTES`]: what came to ports and stacks, one receive per readable
//!    socket, credit for writable ones, and all outputs of the node, whose bytes are sent once per socket;
//! 4. the time-out, if it has come.
//!
//! Several inputs go in before outputs are polled, so that a wakeup's cells share records and
//! system calls; [`READ_BATCH_BYTES`] bounds how much a node takes in before it is asked. No socket
//! is received from twice in between: it stops as soon as its node says so.

mod accept;
mod events;
mod outputs;
mod ports;
mod stacks;

use crate::clock;
use crate::counters::Counters;
use crate::dns::Resolver;
use crate::mailbox::LoopHandle;
use crate::options::Options;
use crate::port::PortInfo;
use crate::socket::{Socket, State};
use crate::stack::Stack;
use crate::sys;
use crate::workers::Workers;
use accept::Acceptor;
use foldhash::fast::FixedState;
use heddle_seam::datagrams::IdPrefix;
use heddle_seam::language::Language;
use heddle_seam::node::{Input, Node, PortId, ShardId, SocketId, StackId, StackOptions};
use heddle_seam::stopwatch::{Lap, Step, Stopwatch};
use heddle_seam::time::{Instant, UnixTime};
use ports::Ports;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use stacks::Stacks;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::time::Duration;

/// Receives per socket in one turn, before the kernel is asked for news.
const ROUNDS: usize = 4;
/// Bytes that a node takes in before its outputs are polled.
const READ_BATCH_BYTES: usize = 256 * 1024;
/// Bytes that are received from sockets in one turn: thousands that have much wait in line, and timers, ports and other
/// threads come first.
const TURN_READ_BYTES: usize = 4 * READ_BATCH_BYTES;
/// A turn that moved so many bytes, in and out together, is not followed by a rest: at a millisecond for each turn
/// that would be 32 MB/s, and buffers on the way might not hold what came meanwhile.
const MUCH_BYTES: u64 = 32 * 1024;
/// Events of one wait; the kernel keeps the rest.
const EVENTS_MAX: usize = 1024;

/// What an event is about: a socket's own number, or one of these.
const TOKEN_WAKE: u64 = u64::MAX;
/// Listener `n` has the token `TOKEN_LISTENERS - n`.
const TOKEN_LISTENERS: u64 = u64::MAX - 1;
const LISTENERS_MAX: usize = 64;
/// Socket `n` of the ports has the token `TOKEN_PORTS - n`.
const TOKEN_PORTS: u64 = TOKEN_LISTENERS - LISTENERS_MAX as u64;
const PORTS_MAX: usize = 16;
/// Sockets of ports: each may have a second one.
const PORT_SOCKETS_MAX: usize = 2 * PORTS_MAX;
/// The device of stack `n` has the token `TOKEN_STACKS - 2 n`, and its helper the one below.
const TOKEN_STACKS: u64 = TOKEN_PORTS - PORT_SOCKETS_MAX as u64;
const STACKS_MAX: usize = PORTS_MAX;

/// Runs a node over real sockets; see the module for what a turn does.
pub struct EventLoop<L: Language, N: Node<L>> {
    node: N,
    options: Options,
    inbox: Inbox<L>,
    epoll: OwnedFd,
    /// Numbers are never used again, so an event of a closed socket finds nothing here.
    sockets: HashMap<SocketId, Socket, FixedState>,
    acceptor: Acceptor,
    ports: Ports,
    stacks: Stacks,
    /// Sockets to receive from, to give credit to and to flush; each at most once in each.
    reads: VecDeque<SocketId>,
    /// Bytes that may still be received from sockets in this turn.
    read_left: usize,
    grants: VecDeque<SocketId>,
    flushes: VecDeque<SocketId>,
    /// Sockets that the node closed and that still send, and when they are reset; oldest first.
    closing: BTreeSet<(Instant, SocketId)>,
    /// Inputs that arose while outputs were carried out.
    inputs: VecDeque<Input<L>>,
    /// Lent to the node for the bytes that it sends.
    buf: Vec<u8>,
    /// Buffers of sockets that sent everything.
    spare: Vec<Vec<u8>>,
    /// The time of this turn.
    now: Instant,
    timeout: Option<Instant>,
    wall_clock_due: Instant,
    workers: Option<Workers<L>>,
    resolver: Option<Resolver>,
    shard: ShardId,
    shards: Vec<LoopHandle<L>>,
    on_event: Box<dyn FnMut(L::Event) + Send>,
    counters: Counters,
    stopwatch: Stopwatch,
    /// When the last turn began, and how many bytes had been moved before it.
    turn: (Instant, u64),
    /// Since when datagrams are here whose outputs are not all carried out, and how many they are.
    arrived: Option<(Lap, u64)>,
    stopping: bool,
}

impl<L: Language, N: Node<L>> EventLoop<L, N> {
    /// A loop for `node`. Fails when an option is invalid or the kernel gives no `epoll`.
    pub fn new(node: N, options: Options) -> io::Result<Self> {
        options.validate().map_err(|what| io::Error::new(io::ErrorKind::InvalidInput, what))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let handle = LoopHandle::new()?;
        handle.allow_handed(options.handed_max);
        // Edge-triggered, so that the loop never needs to read the eventfd to quieten it.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, handle.wake_fd(), epoll::EventData::new_u64(TOKEN_WAKE), flags)?;
        let now = clock::monotonic();
        Ok(EventLoop {
            node,
            options,
            inbox: Inbox(handle),
            epoll,
            sockets: HashMap::default(),
            acceptor: Acceptor::default(),
            ports: Ports::default(),
            stacks: Stacks::default(),
            reads: VecDeque::new(),
            read_left: TURN_READ_BYTES,
            grants: VecDeque::new(),
            flushes: VecDeque::new(),
            closing: BTreeSet::new(),
            inputs: VecDeque::new(),
            buf: Vec::new(),
            spare: Vec::new(),
            now,
            timeout: None,
            wall_clock_due: now,
            workers: None,
            resolver: None,
            shard: ShardId(0),
            shards: Vec::new(),
            on_event: Box::new(|_| {}),
            counters: Counters { epoll_ctls: 1, ..Counters::default() },
            stopwatch: Stopwatch::default(),
            turn: (now, 0),
            arrived: None,
            stopping: false,
        })
    }

    /// Reaches the loop from other threads.
    pub fn handle(&self) -> LoopHandle<L> {
        self.inbox.0.clone()
    }

    /// Runs jobs on these workers. Without, they run on the loop.
    pub fn set_workers(&mut self, workers: &Workers<L>) {
        self.workers = Some(workers.clone());
    }

    /// Asks this resolver. Without, every question fails.
    pub fn set_resolver(&mut self, resolver: Resolver) {
        self.resolver = Some(resolver);
    }

    /// Tells how long datagrams take. Without, nobody hears of it, and no clock is read for it.
    pub fn set_stopwatch(&mut self, stopwatch: Stopwatch) {
        self.stopwatch = stopwatch;
    }

    /// Calls `on_event` with each event of the node, on the loop's thread: it must not block.
    pub fn set_on_event(&mut self, on_event: impl FnMut(L::Event) + Send + 'static) {
        self.on_event = Box::new(on_event);
    }

    /// Accepts connections from `listener`, from the first turn on.
    pub fn add_listener(&mut self, listener: std::net::TcpListener) -> io::Result<()> {
        let addr = listener.local_addr()?;
        self.add_listener_of(listener, addr, None)
    }

    /// Gives the node a UDP port, from the first turn on; the first is `PortId(0)`.
    pub fn add_port(&mut self, socket: std::net::UdpSocket) -> io::Result<PortId> {
        self.add_udp_port(socket)
    }

    /// Has the kernel keep what has `prefix` apart from all else that comes to a port, in a buffer as long.
    ///
    /// # Errors
    ///
    /// When the port is plain, or the kernel or a sandbox refuses.
    pub fn keep_apart(&mut self, port: PortId, prefix: IdPrefix) -> io::Result<()> {
        self.split_udp_port(port, prefix)
    }

    /// Gives the node a stack, from the first turn on: `stack` was opened with these `options`.
    pub fn add_stack(&mut self, id: StackId, options: &StackOptions, stack: Stack) -> io::Result<()> {
        self.add_open_stack(id, options, stack)
    }

    /// What became of a port of [`Self::add_port`].
    pub fn port_info(&self, port: PortId) -> Option<PortInfo> {
        self.ports.info(port)
    }

    /// Runs until [`LoopHandle::stop`] and returns the node. Fails when the kernel refuses to wait,
    /// or when a worker or the resolver panicked.
    pub fn run(mut self) -> io::Result<N> {
        // Not a field, because an event may be a pointer to the compiler, which ties it to a thread.
        let mut events = Vec::with_capacity(EVENTS_MAX);
        self.fire_timers();
        while !self.stopping {
            self.turn(&mut events)?;
        }
        self.send_the_rest(&mut events)?;
        Ok(self.node)
    }

    fn turn(&mut self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        self.rest();
        let lap = self.stopwatch.begin();
        self.wait(events)?;
        self.stopwatch.end(lap, Step::Wait);
        let lap = self.stopwatch.begin();
        self.take_events(events);
        self.take_mail()?;
        self.read_left = TURN_READ_BYTES;
        for _ in 0..ROUNDS {
            self.hand_in_waiting();
            self.port_round();
            self.stack_round();
            self.read_round();
            self.grant_round();
            self.settle();
            if self.read_left == 0 {
                break;
            }
            if self.has_no_work() {
                break;
            }
        }
        self.fire_timers();
        self.tend_stacks();
        self.stopwatch.end(lap, Step::Turn);
        self.inbox.0.publish(&self.counters);
        Ok(())
    }

    /// Whether nothing is known that could be read, or given credit.
    fn has_no_work(&self) -> bool {
        let is_quiet = self.ports.readable.is_empty() && self.stacks.readable.is_empty();
        is_quiet && self.reads.is_empty() && self.grants.is_empty()
    }

    /// Sleeps until the next turn may begin, where the last one moved little and has left nothing to do.
    fn rest(&mut self) {
        let (began, moved_before) = self.turn;
        let moved = self.counters.moved_bytes() - moved_before;
        if moved == 0 || moved >= MUCH_BYTES || !self.has_no_work() || !self.inputs.is_empty() {
            return;
        }
        let rest = (began + self.options.turns_apart).since(clock::monotonic());
        if !rest.is_zero() {
            self.counters.rests += 1;
            // A signal may end it early, which does no harm.
            let _ = rustix::thread::nanosleep(&Timespec { tv_sec: 0, tv_nsec: rest.subsec_nanos().into() });
        }
    }

    /// Waits for events, and sets the time of the turn.
    fn wait(&mut self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        let timeout = match self.has_no_work() && self.inputs.is_empty() {
            true => self.next_timer().since(clock::monotonic()),
            false => Duration::ZERO,
        };
        self.counters.waits += 1;
        self.counters.sleeps += u64::from(!timeout.is_zero());
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        events.clear();
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.counters.events += events.len() as u64;
        self.now = clock::monotonic();
        self.turn = (self.now, self.counters.moved_bytes());
        Ok(())
    }

    /// The earliest time at which something is due.
    fn next_timer(&self) -> Instant {
        let closing = self.closing.first().map(|(due, _)| *due);
        let timers = [self.timeout, closing, self.acceptor.paused_until];
        timers.into_iter().flatten().fold(self.wall_clock_due, Instant::min)
    }

    fn fire_timers(&mut self) {
        if self.acceptor.paused_until.is_some_and(|due| due <= self.now) {
            self.resume_accepting();
        }
        self.reset_overdue();
        if self.wall_clock_due <= self.now {
            self.wall_clock_due = self.now + self.options.wall_clock_every;
            // What the wall showed when this turn began, however long it has taken.
            let turn = clock::monotonic().since(self.now);
            let wall = clock::wall_clock().ns.saturating_sub(turn.as_nanos() as u64);
            self.inputs.push_back(Input::WallClock(UnixTime { ns: wall }));
        }
        if self.timeout.is_some_and(|due| due <= self.now) {
            self.timeout = None;
            self.inputs.push_back(Input::Timeout);
        }
        if !self.inputs.is_empty() {
            self.settle();
        }
    }

    /// Resets the closed sockets whose peers took too long to take what was pending.
    fn reset_overdue(&mut self) {
        while self.closing.first().is_some_and(|(due, _)| *due <= self.now) {
            self.reset_oldest_closing();
        }
    }

    fn reset_oldest_closing(&mut self) {
        if let Some((_, id)) = self.closing.pop_first()
            && let Some(socket) = self.remove(id)
        {
            sys::reset_on_close(&socket.fd);
        }
    }

    fn take_mail(&mut self) -> io::Result<()> {
        let mail = self.inbox.0.take();
        if let Some(what) = mail.fault {
            return Err(io::Error::other(what));
        }
        self.inputs.extend(mail.inputs);
        mail.handed.into_iter().for_each(|handed| self.adopt(handed, None));
        self.stopping |= mail.stop;
        if mail.close_listeners || mail.stop {
            self.acceptor.close();
        }
        Ok(())
    }

    /// Hands in what waits, asks the node for its outputs and sends its bytes. Inputs that arise
    /// from that wait for the next time, so that a node that always causes more cannot hold us here.
    fn settle(&mut self) {
        self.hand_in_waiting();
        self.poll_outputs();
        self.flush_all();
        if let Some((lap, datagrams)) = self.arrived.take() {
            self.stopwatch.end_for_each(lap, Step::Datapath, datagrams);
        }
    }

    fn hand_in_waiting(&mut self) {
        while let Some(input) = self.inputs.pop_front() {
            self.hand_in(input);
        }
    }

    fn hand_in(&mut self, input: Input<L>) {
        self.counters.inputs += 1;
        self.node.handle_input(self.now, input);
    }

    /// After the node's last turn: closed sockets still send what is pending.
    fn send_the_rest(&mut self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        self.inputs.clear();
        self.reads.clear();
        self.grants.clear();
        (self.ports, self.stacks) = (Ports::default(), Stacks::default());
        // The node is asked and told nothing more. What fell due for it would have every wait end at once.
        self.timeout = None;
        self.wall_clock_due = Instant::from_nanos(u64::MAX);
        self.reset_overdue();
        while !self.closing.is_empty() {
            self.wait(events)?;
            self.take_events(events);
            self.reads.clear();
            self.grants.clear();
            self.inputs.clear();
            self.flush_all();
            self.reset_overdue();
        }
        self.inbox.0.publish(&self.counters);
        Ok(())
    }

    /// Forgets a socket; dropping what this returns closes it.
    fn remove(&mut self, id: SocketId) -> Option<Socket> {
        let mut socket = self.sockets.remove(&id)?;
        if let Some(bytes) = socket.unsent_news(true) {
            self.inputs.push_back(Input::Unsent { socket: id, bytes });
        }
        self.counters.sockets_closed += 1;
        if let Some(stack) = id.stack() {
            self.stacks.on_closed(stack);
        }
        if let Some(due) = socket.reset_due {
            self.closing.remove(&(due, id));
        }
        // Its descriptor may be what accepting waits for.
        if let Some(due) = &mut self.acceptor.paused_until {
            *due = self.now;
        }
        Some(socket)
    }

    /// A socket broke: the node is told, unless it has closed the socket.
    fn fail(&mut self, id: SocketId, error: Errno) {
        if let Some(socket) = self.remove(id)
            && socket.state != State::Closing
        {
            let error = sys::socket_error(error, socket.peer.is_ipv6());
            self.inputs.push_back(Input::Failed { socket: id, error });
        }
    }
}

/// Lets the loops of one relay's shards, in order, hand messages to each other. At most
/// `messages_max` wait for a shard, which is the sum of the credits that it gave to the others.
/// Whichever of them has a listener deals out what it accepts, to each loop in turn.
pub fn link_shards<L: Language, N: Node<L>>(loops: &mut [EventLoop<L, N>], messages_max: usize) {
    let handles: Vec<LoopHandle<L>> = loops.iter().map(EventLoop::handle).collect();
    for (n, event_loop) in loops.iter_mut().enumerate() {
        event_loop.inbox.0.allow_shard_messages(messages_max);
        event_loop.shard = ShardId(u16::try_from(n).expect("a relay has fewer than 65,536 shards"));
        event_loop.shards.clone_from(&handles);
    }
}

/// The loop's end of its mailbox, which takes nothing more when the loop is gone.
struct Inbox<L: Language>(LoopHandle<L>);

impl<L: Language> Drop for Inbox<L> {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_seam::language::Plain;
    use heddle_seam::node::Output;
    use std::collections::HashSet;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    struct Idle;

    impl Node<Plain> for Idle {
        fn recv_buf(&mut self, _: SocketId) -> &mut [u8] {
            &mut []
        }

        fn handle_input(&mut self, _: Instant, _: Input<Plain>) {}

        fn poll_output(&mut self, _: Instant, _: &mut Vec<u8>) -> Output<Plain> {
            Output::Timeout(None)
        }
    }

    /// Takes everything, and knows in which order.
    struct Reader {
        buf: Vec<u8>,
        reads: Vec<(SocketId, usize)>,
    }

    impl Node<Plain> for Reader {
        fn recv_buf(&mut self, _: SocketId) -> &mut [u8] {
            &mut self.buf
        }

        fn handle_input(&mut self, _: Instant, input: Input<Plain>) {
            if let Input::Read { socket, len } = input {
                self.reads.push((socket, len));
            }
        }

        fn poll_output(&mut self, _: Instant, _: &mut Vec<u8>) -> Output<Plain> {
            Output::Timeout(None)
        }
    }

    #[test]
    fn sockets_that_have_much_take_turns_and_hold_up_nothing_else() {
        const SOCKETS: u64 = 60;
        const BYTES_EACH: usize = 100_000;
        let node = Reader { buf: vec![0; 64 * 1024], reads: Vec::new() };
        let mut event_loop = EventLoop::new(node, Options::default()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let clients: Vec<TcpStream> = (0..SOCKETS)
            .map(|n| {
                let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let (fd, peer) = listener.accept().unwrap();
                fd.set_nonblocking(true).unwrap();
                let id = SocketId::accepted(n);
                event_loop.add_socket(id, fd.into(), peer, State::Open).unwrap();
                event_loop.set_interest(id, true, false);
                client.write_all(&vec![0; BYTES_EACH]).unwrap();
                client
            })
            .collect();
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut before = 0;
        while before < SOCKETS as usize * BYTES_EACH {
            event_loop.turn(&mut events).unwrap();
            let bytes = event_loop.node.reads.iter().map(|(_, len)| len).sum::<usize>();
            assert!(bytes - before < TURN_READ_BYTES + 64 * 1024, "{} bytes in a turn", bytes - before);
            before = bytes;
        }
        let first: HashSet<SocketId> =
            event_loop.node.reads.iter().take(SOCKETS as usize).map(|(id, _)| *id).collect();
        assert_eq!(first.len(), clients.len(), "each is read once before one is read again");
    }

    /// More than the kernel takes of a peer that reads nothing.
    const PENDING: usize = 64 << 20;

    /// A socket that the node closed, with bytes that its peer does not take.
    fn close_stuck(event_loop: &mut EventLoop<Plain, Idle>, listener: &TcpListener, n: u64) -> TcpStream {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (fd, peer) = listener.accept().unwrap();
        fd.set_nonblocking(true).unwrap();
        let id = SocketId::accepted(n);
        event_loop.add_socket(id, fd.into(), peer, State::Open).unwrap();
        let socket = event_loop.sockets.get_mut(&id).unwrap();
        socket.credit = PENDING;
        socket.push(&mut vec![0; PENDING]);
        event_loop.close(id);
        event_loop.flush_all();
        client
    }

    #[test]
    fn the_wall_clock_wakes_nobody_while_closed_sockets_send_the_rest() {
        let options = Options { close_flush_max: Duration::from_millis(300), ..Options::default() };
        let mut event_loop = EventLoop::new(Idle, options).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = close_stuck(&mut event_loop, &listener, 0);
        assert_eq!(event_loop.closing.len(), 1);

        event_loop.wall_clock_due = event_loop.now;
        let handle = event_loop.handle();
        event_loop.send_the_rest(&mut Vec::with_capacity(EVENTS_MAX)).unwrap();
        // The kernel may find a little more room now and then.
        assert!(event_loop.sockets.is_empty());
        assert!(handle.counters().waits < 100, "{:?}", handle.counters());
    }

    #[test]
    fn closed_sockets_that_peers_do_not_read_are_few_and_the_oldest_give_way() {
        let options = Options { closing_max: 3, ..Options::default() };
        let mut event_loop = EventLoop::new(Idle, options).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _clients: Vec<_> = (0..8).map(|n| close_stuck(&mut event_loop, &listener, n)).collect();
        let mut left: Vec<_> = event_loop.sockets.keys().copied().collect();
        left.sort();
        assert_eq!(left, [5, 6, 7].map(SocketId::accepted));
        assert_eq!(event_loop.closing.len(), 3);
        // Who breaks is not counted any more.
        event_loop.fail(SocketId::accepted(6), Errno::PIPE);
        assert_eq!(event_loop.closing.len(), 2);
    }
}
