//! Two associations of ours: messages, resets, ends, on wires of all kinds.

mod support;

use heddle_sctp::{Association, Closed, Event, Options};
use support::{Chance, Faults, MS, Pair, Wire, check, message};

const CALM: Faults = Faults { lost: 0, late: 0, twice: 0 };
const ROUGH: Faults = Faults { lost: 50, late: 100, twice: 30 };

fn plain() -> Options {
    Options { interleaves: false, zero_checksum: false, ..Options::default() }
}

/// Writes so many messages each on some streams both ways, of lengths up to `len_max`, and runs until all came.
fn exchange(pair: &mut Pair, streams: u16, messages: u32, len_max: u32) {
    let mut chance = Chance(9);
    for number in 0..messages {
        for stream in 0..streams {
            let bytes = message(stream, number, 6 + chance.draw(len_max) as usize);
            for end in &mut pair.ends {
                assert!(end.write(stream, bytes.clone(), 7, false));
            }
        }
    }
    let all = usize::from(streams) * messages as usize;
    let came = pair.run_until(600_000, |pair| pair.read.iter().all(|read| read.len() >= all));
    assert!(came, "{:?} of {all}, {:?}", pair.read.each_ref().map(Vec::len), pair.events);
    assert_eq!(pair.read.each_ref().map(|read| check(read)), [all, all]);
    assert!(pair.read[0].iter().all(|message| message.ppid == 7));
}

#[test]
fn messages_come_whole_and_in_order_over_any_wire() {
    for options in [Options::default(), plain()] {
        for faults in [CALM, ROUGH, Faults { lost: 200, ..ROUGH }] {
            for seed in 0..4 {
                let mut pair = Pair::connected(seed, &options, faults);
                exchange(&mut pair, 5, 60, 3000);
                // What was acknowledged takes nothing.
                pair.run_for(20_000);
                assert_eq!(pair.ends.each_ref().map(Association::buffered_bytes), [[0; 2]; 2]);
            }
        }
    }
}

#[test]
fn ends_that_have_less_agree_on_that() {
    for options in [[Options::default(), plain()], [plain(), Options::default()]] {
        let mut pair = Pair::new(1, options, ROUGH);
        pair.ends[0].connect();
        exchange(&mut pair, 3, 30, 3000);
    }
}

#[test]
fn both_may_ask_for_it() {
    for seed in 0..20 {
        let mut pair =
            Pair::new(seed, [Options::default(), Options::default()], Faults { lost: 300, ..CALM });
        pair.ends.iter_mut().for_each(Association::connect);
        exchange(&mut pair, 2, 5, 600);
        assert!(
            pair.events.iter().all(|events| events
                .iter()
                .filter(|event| **event == Event::Connected)
                .count()
                == 1)
        );
    }
}

