//! An upload without end.
//!
//! 1. One stream is written to as fast as it takes bytes, as long as no more than 4 MiB of it are on the way.
//! 2. Every second the server is asked what has reached it: what was written says little, because buffers on the way
//!    hold megabytes.
//! 3. The measurement begins when what comes in a second is steady (see [`EachSecond`]), at the latest after
//!    `warmup_max`.
//!
//! A stream that breaks is opened again a second later.

use std::sync::Arc;
use std::time::Duration;

use heddle_proto::cell::relay::DATA_LEN;
use heddle_seam::time::Instant;

use super::conversation::{Conversation, Patience};
use super::lines::{LineId, Lines, WayId};
use super::program::{Failed, Journal, Program, STREAMS_MAX};
use super::request::Request;
use super::seconds::{EachSecond, Found, SteadyBy};
use super::sunk::Sunk;

/// What is written at once: as many bytes as fill whole cells.
pub(crate) static CHUNK: [u8; 32 * DATA_LEN] = [0; 32 * DATA_LEN];
/// How long the client waits before it opens a broken stream again.
const REOPEN: Duration = Duration::from_secs(1);
/// Bytes that may be on the way to the server. Stock Tor's onion proxy reads one stream for as long as there is more of
/// it and does nothing else meanwhile, so that a writer who is always quicker stops it for seconds, with all SENDMEs
/// unread. This is more than the windows on the way hold, so that they are what limits the upload: 27 MB/s at a round
/// trip of 150 ms.
const UNDER_WAY_MAX: u64 = 4 << 20;
/// How often it is looked whether more has arrived.
const LOOK: Duration = Duration::from_millis(5);

/// What an uploading client does.
#[derive(Clone, Debug)]
pub(crate) struct UploadWork {
    /// What came to the server, which must be the one at the way's end.
    pub(crate) sunk: Arc<Sunk>,
    /// Under which number the server counts; no two clients at a time have the same.
    pub(crate) number: usize,
    /// The longest wait for a steady stream.
    pub(crate) warmup_max: Duration,
    /// How long a stream may take to open, and how long the server may take nothing.
    pub(crate) timeout: Duration,
}

/// A client that uploads.
pub(crate) struct Upload {
    way: WayId,
    work: UploadWork,
    stream: Option<Conversation>,
    /// When the stream is opened, again where it broke; `None` while there is one.
    opens: Option<Instant>,
    /// What was sunk before this stream, and what was written to it.
    sunk_before: u64,
    written: u64,
    /// When it is looked whether more has arrived, where too much is under way.
    looks: Option<Instant>,
    /// What had arrived when it was looked last.
    arrived: u64,
    each_second: EachSecond,
    told: u64,
    is_asked: bool,
    is_over: bool,
}

impl Upload {
    /// Begins now.
    pub(crate) fn new(now: Instant, way: WayId, work: UploadWork) -> Upload {
        let before = work.sunk.of(work.number);
        Upload {
            way,
            stream: None,
            opens: Some(now),
            sunk_before: before,
            written: 0,
            looks: None,
            arrived: 0,
            each_second: EachSecond::new(now, SteadyBy::Throughput, work.warmup_max),
            told: before,
            is_asked: false,
            is_over: false,
            work,
        }
    }

    fn sunk(&self) -> u64 {
        self.work.sunk.of(self.work.number)
    }

    fn open(&mut self, now: Instant, lines: &mut dyn Lines) {
        (self.sunk_before, self.written, self.arrived) = (self.sunk(), 0, 0);
        let request = Request::Sink(self.work.number).head();
        let patience = Patience::Silence(self.work.timeout);
        self.stream = Some(Conversation::begin(now, lines, self.way, &request, patience));
        self.opens = None;
    }

    /// Hears of the stream's end, and writes as long as the stream takes something and the server keeps up.
    fn go_on(&mut self, now: Instant, lines: &mut dyn Lines) -> Result<(), Failed> {
        self.looks = None;
        let arrived = self.sunk() - self.sunk_before;
        let Some(stream) = self.stream.as_mut() else { return Ok(()) };
        if arrived > self.arrived {
            self.arrived = arrived;
            stream.has_moved(now);
        }
        // Nobody has anything to say, and whoever says something is not listened to.
        stream.go_on(now, lines, &mut Vec::new())?;
        if stream.opened.is_none() {
            return Ok(());
        }
        loop {
            let room = (arrived + UNDER_WAY_MAX).saturating_sub(self.written);
            if room == 0 {
                self.looks = Some(now + LOOK);
                return Ok(());
            }
            let chunk = &CHUNK[..CHUNK.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
            let len = stream.write(now, lines, chunk);
            self.written += len as u64;
            if len < chunk.len() {
                return Ok(());
            }
        }
    }

    fn close(&mut self, now: Instant, lines: &mut dyn Lines) {
        if let Some(stream) = self.stream.take() {
            lines.close(now, stream.line);
        }
        self.looks = None;
    }

    /// Tells what came since it was told last.
    fn tell(&mut self, now: Instant, is_whole: bool, journal: &mut Journal) {
        let sunk = self.sunk();
        let bytes = sunk - std::mem::replace(&mut self.told, sunk);
        self.each_second.tell(now, Found { bytes, ..Found::default() }, is_whole, journal);
    }
}

impl Program for Upload {
    fn step(&mut self, now: Instant, lines: &mut dyn Lines, journal: &mut Journal) {
        if self.is_over {
            return;
        }
        if self.opens.is_some_and(|opens| opens <= now) && !self.is_asked {
            self.open(now, lines);
        }
        if let Err(failed) = self.go_on(now, lines) {
            journal.failed(now, &failed);
            self.close(now, lines);
            self.opens = Some(now + REOPEN);
        }
        if self.each_second.tick(now) {
            self.tell(now, true, journal);
        }
        if self.is_asked {
            self.tell(now, false, journal);
            self.close(now, lines);
            self.is_over = true;
        }
    }

