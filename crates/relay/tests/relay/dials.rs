//! EXTEND2 makes the relay dial: nobody can use up its dials that way, or aim them at somebody.

use super::bench::{Bench, Gone, Sock, config, host, or_port};
use super::client::{Client, Hop, Kind, target, theirs};
use heddle_proto::cell::Command;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::extend::ExtendTarget;
use heddle_proto::cell::relay::RelayCommand;
use heddle_relay::{Limits, RelayConfig};
use heddle_seam::node::SocketError;
use heddle_seam::time::Duration;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

/// Dials to one address at once, and how much later there is one more.
const BURST: usize = 16;
const PERIOD: Duration = Duration::from_secs(2);

/// Circuits that are made one after the other on one channel, and extended wherever the test wants.
struct Extender {
    sock: Sock,
    next: u32,
}

impl Extender {
    fn new(bench: &mut Bench, addr: IpAddr) -> Self {
        Extender { sock: bench.client_at(0, addr), next: 1 }
    }

    /// Extends a new circuit; returns it.
    fn extend(&mut self, bench: &mut Bench, to: ExtendTarget) -> Client {
        let mut client = Client::create(bench, self.sock, theirs(self.next), Kind::Fast);
        self.next += 1;
        let (_, data) = client.extend2_at(2, to);
        client.send(bench, RelayCommand::EXTEND2, 0, &data);
        client
    }

    /// The same for a relay that does not exist, and takes what comes.
    fn extend_to(&mut self, bench: &mut Bench, addr: SocketAddrV4) -> Client {
        let mut rsa_id = [9; 20];
        rsa_id[..4].copy_from_slice(&self.next.to_be_bytes());
        rsa_id[4..12].copy_from_slice(&self.sock.id.get().to_be_bytes());
        let to = ExtendTarget { ipv4: Some(addr), ipv6: None, rsa_id, ed25519_id: None };
        let client = self.extend(bench, to);
        bench.cells(self.sock);
        client
    }
}

fn somewhere(host: u8, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(203, 0, 114, host), port)
}

fn client(number: u8) -> IpAddr {
    Ipv4Addr::new(203, 0, 113, number).into()
}

/// Connections that are being made to a host, by whichever shard.
fn aimed_at(bench: &Bench, host: impl Into<IpAddr>) -> usize {
    let host = host.into();
    let connects = bench.shards.iter().flat_map(|shard| &shard.connects);
    connects.filter(|(_, to)| to.ip() == host).count()
}

/// 470 EXTEND2 of random identities a second aimed 14,000 dials at one address once.
#[test]
fn an_address_is_aimed_at_so_often_and_no_more() {
    let mut bench = Bench::new(config());
    bench.list(&[2]);
    let victim = *somewhere(7, 1).ip();
    let mut attackers: Vec<Extender> =
        (1..=47).map(|number| Extender::new(&mut bench, client(number))).collect();
    let mut dialled = 0;
    for second in 0..10 {
        for round in 0..470_u16 {
            let attacker = &mut attackers[usize::from(round % 47)];
            attacker.extend_to(&mut bench, somewhere(7, 1 + round));
        }
        // Whether they fail at once or not.
        dialled += aimed_at(&bench, victim);
        assert!(dialled <= BURST + second, "{dialled} dials in {second} s");
        while let Some(&(id, _)) = bench.shards[0].connects.front() {
            bench.fail(Sock { shard: 0, id }, SocketError::Refused);
        }
        attackers.iter().for_each(|attacker| drop(bench.cells(attacker.sock)));
        bench.pass(Duration::from_secs(1));
    }
    assert_eq!(dialled, BURST + 10 / 2 - 1, "one in {PERIOD:?}");
    let refused = bench.shards[0].relay.stats().refused;
    assert!(refused[&("dial", "target")] > 4000, "{refused:?}");
}

/// Whether EXTEND2 with the true identities, each from another client, are dialled at a port for which others asked
/// with identities of their own making.
fn honest_extends_to_a_port_in_demand(bench: &mut Bench, attackers: u8, honest: ExtendTarget) -> Vec<bool> {
    let SocketAddr::V4(port) = or_port(2) else { unreachable!("test hosts are IPv4") };
    let mut attackers: Vec<Extender> =
        (1..=attackers).map(|number| Extender::new(bench, client(number))).collect();
    (0..4)
        .map(|round| {
            for number in 0..2 * BURST {
                let attacker = number % attackers.len();
                attackers[attacker].extend_to(bench, port);
            }
            let open: Vec<_> = bench.shards[0].connects.iter().map(|(id, _)| *id).collect();
            let mut honest = Extender::new(bench, client(100 + round)).extend(bench, honest);
            let is_dialled = honest.destroyed(bench).is_none()
                && bench.shards[0].connects.iter().any(|(id, _)| !open.contains(id));
            while let Some(&(id, _)) = bench.shards[0].connects.front() {
                bench.fail(Sock { shard: 0, id }, SocketError::Refused);
            }
            attackers.iter().for_each(|attacker| drop(bench.cells(attacker.sock)));
            bench.pass(PERIOD);
            is_dialled
        })
        .collect()
}

