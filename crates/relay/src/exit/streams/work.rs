//! What the core does with streams: they begin, are answered, and end.

use super::{Asked, Leftover};
use crate::admission::StreamPlace;
use crate::core::Core;
use crate::dos::StreamAction;
use crate::exit::end::{End, Stream, StreamState};
use crate::keys::CircuitKey;
use crate::language::Output;
use core::net::{IpAddr, SocketAddr};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::relay::{RelayCommand, StreamId};
use heddle_proto::cell::stream::{Begin, BeginFlags, Connected, End as EndCell, EndReason, Host};
use heddle_seam::node::{Query, Resolution, ResolveError, ResolveId, SocketError, SocketId};
use heddle_seam::time::Duration;

/// How long a connection whose stream is over may take for what it is still owed.
const LEFTOVER_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a connection may take to open. The kernel would try for two minutes, but stock Tor's clients give a stream
/// up after 10 or 15 s; in twice that the kernel tries five times.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// What a client is told of an address that it named itself, as by stock Tor.
const LITERAL_TTL_S: u32 = 1800;
/// Questions of one circuit that the resolver may work on at once. All circuits of all shards share its places, and
/// whoever asks for names of a server that is silent keeps one for as long as it tries, or until others want it.
const QUESTIONS_MAX: u16 = 64;
/// The same while the resolver is busy, so that a few circuits cannot take all of its places.
const QUESTIONS_BUSY_MAX: u16 = 8;

impl Core {
    /// A relay cell of a stream that is not DATA.
    pub fn on_stream_cell(&mut self, key: CircuitKey, id: StreamId, command: RelayCommand, data: &[u8]) {
        match command {
            RelayCommand::BEGIN => self.on_begin(key, id, data),
            RelayCommand::BEGIN_DIR => self.send_end(key, id, EndReason::NOTDIRECTORY),
            RelayCommand::RESOLVE => self.on_resolve(key, id, data),
            RelayCommand::END => self.on_end(key, id),
            RelayCommand::SENDME => self.on_stream_sendme(key, id),
            RelayCommand::XON | RelayCommand::XOFF => self.on_stream_signal(key, id, command, data),
            _ => {}
        }
    }

    /// Our end of a circuit, made when it is first needed.
    pub fn end_of(&mut self, key: CircuitKey) -> Option<&mut End> {
        let circuit = self.table.get_mut(key)?;
        let (params, rng) = (&self.params, &mut self.rng);
        Some(circuit.end.get_or_insert_with(|| Box::new(End::new(circuit.congestion, params, rng))))
    }

    pub fn stream_mut(&mut self, key: CircuitKey, id: StreamId) -> Option<&mut Stream> {
        self.table.get_mut(key)?.end.as_mut()?.streams.get_mut(&id)
    }

    fn on_begin(&mut self, key: CircuitKey, id: StreamId, data: &[u8]) {
        if let Some(reason) = self.refuses_stream(key).or_else(|| self.refuses_unknown(key)) {
            return self.send_end(key, id, reason);
        }
        let Some(end) = self.end_of(key) else { return };
        // A second BEGIN with an id in use is dropped, as stock Tor does.
        if end.streams.contains_key(&id) {
            return;
        }
        let Ok(begin) = Begin::parse(data) else {
            return self.send_end(key, id, EndReason::TORPROTOCOL);
        };
        let port = begin.port.get();
        match self.dos_on_stream(key) {
            StreamAction::Admit => {}
            // Not RESOURCELIMIT: the client would only try again elsewhere. As by stock Tor 0.4.9.
            StreamAction::Refuse => return self.send_end(key, id, EndReason::MISC),
            StreamAction::CloseCircuit => return self.close_circuit(key, DestroyReason::RESOURCELIMIT),
        }
        match begin.host {
            // No host has such a name, and the answer would be of our own network's name servers; as by stock Tor.
            Host::Name(name) if name.is_reverse() => self.send_end(key, id, EndReason::RESOLVEFAILED),
            Host::Name(name) => {
                let asked = Asked::Begin { circuit: key, stream: id, port, flags: begin.flags };
                match self.ask(Query::Forward(name.as_str().to_ascii_lowercase()), asked) {
                    Some(question) => self.insert_stream(key, id, StreamState::Resolving(question)),
                    None => self.send_end(key, id, EndReason::RESOURCELIMIT),
                }
            }
            Host::Ipv4(addr) => self.connect_first(key, id, &[(addr.into(), LITERAL_TTL_S)], port),
            // The flags choose among a name's addresses; one that is asked for needs no choice.
            Host::Ipv6(addr) => self.connect_first(key, id, &[(addr.into(), LITERAL_TTL_S)], port),
        }
    }

