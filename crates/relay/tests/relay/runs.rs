//! Runs of KIST that are an interval apart, as stock Tor's are.

use super::bench::{Bench, config};
use super::client::{Client, Kind, extend, theirs, two_hops};
use heddle_proto::cell::relay::RelayCommand;
use heddle_relay::{RelayConfig, Scheduler};
use heddle_seam::time::Duration;

const HALF_LIFE: Duration = Duration::from_secs(30);

fn bench(interval_ms: u64) -> Bench {
    let scheduler = Scheduler::Kist { half_life: HALF_LIFE, interval: Duration::from_millis(interval_ms) };
    Bench::new(RelayConfig { scheduler, ..config() })
}

#[test]
fn a_cell_after_a_pause_leaves_at_once_and_the_next_one_an_interval_later() {
    let mut bench = bench(10);
    let (mut client, mut hop) = two_hops(&mut bench);
    bench.pass(Duration::from_secs(1));
    let mut left_at_ms = Vec::new();
    for ms in 0..50_u64 {
        if ms % 4 == 0 {
            hop.send(&mut bench, RelayCommand::DATA, 1, &[ms as u8]);
        }
        left_at_ms.extend(client.got(&mut bench).iter().map(|got| (u64::from(got.data[0]), ms)));
        bench.pass(Duration::from_millis(1));
    }
    left_at_ms.extend(client.got(&mut bench).iter().map(|got| (u64::from(got.data[0]), 50)));
    // Each run is at least ten milliseconds after the one before, and all that has come by then leaves in it.
    let wanted = (0..50).step_by(4).map(|sent: u64| (sent, sent.div_ceil(10) * 10));
    assert_eq!(left_at_ms, wanted.collect::<Vec<_>>());
}

#[test]
fn all_channels_send_in_one_run_and_nothing_is_forgotten() {
    let mut bench = bench(10);
    let mut circuits = Vec::new();
    for number in 2..5 {
        let sock = bench.client_channel(0);
        let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
        let hop = extend(&mut bench, &mut client, number);
        circuits.push((client, hop));
        bench.pass(Duration::from_secs(1));
    }
    for cells in 1..=40 {
        for (_, hop) in &mut circuits {
            hop.send(&mut bench, RelayCommand::DATA, 1, &[cells]);
        }
    }
    // The first one's first cell began a run, and what came at the same time is part of it.
    let now: usize = circuits.iter_mut().map(|(client, _)| client.got(&mut bench).len()).sum();
    assert_eq!((now, bench.queued_cells()), (120, 0));
    bench.pass(Duration::from_millis(1));
    circuits.iter_mut().for_each(|(_, hop)| hop.send(&mut bench, RelayCommand::DATA, 1, &[0]));
    assert_eq!(bench.queued_cells(), 3);
    bench.pass(Duration::from_millis(8));
    assert_eq!(bench.queued_cells(), 3);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.queued_cells(), 0);
    for (client, _) in &mut circuits {
        assert_eq!(client.got(&mut bench).len(), 1);
    }
}

/// The run that is due is begun by what comes for another channel, before the time-out is handed in.
#[test]
fn who_waits_is_part_of_a_run_that_another_begins() {
    let mut bench = bench(10);
    let mut circuits = Vec::new();
    for number in 2..4 {
        let sock = bench.client_channel(0);
        let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
        let hop = extend(&mut bench, &mut client, number);
        circuits.push((client, hop));
        bench.pass(Duration::from_secs(1));
    }
    let [(first, first_hop), (other, other_hop)] = &mut circuits[..] else { panic!("two circuits") };
    first_hop.send(&mut bench, RelayCommand::DATA, 1, b"begins a run");
    bench.skip(Duration::from_millis(1));
    other_hop.send(&mut bench, RelayCommand::DATA, 1, b"waits");
    bench.skip(Duration::from_millis(9));
    assert_eq!((first.got(&mut bench).len(), other.got(&mut bench).len()), (1, 0));
    first_hop.send(&mut bench, RelayCommand::DATA, 1, b"begins the next");
    assert_eq!((first.got(&mut bench).len(), other.got(&mut bench).len()), (1, 1));
}

#[test]
fn without_an_interval_cells_leave_whenever_they_come() {
    let mut bench = bench(0);
    let (mut client, mut hop) = two_hops(&mut bench);
    for _ in 0..20 {
        hop.send(&mut bench, RelayCommand::DATA, 1, b"now");
        assert_eq!(client.got(&mut bench).len(), 1);
        bench.pass(Duration::from_millis(1));
    }
}
