//! A client's end of a circuit, one cell at a time, and the relays beyond the one under test.

use super::bench::{Bench, Cell, OURS, Sock, host, onion_keys, or_port};
use super::plain::ids;
use heddle_proto::cell::create::{Create2, Created2, DestroyReason};
use heddle_proto::cell::extend::{Extend2, ExtendTarget, Extended2};
use heddle_proto::cell::flow_control::Sendme;
use heddle_proto::cell::relay::{self, RelayCommand, StreamId};
use heddle_proto::cell::stream::{Begin, BeginFlags, Host, HostName};
use heddle_proto::cell::{BODY_LEN, Body, CircId, Command};
use heddle_proto::crypto::onionskin::{self, ClientHandshake, Established, HandshakeType};
use heddle_proto::crypto::{CircuitKeys, OriginLayers, Recognized, RelayLayer};
use heddle_seam::node::SocketId;
use heddle_seam::rng::{Rng, Seed};
use std::net::{IpAddr, SocketAddr};

/// How a circuit is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Fast,
    Ntor,
    /// ntor-v3 that asks for congestion control, or not.
    NtorV3 {
        congestion_control: bool,
    },
}

pub const NTOR_V3_CC: Kind = Kind::NtorV3 { congestion_control: true };

/// What stands for a channel where there is none.
pub const NO_SOCK: Sock = Sock { shard: 0, id: SocketId::dialled(1 << 40) };

/// A relay cell that came for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    pub command: RelayCommand,
    pub stream: u16,
    pub data: Vec<u8>,
    /// What a SENDME for this cell has to carry.
    pub digest: [u8; 20],
}

pub fn circ(id: u32) -> CircId {
    CircId::new(id).expect("not zero")
}

/// An id as the initiator of a channel picks it.
pub fn theirs(id: u32) -> CircId {
    circ(1 << 31 | id)
}

pub struct Client {
    pub sock: Sock,
    pub circ_id: CircId,
    pub layers: OriginLayers,
    pub rng: Rng,
    /// Cells of the circuit that are no relay cells.
    pub others: Vec<Cell>,
    /// The digest of the last cell that was sealed.
    pub sealed: [u8; 20],
}

impl Client {
    pub fn new(sock: Sock, circ_id: CircId) -> Self {
        let rng = Seed::from_number(u64::from(circ_id.get())).rng();
        Client { sock, circ_id, layers: OriginLayers::new(), rng, others: Vec::new(), sealed: [0; 20] }
    }

    /// The first half of a handshake, its CREATE cell's command and body.
    pub fn onionskin(&mut self, kind: Kind, number: u8) -> (ClientHandshake, Command, Vec<u8>) {
        let keys = onion_keys(number);
        let public = *keys.ntor_current.public();
        let (handshake, hdata) = match kind {
            Kind::Fast => {
                let (handshake, body) = ClientHandshake::fast(&mut self.rng);
                return (handshake, Command::CREATE_FAST, body);
            }
            Kind::Ntor => ClientHandshake::ntor(&keys.rsa_id, &public, &mut self.rng),
            Kind::NtorV3 { congestion_control } => {
                ClientHandshake::ntor_v3(&keys.ed25519_id, &public, congestion_control, &mut self.rng)
                    .expect("a good key")
            }
        };
        let htype = handshake.handshake_type().htype().expect("CREATE2 has a type");
        let mut body = Vec::new();
        Create2 { htype, hdata: &hdata }.encode(&mut body);
        (handshake, Command::CREATE2, body)
    }

    /// Begins a circuit with the relay under test, which must agree.
    pub fn create(bench: &mut Bench, sock: Sock, circ_id: CircId, kind: Kind) -> Self {
        let mut client = Client::new(sock, circ_id);
        let (handshake, command, body) = client.onionskin(kind, OURS);
        bench.send(sock, circ_id, command, &body);
        let cells = bench.cells(sock);
        let [cell] = &cells[..] else { panic!("CREATED is expected: {cells:?}") };
        let established = client.finish(handshake, cell);
        assert_eq!(established.congestion.is_some(), kind == NTOR_V3_CC);
        client
    }