    /// Why this circuit may have no stream more.
    pub fn refuses_stream(&self, key: CircuitKey) -> Option<EndReason> {
        let circuit = self.table.get(key)?;
        if self.config.exit_policy.is_none() {
            return Some(EndReason::EXITPOLICY);
        }
        // We are nobody's one-hop proxy.
        let from_relay = self.links.get(circuit.prev().link()).is_some_and(|link| link.peer().is_some());
        if !from_relay {
            return Some(EndReason::TORPROTOCOL);
        }
        let limits = &self.config.limits;
        let resolver_is_busy = self.streams.asked.len() >= limits.questions / 2;
        let questions_max = if resolver_is_busy { QUESTIONS_BUSY_MAX } else { QUESTIONS_MAX };
        let on_circuit = circuit.end.as_ref().map_or(0, |end| end.streams.len());
        let full = on_circuit >= limits.streams_per_circuit || circuit.questions >= questions_max;
        full.then_some(EndReason::RESOURCELIMIT)
    }

    /// Whoever proves an identity that the consensus does not list may be a client that found a way round being one. As
    /// in stock Tor it gets answers to its questions, but no streams.
    fn refuses_unknown(&self, key: CircuitKey) -> Option<EndReason> {
        let by_consensus = || self.params.get("refuseunknownexits", 1, 0, 1) == 1;
        if !self.config.refuse_unknown_exits.unwrap_or_else(by_consensus) {
            return None;
        }
        let link = self.links.get(self.table.get(key)?.prev().link())?;
        (!self.listed.contains_rsa(&link.peer()?.rsa)).then_some(EndReason::MISC)
    }

    fn insert_stream(&mut self, key: CircuitKey, id: StreamId, state: StreamState) {
        let params = self.params.clone();
        if let Some(end) = self.end_of(key) {
            let hold = end.new_hold(&params);
            end.streams.insert(id, Stream::new(state, hold));
        }
    }

    /// Whether a circuit may have one stream or question more, for which another may have to end.
    fn admit_stream(&mut self, key: CircuitKey) -> bool {
        let Some(party) = self.table.get(key).map(|circuit| circuit.party) else { return false };
        let admitted = self.admission.admit_stream(self.now, party, key);
        admitted.map(|instead| instead.into_iter().for_each(|place| self.give_way(place))).is_ok()
    }

    /// Whether the resolver may be asked, for which another question may have to be given up.
    fn admit_question(&mut self, key: CircuitKey) -> bool {
        let Some(party) = self.table.get(key).map(|circuit| circuit.party) else { return false };
        let admitted = self.admission.admit_question(self.now, party, key);
        admitted.map(|instead| instead.into_iter().for_each(|id| self.give_up_question(id))).is_ok()
    }

    fn note_stream(&mut self, key: CircuitKey, place: StreamPlace) {
        if let Some(circuit) = self.table.get(key) {
            self.admission.stream_begins(self.now, place, circuit.party, key);
        }
    }

    /// A stream or question ends, since its circuit has more than others.
    fn give_way(&mut self, place: StreamPlace) {
        match place {
            StreamPlace::Socket(socket) => {
                self.abort_stream(socket);
            }
            StreamPlace::Question(question) => self.give_up_question(question),
        }
    }

    /// A question ends, since its circuit has more than others or it was not answered for long. Its place at the
    /// resolver is free.
    fn give_up_question(&mut self, id: ResolveId) {
        let Some(asked) = self.end_question(id) else { return };
        self.outputs.push_back(Output::StopResolving { id });
        match asked {
            Asked::Begin { circuit, stream, .. } => {
                self.fail_stream(circuit, stream, EndReason::RESOURCELIMIT.into())
            }
            Asked::Resolve { circuit, stream } if self.table.contains(circuit) => {
                self.answer_resolve(circuit, stream, Err(ResolveError::Transient))
            }
            Asked::Resolve { .. } | Asked::Nobody { .. } => {}
        }
    }

