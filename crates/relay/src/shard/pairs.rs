//! Pairs at work: [`Pairs`] says what is to be done, here it is done to channels, endpoints and links.
//!
//! 1. A channel to a relay opens: it sends our offer, and the peer's comes as VPADDING.
//! 2. A connection is dialled or awaited, with secrets from that channel's exporter.
//! 3. It is ready: it becomes a link. While it is in use, circuits to the peer prefer it (`flows`).
//! 4. It drains, or ends: circuits go over channels again.

use super::Relay;
use super::ports::Ports;
use crate::core::Core;
use crate::keys::LinkKey;
use crate::links::{Answer, ChannelLink, ReadyConnection};
use crate::message::Event;
use crate::relays::Relays;
use core::net::SocketAddr;
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{ConnId, ConnectionError, ConnectionEvent, ConnectionOptions};
use heddle_proto::ids::RelayIds;
use heddle_proto::pair::offer::Offer;
use heddle_proto::pair::secrets::pair_secrets;
use heddle_proto::pair::{OpenRequest, Over, PairInput, PairOutput, Pairs, Place};
use heddle_proto::transport::Scope;
use heddle_seam::node::SocketId;
use heddle_seam::time::{Duration, Instant};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A key is proven for a day; connections live on.
const KEY_PERIOD: Duration = Duration::from_secs(24 * 3600);

/// What a shard with endpoints knows of its pairs.
pub(super) struct PairWork {
    pairs: Pairs,
    /// Connections that are not ready yet, by port: a few for each pair.
    opening: BTreeMap<(usize, ConnId), Opening>,
    next_key: Instant,
}

/// What a connection takes from the channel that vouches for it.
struct Opening {
    peer: RelayIds,
    addr: SocketAddr,
    canonical: bool,
    role: Role,
}

impl PairWork {
    /// `None` without endpoints: such a relay is as stock Tor in this.
    pub fn new(core: &mut Core, ports: &mut Ports) -> Option<Self> {
        let key = ports.set_key(&core.draw_secret())?;
        let flows_max = u32::try_from(core.limits().circuits_per_channel).unwrap_or(u32::MAX);
        let offer = Offer { key, transports: ports.offered(flows_max) };
        core.count_answers();
        Some(PairWork {
            pairs: Pairs::new(offer, core.limits().channels),
            opening: BTreeMap::new(),
            next_key: core.now() + KEY_PERIOD,
        })
    }

    /// VPADDING came on a channel; it may be an offer.
    pub fn on_vpadding(&mut self, core: &Core, link: LinkKey, body: &[u8]) {
        let Some(channel) = core.channel(link) else { return };
        if let Some(peer) = channel.peer() {
            self.pairs.handle(core.now(), peer, PairInput::Vpadding { channel: channel.socket(), body });
        }
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.pairs.poll_timeout(), Some(self.next_key)].into_iter().flatten().min()
    }
}

impl Relay {
    /// A channel's handshake is over.
    pub(super) fn on_channel_opened(&mut self, now: Instant, link: LinkKey) {
        let Some(channel) = self.core.channel(link) else { return };
        let (Some(peer), socket, role) = (channel.peer(), channel.socket(), channel.role()) else { return };
        let place = Place { addr: channel.addr().ip(), canonical: channel.is_canonical() };
        let (Some(work), Some(carrier)) = (&mut self.pairs, self.carriers.get(link)) else { return };
        let listed = self.core.is_listed(&peer);
        let exporter = carrier.channel().export_secret(b"EXPORTER-heddle-pair-1", &[], &mut [0; 32]);
        let opened = PairInput::ChannelOpened { channel: socket, role, place, listed, exporter };
        work.pairs.handle(now, peer, opened);
        self.tell_winner(now, peer);
    }

    /// An open channel to a relay is gone.
    pub(super) fn on_channel_closed(
        &mut self,
        now: Instant,
        peer: RelayIds,
        channel: SocketId,
        by_peer: bool,
    ) {
        if let Some(work) = &mut self.pairs {
            work.pairs.handle(now, peer, PairInput::ChannelClosed { channel, by_peer });
            self.tell_winner(now, peer);
        }
    }

    /// Says which channel takes new circuits.
    fn tell_winner(&mut self, now: Instant, peer: RelayIds) {
        let Some(work) = &mut self.pairs else { return };
        let winner = self.core.best_channel(&peer).map(ChannelLink::socket);
        work.pairs.handle(now, peer, PairInput::Winner(winner));
        self.work_pairs(now);
    }

