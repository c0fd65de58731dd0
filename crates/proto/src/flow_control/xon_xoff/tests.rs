use super::*;
use heddle_seam::rng::Seed;
use heddle_seam::time::Duration;
use proptest::prelude::*;

const XOFF_BYTES: u64 = 500 * 498;

fn at_ms(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn watch() -> DrainWatch {
    DrainWatch::new(Role::Exit, XonXoffParams::default())
}

#[test]
fn parameters_count_full_cells() {
    let lookup = |name: &str| (name == "cc_xoff_client").then_some(20_000);
    let params = XonXoffParams::from_consensus(&lookup);
    assert_eq!(params.xoff_exit_bytes, XOFF_BYTES);
    assert_eq!(params.xoff_client_bytes, 10_000 * 498);
    assert_eq!((params.xon_change_pct, params.xon_ewma_count), (25, 2));
}

#[test]
fn xoff_goes_out_once_and_xon_when_the_queue_is_empty() {
    let mut watch = watch();
    assert_eq!(watch.on_queued(at_ms(0), XOFF_BYTES), None);
    assert_eq!(watch.on_queued(at_ms(0), XOFF_BYTES + 1), Some(Signal::Xoff));
    assert_eq!(watch.on_queued(at_ms(1), 2 * XOFF_BYTES), None);
    assert!(watch.xoff_sent);
    // The whole queue leaves at 500 bytes in a millisecond, in steps of 10 ms.
    let (mut left, mut ms) = (2 * XOFF_BYTES, 1);
    let signal = loop {
        ms += 10;
        let step = left.min(5_000);
        left -= step;
        if let Some(signal) = watch.on_drained(at_ms(ms), step, left) {
            break signal;
        }
    };
    assert_eq!(left, 0);
    let Signal::Xon { kbps_ewma } = signal else { panic!("not {signal:?}") };
    assert!((490..=510).contains(&kbps_ewma), "{kbps_ewma}");
    assert_eq!(watch.on_queued(at_ms(ms), XOFF_BYTES + 1), Some(Signal::Xoff));
}

#[test]
fn a_queue_that_empties_before_a_rate_is_known_asks_for_no_limit() {
    let params = XonXoffParams { xoff_exit_bytes: 1_000, ..XonXoffParams::default() };
    let mut watch = DrainWatch::new(Role::Exit, params);
    assert_eq!(watch.on_queued(at_ms(0), 1_001), Some(Signal::Xoff));
    let xon = Signal::Xon { kbps_ewma: 0 };
    assert_eq!(watch.on_drained(at_ms(9), 1_001, 0), Some(xon));
}

/// A watch that has told a rate of about 1000 kB/s.
fn told_1000() -> DrainWatch {
    let mut watch = watch();
    watch.on_queued(at_ms(0), XOFF_BYTES + 1);
    let signal = watch.on_drained(at_ms(249), XOFF_BYTES + 1, 0);
    assert_eq!(signal, Some(Signal::Xon { kbps_ewma: 1_000 }));
    watch
}

#[test]
fn a_slower_edge_is_told_only_when_the_change_is_large() {
    let mut watch = told_1000();
    assert_eq!(watch.on_queued(at_ms(300), XOFF_BYTES), None);
    // 249 kB in 280 ms: 11 % slower.
    assert_eq!(watch.on_drained(at_ms(580), XOFF_BYTES + 1, 1), None);
    assert_eq!(watch.on_queued(at_ms(600), XOFF_BYTES), None);
    // 249 kB in a second: the smoothed rate falls by half.
    let signal = watch.on_drained(at_ms(1_600), XOFF_BYTES + 1, 1);
    assert!(matches!(signal, Some(Signal::Xon { kbps_ewma: 400..=500 })), "{signal:?}");
}

#[test]
fn an_edge_without_a_queue_is_offered_twice_the_rate() {
    let mut watch = told_1000();
    let mut told = Vec::new();
    for ms in 300..1_100 {
        if let Some(Signal::Xon { kbps_ewma }) = watch.on_drained(at_ms(ms), 1_000, 0) {
            told.push(kbps_ewma);
        }
    }
    assert_eq!(told, [2_000, 4_000, 8_000]);
}

/// The rates that a watch tells which has told 1000 kB/s, while a client sends a tenth of a second's worth of that
/// every 100 ms for three seconds, and the edge takes `step_bytes` of it every millisecond.
fn told_with_an_edge_of(step_bytes: u64) -> Vec<u32> {
    let (mut watch, mut told, mut queue) = (told_1000(), Vec::new(), 0);
    for ms in 300..3_300 {
        let queued = (ms % 100 == 0).then(|| {
            queue += 100_000;
            watch.on_queued(at_ms(ms), queue)
        });
        let step = queue.min(step_bytes);
        queue -= step;
        let drained = watch.on_drained(at_ms(ms), step, queue);
        told.extend([queued.flatten(), drained].into_iter().flatten().map(|signal| match signal {
            Signal::Xon { kbps_ewma } => kbps_ewma,
            Signal::Xoff => panic!("XOFF at {ms} ms"),
        }));
    }
    told
}

#[test]
fn a_queue_that_does_not_last_is_none() {
    // Done with it in 10 ms, of which nine have a queue: a connection takes what its credit allows, and the rest a
    // moment later.
    assert_eq!(told_with_an_edge_of(10_000)[..3], [2_000, 4_000, 8_000]);
    // It takes 1250 kB/s, and told twice of 1000 it would have to say XOFF.
    assert_eq!(told_with_an_edge_of(1_250), []);
}

#[test]
fn an_edge_that_stood_still_and_goes_on_is_not_slow() {
    let mut watch = told_1000();
    watch.on_queued(at_ms(300), 20_000);
    assert_eq!(watch.on_queued(at_ms(400), XOFF_BYTES + 1), Some(Signal::Xoff));
    let mut left = 2 * XOFF_BYTES;
    watch.on_queued(at_ms(500), left);
    let signal = (60_000..61_000).find_map(|ms| {
        left -= left.min(5_000);
        watch.on_drained(at_ms(ms), 5_000, left)
    });
    // 5 MB/s, of which the time before tells nothing.
    assert!(matches!(signal, Some(Signal::Xon { kbps_ewma: 4_500..=5_500 })), "{signal:?}");
    // In steps with less than two seconds between them, that is what it takes.
    let mut watch = told_1000();
    watch.on_queued(at_ms(300), 20_000);
    assert_eq!(watch.on_queued(at_ms(400), XOFF_BYTES + 1), Some(Signal::Xoff));
    let mut left = XOFF_BYTES + 60_000;
    let signal = (1..1_000).find_map(|step| {
        left -= left.min(60_000);
        watch.on_drained(at_ms(400 + 1_000 * step), 60_000, left)
    });
    assert!(matches!(signal, Some(Signal::Xon { kbps_ewma: 40..=70 })), "{signal:?}");
}

#[test]
fn a_stuck_edge_is_noticed_from_what_queues_up() {
    let mut watch = told_1000();
    assert_eq!(watch.on_queued(at_ms(300), 20_000), None);
    assert_eq!(watch.on_queued(at_ms(5_000), 240_000), None);
    // The 5 seconds it stood still count as part of the time these bytes took.
    let signal = watch.on_drained(at_ms(5_300), XOFF_BYTES + 1, 1);
    assert!(matches!(signal, Some(Signal::Xon { kbps_ewma: 300..=400 })), "{signal:?}");
}

#[test]
fn xoff_stops_reading_and_xon_limits_it() {
    let mut limit = ReadLimit::new(Role::Exit, XonXoffParams::default());
    assert_eq!(limit.may_read(at_ms(0)), u64::MAX);
    assert_eq!(limit.on_signal(at_ms(0), Signal::Xoff), Ok(()));
    assert_eq!(limit.may_read(at_ms(99)), 0);
    assert_eq!(limit.next_read(at_ms(99), 1), None);
    assert_eq!(limit.on_signal(at_ms(99), Signal::Xoff), Err(Violation::XoffTwice));
    assert_eq!(limit.on_signal(at_ms(100), Signal::Xon { kbps_ewma: 10 }), Ok(()));
    assert_eq!(limit.may_read(at_ms(100)), 10_000);
    limit.on_read(10_000);
    assert_eq!(limit.may_read(at_ms(100)), 0);
    assert_eq!(limit.next_read(at_ms(100), 500), Some(at_ms(150)));
    assert_eq!(limit.may_read(at_ms(150)), 500);
    assert_eq!(limit.on_signal(at_ms(150), Signal::Xon { kbps_ewma: 0 }), Ok(()));
    assert_eq!(limit.may_read(at_ms(150)), u64::MAX);
    assert_eq!(limit.next_read(at_ms(150), 500), Some(at_ms(150)));
}

#[test]
fn the_rate_of_an_xon_is_kept_over_time() {
    let mut rng = Seed::from_number(3).rng();
    let mut limit = ReadLimit::new(Role::Exit, XonXoffParams::default());
    limit.on_signal(at_ms(0), Signal::Xon { kbps_ewma: 123 }).expect("an XON is welcome");
    let (mut now, mut read) = (at_ms(0), 0);
    while now < at_ms(60_000) {
        let bytes = limit.may_read(now).min(rng.below(4_000));
        limit.on_read(bytes);
        read += bytes;
        now += Duration::from_micros(rng.below(20_000));
    }
    let expected = 123_000 * 61;
    assert!((expected * 98 / 100..=expected * 102 / 100).contains(&read), "{read}");
}

#[test]
fn an_origin_refuses_signals_that_its_data_cannot_explain() {
    let origin = || ReadLimit::new(Role::Origin, XonXoffParams::default());
    let xon = Signal::Xon { kbps_ewma: 0 };
    for signal in [Signal::Xoff, xon] {
        let mut limit = origin();
        limit.on_read(XOFF_BYTES - 1);
        assert_eq!(limit.on_signal(at_ms(0), signal), Err(Violation::TooManySignals));
        let mut limit = origin();
        limit.on_read(XOFF_BYTES);
        assert_eq!(limit.on_signal(at_ms(0), signal), Ok(()));
    }
    let mut limit = origin();
    limit.on_read(XOFF_BYTES);
    assert_eq!(limit.on_signal(at_ms(0), Signal::Xoff), Ok(()));
    assert_eq!(limit.on_signal(at_ms(0), xon), Ok(()));
    assert_eq!(limit.on_signal(at_ms(1), Signal::Xoff), Err(Violation::TooManySignals));
    // It is obeyed all the same.
    assert_eq!(limit.may_read(at_ms(1)), 0);
}

/// An exit's watch must never signal more than an origin accepts, whatever the edge does.
#[test]
fn an_origin_accepts_every_signal_of_our_own_exit() {
    for seed in 0..20 {
        let mut rng = Seed::from_number(seed).rng();
        let mut exit = watch();
        let mut origin = ReadLimit::new(Role::Origin, XonXoffParams::default());
        let (mut queue, mut now, mut signals) = (0_u64, at_ms(0), 0);
        let mut edge_bytes = 0;
        for turn in 0..40_000 {
            if turn % 2_000 == 0 {
                edge_bytes = rng.below(4_000);
            }
            now += Duration::from_micros(1 + rng.below(2_000));
            let sent = origin.may_read(now).min(498 * rng.below(8));
            origin.on_read(sent);
            queue += sent;
            let queued = exit.on_queued(now, queue);
            let drained = queue.min(rng.below(2 * edge_bytes + 1));
            queue -= drained;
            let told = exit.on_drained(now, drained, queue);
            for signal in [queued, told].into_iter().flatten() {
                signals += 1;
                assert_eq!(origin.on_signal(now, signal), Ok(()), "turn {turn}, seed {seed}");
            }
            assert!(queue <= XOFF_BYTES + 498 * 8);
        }
        assert!(signals > 0);
    }
}

proptest! {
    #[test]
    fn nothing_a_peer_or_an_edge_can_do_panics(
        calls in prop::collection::vec((0..6, any::<u64>(), any::<u64>(), any::<u32>()), 1..200),
    ) {
        let mut watch = DrainWatch::new(Role::Origin, XonXoffParams::default());
        let mut limit = ReadLimit::new(Role::Origin, XonXoffParams::default());
        for (call, ns, bytes, number) in calls {
            let now = Instant::from_nanos(ns);
            match call {
                0 => drop(watch.on_queued(now, bytes)),
                1 => drop(watch.on_drained(now, bytes, u64::from(number % 3))),
                2 => limit.on_read(bytes),
                3 => drop(limit.on_signal(now, Signal::Xoff)),
                4 => drop(limit.on_signal(now, Signal::Xon { kbps_ewma: number })),
                _ => drop((limit.may_read(now), limit.next_read(now, bytes))),
            }
        }
    }
}
