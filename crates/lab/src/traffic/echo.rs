//! Echoes over one stream: messages of one cell that the server sends back.
//!
//! 1. A message leaves every [`EchoOptions::every`], whether or not those before it have come back: what holds up one of
//!    them is told by all that wait behind it, and not only by one. A moment that passed while the stream took nothing is
//!    left out.
//! 2. Each message carries the time at which it was handed to the stream, and its echo tells how long it took.
//! 3. After the stop nothing more leaves, and echoes that are on their way are waited for.
//!
//! A stream that breaks is opened again a second later. What had not come back by then counts as failed, one by one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    let (sent, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut came = 0;
    let result = thread::scope(|scope| {
        scope.spawn(|| write(&mut writer, options.every, stop, &sent, &over));
        let result = read(peer.patient_for(SLICE), options.route.timeout, stop, &sent, &mut came, journal);
        over.store(true, Ordering::Relaxed);
        result
    });
    for _ in came..sent.load(Ordering::Relaxed) {
        journal.failed(Stage::Transfer, &closed("the echo"));
    }
    result.map_err(transfer)
}

/// Sends a message at each of its moments.
fn write(writer: &mut Peer, every: Duration, stop: &Stop, sent: &AtomicU64, over: &AtomicBool) {
    let mut next = Instant::now();
    while !over.load(Ordering::Relaxed) && stop.sleep_until(next) {
        let mut message = [0; MESSAGE_BYTES];
        message[..8].copy_from_slice(&monotonic_ns().to_be_bytes());
        writer.begin();
        if writer.send(&message).is_err() {
            // The reader notices that too.
            return;
        }
        sent.fetch_add(1, Ordering::Relaxed);
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
    sent: &AtomicU64,
    came: &mut u64,
    journal: &mut Journal<'_>,
) -> Result<()> {
    let mut message = [0; MESSAGE_BYTES];
    let mut filled = 0;
    let mut last = Instant::now();
    let mut stopped: Option<Instant> = None;
    loop {
        if stop.is_asked() {
            let since = *stopped.get_or_insert_with(Instant::now);
            if *came >= sent.load(Ordering::Relaxed) || since.elapsed() > DRAIN_MAX {
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
            *came += 1;
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
        let server = Server::start().unwrap();
        let options = options(&server);
        let (stop, mut failures, mut server) = (Stop::default(), 0, Some(server));
        run_echoes(&options, &stop, &mut |event| match event {
            Event::Failure { .. } => {
                failures += 1;
                stop.ask();
            }
            _ => drop(server.take()),
        })
        .unwrap();
        assert!(failures > 0);
    }
}
