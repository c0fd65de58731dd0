//! An acknowledgement's way through the sender:
//!
//! 1. SACK blocks and the acknowledgement itself deliver segments (`scoreboard`), which tell the round trip.
//! 2. RACK marks what is lost.
//! 3. The episode ends, is undone, goes on or begins (`recovery`).
//! 4. The window grows, or the rate reduction takes its step.
//! 5. The timers are set (`timers`).

use super::pacer::{BURST_SEGMENTS_MAX, BURST_SEGMENTS_MIN};
use super::prr::{Prr, PrrAck};
use super::rack::{AckContext, clock_ms};
use super::recovery::{Frto, Recovery, Undo};
use super::scoreboard::Delivery;
use super::sender::Sender;
use crate::congestion::{AckSample, Congestion};
use crate::segment::Range;
use crate::time::{Instant, MS};

/// Duplicate acknowledgements that stand for a loss when the peer sends no SACKs (RFC 5681, section 3.2).
const DUPLICATES_MAX: u32 = 3;

/// An acceptable acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckInput<'a> {
    pub now: Instant,
    pub ack: u64,
    pub sack: &'a [Range],
    /// The timestamp that it echoes, on our clock.
    pub echoed_ms: Option<u32>,
    /// Whether it carries neither data nor a new window, and might be a duplicate.
    pub is_bare: bool,
    /// Whether it reports congestion marks.
    pub ece: bool,
    /// Whether data waits that was never sent.
    pub has_unsent: bool,
}

impl Sender {
    /// Takes an acknowledgement that is not beyond what was sent. Gives how many sequence numbers it advances.
    pub(crate) fn on_ack(&mut self, input: &AckInput<'_>) -> u64 {
        let had_outstanding = !self.board.is_empty();
        let advanced = input.ack.saturating_sub(self.una);
        let (delivery, duplicate) = self.deliver(input);
        if advanced > 0 {
            (self.expiries, self.excused) = (0, 0);
            self.duplicates = 0;
            if self.is_granted() {
                // Others measure the path: its round trip need not be measured on this flow first.
                self.backoff = 0;
            }
        }
        self.sample_rtt(input, &delivery);
        self.on_probe_answered(input, &delivery, advanced > 0, duplicate.is_some());
        if input.is_bare && advanced == 0 && !self.sack && had_outstanding {
            self.duplicates += 1;
        }
        self.end_episode(input, &delivery, advanced > 0);
        // The acknowledgement that ends a repair counts for the window, the one that begins it does not.
        let was_open = !self.recovery.is_repairing();
        let newly_lost = self.find_losses(input.now, advanced > 0);
        if newly_lost > 0 && !self.recovery.is_repairing() {
            self.enter_recovery(input.now, delivery.bytes);
        } else if input.ece && matches!(self.recovery, Recovery::Open) && input.ack > self.reduced_high {
            self.reduce(input.now);
        }
        if self.is_shut() && advanced == 0 && delivery.bytes == 0 && self.in_flight() > 0 {
            // The peer drops what comes, and says so at once. What is still on its way may be taken after all.
            self.board.mark_timed_out(input.now);
        }
        let is_safe = advanced > 0 && newly_lost == 0;
        // While a hole may be a loss, the window waits (RFC 5681, section 3.2), unless holes are the wire's habit.
        let progress = advanced > 0 || self.rack.reordering_seen();
        self.adjust_window(input.now, &delivery, is_safe, was_open && progress);
        self.set_timers(input.now, advanced > 0, delivery.bytes > 0);
        advanced
    }

    /// Takes delivered segments off. Gives them, and the duplicate that the receiver reported.
    fn deliver(&mut self, input: &AckInput<'_>) -> (Delivery, Option<Range>) {
        let mut delivery = Delivery::default();
        let context =
            AckContext { now: input.now, min_rtt_ns: self.rtt.min_ns(), echoed_ms: input.echoed_ms };
        self.rack.begin_ack(context);
        let duplicate = self.duplicate(input);
        if let Some(duplicate) = duplicate {
            let is_explained = self.undo.as_mut().is_some_and(|undo| undo.on_dsack(duplicate));
            if is_explained {
                self.rack.on_needless(self.una, self.next);
            }
        }
        if self.sack {
            let sent = Range::new(self.una.max(input.ack), self.next);
            let mut blocks = [Range::default(); crate::segment::SACK_BLOCKS_MAX];
            for (slot, block) in blocks.iter_mut().zip(input.sack) {
                *slot = Range::new(block.start.max(sent.start), block.end.min(sent.end));
            }
            blocks.sort_unstable_by_key(|block| block.start);
            for block in blocks.into_iter().filter(|block| !block.is_empty()) {
                self.board.on_sack(block, &mut self.rack, &mut delivery);
            }
        }
        if input.ack > self.una {
            self.una = input.ack;
            self.board.on_ack(self.una, &mut self.rack, &mut delivery);
        }
        if let Some(grant) = &mut self.grant {
            grant.report.delivered += delivery.bytes;
            grant.report.newest_delivered = grant.report.newest_delivered.max(delivery.newest);
        }
        (delivery, duplicate)
    }

