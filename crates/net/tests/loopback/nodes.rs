//! Small nodes to drive: one that a test plays by hand, and some that run by themselves.

use heddle_net::{EventLoop, LoopHandle, Options, listen};
use heddle_relay::{Control, Input, Output, RelayLanguage};
use heddle_seam::datagrams::Transmit;
use heddle_seam::node::{Node, PortId, SocketId};
use heddle_seam::time::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a test waits before it calls itself stuck.
pub const STUCK: Duration = Duration::from_secs(60);

/// A node on its thread.
pub struct Running<N> {
    pub handle: LoopHandle<RelayLanguage>,
    /// The address of the one listener.
    pub addr: SocketAddr,
    thread: JoinHandle<io::Result<N>>,
}

impl<N: Node<RelayLanguage> + Send + 'static> Running<N> {
    pub fn start(node: N) -> Self {
        Self::start_with(node, Options::default(), |_| {})
    }

    pub fn start_with(
        node: N,
        options: Options,
        setup: impl FnOnce(&mut EventLoop<RelayLanguage, N>),
    ) -> Self {
        let mut event_loop = EventLoop::new(node, options).unwrap();
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = listener.local_addr().unwrap();
        event_loop.add_listener(listener).unwrap();
        setup(&mut event_loop);
        Running { handle: event_loop.handle(), addr, thread: thread::spawn(|| event_loop.run()) }
    }

    pub fn stop(self) -> N {
        self.handle.stop();
        self.join().unwrap()
    }

    pub fn join(self) -> io::Result<N> {
        self.thread.join().unwrap()
    }
}

/// What a test has the puppet do.
pub enum Say {
    Do(Output),
    Send(SocketId, Vec<u8>),
    Datagrams(PortId, Transmit, Vec<u8>),
}

/// What a puppet was told, with the bytes of a read.
#[derive(Debug)]
pub struct Told {
    pub now: Instant,
    pub input: Input,
    pub bytes: Vec<u8>,
}

/// A node that a test plays by hand: it passes every input on, and does what it is told to.
pub struct Puppet {
    script: Arc<Mutex<VecDeque<Say>>>,
    told: mpsc::Sender<Told>,
    outputs: VecDeque<Say>,
    timeout: Option<Instant>,
    buf: Vec<u8>,
}

/// The test's end of a [`Puppet`].
pub struct Strings {
    script: Arc<Mutex<VecDeque<Say>>>,
    told: mpsc::Receiver<Told>,
    pub running: Running<Puppet>,
}

impl Strings {
    pub fn start() -> Self {
        Self::start_with(Options::default(), |_| {})
    }

    pub fn start_with(options: Options, setup: impl FnOnce(&mut EventLoop<RelayLanguage, Puppet>)) -> Self {
        let script = Arc::new(Mutex::new(VecDeque::new()));
        let (sender, told) = mpsc::channel();
        let puppet = Puppet {
            script: script.clone(),
            told: sender,
            outputs: VecDeque::new(),
            timeout: None,
            buf: vec![0; 4096],
        };
        Strings { script, told, running: Running::start_with(puppet, options, setup) }
    }

    /// Has the puppet do all of this in one go.
    pub fn say(&self, says: impl IntoIterator<Item = Say>) {
        self.script.lock().unwrap().extend(says);
        self.running.handle.control(Control::Drain).unwrap();
    }

    pub fn output(&self, output: Output) {
        self.say([Say::Do(output)]);
    }

    pub fn interest(&self, socket: SocketId, read: bool, write: bool) {
        self.output(Output::Interest { socket, read, write });
    }

    /// The next input, other than the wall clock and our own calls.
    pub fn next(&self) -> Told {
        loop {
            let told = self.told.recv_timeout(STUCK).expect("the loop told nothing");
            match told.input {
                Input::WallClock(_) | Input::Control(_) => {}
                _ => return told,
            }
        }
    }

    /// Every input, the wall clock and our own calls too.
    pub fn next_of_all(&self) -> Told {
        self.told.recv_timeout(STUCK).expect("the loop told nothing")
    }

