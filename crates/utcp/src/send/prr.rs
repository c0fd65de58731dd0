//! Proportional rate reduction (RFC 6937 and draft-ietf-tcpm-prr-rfc6937bis): how much may be sent in recovery.
//!
//! 1. Recovery starts with a target, `ssthresh`, and the bytes then in flight, `RecoverFS`.
//! 2. While more than the target is in flight, sending is in proportion to what arrives: `ssthresh` / `RecoverFS`.
//! 3. At or below the target, as much is sent as arrives, and a segment more while acknowledgements advance and nothing
//!    more was found lost (`SafeACK`), but never past the target.

/// The state of one recovery, with the draft's names.
#[derive(Clone, Debug)]
pub(crate) struct Prr {
    ssthresh: u64,
    recover_fs: u64,
    delivered: u64,
    out: u64,
    /// What may be in flight in all from the last acknowledgement on.
    window: u64,
}

/// What one acknowledgement told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrrAck {
    /// Bytes newly acknowledged or SACKed.
    pub delivered: u64,
    /// Bytes in flight after it.
    pub in_flight: u64,
    /// Whether it advanced and nothing new was found lost.
    pub is_safe: bool,
    /// Whether something waits to be sent again.
    pub has_lost: bool,
    /// Whether what waits must not wait any longer: without SACK each partial acknowledgement repairs one segment.
    pub is_partial: bool,
    /// The largest segment.
    pub mss: u64,
}

impl Prr {
    /// A recovery that begins with `in_flight` bytes in the network, lost ones included.
    pub(crate) fn new(ssthresh: u64, in_flight: u64) -> Self {
        Prr { ssthresh, recover_fs: in_flight.max(1), delivered: 0, out: 0, window: 0 }
    }

    /// What may be in flight now.
    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// Counts bytes that were sent in recovery.
    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.out += bytes;
    }

    /// Sets the window after an acknowledgement.
    pub(crate) fn on_ack(&mut self, ack: PrrAck) {
        self.delivered += ack.delivered;
        let mut send = if ack.in_flight > self.ssthresh {
            let due = (u128::from(self.delivered) * u128::from(self.ssthresh))
                .div_ceil(u128::from(self.recover_fs)) as u64;
            // Upwards to whole segments, as where the draft counts segments.
            due.next_multiple_of(ack.mss.max(1)).saturating_sub(self.out)
        } else {
            let mut send = self.delivered.saturating_sub(self.out).max(ack.delivered);
            if ack.is_safe {
                send += ack.mss;
            }
            send.min(self.ssthresh - ack.in_flight)
        };
        if ack.is_partial || self.out == 0 && ack.has_lost {
            // The first retransmission leaves at once: it is what recovery is for.
            send = send.max(ack.mss);
        }
        self.window = ack.in_flight + send;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One hundred segments in flight, the first lost, one acknowledgement for each of the others; sends what it may.
    fn recovery(ssthresh: u64, lost: u64) -> (u64, u64) {
        let mut prr = Prr::new(ssthresh, 100);
        let mut in_flight = 100 - lost;
        let mut sent = 0;
        for arrived in lost..100 {
            in_flight -= 1;
            prr.on_ack(PrrAck {
                delivered: 1,
                in_flight,
                is_safe: false,
                has_lost: true,
                is_partial: false,
                mss: 1,
            });
            let send = prr.window().saturating_sub(in_flight);
            assert!(send <= 2, "a burst of {send} at {arrived}");
            prr.on_sent(send);
            in_flight += send;
            sent += send;
        }
        (sent, in_flight)
    }

    #[test]
    fn one_loss_ends_at_the_target() {
        let (sent, in_flight) = recovery(70, 1);
        assert!((69..=70).contains(&sent), "{sent}");
        assert!((69..=70).contains(&in_flight), "{in_flight}");
    }

    #[test]
    fn many_losses_send_what_arrives() {
        let (sent, in_flight) = recovery(70, 60);
        assert_eq!((sent, in_flight), (40, 40));
    }

    #[test]
    fn safe_acknowledgements_grow_towards_the_target() {
        let mut prr = Prr::new(70, 100);
        let mut in_flight = 10;
        for _ in 0..200 {
            in_flight -= 1;
            prr.on_ack(PrrAck {
                delivered: 1,
                in_flight,
                is_safe: true,
                has_lost: true,
                is_partial: false,
                mss: 1,
            });
            let send = prr.window().saturating_sub(in_flight);
            prr.on_sent(send);
            in_flight += send;
        }
        assert_eq!(in_flight, 70);
    }
}
