//! Who extends many circuits through a relay leaves others their part of what the next relay does.

use super::bench::{Bench, Cell, Sock, config};
use super::client::{Client, Kind, target, theirs};
use heddle_proto::bucket::Limit;
use heddle_proto::cell::create::{Created2, DestroyReason};
use heddle_proto::cell::extend::Extend2;
use heddle_proto::cell::relay::RelayCommand;
use heddle_proto::cell::{CircId, Command};
use heddle_relay::{Limits, RelayConfig};
use heddle_seam::time::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

/// The next relay.
const NEXT: u8 = 2;

fn client(number: u8) -> IpAddr {
    Ipv4Addr::new(203, 0, 113, number).into()
}

/// Begins a circuit that is to go on to the next relay, with a handshake that nobody reads.
fn extend(bench: &mut Bench, sock: Sock, id: u32) {
    let mut client = Client::create(bench, sock, theirs(id), Kind::Fast);
    let mut data = Vec::new();
    Extend2 { specs: target(NEXT).specs(), htype: 2, hdata: &[7; 84] }.encode(&mut data);
    client.send(bench, RelayCommand::EXTEND2, 0, &data);
}

fn answer(bench: &mut Bench, next: Sock, circ_id: CircId) {
    let mut body = Vec::new();
    Created2 { hdata: &[9; 64] }.encode(&mut body);
    bench.send(next, circ_id, Command::CREATED2, &body);
}

/// The CREATE2 cells that came, and nothing else.
fn asked(bench: &mut Bench, next: Sock) -> Vec<CircId> {
    let cells = bench.cells(next);
    assert!(cells.iter().all(|cell| cell.command == Command::CREATE2), "{cells:?}");
    cells.iter().map(|cell| cell.circ_id).collect()
}

fn bench(creates_unanswered: usize) -> (Bench, Sock) {
    let limits = Limits { creates_unanswered, ..Limits::default() };
    bench_of(RelayConfig { limits, ..config() })
}

fn bench_of(config: RelayConfig) -> (Bench, Sock) {
    let mut bench = Bench::new(config);
    bench.list(&[1, NEXT]);
    let next = bench.relay_channel(0, NEXT);
    (bench, next)
}

#[test]
fn so_many_go_on_at_once_and_then_one_for_each_answer_by_turns() {
    let (mut bench, next) = bench(4);
    let [greedy, late, relay] =
        [bench.client_at(0, client(1)), bench.client_at(0, client(2)), bench.relay_channel(0, 1)];
    (1..=20).for_each(|id| extend(&mut bench, greedy, id));
    let first = asked(&mut bench, next);
    assert_eq!(first.len(), 4, "what is below the bound goes on at once");
    extend(&mut bench, late, 1);
    extend(&mut bench, relay, 1);
    assert_eq!(asked(&mut bench, next), []);
    for (number, circ_id) in first.into_iter().enumerate() {
        answer(&mut bench, next, circ_id);
        assert_eq!(asked(&mut bench, next).len(), 1, "answer {number}");
    }
    // The first were greedy's, then relays and strangers took turns, and among these the addresses.
    let extended = |bench: &mut Bench, sock| bench.cells(sock).len();
    assert_eq!([greedy, late, relay].map(|sock| extended(&mut bench, sock)), [4, 0, 0]);
    // A refusal and the end of a circuit leave a place as well.
    bench.send(greedy, theirs(20), Command::DESTROY, &[0]);
    assert_eq!(asked(&mut bench, next), [], "it had not gone on");
    bench.send(late, theirs(1), Command::DESTROY, &[0]);
    let cells = bench.cells(next);
    let commands: Vec<Command> = cells.iter().map(|cell| cell.command).collect();
    assert_eq!(commands, [Command::DESTROY, Command::CREATE2], "it had");
    let circ_id = cells[1].circ_id;
    bench.send(next, circ_id, Command::DESTROY, &[DestroyReason::RESOURCELIMIT.0]);
    assert_eq!(asked(&mut bench, next).len(), 1);
}

#[test]
fn who_waits_for_a_turn_looks_for_another_channel_when_this_one_ends() {
    let (mut bench, next) = bench(1);
    let sock = bench.client_at(0, client(1));
    (1..=3).for_each(|id| extend(&mut bench, sock, id));
    assert_eq!(asked(&mut bench, next).len(), 1);
    bench.finish(next);
    let [cell] = &bench.cells(sock)[..] else { panic!("the one that had gone on is over") };
    assert_eq!(cell.command, Command::DESTROY);
    let dialled = bench.answer_dial(0, NEXT);
    let [circ_id] = asked(&mut bench, dialled)[..] else { panic!("one at a time") };
    answer(&mut bench, dialled, circ_id);
    assert_eq!(asked(&mut bench, dialled).len(), 1);
    assert!(bench.shards[0].connects.is_empty());
}

/// Whoever begins circuits and gives them up while they wait leaves nothing behind.
#[test]
fn circuits_that_are_given_up_while_they_wait_are_never_asked_for() {
    let (mut bench, next) = bench(1);
    let sock = bench.client_at(0, client(1));
    extend(&mut bench, sock, 1);
    let [circ_id] = asked(&mut bench, next)[..] else { panic!("the first goes on") };
    for id in 2..500 {
        extend(&mut bench, sock, id);
        bench.send(sock, theirs(id), Command::DESTROY, &[0]);
    }
    extend(&mut bench, sock, 500);
    answer(&mut bench, next, circ_id);
    assert_eq!(asked(&mut bench, next).len(), 1);
    assert_eq!(bench.circuits(), 2);
}

