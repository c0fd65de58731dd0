//! A proxy with relays behind it that answer by the book, over channels that carry cells as they are.

mod retries;

use super::*;
use crate::circuit::Hop;
use crate::path::Candidate;
use heddle_proto::cell::create::{Create2, Created2};
use heddle_proto::cell::extend::{Extend2, Extended2};
use heddle_proto::cell::relay::{self, RelayCommand, StreamId};
use heddle_proto::cell::stream::EndReason;
use heddle_proto::cell::{BODY_LEN, Body, CELL_LEN, CircId, Command};
use heddle_proto::channel::{Channel, ChannelError, Incoming, Opened, Role, Target};
use heddle_proto::crypto::NtorKeypair;
use heddle_proto::crypto::onionskin::{self, HandshakeType, OnionKeys};
use heddle_proto::crypto::tor1::{Recognized, RelayLayer};
use heddle_proto::ids::RsaId;
use heddle_proto::params::NetworkParams;
use heddle_proto::transport::Transport;
use heddle_seam::node::SocketError;
use heddle_seam::time::UnixTime;

/// A channel that is open at once, and whose bytes are cells.
#[derive(Default)]
struct Bare {
    came: VecDeque<u8>,
    cell: Option<(CircId, Command, Body)>,
    is_open: bool,
    sends: Vec<u8>,
    writable: usize,
}

impl Channel for Bare {
    fn handle_read(&mut self, _: Instant, bytes: &[u8]) -> Result<usize, ChannelError> {
        self.came.extend(bytes);
        Ok(bytes.len())
    }
    fn handle_eof(&mut self, _: Instant) -> Result<(), ChannelError> {
        Err(ChannelError::PeerClosed)
    }
    fn handle_writable(&mut self, _: Instant, bytes: usize) {
        self.writable = bytes;
    }
    fn handle_window(&mut self, _: usize) {}
    fn handle_timeout(&mut self, _: Instant) -> Result<(), ChannelError> {
        Ok(())
    }
    fn handle_wall_clock(&mut self, _: UnixTime) {}
    fn next_incoming(&mut self, _: Instant) -> Result<Option<Incoming<'_>>, ChannelError> {
        if !core::mem::replace(&mut self.is_open, true) {
            let opened = Opened {
                role: Role::Initiator,
                peer: None,
                peer_addrs: vec![],
                our_addr: None,
                clock_ahead_s: 0,
                link_protocol: 5,
            };
            return Ok(Some(Incoming::Opened(opened)));
        }
        if self.came.len() < CELL_LEN {
            return Ok(None);
        }
        let cell: Vec<u8> = self.came.drain(..CELL_LEN).collect();
        self.cell = Some(parse_cell(&cell));
        let (circ_id, command, body) = self.cell.as_ref().unwrap();
        Ok(Some(Incoming::Cell { circ_id: *circ_id, command: *command, body }))
    }
    fn capacity(&self) -> usize {
        self.writable.saturating_sub(self.sends.len()) / CELL_LEN
    }
    fn send(&mut self, _: Instant, circ_id: CircId, command: Command, body: &Body) {
        self.sends.extend(cell(circ_id, command, body));
    }
    fn propose_circ_id(&self, rng: &mut Rng) -> CircId {
        Role::Initiator.circ_id(rng.next_u32()).unwrap()
    }
    fn poll_transmit(&mut self, _: Instant, out: &mut Vec<u8>) -> bool {
        out.append(&mut self.sends);
        false
    }
    fn send_vpadding(&mut self, _: Instant, _: &[u8]) {}
    fn export_secret(&self, _: &[u8], _: &[u8], _: &mut [u8]) -> bool {
        false
    }
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    fn close(&mut self) {}
}

struct BareTransport;

impl StreamTransport for BareTransport {
    fn transport(&self) -> &'static Transport {
        unreachable!("a proxy does not ask")
    }
    fn accept(
        &mut self,
        _: Instant,
        _: UnixTime,
        _: core::net::SocketAddr,
        _: core::net::SocketAddr,
    ) -> Box<dyn Channel> {
        unreachable!("nobody dials a proxy")
    }
    fn dial(&mut self, _: Instant, _: UnixTime, _: &Target, _: core::net::SocketAddr) -> Box<dyn Channel> {
        Box::new(Bare::default())
    }
}

