//! Where endpoints meet links: datagrams in, datagrams out, and cells between connections and the core.
//!
//! Datagrams are taken whenever they come. What waits is decided here: flows are not read while the operator's rate
//! for reading is used up, and cells stay in their lanes while the rate for writing is. Of either rate cells alone
//! take something, DESTROY too, which goes at once. What a transport adds, acknowledges and repeats is not counted,
//! as of TCP packets' headers, acknowledgements and repetitions are not. Where it was, a relay over QUIC carried a
//! tenth less than its operator allowed, and acknowledgements waited for the rate.

use crate::core::Core;
use crate::keys::LinkKey;
use crate::language::Output;
use crate::links::{Outlet, ReadyConnection, destroy};
use foldhash::fast::FixedState;
use heddle_proto::bucket::Direction;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{Body, CELL_LEN, CircId, Command};
use heddle_proto::endpoint::{
    Backlog, CongestionParams, ConnId, ConnectionEvent, ConnectionOptions, ConnectionStats, Endpoint,
    FlowState, RefusedDatagrams,
};
use heddle_proto::pair::ConnKey;
use heddle_proto::pair::offer::OfferedTransport;
use heddle_proto::transport::{Transport, TransportId};
use heddle_seam::datagrams::{Datagrams, IdPrefix};
use heddle_seam::language::Plain;
use heddle_seam::node::{self, PortId, SocketId, StackId};
use heddle_seam::stopwatch::{Step, Stopwatch};
use heddle_seam::time::Instant;
use std::collections::HashMap;
use zeroize::Zeroizing;

/// Cells that are taken from an endpoint before what they cause is sent: 256 KB, as much as is read from sockets.
const DRAIN_CELLS: usize = 512;

/// An endpoint and the UDP port that it owns.
struct Port {
    id: PortId,
    /// The transport's number in offers. One that has none there is called one more than its port.
    transport: TransportId,
    /// The UDP port that offers name.
    offered: u16,
    endpoint: Box<dyn Endpoint>,
    /// The links of connections that are ready; never iterated in an order that matters.
    links: HashMap<ConnId, LinkKey, FixedState>,
    /// Of these, those for which the operator's rates hold. As long as there are any, the others wait with them.
    limited: usize,
    /// Something may have come in, or may have to be sent.
    stirred: bool,
    unsent: bool,
    /// It may have something to say of connections, because all that was to be sent has left.
    unheard: bool,
}

/// The shard's endpoints. Others name one by its place.
pub(super) struct Ports {
    list: Vec<Port>,
    /// Times what is done with each cell, if somebody wants to know.
    stopwatch: Stopwatch,
}

impl Ports {
    /// Each endpoint with its port and the UDP port that is offered for it.
    pub fn new(endpoints: Vec<(PortId, u16, Box<dyn Endpoint>)>) -> Self {
        let port = |(id, offered, endpoint): (PortId, u16, Box<dyn Endpoint>)| Port {
            transport: endpoint.transport().id,
            id,
            offered,
            endpoint,
            links: HashMap::with_hasher(FixedState::with_seed(0)),
            limited: 0,
            stirred: false,
            unsent: false,
            unheard: false,
        };
        Ports { list: endpoints.into_iter().map(port).collect(), stopwatch: Stopwatch::default() }
    }

    pub fn set_stopwatch(&mut self, stopwatch: Stopwatch) {
        self.stopwatch = stopwatch;
    }

    pub fn on_datagrams(&mut self, core: &mut Core, now: Instant, id: PortId, datagrams: Datagrams) {
        let Some(index) = self.list.iter().position(|port| port.id == id) else {
            return;
        };
        core.count_received(index + 1, datagrams.data.len());
        self.list[index].endpoint.handle_datagrams(now, datagrams);
        self.list[index].stir();
    }

    /// The driver speaks of the stack that belongs to a port.
    pub fn on_stack(&mut self, now: Instant, id: StackId, input: node::Input<Plain>) {
        if let Some(port) = self.list.iter_mut().find(|port| port.id.0 == id.0) {
            port.endpoint.handle_stack(now, input);
            port.stir();
        }
    }