    /// The control plane knows which relays there are.
    pub(super) fn set_listed(&mut self, now: Instant, listed: Arc<Relays>) {
        self.core.set_listed(listed);
        if let Some(work) = &mut self.pairs {
            work.pairs.handle_consensus(now, |peer| self.core.is_listed(peer));
            self.work_pairs(now);
        }
    }

    /// The parameters of the consensus are new; they say whether relays pad what joins them.
    pub(super) fn tell_padding(&mut self, now: Instant) {
        let pads = self.core.pads_relays();
        if let Some(work) = &mut self.pairs {
            work.pairs.handle_padding(now, pads);
            self.work_pairs(now);
        }
    }

    /// Time passed: pairs have work of their own, and the key gets old.
    pub(super) fn on_pair_timeout(&mut self, now: Instant) {
        let Some(work) = &mut self.pairs else { return };
        if work.next_key <= now {
            work.next_key = now + KEY_PERIOD;
            if let Some(key) = self.ports.set_key(&self.core.draw_secret()) {
                work.pairs.replace_key(now, key);
            }
        }
        work.pairs.handle_timeout(now);
        self.work_pairs(now);
    }

    /// Once a second: a channel may have grown too old for new circuits.
    pub(super) fn tell_retired(&mut self, now: Instant) {
        for peer in self.core.take_retired() {
            self.tell_winner(now, peer);
        }
    }

    /// Hears what became of an endpoint's connections.
    pub(super) fn hear_port(&mut self, now: Instant, port: usize) {
        while let Some((conn, event)) = self.ports.poll_event(now, port) {
            match (event, self.ports.link(port, conn)) {
                (ConnectionEvent::Ready, None) => self.on_ready(now, port, conn),
                (ConnectionEvent::Ended(error), link) => self.on_ended(now, port, conn, link, &error),
                (ConnectionEvent::Suspect(suspect), Some(link)) => self.on_suspect(now, port, link, suspect),
                (event, Some(link)) => self.ports.on_event(&mut self.core, link, event),
                (_, None) => {}
            }
        }
    }

    fn on_ready(&mut self, now: Instant, port: usize, conn: ConnId) {
        let Some(work) = &mut self.pairs else { return };
        let Some(Opening { peer, addr, canonical, role }) = work.opening.remove(&(port, conn)) else {
            return;
        };
        let transport = self.ports.transport(port);
        let link = self.core.add_flow_link(ReadyConnection {
            port,
            conn,
            role,
            peer,
            addr,
            canonical,
            limited: self.core.is_limited(addr.ip()),
            may_hold: transport.isolation.backpressure == Scope::Circuit,
        });
        self.ports.add_link(&self.core, link);
        self.core.event(Event::ConnectionReady { transport: transport.name, peer, addr });
        work.pairs.handle(now, peer, PairInput::Ready { conn: self.ports.conn_key(port, conn) });
        self.work_pairs(now);
    }

    fn on_ended(
        &mut self,
        now: Instant,
        port: usize,
        conn: ConnId,
        link: Option<LinkKey>,
        error: &ConnectionError,
    ) {
        if let Some(link) = link {
            self.remove_connection(link, error.label());
        }
        let Some(work) = &mut self.pairs else { return };
        work.opening.remove(&(port, conn));
        let key = self.ports.conn_key(port, conn);
        if let Some(peer) = work.pairs.peer_of(key) {
            work.pairs.handle(now, peer, PairInput::Ended { conn: key, error });
        }
        self.work_pairs(now);
    }

    /// A peer has not answered on a connection for a while, or has again. Circuits in the making do not wait for it.
    fn on_suspect(&mut self, now: Instant, port: usize, link: LinkKey, suspect: bool) {
        let Some(ReadyConnection { peer, conn, .. }) = self.core.connection(link) else { return };
        let conn = self.ports.conn_key(port, conn);
        if let Some(work) = &mut self.pairs {
            work.pairs.handle(now, peer, PairInput::Suspect { conn, suspect });
        }
        self.work_pairs(now);
        if suspect {
            self.core.leave_flows(link);
        }
    }

    /// A connection is no link any more; its circuits end, or begin once more over channels.
    fn remove_connection(&mut self, link: LinkKey, reason: &'static str) {
        self.ports.remove_link(&self.core, link);
        let Some(connection) = self.core.connection(link) else { return };
        let transport = self.ports.transport(connection.port).name;
        self.core.close_connection(link, transport, reason);
    }

    /// Ends all connections: the relay stops.
    pub(super) fn close_connections(&mut self, now: Instant) {
        let Some(work) = self.pairs.take() else { return };
        let opening = work.opening.into_keys();
        let ready = self.core.connections();
        let conns = ready.iter().map(|(_, connection)| (connection.port, connection.conn));
        for (port, conn) in opening.chain(conns) {
            self.ports.close(now, port, conn);
        }
        for (link, _) in ready {
            self.remove_connection(link, ConnectionError::Closed.label());
        }
    }

