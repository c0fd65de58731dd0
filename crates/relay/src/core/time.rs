//! Time passes.

use super::Core;
use heddle_seam::node::SocketId;
use heddle_seam::time::{Duration, Instant};

impl Core {
    /// When [`Core::on_timeout`] is to be called, or the operator's rates allow more.
    pub fn next_timeout(&self) -> Option<Instant> {
        let unread = self.streams.has_unread().then_some(self.now);
        let late = self.jobs.next_late();
        let session = self.sessions.next_timeout();
        let forced = self.forced_due();
        [
            self.rates.waiting_until(),
            self.runs.next(),
            self.streams.next_wake(),
            session,
            unread,
            late,
            forced,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Streams that waited go on, onionskins wait no longer than they may, and what was forced at places is told.
    pub fn on_timeout(&mut self) {
        self.refuse_late_onionskins();
        self.list_for_run();
        self.wake_streams();
        self.wake_sessions();
        self.go_on_reading();
        if self.forced_due().is_some_and(|due| due <= self.now) {
            self.tell_forced();
        }
    }

    /// Once a second: what took too long ends.
    pub fn on_tick(&mut self) {
        self.drop_late_leftovers();
        self.forget_who_waited();
        self.end_late_connects();
        self.end_idle_circuits();
        self.end_late_creates();
        self.table.ask_for_credit(self.now);
    }

    /// Once a second, after that: dials that took too long end. Returns their sockets, and those of channels that
    /// nobody needs.
    pub fn end_unused(&mut self) -> Vec<SocketId> {
        let mut sockets = self.end_late_dials();
        let mean_s = self.params.get("nf_conntimeout_relays", 3600, 60, 7 * 24 * 3600).unsigned_abs();
        let mean = Duration::from_secs(mean_s.into());
        // Nobody may take all places with channels that carry nothing.
        let are_many = self.admission.channels_are_many();
        sockets.extend(self.links.idle_channels(self.now, mean, are_many, |link| self.table.is_idle(link)));
        sockets
    }
}
