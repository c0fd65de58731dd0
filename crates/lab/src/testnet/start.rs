//! The order in which a network comes up.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::authority::{self, Authority, Place, Stock};
use super::consensus::{self, Listing};
use super::torrc::{self, Shared};
use super::{Client, Network, NetworkOptions, Node, NodeCommand, Places, Program, Progress, Relay};
use crate::control::Control;
use crate::error::{Error, Result};
use crate::machine::ports::PortBlock;
use crate::machine::scratch::Scratch;

/// How long a network usually takes to come up, for progress only.
const EXPECTED: Duration = Duration::from_secs(20);
/// How long to wait for an event before looking whether everybody still lives.
const SLICE: Duration = Duration::from_secs(1);

/// One start under way: what it needs at every step.
struct Starting<'a> {
    options: &'a NetworkOptions,
    places: &'a dyn Places,
    on_progress: &'a mut dyn FnMut(&Progress),
    begun: Instant,
    scratch: Scratch,
    ports: PortBlock,
    stock: Stock,
    /// An empty file in place of the system's own torrc-defaults.
    no_defaults: PathBuf,
}

pub(super) fn start(
    options: &NetworkOptions,
    places: &dyn Places,
    on_progress: &mut dyn FnMut(&Progress),
) -> Result<Network> {
    options.validate()?;
    let stock = Stock::find(options.tor.as_deref())?;
    let scratch = Scratch::new()?;
    let no_defaults = scratch.path().join("no-defaults");
    fs::write(&no_defaults, "").map_err(Error::io("writing an empty torrc-defaults"))?;
    let ports = PortBlock::reserve()?;
    let begun = Instant::now();
    Starting { options, places, on_progress, begun, scratch, ports, stock, no_defaults }.run()
}

