//! Scenarios as tables of lines, after packetdrill: what comes in when, and what must leave when.
//!
//! ```text
//! 0      > S 0:0                     a segment leaves, in milliseconds since the start
//! 100    < S. 0:0 ack 1 win 60000    a segment comes in
//! 100    << . 1:1 ack 1              the same, and what follows comes in before anything may leave
//! 100    write 3000                  the application acts: write, read, shutdown, close, abort
//! 100    state Established           the state is looked at
//! ```
//!
//! Flags are S, F, R, P, E, W and `.` for ACK. Sequence numbers count from each end's SYN, as `first:after last`, where
//! SYN and FIN take none in this notation. `sack 5:6,8:9` adds blocks; `ts value echo` timestamps; `mss`, `ws`,
//! `sackok` the options of a SYN; `ce` a congestion mark. A line that expects says only what it checks beside flags and
//! numbers; PSH is checked where it says `psh`. All that leaves must be expected, in order.

use heddle_utcp::segment::{Flags, Range, SEQUENCE_BASE, SynOptions, Timestamps};
use heddle_utcp::{BufferPool, Connection, Ecn, Header, Instant, Options};
use std::collections::VecDeque;
use std::sync::Arc;

const MS: u64 = 1_000_000;
/// More time-outs than this at one instant, or segments that nobody looked at, mean that the connection goes in
/// circles.
const STEPS_PER_INSTANT_MAX: usize = 10_000;
/// The peer's initial sequence number on the wire.
const IRS: u64 = SEQUENCE_BASE + 700_000_000;
/// Ours comes from these bits; it wraps soon.
const RANDOM: u64 = 0xffff_ff00;

/// Options in which numbers are round: segments of 1000 bytes, no pacing, no timestamps, Reno.
pub fn plain() -> Options {
    Options {
        mss_bytes: 1000,
        pacing: false,
        timestamps: false,
        algorithm: heddle_utcp::Algorithm::Reno,
        ..Options::default()
    }
}

/// A connection under test and what it has sent.
pub struct Script {
    connection: Option<Connection>,
    options: Arc<Options>,
    pool: BufferPool,
    now: Instant,
    sent: VecDeque<(Instant, Header, usize, Ecn)>,
    iss: u64,
    /// Nothing is asked for yet.
    is_held: bool,
}

/// Runs a table. `connects` is whether our end opens; else the first segment must be a SYN.
pub fn run(connects: bool, options: Options, table: &str) {
    options.validate().expect("good options");
    let pool = BufferPool::new(64 << 20);
    let (now, options) = (start(), Arc::new(options));
    let connection = connects.then(|| Connection::connect(now, Arc::clone(&options), &pool, RANDOM));
    let iss = SEQUENCE_BASE + RANDOM;
    let mut script = Script { connection, options, pool, now, sent: VecDeque::new(), iss, is_held: false };
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        script.step(line);
    }
    script.collect();
    assert!(script.sent.is_empty(), "left over: {}", script.describe());
}

fn start() -> Instant {
    Instant::from_nanos(10_000 * MS)
}

impl Script {
    fn step(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let at_ms: u64 = words.next().and_then(|word| word.parse().ok()).expect(line);
        let at = start().plus_ns(at_ms * MS);
        let verb = words.next().expect(line);
        let words: Vec<&str> = words.collect();
        if verb == ">" {
            self.advance(at, true);
            self.expect(at, line, &words);
            return;
        }
        self.advance(at, false);
        assert!(self.sent.is_empty(), "before `{line}` left: {}", self.describe());
        match verb {
            "<" | "<<" => {
                self.inject(line, &words);
                self.is_held = verb == "<<";
            }
            "state" => {
                let state = self.connection.as_ref().map(|connection| format!("{:?}", connection.state()));
                assert_eq!(state.as_deref(), Some(words[0]), "{line}");
            }
            "reason" => {
                let reason = self.connection.as_ref().and_then(Connection::close_reason);
                assert_eq!(format!("{:?}", reason.expect(line)), words.join(" "), "{line}");
            }
            "window" => {
                let window = self.connection.as_ref().expect(line).stats().window_bytes;
                assert_eq!(window.to_string(), words[0], "{line}");
            }
            _ => self.act(line, verb, words.first().copied()),
        }
        self.collect();
    }

    fn act(&mut self, line: &str, verb: &str, count: Option<&str>) {
        let count = count.map_or(0, |count| count.parse::<usize>().expect(line));
        let connection = self.connection.as_mut().expect(line);
        match verb {
            "write" => assert_eq!(connection.write(&vec![7; count]), count, "{line}"),
            "read" => assert_eq!(connection.read(self.now, &mut vec![0; count + 1]), count, "{line}"),
            "shutdown" => connection.shutdown(),
            "close" => connection.close(),
            "abort" => connection.abort(0),
            _ => panic!("{line}"),
        }
    }

    /// Lets the time pass, with all timers on the way; up to the first segment that leaves, if that is what is wanted.
    fn advance(&mut self, at: Instant, stops: bool) {
        self.collect();
        let mut still = 0;
        while let Some(due) = self.connection.as_ref().and_then(Connection::poll_timeout) {
            if due > at || stops && !self.sent.is_empty() {
                break;
            }
            still = if due > self.now { 0 } else { still + 1 };
            assert!(still < STEPS_PER_INSTANT_MAX, "time stands still at {:?}", self.now);
            self.now = self.now.max(due);
            let connection = self.connection.as_mut().expect("it has a timer");
            connection.handle_timeout(self.now);
            self.collect();
        }
        if !stops || self.sent.is_empty() {
            self.now = self.now.max(at);
            self.collect();
        }
    }

