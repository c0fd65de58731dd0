//! Buckets for times of any length: sixteen for each doubling, so that a bucket's bound is at most a sixteenth too
//! high.

/// Buckets per doubling.
pub const PER_OCTAVE: u64 = 16;
/// How many buckets there are for all that fits into 64 bits.
pub const ALL: usize = 61 * PER_OCTAVE as usize;

/// The bucket of a time. Below 16 ns each number has a bucket; above, its highest five bits choose one.
pub fn bucket(ns: u64) -> usize {
    if ns < PER_OCTAVE {
        return ns as usize;
    }
    let shift = u64::from(ns.ilog2()) - 4;
    (shift * PER_OCTAVE + (ns >> shift)) as usize
}

/// The longest time of a bucket.
pub fn upper_bound_ns(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * PER_OCTAVE {
        return bucket;
    }
    let shift = bucket / PER_OCTAVE - 1;
    let start = (bucket % PER_OCTAVE + PER_OCTAVE) << shift;
    start + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_under_the_bound_of_its_bucket_and_above_the_one_before() {
        let edges = (0..64).flat_map(|power| [(1u64 << power) - 1, 1 << power, (1 << power) + 1]);
        for ns in edges.chain([3, 17, 31, 32, 33, 1000, 123_456_789, u64::MAX]) {
            let number = bucket(ns);
            assert!(number < ALL && ns <= upper_bound_ns(number), "{ns}");
            assert!(number == 0 || ns > upper_bound_ns(number - 1), "{ns}");
        }
    }
}
