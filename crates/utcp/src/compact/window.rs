//! The window that the flows of a session share, and whose turn it is to use it.
//!
//! 1. Flows that may have something to send are asked in turn. While nobody waits for the window, whoever is asked may
//!    use it; from then on they only acknowledge, and stand in line.
//! 2. Whenever there is room and the pacer agrees, the first in line sends one segment and stands behind the others
//!    again. Repairs go before. What a flow's timers force out is no exception, but for [a spare
//!    segment](SharedWindow::spare).
//! 3. Acknowledgements and losses are reported to the controller as they come.

use super::account::Account;
use super::flow::Flow;
use super::flow_id::FlowId;
use super::remains::Remains;
use crate::congestion::{SessionAck, SessionController};
use crate::send::{Pacer, Report};
use crate::time::{Instant, S};
use std::collections::VecDeque;

/// Segments that the pacer lets leave together: those that the window does, and one that was put off.
const BURST_SEGMENTS: u64 = 4;

/// How often a spare segment may leave: after two round trips, which is when a tail loss probe is due, or after so long
/// where none was measured; then after twice as long, so many times.
const SPARE_AFTER_NS: u64 = S;
const SPARE_DOUBLINGS_MAX: u32 = 6;

/// The window of a session.
#[derive(Debug)]
pub(super) struct SharedWindow {
    pub(super) controller: Box<dyn SessionController>,
    pacer: Pacer,
    /// The longest segment.
    mss: u64,
    /// Bytes of all flows that are in flight, and that wait for nothing but the window.
    in_flight: u64,
    ready_bytes: u64,
    /// Flows that wait for room, those with something to repair apart.
    waiting: VecDeque<FlowId>,
    repairing: VecDeque<FlowId>,
    /// Whether there was room the last time.
    is_open: bool,
    /// When the pacer lets the next segment go.
    paced_until: Option<Instant>,
    /// When the next spare segment may leave, and how many did since something was delivered.
    spare_at: Instant,
    spares: u32,
    smoothed_ns: u64,
    /// When the path was last told to be back: what left before says nothing of it.
    back_at: Instant,
    /// What left before this and is lost was paid for by a stall.
    paid_until: Instant,
    /// When the path was last found stalled, until something tells whether it was.
    stalled_at: Option<Instant>,
    deviation_ns: u64,
    /// When the newest left of what the present datagram acknowledged.
    newest_acked: Option<Instant>,
    /// When something was last delivered, and whether that was since the path was last found stalled.
    delivered_at: Instant,
    is_alive: bool,
    /// When anything was last delivered, or a question of the session's own answered.
    answered_at: Instant,
}

impl SharedWindow {
    pub(super) fn new(controller: Box<dyn SessionController>, mss: u64) -> Self {
        SharedWindow {
            controller,
            pacer: Pacer::in_quanta(),
            mss,
            in_flight: 0,
            ready_bytes: 0,
            waiting: VecDeque::new(),
            repairing: VecDeque::new(),
            is_open: true,
            paced_until: None,
            spare_at: Instant::ZERO,
            spares: 0,
            smoothed_ns: 0,
            back_at: Instant::ZERO,
            paid_until: Instant::ZERO,
            stalled_at: None,
            deviation_ns: 0,
            newest_acked: None,
            delivered_at: Instant::ZERO,
            is_alive: true,
            answered_at: Instant::ZERO,
        }
    }

    /// From now on segments have so many bytes at most.
    pub(super) fn set_mss_bytes(&mut self, mss_bytes: u16) {
        self.mss = mss_bytes.into();
        self.controller.set_mss_bytes(mss_bytes);
        self.set_pace();
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// The round trip over all flows, once it was measured.
    pub(super) fn smoothed_ns(&self) -> Option<u64> {
        Some(self.smoothed_ns).filter(|smoothed_ns| *smoothed_ns > 0)
    }

    pub(super) fn ready_bytes(&self) -> u64 {
        self.ready_bytes
    }

    /// What may leave now. Three segments leave together where the window has many, as those of a TCP do whose every
    /// second one is acknowledged, while its window grows. Whoever sends them one by one loses less at a full queue
    /// than its TCP neighbours.
    fn room(&mut self, now: Instant) -> u64 {
        const MANY: u64 = 8;
        const TOGETHER: u64 = 3;
        let window = self.controller.window_bytes();
        let room = window.saturating_sub(self.in_flight);
        let together = if window < MANY * self.mss || self.is_open { self.mss } else { TOGETHER * self.mss };
        self.is_open = room >= together;
        if !self.is_open {
            self.paced_until = None;
            return 0;
        }
        self.paced_until = self.pacer.blocked_until(now);
        if self.paced_until.is_some() { 0 } else { room }
    }

    /// When somebody who waits may send.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.paced_until.filter(|_| !self.waiting.is_empty() || !self.repairing.is_empty())
    }

