//! Floods from one address, at the limits of production and in virtual time, beside others who come at a steady rate.
//!
//! What is compared is how much of what others ask for they get, with the flood and without it. Workers are the tests':
//! they take onionskins of all shards in the order in which these hand them out, and do so many in a tick.

use super::bench::{Bench, Sock, config, host};
use super::client::{Client, Kind, target, theirs};
use super::plain::{CLIENT_LINE, relay_line};
use heddle_proto::cell::Command;
use heddle_proto::cell::extend::ExtendTarget;
use heddle_proto::cell::frame::write_fixed;
use heddle_proto::cell::relay::RelayCommand;
use heddle_relay::{Input, Job, Limits, RelayConfig};
use heddle_seam::language::Job as _;
use heddle_seam::node::JobId;
use heddle_seam::time::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

const TICK: Duration = Duration::from_millis(10);
const TICKS_PER_S: u32 = 100;
/// Who has no answer by then has given up.
const PATIENCE: Duration = Duration::from_secs(1);
const PATIENCE_TICKS: u32 = TICKS_PER_S;

/// Others: so many addresses, each with so many circuits a second. Together they ask for 70 % of what workers do.
const OTHERS: u32 = 20;
const OTHERS_CIRCUITS_PER_S: u32 = 70;
const ONIONSKINS_PER_TICK: u32 = 20;

/// The flood comes over so many channels, in so much time.
const FLOOD_CHANNELS: u32 = 10;
const FLOOD_TICKS: u32 = 5 * TICKS_PER_S;

fn address(number: u8) -> IpAddr {
    Ipv4Addr::new(203, 0, 113, number).into()
}

/// Somebody who opens circuits on one channel.
struct Opener {
    sock: Sock,
    last_id: u32,
    /// Those without an answer, and since when.
    asked: BTreeMap<u32, Instant>,
    asked_total: u32,
    served: u32,
    refused: u32,
}

impl Opener {
    fn new(sock: Sock) -> Self {
        Opener { sock, last_id: 0, asked: BTreeMap::new(), asked_total: 0, served: 0, refused: 0 }
    }

    fn ask(&mut self, bench: &mut Bench, circuits: u32) {
        if circuits == 0 {
            return;
        }
        let mut cells = Vec::new();
        for _ in 0..circuits {
            self.last_id += 1;
            self.asked.insert(self.last_id, bench.now);
            write_fixed(&mut cells, theirs(self.last_id).get(), Command::CREATE_FAST, &[1; 20]);
        }
        self.asked_total += circuits;
        bench.write(self.sock, &cells);
    }

    /// Takes answers.
    fn hear(&mut self, bench: &mut Bench) {
        for cell in bench.cells(self.sock) {
            let since = self.asked.remove(&(cell.circ_id.get() & !(1 << 31)));
            match (cell.command, since) {
                (Command::CREATED_FAST, Some(since)) => {
                    self.served += u32::from(bench.now.since(since) <= PATIENCE);
                }
                (Command::DESTROY, _) => self.refused += 1,
                other => panic!("{other:?} is no answer"),
            }
        }
    }

    fn served_part(&self) -> f64 {
        f64::from(self.served) / f64::from(self.asked_total)
    }
}

/// What workers have, in the order in which they got it.
#[derive(Default)]
struct Workers {
    jobs: VecDeque<(usize, JobId, Job)>,
}

impl Workers {
    fn work(&mut self, bench: &mut Bench, onionskins: u32) {
        for _ in 0..onionskins {
            self.collect(bench);
            let Some((shard, id, job)) = self.jobs.pop_front() else { return };
            bench.input(shard, Input::Computed { id, result: job.run() });
        }
        self.collect(bench);
    }

    /// A job of each shard in turn.
    fn collect(&mut self, bench: &mut Bench) {
        let mut more = true;
        while core::mem::take(&mut more) {
            for (number, shard) in bench.shards.iter_mut().enumerate() {
                let Some((id, job)) = shard.jobs.pop_front() else { continue };
                self.jobs.push_back((number, id, job));
                more = true;
            }
        }
    }
}

/// The smallest part of what it asked for that one of `others` got beside so many CREATE_FAST of `flood`.
fn least_served(bench: &mut Bench, mut others: Vec<Opener>, mut flood: Vec<Opener>, flood_cells: u32) -> f64 {
    bench.working = false;
    let mut workers = Workers::default();
    let flood_each = flood_cells / flood.len() as u32;
    for tick in 0..FLOOD_TICKS + PATIENCE_TICKS {
        if tick < FLOOD_TICKS {
            for (number, opener) in (0..).zip(&mut flood) {
                opener.ask(bench, due(flood_each, FLOOD_TICKS, tick, number));
            }
            for (number, opener) in (0..).zip(&mut others) {
                opener.ask(bench, due(OTHERS_CIRCUITS_PER_S, TICKS_PER_S, tick, number));
            }
        }
        workers.work(bench, ONIONSKINS_PER_TICK);
        others.iter_mut().chain(&mut flood).for_each(|opener| opener.hear(bench));
        bench.pass(TICK);
    }
    let sum = |of: fn(&Opener) -> u32| flood.iter().map(of).sum::<u32>();
    assert_eq!(sum(|opener| opener.asked_total), flood_cells);
    assert!(sum(|opener| opener.refused) >= flood_cells / 2, "the workers have no room for the flood");
    others.iter().map(Opener::served_part).fold(1.0, f64::min)
}

