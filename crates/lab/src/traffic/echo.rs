//! Echoes over one stream: messages of one cell that the server sends back.
//!
//! 1. A message leaves every `EchoOptions::every`, whether or not those before it have come back: what holds up one
//!    of them is told by all that wait behind it, and not only by one. A moment that passed while the stream took
//!    nothing is left out.
//! 2. Each message carries the time at which it was handed to the stream, and its echo tells how long it took.
//! 3. After the stop nothing more leaves, and echoes that are on their way are waited for.
//! 4. What has not come back by then counts as failed, one by one, and it is told how long it had been on the way: only
//!    to leave it out would make a stream look the quicker the less comes back.
//!
//! A stream that breaks is opened again a second later; what was on the way then has not come back either.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::clock::{monotonic_ns, ms_between};
use super::peer::{Peer, closed};
use super::report::{Event, Identity, Journal, Report};
use super::request::Request;
use super::route::{Route, Stage};
use super::stop::Stop;
use crate::error::{Error, Result};

/// Bytes of a message: the time at which it left, and zeros. Together with a relay cell's header it fits into one cell.
pub(crate) const MESSAGE_BYTES: usize = 64;
/// How long echoes are waited for after the stop.
pub(crate) const DRAIN_MAX: Duration = Duration::from_secs(5);
/// How long a wait for an echo lasts before it is looked at whether there is something else to do.
const SLICE: Duration = Duration::from_millis(100);
/// How long the client waits before it opens a broken stream again.
pub(crate) const REOPEN: Duration = Duration::from_secs(1);

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
pub(crate) struct EchoOptions {
    /// Where to and how. The time-out is that of a stream's opening and of a time without any echo.
    pub route: Route,
    /// Whose labels.
    pub identity: Identity,
    /// From one message to the next.
    pub every: Duration,
}

/// Sends echoes until stopped. Figures: `echo_ms`, a sample for each that came back.
pub(crate) fn run_echoes(
    options: &EchoOptions,
    stop: &Stop,
    on_event: &mut dyn FnMut(&Event),
) -> Result<Report> {
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
    peer.send(Request::Echo.head().as_bytes()).map_err(transfer)?;
    let (under_way, over) = (UnderWay::default(), Stop::default());
    // Beyond the stop too, since echoes are waited for; but a stream that takes nothing holds up no end.
    let mut writer = peer.try_clone().map_err(transfer)?.stopped_by(&over);
    thread::scope(|scope| {
        let _at_end = over.ask_at_end();
        scope.spawn(|| write(&mut writer, options.every, stop, &under_way, &over));
        let result = read(peer.patient_for(SLICE), options.route.timeout, stop, &under_way, journal);
        over.ask();
        // The writer takes a moment to end, and nobody reads what comes back until then.
        let lost = std::mem::take(&mut *under_way.lock());
        for left_ns in lost {
            journal.lost_echo(ms_between(left_ns, monotonic_ns()));
        }
        result.map_err(transfer)
    })
}

/// Sends a message at each of its moments.
fn write(writer: &mut Peer, every: Duration, stop: &Stop, under_way: &UnderWay, over: &Stop) {
    let mut next = Instant::now();
    while !over.is_asked() && stop.sleep_until(next) {
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
    use rustix::net::sockopt;
    use std::io::Read;
    use std::net::TcpListener;
    use std::sync::mpsc;

    const HEAD: &[u8] = b"ECHO\r\n\r\n";

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
                // It takes some messages, answers none and leaves: these at least are lost, however slow the machine
                // is.
                let mut taken = [0; HEAD.len() + TAKEN * MESSAGE_BYTES];
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
        const TAKEN: usize = 11;
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let route = Route::direct(silent.local_addr().unwrap().into());
        let options = EchoOptions { route, ..options(&Server::start().unwrap()) };
        let (stop, mut ages_ms) = (Stop::default(), Vec::new());
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = silent.accept().unwrap().0;
                // These at least have left long before the stop, however slow the machine is.
                stream.read_exact(&mut [0; HEAD.len() + TAKEN * MESSAGE_BYTES]).unwrap();
                thread::sleep(Duration::from_millis(200));
                stop.ask();
                stream.read_to_end(&mut Vec::new()).unwrap();
            });
            run_echoes(&options, &stop, &mut |event| {
                let Event::EchoLost { age_ms, .. } = event else { panic!("{event:?}") };
                ages_ms.push(*age_ms);
            })
            .unwrap();
        });
        // They were waited for after the stop.
        let age_min_ms = DRAIN_MAX.as_secs_f64() * 1e3 + 200.0;
        assert!(ages_ms.len() >= TAKEN, "{ages_ms:?}");
        assert!(ages_ms[..TAKEN].iter().all(|age_ms| *age_ms >= age_min_ms), "{ages_ms:?}");
    }

    #[test]
    fn a_stream_that_takes_nothing_holds_up_no_end() {
        let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
        sockopt::set_socket_recv_buffer_size(&deaf, 4096).unwrap();
        let route = Route::direct(deaf.local_addr().unwrap().into());
        let route = Route { timeout: Duration::from_secs(600), ..route };
        // As fast as the stream takes them, until it takes none.
        let every = Duration::from_nanos(1);
        let options = EchoOptions { route, every, ..options(&Server::start().unwrap()) };
        let (stop, (ended, end)) = (Stop::default(), mpsc::channel());
        let asking = stop.clone();
        thread::scope(|scope| {
            scope.spawn(move || {
                let stream = deaf.accept().unwrap();
                thread::sleep(Duration::from_secs(2));
                asking.ask();
                let in_time = end.recv_timeout(Duration::from_secs(60));
                // Whoever is stuck notices that nobody is there any more.
                drop(stream);
                in_time.unwrap();
            });
            run_echoes(&options, &stop, &mut |_| ()).unwrap();
            ended.send(()).unwrap();
        });
    }
}
