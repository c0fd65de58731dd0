//! When a path that was suspect carries new circuits again.

use heddle_seam::time::{Duration, Instant};

/// How long a path must have answered at first, and at most. A flood lets one datagram in ten pass, or in a thousand,
/// and each of them ends the suspicion: a circuit that is begun then waits for minutes.
const FIRST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(300);
/// A path that was suspect earlier than this may stumble as if for the first time.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// One path's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probation {
    /// How long the path has to answer now; doubled whenever it is suspect again.
    wait: Duration,
    /// When its latest probation ends, or ended.
    until: Instant,
}

impl Probation {
    pub fn new() -> Self {
        Probation { wait: Duration::ZERO, until: Instant::ZERO }
    }

    /// The path has become suspect, or answers again.
    pub fn on_change(&mut self, now: Instant, suspect: bool) {
        if suspect {
            let is_forgotten = self.wait.is_zero() || now.since(self.until) >= FORGOTTEN;
            self.wait = if is_forgotten { FIRST } else { (2 * self.wait).min(LONGEST) };
            self.until = now;
        } else {
            self.until = now + self.wait;
        }
    }

    /// From when on it is used, while it answers.
    pub fn until(&self) -> Instant {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_stumbles_again_and_again_has_to_answer_for_longer() {
        let mut probation = Probation::new();
        let mut now = Instant::ZERO + Duration::from_secs(1000);
        assert!(probation.until() <= now, "nothing is held against a new path");
        let mut stumble = |good: Duration| {
            now += good;
            probation.on_change(now, true);
            now += Duration::from_secs(10);
            probation.on_change(now, false);
            probation.until().since(now).as_secs()
        };
        let mut waits = [0; 9];
        waits.fill_with(|| stumble(Duration::from_secs(20)));
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        assert_eq!(stumble(LONGEST + FORGOTTEN), 5);
    }
}
