//! Circuits grow: whom a circuit may be extended to, and how the channel there is found.

use super::bench::{Bench, Gone, OURS, config, host, or_port};
use super::client::{Client, Hop, Kind, extend, target, theirs, two_hops};
use super::plain::{ids, relay_line};
use heddle_proto::cell::create::{Create2, DestroyReason};
use heddle_proto::cell::extend::{Extend2, ExtendTarget, LinkSpec};
use heddle_proto::cell::relay::RelayCommand;
use heddle_proto::cell::{BODY_LEN, Command};
use heddle_proto::channel::ChannelError;
use heddle_relay::{Control, Event, Limits, ListedRelay, RelayConfig, Relays};
use heddle_seam::node::SocketError;
use heddle_seam::time::Duration;
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::sync::Arc;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// EXTEND2's data for these specifiers.
fn extend2(specs: Vec<LinkSpec<'_>>) -> Vec<u8> {
    let mut data = Vec::new();
    Extend2 { specs, htype: 2, hdata: &[1; 84] }.encode(&mut data);
    data
}

fn v4(addr: &str) -> SocketAddrV4 {
    addr.parse().expect("an address")
}

fn v6(addr: &str) -> SocketAddrV6 {
    addr.parse().expect("an address")
}

#[test]
fn extensions_that_are_refused() {
    let two = target(2);
    let with_ipv4 = |addr| ExtendTarget { ipv4: Some(v4(addr)), ..two }.specs();
    let ours = target(OURS);
    let only_our_rsa = ExtendTarget { rsa_id: ours.rsa_id, ..two }.specs();
    let only_our_ed25519 = ExtendTarget { ed25519_id: ours.ed25519_id, ..two }.specs();
    let back = ExtendTarget { rsa_id: ids(1).rsa.0, ed25519_id: None, ..two }.specs();
    let mut cut = extend2(two.specs());
    cut.truncate(60);
    let cases = [
        ("ourselves", extend2(ours.specs())),
        ("our RSA identity", extend2(only_our_rsa)),
        ("our Ed25519 identity", extend2(only_our_ed25519)),
        ("where it came from", extend2(target(1).specs())),
        ("the RSA identity where it came from", extend2(back)),
        ("a private address", extend2(with_ipv4("10.1.2.3:9001"))),
        ("an address that a provider's customers share", extend2(with_ipv4("100.100.100.200:9001"))),
        ("many hosts at once", extend2(with_ipv4("224.0.0.1:9001"))),
        ("loopback", extend2(with_ipv4("127.0.0.1:9001"))),
        ("port zero", extend2(with_ipv4("198.51.101.2:0"))),
        ("no address", extend2(ExtendTarget { ipv4: None, ..two }.specs())),
        ("no RSA identity", extend2(ExtendTarget { rsa_id: [0; 20], ..two }.specs())),
        ("two RSA identities", extend2([two.specs(), target(3).specs()].concat())),
        ("a cut cell", cut),
        ("nothing", Vec::new()),
    ];
    let mut bench = Bench::new(config());
    let sock = bench.relay_channel(0, 1);
    for (id, (what, data)) in (1..).zip(cases) {
        let mut client = Client::create(&mut bench, sock, theirs(id), Kind::Fast);
        client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
        assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::PROTOCOL), "{what}");
        assert_eq!(bench.shards[0].connects.len(), 0, "{what}");
    }
}

#[test]
fn private_addresses_are_fine_in_a_test_network() {
    let mut bench = Bench::new(RelayConfig { extend_to_private: true, ..config() });
    let sock = bench.relay_channel(0, 1);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    let specs = ExtendTarget { ipv4: Some(v4("127.0.0.1:9001")), ..target(2) }.specs();
    client.send(&mut bench, RelayCommand::EXTEND2, 0, &extend2(specs));
    assert_eq!(bench.connect_next(0).1, SocketAddr::from(([127, 0, 0, 1], 9001)));
}

#[test]
fn extend2_comes_in_relay_early_and_once() {
    let mut bench = Bench::new(config());
    let sock = bench.relay_channel(0, 1);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    let (_, data) = client.extend2(2);
    let body = client.seal(0, RelayCommand::EXTEND2, 0, &data);
    bench.send(sock, theirs(1), Command::RELAY, &body);
    assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::PROTOCOL));

    // While the first waits, while CREATE2 is out, and when it is joined.
    for answers in 0..3 {
        let mut bench = Bench::new(config());
        let sock = bench.relay_channel(0, 1);
        let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
        let (handshake, data) = client.extend2(2);
        client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
        if answers > 0 {
            let next = bench.answer_dial(0, 2);
            if answers > 1 {
                Hop::answer(&mut bench, next, 2);
                let got = client.got_one(&mut bench);
                client.extended(handshake, &got);
            }
        }
        client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
        assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::PROTOCOL), "after {answers} answers");
    }
}

