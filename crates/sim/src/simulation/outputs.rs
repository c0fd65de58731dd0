//! Doing what a node says.

use super::{ActorId, Due, EVENTS_PER_INSTANT_MAX, Simulation};
use crate::trace::Kind;
use heddle_seam::language::Language;
use heddle_seam::node::{Output, Query, ResolveId};
use heddle_seam::time::{Duration, Instant};

impl<L: Language> Simulation<L> {
    /// Asks a node what it wants until it names its time-out.
    pub(crate) fn poll_outputs(&mut self, actor: ActorId) {
        let now = self.now;
        for outputs in 0.. {
            assert!(outputs < EVENTS_PER_INSTANT_MAX, "a node never names its time-out at {now:?}");
            let mut buf = std::mem::take(&mut self.buf);
            buf.clear();
            let Some(node) = self.node(actor) else { return };
            let output = node.poll_output(now, &mut buf);
            self.buf = buf;
            match output {
                Output::Timeout(timeout) => return self.set_timer(actor, timeout),
                output => self.carry_out(actor, output),
            }
        }
    }

    pub(crate) fn set_timer(&mut self, actor: ActorId, timeout: Option<Instant>) {
        let timeout = timeout.map(|at| at.max(self.now));
        let timer = &mut self.actors[actor.0].timer;
        if *timer != timeout {
            *timer = timeout;
            if let Some(at) = timeout {
                self.queue.push(at, Due::Timer(actor, at));
            }
        }
    }

    pub(crate) fn carry_out(&mut self, actor: ActorId, output: Output<L>) {
        let mut record = |kind, subject, detail: &str| {
            self.trace.record(self.now, actor.0, kind, subject, 0, detail.as_bytes());
        };
        match output {
            Output::Send { socket } => self.send(actor, socket),
            Output::Connect { socket, to } => {
                record(Kind::Connect, socket.get(), &to.to_string());
                self.connect(actor, socket, to);
            }
            Output::Interest { socket, read, write } => {
                record(Kind::Interest, socket.get(), &format!("{read} {write}"));
                self.set_interest(actor, socket, read, write);
            }
            Output::ShutdownWrite { socket } => {
                record(Kind::ShutdownWrite, socket.get(), "");
                self.shutdown_write(actor, socket);
            }
            Output::Close { socket } => {
                record(Kind::Close, socket.get(), "");
                self.close(actor, socket);
            }
            Output::Abort { socket } => {
                record(Kind::Abort, socket.get(), "");
                self.abort(actor, socket);
            }
            Output::Resolve { id, query } => {
                record(Kind::Resolve, id.0, &format!("{query:?}"));
                self.resolve(actor, id, &query);
            }
            // Its resolver has places for all, and the answer comes all the same.
            Output::StopResolving { id } => record(Kind::StopResolving, id.0, ""),
            Output::Compute { id, job } => {
                record(Kind::Compute, id.0, &format!("{job:?}"));
                if let Some(job) = self.work(actor, id, job) {
                    let result = Box::new(self.run(job));
                    let state = &self.actors[actor.0];
                    let due = Due::Computed(actor, state.life, id, result);
                    self.queue.push(self.now + self.hosts[state.host.0].job_cost, due);
                }
            }
            Output::ToShard { to, message } => {
                record(Kind::ToShard, to.0.into(), &format!("{message:?}"));
                let state = &self.actors[actor.0];
                let host = &self.hosts[state.host.0];
                assert!(usize::from(to.0) < host.nodes(), "a node names only nodes of its relay");
                let receiver = ActorId(host.first.0 + usize::from(to.0));
                let due = Due::Message(receiver, self.actors[receiver.0].life, state.shard, message);
                self.queue.push(self.now + self.options.shard_latency, due);
            }
            Output::Packets { stack, stride } => self.receive_packets(actor, stack, stride),
            Output::Datagrams { port, transmit } => self.send_datagrams(actor, port, transmit),
            Output::Event(event) => {
                record(Kind::Event, 0, &format!("{event:?}"));
                let host = self.actors[actor.0].host;
                self.events.push((self.now, host, event));
            }
            Output::Timeout(timeout) => self.set_timer(actor, timeout),
        }
    }

    fn resolve(&mut self, actor: ActorId, id: ResolveId, query: &Query) {
        let (answer, delay) = self.answer(query);
        let due = Due::Resolved(actor, self.actors[actor.0].life, id, answer);
        let spread_us = self.options.resolve_spread.as_micros() as u64;
        let more = if spread_us == 0 { 0 } else { self.resolver.below(spread_us) };
        self.queue.push(self.now + delay + Duration::from_micros(more), due);
    }
}
