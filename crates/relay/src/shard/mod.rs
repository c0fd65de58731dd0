//! A shard of a relay, as its driver sees it: sockets in, sockets out.
//!
//! Here sockets meet channels, channels meet links, and the operator's rates meet both. What the
//! cells mean is `core`'s business.

mod carrier;
mod observe;
mod pairs;
mod ports;
mod pressure;
mod state;
mod stuck;
mod work;

use crate::config::RelayConfig;
use crate::core::Core;
use crate::keys::LinkKey;
use crate::language::{Input, Output, RelayLanguage};
use crate::links::{Link, LinkKind};
use crate::memory::Held;
use crate::message::{Control, Event};
use crate::stats::{CHANNELS, RelayStats};
use carrier::Carrier;
use core::net::SocketAddr;
use heddle_proto::bucket::Direction;
use heddle_proto::channel::{Channel, ChannelError, Incoming, Role, StreamTransport};
use heddle_proto::credit::CreditCell;
use heddle_proto::endpoint::Endpoint;
use heddle_seam::node::{Node, PortId, SocketError, SocketId, StackId};
use heddle_seam::rng::Entropy;
use heddle_seam::stopwatch::{Step, Stopwatch};
use heddle_seam::time::{Duration, Instant, UnixTime};
use pairs::PairWork;
pub(crate) use ports::Ports;
use slotmap::SecondaryMap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Bytes that are read from a socket at once.
const READ_LEN: usize = 64 * 1024;
const TICK: Duration = Duration::from_secs(1);

