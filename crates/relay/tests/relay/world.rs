//! Peers, servers, workers and the resolver around one relay, which do anything in any order.

use super::bench::{Bench, Sock, config, host, or_port};
use super::client::{Client, Got, Hop, Kind, NO_SOCK, NTOR_V3_CC, target};
use super::pipe::Pipe;
use super::plain::{CLIENT_LINE, ids, relay_line};
use heddle_forwarding::{Forward, HopKeys, Part};
use heddle_proto::bucket::Limit;
use heddle_proto::cell::create::{Create2, Created2};
use heddle_proto::cell::extend::{Extend2, ExtendTarget, Extended2};
use heddle_proto::cell::frame::write_variable;
use heddle_proto::cell::measure::MEASURE;
use heddle_proto::cell::relay::{RelayCommand, StreamId};
use heddle_proto::cell::{BODY_LEN, Body, CircId, Command, relay};
use heddle_proto::credit::{HopCredit, N3, N23};
use heddle_proto::crypto::onionskin::ClientHandshake;
use heddle_proto::pair::offer::Offer;
use heddle_relay::{DosOptions, InUse, Limits, RelayConfig, Scheduler};
use heddle_seam::node::{Resolution, ResolveError, SocketError};
use heddle_seam::rng::Rng;
use heddle_seam::time::Duration;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Where decisions come from: a generator, or a fuzzer's bytes until they are used up.
pub enum Choices<'a> {
    Random(Box<Rng>),
    Bytes(&'a [u8]),
}

impl Choices<'_> {
    /// A number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        match self {
            Choices::Random(rng) => rng.below(bound as u64) as usize,
            Choices::Bytes(bytes) => {
                let Some((first, rest)) = bytes.split_first() else { return 0 };
                *bytes = rest;
                usize::from(*first) * bound / 256
            }
        }
    }

    fn are_over(&self) -> bool {
        matches!(self, Choices::Bytes([]))
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        match self {
            Choices::Random(rng) => rng.fill(bytes),
            Choices::Bytes(_) => bytes.iter_mut().for_each(|byte| *byte = self.below(256) as u8),
        }
    }
}

/// A circuit as its client knows it.
struct Circuit {
    client: Client,
    creating: Option<ClientHandshake>,
    extending: Option<ClientHandshake>,
    /// Digests of DATA cells that are to be acknowledged.
    owed: Vec<[u8; 20]>,
    data_cells: usize,
    sendme_cells: usize,
}

/// The far end of a channel.
#[derive(Clone, Copy, Debug)]
struct FarEnd {
    /// Who it says it is, and where.
    number: u8,
    claims: IpAddr,
    /// Where it is.
    addr: IpAddr,
}

struct World<'a> {
    bench: Bench,
    choices: Choices<'a>,
    channels: Vec<Sock>,
    circuits: Vec<Circuit>,
    hops: Vec<Hop>,
    next_id: u32,
    /// Who is at the far end of each channel.
    far_ends: BTreeMap<Sock, FarEnd>,
    /// Whom each onionskin of EXTEND2 was for.
    asked: BTreeMap<Vec<u8>, ExtendTarget>,
    /// What the relays at far ends of flows know of circuits.
    flow_hops: Vec<(usize, Hop)>,
    limits: Limits,
    max_queue_bytes: usize,
    counts: Counts,
}

/// What came about in a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Circuits that the relay made.
    pub made: usize,
    /// Those that it extended.
    pub extended: usize,
    /// Streams that it connected.
    pub streams: usize,
}

/// Small limits, so that they are met. Those of production are where what they hide is met.
fn small_config(shards: u16) -> RelayConfig {
    let limits = Limits {
        circuits: 40,
        circuits_per_channel: 20,
        channels: 20 + usize::from(shards),
        handshake_bytes: 300_000,
        onionskins: 6,
        onionskins_at_work: 2,
        creates_unanswered: 2,
        streams_per_circuit: 6,
        streams: 12,
        questions: 4,
    };
    RelayConfig { limits, shards, max_queue_bytes: 100_000, ..config() }
}

