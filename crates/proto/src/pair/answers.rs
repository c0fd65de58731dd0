//! How well a peer answers CREATE2.

/// Answers on flows are judged from this many on.
const JUDGED_MIN: u32 = 16;
/// At this many both counts are halved, so that the past fades.
const COUNTED_MAX: u32 = 64;

/// What became of the latest CREATE2 cells over one way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answers {
    answered: u32,
    failed: u32,
}

impl Answers {
    pub fn count(&mut self, answered: bool) {
        if answered {
            self.answered += 1;
        } else {
            self.failed += 1;
        }
        if self.total() >= COUNTED_MAX {
            self.answered /= 2;
            self.failed /= 2;
        }
    }

    /// Whether the share of failures is larger than over TLS by more than a quarter of all. Where nothing is known of
    /// TLS, it is taken to answer always.
    pub fn worse_than(&self, tls: &Answers) -> bool {
        let (total, total_tls) = (self.total(), tls.total().max(1));
        total >= JUDGED_MIN && 4 * self.failed * total_tls > 4 * tls.failed * total + total * total_tls
    }

    fn total(&self) -> u32 {
        self.answered + self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(answered: u32, failed: u32) -> Answers {
        Answers { answered, failed }
    }

    #[test]
    fn worse_is_more_than_a_quarter_and_not_by_chance() {
        let table = [
            (answers(0, 15), answers(0, 0), false),
            (answers(0, 16), answers(0, 0), true),
            (answers(12, 4), answers(0, 0), false),
            (answers(11, 5), answers(0, 0), true),
            (answers(0, 16), answers(0, 20), false),
            (answers(0, 16), answers(16, 16), true),
            (answers(8, 8), answers(16, 16), false),
        ];
        for (flows, tls, worse) in table {
            assert_eq!(flows.worse_than(&tls), worse, "{flows:?} {tls:?}");
        }
    }

    #[test]
    fn the_past_fades() {
        let mut flows = Answers::default();
        (0..1000).for_each(|_| flows.count(false));
        assert!(flows.total() < COUNTED_MAX);
        (0..64).for_each(|_| flows.count(true));
        assert!(!flows.worse_than(&answers(16, 0)), "{flows:?}");
    }
}
