//! What a relay tells the service manager that started it.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

struct Relay(Child);

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_relay_says_when_it_is_ready_and_well_and_when_it_stops() {
    let dir = tempfile::tempdir().unwrap();
    let manager = UnixDatagram::bind(dir.path().join("notify")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let torrc = format!(
        "Nickname served\nORPort 127.0.0.1:auto\nDataDirectory {}\nHeddleShards 2\nPublishServerDescriptor 0\n\
         AssumeReachable 1\nAddress 203.0.113.5\nLog notice stdout\n",
        dir.path().join("data").display(),
    );
    fs::write(dir.path().join("torrc"), torrc).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle-relay"));
    command.arg("-f").arg(dir.path().join("torrc")).stdin(Stdio::null()).stdout(Stdio::null());
    command.env("NOTIFY_SOCKET", dir.path().join("notify")).env("WATCHDOG_USEC", "1000000");
    let mut relay = Relay(command.spawn().unwrap());
    let said = || {
        let mut bytes = [0; 200];
        let len = manager.recv(&mut bytes).expect("it says something in time");
        String::from_utf8_lossy(&bytes[..len]).trim_end().to_owned()
    };
    assert_eq!(said(), "READY=1");
    // Twice a second, and for longer than a loop may stand still.
    let first: Vec<String> = (0..12).map(|_| said()).collect();
    assert_eq!(first, vec!["WATCHDOG=1"; 12]);
    kill_process(Pid::from_child(&relay.0), Signal::TERM).unwrap();
    let last = std::iter::repeat_with(said).find(|said| said != "WATCHDOG=1");
    assert_eq!(last.as_deref(), Some("STOPPING=1"));
    assert!(relay.0.wait().unwrap().success());
}
