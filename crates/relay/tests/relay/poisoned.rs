//! EXTEND2 that names a relay's true identities and somebody else's address. It decides where its own circuit leads,
//! and nothing about any other: stock Tor lets a circuit wait for a channel, or go over one, only where the address is
//! right too (`channel_get_for_extend`).

use super::bench::{Bench, Gone, Sock, config, host, or_port};
use super::client::{Client, Hop, Kind, target, theirs};
use super::flows::extend;
use super::plain::relay_line;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::extend::ExtendTarget;
use heddle_proto::cell::relay::RelayCommand;
use heddle_proto::crypto::onionskin::ClientHandshake;
use heddle_relay::RelayConfig;
use heddle_seam::node::SocketError;
use heddle_seam::time::Duration;
use std::net::SocketAddr;

/// The relay whose identities everybody names.
const VICTIM: u8 = 2;
/// Whose address the poisoned EXTEND2 names.
const ATTACKER: u8 = 66;

/// What stands at the attacker's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trap {
    /// Nothing answers.
    BlackHole,
    /// A connection, on which nothing is said.
    Silence,
    /// A relay with identities of its own.
    OtherRelay,
    /// Whatever is sent goes to the victim, and back.
    Proxy,
}

const TRAPS: [Trap; 4] = [Trap::BlackHole, Trap::Silence, Trap::OtherRelay, Trap::Proxy];

/// The victim's identities at the attacker's address.
fn poison() -> ExtendTarget {
    let SocketAddr::V4(ipv4) = or_port(ATTACKER) else { unreachable!("test hosts are IPv4") };
    ExtendTarget { ipv4: Some(ipv4), ..target(VICTIM) }
}

/// A circuit that is being extended to the victim.
struct Extending {
    client: Client,
    handshake: ClientHandshake,
}

fn extend_at(bench: &mut Bench, shard: usize, to: ExtendTarget) -> Extending {
    let sock = bench.client_channel(shard);
    let mut client = Client::create(bench, sock, theirs(1), Kind::Fast);
    let (handshake, data) = client.extend2_at(VICTIM, to);
    client.send(bench, RelayCommand::EXTEND2, 0, &data);
    Extending { client, handshake }
}

/// The socket that is to be connected to an address, and its place among all that are.
fn dial_to(bench: &Bench, to: SocketAddr) -> Option<Sock> {
    let shards = bench.shards.iter().enumerate();
    let dials = shards.flat_map(|(shard, of)| of.connects.iter().map(move |(id, to)| (shard, *id, *to)));
    let mut found = dials.filter(|(_, _, at)| *at == to).map(|(shard, id, _)| Sock { shard, id });
    let dial = found.next();
    assert!(found.next().is_none(), "{to} is dialled twice");
    dial
}

fn connect(bench: &mut Bench, sock: Sock) {
    bench.shards[sock.shard].connects.retain(|(id, _)| *id != sock.id);
    bench.connect(sock);
}

/// The trap snaps.
fn spring(bench: &mut Bench, trap: Trap) -> Sock {
    let sock = dial_to(bench, or_port(ATTACKER)).expect("the attacker's address is dialled");
    if trap != Trap::BlackHole {
        connect(bench, sock);
    }
    match trap {
        Trap::OtherRelay => bench.write(sock, &relay_line(ATTACKER, host(ATTACKER))),
        Trap::Proxy => bench.write(sock, &relay_line(VICTIM, host(VICTIM))),
        Trap::BlackHole | Trap::Silence => {}
    }
    sock
}

/// The victim is dialled at its true address, and all these circuits reach it there.
fn reaches_the_victim(bench: &mut Bench, extending: Vec<Extending>) -> Sock {
    let sock = dial_to(bench, or_port(VICTIM)).expect("the true address is dialled");
    connect(bench, sock);
    bench.write(sock, &relay_line(VICTIM, host(VICTIM)));
    answered_over(bench, sock, extending);
    sock
}

/// These circuits are extended over that channel, and no other but one that waits at a trap.
fn answered_over(bench: &mut Bench, sock: Sock, extending: Vec<Extending>) {
    let creates = bench.cells(sock);
    assert!([extending.len(), extending.len() + 1].contains(&creates.len()), "{creates:?}");
    for create in &creates {
        let (hop, created2) = Hop::accept(sock, VICTIM, create);
        bench.send(sock, hop.circ_id, heddle_proto::cell::Command::CREATED2, &created2);
    }
    for Extending { mut client, handshake } in extending {
        let got = client.got_one(bench);
        client.extended(handshake, &got);
    }
}

