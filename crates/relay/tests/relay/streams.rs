//! Streams at the exit: they begin, carry data and end; names are looked up.

use super::bench::{Bench, Gone, Sock, config, host};
use super::client::{Client, Got, Kind, NTOR_V3_CC, theirs};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::relay::RelayCommand;
use heddle_proto::cell::stream::{Answer, Connected, End, EndReason, Resolve, Resolved};
use heddle_proto::policy::{ExitPolicy, Rule};
use heddle_proto::pool::SLOT_LEN;
use heddle_relay::{Control, Limits, RelayConfig};
use heddle_seam::node::{Query, Resolution, ResolveError, SocketError};
use heddle_seam::time::Duration;
use std::net::{IpAddr, SocketAddr};

const IPV6_OK: u32 = 1;
const IPV4_NOT_OK: u32 = 2;
const IPV6_PREFERRED: u32 = 4;

pub fn policy(rules: &[&str]) -> Option<ExitPolicy> {
    let rules: Vec<Rule> = rules.iter().map(|rule| rule.parse().expect("a rule")).collect();
    Some(ExitPolicy::from_rules(&rules))
}

/// A circuit of one hop whose channel is a relay's.
pub fn exit_with(config: RelayConfig, kind: Kind) -> (Bench, Client) {
    let mut bench = Bench::new(config);
    let sock = bench.relay_channel(0, 1);
    let client = Client::create(&mut bench, sock, theirs(1), kind);
    (bench, client)
}

pub fn exit() -> (Bench, Client) {
    exit_with(config(), Kind::Ntor)
}

/// The reason of an END.
pub fn reason(got: &Got) -> EndReason {
    assert_eq!(got.command, RelayCommand::END, "{got:?}");
    End::parse(&got.data).reason
}

