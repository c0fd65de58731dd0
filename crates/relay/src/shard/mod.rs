//! A shard of a relay, as its driver sees it: sockets in, sockets out.
//!
//! Here sockets meet channels, channels meet links, and the operator's rates meet both. What the
//! cells mean is `core`'s business.
//!
//! Three own something: [`Carriers`] the channels with their sockets, [`Ports`] the endpoints, [`PairWork`] what is
//! known of pairs. What takes several of them is a method of [`Relay`]. As in `core` a file calls those of the rows
//! above it, and in its own row those to its left; nobody below calls what stands here.
//!
//! | what they do | files |
//! |---|---|
//! | own | `carrier`, `carriers`, `ports` |
//! | follow pairs | `pairs` |
//! | end channels | `ending` |
//! | free memory | `state`, `pressure` |
//! | begin channels and read them | `channels` |
//! | tell what there is | `stats`, `observe` |

mod carrier;
mod carriers;
mod channels;
mod ending;
mod observe;
mod pairs;
mod ports;
mod pressure;
mod state;
mod stats;

use crate::circuit_log::CircuitLog;
use crate::config::RelayConfig;
use crate::core::Core;
use crate::language::{Input, Output, RelayLanguage};
use crate::links::{Link, LinkKind};
use crate::message::{Control, Event};
use carriers::Carriers;
use heddle_proto::bucket::Direction;
use heddle_proto::channel::{ChannelError, StreamTransport};
use heddle_proto::endpoint::Endpoint;
use heddle_seam::datagrams::IdPrefix;
use heddle_seam::node::{Node, PortId, SocketId, StackId};
use heddle_seam::rng::Entropy;
use heddle_seam::stopwatch::Stopwatch;
use heddle_seam::time::{Duration, Instant, UnixTime};
use pairs::PairWork;
use ports::Ports;
use std::collections::VecDeque;

/// Bytes that are read from a socket at once.
const READ_LEN: usize = 64 * 1024;
const TICK: Duration = Duration::from_secs(1);

/// One shard of a relay.
pub struct Relay {
    core: Core,
    transport: Box<dyn StreamTransport>,
    ports: Ports,
    pairs: Option<PairWork>,
    carriers: Carriers,
    /// Memory that is used up is looked after when it is more than this: less could not be freed before.
    in_vain_above: usize,
    /// Last words of channels that are gone, each at most what one TLS alert takes.
    goodbyes: VecDeque<(SocketId, Vec<u8>)>,
    scratch: Box<[u8]>,
    wall: UnixTime,
    next_tick: Instant,
    /// Times what is done with each cell, if somebody wants to know.
    stopwatch: Stopwatch,
}

impl Relay {
    /// A shard. It answers CREATE cells once [`Control::OnionKeys`] has come.
    pub fn new(config: RelayConfig, transport: Box<dyn StreamTransport>, entropy: Box<dyn Entropy>) -> Self {
        Self::with_endpoints(config, transport, Vec::new(), entropy)
    }

    /// A shard that forms pairs. Each endpoint comes with its port and with the UDP port that is offered to peers for
    /// it: where datagrams reach this very shard. The first endpoint is preferred.
    pub fn with_endpoints(
        config: RelayConfig,
        transport: Box<dyn StreamTransport>,
        endpoints: Vec<(PortId, u16, Box<dyn Endpoint>)>,
        entropy: Box<dyn Entropy>,
    ) -> Self {
        let names = endpoints.iter().map(|(_, _, endpoint)| endpoint.transport().name);
        let mut core = Core::new(config, [transport.transport().name].into_iter().chain(names), entropy);
        let mut ports = Ports::new(endpoints);
        Relay {
            pairs: PairWork::new(&mut core, &mut ports),
            core,
            transport,
            ports,
            carriers: Carriers::default(),
            in_vain_above: 0,
            goodbyes: VecDeque::new(),
            scratch: vec![0; READ_LEN].into_boxed_slice(),
            wall: UnixTime::default(),
            next_tick: Instant::ZERO + TICK,
            stopwatch: Stopwatch::default(),
        }
    }

    /// The prefixes of datagrams that come on connections that are ready, by port.
    pub fn id_prefixes(&self) -> Vec<(PortId, IdPrefix)> {
        self.ports.id_prefixes().collect()
    }

