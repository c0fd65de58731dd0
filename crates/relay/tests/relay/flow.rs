//! What holds the two ends of a circuit back: windows, SENDMEs, XON and XOFF, and full queues.

use super::bench::{Bench, Gone, OURS, Sock, config};
use super::client::{Client, Got, Kind, NTOR_V3_CC, theirs};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::flow_control::{Sendme, Xon};
use heddle_proto::cell::relay::{self, DATA_LEN, RelayCommand, StreamId};
use heddle_proto::cell::{BODY_LEN, Body, CELL_LEN, Command};
use heddle_proto::crypto::tor1::{OriginLayers, RelayLayer};
use heddle_relay::Input;
use heddle_seam::node::Node;
use heddle_seam::rng::Seed;
use heddle_seam::time::Duration;
use std::collections::{BTreeSet, VecDeque};

const PROTOCOL: Option<DestroyReason> = Some(DestroyReason::PROTOCOL);
/// Cells in flight at first with congestion control (`cc_cwnd_init`), and per SENDME.
const CWND_INIT_CELLS: usize = 124;
const SENDME_INC_CELLS: usize = 31;
/// What a cell carries that leaves room for 16 bytes of random padding.
const SHORT_LEN: usize = DATA_LEN - 20;

fn exit(kind: Kind) -> (Bench, Client) {
    let mut bench = Bench::new(config());
    let sock = bench.relay_channel(0, 1);
    let client = Client::create(&mut bench, sock, theirs(1), kind);
    (bench, client)
}

/// Takes what came and keeps the DATA cells.
fn data(client: &mut Client, bench: &mut Bench) -> Vec<Got> {
    let mut got = client.got(bench);
    got.retain(|got| got.command == RelayCommand::DATA);
    got
}

/// A server that has more to say than any window allows.
fn endless(client: &mut Client, bench: &mut Bench, stream: u16) -> Sock {
    let server = client.connect(bench, stream);
    bench.write(server, &vec![7; 2000 * DATA_LEN]);
    server
}

fn send_data(client: &mut Client, bench: &mut Bench, stream: u16, cells: usize) {
    for _ in 0..cells {
        client.send(bench, RelayCommand::DATA, stream, &[1; DATA_LEN]);
    }
}

fn block(bench: &mut Bench, sock: Sock) {
    bench.set_willing(sock, false);
    bench.grant(sock, 0);
}

#[test]
fn a_stream_is_read_up_to_its_window() {
    let (mut bench, mut client) = exit(Kind::Ntor);
    let server = endless(&mut client, &mut bench, 1);
    let got = data(&mut client, &mut bench);
    assert_eq!(got.len(), 500);
    assert!(got.iter().all(|got| [DATA_LEN, SHORT_LEN].contains(&got.data.len())));
    assert!(!bench.is_read(server));
    // The circuit is not what holds it back.
    client.sendme(&mut bench, got[99].digest);
    assert_eq!(data(&mut client, &mut bench), []);
    client.send(&mut bench, RelayCommand::SENDME, 1, &[]);
    assert_eq!(data(&mut client, &mut bench).len(), 50);
}

#[test]
fn a_circuit_is_fed_up_to_its_window() {
    for (params, window) in [(&[][..], 1000), (&[("circwindow", 300)][..], 300)] {
        let (mut bench, mut client) = exit(Kind::Ntor);
        bench.set_params(params);
        for stream in 1..=3 {
            client.connect(&mut bench, stream);
        }
        let servers: Vec<Sock> = bench.connected(0).into_iter().filter(|sock| sock.id.is_dialled()).collect();
        for server in &servers {
            bench.write(*server, &vec![7; 600 * DATA_LEN]);
        }
        let got = data(&mut client, &mut bench);
        assert_eq!(got.len(), window);
        assert!(servers.iter().all(|server| !bench.is_read(*server)));
        client.sendme(&mut bench, got[99].digest);
        assert_eq!(data(&mut client, &mut bench).len(), 100);
    }
}