    /// Where the bytes of a socket of that stack are put.
    pub fn stack_recv_buf(&mut self, id: StackId, socket: SocketId) -> &mut [u8] {
        let port = self.list.iter_mut().find(|port| port.id.0 == id.0);
        port.map_or(&mut [], |port| port.endpoint.stack_recv_buf(socket))
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        for port in &mut self.list {
            if port.endpoint.poll_timeout().is_some_and(|at| at <= now) {
                port.endpoint.handle_timeout(now);
                port.stir();
            }
        }
    }

    /// When [`Ports::handle_timeout`] is to be called.
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        self.list.iter_mut().filter_map(|port| port.endpoint.poll_timeout()).min()
    }

    /// All look again: the operator's rates allow more.
    pub fn stir_all(&mut self) {
        self.list.iter_mut().for_each(Port::stir);
    }

    /// The prefixes of datagrams that come on connections that are ready.
    pub fn id_prefixes(&self) -> impl Iterator<Item = (PortId, IdPrefix)> {
        self.list.iter().filter_map(|port| Some((port.id, port.endpoint.id_prefix()?)))
    }

    pub fn set_congestion(&mut self, params: CongestionParams) {
        self.list.iter_mut().for_each(|port| port.endpoint.set_congestion(params));
    }

    /// A connection is ready.
    pub fn add_link(&mut self, core: &Core, link: LinkKey) {
        if let Some(ReadyConnection { port, conn, limited, .. }) = core.connection(link) {
            let port = &mut self.list[port];
            port.links.insert(conn, link);
            port.limited += usize::from(limited);
        }
    }

    /// A connection is over, or is to be; its link is still there.
    pub fn remove_link(&mut self, core: &Core, link: LinkKey) {
        if let Some(ReadyConnection { port, conn, limited, .. }) = core.connection(link) {
            let port = &mut self.list[port];
            if port.links.remove(&conn).is_some() {
                port.limited -= usize::from(limited);
            }
        }
    }

    /// The place of a transport's endpoint.
    pub fn index(&self, transport: TransportId) -> Option<usize> {
        self.list.iter().position(|port| port.transport == transport)
    }

    /// The link of a connection, if it is ready.
    pub fn link(&self, port: usize, conn: ConnId) -> Option<LinkKey> {
        self.list[port].links.get(&conn).copied()
    }

    /// An endpoint that has sent all it had, and was not heard since. What becomes of capacity is only sure then: a
    /// relay that heard it sooner would never hear of the room that sending made.
    pub fn next_unheard(&mut self) -> Option<usize> {
        let index = self.list.iter().position(|port| port.unheard)?;
        self.list[index].unheard = false;
        Some(index)
    }

    /// An endpoint in which something may have happened since this was last asked.
    pub fn next_stirred(&mut self) -> Option<usize> {
        let index = self.list.iter().position(|port| port.stirred)?;
        self.list[index].stirred = false;
        self.list[index].unsent = true;
        Some(index)
    }

    /// Tells endpoints which flows are to be read.
    pub fn apply_holds(&mut self, core: &mut Core) {
        while let Some((connection, hold)) = core.pop_hold() {
            let port = &mut self.list[connection.port];
            port.endpoint.hold(connection.conn, hold.circ_id, hold.hold);
            if !hold.hold {
                port.stir();
            }
        }
    }

    /// Connections that are ready, each with its endpoint's place and its link.
    pub fn connections(&self) -> impl Iterator<Item = (usize, ConnId, LinkKey)> {
        let of = |(index, port): (usize, &Port)| {
            let mut connections: Vec<_> =
                port.links.iter().map(|(conn, link)| (index, *conn, *link)).collect();
            connections.sort_unstable();
            connections
        };
        self.list.iter().enumerate().flat_map(of)
    }

    /// The name of a connection among those of all endpoints.
    pub fn conn_key(&self, port: usize, conn: ConnId) -> ConnKey {
        ConnKey { transport: self.list[port].transport, conn }
    }

    /// What an endpoint's connections are.
    pub fn transport(&self, port: usize) -> &'static Transport {
        self.list[port].endpoint.transport()
    }

    /// What is to be seen of a connection, and how many cells it takes now.
    pub fn look_at(&self, port: usize, conn: ConnId) -> (ConnectionStats, usize) {
        let endpoint = &self.list[port].endpoint;
        (endpoint.stats(conn), endpoint.capacity(conn))
    }

    /// What a connection that is ready says of its flows.
    pub fn on_event(&mut self, core: &mut Core, link: LinkKey, event: ConnectionEvent) {
        match event {
            ConnectionEvent::FlowRoom(room) => core.on_flow_room(link, room),
            ConnectionEvent::Writable(circ_id) => core.on_flow_writable(link, circ_id),
            ConnectionEvent::Capacity => core.list(link),
            ConnectionEvent::Ready | ConnectionEvent::Suspect(_) | ConnectionEvent::Ended(_) => {}
        }
    }

    /// Works off the cells that an endpoint has for us, as many as the operator's rates allow.
    pub fn drain(&mut self, core: &mut Core, now: Instant, index: usize) {
        let allowed = match self.list[index].limited {
            0 => DRAIN_CELLS,
            _ => core.share(Direction::Read) / CELL_LEN,
        };
        if allowed == 0 {
            return core.wait_for_rate(Direction::Read);
        }
        let mut cells = 0;
        let mut limited_cells = 0;
        while cells < allowed.min(DRAIN_CELLS) {
            let port = &mut self.list[index];
            let Some(cell) = port.endpoint.next_incoming(now) else { break };
            cells += 1;
            let (conn, circ_id) = (cell.conn, cell.circ_id);
            let Some(&link) = port.links.get(&conn) else { continue };
            let lap = self.stopwatch.begin();
            let refused = core.on_flow_cell(link, circ_id, cell.command, cell.body);
            self.stopwatch.end(lap, Step::Cell);
            let is_limited = core.count_flow_cell_in(link);
            limited_cells += usize::from(is_limited);
            if let Some(reason) = refused {
                port.endpoint.send(now, conn, circ_id, Command::DESTROY, &destroy(reason));
                core.on_passed(Direction::Write, if is_limited { CELL_LEN } else { 0 });
            }
            self.apply_holds(core);
        }
        core.count_cells_in(index + 1, cells);
        core.on_passed(Direction::Read, limited_cells * CELL_LEN);
        self.list[index].stirred |= cells == allowed.min(DRAIN_CELLS);
    }

    /// Gives a connection the cells that would leave promptly.
    pub fn flush_link(&mut self, core: &mut Core, link: LinkKey) {
        let Some(ReadyConnection { port: index, conn, limited, .. }) = core.connection(link) else { return };
        let port = &mut self.list[index];
        let mut cells_left = port.endpoint.capacity(conn);
        if limited {
            cells_left = cells_left.min(core.share(Direction::Write) / CELL_LEN);
        }
        let mut connection = Connection { endpoint: port.endpoint.as_mut(), conn, ends: 0 };
        let cells = core.fill(link, &mut connection, cells_left);
        let ends = connection.ends;
        cells_left -= cells;
        core.count_flow_cells_out(link, cells);
        port.unsent = true;
        if limited {
            core.on_passed(Direction::Write, (cells + ends) * CELL_LEN);
        }
        let waiting = core.has_output(link);
        if waiting && cells_left == 0 && port.endpoint.capacity(conn) > 0 {
            match cells {
                0 => {
                    core.wait_for_rate(Direction::Write);
                    core.hold_link(link, Direction::Write);
                }
                // It took its share, and goes on after the others.
                _ => core.list(link),
            }
        }
    }

    /// Datagrams that are to be sent now, or what endpoints want of their stacks; `None` when no endpoint wants any.
    pub fn transmit(&mut self, core: &mut Core, now: Instant, out: &mut Vec<u8>) -> Option<Output> {
        for (index, port) in self.list.iter_mut().enumerate().filter(|(_, port)| port.unsent) {
            if let Some(output) = port.endpoint.poll_stack(now, out) {
                port.stirred = true;
                return Some(output.widen());
            }
            let Some(transmit) = port.endpoint.poll_transmit(now, out) else {
                (port.unsent, port.unheard) = (false, true);
                continue;
            };
            // What left makes room for more.
            port.stirred = true;
            core.count_sent(index + 1, out.len());
            return Some(Output::Datagrams { port: port.id, transmit });
        }
        None
    }
}