    /// Whom the times of cells are told.
    pub fn set_stopwatch(&mut self, stopwatch: Stopwatch) {
        self.ports.set_stopwatch(stopwatch.clone());
        self.stopwatch = stopwatch;
    }

    /// Who hears what happens to each circuit: nobody, on a relay that carries people's traffic.
    pub fn follow_circuits(&mut self, log: Box<dyn CircuitLog>) {
        self.core.set_circuit_log(log);
    }

    /// Lets this shard and `with`, of the same relay, take from the same rates, so that their sum keeps to the limits
    /// of `with` and either may use them whole, and know the same clients.
    pub fn share_with(&mut self, with: &Relay) {
        self.core.share_with(&with.core);
    }

    fn on_timeout(&mut self, now: Instant) {
        if self.core.on_rates() {
            self.ports.stir_all();
        }
        self.ports.handle_timeout(now);
        self.on_pair_timeout(now);
        self.core.on_timeout();
        while let Some(link) = self.carriers.pop_due(now) {
            self.on_channel_timeout(now, link);
        }
        if self.next_tick <= now {
            self.next_tick = now + TICK;
            self.on_tick(now);
        }
    }

    fn on_tick(&mut self, now: Instant) {
        self.core.on_tick();
        self.carriers.iter_mut().for_each(|carrier| carrier.give_back(&mut self.core));
        self.end_stuck_channels(now);
        self.tell_retired(now);
        let unused = self.core.end_unused();
        unused.into_iter().for_each(|socket| self.end_unneeded(now, socket, ChannelError::Idle));
    }

    fn on_control(&mut self, now: Instant, control: Control) {
        match control {
            Control::Params(params) => {
                self.ports.set_congestion(params.congestion());
                self.core.set_params(params);
                self.tell_padding(now);
            }
            Control::Peers(peers) => self.set_listed(now, peers),
            Control::OnionKeys(keys) => self.core.set_onion_keys(keys),
            Control::Transport(transport) => self.transport = transport,
            Control::ProbeReachability { via, ourselves } => self.core.start_probe(via, ourselves),
            Control::AskAddress { authority, at } => self.core.ask_address(&authority, at),
            Control::ExitPolicy(policy) => self.core.set_exit_policy(policy),
            Control::Stats => {
                let stats = Box::new(self.stats());
                self.core.event(Event::Stats(stats));
            }
            Control::Observe { request, observees, index } => self.observe(now, request, observees, index),
            Control::Force { place, on } => self.core.force(place, on),
            Control::Drain => self.core.drain(),
            Control::Shutdown => {
                self.core.drain();
                self.close_connections(now);
                self.end_all_channels(now);
            }
        }
    }

    fn next_timeout(&mut self) -> Instant {
        [
            self.carriers.poll_timeout(),
            self.ports.poll_timeout(),
            self.pairs.as_ref().and_then(PairWork::poll_timeout),
            self.core.next_timeout(),
        ]
        .into_iter()
        .flatten()
        .fold(self.next_tick, Instant::min)
    }
}

impl Node<RelayLanguage> for Relay {
    fn recv_buf(&mut self, socket: SocketId) -> &mut [u8] {
        if let Some(stack) = socket.stack() {
            return self.ports.stack_recv_buf(stack, socket);
        }
        let len = match self.carriers.link_of(socket).and_then(|link| self.carriers.get(link)) {
            Some(carrier) if carrier.is_limited() => self.core.share(Direction::Read).max(1),
            Some(_) => READ_LEN,
            None => self.core.stream_recv_len(socket),
        };
        let len = len.min(self.scratch.len());
        &mut self.scratch[..len]
    }

