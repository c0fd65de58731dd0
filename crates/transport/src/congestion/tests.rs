use super::bundle::BETA;
use super::*;
use heddle_proto::endpoint::CongestionParams;
use std::collections::VecDeque;

#[test]
fn a_window_at_its_least_takes_a_packet_that_grew() {
    let mut shared = Shared::new(Instant::ZERO, 1200, Duration::ZERO, Ceiling::default());
    shared.restart(Instant::ZERO);
    shared.set_packet_bytes(1452);
    assert!(shared.window_bytes() > 1452, "{}", shared.window_bytes());
}

/// Packets of 1,200 bytes become such of 600, beside TCPs and after a pause: neither the window nor what is remembered
/// of it changes.
#[test]
fn windows_have_as_many_bytes_after_a_change_of_packets() {
    let mut shared = Shared::new(Instant::ZERO, 1200, Duration::ZERO, Ceiling::default());
    let bundle = Bundle::new(Instant::ZERO, 100.0, 4.0, Curve::CUBIC);
    (shared.mode, shared.packets, shared.queues.packets_before) = (Mode::Contend(bundle), 100.0, 100.0);
    shared.contended = Some((Instant::ZERO, 50.0));
    shared.set_packet_bytes(600);
    assert_eq!((shared.window_bytes(), shared.queues.packets_before), (120_000, 200.0));
    assert_eq!(shared.contended, Some((Instant::ZERO, 100.0)));
    let now = Instant::ZERO + Duration::from_millis(50);
    shared.on_sent(now, 600);
    shared.on_acked(now + Duration::from_millis(50), now, 600);
    assert!(shared.window_bytes() >= 120_000, "{}", shared.window_bytes());
    (shared.mode, shared.regained) = (Mode::Delay, Some(20.0));
    shared.set_packet_bytes(1200);
    assert_eq!((shared.window_bytes(), shared.regained), (12_000, Some(10.0)));
}

#[test]
fn a_window_at_its_least_takes_a_packet_in_every_mode() {
    let mut shared = Shared::new(Instant::ZERO, 1200, Duration::ZERO, Ceiling::default());
    shared.mode = Mode::Contend(Bundle::new(Instant::ZERO, 10.0, 1.0, Curve::CUBIC));
    for second in 1..20 {
        let now = Instant::ZERO + Duration::from_secs(second);
        shared.on_marked(now, now);
    }
    assert!(shared.window_bytes() > 1200, "{}", shared.window_bytes());
}

/// A path of 20 ms dies, and one of 60 ms takes its place.
#[test]
fn after_an_outage_the_round_trip_of_the_old_path_is_forgotten() {
    let mut shared = Shared::new(Instant::ZERO, 1200, Duration::ZERO, Ceiling::default());
    let mut now = Instant::ZERO;
    let mut exchange = |shared: &mut Shared, rtt_ms: u64| {
        shared.on_sent(now, 1200);
        let sent = now;
        now += Duration::from_millis(rtt_ms);
        shared.on_acked(now, sent, 1200);
        shared.set_in_flight(0);
        now
    };
    let now = (0..50).map(|_| exchange(&mut shared, 20)).last().expect("there are some");
    shared.restart(now + Duration::from_secs(10));
    exchange(&mut shared, 60);
    exchange(&mut shared, 60);
    assert_eq!(shared.base.get(), Some(Duration::from_millis(60)));
}

#[test]
fn a_pause_halves_what_may_be_sent_and_round_trips_double_it_again() {
    let modes = [Mode::Delay, Mode::Contend(Bundle::new(Instant::ZERO, 80.0, 8.0, Curve::CUBIC))];
    for (mode, pause_ms, left) in modes
        .into_iter()
        .flat_map(|mode| [(mode.clone(), 400, 80.0), (mode.clone(), 1200, 20.0), (mode, 60_000, 10.0)])
    {
        let mut shared = Shared::new(Instant::ZERO, 1000, Duration::ZERO, Ceiling::default());
        (shared.mode, shared.packets, shared.flows) = (mode, 80.0, 8.0);
        let now = Instant::ZERO + Duration::from_millis(pause_ms);
        shared.on_sent(now, 1000);
        assert_eq!(shared.window_packets(), left);
        let (mut at, mut flight) = (now, VecDeque::from([now]));
        while shared.window_packets() < 80.0 {
            while flight.len() < shared.window_packets() as usize {
                shared.on_sent(at, 1000);
                flight.push_back(at);
            }
            let sent = flight.pop_front().expect("a window takes a packet");
            at = sent + Duration::from_millis(50);
            shared.on_acked(at, sent, 1000);
            shared.set_in_flight(1000 * flight.len() as u64);
        }
        assert!(at.since(now) <= Duration::from_millis(250), "{:?}", at.since(now));
    }
}

