//! Vegas for Tor (proposal 324, section 3.3, as stock relays run it since 0.4.8).
//!
//! For every SENDME:
//!
//! 1. The RTT is measured and smoothed; a clock that stalled or jumped ends it here.
//! 2. The bandwidth-delay product is `window × smallest RTT / smoothed RTT`. What the window has
//!    beyond it lies in queues.
//! 3. Slow start adds to a full window until the queues reach gamma or the channel blocks.
//! 4. After that, once per window (or `cc_cwnd_inc_rate` times), the window shrinks above beta or
//!    when the channel blocks, falls above delta, and grows below alpha if it is in use.

mod params;
mod rtt;
#[cfg(test)]
mod tests;

pub(crate) use params::congestion_control_enabled;
pub use params::{Path, VegasParams, sendme_inc_acceptable};

use super::{FlowControl, SendmeContext, Snapshot, StreamControl, Violation, every};
use heddle_seam::time::Instant;
use rtt::{Rtt, WindowState};

/// One end of a circuit that negotiated congestion control.
///
/// It keeps one time for each SENDME that is outstanding: at most `cwnd_max_cells` (never above
/// 65,536) divided by `sendme_cells`, at eight bytes each.
#[derive(Clone, Debug)]
pub struct Vegas {
    params: VegasParams,
    rtt: Rtt,
    cwnd_cells: u32,
    bdp_cells: u32,
    inflight_cells: u32,
    until_answered_cells: u32,
    until_sendme_cells: u32,
    slow_start: bool,
    /// Whether the window was found full since this was last forgotten.
    full: bool,
    channel_blocked: bool,
    /// SENDMEs until the window may step again (`next_cc_event` in stock tor).
    until_step_sendmes: u32,
    /// SENDMEs until a whole window is acknowledged (`next_cwnd_event` in stock tor).
    until_cwnd_sendmes: u32,
}

impl Vegas {
    /// A circuit's end in slow start. Parameters that cannot work are put right: a window is
    /// never smaller than what one SENDME acknowledges, nor larger than 65,536 cells.
    pub fn new(params: VegasParams) -> Self {
        let params = params.normalized();
        Vegas {
            rtt: Rtt::default(),
            cwnd_cells: params.cwnd_init_cells,
            bdp_cells: 0,
            inflight_cells: 0,
            until_answered_cells: params.sendme_cells,
            until_sendme_cells: params.sendme_cells,
            slow_start: true,
            full: false,
            channel_blocked: false,
            until_step_sendmes: 1,
            until_cwnd_sendmes: 0,
            params,
        }
    }

    /// Renews the estimates. False when neither the RTT nor the channel says anything new, so
    /// that the window must stay.
    fn estimate(&mut self, measured: bool, input: SendmeContext) -> bool {
        let was_blocked = core::mem::replace(&mut self.channel_blocked, input.channel_blocked);
        let Some(bdp_cells) = self.rtt.bdp_cells(self.cwnd_cells) else {
            // The clock has stood still since the circuit began: go by the channel alone.
            self.bdp_cells = if input.channel_blocked {
                let unqueued = self.cwnd_cells.saturating_sub(input.queued_cells);
                unqueued.max(self.params.cwnd_min_cells)
            } else {
                self.cwnd_cells
            };
            return input.channel_blocked;
        };
        self.bdp_cells = bdp_cells;
        if was_blocked != input.channel_blocked {
            // Blocking and unblocking are signals at once, whatever is left of this window.
            self.until_step_sendmes = 0;
        }
        measured || input.channel_blocked
    }

    fn update_window(&mut self) {
        let queue_cells = self.cwnd_cells.saturating_sub(self.bdp_cells);
        self.update_fullness();
        if self.slow_start {
            self.slow_start_step(queue_cells);
        } else if self.until_step_sendmes == 0 {
            self.steady_step(queue_cells);
        }
        if self.until_cwnd_sendmes == 0 {
            self.until_cwnd_sendmes = self.sendmes_per_cwnd();
        }
        if self.until_step_sendmes == 0 {
            self.until_step_sendmes = self.update_rate();
        }
        let forget_fullness = if self.params.full_per_cwnd {
            self.until_cwnd_sendmes == self.sendmes_per_cwnd()
        } else {
            self.until_step_sendmes == self.update_rate()
        };
        if forget_fullness {
            self.full = false;
        }
    }

    /// Between "nearly all in flight" and "less than the percentage", fullness stays what it was.
    fn update_fullness(&mut self) {
        let gap_cells = self.params.full_gap_sendmes.saturating_mul(self.params.sendme_cells);
        let (inflight, cwnd) = (u64::from(self.inflight_cells), u64::from(self.cwnd_cells));
        if self.inflight_cells.saturating_add(gap_cells) >= self.cwnd_cells {
            self.full = true;
        } else if 100 * inflight < u64::from(self.params.full_min_pct) * cwnd {
            self.full = false;
        }
    }

