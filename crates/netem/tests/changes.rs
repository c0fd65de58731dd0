//! Directions that change, go down, or refuse a packet.

mod one_wire;

use heddle_netem::{
    DirectionOptions, DropReason, Flap, HostId, Instant, InterfaceOptions, Jitter, Loss, Rate, Reorder,
    SendError, Step,
};
use one_wire::{A, B, MS, Numbered, S, carry, delays_ms, evenly, numbers, topology};

fn drops(topology: &heddle_netem::Topology<Numbered>, reason: DropReason) -> u64 {
    topology.direction_stats(A, B).expect("a wire").drops.get(reason)
}

#[test]
fn steps_change_a_direction_when_they_are_due() {
    let schedule = vec![
        Step { at_ns: 2 * S, delay_ns: Some(30 * MS), ..Step::default() },
        Step { at_ns: 4 * S, loss: Some(Loss::EveryNth { n: 2 }), ..Step::default() },
        Step { at_ns: 6 * S, loss: Some(Loss::None), jitter: Some(Jitter::None), ..Step::default() },
        Step { at_ns: 8 * S, down: Some(true), ..Step::default() },
        Step { at_ns: 9 * S, down: Some(false), mtu_bytes: Some(999), ..Step::default() },
    ];
    let direction = DirectionOptions { delay_ns: 10 * MS, schedule, ..DirectionOptions::default() };
    let mut topology = topology(direction, 1);
    let arrived = carry(&mut topology, evenly(10, S));
    assert_eq!(numbers(&arrived), [0, 1, 2, 3, 4, 6, 7]);
    assert_eq!(delays_ms(&arrived), [10.0, 10.0, 30.0, 30.0, 30.0, 30.0, 30.0]);
    let count = |reason| drops(&topology, reason);
    assert_eq!((count(DropReason::Loss), count(DropReason::Down), count(DropReason::TooBig)), (1, 1, 1));
    assert_eq!(topology.mtu_bytes(Instant::from_nanos(10 * S), A, B), Ok(999));
}

#[test]
fn a_driver_changes_a_direction_when_it_likes() {
    let schedule = vec![Step { at_ns: 4 * S, delay_ns: Some(5 * MS), ..Step::default() }];
    let direction = DirectionOptions { delay_ns: 10 * MS, schedule, ..DirectionOptions::default() };
    let mut topology = topology(direction, 1);
    let mut arrived = carry(&mut topology, evenly(3, S));
    let now = Instant::from_nanos(2 * S + 500 * MS);
    // Its time does not matter, and the schedule goes on.
    let change = Step { at_ns: 9 * S, delay_ns: Some(30 * MS), ..Step::default() };
    topology.change(now, A, B, &change).expect("a wire");
    arrived.extend(carry(&mut topology, evenly(6, S).skip(3)));
    assert_eq!(delays_ms(&arrived), [10.0, 10.0, 10.0, 30.0, 5.0, 5.0]);
    let nowhere = HostId(7);
    assert_eq!(topology.change(now, A, nowhere, &change), Err(SendError::NoHost(nowhere)));
}

#[test]
fn reordering_and_corruption_begin_and_end() {
    let reorder = |probability| Some(Reorder { probability, hold_ns: MS });
    let schedule = vec![
        Step { at_ns: S, reorder: reorder(1.0), corrupt: Some(1.0), duplicate: Some(1.0), ..Step::default() },
        Step {
            at_ns: 2 * S,
            reorder: reorder(0.0),
            corrupt: Some(0.0),
            duplicate: Some(0.0),
            ..Step::default()
        },
    ];
    let mut topology = topology(DirectionOptions { schedule, ..DirectionOptions::default() }, 1);
    let arrived = carry(&mut topology, evenly(3, S));
    assert_eq!(numbers(&arrived), [0, 1, 1, 2]);
    assert_eq!(
        arrived.iter().map(|delivery| delivery.corrupted).collect::<Vec<_>>(),
        [false, true, true, false]
    );
    assert_eq!(delays_ms(&arrived), [0.0, 1.0, 1.0, 0.0]);
    let stats = topology.direction_stats(A, B).expect("a wire");
    assert_eq!((stats.held_back, stats.corrupted, stats.duplicated), (2, 1, 1));
}