pub fn addr(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

pub fn addrs(texts: &[&str]) -> Result<Resolution, ResolveError> {
    Ok(Resolution::Addresses(texts.iter().map(|text| (addr(text), 60)).collect()))
}

#[test]
fn connected_names_the_address() {
    for (to, address) in [("203.0.114.7:80", "203.0.114.7"), ("[2a00:1::7]:443", "2a00:1::7")] {
        let (mut bench, mut client) = exit();
        client.begin(&mut bench, 9, to);
        let (_, connected) = bench.connect_next(0);
        assert_eq!(connected.ip(), addr(address));
        let got = client.got_one(&mut bench);
        assert_eq!((got.command, got.stream), (RelayCommand::CONNECTED, 9));
        let connected = Connected::parse(&got.data).expect("well written");
        assert_eq!(connected.addr, Some((addr(address), 1800)));
    }
}

#[test]
fn a_time_to_live_is_told_as_the_resolver_gave_it() {
    let (mut bench, mut client) = exit();
    let answer = || Ok(Resolution::Addresses(vec![(addr("203.0.114.7"), 287)]));
    client.begin(&mut bench, 9, "a.example:80");
    bench.resolve_next(0, answer());
    bench.connect_next(0);
    let connected = Connected::parse(&client.got_one(&mut bench).data).expect("well written");
    assert_eq!(connected.addr, Some((addr("203.0.114.7"), 287)));
    // RESOLVE is told the same of every name.
    client.send(&mut bench, RelayCommand::RESOLVE, 10, b"a.example\0");
    bench.resolve_next(0, answer());
    let resolved = Resolved::parse(&client.got_one(&mut bench).data).expect("well written");
    assert_eq!(resolved.answers(), [(Answer::Addr(addr("203.0.114.7")), 60)]);
}

/// An exit's name servers may know its operator's own hosts, which are nobody else's to ask for.
#[test]
fn names_of_private_addresses_are_not_looked_up() {
    let (mut bench, mut client) = exit();
    let private = [
        "1.0.168.192.in-addr.arpa",
        "1.0.0.127.In-Addr.Arpa",
        "1.0.168.192.in-addr.arpa.",
        "1.0.64.100.in-addr.arpa",
        &format!("{}d.f.ip6.arpa", "0.".repeat(30)),
    ];
    for (name, id) in private.into_iter().zip(1..) {
        client.send(&mut bench, RelayCommand::RESOLVE, id, name.as_bytes());
        let resolved = Resolved::parse(&client.got_one(&mut bench).data).expect("well written");
        assert!(
            matches!(resolved.answers(), [(Answer::Error { transient: false }, _)]),
            "{name}: {resolved:?}"
        );
    }
    for (to, id) in
        [("1.0.168.192.in-addr.arpa:80", 11), ("router.10.IN-ADDR.ARPA.:80", 12), ("x.ip6.arpa:80", 13)]
    {
        client.begin(&mut bench, id, to);
        assert_eq!(reason(&client.got_one(&mut bench)), EndReason::RESOLVEFAILED, "{to}");
    }
    assert!(bench.shards[0].resolves.is_empty());
    client.send(&mut bench, RelayCommand::RESOLVE, 14, b"7.114.0.203.in-addr.arpa\0");
    assert_eq!(bench.shards[0].resolves.len(), 1);
}

/// As by stock Tor, whose option has the same default.
#[test]
fn names_that_no_host_has_are_looked_up_where_the_operator_wants_it() {
    for any_host_names in [false, true] {
        let (mut bench, mut client) = exit_with(RelayConfig { any_host_names, ..config() }, Kind::Ntor);
        let mut asked = 0;
        for (name, id) in
            ["a\\.example", "caf\u{65}~.example", "a/b.example", "a@example"].into_iter().zip(1..)
        {
            client.begin(&mut bench, id, &format!("{name}:80"));
            client.send(&mut bench, RelayCommand::RESOLVE, 100 + id, name.as_bytes());
            if any_host_names {
                asked += 2;
            } else {
                let got = client.got(&mut bench);
                assert_eq!(reason(&got[0]), EndReason::RESOLVEFAILED, "{name}");
                let resolved = Resolved::parse(&got[1].data).expect("well written");
                assert!(matches!(resolved.answers(), [(Answer::Error { transient: false }, _)]), "{name}");
            }
            assert_eq!(bench.shards[0].resolves.len(), asked, "{name}");
        }
        client.begin(&mut bench, 50, "_Under-score.2.example:80");
        assert_eq!(bench.shards[0].resolves.len(), asked + 1);
    }
}

#[test]
fn a_relay_that_the_consensus_does_not_list_gets_no_streams() {
    let cases = [(Some(false), 1, true), (Some(true), 0, false), (None, 0, true), (None, 1, false)];
    for (refuse_unknown_exits, param, unknown_may) in cases {
        let (mut bench, mut client) = exit_with(RelayConfig { refuse_unknown_exits, ..config() }, Kind::Ntor);
        bench.set_params(&[("refuseunknownexits", param)]);
        let what = format!("RefuseUnknownExits {refuse_unknown_exits:?}, refuseunknownexits={param}");
        for (id, listed, may) in [(1, &[2, 3][..], unknown_may), (2, &[1, 2, 3], true)] {
            bench.list(listed);
            client.begin(&mut bench, id, "203.0.114.7:80");
            match may {
                true => drop(bench.connect_next(0)),
                false => assert_eq!(reason(&client.got_one(&mut bench)), EndReason::MISC, "{what}"),
            }
        }
    }
}

#[test]
fn streams_do_not_lead_back_into_the_network() {
    let refused = Some(EndReason::CONNECTREFUSED);
    let cases = [
        // The ORPort of a relay that the consensus lists, also under its IPv4-mapped address.
        (0, "198.51.101.2:9001", refused),
        (0, "[::ffff:198.51.101.2]:9001", refused),
        // Another port there, and another address.
        (0, "198.51.101.2:80", None),
        (0, "198.51.101.4:9001", None),
        // The consensus may allow it.
        (1, "198.51.101.2:9001", None),
    ];
    let config = || RelayConfig { ipv6_exit: true, ..config() };
    for (allowed, to, wanted) in cases {
        for by_name in [false, true] {
            let (mut bench, mut client) = exit_with(config(), Kind::Ntor);
            bench.list(&[1, 2, 3]);
            bench.set_params(&[("allow-network-reentry", allowed)]);
            let address: SocketAddr = to.parse().expect("an address");
            match by_name {
                false => client.begin_with(&mut bench, 3, to, IPV6_OK),
                true => {
                    client.begin_with(&mut bench, 3, &format!("a.example:{}", address.port()), IPV6_OK);
                    bench.resolve_next(0, addrs(&[&address.ip().to_string()]));
                }
            }
            let refusal = match bench.shards[0].connects.front() {
                Some(_) => None,
                None => Some(reason(&client.got_one(&mut bench))),
            };
            assert_eq!(refusal, wanted, "{to}, by name: {by_name}, allow-network-reentry={allowed}");
        }
    }
}

#[test]
fn the_exit_policy_comes_before_the_relays_ports() {
    let config = RelayConfig { exit_policy: policy(&["reject *:9001", "accept *:*"]), ..config() };
    let (mut bench, mut client) = exit_with(config, Kind::Ntor);
    bench.list(&[1, 2]);
    client.begin(&mut bench, 3, "198.51.101.2:9001");
    assert_eq!(reason(&client.got_one(&mut bench)), EndReason::EXITPOLICY);
}

#[test]
fn data_goes_both_ways() {
    let (mut bench, mut client) = exit();
    let server = client.connect(&mut bench, 3);
    client.send(&mut bench, RelayCommand::DATA, 3, b"GET /");
    client.send(&mut bench, RelayCommand::DATA, 3, b"");
    client.send(&mut bench, RelayCommand::DATA, 3, &[b'x'; 498]);
    assert_eq!(bench.received(server), [&b"GET /"[..], &[b'x'; 498]].concat());
    let page: Vec<u8> = (0..5000_u32).map(|at| at as u8).collect();
    bench.write(server, &page);
    let got = client.got(&mut bench);
    assert!(got.iter().all(|got| got.command == RelayCommand::DATA && got.stream == 3));
    assert_eq!(got.iter().flat_map(|got| got.data.clone()).collect::<Vec<u8>>(), page);
    bench.finish(server);
    assert_eq!(reason(&client.got_one(&mut bench)), EndReason::DONE);
    assert_eq!(bench.gone(server), Some(Gone::Closed));
}

#[test]
fn data_that_comes_before_connected_waits() {
    let (mut bench, mut client) = exit();
    client.begin(&mut bench, 3, "www.example:80");
    client.send(&mut bench, RelayCommand::DATA, 3, b"while resolving ");
    bench.resolve_next(0, addrs(&["203.0.114.7"]));
    client.send(&mut bench, RelayCommand::DATA, 3, b"while connecting");
    let (server, _) = bench.connect_next(0);
    assert_eq!(bench.received(server), b"while resolving while connecting");
    assert_eq!(client.got_one(&mut bench).command, RelayCommand::CONNECTED);
}

/// What BEGIN comes to: connecting to that address, or END with that reason.
pub fn begin(
    config: RelayConfig,
    to: &str,
    flags: u32,
    answer: Option<Result<Resolution, ResolveError>>,
) -> Result<IpAddr, EndReason> {
    let (mut bench, mut client) = exit_with(config, Kind::Ntor);
    client.begin_with(&mut bench, 3, to, flags);
    if let Some(answer) = answer {
        bench.resolve_next(0, answer);
    }
    match bench.shards[0].connects.front() {
        Some((_, to)) => Ok(to.ip()),
        None => Err(reason(&client.got_one(&mut bench))),
    }
}

#[test]
fn the_policy_decides_about_addresses() {
    let web_only =
        || RelayConfig { exit_policy: policy(&["reject 203.0.114.8:*", "accept *:80"]), ..config() };
    let none = || RelayConfig { exit_policy: None, ..config() };
    let refused = Err(EndReason::EXITPOLICY);
    assert_eq!(begin(web_only(), "203.0.114.7:80", 0, None), Ok(addr("203.0.114.7")));
    assert_eq!(begin(web_only(), "203.0.114.7:81", 0, None), refused);
    assert_eq!(begin(web_only(), "203.0.114.8:80", 0, None), refused);
    assert_eq!(begin(web_only(), "a.example:80", 0, Some(addrs(&["203.0.114.8"]))), refused);
    assert_eq!(begin(none(), "203.0.114.7:80", 0, None), refused);
    assert_eq!(begin(none(), "a.example:80", 0, None), refused);
}

#[test]
fn a_refusal_names_the_address() {
    let (mut bench, mut client) =
        exit_with(RelayConfig { exit_policy: policy(&["reject *:*"]), ..config() }, Kind::Ntor);
    client.begin(&mut bench, 3, "a.example:80");
    bench.resolve_next(0, addrs(&["203.0.114.8"]));
    let got = client.got_one(&mut bench);
    assert_eq!(End::parse(&got.data).addr, Some((addr("203.0.114.8"), 60)));
}

#[test]
fn flags_choose_among_a_names_addresses() {
    let both = || Some(addrs(&["203.0.114.7", "2a00:1::7"]));
    let (v4, v6) = (Ok(addr("203.0.114.7")), Ok(addr("2a00:1::7")));
    assert_eq!(begin(config(), "a.example:80", 0, both()), v4);
    assert_eq!(begin(config(), "a.example:80", IPV6_OK, both()), v4);
    assert_eq!(begin(config(), "a.example:80", IPV6_OK | IPV6_PREFERRED, both()), v6);
    assert_eq!(begin(config(), "a.example:80", IPV6_OK | IPV4_NOT_OK, both()), v6);
    let failed = Err(EndReason::RESOLVEFAILED);
    assert_eq!(begin(config(), "a.example:80", 0, Some(addrs(&["2a00:1::7"]))), failed);
    // An exit without IPv6.
    let v4_only = || RelayConfig { ipv6_exit: false, ..config() };
    assert_eq!(begin(v4_only(), "a.example:80", IPV6_OK | IPV6_PREFERRED, both()), v4);
    assert_eq!(begin(v4_only(), "[2a00:1::7]:80", IPV6_OK, None), Err(EndReason::EXITPOLICY));
    for to in ["a.example:80", "203.0.114.7:80"] {
        assert_eq!(begin(v4_only(), to, IPV6_OK | IPV4_NOT_OK, None), Err(EndReason::EXITPOLICY), "{to}");
    }
    // An address that is asked for needs no flag.
    assert_eq!(begin(config(), "[2a00:1::7]:80", 0, None), v6);
}

#[test]
fn names_that_cannot_be_resolved() {
    for answer in [
        Err(ResolveError::NotFound),
        Err(ResolveError::Transient),
        Ok(Resolution::Name(String::from("x"), 1)),
    ] {
        assert_eq!(begin(config(), "a.example:80", 0, Some(answer)), Err(EndReason::RESOLVEFAILED));
    }
}

#[test]
fn names_are_asked_for_in_lower_case() {
    let (mut bench, mut client) = exit();
    client.send(&mut bench, RelayCommand::BEGIN, 3, b"WwW.Example:80\0");
    assert_eq!(bench.resolve_next(0, addrs(&["203.0.114.7"])), Query::Forward(String::from("www.example")));
}

#[test]
fn begins_that_are_malformed() {
    let (mut bench, mut client) = exit();
    for data in [
        &b""[..],
        b"a.example:80",
        b"a.example\0",
        b"a.example:0\0",
        b"a.example:65536\0",
        b"\xff:80\0",
        b":80\0",
    ] {
        client.send(&mut bench, RelayCommand::BEGIN, 3, data);
        assert_eq!(reason(&client.got_one(&mut bench)), EndReason::TORPROTOCOL, "{data:?}");
    }
}

#[test]
fn nobodys_one_hop_proxy() {
    let mut bench = Bench::new(config());
    let sock = bench.client_channel(0);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    client.begin(&mut bench, 3, "203.0.114.7:80");
    assert_eq!(reason(&client.got_one(&mut bench)), EndReason::TORPROTOCOL);
    client.send(&mut bench, RelayCommand::RESOLVE, 4, b"a.example\0");
    assert_eq!(client.got_one(&mut bench).command, RelayCommand::RESOLVED);
    assert_eq!((bench.shards[0].connects.len(), bench.shards[0].resolves.len()), (0, 0));
}

#[test]
fn begin_dir_finds_no_directory() {
    let (mut bench, mut client) = exit();
    client.send(&mut bench, RelayCommand::BEGIN_DIR, 3, &[]);
    assert_eq!(reason(&client.got_one(&mut bench)), EndReason::NOTDIRECTORY);
}

#[test]
fn streams_are_limited() {
    // A circuit of a stranger may have a seventeenth of three quarters.
    for limits in
        [Limits { streams_per_circuit: 2, ..Limits::default() }, Limits { streams: 44, ..Limits::default() }]
    {
        let (mut bench, mut client) = exit_with(RelayConfig { limits, ..config() }, Kind::Ntor);
        client.begin(&mut bench, 1, "203.0.114.7:80");
        client.begin(&mut bench, 2, "a.example:80");
        client.begin(&mut bench, 3, "203.0.114.7:80");
        let got = client.got_one(&mut bench);
        assert_eq!((got.stream, reason(&got)), (3, EndReason::RESOURCELIMIT));
        client.send(&mut bench, RelayCommand::END, 1, &[6]);
        client.begin(&mut bench, 3, "203.0.114.7:80");
        assert_eq!(client.got(&mut bench), []);
    }
}

/// Ending a stream does not end its question, so that nobody can ask without end.
#[test]
fn a_question_counts_until_it_is_answered() {
    let limits = Limits { streams: 112, ..Limits::default() };
    let (mut bench, mut client) = exit_with(RelayConfig { limits, ..config() }, Kind::Ntor);
    for _ in 0..50 {
        client.begin(&mut bench, 1, "a.example:80");
        client.send(&mut bench, RelayCommand::END, 1, &[6]);
    }
    assert_eq!(bench.shards[0].resolves.len(), 5);
    client.got(&mut bench);
    // A late answer does not reach a new stream of the same id.
    client.send(&mut bench, RelayCommand::RESOLVE, 9, b"127.0.0.1\0");
    bench.resolve_next(0, addrs(&["203.0.114.7"]));
    client.begin(&mut bench, 1, "b.example:80");
    for _ in 0..4 {
        bench.resolve_next(0, addrs(&["203.0.114.7"]));
    }
    assert_eq!(bench.shards[0].connects.len(), 0);
    bench.resolve_next(0, addrs(&["203.0.114.9"]));
    assert_eq!(bench.connect_next(0).1, SocketAddr::from(([203, 0, 114, 9], 80)));
}

#[test]
fn begin_with_an_id_in_use_is_dropped() {
    let (mut bench, mut client) = exit();
    let server = client.connect(&mut bench, 3);
    client.begin(&mut bench, 3, "203.0.114.8:80");
    assert_eq!(client.got(&mut bench), []);
    client.send(&mut bench, RelayCommand::DATA, 3, b"still here");
    assert_eq!(bench.received(server), b"still here");
}

#[test]
fn a_relay_that_stops_sends_new_streams_elsewhere_and_keeps_the_old() {
    let (mut bench, mut client) = exit();
    let server = client.connect(&mut bench, 3);
    bench.control(0, Control::Drain);
    client.begin(&mut bench, 4, "203.0.114.8:80");
    assert_eq!(reason(&client.got_one(&mut bench)), EndReason::HIBERNATING);
    client.send(&mut bench, RelayCommand::DATA, 3, b"still here");
    assert_eq!(bench.received(server), b"still here");
}

#[test]
fn a_question_under_the_number_of_a_stream_is_dropped() {
    let (mut bench, mut client) = exit();
    let server = client.connect(&mut bench, 3);
    client.send(&mut bench, RelayCommand::RESOLVE, 3, b"203.0.114.7\0");
    assert_eq!(client.got(&mut bench), []);
    client.send(&mut bench, RelayCommand::DATA, 3, b"still here");
    assert_eq!(bench.received(server), b"still here");
}

#[test]
fn what_only_clients_hear_ends_the_circuit_if_it_is_about_a_stream() {
    for command in [RelayCommand::CONNECTED, RelayCommand::RESOLVED] {
        let (mut bench, mut client) = exit();
        client.send(&mut bench, command, 3, &[]);
        client.begin(&mut bench, 3, "203.0.114.7:80");
        // It is not open yet.
        client.send(&mut bench, command, 3, &[]);
        let (server, _) = bench.connect_next(0);
        assert_eq!(client.got_one(&mut bench).command, RelayCommand::CONNECTED);
        client.send(&mut bench, RelayCommand::DATA, 3, b"still here");
        assert_eq!(bench.received(server), b"still here");
        client.send(&mut bench, command, 3, &[]);
        assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::PROTOCOL), "{command}");
    }
}