/// Stock's defences, so that they are met.
fn small_dos() -> DosOptions {
    DosOptions {
        circuit_creation_enabled: Some(true),
        circuit_creation_min_connections: Some(2),
        circuit_creation_burst: Some(5),
        circuit_creation_defense_period_s: Some(2),
        connection_enabled: Some(true),
        connection_max_concurrent: Some(5),
        connection_burst: Some(10),
        connection_defense_period_s: Some(2),
        stream_creation_enabled: Some(true),
        stream_creation_rate: Some(1),
        stream_creation_burst: Some(4),
        ..DosOptions::default()
    }
}

/// Does up to `steps` things, then ends everything and looks whether something is left. Returns what came about.
pub fn run(mut choices: Choices<'_>, shards: u16, steps: usize) -> Counts {
    let seed = choices.below(256) as u64;
    let mut config = small_config(shards);
    if choices.below(4) == 0 {
        config = RelayConfig { limits: Limits::default(), max_queue_bytes: 64 << 20, ..config };
    }
    if choices.below(3) == 0 {
        config.bandwidth = Limit { rate_bytes_per_s: 50_000, burst_bytes: 100_000 };
    }
    if choices.below(3) == 0 {
        config.scheduler = Scheduler::Ewma { half_life: Duration::from_secs(30) };
    }
    if choices.below(3) == 0 {
        config.dos = small_dos();
    }
    if choices.below(3) == 0 {
        (config.answers_measure, config.forwards_datagrams) = (true, true);
        config.hop_credit = HopCredit::N23(N23 { n2_cells: 2, n3: N3::Static(3) });
    }
    let (limits, max_queue_bytes) = (config.limits.clone(), config.max_queue_bytes);
    let mut bench = Bench::make(config, seed, (choices.below(3) != 0).then_some(Pipe::default));
    bench.list(&[1, 2, 3, 4, 5]);
    let mut world = World {
        bench,
        choices,
        channels: Vec::new(),
        circuits: Vec::new(),
        hops: Vec::new(),
        next_id: 0,
        far_ends: BTreeMap::new(),
        asked: BTreeMap::new(),
        flow_hops: Vec::new(),
        limits,
        max_queue_bytes,
        counts: Counts::default(),
    };
    for _ in 0..steps {
        if world.choices.are_over() {
            break;
        }
        world.step();
        world.collect();
        world.check();
    }
    let counts = world.counts;
    world.end();
    counts
}

