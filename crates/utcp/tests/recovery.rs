//! Losses by scenarios: SACK, RACK, TLP, PRR, RTO, and what is undone.

mod script;

use heddle_utcp::Options;
use script::{plain, run};

const OPEN: &str = "
    0    > S 0:0 mss 1000 ws 7 sackok
    100  < S. 0:0 ack 1 win 60000 mss 1000 ws 7 sackok
    100  > . 1:1 ack 1
";

/// A table that opens, writes ten segments at 100 ms and sees them leave.
fn ten_sent(rest: &str) -> String {
    let segments: String = (0..10)
        .map(|number| {
            let (start, end) = (1 + 1000 * number, 1001 + 1000 * number);
            format!("100 > {} {start}:{end} ack 1\n", if number == 9 { "P." } else { "." })
        })
        .collect();
    format!("{OPEN}\n100 write 10000\n{segments}\n{rest}")
}

#[test]
fn three_sacked_segments_mark_a_loss() {
    run(
        true,
        plain(),
        &ten_sent(
            "
    200  < . 1:1 ack 1001
    # The second is lost. Reordering was never seen: the third SACK marks it.
    200  < . 1:1 ack 1001 sack 2001:3001
    200  < . 1:1 ack 1001 sack 2001:4001
    200  < . 1:1 ack 1001 sack 2001:5001
    200  > . 1001:2001 ack 1
    200  < . 1:1 ack 1001 sack 2001:10001
    300  < . 1:1 ack 10001
    # Half of eleven segments, in whole ones.
    300  window 5000
    ",
        ),
    );
}

#[test]
fn before_three_the_reordering_timer_marks_it() {
    run(
        true,
        plain(),
        &ten_sent(
            "
    200  < . 1:1 ack 8001
    # The ninth is lost: one SACK only. A quarter of the round trip later it is taken for lost.
    200  < . 1:1 ack 8001 sack 9001:10001
    225  > . 8001:9001 ack 1
    325  < . 1:1 ack 10001
    ",
        ),
    );
}

#[test]
fn reordering_widens_the_window() {
    run(
        true,
        plain(),
        &ten_sent(
            "
    200  < . 1:1 ack 1001
    200  < . 1:1 ack 1001 sack 2001:3001
    210  < . 1:1 ack 3001
    # The second came after the third: from now on three SACKs are not enough.
    210  < . 1:1 ack 3001 sack 4001:8001
    220  < . 1:1 ack 8001
    ",
        ),
    );
}

#[test]
fn a_lost_retransmission_is_sent_again() {
    run(
        true,
        plain(),
        &ten_sent(
            "
    200  < . 1:1 ack 1001 sack 2001:5001
    200  > . 1001:2001 ack 1
    200  write 3000
    210  < . 1:1 ack 1001 sack 2001:8001
    210  > . 10001:11001 ack 1
    210  > . 11001:12001 ack 1
    # What was sent after the retransmission arrived, the retransmission did not.
    310  < . 1:1 ack 1001 sack 2001:8001,10001:12001
    310  > . 1001:2001 ack 1
    310  > . 8001:9001 ack 1
    310  > . 9001:10001 ack 1
    310  > P. 12001:13001 ack 1
    320  < . 1:1 ack 8001 sack 10001:12001
    410  < . 1:1 ack 13001
    ",
        ),
    );
}

/// Opens with timestamps, and ten segments leave.
const TEN_STAMPED: &str = "
    0    > S 0:0 ts 10000 0
    100  < S. 0:0 ack 1 win 60000 mss 1012 ws 7 sackok ts 5000 10000
    100  > . 1:1 ack 1 ts 10100 5000
    100  write 10000
    100  > . 1:1001 ack 1 ts 10100 5000
    100  > . 1001:2001 ack 1
    100  > . 2001:3001 ack 1
    100  > . 3001:4001 ack 1
    100  > . 4001:5001 ack 1
    100  > . 5001:6001 ack 1
    100  > . 6001:7001 ack 1
    100  > . 7001:8001 ack 1
    100  > . 8001:9001 ack 1
    100  > P. 9001:10001 ack 1
