//! The hosts of the demo, and which process is on which.

use std::fs;
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use heddle_netem::{InterfaceOptions, WireOptions};
use toml::Spanned;

use super::{DemoOptions, Position, Wires};
use crate::emulator::{Emulation, NetworkOptions};
use crate::error::{Error, Result};
use crate::figures::Labels;
use crate::plan::{Client, Relay, Tor, Traffic, WireGroup};
use crate::testnet::{Places, RelayOptions};

/// The network that the demo has unless the options name another.
const DEFAULT: &str = include_str!("network.toml");
/// The host of the browsing client.
pub(super) const WEB: &str = "web";
/// The host of the bulk client.
pub(super) const BULK: &str = "bulk";
/// The host of the server.
pub(super) const SERVER: &str = "server";
/// The least share of UDP in what the middle relay of an arm of Heddle relays alone hears, in percent: all of its
/// neighbours are pairs, and what is left is directories' and the channels that pairs keep.
pub(super) const UDP_PCT_MIN: f64 = 99.0;
/// The host of all authorities.
const AUTHORITIES: &str = "authorities";

fn read(options: &DemoOptions) -> Result<NetworkOptions> {
    match &options.network {
        Some(path) => NetworkOptions::read(path),
        None => NetworkOptions::parse(DEFAULT),
    }
}

/// Hosts and wires as a plan would have them, for the drawing of the network. A plan has nothing before clients' wires,
/// so what a client's host sends and receives over stands at its wire.
pub(super) fn described(options: &DemoOptions) -> Result<Tor> {
    let network = read(options)?;
    let host = |name: &str| network.hosts.iter().find(|host| host.name == name);
    let mut tor: Tor = toml::from_str("relay = []").expect("all else has a default");
    tor.server = Some(SERVER.to_owned());
    tor.default_wire = network.default_wire.clone().unwrap_or_default();
    for name in Position::ALL.map(Position::name) {
        let (up, down) = host(name).map(|host| (host.up.clone(), host.down.clone())).unwrap_or_default();
        tor.relays.push(spanned(Relay { name: name.to_owned(), up, down, ..Relay::default() }));
    }
    let file_bytes = options.download_bytes.unwrap_or_else(|| Wires::Emulated.download_bytes());
    for (name, bytes) in [(WEB, options.page_bytes), (BULK, file_bytes)] {
        let program = Traffic::Fetch { size: [bytes; 2], pause: [Duration::ZERO; 2] };
        let path = Position::ALL.map(|position| position.name().to_owned()).to_vec();
        let client = Client {
            name: name.to_owned(),
            count: None,
            share: None,
            place: None,
            path,
            up: InterfaceOptions::default(),
            down: InterfaceOptions::default(),
            circuits: 1,
            program,
            labels: Labels::new(),
        };
        tor.clients.push(spanned(client));
    }
    let mut groups: Vec<WireGroup> = Vec::new();
    for WireOptions { from, to, there, back } in network.wires {
        let (mut there, mut back) = (there.clone(), Some(back.unwrap_or(there)));
        let client = network.hosts.iter().find(|host| host.name == from && (from == WEB || from == BULK));
        if let (Some(client), Some(back)) = (client, &mut back) {
            (there.rate, there.queue) = (client.up.rate, client.up.queue.clone());
            (back.rate, back.queue) = (client.down.rate, client.down.queue.clone());
        }
        let alike = groups.iter_mut().find(|group| (&group.there, &group.back) == (&there, &back));
        let name = if client.is_some() { "clients".to_owned() } else { String::new() };
        match alike {
            Some(group) => group.between.push([from, to]),
            None => {
                groups.push(WireGroup { name, between: vec![[from, to]], there, back, labels: Labels::new() })
            }
        }
    }
    tor.wires = groups.into_iter().map(spanned).collect();
    Ok(tor)
}

fn spanned<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

