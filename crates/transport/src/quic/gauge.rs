//! What quinn-proto keeps to itself and a connection must know: bytes in flight, when the peer last acknowledged
//! something, and whether anything wanted to leave.
//!
//! Every controller is wrapped in [`Gauged`], which passes each call on and takes notes in a [`Gauge`] that the
//! connection reads. A controller of ours reads from it how many circuits it stands for.

use super::frames::OfPacket;
use crate::congestion::WayBack;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use core::time::Duration;
use heddle_utcp::congestion::AckWait;
use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// What one flow is in [`Gauge::flows_256`].
const ONE_FLOW: u32 = 256;

/// The notes. Times are nanoseconds after the anchor. The connection and its controller are called by one thread, so no
/// order between the fields is needed, nor any change of a field at once; they are atomic because quinn wants
/// controllers to be `Sync`.
#[derive(Debug)]
pub(super) struct Gauge {
    anchor: Instant,
    /// Bytes of packets that await an acknowledgement.
    in_flight: AtomicU64,
    /// Since when something has been in flight without any acknowledgement; `NEVER` when nothing is.
    waiting_since_ns: AtomicU64,
    /// When something left last that is to be acknowledged, probes aside; and when the newest left that was.
    sent_at_ns: AtomicU64,
    acked_sent_at_ns: AtomicU64,
    lost_bytes: AtomicU64,
    /// Times that the window was asked for since the connection looked, which quinn does when something wants to leave.
    asked: AtomicU32,
    /// By how much the window may be exceeded right now; 0 at all other times.
    overdraft_bytes: AtomicU64,
    smoothed_rtt_ns: AtomicU64,
    rtt_deviation_ns: AtomicU64,
    /// Circuits that the connection stands for now, times [`ONE_FLOW`].
    flows_256: AtomicU32,
    /// When the datagram arrived that is worked off, and whether it is the peer's, which its seal tells, and newer than
    /// all before: anybody can repeat one, and copies are opened before they are told apart. The numbers of a handshake
    /// count with the others, so of the first few some seem old.
    arrived_at_ns: AtomicU64,
    is_new: AtomicBool,
    /// One more than the greatest number of all.
    next_number: AtomicU64,
    /// Nobody else ever holds the lock.
    stamped: Mutex<Stamped>,
}

/// What the peer's stamps tell.
#[derive(Debug, Default)]
struct Stamped {
    way_back: WayBack,
    /// What the acknowledgement waited that came last.
    wait: AckWait,
    /// The number of the newest packet with a stamp: packets are opened before copies of them are told apart, and
    /// anybody can repeat one.
    newest: Option<u64>,
}

impl Stamped {
    fn on_packet(&mut self, now: heddle_seam::time::Instant, number: u64, packet: OfPacket) {
        let stamp = packet.stamp.filter(|_| self.newest.is_none_or(|newest| number > newest));
        if stamp.is_some() {
            self.newest = Some(number);
        }
        self.wait = self.way_back.on_packet(now, stamp, packet.put_off);
    }
}

/// Why no packet leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hindrance {
    /// There is none to send.
    Nothing,
    Window,
    Pace,
}

const NEVER: u64 = u64::MAX;

impl Gauge {
    pub(super) fn new(anchor: Instant) -> Self {
        Gauge {
            anchor,
            in_flight: AtomicU64::new(0),
            waiting_since_ns: AtomicU64::new(NEVER),
            sent_at_ns: AtomicU64::new(0),
            acked_sent_at_ns: AtomicU64::new(0),
            lost_bytes: AtomicU64::new(0),
            asked: AtomicU32::new(0),
            overdraft_bytes: AtomicU64::new(0),
            smoothed_rtt_ns: AtomicU64::new(0),
            rtt_deviation_ns: AtomicU64::new(0),
            flows_256: AtomicU32::new(ONE_FLOW),
            arrived_at_ns: AtomicU64::new(0),
            is_new: AtomicBool::new(false),
            next_number: AtomicU64::new(0),
            stamped: Mutex::default(),
        }
    }

    /// Since when the peer owes us an acknowledgement.
    pub(super) fn waiting_since_ns(&self) -> Option<u64> {
        Some(self.waiting_since_ns.load(Relaxed)).filter(|since| *since != NEVER)
    }

    /// So much of the time since then does not count, because nobody looked whether one had come.
    pub(super) fn forgive(&self, now: heddle_seam::time::Instant, late: Duration) {
        if let Some(since_ns) = self.waiting_since_ns() {
            let late_ns = u64::try_from(late.as_nanos()).unwrap_or(NEVER / 2);
            self.waiting_since_ns.store(since_ns.saturating_add(late_ns).min(now.as_nanos()), Relaxed);
        }
    }

