//! Circuits whose cells are datagrams: who may ask for them, what becomes of each cell, and what is held of them.

use super::bench::{Bench, Cell, config};
use super::client::{Client, Hop, Kind, extend, theirs, two_hops};
use heddle_forwarding::{Forward, Forwarded, HopKeys, HopLayer, Part, Session};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::relay::{self, RelayCommand, StreamId};
use heddle_proto::cell::{BODY_LEN, Body, Command};
use heddle_relay::RelayConfig;
use heddle_seam::rng::Seed;
use heddle_seam::time::{Duration, Instant};
use heddle_utcp::BufferPool;

fn forwarding() -> RelayConfig {
    RelayConfig { forwards_datagrams: true, ..config() }
}

fn keys() -> HopKeys {
    HopKeys::new([1; 16], [2; 16])
}

pub fn forward(part: Part) -> Vec<u8> {
    let mut data = Vec::new();
    Forward { part, keys: keys() }.encode(&mut data);
    data
}

/// Asks the relay for a part, and hears that it takes it.
fn ask(bench: &mut Bench, client: &mut Client, part: Part) {
    client.send_to(bench, 0, RelayCommand::FORWARD, 0, &forward(part));
    let got = client.got_one(bench);
    assert_eq!((got.command, Forwarded::parse(&got.data)), (RelayCommand::FORWARDED, Some(Forwarded(part))));
}

fn datagram(fill: u8) -> Body {
    let mut body = [fill; BODY_LEN];
    body[..8].copy_from_slice(&u64::from(fill).to_be_bytes());
    body
}

fn bodies(cells: &[Cell]) -> Vec<Body> {
    let of = |cell: &Cell| {
        assert_eq!(cell.command, Command::DATAGRAM);
        cell.body[..].try_into().expect("a whole body")
    };
    cells.iter().map(of).collect()
}

#[test]
fn a_relay_that_does_not_allow_it_hears_nothing() {
    let mut bench = Bench::new(config());
    bench.list(&[1, 2]);
    let (mut client, mut hop) = two_hops(&mut bench);
    client.send_to(&mut bench, 0, RelayCommand::FORWARD, 0, &forward(Part::Pass));
    bench.send(client.sock, client.circ_id, Command::DATAGRAM, &datagram(1));
    bench.send(hop.sock, hop.circ_id, Command::DATAGRAM, &datagram(2));
    assert_eq!(client.got(&mut bench), []);
    assert_eq!(hop.got(&mut bench), []);
    assert_eq!(client.destroyed(&mut bench), None);
}

#[test]
fn who_asks_for_what_there_is_not_loses_the_circuit() {
    let ends = |begin: &dyn Fn(&mut Bench) -> Client, asked: &[Vec<u8>]| {
        let mut bench = Bench::new(forwarding());
        bench.list(&[1, 2]);
        let mut client = begin(&mut bench);
        for data in asked {
            client.send_to(&mut bench, 0, RelayCommand::FORWARD, 0, data);
        }
        client.destroyed(&mut bench)
    };
    let long = |bench: &mut Bench| two_hops(bench).0;
    let short = |bench: &mut Bench| {
        // The exit of a circuit that came over another relay.
        let sock = bench.relay_channel(0, 1);
        Client::create(bench, sock, theirs(1), Kind::Ntor)
    };
    let with_stream = |bench: &mut Bench| {
        let mut client = short(bench);
        client.connect(bench, 1);
        client
    };
    let protocol = Some(DestroyReason::PROTOCOL);
    assert_eq!(ends(&long, &[forward(Part::End)]), protocol, "the circuit goes on");
    assert_eq!(ends(&short, &[forward(Part::Pass)]), protocol, "it does not");
    assert_eq!(ends(&long, &[forward(Part::Pass), forward(Part::Pass)]), protocol, "twice");
    assert_eq!(ends(&with_stream, &[forward(Part::End)]), protocol, "beside a stream");
    assert_eq!(ends(&short, &[forward(Part::End)[..20].to_vec()]), protocol, "cut short");
    assert_eq!(ends(&short, &[vec![9; 34]]), protocol, "another version");
    assert_eq!(ends(&short, &[forward(Part::End)]), None);
    assert_eq!(ends(&long, &[forward(Part::Pass)]), None);
}

#[test]
fn cells_pass_in_any_order_with_our_layer_off_or_on() {
    let mut bench = Bench::new(forwarding());
    bench.list(&[1, 2]);
    let (mut client, mut hop) = two_hops(&mut bench);
    ask(&mut bench, &mut client, Part::Pass);
    let layer = HopLayer::new(&keys());
    for fill in [7, 3, 9, 3] {
        bench.send(client.sock, client.circ_id, Command::DATAGRAM, &datagram(fill));
        let mut expected = datagram(fill);
        layer.forward(&mut expected);
        assert_eq!(bodies(&bench.cells(hop.sock)), [expected]);
        bench.send(hop.sock, hop.circ_id, Command::DATAGRAM, &datagram(fill));
        let mut expected = datagram(fill);
        layer.backward(&mut expected);
        assert_eq!(bodies(&bench.cells(client.sock)), [expected]);
    }
    // Relay cells go beside them as ever.
    client.send_to(&mut bench, 1, RelayCommand::DATA, 1, b"beside");
    assert_eq!(hop.got(&mut bench)[0].data, b"beside");
    hop.send(&mut bench, RelayCommand::DATA, 1, b"back");
    assert_eq!(client.got_one(&mut bench).data, b"back");
}

