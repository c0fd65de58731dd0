//! Onionskins wait no longer than they may, and a neighbour that answers late is taken for busy, not for one that fails
//! flows.

use super::bench::{Bench, Cell, Sock, config};
use super::client::{Client, Kind, target, theirs};
use super::flows::paired;
use heddle_proto::cell::create::{Created2, DestroyReason};
use heddle_proto::cell::extend::Extend2;
use heddle_proto::cell::relay::RelayCommand;
use heddle_proto::cell::{CircId, Command};
use heddle_relay::{Limits, RelayConfig};
use heddle_seam::time::{Duration, Instant};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

const NEXT: u8 = 2;

fn client(number: u8) -> IpAddr {
    Ipv4Addr::new(203, 0, 113, number).into()
}

/// A relay with one worker, which does nothing until it is told to.
fn one_worker(config: RelayConfig) -> Bench {
    let limits = Limits { onionskins_at_work: 1, ..Limits::default() };
    let mut bench = Bench::new(RelayConfig { limits, ..config });
    bench.working = false;
    bench
}

fn knock(bench: &mut Bench, sock: Sock, id: u32) {
    bench.send(sock, theirs(id), Command::CREATE_FAST, &[1; 20]);
}

/// The DESTROY cells that came, which say that there is no room, and how many circuits were made.
fn refused_and_made(bench: &mut Bench, sock: Sock) -> (usize, usize) {
    let cells = bench.cells(sock);
    let (destroys, made): (Vec<Cell>, Vec<Cell>) =
        cells.into_iter().partition(|cell| cell.command == Command::DESTROY);
    let reasons = destroys.iter().map(|cell| DestroyReason::parse(&cell.body));
    assert!(reasons.clone().all(|reason| reason == DestroyReason::RESOURCELIMIT), "{destroys:?}");
    assert!(made.iter().all(|cell| cell.command == Command::CREATED_FAST), "{made:?}");
    (reasons.count(), made.len())
}

/// A greedy address has a long queue, and what is old of it is refused. What came later from another is not, and is
/// worked off next.
#[test]
fn an_onionskin_that_waited_for_too_long_is_refused_and_no_other() {
    let mut bench = one_worker(config());
    let [greedy, other] = [1, 2].map(|number| bench.client_at(0, client(number)));
    (1..=100).for_each(|id| knock(&mut bench, greedy, id));
    bench.pass(Duration::from_secs(1));
    (1..=2).for_each(|id| knock(&mut bench, other, id));
    bench.pass(Duration::from_millis(749));
    assert_eq!([greedy, other].map(|sock| refused_and_made(&mut bench, sock)), [(0, 0); 2]);
    bench.pass(Duration::from_millis(1));
    // One is with the worker, and is answered.
    assert_eq!([greedy, other].map(|sock| refused_and_made(&mut bench, sock)), [(99, 0), (0, 0)]);
    let shard = &bench.shards[0].relay;
    assert_eq!((shard.in_use().onionskins, shard.in_use().granted.onionskins, shard.circuits()), (3, 3, 3));
    assert_eq!(shard.stats().refused[&("onionskin", "late")], 99);
    (0..2).for_each(|_| bench.work_next(0));
    assert_eq!([greedy, other].map(|sock| refused_and_made(&mut bench, sock)), [(0, 1), (0, 1)]);
    bench.pass(Duration::from_secs(10));
    bench.work_next(0);
    assert_eq!(refused_and_made(&mut bench, other), (0, 1));
    assert_eq!((bench.shards[0].relay.in_use().granted.onionskins, bench.circuits()), (0, 3));
}

/// The operator's word counts, and else the consensus', for those that wait already, too.
#[test]
fn operator_or_consensus_say_how_long_an_onionskin_may_wait() {
    let wait_max = |chosen_ms: Option<u64>, consensus_ms: Option<i32>| {
        let onionskin_wait_max = chosen_ms.map(Duration::from_millis);
        let mut bench = one_worker(RelayConfig { onionskin_wait_max, ..config() });
        let sock = bench.client_at(0, client(1));
        (1..=2).for_each(|id| knock(&mut bench, sock, id));
        let begun = bench.now;
        bench.set_params(&Vec::from_iter(consensus_ms.map(|ms| ("MaxOnionQueueDelay", ms))));
        while refused_and_made(&mut bench, sock) == (0, 0) {
            bench.pass(Duration::from_millis(50));
        }
        bench.now.since(begun).as_millis()
    };
    let cases = [(None, None), (None, Some(3000)), (Some(500), Some(3000)), (None, Some(100))];
    assert_eq!(cases.map(|(chosen, consensus)| wait_max(chosen, consensus)), [1750, 3000, 500, 100]);
    // Whoever asked has left by then.
    let cases = [(None, Some(60_000)), (Some(60_000), None)];
    assert_eq!(cases.map(|(chosen, consensus)| wait_max(chosen, consensus)), [5000, 5000]);
}

/// Whoever floods all the time has what is left of the workers, and others are answered as if they were alone.
#[test]
fn a_flood_that_waits_for_as_long_as_it_may_makes_nobody_else_wait() {
    let mut bench = one_worker(config());
    let [greedy, other] = [1, 2].map(|number| bench.client_at(0, client(number)));
    let (mut refused, mut made, mut others) = (0, 0, 0);
    // The worker does 20 a second, and the flood is five times as much.
    for turn in 0..200 {
        (0..5).for_each(|number| knock(&mut bench, greedy, 1 + 5 * turn + number));
        if turn % 4 == 0 {
            knock(&mut bench, other, 1 + turn);
        }
        bench.work_next(0);
        bench.pass(Duration::from_millis(50));
        let (late, answered) = refused_and_made(&mut bench, greedy);
        (refused, made) = (refused + late, made + answered);
        let (late, answered) = refused_and_made(&mut bench, other);
        assert_eq!(late, 0);
        others += answered;
    }
    assert!(others >= 49 && made >= 140, "{others} of 50 and {made}");
    assert!(refused >= 600, "{refused} of the flood");
    assert!(bench.shards[0].relay.in_use().onionskins < 200);
}

