//! Stacks of a node: their packets, and the sockets on them.
//!
//! - Packets are taken as datagrams are: edge-triggered, once in each round, and always, whatever the node does with
//!   them.
//! - Sockets are made in advance by the stack's helper, [`READY_MAX`] of them. What the node may open is what is ready,
//!   so it waits for nobody, and hears of it when the helper is gone or descriptors are short. Once it is connected a
//!   socket on a stack is like any other.
//! - All sockets of a stack, those that are ready included, are at most
//!   [`stack_sockets_max`](crate::Options::stack_sockets_max). The node hears before that, so that it can tell others;
//!   what is accepted nevertheless is reset. The last places are for the first of a stack's ports.
//! - A device that is down takes nothing. Then the node may open nothing, and had better have nobody open anything.

use super::{EventLoop, READ_BATCH_BYTES, STACKS_MAX, TOKEN_STACKS};
use crate::counters::Counters;
use crate::socket::State;
use crate::stack::{self, Inbound, PARCEL_SOCKETS_MAX, Stack};
use crate::sys;
use heddle_seam::datagrams::Packets;
use heddle_seam::language::Language;
use heddle_seam::node::{Input, Node, SocketError, SocketId, StackId, StackOptions};
use heddle_seam::time::Instant;
use rustix::event::epoll::{self, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Sockets that wait to be connected: what begins at once, in one turn of the loop, when a relay is busiest.
const READY_MAX: usize = 256;
/// How long a helper is left alone that had too few descriptors.
const SHORT_PAUSE: Duration = Duration::from_secs(1);
/// Places of a stack that are for its first port alone, whoever connects at the others: so many, or an eighth of few.
const KEPT_MAX: usize = 64;

/// How long it takes to ask the kernel for the memory of all sockets on stacks, and in how many parts that is done.
const MEASURE_ALL: Duration = Duration::from_secs(1);
const MEASURE_PARTS: usize = 10;

#[derive(Default)]
pub(super) struct Stacks {
    all: Vec<Open>,
    /// Sockets on stacks, in the order in which the kernel is asked for their memory; those that are closed are passed
    /// over.
    to_measure: VecDeque<SocketId>,
    measure_due: Instant,
    /// Stacks whose packets are to be read, each at most once.
    pub readable: VecDeque<usize>,
    inbound: Inbound,
}

struct Open {
    id: StackId,
    stack: Stack,
    readable: bool,
    queued: bool,
    /// Made, and not connected.
    ready: Vec<OwnedFd>,
    /// Those that the helper was asked for and has not handed over.
    asked: usize,
    /// Those that the node knows.
    taken: usize,
    /// What the node may still open by what it was told, and whether it was told to have others open some.
    told_room: usize,
    told_accepts: bool,
    /// The helper, or this process, was out of descriptors: it is asked again by then, or when a socket closes.
    short_until: Option<Instant>,
    /// The port that has places where the others have none.
    first_port: Option<u16>,
    /// Whether the device refused the last packet because it is down, or gone.
    is_down: bool,
}

/// Sockets of a stack that are made in advance, of so many in all.
fn ready_max(sockets_max: usize) -> usize {
    READY_MAX.min(sockets_max / 5).max(1)
}

/// Sockets of a stack that are in use, likewise.
fn taken_max(sockets_max: usize) -> usize {
    sockets_max.saturating_sub(ready_max(sockets_max))
}

/// Of those, how many a port may have.
fn taken_max_at(sockets_max: usize, is_first: bool) -> usize {
    let taken_max = taken_max(sockets_max);
    if is_first { taken_max } else { taken_max - KEPT_MAX.min(taken_max / 8) }
}

impl Open {
    /// Asks the helper for as many as are missing, if they are worth a message.
    fn refill(&mut self, now: Instant, sockets_max: usize) {
        let missing = ready_max(sockets_max).saturating_sub(self.ready.len());
        let count = missing.min(PARCEL_SOCKETS_MAX);
        let is_worth_it = count == PARCEL_SOCKETS_MAX || self.ready.len() <= ready_max(sockets_max) / 2;
        let is_short = self.short_until.is_some_and(|until| now < until);
        if count > 0 && is_worth_it && self.asked == 0 && !is_short {
            match self.stack.ask_for_sockets(count) {
                true => self.asked = count,
                false => self.short_until = Some(now + SHORT_PAUSE),
            }
        }
    }

    /// What the node is to be told of room, if that is news. A little more than it knows of is none.
    fn room_news(&mut self, sockets_max: usize) -> Option<(usize, bool)> {
        let taken_max = taken_max(sockets_max);
        let room = if self.is_down { 0 } else { self.ready.len().min(taken_max.saturating_sub(self.taken)) };
        // Room comes back in larger pieces than it goes, so that others are not told of every circuit.
        let sixteenths = if self.told_accepts { 15 } else { 14 };
        let accepts = !self.is_down && self.taken < (taken_max * sixteenths / 16).max(1).min(taken_max);
        let step = if self.short_until.is_some() { 1 } else { (ready_max(sockets_max) / 8).max(1) };
        let has_risen = room >= self.told_room + step && self.told_room <= ready_max(sockets_max) / 2;
        let is_news = room < self.told_room || has_risen || accepts != self.told_accepts;
        if is_news {
            (self.told_room, self.told_accepts) = (room, accepts);
        }
        is_news.then_some((room, accepts))
    }
}

impl Stacks {
    fn of(&mut self, id: StackId) -> Option<&mut Open> {
        self.all.iter_mut().find(|open| open.id == id)
    }

    fn queue(&mut self, n: usize) {
        if let Some(open) = self.all.get_mut(n)
            && open.readable
            && !open.queued
        {
            open.queued = true;
            self.readable.push_back(n);
        }
    }

    /// A socket of a stack is closed.
    pub fn on_closed(&mut self, id: StackId) {
        if let Some(open) = self.of(id) {
            open.taken = open.taken.saturating_sub(1);
            open.short_until = None;
        }
    }

    /// Whether a connection may be accepted at a port of a stack.
    pub fn has_room(&mut self, id: StackId, port: u16, sockets_max: usize) -> bool {
        let has_room =
            |open: &mut Open| open.taken < taken_max_at(sockets_max, open.first_port == Some(port));
        self.of(id).is_some_and(has_room)
    }

    /// A connection was accepted on a stack.
    pub fn on_accepted(&mut self, id: StackId) {
        if let Some(open) = self.of(id) {
            open.taken += 1;
        }
    }

    /// A socket on a stack is watched from now on.
    pub fn note(&mut self, id: SocketId) {
        self.to_measure.push_back(id);
    }

    /// Hands a stack packets; what it does not take is lost.
    pub fn send(&mut self, id: StackId, stride: usize, packets: &mut [u8], counters: &mut Counters) {
        let Some(open) = self.of(id).filter(|_| !packets.is_empty()) else { return };
        let is_down = stack::send(&open.stack.device, stride, packets, counters);
        if is_down && !open.is_down {
            log::warn!("The device of a stack is down: its circuits stand still, and new ones take others");
        }
        open.is_down = is_down;
    }

    /// Reads what a stack sends, for one round. Returns how many bytes.
    fn recv(&mut self, n: usize, counters: &mut Counters, mut take: impl FnMut(StackId, Packets)) -> usize {
        let Some(open) = self.all.get_mut(n) else { return 0 };
        open.queued = false;
        let id = open.id;
        let (bytes, has_more) = self.inbound.recv(&open.stack.device, counters, |packets| take(id, packets));
        open.readable = has_more;
        self.queue(n);
        bytes
    }
}

impl<L: Language, N: Node<L>> EventLoop<L, N> {
    pub(super) fn add_open_stack(
        &mut self,
        id: StackId,
        options: &StackOptions,
        mut stack: Stack,
    ) -> io::Result<()> {
        let n = self.stacks.all.len();
        if n >= STACKS_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many stacks"));
        }
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&self.epoll, &stack.device, token(n, false), flags)?;
        if let Some(helper) = stack.helper_fd() {
            epoll::add(&self.epoll, helper, token(n, true), flags)?;
        }
        self.counters.epoll_ctls += 2;
        let listeners = std::mem::take(&mut stack.listeners);
        for (listener, port) in listeners.into_iter().zip(options.ports) {
            self.add_listener_of(listener, SocketAddr::new(options.addr.into(), *port), Some(id))?;
        }
        let ready = Vec::new();
        let (readable, queued, short_until) = (true, false, None);
        let (first_port, is_down) = (options.ports.first().copied(), false);
        let (asked, taken, told_room, told_accepts) = (0, 0, 0, true);
        self.stacks.all.push(Open {
            id,
            stack,
            readable,
            queued,
            ready,
            asked,
            taken,
            told_room,
            told_accepts,
            short_until,
            first_port,
            is_down,
        });
        self.stacks.queue(n);
        // It may open none until some are ready.
        self.inputs.push_back(Input::StackRoom { stack: id, sockets: 0, accepts: true });
        Ok(())
    }

    pub(super) fn on_device_event(&mut self, n: usize) {
        if let Some(open) = self.stacks.all.get_mut(n) {
            open.readable = true;
        }
        self.stacks.queue(n);
    }

    /// The helper has made sockets, or is gone.
    pub(super) fn on_helper_event(&mut self, n: usize) {
        let Some(open) = self.stacks.all.get_mut(n) else { return };
        while let Some(sockets) = open.stack.take_sockets() {
            open.short_until = (sockets.len() < open.asked).then_some(self.now + SHORT_PAUSE);
            open.asked = 0;
            open.ready.extend(sockets);
        }
        if open.stack.helper_fd().is_none() {
            open.asked = 0;
        }
    }

    /// At the end of a turn: has helpers make what is missing, and tells the node what it may open. All that it wanted
    /// to open is carried out by then.
    pub(super) fn tend_stacks(&mut self) {
        let sockets_max = self.options.stack_sockets_max;
        for open in &mut self.stacks.all {
            open.refill(self.now, sockets_max);
            if let Some((sockets, accepts)) = open.room_news(sockets_max) {
                self.inputs.push_back(Input::StackRoom { stack: open.id, sockets, accepts });
            }
        }
        self.measure_stacks();
    }

    /// Reads once from each stack that has something.
    pub(super) fn stack_round(&mut self) {
        let mut unpolled_bytes = 0;
        for _ in 0..self.stacks.readable.len() {
            let Some(n) = self.stacks.readable.pop_front() else { return };
            let (node, now, mut inputs) = (&mut self.node, self.now, 0);
            unpolled_bytes += self.stacks.recv(n, &mut self.counters, |stack, packets| {
                inputs += 1;
                node.handle_input(now, Input::Packets { stack, packets });
            });
            self.counters.inputs += inputs;
            if unpolled_bytes >= READ_BATCH_BYTES {
                self.settle();
                unpolled_bytes = 0;
            }
        }
    }

    /// Asks the kernel for the memory of some of the sockets on stacks, if it is time, and tells the node what is new.
    fn measure_stacks(&mut self) {
        if self.now < self.stacks.measure_due {
            return;
        }
        self.stacks.measure_due = self.now + MEASURE_ALL / MEASURE_PARTS as u32;
        for _ in 0..self.stacks.to_measure.len().div_ceil(MEASURE_PARTS) {
            let Some(id) = self.stacks.to_measure.pop_front() else { return };
            let Some(socket) = self.sockets.get_mut(&id) else { continue };
            self.stacks.to_measure.push_back(id);
            socket.kernel_bytes = sys::kernel_memory(&socket.fd);
            if let Some(bytes) = socket.unsent_news(false) {
                self.inputs.push_back(Input::Unsent { socket: id, bytes });
            }
        }
    }

    /// Connects one of the sockets that are ready.
    pub(super) fn connect_on(&mut self, stack: StackId, id: SocketId, to: SocketAddr) {
        let connect = |fd: OwnedFd| match rustix::net::connect(&fd, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
            Err(error) => Err(error),
        };
        let open = self.stacks.of(stack);
        let ready = open.and_then(|open| {
            let fd = open.ready.pop()?;
            open.taken += 1;
            open.told_room = open.told_room.saturating_sub(1);
            Some(fd)
        });
        let Some(fd) = ready else {
            let error = SocketError::ResourceLimit;
            return self.inputs.push_back(Input::Failed { socket: id, error });
        };
        if let Err(error) = connect(fd).and_then(|fd| self.add_socket(id, fd, to, State::Connecting)) {
            self.stacks.on_closed(stack);
            let error = sys::socket_error(error, false);
            self.inputs.push_back(Input::Failed { socket: id, error });
        }
    }
}

/// Of the device of stack `n`, or of its helper.
fn token(n: usize, is_helper: bool) -> epoll::EventData {
    epoll::EventData::new_u64(TOKEN_STACKS - 2 * n as u64 - u64::from(is_helper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ready_and_what_is_in_use_fit_into_all() {
        for sockets_max in [1, 4, 12, 100, 1000, 16 * 1024] {
            let (ready, taken) = (ready_max(sockets_max), taken_max(sockets_max));
            assert!((1..=READY_MAX).contains(&ready) && ready + taken == sockets_max, "{sockets_max}");
        }
        assert_eq!([taken_max(0), taken_max(12)], [0, 10]);
        let places = |sockets_max| [true, false].map(|is_first| taken_max_at(sockets_max, is_first));
        assert_eq!([0, 1, 20, 100_000].map(places), [[0, 0], [0, 0], [16, 14], [99_744, 99_680]]);
    }
}
