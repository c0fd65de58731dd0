//! The windows of fixed size: 1000 cells on a circuit, 500 on a stream (tor-spec, "Flow control").

use super::{FlowControl, SendmeContext, Snapshot, StreamControl, Violation, every};
use heddle_seam::time::Instant;

/// The largest and usual window of a circuit in cells (`CIRCWINDOW_START`).
pub(crate) const CIRCUIT_WINDOW_CELLS: u16 = 1000;
/// Cells that one circuit SENDME acknowledges (`CIRCWINDOW_INCREMENT`).
pub(crate) const CIRCUIT_INCREMENT_CELLS: u32 = 100;
/// The window of a stream in cells (`STREAMWINDOW_START`).
const STREAM_WINDOW_CELLS: u16 = 500;
/// Cells that one stream SENDME acknowledges (`STREAMWINDOW_INCREMENT`).
const STREAM_INCREMENT_CELLS: u16 = 50;

/// The fixed window of one end of a circuit.
///
/// SENDMEs go out the moment they are due, so what we receive needs no window of its own: one
/// that the far end could exceed would never have fallen below 901.
#[derive(Clone, Debug)]
pub struct Fixed {
    window_cells: u32,
    inflight_cells: u32,
    until_answered_cells: u32,
    until_sendme_cells: u32,
}

impl Fixed {
    /// A window of `window_cells`, brought into the 100 to 1000 cells that the consensus
    /// parameter `circwindow` may have.
    pub fn new(window_cells: u16) -> Self {
        Fixed {
            window_cells: u32::from(window_cells.min(CIRCUIT_WINDOW_CELLS)).max(CIRCUIT_INCREMENT_CELLS),
            inflight_cells: 0,
            until_answered_cells: CIRCUIT_INCREMENT_CELLS,
            until_sendme_cells: CIRCUIT_INCREMENT_CELLS,
        }
    }
}

impl FlowControl for Fixed {
    fn room(&self) -> u32 {
        self.window_cells.saturating_sub(self.inflight_cells)
    }

    fn on_sent(&mut self, _now: Instant) -> bool {
        self.inflight_cells = self.inflight_cells.saturating_add(1);
        every(&mut self.until_answered_cells, CIRCUIT_INCREMENT_CELLS)
    }

    fn on_sendme(&mut self, _now: Instant, _input: SendmeContext) -> Result<(), Violation> {
        let left = self.inflight_cells.checked_sub(CIRCUIT_INCREMENT_CELLS);
        self.inflight_cells = left.ok_or(Violation::UnexpectedSendme)?;
        Ok(())
    }

    fn on_received(&mut self) -> bool {
        every(&mut self.until_sendme_cells, CIRCUIT_INCREMENT_CELLS)
    }

    fn pending_max(&self) -> usize {
        (self.window_cells / CIRCUIT_INCREMENT_CELLS) as usize
    }

    fn stream_control(&self) -> StreamControl {
        StreamControl::Windows
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            window_cells: self.window_cells,
            inflight_cells: self.inflight_cells,
            sendme_cells: CIRCUIT_INCREMENT_CELLS,
            ..Snapshot::default()
        }
    }
}

/// The two windows of one end of a stream on a circuit without congestion control.
#[derive(Clone, Debug)]
pub struct StreamWindow {
    package_cells: u16,
    deliver_cells: u16,
}

impl Default for StreamWindow {
    fn default() -> Self {
        StreamWindow { package_cells: STREAM_WINDOW_CELLS, deliver_cells: STREAM_WINDOW_CELLS }
    }
}

impl StreamWindow {
    /// DATA cells that may be packaged for this stream now.
    pub fn room(&self) -> u32 {
        u32::from(self.package_cells)
    }

    /// Counts a DATA cell that was packaged, which is only right while [`room`](Self::room) is
    /// not zero.
    pub fn on_sent(&mut self) {
        self.package_cells = self.package_cells.saturating_sub(1);
    }

    /// Counts a stream SENDME.
    pub fn on_sendme(&mut self) -> Result<(), Violation> {
        let wider = self.package_cells + STREAM_INCREMENT_CELLS;
        if wider > STREAM_WINDOW_CELLS {
            return Err(Violation::UnexpectedSendme);
        }
        self.package_cells = wider;
        Ok(())
    }

    /// Counts a DATA cell that came for this stream.
    pub fn on_received(&mut self) -> Result<(), Violation> {
        let left = self.deliver_cells.checked_sub(1);
        self.deliver_cells = left.ok_or(Violation::WindowExceeded)?;
        Ok(())
    }

