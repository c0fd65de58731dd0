//! A network of stock Tor alone: what the lab promises about any network, without Heddle in it.

use std::time::{Duration, Instant};

use heddle_lab::testnet::{Network, NetworkOptions, RelayOptions};

#[test]
fn up() {
    let options = NetworkOptions {
        relays: vec![
            RelayOptions::stock("guard"),
            RelayOptions::stock("middle"),
            RelayOptions::stock("exit").exit(),
        ],
        ..NetworkOptions::default()
    };
    let network = Network::start(&options, &mut |p| eprintln!("{:?}", p)).unwrap();
    let mut control = network.control().unwrap();
    let start = Instant::now();
    let path = network.path(&["guard", "middle", "exit"]).unwrap();
    let id = control
        .build_circuit(&path, Duration::from_secs(20))
        .unwrap();
    eprintln!("{id} {:?}", start.elapsed());
    eprintln!("{:?}", control.circuits().unwrap());
    for r in network.relays() {
        eprintln!(
            "{:?}",
            r.control().unwrap().get_info("status/bootstrap-phase")
        );
    }
    eprintln!("{:#?}", network.protocol_warnings());
    eprintln!("{:#?}", network.consensus(0));
}
