//! What a session's window holds back when the path is silent: timers of its flows, and what it believes of the path.

use heddle_utcp::compact::{FlowId, Mux, MuxEvent, MuxOptions};
use heddle_utcp::congestion::{AckWait, SessionAck, SessionController};
use heddle_utcp::{BufferPool, Instant};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
/// A cell with its command.
const CELL: usize = 510;
/// What one way takes.
const DELAY_NS: u64 = 25 * MS;

/// What the test and the controller tell each other.
#[derive(Debug, Default)]
struct Told {
    window_bytes: AtomicU64,
    lost_bytes: AtomicU64,
    stalls: AtomicU64,
    undone: AtomicU64,
}

/// A window that the test sets.
#[derive(Debug)]
struct Set(Arc<Told>);

impl SessionController for Set {
    fn window_bytes(&self) -> u64 {
        self.0.window_bytes.load(Ordering::Relaxed)
    }

    fn pacing_percent(&self) -> u64 {
        125
    }

    fn set_mss_bytes(&mut self, _mss_bytes: u16) {}

    fn set_busy_flows(&mut self, _flows: f64) {}

    fn on_sent(&mut self, _now: Instant, _bytes: u64) {}

    fn set_ack_wait(&mut self, _wait: AckWait) {}

    fn on_ack(&mut self, _ack: &SessionAck) {}

    fn on_loss(&mut self, _now: Instant, _sent: Instant, bytes: u64) {
        self.0.lost_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn on_gone(&mut self, _bytes: u64) {}

    fn on_marked(&mut self, _now: Instant, _sent: Instant) {}

    fn set_in_flight(&mut self, _bytes: u64) {}

    fn on_probe(&mut self, _now: Instant, _round_trip_ns: u64) {}

    fn on_stall(&mut self, _now: Instant) {
        self.0.stalls.fetch_add(1, Ordering::Relaxed);
    }

    fn on_stall_undone(&mut self, _now: Instant) {
        self.0.undone.fetch_add(1, Ordering::Relaxed);
    }
}

/// Two ends and the wire between them, which loses everything or nothing.
struct Path {
    now: Instant,
    ends: [Mux; 2],
    told: Arc<Told>,
    is_cut: bool,
    /// How much longer the way takes.
    late_ns: u64,
    /// When and where to, in order.
    wire: Vec<(Instant, usize, Vec<u8>)>,
    /// Segments with something in them that the first end sent, and bytes that the second end read.
    sent: usize,
    read: usize,
    /// Flows with lower port ids than this are not read.
    held: u32,
}

impl Path {
    fn new(window_bytes: u64) -> Self {
        Path::with_pool(window_bytes, &BufferPool::new(64 << 20))
    }

    /// The second end's flows have a share of this pool.
    fn with_pool(window_bytes: u64, pool: &BufferPool) -> Self {
        let told = Arc::new(Told { window_bytes: AtomicU64::new(window_bytes), ..Told::default() });
        let controller = Set(Arc::clone(&told));
        let options = MuxOptions::default();
        let first_pool = BufferPool::new(64 << 20);
        let first = Mux::with_controller(options.clone(), first_pool, |_| Box::new(controller));
        let ends = [first, Mux::new(options, pool.session())];
        let (now, wire) = (Instant::from_nanos(S), Vec::new());
        Path { now, ends, told, is_cut: false, late_ns: 0, wire, sent: 0, read: 0, held: 0 }
    }

    fn set_window(&self, window_bytes: u64) {
        self.told.window_bytes.store(window_bytes, Ordering::Relaxed);
    }

    /// Stalls, those of them that were none, and bytes lost, as the controller was told.
    fn told(&self) -> [u64; 3] {
        let Told { stalls, undone, lost_bytes, .. } = &*self.told;
        [stalls, undone, lost_bytes].map(|count| count.load(Ordering::Relaxed))
    }

    fn in_flight(&self) -> u64 {
        self.ends[0].shared_window().expect("they share one")[1]
    }

