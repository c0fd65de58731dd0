//! The far end of a connection: another upgraded relay, which does as the test says.

use super::bench::{self, Bench, Cell, OURS, Sock, host, or_port};
use super::pipe::{Pipe, datagrams};
use super::plain::{export_secret, ids};
use heddle_proto::cell::frame::write_variable;
use heddle_proto::cell::{BODY_LEN, Body, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{
    ConnId, ConnectionError, ConnectionEvent, ConnectionOptions, Endpoint, FlowState,
};
use heddle_proto::ids::RelayIds;
use heddle_proto::pair::offer::{Offer, OfferDigest, OfferedTransport};
use heddle_proto::pair::secrets::{Purpose, pair_secrets};
use heddle_relay::{Control, Input, ListedRelay, Relays};
use heddle_seam::node::PortId;
use heddle_seam::time::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

const UDP_PORT: u16 = 6000;

/// A test relay's endpoint with one connection to the relay under test.
pub struct Peer {
    pub number: u8,
    is_dialler: bool,
    /// Its UDP port.
    port: u16,
    pub pipe: Pipe,
    pub conn: ConnId,
    pub ready: bool,
    pub ended: Option<ConnectionError>,
    /// Whether it reads.
    pub reading: bool,
    /// What came, and is not taken yet.
    cells: Vec<Cell>,
    /// What waits for room, by flow.
    waiting: BTreeMap<CircId, VecDeque<(Command, Body)>>,
    blocked: BTreeSet<CircId>,
}

impl Peer {
    /// Whether it dialled.
    pub fn is_dialler(&self) -> bool {
        self.is_dialler
    }

    pub fn addr(&self) -> SocketAddr {
        SocketAddr::new(host(self.number), self.port)
    }

    /// Takes events and cells, and sends what there is room for.
    pub fn work(&mut self, now: Instant) {
        while let Some((_, event)) = self.pipe.poll_event(now) {
            match event {
                ConnectionEvent::Ready => self.ready = true,
                ConnectionEvent::Writable(circ_id) => drop(self.blocked.remove(&circ_id)),
                ConnectionEvent::FlowRoom(_) | ConnectionEvent::Capacity | ConnectionEvent::Suspect(_) => {}
                ConnectionEvent::Ended(error) => self.ended = Some(error),
            }
        }
        while self.reading
            && let Some(cell) = self.pipe.next_incoming(now)
        {
            let (circ_id, command) = (cell.circ_id, cell.command);
            if command == Command::DESTROY {
                self.waiting.remove(&circ_id);
                self.blocked.remove(&circ_id);
            }
            self.cells.push(Cell { circ_id, command, body: cell.body.to_vec() });
        }
        for (&circ_id, waiting) in &mut self.waiting {
            while self.ready
                && self.ended.is_none()
                && self.pipe.capacity(self.conn) > 0
                && !self.blocked.contains(&circ_id)
                && let Some((command, body)) = waiting.pop_front()
            {
                if command == Command::CREATE2 && self.pipe.room(self.conn) == 0 {
                    continue;
                }
                if self.pipe.send(now, self.conn, circ_id, command, &body) == FlowState::Blocked {
                    self.blocked.insert(circ_id);
                }
            }
        }
    }

    pub fn transmit(&mut self, now: Instant) -> Option<(SocketAddr, Vec<u8>)> {
        let mut bytes = Vec::new();
        let transmit = self.pipe.poll_transmit(now, &mut bytes)?;
        assert_eq!(transmit.stride, bytes.len(), "a pipe sends one datagram at a time");
        Some((transmit.to, bytes))
    }
}

impl Bench {
    /// The consensus lists these test relays, at all shards.
    pub fn list(&mut self, numbers: &[u8]) {
        let relay = |number: &u8| {
            let RelayIds { rsa, ed25519 } = ids(*number);
            ListedRelay { rsa, ed25519: Some(ed25519), or_addrs: vec![or_port(*number)] }
        };
        let listed = Arc::new(Relays::new(numbers.iter().map(relay), []));
        for shard in 0..self.shards.len() {
            self.control(shard, Control::Peers(Arc::clone(&listed)));
        }
    }

    /// Forms a pair over an open channel with the test relay of that number, which offers what it is told. Returns the
    /// far end, whose connection need not be ready.
    pub fn offer(&mut self, sock: Sock, number: u8, flows_max: u32) -> usize {
        let paddings = self.paddings(sock);
        let [ours] = &paddings[..] else { panic!("one offer is expected: {paddings:?}") };
        self.answer_offer(sock, ours, number, flows_max)
    }

    /// The same, for an offer that was taken already.
    pub fn answer_offer(&mut self, sock: Sock, ours: &[u8], number: u8, flows_max: u32) -> usize {
        // Each has a key and a port of its own, as if the relay had been started anew.
        let process = self.peers.len() as u8;
        self.answer_offer_as(process, sock, ours, number, flows_max)
    }

    /// The same of a process that need not be new: the one of that number has a key and a port of its own.
    pub fn answer_offer_as(
        &mut self,
        process: u8,
        sock: Sock,
        ours: &[u8],
        number: u8,
        flows_max: u32,
    ) -> usize {
        let parsed = Offer::parse(ours).expect("an offer");
        let mut pipe = Pipe::default();
        pipe.set_key(&zeroize::Zeroizing::new([process; 32]));
        let their_port = UDP_PORT + u16::from(process);
        let transport = OfferedTransport { id: super::pipe::PIPE.id, port: their_port, flows_max };
        let theirs = Offer { key: pipe.public_key(), transports: vec![transport] };
        let body = theirs.encode();
        let mut bytes = Vec::new();
        write_variable(&mut bytes, 0, Command::VPADDING, &body);

        // Who dialled the channel comes first.
        let role = if sock.id.is_dialled() { Role::Responder } else { Role::Initiator };
        let mut offers = [OfferDigest::of(&body), OfferDigest::of(ours)];
        let mut keys = [theirs.key, parsed.key];
        if role == Role::Responder {
            offers.reverse();
            keys.reverse();
        }
        let purpose = Purpose { transport: super::pipe::PIPE.id, slot: 0, offers, keys };
        let port = parsed.transport(super::pipe::PIPE.id).expect("it is offered").port;
        let options = ConnectionOptions {
            role,
            local: None,
            peer: SocketAddr::new(host(OURS), port),
            peer_key: parsed.key,
            secrets: pair_secrets(export_secret, &purpose).expect("there is an exporter"),
            flows_max,
        };
        let conn = pipe.open(self.now, options);
        self.peers.push(Peer {
            number,
            is_dialler: role == Role::Initiator,
            port: their_port,
            pipe,
            conn,
            ready: false,
            ended: None,
            reading: true,
            cells: Vec::new(),
            waiting: BTreeMap::new(),
            blocked: BTreeSet::new(),
        });
        self.write(sock, &bytes);
        self.peers.len() - 1
    }

    /// A pair with the test relay of that number, which dials a channel to a shard.
    pub fn pair(&mut self, shard: usize, number: u8) -> (usize, Sock) {
        let sock = self.relay_channel(shard, number);
        let peer = self.offer(sock, number, 1000);
        assert!(self.peers[peer].ready, "the connection is ready");
        (peer, sock)
    }

    /// A far end sends a cell, once there is room.
    pub fn peer_send(&mut self, peer: usize, circ_id: CircId, command: Command, body: &[u8]) {
        self.peer_queue(peer, circ_id, command, body);
        self.settle();
    }

    /// The same, when something else lets it go.
    pub fn peer_queue(&mut self, peer: usize, circ_id: CircId, command: Command, body: &[u8]) {
        let mut whole = [0; BODY_LEN];
        whole[..body.len()].copy_from_slice(body);
        self.peers[peer].waiting.entry(circ_id).or_default().push_back((command, whole));
    }

    /// A far end sends a cell that arrives before it has heard what is on its way to it.
    pub fn peer_send_across(&mut self, peer: usize, circ_id: CircId, command: Command, body: &[u8]) {
        let mut whole = [0; BODY_LEN];
        whole[..body.len()].copy_from_slice(body);
        let (now, far) = (self.now, &mut self.peers[peer]);
        far.pipe.send(now, far.conn, circ_id, command, &whole);
        let (to, bytes) = far.transmit(now).expect("the cell leaves");
        let datagrams = datagrams(far.addr(), bytes.len(), &bytes);
        let shard = usize::from(to.port() - bench::UDP_PORT);
        self.input(shard, Input::Datagrams { port: PortId(0), datagrams });
    }

    /// A far end closes its connection.
    pub fn peer_close(&mut self, peer: usize) {
        let (now, peer) = (self.now, &mut self.peers[peer]);
        peer.ended = Some(ConnectionError::Closed);
        peer.pipe.close(now, peer.conn);
        self.settle();
    }

    /// A far end resets a flow.
    pub fn peer_destroy(&mut self, peer: usize, circ_id: CircId, reason: u8) {
        let (now, peer) = (self.now, &mut self.peers[peer]);
        peer.waiting.remove(&circ_id);
        peer.blocked.remove(&circ_id);
        let mut body = [0; BODY_LEN];
        body[0] = reason;
        peer.pipe.send(now, peer.conn, circ_id, Command::DESTROY, &body);
        self.settle();
    }

    /// Takes the cells that came to a far end.
    pub fn peer_cells(&mut self, peer: usize) -> Vec<Cell> {
        self.settle();
        core::mem::take(&mut self.peers[peer].cells)
    }

    /// Cells that wait at a far end for room.
    pub fn peer_waiting(&self, peer: usize) -> usize {
        self.peers[peer].waiting.values().map(VecDeque::len).sum()
    }

    /// Flows that a far end knows.
    pub fn peer_flows(&self, peer: usize) -> usize {
        self.peers[peer].pipe.flows(self.peers[peer].conn)
    }

    pub fn set_reading(&mut self, peer: usize, reading: bool) {
        self.peers[peer].reading = reading;
        self.settle();
    }
}
