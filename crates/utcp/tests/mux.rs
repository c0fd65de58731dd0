//! Many flows over one session: opening with data, isolation, resets, packing, bounds.

use heddle_netem::{
    DirectionOptions, HostId, HostOptions, Loss, Rate, Reorder, Seed, Topology, TopologyOptions, WireOptions,
};
use heddle_utcp::compact::{FlowId, Malformed, Mux, MuxEvent, MuxOptions};
use heddle_utcp::congestion::{AckWait, SessionAck, SessionController};
use heddle_utcp::{BufferPool, CloseReason, Instant};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
/// A cell with its command.
const CELL: usize = 510;
/// More steps or datagrams than this at one instant mean that somebody goes in circles.
const STEPS_PER_INSTANT_MAX: u32 = 100_000;

/// Two ends of a session over a wire; what each end read of each flow.
struct Pair {
    now: Instant,
    ends: [Mux; 2],
    pool: BufferPool,
    read: [BTreeMap<FlowId, Vec<u8>>; 2],
    events: [Vec<MuxEvent>; 2],
    /// Flows that nobody reads.
    held: Vec<FlowId>,
    datagrams: u64,
    bytes: u64,
    topology: Topology<Vec<u8>>,
}

impl Pair {
    fn new(direction: DirectionOptions, options: MuxOptions, seed: u64) -> Self {
        let host = |name: &str| HostOptions { name: name.to_owned(), ..HostOptions::default() };
        let wires = vec![WireOptions { from: "a".into(), to: "b".into(), there: direction, back: None }];
        let network = TopologyOptions { hosts: vec![host("a"), host("b")], wires, default_wire: None };
        let pool = BufferPool::new(64 << 20);
        Pair {
            now: Instant::from_nanos(S),
            ends: [Mux::new(options.clone(), pool.clone()), Mux::new(options, pool.clone())],
            pool,
            read: [BTreeMap::new(), BTreeMap::new()],
            events: [Vec::new(), Vec::new()],
            held: Vec::new(),
            datagrams: 0,
            bytes: 0,
            topology: Topology::new(&network, &Seed::from_number(seed)).expect("good options"),
        }
    }

    /// Does what is due up to `until`. False when nothing is left to happen.
    fn run_until(&mut self, until: Instant) -> bool {
        let mut still = 0;
        loop {
            self.settle();
            let wire = self.topology.next_time();
            let timers = self.ends.iter().filter_map(Mux::poll_timeout);
            let Some(next) = timers.chain(wire).min() else { return false };
            if next > until {
                self.now = until;
                return true;
            }
            still = if next > self.now { 0 } else { still + 1 };
            assert!(still < STEPS_PER_INSTANT_MAX, "time stands still at {:?}", self.now);
            self.now = self.now.max(next);
            while let Some(delivery) = self.topology.poll(self.now) {
                // Encryption would not let a damaged datagram through.
                if !delivery.corrupted {
                    self.deliver(delivery.to.0 as usize, &delivery.packet).expect("an honest peer");
                }
            }
            self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now));
        }
    }

    fn deliver(&mut self, to: usize, datagram: &[u8]) -> Result<(), Malformed> {
        let (read, held) = (&mut self.read[to], &self.held);
        self.ends[to].handle_datagram(self.now, datagram, &mut |id, bytes| {
            if held.contains(&id) {
                return 0;
            }
            // Whole cells are taken straight from the datagram.
            let whole = bytes.len() - bytes.len() % CELL;
            read.entry(id).or_default().extend_from_slice(&bytes[..whole]);
            whole
        })
    }

    fn settle(&mut self) {
        for number in 0..2 {
            while let Some(event) = self.ends[number].poll_event() {
                self.events[number].push(event);
                if let MuxEvent::Readable(id) = event {
                    self.read_all(number, id);
                }
            }
            let mut datagram = Vec::new();
            let mut sent = 0;
            while self.ends[number].poll_datagram(self.now, &mut datagram).is_some() {
                sent += 1;
                assert!(sent < STEPS_PER_INSTANT_MAX, "end {number} does not stop sending at {:?}", self.now);
                assert!(datagram.len() <= 1400, "{}", datagram.len());
                self.datagrams += 1;
                self.bytes += datagram.len() as u64;
                let (from, to) = (HostId(number as u32), HostId(1 - number as u32));
                let now = self.now;
                self.topology.send(now, from, to, core::mem::take(&mut datagram)).expect("a wire");
            }
        }
    }

    fn read_all(&mut self, end: usize, id: FlowId) {
        if self.held.contains(&id) {
            return;
        }
        let mut buffer = [0; 3000];
        loop {
            let count = self.ends[end].read(self.now, id, &mut buffer);
            self.read[end].entry(id).or_default().extend_from_slice(&buffer[..count]);
            if count == 0 {
                break;
            }
        }
    }
}