#[test]
fn a_flap_goes_down_again_and_again() {
    let flap = Some(Flap { first_ns: 2 * S, down_ns: S, up_ns: 2 * S });
    let mut topology = topology(DirectionOptions { flap, ..DirectionOptions::default() }, 1);
    assert_eq!(numbers(&carry(&mut topology, evenly(12, S))), [0, 1, 3, 4, 6, 7, 9, 10]);
    assert_eq!(drops(&topology, DropReason::Down), 4);
}

#[test]
fn a_blackhole_takes_what_leaves_the_queue_but_not_what_is_on_its_way() {
    let schedule = vec![Step { at_ns: 2500 * MS / 1000, down: Some(true), ..Step::default() }];
    let rate = Rate::BitsPerS(8_000_000);
    let mut topology =
        topology(DirectionOptions { rate, delay_ns: S, schedule, ..DirectionOptions::default() }, 1);
    assert_eq!(numbers(&carry(&mut topology, (0..5).map(|_| (0, 1000)))), [0, 1]);
    assert_eq!(drops(&topology, DropReason::Down), 3);
}

#[test]
fn a_shorter_delay_does_not_reorder_unless_it_may() {
    let schedule = vec![Step { at_ns: 5 * MS, delay_ns: Some(MS), ..Step::default() }];
    let direction = DirectionOptions { delay_ns: 20 * MS, schedule, ..DirectionOptions::default() };
    let in_order = carry(&mut topology(direction.clone(), 1), evenly(10, MS));
    assert!(numbers(&in_order).is_sorted());
    let direction = DirectionOptions { jitter_reorders: true, ..direction };
    assert_eq!(numbers(&carry(&mut topology(direction, 1), evenly(10, MS))), [5, 6, 7, 8, 9, 0, 1, 2, 3, 4]);
}

#[test]
fn jitter_reorders_only_when_it_may() {
    let jitter = Jitter::Exponential { mean_ns: 5 * MS };
    let direction = DirectionOptions { delay_ns: 50 * MS, jitter, ..DirectionOptions::default() };
    assert!(numbers(&carry(&mut topology(direction.clone(), 1), evenly(10_000, MS))).is_sorted());
    let direction = DirectionOptions { jitter_reorders: true, ..direction };
    let arrived = carry(&mut topology(direction, 1), evenly(10_000, MS));
    assert!(!numbers(&arrived).is_sorted());
    assert!(arrived.is_sorted_by_key(|delivery| delivery.at));
}

#[test]
fn the_delay_line_is_bounded() {
    let direction = DirectionOptions { delay_ns: S, ..DirectionOptions::default() };
    let by_packets = DirectionOptions { in_flight_packets_max: 7, ..direction.clone() };
    let by_bytes = DirectionOptions { in_flight_bytes_max: 7999, ..direction };
    for direction in [by_packets, by_bytes] {
        let mut topology = topology(direction, 1);
        assert_eq!(numbers(&carry(&mut topology, evenly(20, 1))), (0..7).collect::<Vec<u64>>());
        assert_eq!(drops(&topology, DropReason::InFlightFull), 13);
    }
}

#[test]
fn the_mtu_is_the_longest_packet() {
    let mut topology = topology(DirectionOptions { mtu_bytes: 100, ..DirectionOptions::default() }, 1);
    assert_eq!(numbers(&carry(&mut topology, [(0, 100), (0, 101), (0, 99)])), [0, 2]);
    assert_eq!(drops(&topology, DropReason::TooBig), 1);
}

