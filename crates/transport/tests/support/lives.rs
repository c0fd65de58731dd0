//! How connections come to be and how they end.

use crate::bench::{
    Bench, End, MS, OTHER_PROOF, READY_RTTS, S, Sent, awaited, body, delay, dialled, options, secret,
};
use crate::source::Source;
use core::time::Duration;
use heddle_netem::{DirectionOptions, Loss, QueueOptions, Rate, Step};
use heddle_proto::cell::Command;
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{ConnectionError, ConnectionEvent, ConnectionOptions, FlowState};
use heddle_seam::time::Instant;
use zeroize::Zeroizing;

/// The only event but for room and capacity.
fn outcome(end: &End) -> ConnectionEvent {
    let outcomes: Vec<&ConnectionEvent> = end
        .events
        .iter()
        .map(|(_, event)| event)
        .filter(|event| !matches!(event, ConnectionEvent::FlowRoom(_) | ConnectionEvent::Capacity))
        .collect();
    match &outcomes[..] {
        [only] => (*only).clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_connection_is_ready_after_few_round_trips() {
    let mut bench = Bench::pair(delay(50 * MS), &options());
    bench.open(0, 1);
    bench.run_for(149 * MS, &mut ());
    assert_eq!(bench.ends[0].events, []);
    bench.run_until(Instant::from_nanos((READY_RTTS * 100.0) as u64 * MS + 9 * MS), &mut ());
    assert_eq!(outcome(&bench.ends[0]), ConnectionEvent::Ready);
    assert_eq!(outcome(&bench.ends[1]), ConnectionEvent::Ready);
}

#[test]
fn a_dialler_that_nobody_awaits_gives_up() {
    let mut bench = Bench::pair(delay(50 * MS), &options());
    let here = bench.connection(0, 1, Role::Initiator);
    bench.ends[0].endpoint.open(bench.now, here);
    bench.run_for(11 * S, &mut ());
    assert_eq!(outcome(&bench.ends[0]), ConnectionEvent::Ended(ConnectionError::NoAnswer));
    assert!(bench.ends[1].endpoint.refused_datagrams().strangers > 0);
    bench.run_for(60 * S, &mut ());
    assert_eq!(bench.ends[0].endpoint.poll_timeout(), None, "nothing is left of it");
}

#[test]
fn a_listener_that_nobody_dials_gives_up() {
    let mut bench = Bench::pair(delay(50 * MS), &options());
    let there = bench.connection(1, 0, Role::Responder);
    bench.ends[1].endpoint.open(bench.now, there);
    bench.run_for(29 * S, &mut ());
    assert_eq!(bench.ends[1].events, []);
    bench.run_for(2 * S, &mut ());
    assert_eq!(outcome(&bench.ends[1]), ConnectionEvent::Ended(ConnectionError::NoAnswer));
    assert_eq!(bench.ends[1].endpoint.poll_timeout(), None);
}

/// Opens with something changed on the dialler's side.
fn open_with(change: impl FnOnce(&mut ConnectionOptions)) -> Bench {
    let mut bench = Bench::pair(delay(10 * MS), &options());
    let there = bench.connection(1, 0, Role::Responder);
    let mut here = bench.connection(0, 1, Role::Initiator);
    change(&mut here);
    bench.ends[1].endpoint.open(bench.now, there);
    bench.ends[0].endpoint.open(bench.now, here);
    bench.run_for(40 * S, &mut ());
    bench
}

#[test]
fn a_listener_with_another_key_is_not_believed() {
    let bench = open_with(|here| here.peer_key[0] ^= 1);
    assert_eq!(outcome(&bench.ends[0]), ConnectionEvent::Ended(ConnectionError::WrongProof));
    assert_eq!(outcome(&bench.ends[1]), ConnectionEvent::Ended(ConnectionError::PeerClosed));
}

#[test]
fn a_dialler_with_another_key_is_not_believed() {
    let mut bench = Bench::pair(delay(10 * MS), &options());
    let there = bench.connection(1, 0, Role::Responder);
    bench.ends[0].endpoint.set_key(&secret(7));
    let here = bench.connection(0, 1, Role::Initiator);
    bench.ends[1].endpoint.open(bench.now, there);
    bench.ends[0].endpoint.open(bench.now, here);
    bench.run_for(40 * S, &mut ());
    assert_eq!(outcome(&bench.ends[1]), ConnectionEvent::Ended(ConnectionError::WrongProof));
    let dialler = &bench.ends[0].events;
    assert!(dialler.iter().all(|(_, event)| *event != ConnectionEvent::Ready), "{dialler:?}");
}

#[test]
fn a_dialler_with_another_proof_is_not_believed() {
    let bench = open_with(|here| here.secrets.dialler_proof = Zeroizing::new([9; 32]));
    let [dialler, listener] = OTHER_PROOF;
    assert_eq!(outcome(&bench.ends[1]), ConnectionEvent::Ended(listener));
    let ended = (bench.ends[0].events.last()).map(|(_, event)| event.clone());
    assert_eq!(ended, Some(ConnectionEvent::Ended(dialler)));
}

#[test]
fn a_listener_with_another_proof_is_not_believed() {
    let bench = open_with(|here| here.secrets.listener_proof = Zeroizing::new([9; 32]));
    assert_eq!(outcome(&bench.ends[0]), ConnectionEvent::Ended(ConnectionError::WrongProof));
}

#[test]
fn closing_tells_the_peer_and_leaves_nothing() {
    let mut bench = Bench::pair(delay(10 * MS), &options());
    let (a, _) = bench.open_ready();
    bench.ends[0].endpoint.close(bench.now, a);
    bench.run_for(30 * S, &mut ());
    assert_eq!(bench.ends[0].events, []);
    assert_eq!(outcome(&bench.ends[1]), ConnectionEvent::Ended(ConnectionError::PeerClosed));
    for end in &mut bench.ends {
        assert_eq!(end.endpoint.poll_timeout(), None);
        assert_eq!(end.endpoint.capacity(a), 0);
    }
}

#[test]
fn an_idle_connection_lives_and_says_little() {
    let mut bench = Bench::pair(delay(10 * MS), &options());
    bench.open_ready();
    bench.run_for(60 * S, &mut ());
    bench.record = Some(Vec::new());
    bench.run_for(3600 * S, &mut ());
    assert_eq!((&bench.ends[0].events[..], &bench.ends[1].events[..]), (&[][..], &[][..]));
    let packets = bench.record.take().map_or(0, |record| record.len());
    assert!((240..=1500).contains(&packets), "{packets} packets in an hour");
}

#[test]
fn a_path_that_stumbles_is_suspect_before_it_is_dead_and_an_answer_clears_it() {
    let down = |at_ns: u64, down: bool| Step { at_ns, down: Some(down), ..Step::default() };
    for (down_s, suspects, lives) in [(1, false, true), (20, true, true), (100, true, false)] {
        let schedule = vec![down(10 * S, true), down((10 + down_s) * S, false)];
        let rate = Rate::BitsPerS(1_000_000);
        let queue = QueueOptions { packets_max: 10, ..QueueOptions::default() };
        let there = DirectionOptions { schedule, rate, queue, ..delay(50 * MS) };
        let mut bench = Bench::pair(there, &options());
        let (a, _) = bench.open_ready();
        let mut source = Source::new(0, a, &[dialled(1)], 1_000_000);
        let mut times = [None; 3];
        let until = Instant::from_nanos((12 + down_s) * S);
        bench.run_until(until, &mut |now: Instant, ends: &mut [End]| {
            source.step(now, ends);
            let ended = ConnectionEvent::Ended(ConnectionError::PathDead);
            let wanted = [ConnectionEvent::Suspect(true), ConnectionEvent::Suspect(false), ended];
            for (at, event) in times.iter_mut().zip(wanted) {
                if ends[0].events.contains(&(a, event)) {
                    at.get_or_insert(now.since(Instant::from_nanos(10 * S)).as_secs());
                }
            }
        });
        let [suspect, good, dead] = times;
        assert_eq!(suspect.is_some_and(|at| (3..6).contains(&at)), suspects, "{suspect:?} of {down_s} s");
        // It is good again within two seconds of the path.
        assert_eq!(good.is_some_and(|at| at <= down_s + 1), suspects && lives, "{good:?} of {down_s} s");
        assert_eq!(dead.is_some_and(|at| (60..66).contains(&at)), !lives, "{dead:?} of {down_s} s");
        if lives {
            let before = bench.ends[1].cells.len();
            bench.run_for(5 * S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
            let cells = bench.ends[1].cells.len() - before;
            assert!(cells > 500, "{cells} cells in the 5 s after {down_s} s");
        }
    }
}

/// For ten seconds nobody looks after an end that waits for an answer, while nothing comes back for `down_s`. Returns
/// how long after that it suspects the path, and how many of 20 cells arrive.
fn stall(down_s: u64) -> (Option<Duration>, usize) {
    let down = |at_ns: u64, down: bool| Step { at_ns, down: Some(down), ..Step::default() };
    let schedule =
        if down_s > 0 { vec![down(5 * S, true), down((5 + down_s) * S, false)] } else { Vec::new() };
    let mut bench = Bench::pair(DirectionOptions { schedule, ..delay(10 * MS) }, &options());
    let (a, _) = bench.open_ready();
    let mut source = Source::new(0, a, &[dialled(1)], 20);
    let suspect = (a, ConnectionEvent::Suspect(true));
    let mut suspected = None;
    let mut step = |now: Instant, ends: &mut [End]| {
        source.step(now, ends);
        if ends[0].events.contains(&suspect) {
            suspected.get_or_insert(now);
        }
    };
    bench.run_until(Instant::from_nanos(5 * S - MS), &mut ());
    bench.run_for(2 * MS, &mut step);
    let wakes = bench.now + Duration::from_secs(10);
    bench.ends[0].stalled_until = wakes;
    bench.run_until(wakes + Duration::from_secs(20), &mut step);
    (suspected.map(|at| at.since(wakes)), bench.ends[1].cells.len())
}

#[test]
fn whoever_was_late_does_not_take_that_for_the_paths_silence() {
    assert_eq!(stall(0), (None, 20), "the answer is there, unread");
    assert_eq!(stall(9), (None, 20), "the answer was lost, and nobody asked again");
    let (waited, _) = stall(60);
    let waited = waited.expect("a path that stays dead is noticed");
    assert!(waited > Duration::from_secs(1) && waited < Duration::from_secs(4), "{waited:?}");
}

#[test]
fn one_seed_gives_one_run() {
    let run = || {
        let mut bench = Bench::pair(delay(10 * MS), &options());
        bench.record = Some(Vec::new());
        let (a, _) = bench.open_ready();
        let mut source = Source::new(0, a, &[dialled(1), dialled(2)], 500);
        bench.run_for(5 * S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
        let sizes: Vec<usize> =
            bench.record.take().into_iter().flatten().map(|sent: Sent| sent.data.len()).collect();
        (sizes, bench.ends[1].cells.clone())
    };
    assert_eq!(run(), run());
}

#[test]
fn nothing_can_be_sent_before_a_connection_is_ready() {
    let mut bench = Bench::pair(delay(50 * MS), &options());
    let (a, _) = bench.open(0, 1);
    assert_eq!(bench.ends[0].endpoint.capacity(a), 0);
    bench.ends[0].endpoint.send(bench.now, a, dialled(1), Command::CREATE2, &body(0));
    bench.run_for(5 * S, &mut ());
    assert_eq!(bench.ends[1].cells, []);
}

/// A relay asks for capacity when it has something to send, and then waits to be told of more. Capacity also ends by
/// losses, while the relay has nothing to send.
#[test]
fn whoever_waits_for_capacity_is_told_of_it() {
    const CELLS: u32 = 6000;
    let there = DirectionOptions {
        rate: Rate::BitsPerS(20_000_000),
        loss: Loss::Bernoulli { probability: 0.02 },
        queue: QueueOptions { packets_max: 20, ..QueueOptions::default() },
        ..delay(2 * MS)
    };
    let mut bench = Bench::pair(there, &options());
    let (a, _) = bench.open(0, 1);
    bench.run_for(5 * S, &mut ());
    let (mut number, mut supplied, mut next, mut waits) = (0, 0, bench.now, false);
    bench.run_for(60 * S, &mut |now: Instant, ends: &mut [End]| {
        for (_, event) in ends[0].events.drain(..) {
            waits &= !matches!(event, ConnectionEvent::Capacity | ConnectionEvent::Writable(_));
        }
        while next <= now {
            (supplied, next) = ((supplied + 40).min(CELLS), next + Duration::from_millis(25));
        }
        while number < supplied && !waits {
            waits = ends[0].endpoint.capacity(a) == 0;
            if !waits {
                let command = if number == 0 { Command::CREATE2 } else { Command::RELAY };
                let state = ends[0].endpoint.send(now, a, dialled(1), command, &body(number));
                (number, waits) = (number + 1, state == FlowState::Blocked);
            }
        }
    });
    assert_eq!((number, bench.ends[1].cells.len()), (CELLS, CELLS as usize));
}

/// Who can be heard and hears nothing is no answer to whoever speaks to him in vain.
#[test]
fn a_path_that_is_dead_one_way_is_suspect_though_the_peer_is_heard() {
    let down = Step { at_ns: 10 * S, down: Some(true), ..Step::default() };
    let there = DirectionOptions { schedule: vec![down], ..delay(10 * MS) };
    let mut bench = Bench::pair_of(there, Some(delay(10 * MS)), &options(), 1);
    let (a, b) = bench.open_ready();
    let mut sources =
        [Source::new(0, a, &[dialled(1)], 1_000_000), Source::new(1, b, &[awaited(1)], 1_000_000)];
    bench.run_until(Instant::from_nanos(9_900 * MS), &mut ());
    bench.run_until(Instant::from_nanos(15 * S), &mut |now: Instant, ends: &mut [End]| {
        sources.iter_mut().for_each(|source| source.step(now, ends));
    });
    for end in 0..2 {
        let conn = [a, b][end];
        let suspects = bench.ends[end].events.contains(&(conn, ConnectionEvent::Suspect(true)));
        assert!(suspects, "end {end}: {:?}", bench.ends[end].events.last());
    }
}

/// A flood fills the buffer of a port, so that most of what comes is lost, and a path is suspect and good in turn. Lost
/// are what an end sends, or its acknowledgements.
#[test]
fn losing_nine_in_ten_for_a_minute_ends_no_flow() {
    const CELLS: u32 = 2_000;
    let lossy = |at_ns: u64, probability: f64| Step {
        at_ns,
        loss: Some(Loss::Bernoulli { probability }),
        ..Step::default()
    };
    for (there, back) in [(0.9, 0.0), (0.0, 0.9)] {
        let wire = |loss: f64| {
            let schedule = vec![lossy(10 * S, loss), lossy(70 * S, 0.0)];
            DirectionOptions { schedule, rate: Rate::BitsPerS(1_000_000), ..delay(10 * MS) }
        };
        let mut bench = Bench::pair_of(wire(there), Some(wire(back)), &options(), 1);
        let (a, _) = bench.open_ready();
        let mut source = Source::new(0, a, &[dialled(1)], CELLS);
        bench.run_until(Instant::from_nanos(9 * S), &mut ());
        bench.run_until(Instant::from_nanos(100 * S), &mut |now: Instant, ends: &mut [End]| {
            source.step(now, ends)
        });
        let stumbles = |end: &End| {
            end.events.iter().filter(|(_, event)| *event == ConnectionEvent::Suspect(true)).count()
        };
        let suspected = bench.ends.iter().map(stumbles).sum::<usize>();
        assert!(suspected > 1, "{there} {back}: the path stumbled {suspected} times");
        assert_eq!(bench.ends[1].cells.len(), CELLS as usize, "{there} {back}: {suspected}");
    }
}