/// The other end's name of a flow.
fn theirs(id: FlowId) -> FlowId {
    FlowId { is_ours: !id.is_ours, port: id.port }
}

fn cells(count: usize, salt: usize) -> Vec<u8> {
    (0..count * CELL).map(|at| (at * 7 + at / 509 + salt) as u8).collect()
}

fn wire(delay_ms: u64, loss: f64) -> DirectionOptions {
    let loss = if loss > 0.0 { Loss::Bernoulli { probability: loss } } else { Loss::None };
    DirectionOptions { delay_ns: delay_ms * MS, loss, ..DirectionOptions::default() }
}

#[test]
fn the_first_cell_arrives_after_half_a_round_trip() {
    let mut pair = Pair::new(wire(50, 0.0), MuxOptions::default(), 1);
    let id = pair.ends[0].open(pair.now).expect("a port id");
    assert_eq!(pair.ends[0].write(id, &cells(1, 0)), CELL);
    pair.run_until(Instant::from_nanos(S + 50 * MS));
    assert_eq!(pair.events[1], [MuxEvent::Opened(theirs(id)), MuxEvent::Readable(theirs(id))]);
    assert_eq!(pair.read[1][&theirs(id)], cells(1, 0));
    // And the answer after a whole one.
    pair.ends[1].write(theirs(id), &cells(2, 1));
    pair.run_until(Instant::from_nanos(S + 100 * MS));
    assert_eq!(pair.read[0][&id], cells(2, 1));
    // Open, answer, two cells, acknowledgement.
    assert_eq!(pair.datagrams, 4);
}

/// A window that stays as it is, and how often the path was found stalled.
#[derive(Debug)]
struct Fixed {
    window_bytes: u64,
    stalls: Arc<AtomicU32>,
}

impl SessionController for Fixed {
    fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    fn pacing_percent(&self) -> u64 {
        125
    }

    fn set_mss_bytes(&mut self, _mss_bytes: u16) {}

    fn set_busy_flows(&mut self, _flows: f64) {}

    fn on_sent(&mut self, _now: Instant, _bytes: u64) {}

    fn set_ack_wait(&mut self, _wait: AckWait) {}

    fn on_ack(&mut self, ack: &SessionAck) {
        assert!(ack.bytes > 0 && ack.newest_sent.is_none_or(|sent| sent < ack.now));
    }

    fn on_loss(&mut self, now: Instant, sent: Instant, bytes: u64) {
        assert!(bytes > 0 && sent < now);
    }

    fn on_gone(&mut self, _bytes: u64) {}

    fn on_marked(&mut self, _now: Instant, _sent: Instant) {}

    fn set_in_flight(&mut self, _bytes: u64) {}

    fn on_probe(&mut self, _now: Instant, _round_trip_ns: u64) {}

    fn on_stall(&mut self, _now: Instant) {
        self.stalls.fetch_add(1, Ordering::Relaxed);
    }

    fn on_stall_undone(&mut self, _now: Instant) {}
}

