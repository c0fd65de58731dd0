//! Stock Tor's control port, as far as experiments need it (control-spec).
//!
//! [`Control`] is one connection. Commands are answered in order; events that arrive between are
//! kept until somebody asks for them. [`Attacher`] puts streams on chosen circuits.

mod attacher;

use std::collections::VecDeque;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

pub use attacher::Attacher;

use crate::error::{Error, Result};
use crate::machine::interrupt;
use crate::socks::{Isolation, is_timeout};

/// How long one read may block before Ctrl-C and the deadline are looked at.
const SLICE: Duration = Duration::from_millis(100);
/// How long Tor may take to answer a command; it answers in milliseconds unless it hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Events kept for somebody to ask for; more are a subscription nobody reads.
const EVENTS_MAX: usize = 10_000;

/// A circuit's number at one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CircuitId(pub u32);

impl CircuitId {
    /// The SOCKS user name that makes an [`Attacher`] put a stream on this circuit.
    pub fn isolation(self) -> Isolation {
        Isolation { username: format!("{}{self}", attacher::USERNAME_PREFIX), password: "x".into() }
    }
}

impl fmt::Display for CircuitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An asynchronous event: its keyword, such as `CIRC`, and what follows, lines joined by newlines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The event's keyword.
    pub kind: String,
    /// The rest of it.
    pub text: String,
}

/// A circuit as the client tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circuit {
    /// Its number.
    pub id: CircuitId,
    /// `LAUNCHED`, `EXTENDED`, `BUILT`, `FAILED` or `CLOSED`.
    pub status: String,
    /// The fingerprints of its hops so far, 40 hexadecimal digits each, guard first.
    pub path: Vec<String>,
    /// What it is for, such as `GENERAL`.
    pub purpose: String,
    /// Why it failed or closed, as the control port names it, remote reason included.
    pub reason: String,
}

/// One connection to a control socket.
#[derive(Debug)]
pub struct Control {
    reader: BufReader<UnixStream>,
    /// The beginning of a line whose end has not arrived.
    partial: Vec<u8>,
    events: VecDeque<Event>,
}

