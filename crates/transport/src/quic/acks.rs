//! When acknowledgements leave that have no data to go with.

use heddle_proto::time::{Duration, Instant};

/// Nothing but acknowledgements and credit leaves this soon after the last datagram: in a fast stream that saves a call to
/// the kernel at both ends for each batch. Where packets are further apart, each is acknowledged as it would be.
const APART: Duration = Duration::from_millis(1);

/// What is known of a connection's acknowledgements.
#[derive(Debug)]
pub(super) struct Acks {
    /// Whether nothing happened but that datagrams came, so that there may be nothing else to send.
    only_heard: bool,
    /// When the last datagram left.
    sent_at: Instant,
    put_off_until: Option<Instant>,
}

impl Acks {
    pub(super) fn new(now: Instant) -> Self {
        Acks { only_heard: false, sent_at: now, put_off_until: None }
    }

    pub(super) fn on_heard(&mut self) {
        self.only_heard = true;
    }

    /// Datagrams left, and acknowledgements with them.
    pub(super) fn on_sent(&mut self, now: Instant) {
        self.on_news();
        self.sent_at = now;
    }

    /// There may be something else to send: a timer fired, or the relay gave a cell. It may be a DESTROY, which does not
    /// count as cells that have yet to leave.
    pub(super) fn on_news(&mut self) {
        (self.only_heard, self.put_off_until) = (false, None);
    }

    /// Whether it is too soon to send what there is, provided that no cell has yet to leave.
    pub(super) fn are_put_off(&mut self, now: Instant) -> bool {
        let due = self.sent_at + APART;
        let nothing_else = core::mem::take(&mut self.only_heard) || self.put_off_until.is_some();
        self.put_off_until = (nothing_else && now < due).then_some(due);
        self.put_off_until.is_some()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.put_off_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn they_wait_for_a_millisecond_and_no_longer() {
        let mut acks = Acks::new(Instant::ZERO);
        let start = Instant::ZERO + 10 * MS;
        acks.on_heard();
        assert!(!acks.are_put_off(start), "nothing left lately");
        acks.on_sent(start);
        assert!(!acks.are_put_off(start), "nothing came since");
        acks.on_heard();
        for since in [MS / 4, MS / 2] {
            assert!(acks.are_put_off(start + since));
            assert_eq!(acks.poll_timeout(), Some(start + MS));
        }
        assert!(!acks.are_put_off(start + MS));
        assert_eq!(acks.poll_timeout(), None);
    }

    #[test]
    fn they_go_with_whatever_else_there_is() {
        let mut acks = Acks::new(Instant::ZERO);
        acks.on_heard();
        assert!(acks.are_put_off(Instant::ZERO));
        acks.on_news();
        assert!(!acks.are_put_off(Instant::ZERO));
    }
}