#[test]
fn what_is_too_much_is_dropped_and_harms_nobody() {
    let mut bench = Bench::new(forwarding());
    bench.list(&[1, 2]);
    let (mut client, hop) = two_hops(&mut bench);
    ask(&mut bench, &mut client, Part::Pass);
    bench.set_willing(hop.sock, false);
    bench.grant(hop.sock, 0);
    for number in 0..1000 {
        bench.send(client.sock, client.circ_id, Command::DATAGRAM, &datagram(number as u8));
    }
    assert_eq!(bench.queued_cells(), 128);
    assert_eq!(bench.shards[0].relay.stats().dropped_datagrams, 1000 - 128);
    bench.set_willing(hop.sock, true);
    bench.grant(hop.sock, 1 << 20);
    let came = bench.cells(hop.sock);
    assert_eq!((came.len(), bench.queued_cells()), (128, 0));
    assert_eq!(client.destroyed(&mut bench), None);
}

/// The client's end of a session with the relay under test.
struct Far {
    client: Client,
    session: Session,
}

impl Far {
    fn new(bench: &mut Bench) -> Far {
        bench.list(&[1]);
        let sock = bench.relay_channel(0, 1);
        let mut client = Client::create(bench, sock, theirs(1), Kind::Ntor);
        ask(bench, &mut client, Part::End);
        let session = Session::connect(Instant::ZERO, &keys(), BufferPool::new(4 << 20));
        Far { client, session }
    }

    fn send(&mut self, bench: &mut Bench, command: RelayCommand, stream: u16, data: &[u8]) {
        let mut body = [0; BODY_LEN];
        let mut rng = Seed::from_number(1).rng();
        relay::write(&mut body, command, StreamId::new(stream), data, &mut rng);
        self.session.send(&body).expect("few wait");
        self.exchange(bench);
    }

    /// Carries cells to and fro until there is none. Returns the messages that came.
    fn exchange(&mut self, bench: &mut Bench) -> Vec<(RelayCommand, Vec<u8>)> {
        let mut came = Vec::new();
        loop {
            let mut body = [0; BODY_LEN];
            let mut is_any = false;
            while self.session.poll_cell(bench.now, &mut body) {
                bench.send(self.client.sock, self.client.circ_id, Command::DATAGRAM, &body);
                is_any = true;
            }
            for mut body in bodies(&bench.cells(self.client.sock)) {
                self.session.handle_cell(bench.now, &mut body).expect("the relay is honest");
                is_any = true;
            }
            while self.session.next_message(bench.now, &mut body).expect("and says messages") {
                let (header, data) = relay::parse(&body).expect("of a cell's length");
                came.push((header.command, data.to_vec()));
            }
            if !is_any {
                return came;
            }
        }
    }
}

#[test]
fn streams_live_in_a_session() {
    let mut bench = Bench::new(forwarding());
    let mut far = Far::new(&mut bench);
    far.send(&mut bench, RelayCommand::BEGIN, 5, b"203.0.114.7:80\0\0\0\0\0");
    let (server, addr) = bench.connect_next(0);
    assert_eq!(addr.to_string(), "203.0.114.7:80");
    bench.connect(server);
    let came = far.exchange(&mut bench);
    assert!(matches!(came[..], [(RelayCommand::CONNECTED, _)]), "{came:?}");
    far.send(&mut bench, RelayCommand::DATA, 5, b"to the server");
    assert_eq!(bench.received(server), b"to the server");
    bench.write(server, b"to the client");
    assert_eq!(far.exchange(&mut bench), [(RelayCommand::DATA, b"to the client".to_vec())]);
    // What nobody sealed changes nothing, and what was sealed counts once.
    bench.send(far.client.sock, far.client.circ_id, Command::DATAGRAM, &datagram(1));
    let mut body = [0; BODY_LEN];
    relay::write(&mut body, RelayCommand::DATA, StreamId::new(5), b"once", &mut Seed::from_number(1).rng());
    far.session.send(&body).expect("few wait");
    assert!(far.session.poll_cell(bench.now, &mut body));
    for _ in 0..3 {
        bench.send(far.client.sock, far.client.circ_id, Command::DATAGRAM, &body);
    }
    assert_eq!(bench.received(server), b"once");
    bench.finish(server);
    assert!(matches!(far.exchange(&mut bench)[..], [(RelayCommand::END, _)]));
    assert_eq!(far.client.destroyed(&mut bench), None);
}