/// An end whose flows share a window of so many bytes.
fn fixed(pool: &BufferPool, window_bytes: u64) -> (Mux, Arc<AtomicU32>) {
    let stalls = Arc::new(AtomicU32::new(0));
    let controller = Fixed { window_bytes, stalls: Arc::clone(&stalls) };
    (Mux::with_controller(MuxOptions::default(), pool.clone(), |_| Box::new(controller)), stalls)
}

/// A pair whose first end's flows share a window of so many bytes.
fn sharing(direction: DirectionOptions, window_bytes: u64, seed: u64) -> Pair {
    let mut pair = Pair::new(direction, MuxOptions::default(), seed);
    pair.ends[0] = fixed(&pair.pool, window_bytes).0;
    pair
}

#[test]
fn flows_that_share_a_window_get_equal_parts_of_it_and_no_more() {
    const WINDOW: u64 = 40_000;
    let mut pair = sharing(wire(50, 0.0), WINDOW, 1);
    let all = cells(2000, 0);
    let ids: Vec<FlowId> = (0..10).filter_map(|_| pair.ends[0].open(pair.now)).collect();
    let mut written = [0; 10];
    for _ in 0..500 {
        for (id, written) in ids.iter().zip(&mut written) {
            *written += pair.ends[0].write(*id, &all[*written..]);
        }
        let until = pair.now.plus_ns(10 * MS);
        pair.run_until(until);
        let [window, in_flight, _] = pair.ends[0].shared_window().expect("they share one");
        assert!(in_flight <= window, "{in_flight}");
        let each: u64 =
            ids.iter().filter_map(|id| pair.ends[0].stats(*id)).map(|it| it.in_flight_bytes).sum();
        assert_eq!(in_flight, each);
    }
    let read: Vec<usize> = ids.iter().map(|id| pair.read[1][&theirs(*id)].len()).collect();
    let (least, most) = (read.iter().min().expect("ten"), read.iter().max().expect("ten"));
    assert!(most - least <= 4000, "{read:?}");
    // 40 kB in each of 50 round trips, but for the first of them.
    let total: usize = read.iter().sum();
    assert!((1_800_000..=2_000_000).contains(&total), "{total}");
}

#[test]
fn a_shared_window_loses_nothing_whatever_the_wire_does() {
    for seed in 1..6 {
        let mut bad = wire(20, 0.05);
        bad.reorder = Some(Reorder { probability: 0.1, hold_ns: 8 * MS });
        bad.duplicate = 0.05;
        let mut pair = sharing(bad, 20_000, seed);
        let all = cells(60, seed as usize);
        let ids: Vec<FlowId> = (0..30).filter_map(|_| pair.ends[0].open(pair.now)).collect();
        let mut written = [0; 30];
        for step in 0..12_000 {
            for (id, written) in ids.iter().zip(&mut written) {
                *written += pair.ends[0].write(*id, &all[*written..]);
            }
            // Some end in the midst of it, and what they had under way is nobody's any more.
            if step % 20 == 0 && step < 200 {
                pair.ends[0].reset(pair.now, ids[step / 20], 1);
            }
            let until = pair.now.plus_ns(10 * MS);
            pair.run_until(until);
            let has = |id: &FlowId| pair.read[1].get(&theirs(*id)).map_or(0, Vec::len) == all.len();
            if step > 200 && ids[10..].iter().all(has) {
                break;
            }
        }
        for id in &ids[10..] {
            assert!(pair.read[1][&theirs(*id)] == all, "seed {seed} {id:?}");
        }
        pair.run_until(pair.now.plus_ns(10 * S));
        let [_, in_flight, ready] = pair.ends[0].shared_window().expect("they share one");
        assert_eq!((in_flight, ready), (0, 0), "seed {seed}");
    }
}

