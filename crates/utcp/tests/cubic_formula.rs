//! CUBIC beside what RFC 9438 computes for it: the formulae in continuous time, written down once more, which give the
//! RFC's own tables, and predict cycle by cycle what the controller does under losses at regular distances.

use heddle_utcp::Instant;
use heddle_utcp::congestion::{AckSample, Congestion, CongestionController, Cubic};

const MSS: u64 = 1000;
const CYCLES: usize = 15;
const C: f64 = 0.4;
const BETA: f64 = 0.7;

/// The window in segments before each of the losses, one in `distance` segments.
fn windows_before_losses(rtt_ns: u64, distance: u64) -> Vec<f64> {
    let mut cubic = Cubic::new(MSS, 10 * MSS, true);
    let mut now = Instant::from_nanos(1_000_000_000);
    let (mut una, mut since_loss) = (0, 0);
    let mut windows = Vec::new();
    while windows.len() < CYCLES {
        let segments = cubic.window_bytes() / MSS;
        now = now.plus_ns(rtt_ns / segments);
        una += MSS;
        since_loss += 1;
        cubic.on_ack(&AckSample {
            now,
            delivered_bytes: MSS,
            round_trip_ns: Some(rtt_ns),
            smoothed_ns: rtt_ns,
            una,
            next: una + segments * MSS,
            is_window_limited: true,
        });
        if since_loss == distance {
            since_loss = 0;
            windows.push(cubic.window_bytes() as f64 / MSS as f64);
            cubic.on_congestion(now, Congestion::Signal);
        }
    }
    windows
}

/// What follows a loss at `window` with the plateau `w_max` until `distance` segments were delivered: the window then
/// and the average, by W_cubic (section 4.2) and W_est (section 4.3, with α below 1 throughout).
fn cycle(rtt_s: f64, distance: f64, window: f64, w_max: f64) -> [f64; 2] {
    let step = 1.0 / 50.0;
    let begin = BETA * window;
    let plateau = w_max.max(begin);
    let k = ((plateau - begin) / C).cbrt();
    let (mut rounds, mut sent, mut w_est, mut window) = (0.0, 0.0, begin, begin);
    while sent < distance {
        window = w_est.max(C * (rounds * rtt_s - k).powi(3) + plateau);
        w_est += step * 3.0 * (1.0 - BETA) / (1.0 + BETA);
        sent += step * window;
        rounds += step;
    }
    [window, sent / rounds]
}

/// The round trip in milliseconds, the distance of losses, the average window of tables 1 and 2 for C = 0.4, and
/// whether that is W_cubic's; otherwise it is Reno's.
const TABLES: [(u64, u64, f64, bool); 7] = [
    (100, 10_000, 187.0, true),
    (100, 100_000, 1054.0, true),
    (100, 1_000_000, 5926.0, true),
    (10, 10_000, 120.0, false),
    (10, 100_000, 379.0, false),
    (100, 1000, 38.0, false),
    (10, 1000, 38.0, false),
];

#[test]
fn the_formulae_give_the_tables_of_the_rfc() {
    for (rtt_ms, distance, average, is_cubic) in TABLES {
        // The tables have a loss whenever the plateau is reached, where the window is so many times its average.
        let window = average * if is_cubic { 4.0 / (3.0 + BETA) } else { 2.0 / (1.0 + BETA) };
        let [next, ours] = cycle(rtt_ms as f64 / 1e3, distance as f64, window, window);
        // The tables have whole segments.
        let is_near = |value: f64, other: f64| (value - other).abs() < 1.0 + 0.04 * other;
        assert!(is_near(ours, average) && is_near(next, window), "{rtt_ms} ms, {distance}: {ours}, {next}");
    }
}

#[test]
fn windows_follow_the_formulae() {
    for (rtt_ms, distance, ..) in TABLES.into_iter().filter(|(_, distance, ..)| *distance < 1_000_000) {
        let windows = windows_before_losses(rtt_ms * 1_000_000, distance);
        let mut w_max = 0.0;
        for pair in windows.windows(2) {
            // Fast convergence, section 4.7.
            w_max = if pair[0] < w_max { pair[0] * (1.0 + BETA) / 2.0 } else { pair[0] };
            let [expected, _] = cycle(rtt_ms as f64 / 1e3, distance as f64, pair[0], w_max);
            let off = (pair[1] - expected).abs();
            assert!(off < 1.5 + 0.02 * expected, "{rtt_ms} ms, {distance}: {} beside {expected}", pair[1]);
        }
    }
}