";

fn stamped() -> Options {
    Options { timestamps: true, mss_bytes: 1012, ..plain() }
}

#[test]
fn a_retransmission_tells_that_an_earlier_one_is_lost() {
    let rest = "
    200  < . 1:1 ack 1 sack 3001:10001 ts 5100 10100
    200  > . 1:1001 ack 1
    200  > . 1001:2001 ack 1
    200  > . 2001:3001 ack 1
    # The first of them is lost again. The echo is that of what came before the hole, as long as there is one.
    300  < . 1:1 ack 1 sack 1001:10001 ts 5200 10100
    300  > . 1:1001 ack 1
    400  < . 1:1 ack 10001 ts 5300 10300
    ";
    run(true, stamped(), &format!("{TEN_STAMPED}{rest}"));
}

#[test]
fn a_retransmission_does_not_make_what_it_overtakes_look_old() {
    let rest = "
    200  < . 1:1 ack 1001 ts 5100 10100
    200  < . 1:1 ack 1001 sack 2001:3001 ts 5100 10100
    202  < . 1:1 ack 3001 ts 5102 10100
    # The wire reorders. The fourth is lost; 25 ms later than without reordering that is sure.
    203  < . 1:1 ack 3001 sack 4001:10001 ts 5103 10100
    # What was sent up to 25 ms before may still come: the timestamp is not later than that of any of it.
    228  > . 3001:4001 ack 1 ts 10203 5103
    # The echo is not taken for the original's, which would undo the reduction.
    328  < . 1:1 ack 10001 ts 5228 10203
    328  window 9000
    ";
    run(true, stamped(), &format!("{TEN_STAMPED}{rest}"));
}

#[test]
fn a_lost_tail_is_probed() {
    run(
        true,
        plain(),
        &ten_sent(
            "
    200  < . 1:1 ack 8001
    # Two are lost. Two round trips after the acknowledgement the last is sent again, and its SACK marks the other.
    402  > P. 9001:10001 ack 1
    502  < . 1:1 ack 8001 sack 9001:10001
    502  > . 8001:9001 ack 1
    602  < . 1:1 ack 10001
    ",
        ),
    );
}

#[test]
fn a_probe_that_repaired_a_loss_reduces_the_window() {
    run(
        true,
        plain(),
        &ten_sent(
            "
    200  < . 1:1 ack 9001
    200  window 18000
    # A lone segment is given time for a delayed acknowledgement, which is as long as the time-out here.
    500  > P. 9001:10001 ack 1
    600  < . 1:1 ack 10001
    600  write 1000
    600  > P. 10001:11001 ack 1
    700  < . 1:1 ack 11001
    ",
        ),
    );
}

#[test]
fn the_timer_sends_the_first_again_and_backs_off() {
    let options = Options { sack: false, retries_max: 3, ..plain() };
    run(
        true,
        options,
        "
    0    > S 0:0
    100  < S. 0:0 ack 1 win 60000 mss 1000 ws 7 sackok
    100  > . 1:1 ack 1
    100  write 2000
    100  > . 1:1001 ack 1
    100  > P. 1001:2001 ack 1
    400  > . 1:1001 ack 1
    1000 > . 1:1001 ack 1
    2200 > . 1:1001 ack 1
    4599 state Established
    4600 state Closed
    4600 reason TimedOut
    ",
    );
}

#[test]
fn time_outs_into_a_shut_window_count_only_if_they_are_not_answered() {
    let options = Options { sack: false, retries_max: 2, ..plain() };
    run(
        true,
        options,
        "
    0    > S 0:0
    100  < S. 0:0 ack 1 win 60000 mss 1000 ws 7 sackok
    100  > . 1:1 ack 1
    100  write 1000
    100  > P. 1:1001 ack 1
    200  < . 1:1 ack 1 win 0
    400  > P. 1:1001 ack 1
    500  < . 1:1 ack 1 win 0
    1000 > P. 1:1001 ack 1
    1100 < . 1:1 ack 1 win 0
    2200 > P. 1:1001 ack 1
    2300 < . 1:1 ack 1 win 0
    4600 > P. 1:1001 ack 1
    4700 < . 1:1 ack 1 win 0
    9400 > P. 1:1001 ack 1
    19000 > P. 1:1001 ack 1
    38199 state Established
    38200 state Closed
    38200 reason TimedOut
    ",
    );
}

