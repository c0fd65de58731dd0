//! Echoes over one stream: messages of one cell that the server sends back.
//!
//! 1. A message leaves every [`EchoOptions::every`], whether or not those before it have come back: what holds up one of
//!    them is told by all that wait behind it, and not only by one. A moment that passed while the stream took nothing is
//!    left out.
//! 2. Each message carries the time at which it was handed to the stream, and its echo tells how long it took.
//! 3. After the stop nothing more leaves, and echoes that are on their way are waited for.
//! 4. What has not come back by then counts as failed, one by one, and it is told how long it had been on the way: only
//!    to leave it out would make a stream look the quicker the less comes back.
//!
//! A stream that breaks is opened again a second later; what was on the way then has not come back either.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::clock::{monotonic_ns, ms_between};
use super::peer::{Peer, closed};
use super::report::{Event, Identity, Journal, Report};
use super::route::{Route, Stage};
use super::stop::Stop;
use crate::error::{Error, Result};

/// Bytes of a message: the time at which it left, and zeros. Together with a relay cell's header it fits into one cell.
const MESSAGE_BYTES: usize = 64;
/// How long echoes are waited for after the stop.
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// How long a wait for an echo lasts before it is looked at whether there is something else to do.
const SLICE: Duration = Duration::from_millis(100);
/// How long the client waits before it opens a broken stream again.
const REOPEN: Duration = Duration::from_secs(1);

/// When the messages left that have not come back, the oldest first. They come back in the order in which they left.
#[derive(Default)]
struct UnderWay(Mutex<VecDeque<u64>>);

impl UnderWay {
    /// Nothing panics while it holds the times.
    fn lock(&self) -> MutexGuard<'_, VecDeque<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an echoing client does.
#[derive(Clone, Debug)]
pub struct EchoOptions {
    /// Where to and how. The time-out is that of a stream's opening and of a time without any echo.
    pub route: Route,
    /// Whose labels.
    pub identity: Identity,
    /// From one message to the next.
    pub every: Duration,
}

/// Sends echoes until stopped. Figures: `echo_ms`, a sample for each that came back.
pub fn run_echoes(options: &EchoOptions, stop: &Stop, on_event: &mut dyn FnMut(&Event)) -> Result<Report> {
    if options.every.is_zero() {
        return Err(Error::Options("echoes need a time from one to the next".into()));
    }
    let mut journal = Journal::new("echo", &options.identity, on_event);
    while !stop.is_asked() {
        let failed = match options.route.open_peer(stop) {
            Ok(peer) => echo_over(peer.stopped_by(&Stop::default()), options, stop, &mut journal),
            Err(error) => Err((Stage::Open, error)),
        };
        if let Err((stage, error)) = failed
            && !stop.is_asked()
        {
            journal.failed(stage, &error);
            stop.sleep_until(Instant::now() + REOPEN);
        }
    }
    Ok(journal.finish(stop))
}

/// Sends echoes over one stream until stopped, or until it breaks.
fn echo_over(
    mut peer: Peer,
    options: &EchoOptions,
    stop: &Stop,
    journal: &mut Journal<'_>,
) -> std::result::Result<(), (Stage, Error)> {
    let transfer = |error| (Stage::Transfer, error);
    peer.send(b"ECHO\r\n\r\n").map_err(transfer)?;
    let mut writer = peer.try_clone().map_err(transfer)?;
    let (under_way, over) = (UnderWay::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| write(&mut writer, options.every, stop, &under_way, &over));
        let result = read(peer.patient_for(SLICE), options.route.timeout, stop, &under_way, journal);
        over.store(true, Ordering::Relaxed);
        // The writer may be long in ending, and nobody would read what comes back until then.
        let lost = std::mem::take(&mut *under_way.lock());
        for left_ns in lost {
            journal.lost_echo(ms_between(left_ns, monotonic_ns()));
        }
        result.map_err(transfer)
    })
}

/// Sends a message at each of its moments.
fn write(writer: &mut Peer, every: Duration, stop: &Stop, under_way: &UnderWay, over: &AtomicBool) {
    let mut next = Instant::now();
    while !over.load(Ordering::Relaxed) && stop.sleep_until(next) {
        let mut message = [0; MESSAGE_BYTES];
        let now_ns = monotonic_ns();
        message[..8].copy_from_slice(&now_ns.to_be_bytes());
        under_way.lock().push_back(now_ns);
        writer.begin();
        if writer.send(&message).is_err() {
            // The reader notices that too.
            return;
        }
        next += every;
        let now = Instant::now();
        if next < now {
            next = now;
        }
    }
}

