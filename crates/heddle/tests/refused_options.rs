//! Relays in a sandbox that refuses every option of a socket, as simulators of whole networks do: they carry as much,
//! and say once what they go without.

mod support;

use heddle_lab::machine::ports::PortBlock;
use heddle_lab::metrics::Metrics;
use heddle_lab::testnet::{NetworkOptions, RelayOptions};
use heddle_lab::traffic::Content;
use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use support::{Lab, TIMEOUT, eventually};

const OPTIONS: [&str; 4] = ["TCP_NODELAY", "SO_KEEPALIVE", "TCP_NOTSENT_LOWAT", "SO_REUSEADDR"];

#[test]
fn a_relay_goes_on_without_any_option_of_its_sockets() {
    let dir = tempfile::tempdir().unwrap();
    let sandboxed = dir.path().join("heddle");
    let script = include_str!("support/refuse_options.py").replace("@PROGRAM@", env!("CARGO_BIN_EXE_heddle"));
    fs::write(&sandboxed, script).unwrap();
    fs::set_permissions(&sandboxed, Permissions::from_mode(0o755)).unwrap();
    let mut ports = PortBlock::reserve().unwrap();
    let metrics: SocketAddr = (Ipv4Addr::LOCALHOST, ports.take().unwrap()).into();
    let relays = vec![
        RelayOptions::stock("stockguard"),
        RelayOptions::heddle("middle")
            .line("HeddleShards 2")
            .line(&format!("MetricsPort {metrics}"))
            .line("MetricsPortPolicy accept 127.0.0.1"),
        RelayOptions::heddle("exit").exit(),
    ];
    let lab = Lab::start_with(NetworkOptions { relays, ..NetworkOptions::default() }, sandboxed);
    // The middle and the exit find each other by a circuit, and then the middle of another goes over QUIC.
    eventually("the relays to pair", || {
        let circuit = lab.circuit(&["stockguard", "middle", "exit"]);
        lab.both_ways(circuit, Content { seed: 1, len: 200_000 });
        lab.close(circuit);
        let told = Metrics::scrape(metrics, TIMEOUT).unwrap();
        told.sum("heddle_links", &[("transport", "quic")]) >= 1.0
            && told.sum("heddle_datagrams_total", &[]) > 100.0
    });
    lab.check();
    let log = fs::read_to_string(lab.network.relay("middle").unwrap().dir().join("log")).unwrap();
    for option in OPTIONS {
        let told = log.matches(&format!("The kernel refuses {option},")).count();
        assert_eq!(told, 1, "{option}: {log}");
    }
}
