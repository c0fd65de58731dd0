//! What circuits of QUIC do to a wire and to TCP beside them, beside what as many connections of TCP do in their place
//! as one pair stands for at most.

use crate::bench::{MS, S};
use crate::loads::{Load, Outcome, ceilings, ceilings_are_kept, glimpses, outcome, quic, tcp};
use heddle_netem::{CodelOptions, DirectionOptions, Loss, PolicerOptions, QueueOptions, Rate};
use heddle_proto::endpoint::CongestionParams;
use heddle_seam::rng::Seed;

const SEED: u64 = 7;

/// What becomes of what a wire cannot carry.
#[derive(Clone, Copy, Debug)]
pub enum Excess {
    /// It waits, for so many milliseconds at most.
    Waits(u64),
    Codel {
        marks: bool,
    },
    /// It is dropped at once, but for a burst of so many milliseconds.
    Policed(u64),
}

pub fn wire(mbit: u64, rtt_ms: u64, excess: Excess) -> DirectionOptions {
    let bytes = |ms: u64| mbit * 125 * ms;
    let queue = |bytes_max, codel| QueueOptions { packets_max: 10_000, bytes_max, codel };
    let plain = DirectionOptions {
        rate: Rate::BitsPerS(mbit * 1_000_000),
        delay_ns: rtt_ms * MS / 2,
        ..DirectionOptions::default()
    };
    match excess {
        Excess::Waits(ms) => DirectionOptions { queue: queue(bytes(ms), None), ..plain },
        Excess::Codel { marks } => {
            let codel = CodelOptions { ecn: marks, ..CodelOptions::default() };
            DirectionOptions { queue: queue(bytes(2 * rtt_ms), Some(codel)), ..plain }
        }
        Excess::Policed(ms) => {
            let policer = PolicerOptions { rate_bits_per_s: mbit * 1_000_000, burst_bytes: bytes(ms) };
            DirectionOptions { rate: Rate::BitsPerS(1_000_000_000), policer: Some(policer), ..plain }
        }
    }
}

/// What `ours` make of a wire with `count` connections of TCP beside them. Each begins within the first second, when
/// the seed says.
pub fn outcome_beside(
    wire: &DirectionOptions,
    ours: &[Load],
    count: usize,
    seconds: u64,
    seed: u64,
) -> Outcome {
    let mut loads = [ours, &vec![tcp(); count]].concat();
    let mut chance = Seed::from_number(seed).child("begin", 0).rng();
    loads.iter_mut().for_each(|load| load.from_ns = chance.below(S));
    outcome(wire, &loads, ours.len(), seconds, seed)
}

/// So many circuits with `count` connections of TCP beside them, and as many connections as one pair stands for in the
/// place of the circuits. All begin at once.
fn beside(wire: &DirectionOptions, circuits: u32, count: usize, seconds: u64) -> [Outcome; 2] {
    let ours = [&[quic(circuits)][..], &vec![tcp(); count]].concat();
    let tcps = circuits.min(CongestionParams::TCPS_MAX.into()) as usize;
    let theirs = [vec![tcp(); tcps], vec![tcp(); count]].concat();
    [outcome(wire, &ours, 1, seconds, SEED), outcome(wire, &theirs, tcps, seconds, SEED)]
}

/// In the mean of three seeds, because a sawtooth more or less in 30 s is a tenth of the losses.
#[test]
fn many_circuits_lose_no_more_than_eight_tcps_on_a_narrow_wire() {
    let eight = [tcp(); CongestionParams::TCPS_MAX as usize];
    for (circuits, queue_ms, count) in [(100, 100, 1), (300, 100, 1), (300, 5, 0)] {
        let there = wire(10, 100, Excess::Waits(queue_ms));
        let dropped = |ours: &[Load]| -> f64 {
            (1..=3).map(|seed| outcome_beside(&there, ours, count, 40, seed).dropped).sum::<f64>() / 3.0
        };
        let [ours, theirs] = [dropped(&[quic(circuits)]), dropped(&eight)];
        println!("{circuits} circuits, {queue_ms} ms, {count} TCP: {ours:.4} where {theirs:.4}");
        assert!(ours <= 0.05, "{circuits} circuits, {queue_ms} ms, {count} TCP: {ours}");
        assert!(ours <= theirs, "{circuits} circuits, {queue_ms} ms, {count} TCP: {ours} where {theirs}");
    }
}

/// What a wire of 10 Mbit/s and 40 ms that loses so much of everything takes of loads in each of ten seconds, in bytes.
fn taken(loads: &[Load], probability: f64, from_s: u64) -> f64 {
    let lossy =
        DirectionOptions { loss: Loss::Bernoulli { probability }, ..wire(10, 40, Excess::Waits(100)) };
    let seen = glimpses(&lossy, loads, SEED, from_s * S, S, 10);
    seen.iter().map(|seen| seen.offered_bytes as f64).sum::<f64>() / seen.len() as f64
}

/// Tolerance of losses ends where they are as many as only congestion makes (RFC 5033, section 3; RFC 8085,
/// section 3.1): with one packet lost in ten a connection with many circuits sends no more than eight TCPs do, and with
/// four in ten no more than two packets a round trip.
#[test]
fn at_high_loss_it_collapses_as_tcp_does() {
    let [ours, theirs] = [taken(&[quic(20)], 0.1, 20), taken(&[tcp(); 8], 0.1, 20)];
    println!("one in ten is lost: {ours:.0} bytes a second where eight TCPs have {theirs:.0}");
    assert!(ours <= 1.2 * theirs, "{ours} where {theirs}");
    let ours = taken(&[quic(20)], 0.4, 40);
    println!("four in ten are lost: {ours:.0} bytes a second");
    let two_a_round_trip = 2.0 * 1500.0 * 1000.0 / 40.0;
    assert!(ours <= two_a_round_trip, "{ours}");
}

/// Where no queue shows, losses and marks tell of congestion, and those of a wire do not.
#[test]
fn tcp_keeps_what_it_has_beside_tcp_where_queues_are_short() {
    let codel = [false, true].map(|marks| Excess::Codel { marks });
    for excess in codel.into_iter().chain([Excess::Waits(5), Excess::Policed(100)]) {
        let [ours, theirs] = beside(&wire(10, 100, excess), 20, 2, 40);
        assert!(ours.beside >= 0.8 * theirs.beside, "{excess:?}: {ours:?} where {theirs:?}");
        assert!(ours.dropped <= theirs.dropped, "{excess:?}: {ours:?} where {theirs:?}");
    }
}

/// A wire of 20 ms holds so little that eight TCPs lose one packet in ten of it. Fewer would do.
#[test]
fn many_circuits_are_as_few_tcps_as_a_short_wire_has_room_for() {
    for excess in [Excess::Waits(20), Excess::Codel { marks: false }] {
        let [ours, theirs] = beside(&wire(10, 20, excess), 100, 2, 20);
        assert!(ours.dropped <= 0.9 * theirs.dropped, "{excess:?}: {ours:?} where {theirs:?}");
        assert!(ours.beside >= 0.8 * theirs.beside, "{excess:?}: {ours:?} where {theirs:?}");
    }
}

/// Eight circuits beside two TCPs: as the network lowers the ceiling and lifts it again, running connections follow.
#[test]
fn the_network_says_as_how_many_tcps_a_connection_contends() {
    let loads = [quic(8), tcp(), tcp()];
    ceilings_are_kept(&ceilings(&wire(10, 40, Excess::Waits(80)), &loads, 1, 25, &[8, 1, 8]));
}
