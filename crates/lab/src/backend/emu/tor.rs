//! A private Tor network on the hosts of an emulation, and the servers of traffic.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use heddle_net::tcp_diag::{self, TcpConnection};

use super::circuits::{self, Open};
use crate::backend::{Built, Circuit, CircuitOrder, OPEN_MAX, Placed, Reached, Role, ServerKind};
use crate::control::Attacher;
use crate::emulator::Emulation;
use crate::error::{Error, Result};
use crate::metrics::Metrics;
use crate::socks::Isolation;
use crate::testnet::{Network, NetworkOptions, Places, Program, Relay, RelayOptions};
use crate::traffic::Server;

/// How long the network may take to come up.
const STARTUP_MAX: Duration = Duration::from_secs(180);
/// Where a Heddle relay tells its metrics, on the loopback of its own host.
const METRICS_PORT: u16 = 9035;
/// How long a relay may take to tell them.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Circuits that an experiment uses must not grow too old for new streams meanwhile.
const CLIENT_TORRC: &str = "MaxCircuitDirtiness 2 hours";

/// Servers by their host and kind.
type Servers = BTreeMap<(String, ServerKind), Arc<Server>>;

/// The processes of a private Tor network, and servers. Streams end before what keeps their circuits does, and that
/// before the network: fields are dropped in this order.
#[derive(Debug, Default)]
pub(super) struct TorProcesses {
    servers: Servers,
    /// What puts each client's streams on its circuits, for as long as they live.
    _attachers: Vec<Attacher>,
    circuits: Vec<Open>,
    network: Option<Network>,
    /// The hosts of the network's clients, in their order.
    client_hosts: Vec<String>,
}

/// A circuit and the network that it is in.
pub(super) struct CircuitIn<'a> {
    open: &'a Open,
    network: &'a Network,
}

impl TorProcesses {
    /// Starts what was placed, and waits until circuits over every relay are possible.
    pub(super) fn start(
        placed: &[Placed],
        emulation: &Emulation,
        heddle: &Path,
        on_step: &mut dyn FnMut(&str),
    ) -> Result<TorProcesses> {
        let servers = placed.iter().filter_map(|placed| match &placed.role {
            Role::Server(kind) => Some((&placed.host, kind)),
            _ => None,
        });
        let servers: Vec<_> = servers.collect();
        let (options, client_hosts) = options(placed, heddle);
        let network = match options.relays.is_empty() {
            true => None,
            false => {
                let places = OnHosts { emulation, placed, client_hosts: &client_hosts };
                Some(Network::start_at(&options, &places, &mut |progress| on_step(progress.step))?)
            }
        };
        let servers = servers.into_iter().map(|(host, kind)| {
            Ok(((host.clone(), kind.clone()), Arc::new(start_server(emulation, host, kind)?)))
        });
        let servers: Servers = servers.collect::<Result<_>>()?;
        let sockets = network.as_ref().map(circuits::control_sockets).unwrap_or_default();
        let attachers = sockets.iter().map(|socket| Attacher::start(socket, OPEN_MAX));
        let attachers = attachers.collect::<Result<Vec<_>>>()?;
        Ok(TorProcesses { servers, _attachers: attachers, circuits: Vec::new(), network, client_hosts })
    }

    fn network(&self) -> Result<&Network> {
        self.network.as_ref().ok_or_else(|| Error::Options("there is no Tor network".into()))
    }

    /// The relay on a host.
    pub(super) fn relay(&self, host: &str) -> Result<&Relay> {
        self.network()?.relay(host)
    }

