//! What an experiment runs on. A backend brings up named hosts, the wires between them and the programs on them. A
//! [`Testbed`], which is what it brought up, does what a run asks for, tells what it reads, and takes everything away.
//!
//! Nothing here says how. Hosts may have real kernels and real programs, joined by emulated wires ([`emu`]); they may
//! as well be simulated, with the same relays in virtual time. So there are no sockets, threads or processes in this
//! contract: programs and traffic are named by their kind, and times are since the hosts came up.
//!
//! A new backend is a file beside [`emu`] and [`sim`] and a value of `--backend`.

pub(crate) mod emu;
pub(crate) mod sim;
mod source;
pub(crate) mod virtual_clock;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use heddle_net::tcp_diag::TcpConnection;
use heddle_netem::{DirectionStats, Step};
use heddle_proto::cell::measure::Measured;

use crate::capture::Capture;
use crate::costs::Cpu;
use crate::emulator::NetworkOptions;
use crate::error::{Error, Result};
use crate::machine::conditions::LoadReading;
use crate::machine::usage::Usage;
use crate::metrics::Metrics;
use crate::plan::{Arm, Case, Tor, Traffic};
use crate::testnet::Program;
use crate::traffic::Event;
use virtual_clock::VirtualClock;

/// How many circuits are built at the same time. Relays with a transport of flows permit each other a quarter more than
/// there are, and 16 at least: who asks for more within a round trip gets TLS for some.
pub(crate) const BUILDING_MAX: usize = 10;
/// How long a circuit or a stream may take to open.
pub(crate) const OPEN_MAX: Duration = Duration::from_secs(30);

/// Why clients ask relays nothing, to be read after what they would ask.
const ASK_NOTHING: &str = "and those that are stock Tor cannot; run it with --backend sim";

/// Brings testbeds up.
pub(crate) trait Backend {
    /// Its name in results.
    fn name(&self) -> &'static str;

    /// The version of its stock Tor, as results tell it; empty where it has none.
    fn tor_version(&self) -> String;

    /// How much of its own time has passed, where that is not the machine's.
    fn clock(&self) -> Option<Rc<VirtualClock>> {
        None
    }

    /// What else the processors are doing, for results to say how quiet it was.
    fn load(&self) -> LoadReading {
        LoadReading::now()
    }

    /// What each relay computes with, where that is charged.
    fn cpu(&self) -> Option<&Cpu> {
        None
    }

    /// Whether its links encrypt nothing.
    fn null_crypto(&self) -> bool {
        false
    }

    /// Looks whether it has all that an arm of a plan wants of it, before anything is brought up. `tor` is the plan's
    /// network.
    ///
    /// # Errors
    ///
    /// [`Error::Lacking`] says in one sentence what there is not.
    fn check(&self, _arm: &Arm, _tor: Option<&Tor>, _wanted: &Deployment) -> Result<()> {
        Ok(())
    }

    /// Brings up hosts, wires and programs. With programs of Tor it waits until circuits over all relays are possible.
    /// `on_step` hears what is being waited for.
    ///
    /// # Errors
    ///
    /// [`Error::Lacking`] says what this machine or this backend does not have.
    fn bring_up(&mut self, wanted: &Deployment, on_step: &mut dyn FnMut(&str)) -> Result<Box<dyn Testbed>>;
}

/// What a backend brings up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deployment {
    /// The hosts, what their kernels are set to, the wires between them, and who attacks.
    pub(crate) network: NetworkOptions,
    /// What runs on the hosts, besides traffic.
    pub(crate) programs: Vec<Placed>,
    /// Decides all that chance does to packets.
    pub(crate) seed: u64,
    /// Whether attackers act from the beginning on.
    pub(crate) attackers_act: bool,
}

/// A program and where it runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Placed {
    /// The host's name.
    pub(crate) host: String,
    /// What runs there.
    pub(crate) role: Role,
}

/// The kinds of programs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Role {
    /// The stock directory authorities of a private Tor network, all on one host.
    Authorities {
        /// Lines for their torrc.
        torrc: Vec<String>,
    },
    /// A relay of that network, with its host's name for a nickname. A Heddle relay tells its metrics.
    Relay {
        /// Whose.
        program: Program,
        /// Whether it exits.
        exit: bool,
        /// Lines for its torrc.
        torrc: Vec<String>,
    },
    /// A stock onion proxy.
    OnionProxy {
        /// Lines for its torrc.
        torrc: Vec<String>,
    },
    /// What answers traffic.
    Server(ServerKind),
}

