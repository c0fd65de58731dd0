//! Who dials whom, and that one channel between two relays serves both.

use heddle_lab::machine::sockets;
use heddle_lab::traffic::Content;

use super::house;
use super::support::TIMEOUT;

/// The connections between two relays that the first one opened.
fn opened(from: &str, to: &str) -> usize {
    let network = &house().lab.network;
    let (from, to) = (network.relay(from).unwrap(), network.relay(to).unwrap());
    let theirs = sockets::connections(to.pid()).unwrap();
    let ours = sockets::connections(from.pid()).unwrap();
    let both_have = |ours: &&sockets::Connection| {
        theirs.iter().any(|theirs| theirs.local == ours.remote && theirs.remote == ours.local)
    };
    ours.iter().filter(both_have).filter(|ours| ours.remote.port() == to.or_port()).count()
}

/// A circuit that makes `from` open a channel to `to`, and one that comes back over it.
fn there_and_back(from: &str, to: &str) {
    let lab = &house().lab;
    assert_eq!((opened(from, to), opened(to, from)), (0, 0), "{from} and {to} were connected before");
    let there = lab.circuit(&["stockguard", from, to]);
    assert_eq!((opened(from, to), opened(to, from)), (1, 0), "{from} is to open a channel to {to}");
    let back = lab.circuit(&["stockguard", to, from]);
    assert_eq!((opened(from, to), opened(to, from)), (1, 0), "{to} is to use the channel {from} opened");
    for circuit in [there, back] {
        lab.both_ways(circuit, Content { seed: 4, len: 500_000 });
    }
    lab.close(there);
    // The channel outlives the first of its circuits.
    lab.both_ways(back, Content { seed: 5, len: 100_000 });
    lab.close(back);
    lab.check();
}

#[test]
fn heddle_dials_stock_and_stock_comes_back() {
    there_and_back("heddleone", "stockone");
}

#[test]
fn stock_dials_heddle_and_heddle_comes_back() {
    there_and_back("stocktwo", "heddletwo");
}

#[test]
fn heddle_dials_heddle_and_comes_back() {
    there_and_back("heddleone", "heddletwo");
}

#[test]
fn many_circuits_that_need_one_channel_open_one() {
    let lab = &house().lab;
    let path = lab.network.path(&["stockguard", "heddletwo", "stockone"]).unwrap();
    let mut control = lab.network.control().unwrap();
    control.subscribe(&["CIRC"]).unwrap();
    let launched: Vec<_> = (0..10).map(|_| control.launch_circuit(&path).unwrap()).collect();
    let mut waiting = launched.clone();
    while !waiting.is_empty() {
        let event = control.next_event(TIMEOUT).unwrap();
        let event = event.unwrap_or_else(|| panic!("circuits {waiting:?} are not built"));
        waiting.retain(|circuit| !event.text.starts_with(&format!("{circuit} BUILT ")));
    }
    assert_eq!(opened("heddletwo", "stockone"), 1);
    launched.into_iter().for_each(|circuit| lab.close(circuit));
    lab.check();
}
