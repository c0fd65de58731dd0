//! The sender: its state, and what may leave. What comes in is in `acknowledge`, what expires in `timers`.

use super::counts::Counts;
use super::grant::{Grant, Report};
use super::pacer::Pacer;
use super::prr::Prr;
use super::rack::{Rack, stamp_ms};
use super::recovery::{Frto, Recovery, Undo};
use super::rtt::Rtt;
use super::scoreboard::Scoreboard;
use super::sent::{Place, Sent};
use crate::congestion::{self, CongestionController};
use crate::options::{Algorithm, Options};
use crate::segment::Range;
use crate::time::Instant;
use std::sync::Arc;

/// What may be sent now.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Permission {
    /// This segment, again.
    Again(Sent),
    /// New data of at most this many bytes.
    New(u64),
}

/// A tail loss probe that is not answered yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) end: u64,
    pub(super) is_retransmission: bool,
    /// When what it sent again had left before.
    pub(super) left_at: Instant,
    /// What it added to what is under way, where the scoreboard counts its segment already.
    pub(super) bytes: u64,
}

/// How much of the window was used lately, as Linux' `tcp_cwnd_validate` keeps it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) limited: bool,
    pub(super) most: u64,
    pub(super) end: u64,
}

/// The sending half of a connection.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(super) options: Arc<Options>,
    /// The lowest sequence number that is not acknowledged.
    pub(crate) una: u64,
    /// The next sequence number to be sent.
    pub(crate) next: u64,
    pub(crate) mss: u64,
    /// Whether the peer sends SACKs.
    pub(crate) sack: bool,
    pub(super) board: Scoreboard,
    pub(super) rtt: Rtt,
    pub(super) rack: Rack,
    pub(super) controller: Box<dyn CongestionController>,
    /// Where the window is the session's.
    pub(super) grant: Option<Grant>,
    pub(super) pacer: Pacer,
    pub(super) recovery: Recovery,
    pub(super) undo: Option<Undo>,
    pub(super) probe: Option<Probe>,
    /// A probe has to go out now, whatever the window is.
    pub(super) probe_due: bool,
    /// Duplicate acknowledgements from a peer without SACK.
    pub(super) duplicates: u32,
    pub(super) usage: Usage,
    pub(super) last_sent: Instant,
    /// How often the retransmission timer expired since something was acknowledged.
    pub(super) expiries: u32,
    /// How many of these do not speak against the peer: the path was gone, or they were answered by a shut window.
    pub(super) excused: u32,
    /// How often the time-out was doubled since a round trip was last measured (Karn's algorithm; RFC 6298, section 5).
    pub(super) backoff: u32,
    /// The first segment has to leave whatever the window is: its timer expired, or the SYN came again that it answers.
    pub(super) overdue: bool,
    /// The window was reduced, which a peer that echoes congestion marks has to hear (RFC 3168, section 6.1.2).
    pub(super) has_reduced: bool,
    /// What was sent before that: marks that it met were reacted to. 0 where the reduction was taken back.
    pub(super) reduced_high: u64,
    pub(super) retransmission_at: Option<Instant>,
    /// Since when that timer runs.
    pub(super) retransmission_since: Instant,
    pub(super) probe_at: Option<Instant>,
    pub(super) reordering_at: Option<Instant>,
    pub(crate) counts: Counts,
}

impl Sender {
    pub(crate) fn new(options: &Arc<Options>, first: u64) -> Self {
        let mss = u64::from(options.mss_bytes);
        let window = mss * u64::from(options.initial_window_segments);
        Sender {
            options: Arc::clone(options),
            una: first,
            next: first,
            mss,
            sack: false,
            board: Scoreboard::default(),
            rtt: Rtt::new(),
            rack: Rack::default(),
            controller: congestion::make(options.algorithm, mss, window, options.pacing),
            grant: (options.algorithm == Algorithm::Granted).then(Grant::default),
            pacer: Pacer::default(),
            recovery: Recovery::Open,
            undo: None,
            probe: None,
            probe_due: false,
            duplicates: 0,
            usage: Usage::default(),
            last_sent: Instant::ZERO,
            expiries: 0,
            excused: 0,
            backoff: 0,
            overdue: false,
            has_reduced: false,
            reduced_high: 0,
            retransmission_at: None,
            retransmission_since: Instant::ZERO,
            probe_at: None,
            reordering_at: None,
            counts: Counts::default(),
        }
    }