/// Takes echoes until none is on its way after the stop, or the stream breaks.
fn read(
    mut peer: Peer,
    silence_max: Duration,
    stop: &Stop,
    under_way: &UnderWay,
    journal: &mut Journal<'_>,
) -> Result<()> {
    let mut message = [0; MESSAGE_BYTES];
    let mut filled = 0;
    let mut last = Instant::now();
    let mut stopped: Option<Instant> = None;
    loop {
        if stop.is_asked() {
            let since = *stopped.get_or_insert_with(Instant::now);
            if under_way.lock().is_empty() || since.elapsed() > DRAIN_MAX {
                return Ok(());
            }
        }
        peer.begin();
        match peer.receive(&mut message[filled..]) {
            Ok(0) => return Err(closed("the echo")),
            Ok(len) => filled += len,
            Err(Error::Deadline { .. }) if last.elapsed() < silence_max => continue,
            Err(error) => return Err(error),
        }
        last = Instant::now();
        if filled == MESSAGE_BYTES {
            filled = 0;
            under_way.lock().pop_front();
            let stamp = message.first_chunk().copied().map_or(0, u64::from_be_bytes);
            let echo_ms = ms_between(stamp, monotonic_ns());
            journal.sample("echo_ms", "ms", echo_ms);
            let t_s = journal.t_s();
            journal.say(&Event::Echo { t_s, echo_ms });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{Failures, Server};
    use std::io::Read;
    use std::net::TcpListener;

    fn options(server: &Server) -> EchoOptions {
        let identity = Identity { label: "echo".into(), seed: 1, ..Identity::default() };
        EchoOptions { route: Route::direct(server.addr().into()), identity, every: Duration::from_millis(2) }
    }

    #[test]
    fn echoes_come_until_the_stop_and_none_is_missed() {
        let server = Server::start().unwrap();
        let (stop, mut echoes) = (Stop::default(), 0);
        let report = run_echoes(&options(&server), &stop, &mut |event| {
            assert!(matches!(event, Event::Echo { echo_ms, .. } if *echo_ms >= 0.0), "{event:?}");
            echoes += 1;
            if echoes == 20 {
                stop.ask();
            }
        })
        .unwrap();
        assert!(echoes >= 20);
        assert_eq!((report.figures[0].n, &report.failures), (echoes, &Failures::new()));
    }

    #[test]
    fn what_did_not_come_back_has_failed() {
        const TAKEN: usize = 5;
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let route = Route::direct(server.local_addr().unwrap().into());
        let options = EchoOptions { route, ..options(&Server::start().unwrap()) };
        let (stop, mut ages_ms) = (Stop::default(), Vec::new());
        let report = thread::scope(|scope| {
            scope.spawn(|| {
                // It takes some messages, answers none and leaves: these at least are lost, however slow the machine is.
                let mut taken = [0; b"ECHO\r\n\r\n".len() + TAKEN * MESSAGE_BYTES];
                server.accept().unwrap().0.read_exact(&mut taken).unwrap();
            });
            run_echoes(&options, &stop, &mut |event| {
                if let Event::EchoLost { age_ms, .. } = event {
                    ages_ms.push(*age_ms);
                    stop.ask();
                }
            })
        });
        assert!(ages_ms.len() >= TAKEN && ages_ms.is_sorted_by(|older, newer| older >= newer), "{ages_ms:?}");
        assert_eq!(report.unwrap().failures["transfer: lost"], ages_ms.len() as u64);
    }

    #[test]
    fn what_never_comes_back_is_told_with_its_age() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let route = Route::direct(silent.local_addr().unwrap().into());
        let options = EchoOptions { route, ..options(&Server::start().unwrap()) };
        let (stop, mut ages_ms) = (Stop::default(), Vec::new());
        thread::scope(|scope| {
            scope.spawn(|| {
                let stream = silent.accept().unwrap();
                thread::sleep(Duration::from_millis(200));
                stop.ask();
                thread::sleep(DRAIN_MAX + Duration::from_secs(1));
                drop(stream);
            });
            run_echoes(&options, &stop, &mut |event| {
                let Event::EchoLost { age_ms, .. } = event else { panic!("{event:?}") };
                ages_ms.push(*age_ms);
            })
            .unwrap();
        });
        // They were waited for after the stop, and the first had left long before it.
        let drain_ms = DRAIN_MAX.as_secs_f64() * 1e3;
        assert!(ages_ms.len() > 10 && ages_ms.iter().all(|age_ms| *age_ms >= drain_ms), "{ages_ms:?}");
        assert!(ages_ms[0] >= drain_ms + 150.0, "{ages_ms:?}");
    }
}
