//! Bodies of fuzz targets: arbitrary bytes in, and a panic when a promise is broken.

use super::{DtlsEndpoint, DtlsOptions};
use crate::fuzz_endpoint;
use heddle_proto::endpoint::Endpoint;
use heddle_proto::rng::Seed;
use std::time::Instant;
use zeroize::Zeroizing;

/// A listener to whom somebody at the peer's address sends these bytes, cut into datagrams by their own first bytes.
/// Nothing is answered, unless he has overheard the token.
pub fn stranger_datagrams(anchor: Instant, bytes: &[u8]) {
    let token = [0xaa; 20];
    let has_token = bytes.windows(token.len()).any(|window| window == token);
    fuzz_endpoint::stranger_datagrams(endpoint(anchor, 1), bytes, has_token);
}

/// Two endpoints, and a script of what their relays and the wire do: cells of any command on any circuit, holds, ends,
/// datagrams that are lost, doubled or bent, and time that passes.
///
/// Whatever happens, what a circuit delivers was sent on it, in that order and without a gap. Returns how many cells were
/// delivered.
pub fn flows(anchor: Instant, script: &[u8]) -> usize {
    fuzz_endpoint::flows([endpoint(anchor, 1), endpoint(anchor, 2)], script)
}

fn endpoint(anchor: Instant, number: u8) -> Box<dyn Endpoint> {
    let seed = Seed::from_number(u64::from(number));
    let endpoint = DtlsEndpoint::new(DtlsOptions::new(anchor), &Zeroizing::new([number; 32]), &seed);
    Box::new(endpoint.expect("the defaults are good"))
}
