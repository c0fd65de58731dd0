//! Which flows a peer has opened, and how fast it may open more.

use super::codec::Malformed;
use crate::allowance::Allowance;
use crate::time::Instant;
use crate::used::UsedNumbers;

/// How many a peer may open, or end unheard of, at once and in each second: as many as there may be at one time, and
/// more than two relays make circuits, for a few hundredths of a processor's time. What is more is dropped, and an
/// honest peer repeats it.
const AT_ONCE: u64 = 1 << 16;
const PER_S: u64 = 5_000;

#[derive(Debug)]
pub(super) struct Openings {
    /// The port ids that the peer used.
    used: UsedNumbers,
    allowance: Allowance,
}

impl Openings {
    /// None yet, of a peer that may have so many flows.
    pub fn new(flows_max: usize) -> Self {
        Openings { used: UsedNumbers::new(flows_max), allowance: Allowance::new(AT_ONCE, PER_S) }
    }

    /// Whether the peer used a port id.
    pub fn was_used(&self, port: u32) -> bool {
        self.used.holds(u64::from(port))
    }

    /// Notes that the peer uses a port id. False when it opens too many, and this is to be dropped.
    pub fn admit(&mut self, now: Instant, port: u32) -> Result<bool, Malformed> {
        if self.was_used(port) {
            return Ok(true);
        }
        if !self.allowance.take(now, 1) {
            return Ok(false);
        }
        match self.used.insert(u64::from(port)) {
            true => Ok(true),
            false => Err(Malformed("port ids are not counted up")),
        }
    }

    pub fn heap_bytes(&self) -> usize {
        self.used.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::S;

    #[test]
    fn a_peer_opens_so_many_at_once_and_in_a_second() {
        let mut openings = Openings::new(1 << 16);
        let mut port = 0;
        let mut open = |now_s: u64, tried: u64| {
            let now = Instant::from_nanos(now_s * S);
            let tries = (0..tried).filter(|_| {
                let admitted = openings.admit(now, port).expect("they are counted up");
                port += u32::from(admitted);
                admitted
            });
            tries.count() as u64
        };
        assert_eq!([open(9, 2 * AT_ONCE), open(9, 1)], [AT_ONCE, 0]);
        assert_eq!([open(10, AT_ONCE), open(12, AT_ONCE)], [PER_S, 2 * PER_S]);
        assert_eq!(open(100, 2 * AT_ONCE), AT_ONCE);
        // What it used already is no opening.
        assert!(
            (0..port).all(|port| openings.admit(Instant::from_nanos(100 * S), port).is_ok_and(|known| known))
        );
    }
}
