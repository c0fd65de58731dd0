//! The dynamic window of DefenestraTor (AlSabah and others, PETS 2011, section 4.1): additive increase, multiplicative
//! decrease, by what SENDMEs tell of the round trip.
//!
//! 1. The window begins with 100 cells, which is what one SENDME acknowledges.
//! 2. Each SENDME measures the round trip of the cell that it answers; the smallest and the largest so far are kept.
//! 3. Up to the threshold `T = (1 − α) × smallest + α × largest`, with α = 0.25, the window grows by 100 cells; above
//!    it, it is halved (equations 1 and 2).
//! 4. It stays from 100 to 1000 cells, so that no client gets more than the fixed window allows.
//!
//! The paper says that the smallest and the largest should be forgotten slowly on circuits that live long, and neither
//! how nor that its experiments did so; here they are not forgotten.

use super::fixed::{CIRCUIT_INCREMENT_CELLS, CIRCUIT_WINDOW_CELLS};
use super::{FlowControl, SendmeContext, Snapshot, StreamControl, Violation, every};
use heddle_seam::time::{Duration, Instant};
use std::collections::VecDeque;

/// Of how many parts of the threshold one is the largest round trip, and the others are the smallest: α = 1/4.
const ALPHA_PARTS: u128 = 4;

/// The dynamic window of one end of a circuit.
///
/// Whatever the window is, at least 100 cells are in flight when it is closed; so a SENDME is under way, which opens
/// it.
#[derive(Clone, Debug)]
pub struct Dynamic {
    window_cells: u32,
    /// At most the largest window, also after the window has shrunk.
    inflight_cells: u32,
    until_answered_cells: u32,
    until_sendme_cells: u32,
    /// When those cells were sent that SENDMEs will answer, the oldest first; at most [`PENDING_MAX`].
    sent: VecDeque<Instant>,
    /// The smallest and the largest round trip.
    rtts: Option<(Duration, Duration)>,
}

/// SENDMEs that can be outstanding at once.
const PENDING_MAX: usize = (CIRCUIT_WINDOW_CELLS as u32 / CIRCUIT_INCREMENT_CELLS) as usize;

impl Default for Dynamic {
    fn default() -> Self {
        Dynamic {
            window_cells: CIRCUIT_INCREMENT_CELLS,
            inflight_cells: 0,
            until_answered_cells: CIRCUIT_INCREMENT_CELLS,
            until_sendme_cells: CIRCUIT_INCREMENT_CELLS,
            sent: VecDeque::new(),
            rtts: None,
        }
    }
}

impl Dynamic {
    fn on_rtt(&mut self, rtt: Duration) {
        let (least, most) = self.rtts.map_or((rtt, rtt), |(least, most)| (least.min(rtt), most.max(rtt)));
        self.rtts = Some((least, most));
        // Whole nanoseconds times the parts, so that the comparison is exact.
        let threshold = (ALPHA_PARTS - 1) * least.as_nanos() + most.as_nanos();
        let window_cells = match ALPHA_PARTS * rtt.as_nanos() <= threshold {
            true => self.window_cells + CIRCUIT_INCREMENT_CELLS,
            false => self.window_cells / 2,
        };
        self.window_cells = window_cells.clamp(CIRCUIT_INCREMENT_CELLS, CIRCUIT_WINDOW_CELLS.into());
    }
}

impl FlowControl for Dynamic {
    fn room(&self) -> u32 {
        self.window_cells.saturating_sub(self.inflight_cells)
    }

    fn on_sent(&mut self, now: Instant) -> bool {
        self.inflight_cells = self.inflight_cells.saturating_add(1);
        let answered = every(&mut self.until_answered_cells, CIRCUIT_INCREMENT_CELLS);
        if answered && self.sent.len() < PENDING_MAX {
            self.sent.push_back(now);
        }
        answered
    }

    fn on_sendme(&mut self, now: Instant, _input: SendmeContext) -> Result<(), Violation> {
        let left = self.inflight_cells.checked_sub(CIRCUIT_INCREMENT_CELLS);
        let (Some(left), Some(sent)) = (left, self.sent.pop_front()) else {
            return Err(Violation::UnexpectedSendme);
        };
        self.inflight_cells = left;
        self.on_rtt(now.since(sent));
        Ok(())
    }

    fn on_received(&mut self) -> bool {
        every(&mut self.until_sendme_cells, CIRCUIT_INCREMENT_CELLS)
    }

    fn pending_max(&self) -> usize {
        PENDING_MAX
    }

