//! How much a peer may send on all flows of a connection beyond what was read, as kernels tune receive buffers
//! (`tcp_rcv_space_adjust` of Linux, dynamic right-sizing).
//!
//! The *base* is four times what is read in a round trip, within bounds: a sender that doubles its rate each round trip
//! is never held up, and one that is read slowly, because the operator's rate is used up, soon stops. Beside it stands
//! what flows hold that the relay does not want read: they never hold up the others.
//!
//! What connections have beyond the least is memory that all of an endpoint share. A rate that has let much pass and is
//! then used up would otherwise leave as many wide windows as there are neighbours, and honest ones fill them. Each has
//! a quarter of what the others leave, so nobody can take so much that another gets nothing:
//!
//! ```text
//!   sum of windows ≤ 256 KiB · connections + what all share + what flows hold that are not to be read
//! ```
//!
//! quinn-proto takes back no credit that it gave. It leaves a *debt* instead, which reading pays off.

use crate::connections::state::Part;
use core::sync::atomic::AtomicUsize;
use core::time::Duration;
use heddle_seam::time::Instant;
use std::sync::Arc;

/// What is read in a round trip, times this, may be on its way or wait: what is sent until the sender hears of the
/// reading, twice as it grows, and twice that while a hole is mended.
const ROUND_TRIPS: u64 = 4;
/// What may wait however little is read, where nothing else is chosen, and however much: two and a half times what
/// 1 Gbit/s brings in 100 ms.
pub(super) const BASE_MIN: u64 = 256 * 1024;
pub(super) const BASE_MAX: u64 = 32 * 1024 * 1024;
/// A round trip is taken to last so long at least, because a process may stand still so long.
const ROUND_MIN: Duration = Duration::from_millis(20);
/// Smaller changes are not worth a frame.
const CHANGE_PARTS: u64 = 8;
/// A connection has this part of what others leave of the memory that all share.
const SHARE_PARTS: usize = 4;

/// What each connection of an endpoint may have at least, what all may have beyond that together, and what they have.
#[derive(Clone, Debug)]
pub(super) struct Common {
    least: u64,
    max: usize,
    used: Arc<AtomicUsize>,
}

impl Common {
    pub(super) fn new(least: u64, max: usize) -> Self {
        Common { least, max, used: Arc::default() }
    }
}

#[derive(Debug)]
pub(super) struct ReceiveWindow {
    /// What may wait however little is read.
    least: u64,
    /// What is open beyond that, as a part of what all have.
    beyond: Part,
    beyond_max: usize,
    base: u64,
    /// What quinn-proto was last told, and by how much its credit is beyond that.
    window: u64,
    debt: u64,
    round_since: Instant,
    round_bytes: u64,
}

impl ReceiveWindow {
    pub(super) fn new(now: Instant, common: &Common) -> Self {
        ReceiveWindow {
            least: common.least,
            beyond: Part::of(&common.used),
            beyond_max: common.max,
            base: common.least,
            window: common.least,
            debt: 0,
            round_since: now,
            round_bytes: 0,
        }
    }

    /// The relay took so many bytes.
    pub(super) fn on_read(&mut self, bytes: u64) {
        self.debt = self.debt.saturating_sub(bytes);
        self.round_bytes += bytes;
        self.base = self.base.max(self.target());
    }

    fn target(&self) -> u64 {
        (ROUND_TRIPS * self.round_bytes).clamp(self.least, BASE_MAX.max(self.least))
    }

    /// What quinn-proto is to be told, if anything. Flows that are not to be read hold `aside_bytes`.
    pub(super) fn update(&mut self, now: Instant, round_trip: Duration, aside_bytes: u64) -> Option<u64> {
        if now.since(self.round_since) >= round_trip.max(ROUND_MIN) {
            self.base = self.target().max(self.base - self.base / CHANGE_PARTS);
            (self.round_since, self.round_bytes) = (now, 0);
        }
        let wanted = self.base.min(self.least + self.share()) + aside_bytes;
        let told = self.tell(wanted);
        let beyond = (self.window + self.debt).saturating_sub(self.least + aside_bytes);
        self.beyond.set(usize::try_from(beyond).unwrap_or(usize::MAX / 2));
        told
    }