/// A driver reads several sockets before it asks what has become of its interest in them.
#[test]
fn a_stream_whose_circuits_window_another_used_up_is_not_read() {
    let (mut bench, mut client) = exit(Kind::Ntor);
    bench.set_params(&[("circwindow", 100)]);
    let servers = [client.connect(&mut bench, 1), client.connect(&mut bench, 2)];
    let (now, relay) = (bench.now, &mut bench.shards[0].relay);
    while let len @ 1.. = relay.recv_buf(servers[0].id).len() {
        relay.handle_input(now, Input::Read { socket: servers[0].id, len });
    }
    assert!(relay.recv_buf(servers[1].id).is_empty());
    bench.pass(Duration::from_secs(1));
    assert!(servers.iter().all(|server| !bench.is_read(*server)));
    let got = data(&mut client, &mut bench);
    assert_eq!(got.len(), 100);
    assert!(got.iter().all(|got| [DATA_LEN, SHORT_LEN].contains(&got.data.len())));
}

/// With each SENDME a circuit of many streams has room for a few of them only. Nobody is asked about the others, but
/// each has its turn.
#[test]
fn a_sendme_costs_no_look_at_every_stream() {
    const STREAMS: u16 = 400;
    let (mut bench, mut client) = exit(Kind::Ntor);
    bench.set_params(&[("circwindow", 100)]);
    let servers: Vec<Sock> = (1..=STREAMS).map(|stream| client.connect(&mut bench, stream)).collect();
    for (server, cells) in servers.iter().zip([2000, 1].into_iter().cycle()) {
        bench.write(*server, &vec![7; cells * SHORT_LEN]);
    }
    let mut got = data(&mut client, &mut bench);
    let (mut served, mut most) = (BTreeSet::new(), 0);
    for _ in 0..110 {
        assert_eq!(got.len(), 100);
        served.extend(got.iter().map(|got| got.stream));
        let before = bench.shards[0].interests;
        client.sendme(&mut bench, got[99].digest);
        bench.pass(Duration::from_millis(1));
        most = most.max(bench.shards[0].interests - before);
        got = data(&mut client, &mut bench);
    }
    assert_eq!(served.len(), usize::from(STREAMS));
    assert!(most < 60, "{most} changes of interest by one SENDME");
}