    /// A question counts no more.
    fn end_question(&mut self, id: ResolveId) -> Option<Asked> {
        let asked = self.streams.asked.remove(&id)?;
        self.admission.question_ends(id);
        if let Some(circuit) = self.table.get_mut(asked.circuit()) {
            circuit.questions -= 1;
            circuit.used_at = self.now;
        }
        Some(asked)
    }

    /// Asks the resolver, unless the circuit has its share.
    pub fn ask(&mut self, query: Query, asked: Asked) -> Option<ResolveId> {
        let key = asked.circuit();
        if !self.admit_question(key) || !self.admit_stream(key) {
            return None;
        }
        let circuit = self.table.get_mut(key)?;
        circuit.questions += 1;
        let id = ResolveId(self.streams.questions);
        self.admission.question_begins(self.now, id, circuit.party, key);
        self.streams.questions += 1;
        self.streams.asked.insert(id, asked);
        self.outputs.push_back(Output::Resolve { id, query });
        Some(id)
    }

    /// The resolver answered; a question that was given up says nothing to anybody.
    pub fn on_resolved(&mut self, id: ResolveId, answer: Result<Resolution, ResolveError>) {
        let asked = self.end_question(id);
        if let Some(asked) = &asked {
            self.note_used(asked.circuit());
        }
        match asked {
            Some(Asked::Begin { circuit, stream, port, flags }) => match answer {
                Ok(Resolution::Addresses(addrs)) => self.connect(circuit, stream, &addrs, port, flags),
                Ok(Resolution::Name(..)) | Err(_) => {
                    self.fail_stream(circuit, stream, EndReason::RESOLVEFAILED.into())
                }
            },
            Some(Asked::Resolve { circuit, stream }) if self.table.contains(circuit) => {
                self.answer_resolve(circuit, stream, answer)
            }
            Some(Asked::Resolve { .. } | Asked::Nobody { .. }) | None => {}
        }
    }

    /// Connects a stream to the best address of a name that the client's flags and the exit policy
    /// allow.
    fn connect(
        &mut self,
        key: CircuitKey,
        id: StreamId,
        addrs: &[(IpAddr, u32)],
        port: u16,
        flags: BeginFlags,
    ) {
        let ipv6 = self.config.ipv6_exit && flags.ipv6_ok();
        let wanted = addrs.iter().filter(|(addr, _)| if addr.is_ipv4() { flags.ipv4_ok() } else { ipv6 });
        let mut wanted: Vec<_> = wanted.copied().collect();
        wanted.sort_by_key(|(addr, _)| addr.is_ipv6() != flags.ipv6_preferred());
        self.connect_first(key, id, &wanted, port);
    }

    /// Connects a stream to the first address that the exit policy allows.
    fn connect_first(&mut self, key: CircuitKey, id: StreamId, addrs: &[(IpAddr, u32)], port: u16) {
        let Some(&(first, first_ttl_s)) = addrs.first() else {
            return self.fail_stream(key, id, EndReason::RESOLVEFAILED.into());
        };
        let allowed = |addr: IpAddr| {
            let policy = self.config.exit_policy.as_ref();
            (addr.is_ipv4() || self.config.ipv6_exit)
                && policy.is_some_and(|policy| policy.allows(addr, port))
        };
        match addrs.iter().find(|(addr, _)| allowed(*addr)) {
            // The first that is allowed and no other, as by stock Tor.
            Some(&(addr, _)) if self.leads_back(SocketAddr::new(addr, port)) => {
                self.fail_stream(key, id, EndReason::CONNECTREFUSED.into())
            }
            Some(_) if !self.admit_stream(key) => self.fail_stream(key, id, EndReason::RESOURCELIMIT.into()),
            Some(&(addr, ttl_s)) => {
                let socket = self.dials.new_socket();
                self.note_stream(key, StreamPlace::Socket(socket));
                let addr = SocketAddr::new(addr, port);
                self.streams.by_socket.insert(socket, (key, id));
                self.streams.connecting.insert(socket, self.now + CONNECT_TIMEOUT);
                self.insert_stream_or_move(key, id, StreamState::Connecting { socket, addr, ttl_s });
                self.outputs.push_back(Output::Connect { socket, to: addr });
            }
            None => {
                let addr = Some((first, first_ttl_s));
                self.fail_stream(key, id, EndCell { reason: EndReason::EXITPOLICY, addr });
            }
        }
    }

