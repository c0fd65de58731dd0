//! How long something that comes while nothing else is due waits for a thread: a packet that reaches an idle wire
//! cannot tell, because nobody stamped it before. So a timer of the kernel stands beside the devices, becomes readable
//! at known times as a device does, and whichever thread looks at it first says how late that was.

use std::io;

use heddle_netem::Instant as Time;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::engine::Clock;

/// From one time to the next: 200 in a second cost a fraction of a percent of a processor.
const EVERY_NS: u64 = 5_000_000;

/// The timer, and when it comes next.
#[derive(Debug)]
pub(super) struct WakeProbe {
    next_ns: u64,
}

impl WakeProbe {
    /// A timer whose first time is one interval from now, and its descriptor.
    pub(super) fn start(clock: Clock) -> io::Result<(WakeProbe, OwnedFd)> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let next_ns = clock.now().as_nanos() + EVERY_NS;
        let times =
            Itimerspec { it_interval: timespec(EVERY_NS), it_value: timespec(clock.monotonic_ns(next_ns)) };
        timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &times)?;
        Ok((WakeProbe { next_ns }, timer))
    }

    /// How late it is for each time that has come and was not seen yet. Nothing where the other thread was first.
    pub(super) fn seen(
        &mut self,
        timer: &OwnedFd,
        now: Time,
    ) -> io::Result<impl Iterator<Item = u64> + use<>> {
        let mut count = [0; 8];
        let came = match rustix::io::read(timer, &mut count) {
            Ok(_) => u64::from_ne_bytes(count),
            Err(Errno::AGAIN) => 0,
            Err(error) => return Err(error.into()),
        };
        let first_ns = self.next_ns;
        self.next_ns += came * EVERY_NS;
        Ok((0..came).map(move |number| now.as_nanos().saturating_sub(first_ns + number * EVERY_NS)))
    }
}

fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_came_while_nobody_looked_is_told_once() {
        let clock = Clock::start();
        let (mut probe, timer) = WakeProbe::start(clock).unwrap();
        assert_eq!(probe.seen(&timer, clock.now()).unwrap().count(), 0);
        let stopped = Duration::from_millis(50);
        thread::sleep(stopped);
        let lateness: Vec<u64> = probe.seen(&timer, clock.now()).unwrap().collect();
        // The first came 5 ms after the start and waited for the rest of the time; each further one 5 ms less.
        assert!(lateness.len() >= 9 && lateness[0] >= 44_000_000, "{lateness:?}");
        assert!(lateness.windows(2).all(|pair| pair[0] == pair[1] + EVERY_NS), "{lateness:?}");
    }
}
