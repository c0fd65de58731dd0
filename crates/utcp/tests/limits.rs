//! Memory, and what an unfriendly peer gains.

mod pair;

use heddle_utcp::pool::CHUNK_BYTES;
use heddle_utcp::segment::{Range, SACK_BLOCKS_MAX};
use heddle_utcp::{BufferPool, Connection, Ecn, Header, Instant, Options};
use pair::{MS, Pair, S, wire};

/// What an idle connection may take in all.
const IDLE_BYTES_MAX: usize = 2048;

#[test]
fn an_idle_connection_is_small() {
    // Loss and a change of order make all lists grow first.
    let mut bad = wire(10, 20_000_000, 1_000_000);
    bad.loss = heddle_netem::Loss::Bernoulli { probability: 0.01 };
    bad.reorder = Some(heddle_netem::Reorder { probability: 0.05, hold_ns: 5 * MS });
    let mut pair = Pair::new([bad.clone(), bad], [Options::default(), Options::default()], 1);
    for end in &mut pair.ends {
        end.shuts_down = false;
        end.to_write = 3_000_000;
    }
    pair.run_until(Instant::from_nanos(300 * S));
    for end in 0..2 {
        assert_eq!(pair.ends[end].read, 3_000_000);
        let connection = pair.connection(end);
        let bytes = size_of::<Connection>() + connection.heap_bytes();
        println!("{bytes} bytes, of them {} on the heap", connection.heap_bytes());
        assert!(bytes <= IDLE_BYTES_MAX, "{bytes} bytes");
    }
    assert_eq!(pair.pool.lent_bytes(), 0);
}

#[test]
fn a_small_pool_slows_but_does_not_stop() {
    let clean = wire(10, 100_000_000, 1_000_000);
    let mut pair = Pair::new([clean.clone(), clean], [Options::default(), Options::default()], 1);
    // Both ends share a pool of fifty chunks.
    pair.pool_of(50 * CHUNK_BYTES);
    pair.ends[0].to_write = 1_000_000;
    pair.run_to_end(Instant::from_nanos(1000 * S));
}

/// How many segments leave now. One that does not stop sending is stopped.
fn leaving(connection: &mut Connection, now: Instant) -> usize {
    (0..1000).take_while(|_| connection.poll_transmit(now, &mut Vec::new()).is_some()).count()
}

/// An established connection with ten segments in flight, and the header of a bare acknowledgement to it.
fn ten_in_flight(pool: &BufferPool) -> (Connection, Header) {
    let options = Options { timestamps: false, pacing: false, mss_bytes: 1000, ..Options::default() };
    let now = Instant::from_nanos(S);
    let mut connection = Connection::connect(now, options.into(), pool, 5);
    let syn = connection.poll_transmit(now, &mut Vec::new()).expect("a SYN").header;
    let mut answer = Header {
        seq: 1 << 32,
        ack: Some(syn.seq + 1),
        window_bytes: 65_000,
        syn: syn.syn,
        ..Header::default()
    };
    answer.flags.syn = true;
    connection.handle_segment(now.plus_ns(100 * MS), &answer, &[], Ecn::NotEct);
    connection.write(&[0; 20_000]);
    let now = now.plus_ns(100 * MS);
    assert_eq!(leaving(&mut connection, now), 10);
    let bare = Header { seq: answer.seq + 1, ack: answer.ack, window_bytes: 65_000, ..Header::default() };
    (connection, bare)
}

#[test]
fn divided_acknowledgements_gain_nothing() {
    let pool = BufferPool::new(1 << 20);
    let now = Instant::from_nanos(S + 200 * MS);
    let windows = [1, 100].map(|pieces| {
        let (mut connection, bare) = ten_in_flight(&pool);
        for piece in 1..=pieces {
            let ack = bare.ack.map(|ack| ack + 1000 * piece / pieces);
            connection.handle_segment(now, &Header { ack, ..bare }, &[], Ecn::NotEct);
        }
        connection.stats().window_bytes
    });
    assert_eq!(windows[0], windows[1]);
}

#[test]
fn acknowledgements_of_what_was_not_sent_gain_nothing() {
    let pool = BufferPool::new(1 << 20);
    let now = Instant::from_nanos(S + 200 * MS);
    let (mut connection, bare) = ten_in_flight(&pool);
    let before = connection.stats();
    for ahead in 10_001..20_000 {
        let ack = bare.ack.map(|ack| ack + ahead);
        connection.handle_segment(now, &Header { ack, ..bare }, &[], Ecn::NotEct);
    }
    assert_eq!(connection.stats(), before);
    assert_eq!(leaving(&mut connection, now), 1, "one challenge");
}

#[test]
fn sacks_of_single_bytes_cost_and_gain_nothing() {
    let pool = BufferPool::new(1 << 20);
    let now = Instant::from_nanos(S + 200 * MS);
    let (mut connection, bare) = ten_in_flight(&pool);
    let heap_bytes = connection.heap_bytes();
    let una = bare.ack.expect("it acknowledges");
    for at in (1..9_000).step_by(2) {
        let blocks = (0..SACK_BLOCKS_MAX as u64).map(|n| Range::new(una + at + 2 * n, una + at + 2 * n + 1));
        let header = Header { sack: blocks.collect(), ..bare };
        connection.handle_segment(now, &header, &[], Ecn::NotEct);
    }
    assert_eq!(connection.heap_bytes(), heap_bytes);
    assert_eq!(connection.stats().in_flight_bytes, 10_000);
}

#[test]
fn single_bytes_out_of_order_are_bounded() {
    let pool = BufferPool::new(64 << 20);
    let now = Instant::from_nanos(S + 200 * MS);
    let (mut connection, bare) = ten_in_flight(&pool);
    for at in 0..30_000 {
        let header = Header { seq: bare.seq + 2 * at + 1, ..bare };
        connection.handle_segment(now, &header, &[1], Ecn::NotEct);
    }
    assert!(connection.heap_bytes() < 64 << 10, "{}", connection.heap_bytes());
    assert!(pool.lent_bytes() <= (64 << 10) + 40_000, "{}", pool.lent_bytes());
}

#[test]
#[ignore = "takes a minute in release"]
fn ten_million_segments() {
    let mut seed = 0;
    let mut segments = 0;
    while segments < 10_000_000 {
        seed += 1;
        let mut direction = wire(1 + seed % 40, 20_000_000 + 1_000_000 * (seed % 80), 100_000);
        direction.loss = heddle_netem::Loss::Bernoulli { probability: 0.001 * (seed % 20) as f64 };
        direction.reorder =
            Some(heddle_netem::Reorder { probability: 0.01 * (seed % 7) as f64, hold_ns: 3 * MS });
        direction.duplicate = 0.001 * (seed % 10) as f64;
        direction.corrupt = 0.001 * (seed % 5) as f64;
        let mut pair =
            Pair::new([direction.clone(), direction], [Options::default(), Options::default()], seed);
        pair.ends[0].to_write = 20_000_000;
        pair.ends[1].to_write = if seed % 2 == 0 { 20_000_000 } else { 0 };
        pair.run_to_end(Instant::from_nanos(100_000 * S));
        segments += pair.segments;
    }
    println!("{segments} segments in {seed} transfers");
}
