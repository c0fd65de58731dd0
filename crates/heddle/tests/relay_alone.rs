//! The program without a laboratory, as an operator starts it.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt;
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
