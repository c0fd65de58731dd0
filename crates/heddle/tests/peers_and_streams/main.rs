//! Channels between stock and Heddle relays in both roles, what streams meet at a Heddle exit, and
//! hostile peers, all in one network.

#[path = "../../../transport/tests/support/anybody.rs"]
mod anybody;
mod channels;
mod handshakes;
mod hostile;
mod name_server;
mod streams;
#[path = "../support/mod.rs"]
mod support;

use std::sync::OnceLock;

use heddle_lab::machine::scratch::Scratch;
use heddle_lab::testnet::{NetworkOptions, RelayOptions};
use name_server::NameServer;
use support::Lab;

/// The network, and the name server that its exits ask.
struct House {
    lab: Lab,
    name_server: Option<NameServer>,
    _scratch: Scratch,
}

/// Relays that only the tests of channels and of handshakes use; the client leaves them out of its own circuits.
const QUIET: [&str; 5] = ["heddleone", "heddletwo", "heddleflooded", "stockone", "stocktwo"];

fn house() -> &'static House {
    static HOUSE: OnceLock<House> = OnceLock::new();
    HOUSE.get_or_init(|| {
        let scratch = Scratch::new().unwrap();
        let name_server = NameServer::start();
        let mut exit = RelayOptions::heddle("heddleexit").exit().line("IPv6Exit 1");
        // One port is closed to everybody.
        exit = exit.line("ExitPolicy reject *:79");
        let name_servers = name_server.as_ref().map(|server| {
            let resolv_conf = scratch.path().join("resolv.conf");
            std::fs::write(&resolv_conf, format!("nameserver {}\n", server.address())).unwrap();
            format!("ServerDNSResolvConfFile {}", resolv_conf.display())
        });
        let asks = |relay: RelayOptions| match &name_servers {
            Some(line) => relay.line(line),
            None => relay,
        };
        exit = asks(exit);
        let mut relays = vec![RelayOptions::stock("stockguard"), RelayOptions::heddle("heddlemiddle"), exit];
        relays.extend(QUIET.map(|name| match name.starts_with("heddle") {
            true => RelayOptions::heddle(name).exit(),
            false => asks(RelayOptions::stock(name).exit()),
        }));
        let client_torrc = vec![format!("ExcludeNodes {}", QUIET.join(","))];
        let lab = Lab::start(NetworkOptions { relays, client_torrc, ..NetworkOptions::default() });
        House { lab, name_server, _scratch: scratch }
    })
}