#[test]
fn create2_carries_what_extend2_said() {
    let mut bench = Bench::new(config());
    let sock = bench.relay_channel(0, 1);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    let mut data = Vec::new();
    Extend2 { specs: target(2).specs(), htype: 77, hdata: b"from the future" }.encode(&mut data);
    client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
    let next = bench.answer_dial(0, 2);
    let cells = bench.cells(next);
    let create2 = Create2::parse(&cells[0].body).expect("a CREATE2");
    assert_eq!((create2.htype, create2.hdata), (77, &b"from the future"[..]));
    assert!(cells[0].circ_id.get() >= 1 << 31, "the initiator's half");
}

#[test]
fn created2_that_is_not_expected_ends_the_circuit() {
    let mut bench = Bench::new(config());
    let (mut client, hop) = two_hops(&mut bench);
    bench.send(hop.sock, hop.circ_id, Command::CREATED2, &[0, 1, 5]);
    assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::PROTOCOL));
}

#[test]
fn answers_to_create2_that_end_the_circuit() {
    let too_long = [&500_u16.to_be_bytes()[..], &[1; 500]].concat();
    let cases = [
        ("CREATED_FAST", Command::CREATED_FAST, vec![1; 40], DestroyReason::PROTOCOL),
        ("a length beyond the cell", Command::CREATED2, vec![0xFF; 4], DestroyReason::PROTOCOL),
        ("more than EXTENDED2 holds", Command::CREATED2, too_long, DestroyReason::PROTOCOL),
        ("data too early", Command::RELAY, vec![1; BODY_LEN], DestroyReason::PROTOCOL),
        ("DESTROY", Command::DESTROY, vec![5], DestroyReason::DESTROYED),
    ];
    for (what, command, body, reason) in cases {
        let mut bench = Bench::new(config());
        let sock = bench.relay_channel(0, 1);
        let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
        let (_, data) = client.extend2(2);
        client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
        let next = bench.answer_dial(0, 2);
        let create = &bench.cells(next)[0];
        bench.send(next, create.circ_id, command, &body);
        assert_eq!(client.destroyed(&mut bench), Some(reason), "{what}");
        assert_eq!(bench.circuits(), 0, "{what}");
    }
}

#[test]
fn every_address_is_tried_before_the_circuit_fails() {
    let mut bench = Bench::new(config());
    let sock = bench.relay_channel(0, 1);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    let both = ExtendTarget { ipv6: Some(v6("[2a00:1:2::2]:9001")), ..target(2) };
    client.send(&mut bench, RelayCommand::EXTEND2, 0, &extend2(both.specs()));
    let mut tried = Vec::new();
    while let Some(&(id, to)) = bench.shards[0].connects.front() {
        tried.push(to);
        bench.fail(super::bench::Sock { shard: 0, id }, SocketError::Refused);
    }
    assert_eq!(tried, [or_port(2), v6("[2a00:1:2::2]:9001").into()]);
    assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::CONNECTFAILED));
}

#[test]
fn only_a_relay_that_is_reached_by_ipv6_dials_it() {
    let ipv6 = Some(v6("[2a00:1:2::2]:9001"));
    let both = ExtendTarget { ipv6, ..target(2) };
    let ipv6_only = ExtendTarget { ipv4: None, ..both };
    let ipv6_addr = SocketAddr::from(v6("[2a00:1:2::2]:9001"));
    for (extend_to_ipv6, to, dialled) in [
        (true, &ipv6_only, Some(ipv6_addr)),
        (false, &ipv6_only, None),
        (true, &both, Some(or_port(2))),
        (false, &both, Some(or_port(2))),
    ] {
        let mut bench = Bench::new(RelayConfig { extend_to_ipv6, ..config() });
        let sock = bench.relay_channel(0, 1);
        let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
        client.send(&mut bench, RelayCommand::EXTEND2, 0, &extend2(to.specs()));
        let Some(&(id, addr)) = bench.shards[0].connects.front() else {
            assert_eq!((dialled, client.destroyed(&mut bench)), (None, Some(DestroyReason::CONNECTFAILED)));
            continue;
        };
        assert_eq!(Some(addr), dialled);
        // And no other address after that one.
        bench.shards[0].connects.pop_front();
        bench.fail(super::bench::Sock { shard: 0, id }, SocketError::Refused);
        assert_eq!(bench.shards[0].connects.len(), usize::from(extend_to_ipv6 && to.ipv4.is_some()));
    }
}