#[test]
fn the_first_leaves_at_its_time_whatever_was_sent_since() {
    run(
        true,
        plain(),
        &format!(
            "{OPEN}
    100  write 1000
    100  > P. 1:1001 ack 1
    390  write 1000
    390  > P. 1001:2001 ack 1
    # The time-out of the first segment is 300 ms; the probe comes no later, and sets it anew (RFC 8985, section 7.2).
    400  > P. 1001:2001 ack 1
    690  write 1000
    690  > P. 2001:3001 ack 1
    # A window of one segment is taken up by the last one, which is too young to be lost (RFC 6298, section 5.4).
    700  > P. 1:1001 ack 1
    700  window 1000
    800  < . 1:1 ack 1 sack 2001:3001
    800  > P. 1001:2001 ack 1
    900  < . 1:1 ack 3001
    "
        ),
    );
}

#[test]
fn a_time_out_stays_doubled_until_a_round_trip_is_measured() {
    run(
        true,
        Options { sack: false, ..plain() },
        "
    0    > S 0:0
    100  < S. 0:0 ack 1 win 60000 mss 1000 ws 7 sackok
    100  > . 1:1 ack 1
    100  write 1000
    100  > P. 1:1001 ack 1
    400  > P. 1:1001 ack 1
    1000 > P. 1:1001 ack 1
    # Nobody knows which of the three this is for: it measures nothing (Karn).
    1050 < . 1:1 ack 1001
    1050 write 1000
    1050 > P. 1001:2001 ack 1
    2250 > P. 1001:2001 ack 1
    2300 < . 1:1 ack 2001
    2300 write 1000
    2300 > P. 2001:3001 ack 1
    2400 < . 1:1 ack 3001
    2400 write 1000
    2400 > P. 3001:4001 ack 1
    2700 > P. 3001:4001 ack 1
    ",
    );
}

#[test]
fn after_a_lost_syn_the_time_out_is_three_seconds() {
    run(
        true,
        plain(),
        "
    0    > S 0:0
    1000 > S 0:0
    1100 < S. 0:0 ack 1 win 60000 mss 1000 ws 7 sackok
    1100 > . 1:1 ack 1
    1100 write 1000
    1100 > P. 1:1001 ack 1
    4100 > P. 1:1001 ack 1
    ",
    );
}

#[test]
fn after_a_time_out_slow_start_repairs() {
    run(
        true,
        plain(),
        &ten_sent(
            "
    # All are lost, the probe too.
    302  > P. 9001:10001 ack 1
    602  > . 1:1001 ack 1
    602  window 1000
    702  < . 1:1 ack 1001
    702  > . 1001:2001 ack 1
    702  > . 2001:3001 ack 1
    802  < . 1:1 ack 3001
    802  > . 3001:4001 ack 1
    802  > . 4001:5001 ack 1
    802  > . 5001:6001 ack 1
    802  > . 6001:7001 ack 1
    902  < . 1:1 ack 7001
    902  > . 7001:8001 ack 1
    902  > . 8001:9001 ack 1
    902  > P. 9001:10001 ack 1
    902  window 5000
    1002 < . 1:1 ack 10001
    ",
        ),
    );
}

