//! How a window is reached again that may be too much to send at once: as at startup, but not beyond it.

use super::bundle::Bundle;
use super::path::{Base, Steady};
use super::startup::Told;
use super::{IDLE_MIN, Mode, PACKETS_INITIAL, PACKETS_MIN, Queues, Shared};
use heddle_seam::time::{Duration, Instant};

impl Shared {
    /// The path's own round trip is longer than it was. The window is to be what the path carried before, and to reach
    /// it as at startup.
    pub(super) fn on_longer_path(&mut self, now: Instant, rtt: Duration) {
        self.base = Base::new(now, Some(rtt));
        self.regained = Some(self.packets);
        self.packets = self.packets.max(self.delivery.packets_in(rtt));
        self.rtt = Some(rtt);
        self.forget_queues(now);
        self.tests.ended_at = now;
    }

    /// Nothing was sent for so long. What others send meanwhile is not known, so the window is reached again as at
    /// startup.
    pub(super) fn decay(&mut self, idle: Duration) {
        let halvings = idle.as_secs_f64() / IDLE_MIN.as_secs_f64();
        let decayed = (self.window_packets() * (-halvings.floor()).exp2()).max(PACKETS_INITIAL);
        if matches!(self.mode, Mode::Startup) {
            self.packets = self.packets.min(decayed);
        } else {
            self.regained = Some(decayed).filter(|decayed| *decayed < self.packets);
        }
    }

    /// Of the window no more than so many packets were used for half a second. Where they are less than
    /// half of it, half of what was not used is given up, as RFC 2861, section 3, has it for TCP.
    pub(super) fn validate(&mut self, used: f64) {
        let window = self.window_packets();
        if self.tests.is_testing() || used >= window / 2.0 {
            return;
        }
        let valid = ((window + used) / 2.0).max(PACKETS_INITIAL);
        if matches!(self.mode, Mode::Startup) {
            self.packets = self.packets.min(valid);
        } else if valid < self.packets {
            self.regained = Some(valid);
        }
    }

    /// Nothing arrived for so long that nothing is known of the path any more, its round trip neither: beside that of a
    /// shorter path, what comes now would look like a queue. As after a time-out of TCP's, one packet begins the way to
    /// half of the window (RFC 9002, section 7.6.2; RFC 5681, equation 4), which is halved once, however long nothing
    /// arrives.
    pub(crate) fn restart(&mut self, now: Instant) {
        self.tests.forget_limit();
        if self.regained != Some(PACKETS_MIN) {
            self.packets = (self.window_packets() / 2.0).max(PACKETS_MIN);
        }
        match &self.mode {
            Mode::Startup => self.packets = PACKETS_MIN,
            Mode::Delay => self.regained = Some(PACKETS_MIN),
            Mode::Contend(bundle) => {
                self.mode = Mode::Contend(Bundle::new(now, self.packets, self.tcps(), bundle.curve()));
                self.regained = Some(PACKETS_MIN);
            }
        }
        self.base = Base::new(now, None);
        self.steady = Steady::new(now, Duration::ZERO, 0.0);
        (self.rtt, self.told) = (None, Told::default());
        self.forget_queues(now);
    }

    /// The restart was a mistake: all is as it was before, but for the circuits, and the acknowledgement that is worked
    /// off now, which another one was then.
    pub(crate) fn undo_restart(&mut self, before: Shared) {
        let (wait, flows) = (self.ack_wait, self.flows);
        *self = Shared { flows, ..before };
        self.set_ack_wait(wait);
    }

    /// What was seen of queues was another path's.
    fn forget_queues(&mut self, now: Instant) {
        self.tests.give_up();
        self.queues = Queues { before: Duration::ZERO, short_at: now, long_rounds: 0, packets_before: 0.0 };
    }

    /// So many bytes arrived, of which some left more than once and so tell of no round trip. After a change of the
    /// path what is lost is most of what is sent, and the window opens with it all the same, as TCP's does.
    pub(crate) fn regain(&mut self, bytes: u64) {
        if let Some(regained) = self.regained.filter(|_| self.is_used()) {
            let regained = regained + bytes as f64 / self.packet_bytes;
            self.regained = Some(regained).filter(|regained| *regained < self.packets);
        }
    }

    /// A loss while we contend ends the way back to the window: what was reached is the window.
    pub(super) fn stop_regaining(&mut self, sent: Instant) {
        let tcps = self.tcps();
        if let Mode::Contend(bundle) = &mut self.mode
            && let Some(reached) = self.regained.take()
        {
            *bundle = Bundle::new(sent, reached, tcps, bundle.curve());
        }
    }
}
