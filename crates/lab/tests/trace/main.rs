//! Traces of networks in virtual time: what is in them, that they are the same again, and that nothing depends on them.

mod capture;
mod circuits;
mod plans;
mod wires;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use heddle_lab::trace::{Trace, TraceOptions};
use heddle_network::{Net, Plan, download};
use heddle_relay::Relay;
use heddle_sim::{TraceHash, Wire};
use heddle_transport::registry;

/// What the hosts of [`net`] are called, in their order.
const NAMES: [&str; 5] = ["relay0", "relay1", "relay2", "server", "client"];
const BYTES: u64 = 150_000;

/// All of it, into this directory.
fn everything(dir: &Path) -> TraceOptions {
    TraceOptions {
        dir: dir.to_owned(),
        wires: Vec::new(),
        headers_only: false,
        circuits: Vec::new(),
        bytes_max: u64::MAX,
    }
}

/// A circuit over three relays, of which two are a pair, on wires that lose packets: it carries a file while datagrams
/// between the two are blocked for a second, and is closed. Returns the hash of all that happened.
fn a_circuit(trace: Option<&Trace>) -> TraceHash {
    let wire = Wire { loss_ppm: 20_000, ..Wire::default() };
    let quic = registry::named("quic").unwrap();
    let mut net = Net::new(&Plan { seed: 5, wire, ..Plan::default() }.speaking(quic, &[0, 1]));
    if let Some(trace) = trace {
        let mut logs = trace.attach(&mut net.sim, &NAMES.map(str::to_owned)).unwrap().unwrap();
        for relay in &net.relays {
            let log = logs(relay.host, 0);
            net.sim.equip(relay.host, 0, |relay: &mut Relay| relay.follow_circuits(log));
        }
    }
    // A first circuit has the relays find each other.
    let first = net.build(&[0, 1], false);
    net.sim.run_for(Duration::from_secs(5));
    net.proxy(|proxy| proxy.close_circuit(first));
    let circuit = net.build(&[0, 1, 2], true);
    let exchange = net.begin(circuit, download(BYTES));
    let (a, b) = (net.relays[0].host, net.relays[1].host);
    net.await_status(exchange, Duration::from_secs(60), |status| status.received_bytes > BYTES / 3);
    net.sim.block_datagrams(a, b, true);
    net.sim.run_for(Duration::from_secs(1));
    net.sim.block_datagrams(a, b, false);
    net.await_status(exchange, Duration::from_secs(60), |status| status.received_bytes == BYTES);
    net.proxy(|proxy| proxy.close_circuit(circuit));
    net.sim.run_for(Duration::from_secs(3));
    net.sim.trace_hash()
}

/// The files of a directory, by name.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}
