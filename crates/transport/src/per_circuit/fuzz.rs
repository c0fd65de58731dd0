//! Body of a fuzz target: arbitrary bytes in, and a panic when a promise is broken.

use super::PerCircuitEndpoint;
use crate::fuzz_endpoint;
use crate::quic::{QuicEndpoint, QuicOptions};
use heddle_proto::endpoint::Endpoint;
use heddle_proto::rng::Seed;
use std::time::Instant;
use zeroize::Zeroizing;

/// Two endpoints, and a script of what their relays and the wire do; as for [`crate::quic::fuzz::flows`].
pub fn flows(anchor: Instant, script: &[u8]) -> usize {
    fuzz_endpoint::flows([endpoint(anchor, 1), endpoint(anchor, 2)], script)
}

fn endpoint(anchor: Instant, number: u8) -> Box<dyn Endpoint> {
    let seed = Seed::from_number(u64::from(number));
    let quic = QuicEndpoint::new(QuicOptions::new(anchor), &Zeroizing::new([number; 32]), &seed);
    Box::new(PerCircuitEndpoint::new(quic.expect("the defaults are good")))
}
