//! Any bytes in, the same bytes out, whatever the wire does.

mod pair;

use heddle_netem::{Jitter, Loss, Reorder};
use heddle_utcp::{Algorithm, CloseReason, Instant, Options, State};
use pair::{MS, Pair, S, wire};
use proptest::prelude::*;

#[test]
fn a_clean_wire_carries_both_ways_and_both_ends_finish() {
    let clean = wire(20, 10_000_000, 1_000_000);
    let mut pair = Pair::new([clean.clone(), clean], [Options::default(), Options::default()], 1);
    pair.ends[0].to_write = 1_000_000;
    pair.ends[1].to_write = 300_000;
    assert!(pair.run_until(Instant::from_nanos(200 * S)), "{}", pair.describe());
    assert_eq!((pair.ends[1].read, pair.ends[0].read), (1_000_000, 300_000));
    for end in 0..2 {
        assert_eq!(pair.connection(end).state(), State::Closed);
        assert_eq!(pair.connection(end).close_reason(), Some(CloseReason::Finished));
    }
    assert_eq!(pair.pool.lent_bytes(), 0);
    assert_eq!(pair.connection(0).stats().counts.retransmissions, 0, "{}", pair.describe());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_wire_carries_the_bytes(
        seed in any::<u64>(),
        loss in prop_oneof![Just(0.0), 0.0..0.3],
        duplicate in 0.0..0.2,
        corrupt in 0.0..0.1,
        reorder in prop_oneof![Just(0.0), 0.0..0.5],
        jitter_ms in 0u64..30,
        delay_ms in 0u64..150,
        bits_per_s in prop_oneof![Just(0u64), 200_000u64..50_000_000],
        queue_bytes in 3000u64..200_000,
        bytes in (0u64..150_000, 0u64..60_000),
        sack in any::<bool>(),
        timestamps in any::<bool>(),
        ecn in any::<bool>(),
        nagle in any::<bool>(),
        pacing in any::<bool>(),
        syn_data in any::<bool>(),
        reno in any::<bool>(),
        unit_bytes in prop_oneof![Just(1u16), Just(514), Just(5000)],
        mss_bytes in 64u16..1460,
        buffer_bytes in 2048u32..100_000,
    ) {
        let mut direction = wire(delay_ms, bits_per_s, queue_bytes);
        direction.loss = if loss > 0.0 { Loss::Bernoulli { probability: loss } } else { Loss::None };
        direction.duplicate = duplicate;
        direction.corrupt = corrupt;
        direction.reorder = Some(Reorder { probability: reorder, hold_ns: jitter_ms * MS });
        direction.jitter = Jitter::Uniform { spread_ns: jitter_ms * MS };
        direction.jitter_reorders = seed % 2 == 0;
        let options = Options {
            sack,
            timestamps,
            ecn,
            nagle,
            pacing,
            syn_data,
            algorithm: if reno { Algorithm::Reno } else { Algorithm::Cubic },
            unit_bytes,
            mss_bytes,
            receive_buffer_initial_bytes: buffer_bytes,
            syn_retries_max: 15,
            retries_max: 30,
            rto_max_ns: 5 * S,
            ..Options::default()
        };
        let mut pair = Pair::new([direction.clone(), direction], [options.clone(), options], seed);
        pair.ends[0].to_write = bytes.0;
        pair.ends[1].to_write = bytes.1;
        pair.run_to_end(Instant::from_nanos(40_000 * S));
        prop_assert_eq!((pair.ends[1].read, pair.ends[0].read), bytes);
    }
}