    /// What a flow may send that is asked in its turn.
    pub(super) fn room_in_turn(&mut self, now: Instant) -> u64 {
        if self.waiting.is_empty() && self.repairing.is_empty() { self.room(now) } else { 0 }
    }

    /// What a flow may send whose timer forces it, where its turn gives it `room`: a segment beyond the window, if no
    /// other flow had one lately. So a session whose window is full of lost segments asks whether the path is there, as
    /// one TCP does (RFC 8985, section 7.3), and its flows do not ask all at once.
    pub(super) fn spare(&self, now: Instant, room: u64) -> u64 {
        if now >= self.spare_at { room.max(self.mss) } else { room }
    }

    /// A spare segment leaves.
    pub(super) fn on_spare(&mut self, now: Instant) {
        let after_ns = self.smoothed_ns().map_or(SPARE_AFTER_NS, |smoothed_ns| 2 * smoothed_ns);
        self.spare_at = now.plus_ns(after_ns << self.spares.min(SPARE_DOUBLINGS_MAX));
        self.spares += 1;
    }

    /// Who may send of those that wait, and how much.
    pub(super) fn next_waiting(&mut self, now: Instant) -> Option<(FlowId, u64)> {
        if self.waiting.is_empty() && self.repairing.is_empty() {
            return None;
        }
        let room = Some(self.room(now)).filter(|room| *room > 0)?;
        let id = self.repairing.pop_front().or_else(|| self.waiting.pop_front())?;
        Some((id, room))
    }

    /// A flow that stood in line was asked: it stands there again if it sent or could not.
    pub(super) fn after_turn(&mut self, id: FlowId, flow: &mut Flow, has_sent: bool) {
        let account = &mut flow.account;
        let again = has_sent || flow.connection.waits_for_room();
        if account.is_repairing {
            account.is_repairing = again && flow.connection.has_lost();
            if account.is_repairing {
                self.repairing.push_front(id);
                return;
            }
            if account.is_waiting {
                return;
            }
        }
        account.is_waiting = again;
        if again {
            self.waiting.push_back(id);
        }
    }

    /// A flow was asked in its turn and has no more that may leave now.
    pub(super) fn after_asking(&mut self, id: FlowId, flow: &mut Flow) {
        if !flow.connection.waits_for_room() {
            return;
        }
        let account = &mut flow.account;
        if flow.connection.has_lost() && !account.is_repairing {
            account.is_repairing = true;
            self.repairing.push_back(id);
        } else if !account.is_waiting && !account.is_repairing {
            account.is_waiting = true;
            self.waiting.push_back(id);
        }
    }

    /// Counts what a flow has in flight, and what waits.
    pub(super) fn count(&mut self, flow: &mut Flow) {
        let (in_flight, ready_bytes) = (flow.connection.in_flight(), flow.connection.ready_bytes());
        self.in_flight = self.in_flight + in_flight - flow.account.in_flight;
        self.ready_bytes = self.ready_bytes + ready_bytes - flow.account.ready_bytes;
        (flow.account.in_flight, flow.account.ready_bytes) = (in_flight, ready_bytes);
    }

    /// Something happened to a flow.
    pub(super) fn settle(&mut self, now: Instant, flow: &mut Flow) {
        self.count(flow);
        let (report, newest_lost) = flow.connection.take_report();
        self.hear(now, &report, newest_lost);
    }

    /// Something happened to what is left of a flow.
    pub(super) fn settle_remains(&mut self, now: Instant, remains: &mut Remains) {
        let in_flight = remains.in_flight();
        self.in_flight = self.in_flight + in_flight - remains.counted;
        remains.counted = in_flight;
        let (report, newest_lost) = remains.take_report();
        self.hear(now, &report, newest_lost);
    }

