//! Echoes over one stream: messages of one cell that the server sends back.
//!
//! 1. A message leaves every `every`, whether or not those before it have come back: what holds up one
//!    of them is told by all that wait behind it, and not only by one. A moment that passed while the stream took
//!    nothing is left out.
//! 2. Its echo tells how long it took since it was handed to the stream.
//! 3. After the stop nothing more leaves, and echoes that are on their way are waited for.
//! 4. What has not come back by then counts as failed, one by one, and it is told how long it had been on the way: only
//!    to leave it out would make a stream look the quicker the less comes back.
//!
//! A stream that breaks is opened again a second later; what was on the way then has not come back either.

use std::collections::VecDeque;
use std::time::Duration;

use heddle_seam::time::Instant;

use super::conversation::{Conversation, Patience};
use super::lines::{LineId, Lines, WayId};
use super::program::{Failed, Journal, Program, STREAMS_MAX, ms};
use super::report::Event;
use super::request::Request;

/// Bytes of a message. Together with a relay cell's header it fits into one cell.
const MESSAGE_BYTES: usize = 64;
/// How long echoes are waited for after the stop.
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// How long the client waits before it opens a broken stream again.
const REOPEN: Duration = Duration::from_secs(1);

/// A program that sends them.
pub(crate) struct Echoes {
    way: WayId,
    every: Duration,
    /// How long a stream may take to open, and then be without any echo.
    timeout: Duration,
    stream: Option<Conversation>,
    /// When the stream is opened, again where it broke; `None` while there is one.
    opens: Option<Instant>,
    /// When the next message leaves, once there is a stream.
    sends: Option<Instant>,
    /// When the messages left that have not come back, the oldest first. They come back in the order in which they
    /// left.
    under_way: VecDeque<Instant>,
    /// What has come of messages that are not whole.
    come: Vec<u8>,
    /// When it was asked to end.
    asked: Option<Instant>,
    is_over: bool,
}

impl Echoes {
    /// Begins now.
    pub(crate) fn new(now: Instant, way: WayId, every: Duration, timeout: Duration) -> Echoes {
        Echoes {
            way,
            // No time at all would be no end of messages at one moment.
            every: every.max(Duration::from_nanos(1)),
            timeout,
            stream: None,
            opens: Some(now),
            sends: None,
            under_way: VecDeque::new(),
            come: Vec::new(),
            asked: None,
            is_over: false,
        }
    }

    fn go_on(&mut self, now: Instant, lines: &mut dyn Lines, journal: &mut Journal) -> Result<(), Failed> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let came = stream.go_on(now, lines, &mut self.come);
        let whole = self.come.len() / MESSAGE_BYTES;
        self.come.drain(..whole * MESSAGE_BYTES);
        for left in self.under_way.drain(..whole.min(self.under_way.len())) {
            let (t_s, echo_ms) = (journal.t_s(now), ms(left, now));
            journal.say(now, Event::Echo { t_s, echo_ms });
        }
        came.map(drop)
    }

    /// Hands messages over at their moments.
    fn send(&mut self, now: Instant, lines: &mut dyn Lines) {
        let Some(stream) = self.stream.as_mut().filter(|stream| stream.opened.is_some()) else { return };
        stream.flush(now, lines);
        let sends = *self.sends.get_or_insert(now);
        if self.asked.is_none() && sends <= now && !stream.is_blocked() {
            self.under_way.push_back(now);
            stream.say(now, lines, &[0; MESSAGE_BYTES]);
            self.sends = Some((sends + self.every).max(now));
        }
    }

    /// What is under way now does not come back.
    fn lose(&mut self, now: Instant, lines: &mut dyn Lines, journal: &mut Journal) {
        if let Some(stream) = self.stream.take() {
            lines.close(now, stream.line);
        }
        for left in std::mem::take(&mut self.under_way) {
            let (t_s, age_ms) = (journal.t_s(now), ms(left, now));
            journal.say(now, Event::EchoLost { t_s, age_ms });
        }
        (self.sends, self.opens) = (None, Some(now + REOPEN));
        self.come.clear();
    }
}

impl Program for Echoes {
    fn step(&mut self, now: Instant, lines: &mut dyn Lines, journal: &mut Journal) {
        if self.is_over {
            return;
        }
        if self.opens.is_some_and(|opens| opens <= now) && self.asked.is_none() {
            self.opens = None;
            let patience = Patience::Silence(self.timeout);
            self.stream = Some(Conversation::begin(now, lines, self.way, &Request::Echo.head(), patience));
        }
        if let Err(failed) = self.go_on(now, lines, journal) {
            self.lose(now, lines, journal);
            if self.asked.is_none() {
                journal.failed(now, &failed);
            }
        }
        self.send(now, lines);
        let drained = self.asked.is_some_and(|asked| now >= asked + DRAIN_MAX);
        if self.asked.is_some() && (drained || self.under_way.is_empty()) {
            self.lose(now, lines, journal);
            self.is_over = true;
        }
    }

    fn wakes(&self) -> Option<Instant> {
        if let Some(asked) = self.asked {
            return Some(asked + DRAIN_MAX);
        }
        let stream = self.stream.as_ref();
        let sends = self.sends.filter(|_| stream.is_some_and(|stream| !stream.is_blocked()));
        [self.opens, sends, stream.map(Conversation::gives_up)].into_iter().flatten().min()
    }

    fn lines(&self) -> [Option<LineId>; STREAMS_MAX] {
        [self.stream.as_ref().map(|stream| stream.line), None]
    }

    fn stop(&mut self, now: Instant) {
        self.asked.get_or_insert(now);
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::drive::drive;
    use crate::traffic::report::{Identity, Report, Reporter};
    use crate::traffic::{Failures, Route, Server, Stop};
    use rustix::net::sockopt;
    use std::io::Read;
    use std::net::TcpListener;
    use std::sync::mpsc;
    use std::thread;

    const HEAD: &[u8] = b"ECHO\r\n\r\n";

    struct EchoOptions {
        route: Route,
        every: Duration,
    }

    fn options(server: &Server) -> EchoOptions {
        EchoOptions { route: Route::direct(server.addr().into()), every: Duration::from_millis(2) }
    }

    fn run_echoes(options: &EchoOptions, stop: &Stop, on_event: &mut dyn FnMut(&Event)) -> Report {
        let mut reporter = Reporter::new("echo", &Identity::default(), on_event);
        let timeout = options.route.timeout;
        let make = |now, way| -> Box<dyn Program> { Box::new(Echoes::new(now, way, options.every, timeout)) };
        drive(make, &options.route, stop, &Stop::default(), &mut |event| reporter.say(event)).unwrap();
        reporter.finish(stop)
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
        });
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
        assert_eq!(report.failures["transfer: lost"], ages_ms.len() as u64);
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
            });
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
        let options = EchoOptions { route, every };
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
            run_echoes(&options, &stop, &mut |_| ());
            ended.send(()).unwrap();
        });
    }
}
