//! Each flow control of our exits with stock clients and with our proxy, and of our proxy with stock exits.

use std::thread;

use heddle_lab::testnet::RelayOptions;
use heddle_lab::traffic::Content;

use super::running::Proxy;
use super::{both_ways, lab};

/// The flow controls beside the default.
const CHOICES: [&str; 4] = ["fixed-1000", "fixed-100", "dynamic", "vegas"];

fn nickname(choice: &str) -> String {
    format!("exit{}", choice.replace('-', ""))
}

/// A Heddle exit for each flow control.
pub fn exits() -> Vec<RelayOptions> {
    let exit = |choice: &str| {
        let relay = RelayOptions::heddle(&nickname(choice)).exit().line("HeddleShards 1");
        relay.line(&format!("HeddleFlowControl {choice}"))
    };
    CHOICES.map(exit).into()
}

/// A stock client asks each for congestion control, and takes windows where that is refused. It counts its own windows
/// and SENDMEs, and would end a circuit whose exit sends more.
#[test]
fn stock_clients_take_what_our_exits_choose() {
    let lab = lab();
    thread::scope(|scope| {
        for choice in CHOICES {
            scope.spawn(move || {
                let circuit = lab.circuit(&["stockguard", "heddlemiddle", &nickname(choice)]);
                lab.both_ways(circuit, Content { seed: 40, len: 5_000_000 });
                lab.close(circuit);
            });
        }
    });
    lab.check();
}

/// The proxy's choice with a stock exit and with a Heddle one that chose otherwise.
#[test]
fn the_proxy_runs_each_with_any_exit() {
    let lab = lab();
    for (choice, exit) in CHOICES.into_iter().zip(["stockexit", "exitvegas", "stockexit", "exitdynamic"]) {
        let path = format!("heddleguard,stockmiddle,{exit}");
        let proxy = Proxy::start(lab, &["--path", &path, "--flow-control", choice]);
        both_ways(&proxy, Content { seed: 41, len: 2_000_000 });
    }
    lab.check();
}
