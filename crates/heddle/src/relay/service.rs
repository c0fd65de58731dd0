//! What the service manager that started the relay is told, if one did (systemd, sd_notify(3)):
//!
//! 1. `READY=1` once the ORPorts listen and all threads run, `STOPPING=1` when they are to end.
//! 2. `WATCHDOG=1`, where it wants to hear that, as long as every event loop turns. One that stands still is said once,
//!    and then nothing, so that the relay is started again.

use sd_notify::NotifyState;
use std::time::{Duration, Instant};

/// Every event loop has something to do once a second.
const STILL_AFTER: Duration = Duration::from_secs(3);
/// When one stands still it is soon looked at again: the manager may hear in time that it goes on.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The manager, as far as it wants to hear something.
pub struct Service {
    watchdog: Option<Watchdog>,
}

/// It wants to hear now and then that the relay is well.
struct Watchdog {
    every: Duration,
    due: Instant,
    /// How often each event loop had turned, and when that was first seen.
    loops: Vec<(u64, Instant)>,
    is_told: bool,
}

impl Service {
    /// As the environment has it.
    pub fn new(now: Instant) -> Self {
        // Twice in the time that it waits.
        let every = sd_notify::watchdog_enabled().map(|within| within / 2);
        Service { watchdog: every.map(|every| Watchdog::new(now, every)) }
    }

    pub fn ready(&self) {
        tell(&NotifyState::Ready);
    }

    pub fn stopping(&self) {
        tell(&NotifyState::Stopping);
    }

    /// When it is to be told that the relay is well.
    pub fn due(&self) -> Option<Instant> {
        self.watchdog.as_ref().map(|watchdog| watchdog.due)
    }

    /// Tells it so, if that is due and so. `turns` says how often each event loop has turned.
    pub fn look(&mut self, now: Instant, turns: impl FnOnce() -> Vec<u64>) {
        let Some(watchdog) = self.watchdog.as_mut().filter(|watchdog| watchdog.due <= now) else { return };
        if watchdog.is_well(now, &turns()) {
            tell(&NotifyState::Watchdog);
        }
    }
}

fn tell(state: &NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(core::slice::from_ref(state)) {
        log::warn!("The service manager cannot be told {state}: {error}");
    }
}

impl Watchdog {
    fn new(now: Instant, every: Duration) -> Self {
        Watchdog { every, due: now, loops: Vec::new(), is_told: false }
    }

    /// Whether no event loop stands still, of which the last is the control plane's.
    fn is_well(&mut self, now: Instant, turns: &[u64]) -> bool {
        self.loops.resize(turns.len(), (0, now));
        for (seen, turned) in self.loops.iter_mut().zip(turns) {
            if seen.0 != *turned {
                *seen = (*turned, now);
            }
        }
        let still = self.loops.iter().position(|(_, since)| now.duration_since(*since) > STILL_AFTER);
        if let Some(number) = still.filter(|_| !self.is_told) {
            let what = match number + 1 == turns.len() {
                true => "The control plane".to_owned(),
                false => format!("Shard {number}"),
            };
            log::error!("{what} stands still, and the service manager is not told any more that all is well");
        }
        self.is_told = still.is_some();
        self.due = now + if self.is_told { self.every.min(LOOK_AGAIN) } else { self.every };
        still.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_well_while_every_loop_turns() {
        let begun = Instant::now();
        let mut watchdog = Watchdog::new(begun, Duration::from_secs(30));
        let at = |s: u64| begun + Duration::from_secs(s);
        assert!(watchdog.is_well(at(0), &[0, 0, 0]), "they have only begun");
        assert_eq!(watchdog.due, at(30));
        assert!(watchdog.is_well(at(30), &[30, 9, 31]));
        assert!(!watchdog.is_well(at(60), &[60, 9, 61]));
        assert_eq!(watchdog.due, at(61));
        assert!(watchdog.is_well(at(61), &[61, 10, 62]), "it goes on");
        assert!(!watchdog.is_well(at(91), &[91, 11, 62]));
    }

    #[test]
    fn a_loop_has_time_to_turn_however_often_it_is_looked_at() {
        let begun = Instant::now();
        let mut watchdog = Watchdog::new(begun, Duration::from_millis(100));
        let at = |ms: u64| begun + Duration::from_millis(ms);
        assert!((0..=30).all(|tenth| watchdog.is_well(at(100 * tenth), &[7])));
        assert!(!watchdog.is_well(at(3100), &[7]));
    }
}
