//! Whatever the options: no packet appears or vanishes uncounted, no bound is passed, and time never runs backwards.

mod one_wire;

use heddle_netem::{
    CodelOptions, DirectionOptions, Flap, HostId, HostOptions, Instant, InterfaceOptions, Jitter, Loss,
    PolicerOptions, QueueOptions, Rate, RateStep, Reorder, Seed, Step, Topology, TopologyOptions,
};
use one_wire::{MS, Numbered, host, wire};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn rates() -> impl Strategy<Value = Rate> {
    prop_oneof![Just(Rate::Unlimited), (1_000u64..100_000_000).prop_map(Rate::BitsPerS)]
}

fn interfaces() -> impl Strategy<Value = InterfaceOptions> {
    let codel = prop::option::of((1u64..10, 0u64..100, any::<bool>()).prop_map(|(target, more, ecn)| {
        CodelOptions { target_ns: target * MS, interval_ns: (target + more) * MS, ecn }
    }));
    let queue = (1u64..30, 1u64..30_000, codel).prop_map(|(packets_max, bytes_max, codel)| QueueOptions {
        packets_max,
        bytes_max,
        codel,
    });
    let step = (0..50 * MS, rates()).prop_map(|(at_ns, rate)| RateStep { at_ns, rate });
    (rates(), 0u64..50, queue, vec(step, 0..4)).prop_map(|(rate, framing_bytes, queue, mut schedule)| {
        schedule.sort_by_key(|step| step.at_ns);
        InterfaceOptions { rate, framing_bytes, queue, schedule }
    })
}

fn jitters() -> impl Strategy<Value = Jitter> {
    prop_oneof![
        Just(Jitter::None),
        (0..10 * MS).prop_map(|mean_ns| Jitter::Exponential { mean_ns }),
        (0..10 * MS).prop_map(|std_dev_ns| Jitter::Normal { std_dev_ns }),
        (0..10 * MS).prop_map(|spread_ns| Jitter::Uniform { spread_ns }),
        vec(-5_000_000i64..5_000_000, 1..20).prop_map(|offsets| Jitter::Table { offsets_ns: offsets.into() }),
    ]
}

fn losses() -> impl Strategy<Value = Loss> {
    let chance = || 0.0f64..=1.0;
    prop_oneof![
        Just(Loss::None),
        chance().prop_map(|probability| Loss::Bernoulli { probability }),
        (chance(), chance(), chance(), chance()).prop_map(
            |(good_to_bad, bad_to_good, loss_good, loss_bad)| {
                Loss::GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad }
            }
        ),
        (1u64..20).prop_map(|n| Loss::EveryNth { n }),
        prop::collection::btree_set(1u64..300, 0..20)
            .prop_map(|packets| Loss::Listed { packets: packets.into_iter().collect() }),
    ]
}

fn reorders() -> impl Strategy<Value = Option<Reorder>> {
    prop::option::of(
        (0.0..=1.0f64, 0..20 * MS).prop_map(|(probability, hold_ns)| Reorder { probability, hold_ns }),
    )
}

fn steps() -> impl Strategy<Value = Step> {
    let first = (
        0..200 * MS,
        prop::option::of(rates()),
        prop::option::of(1u64..2000),
        prop::option::of(0..20 * MS),
        prop::option::of(jitters()),
    );
    let second = (
        prop::option::of(losses()),
        reorders(),
        prop::option::of(0.0..=1.0f64),
        prop::option::of(0.0..=1.0f64),
        any::<bool>(),
    );
    (first, second).prop_map(
        |((at_ns, rate, mtu_bytes, delay_ns, jitter), (loss, reorder, duplicate, corrupt, down))| Step {
            at_ns,
            rate,
            mtu_bytes,
            delay_ns,
            jitter,
            loss,
            reorder,
            duplicate,
            corrupt,
            down: Some(down),
        },
    )
}