/// Whoever holds the weaker key of a listed relay, which is all that the client names, does not pass for it.
#[test]
fn the_consensus_says_the_identity_that_a_client_leaves_out() {
    for (listed, is_used) in [(2, true), (3, false)] {
        let mut bench = Bench::new(config());
        let relay =
            ListedRelay { rsa: ids(2).rsa, ed25519: Some(ids(listed).ed25519), or_addrs: vec![or_port(2)] };
        bench.control(0, Control::Peers(Arc::new(Relays::new([relay], []))));
        let sock = bench.relay_channel(0, 1);
        let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
        let weak = ExtendTarget { ed25519_id: None, ..target(2) };
        client.send(&mut bench, RelayCommand::EXTEND2, 0, &extend2(weak.specs()));
        let next = bench.answer_dial(0, 2);
        let refused = (Some(Gone::Closed), Some(DestroyReason::OR_IDENTITY));
        let found = (bench.gone(next), client.destroyed(&mut bench));
        assert_eq!(found, if is_used { (None, None) } else { refused });
    }
}

#[test]
fn a_relay_with_another_identity_is_not_the_one() {
    let mut bench = Bench::new(config());
    let sock = bench.relay_channel(0, 1);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    let (_, data) = client.extend2(2);
    client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
    let (next, _) = bench.connect_next(0);
    bench.write(next, &relay_line(3, host(2)));
    assert_eq!(bench.gone(next), Some(Gone::Closed));
    assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::OR_IDENTITY));
    let closed = Event::ChannelClosed { peer: None, addr: or_port(2), error: ChannelError::WrongIdentity };
    assert!(bench.shards[0].events.contains(&closed));
}

#[test]
fn a_dial_that_takes_too_long_is_given_up() {
    // Before the connection is there, and during the handshake.
    for connected in [false, true] {
        let mut bench = Bench::new(config());
        let sock = bench.relay_channel(0, 1);
        let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
        let (_, data) = client.extend2(2);
        client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
        if connected {
            bench.connect_next(0);
        }
        bench.pass(Duration::from_secs(29));
        assert_eq!(bench.circuits(), 1);
        bench.pass(Duration::from_secs(3));
        assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::CONNECTFAILED));
        assert_eq!(bench.sockets(0), [sock]);
    }
}

#[test]
fn circuits_share_a_dial_and_then_its_channel() {
    let mut bench = Bench::new(config());
    let sock = bench.relay_channel(0, 1);
    let mut clients = Vec::new();
    for id in 1..=3 {
        let mut client = Client::create(&mut bench, sock, theirs(id), Kind::Fast);
        let (_, data) = client.extend2(2);
        client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
        clients.push(client);
    }
    assert_eq!(bench.shards[0].connects.len(), 1);
    let next = bench.answer_dial(0, 2);
    let creates = bench.cells(next);
    assert_eq!(creates.len(), 3);
    assert!(creates.iter().all(|cell| cell.command == Command::CREATE2));
    let mut late = Client::create(&mut bench, sock, theirs(4), Kind::Fast);
    let (_, data) = late.extend2(2);
    late.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
    assert_eq!((bench.cells(next).len(), bench.shards[0].connects.len()), (1, 0));
}

#[test]
fn a_channel_that_came_in_is_used_for_a_circuit_back() {
    let mut bench = Bench::new(config());
    let incoming = bench.relay_channel(0, 2);
    let client_sock = bench.client_channel(0);
    let mut client = Client::create(&mut bench, client_sock, theirs(1), Kind::Fast);
    let (handshake, data) = client.extend2(2);
    client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
    let hop = Hop::answer(&mut bench, incoming, 2);
    assert!(hop.circ_id.get() < 1 << 31, "the responder's half");
    let got = client.got_one(&mut bench);
    client.extended(handshake, &got);
    assert_eq!(bench.shards[0].connects.len(), 0);
}