/// What pairs want of endpoints.
impl Ports {
    /// Gives all endpoints the same new key; returns its public half, if there are any.
    pub fn set_key(&mut self, secret: &Zeroizing<[u8; 32]>) -> Option<[u8; 32]> {
        self.list.iter_mut().for_each(|port| port.endpoint.set_key(secret));
        self.list.first().map(|port| port.endpoint.public_key())
    }

    /// What offers say of the endpoints.
    pub fn offered(&self, flows_max: u32) -> Vec<OfferedTransport> {
        let offered = |port: &Port| OfferedTransport { id: port.transport, port: port.offered, flows_max };
        self.list.iter().map(offered).collect()
    }

    /// Dials a connection, or gets ready to be dialled.
    pub fn open(&mut self, now: Instant, port: usize, options: ConnectionOptions) -> ConnId {
        let port = &mut self.list[port];
        port.stir();
        port.endpoint.open(now, options)
    }

    /// What became of a connection. Whoever does something about it may have more to send.
    pub fn poll_event(&mut self, now: Instant, port: usize) -> Option<(ConnId, ConnectionEvent)> {
        let port = &mut self.list[port];
        let event = port.endpoint.poll_event(now)?;
        port.unsent = true;
        Some(event)
    }

    pub fn probe(&mut self, now: Instant, port: usize, conn: ConnId) {
        let port = &mut self.list[port];
        port.endpoint.probe(now, conn);
        port.stir();
    }