/// Three EXTEND2 of random identities a second kept everybody from having that relay dialled once.
#[test]
fn who_names_other_identities_at_a_relays_port_uses_up_none_of_its_dials() {
    for honest in [target(2), ExtendTarget { ed25519_id: None, ..target(2) }] {
        let mut bench = Bench::new(config());
        bench.list(&[2]);
        assert_eq!(honest_extends_to_a_port_in_demand(&mut bench, 1, honest), [true; 4]);
        assert_eq!(honest_extends_to_a_port_in_demand(&mut bench, 32, honest), [true; 4]);
        assert!(bench.shards[0].relay.stats().refused[&("dial", "target")] > 0);
    }
}

/// Clients may have a newer consensus than we, or a descriptor that we lack. One client with sixteen EXTEND2, and then
/// one every two seconds, kept all of them from such a relay.
#[test]
fn who_names_other_identities_uses_up_no_dials_of_relays_that_are_not_listed() {
    // The consensus lists nobody at that address, another relay at that port, or none at all.
    for listed in [&[3][..], &[2], &[]] {
        let mut bench = Bench::new(config());
        if !listed.is_empty() {
            bench.list(listed);
        }
        let honest = ExtendTarget { ed25519_id: Some([77; 32]), ..target(2) };
        assert_eq!(honest_extends_to_a_port_in_demand(&mut bench, 1, honest), [true; 4], "{listed:?}");
        assert!(bench.shards[0].relay.stats().refused[&("dial", "target")] > 0);
    }
}

/// A relay that the consensus does not list at that port shares its dials, and is sought at its next address.
#[test]
fn a_target_in_demand_leaves_the_next_address() {
    let ipv6: std::net::SocketAddrV6 = "[2a00:1:2::2]:9001".parse().expect("an address");
    for (to, is_dialled) in [(target(3), false), (ExtendTarget { ipv6: Some(ipv6), ..target(3) }, true)] {
        let SocketAddr::V4(port) = or_port(2) else { unreachable!("test hosts are IPv4") };
        let mut bench = Bench::new(config());
        bench.list(&[2]);
        let to = ExtendTarget { ipv4: Some(port), ..to };
        assert_eq!(honest_extends_to_a_port_in_demand(&mut bench, 32, to)[0], is_dialled);
    }
}

/// A listed relay that refuses connections is not aimed at, either.
#[test]
fn a_relay_that_is_down_is_dialled_so_often_and_no_more() {
    let mut bench = Bench::new(config());
    bench.list(&[2]);
    let mut attacker = Extender::new(&mut bench, client(1));
    let mut dialled = 0;
    for second in 0..10 {
        for _ in 0..20 {
            attacker.extend(&mut bench, target(2));
            dialled += aimed_at(&bench, or_port(2).ip());
            while let Some(&(id, _)) = bench.shards[0].connects.front() {
                bench.fail(Sock { shard: 0, id }, SocketError::Refused);
            }
            bench.cells(attacker.sock);
        }
        assert!(dialled <= BURST + second, "{dialled} dials in {second} s");
        bench.pass(Duration::from_secs(1));
    }
    assert_eq!(dialled, BURST + 10 / 2 - 1, "one in {PERIOD:?}");
}

/// Whoever dials at random finds an end, and others do not notice.
#[test]
fn dials_have_shares() {
    let limits = Limits { channels: 800, ..Limits::default() };
    let mut bench = Bench::new(RelayConfig { limits, ..config() });
    bench.list(&[2]);
    let mut attacker = Extender::new(&mut bench, client(1));
    for number in 0..400 {
        attacker.extend_to(&mut bench, somewhere((number % 200) as u8, 1 + number));
    }
    // Of 200 places for dials 150 are for addresses where no relay is; one link has a ninth of these.
    assert_eq!(bench.shards[0].connects.len(), 16);
    let mut second = Extender::new(&mut bench, client(1));
    for number in 0..400 {
        second.extend_to(&mut bench, somewhere((number % 200) as u8, 1 + number));
    }
    assert_eq!(bench.shards[0].connects.len(), 30, "an address has a fifth");
    for number in 2..10 {
        let mut other = Extender::new(&mut bench, client(number));
        let mut waits = other.extend_to(&mut bench, somewhere(250, 1 + u16::from(number)));
        assert_eq!(waits.destroyed(&mut bench), None);
    }
    // What fails at once counts for a while.
    while let Some(&(id, _)) = bench.shards[0].connects.front() {
        bench.fail(Sock { shard: 0, id }, SocketError::Refused);
    }
    bench.cells(second.sock);
    second.extend_to(&mut bench, somewhere(251, 1));
    assert_eq!(bench.shards[0].connects.len(), 0);
    bench.pass(Duration::from_secs(6));
    second.extend_to(&mut bench, somewhere(251, 1));
    assert_eq!(bench.shards[0].connects.len(), 1);
}