    fn collect(&mut self) {
        let Some(connection) = self.connection.as_mut().filter(|_| !self.is_held) else { return };
        let mut payload = Vec::new();
        while let Some(transmit) = connection.poll_transmit(self.now, &mut payload) {
            self.sent.push_back((self.now, transmit.header, transmit.payload_bytes, transmit.ecn));
            assert!(self.sent.len() < STEPS_PER_INSTANT_MAX, "it does not stop sending at {:?}", self.now);
        }
    }

    fn inject(&mut self, line: &str, words: &[&str]) {
        let (header, payload_bytes, ecn) = self.parse(line, words, IRS, self.iss);
        let payload = vec![9; payload_bytes];
        match &mut self.connection {
            Some(connection) => connection.handle_segment(self.now, &header, &payload, ecn),
            None => {
                let options = Arc::clone(&self.options);
                let connection = Connection::accept(self.now, options, &self.pool, RANDOM, &header, &payload);
                self.connection = Some(connection.expect(line));
            }
        }
    }

    fn expect(&mut self, at: Instant, line: &str, words: &[&str]) {
        let Some((sent_at, sent, sent_bytes, sent_ecn)) = self.sent.pop_front() else {
            panic!("nothing left for `{line}`");
        };
        let (wanted, bytes, ecn) = self.parse(line, words, self.iss, IRS);
        let shown = self.show(&(sent_at, sent, sent_bytes, sent_ecn));
        assert_eq!((sent_at, sent.seq, sent_bytes), (at, wanted.seq, bytes), "`{line}` but {shown}");
        let psh = if words.contains(&"psh") { sent.flags.psh } else { wanted.flags.psh };
        let flags = Flags { psh, ..sent.flags };
        assert_eq!((flags, sent.ack.is_some()), (wanted.flags, wanted.ack.is_some()), "`{line}` but {shown}");
        assert!(wanted.ack == Some(0) || wanted.ack == sent.ack, "`{line}` but {shown}");
        if words.contains(&"win") {
            assert_eq!(wanted.window_bytes, sent.window_bytes, "`{line}` but {shown}");
        }
        if words.contains(&"sack") {
            assert_eq!(wanted.sack, sent.sack, "`{line}` but {shown}");
        }
        if let Some(wanted) = wanted.syn {
            assert_eq!(Some(wanted), sent.syn, "`{line}` but {shown}");
        }
        if let Some(wanted) = wanted.timestamps {
            assert_eq!(Some(wanted), sent.timestamps, "`{line}` but {shown}");
        }
        assert_eq!(ecn == Ecn::Ect, sent_ecn == Ecn::Ect, "`{line}` but {shown}");
    }

    /// A segment of an end whose SYN stands at `own`, talking to one whose SYN stands at `other`.
    fn parse(&self, line: &str, words: &[&str], own: u64, other: u64) -> (Header, usize, Ecn) {
        let number = |word: &str| word.parse::<u64>().expect(line);
        let pair = |word: &str| {
            let (start, end) = word.split_once(':').expect(line);
            (number(start), number(end))
        };
        let has = |flag: char| words[0].contains(flag);
        let (start, end) = pair(words[1]);
        let flags = Flags {
            syn: has('S'),
            fin: has('F'),
            rst: has('R'),
            psh: has('P'),
            ece: has('E'),
            cwr: has('W'),
        };
        let mut header = Header { seq: own + start, flags, window_bytes: 60_000, ..Header::default() };
        header.ack = has('.').then_some(0);
        let (mut ecn, mut syn) = (Ecn::NotEct, SynOptions::default());
        let mut rest = words[2..].iter();
        while let Some(word) = rest.next() {
            let mut next = || rest.next().copied().expect(line);
            match *word {
                "ack" => header.ack = Some(other + number(next())),
                "win" => header.window_bytes = number(next()) as u32,
                "mss" => syn.mss_bytes = Some(number(next()) as u16),
                "ws" => syn.window_shift = Some(number(next()) as u8),
                "sackok" => syn.sack_permitted = true,
                "ts" => {
                    let (value, echo) = (number(next()) as u32, number(next()) as u32);
                    header.timestamps = Some(Timestamps { value, echo });
                }
                "sack" => {
                    let base = if own == self.iss { IRS } else { self.iss };
                    let blocks = next().split(',').filter(|block| *block != "none").map(pair);
                    header.sack = blocks.map(|(from, to)| Range::new(base + from, base + to)).collect();
                }
                "ce" => ecn = Ecn::Ce,
                "ect" => ecn = Ecn::Ect,
                "psh" => {}
                _ => panic!("{line}"),
            }
        }
        header.syn = (syn != SynOptions::default()).then_some(syn);
        (header, (end - start) as usize, ecn)
    }

    fn describe(&self) -> String {
        self.sent.iter().map(|sent| self.show(sent)).collect::<Vec<_>>().join("\n")
    }

    fn show(&self, (at, header, bytes, ecn): &(Instant, Header, usize, Ecn)) -> String {
        let start_seq = header.seq as i64 - self.iss as i64;
        let ack = header.ack.map(|ack| ack as i64 - IRS as i64);
        let sack: Vec<_> = header
            .sack
            .as_slice()
            .iter()
            .map(|block| (block.start as i64 - IRS as i64, block.len()))
            .collect();
        let at_ms = at.ns_since(start()) as f64 / 1e6;
        format!(
            "{at_ms} > {start_seq}:{} ack {ack:?} win {} sack {sack:?} {:?} {:?} {ecn:?} {:?}",
            start_seq + *bytes as i64,
            header.window_bytes,
            header.flags,
            header.syn,
            header.timestamps
        )
    }
}
