//! The state machine by scenarios: opening, closing, resets, windows.

mod script;

use heddle_utcp::{KeepAlive, Options};
use script::{plain, run};

const SYN_ACK: &str = "
    0    > S 0:0 mss 1000 ws 7 sackok
    100  < S. 0:0 ack 1 win 60000 mss 1000 ws 7 sackok
    100  > . 1:1 ack 1
";

fn opened(rest: &str) -> String {
    format!("{SYN_ACK}{rest}")
}

#[test]
fn an_active_open_and_an_orderly_close() {
    run(
        true,
        plain(),
        &opened(
            "
    100  state Established
    100  write 500
    100  > P. 1:501 ack 1
    200  < . 1:1 ack 501
    200  shutdown
    200  > F. 501:501 ack 1
    200  state FinWait1
    300  < . 1:1 ack 502
    300  state FinWait2
    300  < . 1:301 ack 502
    300  > . 502:502 ack 301
    300  read 300
    400  < F. 301:301 ack 502
    400  > . 502:502 ack 302
    400  state TimeWait
    # The peer did not hear: its FIN is answered and the wait begins anew.
    1400 < F. 301:301 ack 502
    1400 > . 502:502 ack 302
    61399 state TimeWait
    61400 state Closed
    61400 reason Finished
    ",
        ),
    );
}

#[test]
fn a_passive_open_and_a_close_from_the_other_side() {
    run(
        false,
        plain(),
        "
    0    < S 0:0 win 60000 mss 1200 ws 7 sackok
    0    > S. 0:0 ack 1 mss 1000 ws 7 sackok
    0    state SynReceived
    # The SYN once more: so is the answer.
    50   < S 0:0 win 60000 mss 1200 ws 7 sackok
    50   > S. 0:0 ack 1
    100  < . 1:1 ack 1
    100  state Established
    100  < F. 1:1 ack 1
    100  > . 1:1 ack 2
    100  state CloseWait
    100  write 10
    100  > P. 1:11 ack 2
    100  shutdown
    100  > F. 11:11 ack 2
    100  state LastAck
    200  < . 2:2 ack 12
    200  state Closed
    200  reason Finished
    ",
    );
}

#[test]
fn both_open_at_once() {
    run(
        true,
        plain(),
        "
    0    > S 0:0
    50   < S 0:0 win 60000 mss 1000 ws 7 sackok
    50   > S. 0:0 ack 1
    50   state SynReceived
    100  < S. 0:0 ack 1 win 60000 mss 1000 ws 7 sackok
    100  state Established
    ",
    );
}

#[test]
fn both_close_at_once() {
    run(
        true,
        plain(),
        &opened(
            "
    100  shutdown
    100  > F. 1:1 ack 1
    150  < F. 1:1 ack 1
    150  > . 2:2 ack 2
    150  state Closing
    200  < . 2:2 ack 2
    200  state TimeWait
    ",
        ),
    );
}

#[test]
fn syns_are_repeated_and_given_up() {
    let options = Options { syn_retries_max: 2, ..plain() };
    run(
        true,
        options,
        "
    0     > S 0:0
    1000  > S 0:0
    3000  > S 0:0
    6999  state SynSent
    7000  state Closed
    7000  reason TimedOut
    ",
    );
}

#[test]
fn a_refused_syn() {
    run(
        true,
        plain(),
        "
    0    > S 0:0
    # Somebody guesses: an acknowledgement of nothing we sent.
    50   < R. 0:0 ack 77
    50   state SynSent
    60   < . 0:0 ack 77
    60   > R 77:77
    60   state SynSent
    100  < R. 0:0 ack 1
    100  state Closed
    100  reason Refused
    ",
    );
}

#[test]
fn resets_must_be_exact() {
    run(
        true,
        plain(),
        &opened(
            "
    # In the window but not exact (RFC 5961, section 3.2): a challenge.
    200  < R 100:100
    200  > . 1:1 ack 1
    # Not again within half a second.
    300  < R 101:101
    # Outside the window: nothing.
    800  < R 900000:900000
    # A SYN in the window (section 4.2): a challenge.
    900  < S 100:100
    900  > . 1:1 ack 1
    # An acknowledgement of what was never sent (section 5.2).
    1500 < . 1:1 ack 5000
    1500 > . 1:1 ack 1
    1600 state Established
    1600 < R 1:1
    1600 state Closed
    1600 reason Reset { code: 0 }
    ",
        ),
    );
}

#[test]
fn an_abort_resets_the_peer() {
    run(
        true,
        plain(),
        &opened(
            "
    100  abort
    100  > R. 1:1 ack 1
    100  state Closed
    100  reason Aborted
    ",
        ),
    );
}

#[test]
fn closing_with_data_unread_resets() {
    run(
        true,
        plain(),
        &opened(
            "
    100  < P. 1:101 ack 1
    100  > . 1:1 ack 101
    100  close
    100  > R. 1:1 ack 101
    ",
        ),
    );
}