    /// Opens so many flows, with a cell delivered of each.
    fn open(&mut self, flows: usize) -> Vec<FlowId> {
        let ids: Vec<FlowId> = (0..flows).filter_map(|_| self.ends[0].open(self.now)).collect();
        self.write(&ids);
        self.run(2 * S);
        assert_eq!((ids.len(), self.read), (flows, flows * CELL));
        ids
    }

    fn write(&mut self, ids: &[FlowId]) {
        for id in ids {
            assert_eq!(self.ends[0].write(*id, &[7; CELL]), CELL);
        }
    }

    fn run(&mut self, for_ns: u64) {
        let until = self.now.plus_ns(for_ns);
        loop {
            self.send();
            let timers = self.ends.iter().filter_map(Mux::poll_timeout);
            let next = timers.chain(self.wire.first().map(|(at, ..)| *at)).min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.now = self.now.max(next);
            while self.wire.first().is_some_and(|(at, ..)| *at <= self.now) {
                let (_, to, datagram) = self.wire.remove(0);
                let (read, held) = (&mut self.read, self.held);
                let mut sink = |id: FlowId, bytes: &[u8]| {
                    let taken = if id.port < held { 0 } else { bytes.len() };
                    *read += if to == 1 { taken } else { 0 };
                    taken
                };
                self.ends[to].handle_datagram(self.now, &datagram, &mut sink).expect("an honest peer");
            }
            self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now));
        }
        self.now = until;
    }

    fn send(&mut self) {
        for from in 0..2 {
            let mut datagram = Vec::new();
            while self.ends[from].poll_datagram(self.now, &mut datagram).is_some() {
                self.sent += if from == 0 { datagram.len() / CELL } else { 0 };
                let datagram = core::mem::take(&mut datagram);
                if !self.is_cut {
                    let at = self.now.plus_ns(DELAY_NS + self.late_ns);
                    let place = self.wire.partition_point(|(before, ..)| *before <= at);
                    self.wire.insert(place, (at, 1 - from, datagram));
                }
            }
            while let Some(event) = self.ends[from].poll_event() {
                // What opens a flow is read, all else is taken from the datagram.
                if let MuxEvent::Readable(id) = event
                    && id.port >= self.held
                {
                    let mut buffer = [0; 2 * CELL];
                    self.read += self.ends[from].read(self.now, id, &mut buffer);
                }
            }
        }
    }
}

/// A hundred flows have a cell under way each when the path falls silent and the window shrinks to five cells.
#[test]
fn what_timers_force_out_obeys_the_window_of_the_session() {
    const FLOWS: usize = 100;
    const WINDOW: u64 = 5 * CELL as u64;
    let mut path = Path::new(200_000);
    let ids = path.open(FLOWS);
    path.write(&ids);
    path.is_cut = true;
    path.run(10 * MS);
    assert_eq!(path.in_flight(), (FLOWS * CELL) as u64);
    path.set_window(WINDOW);
    // All tail loss probes and the first time-outs, then more of these, ever rarer.
    for (seconds, most) in [(1, 12), (5, 40), (20, 60)] {
        path.sent = 0;
        for _ in 0..seconds * 20 {
            path.run(50 * MS);
            let has_timed_out =
                ids.iter().all(|id| path.ends[0].stats(*id).expect("a flow").counts.timeouts > 0);
            let is_within = path.in_flight() <= WINDOW + 1360;
            assert!(is_within || !has_timed_out, "{} at {:?}", path.in_flight(), path.now);
        }
        assert!(path.sent <= most, "{} cells in {seconds} s", path.sent);
        assert!(path.sent > 0, "nothing asks whether the path is there");
    }
    path.is_cut = false;
    path.run(60 * S);
    assert_eq!(path.read, 2 * FLOWS * CELL);
}

