//! Clients that keep no rules: each has one channel at a time, on which it does [what it should not](Attack).

mod attack;
mod circuit;

pub use attack::Attack;

use circuit::{Cell, Circuit, bad_create};
use heddle_client::Hop;
use heddle_proto::cell::create::FAST_KEY_LEN;
use heddle_proto::cell::{BODY_LEN, CircId, Command};
use heddle_proto::channel::{Channel, Incoming, StreamTransport, Target};
use heddle_seam::language::{Language, Plain};
use heddle_seam::node::{Input, Node, Output, SocketId};
use heddle_seam::rng::{Rng, Seed};
use heddle_seam::time::{Instant, UnixTime};
use heddle_transport::Ciphers;
use heddle_transport::tls::TlsTransport;
use std::collections::{BTreeMap, VecDeque};

/// Circuits that are open at once of those that are sent random relay cells.
const CIRCUITS: u64 = 20;

/// How far an attack has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// What was to be done is done, as far as this side goes, or has begun if it goes on.
    pub has_struck: bool,
    /// A relay ended the circuit that the rule was broken on, or the channel.
    pub is_answered: bool,
    /// The connection is over.
    pub is_over: bool,
    pub cells_sent: u32,
    pub destroyed: u32,
}

/// A hostile client; see the module.
pub struct Hostile {
    transport: TlsTransport,
    rng: Rng,
    wall: UnixTime,
    sockets: u64,
    session: Option<Session>,
    outputs: VecDeque<Output<Plain>>,
    buf: Vec<u8>,
}

/// A connection, and what is done there.
struct Session {
    attack: Attack,
    target: Target,
    /// Over which circuits go.
    path: Vec<Hop>,
    /// Ids that circuits of others have.
    foreign: Vec<CircId>,
    socket: SocketId,
    channel: Option<Box<dyn Channel>>,
    writable: usize,
    sent: usize,
    cells_sent: u32,
    cells_max: u32,
    open: bool,
    over: bool,
    /// Circuits that were asked for, and whether they are open.
    circuits: BTreeMap<CircId, bool>,
    destroyed: u32,
    circuit: Option<Circuit>,
    reads: bool,
}

impl Hostile {
    pub fn new(seed: &Seed) -> Self {
        Hostile {
            transport: crate::transport(seed, Ciphers::default()),
            rng: seed.child("hostile", 0).rng(),
            wall: UnixTime::default(),
            sockets: 0,
            session: None,
            outputs: VecDeque::new(),
            buf: vec![0; 65_536],
        }
    }

    /// Attacks the first relay of a path, or those behind it, with at most so many cells where they are random; what
    /// was under way is given up. `foreign` are ids that circuits of others have on their channels to that relay.
    ///
    /// # Panics
    ///
    /// When the path is shorter than two relays and the attack wants a circuit, or the first relay has no address.
    pub fn begin(&mut self, attack: Attack, path: Vec<Hop>, foreign: Vec<CircId>, cells_max: u32) {
        self.stop();
        let target = path[0].target.clone();
        let socket = SocketId::dialled(self.sockets);
        self.sockets += 1;
        self.outputs.push_back(Output::Connect { socket, to: target.addrs[0] });
        self.session = Some(Session {
            attack,
            target,
            path,
            foreign,
            socket,
            channel: None,
            writable: 0,
            sent: 0,
            cells_sent: 0,
            cells_max,
            open: false,
            over: false,
            circuits: BTreeMap::new(),
            destroyed: 0,
            circuit: None,
            reads: true,
        });
    }

    /// Gives up what is under way. The kernel's FIN is said until it is heard, as a reset would not be.
    pub fn stop(&mut self) {
        if let Some(Session { socket, over: false, .. }) = self.session.take() {
            self.outputs.push_back(Output::Close { socket });
        }
    }

    /// How far the last attack has come.
    pub fn progress(&self) -> Progress {
        self.session.as_ref().map(Session::progress).unwrap_or_default()
    }
}

