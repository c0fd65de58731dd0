//! Whose circuits end when what circuits take themselves is too much: nobody has more by having more channels, networks
//! or shards.

use super::bench::{Bench, Sock, config};
use super::client::{Client, Hop, Kind, theirs};
use heddle_proto::cell::Command;
use heddle_proto::cell::relay::RelayCommand;
use heddle_relay::RelayConfig;
use heddle_seam::time::Duration;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Some 155 circuits take as much. When they do, as many end as are above half of it, and a tenth more.
const MAX: usize = 300_000;
/// What the modest one has, which is less than an eleventh of what may stay.
const FEW: u32 = 3;
/// How many are greedy.
const GREEDY: u8 = 10;
/// What each of them has.
const MANY: u32 = 16;

fn bench(shards: u16) -> Bench {
    Bench::new(RelayConfig { max_queue_bytes: MAX, shards, ..config() })
}

/// An address of its own for each number.
fn address(number: u8) -> IpAddr {
    Ipv4Addr::new(203, 0, 113, number).into()
}

/// Opens so many circuits on a channel, of which some may have ended when this returns.
fn open(bench: &mut Bench, sock: Sock, count: u32) {
    for id in 1..=count {
        bench.send(sock, theirs(id), Command::CREATE_FAST, &[1; 20]);
        bench.pass(Duration::from_millis(1));
    }
}

/// The circuits of a channel that were created and have not ended.
fn living(bench: &mut Bench, sock: Sock) -> usize {
    let cells = bench.cells(sock);
    let count = |command| cells.iter().filter(|cell| cell.command == command).count();
    count(Command::CREATED_FAST) - count(Command::DESTROY)
}

/// How much circuits were seen to take, at most, and that some had to end.
fn assert_relieved(bench: &Bench) {
    for shard in &bench.shards {
        let state_bytes = shard.relay.stats().circuit_state_bytes as usize;
        assert!(state_bytes <= MAX, "{state_bytes}");
    }
}

#[test]
fn many_channels_of_few_addresses_have_no_more_than_one_channel_of_each() {
    const CHANNELS: u32 = 4;
    let mut bench = bench(1);
    let modest = bench.client_at(0, address(1));
    open(&mut bench, modest, FEW);
    let mut greedy = Vec::new();
    for _ in 0..CHANNELS {
        for number in 2..2 + GREEDY {
            let sock = bench.client_at(0, address(number));
            open(&mut bench, sock, MANY / CHANNELS);
            greedy.push(sock);
        }
    }
    assert_relieved(&bench);
    let left: usize = greedy.iter().map(|sock| living(&mut bench, *sock)).sum();
    assert_eq!(living(&mut bench, modest), FEW as usize);
    assert!(left < (u32::from(GREEDY) * MANY) as usize, "some had to end: {left}");
}

#[test]
fn many_networks_of_one_site_have_the_share_of_one() {
    const NETWORKS: u16 = 4;
    let mut bench = bench(1);
    let modest = bench.client_at(0, address(1));
    open(&mut bench, modest, FEW);
    let mut greedy = Vec::new();
    for network in 0..NETWORKS {
        for site in 0..GREEDY {
            let addr = Ipv6Addr::new(0x2001, 0xdb8, site.into(), network, 0, 0, 0, 1);
            let sock = bench.client_at(0, addr.into());
            open(&mut bench, sock, MANY / u32::from(NETWORKS));
            greedy.push(sock);
        }
    }
    assert_relieved(&bench);
    let left: usize = greedy.iter().map(|sock| living(&mut bench, *sock)).sum();
    assert_eq!(living(&mut bench, modest), FEW as usize);
    assert!(left < (u32::from(GREEDY) * MANY) as usize, "some had to end: {left}");
}

