//! Sockets on the two hosts of each flow over a single wire.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use heddle_netem::Seed;

use super::utcp_sender::{Begun, UtcpSender};
use crate::backend::WireFlow;
use crate::emulator::Emulation;
use crate::error::{Error, Result};

/// How long the opening of a connection may take beyond what is normal, and how long a silent one counts as alive.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Which end of a flow's wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Where data comes from.
    Sender,
    /// Where it goes.
    Receiver,
}

/// The hosts of flows, which are known by their place.
pub(super) trait FlowHosts: Sync {
    /// A listening socket on the receiver's host.
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
}

/// Hosts of an emulation.
pub(super) struct Emulated<'a> {
    emulation: &'a Emulation,
    /// The sender's and the receiver's host of each flow.
    hosts: Vec<[&'a str; 2]>,
    /// How much `utcp` buffers at most, as its host's kernel would.
    buffer_max_bytes: u32,
    seed: u64,
}

impl<'a> Emulated<'a> {
    pub(super) fn new(
        emulation: &'a Emulation,
        flows: &[WireFlow<'a>],
        buffer_max_bytes: u32,
        seed: u64,
    ) -> Emulated<'a> {
        let hosts = flows.iter().map(|flow| [flow.from, flow.to]).collect();
        Emulated { emulation, hosts, buffer_max_bytes, seed }
    }

    fn addresses(&self, host: &str) -> Result<&[IpAddr]> {
        let addresses = self.emulation.addresses(host).filter(|addresses| !addresses.is_empty());
        addresses.ok_or_else(|| Error::Options(format!("{host} has no address")))
    }

    /// Receivers have their automatic address.
    fn receiver(&self, flow: usize) -> Result<IpAddr> {
        Ok(self.addresses(self.hosts[flow][1])?[0])
    }

    /// Makes a socket on a host; it stays there.
    fn on<T: Send>(
        &self,
        flow: usize,
        end: End,
        doing: &str,
        make: impl FnOnce() -> io::Result<T> + Send,
    ) -> Result<T> {
        let host = self.hosts[flow][usize::from(end == End::Receiver)];
        self.emulation.inside(host, make)?.map_err(Error::io(doing))
    }
}

impl FlowHosts for Emulated<'_> {
    fn listen(&self, flow: usize) -> Result<TcpListener> {
        let address = SocketAddr::new(self.receiver(flow)?, 0);
        self.on(flow, End::Receiver, "listening", || TcpListener::bind(address))
    }

    fn connect(&self, flow: usize, to: SocketAddr) -> Result<TcpStream> {
        self.on(flow, End::Sender, "connecting", || TcpStream::connect_timeout(&to, PATIENCE))
    }

    fn attach(&self, flow: usize, to: SocketAddr, congestion_control: &str, begun: &Begun) -> Result<IpAddr> {
        let host = self.hosts[flow][0];
        // `utcp` has the last address of a sender, whose kernel has the first.
        let addresses = self.addresses(host)?;
        let from = addresses[addresses.len() - 1];
        let seed = Seed::from_number(self.seed).child(&["utcp", host]);
        let ends = [SocketAddr::new(from, 0), to];
        let sender = UtcpSender::new(congestion_control, self.buffer_max_bytes, ends, &seed, begun);
        let unknown = || Error::Options(format!("utcp has no congestion control {congestion_control:?}"));
        self.emulation.attach(host, from, Box::new(sender.ok_or_else(unknown)?))?;
        Ok(from)
    }

    fn detach(&self, address: IpAddr) -> Result<()> {
        self.emulation.detach(address).map(|_| ())
    }

    fn datagrams(&self, flow: usize, end: End) -> Result<UdpSocket> {
        let address = match end {
            End::Sender => Ipv4Addr::UNSPECIFIED.into(),
            End::Receiver => self.receiver(flow)?,
        };
        self.on(flow, end, "opening a UDP socket", || UdpSocket::bind((address, 0)))
    }
}
