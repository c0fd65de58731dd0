//! A private Tor network of real processes on loopback.
//!
//! 1. The authorities' keys are made, all at once.
//! 2. The authorities start, with their voting schedule shifted so that a voting interval begins
//!    just then: the first vote is a few seconds away instead of up to half a minute.
//! 3. The relays start and publish; the authorities test their ORPorts and vote.
//! 4. The first consensus that lists every relay starts the client. When it has bootstrapped and
//!    has every relay's descriptor, the network is up.
//!
//! Nothing waits for a fixed time: each step ends with what it waits for, or at its deadline.

mod authority;
mod consensus;
mod places;
mod start;
mod torrc;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use consensus::Listing;
pub use places::{Loopback, Places};

use crate::control::Control;
use crate::error::{Error, Result};
use crate::machine::process::{Process, Signal};
use crate::machine::scratch::Scratch;
use crate::machine::usage::{self, Usage};

/// Longest nickname (dir-spec 2.1.1).
const NICKNAME_MAX: usize = 19;
/// How long a control socket of a running process may take to answer.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(20);

/// Whose relay it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// The `tor` of the operating system.
    Stock,
    /// `heddle relay`.
    Heddle,
}

/// One relay of a network.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// 1 to 19 letters and digits, unique in the network.
    pub nickname: String,
    /// What runs it.
    pub program: Program,
    /// Whether it exits, to any address including loopback.
    pub exit: bool,
    /// Lines added to its torrc. Lines of `ExitPolicy` go before what `exit` says; lines of
    /// `Address` and `ORPort` go in place of the network's own; with the latter [`Relay::or_port`] is nobody's.
    pub torrc: Vec<String>,
}

impl RelayOptions {
    /// A stock relay that does not exit.
    pub fn stock(nickname: &str) -> RelayOptions {
        RelayOptions::new(nickname, Program::Stock)
    }

    /// A Heddle relay that does not exit.
    pub fn heddle(nickname: &str) -> RelayOptions {
        RelayOptions::new(nickname, Program::Heddle)
    }

    /// A relay of either program that does not exit.
    pub fn new(nickname: &str, program: Program) -> RelayOptions {
        RelayOptions { nickname: nickname.to_owned(), program, exit: false, torrc: Vec::new() }
    }

    /// The same relay as an exit.
    pub fn exit(self) -> RelayOptions {
        RelayOptions { exit: true, ..self }
    }

    /// The same relay with one more line in its torrc.
    pub fn line(mut self, line: &str) -> RelayOptions {
        self.torrc.push(line.to_owned());
        self
    }
}

/// What a network is made of.
#[derive(Clone, Debug)]
pub struct NetworkOptions {
    /// Stock Tor. `None`: the environment's `HEDDLE_TOR`, or `tor` in the search path.
    pub tor: Option<PathBuf>,
    /// The Heddle program; needed when a relay is Heddle's.
    pub heddle: Option<PathBuf>,
    /// How many authorities, at least one.
    pub authorities: usize,
    /// The relays.
    pub relays: Vec<RelayOptions>,
    /// How many clients, at least one. They are called `client`, `client1`, `client2` and so on.
    pub clients: usize,
    /// Lines added to every authority's torrc, such as `ConsensusParams cc_alg=0`.
    pub authority_torrc: Vec<String>,
    /// Lines added to every client's torrc.
    pub client_torrc: Vec<String>,
    /// Seconds from one consensus to the next after the first: a divisor of 1800 that 10 divides,
    /// at least 20.
    pub voting_interval_s: u32,
    /// How long the network may take to come up.
    pub startup_timeout: Duration,
}

impl Default for NetworkOptions {
    fn default() -> NetworkOptions {
        NetworkOptions {
            tor: None,
            heddle: None,
            authorities: 3,
            relays: Vec::new(),
            clients: 1,
            authority_torrc: Vec::new(),
            client_torrc: Vec::new(),
            voting_interval_s: 20,
            startup_timeout: Duration::from_secs(120),
        }
    }
}