    /// Takes one stream SENDME that is due: true means send it, and ask again. Ask only once the
    /// stream's data has left for its reader, because this is what holds the far end back.
    pub fn take_sendme(&mut self) -> bool {
        let due = self.deliver_cells <= STREAM_WINDOW_CELLS - STREAM_INCREMENT_CELLS;
        if due {
            self.deliver_cells += STREAM_INCREMENT_CELLS;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_seam::rng::Seed;

    const NOW: Instant = Instant::ZERO;

    fn sendme(flow: &mut Fixed) -> Result<(), Violation> {
        flow.on_sendme(NOW, SendmeContext::default())
    }

    #[test]
    fn every_hundredth_cell_is_answered_and_the_window_closes_at_a_thousand() {
        let mut flow = Fixed::new(CIRCUIT_WINDOW_CELLS);
        let answered: Vec<u32> = (1..=1000).filter(|_| flow.on_sent(NOW)).collect();
        assert_eq!(answered, (1..=10).map(|n| n * 100).collect::<Vec<_>>());
        assert_eq!(flow.room(), 0);
        assert_eq!(flow.pending_max(), answered.len());
        assert_eq!(sendme(&mut flow), Ok(()));
        assert_eq!(flow.room(), 100);
    }

    #[test]
    fn a_sendme_for_cells_that_were_never_sent_is_a_violation() {
        let mut flow = Fixed::new(CIRCUIT_WINDOW_CELLS);
        assert_eq!(sendme(&mut flow), Err(Violation::UnexpectedSendme));
        for _ in 0..199 {
            flow.on_sent(NOW);
        }
        assert_eq!(sendme(&mut flow), Ok(()));
        assert_eq!(sendme(&mut flow), Err(Violation::UnexpectedSendme));
        assert_eq!(flow.snapshot().inflight_cells, 99);
    }

    #[test]
    fn every_hundredth_cell_we_receive_asks_for_a_sendme() {
        let mut flow = Fixed::new(100);
        let asked: Vec<u32> = (1..=250).filter(|_| flow.on_received()).collect();
        assert_eq!(asked, [100, 200]);
    }

    #[test]
    fn a_window_from_the_consensus_is_brought_into_range() {
        assert_eq!(Fixed::new(0).room(), 100);
        assert_eq!(Fixed::new(250).room(), 250);
        assert_eq!(Fixed::new(u16::MAX).room(), 1000);
    }

    /// DefenestraTor's smallest window (section 4.1): one interval of SENDMEs, a round trip for each hundred cells.
    #[test]
    fn a_window_of_a_hundred_cells_waits_for_each_sendme() {
        let mut flow = Fixed::new(100);
        assert_eq!(flow.pending_max(), 1);
        for _ in 0..5 {
            let answered: Vec<u32> = (1..=100).filter(|_| flow.on_sent(NOW)).collect();
            assert_eq!((answered, flow.room()), (vec![100], 0));
            assert_eq!(sendme(&mut flow), Ok(()));
            assert_eq!(flow.room(), 100);
        }
    }

    #[test]
    fn a_stream_packages_500_cells_and_then_waits_for_sendmes() {
        let mut window = StreamWindow::default();
        assert_eq!(window.on_sendme(), Err(Violation::UnexpectedSendme));
        for left in (0..500).rev() {
            window.on_sent();
            assert_eq!(window.room(), left);
        }
        for sendmes in 1..=10 {
            assert_eq!(window.on_sendme(), Ok(()));
            assert_eq!(window.room(), sendmes * 50);
        }
        assert_eq!(window.on_sendme(), Err(Violation::UnexpectedSendme));
    }

    #[test]
    fn a_stream_takes_500_cells_and_then_only_what_its_sendmes_allow() {
        let mut window = StreamWindow::default();
        for _ in 0..500 {
            assert_eq!(window.on_received(), Ok(()));
        }
        assert_eq!(window.on_received(), Err(Violation::WindowExceeded));
        let due = core::iter::from_fn(|| window.take_sendme().then_some(())).count();
        assert_eq!(due, 10);
        assert_eq!(window.on_received(), Ok(()));
        assert!(!window.take_sendme());
    }

    /// The two ends must agree for ever: every cell that one end thinks answered is the very one
    /// that the other answers, in any order of sending and answering.
    #[test]
    fn two_ends_agree_under_any_interleaving() {
        let mut rng = Seed::from_number(1).rng();
        let (mut sender, mut receiver) = (Fixed::new(1000), Fixed::new(1000));
        let mut returning = 0;
        for _ in 0..50_000 {
            if rng.below(101) == 0 && returning > 0 {
                returning -= 1;
                assert_eq!(sendme(&mut sender), Ok(()));
            } else if sender.room() > 0 {
                assert_eq!(sender.on_sent(NOW), receiver.on_received());
                if sender.until_answered_cells == CIRCUIT_INCREMENT_CELLS {
                    returning += 1;
                }
            }
            assert!(sender.inflight_cells <= 1000);
            assert!(returning <= sender.pending_max());
        }
    }
}
