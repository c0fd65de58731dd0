//! A relay that is not told to assume that it is reachable finds out, and publishes only then.

mod support;

use std::fs;

use heddle_lab::testnet::{NetworkOptions, RelayOptions};
use heddle_lab::traffic::Content;
use support::Lab;

#[test]
fn a_relay_publishes_once_it_has_reached_itself() {
    let relays = vec![
        RelayOptions::stock("stockguard"),
        RelayOptions::stock("stockmiddle"),
        RelayOptions::heddle("heddleexit").exit(),
        RelayOptions::heddle("finder").line("AssumeReachable 0").line("HeddleShards 3"),
    ];
    // The network is up when the last of them is listed, which cannot be before it is published.
    let lab = Lab::start(NetworkOptions { relays, ..NetworkOptions::default() });
    let log = fs::read_to_string(lab.network.relay("finder").unwrap().dir().join("log")).unwrap();
    let reached = log.find("ORPort is reachable").unwrap_or_else(|| panic!("{log}"));
    let published = log.find("Published our descriptor").unwrap_or_else(|| panic!("{log}"));
    assert!(reached < published, "{log}");
    let circuit = lab.circuit(&["stockguard", "finder", "heddleexit"]);
    lab.both_ways(circuit, Content { seed: 1, len: 100_000 });
    lab.check();
}