    /// What a Heddle relay tells of itself; `None` of a stock one.
    pub(super) fn metrics(&self, host: &str, emulation: &Emulation) -> Result<Option<Metrics>> {
        if self.relay(host)?.program() == Program::Stock {
            return Ok(None);
        }
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, METRICS_PORT));
        emulation.inside(host, || Metrics::scrape(addr, ANSWER_MAX))?.map(Some)
    }

    /// The TCP connections of a relay to other relays, with their hosts.
    pub(super) fn connections(
        &self,
        host: &str,
        emulation: &Emulation,
    ) -> Result<Vec<(String, TcpConnection)>> {
        let reading = Error::io(format!("reading the connections of {host}"));
        let all = emulation.inside(host, tcp_diag::established)?.map_err(reading)?;
        let relays: Vec<&str> = self.network()?.relays().iter().map(Relay::nickname).collect();
        let with_peer = |connection: TcpConnection| {
            let is_at = |relay: &&&str| {
                emulation.addresses(relay).is_some_and(|there| there.contains(&connection.peer.ip()))
            };
            let peer = relays.iter().filter(|relay| **relay != host).find(is_at)?;
            Some(((*peer).to_owned(), connection))
        };
        Ok(all.into_iter().filter_map(with_peer).collect())
    }

    /// Builds circuits, several at a time.
    pub(super) fn build_circuits(&mut self, wanted: &[CircuitOrder<'_>]) -> Result<Vec<Built>> {
        let places = wanted.iter().map(|order| {
            let place = self.client_hosts.iter().position(|host| host == order.proxy);
            let missing = || Error::Options(format!("{} has no onion proxy", order.proxy));
            Ok((place.ok_or_else(missing)?, order.path))
        });
        let built = circuits::build(self.network()?, &places.collect::<Result<Vec<_>>>()?)?;
        let keep = |(open, took)| {
            self.circuits.push(open);
            Built { circuit: Circuit(self.circuits.len() - 1), took }
        };
        Ok(built.into_iter().map(keep).collect())
    }

    /// A circuit that was built.
    pub(super) fn circuit(&self, circuit: Circuit) -> Result<CircuitIn<'_>> {
        let open = self.circuits.get(circuit.0);
        let missing = || Error::Options("there is no such circuit".into());
        Ok(CircuitIn { open: open.ok_or_else(missing)?, network: self.network()? })
    }

    /// A server.
    pub(super) fn server(&self, host: &str, kind: &ServerKind) -> Result<Arc<Server>> {
        let found = self.servers.get(&(host.to_owned(), kind.clone()));
        found.cloned().ok_or_else(|| Error::Options(format!("{host} has no server")))
    }

    /// Fails when a process has ended by itself.
    pub(super) fn check(&self) -> Result<()> {
        self.network.as_ref().map_or(Ok(()), Network::check)
    }
}

impl CircuitIn<'_> {
    /// The SOCKS port of its onion proxy, and what puts a stream on it there.
    pub(super) fn entrance(&self) -> Result<(SocketAddr, Isolation)> {
        Ok((self.open.client(self.network)?.socks(), self.open.isolation()))
    }

    /// Whether it is there still.
    pub(super) fn is_open(&self) -> Result<bool> {
        self.open.is_open(self.network)
    }

    /// Closes it.
    pub(super) fn close(&self) -> Result<()> {
        self.open.close(self.network)
    }
}

fn start_server(emulation: &Emulation, host: &str, kind: &ServerKind) -> Result<Server> {
    let address = match kind.reached {
        Reached::FromAnywhere => address(emulation, host)?,
        Reached::FromItsHost => Ipv4Addr::LOCALHOST.into(),
    };
    let congestion_control = kind.congestion_control.as_deref();
    emulation.inside(host, || Server::start_sending_by(congestion_control, SocketAddr::new(address, 0)))?
}

fn address(emulation: &Emulation, host: &str) -> Result<IpAddr> {
    let addresses = emulation.addresses(host).unwrap_or_default();
    addresses.first().copied().ok_or_else(|| Error::Options(format!("{host} has no address")))
}