/// Eight TCPs add four packets in a round trip, and do so with some hundred acknowledgements.
#[test]
fn while_contending_a_window_grows_with_acknowledgements_and_not_all_at_once() {
    let mut shared = Shared::new(Instant::ZERO, 1000, Duration::ZERO, Ceiling::default());
    (shared.mode, shared.packets, shared.flows) =
        (Mode::Contend(Bundle::new(Instant::ZERO, 80.0, 8.0, Curve::CUBIC)), 80.0, 8.0);
    let (mut now, mut flight, mut most) = (Instant::ZERO, VecDeque::new(), 0.0f64);
    while shared.window_packets() < 100.0 {
        // As through a bottleneck that takes a millisecond for a packet.
        while flight.len() < shared.window_packets() as usize {
            shared.on_sent(now, 1000);
            flight.push_back(now);
        }
        now += Duration::from_millis(1);
        let before = shared.window_packets();
        shared.on_acked(now, flight.pop_front().expect("a window takes a packet"), 1000);
        shared.set_in_flight(1000 * flight.len() as u64);
        most = most.max(shared.window_packets() - before);
    }
    assert!(most < 0.2, "{most}");
}

#[test]
fn a_stall_halves_the_window_once_and_ends_neither_following_nor_contending() {
    for mode in [Mode::Delay, Mode::Contend(Bundle::new(Instant::ZERO, 80.0, 8.0, Curve::CUBIC))] {
        let mut shared = Shared::new(Instant::ZERO, 1000, Duration::ZERO, Ceiling::default());
        (shared.mode, shared.packets) = (mode, 80.0);
        (1..5).for_each(|second| shared.restart(Instant::ZERO + Duration::from_secs(second)));
        assert_eq!((shared.packets, shared.window_packets()), (40.0, PACKETS_MIN));
        assert!(!shared.is_starting());
    }
}

#[test]
fn a_loss_after_a_pause_leaves_what_was_reached() {
    let mut shared = Shared::new(Instant::ZERO, 1000, Duration::ZERO, Ceiling::default());
    (shared.mode, shared.packets) =
        (Mode::Contend(Bundle::new(Instant::ZERO, 80.0, 1.0, Curve::CUBIC)), 80.0);
    let now = Instant::ZERO + Duration::from_secs(60);
    shared.on_sent(now, 1000);
    shared.on_lost(now + Duration::from_millis(50), now, 1000);
    assert_eq!(shared.window_packets(), PACKETS_INITIAL * BETA);
}

#[test]
fn marks_of_one_round_cost_one_circuit_one_loss() {
    let mut shared = Shared::new(Instant::ZERO, 1200, Duration::ZERO, Ceiling::default());
    (shared.mode, shared.packets, shared.delivered) = (Mode::Delay, 20.0, [20; 2]);
    shared.set_flows(2.0);
    let marked = Instant::ZERO + Duration::from_millis(50);
    shared.on_marked(marked, Instant::ZERO);
    assert_eq!(shared.packets, 20.0 - 0.15 * 10.0);
    (0..10).for_each(|_| shared.on_marked(marked, Instant::ZERO));
    assert_eq!(shared.packets, 0.85 * 20.0);
    let begin = Instant::ZERO + Duration::from_secs(1);
    shared.mode = Mode::Contend(Bundle::new(begin, 100.0, 1.0, Curve::CUBIC));
    for _ in 0..10 {
        shared.on_marked(begin + Duration::from_millis(50), begin);
    }
    assert_eq!(shared.packets, 100.0 * BETA);
}