#[test]
fn each_error_has_its_reason() {
    let cases = [
        (SocketError::Refused, EndReason::CONNECTREFUSED),
        (SocketError::HostUnreachable, EndReason::NOROUTE),
        (SocketError::NetworkUnreachable, EndReason::NOROUTE),
        (SocketError::TimedOut, EndReason::TIMEOUT),
        (SocketError::Reset, EndReason::CONNRESET),
        (SocketError::ResourceLimit, EndReason::RESOURCELIMIT),
        (SocketError::Other, EndReason::MISC),
    ];
    for (error, expected) in cases {
        let (mut bench, mut client) = exit();
        client.begin(&mut bench, 3, "203.0.114.7:80");
        let (id, _) = bench.shards[0].connects[0];
        bench.fail(Sock { shard: 0, id }, error);
        assert_eq!(reason(&client.got_one(&mut bench)), expected, "connecting");
        let server = client.connect(&mut bench, 3);
        client.send(&mut bench, RelayCommand::DATA, 3, b"x");
        bench.fail(server, error);
        assert_eq!(reason(&client.got_one(&mut bench)), expected, "open");
        assert_eq!(bench.queued_cells(), 0);
    }
}

#[test]
fn end_closes_the_connection_whatever_its_state() {
    let (mut bench, mut client) = exit();
    client.begin(&mut bench, 1, "a.example:80");
    client.send(&mut bench, RelayCommand::DATA, 1, b"x");
    client.send(&mut bench, RelayCommand::END, 1, &[6]);
    bench.resolve_next(0, addrs(&["203.0.114.7"]));
    assert_eq!(bench.shards[0].connects.len(), 0);
    client.begin(&mut bench, 1, "203.0.114.7:80");
    let (id, _) = bench.shards[0].connects[0];
    client.send(&mut bench, RelayCommand::END, 1, &[6]);
    assert_eq!(bench.gone(Sock { shard: 0, id }), Some(Gone::Aborted));
    let server = client.connect(&mut bench, 1);
    client.send(&mut bench, RelayCommand::END, 1, &[6]);
    assert_eq!(bench.gone(server), Some(Gone::Closed));
    assert_eq!((client.got(&mut bench), bench.queued_cells()), (Vec::new(), 0));
}

