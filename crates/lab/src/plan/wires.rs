//! What carries a plan's cases: hosts with wires between them, and sockets on the hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use heddle_netem::WireOptions;

use super::Arm;
use crate::emulator::{EmulatedHostOptions, Emulation, KernelOptions, NetworkOptions, RunOptions, Summary};
use crate::error::{Error, Result};

/// Makes the hosts and wires of an arm.
pub(super) trait Backend {
    /// Its name in results.
    fn name(&self) -> &'static str;

    /// Two hosts and a wire for each flow of `arm`. `seed` decides all that chance does to packets.
    fn start(&mut self, arm: &Arm, seed: u64) -> Result<Box<dyn Wires>>;

    /// Whether it has hosts that are networks of their own, which Tor networks need.
    fn has_hosts(&self) -> bool;
}

/// Which end of a flow's wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Where data comes from.
    Sender,
    /// Where it goes.
    Receiver,
}

/// Hosts and wires that are up. Dropping them takes them away.
pub(super) trait Wires: Sync {
    /// A listening socket on the receiver's host of the flow with this place.
    fn listen(&self, flow: usize) -> Result<TcpListener>;

    /// A connection from the sender's host, with the congestion control that the case asks for.
    fn connect(&self, flow: usize, to: SocketAddr) -> Result<TcpStream>;

    /// A bound UDP socket on one of the two hosts.
    fn datagrams(&self, flow: usize, end: End) -> Result<UdpSocket>;

    /// Takes everything away and says how it went.
    fn finish(self: Box<Self>) -> Result<Conduct>;
}

/// How well a backend did what it should.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Conduct {
    /// Why its work must not be trusted; none when it may be.
    pub(crate) reasons: Vec<String>,
    /// Whether it may do better at another time, because the machine kept it from being on time.
    pub(crate) is_late: bool,
    /// What it measured of itself; more is worse.
    pub(crate) noise: BTreeMap<String, f64>,
    /// What the hosts were set to, and what the machine did not allow.
    pub(crate) settings: BTreeSet<String>,
}

/// Hosts that are network namespaces of this machine, joined by emulated wires: the backend `emu`.
#[derive(Debug)]
pub(super) struct Emulator;

/// The hosts of an arm.
struct Emulated {
    emulation: Emulation,
    /// The names of all hosts, two for each flow.
    hosts: Vec<String>,
    /// The address of each flow's receiver.
    receivers: Vec<IpAddr>,
}

impl Backend for Emulator {
    fn name(&self) -> &'static str {
        "emu"
    }

    fn start(&mut self, arm: &Arm, seed: u64) -> Result<Box<dyn Wires>> {
        let options = network(arm);
        let run = RunOptions { seed, ..RunOptions::default() };
        let hosts = options.hosts.iter().map(|host| host.name.clone()).collect();
        let receivers = options.addresses().into_iter().skip(1).step_by(2);
        let receivers = receivers.map(|addresses| addresses[0]).collect();
        Ok(Box::new(Emulated { emulation: Emulation::start(&options, &run)?, hosts, receivers }))
    }

    fn has_hosts(&self) -> bool {
        true
    }
}

/// Two hosts for each flow, the sender first, and the wire between them.
fn network(arm: &Arm) -> NetworkOptions {
    let mut options = NetworkOptions::default();
    for (place, case) in arm.flows().enumerate() {
        let [from, to] = [End::Sender, End::Receiver].map(|end| host_name(arm, place, end));
        for name in [&from, &to] {
            options.hosts.push(EmulatedHostOptions {
                name: name.clone(),
                congestion_control: case.bulk.as_ref().map(|bulk| bulk.congestion_control.clone()),
                ..EmulatedHostOptions::default()
            });
        }
        options.wires.push(WireOptions { from, to, there: case.wire.clone(), back: case.back.clone() });
    }
    options
}

/// Hosts' names label the seeds of their wires: no two arms share one.
fn host_name(arm: &Arm, place: usize, end: End) -> String {
    let end = match end {
        End::Sender => "sender",
        End::Receiver => "receiver",
    };
    format!("{}-{place}-{end}", arm.name)
}

impl Wires for Emulated {
    fn listen(&self, flow: usize) -> Result<TcpListener> {
        let address = SocketAddr::new(self.receivers[flow], 0);
        self.on(flow, End::Receiver, "listening", || TcpListener::bind(address))
    }

    fn connect(&self, flow: usize, to: SocketAddr) -> Result<TcpStream> {
        self.on(flow, End::Sender, "connecting", || TcpStream::connect(to))
    }

    fn datagrams(&self, flow: usize, end: End) -> Result<UdpSocket> {
        let address = match end {
            End::Sender => Ipv4Addr::UNSPECIFIED.into(),
            End::Receiver => self.receivers[flow],
        };
        self.on(flow, end, "opening a UDP socket", || UdpSocket::bind((address, 0)))
    }

    fn finish(self: Box<Self>) -> Result<Conduct> {
        Ok(conduct(self.emulation.stop()?))
    }
}

/// What an emulation says about itself.
pub(crate) fn conduct(summary: Summary) -> Conduct {
    let noise = [
        ("lateness p99 in µs", summary.lateness.p99_us),
        ("lateness at most in µs", summary.lateness.max_us),
        ("unattended p99 in µs", summary.unattended.p99_us),
        ("unattended at most in µs", summary.unattended.max_us),
        ("oversleeping p99 in µs", summary.oversleeping.p99_us),
        ("oversleeping at most in µs", summary.oversleeping.max_us),
        ("giving p99 in µs", summary.giving.p99_us),
        ("giving at most in µs", summary.giving.max_us),
    ];
    let noise = noise.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let KernelOptions { tcp_rmem, tcp_wmem, sysctl, .. } = &summary.kernel;
    let more = sysctl.iter().map(|(name, value)| format!("{name} {value}"));
    let used: BTreeSet<&str> = summary.hosts.iter().map(|host| host.congestion_control.as_str()).collect();
    let used = used.into_iter().map(|name| format!("congestion control {name}"));
    let memory = [format!("tcp_rmem {tcp_rmem:?}"), format!("tcp_wmem {tcp_wmem:?}")];
    let settings = used.chain(memory).chain(more).chain(summary.notes).collect();
    Conduct { is_late: !summary.reasons.is_empty(), reasons: summary.reasons, noise, settings }
}

impl Emulated {
    /// Makes a socket on a host; it stays there.
    fn on<T: Send>(
        &self,
        flow: usize,
        end: End,
        doing: &str,
        make: impl FnOnce() -> io::Result<T> + Send,
    ) -> Result<T> {
        let host = &self.hosts[2 * flow + usize::from(end == End::Receiver)];
        self.emulation.inside(host, make)?.map_err(Error::io(doing))
    }
}
