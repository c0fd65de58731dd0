//! A token bucket that drops what exceeds a rate, without a queue (the single-rate case of RFC 2697).

use crate::options::PolicerOptions;
use heddle_seam::time::Instant;

/// Tokens are bits times 10⁹, so that no rounding adds up. The fullest bucket has 64 GiB · 8 · 10⁹, which is below 2⁷⁰.
#[derive(Debug)]
pub(crate) struct Policer {
    rate_bits_per_s: u64,
    full: u128,
    tokens: u128,
    filled_at: Instant,
}

const BIT: u128 = 1_000_000_000;

impl Policer {
    /// A bucket that is full at the origin.
    pub(crate) fn new(options: &PolicerOptions) -> Self {
        let full = u128::from(options.burst_bytes) * 8 * BIT;
        Policer { rate_bits_per_s: options.rate_bits_per_s, full, tokens: full, filled_at: Instant::ZERO }
    }

    /// Whether a packet of so many bytes passes. What does not pass costs no tokens.
    pub(crate) fn passes(&mut self, now: Instant, bytes: u64) -> bool {
        let more = u128::from(now.ns_since(self.filled_at)) * u128::from(self.rate_bits_per_s);
        self.tokens = (self.tokens + more).min(self.full);
        self.filled_at = now;
        let cost = u128::from(bytes) * 8 * BIT;
        let passes = cost <= self.tokens;
        if passes {
            self.tokens -= cost;
        }
        passes
    }
}