#[test]
fn a_run_repeats_with_its_seed() {
    let run = |seed| {
        let mut pair = Pair::connected(seed, &Options::default(), ROUGH);
        exchange(&mut pair, 3, 50, 2000);
        (pair.now, pair.wires.map(|wire| wire.sent))
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

/// One stream's message of a megabyte, and a short one of another: the short one does not wait for it.
#[test]
fn a_short_message_does_not_wait_for_the_rest_of_a_long_one() {
    let options = Options { message_bytes_max: 1 << 20, receive_bytes_max: 4 << 20, ..Options::default() };
    for (is_interleaved, first) in [(true, 1), (false, 0)] {
        let mut pair = Pair::connected(1, &Options { interleaves: is_interleaved, ..options.clone() }, CALM);
        pair.ends[0].write(0, message(0, 0, 1 << 20), 0, false);
        pair.run_for(1);
        pair.ends[0].write(1, message(1, 0, 100), 0, false);
        pair.run_until(60_000, |pair| pair.read[1].len() == 2);
        assert_eq!(pair.read[1].first().map(|message| message.stream), Some(first));
    }
}

/// Nine streams with much to send, and one with a cell: it waits for what is under way and for one fragment of each.
#[test]
fn a_stream_that_sends_little_waits_for_a_fragment_of_each_other_at_most() {
    let options = Options { receive_bytes_max: 4 << 20, ..Options::default() };
    let mut pair = Pair::connected(1, &options, CALM);
    for number in 0..100 {
        (0..9).for_each(|stream| assert!(pair.ends[0].write(stream, message(stream, number, 510), 0, false)));
    }
    pair.run_for(100);
    let [_, in_flight, queued] = pair.ends[0].window();
    assert!(queued > 100_000, "{queued}");
    let came = pair.read[1].len();
    pair.ends[0].write(9, message(9, 0, 510), 0, false);
    assert!(pair.run_until(10_000, |pair| pair.read[1].iter().any(|message| message.stream == 9)));
    let before = pair.read[1].len() - came;
    let under_way = in_flight as usize / 530 + 1;
    // A packet that leaves at the same instant has three.
    assert!(before <= under_way + 9 + 3, "{before} came before it, {under_way} were under way");
}

#[test]
fn unordered_messages_overtake_what_waits() {
    for options in [Options::default(), plain()] {
        let mut pair = Pair::connected(3, &options, Faults { lost: 100, ..CALM });
        for number in 0..200 {
            pair.ends[0].write(0, message(0, number, 900), 0, false);
            pair.ends[0].write(0, vec![1; 2000], 5, true);
        }
        assert!(pair.run_until(100_000, |pair| pair.read[1].len() == 400), "{}", pair.read[1].len());
        check(&pair.read[1]);
        let unordered = pair.read[1].iter().filter(|message| message.is_unordered);
        assert_eq!(
            unordered.filter(|message| message.ppid == 5 && message.bytes == vec![1; 2000]).count(),
            200
        );
    }
}

#[test]
fn a_reader_who_stops_shuts_the_window_and_opens_it() {
    for faults in [CALM, Faults { lost: 100, ..CALM }] {
        let options = Options { receive_bytes_max: 100_000, ..Options::default() };
        let mut pair = Pair::connected(2, &options, faults);
        pair.reads = false;
        (0..1000).for_each(|number| assert!(pair.ends[0].write(0, message(0, number, 510), 0, false)));
        pair.run_for(30_000);
        let [_, held] = pair.ends[1].buffered_bytes();
        assert!((60_000..=100_000).contains(&held), "{held}");
        // It is not worth more than a question from time to time.
        let before = pair.wires[0].sent.0;
        pair.run_for(60_000);
        assert!(pair.wires[0].sent.0 - before < 30, "{}", pair.wires[0].sent.0 - before);
        pair.reads = true;
        while let Some(message) = pair.ends[1].read(0) {
            pair.read[1].push(message);
        }
        assert!(pair.run_until(60_000, |pair| pair.read[1].len() == 1000), "{}", pair.read[1].len());
        check(&pair.read[1]);
        assert!(!pair.ends[0].is_ended());
    }
}

#[test]
fn streams_are_reset_and_used_again() {
    for options in [Options::default(), plain()] {
        for faults in [CALM, ROUGH] {
            let mut pair = Pair::connected(4, &options, faults);
            for turn in 0..20 {
                let begun = [pair.read[1].len(), pair.events[0].len(), pair.events[1].len()];
                (0..5).for_each(|number| assert!(pair.ends[0].write(3, message(3, number, 900), 0, false)));
                assert!(pair.ends[0].reset_stream(3));
                // What is written now waits for the reset, and is numbered from 0 on again.
                (0..2).for_each(|number| assert!(pair.ends[0].write(3, message(3, number, 700), 0, false)));
                pair.ends[0].write(4, message(4, turn, 2000), 0, false);
                let came = pair.run_until(60_000, |pair| pair.read[1].len() == begun[0] + 8);
                assert!(came, "turn {turn}: {:?}", pair.events[1]);
                pair.ends[0].reset_stream(3);
                let resets = |pair: &Pair| {
                    let all = |end: usize, event| {
                        pair.events[end][begun[1 + end]..].iter().filter(|told| **told == event).count()
                    };
                    [all(0, Event::Reset(3)), all(1, Event::PeerReset(3))]
                };
                assert!(
                    pair.run_until(60_000, |pair| resets(pair) == [2, 2]),
                    "turn {turn}: {:?}",
                    resets(&pair)
                );
            }
            let [third, fourth]: [Vec<_>; 2] = [3, 4].map(|stream| {
                pair.read[1].iter().filter(|message| message.stream == stream).cloned().collect()
            });
            check(&fourth);
            for turn in third.chunks(7) {
                assert_eq!([check(&turn[..5]), check(&turn[5..])], [5, 2]);
            }
            // Streams of which nothing is left take nothing.
            pair.run_for(10_000);
            assert!(pair.ends[1].heap_bytes() < 2000, "{}", pair.ends[1].heap_bytes());
        }
    }
}

/// Each time costs the other end a circuit, and so nobody has it done as fast as packets come.
#[test]
fn streams_begin_anew_so_often_at_once_and_in_a_second() {
    const STREAMS: u16 = 256;
    const AT_ONCE: usize = 1 << 16;
    const PER_S: f64 = 5_000.0;
    let mut pair = Pair::connected(4, &Options::default(), CALM);
    pair.wires = [1, 2].map(|way| Wire::new(way, MS, CALM));
    let begun = pair.now;
    let resets =
        |pair: &Pair| pair.events[1].iter().filter(|event| matches!(event, Event::PeerReset(_))).count();
    let turn = |pair: &mut Pair| {
        for stream in 0..STREAMS {
            assert!(pair.ends[0].write(stream, message(stream, 0, 20), 0, false));
            assert!(pair.ends[0].reset_stream(stream));
        }
        pair.events[1].clear();
        assert!(pair.run_until(10_000, |pair| resets(pair) == STREAMS.into()), "{}", resets(pair));
        assert_eq!(check(&core::mem::take(&mut pair.read[1])), STREAMS.into());
    };
    let turns_at_once = AT_ONCE / usize::from(STREAMS);
    (0..turns_at_once).for_each(|_| turn(&mut pair));
    let at_once = pair.now.since(begun).as_secs_f64();
    assert!(at_once < 2.0, "what is there at once leaves as fast as packets come, and took {at_once} s");
    let more = 80;
    (0..more).for_each(|_| turn(&mut pair));
    let per_s = f64::from(more * u32::from(STREAMS)) / (pair.now.since(begun).as_secs_f64());
    assert!((PER_S * 0.7..PER_S * 1.01).contains(&per_s), "{per_s} in a second");
}

#[test]
fn what_waits_is_discarded_with_a_reset() {
    let mut pair = Pair::connected(4, &Options::default(), CALM);
    (0..500).for_each(|number| assert!(pair.ends[0].write(3, message(3, number, 900), 0, false)));
    pair.run_for(1);
    pair.ends[0].discard_queued(3);
    pair.ends[0].reset_stream(3);
    assert!(pair.run_until(2_000, |pair| pair.events[0].contains(&Event::Reset(3))));
    let came = check(&pair.read[1]);
    assert!(came > 0 && came < 50, "{came}");
    assert_eq!(pair.ends[0].buffered_bytes(), [0; 2]);
}

#[test]
fn an_end_comes_after_all_that_was_written() {
    for seed in 0..10 {
        let mut pair = Pair::connected(seed, &Options::default(), ROUGH);
        (0..50).for_each(|number| assert!(pair.ends[0].write(0, message(0, number, 900), 0, false)));
        pair.ends[0].shutdown();
        assert!(!pair.ends[0].write(0, vec![1], 0, false));
        assert!(
            pair.run_until(100_000, |pair| pair.ends.iter().all(Association::is_ended)),
            "{:?}",
            pair.events
        );
        assert_eq!(check(&pair.read[1]), 50);
        assert_eq!(pair.events[0].last(), Some(&Event::Closed(Closed::Shutdown)));
    }
}

#[test]
fn an_abort_is_heard_of_and_silence_is_noticed() {
    let mut pair = Pair::connected(1, &Options::default(), CALM);
    pair.ends[0].abort();
    pair.run_for(100);
    assert_eq!(pair.events[0].last(), Some(&Event::Closed(Closed::Ended)));
    assert_eq!(pair.events[1].last(), Some(&Event::Closed(Closed::Aborted)));

    let mut pair = Pair::connected(1, &Options::default(), CALM);
    pair.wires[0].faults.lost = 1000;
    pair.ends[0].write(0, vec![1], 0, false);
    assert!(pair.run_until(500_000, |pair| pair.ends.iter().all(Association::is_ended)));
    assert!(pair.events.iter().all(|events| events.last() == Some(&Event::Closed(Closed::NoAnswer))));

    let mut pair = Pair::new(1, [Options::default(), Options::default()], Faults { lost: 1000, ..CALM });
    pair.ends[0].connect();
    assert!(pair.run_until(500_000, |pair| pair.ends[0].is_ended()));
}

/// A path that comes back is used at once where somebody knows of it.
#[test]
fn what_was_lost_in_an_outage_leaves_when_the_path_is_back() {
    let options = Options { timeouts_max: None, ..Options::default() };
    let mut pair = Pair::connected(1, &options, CALM);
    pair.wires[0].faults.lost = 1000;
    (0..20).for_each(|number| assert!(pair.ends[0].write(0, message(0, number, 900), 0, false)));
    pair.run_for(60_500);
    pair.wires[0].faults.lost = 0;
    let now = pair.now;
    pair.ends[0].on_path_back(now);
    assert!(pair.run_until(400, |pair| pair.read[1].len() == 20), "{}", pair.read[1].len());
}

/// A path that becomes a second longer at once: the time-outs that this brings about are taken back, and what has not
/// been sent again is not.
#[test]
fn a_time_out_that_was_too_early_costs_little() {
    let mut pair = Pair::connected(1, &Options::default(), CALM);
    (0..1000).for_each(|number| assert!(pair.ends[0].write(0, message(0, number, 900), 0, false)));
    pair.run_for(200);
    pair.wires[0].delay = 1000 * MS;
    let [window, in_flight, _] = pair.ends[0].window();
    assert!(in_flight > 15_000, "{in_flight}");
    assert!(pair.run_until(60_000, |pair| pair.read[1].len() == 1000));
    check(&pair.read[1]);
    assert!(pair.ends[0].retransmissions() < 12, "{}", pair.ends[0].retransmissions());
    assert!(pair.ends[0].window()[0] >= window, "{:?}", pair.ends[0].window());
}

/// The last packet of a burst is lost: two round trips tell, and no time-out is waited for.
#[test]
fn a_lost_tail_is_asked_for_by_a_probe() {
    let options = Options { rto_min: 5000 * MS, ..Options::default() };
    let mut pair = Pair::connected(1, &options, CALM);
    (0..4).for_each(|number| assert!(pair.ends[0].write(0, message(0, number, 900), 0, false)));
    pair.run_for(200);
    assert_eq!(pair.read[1].len(), 4);
    pair.wires[0].faults.lost = 1000;
    pair.ends[0].write(0, message(0, 4, 900), 0, false);
    pair.run_for(1);
    pair.wires[0].faults.lost = 0;
    let began = pair.now;
    assert!(pair.run_until(4_000, |pair| pair.read[1].len() == 5));
    assert!(pair.now.since(began) < 200 * MS, "{:?}", pair.now.since(began));
}

/// The time-out of a long path is no reason to take all for lost: the probe comes before it, and what it repairs costs
/// the window what any loss does.
#[test]
fn a_lost_tail_is_no_time_out_on_any_path() {
    for delay_ms in [20, 40, 80, 150, 400] {
        let mut pair = Pair::connected(1, &Options::default(), CALM);
        pair.wires.iter_mut().for_each(|wire| wire.delay = delay_ms * MS);
        // Round trips are measured, and the window is longer than the least.
        (0..100).for_each(|number| _ = pair.ends[0].write(0, message(0, number, 900), 0, false));
        for number in 100..120 {
            pair.run_for(3 * delay_ms);
            pair.ends[0].write(0, message(0, number, 900), 0, false);
        }
        pair.run_for(3 * delay_ms);
        pair.ends[0].take_expired();
        let before = pair.ends[0].window()[0];
        pair.wires[0].faults.lost = 1000;
        pair.ends[0].write(0, message(0, 120, 900), 0, false);
        pair.run_for(1);
        pair.wires[0].faults.lost = 0;
        assert!(pair.run_until(20 * delay_ms, |pair| pair.read[1].len() == 121), "{delay_ms} ms");
        pair.run_for(4 * delay_ms);
        assert!(!pair.ends[0].take_expired(), "{delay_ms} ms");
        assert_eq!(pair.ends[0].retransmissions(), 1, "{delay_ms} ms");
        assert!(pair.ends[0].window()[0] < before, "{delay_ms} ms: the loss is told");
    }
}

/// Whoever goes on writing into a wire that is cut hears of it as soon as anybody else.
#[test]
fn writing_on_puts_no_time_out_off() {
    let mut pair = Pair::connected(1, &Options::default(), CALM);
    (0..200).for_each(|number| _ = pair.ends[0].write(0, message(0, number, 900), 0, false));
    pair.run_for(2000);
    assert!(!pair.ends[0].take_expired() && pair.ends[0].window()[0] > 60_000, "{:?}", pair.ends[0].window());
    pair.wires[0].faults.lost = 1000;
    for number in 200..220 {
        pair.ends[0].write(0, message(0, number, 500), 0, false);
        pair.run_for(50);
    }
    // A probe after two round trips, and the time-out 240 ms after it.
    assert!(pair.ends[0].take_expired(), "after a second");
}

/// A burst whose packets take as long as each other must not make the next one, which is a little slower, a time-out.
#[test]
fn bursts_that_differ_a_little_are_not_sent_again() {
    for messages in [1, 30] {
        let mut pair = Pair::connected(1, &Options::default(), CALM);
        for burst in 0..40 {
            pair.wires[0].delay = if burst % 2 == 0 { 125 * MS } else { 140 * MS };
            pair.wires[1].delay = 125 * MS;
            for number in 0..messages {
                pair.ends[0].write(0, message(0, burst * messages + number, 900), 0, false);
            }
            pair.run_for(1000);
        }
        assert_eq!(pair.read[1].len() as u32, 40 * messages);
        assert_eq!(pair.ends[0].retransmissions(), 0, "{messages} messages at once");
    }
}

/// Every second packet of a long flight is lost, as by a queue that is too short. There are more gaps than the window
/// that is left, and each must be told or repaired.
#[test]
fn half_of_a_long_flight_is_repaired_in_some_round_trips() {
    const MESSAGES: u32 = 4000;
    let options = Options { receive_bytes_max: 16 << 20, ..Options::default() };
    for seed in 0..5 {
        let mut pair = Pair::connected(seed, &options, CALM);
        (0..MESSAGES).for_each(|number| assert!(pair.ends[0].write(0, message(0, number, 900), 0, false)));
        let grown = pair.run_until(10_000, |pair| pair.ends[0].window()[0] > 500_000);
        assert!(grown, "{:?} {}", pair.ends[0].window(), pair.read[1].len());
        pair.wires[0].faults.lost = 500;
        pair.run_for(40);
        pair.wires[0].faults.lost = 0;
        let took = pair.now;
        assert!(pair.run_until(5_000, |pair| pair.read[1].len() as u32 == MESSAGES), "seed {seed}");
        let took = pair.now.since(took);
        assert!(took < 800 * MS, "seed {seed}: {took:?} are more than twenty round trips");
        check(&pair.read[1]);
    }
}

/// With 1 % lost no message waits for a time-out, and little is sent again needlessly.
#[test]
fn losses_are_found_without_time_outs() {
    for reorders in [0, 200] {
        let faults = Faults { lost: 10, late: reorders, twice: 0 };
        let mut pair =
            Pair::connected(7, &Options { receive_bytes_max: 8 << 20, ..Options::default() }, faults);
        (0..5000).for_each(|number| {
            assert!(pair.ends[0].write(
                number as u16 % 8,
                message(number as u16 % 8, number / 8, 900),
                0,
                false
            ))
        });
        assert!(pair.run_until(600_000, |pair| pair.read[1].len() == 5000));
        check(&pair.read[1]);
        assert!(!pair.ends[0].take_expired() || reorders > 0);
        let again = pair.ends[0].retransmissions();
        let most = if reorders > 0 { 1000 } else { 130 };
        assert!((20..most).contains(&again), "{again}");
    }
}
