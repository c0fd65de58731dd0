use super::*;
use crate::language::Carried;
use heddle_dir::consensus::RelayFlags;
use heddle_seam::node::SocketError;
use std::net::SocketAddr;

const PEER: [u8; 4] = [127, 0, 0, 1];

fn at(ms: u64) -> Instant {
    Instant::from_nanos(7_000_000_000 + ms * 1_000_000)
}

fn port(policy: &[&str], shards: u16) -> MetricsPort {
    let rules: Vec<_> = policy.iter().map(|rule| rule.parse().unwrap()).collect();
    MetricsPort::new(ExitPolicy::from_rules(&rules), shards)
}

fn standing() -> Standing {
    let flags = Some(RelayFlags { fast: true, ..RelayFlags::default() });
    Standing { flags, relays: 7, signing_expires_unix_s: 1_800_000_000, freed_cells: 2 }
}

fn figures() -> Figures {
    Figures {
        carried: Carried { read: 10, written: 20 },
        sockets: 3,
        sockets_max: Some(1000),
        more: "# of the driver\ndriver 1\n".to_owned(),
    }
}

/// What the port wants, with what is sent to whom.
#[derive(Debug, Default)]
struct Done {
    sent: BTreeMap<SocketId, Vec<u8>>,
    closed: Vec<SocketId>,
    aborted: Vec<SocketId>,
    /// Shards that are asked, and whether the driver is.
    asked: Vec<u16>,
    figures: usize,
}

/// Carries out what the port wants; connections take `credit` bytes at once.
fn settle(port: &mut MetricsPort, now: Instant, credit: usize, done: &mut Done) {
    let mut buf = Vec::new();
    while let Some(output) = port.poll_output(&mut buf) {
        match output {
            Output::Send { socket } => {
                assert!(!buf.is_empty() && buf.len() <= credit);
                done.sent.entry(socket).or_default().append(&mut buf);
                port.handle(now, &Input::Writable { socket, bytes: credit, window_bytes: credit });
            }
            Output::Interest { socket, write: true, .. } => {
                port.handle(now, &Input::Writable { socket, bytes: credit, window_bytes: credit });
            }
            Output::Interest { .. } => {}
            Output::Close { socket } => done.closed.push(socket),
            Output::Abort { socket } => done.aborted.push(socket),
            Output::Event(Wanted::Tell { shard, control: Control::Stats }) => done.asked.push(shard),
            Output::Event(Wanted::Figures) => done.figures += 1,
            output => panic!("{output:?}"),
        }
    }
}

fn visit(port: &mut MetricsPort, number: u64, now: Instant) -> SocketId {
    let (socket, peer) = (SocketId::accepted(number), SocketAddr::from((PEER, 5000)));
    port.handle(now, &Input::Accepted { socket, local: peer, peer });
    socket
}

fn say(port: &mut MetricsPort, socket: SocketId, now: Instant, bytes: &[u8]) {
    for piece in bytes.chunks(port.recv_buf().len()) {
        port.recv_buf()[..piece.len()].copy_from_slice(piece);
        port.handle(now, &Input::Read { socket, len: piece.len() });
    }
}

const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";