    /// Bytes of packets that await an acknowledgement.
    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight.load(Relaxed)
    }

    /// Bytes found lost since this was last called.
    pub(super) fn take_lost_bytes(&self) -> u64 {
        let lost = self.lost_bytes.load(Relaxed);
        self.lost_bytes.store(0, Relaxed);
        lost
    }

    /// Whether the latest that left is not acknowledged after a round trip. quinn-proto sends no probe before.
    pub(super) fn is_overdue(&self, now: heddle_seam::time::Instant, rtt: Duration) -> bool {
        let sent_at_ns = self.sent_at_ns.load(Relaxed);
        let sent_at = heddle_seam::time::Instant::from_nanos(sent_at_ns);
        self.acked_sent_at_ns.load(Relaxed) < sent_at_ns && now.since(sent_at) >= rtt
    }

    /// How often the window was asked for, as [`Gauge::take_hindrance`] counts.
    pub(super) fn asked(&self) -> u32 {
        self.asked.load(Relaxed)
    }

    /// What held packets back since this was last called.
    pub(super) fn take_hindrance(&self) -> Hindrance {
        let asked = self.asked.load(Relaxed);
        self.asked.store(0, Relaxed);
        // quinn compares the window with what is in flight, and then gives it to its pacer.
        match asked {
            0 => Hindrance::Nothing,
            1 => Hindrance::Window,
            _ => Hindrance::Pace,
        }
    }

    /// Lets packets leave until so many bytes more are in flight than are now, whatever the window; 0 ends it.
    pub(super) fn overdraw(&self, bytes: u64) {
        self.overdraft_bytes.store(bytes, Relaxed);
    }

    /// The window while it may be exceeded.
    fn overdrawn(&self, window: u64) -> u64 {
        match self.overdraft_bytes.load(Relaxed) {
            0 => window,
            bytes => window.max(self.in_flight() + bytes),
        }
    }

    /// How long a probe waits for its acknowledgement (RFC 9002, section 6.2.1), or `None` before the first sample.
    pub(super) fn probe_timeout(&self) -> Option<Duration> {
        /// What a peer may put an acknowledgement off by; quinn's default, and ours.
        const ACK_DELAY_MAX_NS: u64 = 25_000_000;
        const GRANULARITY_NS: u64 = 1_000_000;
        let smoothed = self.smoothed_rtt_ns.load(Relaxed);
        let deviation = self.rtt_deviation_ns.load(Relaxed);
        let timeout = smoothed + (4 * deviation).max(GRANULARITY_NS) + ACK_DELAY_MAX_NS;
        (smoothed > 0).then(|| Duration::from_nanos(timeout))
    }

    /// How much round trips differ from one another (`rttvar` of RFC 9002).
    pub(super) fn rtt_deviation(&self) -> Duration {
        Duration::from_nanos(self.rtt_deviation_ns.load(Relaxed))
    }

    /// The connection stands for so many circuits, one at least.
    pub(super) fn set_flows(&self, flows: f64) {
        self.flows_256.store(((flows * f64::from(ONE_FLOW)) as u32).max(ONE_FLOW), Relaxed);
    }

    /// Circuits that the connection stands for, at least one.
    pub(super) fn flows(&self) -> f64 {
        f64::from(self.flows_256.load(Relaxed)) / f64::from(ONE_FLOW)
    }

    /// A datagram arrived, and is opened next.
    pub(super) fn on_datagram(&self, now: heddle_seam::time::Instant) {
        self.arrived_at_ns.store(now.as_nanos(), Relaxed);
        self.is_new.store(false, Relaxed);
    }

    /// The packet of that number is opened, in which the peer may say when it sent it, and by how much it put an
    /// acknowledgement off.
    pub(super) fn on_opened(&self, number: u64, packet: OfPacket) {
        let now = heddle_seam::time::Instant::from_nanos(self.arrived_at_ns.load(Relaxed));
        if self.next_number.fetch_max(number.saturating_add(1), Relaxed) <= number {
            self.is_new.store(true, Relaxed);
        }
        self.stamped.lock().unwrap_or_else(PoisonError::into_inner).on_packet(now, number, packet);
    }

    /// Whether the datagram that arrived last is the peer's, and newer than all before.
    pub(super) fn is_new(&self) -> bool {
        self.is_new.load(Relaxed)
    }

    /// What the acknowledgement waited that is worked off.
    pub(super) fn ack_wait(&self) -> AckWait {
        self.stamped.lock().unwrap_or_else(PoisonError::into_inner).wait
    }

    /// quinn-proto's time as ours.
    pub(super) fn ours(&self, at: Instant) -> heddle_seam::time::Instant {
        heddle_seam::time::Instant::from_nanos(self.ns(at))
    }

    fn ns(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.anchor).as_nanos()).unwrap_or(NEVER - 1)
    }

    /// Something left. What did not ask for the window only acknowledges, or probes when something is in flight anyhow.
    fn on_sent(&self, now: Instant, bytes: u64) {
        if self.asked.load(Relaxed) == 0 {
            return;
        }
        let in_flight = self.in_flight.load(Relaxed);
        self.in_flight.store(in_flight + bytes, Relaxed);
        self.sent_at_ns.store(self.ns(now), Relaxed);
        if in_flight == 0 {
            self.waiting_since_ns.store(self.ns(now), Relaxed);
        }
    }

    fn on_end_acks(&self, now: Instant, in_flight: u64) {
        self.in_flight.store(in_flight, Relaxed);
        let waiting_since = if in_flight == 0 { NEVER } else { self.ns(now) };
        self.waiting_since_ns.store(waiting_since, Relaxed);
    }

    fn on_lost(&self, bytes: u64) {
        self.lost_bytes.store(self.lost_bytes.load(Relaxed) + bytes, Relaxed);
        let in_flight = self.in_flight.load(Relaxed);
        self.in_flight.store(in_flight.saturating_sub(bytes), Relaxed);
    }

    fn on_rtt(&self, sample: Duration) {
        let sample = u64::try_from(sample.as_nanos()).unwrap_or(NEVER / 16).min(NEVER / 16);
        let smoothed = self.smoothed_rtt_ns.load(Relaxed);
        if smoothed == 0 {
            self.smoothed_rtt_ns.store(sample.max(1), Relaxed);
            self.rtt_deviation_ns.store(sample / 2, Relaxed);
            return;
        }
        let deviation = self.rtt_deviation_ns.load(Relaxed);
        self.rtt_deviation_ns.store((3 * deviation + smoothed.abs_diff(sample)) / 4, Relaxed);
        self.smoothed_rtt_ns.store((7 * smoothed + sample) / 8, Relaxed);
    }
}