/// The private network that was placed, and the hosts of its clients.
fn options(placed: &[Placed], heddle: &Path) -> (NetworkOptions, Vec<String>) {
    let mut options = NetworkOptions {
        heddle: Some(heddle.to_owned()),
        startup_timeout: STARTUP_MAX,
        client_torrc: vec![CLIENT_TORRC.to_owned()],
        ..NetworkOptions::default()
    };
    let mut client_hosts = Vec::new();
    for Placed { host, role } in placed {
        match role {
            Role::Authorities { torrc } => options.authority_torrc.clone_from(torrc),
            Role::Relay { program, exit, torrc } => {
                let metrics = (*program == Program::Heddle).then(metrics_torrc).into_iter().flatten();
                let torrc = metrics.chain(torrc.iter().cloned()).collect();
                options.relays.push(RelayOptions {
                    nickname: host.clone(),
                    program: *program,
                    exit: *exit,
                    torrc,
                });
            }
            Role::OnionProxy { torrc } => {
                // They are all alike.
                options.client_torrc =
                    [CLIENT_TORRC.to_owned()].into_iter().chain(torrc.iter().cloned()).collect();
                client_hosts.push(host.clone());
            }
            Role::Server(_) => {}
        }
    }
    options.clients = client_hosts.len();
    (options, client_hosts)
}

/// Lines for the torrc of a Heddle relay by which it tells its metrics.
fn metrics_torrc() -> [String; 2] {
    [format!("MetricsPort 127.0.0.1:{METRICS_PORT}"), "MetricsPortPolicy accept 127.0.0.1".to_owned()]
}

/// The nodes of a network on the hosts of an emulation.
#[derive(Debug)]
struct OnHosts<'a> {
    emulation: &'a Emulation,
    placed: &'a [Placed],
    client_hosts: &'a [String],
}

impl OnHosts<'_> {
    /// The host of a node. A network calls its clients `client`, `client1` and so on, and its authorities `auth0` and
    /// so on; relays have the names of their hosts.
    fn host<'b>(&'b self, nickname: &'b str) -> Result<&'b str> {
        let is_relay =
            |placed: &&Placed| placed.host == nickname && matches!(placed.role, Role::Relay { .. });
        if self.placed.iter().any(|placed| is_relay(&placed)) {
            return Ok(nickname);
        }
        let number = nickname.strip_prefix("client").and_then(|number| match number {
            "" => Some(0),
            number => number.parse::<usize>().ok(),
        });
        if let Some(host) = number.and_then(|number| self.client_hosts.get(number)) {
            return Ok(host);
        }
        let authorities = self.placed.iter().find(|placed| matches!(placed.role, Role::Authorities { .. }));
        let missing = || Error::Options(format!("{nickname} has no host"));
        authorities.map(|placed| &*placed.host).ok_or_else(missing)
    }
}

impl Places for OnHosts<'_> {
    fn address(&self, nickname: &str) -> Result<IpAddr> {
        address(self.emulation, self.host(nickname)?)
    }

    fn enter(&self, nickname: &str, command: &mut Command) -> Result<()> {
        self.emulation.enter(self.host(nickname)?, command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_placed_becomes_a_network() {
        let place = |host: &str, role: Role| Placed { host: host.to_owned(), role };
        let relay = |program, exit| Role::Relay { program, exit, torrc: vec!["Log debug stdout".to_owned()] };
        let placed = [
            place("authorities", Role::Authorities { torrc: vec!["ConsensusParams cc_alg=0".to_owned()] }),
            place("guard", relay(Program::Heddle, false)),
            place("exit", relay(Program::Stock, true)),
            place("web", Role::OnionProxy { torrc: vec!["ConfluxEnabled 0".to_owned()] }),
            place("exit", Role::Server(Reached::FromItsHost.into())),
        ];
        let (options, client_hosts) = options(&placed, Path::new("heddle"));
        assert_eq!((options.clients, &*client_hosts), (1, &["web".to_owned()][..]));
        let relays: Vec<_> =
            options.relays.iter().map(|relay| (&*relay.nickname, relay.program, relay.exit)).collect();
        assert_eq!(relays, [("guard", Program::Heddle, false), ("exit", Program::Stock, true)]);
        let metrics =
            ["MetricsPort 127.0.0.1:9035", "MetricsPortPolicy accept 127.0.0.1", "Log debug stdout"];
        assert_eq!(options.relays[0].torrc, metrics);
        assert_eq!(options.relays[1].torrc, ["Log debug stdout"]);
        assert_eq!(options.client_torrc, [CLIENT_TORRC, "ConfluxEnabled 0"]);
        assert_eq!(options.authority_torrc, ["ConsensusParams cc_alg=0"]);
    }
}
