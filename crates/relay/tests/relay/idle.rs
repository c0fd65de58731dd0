//! Circuits that end here and carry nothing do not stay.

use super::bench::{Bench, Sock, config, host};
use super::client::{Client, Kind, extend, theirs};
use heddle_proto::cell::Command;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::relay::RelayCommand;
use heddle_relay::{Limits, RelayConfig};
use heddle_seam::time::Duration;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// How many circuits of a channel are destroyed, all as finished.
fn finished(bench: &mut Bench, sock: Sock) -> usize {
    let cells = bench.cells(sock);
    let destroys = cells.iter().filter(|cell| cell.command == Command::DESTROY);
    destroys.inspect(|cell| assert_eq!(DestroyReason::parse(&cell.body), DestroyReason::FINISHED)).count()
}

#[test]
fn a_client_that_begins_circuits_and_does_nothing_loses_them() {
    let mut bench = Bench::new(config());
    bench.list(&[1]);
    let sock = bench.client_at(0, host(250));
    (1..=1000).for_each(|id| bench.send(sock, theirs(id), Command::CREATE_FAST, &[1; 20]));
    bench.pass(secs(59));
    assert_eq!((finished(&mut bench, sock), bench.circuits()), (0, 1000));
    bench.pass(secs(12));
    assert_eq!((finished(&mut bench, sock), bench.circuits()), (1000, 0));
    let held = bench.shards[0].relay.in_use();
    assert_eq!(held.granted.circuits, 0);
    let refused = bench.shards[0].relay.stats().refused;
    assert_eq!(refused.into_iter().collect::<Vec<_>>(), [(("circuit", "idle"), 1000)]);
    Client::create(&mut bench, sock, theirs(1), Kind::Fast);
}

/// Stock's clients pad, so that a cell tells nothing; and one busy circuit keeps no other.
#[test]
fn cells_keep_no_circuit() {
    let mut bench = Bench::new(config());
    bench.list(&[1]);
    let sock = bench.client_at(0, host(250));
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    for _ in 0..5 {
        bench.pass(secs(10));
        client.send(&mut bench, RelayCommand::DROP, 0, &[]);
    }
    assert_eq!(client.destroyed(&mut bench), None);
    bench.pass(secs(21));
    assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::FINISHED));
}

#[test]
fn circuits_that_go_on_stay_and_have_a_minute_after_truncate() {
    let mut bench = Bench::new(config());
    bench.list(&[1, 2]);
    let sock = bench.client_at(0, host(250));
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    bench.pass(secs(50));
    extend(&mut bench, &mut client, 2);
    bench.pass(secs(600));
    assert_eq!(client.destroyed(&mut bench), None);
    client.send(&mut bench, RelayCommand::TRUNCATE, 0, &[0]);
    assert_eq!(client.got_one(&mut bench).command, RelayCommand::TRUNCATED);
    bench.pass(secs(49));
    assert_eq!(client.destroyed(&mut bench), None);
    bench.pass(secs(22));
    assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::FINISHED));
}

/// Clients keep circuits ready whose last hop waits for their first stream, for an hour and more.
#[test]
fn circuits_that_relays_brought_stay() {
    for listed in [&[1][..], &[]] {
        let mut bench = Bench::new(config());
        if !listed.is_empty() {
            bench.list(listed);
        }
        let sock = bench.relay_channel(0, 1);
        let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Ntor);
        bench.pass(secs(3600));
        assert_eq!(client.destroyed(&mut bench), None, "{listed:?}");
    }
}

/// Whoever proves an identity of its own making is a client as any other, but may have streams where the operator says
/// so.
#[test]
fn circuits_with_streams_stay() {
    let mut bench = Bench::new(RelayConfig { refuse_unknown_exits: Some(false), ..config() });
    bench.list(&[1]);
    let sock = bench.relay_channel(0, 2);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Ntor);
    client.connect(&mut bench, 1);
    bench.pass(secs(600));
    assert_eq!(client.destroyed(&mut bench), None);
    client.send(&mut bench, RelayCommand::END, 1, &[6]);
    for _ in 0..3 {
        bench.pass(secs(55));
        client.connect(&mut bench, 2);
        client.send(&mut bench, RelayCommand::END, 2, &[6]);
    }
    bench.pass(secs(59));
    assert_eq!(client.destroyed(&mut bench), None);
    bench.pass(secs(12));
    assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::FINISHED));
}

/// With the limits of production: whoever begins circuits in turns from many addresses holds what a minute brings.
#[test]
fn greedy_addresses_leave_nothing_behind() {
    let mut bench = Bench::new(RelayConfig { limits: Limits::default(), ..config() });
    bench.list(&[1]);
    for number in 100..110 {
        let sock = bench.client_at(0, host(number));
        (1..=500).for_each(|id| bench.send(sock, theirs(id), Command::CREATE_FAST, &[1; 20]));
        bench.pass(secs(20));
        assert!(bench.circuits() <= 4 * 500, "{} circuits", bench.circuits());
    }
}