    /// What it may have beyond the least.
    fn share(&self) -> u64 {
        (self.beyond_max.saturating_sub(self.beyond.others()) / SHARE_PARTS) as u64
    }

    fn tell(&mut self, wanted: u64) -> Option<u64> {
        let open = self.window + self.debt;
        if wanted > open + open / CHANGE_PARTS {
            self.window = wanted - self.debt;
        } else if wanted + wanted / CHANGE_PARTS < self.window {
            self.debt += self.window - wanted;
            self.window = wanted;
        } else {
            return None;
        }
        Some(self.window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_seam::rng::Seed;

    const ROUND: Duration = Duration::from_millis(100);

    /// What quinn-proto does with a window (`set_receive_window`, `add_read_credits`).
    struct Quinn {
        window: u64,
        debt: u64,
        credit: u64,
    }

    impl Quinn {
        fn set(&mut self, window: u64) {
            match window.checked_sub(self.window) {
                Some(more) => self.credit += more,
                None => self.debt += self.window - window,
            }
            self.window = window;
        }

        fn read(&mut self, bytes: u64) {
            self.credit += bytes.saturating_sub(self.debt);
            self.debt = self.debt.saturating_sub(bytes);
        }
    }

    fn after(rounds: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(100) * u32::try_from(rounds).expect("few rounds")
    }

    #[test]
    fn it_is_ahead_of_a_sender_that_doubles_and_shrinks_behind_a_reader_that_slows_down() {
        let mut window = ReceiveWindow::new(Instant::ZERO, &Common::new(BASE_MIN, 256 << 20));
        let mut rate = 15_000;
        for round in 0..12 {
            window.on_read(rate);
            window.update(after(round), ROUND, 0);
            rate *= 2;
            assert!(window.window + window.debt >= (2 * rate).min(BASE_MAX * 7 / 8), "round {round}");
        }
        for round in 12..60 {
            window.on_read(100_000);
            window.update(after(round), ROUND, 0);
        }
        assert!(window.window < 500_000, "{window:?}");
    }

    /// Whatever is read and set aside: what the peer may send is what is wanted, or was given before and not used.
    #[test]
    fn credit_is_what_was_wanted_at_most_however_often_flows_are_set_aside() {
        let mut rng = Seed::from_number(1).rng();
        let mut window = ReceiveWindow::new(Instant::ZERO, &Common::new(BASE_MIN, 256 << 20));
        let mut quinn = Quinn { window: BASE_MIN, debt: 0, credit: BASE_MIN };
        let (mut read, mut most) = (0, 0);
        for round in 0..100_000 {
            let aside = [0, 1 << 20][usize::from(rng.next_u64() & 1 == 0)];
            let bytes = (rng.next_u64() % 20_000).min(quinn.credit - read);
            quinn.read(bytes);
            read += bytes;
            window.on_read(bytes);
            if let Some(told) = window.update(after(round), ROUND, aside) {
                quinn.set(told);
            }
            most = most.max(window.base + (1 << 20));
            let open = quinn.credit - read;
            assert_eq!(open, window.window + window.debt);
            assert!(open <= most + most / CHANGE_PARTS && open >= BASE_MIN * 7 / 8, "{open} of {most}");
        }
    }

    /// Connections that are all read fast have no more together than what they share, and each has something of it.
    #[test]
    fn windows_of_all_connections_share_memory() {
        const SHARED: usize = 64 << 20;
        let common = Common::new(BASE_MIN, SHARED);
        let mut windows: Vec<_> = (0..50).map(|_| ReceiveWindow::new(Instant::ZERO, &common)).collect();
        for round in 0..100 {
            for window in &mut windows {
                window.on_read(BASE_MAX);
                window.update(after(round), ROUND, 0);
            }
            let beyond: u64 = windows.iter().map(|window| window.window + window.debt - BASE_MIN).sum();
            assert!(beyond <= SHARED as u64, "{beyond} in round {round}");
        }
        let least = windows.iter().map(|window| window.window).min();
        assert!(least.is_some_and(|least| least > 2 * BASE_MIN), "{least:?}");
        drop(windows.split_off(1));
        (100..200).for_each(|round| {
            windows[0].on_read(BASE_MAX);
            windows[0].update(after(round), ROUND, 0);
        });
        assert!(windows[0].window > SHARED as u64 / 5, "what others leave is given to who is left");
    }
}
