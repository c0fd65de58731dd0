//! Rates are exact, queues are bounded, and what shares an interface shares its rate.

mod one_wire;

use heddle_netem::{
    CodelOptions, DirectionOptions, DropReason, HostId, HostOptions, Instant, InterfaceOptions,
    PolicerOptions, QueueOptions, Rate, RateStep, Seed, Step, Topology, TopologyOptions,
};
use one_wire::{A, B, MS, Numbered, S, carry, drain, evenly, host, numbers, topology, wire};

fn rated(bits_per_s: u64) -> DirectionOptions {
    DirectionOptions { rate: Rate::BitsPerS(bits_per_s), ..DirectionOptions::default() }
}

fn queue(packets_max: u64, bytes_max: u64) -> QueueOptions {
    QueueOptions { packets_max, bytes_max, codel: None }
}

#[test]
fn no_rounding_adds_up() {
    // Rates whose packets take no whole number of nanoseconds; lengths that vary.
    for rate in [3, 56_000, 9_999_991, 10_000_000, 299_999_977, 40_000_000_007] {
        let direction = DirectionOptions { queue: queue(100_000, 1 << 30), ..rated(rate) };
        let lengths: Vec<usize> = (0..50_000).map(|number| 1 + number * 7919 % 1500).collect();
        let mut topology = topology(direction, 1);
        let arrived = carry(&mut topology, lengths.iter().map(|bytes| (0, *bytes)));
        let mut bits = 0u128;
        for (delivery, bytes) in arrived.iter().zip(&lengths) {
            bits += *bytes as u128 * 8;
            assert_eq!(u128::from(delivery.at.as_nanos()), bits * 1_000_000_000 / u128::from(rate));
        }
        assert_eq!(arrived.len(), lengths.len());
    }
}

#[test]
fn goodput_is_the_rate_without_framing() {
    // What FACTS of the kernel measure too: full TCP segments over Ethernet at 10 Mbit/s carry 9.56 Mbit/s.
    let direction = DirectionOptions { framing_bytes: 14, ..rated(10_000_000) };
    let mut topology = topology(direction, 1);
    let arrived = carry(&mut topology, (0..100_000).map(|number| (number * MS, 1500)));
    let seconds = arrived.last().expect("packets").at.as_nanos() as f64 / S as f64;
    let payload_mbit = arrived.len() as f64 * 1448.0 * 8.0 / seconds / 1e6;
    assert!((payload_mbit / 9.564 - 1.0).abs() < 0.001, "{payload_mbit}");
}

#[test]
fn an_idle_link_saves_nothing_up() {
    let mut topology = topology(rated(8_000_000), 1);
    let arrived = carry(&mut topology, evenly(100, 5 * MS));
    assert!(
        arrived.iter().all(|delivery| delivery.at.ns_since(delivery.sent) == MS && delivery.queued_ns == 0)
    );
}

#[test]
fn a_full_queue_drops_its_tail() {
    let by_packets = DirectionOptions { queue: queue(10, 1 << 20), ..rated(8_000_000) };
    let by_bytes = DirectionOptions { queue: queue(1000, 10_999), ..rated(8_000_000) };
    for direction in [by_packets, by_bytes] {
        let mut topology = topology(direction, 1);
        // One is on the interface at once, ten wait, the others find no room.
        let arrived = carry(&mut topology, (0..50).map(|_| (0, 1000)));
        assert_eq!(numbers(&arrived), (0..11).collect::<Vec<u64>>());
        let stats = topology.direction_stats(A, B).expect("a wire");
        assert_eq!(stats.drops.get(DropReason::QueueFull), 39);
        assert_eq!((stats.queue.packets_most, stats.queue.bytes_most), (10, 10_000));
        assert_eq!((stats.queue.sojourns, stats.queue.sojourn_most_ns), (11, 10 * MS));
        assert_eq!(stats.queue.sojourn_mean_ns(), 5.0 * MS as f64);
        // Ten wait for the first millisecond, nine for the next, and so on.
        assert_eq!(stats.queue.packets_mean(Instant::from_nanos(11 * MS)), 5.0);
        assert!(arrived.iter().all(|delivery| delivery.queued_ns == delivery.packet.number * MS));
    }
}

