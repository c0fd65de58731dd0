use super::*;
use crate::circuit::OUT_CELLS_HIGH;
use heddle_forwarding::{Forwarded, Part};
use heddle_proto::cell::create::{Create2, Created2, DestroyReason, FAST_KEY_LEN};
use heddle_proto::cell::extend::{Extend2, Extended2};
use heddle_proto::cell::measure::{MEASURE, Measured};
use heddle_proto::cell::relay::{self, DATA_LEN, RelayCommand, StreamId};
use heddle_proto::cell::stream::{Begin, BeginFlags, Host};
use heddle_proto::cell::{BODY_LEN, Body, Command};
use heddle_proto::channel::Target;
use heddle_proto::crypto::NtorKeypair;
use heddle_proto::crypto::onionskin::{self, CongestionOffer, HandshakeType, OnionKeys};
use heddle_proto::crypto::tor1::{Recognized, RelayLayer};
use heddle_proto::ids::{Ed25519Id, RsaId};
use heddle_seam::rng::{Rng, Seed};
use heddle_seam::time::{Duration, Instant};

const NOW: Instant = Instant::ZERO;
const OFFER: Option<CongestionOffer> = Some(CongestionOffer { sendme_inc: 31 });

/// Relays that answer by the book, without links between them.
struct Path {
    keys: Vec<OnionKeys>,
    layers: Vec<RelayLayer>,
    rng: Rng,
}

impl Path {
    fn new(len: usize) -> Self {
        let mut rng = Seed::from_number(9).rng();
        let mut keys = || OnionKeys {
            rsa_id: rng.array(),
            ed25519_id: rng.array(),
            ntor_current: NtorKeypair::generate(&mut rng),
            ntor_previous: None,
        };
        Path { keys: (0..len).map(|_| keys()).collect(), layers: Vec::new(), rng: Seed::from_number(8).rng() }
    }

    fn hop(&self, index: usize) -> Hop {
        let keys = &self.keys[index];
        Hop {
            target: Target {
                rsa: RsaId(keys.rsa_id),
                ed25519: Some(Ed25519Id(keys.ed25519_id)),
                addrs: vec![([10, 0, 0, index as u8 + 1], 9001).into()],
            },
            ntor_key: *keys.ntor_current.public(),
        }
    }

    fn answer(&mut self, handshake: HandshakeType, onionskin: &[u8]) -> Vec<u8> {
        let keys = &self.keys[self.layers.len()];
        let answer = onionskin::answer(keys, handshake, onionskin, OFFER, &mut self.rng).unwrap();
        self.layers.push(RelayLayer::new(&answer.keys));
        answer.reply
    }

    /// Which hop recognizes a cell, and what it says.
    fn deliver(&mut self, cell: &OriginCell) -> (usize, RelayCommand, Option<StreamId>, Vec<u8>) {
        let mut body = cell.body;
        for (hop, layer) in self.layers.iter_mut().enumerate() {
            let src = body;
            if let Recognized::Yes { .. } = layer.forward(&src, &mut body) {
                let (header, data) = relay::parse(&body).unwrap();
                return (hop, header.command, header.stream_id, data.to_vec());
            }
        }
        panic!("no hop recognized the cell");
    }

    fn send(&mut self, hop: usize, command: RelayCommand, stream: Option<StreamId>, data: &[u8]) -> Body {
        let mut body = [0; BODY_LEN];
        relay::write(&mut body, command, stream, data, &mut self.rng);
        self.layers[hop].originate(&mut body);
        for layer in self.layers[..hop].iter_mut().rev() {
            layer.backward(&body.clone(), &mut body);
        }
        body
    }

