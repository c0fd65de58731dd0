//! What is told of circuits.

use std::path::Path;

use heddle_lab::trace::{Trace, TraceOptions};
use serde_json::Value;

use super::{a_circuit, everything, files};

/// The lines of a trace of which these circuits were wanted.
fn lines(dir: &Path, circuits: &[u64]) -> Vec<Value> {
    let trace = Trace::begin(TraceOptions { circuits: circuits.to_vec(), ..everything(dir) }).unwrap();
    a_circuit(Some(&trace));
    trace.end().unwrap();
    let text = String::from_utf8(files(dir)["circuits.jsonl"].clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What a line tells, in words.
fn words(line: &Value) -> String {
    let word = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
    ["event", "command", "direction", "neighbour"].map(word).join(" ")
}

/// The times of these, of which each comes after the one before.
fn in_order(lines: &[&Value], expected: &[&str]) -> Vec<u64> {
    let mut rest = lines.iter();
    expected
        .iter()
        .map(|wanted| {
            let found = rest.find(|line| words(line) == *wanted);
            let found = found.unwrap_or_else(|| panic!("no {wanted:?} after the one before: {lines:#?}"));
            found["at_ns"].as_u64().unwrap()
        })
        .collect()
}

#[test]
fn a_circuit_is_followed_through_all_relays() {
    let dir = tempfile::tempdir().unwrap();
    let all = lines(&dir.path().join("all"), &[]);
    assert!(all.iter().all(|line| line["circuit"] == 0 || line["circuit"] == 1), "there are two circuits");
    let at = |relay: &str| -> Vec<&Value> {
        all.iter().filter(|line| line["circuit"] == 1 && line["relay"] == relay).collect()
    };
    let (guard, middle, exit) = (at("relay0"), at("relay1"), at("relay2"));
    let guards = in_order(
        &guard,
        &[
            "opened CREATE2 forward client",
            "out CREATED2 backward client",
            "in RELAY_EARLY forward client",
            "out CREATE2 forward relay1",
            "in CREATED2 backward relay1",
            "out RELAY backward client",
            "in RELAY_EARLY forward client",
            "out RELAY_EARLY forward relay1",
            "in RELAY backward relay1",
            "in RELAY forward client",
            "in DESTROY forward client",
            "destroyed - - client",
            "out DESTROY forward relay1",
        ],
    );
    let middles = in_order(
        &middle,
        &[
            "opened CREATE2 forward relay0",
            "out CREATED2 backward relay0",
            "in RELAY_EARLY forward relay0",
            "out CREATE2 forward relay2",
            "in CREATED2 backward relay2",
            "out RELAY backward relay0",
            "in DESTROY forward relay0",
            "destroyed - - relay0",
            "out DESTROY forward relay2",
        ],
    );
    let exits = in_order(
        &exit,
        &[
            "opened CREATE2 forward relay1",
            "out CREATED2 backward relay1",
            "in RELAY forward relay1",
            "out RELAY backward relay1",
            "in DESTROY forward relay1",
            "destroyed - - relay1",
        ],
    );
    // CREATE2 and DESTROY are heard after they are said, and the answer after that.
    assert!(
        guards[3] < middles[0] && middles[1] < guards[4] && guards[12] < middles[6],
        "{guards:?} {middles:?}"
    );
    assert!(middles[3] < exits[0] && exits[1] < middles[4] && middles[8] < exits[4], "{middles:?} {exits:?}");
    for relay in [&guard, &middle, &exit] {
        let ends: Vec<&&Value> = relay.iter().filter(|line| line["event"] == "destroyed").collect();
        assert!(ends.len() == 1 && ends[0]["by"] == "behind", "{ends:?}");
        assert_eq!(relay[0]["event"], "opened");
    }
    assert_eq!(
        (&guard[0]["over"], &middle[0]["over"], &exit[0]["over"]),
        (&"tls".into(), &"quic".into(), &"tls".into())
    );
}

#[test]
fn cells_that_leave_a_relay_come_to_the_next_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let all = lines(&dir.path().join("all"), &[1]);
    let cells = |relay: &str, event: &str, direction: &str, neighbour: &str| -> Vec<(u64, String, u64)> {
        let is_such = |line: &&Value| {
            let is = |name: &str, value: &str| line[name] == value;
            let is_relay = line["command"].as_str().is_some_and(|command| command.starts_with("RELAY"));
            is_relay
                && is("relay", relay)
                && is("event", event)
                && is("direction", direction)
                && is("neighbour", neighbour)
        };
        let told = |line: &Value| {
            let command = line["command"].as_str().unwrap().to_owned();
            (line["at_ns"].as_u64().unwrap(), command, line["queued_cells"].as_u64().unwrap())
        };
        all.iter().filter(is_such).map(told).collect()
    };
    let mut longest = 0;
    for (from, to, direction) in [
        ("relay0", "relay1", "forward"),
        ("relay1", "relay2", "forward"),
        ("relay2", "relay1", "backward"),
        ("relay1", "relay0", "backward"),
    ] {
        let (out, come) = (cells(from, "out", direction, to), cells(to, "in", direction, from));
        let commands = |cells: &[(u64, String, u64)]| -> Vec<String> {
            cells.iter().map(|(_, command, _)| command.clone()).collect()
        };
        assert!(!out.is_empty() && commands(&out) == commands(&come), "{from} to {to}");
        let is_later = |((left, ..), (came, ..)): (&(u64, String, u64), &(u64, String, u64))| left < came;
        assert!(out.iter().zip(&come).all(is_later), "{from} to {to}");
        longest = longest.max(out.iter().map(|(_, _, queued)| *queued).max().unwrap());
    }
    // While nothing came through, cells waited.
    assert!(longest > 3, "{longest}");
}

#[test]
fn circuits_are_chosen_by_number() {
    let dir = tempfile::tempdir().unwrap();
    let all = lines(&dir.path().join("all"), &[]);
    for circuit in [0, 1, 2] {
        let chosen = lines(&dir.path().join(circuit.to_string()), &[circuit]);
        let expected: Vec<&Value> = all.iter().filter(|line| line["circuit"] == circuit).collect();
        assert!(chosen.iter().eq(expected), "{circuit}");
        assert_eq!(chosen.is_empty(), circuit == 2);
    }
}
