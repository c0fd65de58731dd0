//! Streams begin, and their connections come and go.

use crate::admission::StreamPlace;
use crate::core::Core;
use crate::dos::StreamAction;
use crate::exit::{Asked, End, StreamState};
use crate::keys::CircuitKey;
use crate::language::Output;
use core::net::{IpAddr, SocketAddr};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::relay::{RelayCommand, StreamId};
use heddle_proto::cell::stream::{Begin, BeginFlags, Connected, End as EndCell, EndReason, Host, HostName};
use heddle_seam::node::{Query, Resolution, ResolveError, ResolveId, SocketError, SocketId};
use heddle_seam::time::Duration;

/// How long a connection may take to open. The kernel would try for two minutes, but stock Tor's clients give a stream
/// up after 10 or 15 s; in twice that the kernel tries five times.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// What a client is told of an address that it named itself, as by stock Tor.
const LITERAL_TTL_S: u32 = 1800;

impl Core {
    pub(super) fn on_begin(&mut self, key: CircuitKey, id: StreamId, data: &[u8]) {
        // A second BEGIN with an id in use is dropped, as stock Tor does.
        if self.has_stream(key, id) {
            return;
        }
        // Clients go elsewhere at once when they hear it.
        if self.draining {
            return self.send_end(key, id, EndReason::HIBERNATING);
        }
        if let Some(reason) = self.refuses_stream(key).or_else(|| self.refuses_unknown(key)) {
            return self.send_end(key, id, reason);
        }
        if self.end_of(key).is_none() {
            return;
        }
        let Ok(begin) = Begin::parse(data) else {
            return self.send_end(key, id, EndReason::TORPROTOCOL);
        };
        if !self.config.ipv6_exit && !begin.flags.ipv4_ok() {
            return self.send_end(key, id, EndReason::EXITPOLICY);
        }
        let port = begin.port.get();
        match self.held_to_rate(key) {
            StreamAction::Admit => {}
            // Not RESOURCELIMIT: the client would only try again elsewhere. As by stock Tor 0.4.9.
            StreamAction::Refuse => return self.send_end(key, id, EndReason::MISC),
            StreamAction::CloseCircuit => return self.close_circuit(key, DestroyReason::RESOURCELIMIT),
        }
        match begin.host {
            // No host has such a name, and the answer would be of our own network's name servers; as by stock Tor.
            Host::Name(name) if name.is_reverse() || !self.may_ask_for(name) => {
                self.send_end(key, id, EndReason::RESOLVEFAILED)
            }
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

    /// Whether name servers are asked for such a name.
    pub(super) fn may_ask_for(&self, name: HostName<'_>) -> bool {
        self.config.any_host_names || name.is_plain()
    }

    /// Whoever proves an identity that the consensus does not list may be a client that found a way round being one. As
    /// in stock Tor it gets answers to its questions, but no streams.
    fn refuses_unknown(&self, key: CircuitKey) -> Option<EndReason> {
        let by_consensus = || self.params.get("refuseunknownexits", 1, 0, 1) == 1;
        if !self.config.refuse_unknown_exits.unwrap_or_else(by_consensus) {
            return None;
        }
        let link = self.links.get(self.table.get(key)?.prev().link())?;
        (!self.links.is_rsa_listed(&link.peer()?.rsa)).then_some(EndReason::MISC)
    }

    /// Our end of a circuit, made when it is first needed.
    pub(super) fn end_of(&mut self, key: CircuitKey) -> Option<&mut End> {
        let choice = self.config.flow_control;
        Some(self.table.get_mut(key)?.end_or_new(choice, &self.params, &mut self.rng))
    }

    fn insert_stream(&mut self, key: CircuitKey, id: StreamId, state: StreamState) {
        let params = self.params.clone();
        if let Some(end) = self.end_of(key) {
            end.insert_stream(id, state, &params);
        }
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
            // The circuit ended when room was made.
            Some(_) if !self.table.contains(key) => {}
            Some(&(addr, ttl_s)) => {
                let socket = self.dials.new_socket();
                self.note_stream(key, StreamPlace::Socket(socket));
                let addr = SocketAddr::new(addr, port);
                self.streams.connect(socket, (key, id), self.now + CONNECT_TIMEOUT);
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
        self.params.get("allow-network-reentry", 0, 0, 1) == 0 && self.links.is_port_listed(addr)
    }

    /// A stream goes from resolving to connecting, with the data that came meanwhile.
    fn insert_stream_or_move(&mut self, key: CircuitKey, id: StreamId, state: StreamState) {
        match self.stream_mut(key, id) {
            Some(stream) => stream.go_on(state),
            None => self.insert_stream(key, id, state),
        }
    }

    /// A stream's connection is there.
    pub fn on_stream_connected(&mut self, socket: SocketId) {
        let limits_private = self.config.count_private_bandwidth;
        let Some((key, id)) = self.streams.on_connected(socket) else { return };
        let opened = self.stream_mut(key, id).and_then(|stream| stream.open(limits_private));
        let Some((addr, ttl_s)) = opened else { return };
        let mut data = Vec::with_capacity(25);
        Connected { addr: Some((addr.ip(), ttl_s)) }.encode(&mut data);
        self.send_relay(key, RelayCommand::CONNECTED, Some(id), &data);
        self.update_interest(key, id);
        // Cells without data that came before count now.
        self.streams.flush_soon(socket);
    }

    /// A stream's connection could not be made, or broke.
    pub fn on_stream_failed(&mut self, socket: SocketId, error: SocketError) {
        self.admission.stream_ends(StreamPlace::Socket(socket));
        if let Some(mut owed) = self.streams.end_leftover(socket) {
            owed.clear(&mut self.pool);
        }
        let Some((key, id)) = self.streams.disconnect(socket) else { return };
        if let Some(stream) = self.stream_mut(key, id) {
            let wake = stream.fail();
            self.streams.move_wake(socket, [wake, None]);
        }
        self.fail_stream(key, id, end_reason(error).into());
    }

    /// The server closed its side: what it sent is on its way, and the stream is over.
    pub fn on_stream_eof(&mut self, socket: SocketId) {
        if let Some((key, id)) = self.streams.find(socket) {
            self.fail_stream(key, id, EndReason::DONE.into());
        }
    }

    /// Once a second: streams end whose connections do not open.
    pub(in crate::core) fn end_late_connects(&mut self) {
        while let Some(socket) = self.streams.pop_late_connect(self.now) {
            if let Some((key, id)) = self.streams.find(socket) {
                self.fail_stream(key, id, EndReason::TIMEOUT.into());
            }
        }
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