impl NetworkOptions {
    /// Fails with what is wrong with the options.
    pub fn validate(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::Options(what));
        if self.authorities == 0 || self.clients == 0 {
            return wrong("a network needs an authority and a client".into());
        }
        let interval = self.voting_interval_s;
        let whole = interval.is_multiple_of(torrc::FIRST_INTERVAL_S);
        if interval < 20 || !1800_u32.is_multiple_of(interval) || !whole {
            return wrong(format!("the voting interval cannot be {interval} s"));
        }
        let mut nicknames: Vec<&str> = Vec::new();
        for relay in &self.relays {
            let name = &*relay.nickname;
            let allowed = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
            if !allowed || name.is_empty() || name.len() > NICKNAME_MAX {
                return wrong(format!("{name:?} is not a nickname"));
            }
            if nicknames.contains(&name) {
                return wrong(format!("two relays are called {name}"));
            }
            nicknames.push(name);
        }
        let heddle = self.relays.iter().any(|relay| relay.program == Program::Heddle);
        match &self.heddle {
            None if heddle => wrong("Heddle relays need the Heddle program".into()),
            Some(path) if heddle && !path.is_file() => wrong(format!("{} is not a program", path.display())),
            _ => Ok(()),
        }
    }
}

/// How far something long has come.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// What is happening now.
    pub step: &'a str,
    /// Time since the beginning.
    pub elapsed: Duration,
    /// Time the whole usually takes.
    pub expected: Duration,
}

/// A running network. Dropping it ends its processes and removes its files.
#[derive(Debug)]
pub struct Network {
    // Processes end before their directory goes: fields are dropped in this order.
    authorities: Vec<Node>,
    relays: Vec<Relay>,
    client: Client,
    more_clients: Vec<Client>,
    _ports: crate::machine::ports::PortBlock,
    scratch: Scratch,
}

/// One process of a network and how to start it again.
#[derive(Debug)]
pub(crate) struct Node {
    nickname: String,
    command: NodeCommand,
    dir: PathBuf,
    address: IpAddr,
    process: Mutex<Process>,
}

/// What starts a node.
#[derive(Clone, Debug)]
struct NodeCommand {
    program: PathBuf,
    arguments: Vec<String>,
}

/// A client of a running network.
#[derive(Debug)]
pub struct Client {
    node: Node,
    socks: SocketAddr,
}

/// A relay of a running network.
#[derive(Debug)]
pub struct Relay {
    node: Node,
    program: Program,
    or_port: u16,
    fingerprint: String,
}

/// The version of the stock Tor that networks are made of; empty where there is none.
pub(crate) fn stock_version() -> String {
    authority::Stock::find(None).ok().and_then(|stock| stock.version()).unwrap_or_default()
}

impl Network {
    /// Starts a network and waits until its client could build a circuit over every relay.
    pub fn start(options: &NetworkOptions, on_progress: &mut dyn FnMut(&Progress)) -> Result<Network> {
        Network::start_at(options, &Loopback, on_progress)
    }

    /// The same with every process at a place of its own.
    pub fn start_at(
        options: &NetworkOptions,
        places: &dyn Places,
        on_progress: &mut dyn FnMut(&Progress),
    ) -> Result<Network> {
        start::start(options, places, on_progress)
    }

    /// A relay by its nickname.
    pub fn relay(&self, nickname: &str) -> Result<&Relay> {
        let found = self.relays.iter().find(|relay| relay.node.nickname == nickname);
        found.ok_or_else(|| Error::Options(format!("no relay is called {nickname}")))
    }

    /// All relays in the order of the options.
    pub fn relays(&self) -> &[Relay] {
        &self.relays
    }