    /// Whether a stream to this address would go back into the network: circuits of any length could be made that way
    /// ("A Practical Congestion Attack on Tor Using Long Paths", Evans, Dingledine and Grothoff 2009), and relays would
    /// take clients for exits. The consensus may allow it (param-spec, `allow-network-reentry`).
    fn leads_back(&self, addr: SocketAddr) -> bool {
        self.params.get("allow-network-reentry", 0, 0, 1) == 0 && self.listed.has_port(addr)
    }

    /// A stream goes from resolving to connecting, with the data that came meanwhile.
    fn insert_stream_or_move(&mut self, key: CircuitKey, id: StreamId, state: StreamState) {
        match self.stream_mut(key, id) {
            Some(stream) => stream.state = state,
            None => self.insert_stream(key, id, state),
        }
    }

    /// A stream's connection is there.
    pub fn on_stream_connected(&mut self, socket: SocketId) {
        let limits_private = self.config.count_private_bandwidth;
        self.streams.connecting.remove(&socket);
        let Some(&(key, id)) = self.streams.by_socket.get(&socket) else {
            return;
        };
        let Some(stream) = self.stream_mut(key, id) else {
            return;
        };
        let StreamState::Connecting { addr, ttl_s, .. } = stream.state else {
            return;
        };
        stream.state = StreamState::Open(socket);
        stream.limited = limits_private || !heddle_proto::policy::is_private(addr.ip());
        let mut data = Vec::with_capacity(25);
        Connected { addr: Some((addr.ip(), ttl_s)) }.encode(&mut data);
        self.send_relay(key, RelayCommand::CONNECTED, Some(id), &data);
        self.update_interest(key, id);
    }

    /// A stream's connection could not be made, or broke.
    pub fn on_stream_failed(&mut self, socket: SocketId, error: SocketError) {
        self.admission.stream_ends(StreamPlace::Socket(socket));
        self.streams.connecting.remove(&socket);
        if let Some(mut leftover) = self.streams.leftovers.remove(&socket) {
            self.pool.clear(&mut leftover.queue);
        }
        let Some((key, id)) = self.streams.by_socket.remove(&socket) else {
            return;
        };
        if let Some(stream) = self.stream_mut(key, id) {
            let wake = stream.wake.take();
            // The driver has closed it already.
            stream.state = StreamState::Resolving(ResolveId(u64::MAX));
            wake.map(|at| self.streams.wakes.remove(&(at, socket)));
        }
        self.fail_stream(key, id, end_reason(error).into());
    }

    /// The server closed its side: what it sent is on its way, and the stream is over.
    pub fn on_stream_eof(&mut self, socket: SocketId) {
        if let Some(&(key, id)) = self.streams.by_socket.get(&socket) {
            self.fail_stream(key, id, EndReason::DONE.into());
        }
    }

    /// Ends a stream from our side, if it still is, and tells the client.
    fn fail_stream(&mut self, key: CircuitKey, id: StreamId, end: EndCell) {
        self.on_end(key, id);
        let mut data = Vec::with_capacity(21);
        end.encode(&mut data);
        self.send_relay(key, RelayCommand::END, Some(id), &data);
    }

    fn send_end(&mut self, key: CircuitKey, id: StreamId, reason: EndReason) {
        self.send_relay(key, RelayCommand::END, Some(id), &[reason.0]);
    }

    /// A stream is over; what it owes its connection is still written.
    pub fn on_end(&mut self, key: CircuitKey, id: StreamId) {
        let Some(end) = self.table.get_mut(key).and_then(|circuit| circuit.end.as_mut()) else {
            return;
        };
        if let Some(stream) = end.streams.remove(&id) {
            end.unread.forget(stream.turn);
            self.note_used(key);
            self.drop_stream(stream);
        }
    }

    /// Our end of a circuit goes with all its streams.
    pub fn drop_end(&mut self, end: End) {
        for (_, stream) in end.streams {
            self.drop_stream(stream);
        }
    }