    fn join(&mut self, circuit: &mut OriginCircuit) {
        let cell = circuit.poll_cell().unwrap();
        let mut body = [0; BODY_LEN];
        match cell.command {
            Command::CREATE_FAST => {
                let reply = self.answer(HandshakeType::Fast, &cell.body[..FAST_KEY_LEN]);
                body[..reply.len()].copy_from_slice(&reply);
                circuit.handle_cell(NOW, Command::CREATED_FAST, &body);
            }
            Command::CREATE2 => {
                let create = Create2::parse(&cell.body).unwrap();
                let reply = self.answer(HandshakeType::from_htype(create.htype).unwrap(), create.hdata);
                let mut bytes = Vec::new();
                Created2 { hdata: &reply }.encode(&mut bytes);
                body[..bytes.len()].copy_from_slice(&bytes);
                circuit.handle_cell(NOW, Command::CREATED2, &body);
            }
            _ => {
                assert_eq!(cell.command, Command::RELAY_EARLY);
                let last = self.layers.len() - 1;
                let (hop, command, _, data) = self.deliver(&cell);
                assert_eq!((hop, command), (last, RelayCommand::EXTEND2));
                let extend = Extend2::parse(&data).unwrap();
                assert_eq!(extend.target().unwrap().rsa_id, self.keys[last + 1].rsa_id);
                let htype = HandshakeType::from_htype(extend.htype).unwrap();
                let reply = self.answer(htype, extend.hdata);
                let created = Created2 { hdata: &reply };
                let mut bytes = Vec::new();
                Extended2::from_created(&created).unwrap().encode(&mut bytes);
                let body = self.send(last, RelayCommand::EXTENDED2, None, &bytes);
                circuit.handle_cell(NOW, Command::RELAY, &body);
            }
        }
        assert_eq!(circuit.poll_event(), Some(OriginEvent::Joined { hops: self.layers.len() }));
    }
}

fn new_circuit() -> OriginCircuit {
    OriginCircuit::new(Default::default(), Seed::from_number(4).rng())
}

fn built(first: Handshake, last: Handshake) -> (OriginCircuit, Path) {
    let (mut circuit, mut path) = (new_circuit(), Path::new(3));
    circuit.create(&path.hop(0), first).unwrap();
    path.join(&mut circuit);
    circuit.extend(&path.hop(1), Handshake::Ntor).unwrap();
    path.join(&mut circuit);
    circuit.extend(&path.hop(2), last).unwrap();
    path.join(&mut circuit);
    (circuit, path)
}

const CC: Handshake = Handshake::NtorV3 { congestion_control: true };

fn begin(circuit: &mut OriginCircuit, path: &mut Path) -> StreamId {
    let begin = Begin {
        host: Host::Ipv4([192, 0, 2, 1].into()),
        port: 80.try_into().unwrap(),
        flags: BeginFlags::default(),
    };
    let id = circuit.begin(&begin).unwrap();
    let cell = circuit.poll_cell().unwrap();
    let (hop, command, stream, _) = path.deliver(&cell);
    assert_eq!((hop, command, stream), (2, RelayCommand::BEGIN, Some(id)));
    let body = path.send(2, RelayCommand::CONNECTED, Some(id), &[192, 0, 2, 1, 0, 0, 0, 60]);
    circuit.handle_cell(NOW, Command::RELAY, &body);
    let addr = Some(([192, 0, 2, 1].into(), 60));
    assert_eq!(circuit.poll_event(), Some(OriginEvent::Connected { stream: id, addr }));
    id
}

#[test]
fn circuits_grow_by_every_handshake() {
    for first in [Handshake::Fast, Handshake::Ntor, Handshake::NtorV3 { congestion_control: false }] {
        for last in [Handshake::Ntor, CC] {
            let (mut circuit, mut path) = built(first, last);
            let id = begin(&mut circuit, &mut path);
            assert_eq!(circuit.send(NOW, id, &[7; DATA_LEN + 1]), DATA_LEN + 1);
            for len in [DATA_LEN, 1] {
                let cell = circuit.poll_cell().unwrap();
                assert_eq!(path.deliver(&cell), (2, RelayCommand::DATA, Some(id), vec![7; len]));
            }
        }
    }
}

