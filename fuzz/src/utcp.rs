//! User-level TCP: a connection that hears its honest peer, repeated, lost and late, and forged segments between; and
//! hosts that are handed any packet.
//!
//! Without forged segments the bytes that were read are a beginning of those that were written. With them nothing may
//! panic and memory stays bounded.

use heddle_utcp::compact::{Mux, MuxEvent, MuxOptions};
use heddle_utcp::segment::{Flags, Range, SackBlocks, SynOptions, Timestamps};
use heddle_utcp::{BufferPool, Connection, Ecn, Header, Host, HostLimits, Instant, Options, wire};
use std::collections::VecDeque;
use std::sync::Arc;

const MS: u64 = 1_000_000;
const POOL_BYTES: usize = 1 << 20;
/// Beside the pool's chunks: ranges out of order, the scoreboard, lists of chunks.
const HEAP_BYTES_MAX: usize = 4 << 20;

/// The first byte chooses: a pair of connections, a host and packets, or a session and datagrams.
pub fn run(data: &[u8]) {
    match data.split_first() {
        Some((first, script)) if first % 4 == 3 => packets(script),
        Some((first, script)) if first % 4 == 2 => datagrams(script),
        Some((first, script)) => Pair::new(*first).play(script),
        None => {}
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let calm: Vec<u8> = [0].into_iter().chain((0..200).map(|n| [0, 1, 4, 0, 1, 5, 6][n % 7])).collect();
    let forged: Vec<u8> = [1].into_iter().chain((0..200u8).map(|n| n.wrapping_mul(37))).collect();
    let mut packet = vec![3];
    let tcp =
        wire::TcpHeader { flags: Flags { syn: true, ..Flags::default() }, ..wire::TcpHeader::default() };
    let [from, to] = ["10.0.0.1:5", "10.0.0.2:80"].map(|text| text.parse().expect("an address"));
    wire::emit(from, to, Ecn::NotEct, &tcp, &[], &mut packet);
    // The opening segment of a peer's flow, an acknowledgement of ours, a reset of ours.
    let opening = [13 + 170, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 9, 1];
    let answer = [13, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 6, 9, 9, 0];
    let reset = [5, 0x10, 0, 0, 1, 4];
    let session = [&[2][..], &opening, &[7; 170], &answer, &reset].concat();
    vec![calm, forged, packet, session]
}

/// Any packet: parsing agrees with itself, and a host takes it.
fn packets(packet: &[u8]) {
    let random = Box::new(|| 7);
    let limits = HostLimits { connections_max: 4, backlog_max: 2 };
    let mut host = Host::new(Options::default(), BufferPool::new(POOL_BYTES), limits, random);
    host.listen(80);
    let now = Instant::from_nanos(1000 * MS);
    host.handle_packet(now, packet);
    if let Ok(parsed) = wire::parse(packet) {
        let mut again = Vec::new();
        wire::emit(parsed.source, parsed.destination, parsed.ecn, &parsed.tcp, parsed.payload, &mut again);
        assert_eq!(wire::parse(&again), Ok(parsed));
    }
    let mut out = Vec::new();
    for _ in 0..4 {
        out.clear();
        if !host.poll_packet(now, &mut out) {
            break;
        }
        assert!(wire::parse(&out).is_ok());
    }
}

/// A session with two flows of its own that hears any datagrams, each behind its length.
fn datagrams(mut script: &[u8]) {
    let mut now = Instant::from_nanos(1000 * MS);
    let options = MuxOptions { flows_max: 8, ..MuxOptions::default() };
    let mut mux = Mux::new(options, BufferPool::new(POOL_BYTES));
    let ids = [0, 1].map(|_| mux.open(now).expect("a port id"));
    mux.write(ids[0], &[1; 1020]);
    while !script.is_empty() {
        let len = usize::from(take(&mut script)).min(script.len());
        let (datagram, rest) = script.split_at(len);
        script = rest;
        let taken = mux.handle_datagram(now, datagram, &mut |_, bytes| bytes.len() / 2);
        if taken.is_err() {
            break;
        }
        now = now.plus_ns(u64::from(len as u8) * MS);
        mux.handle_timeout(now);
        while let Some(event) = mux.poll_event() {
            if let MuxEvent::Readable(id) = event {
                mux.read(now, id, &mut [0; 600]);
                mux.write(id, &[2; 510]);
            }
        }
        let mut out = Vec::new();
        while mux.poll_datagram(now, &mut out).is_some() {
            assert!(out.len() <= 1400);
            out.clear();
        }
        assert!(mux.len() <= 10);
    }
}

type Segment = (Header, Vec<u8>, Ecn);

struct Pair {
    ends: [Option<Connection>; 2],
    /// What is on its way to each end.
    ways: [VecDeque<Segment>; 2],
    options: Arc<Options>,
    pool: BufferPool,
    now: Instant,
    written: [u64; 2],
    read: [u64; 2],
    is_forged: bool,
}

impl Pair {
    fn new(kind: u8) -> Self {
        let options = Options {
            sack: kind & 4 == 0,
            timestamps: kind & 8 == 0,
            ecn: kind & 16 != 0,
            pacing: kind & 32 != 0,
            syn_data: kind & 64 != 0,
            unit_bytes: if kind & 128 != 0 { 514 } else { 1 },
            receive_buffer_initial_bytes: 8000,
            receive_buffer_max_bytes: 32_000,
            ..Options::default()
        };
        let (options, pool) = (Arc::new(options), BufferPool::new(POOL_BYTES));
        let now = Instant::from_nanos(10_000 * MS);
        let connection = Connection::connect(now, Arc::clone(&options), &pool, 0xffff_fff0);
        Pair {
            ends: [Some(connection), None],
            ways: [VecDeque::new(), VecDeque::new()],
            options,
            pool,
            now,
            written: [0; 2],
            read: [0; 2],
            is_forged: false,
        }
    }

    fn play(&mut self, mut script: &[u8]) {
        while let Some((step, rest)) = script.split_first() {
            script = rest;
            let end = usize::from(step >> 7);
            match step % 12 {
                0..=2 => {
                    let honest = self.ways[end].pop_front();
                    honest.into_iter().for_each(|segment| self.deliver(end, &segment));
                }
                3 => drop(self.ways[end].pop_front()),
                4 => {
                    let again = self.ways[end].front().cloned();
                    again.into_iter().for_each(|segment| self.deliver(end, &segment));
                }
                5 => self.ways[end].rotate_left(usize::from(!self.ways[end].is_empty())),
                6 => self.write(end, usize::from(take(&mut script)) * 16),
                7 => self.pass_time(take(&mut script)),
                8 => self.read(end, 700),
                9 => self.close(end, take(&mut script)),
                _ => self.forge(end, &mut script),
            }
            self.check();
        }
    }

    fn write(&mut self, end: usize, len: usize) {
        let Some(connection) = &mut self.ends[end] else { return };
        let bytes: Vec<u8> = (self.written[end]..).take(len).map(|at| (at % 251) as u8).collect();
        self.written[end] += connection.write(&bytes) as u64;
    }

    fn read(&mut self, end: usize, len: usize) {
        let Some(connection) = &mut self.ends[end] else { return };
        let mut bytes = vec![0; len];
        let count = connection.read(self.now, &mut bytes);
        for byte in &bytes[..count] {
            assert!(self.is_forged || u64::from(*byte) == self.read[end] % 251);
            self.read[end] += 1;
        }
        assert!(self.is_forged || self.read[end] <= self.written[1 - end]);
    }

    /// Waits for the next timer, or for so many times ten milliseconds.
    fn pass_time(&mut self, tens: u8) {
        let next = self.ends.iter().flatten().filter_map(Connection::poll_timeout).min();
        let wanted = self.now.plus_ns(u64::from(tens) * 10 * MS);
        self.now = next.filter(|next| *next < wanted).unwrap_or(wanted).max(self.now);
        self.ends.iter_mut().flatten().for_each(|connection| connection.handle_timeout(self.now));
    }

    fn close(&mut self, end: usize, how: u8) {
        let Some(connection) = &mut self.ends[end] else { return };
        match how % 16 {
            0 => connection.abort(3),
            1 => connection.close(),
            2..=6 => connection.shutdown(),
            _ => {}
        }
    }

    fn deliver(&mut self, end: usize, (header, payload, ecn): &Segment) {
        match &mut self.ends[end] {
            Some(connection) => connection.handle_segment(self.now, header, payload, *ecn),
            None => {
                let (options, random) = (Arc::clone(&self.options), 77);
                self.ends[end] = Connection::accept(self.now, options, &self.pool, random, header, payload);
            }
        }
    }

    /// A segment near what the end expects, made of the script.
    fn forge(&mut self, end: usize, script: &mut &[u8]) {
        self.is_forged = true;
        let expected = self.ends[end].as_ref().map_or((1 << 32, 1 << 32), Connection::expected);
        let bits = take(script);
        let mut near = |at: u64| at.saturating_add_signed((i64::from(take(script)) - 64) * 97).max(1);
        let mut header = Header { seq: near(expected.0), ..Header::default() };
        header.ack = (bits & 1 != 0).then(|| near(expected.1));
        header.sack =
            SackBlocks::from_iter((0..bits >> 6).map(|_| Range::new(near(expected.1), near(expected.1))));
        header.window_bytes = u32::from(take(script)) << 8;
        let flags = take(script);
        header.flags = Flags {
            syn: flags & 0x11 == 0x11,
            fin: flags & 0x22 == 0x22,
            rst: flags & 0x44 == 0x44,
            psh: false,
            ece: flags & 8 != 0,
            cwr: flags & 0x80 != 0,
        };
        if bits & 2 != 0 {
            let (value, echo) = (u32::from(take(script)), u32::from(take(script)));
            header.timestamps = Some(Timestamps { value: value << 6, echo: echo << 6 });
        }
        if header.flags.syn {
            let mss_bytes = Some(u16::from(take(script)) * 8);
            header.syn = Some(SynOptions { mss_bytes, window_shift: Some(bits & 31), sack_permitted: true });
        }
        let payload = vec![bits; usize::from(take(script)) * usize::from(bits & 4)];
        let ecn = if bits & 8 != 0 { Ecn::Ce } else { Ecn::NotEct };
        self.deliver(end, &(header, payload, ecn));
    }

    /// Sends what wants to leave and looks at the bounds.
    fn check(&mut self) {
        for end in 0..2 {
            let Some(connection) = &mut self.ends[end] else { continue };
            // A connection that never ends to send is a fault too; a window holds fewer segments than this.
            for turn in 0.. {
                assert!(turn < 20_000, "it does not stop sending");
                let mut payload = Vec::new();
                let Some(transmit) = connection.poll_transmit(self.now, &mut payload) else { break };
                assert_eq!(transmit.payload_bytes, payload.len());
                assert!(payload.len() <= usize::from(self.options.mss_bytes));
                if self.ways[1 - end].len() < 1000 {
                    self.ways[1 - end].push_back((transmit.header, payload, transmit.ecn));
                }
            }
            assert!(connection.heap_bytes() <= HEAP_BYTES_MAX);
        }
        assert!(self.pool.lent_bytes() <= POOL_BYTES);
    }
}

fn take(script: &mut &[u8]) -> u8 {
    let Some((first, rest)) = script.split_first() else { return 0 };
    *script = rest;
    *first
}
