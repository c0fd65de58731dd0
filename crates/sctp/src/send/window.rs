//! How much may be under way: the controller's window, round trips, and the pace.

use heddle_seam::time::{Duration, Instant};
use heddle_utcp::Pacer;
use heddle_utcp::congestion::{SessionAck, SessionController};

/// Packets that the pacer lets leave together: those that the window does, and one that was put off.
const BURST_PACKETS: u64 = 4;
/// The shortest round trip is that of so long.
const MIN_FOR: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) controller: Box<dyn SessionController>,
    pacer: Pacer,
    /// Bytes of a full packet's chunks.
    mss: u64,
    is_open: bool,
    paced_until: Option<Instant>,
    smoothed_ns: u64,
    deviation_ns: u64,
    /// What time-outs take for the deviation; the largest of the round trip under way, and when that is over.
    widest_ns: u64,
    round_deviation_ns: u64,
    round_ends: Instant,
    min_ns: Option<(u64, Instant)>,
    /// When the path was last told to be back: what left before says nothing of it.
    back_at: Instant,
    /// What left before this and is lost was paid for by a stall.
    paid_until: Instant,
    /// When nothing had come for a time-out, until something tells whether the path was gone.
    stalled_at: Option<Instant>,
    /// Whether nothing came since, so that one packet may be under way.
    is_silent: bool,
    /// When the newest left of what the present packet acknowledged.
    newest_acked: Option<Instant>,
}

impl Window {
    pub(super) fn new(controller: Box<dyn SessionController>, mss: u64) -> Self {
        Window {
            controller,
            pacer: Pacer::in_quanta(),
            mss,
            is_open: true,
            paced_until: None,
            smoothed_ns: 0,
            deviation_ns: 0,
            widest_ns: 0,
            round_deviation_ns: 0,
            round_ends: Instant::ZERO,
            min_ns: None,
            back_at: Instant::ZERO,
            paid_until: Instant::ZERO,
            stalled_at: None,
            is_silent: false,
            newest_acked: None,
        }
    }

    pub(super) fn mss(&self) -> u64 {
        self.mss
    }

    pub(crate) fn set_mss(&mut self, mss: u16) {
        self.mss = mss.into();
        self.controller.set_mss_bytes(mss);
        self.set_pace();
    }

    /// The smoothed round trip and what it varied by at most lately, once it was measured.
    pub(crate) fn round_trip(&self) -> Option<(Duration, Duration)> {
        let [smoothed, deviation] = [self.smoothed_ns, self.widest_ns].map(Duration::from_nanos);
        (self.smoothed_ns > 0).then_some((smoothed, deviation))
    }

    /// The shortest round trip.
    pub(super) fn min_ns(&self) -> Option<u64> {
        self.min_ns.map(|(ns, _)| ns)
    }

    /// What may leave now beyond what is in flight. Three packets leave together where the window has many, as those of
    /// a TCP do whose every second one is acknowledged, while its window grows.
    pub(super) fn room(&mut self, now: Instant, in_flight: u64) -> u64 {
        const MANY: u64 = 8;
        const TOGETHER: u64 = 3;
        if self.is_silent {
            self.paced_until = None;
            return if in_flight == 0 { self.mss } else { 0 };
        }
        let window = self.controller.window_bytes();
        let room = window.saturating_sub(in_flight);
        let together = if window < MANY * self.mss || self.is_open { self.mss } else { TOGETHER * self.mss };
        self.is_open = room >= together || in_flight == 0;
        if !self.is_open {
            self.paced_until = None;
            return 0;
        }
        self.paced_until = self.pacer.blocked_until(now);
        if self.paced_until.is_some() { 0 } else { room.max(1) }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.paced_until
    }

    pub(super) fn on_sent(&mut self, now: Instant, bytes: u64) {
        self.controller.on_sent(now, bytes);
        self.pacer.on_sent(now, bytes);
    }