#[test]
fn what_a_connection_is_owed_is_written_after_the_end() {
    let (mut bench, mut client) = exit();
    let server = client.connect(&mut bench, 3);
    bench.set_willing(server, false);
    bench.grant(server, 0);
    client.send(&mut bench, RelayCommand::DATA, 3, b"last ");
    client.send(&mut bench, RelayCommand::DATA, 3, b"words");
    client.send(&mut bench, RelayCommand::END, 3, &[6]);
    assert_eq!((bench.gone(server), bench.queued_cells()), (None, 2));
    // Its id is free again.
    client.connect(&mut bench, 3);
    bench.grant(server, 7);
    assert_eq!(bench.received(server), b"last wo");
    let shard = &bench.shards[0].relay;
    assert_eq!((shard.in_use().leftover_cells, bench.gone(server)), (1, None));
    bench.grant(server, 7);
    assert_eq!((bench.gone(server), bench.queued_cells()), (Some(Gone::Closed), 0));
}

#[test]
fn a_connection_that_takes_nothing_is_aborted_in_the_end() {
    let (mut bench, mut client) = exit();
    let server = client.connect(&mut bench, 3);
    bench.set_willing(server, false);
    bench.grant(server, 0);
    client.send(&mut bench, RelayCommand::DATA, 3, b"last words");
    bench.send(client.sock, client.circ_id, heddle_proto::cell::Command::DESTROY, &[0]);
    bench.pass(Duration::from_secs(14));
    assert_eq!((bench.gone(server), bench.queued_cells()), (None, 1));
    bench.pass(Duration::from_secs(3));
    assert_eq!((bench.gone(server), bench.queued_cells()), (Some(Gone::Aborted), 0));
}

