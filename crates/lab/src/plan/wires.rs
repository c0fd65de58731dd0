//! What carries a plan's cases: hosts with wires between them, and sockets on the hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use heddle_netem::{Seed, WireOptions};

use super::bulk::Begun;
use super::{Arm, utcp};
use crate::emulator::{EmulatedHostOptions, Emulation, KernelOptions, NetworkOptions, RunOptions, Summary};
use crate::error::{Error, Result};

/// Makes the hosts and wires of an arm.
pub(super) trait Backend {
    /// Its name in results.
    fn name(&self) -> &'static str;

    /// Two hosts and a wire for each flow of `arm`, whose kernels are set to `kernel`. `seed` decides all that chance does
    /// to packets.
    fn start(&mut self, arm: &Arm, kernel: &KernelOptions, seed: u64) -> Result<Box<dyn Wires>>;

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

    /// Has `utcp` connect from the sender's host and send as fast as it can. Returns its address, with which
    /// [`detach`](Self::detach) ends it.
    fn attach(&self, flow: usize, to: SocketAddr, congestion_control: &str, begun: &Begun) -> Result<IpAddr>;

    /// Ends what [`attach`](Self::attach) began, without a farewell.
    fn detach(&self, address: IpAddr) -> Result<()>;

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
    /// Their addresses. `utcp` has the last one of a sender.
    addresses: Vec<Vec<IpAddr>>,
    /// How much `utcp` buffers at most, as its host's kernel would.
    buffer_max_bytes: u32,
    seed: u64,
}

impl Backend for Emulator {
    fn name(&self) -> &'static str {
        "emu"
    }

    fn start(&mut self, arm: &Arm, kernel: &KernelOptions, seed: u64) -> Result<Box<dyn Wires>> {
        let options = NetworkOptions { kernel: kernel.clone(), ..network(arm) };
        let run = RunOptions { seed, ..RunOptions::default() };
        let hosts = options.hosts.iter().map(|host| host.name.clone()).collect();
        let (addresses, buffer_max_bytes) = (options.addresses(), kernel.tcp_wmem[2]);
        let emulation = Emulation::start(&options, &run)?;
        Ok(Box::new(Emulated { emulation, hosts, addresses, buffer_max_bytes, seed }))
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
        let bulk = case.bulk.as_ref().map(|bulk| &bulk.congestion_control);
        let share = case.share.as_ref().map(|share| &share.congestion_control);
        for (name, end) in [(&from, End::Sender), (&to, End::Receiver)] {
            let number = options.hosts.len() as u32 + 1;
            // One for the kernel's connection and one for that of `utcp`.
            let is_shared = case.share.is_some() && end == End::Sender;
            options.hosts.push(EmulatedHostOptions {
                name: name.clone(),
                congestion_control: bulk.or(share).cloned(),
                addresses: if is_shared { shared_addresses(number) } else { Vec::new() },
                ..EmulatedHostOptions::default()
            });
        }
        options.wires.push(WireOptions { from, to, there: case.wire.clone(), back: case.back.clone() });
    }
    options
}

/// Two addresses of the host with this number; the first is the automatic one.
fn shared_addresses(number: u32) -> Vec<IpAddr> {
    let [_, _, high, low] = number.to_be_bytes();
    [0, 1].map(|net| Ipv4Addr::new(10, net, high, low).into()).to_vec()
}

/// Hosts' names label the seeds of their wires: no two arms share one, unless they are to meet the same fates.
fn host_name(arm: &Arm, place: usize, end: End) -> String {
    let end = match end {
        End::Sender => "sender",
        End::Receiver => "receiver",
    };
    format!("{}-{place}-{end}", arm.wires_as.as_ref().unwrap_or(&arm.name))
}

impl Wires for Emulated {
    fn listen(&self, flow: usize) -> Result<TcpListener> {
        let address = SocketAddr::new(self.receiver(flow), 0);
        self.on(flow, End::Receiver, "listening", || TcpListener::bind(address))
    }

    fn connect(&self, flow: usize, to: SocketAddr) -> Result<TcpStream> {
        self.on(flow, End::Sender, "connecting", || TcpStream::connect(to))
    }

    fn attach(&self, flow: usize, to: SocketAddr, congestion_control: &str, begun: &Begun) -> Result<IpAddr> {
        let addresses = &self.addresses[2 * flow];
        let from = *addresses.last().ok_or_else(|| Error::Options("a host has no address".into()))?;
        let host = &self.hosts[2 * flow];
        let seed = Seed::from_number(self.seed).child(&["utcp", host]);
        let ends = [SocketAddr::new(from, 0), to];
        let sender = utcp::Sender::new(congestion_control, self.buffer_max_bytes, ends, &seed, begun)
            .ok_or_else(|| {
                Error::Options(format!("utcp has no congestion control {congestion_control:?}"))
            })?;
        self.emulation.attach(host, from, Box::new(sender))?;
        Ok(from)
    }

    fn detach(&self, address: IpAddr) -> Result<()> {
        self.emulation.detach(address).map(|_| ())
    }

    fn datagrams(&self, flow: usize, end: End) -> Result<UdpSocket> {
        let address = match end {
            End::Sender => Ipv4Addr::UNSPECIFIED.into(),
            End::Receiver => self.receiver(flow),
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
    fn receiver(&self, flow: usize) -> IpAddr {
        // Receivers have their automatic address.
        self.addresses[2 * flow + 1][0]
    }

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