/// Of two hundred flows none is read but the last, and there is memory for a cell of a few of them.
#[test]
fn what_the_peer_has_no_memory_for_holds_up_no_other_flow() {
    const FLOWS: usize = 200;
    const CELLS: usize = 200;
    let pool = BufferPool::new(512 << 10);
    let mut path = Path::with_pool(40_000, &pool);
    let ids = path.open(FLOWS);
    path.held = FLOWS as u32 - 1;
    for id in &ids {
        path.write(&[*id; 4]);
    }
    path.run(S);
    (path.sent, path.read) = (0, 0);
    let ([_, _, lost], last) = (path.told(), [ids[FLOWS - 1]]);
    for _ in 0..CELLS / 10 {
        path.write(&last.repeat(10));
        path.run(100 * MS);
    }
    assert_eq!(path.read, CELLS * CELL);
    // Each of the others asks from time to time, ever more rarely.
    assert!(path.sent < CELLS + 4 * FLOWS, "{}", path.sent);
    let [stalls, _, lost_after] = path.told();
    assert!(lost_after - lost <= (FLOWS * CELL) as u64 && stalls == 0, "{lost} {lost_after} {stalls}");
    assert!(pool.lent_bytes() < 64 << 10, "{}", pool.lent_bytes());
    // Once they are read everything arrives.
    (path.held, path.read) = (0, 0);
    for id in &ids {
        let theirs = FlowId { is_ours: false, ..*id };
        path.read += path.ends[1].read(path.now, theirs, &mut [0; 8 * CELL]);
    }
    path.run(S);
    assert_eq!(path.read, 4 * (FLOWS - 1) * CELL);
}

/// Every time-out is answered, by a window that stays shut: a peer that answers is there, however long it takes.
#[test]
fn flows_that_the_peer_has_no_memory_for_live_as_long_as_it_answers() {
    const FLOWS: usize = 200;
    let pool = BufferPool::new(512 << 10);
    let mut path = Path::with_pool(40_000, &pool);
    let ids = path.open(FLOWS);
    path.held = FLOWS as u32;
    for id in &ids {
        path.write(&[*id; 4]);
    }
    path.run(6 * 3600 * S);
    let gone = ids.iter().filter(|id| path.ends[0].get(**id).is_none()).count();
    assert_eq!(gone, 0, "of {FLOWS} flows");
    let asked_max =
        ids.iter().filter_map(|id| path.ends[0].stats(*id)).map(|stats| stats.counts.timeouts).max();
    assert!(asked_max > Some(100), "{asked_max:?}: none had anything outstanding");
    (path.held, path.read) = (0, 0);
    for id in &ids {
        let theirs = FlowId { is_ours: false, ..*id };
        path.read += path.ends[1].read(path.now, theirs, &mut [0; 8 * CELL]);
    }
    path.run(300 * S);
    assert_eq!(path.read, 4 * FLOWS * CELL);
    // Questions that are not answered are another matter.
    path.held = FLOWS as u32;
    for id in &ids {
        path.write(&[*id; 4]);
    }
    path.run(60 * S);
    path.is_cut = true;
    path.run(2 * 3600 * S);
    let waits = |id: &FlowId| path.ends[0].stats(*id).is_some_and(|stats| stats.unacknowledged_bytes > 0);
    assert_eq!(ids.iter().filter(|id| waits(id)).count(), 0);
    assert!(path.ends[0].len() < FLOWS / 4, "{}", path.ends[0].len());
}

#[test]
fn the_first_time_out_in_which_nothing_arrives_stalls_the_session_and_is_all_that_its_losses_cost() {
    let mut path = Path::new(200_000);
    let ids = path.open(50);
    path.write(&ids);
    path.is_cut = true;
    // Tail loss probes after 250 ms, time-outs as long after those.
    path.run(600 * MS);
    assert_eq!(path.told(), [1, 0, 0]);
    path.run(S);
    path.is_cut = false;
    path.run(10 * S);
    assert_eq!((path.read, path.told()), (100 * CELL, [1, 0, 0]));
    // The next one is another.
    path.write(&ids);
    path.is_cut = true;
    path.run(10 * S);
    assert_eq!(path.told(), [2, 0, 0]);
}