    /// Both ends have offered: segments are this long. The window begins anew, because what happened to a SYN says
    /// little about it; but with one segment where even a repeated SYN was lost (RFC 5681, section 3.1).
    pub(crate) fn on_established(&mut self, mss: u64, syn_retries: u32) {
        self.mss = mss;
        let segments = if syn_retries > 1 { 1 } else { u64::from(self.options.initial_window_segments) };
        let options = &self.options;
        self.controller = congestion::make(options.algorithm, mss, mss * segments, options.pacing);
        self.recovery = Recovery::Open;
        self.undo = None;
        self.has_reduced = false;
        if syn_retries > 0 && self.rtt.on_syn_lost() {
            self.backoff = 0;
        }
        self.set_pace();
    }

    /// From now on segments are as long as these options say.
    pub(crate) fn set_segment_length(&mut self, options: &Arc<Options>) {
        self.options = Arc::clone(options);
        self.mss = options.mss_bytes.into();
    }

    /// What a round trip is likely to take, before one was measured (RFC 9040).
    pub(crate) fn expect_round_trip(&mut self, smoothed_ns: u64) {
        self.rtt.expect(smoothed_ns, &self.options);
    }

    pub(crate) fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    pub(crate) fn in_flight(&self) -> u64 {
        // Without SACK each duplicate stands for a segment that left the network.
        self.board.in_flight().saturating_sub(u64::from(self.duplicates) * self.mss)
    }

    /// What a tail loss probe put on the wire a second time.
    pub(crate) fn probe_bytes(&self) -> u64 {
        self.probe.filter(|probe| probe.end > self.una).map_or(0, |probe| probe.bytes)
    }

    /// What may be in flight.
    pub(crate) fn window(&self) -> u64 {
        if let Some(grant) = &self.grant {
            // After a time-out, one segment asks whether the path is there.
            let own = if self.expiries > 0 { self.mss } else { u64::MAX };
            return own.min(self.in_flight() + grant.room);
        }
        self.recovery.prr().map_or(self.controller.window_bytes(), Prr::window)
    }

    pub(crate) fn controller(&self) -> &dyn CongestionController {
        &*self.controller
    }

    pub(crate) fn pacing_rate(&self) -> Option<u64> {
        self.pacer.rate()
    }

    /// How often the retransmission timer expired since something was acknowledged.
    pub(crate) fn expiries(&self) -> u32 {
        self.expiries
    }

    /// So far none of these speaks against the peer.
    pub(crate) fn excuse(&mut self) {
        self.excused = self.expiries;
    }

    /// How many of these speak against the peer.
    pub(crate) fn unexcused(&self) -> u32 {
        self.expiries - self.excused
    }

    /// Whether something has to leave at once, whatever windows and pacing say: a tail loss probe, or the first segment
    /// (RFC 6298, section 5.4).
    pub(crate) fn is_forced(&self) -> bool {
        self.probe_due || self.overdue
    }

    /// The peer waits for the first segment, which has not left yet.
    pub(crate) fn hasten(&mut self) {
        self.overdue = true;
    }

    /// What new data was to tell about a time-out cannot be told, because none may leave (RFC 5682, section 3.1, step
    /// 2). Gives whether losses were held back for it.
    pub(crate) fn stop_probing_timeout(&mut self) -> bool {
        match &mut self.recovery {
            Recovery::Loss { frto: frto @ Frto::Probing, .. } => {
                *frto = Frto::Off;
                self.board.lost() > 0
            }
            _ => false,
        }
    }

    /// Whether the window was reduced since this was last asked.
    pub(crate) fn take_has_reduced(&mut self) -> bool {
        core::mem::take(&mut self.has_reduced)
    }

    /// Where the window is the session's: what may leave of it now.
    pub(crate) fn set_room(&mut self, room: u64) {
        if let Some(grant) = &mut self.grant {
            (grant.room, grant.waits) = (room, false);
        }
    }

    /// Where the window is the session's: when the peer last answered anything on any flow.
    pub(crate) fn set_answered(&mut self, at: Instant) {
        if let Some(grant) = &mut self.grant {
            grant.answered_at = at;
        }
    }

    /// Whether the peer's window is shut. Where the window is the session's, nothing is sent into it a second time: it
    /// would keep others from sending.
    pub(crate) fn set_shut(&mut self, is_shut: bool) {
        if let Some(grant) = &mut self.grant {
            grant.is_shut = is_shut;
        }
    }

    pub(super) fn is_shut(&self) -> bool {
        self.grant.is_some_and(|grant| grant.is_shut)
    }