#[test]
fn sendmes_prove_what_they_acknowledge() {
    // (What the first SENDME carries for 300 cells in flight, whether that is fine.)
    type Case = (&'static str, fn(&[Got]) -> Sendme, i32, bool);
    let cases: [Case; 5] = [
        ("the right digest", |got| Sendme::Authenticated(got[99].digest), 1, true),
        ("the digest of a later cell", |got| Sendme::Authenticated(got[199].digest), 1, false),
        ("no digest", |_| Sendme::Unauthenticated, 1, false),
        ("no digest where that is fine", |_| Sendme::Unauthenticated, 0, true),
        ("zeros", |_| Sendme::Authenticated([0; 20]), 1, false),
    ];
    for (what, sendme, min_version, fine) in cases {
        let (mut bench, mut client) = exit(Kind::Ntor);
        bench.set_params(&[("sendme_accept_min_version", min_version)]);
        let server = client.connect(&mut bench, 1);
        // Some of the cells are short.
        bench.write(server, &vec![7; 299 * DATA_LEN]);
        let got = data(&mut client, &mut bench);
        assert_eq!(got.len(), 300);
        let mut body = Vec::new();
        sendme(&got).encode(&mut body);
        client.send(&mut bench, RelayCommand::SENDME, 0, &body);
        let expected = if fine { None } else { PROTOCOL };
        assert_eq!(client.destroyed(&mut bench), expected, "{what}");
    }
}

#[test]
fn one_of_50_to_99_full_cells_is_short() {
    let (mut bench, mut client) = exit(NTOR_V3_CC);
    endless(&mut client, &mut bench, 1);
    let (mut cells, mut bytes, mut run, mut runs) = (0, 0, 0, Vec::new());
    // The server has 2000 cells to say, and the last one may be short.
    while cells < 1900 {
        let got = data(&mut client, &mut bench);
        assert!(!got.is_empty());
        for got in got {
            (cells, run, bytes) = (cells + 1, run + 1, bytes + got.data.len());
            if got.data.len() < DATA_LEN && cells < 1900 {
                assert_eq!(got.data.len(), SHORT_LEN);
                runs.push(core::mem::take(&mut run));
            }
            if cells % SENDME_INC_CELLS == 0 {
                client.sendme(&mut bench, got.digest);
            }
        }
    }
    let (first, others) = runs.split_first().expect("some were short");
    assert!((51..=100).contains(first) && others.iter().all(|run| (50..=99).contains(run)), "{runs:?}");
    assert!(others.len() >= 18, "{runs:?}");
    assert!(bytes as f64 > 0.999 * (cells * DATA_LEN) as f64);
}

/// The Sniper attack (Jansen, Tschorsch, Johnson and Scheuermann, NDSS 2014): a client has its own server fill the
/// circuit, reads nothing, and acknowledges what it knows was sent, so that the cells pile up at its guard.
#[test]
fn nobody_acknowledges_what_it_did_not_read() {
    for (kind, portion) in [(Kind::Ntor, 100), (NTOR_V3_CC, SENDME_INC_CELLS)] {
        let mut bench = Bench::new(config());
        let sock = bench.relay_channel(0, 1);
        let mut client = Client::new(sock, theirs(1));
        let (handshake, command, body) = client.onionskin(kind, OURS);
        bench.send(sock, theirs(1), command, &body);
        let keys = client.finish(handshake, &bench.cells(sock)[0]).keys;
        client.begin(&mut bench, 1, "203.0.114.7:80");
        let (server, _) = bench.connect_next(0);

        // It reads CONNECTED, whose padding it could not know, and from then on does what the exit would do.
        let (mut exit, mut layers) = (RelayLayer::new(&keys), OriginLayers::new());
        layers.add_hop(&keys);
        let mut connected: Body = bench.cells(sock)[0].body[..].try_into().expect("a whole body");
        layers.open(&mut connected).expect("it is for us");
        connected[5..9].fill(0);
        exit.originate(&mut connected);
        bench.write(server, &vec![7; 10_000 * DATA_LEN]);
        let mut rng = Seed::from_number(1).rng();
        for number in 1..=3_000 {
            let mut body = [0; BODY_LEN];
            relay::write(&mut body, RelayCommand::DATA, StreamId::new(1), &[7; DATA_LEN], &mut rng);
            let digest = exit.originate(&mut body);
            if number % portion == 0 {
                client.sendme(&mut bench, digest);
            }
            if kind == Kind::Ntor && number % 50 == 0 {
                client.send(&mut bench, RelayCommand::SENDME, 1, &[]);
            }
        }
        assert_eq!(bench.circuits(), 0, "{kind:?}: the circuit went on");
        let cells = bench.cells(sock);
        let sent = cells.iter().filter(|cell| cell.command == Command::RELAY).count();
        // It got as far as a window and the first short cell.
        assert!(sent <= 1_000 + 200, "{kind:?}: {sent} cells");
        let destroyed = cells.iter().find(|cell| cell.command == Command::DESTROY);
        assert_eq!(destroyed.map(|cell| DestroyReason::parse(&cell.body)), PROTOCOL);
    }
}

#[test]
fn a_sendme_too_many_ends_the_circuit() {
    for kind in [Kind::Ntor, NTOR_V3_CC] {
        let (mut bench, mut client) = exit(kind);
        let server = client.connect(&mut bench, 1);
        bench.write(server, &vec![7; 100 * DATA_LEN]);
        let cells = if kind == NTOR_V3_CC { SENDME_INC_CELLS } else { 100 };
        let got = data(&mut client, &mut bench);
        for sendme in 0..100 / cells {
            client.sendme(&mut bench, got[(sendme + 1) * cells - 1].digest);
            assert_eq!(client.destroyed(&mut bench), None);
        }
        client.sendme(&mut bench, got[99].digest);
        assert_eq!(client.destroyed(&mut bench), PROTOCOL, "{kind:?}");

        let (mut bench, mut client) = exit(kind);
        client.sendme(&mut bench, [1; 20]);
        assert_eq!(client.destroyed(&mut bench), PROTOCOL, "{kind:?} before any data");
    }
}

#[test]
fn a_stream_sendme_too_many_ends_the_circuit() {
    let (mut bench, mut client) = exit(Kind::Ntor);
    client.connect(&mut bench, 1);
    client.send(&mut bench, RelayCommand::SENDME, 1, &[]);
    assert_eq!(client.destroyed(&mut bench), PROTOCOL);
    // With congestion control the first is one too many.
    let (mut bench, mut client) = exit(NTOR_V3_CC);
    let server = client.connect(&mut bench, 1);
    bench.write(server, &vec![7; 60 * DATA_LEN]);
    client.send(&mut bench, RelayCommand::SENDME, 1, &[]);
    assert_eq!(client.destroyed(&mut bench), PROTOCOL);
}

/// The circuit's SENDME goes out at once for each portion of DATA cells, whatever becomes of their
/// streams, and carries the digest of the last.
#[test]
fn data_is_acknowledged_also_for_streams_that_are_over() {
    for (kind, portion) in [(Kind::Ntor, 100), (NTOR_V3_CC, SENDME_INC_CELLS)] {
        let (mut bench, mut client) = exit(kind);
        client.connect(&mut bench, 1);
        client.send(&mut bench, RelayCommand::END, 1, &[6]);
        for _ in 0..3 {
            send_data(&mut client, &mut bench, 1, portion - 1);
            assert_eq!(client.got(&mut bench), [], "{kind:?}");
            client.send(&mut bench, RelayCommand::DATA, 1, &[]);
            let expected = Sendme::Authenticated(client.sealed);
            let got = client.got_one(&mut bench);
            assert_eq!((got.command, got.stream), (RelayCommand::SENDME, 0));
            assert_eq!(Sendme::parse(&got.data), Ok(expected));
        }
        assert_eq!(bench.queued_cells(), 0);
    }
}

#[test]
fn a_streams_sendme_waits_for_its_connection() {
    let (mut bench, mut client) = exit(Kind::Ntor);
    let server = client.connect(&mut bench, 1);
    let stream_sendmes = |got: Vec<Got>| {
        got.iter().filter(|got| got.command == RelayCommand::SENDME && got.stream == 1).count()
    };
    send_data(&mut client, &mut bench, 1, 49);
    assert_eq!(client.got(&mut bench), []);
    send_data(&mut client, &mut bench, 1, 1);
    assert_eq!(stream_sendmes(client.got(&mut bench)), 1);
    block(&mut bench, server);
    send_data(&mut client, &mut bench, 1, 200);
    assert_eq!(stream_sendmes(client.got(&mut bench)), 0);
    assert_eq!(bench.queued_cells(), 200);
    bench.grant(server, 200 * DATA_LEN - 1);
    assert_eq!(stream_sendmes(client.got(&mut bench)), 0);
    bench.grant(server, 1);
    assert_eq!(stream_sendmes(client.got(&mut bench)), 4);
}

/// As by stock Tor: windows count cells, whatever is in them.
#[test]
fn cells_without_data_count_for_a_streams_sendme() {
    let (mut bench, mut client) = exit(Kind::Ntor);
    client.connect(&mut bench, 1);
    for _ in 0..12 {
        (0..49).for_each(|_| client.send(&mut bench, RelayCommand::DATA, 1, &[]));
        client.got(&mut bench);
        client.send(&mut bench, RelayCommand::DATA, 1, &[]);
        let got = client.got(&mut bench);
        let of_stream = got.iter().filter(|got| got.command == RelayCommand::SENDME && got.stream == 1);
        assert_eq!(of_stream.count(), 1);
    }
    assert_eq!(client.destroyed(&mut bench), None, "600 cells are more than a window");
}

#[test]
fn data_beyond_a_streams_window_ends_the_circuit() {
    let (mut bench, mut client) = exit(Kind::Ntor);
    let server = client.connect(&mut bench, 1);
    block(&mut bench, server);
    send_data(&mut client, &mut bench, 1, 500);
    assert_eq!((client.destroyed(&mut bench), bench.queued_cells()), (None, 500));
    send_data(&mut client, &mut bench, 1, 1);
    assert_eq!(client.destroyed(&mut bench), PROTOCOL);
}

#[test]
fn vegas_lets_its_first_window_out_and_grows() {
    let (mut bench, mut client) = exit(NTOR_V3_CC);
    endless(&mut client, &mut bench, 1);
    let got = data(&mut client, &mut bench);
    assert_eq!(got.len(), CWND_INIT_CELLS);
    bench.pass(Duration::from_millis(100));
    client.sendme(&mut bench, got[SENDME_INC_CELLS - 1].digest);
    // What was acknowledged, and what slow start adds.
    assert_eq!(data(&mut client, &mut bench).len(), 2 * SENDME_INC_CELLS);
}

#[test]
fn xoff_stops_a_stream_and_xon_lets_it_go_on() {
    let (mut bench, mut client) = exit(NTOR_V3_CC);
    let server = client.connect(&mut bench, 1);
    let other = client.connect(&mut bench, 2);
    client.send(&mut bench, RelayCommand::XOFF, 1, &[0]);
    client.send(&mut bench, RelayCommand::XOFF, 1, &[0]);
    assert!(!bench.is_read(server) && bench.is_read(other));
    bench.write(server, &[7; 1000]);
    bench.write(other, &[8; 1000]);
    assert!(data(&mut client, &mut bench).iter().all(|got| got.stream == 2));
    client.send(&mut bench, RelayCommand::XON, 1, &[0, 0, 0, 0, 0]);
    assert_eq!(data(&mut client, &mut bench).len(), 3);
    // Of an unknown version, or cut: ignored.
    client.send(&mut bench, RelayCommand::XOFF, 1, &[9]);
    client.send(&mut bench, RelayCommand::XOFF, 1, &[]);
    assert!(bench.is_read(server));
}

/// XON names a rate, and a second's worth of it may come at once.
#[test]
fn an_xon_holds_a_stream_to_its_rate() {
    let (mut bench, mut client) = exit(NTOR_V3_CC);
    let server = client.connect(&mut bench, 1);
    let mut xon = Vec::new();
    Xon { kbytes_per_s: core::num::NonZeroU32::new(20) }.encode(&mut xon);
    client.send(&mut bench, RelayCommand::XON, 1, &xon);
    bench.write(server, &vec![7; 2000 * DATA_LEN]);
    let (mut bytes, mut cells) = (0, Vec::new());
    for _ in 0..100 {
        for got in data(&mut client, &mut bench) {
            bytes += got.data.len();
            cells.push(got.digest);
            if cells.len() % SENDME_INC_CELLS == 0 {
                client.sendme(&mut bench, got.digest);
            }
        }
        bench.pass(Duration::from_millis(100));
    }
    assert!((215_000..=220_000).contains(&bytes), "{bytes}");
}

#[test]
fn xoff_goes_out_for_a_slow_connection_and_xon_when_it_is_through() {
    let (mut bench, mut client) = exit(NTOR_V3_CC);
    let server = client.connect(&mut bench, 1);
    block(&mut bench, server);
    let signals = |got: Vec<Got>| -> Vec<RelayCommand> {
        got.iter().filter(|got| got.stream == 1).map(|got| got.command).collect()
    };
    send_data(&mut client, &mut bench, 1, 500);
    assert_eq!(signals(client.got(&mut bench)), []);
    send_data(&mut client, &mut bench, 1, 5);
    assert_eq!(signals(client.got(&mut bench)), [RelayCommand::XOFF]);
    bench.pass(Duration::from_secs(1));
    bench.grant(server, 504 * DATA_LEN);
    assert_eq!(signals(client.got(&mut bench)), []);
    bench.grant(server, 10 * DATA_LEN);
    assert_eq!(signals(client.got(&mut bench)), [RelayCommand::XON]);
    assert_eq!(bench.queued_cells(), 0);
}

/// Stock tor ignores XON and XOFF on a stream with windows (`edge_uses_flow_control`).
#[test]
fn signals_on_a_stream_with_windows() {
    let (mut bench, mut client) = exit(Kind::Ntor);
    let server = client.connect(&mut bench, 1);
    client.send(&mut bench, RelayCommand::XOFF, 1, &[0]);
    assert_eq!((client.destroyed(&mut bench), bench.is_read(server)), (None, true));
}

/// While the channel takes nothing, an exit stops reading at 128 cells that wait, and goes on when
/// few are left.
#[test]
fn a_blocked_channel_stops_the_reading_at_the_exit() {
    let (mut bench, mut client) = exit(Kind::Ntor);
    let server = client.connect(&mut bench, 1);
    block(&mut bench, client.sock);
    bench.write(server, &vec![7; 2000 * DATA_LEN]);
    let waiting = bench.queued_cells();
    assert!((128..128 + 32).contains(&waiting), "{waiting} cells wait");
    assert!(!bench.is_read(server));
    bench.grant(client.sock, 60 * CELL_LEN);
    assert_eq!((bench.queued_cells(), bench.is_read(server)), (waiting - 60, false));
    bench.grant(client.sock, 60 * CELL_LEN);
    assert!(bench.queued_cells() >= 128, "{} cells wait", bench.queued_cells());
    let mut received = 0;
    bench.set_willing(client.sock, true);
    received += data(&mut client, &mut bench).len();
    assert_eq!(received, 500);
}

/// Where a later hop must wait for lost packets now and then, acknowledgements pause and then come many at a time, and
/// the exit reads until it must hold its streams back. If that counted as congestion, the window would shrink until the
/// exit has nothing left to send in the next pause.
#[test]
fn streams_that_are_held_back_do_not_starve_the_channel() {
    const CELLS_A_STEP: usize = 60;
    let (mut bench, mut client) = exit(NTOR_V3_CC);
    let server = client.connect(&mut bench, 1);
    block(&mut bench, client.sock);
    bench.write(server, &vec![7; 40_000 * DATA_LEN]);
    let (mut received, mut late) = (0, 0);
    let mut under_way = VecDeque::new();
    // A tenth of a second each.
    for step in 0..600 {
        bench.grant(client.sock, CELLS_A_STEP * CELL_LEN);
        for got in data(&mut client, &mut bench) {
            received += 1;
            late += usize::from(step >= 300);
            if received % SENDME_INC_CELLS == 0 {
                under_way.push_back((step + 10, got.digest));
            }
        }
        let is_pause = step % 10 < 3;
        while let Some((_, digest)) = under_way.pop_front_if(|(due, _)| *due <= step && !is_pause) {
            client.sendme(&mut bench, digest);
        }
        bench.pass(Duration::from_millis(100));
    }
    assert!(late > 300 * CELLS_A_STEP * 98 / 100, "{late} cells in 30 s");
}

/// Its circuits, which would keep the channel, go with it. A peer that takes something now and then keeps it.
#[test]
fn a_channel_that_takes_nothing_for_fifty_minutes_ends() {
    for is_slow in [false, true] {
        let (mut bench, mut client) = exit(Kind::Ntor);
        let server = client.connect(&mut bench, 1);
        block(&mut bench, client.sock);
        bench.write(server, &vec![7; 50 * DATA_LEN]);
        for _ in 0..4 {
            bench.pass(Duration::from_secs(740));
            if is_slow {
                bench.grant(client.sock, CELL_LEN);
            }
        }
        assert_eq!((bench.gone(client.sock), bench.circuits()), (None, 1));
        bench.pass(Duration::from_secs(60));
        let (gone, circuits) = if is_slow { (None, 1) } else { (Some(Gone::Closed), 0) };
        assert_eq!((bench.gone(client.sock), bench.circuits()), (gone, circuits));
    }
}

/// A channel that takes little asks for more before it has nothing left.
#[test]
fn a_channel_asks_for_credit_before_it_has_none() {
    let (mut bench, mut client) = exit(Kind::Ntor);
    let server = client.connect(&mut bench, 1);
    bench.set_willing(client.sock, false);
    bench.grant(client.sock, 100 * CELL_LEN);
    bench.write(server, &vec![7; 49 * DATA_LEN]);
    assert!(!bench.is_write_wanted(client.sock));
    bench.write(server, &vec![7; 2 * DATA_LEN]);
    assert!(bench.is_write_wanted(client.sock));
}