    fn wakes(&self) -> Option<Instant> {
        let tick = self.each_second.next();
        let gives_up = self.stream.as_ref().map(Conversation::gives_up);
        [Some(tick), self.opens, self.looks, gives_up].into_iter().flatten().min()
    }

    fn lines(&self) -> [Option<LineId>; STREAMS_MAX] {
        [self.stream.as_ref().map(|stream| stream.line), None]
    }

    fn stop(&mut self, _: Instant) {
        self.is_asked = true;
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn is_steady(&self) -> bool {
        self.each_second.is_measuring()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::drive::drive;
    use crate::traffic::report::{Event, Identity, Report, Reporter};
    use crate::traffic::{Route, Server, Stop};
    use std::collections::BTreeMap;
    use std::io::Read;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    /// Uploads to an address, with what another server counts.
    fn run_upload(
        to: SocketAddr,
        (server, number): (&Server, usize),
        stop: &Stop,
        on_event: &mut dyn FnMut(&Event),
    ) -> Report {
        let route = Route::direct(to.into());
        let mut reporter = Reporter::new("upload", &Identity::default(), on_event);
        let warmup_max = Duration::from_secs(1);
        let work = UploadWork { sunk: server.sunk(), number, warmup_max, timeout: route.timeout };
        let make = |now, way| -> Box<dyn Program> { Box::new(Upload::new(now, way, work)) };
        drive(make, &route, stop, &Stop::default(), &mut |event| reporter.say(event)).unwrap();
        reporter.finish(stop)
    }

    #[test]
    fn what_arrives_is_counted_by_second() {
        let server = Server::start().unwrap();
        let (stop, mut seconds, mut told_kb) = (Stop::default(), Vec::new(), 0.0);
        run_upload(server.addr(), (&server, 3), &stop, &mut |event| {
            if let Event::Second { throughput_kb_s, measured, length_s, .. } = event {
                seconds.push(*measured);
                told_kb += throughput_kb_s * length_s;
                if seconds.len() == 2 {
                    stop.ask();
                }
            }
        });
        // The first second is the warm-up. What came since the last one is told too, and is no sample.
        assert_eq!(seconds, [false, true, false]);
        assert_eq!(server.sunk().of(2), 0);
        // A loopback is quick. What was on the way at the end may have come since.
        let sunk_kb = server.sunk().of(3) as f64 / 1e3;
        assert!(told_kb > 1000.0 && sunk_kb > told_kb - 1.0, "{told_kb} kB of {sunk_kb}");
    }

    /// What may come of an upload that nobody counts.
    const UNCOUNTED_MAX: u64 = UNDER_WAY_MAX + b"SINK 5\r\n\r\n".len() as u64;

    /// Takes an upload to its end, or when it is to `leave` until all has come that may. Tells in `taken` how much has
    /// come.
    fn take(mut stream: TcpStream, leave: bool, taken: &AtomicU64) {
        let mut chunk = vec![0; CHUNK.len()];
        while !leave || taken.load(Ordering::Relaxed) < UNCOUNTED_MAX {
            match stream.read(&mut chunk).unwrap() {
                0 => return,
                len => taken.fetch_add(len as u64, Ordering::Relaxed),
            };
        }
    }

    /// An upload to somebody who takes all, while the server that counts gets nothing. Returns what was taken, and what
    /// failed.
    fn upload_uncounted(leave: bool) -> (u64, BTreeMap<String, u64>) {
        let (server, taker) = (Server::start().unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let addr = taker.local_addr().unwrap();
        let (stop, taken) = (Stop::default(), AtomicU64::new(0));
        let (mut seconds, mut full_seconds) = (0, 0);
        let report = thread::scope(|scope| {
            scope.spawn(|| take(taker.accept().unwrap().0, leave, &taken));
            let report = run_upload(addr, (&server, 5), &stop, &mut |event| {
                let (failed, told) =
                    (matches!(event, Event::Failure { .. }), matches!(event, Event::Second { .. }));
                seconds += u32::from(told);
                full_seconds += u32::from(told && taken.load(Ordering::Relaxed) >= UNCOUNTED_MAX);
                // Who is left is to notice it. Who is not had two whole seconds to send more.
                if failed || (!leave && full_seconds > 2) || seconds > 60 {
                    stop.ask();
                }
            });
            // It hears somebody in any case.
            let _ = TcpStream::connect(addr);
            report
        });
        (taken.into_inner(), report.failures)
    }

    #[test]
    fn what_is_on_the_way_is_bounded() {
        assert_eq!(upload_uncounted(false), (UNCOUNTED_MAX, BTreeMap::new()));
    }

    #[test]
    fn a_server_that_leaves_is_noticed_while_the_upload_waits() {
        let failures = upload_uncounted(true).1;
        assert_eq!(failures, BTreeMap::from([("transfer: closed".to_owned(), 1)]));
    }
}