    /// Takes CREATED2 or CREATED_FAST.
    pub fn finish(&mut self, handshake: ClientHandshake, cell: &Cell) -> Established {
        assert_eq!(cell.circ_id, self.circ_id);
        let established = match handshake.handshake_type() {
            HandshakeType::Fast => {
                assert_eq!(cell.command, Command::CREATED_FAST);
                handshake.finish(&cell.body[..40])
            }
            _ => {
                assert_eq!(cell.command, Command::CREATED2);
                handshake.finish(Created2::parse(&cell.body).expect("a CREATED2").hdata)
            }
        };
        let established = established.expect("the relay's keys are right");
        self.layers.add_hop(&established.keys);
        established
    }

    /// A sealed relay cell for a hop.
    pub fn seal(&mut self, hop: usize, command: RelayCommand, stream: u16, data: &[u8]) -> Body {
        let mut body = [0; BODY_LEN];
        relay::write(&mut body, command, StreamId::new(stream), data, &mut self.rng);
        self.sealed = self.layers.seal(hop, &mut body);
        body
    }

    /// Sends a relay cell to a hop.
    pub fn send_to(
        &mut self,
        bench: &mut Bench,
        hop: usize,
        command: RelayCommand,
        stream: u16,
        data: &[u8],
    ) {
        let early = command == RelayCommand::EXTEND2;
        let body = self.seal(hop, command, stream, data);
        let cell = if early { Command::RELAY_EARLY } else { Command::RELAY };
        bench.send(self.sock, self.circ_id, cell, &body);
    }

    /// Sends a relay cell to the relay under test.
    pub fn send(&mut self, bench: &mut Bench, command: RelayCommand, stream: u16, data: &[u8]) {
        self.send_to(bench, 0, command, stream, data);
    }

    /// Opens a cell of this circuit.
    pub fn open(&mut self, cell: &Cell) -> Got {
        assert_eq!(cell.command, Command::RELAY, "{cell:?}");
        let mut body: Body = cell.body[..].try_into().expect("a whole body");
        let (_, digest) = self.layers.open(&mut body).expect("the layers are in step");
        let (header, data) = relay::parse(&body).expect("a relay cell");
        let stream = header.stream_id.map_or(0, StreamId::get);
        Got { command: header.command, stream, data: data.to_vec(), digest }
    }

    /// Takes the relay cells that came. Other cells of the circuit go to `others`.
    pub fn got(&mut self, bench: &mut Bench) -> Vec<Got> {
        let mut got = Vec::new();
        for cell in bench.cells(self.sock) {
            assert_eq!(cell.circ_id, self.circ_id, "{cell:?}");
            match cell.command {
                Command::RELAY => got.push(self.open(&cell)),
                _ => self.others.push(cell),
            }
        }
        got
    }

    /// Takes the one relay cell that came.
    pub fn got_one(&mut self, bench: &mut Bench) -> Got {
        let mut got = self.got(bench);
        assert_eq!(got.len(), 1, "{got:?} {:?}", self.others);
        got.pop().expect("one cell")
    }

    /// The reason of the DESTROY that came, if one did.
    pub fn destroyed(&mut self, bench: &mut Bench) -> Option<DestroyReason> {
        self.got(bench);
        let destroy = self.others.iter().find(|cell| cell.command == Command::DESTROY)?;
        Some(DestroyReason::parse(&destroy.body))
    }

    pub fn sendme(&mut self, bench: &mut Bench, digest: [u8; 20]) {
        let mut data = Vec::new();
        Sendme::Authenticated(digest).encode(&mut data);
        self.send(bench, RelayCommand::SENDME, 0, &data);
    }

    pub fn begin(&mut self, bench: &mut Bench, stream: u16, to: &str) {
        self.begin_with(bench, stream, to, 0);
    }