#[test]
fn a_stall_is_none_if_what_was_sent_before_arrives_after_it() {
    let mut path = Path::new(200_000);
    let ids = path.open(50);
    path.late_ns = S;
    ids.iter().for_each(|id| path.write(&[*id; 7]));
    path.run(1500 * MS);
    assert_eq!(path.told(), [1, 0, 0]);
    path.late_ns = 0;
    path.run(10 * S);
    assert_eq!((path.read, path.told()[..2].to_vec()), (400 * CELL, vec![1, 1]));
}

impl Path {
    /// Bytes of segments with something in them that are on their way to the second end.
    fn on_wire(&self) -> u64 {
        let data = self.wire.iter().filter(|(_, to, datagram)| *to == 1 && datagram.len() > CELL);
        data.map(|(.., datagram)| datagram.len() as u64).sum()
    }

    /// Ends flows, which one of the ends does.
    fn reset(&mut self, by: usize, ids: &[FlowId]) {
        for id in ids {
            self.ends[by].reset(self.now, FlowId { is_ours: by == 0, ..*id }, 5);
        }
    }
}

/// Flows are filled and reset by either end, several in each round trip, when the way has become longer than the pacer
/// knows.
#[test]
fn what_flows_that_are_reset_have_under_way_stays_in_the_window() {
    const WINDOW: u64 = 20_000;
    for by in [0, 1] {
        let mut path = Path::new(WINDOW);
        let ids = path.open(20);
        path.late_ns = 60 * MS;
        let mut most = 0;
        for id in ids {
            path.write(&[id; 60]);
            for _ in 0..4 {
                path.run(5 * MS);
                most = most.max(path.on_wire());
            }
            path.reset(by, &[id]);
        }
        assert!(most > WINDOW / 2 && most <= WINDOW + 1400, "{most} bytes, reset by {by}");
        // Nothing was lost, and so no time-out has to pass before the window is free.
        path.run(4 * (DELAY_NS + path.late_ns));
        assert_eq!((path.in_flight(), path.told()), (0, [0, 0, 0]), "reset by {by}");
    }
}

#[test]
fn losses_of_flows_that_are_reset_are_told() {
    for by in [0, 1] {
        let mut path = Path::new(20_000);
        let ids = path.open(2);
        path.write(&[ids[0]; 12]);
        path.send();
        // The pacer lets four segments go.
        let lost = path.on_wire() - 4 * 13;
        path.wire.clear();
        // What the other flow delivers tells that the path is there.
        path.reset(by, &ids[..1]);
        for _ in 0..20 {
            path.write(&ids[1..]);
            path.run(50 * MS);
        }
        path.run(S);
        assert_eq!((path.told(), path.in_flight()), ([0, 0, lost], 0), "reset by {by}");
    }
}

/// What a probe repairs was lost all the same, and no window would hear of losses of flows that send a cell now and
/// then (RFC 8985, section 7.4).
#[test]
fn losses_that_probes_repair_are_told() {
    const FLOWS: u64 = 10;
    let mut path = Path::new(100_000);
    let ids = path.open(FLOWS as usize);
    path.is_cut = true;
    path.write(&ids);
    path.run(10 * MS);
    path.is_cut = false;
    path.run(2 * S);
    assert_eq!(path.read as u64, 2 * FLOWS * CELL as u64);
    // What comes after tells that it was no answer to what was lost.
    path.write(&ids);
    path.run(2 * S);
    let [stalls, _, lost] = path.told();
    assert_eq!((stalls, lost), (0, FLOWS * CELL as u64));
}

