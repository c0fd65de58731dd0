//! An upload without end.
//!
//! 1. One stream is written to as fast as it takes bytes.
//! 2. Every second the server is asked what has reached it: what was written says little, because buffers on the way
//!    hold megabytes.
//! 3. The measurement begins when what comes in a second is steady (see [`Steady`]), at the latest after
//!    [`UploadOptions::warmup_max`].
//!
//! A stream that breaks is opened again a second later.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::CHUNK;
use super::report::{Event, Identity, Journal, Report};
use super::route::{Route, Stage};
use super::server::Server;
use super::stop::Stop;
use super::timing::Steady;
use crate::error::{Error, Result};

const SECOND: Duration = Duration::from_secs(1);

/// What an uploading client does.
#[derive(Clone, Debug)]
pub struct UploadOptions {
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
pub fn run_upload(
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
        scope.spawn(|| write(options, &over, &failed));
        tick(options, server, stop, &failures, &mut journal);
        over.ask();
    });
    Ok(journal.finish(stop))
}

/// Tells every second what came, until somebody asks for the end.
fn tick(
    options: &UploadOptions,
    server: &Server,
    stop: &Stop,
    failures: &Receiver<(Stage, Error)>,
    journal: &mut Journal<'_>,
) {
    let begun = journal.begun();
    let sunk = || server.sunk(options.number).unwrap_or(0);
    let (mut ticked, mut before) = (begun, sunk());
    let (mut steady, mut measured) = (Steady::default(), false);
    for second in 1.. {
        if !stop.sleep_until(begun + SECOND * second) {
            return;
        }
        let (now, after) = (Instant::now(), sunk());
        let throughput_kb_s = (after - before) as f64 / 1e3 / (now - ticked).as_secs_f64();
        (ticked, before) = (now, after);
        for (stage, error) in failures.try_iter() {
            journal.failed(stage, &error);
        }
        let t_s = journal.t_s();
        if measured {
            journal.sample("throughput_kb_s", "KB/s", throughput_kb_s);
        }
        journal.say(&Event::Second { t_s, measured, throughput_kb_s, delay_ms: None, latency_ms: None });
        let is_steady = steady.push((throughput_kb_s > 0.0).then_some(throughput_kb_s));
        if !measured && (is_steady || now - begun >= options.warmup_max) {
            measured = true;
            journal.say(&Event::Measuring { t_s, steady: is_steady });
        }
    }
}

/// Writes until told to stop, and tells what failed.
fn write(options: &UploadOptions, over: &Stop, failed: &Sender<(Stage, Error)>) {
    while !over.is_asked() {
        let failure = write_stream(options, over);
        // Nobody listens any more when the client is at its end.
        if failed.send(failure).is_err() || !over.sleep_until(Instant::now() + SECOND) {
            return;
        }
    }
}

/// Writes to one stream until it breaks, which it always does in the end.
fn write_stream(options: &UploadOptions, over: &Stop) -> (Stage, Error) {
    let mut peer = match options.route.open_peer(over) {
        Ok(peer) => peer,
        Err(error) => return (Stage::Open, error),
    };
    if let Err(error) = peer.send(format!("SINK {}\r\n\r\n", options.number).as_bytes()) {
        return (Stage::Transfer, error);
    }
    let chunk = vec![0; CHUNK];
    loop {
        peer.begin();
        if let Err(error) = peer.send(&chunk) {
            return (Stage::Transfer, error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(server: &Server, number: usize) -> UploadOptions {
        let identity = Identity { label: "up".into(), seed: 1, ..Identity::default() };
        let warmup_max = Duration::from_secs(1);
        UploadOptions { route: Route::direct(server.addr().into()), identity, number, warmup_max }
    }

    #[test]
    fn what_arrives_is_counted_by_second() {
        let server = Server::start().unwrap();
        let (stop, mut seconds) = (Stop::default(), Vec::new());
        run_upload(&options(&server, 3), &server, &stop, &mut |event| {
            if let Event::Second { throughput_kb_s, measured, .. } = event {
                seconds.push((*throughput_kb_s, *measured));
                if seconds.len() == 2 {
                    stop.ask();
                }
            }
        })
        .unwrap();
        // A loopback is quick; the first second is the warm-up.
        assert!(seconds.iter().all(|(kb_s, _)| *kb_s > 1000.0), "{seconds:?}");
        assert_eq!([seconds[0].1, seconds[1].1], [false, true]);
        assert_eq!((server.sunk(2), server.sunk(64)), (Some(0), None));
        let told: f64 = seconds.iter().map(|(kb_s, _)| kb_s * 1000.0).sum();
        assert!(server.sunk(3).unwrap() as f64 >= told * 0.9);
    }

    #[test]
    fn a_server_counts_few_clients() {
        let server = Server::start().unwrap();
        let refused = run_upload(&options(&server, 64), &server, &Stop::default(), &mut |_| ()).unwrap_err();
        assert!(refused.to_string().contains("no client 64"));
    }
}