#[test]
fn flows_of_both_ends_survive_a_bad_wire() {
    for seed in 1..6 {
        let mut bad = wire(20, 0.03);
        bad.rate = Rate::BitsPerS(20_000_000);
        bad.reorder = Some(Reorder { probability: 0.1, hold_ns: 8 * MS });
        bad.duplicate = 0.05;
        bad.corrupt = 0.01;
        let mut pair = Pair::new(bad, MuxOptions::default(), seed);
        let mut sources: Vec<(usize, FlowId, Vec<u8>, usize)> = Vec::new();
        for number in 0..40 {
            let end = number % 2;
            let id = pair.ends[end].open(pair.now).expect("a port id");
            sources.push((end, id, cells(20 + number * 5, number), 0));
        }
        for _ in 0..6000 {
            for (end, id, bytes, written) in &mut sources {
                *written += pair.ends[*end].write(*id, &bytes[*written..]);
            }
            let until = pair.now.plus_ns(10 * MS);
            pair.run_until(until);
            let is_done = |(end, id, bytes, _): &(usize, FlowId, Vec<u8>, usize)| {
                pair.read[1 - end].get(&theirs(*id)).is_some_and(|read| read.len() == bytes.len())
            };
            if sources.iter().all(is_done) {
                break;
            }
        }
        for (end, id, bytes, _) in &sources {
            assert!(pair.read[1 - end][&theirs(*id)] == *bytes, "seed {seed} {id:?}");
        }
        // Both directions end in order, and nothing is left.
        for (end, id, _, _) in &sources {
            pair.ends[*end].shutdown(*id);
            pair.ends[1 - end].shutdown(theirs(*id));
        }
        pair.run_until(Instant::from_nanos(1000 * S));
        assert!(pair.ends.iter().all(Mux::is_empty), "{:?}", pair.ends);
        assert_eq!(pair.pool.lent_bytes(), 0);
    }
}

#[test]
fn a_flow_that_nobody_reads_holds_up_no_other() {
    let mut pair = Pair::new(wire(10, 0.0), MuxOptions::default(), 1);
    let [stuck, free] = [0, 1].map(|_| pair.ends[0].open(pair.now).expect("a port id"));
    pair.held.push(theirs(stuck));
    let bytes = cells(1000, 3);
    let mut written = [0, 0];
    for _ in 0..200 {
        for (id, written) in [stuck, free].into_iter().zip(&mut written) {
            *written += pair.ends[0].write(id, &bytes[*written..]);
        }
        let until = pair.now.plus_ns(10 * MS);
        pair.run_until(until);
    }
    assert!(pair.read[1][&theirs(free)] == bytes);
    let waiting = pair.ends[1].get(theirs(stuck)).expect("open").readable();
    assert!((60_000..=70_000).contains(&waiting), "{waiting}");
    // It goes on when it is read.
    pair.held.clear();
    pair.read_all(1, theirs(stuck));
    for _ in 0..200 {
        written[0] += pair.ends[0].write(stuck, &bytes[written[0]..]);
        let until = pair.now.plus_ns(10 * MS);
        pair.run_until(until);
    }
    assert!(pair.read[1][&theirs(stuck)] == bytes);
}

/// Whoever writes only what leaves promptly has nothing waiting that would ask for the window.
#[test]
fn a_lost_update_of_the_window_is_asked_for() {
    let mut pair = sharing(wire(10, 0.0), 1 << 20, 1);
    let id = pair.ends[0].open(pair.now).expect("a port id");
    pair.held.push(theirs(id));
    let all = cells(1000, 0);
    let mut written = 0;
    for _ in 0..100 {
        let room = pair.ends[0].promptly(id).min(all.len() - written);
        written += pair.ends[0].write(id, &all[written..written + room - room % CELL]);
        let until = pair.now.plus_ns(10 * MS);
        pair.run_until(until);
    }
    assert!(written > 100 * CELL && pair.ends[0].promptly(id) < CELL, "{written} bytes shut the window");
    let unacknowledged = pair.ends[0].stats(id).map(|stats| stats.unacknowledged_bytes);
    assert_eq!(
        unacknowledged,
        Some(0),
        "the first window holds what the first cells left of it, and no more is sent"
    );
    pair.ends[0].await_room(id, CELL);
    pair.events[0].clear();
    pair.held.clear();
    pair.read_all(1, theirs(id));
    let mut lost = Vec::new();
    while pair.ends[1].poll_datagram(pair.now, &mut lost).is_some() {}
    assert!(!lost.is_empty(), "the peer says that there is room");
    pair.run_until(pair.now.plus_ns(5 * S));
    assert!(pair.events[0].contains(&MuxEvent::Writable(id)), "{:?}", pair.events[0]);
}

