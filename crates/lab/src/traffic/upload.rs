//! An upload without end.
//!
//! 1. One stream is written to as fast as it takes bytes, as long as no more than 4 MiB of it are on the way.
//! 2. Every second the server is asked what has reached it: what was written says little, because buffers on the way
//!    hold megabytes.
//! 3. The measurement begins when what comes in a second is steady (see [`Seconds`]), at the latest after
//!    `UploadOptions::warmup_max`.
//!
//! A stream that breaks is opened again a second later.

use std::convert::Infallible;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::CHUNK;
use super::peer::Peer;
use super::report::{Event, Identity, Journal, Report};
use super::request::Request;
use super::route::{Route, Stage};
use super::seconds::{Found, SECOND, Seconds, SteadyBy};
use super::server::Server;
use super::stop::Stop;
use crate::error::{Error, Result};

/// How long the client waits before it opens a broken stream again.
pub(crate) const REOPEN: Duration = Duration::from_secs(1);
/// Bytes that may be on the way to the server. Stock Tor's onion proxy reads one stream for as long as there is more of
/// it and does nothing else meanwhile, so that a writer who is always quicker stops it for seconds, with all SENDMEs
/// unread. This is more than the windows on the way hold, so that they are what limits the upload: 27 MB/s at a round
/// trip of 150 ms.
pub(crate) const UNDER_WAY_MAX: u64 = 4 << 20;
/// How often it is looked whether more has arrived.
pub(crate) const LOOK: Duration = Duration::from_millis(5);

/// What an uploading client does.
#[derive(Clone, Debug)]
pub(crate) struct UploadOptions {
    /// Where to and how. The time-out is that of a stream's opening and of a stall.
    pub route: Route,
    /// Whose labels.
    pub identity: Identity,
    /// Under which number the server counts, from 0 to 63; no two clients at a time have the same.
    pub number: usize,
    /// The longest wait for a steady stream.
    pub warmup_max: Duration,
}

/// Uploads until stopped to `server`, which must be the one at the route's end.
///
/// Figures, of what happened after the measurement began: `throughput_kb_s`, a sample for each second.
pub(crate) fn run_upload(
    options: &UploadOptions,
    server: &Server,
    stop: &Stop,
    on_event: &mut dyn FnMut(&Event),
) -> Result<Report> {
    if server.sunk(options.number).is_none() {
        return Err(Error::Options(format!("the server counts no client {}", options.number)));
    }
    let mut journal = Journal::new("upload", &options.identity, on_event);
    let over = Stop::default();
    let (failed, failures) = channel();
    thread::scope(|scope| {
        let _at_end = over.ask_at_end();
        scope.spawn(|| write(options, server, &over, &failed));
        tick(options, server, stop, &failures, &mut journal);
    });
    Ok(journal.finish(stop))
}

/// Tells every second what came, until somebody asks for the end, and then what came since.
fn tick(
    options: &UploadOptions,
    server: &Server,
    stop: &Stop,
    failures: &Receiver<(Stage, Error)>,
    journal: &mut Journal<'_>,
) {
    let begun = journal.begun();
    let sunk = || sunk(options, server);
    let (mut ticked, mut before) = (begun, sunk());
    let mut seconds = Seconds::new(SteadyBy::Throughput, options.warmup_max);
    for second in 1.. {
        let is_whole = stop.sleep_until(begun + SECOND * second);
        let (now, after) = (Instant::now(), sunk());
        let found = Found { bytes: after - before, ..Found::default() };
        for (stage, error) in failures.try_iter() {
            journal.failed(stage, &error);
        }
        let (told, measuring) = seconds.push(found, now - begun, now - ticked, is_whole);
        (ticked, before) = (now, after);
        if let Event::Second { measured: true, throughput_kb_s, .. } = told {
            journal.sample("throughput_kb_s", "KB/s", throughput_kb_s);
        }
        journal.say(&told);
        if !is_whole {
            return;
        }
        if let Some(measuring) = measuring {
            journal.say(&measuring);
        }
    }
}