#[test]
fn a_driver_can_ask_for_the_mtu_ahead() {
    let mtu = |at_ns, mtu_bytes| Step { at_ns, mtu_bytes: Some(mtu_bytes), ..Step::default() };
    let schedule =
        vec![mtu(S, 600), Step { at_ns: 2 * S, down: Some(true), ..Step::default() }, mtu(3 * S, 700)];
    let direction = DirectionOptions { mtu_bytes: 500, schedule, ..DirectionOptions::default() };
    let mut by_default = one_wire::options(direction.clone());
    by_default.wires.clear();
    by_default.default_wire = Some(direction.clone());
    let seed = heddle_netem::Seed::from_number(1);
    let by_default = heddle_netem::Topology::<Numbered>::new(&by_default, &seed).expect("good options");
    let mut declared = topology(direction, 1);
    for topology in [&by_default, &declared] {
        let ahead = [0, S, 2 * S, 3 * S].map(|at_ns| topology.mtu_bytes(Instant::from_nanos(at_ns), A, B));
        assert_eq!(ahead, [Ok(500), Ok(600), Ok(600), Ok(700)]);
        assert_eq!(topology.mtu_bytes(Instant::ZERO, A, A), Err(SendError::NoWire(A, A)));
        assert_eq!(topology.mtu_bytes(Instant::ZERO, A, HostId(2)), Err(SendError::NoHost(HostId(2))));
    }
    assert_eq!(carry(&mut declared, evenly(1, 1)).len(), 0);
    assert_eq!(drops(&declared, DropReason::TooBig), 1);
}

#[test]
fn what_cannot_be_sent_says_why() {
    let rate = Rate::BitsPerS(8_000_000);
    let mut topology = topology(DirectionOptions { rate, ..DirectionOptions::default() }, 1);
    let packet = |bytes| Numbered { number: 0, bytes, flipped: Vec::new() };
    let nobody = HostId(7);
    assert_eq!(topology.send(Instant::ZERO, nobody, A, packet(1)), Err(SendError::NoHost(nobody)));
    assert_eq!(topology.send(Instant::ZERO, A, nobody, packet(1)), Err(SendError::NoHost(nobody)));
    assert_eq!(topology.send(Instant::ZERO, A, A, packet(1)), Err(SendError::NoWire(A, A)));
    assert_eq!(topology.send(Instant::ZERO, A, B, packet(0)), Err(SendError::Length(0)));
    assert_eq!(topology.send(Instant::ZERO, A, B, packet(usize::MAX)), Err(SendError::Length(usize::MAX)));
    assert_eq!(topology.totals().sent, 0);

    topology.send(Instant::ZERO, A, B, packet(1000)).expect("a wire");
    let due = Instant::from_nanos(MS);
    assert_eq!(topology.send(Instant::from_nanos(2 * MS), A, B, packet(1)), Err(SendError::PollFirst(due)));
    assert_eq!(topology.poll(Instant::from_nanos(2 * MS)).expect("a packet").at, due);
    assert_eq!(topology.poll(Instant::from_nanos(2 * MS)), None);
    // The driver's clock went back, the topology's does not.
    topology.send(Instant::from_nanos(MS), A, B, packet(1000)).expect("a wire");
    assert_eq!(topology.next_time(), Some(Instant::from_nanos(3 * MS)));
    assert_eq!(InterfaceOptions::default().rate, Rate::Unlimited);
}

#[test]
fn bytes_are_corrupted_in_place() {
    let direction = DirectionOptions { corrupt: 1.0, ..DirectionOptions::default() };
    let options = one_wire::options(direction);
    let mut topology =
        heddle_netem::Topology::new(&options, &heddle_netem::Seed::from_number(1)).expect("good options");
    topology.send(Instant::ZERO, A, B, vec![0u8; 64]).expect("a wire");
    let packet = topology.poll(Instant::ZERO).expect("a packet").packet;
    assert_eq!(packet.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
}

#[test]
fn the_log_of_drops_is_bounded_and_off_by_default() {
    let lossy = DirectionOptions { loss: Loss::EveryNth { n: 2 }, ..DirectionOptions::default() };
    let mut topology = topology(lossy, 1);
    carry(&mut topology, (0..10).map(|number| (number * MS, 100)));
    assert_eq!((topology.take_drops().len(), topology.drops_missed()), (0, 0));
    topology.log_drops(3);
    carry(&mut topology, (0..10).map(|number| (100 * MS + number * MS, 100)));
    let dropped = topology.take_drops();
    let numbers: Vec<u64> = dropped.iter().map(|dropped| dropped.packet.number).collect();
    assert_eq!((numbers, topology.drops_missed()), (vec![1, 3, 5], 2));
    assert!(
        dropped
            .iter()
            .all(|dropped| dropped.reason == heddle_netem::DropReason::Loss && dropped.at == dropped.sent)
    );
    assert_eq!((dropped[0].from, dropped[0].to), (one_wire::A, one_wire::B));
    assert!(topology.take_drops().is_empty());
}
