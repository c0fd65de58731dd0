//! What can be seen of a relay by whoever analyses it.

use super::bench::{Bench, config};
use super::client::{Client, Kind, theirs};
use super::flows::{extend, paired};
use super::pairs::new_client;
use heddle_proto::cell::relay::{DATA_LEN, RelayCommand};
use heddle_relay::{Control, Event, Observed, Observees, Place, Why};
use heddle_seam::time::Duration;

/// The fields of each row that a look has, by the index of its observee.
fn look(bench: &mut Bench, observees: Observees, index: Option<u64>) -> Vec<(u64, Vec<i64>)> {
    bench.shards[0].events.clear();
    bench.control(0, Control::Observe { request: 7, observees, index });
    let seen = observed(bench);
    assert_eq!((seen.len(), seen[0].why), (1, Why::Asked(7)));
    rows(&seen[0])
}

fn observed(bench: &Bench) -> Vec<Observed> {
    let seen = bench.shards[0].events.iter().filter_map(|event| match event {
        Event::Observed(observed) => Some((**observed).clone()),
        _ => None,
    });
    seen.collect()
}

fn rows(observed: &Observed) -> Vec<(u64, Vec<i64>)> {
    observed.snapshot.rows().map(|row| (row.index, row.fields.to_vec())).collect()
}

fn field(observees: Observees, name: &str) -> usize {
    observees.family().fields.iter().position(|field| field.name == name).expect("a field of the family")
}

#[test]
fn each_family_shows_what_there_is() {
    let (mut bench, _) = paired(config(), &[2]);
    let mut client = new_client(&mut bench);
    extend(&mut bench, &mut client, 0, 2);
    let circuits = look(&mut bench, Observees::Circuits, None);
    let [(circuit, fields)] = &circuits[..] else { panic!("{circuits:?}") };
    assert_eq!(fields[field(Observees::Circuits, "goes_on")], 1);

    let lanes = look(&mut bench, Observees::Lanes, None);
    let to_client = field(Observees::Lanes, "towards_client");
    assert_eq!(lanes.iter().map(|(_, fields)| fields[to_client]).collect::<Vec<_>>(), [1, 0]);
    let of = field(Observees::Lanes, "circuit");
    assert!(lanes.iter().all(|(_, fields)| fields[of] == *circuit as i64));
    assert_eq!(look(&mut bench, Observees::Lanes, Some(lanes[1].0)), lanes[1..]);
    assert_eq!(look(&mut bench, Observees::Lanes, Some(u64::MAX)), []);

    let link = field(Observees::Lanes, "link");
    let connections = look(&mut bench, Observees::Connections, None);
    let [(connection, fields)] = &connections[..] else { panic!("{connections:?}") };
    assert_eq!(*connection as i64, lanes[1].1[link]);
    assert_eq!(fields[field(Observees::Connections, "circuits")], 1);
    assert_eq!(fields[field(Observees::Connections, "cells_out")], 1, "CREATE2");
    let channels = look(&mut bench, Observees::Channels, None);
    let client_channel = channels.iter().find(|(channel, _)| *channel as i64 == lanes[0].1[link]);
    let (_, fields) = client_channel.expect("the client's channel");
    assert_eq!(fields[field(Observees::Channels, "to_relay")], 0);
    assert_eq!((channels.len(), look(&mut bench, Observees::Streams, None)), (2, vec![]));

    let [(shard, fields)] = &look(&mut bench, Observees::Shards, None)[..] else { panic!("one shard") };
    assert_eq!((*shard, fields[field(Observees::Shards, "circuits")]), (0, 1));
    assert_eq!(fields[field(Observees::Shards, "channels")], 2);
}

#[test]
fn what_streams_are_owed_is_seen() {
    let mut bench = Bench::new(config());
    let sock = bench.relay_channel(0, 1);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Ntor);
    let server = client.connect(&mut bench, 1);
    bench.set_willing(server, false);
    bench.grant(server, 0);
    for _ in 0..3 {
        client.send(&mut bench, RelayCommand::DATA, 1, &[1; DATA_LEN]);
    }
    let [(socket, fields)] = &look(&mut bench, Observees::Streams, None)[..] else { panic!("one stream") };
    assert_eq!((*socket, &fields[..]), (server.id.get(), &[3, 0, 0][..]));
    assert_eq!(look(&mut bench, Observees::Circuits, None)[0].1[field(Observees::Circuits, "streams")], 1);
}

#[test]
fn a_place_forces_looks_while_somebody_wants_them() {
    let (mut bench, _) = paired(config(), &[2]);
    let mut client = new_client(&mut bench);
    extend(&mut bench, &mut client, 0, 2);
    bench.shards[0].events.clear();
    client.send_to(&mut bench, 1, RelayCommand::DATA, 3, b"unseen");
    assert_eq!(observed(&bench), []);
    for place in Place::ALL {
        bench.control(0, Control::Force { place, on: true });
    }
    client.send_to(&mut bench, 1, RelayCommand::DATA, 3, b"seen");
    let at = bench.now;
    assert_eq!(observed(&bench), []);
    bench.pass(Duration::from_millis(10));
    let seen = observed(&bench);
    assert!(
        seen.iter().flat_map(|seen| seen.snapshot.rows()).all(|row| row.time_ns == at.as_nanos()),
        "{seen:?}"
    );
    let of = |place| seen.iter().filter(move |seen| seen.why == Why::Forced(place)).flat_map(rows);
    let away = of(Place::BeforePush).collect::<Vec<_>>();
    assert_eq!(away.len(), 1, "{away:?}");
    assert_eq!(away[0].1[field(Observees::Lanes, "cells")], 0, "the queue before the cell came");
    assert!(of(Place::BeforeWrite).count() >= 1, "the client's channel was looked at: {seen:?}");

    bench.shards[0].events.clear();
    bench.control(0, Control::Force { place: Place::BeforeWrite, on: false });
    bench.control(0, Control::Force { place: Place::BeforePush, on: false });
    client.send_to(&mut bench, 1, RelayCommand::DATA, 3, b"unseen");
    assert_eq!(observed(&bench), []);
}

/// Looks that are forced wait for more of them, and no longer than a hundredth of a second.
#[test]
fn what_is_forced_is_told_in_batches() {
    let (mut bench, _) = paired(config(), &[2]);
    let mut client = new_client(&mut bench);
    extend(&mut bench, &mut client, 0, 2);
    bench.control(0, Control::Force { place: Place::BeforePush, on: true });
    bench.shards[0].events.clear();
    let begun = bench.now;
    for _ in 0..25 {
        client.send_to(&mut bench, 1, RelayCommand::DATA, 3, b"one");
        bench.pass(Duration::from_millis(1));
    }
    let times = |seen: &Observed| -> Vec<u64> {
        seen.snapshot.rows().map(|row| (row.time_ns - begun.as_nanos()) / 1_000_000).collect()
    };
    let seen = observed(&bench);
    assert_eq!(seen.iter().map(times).collect::<Vec<_>>(), [(0..10).collect::<Vec<_>>(), (10..20).collect()]);
    // What waits is told when nobody wants more.
    bench.control(0, Control::Force { place: Place::BeforePush, on: false });
    assert_eq!(times(&observed(&bench)[2]), [20, 21, 22, 23, 24]);
}
