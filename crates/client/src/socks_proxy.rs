//! An onion proxy for programs that speak SOCKS: a node with listeners, sessions of programs, and the circuits of an
//! [`OnionProxy`].
//!
//! 1. A program connects and says what it wants (`sessions`).
//! 2. Its request waits for a circuit that nobody else's isolation has, over a path that the
//!    [`Directory`] offers or that was given (`circuits`).
//! 3. BEGIN or RESOLVE goes out; what comes of it is the reply.
//! 4. Then bytes go both ways. What a program sends is read only as far as its circuit takes it at once, and what comes
//!    for it stays with the stream until its connection has credit, so that windows, XOFF and TCP hold back whoever
//!    sends too much. Nothing is queued here.
//!
//! It is a laboratory's proxy. It trusts every program that connects, keeps no guards beyond its life, and looks at no
//! families: nobody should browse with it.

mod circuits;
mod sessions;
#[cfg(test)]
mod tests;

use crate::circuit::OriginEvent;
use crate::path::{Directory, Guards, RelayName};
use crate::proxy::{CircuitNumber, OnionProxy, ProxyEvent};
use circuits::Circuits;
use core::convert::Infallible;
use heddle_proto::cell::measure::Measured;
use heddle_proto::channel::StreamTransport;
use heddle_proto::credit::HopCredit;
use heddle_proto::flow_control::FlowChoice;
use heddle_seam::language::Language;
use heddle_seam::node::{Input, Node, Output, SocketId};
use heddle_seam::rng::{Rng, Seed};
use heddle_seam::time::{Duration, Instant};
use sessions::Session;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Bytes that are read from a program at once: what 32 cells take, so that no stream has a circuit to itself.
const READ_LEN: usize = 32 * heddle_proto::cell::relay::DATA_LEN;
/// How often deadlines are looked at.
const TICK: Duration = Duration::from_secs(1);

/// The language of a [`SocksProxy`].
#[derive(Debug)]
pub enum SocksLanguage {}

impl Language for SocksLanguage {
    /// The network, as it is from now on.
    type Control = Arc<Directory>;
    type Event = SocksEvent;
    type Message = Infallible;
    type Job = Infallible;
}

/// What a proxy tells, for logs and for those who wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocksEvent {
    /// A circuit is there, over relays with these nicknames, which took so long.
    Built { circuit: u64, path: Vec<String>, took: Duration },
    /// A circuit ended, or was never built.
    Closed { circuit: u64, path: Vec<String>, why: String },
    /// What a relay of a circuit, with this nickname, counted of it since it was asked before.
    Measured { circuit: u64, relay: String, measured: Box<Measured> },
    /// No path can be chosen.
    NoPath { why: String },
}

/// What a proxy may hold, and how.
#[derive(Clone, Debug)]
pub struct SocksOptions {
    /// The relays of every circuit, the guard first; without, paths are chosen.
    pub path: Option<Vec<RelayName>>,
    /// Flow control between this end and the exit. Default: what both and the consensus have.
    pub flow_control: FlowChoice,
    /// Credit with guards that have it. Default: none.
    pub hop_credit: HopCredit,
    /// How often relays are asked what they count of circuits, in whole seconds. Default: never.
    pub measure_every: Option<Duration>,
    /// Whether the cells of circuits are to be datagrams, which their relays must allow. Default false.
    pub forward_datagrams: bool,
    /// Whether programs hear of success before the exit does, so that their first bytes travel with BEGIN. A stream
    /// that is refused then ends without a word. Default false.
    pub optimistic: bool,
    /// For how long after its first stream a circuit takes new ones (`MaxCircuitDirtiness`). Default 10 min.
    pub dirty_max: Duration,
    /// Connections of programs; more are reset as they come. Default 4,096.
    pub sessions_max: usize,
    /// Circuits, built or not; requests wait while there are so many with streams. Default 256.
    pub circuits_max: usize,
    /// Bytes that came for programs that do not read. Above it, the circuit with most of them ends. Default 128 MiB:
    /// 512 streams that hold what XOFF lets come, 500 cells.
    pub received_bytes_max: usize,
}

impl Default for SocksOptions {
    fn default() -> Self {
        SocksOptions {
            path: None,
            flow_control: FlowChoice::default(),
            hop_credit: HopCredit::None,
            measure_every: None,
            forward_datagrams: false,
            optimistic: false,
            dirty_max: Duration::from_secs(600),
            sessions_max: 4_096,
            circuits_max: 256,
            received_bytes_max: 128 << 20,
        }
    }
}

/// An onion proxy with a SOCKS port; see the module.
pub struct SocksProxy {
    proxy: OnionProxy,
    options: SocksOptions,
    directory: Option<Arc<Directory>>,
    guards: Guards,
    circuits: Circuits,
    /// At most [`SocksOptions::sessions_max`].
    sessions: BTreeMap<SocketId, Session>,
    /// Requests that wait for a circuit, the oldest first; each at most once.
    waiting: VecDeque<SocketId>,
    /// Whether something has changed for those that wait.
    unserved: bool,
    /// Sessions that may have something to send.
    ready: BTreeSet<SocketId>,
    outputs: VecDeque<Output<SocksLanguage>>,
    rng: Rng,
    /// The time of the last input.
    now: Instant,
    tick_at: Instant,
    measure_at: Instant,
    scratch: Box<[u8]>,
}

