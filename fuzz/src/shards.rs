//! A whole relay of one to five shards, around which the bytes decide what everybody does.

// The tests of the relay use more of these than the target does.
#[allow(dead_code)]
#[path = "../../crates/relay/tests/relay/bench.rs"]
mod bench;
#[allow(dead_code)]
#[path = "../../crates/relay/tests/relay/client.rs"]
mod client;
#[allow(dead_code)]
#[path = "../../crates/relay/tests/relay/peer.rs"]
mod peer;
#[allow(dead_code)]
#[path = "../../crates/relay/tests/relay/pipe.rs"]
mod pipe;
#[path = "../../crates/relay/tests/relay/plain.rs"]
mod plain;
#[allow(dead_code)]
#[path = "../../crates/relay/tests/relay/world.rs"]
mod world;

/// Steps of one input, which bounds its time.
const STEPS_MAX: usize = 300;

pub fn run(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    world::run(world::Choices::Bytes(rest), 1 + u16::from(first % 5), STEPS_MAX);
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut draws = 0x9E37_79B9_u64;
    let mut byte = || {
        draws = draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (draws >> 56) as u8
    };
    (0..6).map(|shards| (0..1500).map(|at| if at == 0 { shards } else { byte() }).collect()).collect()
}