/// A server of a host, which may have one of each kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServerKind {
    pub(crate) reached: Reached,
    /// The kernel's congestion control with which it sends. `None`: that of its host.
    pub(crate) congestion_control: Option<String>,
}

/// From where a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reached {
    /// From every host, at its own host's address.
    FromAnywhere,
    /// By the exit that is on the same host.
    FromItsHost,
}

impl From<Reached> for ServerKind {
    fn from(reached: Reached) -> ServerKind {
        ServerKind { reached, congestion_control: None }
    }
}

/// A circuit that is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CircuitOrder<'a> {
    /// The host of the onion proxy.
    pub(crate) proxy: &'a str,
    /// The relays, guard first.
    pub(crate) path: &'a [String],
}

/// A circuit of a testbed, by the order in which they were built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Circuit(pub(crate) usize);

/// A circuit that was built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Built {
    /// Which.
    pub(crate) circuit: Circuit,
    /// How long its building took.
    pub(crate) took: Duration,
}

/// What makes traffic between a host and a server, over Tor or not.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The host on which it runs: over Tor that of the circuit's onion proxy.
    pub(crate) host: String,
    /// What it does.
    pub(crate) traffic: Traffic,
    /// The circuit that it takes. `None`: kernel TCP, straight to the server.
    pub(crate) circuit: Option<Circuit>,
    /// The server's host, and which of its servers it is.
    pub(crate) server: (String, ServerKind),
    /// Names its random numbers under `seed`.
    pub(crate) label: String,
    /// The root of its random numbers.
    pub(crate) seed: u64,
    /// The longest wait for a steady stream.
    pub(crate) steady_max: Duration,
    /// For how long downloads begin. Everything else goes on until it is stopped.
    pub(crate) lasts: Duration,
}

/// A source of a testbed, by the order in which they were started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SourceId(pub(crate) usize);

/// Everything that a source told, in order, each with the time when it did.
pub(crate) type Log = Vec<(Duration, Event)>;

/// What flows over a wire by itself, without Tor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WireFlow<'a> {
    /// The host that sends.
    pub(crate) from: &'a str,
    /// The host that receives.
    pub(crate) to: &'a str,
    /// What.
    pub(crate) case: &'a Case,
}

/// What a flow gave.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// The goodput of a bulk connection.
    Bulk {
        /// Megabits (10^6 bits) of application data per second.
        mbit_s: f64,
    },
    /// What two connections that share a wire got of it.
    Share {
        /// The part of the one that is compared, of what both got.
        share: f64,
        /// What both got, in Mbit/s.
        together_mbit_s: f64,
    },
    /// The fate of every probe, in the order of sending: its delay, or `None` when it did not arrive.
    Probe {
        /// One-way delays in milliseconds.
        delays_ms: Vec<Option<f64>>,
    },
    /// The fate of every ping, in the order of sending.
    Ping {
        /// Times there and back in milliseconds; `None` of what did not come back.
        rtts_ms: Vec<Option<f64>>,
    },
}

/// Hosts, wires and programs that are up. Dropping it takes them away.
pub(crate) trait Testbed {
    /// The time since the hosts came up.
    fn now(&self) -> Duration;

    /// Lets time pass until then. `on_wait` is called about once a second.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] by Ctrl-C.
    fn pass_until(&mut self, then: Duration, on_wait: &mut dyn FnMut()) -> Result<()>;

    /// Changes one direction of a wire now. What the step says about its time does not matter.
    fn change_wire(&mut self, from: &str, to: &str, step: &Step) -> Result<()>;

    /// Lets attackers act, or has them wait.
    fn let_attack(&mut self, on: bool) -> Result<()>;

    /// A phase is measured from now on, or no more: a backend that may be late tells apart how late it is then.
    ///
    /// # Errors
    ///
    /// When it does not work any more.
    fn measuring(&mut self, _on: bool) -> Result<()> {
        Ok(())
    }