#[test]
fn a_new_flow_knows_the_round_trip_of_the_others() {
    let mut pair = Pair::new(wire(25, 0.0), MuxOptions::default(), 1);
    let first = pair.ends[0].open(pair.now).expect("a port id");
    pair.ends[0].write(first, &cells(4, 0));
    pair.run_until(Instant::from_nanos(2 * S));
    let begun = pair.now;
    let second = pair.ends[0].open(begun).expect("a port id");
    pair.ends[0].write(second, &cells(1, 0));
    let mut lost = Vec::new();
    assert!(pair.ends[0].poll_datagram(pair.now, &mut lost).is_some());
    // What opened the flow was lost. It goes out again after the time-out of a first sample of 50 ms, not after a
    // second.
    pair.run_until(begun.plus_ns(274 * MS));
    assert_eq!(pair.read[1].get(&theirs(second)), None);
    pair.run_until(begun.plus_ns(276 * MS));
    assert_eq!(pair.read[1].get(&theirs(second)), Some(&cells(1, 0)));
}

#[test]
fn a_flow_that_only_receives_does_not_tell_new_ones_an_old_round_trip() {
    let mut pair = Pair::new(wire(10, 0.0), MuxOptions::default(), 1);
    let theirs_first = pair.ends[1].open(pair.now).expect("a port id");
    pair.ends[1].write(theirs_first, &cells(1, 0));
    pair.run_until(pair.now.plus_ns(S));
    // The path is longer now, which a flow of ours finds out.
    pair.topology = Pair::new(wire(250, 0.0), MuxOptions::default(), 1).topology;
    let bulk = pair.ends[0].open(pair.now).expect("a port id");
    for _ in 0..30 {
        pair.ends[0].write(bulk, &cells(10, 1));
        pair.run_until(pair.now.plus_ns(200 * MS));
    }
    pair.ends[1].write(theirs_first, &cells(1, 2));
    pair.run_until(pair.now.plus_ns(260 * MS));
    let new = pair.ends[0].open(pair.now).expect("a port id");
    pair.ends[0].write(new, &cells(1, 3));
    pair.run_until(pair.now.plus_ns(S));
    assert_eq!(pair.read[1].get(&theirs(new)), Some(&cells(1, 3)));
    assert_eq!(pair.ends[0].stats(new).map(|stats| stats.counts.timeouts), Some(0));
}

/// A flow's opening segment is lost twice. Whether the path has stalled the other flow knows, and time-outs double only
/// if it has.
#[test]
fn a_flow_stalls_the_session_only_if_nothing_else_is_delivered() {
    for (others_send, stalls_wanted, second_ms) in [(true, 0, 500), (false, 1, 750)] {
        let mut pair = Pair::new(wire(25, 0.0), MuxOptions::default(), 1);
        let (end, stalls) = fixed(&pair.pool, 20_000);
        pair.ends[0] = end;
        let other = pair.ends[0].open(pair.now).expect("a port id");
        pair.ends[0].write(other, &cells(1, 0));
        pair.run_until(pair.now.plus_ns(S));
        let begun = pair.now;
        let unlucky = pair.ends[0].open(begun).expect("a port id");
        pair.ends[0].write(unlucky, &cells(1, 0));
        let mut lost = Vec::new();
        assert!(pair.ends[0].poll_datagram(begun, &mut lost).is_some());
        for at_ms in (10..second_ms + 200).step_by(10) {
            pair.run_until(begun.plus_ns(at_ms * MS - MS));
            if at_ms == 250 || at_ms == second_ms {
                pair.now = begun.plus_ns(at_ms * MS);
                pair.ends[0].handle_timeout(pair.now);
                assert!(pair.ends[0].poll_datagram(pair.now, &mut lost).is_some(), "{at_ms}");
            }
            pair.run_until(begun.plus_ns(at_ms * MS + MS));
            if others_send {
                pair.ends[0].write(other, &cells(1, 0));
            }
        }
        assert_eq!(pair.ends[0].stats(unlucky).map(|stats| stats.counts.timeouts), Some(2));
        assert_eq!(stalls.load(Ordering::Relaxed), stalls_wanted, "others send: {others_send}");
    }
}