#[test]
fn a_connection_stands_for_no_more_tcps_than_it_was_told_last() {
    let ceiling = Ceiling::default();
    let mut shared = Shared::new(Instant::ZERO, 1200, Duration::ZERO, ceiling.clone());
    shared.set_flows(100.0);
    shared.delivered = [100; 2];
    for (told, tcps) in [(255, 8.0), (4, 4.0), (0, 1.0), (1, 1.0), (8, 8.0)] {
        ceiling.set(CongestionParams { tcps_max: told });
        assert_eq!(shared.tcps(), tcps);
    }
}

#[test]
fn a_single_flow_pays_for_a_loss_as_cubic_does() {
    let ceiling = Ceiling::default();
    ceiling.set(CongestionParams { tcps_max: 1 });
    for mode in [Mode::Startup, Mode::Delay] {
        let mut shared = Shared::new(Instant::ZERO, 1200, Duration::ZERO, ceiling.clone());
        shared.set_flows(100.0);
        (shared.mode, shared.packets) = (mode, 100.0);
        shared.start_test(Instant::ZERO, Duration::ZERO, true);
        assert!(shared.tests.is_testing());
        shared.on_lost(Instant::ZERO + Duration::from_millis(50), Instant::ZERO, 1200);
        assert_eq!((shared.packets, shared.tests.is_testing()), (100.0 * BETA, false));
    }
}

#[test]
fn a_lost_packet_counts_as_much_as_it_did_when_it_left() {
    let mut shared = Shared::new(Instant::ZERO, 1360, Duration::ZERO, Ceiling::default());
    for number in 0..2000 {
        shared.on_sent(Instant::ZERO, 510);
        if number % 100 == 99 {
            shared.on_lost(Instant::ZERO, Instant::ZERO, 510);
        }
    }
    let share = shared.losses.share();
    assert!((0.008..0.012).contains(&share), "{share}");
}

/// A startup has twice what the path carries in flight, of which half arrives.
#[test]
fn a_startup_that_ends_by_losses_or_a_mark_leaves_what_arrived() {
    for is_marked in [false, true] {
        let mut shared = Shared::new(Instant::ZERO, 1000, Duration::ZERO, Ceiling::default());
        let (round, now) = (Duration::from_millis(100), Instant::ZERO + Duration::from_millis(200));
        shared.base.add(now, round);
        shared.delivery.add(now, 55.0, round);
        (shared.packets, shared.rtt) = (100.0, Some(round));
        if is_marked {
            shared.on_marked(now, Instant::ZERO);
            // And the mark itself: a flow of six is hit.
            assert!((45.0..55.0).contains(&shared.packets), "{}", shared.packets);
        } else {
            (0..200).for_each(|_| shared.on_sent(now, 1000));
            shared.on_lost(now, Instant::ZERO, 50_000);
            assert!((45.0..=55.0).contains(&shared.packets), "{}", shared.packets);
        }
        assert!(!shared.is_starting());
    }
}

#[test]
fn a_trickle_does_not_keep_a_window_that_nobody_uses() {
    let mut shared = Shared::new(Instant::ZERO, 1000, Duration::ZERO, Ceiling::default());
    (shared.mode, shared.packets) = (Mode::Delay, 200.0);
    for ms in (0..10_000).step_by(400) {
        let now = Instant::ZERO + Duration::from_millis(ms);
        shared.on_sent(now, 1000);
        shared.on_acked(now + Duration::from_millis(50), now, 1000);
        shared.set_in_flight(0);
    }
    assert_eq!(shared.window_packets(), PACKETS_INITIAL);
}

#[test]
fn a_mark_on_the_way_back_to_a_window_leaves_what_was_reached() {
    let mut shared = Shared::new(Instant::ZERO, 1000, Duration::ZERO, Ceiling::default());
    (shared.mode, shared.packets, shared.regained) = (Mode::Delay, 200.0, Some(20.0));
    shared.on_marked(Instant::ZERO + Duration::from_millis(50), Instant::ZERO);
    assert!(shared.packets <= 20.0 && shared.regained.is_none(), "{shared:?}");
}

#[test]
fn the_breaker_counts_what_the_controller_is_not_told_of() {
    let mut shared = Shared::new(Instant::ZERO, 1000, Duration::ZERO, Ceiling::default());
    (shared.mode, shared.packets) = (Mode::Delay, 200.0);
    for ms in (0..16_000).step_by(10) {
        shared.on_sent(Instant::ZERO + Duration::from_millis(ms), 1000);
        shared.on_gone(300);
    }
    assert_eq!(shared.window_packets(), PACKETS_OPEN);
}