#[test]
fn metrics_are_told_to_those_that_may_ask() {
    let mut port = port(&["accept 127.0.0.1"], 2);
    let mut done = Done::default();
    let socket = visit(&mut port, 0, at(0));
    say(&mut port, socket, at(1), &GET[..7]);
    settle(&mut port, at(1), 1000, &mut done);
    assert!(done.asked.is_empty());
    say(&mut port, socket, at(2), &GET[7..]);
    settle(&mut port, at(2), 1000, &mut done);
    assert_eq!((&done.asked[..], done.figures), (&[0, 1][..], 0));
    for shard in [0, 1] {
        assert_eq!(done.figures, 0, "both are waited for");
        port.on_stats(at(3), shard, RelayStats { circuits: 5, ..RelayStats::default() });
        settle(&mut port, at(3), 1000, &mut done);
    }
    assert_eq!(done.figures, 1);
    port.on_figures(at(4), &figures(), &standing());
    settle(&mut port, at(4), 1000, &mut done);
    assert_eq!(done.closed, [socket]);
    assert_eq!(port.next_end(), None);

    let answer = String::from_utf8(done.sent[&socket].clone()).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200 OK\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    for line in [
        "tor_relay_load_socket_total{state=\"opened\"} 3",
        "tor_relay_load_socket_total 1000",
        "tor_relay_traffic_bytes{direction=\"written\"} 20",
        "tor_relay_circuits_total{state=\"opened\"} 10",
        "tor_relay_signing_cert_expiry_timestamp 1800000000",
        "tor_relay_load_oom_bytes_total{subsys=\"cell\"} 1028",
        "tor_relay_flag{type=\"Fast\"} 1",
        "tor_relay_flag{type=\"Running\"} 1",
        "tor_relay_flag{type=\"Exit\"} 0",
        "heddle_consensus_relays 7",
        "heddle_queue_delay_seconds_bucket{le=\"+Inf\"} 0",
        "driver 1",
    ] {
        assert!(body.lines().any(|found| found == line), "{line} is missing:\n{body}");
    }
    for line in body.lines().filter(|line| !line.starts_with('#')) {
        let (_, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
}

#[test]
fn shards_are_asked_seldom_and_not_waited_for_long() {
    let mut port = port(&["accept *"], 1);
    let mut done = Done::default();
    for number in [0, 1] {
        let socket = visit(&mut port, number, at(0));
        say(&mut port, socket, at(0), GET);
    }
    settle(&mut port, at(0), 1000, &mut done);
    assert_eq!(done.asked, [0], "once for both");
    assert_eq!(port.next_end(), Some(at(1000)));
    port.expire(at(999));
    settle(&mut port, at(999), 1000, &mut done);
    assert_eq!(done.figures, 0);
    port.expire(at(1000));
    settle(&mut port, at(1000), 1000, &mut done);
    assert_eq!(done.figures, 1, "the shard has had its time");
    port.on_figures(at(1000), &figures(), &standing());
    settle(&mut port, at(1000), 1000, &mut done);
    assert_eq!(done.closed.len(), 2);

    let asked_again = |port: &mut MetricsPort, done: &mut Done, number, now| {
        let socket = visit(port, number, now);
        say(port, socket, now, GET);
        settle(port, now, 1000, done);
        (done.asked.len(), done.figures)
    };
    assert_eq!(asked_again(&mut port, &mut done, 2, at(1199)), (1, 2), "what it said is fresh");
    port.on_figures(at(1199), &figures(), &standing());
    assert_eq!(asked_again(&mut port, &mut done, 3, at(1200)), (2, 2));
}

/// A driver that had too much to do forgets that it was asked.
#[test]
fn a_driver_that_says_nothing_is_asked_again() {
    let mut port = port(&["accept *"], 0);
    let mut done = Done::default();
    let ask = |port: &mut MetricsPort, number, now| {
        let socket = visit(port, number, now);
        say(port, socket, now, GET);
    };
    ask(&mut port, 0, at(0));
    settle(&mut port, at(0), 1000, &mut done);
    assert_eq!(done.figures, 1);
    for second in 1..=4 {
        let now = at(second * 1000);
        assert_eq!(port.next_end(), Some(now));
        port.expire(now);
        settle(&mut port, now, 1000, &mut done);
        assert_eq!(done.figures, 1 + second as usize);
    }
    port.expire(at(5000));
    settle(&mut port, at(5000), 1000, &mut done);
    assert_eq!((done.figures, done.aborted.len()), (6, 1), "he has waited long enough");
    port.expire(at(6000));
    settle(&mut port, at(6000), 1000, &mut done);
    assert_eq!((done.figures, port.next_end()), (6, None), "and nobody waits any more");
    ask(&mut port, 1, at(7000));
    port.on_figures(at(7000), &figures(), &standing());
    settle(&mut port, at(7000), 1000, &mut done);
    assert_eq!(done.closed.len(), 1);
}

#[test]
fn whoever_may_not_ask_hears_nothing() {
    for policy in [&[][..], &["reject 127.0.0.1", "accept *"]] {
        let mut port = port(policy, 1);
        let mut done = Done::default();
        let socket = visit(&mut port, 0, at(0));
        say(&mut port, socket, at(0), GET);
        settle(&mut port, at(0), 1000, &mut done);
        assert_eq!(done.closed, [socket]);
        assert!(done.sent.is_empty() && done.asked.is_empty());
    }
}

#[test]
fn what_is_not_understood_is_refused() {
    let mut port = port(&["accept *"], 1);
    for (number, (request, status)) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "404 Not Found"),
        (b"PUT /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
        // Longer than any head may be; no more of it is kept than that.
        (&[b'x'; 5000], "400 Bad Request"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut done = Done::default();
        let socket = visit(&mut port, number as u64, at(0));
        say(&mut port, socket, at(0), request);
        settle(&mut port, at(0), 7, &mut done);
        assert_eq!(done.sent[&socket], format!("HTTP/1.0 {status}\r\n\r\n").into_bytes());
        assert_eq!(done.closed, [socket]);
    }
    let mut done = Done::default();
    let socket = visit(&mut port, 9, at(0));
    port.handle(at(0), &Input::Eof { socket });
    settle(&mut port, at(0), 1000, &mut done);
    assert_eq!(done.closed, [socket]);
}

#[test]
fn who_is_slow_is_cut_off_and_there_are_only_so_many() {
    let mut port = port(&["accept *"], 1);
    let mut done = Done::default();
    let sockets: Vec<_> = (0..20).map(|number| visit(&mut port, number, at(number))).collect();
    settle(&mut port, at(19), 1000, &mut done);
    assert_eq!(done.closed, sockets[VISITORS_MAX..]);
    assert_eq!(port.next_end(), Some(at(0) + EXCHANGE_MAX));
    port.handle(at(20), &Input::Failed { socket: sockets[0], error: SocketError::Reset });
    port.expire(at(2) + EXCHANGE_MAX);
    settle(&mut port, at(2) + EXCHANGE_MAX, 1000, &mut done);
    assert_eq!(done.aborted, sockets[1..3]);

    // One that asks and then does not read has its time anew, and no more.
    let asking = sockets[3];
    say(&mut port, asking, at(5000), GET);
    port.on_stats(at(5000), 0, RelayStats::default());
    port.on_figures(at(5001), &figures(), &standing());
    port.expire(at(5001) + EXCHANGE_MAX);
    let mut done = Done::default();
    let mut buf = Vec::new();
    while let Some(output) = port.poll_output(&mut buf) {
        if let Output::Abort { socket } = output {
            done.aborted.push(socket);
        }
    }
    assert!(done.aborted.contains(&asking));
    assert_eq!(port.next_end(), None);
}

#[test]
fn every_refusal_is_documented() {
    let row = |(what, whys): &(&str, &[&str])| format!("| `{what}` | `{}` |", whys.join("`, `"));
    let rows: Vec<String> = heddle_relay::REFUSALS.iter().map(row).collect();
    let document = include_str!("../../../../docs/reference/metrics.md");
    assert!(document.contains(&rows.join("\n")), "{}", rows.join("\n"));
}
