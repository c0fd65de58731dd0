//! When a bulk stream is steady.

use std::collections::VecDeque;

/// Seconds in each of the two windows that are compared.
const WINDOW: usize = 3;
/// How far the means of two windows may be apart, as a part of the earlier one.
const TOLERANCE: f64 = 0.1;
/// How far they may be apart in any case, in milliseconds: the noise of an idle network.
const TOLERANCE_MS: f64 = 2.0;

/// The rule by which a stream is steady.
///
/// The thesis (section 4.3) goes by the delay of the stream, which "will continue to increase until
/// it reaches its natural value". Here it has reached it at the end of the first second for which
/// the mean delay of the last three seconds differs by at most a tenth, or by at most 2 ms, from the
/// mean of the three before. A second without data starts the six seconds anew.
#[derive(Clone, Debug, Default)]
pub struct Steady {
    delays_ms: VecDeque<f64>,
}

impl Steady {
    /// Takes the mean delay of one more second, if any data came in it, and says whether the stream
    /// is steady now.
    pub fn push(&mut self, delay_ms: Option<f64>) -> bool {
        let Some(delay_ms) = delay_ms else {
            self.delays_ms.clear();
            return false;
        };
        if self.delays_ms.len() == 2 * WINDOW {
            self.delays_ms.pop_front();
        }
        self.delays_ms.push_back(delay_ms);
        if self.delays_ms.len() < 2 * WINDOW {
            return false;
        }
        let before = self.delays_ms.iter().take(WINDOW).sum::<f64>() / WINDOW as f64;
        let after = self.delays_ms.iter().skip(WINDOW).sum::<f64>() / WINDOW as f64;
        (after - before).abs() <= (TOLERANCE * before).max(TOLERANCE_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second, from 1, at whose end a stream with these delays is steady first.
    fn steady_at(delays: impl IntoIterator<Item = Option<f64>>) -> Option<usize> {
        let mut steady = Steady::default();
        delays.into_iter().position(|delay| steady.push(delay)).map(|at| at + 1)
    }

    #[test]
    fn a_flat_stream_is_steady_after_two_windows() {
        assert_eq!(steady_at([Some(50.0); 20]), Some(6));
        // Noise below the absolute tolerance, on a loopback.
        assert_eq!(steady_at([0.1, 1.0, 0.1, 1.9, 0.3, 1.5].map(Some)), Some(6));
    }

    #[test]
    fn a_growing_delay_is_not_until_it_stops() {
        let ramp = (0..40).map(|second| Some(f64::from(second.min(20)) * 50.0));
        let at = steady_at(ramp).unwrap();
        assert!((21..=26).contains(&at), "{at}");
        assert_eq!(steady_at((1..20).map(|second| Some(f64::from(second * 100)))), None);
    }

    #[test]
    fn a_draining_delay_is_not_steady_either() {
        assert_eq!(steady_at((0..10).map(|second| Some(1000.0 * 0.8_f64.powi(second)))), None);
    }

    #[test]
    fn silence_starts_anew() {
        let mut delays = vec![Some(10.0); 5];
        delays.push(None);
        delays.extend([Some(10.0); 6]);
        assert_eq!(steady_at(delays), Some(12));
    }
}