/// Hosts and wires with a copy of `guard`, `middle` and `exit` for each relay.
pub(super) fn hosts(options: &DemoOptions) -> Result<NetworkOptions> {
    let described = read(options)?;
    for name in [WEB, BULK, SERVER, AUTHORITIES].into_iter().chain(Position::ALL.map(Position::name)) {
        let host = described.hosts.iter().find(|host| host.name == name);
        let host = host.ok_or_else(|| Error::Options(format!("the demo's network needs a host {name:?}")))?;
        if Position::ALL.iter().any(|position| position.name() == name) && !host.addresses.is_empty() {
            return Err(Error::Options(format!("the host {name:?} is copied and cannot have addresses")));
        }
    }
    let relays = options.relays();
    let copies = |name: &str| copies(name, &relays);
    let mut network = NetworkOptions { hosts: Vec::new(), wires: Vec::new(), ..described.clone() };
    for host in &described.hosts {
        for name in copies(&host.name) {
            let mut host = host.clone();
            host.name = name;
            network.hosts.push(host);
        }
    }
    for wire in &described.wires {
        for from in copies(&wire.from) {
            let wires =
                copies(&wire.to).into_iter().map(|to| WireOptions { from: from.clone(), to, ..wire.clone() });
            network.wires.extend(wires);
        }
    }
    Ok(network)
}

/// The hosts that are made of a described one.
fn copies(name: &str, relays: &[RelayOptions]) -> Vec<String> {
    if Position::ALL.iter().all(|position| position.name() != name) {
        return vec![name.to_owned()];
    }
    let nicknames = relays.iter().map(|relay| &relay.nickname);
    nicknames.filter(|nickname| nickname.ends_with(name)).cloned().collect()
}

/// The processes of a Tor network on the hosts of an emulation.
#[derive(Debug)]
pub(super) struct Placed<'a>(pub(super) &'a Emulation);

/// The host of a node; relays' hosts are called like them.
fn host(nickname: &str) -> &str {
    match nickname {
        "client" => WEB,
        "client1" => BULK,
        _ if nickname.starts_with("auth") => AUTHORITIES,
        relay => relay,
    }
}

impl Places for Placed<'_> {
    fn address(&self, nickname: &str) -> Result<IpAddr> {
        address(self.0, host(nickname))
    }

    fn enter(&self, nickname: &str, command: &mut Command) -> Result<()> {
        self.0.enter(host(nickname), command)
    }
}

/// The first address of a host.
pub(super) fn address(emulation: &Emulation, host: &str) -> Result<IpAddr> {
    let addresses = emulation.addresses(host).unwrap_or_default();
    addresses.first().copied().ok_or_else(|| Error::Options(format!("there is no host {host:?}")))
}

/// TCP segments and UDP datagrams that a host has received so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    tcp: u64,
    udp: u64,
}

impl Received {
    /// Reads the counters of a host.
    pub(super) fn by(emulation: &Emulation, host: &str) -> Result<Received> {
        // The thread's, not the process': only the thread is in the host.
        let text = emulation.inside(host, || fs::read_to_string("/proc/thread-self/net/snmp"))?;
        let text = text.map_err(Error::io(format!("reading the counts of {host}")))?;
        let missing = || Error::Malformed { by: "the kernel", sent: "no counts of TCP and UDP".to_owned() };
        Received::parse(&text).ok_or_else(missing)
    }

    /// Reads `/proc/net/snmp`: for each protocol a line with names and one with values.
    fn parse(snmp: &str) -> Option<Received> {
        let value = |protocol: &str, name: &str| {
            let mut lines = snmp.lines().filter_map(|line| line.strip_prefix(protocol));
            let (names, values) = (lines.next()?, lines.next()?);
            let place = names.split_ascii_whitespace().position(|other| other == name)?;
            values.split_ascii_whitespace().nth(place)?.parse().ok()
        };
        Some(Received { tcp: value("Tcp:", "InSegs")?, udp: value("Udp:", "InDatagrams")? })
    }

    /// The share of UDP in what was received since an earlier reading, in percent; `None` when that is nothing.
    pub(super) fn udp_pct_since(self, before: Received) -> Option<f64> {
        let (tcp, udp) = (self.tcp - before.tcp, self.udp - before.udp);
        (tcp + udp > 0).then(|| 100.0 * udp as f64 / (tcp + udp) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read() {
        let snmp =
            "Tcp: RtoMin InSegs\nTcp: 200 70\nUdp: InDatagrams NoPorts\nUdp: 30 1\nUdpLite: InDatagrams\n";
        let now = Received::parse(snmp).unwrap();
        assert_eq!(now, Received { tcp: 70, udp: 30 });
        assert_eq!(now.udp_pct_since(Received::default()), Some(30.0));
        assert_eq!(now.udp_pct_since(now), None);
        assert_eq!(Received::parse("Tcp: InSegs\n"), None);
    }
}