impl Starting<'_> {
    fn run(mut self) -> Result<Network> {
        self.step("making the authorities' keys");
        let authorities = self.authority_keys()?;
        let shared = Shared {
            options: self.options,
            authorities: authorities.iter().map(Authority::dir_authority_line).collect(),
            voting_offset_s: voting_offset_s(),
        };

        self.step("starting the authorities");
        let authorities = self.start_authorities(&shared, &authorities)?;
        let mut control = authorities[0].control()?;
        for authority in &authorities[1..] {
            authority.control()?;
        }

        self.step("starting the relays");
        let relays = self.start_relays(&shared)?;
        let nodes: Vec<&Node> = relays.iter().map(|(node, _)| node).chain(&authorities).collect();
        let listings = self.wait_consensus(&mut control, &nodes)?;

        self.step("starting the client");
        let client = self.start_client(&shared, "client")?;
        let more_clients = (1..self.options.clients)
            .map(|number| self.start_client(&shared, &format!("client{number}")))
            .collect::<Result<Vec<_>>>()?;
        let relays = finish(self.options, relays, &listings);
        for client in [&client].into_iter().chain(&more_clients) {
            self.wait_client(&client.node, &relays)?;
        }
        self.wait_stock_relays(&relays)?;
        Ok(Network { authorities, relays, client, more_clients, _ports: self.ports, scratch: self.scratch })
    }

    fn step(&mut self, step: &str) {
        let progress = Progress { step, elapsed: self.begun.elapsed(), expected: EXPECTED };
        (self.on_progress)(&progress);
    }

    /// Fails when the network takes too long to come up.
    fn check_time(&self, waiting_for: impl FnOnce() -> String) -> Result<()> {
        let after = self.options.startup_timeout;
        if self.begun.elapsed() <= after {
            return Ok(());
        }
        Err(Error::Deadline { waiting_for: waiting_for(), after })
    }

    fn authority_keys(&mut self) -> Result<Vec<Authority>> {
        let mut places = Vec::new();
        for index in 0..self.options.authorities {
            let nickname = format!("auth{index}");
            let dir = self.scratch.path().join(&nickname);
            let (or_port, dir_port) = (self.ports.take()?, self.ports.take()?);
            let address = self.places.address(&nickname)?;
            places.push(Place { nickname, dir, address, or_port, dir_port });
        }
        authority::make_all(&self.stock, places)
    }

    fn start_authorities(&self, shared: &Shared, authorities: &[Authority]) -> Result<Vec<Node>> {
        let start = |authority: &Authority| {
            let torrc = torrc::authority(shared, authority);
            self.start_node(&authority.nickname, Program::Stock, &authority.dir, &torrc)
        };
        authorities.iter().map(start).collect()
    }

    fn start_relays(&mut self, shared: &Shared) -> Result<Vec<(Node, u16)>> {
        let mut relays = Vec::new();
        for options in &self.options.relays {
            let dir = self.scratch.path().join(&options.nickname);
            authority::make_private_dir(&dir.join("data"))?;
            let port = self.ports.take()?;
            let stock = options.program == Program::Stock;
            let addr = SocketAddr::new(self.places.address(&options.nickname)?, port);
            let torrc = torrc::relay(shared, options, &dir, addr, stock);
            let node = self.start_node(&options.nickname, options.program, &dir, &torrc)?;
            relays.push((node, port));
        }
        Ok(relays)
    }

    fn start_client(&mut self, shared: &Shared, nickname: &str) -> Result<Client> {
        let dir = self.scratch.path().join(nickname);
        authority::make_private_dir(&dir.join("data"))?;
        let socks = SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports.take()?));
        let torrc = torrc::client(shared, &dir, socks.port());
        Ok(Client { node: self.start_node(nickname, Program::Stock, &dir, &torrc)?, socks })
    }

    fn start_node(&self, nickname: &str, program: Program, dir: &Path, torrc: &str) -> Result<Node> {
        let path = dir.join("torrc");
        fs::write(&path, torrc).map_err(Error::io(format!("writing {}", path.display())))?;
        let path = path.display().to_string();
        let command = match program {
            Program::Stock => NodeCommand {
                program: self.stock.tor.clone(),
                arguments: ["--defaults-torrc", &self.no_defaults.display().to_string(), "-f", &path]
                    .map(str::to_owned)
                    .to_vec(),
            },
            Program::Heddle => NodeCommand {
                program: self.options.heddle.clone().expect("validate() asked for it"),
                arguments: ["relay", "-f", &path].map(str::to_owned).to_vec(),
            },
        };
        let process = Mutex::new(command.start(nickname, dir, self.places)?);
        let address = self.places.address(nickname)?;
        Ok(Node { nickname: nickname.to_owned(), command, dir: dir.to_owned(), address, process })
    }

    /// Waits for a consensus that lists every relay as usable.
    fn wait_consensus(&mut self, control: &mut Control, nodes: &[&Node]) -> Result<Vec<Listing>> {
        control.subscribe(&["NEWCONSENSUS"])?;
        loop {
            let listings = consensus::listings(control)?;
            let missing: Vec<&str> = self.options.relays.iter().map(|relay| &*relay.nickname).collect();
            let missing = without_usable(missing, &listings);
            if missing.is_empty() && !listings.is_empty() {
                return Ok(listings);
            }
            let step = match listings.len() {
                0 => "waiting for the first consensus".to_owned(),
                _ => format!("waiting for a consensus with {}", missing.join(", ")),
            };
            self.step(&step);
            for node in nodes {
                node.check()?;
            }
            self.check_time(|| format!("a consensus with {}", missing.join(", ")))?;
            control.next_event(SLICE)?;
        }
    }

    /// Waits until the client has bootstrapped and knows every relay's descriptor.
    fn wait_client(&mut self, client: &Node, relays: &[Relay]) -> Result<()> {
        let mut control = client.control()?;
        control.subscribe(&["STATUS_CLIENT", "NEWDESC"])?;
        loop {
            let phase = control.get_info("status/bootstrap-phase")?;
            let bootstrapped = phase.contains("PROGRESS=100");
            let unknown = relays.iter().find(|relay| {
                control.get_info(&format!("md/id/{}", relay.fingerprint)).map_or(true, |md| md.is_empty())
            });
            if bootstrapped && unknown.is_none() {
                return Ok(());
            }
            self.step("waiting for the client to bootstrap");
            client.check()?;
            self.check_time(|| match unknown {
                Some(relay) if bootstrapped => {
                    format!("the descriptor of {} at the client", relay.nickname())
                }
                _ => format!("the client's bootstrap ({phase})"),
            })?;
            control.next_event(SLICE)?;
        }
    }

    /// Waits until every stock relay knows the network: until then, an exit takes its neighbours for
    /// strangers and refuses their streams.
    fn wait_stock_relays(&mut self, relays: &[Relay]) -> Result<()> {
        for relay in relays.iter().filter(|relay| relay.program == Program::Stock) {
            let mut control = relay.control()?;
            control.subscribe(&["NEWCONSENSUS", "NEWDESC"])?;
            while control.get_info("status/enough-dir-info")? != "1" {
                self.step("waiting for the stock relays to know the network");
                relay.node.check()?;
                self.check_time(|| format!("enough of the directory at {}", relay.node.nickname))?;
                control.next_event(SLICE)?;
            }
        }
        Ok(())
    }
}

/// The relays with the fingerprints that the consensus lists.
fn finish(options: &NetworkOptions, nodes: Vec<(Node, u16)>, listings: &[Listing]) -> Vec<Relay> {
    let relays = options.relays.iter().zip(nodes);
    relays
        .map(|(relay, (node, or_port))| {
            let listing = listings.iter().find(|listing| listing.nickname == relay.nickname);
            let fingerprint = listing.expect("the consensus lists every relay").fingerprint.clone();
            Relay { node, program: relay.program, or_port, fingerprint }
        })
        .collect()
}

/// Those of the nicknames that no usable entry has.
fn without_usable<'a>(nicknames: Vec<&'a str>, listings: &[Listing]) -> Vec<&'a str> {
    let usable = |name: &str| listings.iter().any(|entry| entry.nickname == name && entry.usable());
    nicknames.into_iter().filter(|name| !usable(name)).collect()
}

/// The offset that lets a first voting interval begin now. Tor takes none longer than that interval.
fn voting_offset_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() % u64::from(torrc::FIRST_INTERVAL_S)
}