impl Session {
    fn progress(&self) -> Progress {
        let of_circuit = |is: fn(&Circuit) -> bool| self.circuit.as_ref().is_some_and(is);
        let has_struck = match self.attack {
            Attack::BreakOff(at) => self.over && self.sent >= at,
            Attack::Noise => self.sent > 0,
            _ if self.attack.hops().is_some() => of_circuit(Circuit::has_struck),
            _ => self.cells_sent > 0,
        };
        Progress {
            has_struck,
            is_answered: self.over || of_circuit(Circuit::is_over),
            is_over: self.over,
            cells_sent: self.cells_sent,
            destroyed: self.destroyed,
        }
    }

    fn on_open(&mut self, rng: &mut Rng) {
        self.open = true;
        self.reads = self.attack != Attack::NeverReads;
        if self.attack.hops().is_some() {
            let id = CircId::new(1 << 31 | 1).expect("it is not zero");
            self.circuit = Some(Circuit::new(id, self.attack, self.path.clone(), rng.split()));
        }
    }

    fn on_cell(&mut self, circ_id: CircId, command: Command, body: &[u8; BODY_LEN]) {
        if let Some(circuit) = &mut self.circuit {
            circuit.on_cell(command, body);
            self.reads &= circuit.reads();
            return;
        }
        match command {
            Command::CREATED_FAST => {
                self.circuits.insert(circ_id, true);
            }
            Command::DESTROY => {
                self.circuits.remove(&circ_id);
                self.destroyed += 1;
            }
            _ => {}
        }
    }

    fn next_cell(&mut self, rng: &mut Rng) -> Option<Cell> {
        let cell = match &mut self.circuit {
            Some(circuit) => circuit.poll_cell(),
            None if self.cells_sent < self.cells_max => self.random_cell(rng),
            None => None,
        };
        self.cells_sent += u32::from(cell.is_some());
        cell
    }

    fn random_cell(&mut self, rng: &mut Rng) -> Option<Cell> {
        let body = rng.array();
        let any = CircId::new(1 << 31 | (1 + rng.below(CIRCUITS) as u32))?;
        match self.attack {
            Attack::RandomCells => {
                let id = if rng.below(4) == 0 { CircId::new(1 + rng.next_u32() / 2)? } else { any };
                let commands = [1, 2, 3, 4, 5, 6, 9, 10, 11, 0, 8, 12, 77];
                let command = Command(commands[rng.below(commands.len() as u64) as usize]);
                Some((id, command, body))
            }
            Attack::RandomCircuits => match self.circuits.get(&any) {
                None => {
                    self.circuits.insert(any, false);
                    let mut create = [0; BODY_LEN];
                    create[..FAST_KEY_LEN].copy_from_slice(&body[..FAST_KEY_LEN]);
                    Some((any, Command::CREATE_FAST, create))
                }
                Some(true) if rng.below(2) == 0 => Some((any, Command::RELAY_EARLY, body)),
                Some(true) => Some((any, Command::RELAY, body)),
                Some(false) => Some((any, Command::CREATE2, body)),
            },
            Attack::GarbageCreates if rng.below(4) == 0 => Some((any, Command::RELAY, body)),
            Attack::GarbageCreates => {
                let (command, body) = bad_create(rng);
                Some((any, command, body))
            }
            Attack::ForeignIds => {
                let place = rng.below(self.foreign.len() as u64) as usize;
                let id = *self.foreign.get(place)?;
                let command = [Command::RELAY, Command::RELAY_EARLY, Command::DESTROY, Command::CREATED2];
                Some((id, command[rng.below(4) as usize], body))
            }
            _ => Some((CircId::new(1 << 31 | (1 + self.cells_sent))?, Command::CREATE_FAST, body)),
        }
    }