fn policed(bits_per_s: u64, burst_bytes: u64) -> DirectionOptions {
    let policer = PolicerOptions { rate_bits_per_s: bits_per_s, burst_bytes };
    DirectionOptions { policer: Some(policer), ..DirectionOptions::default() }
}

#[test]
fn a_policer_passes_its_burst_and_then_its_rate_without_delay() {
    // Packets of 1000 bytes come at twice the rate of a packet each millisecond. The bucket holds ten of them.
    let mut topology = topology(policed(8_000_000, 10_000), 1);
    let arrived = carry(&mut topology, evenly(2000, MS / 2));
    assert!(arrived.iter().all(|delivery| delivery.at == delivery.sent && delivery.queued_ns == 0));
    // Nineteen pass while each takes half a token more than comes; from then on every other one does.
    assert_eq!(numbers(&arrived)[..20], [&(0..19).collect::<Vec<u64>>()[..], &[20]].concat());
    assert_eq!(arrived.len(), 19 + (2000 - 19) / 2);
    let stats = topology.direction_stats(A, B).expect("a wire");
    assert_eq!(stats.drops.get(DropReason::Policed), 2000 - arrived.len() as u64);
}

#[test]
fn a_policer_loses_no_bit_by_rounding_and_saves_no_more_than_its_burst() {
    let mut topology = topology(policed(9_999_991, 1500), 1);
    let arrived = carry(&mut topology, evenly(200_000, MS / 10));
    let seconds = 200_000.0 / 10_000.0;
    let bits = arrived.len() as f64 * 8000.0;
    assert!((bits - seconds * 9_999_991.0).abs() <= 1500.0 * 8.0 + 8000.0, "{bits}");
    // After an hour of silence the bucket is as full as it ever was.
    let mut topology = self::topology(policed(8_000_000, 10_000), 1);
    let late = (0..50).map(|_| (3600 * S, 1000));
    assert_eq!(carry(&mut topology, late).len(), 10);
}

#[test]
fn an_idle_link_takes_what_no_queue_has_room_for() {
    let direction = DirectionOptions { queue: queue(1000, 999), ..rated(8_000_000) };
    let mut idle = topology(direction.clone(), 1);
    assert_eq!(carry(&mut idle, evenly(10, 5 * MS)).len(), 10);
    let stats = idle.direction_stats(A, B).expect("a wire").queue;
    assert_eq!((stats.packets_most, stats.sojourns, stats.sojourn_most_ns), (0, 10, 0));
    // A busy one has every second packet find no room.
    assert_eq!(numbers(&carry(&mut topology(direction, 1), evenly(10, MS / 2))), [0, 2, 4, 6, 8]);
}

#[test]
fn a_rate_changes_from_the_next_packet_on() {
    let schedule = vec![
        Step { at_ns: 1500 * MS / 1000, rate: Some(Rate::BitsPerS(16_000_000)), ..Step::default() },
        Step { at_ns: 3 * MS, rate: Some(Rate::Unlimited), ..Step::default() },
    ];
    let mut topology = topology(DirectionOptions { schedule, ..rated(8_000_000) }, 1);
    let arrived = carry(&mut topology, (0..8).map(|_| (0, 1000)));
    let at_us: Vec<u64> = arrived.iter().map(|delivery| delivery.at.as_nanos() / 1000).collect();
    assert_eq!(at_us, [1000, 2000, 2500, 3000, 3000, 3000, 3000, 3000]);
}

#[test]
fn wires_share_their_hosts_links() {
    let limited = InterfaceOptions { rate: Rate::BitsPerS(8_000_000), ..InterfaceOptions::default() };
    let options = TopologyOptions {
        hosts: vec![
            HostOptions { up: limited.clone(), ..host("a") },
            host("b"),
            host("c"),
            HostOptions { down: limited, ..host("d") },
        ],
        default_wire: Some(DirectionOptions::default()),
        ..TopologyOptions::default()
    };
    // From a to b and c in turn, then from b and c to d in turn: each time one interface of 1000 bytes per millisecond.
    for pairs in [[(0, 1), (0, 2)], [(1, 3), (2, 3)]] {
        let mut topology = Topology::new(&options, &Seed::from_number(1)).expect("good options");
        for number in 0..20 {
            let (from, to) = pairs[number as usize % 2];
            let packet = Numbered { number, bytes: 1000, flipped: Vec::new() };
            let now = Instant::from_nanos(number);
            assert_eq!(topology.poll(now), None);
            topology.send(now, HostId(from), HostId(to), packet).expect("a wire");
        }
        let arrived = drain(&mut topology);
        assert_eq!(numbers(&arrived), (0..20).collect::<Vec<u64>>());
        assert!(arrived.iter().all(|delivery| delivery.at.as_nanos() == (delivery.packet.number + 1) * MS));
    }
}