#[test]
fn data_for_nobody_resets() {
    run(
        true,
        plain(),
        &opened(
            "
    100  close
    100  > F. 1:1 ack 1
    200  < . 1:1 ack 2
    200  state FinWait2
    300  < P. 1:101 ack 2
    300  > R. 2:2 ack 1
    300  state Closed
    ",
        ),
    );
}

#[test]
fn a_closed_window_is_asked_about() {
    run(
        true,
        plain(),
        &opened(
            "
    100  write 3000
    100  > . 1:1001 ack 1
    100  > . 1001:2001 ack 1
    100  > P. 2001:3001 ack 1
    200  < . 1:1 ack 3001 win 0
    200  write 500
    # The time-out is 100 + 200 ms and doubles; the question is a segment that the peer knows.
    500  > . 3000:3000 ack 1
    600  < . 1:1 ack 3001 win 0
    1100 > . 3000:3000 ack 1
    1200 < . 1:1 ack 3001 win 0
    2300 > . 3000:3000 ack 1
    2400 < . 1:1 ack 3001 win 300
    # Less than a segment is held back until the timer, unless it is half of what the window ever was.
    2700 > . 3001:3301 ack 1
    2800 < . 1:1 ack 3301 win 60000
    2800 > P. 3301:3501 ack 1
    ",
        ),
    );
}

#[test]
fn a_window_shorter_than_a_segment_is_used_in_the_end() {
    let options = Options { unit_bytes: 5000, ..plain() };
    run(
        true,
        options,
        &opened(
            "
    200  < . 1:1 ack 1 win 500
    200  write 800
    500  > . 1:501 ack 1
    600  < . 1:1 ack 501 win 500
    600  > P. 501:801 ack 1
    ",
        ),
    );
}

#[test]
fn a_full_buffer_closes_the_window_and_reading_opens_it() {
    let options = Options { receive_buffer_initial_bytes: 3000, receive_buffer_max_bytes: 3000, ..plain() };
    run(
        true,
        options,
        "
    0    > S 0:0
    100  < S. 0:0 ack 1 win 60000 mss 1000 sackok
    100  > . 1:1 ack 1 win 3000
    100  < . 1:1001 ack 1
    100  > . 1:1 ack 1001 win 2000
    100  < . 1001:2001 ack 1
    100  > . 1:1 ack 2001 win 1000
    100  < . 2001:3001 ack 1
    100  > . 1:1 ack 3001 win 0
    # Beyond the window: dropped, but answered.
    200  < . 3001:3501 ack 1
    200  > . 1:1 ack 3001 win 0
    # Their question.
    300  < . 3000:3000 ack 1
    300  > . 1:1 ack 3001 win 0
    400  read 3000
    400  > . 1:1 ack 3001 win 3000
    400  < . 3001:3501 ack 1
    400  > . 1:1 ack 3501 win 2500
    ",
    );
}

#[test]
fn a_silent_peer_is_asked_whether_it_is_there() {
    let keep_alive = KeepAlive { idle_ns: 1_000_000_000, interval_ns: 500_000_000, probes_max: 2 };
    let options = Options { keep_alive: Some(keep_alive), ..plain() };
    run(
        true,
        options,
        &opened(
            "
    1100 > . 0:0 ack 1
    1200 < . 1:1 ack 1
    2200 > . 0:0 ack 1
    2700 > . 0:0 ack 1
    3199 state Established
    3200 state Closed
    3200 reason TimedOut
    ",
        ),
    );
}

#[test]
fn nagle_holds_small_pieces_back() {
    let options = Options { nagle: true, ..plain() };
    run(
        true,
        options,
        &opened(
            "
    100  write 300
    100  > P. 1:301 ack 1
    110  write 300
    120  write 300
    150  write 600
    150  > . 301:1301 ack 1
    200  < . 1:1 ack 301
    300  < . 1:1 ack 1301
    300  > P. 1301:1501 ack 1
    ",
        ),
    );
}

#[test]
fn the_last_of_several_that_leave_together_is_pushed() {
    let options = Options { initial_window_segments: 1, ..plain() };
    run(
        true,
        options,
        &opened(
            "
    100  write 20000
    100  > . 1:1001 ack 1 psh
    200  < . 1:1 ack 1001
    200  > . 1001:2001 ack 1 psh
    200  > P. 2001:3001 ack 1 psh
    # The peer's window ends the next burst.
    300  < . 1:1 ack 3001 win 3500
    300  > . 3001:4001 ack 1 psh
    300  > . 4001:5001 ack 1 psh
    300  > P. 5001:6001 ack 1 psh
    # One by itself is not pushed.
    400  < . 1:1 ack 4001 win 3500
    400  > . 6001:7001 ack 1 psh
    ",
        ),
    );
}

#[test]
fn acknowledgements_are_delayed_after_the_start() {
    // Sixteen are quick; later one waits 40 ms for a second segment.
    let mut table = opened("");
    for number in 0..17 {
        let (start, end) = (1 + 1000 * number, 1001 + 1000 * number);
        table += &format!("200 < . {start}:{end} ack 1\n");
        let quick = number < 16;
        if quick {
            table += &format!("200 > . 1:1 ack {end}\n");
        }
        table += "200 read 1000\n";
    }
    table += "
    240  > . 1:1 ack 17001
    300  < . 17001:18001 ack 1
    310  < . 18001:19001 ack 1
    310  > . 1:1 ack 19001
    ";
    run(true, plain(), &table);
}

