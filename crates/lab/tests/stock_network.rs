//! A network of stock Tor alone: what the lab promises about any network, without Heddle in it.

use std::sync::{OnceLock, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use heddle_lab::control::{Attacher, CircuitId};
use heddle_lab::error::Result;
use heddle_lab::socks::{self, Target};
use heddle_lab::testnet::{Network, NetworkOptions, RelayOptions};
use heddle_lab::traffic::{self, Content, Echo, Server};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Held for writing while the client's choice of relays is narrowed: that ends circuits which do not
/// keep to it, those of other tests among them.
static CHOICE: RwLock<()> = RwLock::new(());

/// The one network of this test program. Killing the program cleans up after it.
struct Lab {
    network: Network,
    server: Server,
    _attacher: Attacher,
}

fn lab() -> &'static Lab {
    static LAB: OnceLock<Lab> = OnceLock::new();
    LAB.get_or_init(|| {
        let options = NetworkOptions {
            relays: vec![
                RelayOptions::stock("guard"),
                RelayOptions::stock("middle"),
                RelayOptions::stock("exit").exit(),
                RelayOptions::stock("victim"),
            ],
            ..NetworkOptions::default()
        };
        let network = Network::start(&options, &mut |_| ()).unwrap();
        let server = Server::start().unwrap();
        let attacher = Attacher::start(&network.control_socket(), TIMEOUT).unwrap();
        Lab { network, server, _attacher: attacher }
    })
}

fn circuit(lab: &Lab, nicknames: &[&str]) -> CircuitId {
    let path = lab.network.path(nicknames).unwrap();
    lab.network.control().unwrap().build_circuit(&path, TIMEOUT).unwrap()
}

fn fetch(lab: &Lab, circuit: Option<CircuitId>, content: Content) -> Result<traffic::Transfer> {
    let start = Instant::now();
    let target = Target::Addr(lab.server.addr());
    let isolation = circuit.map(CircuitId::isolation);
    let stream = socks::connect(lab.network.socks(), &target, isolation.as_ref(), TIMEOUT)?;
    traffic::download(stream, content, content.sha256(), start, TIMEOUT, &mut |_| ())
}

#[test]
fn every_relay_is_listed_for_every_use() {
    let listings = lab().network.consensus(0).unwrap();
    for relay in lab().network.relays() {
        let listing = listings.iter().find(|entry| entry.nickname == relay.nickname()).unwrap();
        assert_eq!(listing.fingerprint, relay.fingerprint());
        for flag in ["Running", "Valid", "Fast", "Stable", "Guard", "V2Dir"] {
            assert!(listing.flags.iter().any(|f| f == flag), "{listing:?} lacks {flag}");
        }
    }
}

#[test]
fn no_stock_program_counts_cells_for_events() {
    let network = &lab().network;
    let relays = ["guard", "middle", "exit"].map(|name| network.relay(name).unwrap().control().unwrap());
    let others = [network.control().unwrap(), network.authority_control(0).unwrap()];
    for mut control in relays.into_iter().chain(others) {
        let config = control.get_info("config-text").unwrap();
        for option in ["TestingEnableCellStatsEvent 0", "TestingEnableConnBwEvent 0"] {
            assert!(config.lines().any(|line| line == option), "{config} lacks {option}");
        }
    }
    assert!(network.tor_version().unwrap().starts_with("0.4."));
}

#[test]
fn streams_go_over_the_circuit_they_ask_for() {
    let _choice = CHOICE.read();
    let lab = lab();
    let circuits = [["guard", "middle", "exit"], ["middle", "guard", "exit"]];
    let circuits = circuits.map(|path| circuit(lab, &path));
    let mut echoes = circuits.map(|circuit| {
        let target = Target::Addr(lab.server.addr());
        let isolation = circuit.isolation();
        let stream = socks::connect(lab.network.socks(), &target, Some(&isolation), TIMEOUT);
        Echo::new(stream.unwrap(), TIMEOUT).unwrap()
    });
    for echo in &mut echoes {
        echo.round_trip(b"over there and back").unwrap();
    }
    let status = lab.network.control().unwrap().get_info("stream-status").unwrap();
    for circuit in circuits {
        let place = format!(" SUCCEEDED {circuit} {}", lab.server.addr());
        assert_eq!(status.matches(&place).count(), 1, "{status}");
    }
}

#[test]
fn content_survives_both_ways_on_eight_circuits_at_once() {
    let _choice = CHOICE.read();
    let lab = lab();
    thread::scope(|scope| {
        for seed in 0..8 {
            scope.spawn(move || {
                let circuit = circuit(lab, &["guard", "middle", "exit"]);
                let content = Content { seed, len: 300_000 };
                assert!(fetch(lab, Some(circuit), content).unwrap().sha256_ok);
                let target = Target::Addr(lab.server.addr());
                let isolation = circuit.isolation();
                let stream = socks::connect(lab.network.socks(), &target, Some(&isolation), TIMEOUT);
                let sha256 = content.sha256();
                let sent = traffic::upload(stream.unwrap(), content, sha256, Instant::now(), TIMEOUT);
                assert!(sent.unwrap().sha256_ok);
            });
        }
    });
}

#[test]
fn the_client_builds_over_chosen_relays() {
    let _choice = CHOICE.write();
    let lab = lab();
    let mut control = lab.network.control().unwrap();
    control.choose_relays("guard", "middle", "exit").unwrap();
    let transfer = fetch(lab, None, Content { seed: 1, len: 10_000 }).unwrap();
    assert!(transfer.sha256_ok);
    let wanted = lab.network.path(&["guard", "middle", "exit"]).unwrap();
    let circuits = control.circuits().unwrap();
    assert!(circuits.iter().any(|c| c.path == wanted && c.status == "BUILT"), "{circuits:?}");
    control.choose_any_relays().unwrap();
}

#[test]
fn a_killed_relay_ends_its_circuits_and_comes_back_as_itself() {
    let _choice = CHOICE.read();
    let lab = lab();
    let doomed = circuit(lab, &["guard", "victim", "exit"]);
    let mut control = lab.network.control().unwrap();
    control.subscribe(&["CIRC"]).unwrap();
    lab.network.relay("victim").unwrap().kill();
    control.wait_closed(doomed, TIMEOUT).unwrap();
    assert!(fetch(lab, Some(doomed), Content { seed: 1, len: 1 }).is_err());

    lab.network.relay("victim").unwrap().restart().unwrap();
    // Once the control socket answers, the ORPort listens. The guard may remember for a minute that it
    // could not connect, so another relay leads the way.
    lab.network.relay("victim").unwrap().control().unwrap();
    // Its identity is the old one, or this path would lead to nobody.
    let path = lab.network.path(&["middle", "victim", "exit"]).unwrap();
    let again = control.build_circuit(&path, TIMEOUT).unwrap();
    assert!(fetch(lab, Some(again), Content { seed: 2, len: 1000 }).unwrap().sha256_ok);
}
