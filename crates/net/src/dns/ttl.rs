//! How long a name's answer lives: what clients are told, and how long we keep it.
//!
//! The server's own time to live would name the site, and the end of an entry would tell to the second when somebody
//! asked first. So, as by stock Tor:
//!
//! 1. Times are clipped to one of two values ("The Effect of DNS on Tor's Anonymity", Greschbach et al., NDSS 2017).
//! 2. Up to four minutes are added or taken off, at random, once, when the answer comes.
//!
//! Stock Tor tells the very time for which it keeps an answer. Here both are drawn apart, or else whoever is told one
//! and sees the entry end knows when it began.

use heddle_seam::rng::Rng;

const LOW_S: u32 = 5 * 60;
const HIGH_S: u32 = 60 * 60;
const FUZZ_S: u32 = 4 * 60;

/// The time to live that stands for the server's `ttl_s`.
pub(super) fn fuzzy_s(ttl_s: u32, rng: &mut Rng) -> u32 {
    let clipped_s = if ttl_s < LOW_S { LOW_S } else { HIGH_S };
    let range_s = u64::from(2 * FUZZ_S + 1);
    // Below 481, so it fits.
    clipped_s - FUZZ_S + rng.below(range_s) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_seam::rng::Seed;
    use std::collections::BTreeMap;

    #[test]
    fn each_time_is_as_likely_as_another_around_one_of_two() {
        const DRAWS: u32 = 100_000;
        let mut rng = Seed::from_number(1).rng();
        for (ttl_s, middle_s) in
            [(0, 300), (60, 300), (299, 300), (300, 3600), (3600, 3600), (86_400, 3600), (u32::MAX, 3600)]
        {
            let mut seen: BTreeMap<u32, u32> = BTreeMap::new();
            (0..DRAWS).for_each(|_| *seen.entry(fuzzy_s(ttl_s, &mut rng)).or_default() += 1);
            assert_eq!(seen.len(), 481, "{ttl_s}");
            assert_eq!(seen.first_key_value().map(|(s, _)| *s), Some(middle_s - 240));
            assert_eq!(seen.last_key_value().map(|(s, _)| *s), Some(middle_s + 240));
            // Chi-square with 480 degrees of freedom: its mean is 480, its standard deviation 31.
            let expected = f64::from(DRAWS) / 481.0;
            let chi: f64 = seen.values().map(|n| (f64::from(*n) - expected).powi(2) / expected).sum();
            assert!((330.0..630.0).contains(&chi), "{ttl_s}: {chi}");
        }
    }
}