    /// Whether it would send more of the session's window.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.grant.is_some_and(|grant| grant.waits)
    }

    /// Whether the window is the session's.
    pub(crate) fn is_granted(&self) -> bool {
        self.grant.is_some()
    }

    /// What the session has to hear, and when the newest of lost segments left.
    pub(crate) fn take_report(&mut self) -> (Report, Instant) {
        let report = self.grant.as_mut().map(|grant| core::mem::take(&mut grant.report));
        (report.unwrap_or_default(), self.board.newest_lost())
    }

    /// Bytes that are lost and not sent again.
    pub(crate) fn lost(&self) -> u64 {
        self.board.lost()
    }

    /// Nothing will be sent again.
    pub(crate) fn stop(&mut self) {
        self.board = Scoreboard::default();
        (self.retransmission_at, self.probe_at, self.reordering_at) = (None, None, None);
        (self.probe_due, self.overdue) = (false, false);
    }

    /// Nothing will be sent any more, but what was is to be heard of.
    pub(crate) fn rest(&mut self) {
        (self.undo, self.probe_at, self.probe_due, self.overdue) = (None, None, false, false);
        self.board.shrink();
    }

    /// What is in flight was not heard of for too long.
    pub(crate) fn give_up(&mut self, now: Instant) {
        self.probe = None;
        self.mark_timed_out(now);
    }

    pub(crate) fn has_outstanding(&self) -> bool {
        !self.board.is_empty()
    }

    /// The time-out without its back-off.
    pub(crate) fn first_timeout_ns(&self) -> u64 {
        self.rtt.timeout_ns(&self.options)
    }

    /// The time-out with its back-off.
    pub(crate) fn timeout_ns(&self) -> u64 {
        let base_ns = self.first_timeout_ns();
        base_ns.saturating_mul(1 << self.backoff.min(20)).min(self.options.rto_max_ns)
    }

    /// Sets the retransmission timer anew.
    pub(super) fn arm_retransmission(&mut self, now: Instant) {
        self.retransmission_at = Some(now.plus_ns(self.timeout_ns()));
        self.retransmission_since = now;
    }

    /// When something may be sent again after pacing held it back.
    pub(crate) fn paced_until(&self, now: Instant) -> Option<Instant> {
        self.pacer.blocked_until(now)
    }

    /// When a timer expires.
    pub(crate) fn timer(&self) -> Option<Instant> {
        [self.retransmission_at, self.probe_at, self.reordering_at].into_iter().flatten().min()
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        let undo = self.undo.as_ref().map_or(0, Undo::heap_bytes);
        self.board.heap_bytes() + undo + size_of_val(&*self.controller)
    }
}

/// Sending.
impl Sender {
    /// What may be sent now, as far as losses and the congestion window decide it. Pacing is asked separately.
    pub(crate) fn permission(&mut self) -> Option<Permission> {
        if self.probe_due {
            return self.may_force(self.mss).then_some(Permission::New(u64::from(u32::MAX)));
        }
        if self.overdue {
            let first = self.board.first();
            let is_lost = first.is_some_and(|first| first.place == Place::Lost);
            if let Some(first) = first.filter(|_| is_lost) {
                let may_leave = self.may_force(u64::from(first.len).min(self.mss));
                self.overdue = !may_leave;
                return may_leave.then_some(Permission::Again(first));
            }
            self.overdue = false;
            if first.is_none() {
                return Some(Permission::New(self.mss));
            }
        }
        let room = self.window().saturating_sub(self.in_flight());
        let is_granted = self.is_granted();
        let holds_back = matches!(self.recovery, Recovery::Loss { frto: Frto::Probing, .. });
        if let Some(lost) = self.board.next_lost().filter(|_| !holds_back && !self.is_shut()) {
            // A window smaller than a segment must not stop a repair while nothing is in flight.
            // One with FIN is longer than a segment by that.
            let fits = u64::from(lost.len).min(self.mss) <= room || self.in_flight() == 0 && !is_granted;
            if !fits {
                self.wait_for_room();
            }
            return fits.then_some(Permission::Again(lost));
        }
        if self.board.is_full() {
            return None;
        }
        if room < self.mss && (self.in_flight() > 0 || is_granted) {
            self.validate();
            self.wait_for_room();
            return None;
        }
        Some(Permission::New(room.max(self.mss)))
    }

    /// Whether a segment left at this very time.
    pub(crate) fn has_just_sent(&self, now: Instant) -> bool {
        self.last_sent == now
    }

    /// Whether the congestion window or the pacing holds the next full segment back.
    pub(crate) fn is_held(&self, now: Instant) -> bool {
        self.window() < self.in_flight() + self.mss || self.paced_until(now).is_some()
    }