/// A wire of a packet each millisecond behind one that is as fast: so much comes as leaves, whatever once filled the
/// queue, and the window that it once took for its share is never used whole. All the same it is our queue.
#[test]
fn a_queue_that_only_stays_because_as_much_comes_as_leaves_is_found_to_be_ours() {
    const MS: Duration = Duration::from_millis(1);
    let start = Instant::ZERO + Duration::from_secs(1);
    let mut shared = Shared::new(start, 1000, Duration::ZERO, Ceiling::default());
    let bundle = Bundle::new(start, 200.0, 1.0, Curve::BESIDE_CUBIC);
    (shared.mode, shared.packets) = (Mode::Contend(bundle), 200.0);
    shared.on_probe(start, 51 * MS);
    // When packets left and when they will have arrived; how many wait for room; when the wire is free again.
    let (mut flight, mut waiting, mut free_at): (VecDeque<(Instant, Instant)>, _, _) =
        (VecDeque::new(), 130, start);
    let mut queue_ms = Vec::new();
    for ms in 0..60_000 {
        let now = start + ms * MS;
        waiting += 1;
        while let Some((sent, _)) = flight.pop_front_if(|(_, arrives)| *arrives <= now) {
            shared.on_acked(now, sent, 1000);
            shared.set_in_flight(1000 * flight.len() as u64);
        }
        while waiting > 0 && flight.len() < shared.window_packets() as usize {
            waiting -= 1;
            free_at = free_at.max(now) + MS;
            shared.on_sent(now, 1000);
            flight.push_back((now, free_at + 50 * MS));
        }
        queue_ms.push(free_at.since(now).as_secs_f64() * 1e3);
    }
    let mean = |queue: &[f64]| queue.iter().sum::<f64>() / queue.len() as f64;
    let (first, last) = (mean(&queue_ms[..2000]), mean(&queue_ms[50_000..]));
    assert!(first > 70.0, "{first} ms at first");
    assert!(last < 10.0 && matches!(shared.mode, Mode::Delay), "{last} ms in the end");
}

/// Nobody's queue is there, and less is sent than the window lets through: nothing is to be found out by sending less,
/// and a burst that comes has the window.
#[test]
fn no_test_stands_in_the_way_of_a_burst_where_there_is_no_queue() {
    let rtt = Duration::from_millis(50);
    let mut shared = Shared::new(Instant::ZERO, 1000, Duration::ZERO, Ceiling::default());
    (shared.mode, shared.packets) = (Mode::Delay, 20.0);
    let mut now = Instant::ZERO;
    for _ in 0..200 {
        let sent: Vec<Instant> = (0..11).map(|packet| now + Duration::from_micros(packet)).collect();
        sent.iter().for_each(|at| shared.on_sent(*at, 1000));
        sent.iter().for_each(|at| shared.on_acked(*at + rtt, *at, 1000));
        shared.set_in_flight(0);
        now += rtt;
        assert!(
            !shared.tests.is_testing() && shared.window_packets() >= 20.0,
            "{:?}",
            shared.window_packets()
        );
    }
    assert!(now.since(shared.tests.ended_at) <= TEST_EVERY, "tests were due");
}

/// What was in flight when a test began says nothing after a pause, or when the path is another.
#[test]
fn a_tests_limit_is_forgotten_with_what_was_in_flight() {
    let now = Instant::ZERO + Duration::from_secs(9);
    let testing = || {
        let mut shared = Shared::new(Instant::ZERO, 1000, Duration::ZERO, Ceiling::default());
        (shared.mode, shared.packets, shared.rtt) = (Mode::Delay, 100.0, Some(Duration::from_millis(100)));
        shared.on_probe(Instant::ZERO, Duration::from_millis(50));
        shared.round.in_flight_max = 60_000;
        shared.start_test(Instant::ZERO, Duration::from_millis(50), false);
        assert!(shared.tests.is_testing() && shared.window_packets() < 30.0, "{}", shared.window_packets());
        shared
    };
    let mut paused = testing();
    paused.on_sent(now, 1000);
    assert!(paused.tests.packets() == Some(f64::INFINITY));
    let mut restarted = testing();
    restarted.restart(now);
    assert!(restarted.packets > 20.0, "{}", restarted.packets);
}