/// What is as old and heavier than the circuit goes first.
#[test]
fn memory_pressure_ends_what_is_left_over_first() {
    let (bench, _) = exit_with(config(), NTOR_V3_CC);
    let circuits_bytes = bench.shards[0].relay.stats().circuit_state_bytes as usize;
    let config = RelayConfig { max_queue_bytes: 256 * SLOT_LEN + circuits_bytes, ..config() };
    let (mut bench, mut client) = exit_with(config, NTOR_V3_CC);
    for (stream, cells) in [(1, 150), (2, 100)] {
        let server = client.connect(&mut bench, stream);
        bench.set_willing(server, false);
        bench.grant(server, 0);
        for _ in 0..cells {
            client.send(&mut bench, RelayCommand::DATA, stream, &[1; 498]);
        }
        client.send(&mut bench, RelayCommand::END, stream, &[6]);
        client.got(&mut bench);
    }
    assert_eq!(bench.queued_cells(), 250);
    let server = client.connect(&mut bench, 3);
    bench.set_willing(server, false);
    bench.grant(server, 0);
    for _ in 0..7 {
        client.send(&mut bench, RelayCommand::DATA, 3, &[1; 498]);
    }
    assert_eq!((bench.queued_cells(), bench.circuits()), (107, 1));
    assert_eq!(client.destroyed(&mut bench), None);
}