/// However many dial nowhere, relays of the consensus are reached.
#[test]
fn dials_to_relays_have_a_reserve() {
    let limits = Limits { channels: 80, ..Limits::default() };
    let mut bench = Bench::new(RelayConfig { limits, ..config() });
    bench.list(&[2]);
    for number in 1..=40 {
        let mut attacker = Extender::new(&mut bench, client(number));
        for dial in 0..4 {
            attacker.extend_to(&mut bench, somewhere(number, 1 + dial));
        }
    }
    assert_eq!(bench.shards[0].connects.len(), 15, "of twenty five are for relays");
    let mut honest = Extender::new(&mut bench, client(201));
    let waits = honest.extend(&mut bench, target(2));
    let (id, _) = *bench.shards[0].connects.iter().find(|(_, to)| *to == or_port(2)).expect("it is dialled");
    bench.shards[0].connects.retain(|(other, _)| *other != id);
    let sock = Sock { shard: 0, id };
    bench.connect(sock);
    bench.write(sock, &super::plain::relay_line(2, host(2)));
    let hop = Hop::answer(&mut bench, sock, 2);
    assert_eq!((hop.sock, waits.sock), (sock, honest.sock));
}

/// The next circuit may want it, and nobody can have it made anew for each circuit.
#[test]
fn a_dial_to_a_relay_of_the_consensus_goes_on_for_nobody() {
    for listed in [&[2][..], &[3]] {
        let mut bench = Bench::new(config());
        bench.list(listed);
        let mut honest = Extender::new(&mut bench, client(1));
        let gives_up = honest.extend(&mut bench, target(2));
        let (id, _) = bench.shards[0].connects[0];
        bench.send(gives_up.sock, gives_up.circ_id, Command::DESTROY, &[0]);
        let goes_on = bench.gone(Sock { shard: 0, id }).is_none();
        assert_eq!(goes_on, listed == [2]);
        if goes_on {
            let next = bench.answer_dial(0, 2);
            honest.extend(&mut bench, target(2));
            assert_eq!((bench.cells(next).len(), bench.shards[0].connects.len()), (1, 0));
        }
    }
    // But not one to another address, whoever is said to be there.
    let mut bench = Bench::new(config());
    bench.list(&[2]);
    let mut poisons = Extender::new(&mut bench, client(1));
    let gives_up = poisons.extend(&mut bench, ExtendTarget { ipv4: Some(somewhere(7, 1)), ..target(2) });
    let (id, _) = bench.shards[0].connects[0];
    bench.send(gives_up.sock, gives_up.circ_id, Command::DESTROY, &[0]);
    assert_eq!(bench.gone(Sock { shard: 0, id }), Some(Gone::Aborted));
}

/// A stranger cannot keep the places of dials by answering them: channels count for whom they lead to.
#[test]
fn channels_that_were_dialled_have_shares() {
    let limits = Limits { channels: 80, ..Limits::default() };
    let mut bench = Bench::new(RelayConfig { limits, ..config() });
    bench.list(&[2]);
    let mut opened = 0;
    let mut refused = 0;
    for number in 1..=30 {
        let mut attacker = Extender::new(&mut bench, client(number));
        let SocketAddr::V4(addr) = or_port(77) else { unreachable!("test hosts are IPv4") };
        let to = ExtendTarget { ipv4: Some(addr), ..target(100 + number) };
        let mut asks = attacker.extend(&mut bench, to);
        if bench.shards[0].connects.is_empty() {
            assert_eq!(asks.destroyed(&mut bench), Some(DestroyReason::RESOURCELIMIT));
            break;
        }
        let (sock, _) = bench.connect_next(0);
        bench.write(sock, &super::plain::relay_line(100 + number, host(77)));
        match bench.gone(sock) {
            None => opened += 1,
            Some(_) => refused += 1,
        }
    }
    assert!(opened == 3 && refused >= 10, "a fifth of 15 opened: {opened}, {refused}");
}