/// How many of `count` in so many ticks are due in this one. Each number has its own phase.
fn due(count: u32, ticks: u32, tick: u32, number: u32) -> u32 {
    let until = |tick: u32| (tick * count + number * 37 % ticks) / ticks;
    until(tick + 1) - until(tick)
}

#[test]
fn a_hundred_thousand_create_fast_from_one_address_leave_others_their_rate() {
    for shards in [1, 3] {
        let served = |flood_cells| {
            let mut bench = Bench::new(RelayConfig { shards, ..config() });
            let mut open = |count: u32, addr: fn(u8) -> u8| -> Vec<Opener> {
                let shard = |number: u32| number as usize % usize::from(shards);
                let sock = |number| bench.client_at(shard(number), address(addr(number as u8)));
                (0..count).map(sock).map(Opener::new).collect()
            };
            let (others, flood) = (open(OTHERS, |number| number), open(FLOOD_CHANNELS, |_| 250));
            least_served(&mut bench, others, flood, flood_cells)
        };
        let (alone, beside) = (served(0), served(100_000));
        assert!(alone > 0.99 && beside >= 0.9 * alone, "{shards} shards: {beside} of {alone}");
    }
}

/// A client that sends all its onionskins through one relay fills what that relay may have, and nobody else's.
#[test]
fn a_relay_that_passes_on_a_flood_leaves_other_relays_and_clients_their_rate() {
    let served = |flood_cells| {
        let mut bench = Bench::new(config());
        let listed: Vec<u8> = (1..=11).collect();
        bench.list(&listed);
        let relays: Vec<Sock> = listed.iter().map(|number| bench.relay_channel(0, *number)).collect();
        let clients = (0..10).map(|number| bench.client_at(0, address(number)));
        let others = relays[1..].iter().copied().chain(clients).map(Opener::new).collect();
        least_served(&mut bench, others, vec![Opener::new(relays[0])], flood_cells)
    };
    let (alone, beside) = (served(0), served(50_000));
    assert!(alone > 0.99 && beside >= 0.9 * alone, "{beside} of {alone}");
}

/// A flood of handshakes that are begun and not gone on with, all in a second.
const KNOCKS: u32 = 15_000;
/// Others come all the while, one each so many ticks. Of their handshakes a part goes through in each of so many.
const NEXT_COMES_TICKS: u32 = 4;
const PART_TICKS: u32 = 20;
const PARTS: u32 = 4;
/// How long a guest's handshake may take, with its first circuit.
const GUEST_MAX: Duration = Duration::from_secs(1);

/// Somebody whose handshake takes 800 ms, as over four round trips of a long way. The relay's own time counts as none.
struct Guest {
    sock: Sock,
    since: Instant,
    since_tick: u32,
    parts: u32,
    /// How long it took until the relay answered a cell.
    took: Option<Duration>,
}

impl Guest {
    /// Says the next part of what a client says when it is due.
    fn work(&mut self, bench: &mut Bench, tick: u32) {
        let due = (tick - self.since_tick) / PART_TICKS;
        while self.parts < due.min(PARTS) {
            let part =
                CLIENT_LINE.chunks(CLIENT_LINE.len().div_ceil(PARTS as usize)).nth(self.parts as usize);
            bench.write(self.sock, part.expect("a part of the line"));
            self.parts += 1;
            if self.parts == PARTS {
                bench.send(self.sock, theirs(1), Command::CREATE_FAST, &[1; 20]);
            }
        }
        let is_answered = bench.cells(self.sock).iter().any(|cell| cell.command == Command::CREATED_FAST);
        if self.took.is_none() && is_answered {
            self.took = Some(bench.now.since(self.since));
        }
    }
}