    fn hear(&mut self, now: Instant, report: &Report, newest_lost: Instant) {
        if report.sent > 0 {
            self.controller.on_sent(now, report.sent);
            self.pacer.on_sent(now, report.sent);
        }
        if report.delivered > 0 {
            (self.delivered_at, self.is_alive, self.spares) = (now, true, 0);
            self.answered_at = now;
            self.judge_stall(now, report.newest_delivered);
            let newest_sent = report.newest_delivered.filter(|sent| *sent >= self.back_at);
            newest_sent.inspect(|sent| self.measure(now.ns_since(*sent)));
            self.newest_acked = self.newest_acked.max(newest_sent);
            self.controller.on_ack(&SessionAck {
                now,
                newest_sent,
                bytes: report.delivered,
                deviation_ns: self.deviation_ns,
            });
        }
        // What is delivered on other flows while its timer ran tells that the path is there.
        let is_stalled = report.silent_since.is_some_and(|since| self.delivered_at <= since);
        if is_stalled && core::mem::take(&mut self.is_alive) {
            self.stalled_at = Some(now);
            self.controller.on_stall(now);
        }
        self.controller.on_gone(report.lost);
        let is_news = self.stalled_at.is_none() && newest_lost >= self.paid_until.max(self.back_at);
        if report.lost > 0 && is_news {
            self.controller.on_loss(now, newest_lost, report.lost);
        }
        if report.delivered > 0 || report.lost > 0 {
            self.controller.set_in_flight(self.in_flight);
            self.set_pace();
        }
    }

    /// The peer answered what the session itself asked.
    pub(super) fn on_answered(&mut self, now: Instant) {
        self.answered_at = now;
    }

    /// When the peer last answered anything.
    pub(super) fn answered_at(&self) -> Instant {
        self.answered_at
    }

    fn set_pace(&mut self) {
        let window = self.controller.window_bytes();
        if self.smoothed_ns > 0 {
            let percent = self.controller.pacing_percent();
            self.pacer.set_rate(window, self.smoothed_ns, percent, BURST_SEGMENTS);
        }
    }

    /// A datagram is about to be taken.
    pub(super) fn begin(&mut self) {
        self.newest_acked = None;
    }

    /// Datagrams were marked, as the one told that was just taken. What it acknowledges says of which round they were
    /// (RFC 9002, section 7.1); whether it did.
    pub(super) fn on_marked(&mut self, now: Instant) -> bool {
        if let Some(sent) = self.newest_acked {
            self.controller.on_marked(now, sent);
            self.set_pace();
        }
        self.newest_acked.is_some()
    }

    /// Something was delivered after a stall. The first of it that was sent only once tells whether the path was gone:
    /// if it left before the timer expired, it was only late.
    fn judge_stall(&mut self, now: Instant, newest_sent: Option<Instant>) {
        let Some((stalled_at, sent)) = self.stalled_at.zip(newest_sent) else { return };
        self.stalled_at = None;
        if sent < stalled_at {
            self.controller.on_stall_undone(now);
        } else {
            self.paid_until = sent;
        }
    }

    /// The path was gone and is back. Round trips and losses of what left before are the outage's.
    pub(super) fn on_path_back(&mut self, now: Instant) {
        (self.back_at, self.spare_at, self.spares) = (now, now, 0);
        self.stalled_at = None;
        self.controller.on_stall(now);
    }

    /// RFC 6298, section 2, over all flows.
    fn measure(&mut self, sample_ns: u64) {
        if self.smoothed_ns == 0 {
            (self.smoothed_ns, self.deviation_ns) = (sample_ns.max(1), sample_ns / 2);
            return;
        }
        self.deviation_ns = (3 * self.deviation_ns + self.smoothed_ns.abs_diff(sample_ns)) / 4;
        self.smoothed_ns = (7 * self.smoothed_ns + sample_ns) / 8;
    }

    /// A flow is gone. What it had under way is no longer counted by it.
    pub(super) fn forget(&mut self, account: &Account) {
        self.in_flight -= account.in_flight;
        self.ready_bytes -= account.ready_bytes;
    }

    /// Takes flows that are gone out of the lines, once there are as many of them as of others.
    pub(super) fn purge(&mut self, flows: usize, is_there: impl Fn(FlowId) -> bool) {
        const GONE_MIN: usize = 64;
        for line in [&mut self.waiting, &mut self.repairing] {
            if line.len() > 2 * flows + GONE_MIN {
                line.retain(|id| is_there(*id));
            }
        }
    }
}
