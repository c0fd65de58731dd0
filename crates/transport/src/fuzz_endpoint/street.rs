//! Our side of a connection whose other end is made by hand, and what holds of it whatever that end says.

use super::{HIGHEST_BIT, PEER};
use crate::connections::circuits::FLOW_CELL_LEN;
use bytes::BytesMut;
use heddle_proto::cell::{BODY_LEN, CircId, Command};
use heddle_proto::endpoint::{ConnId, ConnectionEvent, ConnectionOptions, Endpoint};
use heddle_seam::datagrams::Datagrams;
use heddle_seam::time::{Duration, Instant};
use std::collections::BTreeSet;

/// More steps than this at one instant, or datagrams in one, mean that a side goes in circles.
const STEPS_PER_INSTANT_MAX: u32 = 20_000;
/// What an endpoint with a connection may hold before anything comes on it.
const BASE_BYTES: usize = 2 << 20;
/// How many bytes one that comes may take, with what it is kept in.
const KEEPING: usize = 64;
/// Cells that the relay sends at once.
const RELAY_CELLS: usize = 16;
/// After which nothing is left of a connection that is over.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// The other end, which dialled.
pub(crate) trait Neighbour {
    fn handle(&mut self, now: Instant, datagram: &[u8]);

    /// The next datagram to our side.
    fn poll_datagram(&mut self, now: Instant) -> Option<Vec<u8>>;

    fn poll_timeout(&mut self) -> Option<Instant>;
}

/// Both ends, without a wire between them.
pub(crate) struct Street<N> {
    pub(crate) now: Instant,
    pub(crate) neighbour: N,
    ours: Box<dyn Endpoint>,
    conn: ConnId,
    pub(crate) is_ready: bool,
    pub(crate) is_over: bool,
    /// Circuits that the neighbour has opened and nobody has ended.
    names: BTreeSet<u32>,
    /// Whether our relay takes cells.
    reads: bool,
    /// Bytes that came from the neighbour, and that our relay sent.
    came: usize,
    sent: usize,
    cells: usize,
}

impl<N: Neighbour> Street<N> {
    pub(crate) fn new(mut ours: Box<dyn Endpoint>, options: ConnectionOptions, neighbour: N) -> Self {
        let conn = ours.open(Instant::ZERO, options);
        Street {
            now: Instant::ZERO,
            neighbour,
            ours,
            conn,
            is_ready: false,
            is_over: false,
            names: BTreeSet::new(),
            reads: true,
            came: 0,
            sent: 0,
            cells: 0,
        }
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        let mut still = 0;
        loop {
            self.exchange_all();
            let next = [self.ours.poll_timeout(), self.neighbour.poll_timeout()].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            still = if next > self.now { 0 } else { still + 1 };
            assert!(still < STEPS_PER_INSTANT_MAX, "time stands still at {:?}", self.now);
            self.now = self.now.max(next);
            self.ours.handle_timeout(self.now);
        }
    }

    /// Carries what there is from each side to the other, until neither has anything more to say.
    pub(crate) fn exchange_all(&mut self) {
        let mut turns = 0;
        while self.exchange() {
            turns += 1;
            assert!(turns < STEPS_PER_INSTANT_MAX, "there is always more to say at {:?}", self.now);
        }
    }

    fn exchange(&mut self) -> bool {
        let (mut moved, mut out) = (0, Vec::new());
        while let Some(transmit) = self.ours.poll_transmit(self.now, &mut out) {
            moved += 1;
            assert!(moved < STEPS_PER_INSTANT_MAX, "our side does not stop sending at {:?}", self.now);
            out.chunks(transmit.stride).for_each(|datagram| self.neighbour.handle(self.now, datagram));
            out.clear();
        }
        while let Some(datagram) = self.neighbour.poll_datagram(self.now) {
            moved += 1;
            assert!(moved < STEPS_PER_INSTANT_MAX, "the neighbour does not stop sending at {:?}", self.now);
            self.came += datagram.len();
            let (stride, data) = (datagram.len(), BytesMut::from(&datagram[..]));
            self.ours.handle_datagrams(self.now, Datagrams { from: PEER, to: None, ecn: 0, stride, data });
        }
        self.read();
        moved > 0
    }

