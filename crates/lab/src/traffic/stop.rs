//! How one thread ends what another one runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::machine::interrupt;

/// How long a wait sleeps before it looks around.
const SLICE: Duration = Duration::from_millis(50);

/// Asks a traffic program to end soon and to report what it has. Copies share one wish.
///
/// What goes on over a stream or with a SOCKS port notices within a fifth of a second; only a direct
/// connection to a host that does not answer ends no sooner than its time-out.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks for the end.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Asks for the end at the latest when what this returns is dropped, be it by a panic: a scope would wait for
    /// threads that nobody asked.
    pub(super) fn ask_at_end(&self) -> AskAtEnd<'_> {
        AskAtEnd(self)
    }

    /// Whether somebody asked for the end, here or with Ctrl-C.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed) || interrupt::check().is_err()
    }

    /// Sleeps until then, and says whether it could: `false` when somebody asked for the end.
    pub fn sleep_until(&self, then: Instant) -> bool {
        while !self.is_asked() {
            let left = then.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            thread::sleep(left.min(SLICE));
        }
        false
    }
}

/// Asks for the end when it is dropped.
pub(super) struct AskAtEnd<'a>(&'a Stop);

impl Drop for AskAtEnd<'_> {
    fn drop(&mut self) {
        self.0.ask();
    }
}