/// The circuits of others stand before the trap, in it and behind it.
fn nobody_is_led_astray(trap: Trap, shards: u16, attacker_at: usize, others_at: usize) {
    let mut bench = Bench::new(RelayConfig { shards, ..config() });
    let mut poisoned = extend_at(&mut bench, attacker_at, poison());
    let before = extend_at(&mut bench, others_at, target(VICTIM));
    let sprung = spring(&mut bench, trap);
    let after = extend_at(&mut bench, others_at, target(VICTIM));
    let channel = reaches_the_victim(&mut bench, vec![before, after]);
    let late = extend_at(&mut bench, others_at, target(VICTIM));
    answered_over(&mut bench, channel, vec![late]);
    assert!(dial_to(&bench, or_port(VICTIM)).is_none());
    if trap == Trap::Proxy {
        assert_eq!(bench.cells(sprung).len(), 1, "it asked for that address, so that is where it goes");
    }
    let ended = poisoned.client.destroyed(&mut bench);
    assert_eq!(ended, (trap == Trap::OtherRelay).then_some(DestroyReason::OR_IDENTITY));
}

#[test]
fn nobody_is_led_astray_in_one_shard() {
    TRAPS.into_iter().for_each(|trap| nobody_is_led_astray(trap, 1, 0, 0));
}

/// Shard 0 owns the directory, and dials like the others.
#[test]
fn nobody_is_led_astray_in_three_shards() {
    for trap in TRAPS {
        for places in 0..9 {
            nobody_is_led_astray(trap, 3, places / 3, places % 3);
        }
    }
}

/// The trap snaps first, and stands open when the others come.
#[test]
fn a_channel_through_a_stranger_is_for_nobody_who_did_not_ask_for_it() {
    for (shards, attackers_at, others_at) in [(1, 0, 0), (3, 1, 1), (3, 1, 2)] {
        let mut bench = Bench::new(RelayConfig { shards, ..config() });
        let poisoned = extend_at(&mut bench, attackers_at, poison());
        let sprung = spring(&mut bench, Trap::Proxy);
        answered_over(&mut bench, sprung, vec![poisoned]);
        let others = (0..3).map(|_| extend_at(&mut bench, others_at, target(VICTIM))).collect();
        reaches_the_victim(&mut bench, others);
        assert_eq!(bench.cells(sprung).len(), 0);
    }
}

/// A relay that names no address of its own has no canonical channel. One through a stranger must not keep the one at
/// its true address from being used, or each circuit would dial anew.
#[test]
fn a_channel_through_a_stranger_retires_none_at_the_true_address() {
    let mut bench = Bench::new(config());
    let poisoned = extend_at(&mut bench, 0, poison());
    let sprung = spring(&mut bench, Trap::BlackHole);
    connect(&mut bench, sprung);
    bench.write(sprung, &relay_line(VICTIM, host(99)));
    answered_over(&mut bench, sprung, vec![poisoned]);
    let honest = extend_at(&mut bench, 0, target(VICTIM));
    let sock = dial_to(&bench, or_port(VICTIM)).expect("the true address is dialled");
    connect(&mut bench, sock);
    bench.write(sock, &relay_line(VICTIM, host(99)));
    answered_over(&mut bench, sock, vec![honest]);
    for _ in 0..3 {
        let late = extend_at(&mut bench, 0, target(VICTIM));
        answered_over(&mut bench, sock, vec![late]);
    }
    bench.pass(Duration::from_secs(15));
    assert_eq!((bench.gone(sock), bench.gone(sprung)), (None, None));
}