impl World<'_> {
    fn step(&mut self) {
        match self.choices.below(26) {
            20 => self.pair(),
            21..24 => self.peer(),
            24 => self.wires(),
            25 => self.flow_hop_cell(),
            0 => self.open_channel(),
            1 | 2 => self.create(),
            3..8 => self.relay_cell(),
            8 => self.extend(),
            9 => self.begin(),
            10 => self.hostile_cell(),
            11..14 => self.outside(),
            14 => self.socket(),
            15 => self.hop_cell(),
            16 => self.pass(),
            17 => self.break_something(),
            18 => self.bench.working = self.choices.below(4) != 0,
            _ => self.bench.delivering = self.choices.below(3) != 0,
        }
        self.bench.settle();
    }

    fn check(&self) {
        let lanes_max = self.limits.circuits_per_channel;
        // Nobody ends for handshakes, which have a limit of their own. What is permitted is there once more for what
        // else ends for nobody, and for what outputs add.
        let used_max = 2 * self.max_queue_bytes;
        for shard in &self.bench.shards {
            let (held, used) = (shard.relay.in_use(), shard.relay.used_bytes());
            let used = used.saturating_sub(held.granted.handshake_bytes as usize);
            assert!(used <= used_max, "{used} bytes where {used_max} are permitted: {held:?}");
            assert_eq!(held.slots, held.circuit_cells + held.leftover_cells, "{held:?}");
            let granted = held.granted;
            let counted = [held.circuits as u64, held.onionskins as u64];
            assert_eq!([granted.circuits, granted.onionskins], counted, "{held:?}");
            assert!(granted.channels <= held.channels as u64, "{held:?}");
            assert!(granted.handshakes <= held.channels as u64, "{held:?}");
            assert!(granted.handshake_bytes <= self.limits.handshake_bytes as u64, "{held:?}");
            assert!(held.turns <= 3 * held.circ_ids + 100, "{held:?}");
            assert!(
                held.circ_ids <= 2 * held.circuits + lanes_max * (held.channels + held.flow_links + 1),
                "{held:?}"
            );
        }
    }

    /// One of the sockets that a test has a hand in.
    fn pick(&mut self) -> Option<Sock> {
        let shard = self.choices.below(self.bench.shards.len());
        let sockets = self.bench.connected(shard);
        (!sockets.is_empty()).then(|| sockets[self.choices.below(sockets.len())])
    }

    fn open_channel(&mut self) {
        let shard = self.choices.below(self.bench.shards.len());
        let number = 1 + self.choices.below(5) as u8;
        let sock = self.bench.accept(shard, or_port(number));
        if self.bench.gone(sock).is_some() {
            return;
        }
        let (line, claims) = match self.choices.below(8) {
            0 => (b"nonsense\n".to_vec(), host(number)),
            1 => (Vec::new(), host(number)),
            2 | 3 => (CLIENT_LINE.to_vec(), host(number)),
            4 => (relay_line(number, host(number + 1)), host(number + 1)),
            _ => (relay_line(number, host(number)), host(number)),
        };
        self.bench.write(sock, &line);
        self.channels.push(sock);
        self.far_ends.insert(sock, FarEnd { number, claims, addr: host(number) });
    }

    /// A relay at the far end of a channel answers the offer that came there, well or badly.
    fn pair(&mut self) {
        let Some(sock) = self.channel() else { return };
        let number = self.far_ends[&sock].number;
        // What is said of credit comes the same way.
        let said = self.bench.seen_paddings(sock);
        let Some(ours) = said.into_iter().rfind(|body| Offer::parse(body).is_ok()) else { return };
        match self.choices.below(8) {
            0 => {
                let mut body = vec![0; self.choices.below(600)];
                self.choices.fill(&mut body);
                let mut bytes = Vec::new();
                write_variable(&mut bytes, 0, Command::VPADDING, &body);
                self.bench.write(sock, &bytes);
            }
            choice => {
                let flows_max = [1, 3, 1000][choice % 3];
                self.bench.answer_offer(sock, &ours, number, flows_max);
            }
        }
    }

    /// A far end of a connection that is ready.
    fn live_peer(&mut self) -> Option<usize> {
        let live = self.bench.peers.iter().enumerate();
        let live = live.filter(|(_, peer)| peer.ready && peer.ended.is_none());
        let live: Vec<usize> = live.map(|(index, _)| index).collect();
        (!live.is_empty()).then(|| live[self.choices.below(live.len())])
    }

    /// A far end does something on its flows.
    fn peer(&mut self) {
        let Some(index) = self.live_peer() else { return };
        let peer = &self.bench.peers[index];
        let (room, names) = (peer.pipe.room(peer.conn), peer.pipe.names(peer.conn));
        self.next_id += 1;
        let half = if peer.is_dialler() { 1 << 31 } else { 0 };
        let new_name = CircId::new(half | self.next_id).expect("not zero");
        let name = (!names.is_empty()).then(|| names[self.choices.below(names.len())]);
        match (self.choices.below(12), name) {
            (0..4, _) if room > 0 => {
                let mut client = Client::new(NO_SOCK, new_name);
                let (_, command, mut body) = client.onionskin(Kind::Ntor, super::bench::OURS);
                body[10] ^= u8::from(self.choices.below(8) == 0);
                self.bench.peer_send(index, new_name, command, &body);
            }
            (4, _) => {
                let command = Command(self.choices.below(4) as u8);
                let peer = &mut self.bench.peers[index];
                peer.pipe.forge_flow(peer.conn, new_name, command);
            }
            (5, Some(name)) => self.bench.peer_destroy(index, name, 1),
            (6, _) => self.bench.set_reading(index, false),
            (7 | 8, _) => self.bench.set_reading(index, true),
            (9, _) if self.choices.below(4) == 0 => self.bench.peer_close(index),
            (_, Some(name)) => {
                let commands = [Command::RELAY, Command::RELAY_EARLY, Command::CREATED2];
                let command = commands[self.choices.below(20) / 9];
                self.bench.peer_send(index, name, command, &[1; 100]);
            }
            _ => {}
        }
    }

    fn wires(&mut self) {
        match self.choices.below(8) {
            0 => self.bench.wires_up = false,
            1 => self.bench.wires_held = true,
            _ => (self.bench.wires_up, self.bench.wires_held) = (true, false),
        }
    }

    /// The relay ahead, on a flow, sends something.
    fn flow_hop_cell(&mut self) {
        let peers = &self.bench.peers;
        self.flow_hops.retain(|(index, hop)| {
            let peer = &peers[*index];
            peer.ended.is_none() && peer.pipe.names(peer.conn).contains(&hop.circ_id)
        });
        if self.flow_hops.is_empty() {
            return;
        }
        let at = self.choices.below(self.flow_hops.len());
        let cells = 1 + self.choices.below(150);
        let (index, hop) = &mut self.flow_hops[at];
        for _ in 0..cells {
            let body = hop.seal(RelayCommand::DROP, 0, &[1; 400]);
            self.bench.peer_queue(*index, hop.circ_id, Command::RELAY, &body);
        }
    }

    /// Takes what came over flows, and answers CREATE2.
    fn collect_flows(&mut self) {
        for index in 0..self.bench.peers.len() {
            for cell in self.bench.peer_cells(index) {
                if cell.command != Command::CREATE2 {
                    continue;
                }
                let number = self.bench.peers[index].number;
                let Some((hop, created2)) = Hop::try_accept(NO_SOCK, number, &cell) else { continue };
                let peer = &self.bench.peers[index];
                if self.choices.below(8) != 0 && peer.pipe.names(peer.conn).contains(&cell.circ_id) {
                    self.bench.peer_send(index, hop.circ_id, Command::CREATED2, &created2);
                    self.flow_hops.push((index, hop));
                }
            }
        }
    }

    fn channel(&mut self) -> Option<Sock> {
        self.channels.retain(|sock| self.bench.gone(*sock).is_none());
        match self.channels.len() {
            0 => None,
            len => Some(self.channels[self.choices.below(len)]),
        }
    }

    fn create(&mut self) {
        let Some(sock) = self.channel() else { return };
        self.next_id += 1;
        let high = if sock.id.is_dialled() { 0 } else { 1 << 31 };
        let circ_id = CircId::new(high | self.next_id).expect("not zero");
        let kind = [Kind::Fast, Kind::Fast, Kind::Ntor, NTOR_V3_CC][self.choices.below(4)];
        let mut client = Client::new(sock, circ_id);
        let (handshake, command, body) = client.onionskin(kind, super::bench::OURS);
        self.bench.send(sock, circ_id, command, &body);
        self.circuits.push(Circuit {
            client,
            creating: Some(handshake),
            extending: None,
            owed: Vec::new(),
            data_cells: 0,
            sendme_cells: if kind == NTOR_V3_CC { 31 } else { 100 },
        });
    }

    /// An open circuit whose channel is there.
    fn circuit(&mut self) -> Option<usize> {
        self.circuits.retain(|circuit| self.bench.gone(circuit.client.sock).is_none());
        let open = self.circuits.iter().enumerate().filter(|(_, circuit)| circuit.creating.is_none());
        let open: Vec<usize> = open.map(|(index, _)| index).collect();
        (!open.is_empty()).then(|| open[self.choices.below(open.len())])
    }

    fn send(
        &mut self,
        index: usize,
        hop: usize,
        cell: Command,
        command: RelayCommand,
        stream: u16,
        data: &[u8],
    ) {
        let client = &mut self.circuits[index].client;
        let hop = hop.min(client.layers.hops() - 1);
        let body = client.seal(hop, command, stream, data);
        let (sock, circ_id) = (client.sock, client.circ_id);
        self.bench.send(sock, circ_id, cell, &body);
    }

    fn relay_cell(&mut self) {
        let Some(index) = self.circuit() else { return };
        let hop = self.choices.below(4) / 3;
        let stream = self.choices.below(5) as u16;
        let mut data = vec![0; self.choices.below(499)];
        let random_len = self.choices.below(12).min(data.len());
        self.choices.fill(&mut data[..random_len]);
        let command = match self.choices.below(30) {
            0 => RelayCommand::TRUNCATE,
            1..4 => RelayCommand::END,
            4 => RelayCommand::XOFF,
            5 => {
                let rate = [0, 1, 50, 100_000][self.choices.below(4)];
                data = [&[0][..], &u32::to_be_bytes(rate)].concat();
                RelayCommand::XON
            }
            6 => {
                data = [&b"a.example\0"[..], &b"4.3.2.1.in-addr.arpa\0"[..], b"[::1\0", b""]
                    [self.choices.below(4)]
                .to_vec();
                RelayCommand::RESOLVE
            }
            7..10 => {
                let circuit = &mut self.circuits[index];
                let Some(digest) = (!circuit.owed.is_empty()).then(|| circuit.owed.remove(0)) else { return };
                data = [&[1, 0, 20][..], &digest].concat();
                return self.send(index, 0, Command::RELAY, RelayCommand::SENDME, 0, &data);
            }
            10 if self.choices.below(4) == 0 => RelayCommand::SENDME,
            11 => RelayCommand(self.choices.below(256) as u8),
            12 => {
                data = MEASURE.to_vec();
                RelayCommand::MEASURE
            }
            13 => {
                let part = [Part::Pass, Part::End][self.choices.below(2)];
                data.clear();
                Forward { part, keys: HopKeys::new([1; 16], [2; 16]) }.encode(&mut data);
                RelayCommand::FORWARD
            }
            14 => {
                let client = &self.circuits[index].client;
                let (sock, circ_id) = (client.sock, client.circ_id);
                return self.bench.send(sock, circ_id, Command::DATAGRAM, &[7; BODY_LEN]);
            }
            _ => RelayCommand::DATA,
        };
        let repeat = if command == RelayCommand::DATA { 1 + self.choices.below(40) } else { 1 };
        for _ in 0..repeat {
            if self.bench.gone(self.circuits[index].client.sock).is_none() {
                self.send(index, hop, Command::RELAY, command, stream, &data);
            }
        }
    }

    fn extend(&mut self) {
        let Some(index) = self.circuit() else { return };
        let number = [1, 2, 3, 4, 5, super::bench::OURS][self.choices.below(6)];
        // One in four names the address of another.
        let at = if self.choices.below(4) == 0 { 1 + self.choices.below(6) as u8 } else { number };
        let asked = ExtendTarget { ipv4: target(at).ipv4, ..target(number) };
        let (handshake, mut data) = self.circuits[index].client.extend2_at(number, asked);
        if self.choices.below(8) == 0 {
            let at = self.choices.below(data.len());
            data[at] ^= 1 << self.choices.below(8);
        }
        if let Ok(extend) = Extend2::parse(&data)
            && let Ok(asked) = extend.target()
        {
            self.asked.insert(extend.hdata.to_vec(), asked);
        }
        self.circuits[index].extending = Some(handshake);
        let early = if self.choices.below(12) == 0 { Command::RELAY } else { Command::RELAY_EARLY };
        // In one read with what undoes it, or alone.
        match self.choices.below(4) {
            0 => {
                let client = &mut self.circuits[index].client;
                let (sock, circ_id) = (client.sock, client.circ_id);
                let cells = [
                    (early, client.seal(0, RelayCommand::EXTEND2, 0, &data)),
                    (Command::RELAY, client.seal(0, RelayCommand::TRUNCATE, 0, &[0])),
                    (early, client.seal(0, RelayCommand::EXTEND2, 0, &data)),
                ];
                let mut bytes = Vec::new();
                for (command, body) in &cells {
                    heddle_proto::cell::frame::write_fixed(&mut bytes, circ_id.get(), *command, body);
                }
                if self.choices.below(2) == 0 {
                    heddle_proto::cell::frame::write_fixed(&mut bytes, circ_id.get(), Command::DESTROY, &[]);
                }
                self.bench.write(sock, &bytes);
            }
            _ => self.send(index, 0, early, RelayCommand::EXTEND2, 0, &data),
        }
    }

    fn begin(&mut self) {
        let Some(index) = self.circuit() else { return };
        let stream = 1 + self.choices.below(4) as u16;
        let to =
            ["203.0.114.7:80", "www.example:443", "[2001:db8::1]:80", "0.0.0.0:1"][self.choices.below(4)];
        let flags = self.choices.below(8) as u32;
        if self.circuits[index].client.layers.hops() > 0 {
            self.circuits[index].client.begin_with(&mut self.bench, stream, to, flags);
        }
    }

    fn hostile_cell(&mut self) {
        let Some(sock) = self.channel() else { return };
        let mut body: Body = [0; BODY_LEN];
        let len = self.choices.below(BODY_LEN);
        self.choices.fill(&mut body[..len]);
        let ids: Vec<CircId> = self.circuits.iter().map(|circuit| circuit.client.circ_id).collect();
        let circ_id = match (ids.is_empty(), self.choices.below(3)) {
            (false, 0 | 1) => ids[self.choices.below(ids.len())],
            _ => CircId::new(1 + self.choices.below(1 << 20) as u32).expect("not zero"),
        };
        let command = match self.choices.below(3) {
            0 => Command::DESTROY,
            1 => [Command::CREATE2, Command::CREATED2, Command::RELAY, Command::RELAY_EARLY, Command::CREATE]
                [self.choices.below(5)],
            _ => Command(self.choices.below(128) as u8),
        };
        if !command.is_variable() {
            self.bench.send(sock, circ_id, command, &body);
        }
    }

    /// The world answers: dials, names, onionskins, mail between shards.
    fn outside(&mut self) {
        let shard = self.choices.below(self.bench.shards.len());
        match self.choices.below(4) {
            0 if !self.bench.shards[shard].resolves.is_empty() => {
                let answer = match self.choices.below(4) {
                    0 => Err(ResolveError::NotFound),
                    1 => Ok(Resolution::Name(String::from("a.example"), 60)),
                    2 => Ok(Resolution::Addresses(vec![("2001:db8::7".parse().expect("an address"), 60)])),
                    _ => Ok(Resolution::Addresses(vec![(host(200), 60)])),
                };
                self.bench.resolve_next(shard, answer);
            }
            1 if !self.bench.shards[shard].jobs.is_empty() => self.bench.work_next(shard),
            2 => drop(self.bench.deliver()),
            _ if !self.bench.shards[shard].connects.is_empty() => self.answer_connect(shard),
            _ => {}
        }
    }

    fn answer_connect(&mut self, shard: usize) {
        let (id, to) = self.bench.shards[shard].connects[0];
        if self.choices.below(4) == 0 {
            let errors = [SocketError::Refused, SocketError::TimedOut, SocketError::Other];
            return self.bench.fail(Sock { shard, id }, errors[self.choices.below(3)]);
        }
        let (sock, _) = self.bench.connect_next(shard);
        if to.port() != 9001 || self.bench.gone(sock).is_some() {
            return;
        }
        let IpAddr::V4(addr) = to.ip() else { return };
        let number = addr.octets()[3];
        // Whoever stands there says who he is, where another is, or passes everything on to another.
        let (number, claims) = match self.choices.below(6) {
            0 => (number.wrapping_add(1), host(number)),
            1 | 2 => {
                let other = 1 + self.choices.below(5) as u8;
                (other, host(other))
            }
            _ => (number, host(number)),
        };
        self.bench.write(sock, &relay_line(number, claims));
        self.channels.push(sock);
        self.far_ends.insert(sock, FarEnd { number, claims, addr: to.ip() });
    }

    /// No circuit is led to anybody but the relay that its client asked for, and to none through an address that
    /// neither the client nor the relay named.
    fn check_way(&self, far_end: FarEnd, create2: &[u8]) {
        let Ok(create2) = Create2::parse(create2) else { return };
        let asked = self.asked.get(create2.hdata).expect("somebody asked for it");
        let FarEnd { number, claims, addr } = far_end;
        let ids = ids(number);
        assert_eq!(asked.rsa_id, ids.rsa.0);
        assert!(asked.ed25519_id.is_none_or(|wanted| wanted == ids.ed25519.0));
        let asked_for = asked.ipv4.is_some_and(|asked| IpAddr::V4(*asked.ip()) == addr);
        assert!(claims == addr || asked_for, "{asked:?} over {far_end:?}");
    }

    fn socket(&mut self) {
        let Some(sock) = self.pick() else { return };
        match self.choices.below(7) {
            0 => self.bench.set_willing(sock, true),
            6 => {
                let unsent = self.bench.unsent(sock.shard);
                self.bench.set_unsent(sock, self.choices.below(10_000));
                unsent.first().into_iter().for_each(|sock| self.bench.set_unsent(*sock, 0));
            }
            1 => {
                self.bench.set_willing(sock, false);
                if self.bench.gone(sock).is_none() {
                    self.bench.grant(sock, 0);
                }
            }
            2 => self.bench.grant(sock, self.choices.below(3000)),
            _ if self.channels.contains(&sock) => {}
            3 => self.bench.finish(sock),
            _ => {
                let bytes = vec![7; self.choices.below(40_000)];
                self.bench.write(sock, &bytes);
            }
        }
    }

    /// The relay ahead sends something.
    fn hop_cell(&mut self) {
        self.hops.retain(|hop| self.bench.gone(hop.sock).is_none());
        if self.hops.is_empty() {
            return;
        }
        let index = self.choices.below(self.hops.len());
        let times = 1 + self.choices.below(60);
        let hop = &mut self.hops[index];
        match self.choices.below(12) {
            0 => self.bench.send(hop.sock, hop.circ_id, Command::DESTROY, &[1]),
            1 => self.bench.send(hop.sock, hop.circ_id, Command::RELAY_EARLY, &[1]),
            2 => self.bench.send(hop.sock, hop.circ_id, Command::CREATED2, &[0, 1, 2]),
            _ => (0..times).for_each(|_| {
                if self.bench.gone(hop.sock).is_none() {
                    hop.send(&mut self.bench, RelayCommand::DROP, 0, &[1; 400]);
                }
            }),
        }
    }

    fn pass(&mut self) {
        let times_ms = [0, 1, 20, 500, 3_000, 16_000, 40_000, 400_000];
        let mut time = Duration::from_millis(times_ms[self.choices.below(times_ms.len())]);
        if self.choices.below(50) == 0 {
            time = Duration::from_secs(3600);
        }
        self.bench.pass(time);
    }

    fn break_something(&mut self) {
        let Some(sock) = self.pick() else { return };
        match self.choices.below(8) {
            0 | 1 => self.bench.fail(sock, SocketError::Reset),
            2 => self.bench.finish(sock),
            3 => {
                let mut bytes = vec![0; self.choices.below(2000)];
                self.choices.fill(&mut bytes);
                self.bench.write(sock, &bytes);
                self.channels.retain(|channel| *channel != sock);
            }
            4 => self.bench.set_params(&[("circ_max_cell_queue_size", 1000), ("cc_sendme_inc", 20)]),
            5 => self.bench.set_params(&[("cc_alg", 0)]),
            _ => {}
        }
    }

    /// Takes what came, answers CREATE2 and notes what the clients learn.
    fn collect(&mut self) {
        self.collect_flows();
        let channels = self.channels.clone();
        for sock in channels {
            if self.bench.gone(sock).is_some() {
                continue;
            }
            for cell in self.bench.cells(sock) {
                if cell.command == Command::CREATE2 {
                    let kind = u16::from_be_bytes([cell.body[0], cell.body[1]]);
                    let far_end = self.far_ends[&sock];
                    let number = far_end.number;
                    self.check_way(far_end, &cell.body);
                    if kind != 2 || !cell.body[4..].starts_with(&[number; 20]) {
                        continue;
                    }
                    let Some((hop, created2)) = Hop::try_accept(sock, number, &cell) else { continue };
                    if self.bench.gone(sock).is_none() && self.choices.below(8) != 0 {
                        self.bench.send(sock, hop.circ_id, Command::CREATED2, &created2);
                    }
                    self.hops.push(hop);
                    continue;
                }
                let of =
                    |circuit: &Circuit| circuit.client.sock == sock && circuit.client.circ_id == cell.circ_id;
                let Some(index) = self.circuits.iter().position(of) else { continue };
                match cell.command {
                    Command::DESTROY => drop(self.circuits.swap_remove(index)),
                    Command::RELAY => self.circuits[index].on_relay(&cell.body, &mut self.counts),
                    Command::CREATED2 | Command::CREATED_FAST => {
                        self.circuits[index].on_created(&cell.body, &mut self.counts);
                    }
                    _ => panic!("{cell:?} went to a client"),
                }
            }
        }
    }

    /// Everything ends: nothing may be left.
    fn end(mut self) {
        self.bench.working = true;
        self.bench.delivering = true;
        (self.bench.wires_up, self.bench.wires_held) = (true, false);
        self.bench.settle();
        (0..self.bench.peers.len()).for_each(|peer| self.bench.peer_close(peer));
        for shard in 0..self.bench.shards.len() {
            while let Some(sock) = self.bench.sockets(shard).into_iter().find(|sock| !self.is_stream(*sock)) {
                self.bench.fail(sock, SocketError::Reset);
            }
            while !self.bench.shards[shard].resolves.is_empty() {
                self.bench.resolve_next(shard, Err(ResolveError::Transient));
            }
        }
        self.bench.pass(Duration::from_secs(600));
        for shard in 0..self.bench.shards.len() {
            self.bench.unsent(shard).into_iter().for_each(|sock| self.bench.set_unsent(sock, 0));
        }
        for shard in 0..self.bench.shards.len() {
            assert_eq!(self.bench.shards[shard].relay.in_use(), InUse::default(), "of shard {shard}");
            assert_eq!(self.bench.sockets(shard), [], "of shard {shard}");
        }
    }

    /// Whether a socket is the connection of a stream.
    fn is_stream(&self, sock: Sock) -> bool {
        sock.id.is_dialled() && !self.channels.contains(&sock) && self.bench.dialled_to(sock).port() != 9001
    }
}

