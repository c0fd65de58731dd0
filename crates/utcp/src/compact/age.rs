//! How old the oldest of a flow's bytes is, in one direction.
//!
//! Bytes go in order, but which came when is not followed one by one. There is a *mark* instead: once everything below
//! the end that the bytes had when the mark was set is gone, what is left came no sooner than that. So whoever lets one
//! byte go now and then makes the others no younger.

use crate::time::Instant;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Age {
    /// The oldest came no sooner; `None` where there are no bytes.
    pub since: Option<Instant>,
    mark_end: u64,
    mark_at: Instant,
}

impl Age {
    /// Everything below `gone` is gone by now, and all that there is lies below `end`.
    pub fn update(&mut self, now: Instant, gone: u64, end: u64) {
        if gone >= end {
            self.since = None;
            return;
        }
        if self.since.is_some() && gone < self.mark_end {
            return;
        }
        self.since = Some(if self.since.is_some() { self.mark_at } else { now });
        (self.mark_end, self.mark_at) = (end, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_no_younger_than_they_are() {
        let at = Instant::from_nanos;
        let mut age = Age::default();
        age.update(at(1), 0, 0);
        assert_eq!(age.since, None);
        for gone in 0..10 {
            age.update(at(2 + gone), gone, 10);
            assert_eq!(age.since, Some(at(2)), "{gone} are gone");
        }
        age.update(at(20), 9, 30);
        age.update(at(21), 10, 30);
        assert_eq!(age.since, Some(at(2)), "they came later, which is not known");
        age.update(at(22), 29, 31);
        age.update(at(23), 30, 31);
        assert_eq!(age.since, Some(at(21)));
        age.update(at(24), 31, 31);
        assert_eq!(age.since, None);
    }
}