    pub fn expect_accepted(&self) -> SocketId {
        match self.next().input {
            Input::Accepted { socket, local, .. } => {
                assert_eq!(local, self.running.addr);
                socket
            }
            other => panic!("told {other:?}"),
        }
    }

    /// Bytes until there are `len` of them.
    pub fn expect_bytes(&self, socket: SocketId, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let told = self.next();
            assert!(
                matches!(told.input, Input::Read { socket: from, .. } if from == socket),
                "told {told:?}"
            );
            bytes.extend(told.bytes);
        }
        bytes
    }

    pub fn expect_writable(&self, socket: SocketId) -> usize {
        match self.next().input {
            Input::Writable { socket: which, bytes, .. } if which == socket => bytes,
            other => panic!("told {other:?}"),
        }
    }

    pub fn expect_eof(&self, socket: SocketId) {
        let told = self.next();
        assert!(matches!(told.input, Input::Eof { socket: which } if which == socket), "told {told:?}");
    }
}

impl Node<RelayLanguage> for Puppet {
    fn recv_buf(&mut self, _: SocketId) -> &mut [u8] {
        &mut self.buf
    }

    fn handle_input(&mut self, now: Instant, input: Input) {
        let bytes = match input {
            Input::Read { len, .. } => self.buf[..len].to_vec(),
            Input::Control(_) => {
                self.outputs.extend(self.script.lock().unwrap().drain(..));
                Vec::new()
            }
            Input::Timeout => {
                self.timeout = None;
                Vec::new()
            }
            _ => Vec::new(),
        };
        // The test may have ended first.
        let _ = self.told.send(Told { now, input, bytes });
    }

    fn poll_output(&mut self, _: Instant, buf: &mut Vec<u8>) -> Output {
        assert!(buf.is_empty(), "the driver empties the buffer between calls");
        loop {
            match self.outputs.pop_front() {
                Some(Say::Do(Output::Timeout(due))) => self.timeout = due,
                Some(Say::Do(output)) => return output,
                Some(Say::Send(socket, bytes)) => {
                    buf.extend(bytes);
                    return Output::Send { socket };
                }
                Some(Say::Datagrams(port, transmit, bytes)) => {
                    buf.extend(bytes);
                    return Output::Datagrams { port, transmit };
                }
                None => return Output::Timeout(self.timeout),
            }
        }
    }
}

/// Bytes that [`Relay`] holds for one direction at most.
pub const RELAY_BUFFER: usize = 64 * 1024;

/// Passes bytes on between two sockets: it dials `to` for each connection that it accepts. With no
/// `to`, it sends back what it gets. Back-pressure is all that keeps its buffers small.
pub struct Relay {
    to: Option<SocketAddr>,
    lanes: BTreeMap<SocketId, Lane>,
    outputs: VecDeque<Output>,
    dialled: u64,
    dirty: VecDeque<SocketId>,
    /// The most bytes that any buffer ever held.
    pub held_max: usize,
    pub failures: usize,
    recv: Vec<u8>,
}

/// What came from one socket and is to go to `other`.
struct Lane {
    other: SocketId,
    open: bool,
    held: VecDeque<u8>,
    /// What may be sent on this socket.
    credit: usize,
    eof: bool,
    fin_sent: bool,
    told: (bool, bool),
}

impl Relay {
    pub fn new(to: Option<SocketAddr>) -> Self {
        Relay {
            to,
            lanes: BTreeMap::new(),
            outputs: VecDeque::new(),
            dialled: 0,
            dirty: VecDeque::new(),
            held_max: 0,
            failures: 0,
            recv: vec![0; RELAY_BUFFER],
        }
    }

    fn lane(&mut self, socket: SocketId, other: SocketId, open: bool) {
        let lane = Lane {
            other,
            open,
            held: VecDeque::new(),
            credit: 0,
            eof: false,
            fin_sent: false,
            told: (false, false),
        };
        self.lanes.insert(socket, lane);
    }

