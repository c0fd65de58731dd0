//! One seed gives one run, and what changes in one place shifts nothing in another.

mod one_wire;

use heddle_netem::{
    Delivery, DirectionOptions, HostId, Instant, InterfaceOptions, Jitter, Loss, Rate, Reorder, Seed,
    Topology, TopologyOptions,
};
use one_wire::{A, B, MS, Numbered, carry, drain, evenly, host, options, topology, wire};

/// Something of everything.
fn rough() -> DirectionOptions {
    DirectionOptions {
        rate: Rate::BitsPerS(5_000_000),
        delay_ns: 20 * MS,
        jitter: Jitter::Normal { std_dev_ns: 2 * MS },
        loss: Loss::GilbertElliott { good_to_bad: 0.02, bad_to_good: 0.3, loss_good: 0.001, loss_bad: 0.8 },
        reorder: Some(Reorder { probability: 0.02, hold_ns: 4 * MS }),
        duplicate: 0.02,
        corrupt: 0.02,
        ..DirectionOptions::default()
    }
}

/// Three hosts, wires in both directions between all, 6000 packets.
fn triangle(options: &TopologyOptions, seed: u64) -> Vec<Delivery<Numbered>> {
    let mut topology = Topology::new(options, &Seed::from_number(seed)).expect("good options");
    let ids = ["a", "b", "c"].map(|name| topology.host(name).expect("a host"));
    let mut arrived = Vec::new();
    for number in 0..6000 {
        let now = Instant::from_nanos(number * MS / 3);
        arrived.extend(core::iter::from_fn(|| topology.poll(now)));
        let (from, to) = (ids[number as usize % 3], ids[(number as usize + 1 + number as usize / 3 % 2) % 3]);
        let packet = Numbered { number, bytes: 100 + number as usize % 900, flipped: Vec::new() };
        topology.send(now, from, to, packet).expect("a wire");
    }
    arrived.extend(drain(&mut topology));
    arrived
}

fn rough_triangle() -> TopologyOptions {
    TopologyOptions {
        hosts: ["a", "b", "c"].map(host).into(),
        wires: vec![wire("a", "b", rough()), wire("b", "c", rough()), wire("c", "a", rough())],
        default_wire: None,
    }
}

fn between(arrived: &[Delivery<Numbered>], from: HostId, to: HostId) -> Vec<Delivery<Numbered>> {
    arrived.iter().filter(|delivery| delivery.from == from && delivery.to == to).cloned().collect()
}

#[test]
fn a_seed_repeats_and_another_differs() {
    let first = triangle(&rough_triangle(), 1);
    assert_eq!(first, triangle(&rough_triangle(), 1));
    assert_ne!(first, triangle(&rough_triangle(), 2));
    assert!(first.len() > 5000);
}

#[test]
fn another_wires_options_shift_nothing() {
    let before = triangle(&rough_triangle(), 1);
    let mut changed = rough_triangle();
    changed.wires[1].there =
        DirectionOptions { loss: Loss::Bernoulli { probability: 0.5 }, ..Default::default() };
    changed.wires[2].back = Some(DirectionOptions::default());
    let after = triangle(&changed, 1);
    assert_eq!(between(&before, A, B), between(&after, A, B));
    assert_eq!(between(&before, B, A), between(&after, B, A));
    assert_ne!(between(&before, B, HostId(2)), between(&after, B, HostId(2)));
}

#[test]
fn the_order_of_the_options_does_not_matter() {
    let before = triangle(&rough_triangle(), 1);
    let mut changed = rough_triangle();
    changed.wires.reverse();
    changed.wires.truncate(1);
    changed.default_wire = Some(rough());
    changed.hosts.push(host("d"));
    let after = triangle(&changed, 1);
    for (from, to) in [(0, 1), (1, 0), (1, 2), (2, 1), (2, 0), (0, 2)] {
        let (from, to) = (HostId(from), HostId(to));
        assert_eq!(between(&before, from, to), between(&after, from, to));
    }
}