/// What a circuit owes its connections is freed with it.
#[test]
fn memory_pressure_frees_what_waits_in_streams() {
    let config = RelayConfig { max_queue_bytes: 100_000, ..config() };
    let (mut bench, mut client) = exit_with(config, NTOR_V3_CC);
    let server = client.connect(&mut bench, 1);
    bench.set_willing(server, false);
    bench.grant(server, 0);
    for _ in 0..257 {
        if bench.circuits() > 0 {
            client.send(&mut bench, RelayCommand::DATA, 1, &[1; 498]);
            client.got(&mut bench);
        }
    }
    assert_eq!((bench.queued_cells(), bench.circuits()), (0, 0));
    assert_eq!(bench.gone(server), Some(Gone::Aborted));
    assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::RESOURCELIMIT));
}

#[test]
fn resolve_is_answered() {
    let (mut bench, mut client) = exit();
    let mut ask = |data: &[u8], answer: Option<Result<Resolution, ResolveError>>| {
        client.send(&mut bench, RelayCommand::RESOLVE, 4, data);
        let query = answer.map(|answer| bench.resolve_next(0, answer));
        let got = client.got_one(&mut bench);
        assert_eq!((got.command, got.stream), (RelayCommand::RESOLVED, 4));
        (query, Resolved::parse(&got.data).expect("well written").answers().to_vec())
    };
    let (query, answers) = ask(b"A.Example\0", Some(addrs(&["2a00:1::7", "203.0.114.7"])));
    assert_eq!(query, Some(Query::Forward(String::from("a.example"))));
    assert_eq!(answers, [(Answer::Addr(addr("203.0.114.7")), 60), (Answer::Addr(addr("2a00:1::7")), 60)]);

    let mut reverse = Vec::new();
    Resolve::Reverse(host(7)).encode(&mut reverse);
    let name = Ok(Resolution::Name(String::from("a.example"), 100_000));
    let (query, answers) = ask(&reverse, Some(name));
    assert_eq!(query, Some(Query::Reverse(host(7))));
    assert_eq!(answers, [(Answer::Name(b"a.example".to_vec()), 60)]);

    assert_eq!(ask(b"203.0.114.7\0", None).1, [(Answer::Addr(addr("203.0.114.7")), 60)]);
    for (error, transient) in [(ResolveError::Transient, true), (ResolveError::NotFound, false)] {
        assert_eq!(ask(b"a.example\0", Some(Err(error))).1, [(Answer::Error { transient }, 60)]);
    }
    assert_eq!(ask(b"1.2.in-addr.arpa\0", None).1, [(Answer::Error { transient: false }, 60)]);
}