    fn handle_input(&mut self, now: Instant, input: Input) {
        self.core.set_now(now);
        if let Some(stack) = stack_of(&input) {
            // What is said of a stack, every language says.
            if let Ok(input) = input.translate() {
                self.ports.on_stack(now, stack, input);
            }
            return self.relieve_pressure(now);
        }
        match input {
            Input::Timeout => self.on_timeout(now),
            Input::WallClock(wall) => {
                self.wall = wall;
                self.carriers.iter_mut().for_each(|carrier| carrier.channel_mut().handle_wall_clock(wall));
            }
            Input::Accepted { socket, local, peer } => self.on_accepted(now, socket, local, peer),
            Input::Connected { socket, local } => self.on_connected(now, socket, local),
            Input::Failed { socket, error } => match self.carriers.link_of(socket) {
                Some(link) => self.on_channel_failed(now, link, error),
                None if self.core.on_dial_failed(socket, None, None) => {}
                None => self.core.on_stream_failed(socket, error),
            },
            Input::Read { socket, len } => match self.carriers.link_of(socket) {
                Some(link) => self.on_channel_read(now, link, len),
                None => self.core.on_stream_read(socket, &self.scratch[..len]),
            },
            Input::Writable { socket, bytes, window_bytes } => match self.carriers.link_of(socket) {
                Some(link) => {
                    if let Some(carrier) = self.carriers.get_mut(link) {
                        carrier.on_writable(now, bytes, window_bytes);
                    }
                    self.core.list(link);
                }
                None => self.core.on_stream_writable(socket, bytes),
            },
            Input::Eof { socket } => match self.carriers.link_of(socket) {
                Some(link) => self.on_channel_eof(now, link),
                None => self.core.on_stream_eof(socket),
            },
            Input::Datagrams { port, datagrams } => {
                self.ports.on_datagrams(&mut self.core, now, port, datagrams)
            }
            // They were the stack's.
            Input::Packets { .. } | Input::StackRoom { .. } => {}
            Input::Unsent { socket, bytes } => self.core.on_unsent(socket, bytes),
            Input::Resolved { id, answer } => self.core.on_resolved(id, answer),
            Input::Computed { id, result } => self.on_computed(now, id, result),
            Input::FromShard { from, message } => self.core.on_shard_message(from, message),
            Input::Control(control) => self.on_control(now, control),
        }
        self.relieve_pressure(now);
    }

    fn poll_output(&mut self, now: Instant, buf: &mut Vec<u8>) -> Output {
        self.core.set_now(now);
        self.core.advance_probe();
        loop {
            self.core.pump_sessions();
            self.ports.apply_holds(&mut self.core);
            self.work_pairs(now);
            for (socket, error) in self.core.take_unneeded() {
                self.end_unneeded(now, socket, error);
            }
            if let Some(output) = self.core.next_output() {
                return output;
            }
            if let Some((socket, last_words)) = self.goodbyes.pop_front() {
                self.core.push(Output::Close { socket });
                if !last_words.is_empty() {
                    buf.extend_from_slice(&last_words);
                    return Output::Send { socket };
                }
            } else if let Some(socket) = self.core.next_stream_to_flush() {
                self.core.flush_stream(socket, buf);
                if !buf.is_empty() {
                    return Output::Send { socket };
                }
            } else if let Some(link) = self.core.next_listed() {
                match self.core.link(link).map(Link::kind) {
                    Some(LinkKind::Channel(_)) => {
                        let socket = self.carriers.flush(&mut self.core, now, link, buf);
                        if let Some(socket) = socket.filter(|_| !buf.is_empty()) {
                            return Output::Send { socket };
                        }
                    }
                    Some(LinkKind::Flows(_)) => self.ports.flush_link(&mut self.core, link),
                    Some(LinkKind::Shard(_)) => self.core.flush_crossing(link),
                    None => {}
                }
            } else if let Some(output) = self.ports.transmit(&mut self.core, now, buf) {
                return output;
            } else if let Some(port) = self.ports.next_unheard() {
                self.hear_port(now, port);
            } else if let Some(port) = self.ports.next_stirred() {
                self.ports.drain(&mut self.core, now, port);
            } else {
                return Output::Timeout(Some(self.next_timeout()));
            }
        }
    }
}

/// The stack of an endpoint that an input is about, if it is about one.
fn stack_of(input: &Input) -> Option<StackId> {
    match input {
        Input::Packets { stack, .. } | Input::StackRoom { stack, .. } => Some(*stack),
        Input::Accepted { socket, .. }
        | Input::Connected { socket, .. }
        | Input::Failed { socket, .. }
        | Input::Read { socket, .. }
        | Input::Writable { socket, .. }
        | Input::Unsent { socket, .. }
        | Input::Eof { socket } => socket.stack(),
        _ => None,
    }
}