    fn slow_start_step(&mut self, queue_cells: u32) {
        if queue_cells >= self.params.gamma_cells || self.channel_blocked {
            self.cwnd_cells = self.bdp_cells.saturating_add(self.params.gamma_cells);
            self.slow_start = false;
        } else if self.full {
            let inc_cells = self.limited_slow_start_cells();
            self.cwnd_cells = self.cwnd_cells.saturating_add(inc_cells);
            // Slow start that grows no faster than the steady state has nothing left to do.
            let per_cwnd = u64::from(inc_cells) * u64::from(self.sendmes_per_cwnd());
            let steady = u64::from(self.params.cwnd_inc_cells) * u64::from(self.params.cwnd_inc_rate);
            self.slow_start = per_cwnd > steady;
        }
        if self.cwnd_cells >= self.params.ss_max_cells {
            self.cwnd_cells = self.params.ss_max_cells;
            self.slow_start = false;
        }
    }

    /// What a SENDME adds in slow start (RFC 3742, section 2).
    fn limited_slow_start_cells(&self) -> u32 {
        let sendme = u64::from(self.params.sendme_cells);
        let (cwnd, cap) = (u64::from(self.cwnd_cells), u64::from(self.params.ss_cap_cells));
        let inc = if cwnd <= cap {
            (u64::from(self.params.cwnd_inc_ss_pct) * sendme + 50) / 100
        } else {
            // K = window / (cap / 2), and the window grows by one SENDME's cells / K, rounded.
            ((sendme * cap + cwnd) / (2 * cwnd)).max(1)
        };
        u32::try_from(inc).unwrap_or(u32::MAX)
    }

    fn steady_step(&mut self, queue_cells: u32) {
        let inc_cells = self.params.cwnd_inc_cells;
        if queue_cells > self.params.delta_cells {
            let target = self.bdp_cells.saturating_add(self.params.delta_cells);
            self.cwnd_cells = target.saturating_sub(inc_cells);
        } else if queue_cells > self.params.beta_cells || self.channel_blocked {
            self.cwnd_cells = self.cwnd_cells.saturating_sub(inc_cells);
        } else if self.full && queue_cells < self.params.alpha_cells {
            self.cwnd_cells = self.cwnd_cells.saturating_add(inc_cells);
        }
        self.cwnd_cells = self.cwnd_cells.max(self.params.cwnd_min_cells);
    }

    /// SENDMEs from one step of the window to the next, rounded; zero means every one.
    fn update_rate(&self) -> u32 {
        if self.slow_start {
            return 1;
        }
        let cells_per_step = self.params.cwnd_inc_rate.saturating_mul(self.params.sendme_cells);
        self.cwnd_cells.saturating_add(cells_per_step / 2) / cells_per_step
    }

    /// SENDMEs that acknowledge a whole window, rounded.
    fn sendmes_per_cwnd(&self) -> u32 {
        let sendme = self.params.sendme_cells;
        self.cwnd_cells.saturating_add(sendme / 2) / sendme
    }
}

impl FlowControl for Vegas {
    fn room(&self) -> u32 {
        // More can be in flight than the window after the window has shrunk.
        self.cwnd_cells.saturating_sub(self.inflight_cells)
    }

    fn on_sent(&mut self, now: Instant) -> bool {
        self.inflight_cells = self.inflight_cells.saturating_add(1);
        let answered = every(&mut self.until_answered_cells, self.params.sendme_cells);
        if answered {
            self.rtt.on_sent(now, self.pending_max());
        }
        answered
    }

    fn on_sendme(&mut self, now: Instant, input: SendmeContext) -> Result<(), Violation> {
        let acknowledged = self.inflight_cells.checked_sub(self.params.sendme_cells);
        let sent = self.rtt.take_sent();
        let (Some(inflight_cells), Some(sent)) = (acknowledged, sent) else {
            return Err(Violation::UnexpectedSendme);
        };
        self.until_step_sendmes = self.until_step_sendmes.saturating_sub(1);
        self.until_cwnd_sendmes = self.until_cwnd_sendmes.saturating_sub(1);
        let window = WindowState {
            slow_start: self.slow_start,
            at_min: self.cwnd_cells == self.params.cwnd_min_cells,
            update_rate: self.update_rate(),
        };
        let measured = self.rtt.measure(sent, now, window, &self.params);
        if self.estimate(measured, input) {
            self.update_window();
        }
        let (least, most) = (self.params.sendme_cells, self.params.cwnd_max_cells);
        self.cwnd_cells = self.cwnd_cells.clamp(least, most);
        self.inflight_cells = inflight_cells;
        Ok(())
    }

    fn on_received(&mut self) -> bool {
        every(&mut self.until_sendme_cells, self.params.sendme_cells)
    }

    fn pending_max(&self) -> usize {
        // As many whole SENDMEs as the largest window holds.
        (self.params.cwnd_max_cells / self.params.sendme_cells) as usize
    }

    fn stream_control(&self) -> StreamControl {
        StreamControl::XonXoff
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            window_cells: self.cwnd_cells,
            inflight_cells: self.inflight_cells,
            sendme_cells: self.params.sendme_cells,
            rtt: self.rtt.ewma(),
            rtt_min: self.rtt.min(),
            slow_start: self.slow_start,
        }
    }
}