/// A client that asks much and whose channel takes nothing: what waits for it is bounded, and the circuit lives.
#[test]
fn what_a_client_is_owed_waits_in_its_session() {
    let mut bench = Bench::new(forwarding());
    let mut far = Far::new(&mut bench);
    far.send(&mut bench, RelayCommand::BEGIN_DIR, 1, &[]);
    bench.set_willing(far.client.sock, false);
    bench.grant(far.client.sock, 0);
    let mut sent = 0;
    for round in 0..3000 {
        let mut body = [0; BODY_LEN];
        let mut rng = Seed::from_number(round).rng();
        relay::write(&mut body, RelayCommand::BEGIN_DIR, StreamId::new(1), &[], &mut rng);
        far.session.send(&body).expect("few wait");
        bench.pass(Duration::from_millis(2));
        while far.session.poll_cell(bench.now, &mut body) {
            bench.send(far.client.sock, far.client.circ_id, Command::DATAGRAM, &body);
            sent += 1;
        }
        if far.session.queued_cells() > 30 {
            break;
        }
    }
    assert!(sent >= 10 && bench.queued_cells() <= 32, "{sent} {}", bench.queued_cells());
    bench.set_willing(far.client.sock, true);
    bench.grant(far.client.sock, 1 << 20);
    let came = far.exchange(&mut bench);
    assert!(
        came.iter().all(|(command, _)| *command == RelayCommand::END) && came.len() > 200,
        "{}",
        came.len()
    );
    assert_eq!(far.client.destroyed(&mut bench), None);
}

/// The exit's TCP wants to send more than its lane takes: its timers wait for the lane, and all of it comes later.
#[test]
fn a_session_waits_for_its_full_lane() {
    let mut bench = Bench::new(forwarding());
    let mut far = Far::new(&mut bench);
    far.send(&mut bench, RelayCommand::BEGIN, 5, b"203.0.114.7:80\0\0\0\0\0");
    let (server, _) = bench.connect_next(0);
    far.exchange(&mut bench);
    let mut came = 0;
    let mut take = |far: &mut Far, bench: &mut Bench| {
        let data = far.exchange(bench).into_iter().filter(|(command, _)| *command == RelayCommand::DATA);
        came += data.map(|(_, data)| data.len()).sum::<usize>();
        came
    };
    bench.write(server, &[7; 110_000]);
    for _ in 0..200 {
        bench.pass(Duration::from_millis(20));
        take(&mut far, &mut bench);
    }
    bench.set_willing(far.client.sock, false);
    bench.grant(far.client.sock, 0);
    bench.write(server, &[7; 110_000]);
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.queued_cells(), 32, "{:?}", far.session.stats());
    bench.set_willing(far.client.sock, true);
    bench.grant(far.client.sock, 1 << 20);
    for _ in 0..500 {
        bench.pass(Duration::from_millis(20));
        take(&mut far, &mut bench);
    }
    assert_eq!(take(&mut far, &mut bench), 220_000, "as much as a stream may carry without a SENDME");
}

#[test]
fn a_hop_beyond_may_end_a_circuit_of_datagrams() {
    let mut bench = Bench::new(forwarding());
    bench.list(&[1, 2]);
    let sock = bench.client_channel(0);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    let hop: Hop = extend(&mut bench, &mut client, 2);
    ask(&mut bench, &mut client, Part::Pass);
    bench.send(hop.sock, hop.circ_id, Command::DESTROY, &[DestroyReason::FINISHED.0]);
    assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::DESTROYED));
    bench.send(client.sock, client.circ_id, Command::DATAGRAM, &datagram(1));
    assert_eq!((bench.circuits(), bench.queued_cells()), (0, 0));
}

#[test]
fn who_has_a_session_says_all_in_it_and_keeps_it() {
    let begun = || {
        let mut bench = Bench::new(forwarding());
        let far = Far::new(&mut bench);
        (bench, far)
    };
    let protocol = Some(DestroyReason::PROTOCOL);
    let (mut bench, mut far) = begun();
    far.client.send(&mut bench, RelayCommand::BEGIN_DIR, 1, &[]);
    assert_eq!(far.client.destroyed(&mut bench), protocol, "beside the session");
    for command in [RelayCommand::EXTEND2, RelayCommand::TRUNCATE, RelayCommand::FORWARD] {
        let (mut bench, mut far) = begun();
        let mut body = [0; BODY_LEN];
        relay::write(&mut body, command, None, &[0; 40], &mut Seed::from_number(1).rng());
        far.session.send(&body).expect("few wait");
        while far.session.poll_cell(bench.now, &mut body) {
            bench.send(far.client.sock, far.client.circ_id, Command::DATAGRAM, &body);
        }
        assert_eq!(far.client.destroyed(&mut bench), protocol, "{command:?}");
        assert_eq!(bench.circuits(), 0);
    }
}