impl Circuit {
    fn on_created(&mut self, body: &[u8], counts: &mut Counts) {
        let Some(handshake) = self.creating.take() else { return };
        let reply = match handshake.handshake_type().htype() {
            None => &body[..40],
            Some(_) => Created2::parse(body).expect("the relay writes it well").hdata,
        };
        let established = handshake.finish(reply).expect("the relay's keys are right");
        self.client.layers.add_hop(&established.keys);
        counts.made += 1;
    }

    fn on_relay(&mut self, body: &[u8], counts: &mut Counts) {
        let mut body: Body = body.try_into().expect("a whole body");
        // Hops that were truncated without the client's knowledge put it out of step.
        let Some((hop, digest)) = self.client.layers.open(&mut body) else { return };
        let Ok((header, data)) = relay::parse(&body) else { return };
        let stream = header.stream_id.map_or(0, StreamId::get);
        let got = Got { command: header.command, stream, data: data.to_vec(), digest };
        match got.command {
            RelayCommand::DATA if hop == 0 => {
                self.data_cells += 1;
                if self.data_cells.is_multiple_of(self.sendme_cells) {
                    self.owed.push(got.digest);
                }
            }
            RelayCommand::CONNECTED => counts.streams += 1,
            RelayCommand::TRUNCATED => self.client.layers.truncate(1),
            RelayCommand::EXTENDED2 => {
                let extended = Extended2::parse(&got.data).expect("the relay writes it well");
                let established = self.extending.take().map(|handshake| handshake.finish(extended.hdata()));
                if let Some(Ok(established)) = established {
                    self.client.layers.truncate(1);
                    self.client.layers.add_hop(&established.keys);
                    counts.extended += 1;
                }
            }
            _ => {}
        }
    }
}