/// Two ends that both open many flows have full windows, and would wait for each other's answers.
#[test]
fn the_answer_to_a_syn_waits_for_no_window() {
    let mut pair = Pair::new(wire(10, 0.0), MuxOptions::default(), 1);
    pair.ends[1] = fixed(&pair.pool, 0).0;
    let id = pair.ends[0].open(pair.now).expect("a port id");
    pair.ends[0].write(id, &cells(1, 0));
    pair.run_until(pair.now.plus_ns(30 * MS));
    let stats = pair.ends[0].stats(id).expect("it is there");
    assert!(stats.peer_window_bytes > 0);
    assert_eq!((stats.unacknowledged_bytes, stats.counts.timeouts), (0, 0));
    // What is written waits for the window as ever.
    assert_eq!(pair.ends[1].write(theirs(id), &cells(1, 1)), CELL);
    pair.run_until(pair.now.plus_ns(100 * MS));
    assert_eq!(pair.read[0].get(&id), None);
}

#[test]
fn a_reset_arrives_however_bad_the_wire_is() {
    for seed in 0..20 {
        let mut pair = Pair::new(wire(10, 0.0), MuxOptions::default(), seed);
        let id = pair.ends[0].open(pair.now).expect("a port id");
        pair.ends[0].write(id, &cells(3, 0));
        pair.run_until(Instant::from_nanos(2 * S));
        // From now on half of everything is lost.
        let bad = Pair::new(wire(10, 0.5), MuxOptions::default(), seed).topology;
        pair.topology = bad;
        let end = seed as usize % 2;
        let name = if end == 0 { id } else { theirs(id) };
        pair.ends[end].reset(pair.now, name, 9);
        assert_eq!(pair.ends[end].write(name, &cells(1, 0)), 0);
        pair.run_until(Instant::from_nanos(1000 * S));
        let closed = MuxEvent::Closed(theirs(name), CloseReason::Reset { code: 9 });
        assert_eq!(pair.events[1 - end].last(), Some(&closed), "seed {seed}");
        assert!(pair.ends.iter().all(Mux::is_empty));
    }
}

#[test]
fn acknowledgements_of_many_flows_share_datagrams() {
    let mut pair = Pair::new(wire(10, 0.0), MuxOptions::default(), 1);
    let ids: Vec<FlowId> = (0..100).map(|_| pair.ends[0].open(pair.now).expect("a port id")).collect();
    for id in &ids {
        pair.ends[0].write(*id, &cells(1, 0));
    }
    pair.settle();
    let asked = pair.datagrams;
    pair.run_until(Instant::from_nanos(S + 10 * MS));
    let answers = pair.datagrams - asked;
    assert_eq!(pair.ends[1].len(), 100);
    // Two opening segments went in each datagram, so the answers of two go in each, at the least.
    assert!(asked == 50 && (1..=50).contains(&answers), "{asked} datagrams and {answers} answers");
}