    /// The fingerprints of the relays with these nicknames, for [`Control::build_circuit`].
    pub fn path(&self, nicknames: &[&str]) -> Result<Vec<&str>> {
        nicknames.iter().map(|name| Ok(self.relay(name)?.fingerprint())).collect()
    }

    /// The first client's SOCKS port.
    pub fn socks(&self) -> SocketAddr {
        self.client.socks
    }

    /// The first client's control socket.
    pub fn control_socket(&self) -> PathBuf {
        self.client.control_socket()
    }

    /// A new connection to the first client's control socket.
    pub fn control(&self) -> Result<Control> {
        self.client.control()
    }

    /// The version of stock Tor, as the first client tells it.
    pub fn tor_version(&self) -> Result<String> {
        self.control()?.get_info("version")
    }

    /// All clients, the first one first.
    pub fn clients(&self) -> impl Iterator<Item = &Client> {
        [&self.client].into_iter().chain(&self.more_clients)
    }

    /// A new connection to the control socket of the authority with this index.
    pub fn authority_control(&self, index: usize) -> Result<Control> {
        let authority = self.authorities.get(index);
        let missing = || Error::Options(format!("there is no authority {index}"));
        authority.ok_or_else(missing)?.control()
    }

    /// The relays of the latest consensus of the authority with this index.
    pub fn consensus(&self, authority: usize) -> Result<Vec<Listing>> {
        consensus::listings(&mut self.authority_control(authority)?)
    }

    /// Where the network keeps its files; for reading logs while it runs.
    pub fn dir(&self) -> &Path {
        self.scratch.path()
    }

    /// Lines of stock Tor's logs that complain about somebody else's protocol.
    pub fn protocol_warnings(&self) -> Vec<String> {
        let stock = self.relays.iter().filter(|relay| relay.program == Program::Stock);
        let clients = self.clients().map(|client| &client.node);
        let nodes = self.authorities.iter().chain(stock.map(|relay| &relay.node)).chain(clients);
        let mut warnings = Vec::new();
        for node in nodes {
            let log = std::fs::read_to_string(node.lock().log()).unwrap_or_default();
            warnings.extend(complaints(&log).map(|line| format!("{}: {line}", node.nickname)));
        }
        warnings
    }

    /// Fails when a process has ended by itself.
    pub fn check(&self) -> Result<()> {
        let relays = self.relays.iter().map(|relay| &relay.node);
        let mut nodes =
            self.authorities.iter().chain(relays).chain(self.clients().map(|client| &client.node));
        nodes.try_for_each(Node::check)
    }
}

/// The lines of a stock log that complain about somebody else's protocol.
fn complaints(log: &str) -> impl Iterator<Item = &str> {
    let mut extends_back = false;
    log.lines().filter(move |line| {
        // Where relays are few, the client's own choice comes across one twice in a row. The relay
        // complains about it, and in its next line about having failed.
        let blames_client =
            std::mem::replace(&mut extends_back, line.contains("extend back to the previous"));
        let concerns_peers = line.contains("rotocol") || line.contains("cell");
        line.contains("[warn]") && concerns_peers && !extends_back && !blames_client
    })
}

impl Relay {
    /// Its nickname.
    pub fn nickname(&self) -> &str {
        &self.node.nickname
    }

    /// What runs it.
    pub fn program(&self) -> Program {
        self.program
    }

    /// Its RSA identity's fingerprint, 40 upper-case hexadecimal digits.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Its ORPort.
    pub fn or_port(&self) -> u16 {
        self.or_port
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.node.lock().pid()
    }

    /// Its directory: `torrc`, `log`, and `data`, which is its DataDirectory.
    pub fn dir(&self) -> &Path {
        &self.node.dir
    }

    /// What its process has cost since it started.
    pub fn usage(&self) -> Result<Usage> {
        usage::of(self.pid())
    }