#[test]
fn without_sack_three_duplicates_and_partial_acknowledgements() {
    let options = Options { sack: false, ..plain() };
    let table = ten_sent(
        "
    200  < . 1:1 ack 1001
    200  < . 1:1 ack 1001
    200  < . 1:1 ack 1001
    200  < . 1:1 ack 1001
    200  > . 1001:2001 ack 1
    # The fourth is lost as well: the next acknowledgement is partial (RFC 6582).
    300  < . 1:1 ack 3001
    300  > . 3001:4001 ack 1
    400  < . 1:1 ack 10001
    ",
    );
    run(true, options, &table.replace("    0    > S 0:0 mss 1000 ws 7 sackok\n", "    0    > S 0:0\n"));
}

#[test]
fn duplicates_reported_undo_the_reduction() {
    run(
        true,
        plain(),
        &ten_sent(
            "
    200  < . 1:1 ack 1001
    200  window 11000
    200  < . 1:1 ack 1001 sack 2001:5001
    200  > . 1001:2001 ack 1
    # The original was only late; then the receiver reports the retransmission as a duplicate.
    210  < . 1:1 ack 5001
    # Slow start goes on where it was, with the five segments that this acknowledgement delivers.
    300  < . 1:1 ack 10001 sack 1001:2001
    300  window 16000
    ",
        ),
    );
}

#[test]
fn what_arrives_before_it_was_sent_again_undoes_at_once() {
    run(
        true,
        plain(),
        &ten_sent(
            "
    # Three SACKs take the first for lost, and then it comes: it never was, and the window stays.
    200  << . 1:1 ack 1 sack 1001:4001
    200  < . 1:1 ack 4001
    200  window 11000
    300  < . 1:1 ack 10001
    300  window 17000
    ",
        ),
    );
}

#[test]
fn the_rate_is_reduced_in_proportion() {
    // Reno halves: ten segments in flight become five. Each acknowledgement delivers one, and lets half a segment
    // leave, in whole ones; after the loss itself, which leaves at once (RFC 6937, section 3).
    run(
        true,
        plain(),
        &ten_sent(
            "
    150  write 20000
    200  < . 1:1 ack 1 sack 1001:2001
    200  > . 10001:11001 ack 1
    201  < . 1:1 ack 1 sack 1001:3001
    201  > . 11001:12001 ack 1
    202  < . 1:1 ack 1 sack 1001:4001
    202  > . 1:1001 ack 1
    203  < . 1:1 ack 1 sack 1001:5001
    204  < . 1:1 ack 1 sack 1001:6001
    204  > . 12001:13001 ack 1
    205  < . 1:1 ack 1 sack 1001:7001
    206  < . 1:1 ack 1 sack 1001:8001
    206  > . 13001:14001 ack 1
    207  < . 1:1 ack 1 sack 1001:9001
    208  < . 1:1 ack 1 sack 1001:10001
    # Now five are in flight, as many as may be: from here on as many leave as arrive.
    208  window 5000
    300  < . 1:1 ack 1 sack 1001:11001
    300  > . 14001:15001 ack 1
    302  < . 1:1 ack 12001
    302  > . 15001:16001 ack 1
    302  > . 16001:17001 ack 1
    302  window 5000
    ",
        ),
    );
}

#[test]
fn an_echo_from_before_the_retransmission_undoes_at_once() {
    let options = Options { timestamps: true, mss_bytes: 1012, ..plain() };
    // The clock began at 10,000 ms, and the offset is zero.
    let table = "
    0    > S 0:0 ts 10000 0
    100  < S. 0:0 ack 1 win 60000 mss 1012 ws 7 sackok ts 5000 10000
    100  > . 1:1 ack 1 ts 10100 5000
    100  write 5000
    100  > . 1:1001 ack 1
    100  > . 1001:2001 ack 1
    100  > . 2001:3001 ack 1
    100  > . 3001:4001 ack 1
    100  > P. 4001:5001 ack 1
    200  < . 1:1 ack 1 sack 1001:4001 ts 5100 10100
    200  > . 1:1001 ack 1 ts 10200 5100
    200  window 6072
    # It echoes the original.
    205  < . 1:1 ack 4001 ts 5105 10100
    205  window 10120
    210  < . 1:1 ack 5001 ts 5110 10100
    ";
    let table = table.replace("window 6072", "state Established").replace("window 10120", "window 10000");
    run(true, options, &table);
}

