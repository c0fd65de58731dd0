use super::*;
use crate::wire::data::Fragment;

const NOW: Instant = Instant::ZERO;
const DELAY: Duration = Duration::from_millis(20);

fn receiver(limit: usize) -> Receiver {
    let mut receiver = Receiver::new(DELAY, limit, 100_000);
    receiver.begin(1, true);
    receiver
}

fn fragment(stream: u16, message: u32, number: u32, of: u32) -> Fragment {
    let (is_begin, is_end) = (number == 0, number + 1 == of);
    Fragment { stream, message, number, is_begin, is_end, ..Fragment::default() }
}

fn take(
    receiver: &mut Receiver,
    tsn: u32,
    fragment: Fragment,
    bytes: usize,
) -> Result<Option<u16>, Malformed> {
    let taken = receiver.on_data(NOW, &Data { tsn, fragment, payload: &vec![tsn as u8; bytes] });
    receiver.end_packet(NOW);
    taken
}

#[test]
fn fragments_behind_a_gap_leave_room_for_what_fills_it() {
    let mut receiver = receiver(10_000);
    for tsn in 2..100 {
        take(&mut receiver, tsn, fragment(0, tsn - 1, 0, 1), 500).expect("it is honest");
    }
    assert!(receiver.bytes() > 6_000 && receiver.bytes() <= 7_500 + LEAF_BYTES, "{}", receiver.bytes());
    assert_eq!(receiver.cumulative(), 0);
    assert_eq!(take(&mut receiver, 1, fragment(0, 0, 0, 1), 500), Ok(Some(0)));
    let mut messages = 0;
    while receiver.read(0).is_some() {
        messages += 1;
    }
    assert_eq!((messages, receiver.bytes()), (receiver.cumulative(), 0));
}

#[test]
fn messages_that_never_end_end_the_association() {
    let mut receiver = receiver(10_000);
    let ended = (1..100).find_map(|tsn| take(&mut receiver, tsn, fragment(tsn as u16, 0, 0, 2), 500).err());
    assert_eq!(ended, Some(Malformed("messages that do not end use the memory up")));
    assert!(receiver.bytes() <= 10_000 + LEAF_BYTES);
}

#[test]
fn what_was_told_of_is_taken_though_the_limit_fell() {
    let mut receiver = receiver(10_000);
    for tsn in 2..8 {
        take(&mut receiver, tsn, fragment(0, tsn - 1, 0, 1), 500).expect("it is honest");
    }
    receiver.set_limit(1_000);
    assert_eq!(take(&mut receiver, 1, fragment(0, 0, 0, 1), 500), Ok(Some(0)));
    assert_eq!(receiver.cumulative(), 7);
    // Nothing more behind a gap.
    take(&mut receiver, 9, fragment(0, 8, 0, 1), 500).expect("it is honest");
    assert!(!receiver.is_stuck(NOW + Duration::from_secs(1000), Duration::from_secs(30)));
}

#[test]
fn fragments_that_wait_for_others_for_long_are_known() {
    let mut receiver = receiver(10_000);
    take(&mut receiver, 1, fragment(0, 0, 0, 2), 500).expect("it is honest");
    let age = Duration::from_secs(30);
    assert!(!receiver.is_stuck(NOW + age, age) && receiver.is_stuck(NOW + 2 * age, age));
    take(&mut receiver, 2, fragment(0, 0, 1, 2), 500).expect("it is honest");
    assert!(!receiver.is_stuck(NOW + 2 * age, age));
    assert!(receiver.read(0).is_some());
    assert_eq!(receiver.bytes(), 0);
}

#[test]
fn fragments_that_contradict_are_seen() {
    let cases: [&[Fragment]; 6] = [
        // Twice; behind the end; before the begin; a second begin; a second end; of a message that was whole.
        &[fragment(0, 0, 1, 3), fragment(0, 0, 1, 3)],
        &[fragment(0, 0, 1, 2), fragment(0, 0, 2, 4)],
        &[Fragment { number: 3, ..fragment(0, 0, 0, 9) }, fragment(0, 0, 1, 9)],
        &[fragment(0, 0, 0, 9), Fragment { number: 3, is_begin: true, ..fragment(0, 0, 3, 9) }],
        &[fragment(0, 0, 4, 9), fragment(0, 0, 2, 3)],
        &[fragment(0, 0, 0, 1), fragment(0, 0, 0, 1)],
    ];
    for case in cases {
        let mut receiver = receiver(10_000);
        let mut results = (1..).zip(case).map(|(tsn, fragment)| take(&mut receiver, tsn, *fragment, 10));
        assert!(results.next().is_some_and(|result| result.is_ok()), "{case:?}");
        assert!(results.next().is_some_and(|result| result.is_err()), "{case:?}");
    }
}