    pub fn close(&mut self, now: Instant, port: usize, conn: ConnId) {
        let port = &mut self.list[port];
        port.endpoint.close(now, conn);
        port.stir();
    }
}

/// What endpoints keep, and what of it ends.
impl Ports {
    /// Bytes that flows keep, at most.
    pub fn buffered_bytes(&self) -> usize {
        self.list.iter().map(|port| port.endpoint.buffered_bytes()).sum()
    }

    /// Bytes that connections and flows take themselves.
    pub fn state_bytes(&self) -> usize {
        self.list.iter().map(|port| port.endpoint.state_bytes()).sum()
    }

    /// Datagrams that were dropped, of each endpoint.
    pub fn refused_datagrams(&self) -> impl Iterator<Item = RefusedDatagrams> {
        self.list.iter().map(|port| port.endpoint.refused_datagrams())
    }

    /// All flows, each with the place of its endpoint.
    pub fn backlogs(&self) -> Vec<(usize, Backlog)> {
        let mut flows = Vec::new();
        for (index, port) in self.list.iter().enumerate() {
            port.endpoint.backlogs(&mut |backlog| flows.push((index, backlog)));
        }
        flows
    }

    /// What is kept of flows that have ended is freed.
    pub fn forget_ended(&mut self, now: Instant) {
        for port in &mut self.list {
            port.endpoint.forget_ended(now);
            port.stir();
        }
    }

    /// Ends a flow, because memory is short.
    pub fn reset(&mut self, now: Instant, port: usize, conn: ConnId, circ_id: CircId) {
        let port = &mut self.list[port];
        port.endpoint.send(now, conn, circ_id, Command::DESTROY, &destroy(DestroyReason::RESOURCELIMIT));
        port.stir();
    }
}

impl Port {
    /// Something may have come in, or may have to be sent.
    fn stir(&mut self) {
        self.stirred = true;
        self.unsent = true;
    }
}

/// A connection of an endpoint, each of its lanes a flow.
struct Connection<'a> {
    endpoint: &'a mut dyn Endpoint,
    conn: ConnId,
    /// How many DESTROY it was given, which wait for nothing.
    ends: usize,
}

impl Outlet for Connection<'_> {
    const ENDS_WAIT: bool = false;

    fn capacity(&self) -> usize {
        self.endpoint.capacity(self.conn)
    }

    fn send(&mut self, now: Instant, circ_id: CircId, command: Command, body: &Body) -> FlowState {
        self.endpoint.send(now, self.conn, circ_id, command, body)
    }

    fn end(&mut self, now: Instant, circ_id: CircId, reason: DestroyReason) {
        self.endpoint.send(now, self.conn, circ_id, Command::DESTROY, &destroy(reason));
        self.ends += 1;
    }
}
