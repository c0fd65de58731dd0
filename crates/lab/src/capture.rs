//! What somebody on a wire sees: whole packets, as their senders put them on it, and when.

use std::time::Duration;

/// The most that is kept, with what a packet takes beside its bytes.
const BYTES_MAX: usize = 128 << 20;

/// A packet on a wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Captured {
    /// When.
    pub(crate) at: Duration,
    /// Whether it goes from the first of the wire's two hosts to the second.
    pub(crate) is_there: bool,
    /// It, from its IP header on.
    pub(crate) packet: Vec<u8>,
}

/// The packets of a wire, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Capture {
    packets: Vec<Captured>,
    bytes: usize,
    missed: u64,
}

impl Capture {
    /// Adds a packet that comes after those before, unless there is no room.
    pub(crate) fn add(&mut self, at: Duration, is_there: bool, packet: &[u8]) {
        let bytes = size_of::<Captured>() + packet.len();
        if bytes > BYTES_MAX - self.bytes {
            self.missed += 1;
            return;
        }
        self.bytes += bytes;
        self.packets.push(Captured { at, is_there, packet: packet.to_vec() });
    }

    /// The packets.
    pub(crate) fn packets(&self) -> &[Captured] {
        &self.packets
    }

    /// For how many there was no room.
    pub(crate) fn missed(&self) -> u64 {
        self.missed
    }

    /// The same by a clock that began so long after the one that it has times of.
    pub(crate) fn since(mut self, zero: Duration) -> Capture {
        self.packets.iter_mut().for_each(|captured| captured.at = captured.at.saturating_sub(zero));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_counted_and_not_kept() {
        let mut capture = Capture::default();
        let third = vec![0; BYTES_MAX / 3];
        (0..5).for_each(|second| capture.add(Duration::from_secs(second), true, &third));
        capture.add(Duration::from_secs(9), false, b"short");
        assert_eq!((capture.packets().len(), capture.missed()), (3, 3));
        let capture = capture.since(Duration::from_secs(8));
        let last = capture.packets().last().unwrap();
        assert_eq!((last.at, last.is_there, &*last.packet), (Duration::from_secs(1), false, &b"short"[..]));
    }
}