#[test]
fn only_eight_hops_can_be_asked_for() {
    let (mut circuit, mut path) = (new_circuit(), Path::new(10));
    circuit.create(&path.hop(0), Handshake::Fast).unwrap();
    path.join(&mut circuit);
    for hop in 1..9 {
        circuit.extend(&path.hop(hop), Handshake::Ntor).unwrap();
        path.join(&mut circuit);
    }
    assert_eq!(circuit.extend(&path.hop(9), Handshake::Ntor), Err(OriginError::TooLong));
}

#[test]
fn a_stream_is_read_before_more_may_come() {
    let (mut circuit, mut path) = built(Handshake::Ntor, Handshake::Ntor);
    let id = begin(&mut circuit, &mut path);
    for _ in 0..500 {
        let body = path.send(2, RelayCommand::DATA, Some(id), &[1; DATA_LEN]);
        circuit.handle_cell(NOW, Command::RELAY, &body);
    }
    assert_eq!(circuit.poll_event(), Some(OriginEvent::Readable { stream: id }));
    assert_eq!(circuit.poll_event(), None);
    let commands = |circuit: &mut OriginCircuit, path: &mut Path| {
        let mut commands = Vec::new();
        while let Some(cell) = circuit.poll_cell() {
            let (_, command, stream, _) = path.deliver(&cell);
            commands.push((command, stream));
        }
        commands
    };
    assert_eq!(commands(&mut circuit, &mut path), [(RelayCommand::SENDME, None); 5]);
    let mut data = Vec::new();
    assert_eq!(circuit.recv(NOW, id, &mut data, usize::MAX), 500 * DATA_LEN);
    assert_eq!(commands(&mut circuit, &mut path), [(RelayCommand::SENDME, Some(id)); 10]);

    for _ in 0..501 {
        let body = path.send(2, RelayCommand::DATA, Some(id), &[1; DATA_LEN]);
        circuit.handle_cell(NOW, Command::RELAY, &body);
    }
    assert!(circuit.is_closed());
}

#[test]
fn windows_close_until_an_authentic_sendme_comes() {
    let (mut circuit, mut path) = built(Handshake::Ntor, Handshake::Ntor);
    let id = begin(&mut circuit, &mut path);
    let mut sent = 0;
    // A window that never closes is seen as soon as too much went.
    while sent <= 500 * DATA_LEN {
        let len = circuit.send(NOW, id, &[0; 10 * DATA_LEN]);
        if len == 0 {
            break;
        }
        sent += len;
        while circuit.poll_cell().is_some() {}
    }
    assert_eq!(sent, 500 * DATA_LEN);
    let body = path.send(2, RelayCommand::SENDME, None, &[1, 0, 20, 0, 0, 0]);
    circuit.handle_cell(NOW, Command::RELAY, &body);
    assert!(matches!(circuit.poll_event(), Some(OriginEvent::Closed(Closed::Misbehaved(_)))));
    let farewell = circuit.poll_cell().unwrap();
    assert_eq!((farewell.command, farewell.body[0]), (Command::DESTROY, 0));
    assert_eq!(circuit.poll_cell(), None);
}

#[test]
fn a_truncated_circuit_can_grow_again() {
    let (mut circuit, mut path) = built(Handshake::Ntor, CC);
    begin(&mut circuit, &mut path);
    circuit.truncate(1).unwrap();
    assert_eq!(circuit.extend(&path.hop(1), Handshake::Ntor), Err(OriginError::State));
    let cell = circuit.poll_cell().unwrap();
    assert_eq!(path.deliver(&cell), (0, RelayCommand::TRUNCATE, None, vec![0]));
    // A cell that was under way changes nothing.
    let late = path.send(2, RelayCommand::DATA, StreamId::new(1), b"late");
    circuit.handle_cell(NOW, Command::RELAY, &late);
    path.layers.truncate(1);
    let body = path.send(0, RelayCommand::TRUNCATED, None, &[DestroyReason::REQUESTED.0]);
    circuit.handle_cell(NOW, Command::RELAY, &body);
    let truncated = OriginEvent::Truncated { hops: 1, reason: DestroyReason::REQUESTED };
    assert_eq!(circuit.poll_event(), Some(truncated));
    circuit.extend(&path.hop(1), Handshake::Ntor).unwrap();
    path.join(&mut circuit);
    assert_eq!(circuit.hops(), 2);
}