    /// Our end of a circuit goes with all its streams and what they owe.
    pub fn abort_streams(&mut self, end: End) {
        for (_, stream) in end.streams {
            let socket = stream.socket().filter(|_| !stream.queue.is_empty());
            self.drop_stream(stream);
            socket.into_iter().for_each(|socket| self.abort_leftover(socket));
        }
    }

    /// The stream of a connection ends, and so does what the connection is owed. Returns whether there was any, or the
    /// connection may still have to be aborted.
    pub fn abort_stream(&mut self, socket: SocketId) -> bool {
        if let Some(&(key, id)) = self.streams.by_socket.get(&socket) {
            self.fail_stream(key, id, EndReason::RESOURCELIMIT.into());
        }
        let is_owed = self.streams.leftovers.contains_key(&socket);
        self.abort_leftover(socket);
        is_owed
    }

    /// A connection does not get what it is still owed.
    pub fn abort_leftover(&mut self, socket: SocketId) {
        if let Some(mut leftover) = self.streams.leftovers.remove(&socket) {
            self.admission.stream_ends(StreamPlace::Socket(socket));
            self.pool.clear(&mut leftover.queue);
            self.outputs.push_back(Output::Abort { socket });
        }
    }

    fn drop_stream(&mut self, mut stream: Stream) {
        if let (Some(at), Some(socket)) = (stream.wake, stream.socket()) {
            self.streams.wakes.remove(&(at, socket));
        }
        match stream.state {
            StreamState::Resolving(question) => {
                if let Some(asked) = self.streams.asked.get_mut(&question) {
                    *asked = Asked::Nobody { circuit: asked.circuit() };
                }
                self.pool.clear(&mut stream.queue);
            }
            StreamState::Connecting { socket, .. } => {
                self.streams.by_socket.remove(&socket);
                self.streams.connecting.remove(&socket);
                self.admission.stream_ends(StreamPlace::Socket(socket));
                self.pool.clear(&mut stream.queue);
                self.outputs.push_back(Output::Abort { socket });
            }
            StreamState::Open(socket) => {
                self.streams.by_socket.remove(&socket);
                if stream.queue.is_empty() {
                    self.admission.stream_ends(StreamPlace::Socket(socket));
                    return self.outputs.push_back(Output::Close { socket });
                }
                let deadline = self.now + LEFTOVER_TIMEOUT;
                self.outputs.push_back(Output::Interest { socket, read: false, write: true });
                let Stream { queue, writable, limited, .. } = stream;
                self.streams.leftovers.insert(socket, Leftover { queue, writable, limited, deadline });
                self.streams.to_flush.push_back(socket);
            }
        }
    }

    /// Once a second: connections that do not take what they are owed are closed.
    pub fn drop_late_leftovers(&mut self) {
        let late = self.streams.leftovers.iter().filter(|(_, leftover)| leftover.deadline <= self.now);
        let late: Vec<SocketId> = late.map(|(socket, _)| *socket).collect();
        late.into_iter().for_each(|socket| self.abort_leftover(socket));
    }

    /// Once a second: streams end whose connections do not open.
    pub fn end_late_connects(&mut self) {
        while let Some((&socket, _)) =
            self.streams.connecting.first_key_value().filter(|(_, until)| **until <= self.now)
        {
            self.streams.connecting.remove(&socket);
            if let Some(&(key, id)) = self.streams.by_socket.get(&socket) {
                self.fail_stream(key, id, EndReason::TIMEOUT.into());
            }
        }
    }

    /// The circuit broke a rule that costs it its life.
    pub fn punish(&mut self, key: CircuitKey) {
        self.close_circuit(key, DestroyReason::PROTOCOL);
    }
}

fn end_reason(error: SocketError) -> EndReason {
    match error {
        SocketError::Refused => EndReason::CONNECTREFUSED,
        SocketError::HostUnreachable | SocketError::NetworkUnreachable => EndReason::NOROUTE,
        SocketError::TimedOut => EndReason::TIMEOUT,
        SocketError::Reset => EndReason::CONNRESET,
        SocketError::ResourceLimit => EndReason::RESOURCELIMIT,
        SocketError::Other => EndReason::MISC,
    }
}