const TICK: Duration = Duration::from_millis(10);
const TICKS: u32 = 200;
/// Who has no answer by then has given up.
const PATIENCE: Duration = Duration::from_secs(1);
const PATIENCE_TICKS: u32 = 100;

/// The next relay does so much, and keeps so much waiting of one neighbour, which is what a relay like this one does.
const ONIONSKINS_PER_TICK: usize = 5;
const ONIONSKINS_MAX: usize = 500;
/// So many others, each with a circuit in so many ticks: four tenths of that.
const OTHERS: u8 = 10;
const OTHERS_PERIOD_TICKS: u32 = 5;
const FLOOD_PER_TICK: u32 = 10;

/// The next relay's queue.
#[derive(Default)]
struct Next {
    waiting: VecDeque<CircId>,
}

impl Next {
    fn work(&mut self, bench: &mut Bench, next: Sock) {
        for Cell { circ_id, .. } in bench.cells(next) {
            match self.waiting.len() < ONIONSKINS_MAX {
                true => self.waiting.push_back(circ_id),
                false => bench.send(next, circ_id, Command::DESTROY, &[DestroyReason::RESOURCELIMIT.0]),
            }
        }
        for circ_id in self.waiting.drain(..ONIONSKINS_PER_TICK.min(self.waiting.len())) {
            answer(bench, next, circ_id);
        }
    }
}

#[test]
fn a_client_that_fills_the_next_relays_queue_leaves_others_their_extends() {
    let (mut bench, next_sock) = bench(Limits::default().creates_unanswered);
    let flood = bench.client_at(0, client(250));
    let others: Vec<Sock> = (0..OTHERS).map(|number| bench.client_at(0, client(number))).collect();
    let mut next = Next::default();
    let mut since: BTreeMap<(Sock, CircId), Instant> = BTreeMap::new();
    let (mut asked, mut served, mut refused) = (0, 0, 0);
    for tick in 0..TICKS + PATIENCE_TICKS {
        if tick < TICKS {
            for number in 0..FLOOD_PER_TICK {
                extend(&mut bench, flood, 1 + tick * FLOOD_PER_TICK + number);
            }
            for (number, sock) in (0..).zip(&others) {
                if (tick + number).is_multiple_of(OTHERS_PERIOD_TICKS) {
                    extend(&mut bench, *sock, 1 + tick);
                    since.insert((*sock, theirs(1 + tick)), bench.now);
                    asked += 1;
                }
            }
        }
        next.work(&mut bench, next_sock);
        for sock in &others {
            for cell in bench.cells(*sock) {
                let asked_at = since.remove(&(*sock, cell.circ_id));
                let in_time = asked_at.is_some_and(|at| bench.now.since(at) <= PATIENCE);
                served += u32::from(cell.command == Command::RELAY && in_time);
                refused += u32::from(cell.command == Command::DESTROY);
            }
        }
        bench.cells(flood);
        bench.pass(TICK);
    }
    assert_eq!(asked, 400);
    assert!(served * 10 >= asked * 9, "{served} of {asked}, and {refused} refused");
}

/// Everything that was sent to the next relay comes after so long, for so many circuits at once.
fn answer_all(bench: &mut Bench, next: Sock, patience: Duration) {
    let mut waiting: VecDeque<(Instant, CircId)> = VecDeque::new();
    for _ in 0..1000 {
        waiting.extend(asked(bench, next).into_iter().map(|circ_id| (bench.now, circ_id)));
        let due = waiting.iter().take_while(|(came, _)| bench.now.since(*came) >= patience).count();
        for (_, circ_id) in waiting.drain(..due) {
            answer(bench, next, circ_id);
        }
        bench.pass(TICK);
    }
    assert!(waiting.is_empty());
}

/// How many circuits go on at once, after others did whose answers took so long from when the next relay was asked. All
/// that leaves does so at a rate, beyond what was saved up.
fn go_on_after(others: u32, limit: Limit, patience: Duration) -> usize {
    let limits = Limits::default();
    let (mut bench, next) = bench_of(RelayConfig { limits, bandwidth: limit, ..config() });
    let private = Ipv4Addr::new(10, 0, 0, 9).into();
    let mut begun = 0;
    let mut begin = |bench: &mut Bench, count| {
        for _ in 0..count {
            // Each has its own channel, and of private addresses the rate does not hold.
            let sock = bench.client_at(0, private);
            extend(bench, sock, 1);
            begun += 1;
        }
    };
    begin(&mut bench, others);
    answer_all(&mut bench, next, patience);
    begin(&mut bench, 200);
    asked(&mut bench, next).len()
}

#[test]
fn what_waits_in_a_queue_of_our_own_costs_a_link_no_places() {
    const KB: u64 = 1000;
    let limit = Limit { rate_bytes_per_s: 20 * KB, burst_bytes: 70 * KB };
    // A hundred more than are saved up leave within some 2.5 seconds, and are answered at once.
    assert_eq!(go_on_after(230, limit, Duration::ZERO), 128);
    // The same, and the next relay takes a second for each. Of few it would have taken that, too.
    assert_eq!(go_on_after(230, limit, Duration::from_secs(1)), 16);
    assert_eq!(go_on_after(5, limit, Duration::from_secs(1)), 128);
}