    /// The first block is a duplicate if it lies below the acknowledgement or inside the second (RFC 2883, section 4).
    fn duplicate(&self, input: &AckInput<'_>) -> Option<Range> {
        let first = *input.sack.first().filter(|first| self.sack && !first.is_empty())?;
        let inside_second = input.sack.get(1).is_some_and(|second| second.contains(first));
        // Older than anything that could have been sent twice lately proves nothing.
        let plausible = first.start + (1 << 30) >= self.una && first.end <= self.next;
        (plausible && (first.end <= input.ack || inside_second)).then_some(first)
    }

    fn sample_rtt(&mut self, input: &AckInput<'_>, delivery: &Delivery) {
        let clean = delivery.oldest.filter(|_| !delivery.retransmission_acked);
        let since_ms = |echoed_ms: u32| u64::from(clock_ms(input.now).wrapping_sub(echoed_ms));
        // Where retransmissions' timestamps are behind the clock they measure nothing.
        let tells = delivery.retransmission_acked && !self.rack.reordering_seen();
        let by_timestamp = input.echoed_ms.filter(|_| tells).map(since_ms);
        let sample_ns = match (clean, by_timestamp) {
            (Some(oldest), _) => input.now.ns_since(oldest),
            // A clock of milliseconds cannot measure below one, and an absurd echo is no measurement.
            (None, Some(ms)) if ms < 600_000 => ms.max(1) * MS,
            _ => return,
        };
        self.backoff = 0;
        self.rtt.on_sample(input.now, sample_ns, self.una, self.next, self.options.rto_min_ns);
    }

    fn end_episode(&mut self, input: &AckInput<'_>, delivery: &Delivery, advanced: bool) {
        let is_mistake = self.is_mistake(input, delivery);
        let is_over = self.recovery.high().is_some_and(|high| self.una >= high);
        match self.recovery {
            _ if is_mistake => self.undo_episode(),
            Recovery::Loss { high, frto } if !is_over && frto != Frto::Off => {
                self.advance_frto(input, delivery, advanced, high);
            }
            Recovery::Open => {}
            _ if is_over => self.close_episode(),
            _ => {}
        }
    }

    /// Whether the present episode, or the last one, turns out to have been none.
    fn is_mistake(&mut self, input: &AckInput<'_>, delivery: &Delivery) -> bool {
        let (una, lost, is_repairing) = (self.una, self.board.lost(), self.recovery.is_repairing());
        let Some(undo) = &mut self.undo else { return false };
        if is_repairing && lost == 0 && undo.is_idle() {
            return true;
        }
        let echoed_ms = input.echoed_ms.filter(|_| delivery.retransmission_acked);
        let is_early = echoed_ms.is_some_and(|echoed_ms| undo.on_acknowledged(echoed_ms, una));
        undo.is_explained() || is_early && lost == 0
    }

    /// Steps 2 and 3 of RFC 5682, section 3.1, in the form that Linux gave them.
    fn advance_frto(&mut self, input: &AckInput<'_>, delivery: &Delivery, advanced: bool, high: u64) {
        let original = delivery.original_low.is_some_and(|end| end <= high);
        if original {
            self.undo_episode();
            return;
        }
        let frto = if self.next > high {
            let is_genuine = delivery.sacked || !advanced;
            if is_genuine { Frto::Off } else { Frto::Probing }
        } else if advanced && input.has_unsent {
            Frto::Probing
        } else if advanced || delivery.sacked {
            Frto::Off
        } else {
            Frto::Armed
        };
        self.recovery = Recovery::Loss { high, frto };
    }

    /// The episode was a mistake.
    fn undo_episode(&mut self) {
        if !matches!(self.recovery, Recovery::Loss { .. }) {
            self.rack.on_needless(self.una, self.next);
        }
        // A window that marks had reduced before stays as it is.
        if self.undo.take().is_some() {
            self.counts.undos += 1;
            self.controller.on_undo();
            (self.has_reduced, self.reduced_high) = (false, 0);
        }
        self.board.forget_losses();
        if self.recovery.is_repairing() {
            self.close_episode();
        }
    }

    fn close_episode(&mut self) {
        if matches!(self.recovery, Recovery::Repair { .. }) {
            self.rack.on_recovered();
        }
        self.recovery = Recovery::Open;
    }