fn cell(circ_id: CircId, command: Command, body: &Body) -> Vec<u8> {
    [&circ_id.get().to_be_bytes()[..], &[command.0], body].concat()
}

fn parse_cell(cell: &[u8]) -> (CircId, Command, Body) {
    let id = u32::from_be_bytes(cell[..4].try_into().unwrap());
    (CircId::new(id).unwrap(), Command(cell[4]), cell[5..].try_into().unwrap())
}

/// What became of a program's connection.
#[derive(Default)]
struct Program {
    heard: Vec<u8>,
    is_read: bool,
    is_closed: bool,
    is_reset: bool,
}

struct World {
    proxy: SocksProxy,
    now: Instant,
    keys: OnionKeys,
    rng: Rng,
    guard: Option<SocketId>,
    /// The numbers of the relays that were dialled.
    dialled: Vec<u8>,
    /// Of each circuit's hops.
    layers: BTreeMap<CircId, Vec<RelayLayer>>,
    /// The numbers of the relays that circuits were extended to last.
    exits: BTreeMap<CircId, u8>,
    /// What programs' relay cells said at the relay: circuit, command, stream, data.
    said: Vec<(CircId, RelayCommand, Option<StreamId>, Vec<u8>)>,
    programs: BTreeMap<SocketId, Program>,
    events: Vec<SocksEvent>,
    answers: VecDeque<Vec<u8>>,
    accepted: u64,
    /// Whether relays answer onionskins.
    builds: bool,
    /// Whether relays can be reached.
    connects: bool,
}

const SECOND: Duration = Duration::from_secs(1);

impl World {
    /// Over one relay.
    fn new(options: SocksOptions) -> World {
        let path = Some(vec![RelayName::Nickname("only".to_owned())]);
        let mut world = World::silent(SocksOptions { path, ..options });
        (world.builds, world.connects) = (true, true);
        world.input(Input::Control(world.directory(&["only"], 1)));
        world
    }

    /// Without a network yet, and with relays that do not answer.
    fn silent(options: SocksOptions) -> World {
        let mut rng = Seed::from_number(1).rng();
        let keys = OnionKeys {
            rsa_id: [7; 20],
            ed25519_id: [8; 32],
            ntor_current: NtorKeypair::generate(&mut rng),
            ntor_previous: None,
        };
        World {
            proxy: SocksProxy::new(Box::new(BareTransport), options, &Seed::from_number(2)),
            now: Instant::ZERO,
            keys,
            rng,
            guard: None,
            dialled: Vec::new(),
            layers: BTreeMap::new(),
            exits: BTreeMap::new(),
            said: Vec::new(),
            programs: BTreeMap::new(),
            events: Vec::new(),
            answers: VecDeque::new(),
            accepted: 0,
            builds: false,
            connects: false,
        }
    }

    /// Relays with the numbers 1 and more, of which the first are guards, and the others exits.
    fn directory(&self, names: &[&str], guards: u8) -> Arc<Directory> {
        let candidate = |(number, name): (u8, &&str)| {
            let addrs = vec![([127, 0, 0, number], 9001).into()];
            let target = Target { rsa: RsaId([number; 20]), ed25519: None, addrs };
            Candidate {
                nickname: (*name).to_owned(),
                hop: Hop { target, ntor_key: *self.keys.ntor_current.public() },
                guard: number <= guards,
                exit: number > guards,
                bandwidth: 1,
                ports: if number > guards { vec![(1, 65535)] } else { vec![] },
                ntor_v3: false,
                congestion_control: false,
            }
        };
        let params = Arc::new(NetworkParams::default());
        let relays = (1..).zip(names).map(candidate).collect();
        Arc::new(Directory { params, weights: BTreeMap::new(), relays })
    }

    fn input(&mut self, input: Input<SocksLanguage>) {
        self.proxy.handle_input(self.now, input);
        self.settle();
    }