/// Begins a circuit that is to go on to the next relay, with a handshake that nobody reads.
fn extend(bench: &mut Bench, sock: Sock, id: u32) {
    // What answers to others nobody reads, either.
    bench.cells(sock);
    let mut client = Client::create(bench, sock, theirs(id), Kind::Fast);
    let mut data = Vec::new();
    Extend2 { specs: target(NEXT).specs(), htype: 2, hdata: &[7; 84] }.encode(&mut data);
    client.send(bench, RelayCommand::EXTEND2, 0, &data);
}

fn created2() -> Vec<u8> {
    let mut body = Vec::new();
    Created2 { hdata: &[9; 64] }.encode(&mut body);
    body
}

/// The onionskins that wait at the next relay, of its flows and of its channel, each in the order in which they came.
#[derive(Default)]
struct Next {
    on_flows: VecDeque<(Instant, CircId)>,
    on_channel: VecDeque<(Instant, CircId)>,
}

impl Next {
    /// Takes what came.
    fn hear(&mut self, bench: &mut Bench, channel: Sock) {
        let of_flows = bench.peer_cells(0);
        let of_channel = bench.cells(channel);
        for (cells, waiting) in [(of_flows, &mut self.on_flows), (of_channel, &mut self.on_channel)] {
            for cell in cells {
                match cell.command {
                    Command::CREATE2 => waiting.push_back((bench.now, cell.circ_id)),
                    Command::DESTROY => waiting.retain(|(_, circ_id)| *circ_id != cell.circ_id),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// Answers the oldest of flows.
    fn answer_flow(&mut self, bench: &mut Bench) -> bool {
        let next = self.on_flows.pop_front();
        next.map(|(_, circ_id)| bench.peer_send(0, circ_id, Command::CREATED2, &created2())).is_some()
    }

    /// Answers the oldest of the channel, if it has waited for so long.
    fn answer_channel(&mut self, bench: &mut Bench, channel: Sock, wait: Duration) -> bool {
        let next = self.on_channel.front().copied().filter(|(since, _)| bench.now.since(*since) >= wait);
        let Some((_, circ_id)) = next else { return false };
        self.on_channel.pop_front();
        bench.send(channel, circ_id, Command::CREATED2, &created2());
        true
    }
}

fn worse_than_tls(bench: &Bench) -> u64 {
    bench.shards[0].relay.stats().fallbacks.get("worse_than_tls").copied().unwrap_or(0)
}

/// The next relay answers everything after four seconds. Over flows nobody waits for that, and what is asked again over
/// TLS comes as late: so its flows are no worse.
#[test]
fn a_neighbour_that_is_late_on_channels_too_keeps_its_flows() {
    let (mut bench, socks) = paired(config(), &[NEXT]);
    let (mut next, channel) = (Next::default(), socks[0]);
    let sock = bench.client_channel(0);
    let mut answered = 0;
    // A link to a slow neighbour has few cells that are not answered, so it takes longer until all are.
    for turn in 0..400 {
        if turn < 100 {
            extend(&mut bench, sock, 1 + turn);
        }
        next.hear(&mut bench, channel);
        while next.answer_channel(&mut bench, channel, Duration::from_secs(4)) {
            answered += 1;
        }
        bench.pass(Duration::from_millis(100));
    }
    assert_eq!(answered, 100, "all were asked again");
    assert_eq!(worse_than_tls(&bench), 0);
}

/// The next relay works off an onionskin of flows each 400 ms, and would get four times as many: of those that it gets
/// some are begun again over TLS, where nobody else waits. That is its work and not its flows' fault.
#[test]
fn a_neighbour_that_answers_flows_late_keeps_them() {
    let (mut bench, socks) = paired(config(), &[NEXT]);
    let (mut next, channel) = (Next::default(), socks[0]);
    let sock = bench.client_channel(0);
    let (mut on_flows, mut on_channel) = (0, 0);
    for turn in 0..300 {
        extend(&mut bench, sock, 1 + turn);
        next.hear(&mut bench, channel);
        if turn % 4 == 0 {
            on_flows += u32::from(next.answer_flow(&mut bench));
        }
        while next.answer_channel(&mut bench, channel, Duration::ZERO) {
            on_channel += 1;
        }
        bench.pass(Duration::from_millis(100));
    }
    assert!(on_flows >= 70 && on_channel >= 30, "{on_flows} and {on_channel} were answered");
    assert_eq!(worse_than_tls(&bench), 0);
}

/// A neighbour that answers some flows at once and others never fails flows, and loses them for an hour.
#[test]
fn a_neighbour_that_answers_only_some_flows_loses_them() {
    let (mut bench, socks) = paired(config(), &[NEXT]);
    let (mut next, channel) = (Next::default(), socks[0]);
    let sock = bench.client_channel(0);
    for turn in 0..100 {
        extend(&mut bench, sock, 1 + turn);
        next.hear(&mut bench, channel);
        if turn % 2 == 0 {
            next.on_flows.rotate_right(1);
            next.answer_flow(&mut bench);
        }
        while next.answer_channel(&mut bench, channel, Duration::ZERO) {}
        bench.pass(Duration::from_millis(100));
    }
    assert!(worse_than_tls(&bench) > 0);
}
