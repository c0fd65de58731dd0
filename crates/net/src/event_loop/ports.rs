//! UDP ports of a node.
//!
//! They are edge-triggered like sockets, and always drained, whatever the node does with what came: a port has one
//! receive in each round, before the sockets have theirs, and its bytes count for the same batch.
//!
//! A port may have a second socket, to which the kernel gives what has the port's prefix. It is received from like
//! another port, so that each has its turn, and what comes there is the port's.
//!
//! Room to send is watched only while there is none: the kernel tells of it whenever a datagram has left, which would
//! wake the loop up once for each call that it made.

use super::{EventLoop, PORTS_MAX, READ_BATCH_BYTES, TOKEN_PORTS};
use crate::clock;
use crate::port::{Port, PortInfo, RecvBuffer};
use heddle_seam::datagrams::{IdPrefix, Transmit};
use heddle_seam::language::Language;
use heddle_seam::node::{Input, Node, PortId};
use heddle_seam::stopwatch::Step;
use rustix::event::epoll::{self, EventFlags};
use std::collections::VecDeque;
use std::io;
use std::net::UdpSocket;

#[derive(Default)]
pub(super) struct Ports {
    /// Socket `n` of the ports is the first of port `n`.
    all: Vec<Port>,
    /// Those after them are second ones, each with its port.
    beside: Vec<(PortId, Port)>,
    /// Sockets to receive from, each at most once.
    pub readable: VecDeque<usize>,
    /// Made with the first port.
    buffer: Option<RecvBuffer>,
}

impl Ports {
    pub fn info(&self, port: PortId) -> Option<PortInfo> {
        self.all.get(usize::from(port.0)).map(Port::info)
    }

    /// A socket of the ports, whose port it is, and where it receives.
    fn socket(&mut self, n: usize) -> Option<(&mut Port, PortId, &mut RecvBuffer)> {
        let (port, id) = match n.checked_sub(PORTS_MAX) {
            None => (self.all.get_mut(n)?, PortId(u8::try_from(n).ok()?)),
            Some(n) => self.beside.get_mut(n).map(|(id, port)| (port, *id))?,
        };
        Some((port, id, self.buffer.as_mut()?))
    }

    /// Puts a socket that may have something into the queue.
    fn queue(&mut self, n: usize) {
        if let Some((port, ..)) = self.socket(n)
            && port.readable
            && !port.queued
        {
            port.queued = true;
            self.readable.push_back(n);
        }
    }
}

impl<L: Language, N: Node<L>> EventLoop<L, N> {
    pub(super) fn add_udp_port(&mut self, socket: UdpSocket) -> io::Result<PortId> {
        let n = self.ports.all.len();
        let id = u8::try_from(n).ok().filter(|_| n < PORTS_MAX);
        let id = id.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "too many UDP ports"))?;
        let port = Port::new(socket, self.options.udp_offload)?;
        self.counters.epoll_ctls += 1;
        epoll::add(&self.epoll, port.socket(), token(n), flags(false))?;
        self.ports.buffer.get_or_insert_with(RecvBuffer::new);
        self.ports.all.push(port);
        self.ports.queue(n);
        Ok(PortId(id))
    }

    /// Gives a port a second socket, for what has `prefix`.
    pub(super) fn split_udp_port(&mut self, id: PortId, prefix: IdPrefix) -> io::Result<()> {
        let port = self.ports.all.get(usize::from(id.0));
        let has_two = self.ports.beside.iter().any(|(other, _)| *other == id);
        let port = port.filter(|_| !has_two);
        let port =
            port.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no such port, or twice"))?;
        let known = port.split(prefix)?;
        let n = PORTS_MAX + self.ports.beside.len();
        self.counters.epoll_ctls += 1;
        if let Err(error) = epoll::add(&self.epoll, known.socket(), token(n), flags(false)) {
            port.unsplit();
            return Err(error.into());
        }
        self.ports.beside.push((id, known));
        self.ports.queue(n);
        Ok(())
    }

    pub(super) fn on_port_event(&mut self, n: usize, flags: EventFlags) {
        let Some((port, ..)) = self.ports.socket(n) else { return };
        if flags.intersects(EventFlags::IN | EventFlags::ERR) {
            port.readable = true;
        }
        if flags.contains(EventFlags::OUT) {
            port.writable = true;
            port.flush(&mut self.counters);
        }
        self.ports.queue(n);
        self.watch_room(n);
    }

    /// Watches a port's room to send if there is none, and no longer if there is. A second socket sends nothing.
    fn watch_room(&mut self, n: usize) {
        let Some(port) = self.ports.all.get_mut(n) else { return };
        let watch = !port.writable;
        if watch == port.room_watched {
            return;
        }
        self.counters.epoll_ctls += 1;
        // Changing what is watched tells of room that there is by now. Where it fails the next send tries again.
        if epoll::modify(&self.epoll, port.socket(), token(n), flags(watch)).is_ok() {
            port.room_watched = watch;
        }
    }

    /// Receives once from each socket that has something.
    pub(super) fn port_round(&mut self) {
        let mut unpolled_bytes = 0;
        for _ in 0..self.ports.readable.len() {
            let Some(n) = self.ports.readable.pop_front() else { return };
            let Some((port, id, buffer)) = self.ports.socket(n) else { continue };
            port.queued = false;
            let (lap, before) = (self.stopwatch.begin(), self.counters.datagrams_received);
            let (node, now, mut inputs) = (&mut self.node, &mut self.now, 0);
            unpolled_bytes += port.recv(buffer, &mut self.counters, |datagrams| {
                // The clock is read after the datagrams. With an earlier time, a thread that was stopped in between
                // would measure a round trip that no packet can make, and congestion control would believe in it.
                if inputs == 0 {
                    *now = clock::monotonic();
                }
                inputs += 1;
                node.handle_input(*now, Input::Datagrams { port: id, datagrams });
            });
            self.counters.inputs += inputs;
            let received = self.counters.datagrams_received - before;
            if received > 0 {
                self.arrived.get_or_insert((lap, 0)).1 += received;
            }
            self.ports.queue(n);
            if unpolled_bytes >= READ_BATCH_BYTES {
                self.settle();
                unpolled_bytes = 0;
            }
        }
    }

    pub(super) fn send_datagrams(&mut self, port: PortId, transmit: Transmit) {
        let n = usize::from(port.0);
        let Some(port) = self.ports.all.get_mut(n) else {
            return self.buf.clear();
        };
        let (lap, datagrams) = (self.stopwatch.begin(), self.buf.len().div_ceil(transmit.stride.max(1)));
        port.send(transmit, &mut self.buf, &mut self.counters);
        self.stopwatch.end_shared(lap, Step::Send, datagrams as u64);
        self.watch_room(n);
    }
}

fn token(n: usize) -> epoll::EventData {
    epoll::EventData::new_u64(TOKEN_PORTS - n as u64)
}

fn flags(room: bool) -> EventFlags {
    let flags = EventFlags::IN | EventFlags::ET;
    if room { flags | EventFlags::OUT } else { flags }
}