    /// Tells pairs what circuits did to connections, then does what pairs want, until they want nothing.
    pub(super) fn work_pairs(&mut self, now: Instant) {
        self.tell_occupancy(now);
        self.tell_answers(now);
        while let Some(work) = &mut self.pairs
            && let Some((peer, output)) = work.pairs.poll_output()
        {
            self.carry_out(now, peer, output);
        }
    }

    fn tell_occupancy(&mut self, now: Instant) {
        while let Some((connection, is_occupied)) = self.core.next_occupancy() {
            let ReadyConnection { port, conn, peer, .. } = connection;
            let Some(work) = &mut self.pairs else { continue };
            let conn = self.ports.conn_key(port, conn);
            let input = match is_occupied {
                true => PairInput::Occupied { conn },
                false => PairInput::Drained { conn },
            };
            work.pairs.handle(now, peer, input);
        }
    }

    fn tell_answers(&mut self, now: Instant) {
        while let Some(Answer { peer, flow, answered }) = self.core.pop_answer() {
            let over = match flow {
                Some((port, conn)) => Over::Flow(self.ports.conn_key(port, conn)),
                None => Over::Tls,
            };
            if let Some(work) = &mut self.pairs {
                work.pairs.handle(now, peer, PairInput::Created { over, answered });
            }
        }
    }

    fn carry_out(&mut self, now: Instant, peer: RelayIds, output: PairOutput) {
        match output {
            PairOutput::SendOffer { channel, body } => {
                let link = self.carriers.link_of(channel);
                if let Some((link, carrier)) =
                    link.and_then(|link| Some((link, self.carriers.get_mut(link)?)))
                {
                    carrier.channel_mut().send_vpadding(now, &body);
                    self.core.list(link);
                }
            }
            PairOutput::Open(request) => self.open_connection(now, peer, &request),
            PairOutput::Close { conn } => {
                let Some(port) = self.ports.index(conn.transport) else { return };
                if let Some(link) = self.ports.link(port, conn.conn) {
                    self.remove_connection(link, ConnectionError::Closed.label());
                }
                if let Some(work) = &mut self.pairs {
                    work.opening.remove(&(port, conn.conn));
                }
                self.ports.close(now, port, conn.conn);
            }
            PairOutput::Probe { conn } => {
                let Some(port) = self.ports.index(conn.transport) else { return };
                self.ports.probe(now, port, conn.conn);
            }
            PairOutput::UseFlows { conn } => {
                if let Some(port) = self.ports.index(conn.transport) {
                    self.core.use_flows(&peer.rsa, port, Some(conn.conn));
                }
            }
            PairOutput::UseTls { transport } => {
                if let Some(port) = self.ports.index(transport) {
                    self.core.use_flows(&peer.rsa, port, None);
                }
            }
            PairOutput::DialTls => self.core.dial_again(&peer),
            PairOutput::Fallback { reason, .. } => self.core.count_fallback(reason.label()),
        }
    }

    /// Dials a connection, or gets ready to be dialled.
    fn open_connection(&mut self, now: Instant, peer: RelayIds, request: &OpenRequest) {
        let attempt = request.attempt;
        let opened = self.try_open(now, peer, request);
        if let Some(work) = &mut self.pairs {
            let input = match opened {
                Some(conn) => PairInput::Opened { attempt, conn },
                None => PairInput::NotOpened { attempt },
            };
            work.pairs.handle(now, peer, input);
        }
    }

    fn try_open(&mut self, now: Instant, peer: RelayIds, request: &OpenRequest) -> Option<ConnId> {
        let port = self.ports.index(request.purpose.transport)?;
        let link = self.carriers.link_of(request.channel)?;
        let carrier = self.carriers.get(link)?;
        let channel = self.core.channel(link)?;
        let (addr, canonical) = (channel.addr(), channel.is_canonical());
        let export = |label: &[u8], context: &[u8], out: &mut [u8]| {
            carrier.channel().export_secret(label, context, out)
        };
        let options = ConnectionOptions {
            role: request.role,
            local: Some(carrier.local_ip()),
            peer: SocketAddr::new(addr.ip(), request.peer_port),
            peer_key: request.peer_key,
            secrets: pair_secrets(export, &request.purpose)?,
            flows_max: request.flows_max,
        };
        let conn = self.ports.open(now, port, options);
        let opening = Opening { peer, addr, canonical, role: request.role };
        self.pairs.as_mut()?.opening.insert((port, conn), opening);
        Some(conn)
    }
}