/// One segment is lost of several, and what comes after it tells so before any time-out.
#[test]
fn acknowledgements_after_a_reset_tell_of_holes() {
    let mut path = Path::new(20_000);
    let ids = path.open(1);
    path.write(&[ids[0]; 24]);
    path.run(MS);
    let first = path.wire.iter().position(|(_, to, _)| *to == 1).expect("they are under way");
    path.wire.remove(first);
    path.reset(1, &ids);
    path.run(4 * DELAY_NS);
    assert_eq!((path.told(), path.in_flight()), ([0, 0, 1360], 0));
}

/// What they had under way counts as lost, or the window would never be free again, and what comes of them nevertheless
/// finds the session whole.
#[test]
fn what_is_left_of_flows_is_free_at_once_where_memory_is_short() {
    const FLOWS: usize = 2_000;
    for by in [0, 1] {
        let mut path = Path::new(4 << 20);
        let ids = path.open(FLOWS);
        let before = path.ends.each_ref().map(Mux::heap_bytes);
        path.write(&ids);
        path.run(DELAY_NS / 2);
        path.reset(by, &ids);
        path.run(DELAY_NS / 2);
        let now = path.now;
        let left = path.ends[by].heap_bytes();
        path.ends[by].give_up_remains(now);
        let kept = path.ends[by].heap_bytes();
        println!("{left} bytes were left of {}, and {kept} when memory was short", before[by]);
        assert!(kept < left / 3, "{kept} bytes are kept of {left}");
        path.run(4 * S);
        assert_eq!(path.in_flight(), 0, "reset by {by}");
        assert!(path.ends.iter().all(Mux::is_empty), "the other end heard of it");
        let last = path.ends[0].open(path.now).expect("there are port ids left");
        let read = path.read;
        path.write(&[last]);
        path.run(S);
        assert_eq!(path.read, read + CELL);
    }
}

#[test]
fn a_flow_that_is_refused_has_not_lost_its_opening() {
    let mut path = Path::new(20_000);
    let id = path.ends[0].open(path.now).expect("there are port ids left");
    path.write(&[id]);
    path.run(DELAY_NS);
    path.reset(1, &[id]);
    path.wire.retain(|(_, to, datagram)| *to == 1 || datagram.len() < 13);
    path.run(4 * S);
    assert_eq!((path.told(), path.in_flight()), ([0, 0, 0], 0));
}

/// The path answers the session's own questions and nothing of a flow: ten of its time-outs do not grow, those after
/// them do, and it ends when it would if all had.
#[test]
fn a_flow_that_alone_is_not_answered_asks_ten_times_as_soon_and_ends_in_time() {
    let mut path = Path::new(40_000);
    let ids = path.open(1);
    path.is_cut = true;
    path.write(&ids);
    path.sent = 0;
    let answered_for = |path: &mut Path, tenths: u32| {
        for _ in 0..tenths {
            path.ends[0].on_answered(path.now);
            path.run(100 * MS);
        }
    };
    answered_for(&mut path, 100);
    // Ten after a round trip of 50 ms and 200 more each, then after 2 and 4 s, as if time-outs had doubled from the
    // first.
    assert!((12..=16).contains(&path.sent), "{}", path.sent);
    // Doubled, fifteen of them would take 14 minutes, of which none is longer than two.
    answered_for(&mut path, 7_900);
    assert!(path.ends[0].get(ids[0]).is_some());
    answered_for(&mut path, 2_000);
    assert!(path.ends[0].get(ids[0]).is_none());
    assert!(path.sent <= 30, "{}", path.sent);
}

/// Nothing at all is answered for a minute, so time-outs have grown to half a minute. Then the session hears that the
/// path is there.
#[test]
fn a_flow_does_not_wait_for_its_grown_time_out_once_the_path_answers() {
    let mut path = Path::new(40_000);
    let ids = path.open(1);
    path.is_cut = true;
    path.write(&ids);
    path.run(40 * S);
    (path.is_cut, path.sent, path.read) = (false, 0, 0);
    path.run(10 * S);
    assert_eq!(path.sent, 0);
    path.ends[0].on_answered(path.now);
    path.run(100 * MS);
    assert_eq!((path.sent, path.read), (1, CELL));
}
