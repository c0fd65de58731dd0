//! Stock and Heddle relays in every arrangement, with the flow control that stock clients ask for:
//! congestion control (proposal 324). The Heddle relays have one shard each
//! and speak all transports.

mod esp;
mod flooded;
mod quic;
mod stopped;
#[path = "../support/mod.rs"]
mod support;

use std::sync::{OnceLock, RwLock};
use std::thread;

use heddle_lab::testnet::NetworkOptions;
use heddle_lab::traffic::Content;
use support::{Lab, TIMEOUT, six_relays};

fn lab() -> &'static Lab {
    static LAB: OnceLock<Lab> = OnceLock::new();
    LAB.get_or_init(|| {
        let lines =
            ["HeddleShards 1", "HeddleTransports quic,tcp-dtls,quic-per-circuit,tcp-esp,sctp-dtls,tls"];
        let relays = [six_relays(&lines), quic::middles()].concat();
        let lab = Lab::start(NetworkOptions { relays, ..NetworkOptions::default() });
        stopped::begin();
        lab
    })
}

/// Choosing the client's relays closes circuits that nobody uses yet, others' too: whoever does it
/// waits until it is alone.
static CHOICE: RwLock<()> = RwLock::new(());

#[test]
fn files_survive_every_arrangement() {
    let (lab, _shared) = (lab(), CHOICE.read().unwrap());
    support::every_arrangement(lab, Content { seed: 20, len: 20_000_000 });
}

#[test]
fn eight_circuits_carry_files_at_once() {
    let (lab, _shared) = (lab(), CHOICE.read().unwrap());
    support::eight_circuits_at_once(lab, 3_000_000);
}

#[test]
fn hundreds_of_streams_open_and_close() {
    let (lab, _shared) = (lab(), CHOICE.read().unwrap());
    let circuit = lab.first_circuit(&["heddleguard", "heddlemiddle", "heddleexit"]);
    thread::scope(|scope| {
        for worker in 0..4 {
            scope.spawn(move || {
                for fetch in 0..100 {
                    let content = Content { seed: worker, len: fetch * 37 };
                    assert!(lab.download(Some(circuit), content).unwrap().sha256_ok);
                }
            });
        }
    });
    lab.close(circuit);
    lab.check();
}

#[test]
fn many_streams_share_a_circuit_at_once() {
    let (lab, _shared) = (lab(), CHOICE.read().unwrap());
    let circuit = lab.first_circuit(&["stockguard", "heddlemiddle", "heddleexit"]);
    let mut echoes: Vec<_> = (0..200).map(|_| lab.echo(circuit)).collect();
    for round in 0..3 {
        for (index, echo) in echoes.iter_mut().enumerate() {
            echo.round_trip(format!("{round} {index}").as_bytes()).unwrap();
        }
    }
    lab.close(circuit);
    lab.check();
}

#[test]
fn stalled_streams_hold_up_no_other() {
    let (lab, _shared) = (lab(), CHOICE.read().unwrap());
    support::stalled_streams_hold_up_no_other(lab, &["heddleguard", "heddlemiddle", "heddleexit"]);
}

#[test]
fn streams_end_while_the_other_side_sends() {
    let (lab, _shared) = (lab(), CHOICE.read().unwrap());
    support::half_closed_streams(lab, &["heddleguard", "stockmiddle", "heddleexit"]);
}

#[test]
fn the_client_builds_its_own_circuits_over_heddle() {
    let (lab, _alone) = (lab(), CHOICE.write().unwrap());
    let mut control = lab.network.control().unwrap();
    for path in [["stockguard", "heddlemiddle", "heddleexit"], ["stockguard", "heddlemiddle", "stockexit"]] {
        control.choose_relays(path[0], path[1], path[2]).unwrap();
        let content = Content { seed: 2, len: 1_000_000 };
        assert!(lab.download(None, content).unwrap().sha256_ok);
        assert!(lab.upload(None, content).unwrap().sha256_ok);
        let wanted = lab.network.path(&path).unwrap();
        let circuits = control.circuits().unwrap();
        assert!(circuits.iter().any(|c| c.path == wanted && c.status == "BUILT"), "{circuits:?}");
    }
    control.choose_any_relays().unwrap();
    lab.check();
}

#[test]
fn a_circuit_that_cannot_be_is_refused_alone() {
    let (lab, _shared) = (lab(), CHOICE.read().unwrap());
    let bystander = lab.first_circuit(&["heddleguard", "heddlemiddle", "heddleexit"]);
    // A relay twice in a row would be a circuit from a relay to itself.
    let path = lab.network.path(&["heddleguard", "heddlemiddle", "heddlemiddle"]).unwrap();
    assert!(lab.network.control().unwrap().build_circuit(&path, TIMEOUT).is_err());
    lab.both_ways(bystander, Content { seed: 3, len: 100_000 });
    lab.close(bystander);
}