    fn settle(&mut self) {
        loop {
            let mut buf = Vec::new();
            match self.proxy.poll_output(self.now, &mut buf) {
                Output::Timeout(_) => match self.answers.pop_front() {
                    Some(bytes) => self.feed_guard(&bytes),
                    None => return,
                },
                Output::Connect { socket, to } => {
                    self.guard = Some(socket);
                    let core::net::IpAddr::V4(ip) = to.ip() else {
                        unreachable!("relays have IPv4 addresses")
                    };
                    self.dialled.push(ip.octets()[3]);
                    if !self.connects {
                        continue;
                    }
                    let local = ([127, 0, 0, 1], 1).into();
                    self.proxy.handle_input(self.now, Input::Connected { socket, local });
                    self.grant(socket, 1 << 20);
                    // A channel says that it is open when it is asked, which a cell for nobody makes the proxy do.
                    let nobody = CircId::new(1).unwrap();
                    self.answers.push_back(cell(nobody, Command::PADDING, &[0; BODY_LEN]));
                }
                Output::Send { socket } if socket.is_dialled() => {
                    buf.chunks(CELL_LEN).for_each(|cell| self.on_cell(cell));
                    self.grant(socket, 1 << 20);
                }
                Output::Send { socket } => {
                    self.programs.get_mut(&socket).unwrap().heard.extend(buf);
                }
                Output::Interest { socket, read, .. } if !socket.is_dialled() => {
                    self.programs.get_mut(&socket).unwrap().is_read = read;
                }
                Output::Close { socket } if !socket.is_dialled() => {
                    self.programs.get_mut(&socket).unwrap().is_closed = true;
                }
                Output::Abort { socket } if !socket.is_dialled() => {
                    self.programs.get_mut(&socket).unwrap().is_reset = true;
                }
                Output::Event(event) => self.events.push(event),
                _ => {}
            }
        }
    }

    fn grant(&mut self, socket: SocketId, bytes: usize) {
        self.proxy.handle_input(self.now, Input::Writable { socket, bytes, window_bytes: usize::MAX });
    }

    fn feed_guard(&mut self, bytes: &[u8]) {
        let socket = self.guard.unwrap();
        let len = bytes.len();
        Node::<SocksLanguage>::recv_buf(&mut self.proxy, socket)[..len].copy_from_slice(bytes);
        self.proxy.handle_input(self.now, Input::Read { socket, len });
    }

    /// A cell at the guard.
    fn on_cell(&mut self, cell: &[u8]) {
        let (circ_id, command, mut body) = parse_cell(cell);
        match command {
            Command::CREATE2 if self.builds => {
                let create = Create2::parse(&body).unwrap();
                let guard = *self.dialled.last().unwrap();
                let (layer, reply) = self.answer(guard, create.htype, create.hdata);
                self.layers.insert(circ_id, vec![layer]);
                let (mut bytes, mut body) = (Vec::new(), [0; BODY_LEN]);
                Created2 { hdata: &reply }.encode(&mut bytes);
                body[..bytes.len()].copy_from_slice(&bytes);
                self.answers.push_back(self::cell(circ_id, Command::CREATED2, &body));
            }
            Command::RELAY | Command::RELAY_EARLY => {
                let mut layers = self.layers.get_mut(&circ_id).unwrap().iter_mut();
                let is_its = |layer: &mut RelayLayer| {
                    let came = body;
                    matches!(layer.forward(&came, &mut body), Recognized::Yes { .. })
                };
                let hop = layers.position(is_its).expect("it is for one of the hops");
                let (header, data) = relay::parse(&body).unwrap();
                match header.command {
                    RelayCommand::EXTEND2 => self.on_extend(circ_id, hop, data),
                    command => self.said.push((circ_id, command, header.stream_id, data.to_vec())),
                }
            }
            _ => {}
        }
    }

