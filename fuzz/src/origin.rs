//! A circuit's client, two of whose relays are honest until it is built and then say whatever the bytes have them say.
//! Each act is a byte, and those after it say more of it.
//!
//! Nothing may panic; what waits stays within its bound; no cell makes more than two events; and a circuit that is over
//! says nothing more.

use heddle_client::{Handshake, Hop, OriginCircuit};
use heddle_proto::cell::create::{Created2, FAST_KEY_LEN};
use heddle_proto::cell::extend::{Extend2, Extended2};
use heddle_proto::cell::flow_control::Sendme;
use heddle_proto::cell::relay::{self, DATA_LEN, RelayCommand, StreamId};
use heddle_proto::cell::stream::{Begin, BeginFlags, Host, Resolve};
use heddle_proto::cell::{BODY_LEN, Body, Command};
use heddle_proto::channel::Target;
use heddle_proto::crypto::NtorKeypair;
use heddle_proto::crypto::onionskin::{CongestionOffer, HandshakeType, OnionKeys, answer};
use heddle_proto::crypto::tor1::{CellDigest, Recognized, RelayLayer};
use heddle_proto::ids::{Ed25519Id, RsaId};
use heddle_seam::rng::{Rng, Seed};
use heddle_seam::time::{Duration, Instant};
use std::net::Ipv4Addr;
use std::num::NonZeroU16;
use std::sync::Arc;

/// Cells that may wait for the channel: the circuit ends at 512, and one says so.
const QUEUED_CELLS_MAX: usize = 513;

/// What relays say mostly; a byte beyond them is the command's number.
const COMMANDS: [RelayCommand; 11] = [
    RelayCommand::DATA,
    RelayCommand::END,
    RelayCommand::CONNECTED,
    RelayCommand::SENDME,
    RelayCommand::RESOLVED,
    RelayCommand::XON,
    RelayCommand::XOFF,
    RelayCommand::TRUNCATED,
    RelayCommand::EXTENDED2,
    RelayCommand::FORWARDED,
    RelayCommand::MEASURED,
];

const CELLS: [Command; 6] = [
    Command::CREATED2,
    Command::CREATED_FAST,
    Command::RELAY,
    Command::RELAY_EARLY,
    Command::DATAGRAM,
    Command::DESTROY,
];

/// The first byte says whether the client asks for congestion control.
pub fn run(data: &[u8]) {
    let Some((first, script)) = data.split_first() else { return };
    let mut client = Client::new(first % 2 == 1);
    let mut script = Script(script);
    while let Some(act) = script.next() {
        if client.act(act, &mut script).is_none() {
            return;
        }
        client.check();
    }
}

struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}

struct Client {
    circuit: OriginCircuit,
    layers: Vec<RelayLayer>,
    rng: Rng,
    now: Instant,
    streams: Vec<StreamId>,
    /// Of the last cell that a relay was sent: what a SENDME for it has to carry.
    digest: CellDigest,
}

impl Client {
    fn new(congestion_control: bool) -> Self {
        let mut rng = Seed::from_number(1).rng();
        let keys = OnionKeys {
            rsa_id: [7; 20],
            ed25519_id: [8; 32],
            ntor_current: NtorKeypair::generate(&mut rng),
            ntor_previous: None,
        };
        let addrs = vec![([127, 0, 0, 1], 9001).into()];
        let target = Target { rsa: RsaId(keys.rsa_id), ed25519: Some(Ed25519Id(keys.ed25519_id)), addrs };
        let hop = Hop { target, ntor_key: *keys.ntor_current.public() };
        let mut client = Client {
            circuit: OriginCircuit::new(Arc::default(), Seed::from_number(2).rng()),
            layers: Vec::new(),
            rng,
            now: Instant::ZERO,
            streams: Vec::new(),
            digest: [0; 20],
        };
        client.join_first(&hop, &keys);
        client.join_second(&hop, &keys, congestion_control);
        assert_eq!(client.circuit.hops(), 2);
        client
    }

    fn join_first(&mut self, hop: &Hop, keys: &OnionKeys) {
        self.circuit.create(hop, Handshake::Fast).expect("a new circuit");
        let cell = self.circuit.poll_cell().expect("CREATE_FAST");
        let onionskin = &cell.body[..FAST_KEY_LEN];
        let answer = answer(keys, HandshakeType::Fast, onionskin, None, &mut self.rng).expect("20 bytes");
        let mut body = [0; BODY_LEN];
        body[..answer.reply.len()].copy_from_slice(&answer.reply);
        self.hear(Command::CREATED_FAST, &body);
        self.layers.push(RelayLayer::new(&answer.keys));
    }

    fn join_second(&mut self, hop: &Hop, keys: &OnionKeys, congestion_control: bool) {
        self.circuit.extend(hop, Handshake::NtorV3 { congestion_control }).expect("a first hop");
        let cell = self.circuit.poll_cell().expect("EXTEND2");
        let mut body = [0; BODY_LEN];
        self.layers[0].forward(&cell.body, &mut body);
        let (_, data) = relay::parse(&body).expect("a relay cell");
        let extend = Extend2::parse(data).expect("EXTEND2");
        let offer = Some(CongestionOffer { sendme_inc: 31 });
        let answer =
            answer(keys, HandshakeType::NtorV3, extend.hdata, offer, &mut self.rng).expect("an honest one");
        let mut reply = Vec::new();
        Extended2::from_created(&Created2 { hdata: &answer.reply }).expect("it is short").encode(&mut reply);
        self.say(0, RelayCommand::EXTENDED2, None, &reply);
        self.layers.push(RelayLayer::new(&answer.keys));
    }

