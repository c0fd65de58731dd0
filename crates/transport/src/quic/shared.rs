//! The [`Shared`] controller as quinn-proto wants one.

use super::gauge::Gauge;
use super::lateness::Lateness;
use crate::congestion::{Ceiling, Shared};
use core::any::Any;
use core::time::Duration;
use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};
use std::sync::Arc;
use std::time::Instant;

#[derive(Clone)]
struct SharedOfQuinn {
    gauge: Arc<Gauge>,
    shared: Shared,
    lateness: Lateness,
    time_threshold: f32,
    packet_bytes: u16,
    /// Whether it was told what the gauge knows, which does not change while one acknowledgement is worked off.
    has_looked: bool,
    /// When the last packets were acknowledged and sent: one acknowledgement is of many, of which many left together.
    acked_at: Translated,
    sent_at: Translated,
}

/// The last time of quinn-proto's that was translated into ours, and what it is.
#[derive(Clone, Copy)]
struct Translated {
    quinn: Instant,
    ours: heddle_seam::time::Instant,
}

impl Translated {
    fn new(gauge: &Gauge, quinn: Instant) -> Self {
        Translated { quinn, ours: gauge.ours(quinn) }
    }

    fn translate(&mut self, gauge: &Gauge, quinn: Instant) -> heddle_seam::time::Instant {
        if self.quinn != quinn {
            *self = Translated::new(gauge, quinn);
        }
        self.ours
    }
}

impl SharedOfQuinn {
    /// Tells it what the gauge knows.
    fn look(&mut self) {
        self.shared.set_flows(self.gauge.flows());
        self.shared.set_rtt_deviation(self.gauge.rtt_deviation());
        self.shared.set_ack_wait(self.gauge.ack_wait());
    }
}

impl Controller for SharedOfQuinn {
    fn on_sent(&mut self, now: Instant, bytes: u64, _last_packet_number: u64) {
        // What did not ask for the window acknowledges, and no loss of it is told; or it probes, and is too little to
        // count.
        if self.gauge.asked() > 0 {
            self.shared.on_sent(self.gauge.ours(now), bytes);
        }
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, _app_limited: bool, rtt: &RttEstimator) {
        if !core::mem::replace(&mut self.has_looked, true) {
            self.look();
        }
        self.lateness.on_ack(now, sent, rtt.get(), rtt.conservative(), self.time_threshold);
        let (acked_at, sent_at) =
            (self.acked_at.translate(&self.gauge, now), self.sent_at.translate(&self.gauge, sent));
        self.shared.on_acked(acked_at, sent_at, bytes);
    }

    fn on_end_acks(&mut self, _now: Instant, in_flight: u64, _app_limited: bool, _largest: Option<u64>) {
        self.shared.set_in_flight(in_flight);
        self.has_looked = false;
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent: bool, lost_bytes: u64) {
        self.look();
        let (at, sent) = (self.gauge.ours(now), self.gauge.ours(sent));
        if lost_bytes == 0 && !is_persistent {
            // quinn-proto tells so that a router marked packets instead of dropping them (RFC 9002, section 7.1).
            self.shared.on_marked(at, sent);
        }
        self.shared.on_gone(self.lateness.surely_lost(lost_bytes));
        let believed = self.lateness.believed(lost_bytes, self.packet_bytes);
        if believed > 0 {
            self.shared.on_lost(at, sent, believed);
        }
        if is_persistent {
            self.shared.restart(at);
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.packet_bytes = new_mtu;
        self.shared.set_packet_bytes(new_mtu);
    }

    fn window(&self) -> u64 {
        self.shared.window_bytes()
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.window();
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.shared.initial_window_bytes()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Makes the controllers of one connection.
pub(super) struct SharedFactory {
    pub(super) gauge: Arc<Gauge>,
    pub(super) ceiling: Ceiling,
    /// After which share of a round trip packets are called lost.
    pub(super) time_threshold: f32,
    /// What the peer is asked to put acknowledgements off by at most.
    pub(super) ack_delay: Duration,
}

impl ControllerFactory for SharedFactory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let shared = Shared::new(self.gauge.ours(now), current_mtu, self.ack_delay, self.ceiling.clone());
        Box::new(SharedOfQuinn {
            gauge: self.gauge.clone(),
            shared,
            lateness: Lateness::default(),
            time_threshold: self.time_threshold,
            packet_bytes: current_mtu,
            has_looked: false,
            acked_at: Translated::new(&self.gauge, now),
            sent_at: Translated::new(&self.gauge, now),
        })
    }
}