    fn on_extend(&mut self, circ_id: CircId, hop: usize, data: &[u8]) {
        if !self.builds {
            return;
        }
        let extend = Extend2::parse(data).unwrap();
        let [number, ..] = extend.target().unwrap().rsa_id;
        let (layer, reply) = self.answer(number, extend.htype, extend.hdata);
        let mut bytes = Vec::new();
        Extended2::from_created(&Created2 { hdata: &reply }).unwrap().encode(&mut bytes);
        let extended = self.seal(circ_id, hop, (RelayCommand::EXTENDED2, None), &bytes);
        self.answers.push_back(extended);
        self.layers.get_mut(&circ_id).unwrap().push(layer);
        self.exits.insert(circ_id, number);
    }

    /// A relay's answer to an onionskin, and its layer.
    fn answer(&mut self, number: u8, htype: u16, onionskin: &[u8]) -> (RelayLayer, Vec<u8>) {
        self.keys.rsa_id = [number; 20];
        let kind = HandshakeType::from_htype(htype).unwrap();
        let answer = onionskin::answer(&self.keys, kind, onionskin, None, &mut self.rng).unwrap();
        (RelayLayer::new(&answer.keys), answer.reply.to_vec())
    }

    /// A cell of a hop's.
    fn seal(
        &mut self,
        circ_id: CircId,
        hop: usize,
        (command, stream): (RelayCommand, Option<StreamId>),
        data: &[u8],
    ) -> Vec<u8> {
        let mut body = [0; BODY_LEN];
        relay::write(&mut body, command, stream, data, &mut self.rng);
        let layers = self.layers.get_mut(&circ_id).unwrap();
        layers[hop].originate(&mut body);
        for layer in layers[..hop].iter_mut().rev() {
            let came = body;
            layer.backward(&came, &mut body);
        }
        cell(circ_id, Command::RELAY, &body)
    }

    /// The last hop says something on a stream.
    fn say(&mut self, (circ_id, stream): (CircId, StreamId), command: RelayCommand, data: &[u8]) {
        let last = self.layers[&circ_id].len() - 1;
        let cell = self.seal(circ_id, last, (command, Some(stream)), data);
        self.feed_guard(&cell);
        self.settle();
    }

    fn connect(&mut self) -> SocketId {
        let socket = SocketId::accepted(self.accepted);
        self.accepted += 1;
        self.programs.insert(socket, Program::default());
        let (local, peer) = (([127, 0, 0, 1], 9050).into(), ([127, 0, 0, 1], 1).into());
        self.input(Input::Accepted { socket, local, peer });
        self.grant(socket, 32 << 10);
        socket
    }