#[test]
fn one_effect_shifts_no_other() {
    let jittery =
        DirectionOptions { jitter: Jitter::Exponential { mean_ns: 3 * MS }, ..DirectionOptions::default() };
    let mut changed = rough();
    changed.rate = Rate::Unlimited;
    changed.delay_ns = 0;
    changed.jitter = jittery.jitter.clone();
    changed.reorder = None;
    let delays = |direction: DirectionOptions| {
        let arrived = carry(&mut topology(direction, 3), evenly(5000, 1000 * MS));
        let originals = arrived.into_iter().filter(|delivery| !delivery.copy);
        originals.map(|delivery| (delivery.packet.number, delivery.at)).collect::<Vec<_>>()
    };
    let (alone, among_others) = (delays(jittery), delays(changed));
    assert!(among_others.len() < alone.len());
    assert!(among_others.iter().all(|(number, at)| alone[*number as usize] == (*number, *at)));
}

#[test]
fn how_often_the_driver_polls_does_not_matter() {
    let mut options = options(rough());
    options.hosts[1].down =
        InterfaceOptions { rate: Rate::BitsPerS(4_900_000), ..InterfaceOptions::default() };
    let mut often = Topology::new(&options, &Seed::from_number(1)).expect("good options");
    let mut seldom = Topology::new(&options, &Seed::from_number(1)).expect("good options");
    let (mut from_often, mut from_seldom) = (Vec::new(), Vec::new());
    for round in 0..200 {
        let start = Instant::from_nanos(round * 15 * MS);
        // What is due in a round takes far fewer polls.
        for _ in 0..10_000 {
            let Some(time) = often.next_time().filter(|time| *time <= start) else { break };
            from_often.extend(often.poll(time));
        }
        from_seldom.extend(core::iter::from_fn(|| seldom.poll(start)));
        for number in 0..10 {
            let packet = Numbered { number: round * 10 + number, bytes: 900, flipped: Vec::new() };
            often.send(start, A, B, packet.clone()).expect("a wire");
            seldom.send(start, A, B, packet).expect("a wire");
        }
    }
    from_often.extend(drain(&mut often));
    from_seldom.extend(core::iter::from_fn(|| seldom.poll(Instant::from_nanos(u64::MAX))));
    assert_eq!(from_often, from_seldom);
    assert_eq!(often.totals(), seldom.totals());
}

#[test]
fn at_one_time_elements_act_in_their_order() {
    let flat = || DirectionOptions { delay_ns: MS, ..DirectionOptions::default() };
    let options = TopologyOptions {
        hosts: ["a", "b", "c"].map(host).into(),
        wires: vec![wire("c", "b", flat()), wire("a", "b", flat())],
        default_wire: None,
    };
    let mut topology = Topology::new(&options, &Seed::from_number(1)).expect("good options");
    for (number, from) in [(0, 0), (1, 2), (2, 0), (3, 2)] {
        let packet = Numbered { number, bytes: 1, flipped: Vec::new() };
        topology.send(Instant::ZERO, HostId(from), B, packet).expect("a wire");
    }
    // The wire from c was declared first.
    assert_eq!(one_wire::numbers(&drain(&mut topology)), [1, 3, 0, 2]);
}

#[test]
fn more_corruption_leaves_what_was_corrupted_before() {
    let flipped = |corrupt| {
        let arrived =
            carry(&mut topology(DirectionOptions { corrupt, ..Default::default() }, 1), evenly(5000, 1));
        arrived.into_iter().map(|delivery| delivery.packet.flipped).collect::<Vec<_>>()
    };
    let (few, many) = (flipped(0.1), flipped(0.2));
    assert!(few.iter().zip(&many).all(|(one, other)| one.is_empty() || one == other));
    assert!(few.iter().any(|flipped| !flipped.is_empty()));
}
