//! How large the receive buffer is: twice what the application reads in a round trip, and more while that grows, as
//! Linux' dynamic right-sizing has it. So it is never what limits a sender whose data is read, and never much larger.

use crate::options::Options;
use crate::time::{Instant, MS};

/// The longest round trip that is believed.
const RTT_MAX_NS: u64 = 2_000 * MS;

/// The state of the right-sizing.
#[derive(Clone, Debug)]
pub(crate) struct Autotune {
    /// The present size of the buffer.
    pub(crate) limit_bytes: u64,
    /// The round trip as the receiver sees it.
    rtt_ns: Option<u64>,
    /// A measurement by windows: it began then and ends when this is received. Zero before the first data.
    window_began: Instant,
    window_end: u64,
    /// A round of reading: it began then, at this position.
    round_began: Instant,
    round_read: u64,
    /// The most that was read in a round.
    most_bytes: u64,
}

impl Autotune {
    pub(crate) fn new(options: &Options, now: Instant, next: u64) -> Self {
        Autotune {
            limit_bytes: u64::from(options.receive_buffer_initial_bytes),
            rtt_ns: None,
            window_began: now,
            window_end: 0,
            round_began: now,
            round_read: next,
            most_bytes: u64::from(options.receive_buffer_initial_bytes) / 2,
        }
    }

    /// Takes a round trip that timestamps or the handshake measured.
    pub(crate) fn on_rtt(&mut self, sample_ns: u64) {
        let sample_ns = sample_ns.clamp(1, RTT_MAX_NS);
        self.rtt_ns = Some(self.rtt_ns.map_or(sample_ns, |rtt_ns| rtt_ns - rtt_ns / 8 + sample_ns / 8));
    }

    /// Data came; without other measurements a window's worth of it takes at least a round trip.
    pub(crate) fn on_data(&mut self, now: Instant, next: u64, window_bytes: u64, has_timestamps: bool) {
        if has_timestamps || next < self.window_end {
            return;
        }
        let took_ns = now.ns_since(self.window_began).clamp(1, RTT_MAX_NS);
        if self.window_end > 0 {
            self.rtt_ns = Some(self.rtt_ns.map_or(took_ns, |rtt_ns| rtt_ns.min(took_ns)));
        }
        self.window_began = now;
        // With the first data nothing may have been offered yet, and what is not offered takes no round trip.
        self.window_end = next + window_bytes.max(self.limit_bytes);
    }

    /// The application has read up to `read`. Once in a round trip, if that was more than ever, gives how large the
    /// buffer should be.
    pub(crate) fn on_read(&mut self, now: Instant, read: u64, mss: u64, max_bytes: u64) -> Option<u64> {
        let rtt_ns = self.rtt_ns.filter(|rtt_ns| now.ns_since(self.round_began) >= *rtt_ns)?;
        let mut wanted = None;
        let bytes = read - self.round_read;
        // A pause makes a round long; only what a round trip holds counts.
        let is_one_round = now.ns_since(self.round_began) < 2 * rtt_ns + MS;
        if bytes > self.most_bytes && is_one_round {
            let target = 2 * bytes + 16 * mss;
            let growth =
                u128::from(target) * u128::from(bytes - self.most_bytes) / u128::from(self.most_bytes);
            let target = u128::from(target) + 2 * growth;
            let target = u64::try_from(target).unwrap_or(max_bytes).min(max_bytes);
            wanted = Some(target).filter(|target| *target > self.limit_bytes);
            self.most_bytes = bytes;
        }
        self.round_began = now;
        self.round_read = read;
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_in_a_syn_measures_no_round_trip() {
        let mut now = Instant::from_nanos(MS);
        let mut tune = Autotune::new(&Options::default(), now, 1000);
        // Nothing was offered when the first bytes came, and the next ones follow at once.
        tune.on_data(now, 1510, 0, false);
        now = now.plus_ns(MS / 10);
        tune.on_data(now, 2020, 64 << 10, false);
        assert_eq!(tune.rtt_ns, None);
        now = now.plus_ns(50 * MS);
        tune.on_data(now, 2020 + (64 << 10), 64 << 10, false);
        assert_eq!(tune.rtt_ns, Some(50 * MS + MS / 10));
    }

    #[test]
    fn the_buffer_follows_what_is_read() {
        let options = Options::default();
        let mut tune = Autotune::new(&options, Instant::ZERO, 0);
        tune.on_rtt(100 * MS);
        let (mut read, mut now) = (0, Instant::ZERO);
        for round in 1..=20u64 {
            // Doubles in each round trip, up to 1 MB.
            let bytes = (10_000u64 << round).min(1_000_000);
            read += bytes;
            now = now.plus_ns(100 * MS);
            let wanted = tune.on_read(now, read, 1460, u64::from(options.receive_buffer_max_bytes));
            tune.limit_bytes = wanted.unwrap_or(tune.limit_bytes);
            assert!(tune.limit_bytes > 2 * bytes || tune.limit_bytes == 64 << 10, "{round}");
        }
        assert!((2_000_000..=6 << 20).contains(&tune.limit_bytes), "{}", tune.limit_bytes);
    }
}