/// A relay that says it is elsewhere is not believed, unless the client asked for that address.
#[test]
fn a_channel_from_a_strange_address_is_used_only_if_asked_for() {
    let mut bench = Bench::new(config());
    let strange = bench.accept(0, or_port(77));
    bench.write(strange, &relay_line(2, host(2)));
    let client_sock = bench.client_channel(0);
    let mut client = Client::create(&mut bench, client_sock, theirs(1), Kind::Fast);
    let (_, data) = client.extend2(2);
    client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
    assert_eq!((bench.cells(strange).len(), bench.shards[0].connects.len()), (0, 1));

    let mut client = Client::create(&mut bench, client_sock, theirs(2), Kind::Fast);
    let SocketAddr::V4(there) = or_port(77) else { unreachable!("test hosts are IPv4") };
    let specs = ExtendTarget { ipv4: Some(there), ..target(2) }.specs();
    client.send(&mut bench, RelayCommand::EXTEND2, 0, &extend2(specs));
    assert_eq!(bench.cells(strange).len(), 1);
}

/// The same rule on both sides: the relay with the smaller identity keeps the channel it opened.
#[test]
fn of_two_channels_both_relays_retire_the_same() {
    for (peer, dialled_survives) in [(2, false), (200, true)] {
        let mut bench = Bench::new(config());
        let client_sock = bench.client_channel(0);
        let mut first = Client::create(&mut bench, client_sock, theirs(1), Kind::Fast);
        let hop = extend(&mut bench, &mut first, peer);
        let dialled = hop.sock;
        let incoming = bench.relay_channel(0, peer);
        let mut second = Client::create(&mut bench, client_sock, theirs(2), Kind::Fast);
        let (_, data) = second.extend2(peer);
        second.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
        let used = if dialled_survives { dialled } else { incoming };
        assert_eq!(bench.cells(used).len(), 1, "peer {peer}");
        assert_eq!(bench.shards[0].connects.len(), 0);
        // The other one goes when its last circuit has left.
        bench.send(client_sock, theirs(1), Command::DESTROY, &[0]);
        bench.pass(Duration::from_secs(13));
        let retired = if dialled_survives { incoming } else { dialled };
        assert_eq!((bench.gone(used), bench.gone(retired)), (None, Some(Gone::Closed)), "peer {peer}");
    }
}

#[test]
fn channels_without_circuits_close_after_a_while() {
    let mut bench = Bench::new(config());
    let idle = bench.relay_channel(0, 1);
    let busy = bench.relay_channel(0, 2);
    Client::create(&mut bench, busy, theirs(1), Kind::Fast);
    bench.pass(Duration::from_secs(179));
    assert_eq!((bench.gone(idle), bench.gone(busy)), (None, None));
    bench.pass(Duration::from_secs(92));
    assert_eq!((bench.gone(idle), bench.gone(busy)), (Some(Gone::Closed), None));
    bench.send(busy, theirs(1), Command::DESTROY, &[0]);
    bench.pass(Duration::from_secs(179));
    assert_eq!(bench.gone(busy), None);
    bench.pass(Duration::from_secs(92));
    assert_eq!(bench.gone(busy), Some(Gone::Closed));
}

/// Whoever fills half of the places with channels that carry nothing has them for minutes and not for an hour.
#[test]
fn channels_that_are_many_last_shorter() {
    let limits = Limits { channels: 16, ..Limits::default() };
    let mut bench = Bench::new(RelayConfig { limits, ..config() });
    bench.list(&[1, 2, 3, 4, 5, 6]);
    let few = [1, 2, 3, 4, 5].map(|number| bench.relay_channel(0, number));
    bench.pass(Duration::from_secs(600));
    assert_eq!(few.map(|sock| bench.gone(sock)), [None; 5]);
    let one_more = bench.relay_channel(0, 6);
    bench.pass(Duration::from_secs(2));
    assert_eq!(few.map(|sock| bench.gone(sock)), [Some(Gone::Closed); 5]);
    assert_eq!(bench.gone(one_more), None);
}

/// Of clocks that are more than an hour off, and of relays of the consensus only.
#[test]
fn a_clock_that_differs_much_is_told() {
    for (number, ahead_s, is_told) in
        [(1, 3601, true), (1, -3601, true), (1, 3600, false), (1, -3600, false), (2, 5000, false)]
    {
        let mut bench = Bench::new(config());
        bench.list(&[1]);
        let sock = bench.accept(0, or_port(number));
        bench.write(sock, format!("relay {number} {} {ahead_s}\n", host(number)).as_bytes());
        let told = Event::ClockDiffers { peer: ids(number), ahead_s };
        assert_eq!(bench.shards[0].events.contains(&told), is_told, "{number} {ahead_s}");
    }
}