#[test]
fn cells_are_not_torn() {
    let options = Options { unit_bytes: 300, ..plain() };
    run(
        true,
        options,
        &opened(
            "
    100  write 2400
    100  > . 1:901 ack 1
    100  > . 901:1801 ack 1
    100  > P. 1801:2401 ack 1
    ",
        ),
    );
}

#[test]
fn data_may_go_with_the_syn() {
    let options = Options { syn_data: true, ..plain() };
    run(
        false,
        options.clone(),
        "
    0    < S 0:500 win 60000 mss 1000 ws 7 sackok
    0    > S. 0:0 ack 501
    0    read 500
    0    write 400
    0    > P. 1:401 ack 501
    100  < . 501:501 ack 401
    100  state Established
    ",
    );
}

#[test]
fn marks_are_echoed_until_the_peer_reacts() {
    let options = Options { ecn: true, ..plain() };
    run(
        true,
        options,
        "
    0    > SEW 0:0
    100  < SE. 0:0 ack 1 win 60000 mss 1000 ws 7 sackok
    100  > . 1:1 ack 1
    100  < . 1:1001 ack 1 ce
    100  > E. 1:1 ack 1001
    100  < . 1001:2001 ack 1
    100  > E. 1:1 ack 2001
    100  < W. 2001:3001 ack 1
    100  > . 1:1 ack 3001
    # And a mark of ours is reacted to once.
    200  write 4000
    200  > . 1:1001 ack 3001 ect
    200  > . 1001:2001 ack 3001 ect
    200  > . 2001:3001 ack 3001 ect
    200  > P. 3001:4001 ack 3001 ect
    300  < E. 3001:3001 ack 1001
    300  write 1000
    300  > WP. 4001:5001 ack 3001 ect
    300  window 5000
    300  < E. 3001:3001 ack 2001
    300  write 1000
    300  > P. 5001:6001 ack 3001 ect
    ",
    );
}

/// A table with congestion marks that opens, writes five segments at 100 ms and sees them leave.
fn marked(rest: &str) {
    let open = "
    0    > SEW 0:0
    100  < SE. 0:0 ack 1 win 60000 mss 1000 ws 7 sackok
    100  > . 1:1 ack 1
    100  write 5000
    100  > . 1:1001 ack 1 ect
    100  > . 1001:2001 ack 1 ect
    100  > . 2001:3001 ack 1 ect
    100  > . 3001:4001 ack 1 ect
    100  > P. 4001:5001 ack 1 ect
    ";
    run(true, Options { ecn: true, ..plain() }, &format!("{open}{rest}"));
}

#[test]
fn any_reduction_of_the_window_answers_marks() {
    marked(
        "
    # One was lost and another marked: the window shrinks once, and the next new data says so.
    200  < E. 1:1 ack 1 sack 1001:5001
    200  > . 1:1001 ack 1
    300  < E. 1:1 ack 5001
    300  window 5000
    300  write 1000
    300  > WP. 5001:6001 ack 1 ect
    400  < . 1:1 ack 6001
    400  window 5000
    ",
    );
}

#[test]
fn a_reduction_that_is_taken_back_answers_no_marks() {
    marked(
        "
    200  << . 1:1 ack 1 sack 1001:4001
    # What was taken for lost was late, but something was marked.
    200  < E. 1:1 ack 4001
    200  write 1000
    200  > WP. 5001:6001 ack 1 ect
    300  < . 1:1 ack 6001
    300  window 5000
    ",
    );
}

#[test]
fn a_repair_for_nothing_takes_no_mark_back() {
    marked(
        "
    200  < E. 1:1 ack 1001
    200  window 5000
    200  << . 1:1 ack 1001 sack 2001:5001
    200  < . 1:1 ack 5001
    200  window 5000
    ",
    );
}

#[test]
fn a_mirror_of_our_offer_is_no_consent_to_marks() {
    run(
        true,
        Options { ecn: true, ..plain() },
        "
    0    > SEW 0:0
    100  < SEW. 0:0 ack 1 win 60000 mss 1000 ws 7 sackok
    100  > . 1:1 ack 1
    100  write 1000
    100  > P. 1:1001 ack 1
    200  < . 1:1 ack 1001
    ",
    );
}

#[test]
fn a_segment_that_acknowledges_more_brings_its_window_however_old_its_data() {
    run(
        true,
        plain(),
        &opened(
            "
    # The first of the peer's is late; the second came before it and offered 2000.
    100  write 4000
    100  > . 1:1001 ack 1
    100  > . 1001:2001 ack 1
    100  > . 2001:3001 ack 1
    100  > P. 3001:4001 ack 1
    200  < . 1001:2001 ack 2001 win 2000
    200  > . 4001:4001 ack 1
    200  < . 1:1001 ack 4001 win 0
    200  > . 4001:4001 ack 2001
    200  write 1000
    # It is asked, and nothing is sent beyond it.
    500  > . 4000:4000 ack 2001
    ",
        ),
    );
}