#[test]
fn bulk_fills_datagrams() {
    let mut pair = Pair::new(wire(10, 0.0), MuxOptions::default(), 1);
    let id = pair.ends[0].open(pair.now).expect("a port id");
    let bytes = cells(2000, 0);
    let (mut written, mut turns) = (0, 0);
    // Ten seconds are many times what it takes.
    while turns < 1000 && pair.read[1].get(&theirs(id)).is_none_or(|read| read.len() < bytes.len()) {
        turns += 1;
        written += pair.ends[0].write(id, &bytes[written..]);
        let until = pair.now.plus_ns(10 * MS);
        pair.run_until(until);
    }
    assert!(pair.read[1].get(&theirs(id)) == Some(&bytes), "{written} bytes were written");
    let overhead = pair.bytes as f64 / bytes.len() as f64 - 1.0;
    println!("overhead {:.2} % in both directions", overhead * 100.0);
    assert!(overhead < 0.02, "{overhead}");
}

#[test]
fn the_peers_flows_are_bounded_and_port_ids_must_be_counted_up() {
    let options = MuxOptions { flows_max: 3, ..MuxOptions::default() };
    let mut pair = Pair::new(wire(10, 0.0), options, 1);
    let ids: Vec<FlowId> = (0..5).map(|_| pair.ends[0].open(pair.now).expect("a port id")).collect();
    for id in &ids {
        pair.ends[0].write(*id, &cells(1, 0));
    }
    pair.run_until(Instant::from_nanos(3 * S));
    assert_eq!((pair.ends[0].len(), pair.ends[1].len()), (3, 3));
    let refused = CloseReason::Reset { code: 5 };
    let closed = pair.events[0]
        .iter()
        .filter(|event| matches!(event, MuxEvent::Closed(_, reason) if *reason == refused));
    assert_eq!(closed.count(), 2);
    // C and S, port id 0x100000.
    let jump = [0xc0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0];
    assert!(pair.deliver(1, &jump).is_err());
}

/// What was sent before the path carried less is cut at units when it is sent again, an opening segment as well.
#[test]
fn segments_that_the_path_carries_no_more_are_cut() {
    let mut pair = Pair::new(wire(10, 0.0), MuxOptions::default(), 1);
    let id = pair.ends[0].open(pair.now).expect("a port id");
    pair.ends[0].write(id, &cells(6, 0));
    let mut lost = Vec::new();
    while pair.ends[0].poll_datagram(pair.now, &mut lost).is_some() {}
    assert!(lost.len() > 1160, "{} bytes in the first datagram", lost.len());
    pair.ends[0].set_datagram_bytes_max(1160);
    pair.run_until(pair.now.plus_ns(20 * S));
    assert!(pair.ends[0].take_expired());
    assert!(pair.read[1].get(&theirs(id)) == Some(&cells(6, 0)));
}

#[test]
fn a_segment_of_no_flow_is_answered_with_a_reset() {
    let mut pair = Pair::new(wire(10, 0.0), MuxOptions::default(), 1);
    let unknown = [0x80, 0, 0, 7, 0, 0, 3, 0, 0, 0, 1, 1, 0];
    pair.deliver(1, &unknown).expect("well formed");
    let mut datagram = Vec::new();
    assert!(pair.ends[1].poll_datagram(pair.now, &mut datagram).is_some());
    assert_eq!(datagram, [0x10, 0, 0, 7, 0]);
}

#[test]
fn ten_thousand_flows_are_small() {
    let mut pair = Pair::new(wire(10, 0.0), MuxOptions::default(), 1);
    let ids: Vec<FlowId> = (0..10_000).map(|_| pair.ends[0].open(pair.now).expect("a port id")).collect();
    for id in &ids {
        assert_eq!(pair.ends[0].write(*id, &cells(1, 0)), CELL);
    }
    pair.run_until(Instant::from_nanos(2 * S));
    assert_eq!(pair.ends[1].len(), 10_000);
    assert_eq!(pair.pool.lent_bytes(), 0);
    for (end, id) in [(0, ids[5000]), (1, theirs(ids[5000]))] {
        let connection = pair.ends[end].get(id).expect("open");
        assert!(size_of_val(connection) + connection.heap_bytes() <= 2048);
    }
    for id in &ids {
        pair.ends[0].reset(pair.now, *id, 1);
    }
    pair.run_until(Instant::from_nanos(10 * S));
    assert!(pair.ends.iter().all(Mux::is_empty));
}
