//! The program without a laboratory, as an operator starts it.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::Path;
use std::process::{Command, Output};

fn heddle_relay(torrc: &Path, argument: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle-relay"));
    command.arg("-f").arg(torrc).arg(argument).output().expect("heddle-relay runs")
}

#[test]
fn it_makes_keys_and_tells_what_is_wrong_with_a_torrc() {
    let dir = tempfile::tempdir().unwrap();
    let torrc = dir.path().join("torrc");
    let data = dir.path().join("data");
    let options =
        format!("Nickname middle1\nAddress 192.0.2.1\nORPort 9001\nDataDirectory {}\n", data.display());
    fs::write(&torrc, &options).unwrap();
    let first = heddle_relay(&torrc, "--list-fingerprint");
    let said = String::from_utf8(first.stdout).unwrap();
    assert!(first.status.success() && said.starts_with("middle1 "), "{said}");
    assert_eq!(heddle_relay(&torrc, "--list-fingerprint").stdout, said.as_bytes(), "keys stay");
    assert!(data.join("keys/ed25519_master_id_public_key").exists());

    fs::write(&torrc, options + "ORPort nowhere\n").unwrap();
    let refused = heddle_relay(&torrc, "--verify-config");
    let said = String::from_utf8(refused.stderr).unwrap();
    let place = format!("{}:5", torrc.display());
    assert!(
        !refused.status.success() && said.starts_with("heddle-relay: ") && said.contains(&place),
        "{said}"
    );
}

/// Whoever looks for the relay in its `PidFile` is not to find the number of some other process.
#[test]
fn a_start_that_fails_leaves_no_pid_file() {
    let dir = tempfile::tempdir().unwrap();
    let [torrc, pid_file, data] = ["torrc", "pid", "data"].map(|name| dir.path().join(name));
    fs::DirBuilder::new().mode(0o700).create(&data).unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let or_port = free.local_addr().unwrap();
    drop(free);
    let options = format!(
        "Nickname middle1\nORPort {or_port}\nDataDirectory {}\nPidFile {}\nTestingTorNetwork 1\n\
         PublishServerDescriptor 0\nAssumeReachable 1\nHeddleObserve 1\nDirAuthority nobody 127.0.0.1:1 {}\n",
        data.display(),
        pid_file.display(),
        "00".repeat(20)
    );
    fs::write(&torrc, options).unwrap();
    // Its socket cannot take the place of a folder. By then the relay has its ports and has said who it is.
    fs::create_dir(data.join("observe.sock")).unwrap();
    let start = Command::new(env!("CARGO_BIN_EXE_heddle-relay")).arg("-f").arg(&torrc).output().unwrap();
    let said = String::from_utf8(start.stderr).unwrap();
    assert!(!start.status.success() && said.contains("observe.sock"), "{said}");
    assert!(!pid_file.exists());
}

/// Nobody may read standard error of a relay that ended days ago.
#[test]
fn a_relay_that_ends_by_itself_says_why_in_its_log_too() {
    let dir = tempfile::tempdir().unwrap();
    let [torrc, log, data] = ["torrc", "log", "data"].map(|name| dir.path().join(name));
    let occupied = TcpListener::bind("127.0.0.1:0").unwrap();
    let or_port = occupied.local_addr().unwrap();
    let options = format!(
        "Nickname middle1\nAddress 192.0.2.1\nORPort {or_port}\nDataDirectory {}\nLog notice file {}\n\
         Log notice stderr\n",
        data.display(),
        log.display()
    );
    fs::write(&torrc, options).unwrap();
    let start = Command::new(env!("CARGO_BIN_EXE_heddle-relay")).arg("-f").arg(&torrc).output().unwrap();
    let said = String::from_utf8(start.stderr).unwrap();
    let reason = format!("ORPort {or_port} cannot be opened");
    assert!(!start.status.success() && said.contains(&format!("heddle-relay: {reason}")), "{said}");
    assert_eq!(said.matches(&reason).count(), 1, "whoever reads it reads it once: {said}");
    let logged = fs::read_to_string(&log).unwrap();
    assert!(logged.contains(&format!("[err] {reason}")), "{logged}");
}

/// What another user's relay would find there could not be read by it, such as keys and a lock of root's.
#[test]
fn a_directory_of_another_user_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let [torrc, data] = ["torrc", "data"].map(|name| dir.path().join(name));
    fs::create_dir(&data).unwrap();
    // Only root can give it away, and only where that user exists; the module of the check has tests for others.
    if chown(&data, Some(1), None).is_err() {
        return;
    }
    let options =
        format!("Nickname middle1\nAddress 192.0.2.1\nORPort 9001\nDataDirectory {}\n", data.display());
    fs::write(&torrc, options).unwrap();
    for arguments in [&["--list-fingerprint"][..], &[]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_heddle-relay"));
        let refused = command.arg("-f").arg(&torrc).args(arguments).output().unwrap();
        let said = String::from_utf8(refused.stderr).unwrap();
        let begins = format!("heddle-relay: DataDirectory {} belongs to ", data.display());
        assert!(!refused.status.success() && said.starts_with(&begins), "{said}");
        assert_eq!(fs::read_dir(&data).unwrap().count(), 0, "{said}");
    }
}

/// Without a home `~` would be a folder of that name.
#[test]
fn a_relay_without_a_home_needs_a_whole_path() {
    let dir = tempfile::tempdir().unwrap();
    let torrc = dir.path().join("torrc");
    fs::write(&torrc, "Nickname middle1\nORPort 9001\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle-relay"));
    command.arg("-f").arg(&torrc).arg("--list-fingerprint").env_remove("HOME").current_dir(dir.path());
    let refused = command.output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains(": DataDirectory: HOME is not set"), "{said}");
    assert!(!dir.path().join("~").exists());
}

/// Links without encryption are the laboratory's. Their tags say what they are, so whoever has the code has this text.
#[test]
fn it_has_no_code_for_links_that_do_not_encrypt() {
    let has_it = |program| {
        let bytes = fs::read(program).expect("it was built");
        let tag = *b"null cryptograph";
        bytes.windows(tag.len()).any(|text| text == tag)
    };
    assert!(!has_it(env!("CARGO_BIN_EXE_heddle-relay")));
    assert!(has_it(env!("CARGO_BIN_EXE_heddle")), "the laboratory has it, so that the text tells something");
}