/// Writes until told to stop, and tells what failed.
fn write(options: &UploadOptions, server: &Server, over: &Stop, failed: &Sender<(Stage, Error)>) {
    while !over.is_asked() {
        let failure = write_stream(options, server, over);
        // Nobody listens any more when the client is at its end.
        if failed.send(failure).is_err() || !over.sleep_until(Instant::now() + REOPEN) {
            return;
        }
    }
}

/// Writes to one stream until it breaks, which it always does in the end.
fn write_stream(options: &UploadOptions, server: &Server, over: &Stop) -> (Stage, Error) {
    let mut peer = match options.route.open_peer(over) {
        Ok(peer) => peer,
        Err(error) => return (Stage::Open, error),
    };
    let before = sunk(options, server);
    match write_chunks(options, &mut peer, &|| sunk(options, server) - before) {
        Ok(never) => match never {},
        Err(error) => (Stage::Transfer, error),
    }
}

/// Writes as long as the server, of which `arrived` tells, keeps up.
fn write_chunks(options: &UploadOptions, peer: &mut Peer, arrived: &dyn Fn() -> u64) -> Result<Infallible> {
    peer.send(Request::Sink(options.number).head().as_bytes())?;
    let chunk = vec![0; CHUNK];
    let mut written = 0;
    loop {
        written += CHUNK as u64;
        peer.begin();
        while written > arrived() + UNDER_WAY_MAX {
            peer.listen(LOOK, "the server")?;
        }
        peer.begin();
        peer.send(&chunk)?;
    }
}

/// What has arrived of this client's uploads so far, in bytes.
fn sunk(options: &UploadOptions, server: &Server) -> u64 {
    server.sunk(options.number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::sync::atomic::{AtomicU64, Ordering};

    fn options(server: &Server, number: usize) -> UploadOptions {
        let identity = Identity { label: "up".into(), seed: 1, ..Identity::default() };
        let warmup_max = Duration::from_secs(1);
        UploadOptions { route: Route::direct(server.addr().into()), identity, number, warmup_max }
    }

    #[test]
    fn what_arrives_is_counted_by_second() {
        let server = Server::start().unwrap();
        let (stop, mut seconds, mut told_kb) = (Stop::default(), Vec::new(), 0.0);
        run_upload(&options(&server, 3), &server, &stop, &mut |event| {
            if let Event::Second { throughput_kb_s, measured, length_s, .. } = event {
                seconds.push(*measured);
                told_kb += throughput_kb_s * length_s;
                if seconds.len() == 2 {
                    stop.ask();
                }
            }
        })
        .unwrap();
        // The first second is the warm-up. What came since the last one is told too, and is no sample.
        assert_eq!(seconds, [false, true, false]);
        assert_eq!((server.sunk(2), server.sunk(64)), (Some(0), None));
        // A loopback is quick. What was on the way at the end may have come since.
        let sunk_kb = server.sunk(3).unwrap() as f64 / 1e3;
        assert!(told_kb > 1000.0 && sunk_kb > told_kb - 1.0, "{told_kb} kB of {sunk_kb}");
    }

    /// What may come of an upload that nobody counts.
    const UNCOUNTED_MAX: u64 = UNDER_WAY_MAX + b"SINK 5\r\n\r\n".len() as u64;

    /// Takes an upload to its end, or when it is to `leave` until all has come that may. Tells in `taken` how much has
    /// come.
    fn take(mut stream: TcpStream, leave: bool, taken: &AtomicU64) {
        let mut chunk = vec![0; CHUNK];
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
        let uncounted = UploadOptions { route: Route::direct(addr.into()), ..options(&server, 5) };
        let (stop, taken) = (Stop::default(), AtomicU64::new(0));
        let (mut seconds, mut full_seconds) = (0, 0);
        let report = thread::scope(|scope| {
            scope.spawn(|| take(taker.accept().unwrap().0, leave, &taken));
            let report = run_upload(&uncounted, &server, &stop, &mut |event| {
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
        (taken.into_inner(), report.unwrap().failures)
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

    #[test]
    fn a_server_counts_few_clients() {
        let server = Server::start().unwrap();
        let refused = run_upload(&options(&server, 64), &server, &Stop::default(), &mut |_| ()).unwrap_err();
        assert!(refused.to_string().contains("no client 64"));
    }
}