    /// Sends its process a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.node.lock().signal(signal)
    }

    /// Kills its process, as a crash would.
    pub fn kill(&self) {
        self.node.lock().kill();
    }

    /// Waits for its process to end by itself; whether it ended well.
    pub fn wait_exit(&self, timeout: Duration) -> Result<bool> {
        self.node.lock().wait_exit(timeout).map(|status| status.success())
    }

    /// Starts it again with its keys, after a kill or an end. It says nothing about when the relay
    /// is ready: connect to its ORPort or build a circuit. Only relays on loopback can do this.
    pub fn restart(&self) -> Result<()> {
        if !self.node.address.is_loopback() {
            return Err(Error::Options("only relays on loopback can be started again".into()));
        }
        let mut process = self.node.lock();
        process.kill();
        *process = self.node.command.start(&self.node.nickname, &self.node.dir, &Loopback)?;
        Ok(())
    }

    /// A new connection to a stock relay's control socket. Heddle relays have none.
    pub fn control(&self) -> Result<Control> {
        match self.program {
            Program::Stock => self.node.control(),
            Program::Heddle => Err(Error::Options("Heddle relays have no control socket".into())),
        }
    }
}

impl Client {
    /// Its SOCKS port. It is on the loopback of the client's own place.
    pub fn socks(&self) -> SocketAddr {
        self.socks
    }

    /// Its control socket.
    pub fn control_socket(&self) -> PathBuf {
        self.node.control_socket()
    }

    /// A new connection to its control socket.
    pub fn control(&self) -> Result<Control> {
        self.node.control()
    }
}

impl Node {
    fn lock(&self) -> MutexGuard<'_, Process> {
        // A process is whole whatever a thread that held the lock was doing.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn control_socket(&self) -> PathBuf {
        self.dir.join("control")
    }

    fn control(&self) -> Result<Control> {
        Control::connect(&self.control_socket(), CONTROL_TIMEOUT, || self.check())
    }

    fn check(&self) -> Result<()> {
        let mut process = self.lock();
        match process.exited()? {
            None => Ok(()),
            Some(status) => Err(Error::Exited {
                process: self.nickname.clone(),
                status: status.to_string(),
                log: process.log_tail(),
                torrc: self.dir.join("torrc"),
            }),
        }
    }
}

impl NodeCommand {
    fn start(&self, nickname: &str, dir: &Path, places: &dyn Places) -> Result<Process> {
        let mut command = std::process::Command::new(&self.program);
        command.args(&self.arguments).current_dir(dir);
        places.enter(nickname, &mut command)?;
        Process::spawn(nickname, command, &dir.join("log"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(relays: Vec<RelayOptions>) -> NetworkOptions {
        NetworkOptions { relays, ..NetworkOptions::default() }
    }

    #[test]
    fn what_the_client_did_is_no_complaint_about_a_peer() {
        let log = "1 [warn] Client asked me to extend back to the previous hop.\n\
                   1 [warn] connection_edge_process_relay_cell (away from origin) failed.\n\
                   1 [notice] Protocol 7\n2 [warn] Bad cell\n3 [warn] The disk is full";
        assert_eq!(complaints(log).collect::<Vec<_>>(), ["2 [warn] Bad cell"]);
    }

    #[test]
    fn impossible_networks_are_refused() {
        let refused = |options: NetworkOptions| options.validate().unwrap_err().to_string();
        assert!(refused(options(vec![RelayOptions::stock("no spaces")])).contains("nickname"));
        let twice = vec![RelayOptions::stock("a"), RelayOptions::stock("a")];
        assert!(refused(options(twice)).contains("two relays"));
        assert!(refused(options(vec![RelayOptions::heddle("h")])).contains("Heddle program"));
        assert!(refused(NetworkOptions { authorities: 0, ..options(vec![]) }).contains("authority"));
        let odd = NetworkOptions { voting_interval_s: 35, ..options(vec![]) };
        assert!(refused(odd).contains("35 s"));
        options(vec![RelayOptions::stock("a").exit()]).validate().unwrap();
    }
}