    /// So many bytes came, of which the newest left then that was sent once. Whether that tells that nothing was lost
    /// in the last time-out.
    pub(super) fn on_acked(&mut self, now: Instant, newest_once: Option<Instant>, bytes: u64) -> bool {
        self.is_silent = false;
        let is_undone = self.judge_stall(now, newest_once);
        let newest_sent = newest_once.filter(|sent| *sent >= self.back_at);
        if let Some(sent) = newest_sent {
            self.measure(now, now.ns_since(sent));
        }
        self.newest_acked = self.newest_acked.max(newest_sent);
        // Controllers count packets, which are seldom quite full.
        let packets = ((bytes + self.mss / 2) / self.mss).max(1);
        for packet in 0..packets {
            let bytes = bytes / packets + if packet == 0 { bytes % packets } else { 0 };
            self.controller.on_ack(&SessionAck { now, newest_sent, bytes, deviation_ns: self.deviation_ns });
        }
        is_undone
    }

    /// So many bytes were lost, of which the newest left then.
    pub(super) fn on_lost(&mut self, now: Instant, newest: Instant, bytes: u64) {
        self.controller.on_gone(bytes);
        if self.stalled_at.is_none() && newest >= self.paid_until.max(self.back_at) {
            self.controller.on_loss(now, newest, bytes);
        }
    }

    /// Nothing came for a whole time-out, and so many bytes are taken for lost.
    pub(super) fn on_stall(&mut self, now: Instant, bytes: u64) {
        self.controller.on_gone(bytes);
        if !core::mem::replace(&mut self.is_silent, true) {
            self.stalled_at = Some(now);
            self.controller.on_stall(now);
        }
    }

    /// The path was gone and is back; so many bytes are taken for lost.
    pub(super) fn on_path_back(&mut self, now: Instant, bytes: u64) {
        (self.back_at, self.stalled_at, self.is_silent) = (now, None, false);
        self.controller.on_gone(bytes);
        self.controller.on_stall(now);
    }

    /// After acknowledgements and losses.
    pub(super) fn settle(&mut self, in_flight: u64) {
        self.controller.set_in_flight(in_flight);
        self.set_pace();
    }

    fn set_pace(&mut self) {
        if self.smoothed_ns > 0 {
            let (window, percent) = (self.controller.window_bytes(), self.controller.pacing_percent());
            self.pacer.set_rate(window, self.smoothed_ns, percent, BURST_PACKETS);
        }
    }

    /// A packet is about to be taken.
    pub(crate) fn begin(&mut self) {
        self.newest_acked = None;
    }

    /// Routers marked packets, as one told that was just taken. What it acknowledges says of which round they were (RFC
    /// 9002, section 7.1); whether it did.
    pub(crate) fn on_marked(&mut self, now: Instant) -> bool {
        if let Some(sent) = self.newest_acked {
            self.controller.on_marked(now, sent);
            self.set_pace();
        }
        self.newest_acked.is_some()
    }

    /// The first that came after a stall and was sent once tells whether the path was gone: if it left before, it was
    /// only late (RFC 5682).
    fn judge_stall(&mut self, now: Instant, newest_once: Option<Instant>) -> bool {
        let Some((stalled_at, sent)) = self.stalled_at.zip(newest_once) else { return false };
        self.stalled_at = None;
        let was_late = sent < stalled_at;
        if was_late {
            self.controller.on_stall_undone(now);
        } else {
            self.paid_until = sent;
        }
        was_late
    }

    /// RFC 6298, section 2, which has one sample in a round trip in mind. There is one for each acknowledgement here,
    /// of which the deviation becomes less within a part of one, so time-outs follow the largest of each round trip.
    fn measure(&mut self, now: Instant, sample_ns: u64) {
        let is_old = |at: Instant| now.since(at) > MIN_FOR;
        if self.min_ns.is_none_or(|(ns, at)| sample_ns <= ns || is_old(at)) {
            self.min_ns = Some((sample_ns, now));
        }
        if self.smoothed_ns == 0 {
            (self.smoothed_ns, self.deviation_ns) = (sample_ns.max(1), sample_ns / 2);
            self.widest_ns = self.deviation_ns;
            return;
        }
        self.deviation_ns = (3 * self.deviation_ns + self.smoothed_ns.abs_diff(sample_ns)) / 4;
        self.round_deviation_ns = self.round_deviation_ns.max(self.deviation_ns);
        self.widest_ns = self.widest_ns.max(self.deviation_ns);
        if now >= self.round_ends {
            self.widest_ns -= (self.widest_ns - self.round_deviation_ns) / 4;
            (self.round_deviation_ns, self.round_ends) = (0, now + Duration::from_nanos(self.smoothed_ns));
        }
        self.smoothed_ns = (7 * self.smoothed_ns + sample_ns) / 8;
    }
}