#[test]
fn streams_outlive_a_truncation_that_cuts_nothing() {
    let (mut circuit, mut path) = built(Handshake::Ntor, CC);
    let id = begin(&mut circuit, &mut path);
    circuit.truncate(3).unwrap();
    let data = path.send(2, RelayCommand::DATA, Some(id), b"still here");
    circuit.handle_cell(NOW, Command::RELAY, &data);
    assert_eq!(circuit.poll_event(), Some(OriginEvent::Readable { stream: id }));
    let body = path.send(2, RelayCommand::TRUNCATED, None, &[DestroyReason::REQUESTED.0]);
    circuit.handle_cell(NOW, Command::RELAY, &body);
    assert!(matches!(circuit.poll_event(), Some(OriginEvent::Truncated { hops: 3, .. })));
    assert_eq!(circuit.readable(id), 10);
    assert_eq!(circuit.send(NOW, id, b"and here"), 8);
}

#[test]
fn a_lost_hop_and_destroy_end_the_circuit() {
    let (mut circuit, mut path) = built(Handshake::Ntor, Handshake::Ntor);
    let reason = DestroyReason::CHANNEL_CLOSED;
    let body = path.send(1, RelayCommand::TRUNCATED, None, &[reason.0]);
    circuit.handle_cell(NOW, Command::RELAY, &body);
    let closed = Closed::Truncated { hops: 2, reason };
    assert_eq!(circuit.poll_event(), Some(OriginEvent::Closed(closed)));
    assert_eq!(circuit.poll_cell().unwrap().command, Command::DESTROY);

    let (mut circuit, _) = built(Handshake::Ntor, Handshake::Ntor);
    circuit.handle_cell(NOW, Command::DESTROY, &[reason.0; BODY_LEN]);
    assert_eq!(circuit.poll_event(), Some(OriginEvent::Closed(Closed::Destroyed(reason))));
    assert_eq!(circuit.poll_cell(), None);
    assert!(circuit.is_closed());
}

/// What relays count is heard where it was asked for, once a question, and who does not answer is asked eight times.
#[test]
fn questions_are_answered_once_and_silence_ends_them() {
    let (mut circuit, mut path) = built(Handshake::Ntor, CC);
    let mut counted = Vec::new();
    Measured::default().encode(&mut counted);
    let mut asked = [0; 3];
    let mut ask = |circuit: &mut OriginCircuit, path: &mut Path| {
        circuit.measure().unwrap();
        while let Some(cell) = circuit.poll_cell() {
            let (hop, command, stream, data) = path.deliver(&cell);
            assert_eq!((command, stream, &data[..]), (RelayCommand::MEASURE, None, &MEASURE[..]));
            asked[hop] += 1;
        }
        asked
    };
    for _ in 0..20 {
        ask(&mut circuit, &mut path);
        let body = path.send(1, RelayCommand::MEASURED, None, &counted);
        circuit.handle_cell(NOW, Command::RELAY, &body);
        let measured = Box::new(Measured::default());
        assert_eq!(circuit.poll_event(), Some(OriginEvent::Measured { hop: 2, measured }));
    }
    assert_eq!(ask(&mut circuit, &mut path), [8, 21, 8]);
    // The answer to the last, and one to none.
    for is_asked in [true, false] {
        let body = path.send(1, RelayCommand::MEASURED, None, &counted);
        circuit.handle_cell(NOW, Command::RELAY, &body);
        let event = circuit.poll_event();
        assert_eq!(matches!(event, Some(OriginEvent::Measured { hop: 2, .. })), is_asked, "{event:?}");
        assert_eq!(circuit.is_closed(), !is_asked);
    }
}