    fn end(&mut self, socket: SocketId) {
        if let Some(lane) = self.lanes.remove(&socket)
            && lane.other != socket
            && self.lanes.remove(&lane.other).is_some()
        {
            self.outputs.push_back(Output::Abort { socket: lane.other });
        }
    }

    /// What both ends of a lane want now.
    fn update(&mut self, socket: SocketId) {
        let Some(lane) = self.lanes.get(&socket) else { return };
        let other = lane.other;
        for end in [socket, other] {
            let Some(lane) = self.lanes.get(&end) else { continue };
            let incoming = &self.lanes[&lane.other];
            let write = incoming.held.len() > lane.credit || (!incoming.held.is_empty() && lane.credit == 0);
            let interest = (lane.held.len() < RELAY_BUFFER && !lane.eof, write);
            if lane.open && interest != lane.told {
                self.lanes.get_mut(&end).unwrap().told = interest;
                let (read, write) = interest;
                self.outputs.push_back(Output::Interest { socket: end, read, write });
            }
            self.dirty.push_back(end);
        }
    }

    /// Moves what `socket` may send now into `buf`.
    fn transmit(&mut self, socket: SocketId, buf: &mut Vec<u8>) -> Option<Output> {
        let lane = self.lanes.get(&socket)?;
        let (from, credit, open) = (lane.other, lane.credit, lane.open);
        let incoming = self.lanes.get_mut(&from)?;
        let len = incoming.held.len().min(credit);
        if len > 0 {
            buf.extend(incoming.held.drain(..len));
            self.lanes.get_mut(&socket).unwrap().credit -= len;
            self.update(socket);
            return Some(Output::Send { socket });
        }
        let finished = incoming.eof && incoming.held.is_empty();
        let lane = self.lanes.get_mut(&socket)?;
        if open && finished && !lane.fin_sent {
            lane.fin_sent = true;
            let both = lane.eof && self.lanes[&from].fin_sent;
            if both || from == socket {
                self.lanes.remove(&socket);
                if self.lanes.remove(&from).is_some() {
                    self.outputs.push_back(Output::Close { socket: from });
                }
                return Some(Output::Close { socket });
            }
            return Some(Output::ShutdownWrite { socket });
        }
        None
    }
}

impl Node<RelayLanguage> for Relay {
    fn recv_buf(&mut self, socket: SocketId) -> &mut [u8] {
        let room = self.lanes.get(&socket).map_or(0, |lane| RELAY_BUFFER - lane.held.len());
        &mut self.recv[..room]
    }

    fn handle_input(&mut self, _: Instant, input: Input) {
        match input {
            Input::Accepted { socket, .. } => match self.to {
                None => {
                    self.lane(socket, socket, true);
                    self.update(socket);
                }
                Some(to) => {
                    let other = SocketId::dialled(self.dialled);
                    self.dialled += 1;
                    self.lane(socket, other, true);
                    self.lane(other, socket, false);
                    self.outputs.push_back(Output::Connect { socket: other, to });
                    self.update(socket);
                }
            },
            Input::Connected { socket, .. } => {
                self.lanes.get_mut(&socket).unwrap().open = true;
                self.update(socket);
            }
            Input::Failed { socket, .. } => {
                self.failures += 1;
                self.end(socket);
            }
            Input::Read { socket, len } => {
                let lane = self.lanes.get_mut(&socket).unwrap();
                lane.held.extend(&self.recv[..len]);
                self.held_max = self.held_max.max(lane.held.len());
                self.update(socket);
            }
            Input::Writable { socket, bytes, .. } => {
                self.lanes.get_mut(&socket).unwrap().credit = bytes;
                self.update(socket);
            }
            Input::Eof { socket } => {
                self.lanes.get_mut(&socket).unwrap().eof = true;
                self.update(socket);
            }
            _ => {}
        }
    }

    fn poll_output(&mut self, _: Instant, buf: &mut Vec<u8>) -> Output {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return output;
            }
            let Some(socket) = self.dirty.pop_front() else { return Output::Timeout(None) };
            if let Some(output) = self.transmit(socket, buf) {
                return output;
            }
        }
    }
}
