//! When an acknowledgement is sent (RFC 9293, section 3.8.6.3; RFC 5681, section 4.2).
//!
//! At once: for data out of order, for duplicates, for FIN, for more than one full segment, and for everything while
//! the peer is in its first slow start, as Linux does ("quickack"). Otherwise after a delay.

use crate::options::Options;
use crate::time::{Instant, S};

/// How many acknowledgements in a row are not delayed at the start and after a pause.
const QUICK: u8 = 16;
/// How long nothing came before the peer is expected in slow start again.
const PAUSE_NS: u64 = S;

/// The acknowledgement that is owed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Owed {
    #[default]
    Nothing,
    By(Instant),
    Now,
}

/// The policy's state.
#[derive(Clone, Debug)]
pub(crate) struct Acks {
    owed: Owed,
    quick: u8,
    /// The longest payload seen: what a full segment is.
    full_bytes: u16,
    last_data: Instant,
    /// What the last acknowledgement said.
    pub(crate) acknowledged: u64,
}

impl Acks {
    pub(crate) fn new(next: u64) -> Self {
        Acks {
            owed: Owed::Nothing,
            quick: QUICK,
            full_bytes: 0,
            last_data: Instant::ZERO,
            acknowledged: next,
        }
    }

    /// Owes an acknowledgement at once.
    pub(crate) fn now(&mut self) {
        self.owed = Owed::Now;
    }

    /// Data in order came, `next` is now expected.
    pub(crate) fn on_data(&mut self, now: Instant, options: &Options, payload_bytes: usize, next: u64) {
        if now.ns_since(self.last_data) > PAUSE_NS {
            self.quick = QUICK;
        }
        self.last_data = now;
        self.full_bytes = self.full_bytes.max(u16::try_from(payload_bytes).unwrap_or(u16::MAX));
        let waiting = next.saturating_sub(self.acknowledged);
        let patience = u64::from(options.ack_every_segments - 1) * u64::from(self.full_bytes);
        if self.quick > 0 || waiting > patience {
            self.owed = Owed::Now;
        } else if self.owed == Owed::Nothing {
            self.owed = Owed::By(now.plus_ns(options.ack_delay_ns));
        }
    }

    /// An acknowledgement of everything below `next` leaves.
    pub(crate) fn on_sent(&mut self, next: u64) {
        if self.owed != Owed::Nothing {
            self.quick = self.quick.saturating_sub(1);
        }
        self.owed = Owed::Nothing;
        self.acknowledged = next;
    }

    /// Whether something came that no acknowledgement told of.
    pub(crate) fn is_owed(&self) -> bool {
        self.owed != Owed::Nothing
    }

    /// Whether an acknowledgement has to leave now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        match self.owed {
            Owed::Nothing => false,
            Owed::By(at) => at <= now,
            Owed::Now => true,
        }
    }

    /// When a delayed one is due.
    pub(crate) fn timer(&self) -> Option<Instant> {
        match self.owed {
            Owed::By(at) => Some(at),
            Owed::Nothing | Owed::Now => None,
        }
    }
}
