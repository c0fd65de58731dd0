//! Two connections and a wire between them, in virtual time.
#![allow(dead_code, reason = "each test uses a part of it")]

use heddle_netem::{
    DirectionOptions, HostId, HostOptions, Packet, QueueOptions, Rate, Seed, Topology, TopologyOptions,
    WireOptions,
};
use heddle_utcp::segment::Transmit;
use heddle_utcp::{BufferPool, Connection, Ecn, Header, Instant, Options};
use std::sync::{Arc, OnceLock};

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000 * MS;

/// What a TCP and an IPv4 header take, and timestamps.
const HEADERS_BYTES: usize = 40;
const TIMESTAMPS_BYTES: usize = 12;
/// More steps or segments than this at one instant mean that somebody goes in circles.
const STEPS_PER_INSTANT_MAX: u32 = 100_000;

/// A segment on the wire. One with a flipped bit is dropped where it arrives, as a checksum would.
#[derive(Clone, Debug)]
pub struct Segment {
    pub header: Header,
    pub payload: Vec<u8>,
    pub ecn: Ecn,
    pub is_damaged: bool,
}

impl Packet for Segment {
    fn len_bytes(&self) -> usize {
        let blocks = self.header.sack.as_slice().len();
        let timestamps = if self.header.timestamps.is_some() { TIMESTAMPS_BYTES } else { 0 };
        HEADERS_BYTES + timestamps + if blocks == 0 { 0 } else { 4 + 8 * blocks } + self.payload.len()
    }

    fn flip_bit(&mut self, _bit: usize) {
        self.is_damaged = true;
    }
}

/// One end with its application.
pub struct End {
    pub connection: Option<Connection>,
    pub options: Arc<Options>,
    /// How many bytes the application still writes, and has written.
    pub to_write: u64,
    pub written: u64,
    pub read: u64,
    /// Whether it sends FIN after the last byte.
    pub shuts_down: bool,
    /// Whether it reads what comes.
    pub reads: bool,
}

/// Both ends and the wire. The first connects, the second accepts.
pub struct Pair {
    pub now: Instant,
    pub ends: [End; 2],
    pub pool: BufferPool,
    pub segments: u64,
    /// Prints every segment that arrives.
    pub trace: bool,
    topology: Topology<Segment>,
    seed: u64,
}

impl Pair {
    pub fn new(wire: [DirectionOptions; 2], options: [Options; 2], seed: u64) -> Self {
        let [there, back] = wire;
        let host = |name: &str| HostOptions { name: name.to_owned(), ..HostOptions::default() };
        let topology = TopologyOptions {
            hosts: vec![host("a"), host("b")],
            wires: vec![WireOptions { from: "a".into(), to: "b".into(), there, back: Some(back) }],
            default_wire: None,
        };
        let topology = Topology::new(&topology, &Seed::from_number(seed)).expect("good options");
        let pool = BufferPool::new(256 << 20);
        let ends = options.map(|options| {
            options.validate().expect("good options");
            End {
                connection: None,
                options: Arc::new(options),
                to_write: 0,
                written: 0,
                read: 0,
                shuts_down: true,
                reads: true,
            }
        });
        let mut pair =
            Pair { now: Instant::from_nanos(S), ends, pool, segments: 0, trace: false, topology, seed };
        let options = Arc::clone(&pair.ends[0].options);
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        pair.ends[0].connection = Some(Connection::connect(pair.now, options, &pair.pool, random));
        pair
    }

    /// Begins anew with a pool of this size.
    pub fn pool_of(&mut self, bytes: usize) {
        self.pool = BufferPool::new(bytes);
        let options = Arc::clone(&self.ends[0].options);
        self.ends[0].connection = Some(Connection::connect(self.now, options, &self.pool, self.seed));
    }

    pub fn connection(&self, end: usize) -> &Connection {
        self.ends[end].connection.as_ref().expect("it has begun")
    }

    /// Runs until `until` or until nothing is left to happen. Gives whether time is left.
    pub fn run_until(&mut self, until: Instant) -> bool {
        let mut still = 0;
        loop {
            self.settle();
            let wire = self.topology.next_time();
            let timers = self.ends.iter().filter_map(|end| end.connection.as_ref()?.poll_timeout());
            let Some(next) = timers.chain(wire).min() else { return true };
            if next > until {
                self.now = until;
                return false;
            }
            still = if next > self.now { 0 } else { still + 1 };
            assert!(
                still < STEPS_PER_INSTANT_MAX,
                "time stands still, seed {}: {}",
                self.seed,
                self.describe()
            );
            self.now = self.now.max(next);
            while let Some(delivery) = self.topology.poll(self.now) {
                self.deliver(delivery.to.0 as usize, &delivery.packet);
            }
            for end in &mut self.ends {
                if let Some(connection) = &mut end.connection {
                    connection.handle_timeout(self.now);
                }
            }
        }
    }

