//! Streams on chosen circuits.
//!
//! Tor tells a controller of every new stream and waits until it is attached. A stream says by its
//! SOCKS user name which circuit it is for ([`CircuitId::isolation`]); every other stream is left to
//! Tor's own choice.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{CircuitId, Control, Event};
use crate::error::{Error, Result};

/// What a user name begins with that asks for a circuit; the circuit's number follows.
pub(super) const USERNAME_PREFIX: &str = "circuit-";
/// How long the thread waits for an event before it looks whether it should end.
const SLICE: Duration = Duration::from_millis(100);
/// END_STREAM_REASON_MISC: the application sees its SOCKS request fail.
const CLOSE_REASON: u8 = 1;

/// A thread with a control connection of its own. While it lives, streams whose SOCKS user name
/// asks for a circuit go over that circuit or fail.
#[derive(Debug)]
pub struct Attacher {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Attacher {
    /// Takes over the streams of the Tor with this control socket.
    pub fn start(socket: &Path, timeout: Duration) -> Result<Attacher> {
        let mut control = Control::connect(socket, timeout, || Ok(()))?;
        control.subscribe(&["STREAM"])?;
        control.set_conf(&[("__LeaveStreamsUnattached", Some("1"))])?;
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        // An error means that Tor is gone or the run is interrupted: its streams end by that too.
        let attach = move || drop(attach_until(&seen, &mut control));
        Ok(Attacher { stop, thread: Some(thread::spawn(attach)) })
    }
}

impl Drop for Attacher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn attach_until(stop: &AtomicBool, control: &mut Control) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let Some(event) = control.next_event(SLICE)? else {
            continue;
        };
        let Some(stream) = Waiting::parse(&event) else {
            continue;
        };
        if !granted(control, &stream.request())? {
            // The circuit is gone, or the stream is: neither harms any other stream.
            granted(control, &stream.close_request())?;
        }
    }
    control.set_conf(&[("__LeaveStreamsUnattached", None)])
}

fn granted(control: &mut Control, request: &str) -> Result<bool> {
    match control.command(request) {
        Ok(_) => Ok(true),
        Err(Error::Refused { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A stream that waits for somebody to attach it.
#[derive(Debug, PartialEq, Eq)]
struct Waiting {
    id: String,
    wants: Option<CircuitId>,
    /// Whether it was on a circuit already, which refused it or closed.
    detached: bool,
}

impl Waiting {
    /// What to ask Tor for. Tor tries a detached stream on another circuit, and so do we, unless it
    /// asked for one circuit: then it fails.
    fn request(&self) -> String {
        match self.wants {
            Some(_) if self.detached => self.close_request(),
            Some(circuit) => format!("ATTACHSTREAM {} {circuit}", self.id),
            None => format!("ATTACHSTREAM {} 0", self.id),
        }
    }

    fn close_request(&self) -> String {
        format!("CLOSESTREAM {} {CLOSE_REASON}", self.id)
    }

    /// Reads a `STREAM` event (control-spec 4.1.2).
    fn parse(event: &Event) -> Option<Waiting> {
        if event.kind != "STREAM" {
            return None;
        }
        let mut words = event.text.split(' ');
        let id = words.next()?.to_owned();
        let status = words.next()?;
        if !matches!(status, "NEW" | "NEWRESOLVE" | "DETACHED") {
            return None;
        }
        // Tor's own fetches of directories wait for nobody; attaching them again would end them.
        if words.clone().any(|word| word == "CLIENT_PROTOCOL=UNKNOWN") {
            return None;
        }
        let name = words.find_map(|word| word.strip_prefix("SOCKS_USERNAME="));
        let number = name.and_then(|name| name.trim_matches('"').strip_prefix(USERNAME_PREFIX));
        let wants = number.and_then(|number| number.parse().ok()).map(CircuitId);
        Some(Waiting { id, wants, detached: status == "DETACHED" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Waiting> {
        Waiting::parse(&Event { kind: "STREAM".into(), text: text.into() })
    }

    #[test]
    fn user_names_choose_circuits() {
        let new = r#"12 NEW 0 127.0.0.1:80 SOURCE_ADDR=127.0.0.1:4 PURPOSE=USER SOCKS_USERNAME="circuit-7" SOCKS_PASSWORD="x""#;
        assert_eq!(parse(new).unwrap().request(), "ATTACHSTREAM 12 7");
        let plain = "13 NEW 0 127.0.0.1:80 SOURCE_ADDR=127.0.0.1:4 PURPOSE=USER";
        assert_eq!(parse(plain).unwrap().request(), "ATTACHSTREAM 13 0");
        let refused = r#"12 DETACHED 7 127.0.0.1:80 REASON=END SOCKS_USERNAME="circuit-7""#;
        assert_eq!(parse(refused).unwrap().request(), "CLOSESTREAM 12 1");
        let own = "14 NEW 0 127.0.0.1.$A.exit:80 PURPOSE=DIR_FETCH CLIENT_PROTOCOL=UNKNOWN";
        assert_eq!(parse(own), None);
        assert_eq!(parse("13 SUCCEEDED 7 127.0.0.1:80"), None);
        assert_eq!(CircuitId(7).isolation().username, "circuit-7");
    }
}
