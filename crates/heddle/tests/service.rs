//! What a relay tells the service manager that started it, and what it does when it is told to.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

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

/// Whoever rotates logs may have moved their directory away, and nobody may read standard error any more.
#[test]
fn a_log_file_that_cannot_be_opened_anew_goes_on_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let manager = UnixDatagram::bind(dir.path().join("notify")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let (logs, moved) = (dir.path().join("logs"), dir.path().join("moved"));
    fs::create_dir(&logs).unwrap();
    let torrc = format!(
        "Nickname logged\nORPort 127.0.0.1:auto\nDataDirectory {}\nPublishServerDescriptor 0\n\
         AssumeReachable 1\nAddress 203.0.113.5\nLog notice file {}\n",
        dir.path().join("data").display(),
        logs.join("log").display(),
    );
    fs::write(dir.path().join("torrc"), torrc).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle-relay"));
    command.arg("-f").arg(dir.path().join("torrc")).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut relay = Relay(command.env("NOTIFY_SOCKET", dir.path().join("notify")).spawn().unwrap());
    drop(relay.0.stderr.take());
    let mut ready = [0; 8];
    manager.recv(&mut ready).expect("it says that it is ready");

    fs::rename(&logs, &moved).unwrap();
    kill_process(Pid::from_child(&relay.0), Signal::HUP).unwrap();
    let begun = Instant::now();
    let said = loop {
        let said = fs::read_to_string(moved.join("log")).unwrap();
        if said.contains("What was open goes on") {
            break said;
        }
        assert_eq!(relay.0.try_wait().unwrap(), None, "it goes on");
        assert!(begun.elapsed() < PATIENCE, "{said}");
        std::thread::yield_now();
    };
    let warning =
        format!("[warn] What was open goes on: the log file {} cannot be", logs.join("log").display());
    assert!(said.contains(&warning), "{said}");
    kill_process(Pid::from_child(&relay.0), Signal::TERM).unwrap();
    assert!(relay.0.wait().unwrap().success());
}