/// As by stock Tor: a quarter more or less than an hour, or than the consensus says.
#[test]
fn channels_between_relays_of_the_consensus_last_longer() {
    for (params, mean_s) in [(&[][..], 3600), (&[("nf_conntimeout_relays", 600)][..], 600)] {
        let mut bench = Bench::new(config());
        bench.list(&[1, 2, 3]);
        bench.set_params(params);
        let socks = [1, 2, 3].map(|number| bench.relay_channel(0, number));
        let unlisted = bench.relay_channel(0, 4);
        bench.pass(Duration::from_secs(mean_s * 3 / 4 - 1));
        assert_eq!(socks.map(|sock| bench.gone(sock)), [None; 3]);
        assert_eq!(bench.gone(unlisted), Some(Gone::Closed));
        bench.pass(Duration::from_secs(mean_s / 2 + 2));
        assert_eq!(socks.map(|sock| bench.gone(sock)), [Some(Gone::Closed); 3]);
    }
}

#[test]
fn a_channel_takes_no_new_circuits_after_a_week() {
    let mut bench = Bench::new(config());
    let (mut client, mut hop) = two_hops(&mut bench);
    bench.pass(DAY * 7 + Duration::from_secs(1));
    hop.send(&mut bench, RelayCommand::DATA, 1, &[1]);
    assert_eq!(client.got_one(&mut bench).data, [1]);
    // The client's own channel is old too, but whoever opened it decides that.
    let mut second = Client::create(&mut bench, client.sock, theirs(2), Kind::Fast);
    let (_, data) = second.extend2(2);
    second.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
    assert_eq!(bench.shards[0].connects.len(), 1);
    // The new channel serves whoever comes next, although the old one lives on for its circuit.
    let young = bench.answer_dial(0, 2);
    assert_eq!(bench.cells(young).len(), 1);
    for circuit in 3..6 {
        let mut next = Client::create(&mut bench, client.sock, theirs(circuit), Kind::Fast);
        let (_, data) = next.extend2(2);
        next.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
        assert_eq!((bench.cells(young).len(), bench.shards[0].connects.len()), (1, 0));
    }
    hop.send(&mut bench, RelayCommand::DATA, 1, &[2]);
    assert_eq!(client.got_one(&mut bench).data, [2]);
}

#[test]
fn circuits_that_wait_for_a_dial_go_over_a_channel_that_the_relay_opens_meanwhile() {
    let mut bench = Bench::new(config());
    let sock = bench.client_channel(0);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    let (handshake, data) = client.extend2(2);
    client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
    assert_eq!(bench.shards[0].connects.len(), 1);
    let theirs_to_us = bench.relay_channel(0, 2);
    Hop::answer(&mut bench, theirs_to_us, 2);
    let got = client.got_one(&mut bench);
    client.extended(handshake, &got);
    bench.pass(Duration::from_secs(40));
    assert_eq!(client.destroyed(&mut bench), None, "the dial concerns nobody any more");
}

#[test]
fn channels_beyond_the_limit_are_closed_as_they_come() {
    let limits = Limits { channels: 2, ..Limits::default() };
    let mut bench = Bench::new(RelayConfig { limits, ..config() });
    bench.relay_channel(0, 1);
    bench.client_channel(0);
    let third = bench.accept(0, or_port(3));
    assert_eq!(bench.gone(third), Some(Gone::Aborted));
}

#[test]
fn two_identities_are_two_dials() {
    let mut bench = Bench::new(config());
    let sock = bench.relay_channel(0, 1);
    for (id, ed25519_id) in [(1, ids(2).ed25519.0), (2, [9; 32])] {
        let mut client = Client::create(&mut bench, sock, theirs(id), Kind::Fast);
        let specs = ExtendTarget { ed25519_id: Some(ed25519_id), ..target(2) }.specs();
        client.send(&mut bench, RelayCommand::EXTEND2, 0, &extend2(specs));
    }
    assert_eq!(bench.shards[0].connects.len(), 2);
    bench.answer_dial(0, 2);
    let (wrong, _) = bench.connect_next(0);
    bench.write(wrong, &relay_line(2, host(2)));
    assert_eq!(bench.gone(wrong), Some(Gone::Closed));
    let cells = bench.cells(sock);
    assert_eq!(cells.len(), 1);
    assert_eq!(DestroyReason::parse(&cells[0].body), DestroyReason::OR_IDENTITY);
}