#[test]
fn one_circuit_keeps_the_resolver_busy_with_so_many_questions_only() {
    // All questions have an eighth of the memory.
    let (mut bench, mut client) = exit_with(RelayConfig { max_queue_bytes: 1 << 30, ..config() }, Kind::Ntor);
    for stream in 1..=64 {
        client.send(&mut bench, RelayCommand::RESOLVE, stream, b"a.example\0");
    }
    // A stream that is over before its answer counts until it comes.
    client.send(&mut bench, RelayCommand::RESOLVE, 100, b"a.example\0");
    let got = client.got_one(&mut bench);
    let answers = Resolved::parse(&got.data).expect("well written");
    assert_eq!((got.stream, answers.answers()), (100, &[(Answer::Error { transient: true }, 60)][..]));
    client.begin(&mut bench, 101, "a.example:80");
    assert_eq!(reason(&client.got_one(&mut bench)), EndReason::RESOURCELIMIT);
    bench.resolve_next(0, Err(ResolveError::NotFound));
    client.got_one(&mut bench);
    client.begin(&mut bench, 102, "a.example:80");
    client.send(&mut bench, RelayCommand::END, 102, &[6]);
    client.begin(&mut bench, 103, "a.example:80");
    assert_eq!(reason(&client.got_one(&mut bench)), EndReason::RESOURCELIMIT);
    assert_eq!(bench.shards[0].resolves.len(), 64);
}

#[test]
fn a_circuit_with_many_questions_leaves_the_busy_resolver_to_others() {
    let limits = Limits { questions: 40, ..Limits::default() };
    let (mut bench, mut greedy) = exit_with(RelayConfig { limits, ..config() }, Kind::Ntor);
    let sock = bench.relay_channel(0, 2);
    let mut other = Client::create(&mut bench, sock, theirs(1), Kind::Ntor);
    for stream in 1..=40 {
        greedy.send(&mut bench, RelayCommand::RESOLVE, stream, b"a.example\0");
    }
    assert_eq!(bench.shards[0].resolves.len(), 20);
    for stream in 1..=9 {
        other.send(&mut bench, RelayCommand::RESOLVE, stream, b"b.example\0");
    }
    assert_eq!(bench.shards[0].resolves.len(), 28, "a few questions are nobody's fault");
    let got = other.got_one(&mut bench);
    let answers = Resolved::parse(&got.data).expect("well written");
    assert_eq!((got.stream, answers.answers()), (9, &[(Answer::Error { transient: true }, 60)][..]));
}

