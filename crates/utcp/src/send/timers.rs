//! The sender's three timers: retransmission (RFC 6298), tail loss probe (RFC 8985, section 7), reordering.

use super::prr::PrrAck;
use super::recovery::{Frto, Recovery, Undo};
use super::sender::Sender;
use super::sent::Place;
use crate::congestion::Congestion;
use crate::time::{Instant, MS};

/// How long a lone segment's acknowledgement may be delayed, which a tail loss probe allows for.
const LONE_ACK_DELAY_NS: u64 = 200 * MS;

/// Loss takes one segment so often in a row, of 30 % each, once in 170,000 times. Then it is the peer that does not
/// answer.
const CALM_EXPIRIES_MAX: u32 = 10;

/// Which timer expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expired {
    Retransmission,
    Probe,
}

impl Sender {
    pub(super) fn set_timers(&mut self, now: Instant, advanced: bool, delivered: bool) {
        if self.board.is_empty() {
            (self.retransmission_at, self.probe_at, self.reordering_at) = (None, None, None);
            (self.probe_due, self.overdue) = (false, false);
            return;
        }
        // What was to be forced and still waits for a session's window is asked for by new timers.
        self.probe_due &= !delivered;
        self.overdue &= !advanced;
        if advanced {
            self.arm_retransmission(now);
        }
        if delivered {
            self.set_probe(now);
        }
    }

    /// Sets the probe timer if a tail could be lost unnoticed (RFC 8985, section 7.2).
    pub(super) fn set_probe(&mut self, now: Instant) {
        self.probe_at = None;
        let is_open = !self.recovery.is_repairing();
        let is_tail = self.sack && is_open && self.board.sacked_segments() == 0 && self.probe.is_none();
        let Some(smoothed_ns) = self.rtt.smoothed_ns().filter(|_| is_tail && self.expiries == 0) else {
            return;
        };
        let lone_ns = if self.board.len() == 1 { LONE_ACK_DELAY_NS } else { 2 * MS };
        let at = now.plus_ns(2 * smoothed_ns + lone_ns);
        self.probe_at = Some(self.retransmission_at.map_or(at, |expires| at.min(expires)));
    }

    /// Handles the timers that are due. Gives the one that the connection has to hear of.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<Expired> {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.reordering_at) {
            let newly_lost = self.find_losses(now, false);
            if newly_lost > 0 && !self.recovery.is_repairing() {
                self.enter_recovery(now, 0);
            }
            let in_flight = self.in_flight();
            let (has_lost, mss) = (self.board.lost() > 0, self.mss);
            if let Some(prr) = self.recovery.prr_mut() {
                prr.on_ack(PrrAck {
                    delivered: 0,
                    in_flight,
                    is_safe: false,
                    has_lost,
                    is_partial: false,
                    mss,
                });
            }
        }
        // The probe before the time-out, where both are due: it asks without taking anything for lost, and sets the
        // other anew (RFC 8985, section 7.3).
        if self.is_shut() {
            self.probe_at = None;
        }
        if is_due(self.probe_at) {
            self.probe_at = None;
            self.probe_due = true;
            return Some(Expired::Probe);
        }
        if is_due(self.retransmission_at) {
            self.on_retransmission_timeout(now);
            return Some(Expired::Retransmission);
        }
        None
    }

    /// The path was gone and is back: what was backed off is sent again at this time, and the back-off begins anew (RFC
    /// 6069, section 4, has an ICMP message tell as much).
    pub(crate) fn on_path_back(&mut self, at: Instant) {
        self.excuse();
        if self.expiries > 0 {
            self.backoff = 0;
            self.retransmission_at = self.retransmission_at.map(|expires| expires.min(at));
        }
    }

    /// Whether its time-out has grown.
    pub(crate) fn is_backed_off(&self) -> bool {
        self.backoff > 0
    }

    /// The peer answered something else: the time-out is as long as at first, from when the timer was set, but not over
    /// before this time. Gives whether it had grown. Where this alone is not answered, however often, it is asked ever
    /// more rarely after all.
    pub(crate) fn calm(&mut self, at: Instant) -> bool {
        if self.backoff == 0 || self.is_shut() || self.expiries > CALM_EXPIRIES_MAX {
            return false;
        }
        self.backoff = 0;
        let expires = self.retransmission_since.plus_ns(self.timeout_ns()).max(at);
        self.retransmission_at = self.retransmission_at.map(|before| before.min(expires));
        true
    }

    /// RFC 6298, section 5.4 to 5.7, with RFC 8985, section 6.3, for what counts as lost.
    fn on_retransmission_timeout(&mut self, now: Instant) {
        if self.board.first().is_some_and(|first| first.place == Place::Sacked) {
            self.board.forget_sacks();
        }
        let was_repairing = self.recovery.is_repairing();
        let counted = self.recovery.high().is_some_and(|high| high > self.una);
        let cause = if counted { Congestion::TimeoutAgain } else { Congestion::Timeout };
        self.controller.on_congestion(now, cause);
        if !counted {
            self.undo = Some(Undo::new());
        }
        let window_ns = self.rack.window_ns(&self.rtt, true, 0);
        let old_ns = self.rack.rtt_ns() + window_ns;
        let sent_by =
            if self.sack { Instant::from_nanos(now.as_nanos().saturating_sub(old_ns)) } else { now };
        self.mark_timed_out(sent_by);
        let can_tell = self.sack && (!was_repairing || self.expiries > 0);
        let frto = if can_tell { Frto::Armed } else { Frto::Off };
        self.recovery = Recovery::Loss { high: self.next, frto };
        self.duplicates = 0;
        self.counts.timeouts += 1;
        if let Some(grant) = self.grant.as_mut().filter(|grant| !grant.is_shut) {
            grant.report.silent_since = Some(self.retransmission_since);
        }
        self.expiries += 1;
        self.back_off(now);
        self.note_reduction();
        self.overdue = true;
        self.probe = None;
        (self.probe_at, self.probe_due, self.reordering_at) = (None, false, None);
        self.arm_retransmission(now);
    }

    /// The next time-out is twice as long (RFC 6298, section 5.5). Where flows share a window, that is for a path that
    /// answers nothing: the window answers losses, and a flow's own time-outs would only add up to tens of seconds
    /// where many are lost. QUIC's begin anew with any acknowledgement, too (RFC 9002, section 6.2.1). A peer without
    /// memory is still asked ever more rarely.
    fn back_off(&mut self, now: Instant) {
        let (since, counted) = (self.retransmission_since, self.unexcused() - 1);
        let patience_ns =
            self.first_timeout_ns().saturating_mul(1 << counted.min(20)).min(self.options.rto_max_ns);
        match &mut self.grant {
            Some(grant)
                if grant.answered_at > since && !grant.is_shut && self.expiries <= CALM_EXPIRIES_MAX =>
            {
                self.backoff = 0;
                // A flow that is never answered is given up after as long as if its time-outs had doubled.
                if now.ns_since(grant.counted_at) < patience_ns {
                    self.excused += 1;
                } else {
                    grant.counted_at = now;
                }
            }
            Some(grant) => {
                // As long as if it had doubled from the first.
                self.backoff = (self.backoff + 1).max(counted);
                grant.counted_at = now;
            }
            None => self.backoff += 1,
        }
    }

    /// What was sent up to then is lost, and the first segment in any case.
    pub(super) fn mark_timed_out(&mut self, sent_by: Instant) {
        let lost_before = self.board.lost();
        self.board.mark_timed_out(sent_by);
        self.report_lost(self.board.lost() - lost_before);
    }
}
