//! A `heddle proxy` at work, and what it tells.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Instant;

use serde_json::Value;

use super::support::{Lab, TIMEOUT};

/// The process ends with this.
pub struct Proxy {
    child: Child,
    /// Behind a lock, so that threads may share the proxy.
    events: Mutex<Receiver<Value>>,
    socks: SocketAddr,
    built: Vec<Vec<String>>,
    _directory: tempfile::TempDir,
}

pub fn command(torrc: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.arg("proxy").arg("-f").arg(torrc).arg("--json").args(arguments);
    command
}

impl Proxy {
    /// Starts a proxy of the lab's network, and waits for its first circuit.
    pub fn start(lab: &Lab, arguments: &[&str]) -> Proxy {
        let mut proxy = Proxy::start_unready(lab, arguments);
        proxy.wait_for("ready");
        proxy
    }

    /// The same, but it waits for the port alone. The torrc is the stock client's, but for what must differ.
    pub fn start_unready(lab: &Lab, arguments: &[&str]) -> Proxy {
        let directory = tempfile::tempdir().unwrap();
        let of_client = std::fs::read_to_string(lab.network.dir().join("client/torrc")).unwrap();
        let others = of_client.lines().filter(|line| {
            !["SocksPort", "DataDirectory", "Log"].iter().any(|option| line.starts_with(option))
        });
        let data = format!("DataDirectory {}", directory.path().join("data").display());
        let lines: Vec<_> = others.chain([&*data, "SocksPort auto", "Log err stderr"]).collect();
        let torrc = directory.path().join("torrc");
        std::fs::write(&torrc, lines.join("\n")).unwrap();
        let mut child = command(&torrc, arguments).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, events) = mpsc::channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let event = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        let socks = ([127, 0, 0, 1], 0).into();
        let mut proxy =
            Proxy { child, events: Mutex::new(events), socks, built: Vec::new(), _directory: directory };
        proxy.socks = proxy.wait_for("listening")["socks"].as_str().unwrap().parse().unwrap();
        proxy
    }

    pub fn socks(&self) -> SocketAddr {
        self.socks
    }

    /// Waits until it tells of such an event.
    pub fn wait_for(&mut self, name: &str) -> Value {
        let end = Instant::now() + TIMEOUT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let event = self
                .events
                .get_mut()
                .unwrap()
                .recv_timeout(left)
                .unwrap_or_else(|_| panic!("waited in vain for {name}"));
            self.note(&event);
            if event["event"] == name {
                return event;
            }
        }
    }

    fn note(&mut self, event: &Value) {
        if event["event"] == "built" {
            let names = event["path"].as_array().unwrap().iter();
            self.built.push(names.map(|name| name.as_str().unwrap().to_owned()).collect());
        }
    }

    /// The paths of the circuits that were built: that in use, and the one that was built ahead.
    pub fn built(&mut self) -> Vec<Vec<String>> {
        self.built_at_least(2)
    }

    /// The paths of the circuits that were built, once there are so many.
    pub fn built_at_least(&mut self, count: usize) -> Vec<Vec<String>> {
        while self.built.len() < count {
            self.wait_for("built");
        }
        while let Ok(event) = self.events.get_mut().unwrap().try_recv() {
            self.note(&event);
        }
        self.built.clone()
    }

    /// The memory that the process has.
    pub fn rss_bytes(&self) -> u64 {
        heddle_lab::machine::usage::of(self.child.id()).unwrap().rss_bytes
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