    fn stream_control(&self) -> StreamControl {
        StreamControl::Windows
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            window_cells: self.window_cells,
            inflight_cells: self.inflight_cells,
            sendme_cells: CIRCUIT_INCREMENT_CELLS,
            rtt_min: self.rtts.map(|(least, _)| least),
            ..Snapshot::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_seam::rng::Seed;

    fn at_ms(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// Sends what the window lets at `ms`.
    fn fill(flow: &mut Dynamic, ms: u64) {
        while flow.room() > 0 {
            flow.on_sent(at_ms(ms));
        }
    }

    fn sendme(flow: &mut Dynamic, ms: u64) -> Result<(), Violation> {
        flow.on_sendme(at_ms(ms), SendmeContext::default())
    }

    /// Equations 1 and 2 with α = 0.25. The first round trip is its own threshold. Once 100 and 200 ms were seen, the
    /// threshold is 0.75 × 100 + 0.25 × 200 = 125 ms.
    #[test]
    fn the_window_follows_the_papers_equations() {
        let mut flow = Dynamic::default();
        assert_eq!(flow.room(), 100, "initially, each circuit's window size starts at 100 cells");
        let mut windows = Vec::new();
        for rtt_ms in [100, 100, 200, 125, 126, 200, 200, 100] {
            flow.on_rtt(Duration::from_millis(rtt_ms));
            windows.push(flow.snapshot().window_cells);
        }
        // floor(300 / 2), then + 100, floor(250 / 2), and floor(125 / 2) = 62, which the cap makes 100.
        assert_eq!(windows, [200, 300, 150, 250, 125, 100, 100, 200]);
        for _ in 0..20 {
            flow.on_rtt(Duration::from_millis(100));
        }
        assert_eq!(flow.snapshot().window_cells, 1000, "the maximum is 1000 cells");
        flow.on_rtt(Duration::from_nanos(125_000_001));
        assert_eq!(flow.snapshot().window_cells, 500);
    }

    #[test]
    fn a_round_trip_is_that_of_the_cell_that_is_answered() {
        let mut flow = Dynamic::default();
        let answered: Vec<u64> = (1..=100).filter(|ms| flow.on_sent(at_ms(*ms))).collect();
        assert_eq!(answered, [100]);
        assert_eq!(flow.room(), 0);
        sendme(&mut flow, 180).unwrap();
        assert_eq!(flow.snapshot().rtt_min, Some(Duration::from_millis(80)));
        assert_eq!((flow.room(), flow.snapshot().inflight_cells), (200, 0));
    }

    #[test]
    fn a_sendme_for_cells_that_were_never_sent_is_a_violation() {
        let mut flow = Dynamic::default();
        assert_eq!(sendme(&mut flow, 1), Err(Violation::UnexpectedSendme));
        for _ in 0..99 {
            flow.on_sent(at_ms(1));
        }
        assert_eq!(sendme(&mut flow, 2), Err(Violation::UnexpectedSendme));
    }

    /// Whatever the round trips are, a closed window has SENDMEs to come, all of which open it in the end, and never
    /// are more cells in flight than the largest window. Both ends agree which cells are answered.
    #[test]
    fn a_closed_window_always_opens_again() {
        let mut rng = Seed::from_number(1).rng();
        let (mut sender, mut receiver) = (Dynamic::default(), Dynamic::default());
        let (mut now_ms, mut due) = (0, VecDeque::new());
        let mut smallest_closed = u32::MAX;
        for _ in 0..50_000 {
            now_ms += rng.below(3);
            if sender.room() > 0 && rng.below(4) > 0 {
                let answered = sender.on_sent(at_ms(now_ms));
                assert_eq!(answered, receiver.on_received());
                if answered {
                    due.push_back(now_ms + 50 + rng.below(400));
                }
            } else if sender.room() == 0 || rng.below(50) == 0 {
                if sender.room() == 0 {
                    assert!(!due.is_empty(), "a closed window without a SENDME to come");
                    smallest_closed = smallest_closed.min(sender.snapshot().window_cells);
                }
                if let Some(at_ms) = due.pop_front() {
                    now_ms = now_ms.max(at_ms);
                    sendme(&mut sender, now_ms).unwrap();
                }
            }
            let Snapshot { window_cells, inflight_cells, .. } = sender.snapshot();
            assert!((100..=1000).contains(&window_cells) && inflight_cells <= 1000);
            assert!(due.len() <= sender.pending_max());
        }
        assert_eq!(smallest_closed, 100, "the smallest window was tried, too");
        fill(&mut sender, now_ms);
        assert_eq!(sender.room(), 0);
    }
}