/// One shard of a relay.
pub struct Relay {
    core: Core,
    transport: Box<dyn StreamTransport>,
    ports: Ports,
    pairs: Option<PairWork>,
    carriers: SecondaryMap<LinkKey, Carrier>,
    links: BTreeMap<SocketId, LinkKey>,
    /// When each channel wants to be called; at most one entry a channel.
    timers: BTreeSet<(Instant, SocketId)>,
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
            pairs: PairWork::new(&mut core, &mut ports.list),
            core,
            transport,
            ports,
            carriers: SecondaryMap::new(),
            links: BTreeMap::new(),
            timers: BTreeSet::new(),
            goodbyes: VecDeque::new(),
            scratch: vec![0; READ_LEN].into_boxed_slice(),
            wall: UnixTime::default(),
            next_tick: Instant::ZERO + TICK,
            stopwatch: Stopwatch::default(),
        }
    }

    /// Whom the times of cells are told.
    pub fn set_stopwatch(&mut self, stopwatch: Stopwatch) {
        self.ports.set_stopwatch(stopwatch.clone());
        self.stopwatch = stopwatch;
    }

    /// Lets this shard and `with`, of the same relay, take from the same rates, so that their sum keeps to the limits
    /// of `with` and either may use them whole, and know the same clients.
    pub fn share_with(&mut self, with: &Relay) {
        self.core.share_with(&with.core);
    }

    /// Cells that wait in this shard.
    pub fn queued_cells(&self) -> u32 {
        self.core.queued_cells()
    }

    /// What this shard holds, counted afresh; it takes a look at every circuit.
    pub fn held(&self) -> Held {
        let flow_bytes = self.ports.held_bytes();
        Held { channels: self.carriers.len(), flow_bytes, ..self.core.held() }
    }

    /// What this shard has done and what waits in it. It takes a look at every circuit.
    pub fn stats(&self) -> RelayStats {
        let (flow_bytes, flow_state_bytes) =
            (self.ports.held_bytes() as u64, self.ports.state_bytes() as u64);
        RelayStats { flow_bytes, flow_state_bytes, ..self.core.stats() }
    }

    /// Circuits of this shard, those that cross to another counted in both.
    pub fn circuits(&self) -> usize {
        self.core.circuits_len()
    }

    fn on_accepted(&mut self, now: Instant, socket: SocketId, local: SocketAddr, peer: SocketAddr) {
        let Some(instead) = self.core.admit_channel(peer.ip()) else {
            return self.core.push(Output::Abort { socket });
        };
        instead.into_iter().for_each(|other| self.end_channel(now, other, ChannelError::Crowded));
        let channel = self.transport.accept(now, self.wall, local, peer);
        let link = self.add_carrier(socket, channel, Role::Responder, local, peer);
        self.core.begin_accepted(link);
    }

    fn on_connected(&mut self, now: Instant, socket: SocketId, local: SocketAddr) {
        let Some((target, peer)) = self.core.dial_under_way(socket) else {
            return self.core.on_stream_connected(socket);
        };
        match self.core.admit_dialled(peer.ip()) {
            Ok(instead) => {
                instead.into_iter().for_each(|other| self.end_channel(now, other, ChannelError::Crowded))
            }
            Err(_) => {
                self.core.push(Output::Abort { socket });
                self.core.on_dial_failed(socket, None, None);
                return;
            }
        }
        let channel = self.transport.dial(now, self.wall, &target, peer);
        let link = self.add_carrier(socket, channel, Role::Initiator, local, peer);
        self.core.begin_dialled(link);
    }

    fn add_carrier(
        &mut self,
        socket: SocketId,
        channel: Box<dyn Channel>,
        role: Role,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> LinkKey {
        let link = self.core.add_channel(socket, role, peer);
        let limited = self.core.is_limited(peer.ip());
        self.carriers.insert(link, Carrier::new(channel, socket, local, limited));
        self.links.insert(socket, link);
        self.core.list(link);
        link
    }

    /// Hands bytes to a channel and works off the cells they complete.
    fn on_channel_read(&mut self, now: Instant, link: LinkKey, len: usize) {
        let Some(carrier) = self.carriers.get_mut(link) else {
            return;
        };
        if carrier.limited {
            self.core.on_passed(Direction::Read, len);
        }
        carrier.has_passed = true;
        let mut used = 0;
        while used < len {
            let Some(carrier) = self.carriers.get_mut(link) else {
                return;
            };
            match carrier.channel.handle_read(now, &self.scratch[used..len]) {
                Ok(taken) => used += taken,
                Err(error) => return self.end_channel(now, link, error),
            }
            self.drain_channel(now, link);
        }
        self.count_handshake(now, link, len);
        self.start_work(link);
    }

    /// What came is counted if the channel still is not open, and may be more than its peer's share.
    fn count_handshake(&mut self, now: Instant, link: LinkKey, bytes: usize) {
        if self.core.count_handshake(link, bytes as u64).is_err() {
            self.end_channel(now, link, ChannelError::Crowded);
        }
    }

    /// Works off what a channel has for us.
    pub(crate) fn drain_channel(&mut self, now: Instant, link: LinkKey) {
        loop {
            let Some(carrier) = self.carriers.get_mut(link) else {
                return;
            };
            match carrier.channel.next_incoming(now) {
                Ok(Some(Incoming::Cell { circ_id, command, body })) => {
                    let lap = self.stopwatch.begin();
                    self.core.on_channel_cell(link, circ_id, command, body);
                    self.stopwatch.end(lap, Step::Cell);
                }
                Ok(Some(Incoming::Opened(opened))) => match self.core.on_opened(link, opened) {
                    Ok(instead) => {
                        for other in instead {
                            self.end_channel(now, other, ChannelError::Crowded);
                        }
                        self.agree_on_credit(now, link);
                        self.on_channel_opened(now, link);
                    }
                    Err(error) => return self.end_channel(now, link, error),
                },
                Ok(Some(Incoming::Vpadding { body })) => match CreditCell::parse(body) {
                    Some(Ok(cell)) => {
                        if let Some(answer) = self.core.on_credit_cell(link, cell) {
                            carrier.channel.send_vpadding(now, &answer.encode());
                        }
                    }
                    // A later version's: whoever needs to be understood says so in the agreement.
                    Some(Err(_)) => {}
                    None => {
                        if let Some(pairs) = &mut self.pairs {
                            pairs.on_vpadding(&self.core, link, body);
                        }
                    }
                },
                Ok(None) => break,
                Err(error) => return self.end_channel(now, link, error),
            }
        }
        self.core.list(link);
    }

    /// A channel is open: before any cell of a circuit it says whether we count these.
    fn agree_on_credit(&mut self, now: Instant, link: LinkKey) {
        if let Some(agreement) = self.core.agree_on_credit(link)
            && let Some(carrier) = self.carriers.get_mut(link)
        {
            carrier.channel.send_vpadding(now, &agreement.encode());
        }
    }

    /// A channel ends by a fault of its peer, or since it is not needed.
    pub(crate) fn end_channel(&mut self, now: Instant, link: LinkKey, error: ChannelError) {
        let Some(mut carrier) = self.remove_carrier(now, link) else {
            return;
        };
        carrier.channel.close();
        carrier.channel.handle_writable(now, carrier.writable);
        let mut last_words = Vec::new();
        carrier.channel.poll_transmit(now, &mut last_words);
        self.goodbyes.push_back((carrier.socket, last_words));
        self.forget_link(now, link, carrier.socket, error);
    }

    fn on_channel_eof(&mut self, now: Instant, link: LinkKey) {
        if let Some(carrier) = self.carriers.get_mut(link) {
            let error = carrier.channel.handle_eof(now).err().unwrap_or(ChannelError::PeerClosed);
            self.end_channel(now, link, error);
        }
    }

    /// A channel's socket is gone.
    fn on_channel_failed(&mut self, now: Instant, link: LinkKey, error: SocketError) {
        let Some(carrier) = self.remove_carrier(now, link) else {
            return;
        };
        self.forget_link(now, link, carrier.socket, ChannelError::Socket(error));
    }

    pub(crate) fn forget_link(&mut self, now: Instant, link: LinkKey, socket: SocketId, error: ChannelError) {
        let by_peer = matches!(error, ChannelError::PeerClosed | ChannelError::Socket(_));
        if let Some(relay) = self.core.close_channel(link, error) {
            self.on_channel_closed(now, relay, socket, by_peer);
        }
    }

    fn on_timeout(&mut self, now: Instant) {
        if self.core.on_rates() {
            self.ports.stir_all();
        }
        self.ports.handle_timeout(now);
        self.on_pair_timeout(now);
        self.core.on_timeout();
        while let Some(&(at, socket)) = self.timers.first().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, socket));
            let Some(&link) = self.links.get(&socket) else {
                continue;
            };
            let Some(carrier) = self.carriers.get_mut(link) else {
                continue;
            };
            carrier.timer = None;
            match carrier.channel.handle_timeout(now) {
                Ok(()) => {
                    self.core.list(link);
                    self.start_work(link);
                }
                Err(error) => self.end_channel(now, link, error),
            }
        }
        if self.next_tick <= now {
            self.next_tick = now + TICK;
            self.on_tick(now);
        }
    }

    fn on_tick(&mut self, now: Instant) {
        self.core.on_tick();
        self.give_back_buffers();
        self.end_stuck_channels(now);
        self.tell_retired(now);
        let unused = self.core.end_unused();
        unused.into_iter().for_each(|socket| self.end_unneeded(now, socket, ChannelError::Idle));
    }

    /// Ends a socket that nobody needs any more: of a channel, or one that is being dialled.
    fn end_unneeded(&mut self, now: Instant, socket: SocketId, error: ChannelError) {
        match self.links.get(&socket) {
            Some(&link) => self.end_channel(now, link, error),
            None => self.core.push(Output::Abort { socket }),
        }
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
                let dialled = self.core.give_up_dials();
                let connecting = dialled.into_iter().filter(|socket| !self.links.contains_key(socket));
                connecting.for_each(|socket| self.core.push(Output::Abort { socket }));
                let all: Vec<_> = self.carriers.keys().collect();
                all.into_iter().for_each(|link| self.end_channel(now, link, ChannelError::Shutdown));
            }
        }
    }

    /// Gives a channel the cells that it can send promptly, and its bytes to the driver.
    fn flush_channel(&mut self, now: Instant, link: LinkKey, out: &mut Vec<u8>) -> Option<SocketId> {
        let carrier = self.carriers.get_mut(link)?;
        let mut allowed = carrier.writable;
        if carrier.limited {
            allowed = allowed.min(self.core.share(Direction::Write));
        }
        self.core.before_write(link, allowed);
        carrier.channel.handle_writable(now, allowed);
        let cells_max = self.core.cells_of_choice();
        let cells = self.core.fill(link, carrier.channel.as_mut(), cells_max);
        self.core.count_cells_out(CHANNELS, cells);
        let more = carrier.channel.poll_transmit(now, out);
        carrier.has_passed |= !out.is_empty();
        carrier.writable = carrier.writable.saturating_sub(out.len());
        if carrier.limited {
            self.core.on_passed(Direction::Write, out.len());
        }
        let waiting = more || self.core.has_output(link);
        let throttled = waiting && allowed < carrier.writable + out.len();
        let share_taken = throttled && !out.is_empty();
        if share_taken || cells == cells_max {
            // The others come first; whether anything is left is seen then.
            self.core.list(link);
        }
        self.update_carrier(now, link, waiting && !throttled, throttled && !share_taken);
        self.carriers.get(link).map(|carrier| carrier.socket)
    }

    fn next_timeout(&mut self) -> Instant {
        let channel = self.timers.first().map(|(at, _)| *at);
        [
            channel,
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
        let len = match self.links.get(&socket).and_then(|link| self.carriers.get(*link)) {
            Some(carrier) if carrier.limited => self.core.share(Direction::Read).max(1),
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
                self.carriers.values_mut().for_each(|carrier| carrier.channel.handle_wall_clock(wall));
            }
            Input::Accepted { socket, local, peer } => self.on_accepted(now, socket, local, peer),
            Input::Connected { socket, local } => self.on_connected(now, socket, local),
            Input::Failed { socket, error } => match self.links.get(&socket) {
                Some(&link) => self.on_channel_failed(now, link, error),
                None if self.core.on_dial_failed(socket, None, None) => {}
                None => self.core.on_stream_failed(socket, error),
            },
            Input::Read { socket, len } => match self.links.get(&socket) {
                Some(&link) => self.on_channel_read(now, link, len),
                None => self.core.on_stream_read(socket, &self.scratch[..len]),
            },
            Input::Writable { socket, bytes, window_bytes } => match self.links.get(&socket) {
                Some(&link) => {
                    if let Some(carrier) = self.carriers.get_mut(link) {
                        (carrier.writable, carrier.granted) = (bytes, bytes);
                        carrier.stuck_since = carrier.interest.1.then_some(now);
                        carrier.channel.handle_window(window_bytes);
                    }
                    self.core.list(link);
                }
                None => self.core.on_stream_writable(socket, bytes),
            },
            Input::Eof { socket } => match self.links.get(&socket) {
                Some(&link) => self.on_channel_eof(now, link),
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
                        if let Some(socket) = self.flush_channel(now, link, buf).filter(|_| !buf.is_empty()) {
                            return Output::Send { socket };
                        }
                    }
                    Some(LinkKind::Flows(_)) => self.ports.flush_link(&mut self.core, now, link),
                    Some(LinkKind::Shard(_)) => self.core.flush_crossing(link),
                    None => {}
                }
            } else if let Some(output) = self.ports.transmit(&mut self.core, now, buf) {
                return output;
            } else if let Some(port) = self.ports.next_unheard() {
                self.hear_port(now, port);
            } else if let Some(port) = self.ports.next_stirred() {
                self.ports.drain(&mut self.core, now, port);
            } else if self.core.tell_forced() {
                continue;
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