fn directions() -> impl Strategy<Value = DirectionOptions> {
    let flaps =
        prop::option::of((0..100 * MS, 1..50 * MS, 1..50 * MS).prop_map(|(first_ns, down_ns, up_ns)| Flap {
            first_ns,
            down_ns,
            up_ns,
        }));
    let policers = prop::option::of(
        (1_000u64..10_000_000, 1u64..20_000)
            .prop_map(|(rate_bits_per_s, burst_bytes)| PolicerOptions { rate_bits_per_s, burst_bytes }),
    );
    let path = (interfaces(), policers, 500u64..2000, 0..20 * MS, jitters(), any::<bool>(), losses());
    let chance = (reorders(), 0.0..=0.3f64, 0.0..=0.3f64);
    let rest = (flaps, vec(steps(), 0..5), 1u64..100, 1u64..100_000);
    (path, chance, rest).prop_map(
        |(path, (reorder, duplicate, corrupt), (flap, mut schedule, packets, bytes))| {
            let (interface, policer, mtu_bytes, delay_ns, jitter, jitter_reorders, loss) = path;
            schedule.sort_by_key(|step| step.at_ns);
            DirectionOptions {
                rate: interface.rate,
                framing_bytes: interface.framing_bytes,
                queue: interface.queue,
                policer,
                mtu_bytes,
                delay_ns,
                jitter,
                jitter_reorders,
                loss,
                reorder,
                duplicate,
                corrupt,
                down: false,
                flap,
                schedule,
                in_flight_packets_max: packets,
                in_flight_bytes_max: bytes,
            }
        },
    )
}

/// Two or three hosts with interfaces, wires from a to b and perhaps among all.
fn topologies() -> impl Strategy<Value = TopologyOptions> {
    let hosts = vec((interfaces(), interfaces()), 2..4);
    (hosts, directions(), prop::option::of(directions()), prop::option::of(directions())).prop_map(
        |(hosts, there, back, default_wire)| {
            let named = hosts.into_iter().zip(["a", "b", "c"]);
            TopologyOptions {
                hosts: named.map(|((up, down), name)| HostOptions { up, down, ..host(name) }).collect(),
                wires: vec![heddle_netem::WireOptions { back, ..wire("a", "b", there) }],
                default_wire,
            }
        },
    )
}