    /// Marks what is lost. Gives the bytes newly marked.
    pub(super) fn find_losses(&mut self, now: Instant, advanced: bool) -> u64 {
        self.reordering_at = None;
        if !self.sack {
            let is_partial = advanced && matches!(self.recovery, Recovery::Repair { .. });
            let is_third = self.duplicates >= DUPLICATES_MAX && !self.recovery.is_repairing();
            let lost = if is_partial || is_third { self.board.mark_first_lost() } else { 0 };
            self.report_lost(lost);
            return lost;
        }
        let window_ns =
            self.rack.window_ns(&self.rtt, self.recovery.is_repairing(), self.board.sacked_segments());
        let (lost, due) = self.board.detect_losses(now, &self.rack, window_ns);
        self.reordering_at = due;
        self.report_lost(lost);
        lost
    }

    pub(super) fn report_lost(&mut self, bytes: u64) {
        if let Some(grant) = self.grant.as_mut().filter(|grant| !grant.is_shut) {
            grant.report.lost += bytes;
        }
    }

    /// Begins to repair losses that were found after an acknowledgement had `delivered` so many bytes.
    pub(super) fn enter_recovery(&mut self, now: Instant, delivered: u64) {
        // What was in flight before, lost segments among it, and without what was SACKed earlier.
        let flight = self.board.in_flight() + self.board.lost() + delivered;
        let is_first = matches!(self.recovery, Recovery::Open);
        if is_first {
            self.controller.on_congestion(now, Congestion::Signal);
            self.note_reduction();
        }
        self.undo = is_first.then(Undo::new);
        self.probe = None;
        self.counts.recoveries += 1;
        let prr = Prr::new(self.controller.window_bytes(), flight);
        self.recovery = Recovery::Repair { high: self.next, prr };
    }

    /// Reduces the window without a loss to repair: congestion marks (RFC 3168), or a probe that repaired a loss.
    fn reduce(&mut self, now: Instant) {
        self.controller.on_congestion(now, Congestion::Signal);
        self.note_reduction();
        self.undo = None;
        let prr = Prr::new(self.controller.window_bytes(), self.next - self.una);
        self.recovery = Recovery::Reduced { high: self.next, prr };
    }

    /// The peer hears of it, and echoes marks until then (RFC 3168, section 6.1.2).
    pub(super) fn note_reduction(&mut self) {
        (self.has_reduced, self.reduced_high) = (true, self.next);
    }

    /// RFC 8985, section 7.4: a probe that was a retransmission and was needed is a loss.
    fn on_probe_answered(
        &mut self,
        input: &AckInput<'_>,
        delivery: &Delivery,
        advanced: bool,
        duplicate: bool,
    ) {
        let Some(probe) = self.probe.filter(|probe| input.ack >= probe.end) else { return };
        if !probe.is_retransmission || duplicate {
            self.probe = None;
        } else if advanced && input.ack > probe.end {
            self.probe = None;
            self.board.note_lost(probe.left_at);
            self.report_lost(probe.bytes);
            if matches!(self.recovery, Recovery::Open) {
                self.reduce(input.now);
            }
        } else if !advanced && !delivery.sacked && input.is_bare {
            self.probe = None;
        }
    }

    fn adjust_window(&mut self, now: Instant, delivery: &Delivery, is_safe: bool, may_grow: bool) {
        let (in_flight, mss) = (self.in_flight(), self.mss);
        let has_lost = self.board.lost() > 0;
        let is_partial = has_lost && !self.sack && delivery.bytes > 0;
        let without_sack = if self.sack { 0 } else { u64::from(self.duplicates > 0) * mss };
        if let Some(prr) = self.recovery.prr_mut() {
            prr.on_ack(PrrAck {
                delivered: delivery.bytes.max(without_sack),
                in_flight,
                is_safe,
                has_lost,
                is_partial,
                mss,
            });
        } else if delivery.bytes > 0 && (may_grow || matches!(self.recovery, Recovery::Loss { .. })) {
            let sample = AckSample {
                now,
                delivered_bytes: delivery.bytes,
                round_trip_ns: delivery.newest.map(|newest| now.ns_since(newest)),
                smoothed_ns: self.rtt.smoothed_ns().unwrap_or(0),
                una: self.una,
                next: self.next,
                is_window_limited: self.is_window_limited(),
            };
            self.controller.on_ack(&sample);
        }
        self.set_pace();
    }

    pub(super) fn set_pace(&mut self) {
        let Some(smoothed_ns) = self.rtt.smoothed_ns().filter(|_| self.options.pacing) else { return };
        let window = self.controller.window_bytes().max(self.in_flight());
        let doubles = 2 * self.controller.window_bytes() < self.controller.threshold_bytes();
        let (percent, burst_segments) =
            if doubles { (200, BURST_SEGMENTS_MIN) } else { (120, BURST_SEGMENTS_MAX) };
        self.pacer.set_rate(window, smoothed_ns, percent, burst_segments);
    }
}