    /// A program sends; the proxy reads as much as it wants. Returns what it left.
    fn write<'a>(&mut self, socket: SocketId, mut bytes: &'a [u8]) -> &'a [u8] {
        while !bytes.is_empty() && self.programs[&socket].is_read {
            let buf = Node::<SocksLanguage>::recv_buf(&mut self.proxy, socket);
            let len = buf.len().min(bytes.len());
            buf[..len].copy_from_slice(&bytes[..len]);
            if len > 0 {
                self.input(Input::Read { socket, len });
                self.grant(socket, 32 << 10);
            }
            self.settle();
            bytes = &bytes[len..];
        }
        bytes
    }

    /// A program asks for a stream to 127.0.0.1:80.
    fn ask(&mut self, user: Option<u8>) -> SocketId {
        let socket = self.connect();
        let greeting = match user {
            None => vec![5, 1, 0],
            Some(user) => vec![5, 1, 2, 1, 1, user, 0],
        };
        let request = [5, 1, 0, 1, 127, 0, 0, 1, 0, 80];
        assert_eq!(self.write(socket, &[&greeting[..], &request].concat()), b"");
        socket
    }

    /// The last stream that BEGIN asked for.
    fn last_begin(&self) -> (CircId, StreamId) {
        let begin = self.said.iter().rfind(|(_, command, ..)| *command == RelayCommand::BEGIN);
        let (circ_id, _, stream, _) = begin.unwrap();
        (*circ_id, stream.unwrap())
    }

    /// An open stream and its program.
    fn open(&mut self, user: Option<u8>) -> (SocketId, (CircId, StreamId)) {
        let socket = self.ask(user);
        let stream = self.last_begin();
        self.say(stream, RelayCommand::CONNECTED, &[127, 0, 0, 1, 0, 0, 0, 60]);
        let heard = core::mem::take(&mut self.programs.get_mut(&socket).unwrap().heard);
        assert_eq!(heard[heard.len() - 10..], [5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        (socket, stream)
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.input(Input::Timeout);
    }

    fn last_reply(&self, socket: SocketId) -> u8 {
        let heard = &self.programs[&socket].heard;
        heard[heard.len() - 9]
    }
}

#[test]
fn isolations_have_circuits_of_their_own_and_one_is_built_ahead() {
    let mut world = World::new(SocksOptions::default());
    assert_eq!(world.layers.len(), 1, "ahead of any request");
    let circuits = [None, Some(b'a'), Some(b'b'), Some(b'a'), None].map(|user| world.open(user).1.0);
    assert_eq!((circuits[0], circuits[1]), (circuits[4], circuits[3]));
    let different: BTreeSet<u32> = circuits.iter().map(|circuit| circuit.get()).collect();
    assert_eq!((different.len(), world.layers.len()), (3, 4));
    // Ten minutes after its first stream a circuit takes no new ones.
    world.pass(Duration::from_secs(601));
    assert_ne!(world.open(None).1.0, circuits[0]);
}

#[test]
fn bytes_go_both_ways_and_the_end_comes_after_them() {
    let mut world = World::new(SocksOptions::default());
    let (socket, stream) = world.open(None);
    assert_eq!(world.write(socket, b"question"), b"");
    let (_, command, id, data) = world.said.last().unwrap();
    assert_eq!((*command, *id, &data[..]), (RelayCommand::DATA, Some(stream.1), &b"question"[..]));
    // The connection has no credit: what comes waits with the stream, and so does the end.
    world.grant(socket, 0);
    world.say(stream, RelayCommand::DATA, b"answer");
    world.say(stream, RelayCommand::END, &[EndReason::DONE.0]);
    assert!(world.programs[&socket].heard.is_empty() && !world.programs[&socket].is_closed);
    world.grant(socket, 4);
    world.settle();
    assert_eq!(world.programs[&socket].heard, b"answ");
    world.grant(socket, 4);
    world.settle();
    let program = &world.programs[&socket];
    assert_eq!(program.heard, b"answer");
    assert!(program.is_closed && !program.is_reset && !program.is_read);
    assert!(world.proxy.sessions.is_empty());
}

/// The circuit's window is 1000 cells and the stream's 500: then the program is read no more, until a SENDME comes.
#[test]
fn a_program_is_read_as_far_as_the_windows_allow() {
    let mut world = World::new(SocksOptions::default());
    let (socket, stream) = world.open(None);
    let bytes = vec![1; 600 * relay::DATA_LEN];
    let left = world.write(socket, &bytes).len();
    assert_eq!((bytes.len() - left) / relay::DATA_LEN, 500);
    assert!(!world.programs[&socket].is_read);
    world.say(stream, RelayCommand::SENDME, &[]);
    assert!(world.programs[&socket].is_read);
    assert_eq!((left - world.write(socket, &bytes[..left]).len()) / relay::DATA_LEN, 50);
}

#[test]
fn a_program_that_leaves_ends_its_stream() {
    let mut world = World::new(SocksOptions::default());
    let (socket, stream) = world.open(None);
    world.input(Input::Eof { socket });
    assert!(world.programs[&socket].is_closed);
    assert_eq!(world.said.last().unwrap().1, RelayCommand::END);
    // What was under way is nobody's.
    world.say(stream, RelayCommand::DATA, b"late");
    let (socket, _) = world.open(None);
    world.input(Input::Failed { socket, error: SocketError::Reset });
    assert_eq!(world.said.last().unwrap().1, RelayCommand::END);
    assert!(world.proxy.sessions.is_empty() && world.proxy.waiting.is_empty());
}

#[test]
fn refusals_are_told_by_their_reason() {
    let mut world = World::new(SocksOptions::default());
    for (reason, reply) in
        [(EndReason::CONNECTREFUSED, 5), (EndReason::EXITPOLICY, 2), (EndReason::TIMEOUT, 6)]
    {
        let socket = world.ask(None);
        let stream = world.last_begin();
        world.say(stream, RelayCommand::END, &[reason.0, 127, 0, 0, 1, 0, 0, 0, 60]);
        assert_eq!(world.last_reply(socket), reply, "{reason:?}");
        assert!(world.programs[&socket].is_closed);
    }
}

#[test]
fn whoever_takes_too_long_is_given_up() {
    let mut world = World::new(SocksOptions::default());
    let silent = world.connect();
    let unanswered = world.ask(None);
    world.pass(Duration::from_secs(30));
    assert!(world.programs[&silent].is_reset && !world.programs[&unanswered].is_closed);
    world.pass(Duration::from_secs(90));
    assert_eq!(world.last_reply(unanswered), 6, "TTL expired");
    assert!(world.programs[&unanswered].is_closed);
    assert_eq!(world.said.last().unwrap().1, RelayCommand::END);
}

/// A circuit ends: an open stream is reset, because bytes are missing; a request goes over another circuit.
#[test]
fn a_lost_circuit_takes_its_open_streams_only() {
    let mut world = World::new(SocksOptions::default());
    let (open, (circ_id, _)) = world.open(None);
    let asked = world.ask(None);
    assert_eq!(world.last_begin().0, circ_id);
    world.feed_guard(&cell(circ_id, Command::DESTROY, &[0; BODY_LEN]));
    world.settle();
    assert!(world.programs[&open].is_reset && !world.programs[&asked].is_reset);
    let stream = world.last_begin();
    assert_ne!(stream.0, circ_id);
    world.say(stream, RelayCommand::CONNECTED, &[]);
    assert_eq!(world.last_reply(asked), 0);
}

#[test]
fn what_is_held_is_bounded() {
    let options =
        SocksOptions { sessions_max: 3, received_bytes_max: 10 * relay::DATA_LEN, ..SocksOptions::default() };
    let mut world = World::new(options);
    let (slow, stream) = world.open(Some(b'a'));
    let (other, _) = world.open(Some(b'b'));
    world.connect();
    let refused = world.connect();
    assert!(world.programs[&refused].is_reset, "a fourth connection");
    world.grant(slow, 0);
    for _ in 0..10 {
        world.say(stream, RelayCommand::DATA, &[0; relay::DATA_LEN]);
    }
    assert!(!world.programs[&slow].is_reset);
    world.say(stream, RelayCommand::DATA, &[0; relay::DATA_LEN]);
    assert!(world.programs[&slow].is_reset && !world.programs[&other].is_reset);
}

/// With `optimistic` the program hears of success before the exit says anything, and its first bytes follow BEGIN.
#[test]
fn first_bytes_may_travel_with_begin() {
    let mut world = World::new(SocksOptions { optimistic: true, ..SocksOptions::default() });
    let socket = world.ask(None);
    assert_eq!(world.last_reply(socket), 0);
    assert_eq!(world.write(socket, b"GET"), b"");
    let commands: Vec<_> = world.said.iter().map(|(_, command, ..)| *command).collect();
    assert_eq!(commands, [RelayCommand::BEGIN, RelayCommand::DATA]);
    let stream = world.last_begin();
    world.say(stream, RelayCommand::END, &[EndReason::CONNECTREFUSED.0]);
    assert!(world.programs[&socket].is_closed);
}

/// A relay that the consensus lists no more is told once, and its requests are refused at once.
#[test]
fn a_path_that_cannot_be_is_told() {
    let mut world = World::new(SocksOptions::default());
    world.open(Some(b'a'));
    let directory = world.directory(&["another"], 1);
    world.input(Input::Control(directory));
    // The circuits that there are still serve.
    world.open(Some(b'a'));
    world.open(Some(b'b'));
    let socket = world.ask(Some(b'c'));
    assert_eq!(world.last_reply(socket), 1);
    let told = world.events.iter().filter(|event| matches!(event, SocksEvent::NoPath { .. })).count();
    assert_eq!(told, 1);
}