    /// Appends what is to be sent now.
    fn fill(&mut self, now: Instant, rng: &mut Rng, out: &mut Vec<u8>) {
        if self.attack == Attack::Noise {
            let mut noise = vec![0; self.writable.min(1000)];
            rng.fill(&mut noise);
            return out.extend(noise);
        }
        let Some(mut channel) = self.channel.take() else { return };
        channel.handle_writable(now, self.writable);
        while self.open && channel.capacity() > 0 {
            let Some((id, command, body)) = self.next_cell(rng) else { break };
            channel.send(now, id, command, &body);
        }
        channel.poll_transmit(now, out);
        self.channel = Some(channel);
        if let Attack::BreakOff(at) = self.attack
            && self.sent + out.len() >= at
        {
            out.truncate(at - self.sent);
            self.over = true;
        }
    }

    /// Bytes came.
    fn on_read(&mut self, now: Instant, bytes: &[u8], rng: &mut Rng) {
        let Some(mut channel) = self.channel.take() else { return };
        let mut used = 0;
        while used < bytes.len() && !self.over {
            match channel.handle_read(now, &bytes[used..]) {
                Ok(taken) => used += taken,
                Err(_) => self.over = true,
            }
            while let Ok(Some(incoming)) = channel.next_incoming(now) {
                match incoming {
                    Incoming::Opened(_) => self.on_open(rng),
                    Incoming::Cell { circ_id, command, body } => self.on_cell(circ_id, command, body),
                    Incoming::Vpadding { .. } => {}
                }
            }
        }
        self.channel = Some(channel);
    }

    fn interest(&self) -> Output<Plain> {
        Output::Interest { socket: self.socket, read: self.reads, write: true }
    }
}

impl Hostile {
    /// What is under way, if this socket is its own.
    fn session_of(&mut self, socket: SocketId) -> Option<&mut Session> {
        self.session.as_mut().filter(|session| session.socket == socket && !session.over)
    }

    fn on_connected(&mut self, now: Instant, socket: SocketId) {
        let Some(session) = self.session.as_mut().filter(|session| session.socket == socket) else { return };
        let peer = session.target.addrs[0];
        session.channel = Some(self.transport.dial(now, self.wall, &session.target, peer));
        self.outputs.push_back(session.interest());
    }

    fn on_read(&mut self, now: Instant, socket: SocketId, len: usize) {
        let Some(session) = self.session.as_mut().filter(|session| session.socket == socket) else { return };
        let was_reading = session.reads;
        session.on_read(now, &self.buf[..len], &mut self.rng);
        if session.over {
            self.outputs.push_back(Output::Close { socket });
        } else if was_reading != session.reads {
            self.outputs.push_back(session.interest());
        }
    }
}

impl<L: Language> Node<L> for Hostile {
    fn recv_buf(&mut self, _: SocketId) -> &mut [u8] {
        &mut self.buf
    }

    fn handle_input(&mut self, now: Instant, input: Input<L>) {
        match input {
            Input::WallClock(wall) => self.wall = wall,
            Input::Connected { socket, .. } => self.on_connected(now, socket),
            Input::Writable { socket, bytes, .. } => {
                self.session_of(socket).into_iter().for_each(|session| session.writable = bytes);
            }
            Input::Eof { socket } => {
                if let Some(session) = self.session_of(socket) {
                    session.over = true;
                    self.outputs.push_back(Output::Close { socket });
                }
            }
            Input::Failed { socket, .. } => {
                self.session_of(socket).into_iter().for_each(|session| session.over = true);
            }
            Input::Read { socket, len } => self.on_read(now, socket, len),
            _ => {}
        }
    }

    fn poll_output(&mut self, now: Instant, buf: &mut Vec<u8>) -> Output<L> {
        if let Some(output) = self.outputs.pop_front() {
            return output.widen();
        }
        if let Some(session) = self.session.as_mut().filter(|session| !session.over) {
            session.fill(now, &mut self.rng, buf);
            session.sent += buf.len();
            session.writable -= buf.len();
            let socket = session.socket;
            if session.over {
                self.outputs.push_back(Output::Close { socket });
            }
            if !buf.is_empty() {
                return Output::Send { socket };
            }
            if let Some(output) = self.outputs.pop_front() {
                return output.widen();
            }
        }
        Output::Timeout(None)
    }
}