    pub fn begin_with(&mut self, bench: &mut Bench, stream: u16, to: &str, flags: u32) {
        let (host, port) = to.rsplit_once(':').expect("host:port");
        let host = match host.trim_matches(['[', ']']).parse() {
            Ok(IpAddr::V4(addr)) => Host::Ipv4(addr),
            Ok(IpAddr::V6(addr)) => Host::Ipv6(addr),
            Err(_) => Host::Name(HostName::new(host).expect("a name")),
        };
        let port = port.parse().expect("a port");
        let mut data = Vec::new();
        Begin { host, port, flags: BeginFlags(flags) }.encode(&mut data);
        self.send(bench, RelayCommand::BEGIN, stream, &data);
    }

    /// Begins a stream to an address and lets it connect; returns the stream's socket.
    pub fn connect(&mut self, bench: &mut Bench, stream: u16) -> Sock {
        self.begin(bench, stream, "203.0.114.7:80");
        let (sock, to) = bench.connect_next(self.sock.shard);
        assert_eq!(to, SocketAddr::from(([203, 0, 114, 7], 80)));
        let got = self.got_one(bench);
        assert_eq!((got.command, got.stream), (RelayCommand::CONNECTED, stream));
        sock
    }

    /// EXTEND2's data for the test relay of that number, and the handshake with it.
    pub fn extend2(&mut self, number: u8) -> (ClientHandshake, Vec<u8>) {
        self.extend2_at(number, target(number))
    }

    /// The same, with identities and addresses that need not be that relay's.
    pub fn extend2_at(&mut self, number: u8, target: ExtendTarget) -> (ClientHandshake, Vec<u8>) {
        let (handshake, _, create2) = self.onionskin(Kind::Ntor, number);
        let create2 = Create2::parse(&create2).expect("a CREATE2");
        let mut data = Vec::new();
        let specs = target.specs();
        Extend2 { specs, htype: create2.htype, hdata: create2.hdata }.encode(&mut data);
        (handshake, data)
    }

    /// Takes EXTENDED2.
    pub fn extended(&mut self, handshake: ClientHandshake, got: &Got) {
        assert_eq!(got.command, RelayCommand::EXTENDED2, "{got:?}");
        let extended = Extended2::parse(&got.data).expect("an EXTENDED2");
        let established = handshake.finish(extended.hdata()).expect("the next relay's keys are right");
        self.layers.add_hop(&established.keys);
    }
}

/// EXTENDED2's data for a CREATED2 body.
pub fn extended2(created2: &[u8]) -> Vec<u8> {
    let mut body = created2.to_vec();
    body.resize(BODY_LEN, 0);
    let created = Created2::parse(&body).expect("a CREATED2");
    let mut data = Vec::new();
    Extended2::from_created(&created).expect("it fits").encode(&mut data);
    data
}

/// Where the test relay of that number is.
pub fn target(number: u8) -> ExtendTarget {
    let SocketAddr::V4(ipv4) = or_port(number) else { unreachable!("test hosts are IPv4") };
    assert_eq!(IpAddr::V4(*ipv4.ip()), host(number));
    let ids = ids(number);
    ExtendTarget { ipv4: Some(ipv4), ipv6: None, rsa_id: ids.rsa.0, ed25519_id: Some(ids.ed25519.0) }
}

/// The relay after the one under test, on one circuit.
pub struct Hop {
    pub sock: Sock,
    pub circ_id: CircId,
    layer: RelayLayer,
    rng: Rng,
}

impl Hop {
    /// Answers the CREATE2 that came on a channel of the test relay of that number.
    pub fn answer(bench: &mut Bench, sock: Sock, number: u8) -> Self {
        let cells = bench.cells(sock);
        let [cell] = &cells[..] else { panic!("CREATE2 is expected: {cells:?}") };
        let (hop, created2) = Hop::accept(sock, number, cell);
        bench.send(sock, hop.circ_id, Command::CREATED2, &created2);
        hop
    }

    /// The hop that a CREATE2 makes, and CREATED2.
    pub fn accept(sock: Sock, number: u8, cell: &Cell) -> (Self, Vec<u8>) {
        Hop::try_accept(sock, number, cell).expect("a good onionskin")
    }