impl SocksProxy {
    /// A proxy whose channels are made by `transport`, which has no identity. It builds circuits once it hears of the
    /// network.
    pub fn new(transport: Box<dyn StreamTransport>, options: SocksOptions, seed: &Seed) -> Self {
        SocksProxy {
            proxy: OnionProxy::new(transport, Arc::default(), seed),
            options,
            directory: None,
            guards: Guards::default(),
            circuits: Circuits::default(),
            sessions: BTreeMap::new(),
            waiting: VecDeque::new(),
            unserved: false,
            ready: BTreeSet::new(),
            outputs: VecDeque::new(),
            rng: seed.child("paths", 0).rng(),
            now: Instant::ZERO,
            tick_at: Instant::ZERO,
            measure_at: Instant::ZERO,
            scratch: vec![0; READ_LEN].into_boxed_slice(),
        }
    }

    fn tell(&mut self, event: SocksEvent) {
        self.outputs.push_back(Output::Event(event));
    }

    /// What the circuits' proxy tells. True when there was something.
    fn take_events(&mut self) -> bool {
        let events = self.proxy.take_events();
        let any = !events.is_empty();
        for event in events {
            match event {
                ProxyEvent::Begun(number) => self.circuits.on_begun(number),
                ProxyEvent::Built(number) => self.on_built(number),
                ProxyEvent::CircuitClosed(number, why) => self.lose_refused(number, &why.to_string()),
                ProxyEvent::ChannelClosed(why) => self.lose_gone(&why.to_string()),
                ProxyEvent::Answered(number, event) => self.on_stream_event(number, event),
                // It makes no exchanges of its own.
                ProxyEvent::Connected(_) | ProxyEvent::Ended(..) => {}
            }
        }
        any
    }

    fn on_stream_event(&mut self, number: CircuitNumber, event: OriginEvent) {
        match event {
            OriginEvent::Connected { stream, .. } => self.on_stream_open(number, stream),
            OriginEvent::Readable { stream } => self.ready.extend(self.circuits.session(number, stream)),
            OriginEvent::Ended { stream, end } => self.on_stream_end(number, stream, end.reason),
            OriginEvent::Resolved { stream, resolved } => self.on_resolved(number, stream, &resolved),
            OriginEvent::Measured { hop, measured } => self.on_measured(number, hop, measured),
            OriginEvent::Joined { .. }
            | OriginEvent::Truncated { .. }
            | OriginEvent::Forwarding
            | OriginEvent::Closed(_) => {}
        }
    }

    fn tick(&mut self) {
        if self.now < self.tick_at {
            return;
        }
        self.tick_at = self.now + TICK;
        self.expire_circuits();
        // Circuits that have lost their last stream by this end with the next tick, when that stream's END has left.
        self.expire_sessions();
        self.measure_circuits();
    }

    /// Ends the circuit that holds most, when programs do not read what came for them.
    fn bound_received(&mut self) {
        while let (bytes, Some(most)) = self.proxy.received_bytes() {
            if bytes <= self.options.received_bytes_max {
                return;
            }
            self.proxy.close_circuit(most);
            self.lose(most, "programs do not read what came for them");
        }
    }
}

impl Node<SocksLanguage> for SocksProxy {
    fn recv_buf(&mut self, socket: SocketId) -> &mut [u8] {
        if socket.is_dialled() {
            return Node::<SocksLanguage>::recv_buf(&mut self.proxy, socket);
        }
        let len = self.readable_len(socket);
        &mut self.scratch[..len]
    }

    fn handle_input(&mut self, now: Instant, input: Input<SocksLanguage>) {
        self.now = now;
        match input {
            Input::Control(directory) => {
                self.proxy.set_hop_credit(self.options.hop_credit);
                self.proxy.forward_datagrams(self.options.forward_datagrams);
                self.proxy.set_params(directory.params.clone(), self.options.flow_control);
                self.directory = Some(directory);
                self.unserved = true;
            }
            Input::Timeout => {
                self.unserved = true;
                self.proxy.handle_input(now, Input::<SocksLanguage>::Timeout);
            }
            Input::Accepted { socket, .. } => self.on_accepted(socket),
            Input::Read { socket, len } if !socket.is_dialled() => self.on_program_read(socket, len),
            Input::Writable { socket, bytes, .. } if !socket.is_dialled() => self.on_credit(socket, bytes),
            Input::Eof { socket } if !socket.is_dialled() => self.on_program_left(socket, true),
            Input::Failed { socket, .. } if !socket.is_dialled() => self.on_program_left(socket, false),
            input => self.proxy.handle_input(now, input),
        }
        self.take_events();
        self.bound_received();
        self.tick();
        self.serve();
    }

    fn poll_output(&mut self, now: Instant, buf: &mut Vec<u8>) -> Output<SocksLanguage> {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return output;
            }
            if let Some(socket) = self.ready.pop_first() {
                if self.send(now, socket, buf) {
                    return Output::Send { socket };
                }
                continue;
            }
            match Node::<SocksLanguage>::poll_output(&mut self.proxy, now, buf) {
                Output::Timeout(due) => {
                    if self.take_events() || self.read_again(now) {
                        self.serve();
                        continue;
                    }
                    let due = [due, self.next_read(now), self.next_build(), Some(self.tick_at)];
                    return Output::Timeout(due.into_iter().flatten().min());
                }
                output => return output,
            }
        }
    }
}