#[test]
fn a_downlink_adds_to_the_wire() {
    let slow = InterfaceOptions { rate: Rate::BitsPerS(4_000_000), ..InterfaceOptions::default() };
    let options = TopologyOptions {
        hosts: vec![host("a"), HostOptions { down: slow, ..host("b") }],
        wires: vec![wire("a", "b", DirectionOptions { delay_ns: 50 * MS, ..rated(8_000_000) })],
        default_wire: None,
    };
    let mut topology = Topology::new(&options, &Seed::from_number(1)).expect("good options");
    let arrived = carry(&mut topology, (0..3).map(|_| (0, 1000)));
    let at_ms: Vec<u64> = arrived.iter().map(|delivery| delivery.at.as_nanos() / MS).collect();
    assert_eq!(at_ms, [53, 55, 57]);
}

#[test]
fn a_hosts_links_change_their_rates_too() {
    let step = |at_ms, rate| RateStep { at_ns: at_ms * MS, rate };
    let schedule = vec![step(2, Rate::BitsPerS(16_000_000)), step(3, Rate::Unlimited)];
    let up = InterfaceOptions { rate: Rate::BitsPerS(8_000_000), schedule, ..InterfaceOptions::default() };
    for (up, down) in [(up.clone(), InterfaceOptions::default()), (InterfaceOptions::default(), up)] {
        let options = TopologyOptions {
            hosts: vec![HostOptions { up, ..host("a") }, HostOptions { down, ..host("b") }],
            default_wire: Some(DirectionOptions::default()),
            ..TopologyOptions::default()
        };
        let mut topology = Topology::new(&options, &Seed::from_number(1)).expect("good options");
        let arrived = carry(&mut topology, (0..8).map(|_| (0, 1000)));
        let at_us: Vec<u64> = arrived.iter().map(|delivery| delivery.at.as_nanos() / 1000).collect();
        assert_eq!(at_us, [1000, 2000, 2500, 3000, 3000, 3000, 3000, 3000]);
    }
}

fn with_codel() -> DirectionOptions {
    let codel = Some(CodelOptions::default());
    DirectionOptions {
        queue: QueueOptions { packets_max: 10_000, bytes_max: 1 << 30, codel },
        ..rated(8_000_000)
    }
}

fn codel_drops(topology: &Topology<Numbered>) -> u64 {
    topology.direction_stats(A, B).expect("a wire").drops.get(DropReason::Codel)
}

#[test]
fn codel_lets_a_short_burst_pass() {
    // 90 packets drain in 90 ms, which is less than an interval of delay above the target.
    let mut topology = topology(with_codel(), 1);
    assert_eq!(carry(&mut topology, (0..90).map(|_| (0, 1000))).len(), 90);
    assert_eq!(codel_drops(&topology), 0);
}

#[test]
fn codel_ends_a_standing_queue_that_a_drop_tail_queue_keeps() {
    // A source at the interface's rate behind a burst of 100 packets: without drops it waits 99 ms for ever.
    let source = || (0..100).map(|_| (0, 1000)).chain((1..20_000).map(|number| (number * MS, 1000)));
    let mut kept = topology(DirectionOptions { queue: queue(10_000, 1 << 30), ..rated(8_000_000) }, 1);
    let last = carry(&mut kept, source()).pop().expect("packets");
    assert_eq!(last.queued_ns, 99 * MS);

    let mut controlled = topology(with_codel(), 1);
    let last = carry(&mut controlled, source()).pop().expect("packets");
    assert!(last.queued_ns <= 5 * MS, "{} ns", last.queued_ns);
    // It drops no more than what stood in the queue.
    assert!((90..=100).contains(&codel_drops(&controlled)), "{}", codel_drops(&controlled));
}