#[test]
fn gaps_and_what_comes_twice_are_told_and_bounded() {
    let mut receiver = receiver(1 << 20);
    for tsn in (3..5_000).step_by(2) {
        take(&mut receiver, tsn, fragment(0, tsn - 1, 0, 1), 1).expect("it is honest");
        take(&mut receiver, 3, fragment(0, 2, 0, 1), 1).expect("it is honest");
    }
    assert_eq!(receiver.beyond.len(), GAPS_MAX);
    let (gaps, duplicates) = receiver.acknowledge(70);
    assert_eq!((gaps.len(), duplicates.len()), (70, DUPLICATES_TOLD_MAX));
    assert_eq!((gaps[0], gaps[1], duplicates[0]), ((3, 3), (5, 5), 3));
    // What closes one is taken though there are as many as there may be.
    take(&mut receiver, 6, fragment(0, 5, 0, 1), 1).expect("it is honest");
    assert_eq!(receiver.beyond.len(), GAPS_MAX - 1);
    take(&mut receiver, 1, fragment(0, 0, 0, 1), 1).expect("it is honest");
    take(&mut receiver, 2, fragment(0, 1, 0, 1), 1).expect("it is honest");
    assert_eq!((receiver.cumulative(), receiver.acknowledge(1).0[0]), (3, (2, 4)));
}

#[test]
fn every_second_packet_is_acknowledged_and_a_lone_one_in_time() {
    let mut receiver = receiver(10_000);
    take(&mut receiver, 1, fragment(0, 0, 0, 1), 1).expect("it is honest");
    assert_eq!((receiver.wants_ack(), receiver.poll_timeout()), ((false, true), Some(NOW + DELAY)));
    take(&mut receiver, 2, fragment(0, 1, 0, 1), 1).expect("it is honest");
    assert_eq!(receiver.wants_ack(), (true, true));
    receiver.acknowledge(1);
    take(&mut receiver, 3, fragment(0, 2, 0, 1), 1).expect("it is honest");
    receiver.handle_timeout(NOW + DELAY);
    assert_eq!(receiver.wants_ack(), (true, true));
}

#[test]
fn a_window_that_was_shut_is_told_when_it_opens() {
    let mut receiver = receiver(10_000);
    for tsn in 1..=14 {
        take(&mut receiver, tsn, fragment(0, tsn - 1, 0, 1), 500).expect("it is honest");
    }
    let window = receiver.window_bytes();
    receiver.on_window_told(window);
    receiver.acknowledge(1);
    let read = (1..=14).find(|_| {
        receiver.read(0);
        receiver.wants_ack().0
    });
    assert!(read.is_some_and(|read| (2..6).contains(&read)), "{read:?}");
}

#[test]
fn numbers_go_on_after_the_last_one() {
    assert_eq!(unwrap(0, (1 << 32) + 0xffff_ffff), 2 << 32);
    assert_eq!(unwrap(0xffff_ffff, 2 << 32), (1 << 32) + 0xffff_ffff);
    let mut receiver = Receiver::new(DELAY, 100_000, 1000);
    receiver.begin(0xffff_fffe, false);
    for (message, tsn) in (0..).zip([0xffff_fffe, 0xffff_ffff, 0, 1]) {
        assert_eq!(take(&mut receiver, tsn, fragment(0, message, 0, 1), 9), Ok(Some(0)));
    }
    assert_eq!(receiver.cumulative(), 1);
}

#[test]
fn unordered_fragments_without_i_data_are_put_together_by_their_tsns() {
    let mut receiver = Receiver::new(DELAY, 100_000, 1000);
    receiver.begin(1, false);
    let unordered = |number, of| Fragment { is_unordered: true, message: 0, ..fragment(4, 0, number, of) };
    for (tsn, number, whole) in [(3, 2, None), (1, 0, None), (4, 0, None), (2, 1, Some(4)), (5, 1, Some(4))] {
        let of = if tsn > 3 { 2 } else { 3 };
        assert_eq!(take(&mut receiver, tsn, unordered(number, of), 2), Ok(whole), "{tsn}");
    }
    let read: Vec<_> = core::iter::from_fn(|| receiver.read(4)).map(|message| message.bytes).collect();
    assert_eq!(read, [vec![1, 1, 2, 2, 3, 3], vec![4, 4, 5, 5]]);
    assert_eq!(receiver.bytes(), 0);
}