impl Control {
    /// Connects to the socket of a Tor that may still be starting, and authenticates. Between tries
    /// `check` may give up, for instance because the process is gone.
    ///
    /// The socket is only reachable by its owner, so there is no password.
    pub fn connect(
        socket: &Path,
        timeout: Duration,
        mut check: impl FnMut() -> Result<()>,
    ) -> Result<Control> {
        let start = Instant::now();
        let stream = loop {
            interrupt::check()?;
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(_) if start.elapsed() < timeout => thread::sleep(Duration::from_millis(10)),
                Err(error) => {
                    return Err(Error::io(format!("connecting to {}", socket.display()))(error));
                }
            }
            check()?;
        };
        let ready = stream.set_read_timeout(Some(SLICE));
        ready.map_err(Error::io("setting up a control connection"))?;
        let reader = BufReader::new(stream);
        let mut control = Control { reader, partial: Vec::new(), events: VecDeque::new() };
        control.command("AUTHENTICATE")?;
        Ok(control)
    }

    /// Sends one command line and returns the lines of its positive answer without status codes.
    pub fn command(&mut self, line: &str) -> Result<Vec<String>> {
        let message = format!("{line}\r\n");
        let sent = self.reader.get_mut().write_all(message.as_bytes());
        sent.map_err(Error::io("writing to the control port"))?;
        let end = Instant::now() + ANSWER_TIMEOUT;
        loop {
            match self.read_message(end)? {
                Some(message) if message.is_event() => self.keep(message)?,
                Some(message) if message.code.starts_with('2') => return Ok(message.lines),
                Some(message) => {
                    let said = format!("{} {}", message.code, message.lines.join(" / "));
                    let said = format!("{said} (asked: {line})");
                    return Err(Error::Refused { by: "the control port", said });
                }
                None => {
                    let waiting_for = format!("the control port's answer to {line}");
                    return Err(Error::Deadline { waiting_for, after: ANSWER_TIMEOUT });
                }
            }
        }
    }

    /// The value of one key; several lines are joined by newlines.
    pub fn get_info(&mut self, key: &str) -> Result<String> {
        let lines = self.command(&format!("GETINFO {key}"))?;
        let value = lines.first().and_then(|line| line.strip_prefix(key)?.strip_prefix('='));
        match value {
            Some(value) => Ok(value.trim_start_matches('\n').to_owned()),
            None => Err(Error::Malformed { by: "the control port", sent: lines.join("\n") }),
        }
    }

    /// Sets options; a value of `None` returns one to its default.
    pub(crate) fn set_conf(&mut self, options: &[(&str, Option<&str>)]) -> Result<()> {
        let mut line = "SETCONF".to_owned();
        for (name, value) in options {
            match value {
                Some(value) => line += &format!(" {name}={}", quoted(value)),
                None => line += &format!(" {name}"),
            }
        }
        self.command(&line).map(drop)
    }

    /// Chooses which events arrive from now on, in place of those chosen before.
    pub fn subscribe(&mut self, kinds: &[&str]) -> Result<()> {
        self.command(&format!("SETEVENTS {}", kinds.join(" "))).map(drop)
    }

    /// The next event, or `None` when none comes in time.
    pub fn next_event(&mut self, timeout: Duration) -> Result<Option<Event>> {
        let end = Instant::now() + timeout;
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            match self.read_message(end)? {
                Some(message) if message.is_event() => self.keep(message)?,
                Some(message) => {
                    let sent = message.lines.join("\n");
                    return Err(Error::Malformed { by: "the control port", sent });
                }
                None => return Ok(None),
            }
        }
    }

    /// Begins a circuit through the relays with these fingerprints, guard first.
    pub fn launch_circuit(&mut self, path: &[&str]) -> Result<CircuitId> {
        let hops: Vec<String> = path.iter().map(|hop| format!("${hop}")).collect();
        let lines = self.command(&format!("EXTENDCIRCUIT 0 {}", hops.join(",")))?;
        let id = lines.first().and_then(|line| line.strip_prefix("EXTENDED ")?.parse().ok());
        let malformed = || Error::Malformed { by: "the control port", sent: lines.join("\n") };
        id.map(CircuitId).ok_or_else(malformed)
    }

    /// Builds a circuit through the relays with these fingerprints and waits until it is open.
    pub fn build_circuit(&mut self, path: &[&str], timeout: Duration) -> Result<CircuitId> {
        self.subscribe(&["CIRC"])?;
        let id = self.launch_circuit(path)?;
        self.wait_built(id, timeout)?;
        Ok(id)
    }

    /// Waits until a circuit of [`Control::launch_circuit`] is open. `CIRC` events must be
    /// subscribed to since before it was launched.
    pub(crate) fn wait_built(&mut self, id: CircuitId, timeout: Duration) -> Result<Circuit> {
        let waiting_for = format!("circuit {id} to be built");
        self.wait_circuit(id, timeout, &waiting_for, |circuit| match &*circuit.status {
            "BUILT" => Some(Ok(circuit.clone())),
            "FAILED" | "CLOSED" => Some(Err(Error::Refused {
                by: "the network",
                said: format!("circuit {id} after {} hops: {}", circuit.path.len(), circuit.reason),
            })),
            _ => None,
        })?
    }

    /// Waits until a circuit is gone and returns its last event. `CIRC` must be subscribed to.
    pub fn wait_closed(&mut self, id: CircuitId, timeout: Duration) -> Result<Circuit> {
        let waiting_for = format!("circuit {id} to close");
        self.wait_circuit(id, timeout, &waiting_for, |circuit| {
            matches!(&*circuit.status, "FAILED" | "CLOSED").then(|| circuit.clone())
        })
    }

    fn wait_circuit<T>(
        &mut self,
        id: CircuitId,
        timeout: Duration,
        waiting_for: &str,
        mut done: impl FnMut(&Circuit) -> Option<T>,
    ) -> Result<T> {
        let end = Instant::now() + timeout;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Some(event) = self.next_event(left)? else {
                let waiting_for = waiting_for.to_owned();
                return Err(Error::Deadline { waiting_for, after: timeout });
            };
            let circuit = (event.kind == "CIRC").then(|| Circuit::parse(&event.text)).flatten();
            if let Some(result) = circuit.filter(|c| c.id == id).and_then(|c| done(&c)) {
                return Ok(result);
            }
        }
    }

    /// All circuits the client has now.
    pub fn circuits(&mut self) -> Result<Vec<Circuit>> {
        let text = self.get_info("circuit-status")?;
        Ok(text.lines().filter_map(Circuit::parse).collect())
    }

    /// Closes a circuit. One that is gone already is an error.
    pub fn close_circuit(&mut self, id: CircuitId) -> Result<()> {
        self.command(&format!("CLOSECIRCUIT {id}")).map(drop)
    }

    /// Has the client build its own circuits through these relays only, from now on: nothing built
    /// before is used again. The guard must be a directory cache, as clients choose no other.
    pub fn choose_relays(&mut self, guard: &str, middle: &str, exit: &str) -> Result<()> {
        self.set_conf(&[
            ("EntryNodes", Some(guard)),
            ("MiddleNodes", Some(middle)),
            ("ExitNodes", Some(exit)),
            ("StrictNodes", Some("1")),
        ])?;
        self.command("SIGNAL NEWNYM").map(drop)
    }

    /// Takes back [`Control::choose_relays`].
    pub fn choose_any_relays(&mut self) -> Result<()> {
        self.set_conf(&[
            ("EntryNodes", None),
            ("MiddleNodes", None),
            ("ExitNodes", None),
            ("StrictNodes", None),
        ])?;
        self.command("SIGNAL NEWNYM").map(drop)
    }

    fn keep(&mut self, message: Message) -> Result<()> {
        if self.events.len() == EVENTS_MAX {
            return Err(Error::Options(format!("nobody read {EVENTS_MAX} control events")));
        }
        let text = message.lines.join("\n");
        let (kind, text) = text.split_once([' ', '\n']).unwrap_or((&text, ""));
        self.events.push_back(Event { kind: kind.to_owned(), text: text.to_owned() });
        Ok(())
    }

    /// Reads one whole answer or event (control-spec 2.3), or `None` at `end`.
    fn read_message(&mut self, end: Instant) -> Result<Option<Message>> {
        let mut lines = Vec::new();
        loop {
            // Once a message has begun, the rest is on its way: its end is worth a longer wait.
            let end = if lines.is_empty() { end } else { Instant::now() + ANSWER_TIMEOUT };
            let Some(line) = self.read_line(end)? else {
                return Ok(None);
            };
            let malformed = || Error::Malformed { by: "the control port", sent: line.clone() };
            let code = line.get(..3).ok_or_else(malformed)?;
            let text = line.get(4..).ok_or_else(malformed)?.to_owned();
            match line.as_bytes()[3] {
                b'-' => lines.push(text),
                b'+' => lines.push(text + &self.read_data()?),
                b' ' => {
                    lines.push(text);
                    return Ok(Some(Message { code: code.to_owned(), lines }));
                }
                _ => return Err(malformed()),
            }
        }
    }

    /// Reads the data lines of a `+` line, each with a newline before it.
    fn read_data(&mut self) -> Result<String> {
        let mut data = String::new();
        loop {
            let Some(line) = self.read_line(Instant::now() + ANSWER_TIMEOUT)? else {
                let waiting_for = "the end of the control port's answer".into();
                return Err(Error::Deadline { waiting_for, after: ANSWER_TIMEOUT });
            };
            if line == "." {
                return Ok(data);
            }
            data.push('\n');
            // A line that begins with a dot has another one put before it.
            data.push_str(line.strip_prefix('.').unwrap_or(&line));
        }
    }

    fn read_line(&mut self, end: Instant) -> Result<Option<String>> {
        loop {
            interrupt::check()?;
            match self.reader.read_until(b'\n', &mut self.partial) {
                Ok(_) if self.partial.ends_with(b"\r\n") => {
                    let line = std::mem::take(&mut self.partial);
                    let line = String::from_utf8_lossy(&line[..line.len() - 2]).into_owned();
                    return Ok(Some(line));
                }
                Ok(0) => {
                    let said = "the connection was closed".into();
                    return Err(Error::Refused { by: "the control port", said });
                }
                Ok(_) => {}
                Err(error) if is_timeout(&error) && Instant::now() >= end => return Ok(None),
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(Error::io("reading from the control port")(error)),
            }
        }
    }
}

struct Message {
    code: String,
    lines: Vec<String>,
}

impl Message {
    fn is_event(&self) -> bool {
        self.code == "650"
    }
}

impl Circuit {
    /// Reads a `CIRC` event's text or a line of `circuit-status` (control-spec 4.1.1).
    fn parse(text: &str) -> Option<Circuit> {
        let mut words = text.split(' ');
        let id = CircuitId(words.next()?.parse().ok()?);
        let status = words.next()?.to_owned();
        let rest: Vec<&str> = words.collect();
        let path = rest.first().filter(|word| word.starts_with('$')).map_or_else(Vec::new, |path| {
            path.split(',').filter_map(|hop| Some(hop.get(1..41)?.to_owned())).collect()
        });
        let value = |key| rest.iter().find_map(|word| word.strip_prefix(key));
        let reasons = [value("REASON="), value("REMOTE_REASON=")];
        let reasons: Vec<&str> = reasons.into_iter().flatten().collect();
        let purpose = value("PURPOSE=").unwrap_or_default().to_owned();
        Some(Circuit { id, status, path, purpose, reason: reasons.join(", remote ") })
    }
}

/// A string as the control port reads it back (control-spec 2.1.1).
fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests;