#[test]
fn an_acknowledgement_of_an_original_undoes_a_time_out() {
    run(
        true,
        plain(),
        &ten_sent(
            "
    # The wire stands still for a second.
    302  > P. 9001:10001 ack 1
    602  > . 1:1001 ack 1
    602  window 1000
    # Two originals more, never sent again: nothing was lost (F-RTO). The window is what it was, and grows by the three.
    700  < . 1:1 ack 3001
    700  window 13000
    900  < . 1:1 ack 10001
    ",
        ),
    );
}

#[test]
fn an_acknowledgement_of_what_was_sent_again_undoes_no_time_out() {
    run(
        true,
        plain(),
        &ten_sent(
            "
    302  > P. 9001:10001 ack 1
    602  > . 1:1001 ack 1
    700  < . 1:1 ack 1001
    700  > . 1001:2001 ack 1
    700  > . 2001:3001 ack 1
    ",
        ),
    );
}

#[test]
fn losses_wait_for_no_new_data_that_may_not_leave() {
    run(
        true,
        Options { nagle: true, ..plain() },
        &format!(
            "{OPEN}
    100  write 3000
    100  > . 1:1001 ack 1
    100  > . 1001:2001 ack 1
    100  > P. 2001:3001 ack 1
    302  > P. 2001:3001 ack 1
    602  > . 1:1001 ack 1
    # New data would tell whether the time-out was one (F-RTO), but Nagle holds it back.
    650  write 200
    702  < . 1:1 ack 1001
    702  > . 1001:2001 ack 1
    702  > P. 2001:3001 ack 1
    802  < . 1:1 ack 3001
    802  > P. 3001:3201 ack 1
    "
        ),
    );
}

#[test]
fn the_receiver_reports_the_latest_ranges_and_duplicates() {
    run(
        true,
        plain(),
        &format!(
            "{OPEN}
    200  < . 1001:2001 ack 1
    200  > . 1:1 ack 1 sack 1001:2001
    200  < . 3001:4001 ack 1
    200  > . 1:1 ack 1 sack 3001:4001,1001:2001
    200  < . 5001:6001 ack 1
    200  > . 1:1 ack 1 sack 5001:6001,3001:4001,1001:2001
    200  < . 2001:3001 ack 1
    200  > . 1:1 ack 1 sack 1001:4001,5001:6001
    # A duplicate out of order, then one in order (RFC 2883).
    200  < . 5001:6001 ack 1
    200  > . 1:1 ack 1 sack 5001:6001,5001:6001,1001:4001
    200  < . 1:1001 ack 1
    200  > . 1:1 ack 4001 sack 5001:6001
    200  < . 1:1001 ack 1
    200  > . 1:1 ack 4001 sack 1:1001,5001:6001
    200  < . 4001:5001 ack 1
    200  > . 1:1 ack 6001
    200  read 6000
    "
        ),
    );
}

#[test]
fn nonsense_in_sack_blocks_is_ignored() {
    run(
        true,
        plain(),
        &ten_sent(
            "
    # What was never sent, what is empty, half a segment, a block turned around.
    200  < . 1:1 ack 1 sack 20001:30001
    200  < . 1:1 ack 1 sack 5001:5001
    200  < . 1:1 ack 1 sack 2501:2901
    200  < . 1:1 ack 10001
    ",
        ),
    );
}

#[test]
fn an_unused_window_shrinks_unless_it_may_stay() {
    for (shrinks, window) in [(true, "10000"), (false, "18000")] {
        let options = Options { slow_start_after_idle: shrinks, ..plain() };
        let table = ten_sent(
            "
    200   < . 1:1 ack 10001
    200   window 18000
    60200 write 100
    60200 > P. 10001:10101 ack 1
    60200 window LEFT
    60300 < . 1:1 ack 10101
    ",
        );
        run(true, options, &table.replace("LEFT", window));
    }
}
