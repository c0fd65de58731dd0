//! The [`Shared`] controller as the flows of a session want one: those of tcp-dtls, and the association of sctp-dtls.

use crate::congestion::{Ceiling, Shared};
use heddle_seam::time::{Duration, Instant};
use heddle_utcp::congestion::{AckWait, SessionAck, SessionController};

const WINDOW_SEGMENTS_MIN: u64 = 2;

#[derive(Debug)]
pub(crate) struct SharedOfSession {
    shared: Shared,
    mss_bytes: u64,
    /// What it was before the last stall.
    before_stall: Option<Box<Shared>>,
}

impl SharedOfSession {
    /// For flows whose segments have so many bytes at most, and whose peer puts acknowledgements off by `ack_delay`.
    pub(crate) fn new(now: Instant, mss_bytes: u16, ack_delay: Duration, ceiling: Ceiling) -> Self {
        let shared = Shared::new(now, mss_bytes, ack_delay, ceiling);
        SharedOfSession { shared, mss_bytes: mss_bytes.into(), before_stall: None }
    }
}

impl SessionController for SharedOfSession {
    /// Two segments at least (RFC 9002, section 7.2): with one, a single lost cell keeps all other flows waiting for
    /// its time-out.
    fn window_bytes(&self) -> u64 {
        self.shared.window_bytes().max(WINDOW_SEGMENTS_MIN * self.mss_bytes)
    }

    fn pacing_percent(&self) -> u64 {
        if self.shared.is_starting() { 200 } else { 125 }
    }

    fn set_mss_bytes(&mut self, mss_bytes: u16) {
        self.mss_bytes = mss_bytes.into();
        let before = self.before_stall.iter_mut().map(|before| &mut **before);
        before.chain([&mut self.shared]).for_each(|shared| shared.set_packet_bytes(mss_bytes));
    }

    fn set_busy_flows(&mut self, flows: f64) {
        self.shared.set_flows(flows);
    }

    fn on_sent(&mut self, now: Instant, bytes: u64) {
        self.shared.on_sent(now, bytes);
    }

    fn set_ack_wait(&mut self, wait: AckWait) {
        self.shared.set_ack_wait(wait);
    }

    fn on_ack(&mut self, ack: &SessionAck) {
        self.shared.set_rtt_deviation(Duration::from_nanos(ack.deviation_ns));
        if let Some(sent) = ack.newest_sent {
            // It counts packets, and one acknowledgement is of two or more.
            let packets = (ack.bytes / self.mss_bytes).max(1);
            for _ in 0..packets {
                self.shared.on_acked(ack.now, sent, ack.bytes / packets);
            }
        } else {
            self.shared.regain(ack.bytes);
        }
    }

    fn set_in_flight(&mut self, bytes: u64) {
        self.shared.set_in_flight(bytes);
    }

    fn on_loss(&mut self, now: Instant, sent: Instant, bytes: u64) {
        self.shared.on_lost(now, sent, bytes);
    }

    fn on_gone(&mut self, bytes: u64) {
        self.shared.on_gone(bytes);
    }

    fn on_marked(&mut self, now: Instant, sent: Instant) {
        self.shared.on_marked(now, sent);
    }

    fn on_probe(&mut self, now: Instant, round_trip_ns: u64) {
        self.shared.on_probe(now, Duration::from_nanos(round_trip_ns));
    }

    fn on_stall(&mut self, now: Instant) {
        self.before_stall = Some(Box::new(self.shared.clone()));
        self.shared.restart(now);
    }

    fn on_stall_undone(&mut self, _now: Instant) {
        if let Some(before) = self.before_stall.take() {
            self.shared.undo_restart(*before);
        }
    }
}