/// However many circuits ask for names whose servers are silent, whoever asks for less is asked for.
#[test]
fn many_circuits_cannot_take_all_of_the_resolver() {
    let limits = Limits { questions: 40, ..Limits::default() };
    let (mut bench, first) = exit_with(RelayConfig { limits, ..config() }, Kind::Ntor);
    bench.list(&[1]);
    let mut honest = Client::create(&mut bench, first.sock, theirs(11), Kind::Ntor);
    let mut greedy = vec![first];
    for number in 2..=10 {
        greedy.push(Client::create(&mut bench, greedy[0].sock, theirs(number), Kind::Ntor));
    }
    for stream in 1..=8 {
        for client in &mut greedy {
            client.send(&mut bench, RelayCommand::RESOLVE, stream, b"silent.example\0");
        }
        let asked = bench.shards[0].resolves.len();
        assert!(asked <= 40, "{asked} questions where 40 have room");
    }
    honest.begin(&mut bench, 1, "honest.example:80");
    let names: Vec<_> = bench.shards[0].resolves.iter().map(|(_, query)| query.clone()).collect();
    assert_eq!((names.len(), names.last()), (40, Some(&Query::Forward("honest.example".into()))));
    assert_eq!(bench.shards[0].relay.in_use().questions, 40);
    assert_eq!(
        bench.cells(honest.sock).len(),
        10 * 8 - 39,
        "who lost a question, or may not ask, hears of it"
    );
    while !bench.shards[0].resolves.is_empty() {
        bench.resolve_next(0, Err(ResolveError::NotFound));
    }
    assert_eq!(bench.shards[0].relay.in_use().questions, 0);
}

/// One question of each of very many circuits is no more than anybody's, but those that nobody answers give way after a
/// while.
#[test]
fn a_question_that_is_long_unanswered_gives_way_to_a_circuit_without_any() {
    let limits = Limits { questions: 40, ..Limits::default() };
    let (mut bench, first) = exit_with(RelayConfig { limits, ..config() }, Kind::Ntor);
    let sock = first.sock;
    bench.list(&[1]);
    for number in 2..=41 {
        let mut greedy = Client::create(&mut bench, sock, theirs(number), Kind::Ntor);
        greedy.send(&mut bench, RelayCommand::RESOLVE, 1, b"silent.example\0");
    }
    bench.cells(sock);
    let asks = |bench: &mut Bench, number| {
        let mut honest = Client::create(bench, sock, theirs(number), Kind::Ntor);
        honest.begin(bench, 1, "honest.example:80");
        bench.cells(sock);
        bench.shards[0]
            .resolves
            .back()
            .is_some_and(|(_, query)| *query == Query::Forward("honest.example".into()))
    };
    bench.pass(Duration::from_secs(4));
    assert!(!asks(&mut bench, 50));
    bench.pass(Duration::from_secs(1));
    assert!(asks(&mut bench, 51));
    assert_eq!(bench.shards[0].resolves.len(), 40);
}

#[test]
fn an_answer_for_a_circuit_that_is_gone_goes_nowhere() {
    let (mut bench, mut client) = exit();
    client.send(&mut bench, RelayCommand::RESOLVE, 4, b"a.example\0");
    client.begin(&mut bench, 5, "a.example:80");
    bench.send(client.sock, client.circ_id, heddle_proto::cell::Command::DESTROY, &[0]);
    bench.resolve_next(0, addrs(&["203.0.114.7"]));
    bench.resolve_next(0, addrs(&["203.0.114.7"]));
    assert_eq!((bench.cells(client.sock).len(), bench.shards[0].connects.len()), (0, 0));
}

/// The kernel would try for two minutes.
#[test]
fn a_connection_that_nobody_answers_is_given_up_after_thirty_seconds() {
    let (mut bench, mut client) = exit();
    client.begin(&mut bench, 1, "203.0.114.7:80");
    let (open, _) = bench.connect_next(0);
    client.got_one(&mut bench);
    client.begin(&mut bench, 2, "203.0.114.7:81");
    let (id, _) = *bench.shards[0].connects.front().expect("it is being connected");
    let silent = Sock { shard: 0, id };
    client.begin(&mut bench, 3, "203.0.114.7:82");
    client.send(&mut bench, RelayCommand::END, 3, &[6]);
    bench.pass(Duration::from_secs(29));
    assert_eq!((client.got(&mut bench).len(), bench.gone(silent)), (0, None));
    bench.pass(Duration::from_secs(2));
    let got = client.got_one(&mut bench);
    assert_eq!((got.stream, reason(&got)), (2, EndReason::TIMEOUT));
    assert_eq!((bench.gone(silent), bench.gone(open)), (Some(Gone::Aborted), None));
}