    /// Runs until both ends have read all that the other writes. Panics past the deadline.
    pub fn run_to_end(&mut self, deadline: Instant) {
        while !self.is_done() {
            assert!(self.now < deadline, "seed {}: {}", self.seed, self.describe());
            let step = self.now.plus_ns(100 * MS);
            let idle = self.run_until(step.min(deadline));
            // Time does not pass where nothing happens, so that the deadline would never come.
            assert!(!idle || self.is_done(), "seed {}: {}", self.seed, self.describe());
        }
    }

    /// Whether nothing is left to be written, and all that was written is read.
    fn is_done(&self) -> bool {
        let [a, b] = &self.ends;
        a.read == b.written + b.to_write && b.read == a.written + a.to_write
    }

    pub fn describe(&self) -> String {
        let end = |end: &End| {
            let connection = end.connection.as_ref();
            format!(
                "read {} wrote {} of {} more, {:?} {:?} {:?}",
                end.read,
                end.written,
                end.to_write,
                connection.map(Connection::state),
                connection.map(Connection::close_reason),
                connection.map(Connection::stats)
            )
        };
        format!("at {:?}: {} | {}", self.now, end(&self.ends[0]), end(&self.ends[1]))
    }

    fn deliver(&mut self, to: usize, segment: &Segment) {
        if segment.is_damaged {
            return;
        }
        self.segments += 1;
        if self.trace {
            let header = &segment.header;
            eprintln!(
                "{:.6} to {to}: {} +{} ack {:?} win {} {:?} sack {:?} {:?}",
                self.now.as_nanos() as f64 / 1e9,
                header.seq as u32,
                segment.payload.len(),
                header.ack.map(|ack| ack as u32),
                header.window_bytes,
                header.flags,
                header.sack.as_slice(),
                header.timestamps
            );
        }
        let end = &mut self.ends[to];
        match &mut end.connection {
            Some(connection) => {
                connection.handle_segment(self.now, &segment.header, &segment.payload, segment.ecn);
            }
            None => {
                let options = Arc::clone(&end.options);
                let random = self.seed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let (header, payload) = (&segment.header, &segment.payload);
                end.connection = Connection::accept(self.now, options, &self.pool, random, header, payload);
            }
        }
    }

    /// Lets the applications act and sends what wants to leave.
    fn settle(&mut self) {
        for number in 0..2 {
            let end = &mut self.ends[number];
            let Some(connection) = &mut end.connection else { continue };
            for sent in 0.. {
                assert!(sent < STEPS_PER_INSTANT_MAX, "end {number} does not stop sending at {:?}", self.now);
                let counts = [&mut end.to_write, &mut end.written, &mut end.read];
                act(connection, self.now, counts, end.shuts_down, end.reads);
                let mut payload = Vec::new();
                let Some(transmit) = connection.poll_transmit(self.now, &mut payload) else { break };
                let Transmit { header, payload_bytes, ecn } = transmit;
                assert_eq!(payload.len(), payload_bytes);
                let segment = Segment { header, payload, ecn, is_damaged: false };
                let now = self.now;
                let (from, to) = (HostId(number as u32), HostId(1 - number as u32));
                self.topology.send(now, from, to, segment).expect("there is a wire");
            }
        }
    }
}

/// The application: writes a pattern, checks a pattern.
fn act(connection: &mut Connection, now: Instant, counts: [&mut u64; 3], shuts_down: bool, reads: bool) {
    let [to_write, written, read] = counts;
    while *to_write > 0 && connection.capacity() > 0 {
        let len = (*to_write).min(4096).min(connection.capacity() as u64);
        let taken = connection.write(pattern(*written, len as usize)) as u64;
        *written += taken;
        *to_write -= taken;
        if taken == 0 {
            break;
        }
    }
    if *to_write == 0 && shuts_down {
        connection.shutdown();
    }
    if !reads {
        return;
    }
    let mut buffer = [0; 4096];
    loop {
        let count = connection.read(now, &mut buffer);
        if count == 0 {
            break;
        }
        assert!(buffer[..count] == *pattern(*read, count), "wrong bytes after {read}");
        *read += count as u64;
    }
}

/// Up to 4096 bytes of the stream, whose period is a prime.
fn pattern(at: u64, len: usize) -> &'static [u8] {
    const PERIOD: usize = 65_521;
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let byte = |place: usize| ((place % PERIOD) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0];
    let bytes = BYTES.get_or_init(|| (0..PERIOD + 4096).map(byte).collect());
    let start = (at % PERIOD as u64) as usize;
    &bytes[start..start + len]
}

/// A direction with this one-way delay, rate and queue.
pub fn wire(delay_ms: u64, bits_per_s: u64, queue_bytes: u64) -> DirectionOptions {
    DirectionOptions {
        rate: if bits_per_s == 0 { Rate::Unlimited } else { Rate::BitsPerS(bits_per_s) },
        queue: QueueOptions { packets_max: 1_000_000, bytes_max: queue_bytes.max(3000), codel: None },
        delay_ns: delay_ms * MS,
        ..DirectionOptions::default()
    }
}
