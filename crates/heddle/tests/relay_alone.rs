//! The program without a laboratory, as an operator starts it.

use std::fs;
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
