//! How often a peer may have something done.

use crate::time::{Instant, S};

/// So often at once, and so often in each second.
#[derive(Clone, Debug)]
pub struct Allowance {
    at_once: u64,
    ns_each: u64,
    left: u64,
    /// What time is reckoned into that.
    reckoned_to: Instant,
}

impl Allowance {
    /// A full one. `per_s` must not be zero, nor above a billion.
    pub const fn new(at_once: u64, per_s: u64) -> Self {
        Allowance { at_once, ns_each: S / per_s, left: at_once, reckoned_to: Instant::ZERO }
    }

    /// Takes so much of it, or nothing when there is not as much.
    pub fn take(&mut self, now: Instant, count: u64) -> bool {
        let gained = now.ns_since(self.reckoned_to) / self.ns_each;
        self.reckoned_to = self.reckoned_to.plus_ns(gained * self.ns_each);
        self.left = (self.left + gained).min(self.at_once);
        let is_enough = count <= self.left;
        if is_enough {
            self.left -= count;
        }
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_much_is_there_at_once_and_in_a_second() {
        let mut allowance = Allowance::new(1000, 300);
        let mut taken = |now_s: u64, count: u64| {
            let now = Instant::from_nanos(now_s * S);
            (0..2000).filter(|_| allowance.take(now, count)).count()
        };
        assert_eq!([taken(9, 1), taken(9, 1)], [1000, 0]);
        assert_eq!([taken(10, 1), taken(12, 100)], [300, 6]);
        assert_eq!(taken(100, 1), 1000, "and no more, however long nothing was taken");
        assert_eq!([taken(101, 301), taken(101, 300), taken(101, 0)], [0, 1, 2000]);
    }

    #[test]
    fn parts_of_one_are_not_lost() {
        let mut allowance = Allowance::new(5, 3);
        let taken = (0..10_000).filter(|ms| allowance.take(Instant::from_nanos(ms * S / 1000), 1)).count();
        assert_eq!(taken, 5 + 29);
    }
}