fn handshakes_elsewhere_go_through(shards: u16) {
    let mut bench = Bench::new(RelayConfig { shards, ..config() });
    let shard = |number: u32| number as usize % usize::from(shards);
    let mut guests: Vec<Guest> = Vec::new();
    let mut knocks = 0;
    for tick in 0..2 * TICKS_PER_S {
        let come = if tick < TICKS_PER_S { due(KNOCKS, TICKS_PER_S, tick, 0) } else { 0 };
        for _ in 0..come {
            let sock = bench.accept(shard(knocks), SocketAddr::new(address(250), 50_000));
            knocks += 1;
            if bench.gone(sock).is_none() {
                bench.write(sock, &CLIENT_LINE[..3]);
            }
        }
        if come > 0 && tick.is_multiple_of(NEXT_COMES_TICKS) {
            let number = guests.len() as u32;
            let sock = bench.accept(shard(number), SocketAddr::new(address(number as u8), 50_000));
            guests.push(Guest { sock, since: bench.now, since_tick: tick, parts: 0, took: None });
        }
        guests.iter_mut().for_each(|guest| guest.work(&mut bench, tick));
        for shard in &bench.shards {
            let granted = shard.relay.in_use().granted;
            let limit = (Limits::default().handshake_bytes as u64).min(config().max_queue_bytes as u64 / 8);
            assert!(granted.handshake_bytes <= limit / 4 * 3, "a quarter is kept for relays: {granted:?}");
        }
        bench.pass(TICK);
    }
    assert_eq!(knocks, KNOCKS);
    for guest in &guests {
        let took = guest.took.expect("all are let in");
        assert!(took <= GUEST_MAX, "a guest who came at tick {} was let in after {took:?}", guest.since_tick);
    }
}

#[test]
fn fifteen_thousand_handshakes_from_one_address_leave_others_theirs() {
    for shards in [1, 3] {
        handshakes_elsewhere_go_through(shards);
    }
}

/// An identity that anybody may prove, and how many circuits of one address may wait for it.
const ANYBODY: u8 = 66;
const WAITING: u32 = 15_000;
const OPENINGS: u16 = 100;
/// Rounds of openings at least and at most, and how many times as long the fastest may take beside many circuits.
const ROUNDS: u8 = 20;
const ROUNDS_MAX: u8 = 100;
const TIMES_MAX: u32 = 3;

/// A relay at which so many circuits wait for a channel to that identity. None is to be led there by the channels to
/// come: those that are canonical prove another Ed25519 identity than the circuits want, and others come from another
/// address.
fn with_waiting(waiting: u32, canonical: bool) -> Bench {
    let mut bench = Bench::new(RelayConfig { max_queue_bytes: 256 << 20, ..config() });
    bench.list(&[1]);
    let sock = bench.client_at(0, address(1));
    let black_hole = SocketAddrV4::new(Ipv4Addr::new(203, 0, 114, 7), 1);
    let ed25519_id = canonical.then_some([99; 32]);
    let to = ExtendTarget { ipv4: Some(black_hole), ed25519_id, ..target(ANYBODY) };
    let (_, data) = Client::new(sock, theirs(1)).extend2_at(ANYBODY, to);
    for id in 1..=waiting {
        let mut client = Client::create(&mut bench, sock, theirs(id), Kind::Fast);
        client.send(&mut bench, RelayCommand::EXTEND2, 0, &data);
    }
    assert_eq!(bench.shards[0].connects.len(), 1, "all share one dial");
    bench
}

/// How long it takes to open some channels that prove that identity.
#[allow(clippy::disallowed_methods, reason = "what is compared is the work of this machine")]
fn openings_take(bench: &mut Bench, round: u8, canonical: bool) -> std::time::Duration {
    let began = std::time::Instant::now();
    for port in 0..OPENINGS {
        let from = IpAddr::from(Ipv4Addr::new(203, 0, 115, round));
        let named = if canonical { from } else { host(200) };
        let sock = bench.accept(0, SocketAddr::new(from, port));
        bench.write(sock, &relay_line(ANYBODY, named));
        assert_eq!(bench.gone(sock), None);
        bench.finish(sock);
    }
    began.elapsed()
}

/// Each channel that opened had the shard look at every circuit that waited for its identity, a thousand times as many.
/// Other programs run beside this one, so the least of several rounds counts, and of more rounds where these have not
/// been quiet: what others do passes, and what a shard does in each opening is in the least of however many.
#[test]
fn channels_open_as_fast_beside_many_circuits_that_wait_for_another_place() {
    for canonical in [false, true] {
        let mut benches = [WAITING / 1000, WAITING].map(|waiting| with_waiting(waiting, canonical));
        let mut least = [std::time::Duration::MAX; 2];
        let is_as_fast = |[few, many]: [std::time::Duration; 2]| many <= TIMES_MAX * few;
        for round in 0..ROUNDS_MAX {
            if round >= ROUNDS && is_as_fast(least) {
                break;
            }
            for (bench, least) in benches.iter_mut().zip(&mut least) {
                *least = openings_take(bench, round, canonical).min(*least);
            }
        }
        let circuits = benches.map(|bench| bench.circuits());
        assert_eq!(circuits, [WAITING / 1000, WAITING].map(|waiting| waiting as usize));
        let [few, many] = least;
        assert!(is_as_fast(least), "{many:?} beside {WAITING} circuits and {few:?} beside a few");
    }
}