    /// Takes what came. A circuit begins with a CREATE2 and ends once, no cell comes of less than its bytes, and what
    /// is held comes of what was sent.
    fn read(&mut self) {
        while let Some((_, event)) = self.ours.poll_event(self.now) {
            match event {
                ConnectionEvent::Ready => self.is_ready = true,
                ConnectionEvent::Ended(_) => {
                    self.is_over = true;
                    self.names.clear();
                }
                _ => {}
            }
        }
        while self.reads
            && !self.is_over
            && let Some(cell) = self.ours.next_incoming(self.now)
        {
            let (name, command) = (cell.circ_id.get(), cell.command);
            if command == Command::DESTROY {
                assert!(self.names.remove(&name), "the relay hears the end of what it knows");
                continue;
            }
            assert!(name & HIGHEST_BIT != 0, "it is a dialler's circuit");
            assert_eq!(self.names.insert(name), command == Command::CREATE2, "{command:?} comes");
            self.cells += 1;
        }
        assert!(self.cells * FLOW_CELL_LEN <= self.came, "{} cells of {} bytes", self.cells, self.came);
        let held = self.ours.buffered_bytes() + self.ours.state_bytes();
        let max = BASE_BYTES + KEEPING * (self.came + self.sent);
        assert!(held <= max, "{held} bytes are held, of {} that came", self.came);
    }

    /// Our relay does something with one of the circuits.
    pub(crate) fn act(&mut self, what: u8) {
        if !self.is_ready || self.is_over {
            return;
        }
        let name = self.names.iter().nth(usize::from(what >> 3) % self.names.len().max(1)).copied();
        match (what % 8, name.and_then(CircId::new)) {
            (0..3, Some(name)) => {
                for _ in 0..RELAY_CELLS.min(self.ours.capacity(self.conn)) {
                    self.sent += FLOW_CELL_LEN;
                    self.ours.send(self.now, self.conn, name, Command::RELAY, &[0; BODY_LEN]);
                }
            }
            (3, Some(name)) => {
                self.names.remove(&name.get());
                self.ours.send(self.now, self.conn, name, Command::DESTROY, &[0; BODY_LEN]);
            }
            (hold @ (4 | 5), Some(name)) => self.ours.hold(self.conn, name, hold == 4),
            (6, _) => self.reads = !self.reads,
            _ => self.ours.probe(self.now, self.conn),
        }
        self.exchange_all();
    }

    /// Our relay gives the connection up: when that is forgotten nothing is held of its flows.
    pub(crate) fn end(mut self) {
        if !self.is_over {
            self.ours.close(self.now, self.conn);
        }
        self.is_over = true;
        self.run(FORGOTTEN);
        assert_eq!(self.ours.buffered_bytes(), 0, "it is forgotten");
    }
}

/// The next bytes of a script that are to be sent: how many of it, how many in all with zeros behind, and those.
pub(crate) fn contents(script: &mut &[u8]) -> Option<Vec<u8>> {
    const BYTES_MAX: usize = 1300;
    let [count, high, low, rest @ ..] = *script else {
        *script = &[];
        return None;
    };
    let (said, rest) = rest.split_at(usize::from(*count).min(rest.len()));
    *script = rest;
    let mut contents = said.to_vec();
    contents.resize(usize::from(u16::from_be_bytes([*high, *low])) % (BYTES_MAX + 1), 0);
    Some(contents)
}

/// How long a byte of a script lets pass: up to a second and a half, or as long as first cells are waited for.
pub(crate) fn pause(what: u8) -> Duration {
    const LONG: Duration = Duration::from_secs(11);
    match what >> 3 {
        31 => LONG,
        steps => Duration::from_millis(u64::from(steps) * 50),
    }
}