/// A pair's connection through a stranger, who then resets the channel and keeps on forwarding datagrams, is nothing to
/// go on with over a channel to the true address: no circuit of others could go over it.
#[test]
fn a_connection_through_a_stranger_keeps_none_to_the_true_address_away() {
    let mut bench = Bench::with_pipes(config());
    bench.list(&[VICTIM]);
    let poisoned = extend_at(&mut bench, 0, poison());
    let sprung = spring(&mut bench, Trap::Proxy);
    answered_over(&mut bench, sprung, vec![poisoned]);
    let through_stranger = bench.offer(sprung, ATTACKER, 1000);
    assert!(bench.peers[through_stranger].ready);
    bench.fail(sprung, SocketError::Reset);

    let honest = extend_at(&mut bench, 0, target(VICTIM));
    let channel = reaches_the_victim(&mut bench, vec![honest]);
    let paddings = bench.paddings(channel);
    let [ours] = &paddings[..] else { panic!("one offer is expected: {paddings:?}") };
    let direct = bench.answer_offer_as(through_stranger as u8, channel, ours, VICTIM, 1000);
    assert!(bench.peers[direct].ready, "the endpoint dials the true address");
    let client = bench.client_channel(0);
    let mut late = Client::create(&mut bench, client, theirs(1), Kind::Fast);
    extend(&mut bench, &mut late, direct, VICTIM);
}

/// A dial to the attacker's address first and the true one then shares nothing with a dial to the true one.
#[test]
fn addresses_are_tried_in_the_order_of_each_client() {
    let mut bench = Bench::new(config());
    let SocketAddr::V4(stranger) = or_port(ATTACKER) else { unreachable!("test hosts are IPv4") };
    let ipv6: std::net::SocketAddrV6 = "[2a00:1:2::2]:9001".parse().expect("an address");
    let both = ExtendTarget { ipv4: Some(stranger), ipv6: Some(ipv6), ..target(VICTIM) };
    let first = extend_at(&mut bench, 0, both);
    let true_ones = ExtendTarget { ipv6: Some(ipv6), ..target(VICTIM) };
    let second = extend_at(&mut bench, 0, true_ones);
    let third = extend_at(&mut bench, 0, ExtendTarget { ipv4: None, ..true_ones });
    let refused = SocketError::Refused;
    for number in [ATTACKER, VICTIM] {
        let sock = dial_to(&bench, or_port(number)).expect("the first addresses are dialled");
        bench.fail(sock, refused);
    }
    // By now all three wait for the same address.
    let sock = dial_to(&bench, ipv6.into()).expect("the second address is dialled once");
    connect(&mut bench, sock);
    bench.write(sock, &relay_line(VICTIM, host(VICTIM)));
    answered_over(&mut bench, sock, vec![first, second, third]);
}

/// Nobody waits for the attacker's dial any more once its circuit is gone.
#[test]
fn a_dial_ends_with_the_last_circuit_that_waits_for_it() {
    for connected in [false, true] {
        let mut bench = Bench::new(config());
        let attackers = [extend_at(&mut bench, 0, poison()), extend_at(&mut bench, 0, poison())];
        let sock = dial_to(&bench, or_port(ATTACKER)).expect("it is dialled");
        if connected {
            connect(&mut bench, sock);
        }
        let mut gone = Vec::new();
        for Extending { client, .. } in attackers {
            gone.push(bench.gone(sock));
            bench.send(client.sock, client.circ_id, heddle_proto::cell::Command::DESTROY, &[0]);
        }
        let ended = if connected { Gone::Closed } else { Gone::Aborted };
        assert_eq!((gone, bench.gone(sock)), (vec![None, None], Some(ended)));
        assert_eq!(bench.shards[0].relay.in_use().dials, 0);
    }
}

/// A channel to a circuit's second address opens while its first is being dialled, and its peer names neither. It goes
/// over that when the first dial has failed, and dials no more.
#[test]
fn a_channel_to_the_next_address_is_found_when_the_first_fails() {
    let mut bench = Bench::new(config());
    let SocketAddr::V4(stranger) = or_port(ATTACKER) else { unreachable!("test hosts are IPv4") };
    let ipv6: std::net::SocketAddrV6 = "[2a00:1:2::2]:9001".parse().expect("an address");
    let both = ExtendTarget { ipv4: Some(stranger), ipv6: Some(ipv6), ..target(VICTIM) };
    let first = extend_at(&mut bench, 0, both);
    let second = extend_at(&mut bench, 0, ExtendTarget { ipv4: None, ..both });
    let sock = dial_to(&bench, ipv6.into()).expect("the second address is dialled");
    connect(&mut bench, sock);
    bench.write(sock, &relay_line(VICTIM, host(99)));
    answered_over(&mut bench, sock, vec![second]);
    let dial = dial_to(&bench, or_port(ATTACKER)).expect("the first address is dialled still");
    bench.fail(dial, heddle_seam::node::SocketError::Refused);
    answered_over(&mut bench, sock, vec![first]);
    assert!(bench.shards[0].connects.is_empty());
}