/// While hops are asked to forward datagrams it is open in which way the last one would be asked.
#[test]
fn nothing_is_measured_while_hops_are_asked_to_forward() {
    let (mut circuit, mut path) = built(Handshake::Ntor, CC);
    circuit.forward_datagrams().unwrap();
    assert_eq!(circuit.measure(), Err(OriginError::State));
    let begin = Begin {
        host: Host::Ipv4([192, 0, 2, 1].into()),
        port: 80.try_into().unwrap(),
        flags: BeginFlags::default(),
    };
    assert_eq!(circuit.begin(&begin), Err(OriginError::State));
    answer_forward(&mut circuit, &mut path);
    assert_eq!((circuit.poll_event(), circuit.measure()), (Some(OriginEvent::Forwarding), Ok(())));
    let more = path.send(0, RelayCommand::FORWARDED, None, &[1, 0]);
    circuit.handle_cell(NOW, Command::RELAY, &more);
    assert!(matches!(circuit.poll_event(), Some(OriginEvent::Closed(Closed::Misbehaved(_)))));
}

/// All hops allow a circuit's cells to be datagrams.
fn answer_forward(circuit: &mut OriginCircuit, path: &mut Path) {
    for part in [Part::Pass, Part::Pass, Part::End] {
        let (hop, command, ..) = path.deliver(&circuit.poll_cell().unwrap());
        assert_eq!(command, RelayCommand::FORWARD);
        let mut answer = Vec::new();
        Forwarded(part).encode(&mut answer);
        let body = path.send(hop, RelayCommand::FORWARDED, None, &answer);
        circuit.handle_cell(NOW, Command::RELAY, &body);
    }
}

#[test]
fn a_circuit_whose_datagrams_lead_nowhere_ends() {
    let (mut circuit, mut path) = built(Handshake::Ntor, CC);
    circuit.forward_datagrams().unwrap();
    answer_forward(&mut circuit, &mut path);
    assert_eq!(circuit.poll_event(), Some(OriginEvent::Forwarding));
    let mut now = NOW;
    while !circuit.is_closed() {
        circuit.pump_session(now);
        while circuit.poll_cell().is_some() {}
        if !circuit.is_closed() {
            now = circuit.session_timeout().expect("TCP tries again, or has given up").max(now);
            circuit.handle_session_timeout(now);
        }
        assert!(now < NOW + Duration::from_secs(3600), "it tries for ever");
    }
    assert!(matches!(circuit.poll_event(), Some(OriginEvent::Closed(Closed::Misbehaved(_)))));
}

/// Any cell at any moment: at worst the circuit ends.
#[test]
fn random_cells_never_panic() {
    let mut rng = Seed::from_number(5).rng();
    for round in 0..300 {
        let (mut circuit, mut path) =
            built(Handshake::Fast, if round % 2 == 0 { CC } else { Handshake::Ntor });
        if round % 3 == 0 {
            begin(&mut circuit, &mut path);
        }
        for _ in 0..50 {
            let command = RelayCommand(rng.below(46) as u8);
            let stream = StreamId::new(rng.below(3) as u16);
            let len = rng.below(30) as usize;
            let data: [u8; 30] = core::array::from_fn(|_| rng.below(4) as u8);
            let body = match rng.below(10) {
                0 => rng.array(),
                hop => path.send(hop as usize % 3, command, stream, &data[..len]),
            };
            let outer = if rng.below(20) == 0 { Command(rng.below(14) as u8) } else { Command::RELAY };
            circuit.handle_cell(NOW, outer, &body);
            while circuit.poll_event().is_some() {}
            if circuit.is_closed() {
                break;
            }
        }
        assert!(circuit.queued_cells() <= 4 * OUT_CELLS_HIGH);
    }
}