    /// Whether so many bytes may leave whatever this connection's own window is. A session's window holds for them too,
    /// or as many flows would send as many segments into a path that has just lost them.
    fn may_force(&mut self, bytes: u64) -> bool {
        let Some(grant) = &mut self.grant else { return true };
        grant.waits = grant.room < bytes;
        !grant.waits
    }

    fn wait_for_room(&mut self) {
        // Who waits for the answer to a time-out waits for nothing else.
        let may_have_more = self.expiries == 0 || self.in_flight() == 0;
        if let Some(grant) = &mut self.grant {
            grant.waits = may_have_more;
        }
    }

    /// A tail loss probe is due and there is no new data to send: this segment goes out again.
    pub(crate) fn probe_segment(&self) -> Option<Sent> {
        self.board.last().filter(|last| self.probe_due && last.place != Place::Sacked)
    }

    /// Whether a tail loss probe is due.
    pub(crate) fn is_probe_due(&self) -> bool {
        self.probe_due
    }

    /// No probe could be sent.
    pub(crate) fn skip_probe(&mut self) {
        self.probe_due = false;
    }

    /// Cuts a lost segment in two, because segments became shorter or the peer's window ends inside it.
    pub(crate) fn split(&mut self, start: u64, len: u64) {
        self.board.split(start, len as u32);
    }

    /// New data, or a SYN or FIN, leaves now.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u64) {
        let range = Range::new(self.next, self.next + bytes);
        if self.board.is_empty() {
            self.on_restart(now);
            self.arm_retransmission(now);
        }
        self.board.on_sent(now, range);
        self.next = range.end;
        self.counts.segments += 1;
        self.count(now, bytes);
        self.validate();
        if self.probe_due {
            self.on_probed(now, None);
        } else {
            self.set_probe(now);
        }
    }

    /// A segment leaves again. Gives how far its timestamp has to be behind the clock, in milliseconds.
    pub(crate) fn on_retransmitted(&mut self, now: Instant, sent: &Sent) -> u16 {
        let lag_ms = self.rack.lag_ms(now, sent, &self.rtt);
        self.board.on_retransmitted(now, sent.start, lag_ms);
        self.counts.retransmissions += 1;
        if let Some(undo) = &mut self.undo {
            undo.on_retransmitted(stamp_ms(now, lag_ms), sent.range());
        }
        self.count(now, u64::from(sent.len));
        if self.probe_due {
            self.on_probed(now, Some(sent));
        } else if sent.start <= self.una || self.retransmission_at.is_none() {
            self.arm_retransmission(now);
        }
        lag_ms
    }

    fn count(&mut self, now: Instant, bytes: u64) {
        self.last_sent = now;
        self.pacer.on_sent(now, bytes);
        if let Some(prr) = self.recovery.prr_mut() {
            prr.on_sent(bytes);
        }
        if let Some(grant) = &mut self.grant {
            grant.room = grant.room.saturating_sub(bytes);
            grant.report.sent += bytes;
        }
    }

    fn on_probed(&mut self, now: Instant, again: Option<&Sent>) {
        self.probe_due = false;
        self.counts.probes += 1;
        let bytes = again.map_or(0, |sent| u64::from(sent.len));
        let left_at = again.map_or(now, |sent| sent.at);
        self.probe = Some(Probe { end: self.next, is_retransmission: again.is_some(), left_at, bytes });
        self.probe_at = None;
        self.arm_retransmission(now);
    }

    /// Sending begins again after everything was acknowledged: a window that was not used is not believed any more.
    pub(super) fn on_restart(&mut self, now: Instant) {
        let timeout_ns = self.rtt.timeout_ns(&self.options);
        let idle = now.ns_since(self.last_sent) / timeout_ns.max(1);
        let applies = self.options.slow_start_after_idle && self.last_sent > Instant::ZERO;
        if idle > 0 && applies {
            let initial = self.mss * u64::from(self.options.initial_window_segments);
            let decayed = self.controller.window_bytes() >> idle.min(63);
            self.controller.on_idle(decayed.max(initial));
        }
    }

    fn validate(&mut self) {
        let flight = self.next - self.una;
        let limited = self.in_flight() + self.mss > self.window();
        if self.una >= self.usage.end || limited || (!self.usage.limited && flight > self.usage.most) {
            self.usage = Usage { limited, most: flight, end: self.next };
        }
    }

    pub(super) fn is_window_limited(&self) -> bool {
        if self.controller.is_in_slow_start() {
            return self.controller.window_bytes() < 2 * self.usage.most;
        }
        self.usage.limited
    }
}