    fn act(&mut self, act: u8, script: &mut Script<'_>) -> Option<()> {
        match act % 16 {
            0 => {
                let host = Host::Ipv4(Ipv4Addr::LOCALHOST);
                let begin = Begin { host, port: NonZeroU16::MIN, flags: BeginFlags(0) };
                self.streams.extend(self.circuit.begin(&begin));
            }
            1 => {
                let resolve = Resolve::Addr(Ipv4Addr::LOCALHOST.into());
                self.streams.extend(self.circuit.resolve(&resolve));
            }
            2 => {
                let (id, len) = (self.stream(script.next()?)?, usize::from(script.next()?) * 8);
                assert!(self.circuit.send(self.now, id, &vec![1; len]) <= len);
            }
            3 => {
                let (id, max) = (self.stream(script.next()?)?, usize::from(script.next()?) * 16);
                let mut received = Vec::new();
                let len = self.circuit.recv(self.now, id, &mut received, max);
                assert!(len <= max && len == received.len());
            }
            4 => {
                let id = self.stream(script.next()?)?;
                // It may be over.
                let _ = self.circuit.end_stream(id);
            }
            5 => self.now += Duration::from_millis(u64::from(script.next()?) * 10),
            6 | 7 => self.take(),
            8 => {
                let mut sendme = Vec::new();
                Sendme::Authenticated(self.digest).encode(&mut sendme);
                self.say(1, RelayCommand::SENDME, None, &sendme);
            }
            9 => {
                let command = CELLS[usize::from(script.next()?) % CELLS.len()];
                let mut body = [0; BODY_LEN];
                let bytes = script.bytes(BODY_LEN);
                body[..bytes.len()].copy_from_slice(bytes);
                self.hear(command, &body);
            }
            // Whether they may be asked for now, the circuit knows.
            10 => {
                let _ = self.circuit.forward_datagrams();
            }
            11 => {
                let _ = self.circuit.measure();
            }
            12 => {
                let _ = self.circuit.truncate(usize::from(script.next()?) % 3);
            }
            _ => {
                let hop = usize::from(script.next()?) % self.layers.len();
                let number = script.next()?;
                let command = COMMANDS.get(usize::from(number)).copied().unwrap_or(RelayCommand(number));
                let stream = self.stream(script.next()?);
                let len = usize::from(script.next()?) * 2;
                self.say(hop, command, stream, script.bytes(len.min(DATA_LEN)));
            }
        }
        Some(())
    }

    /// One of the client's streams, or another, or none.
    fn stream(&self, number: u8) -> Option<StreamId> {
        let of_client = self.streams.get(usize::from(number % 16)).copied();
        of_client.or(StreamId::new(u16::from(number / 16)))
    }

    /// The relays take all that the client has for them.
    fn take(&mut self) {
        while let Some(cell) = self.circuit.poll_cell() {
            if !matches!(cell.command, Command::RELAY | Command::RELAY_EARLY) {
                continue;
            }
            let mut body = cell.body;
            for layer in &mut self.layers {
                let came = body;
                if let Recognized::Yes { digest } = layer.forward(&came, &mut body) {
                    self.digest = digest;
                    break;
                }
            }
        }
    }

    /// A relay says something.
    fn say(&mut self, hop: usize, command: RelayCommand, stream: Option<StreamId>, data: &[u8]) {
        let mut body = [0; BODY_LEN];
        relay::write(&mut body, command, stream, data, &mut self.rng);
        self.layers[hop].originate(&mut body);
        for layer in self.layers[..hop].iter_mut().rev() {
            let came = body;
            layer.backward(&came, &mut body);
        }
        self.hear(Command::RELAY, &body);
    }

    fn hear(&mut self, command: Command, body: &Body) {
        let was_over = self.circuit.is_closed();
        self.circuit.handle_cell(self.now, command, body);
        let mut events = 0;
        while self.circuit.poll_event().is_some() {
            events += 1;
        }
        assert!(events <= 2 || command == Command::DATAGRAM, "{events} events");
        assert!(events == 0 || !was_over);
    }

    fn check(&self) {
        // What waits in a session of datagrams its window bounds.
        let queued = if self.circuit.forwards_datagrams() { 0 } else { self.circuit.queued_cells() };
        assert!(queued <= QUEUED_CELLS_MAX, "{queued} cells wait");
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let say = |hop: u8, command: u8, data: &[u8]| {
        let len = [13, hop, command, 0, (data.len() / 2) as u8];
        [&len[..], data].concat()
    };
    let connected = say(1, 2, &[127, 0, 0, 1, 0, 0, 0, 60]);
    let download = [say(1, 0, &[9; 400]).repeat(60), vec![3, 0, 255], say(1, 1, &[6, 0])].concat();
    let upload = [2, 0, 255, 6, 8].repeat(60);
    let signals = [say(1, 6, &[0, 0]), say(1, 5, &[0, 0, 0, 1, 0, 0])].concat();
    let resolved = [vec![1, 6], say(1, 4, &[4, 4, 127, 0, 0, 1, 0, 0, 0, 60])].concat();
    let datagrams = [vec![10, 6], say(0, 9, &[1, 0]), say(1, 9, &[1, 1]), vec![0, 6, 9, 4]].concat();
    let truncated = [vec![12, 1, 6], say(0, 7, &[0, 0])].concat();
    let of = |first: u8, acts: &[u8]| [&[first, 0, 6], &connected[..], acts].concat();
    let mut seeds = vec![of(0, &download), of(1, &download), of(0, &upload), of(1, &upload), of(1, &signals)];
    seeds.extend([resolved, datagrams, truncated].map(|acts| [vec![0], acts].concat()));
    seeds
}