    /// The same, for CREATE2 that may be anything.
    pub fn try_accept(sock: Sock, number: u8, cell: &Cell) -> Option<(Self, Vec<u8>)> {
        assert_eq!(cell.command, Command::CREATE2);
        let create2 = Create2::parse(&cell.body).ok()?;
        let kind = HandshakeType::from_htype(create2.htype).ok()?;
        let mut rng = Seed::from_number(u64::from(number)).rng();
        let answer = onionskin::answer(&onion_keys(number), kind, create2.hdata, None, &mut rng).ok()?;
        let mut body = Vec::new();
        Created2 { hdata: &answer.reply }.encode(&mut body);
        let keys: &CircuitKeys = &answer.keys;
        Some((Hop { sock, circ_id: cell.circ_id, layer: RelayLayer::new(keys), rng }, body))
    }

    /// Sends a relay cell towards the client.
    pub fn send(&mut self, bench: &mut Bench, command: RelayCommand, stream: u16, data: &[u8]) {
        let body = self.seal(command, stream, data);
        bench.send(self.sock, self.circ_id, Command::RELAY, &body);
    }

    pub fn seal(&mut self, command: RelayCommand, stream: u16, data: &[u8]) -> Body {
        let mut body = [0; BODY_LEN];
        relay::write(&mut body, command, StreamId::new(stream), data, &mut self.rng);
        self.layer.originate(&mut body);
        body
    }

    /// The hop after this one, which a client's EXTEND2 makes, and EXTENDED2's data.
    pub fn extend(number: u8, extend2: &[u8]) -> (Self, Vec<u8>) {
        let extend = Extend2::parse(extend2).expect("an EXTEND2");
        let mut body = Vec::new();
        Create2 { htype: extend.htype, hdata: extend.hdata }.encode(&mut body);
        body.resize(BODY_LEN, 0);
        let cell = Cell { circ_id: circ(1), command: Command::CREATE2, body };
        let (hop, created2) = Hop::accept(NO_SOCK, number, &cell);
        (hop, extended2(&created2))
    }

    /// Takes this hop's layer off a cell for a hop beyond.
    pub fn pass(&mut self, cell: &Cell) -> Cell {
        let mut body = [0; BODY_LEN];
        let src: &Body = cell.body[..].try_into().expect("a whole body");
        assert!(matches!(self.layer.forward(src, &mut body), Recognized::No));
        Cell { body: body.to_vec(), ..*cell }
    }

    /// Puts this hop's layer on a cell of a hop beyond.
    pub fn wrap(&mut self, body: &Body) -> Body {
        let mut wrapped = [0; BODY_LEN];
        self.layer.backward(body, &mut wrapped);
        wrapped
    }

    /// Opens a cell that came from the client.
    pub fn open(&mut self, cell: &Cell) -> Got {
        let mut body = [0; BODY_LEN];
        let src: &Body = cell.body[..].try_into().expect("a whole body");
        let recognized = self.layer.forward(src, &mut body);
        let Recognized::Yes { digest } = recognized else { panic!("the cell is not for this hop") };
        let (header, data) = relay::parse(&body).expect("a relay cell");
        let stream = header.stream_id.map_or(0, StreamId::get);
        Got { command: header.command, stream, data: data.to_vec(), digest }
    }

    /// Takes the relay cells that came from the client.
    pub fn got(&mut self, bench: &mut Bench) -> Vec<Got> {
        bench.cells(self.sock).iter().map(|cell| self.open(cell)).collect()
    }
}

/// A circuit through the relay under test to the test relay 2, over a channel that it dials.
pub fn two_hops(bench: &mut Bench) -> (Client, Hop) {
    let sock = bench.client_channel(0);
    let mut client = Client::create(bench, sock, theirs(1), Kind::Fast);
    let hop = extend(bench, &mut client, 2);
    (client, hop)
}

/// Extends a circuit by the test relay of that number, which is dialled unless it has a channel.
pub fn extend(bench: &mut Bench, client: &mut Client, number: u8) -> Hop {
    let (handshake, data) = client.extend2(number);
    client.send_to(bench, 0, RelayCommand::EXTEND2, 0, &data);
    let shard = client.sock.shard;
    let next = bench.answer_dial(shard, number);
    let hop = Hop::answer(bench, next, number);
    let got = client.got_one(bench);
    client.extended(handshake, &got);
    hop
}