/// At the shard that has the channel to the next relay all of them come from one link.
#[test]
fn circuits_from_another_shard_have_the_shares_of_their_parties() {
    let mut bench = bench(2);
    bench.list(&[2]);
    let next = bench.relay_channel(0, 2);
    let mut ended = Vec::new();
    let mut cross = |bench: &mut Bench, sock, id| {
        let mut client = Client::create(bench, sock, theirs(id), Kind::Fast);
        let (_, extend2) = client.extend2(2);
        client.send(bench, RelayCommand::EXTEND2, 0, &extend2);
        let (creates, destroys): (Vec<_>, Vec<_>) =
            bench.cells(next).into_iter().partition(|cell| cell.command == Command::CREATE2);
        let (hop, created2) = Hop::accept(next, 2, &creates[0]);
        bench.send(next, hop.circ_id, Command::CREATED2, &created2);
        bench.cells(sock);
        bench.pass(Duration::from_millis(1));
        ended.extend(destroys.into_iter().map(|cell| cell.circ_id));
        hop.circ_id
    };
    let modest = bench.client_at(1, address(1));
    let modest: Vec<_> = (1..=FEW).map(|id| cross(&mut bench, modest, id)).collect();
    for id in 1..=MANY {
        for number in 2..2 + GREEDY {
            let sock = bench.client_at(1, address(number));
            cross(&mut bench, sock, id);
        }
    }
    assert_relieved(&bench);
    assert!(!ended.is_empty(), "some had to end");
    assert!(modest.iter().all(|circ_id| !ended.contains(circ_id)), "{modest:?} of {ended:?}");
}

/// What a question takes is no reason to end a circuit that holds little, however long that has been idle and however
/// lately the circuit was used that asked. All came over one neighbour.
#[test]
fn questions_of_a_few_circuits_cost_no_idle_circuit_its_life() {
    const IDLE: u32 = 40;
    const ASKING: u32 = 4;
    let mut bench = Bench::new(RelayConfig { max_queue_bytes: 500_000, ..config() });
    let sock = bench.relay_channel(0, 1);
    open(&mut bench, sock, IDLE);
    bench.cells(sock);
    bench.pass(Duration::from_secs(30));
    let mut asking: Vec<_> = (1..=ASKING)
        .map(|number| Client::create(&mut bench, sock, theirs(IDLE + number), Kind::Fast))
        .collect();
    let mut ended = Vec::new();
    for stream in 1..=4 {
        for client in &mut asking {
            client.send(&mut bench, RelayCommand::RESOLVE, stream, b"a.example\0");
            bench.pass(Duration::from_millis(1));
            let cells = bench.cells(sock).into_iter().filter(|cell| cell.command == Command::DESTROY);
            ended.extend(cells.map(|cell| cell.circ_id));
        }
    }
    assert!(ended.iter().all(|circ_id| *circ_id > theirs(IDLE)), "{ended:?}");
    assert!(!ended.is_empty(), "some had to end");
}

/// Circuits that are many and carry nothing end before those that ask for a name.
#[test]
fn idle_circuits_that_are_many_end_before_one_that_asks() {
    let mut bench = bench(1);
    let sock = bench.relay_channel(0, 1);
    let mut asking = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    for id in 2..200 {
        bench.send(sock, theirs(id), Command::CREATE_FAST, &[1; 20]);
        if id == 20 {
            asking.send(&mut bench, RelayCommand::RESOLVE, 1, b"a.example\0");
        }
        bench.pass(Duration::from_millis(1));
    }
    assert_relieved(&bench);
    let cells = bench.cells(sock);
    let ended: Vec<_> = cells.iter().filter(|cell| cell.command == Command::DESTROY).collect();
    assert!(!ended.is_empty() && ended.iter().all(|cell| cell.circ_id != theirs(1)), "{ended:?}");
}

/// What a flood took is there for others when it is over.
#[test]
fn a_flood_that_is_over_takes_nothing() {
    let mut bench = bench(1);
    let socks: Vec<_> = (1..=GREEDY).map(|number| bench.client_at(0, address(number))).collect();
    socks.iter().for_each(|sock| open(&mut bench, *sock, MANY - 5));
    let bytes = |bench: &Bench| bench.shards[0].relay.stats().circuit_state_bytes;
    let flooded = bytes(&bench);
    assert_eq!(bench.circuits(), usize::from(GREEDY) * (MANY as usize - 5));
    socks.iter().for_each(|sock| bench.finish(*sock));
    bench.pass(Duration::from_secs(12));
    assert_eq!(bench.circuits(), 0);
    assert!(bytes(&bench) * 20 < flooded, "{} of {flooded}", bytes(&bench));
}