/// A controller with a gauge.
struct Gauged {
    controller: Box<dyn Controller>,
    gauge: Arc<Gauge>,
    /// When the newest acknowledged packet of the batch was sent: one sample of the round trip for each batch.
    newest_sent: Option<Instant>,
}

impl Controller for Gauged {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.gauge.on_sent(now, bytes);
        self.controller.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.newest_sent = self.newest_sent.max(Some(sent));
        self.controller.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest: Option<u64>) {
        if let Some(sent) = self.newest_sent.take() {
            self.gauge.acked_sent_at_ns.store(self.gauge.ns(sent), Relaxed);
            self.gauge.on_rtt(now.saturating_duration_since(sent));
        }
        self.gauge.on_end_acks(now, in_flight);
        self.controller.on_end_acks(now, in_flight, app_limited, largest);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent: bool, lost_bytes: u64) {
        self.gauge.on_lost(lost_bytes);
        self.controller.on_congestion_event(now, sent, is_persistent, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.controller.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.gauge.asked.store(self.gauge.asked.load(Relaxed).saturating_add(1), Relaxed);
        self.gauge.overdrawn(self.controller.window())
    }

    fn metrics(&self) -> ControllerMetrics {
        self.controller.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        let controller = self.controller.clone_box();
        Box::new(Gauged { controller, gauge: self.gauge.clone(), newest_sent: self.newest_sent })
    }

    fn initial_window(&self) -> u64 {
        self.controller.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Makes the controllers of one connection, which share its gauge.
pub(super) struct GaugedFactory {
    pub(super) factory: Arc<dyn ControllerFactory + Send + Sync>,
    pub(super) gauge: Arc<Gauge>,
}

impl ControllerFactory for GaugedFactory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let controller = self.factory.clone().build(now, current_mtu);
        Box::new(Gauged { controller, gauge: self.gauge.clone(), newest_sent: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_seam::time::Instant;

    #[test]
    fn a_copy_of_a_stamped_packet_says_nothing() {
        let at = |ms| Instant::ZERO + Duration::from_millis(1000 + ms);
        let mut stamped = Stamped::default();
        let mut wait = |ms: u64, number: u64, stamp_ms: Option<u32>| {
            let stamp = stamp_ms.map(|ms| ms * 1000);
            stamped.on_packet(at(ms), number, OfPacket { stamp, ..OfPacket::default() });
            (stamped.wait.waited.as_millis(), stamped.wait.is_peer_stamping)
        };
        assert_eq!(wait(20, 7, Some(0)), (0, true));
        assert_eq!(wait(50, 8, Some(20)), (10, true));
        assert_eq!(wait(60, 7, Some(0)), (0, true));
        assert_eq!(wait(549, 8, Some(20)), (0, true));
        assert_eq!(wait(550, 8, Some(20)), (0, false));
        assert_eq!(wait(600, 9, Some(550)), (30, true));
    }
}
