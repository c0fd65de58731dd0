//! Doing what the node says.

use super::EventLoop;
use crate::socket::{Fin, Flushed, State};
use crate::sys;
use heddle_seam::language::{Job, Language};
use heddle_seam::node::{Input, JobId, Node, Output, Query, ResolveError, ResolveId, SocketId};
use heddle_seam::time::Instant;
use std::net::SocketAddr;

/// Buffers kept for sockets to come.
const SPARE_MAX: usize = 64;

impl<L: Language, N: Node<L>> EventLoop<L, N> {
    /// Asks the node until it says its time-out.
    pub(super) fn poll_outputs(&mut self) {
        loop {
            if self.buf.capacity() == 0 {
                self.buf = self.spare.pop().unwrap_or_default();
            }
            match self.node.poll_output(self.now, &mut self.buf) {
                Output::Timeout(due) => {
                    self.timeout = due;
                    return;
                }
                output => self.carry_out(output),
            }
        }
    }

    /// A socket that broke is gone before the node hears of it, so outputs may name it: they do
    /// nothing.
    fn carry_out(&mut self, output: Output<L>) {
        match output {
            Output::Send { socket } => self.send(socket),
            Output::Connect { socket, to } => self.connect(socket, to),
            Output::Interest { socket, read, write } => self.set_interest(socket, read, write),
            Output::ShutdownWrite { socket } => {
                if let Some(entry) = self.sockets.get_mut(&socket)
                    && entry.fin == Fin::None
                {
                    entry.fin = Fin::Wanted;
                    self.queue_flush(socket);
                }
            }
            Output::Close { socket } => self.close(socket),
            Output::Abort { socket } => {
                if let Some(socket) = self.remove(socket) {
                    sys::reset_on_close(&socket.fd);
                }
            }
            Output::Resolve { id, query } => self.resolve(id, query),
            Output::StopResolving { id } => {
                if let Some(resolver) = &self.resolver {
                    resolver.give_up(id, &self.inbox.0);
                }
            }
            Output::Compute { id, job } => self.compute(id, job),
            Output::ToShard { to, message } => {
                let shard =
                    self.shards.get(usize::from(to.0)).expect("a node names only shards of its relay");
                shard.shard_message(self.shard, message);
            }
            Output::Datagrams { port, transmit } => self.send_datagrams(port, transmit),
            Output::Packets { stack, stride } => {
                self.stacks.send(stack, stride, &mut self.buf, &mut self.counters);
                self.buf.clear();
            }
            Output::Event(event) => (self.on_event)(event),
            Output::Timeout(due) => self.timeout = due,
        }
    }

    fn send(&mut self, id: SocketId) {
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.push(&mut self.buf);
            self.queue_flush(id);
        }
        self.buf.clear();
    }

    fn connect(&mut self, id: SocketId, to: SocketAddr) {
        self.counters.connects += 1;
        if let Some(stack) = id.stack() {
            return self.connect_on(stack, id, to);
        }
        let added =
            sys::connect(to, &self.options).and_then(|fd| self.add_socket(id, fd, to, State::Connecting));
        if let Err(error) = added {
            let error = sys::socket_error(error, to.is_ipv6());
            self.inputs.push_back(Input::Failed { socket: id, error });
        }
    }

    pub(super) fn set_interest(&mut self, id: SocketId, read: bool, write: bool) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        socket.grant_due |= write && !socket.want_write;
        socket.want_read = read;
        socket.want_write = write;
        if socket.broken && !read {
            return self.fail_broken(id);
        }
        self.queue_if_due(id);
    }

    /// What is pending leaves when the outputs are all polled; see [`Self::flush_all`].
    pub(super) fn close(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        if socket.state == State::Open && socket.is_pending() {
            socket.state = State::Closing;
            socket.want_read = false;
            socket.want_write = false;
            self.queue_flush(id);
        } else {
            self.remove(id);
        }
    }

    pub(super) fn queue_flush(&mut self, id: SocketId) {
        if let Some(socket) = self.sockets.get_mut(&id)
            && socket.state != State::Connecting
            && !socket.queued.flush
        {
            socket.queued.flush = true;
            self.flushes.push_back(id);
        }
    }

    /// Sends what the node handed over since the last time: one system call per socket, if the
    /// kernel has room.
    pub(super) fn flush_all(&mut self) {
        while let Some(id) = self.flushes.pop_front() {
            let Some(socket) = self.sockets.get_mut(&id) else { continue };
            socket.queued.flush = false;
            let before = self.counters.send_bytes;
            let flushed = socket.flush(&mut self.counters);
            if id.stack().is_some() {
                self.counters.stack_send_bytes += self.counters.send_bytes - before;
            }
            if let Some(bytes) = socket.unsent_news(flushed.is_err()) {
                self.inputs.push_back(Input::Unsent { socket: id, bytes });
            }
            match flushed {
                Ok(Flushed::All) => self.on_flushed(id),
                Ok(Flushed::Blocked) => {
                    if socket.state == State::Closing && socket.reset_due.is_none() {
                        let due = self.now + self.options.close_flush_max;
                        socket.reset_due = Some(due);
                        self.note_closing(due, id);
                    }
                }
                Err(error) => self.fail(id, error),
            }
        }
    }

    /// The node forgot the socket and counts it no more. Peers that read nothing would have them pile up here, so there
    /// are only so many, and the one that had most time gives way.
    fn note_closing(&mut self, due: Instant, id: SocketId) {
        self.closing.insert((due, id));
        if self.closing.len() > self.options.closing_max {
            self.reset_oldest_closing();
        }
    }

    fn on_flushed(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        if let Some(buffer) = socket.take_buffer()
            && self.spare.len() < SPARE_MAX
            && buffer.capacity() <= 2 * self.options.write_quantum_bytes
        {
            self.spare.push(buffer);
        }
        if socket.state == State::Closing {
            self.remove(id);
        } else {
            self.queue_if_due(id);
        }
    }

    fn resolve(&mut self, id: ResolveId, query: Query) {
        match &self.resolver {
            Some(resolver) => resolver.resolve(id, query, &self.inbox.0),
            None => self.inputs.push_back(Input::Resolved { id, answer: Err(ResolveError::Transient) }),
        }
    }

    fn compute(&mut self, id: JobId, job: L::Job) {
        let left = match &self.workers {
            Some(workers) => workers.submit(id, job, &self.inbox.0).err(),
            None => Some(job),
        };
        if let Some(job) = left {
            self.counters.jobs_inline += 1;
            self.inputs.push_back(Input::Computed { id, result: job.run() });
        }
    }
}