    /// Keeps what is sent on the wire between two hosts from now on, until [`watched`](Self::watched) takes it. Of one
    /// wire at a time.
    fn watch(&mut self, one: &str, other: &str) -> Result<()>;

    /// What was kept, with times since the hosts came up. Nothing is kept any more.
    fn watched(&mut self) -> Result<Capture>;

    /// Builds circuits, several at a time, and waits until all of them are there.
    fn build_circuits(&mut self, wanted: &[CircuitOrder<'_>]) -> Result<Vec<Built>>;

    /// Whether a circuit is still there.
    fn is_open(&mut self, circuit: Circuit) -> Result<bool>;

    /// Closes circuits. One that is gone already is no fault.
    fn close_circuits(&mut self, circuits: &[Circuit]) -> Result<()>;

    /// Starts sources of traffic.
    fn start(&mut self, sources: Vec<Source>) -> Result<Vec<SourceId>>;

    /// Waits until the stream of each of these sources is steady, was waited for long enough, or has ended.
    fn wait_until_steady(&mut self, sources: &[SourceId]) -> Result<()>;

    /// Asks these sources to stop, waits until downloads that have begun are over, and gives what each told.
    fn stop(&mut self, sources: &[SourceId]) -> Result<Vec<Log>>;

    /// Has all of these flow at the same time, to their end, and gives what came of each. `on_wait` is called a few
    /// times a second.
    fn run_flows(&mut self, flows: &[WireFlow<'_>], on_wait: &mut dyn FnMut()) -> Result<Vec<Outcome>>;

    /// What has happened on one direction of a wire so far.
    fn wire(&mut self, from: &str, to: &str) -> Result<DirectionStats>;

    /// How often attackers on wires have acted so far; nothing where there are none.
    fn attacks(&mut self) -> Result<Attacks> {
        Ok(Attacks::new())
    }

    /// What the relay on a host has cost so far; `None` where computing costs nothing.
    fn usage(&mut self, relay: &str) -> Result<Option<Spent>>;

    /// The TCP connections of the relay on a host to other relays now, with the host of each of these; `None` where no
    /// kernel tells.
    fn connections(&mut self, relay: &str) -> Result<Option<Vec<(String, TcpConnection)>>>;

    /// What the relay on a host tells of itself; `None` of a stock one.
    fn metrics(&mut self, relay: &str) -> Result<Option<Metrics>>;

    /// Asks all relays of these circuits what they counted of them since they were asked before; the first time has
    /// them begin. Nothing is waited for.
    fn ask_relays(&mut self, _circuits: &[Circuit]) -> Result<()> {
        Err(Error::Lacking(format!("clients ask relays what they counted of circuits, {ASK_NOTHING}")))
    }

    /// What they have answered so far to every question, by circuit and hop, guard first. It waits until none is open,
    /// or the circuit is closed.
    fn told_by_relays(&mut self, _circuits: &[Circuit]) -> Result<Vec<Vec<Vec<Measured>>>> {
        Ok(Vec::new())
    }

    /// Fails when a program has ended by itself.
    fn check(&mut self) -> Result<()>;

    /// Takes everything away and says how it went.
    fn take_down(self: Box<Self>) -> Result<BackendReport>;
}

/// How often attackers have acted, by what they do.
pub(crate) type Attacks = BTreeMap<&'static str, u64>;

/// What a relay has cost so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spent {
    /// The processors' time in seconds.
    pub(crate) cpu_s: f64,
    /// Memory that it has now, in bytes, where there is a process that has some.
    pub(crate) memory_bytes: Option<u64>,
}

impl From<Usage> for Spent {
    fn from(Usage { cpu_s, rss_bytes }: Usage) -> Spent {
        Spent { cpu_s, memory_bytes: Some(rss_bytes) }
    }
}

/// How well a backend did what it should.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BackendReport {
    /// Why its work must not be trusted; none when it may be.
    pub(crate) reasons: Vec<String>,
    /// Whether it may do better at another time, because the machine kept it from being on time.
    pub(crate) is_late: bool,
    /// What it measured of itself; more is worse.
    pub(crate) noise: BTreeMap<String, f64>,
    /// What the hosts were set to, and what the machine did not allow.
    pub(crate) settings: BTreeSet<String>,
    /// A hash of all that happened, where one seed gives one run.
    pub(crate) trace: Option<String>,
}