fn check(topology: &Topology<Numbered>, options: &TopologyOptions) {
    let totals = topology.totals();
    assert_eq!(totals.sent + totals.duplicated, totals.delivered + totals.drops.total() + totals.inside);
    for (host, options) in (0..).map(HostId).zip(&options.hosts) {
        let (up, down) =
            (topology.up_stats(host).expect("a host"), topology.down_stats(host).expect("a host"));
        for (stats, options) in [(up, &options.up), (down, &options.down)] {
            let inside = stats.packets_in - stats.packets_out - stats.drops.total();
            // What waits, and perhaps one packet that is being put on the interface.
            assert!(inside == stats.queue.packets || inside == stats.queue.packets + 1);
            assert!(stats.queue.packets_most <= options.queue.packets_max);
            assert!(stats.queue.bytes_most <= options.queue.bytes_max);
        }
    }
    for (from, to) in topology.directions() {
        let stats = topology.direction_stats(from, to).expect("a direction");
        let is_declared = from.0 + to.0 == 1;
        let wire = options.wires.first().filter(|_| is_declared);
        let wire = wire
            .map(|wire| if from.0 == 0 { &wire.there } else { wire.back.as_ref().unwrap_or(&wire.there) });
        let options = wire.or(options.default_wire.as_ref()).expect("options of the direction");
        let inside = stats.packets_in + stats.duplicated - stats.packets_out - stats.drops.total();
        let counted = stats.queue.packets + stats.in_flight_packets;
        assert!(inside == counted || inside == counted + 1);
        assert!(stats.in_flight_packets <= options.in_flight_packets_max);
        assert!(stats.in_flight_bytes <= options.in_flight_bytes_max);
        assert!(stats.queue.packets_most <= options.queue.packets_max);
        assert!(stats.queue.bytes_most <= options.queue.bytes_max);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_packet_is_accounted_for(
        options in topologies(),
        seed in any::<u64>(),
        sends in vec((0..3 * MS, 0u32..3, 0u32..3, 1usize..1600), 1..300),
    ) {
        let mut topology = Topology::new(&options, &Seed::from_number(seed)).expect("good options");
        let (mut now, mut last, mut delivered) = (Instant::ZERO, Instant::ZERO, BTreeMap::<u64, u32>::new());
        let mut on_delivery = |delivery: heddle_netem::Delivery<Numbered>, now: Instant| {
            assert!(last <= delivery.at && delivery.sent <= delivery.at && delivery.at <= now);
            assert_eq!(delivery.corrupted, !delivery.packet.flipped.is_empty());
            last = delivery.at;
            *delivered.entry(delivery.packet.number).or_default() += 1;
        };
        let mut sent = Vec::new();
        topology.log_drops(10_000);
        for (number, (gap_ns, from, to, bytes)) in (0..).zip(sends) {
            now = now.plus_ns(gap_ns);
            while let Some(delivery) = topology.poll(now) {
                on_delivery(delivery, now);
            }
            assert!(topology.next_time().is_none_or(|next| next > now));
            let packet = Numbered { number, bytes, flipped: Vec::new() };
            if topology.send(now, HostId(from), HostId(to), packet).is_ok() {
                sent.push(number);
            }
            check(&topology, &options);
        }
        let end = Instant::from_nanos(u64::MAX);
        while let Some(delivery) = topology.poll(end) {
            on_delivery(delivery, end);
        }
        check(&topology, &options);
        let totals = topology.totals();
        assert_eq!((totals.sent, totals.inside), (sent.len() as u64, 0));
        // Whatever did not arrive is in the log, with the reason that it was counted under.
        let dropped = topology.take_drops();
        assert!(dropped.is_sorted_by_key(|dropped| dropped.at) && topology.drops_missed() == 0);
        for reason in heddle_netem::DropReason::ALL {
            let logged = dropped.iter().filter(|dropped| dropped.reason == reason).count();
            assert_eq!(logged as u64, totals.drops.get(reason));
        }
        let was_dropped = |number| dropped.iter().any(|dropped| dropped.packet.number == number);
        assert!(sent.into_iter().all(|number| delivered.contains_key(&number) || was_dropped(number)));
        assert_eq!(totals.delivered, delivered.values().map(|times| u64::from(*times)).sum::<u64>());
        assert!(delivered.values().all(|times| *times <= 2));
        assert_eq!(topology.next_time(), None);
    }

    #[test]
    fn without_leave_nothing_is_reordered(
        mut options in topologies(),
        seed in any::<u64>(),
        gaps_ns in vec(0..3 * MS, 1..300),
    ) {
        for direction in [Some(&mut options.wires[0].there), options.default_wire.as_mut()].into_iter().flatten() {
            direction.jitter_reorders = false;
            direction.reorder = None;
            direction.schedule.iter_mut().for_each(|step| step.reorder = None);
        }
        let mut topology = Topology::new(&options, &Seed::from_number(seed)).expect("good options");
        let sends = gaps_ns.into_iter().scan(0, |at_ns, gap_ns| {
            *at_ns += gap_ns;
            Some((*at_ns, 700))
        });
        let arrived = one_wire::carry(&mut topology, sends);
        prop_assert!(one_wire::numbers(&arrived).is_sorted());
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,30}") {
        use heddle_netem::units;
        let _ = units::duration_ns(&text);
        let _ = units::signed_duration_ns(&text);
        let _ = units::rate_bits_per_s(&text);
        let _ = units::size_bytes(&text);
        let _ = units::probability(&text);
    }

    #[test]
    fn numbers_are_read_back(ms in 0u64..1_000_000, us in 0u64..1000) {
        let text = format!("{ms}.{us:03} ms");
        prop_assert_eq!(heddle_netem::units::duration_ns(&text), Ok(ms * MS + us * 1000));
    }
}
