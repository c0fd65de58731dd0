//! Which addresses the relay listens on, and which it tells others.
//!
//! It tells what the operator says: an `Address`, or else an address of an ORPort. Where neither says one, or an ORPort
//! has one of a network of its own and the directory authorities are on the Internet, it tells the address that the
//! machine would send from. If that too is of a network of its own, somebody translates addresses, and an authority is
//! to say what it sees: 0.0.0.0 stands for that. The control plane has all this looked at again once a minute, because
//! a machine gets other addresses while the relay runs.

use super::endpoints::OrPortPlace;
use crate::torrc::{self, Options, OrAddress, Port};
use heddle_proto::policy::{is_global, is_internal};
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};

/// The relay's ORPorts, bound.
pub struct Listeners {
    sockets: Vec<TcpListener>,
    own_addresses: OwnAddresses,
    advertised: Vec<SocketAddr>,
}

/// How the addresses are found that others are told, at the start and later.
#[derive(Clone, Default)]
pub struct OwnAddresses {
    ports: Vec<ToldPort>,
    /// An authority's address of each family, which shows from where the machine would send.
    authority_v4: Option<SocketAddr>,
    authority_v6: Option<SocketAddr>,
    /// Whether the directory authorities are on the Internet, and so the network.
    is_public: bool,
}

/// A port of which others are told.
#[derive(Clone)]
struct ToldPort {
    number: u16,
    ipv4: bool,
    /// Where others reach it, if the operator says that.
    known: Option<IpAddr>,
    /// The address that its line names.
    written: Option<IpAddr>,
}

impl Listeners {
    /// Binds every ORPort and finds the addresses that the descriptor will name.
    pub fn bind(options: &Options) -> Result<Self, Box<dyn Error>> {
        let own_addresses = OwnAddresses::new(options);
        let mut listeners = Listeners { sockets: Vec::new(), own_addresses, advertised: Vec::new() };
        for or_address in options.or_addresses() {
            if let Some(port) = listeners.bind_one(&or_address)?
                && or_address.advertise
            {
                listeners.own_addresses.add(options, &or_address, port);
            }
        }
        listeners.advertised = listeners.own_addresses.find(say_not_advertised)?;
        Ok(listeners)
    }

    /// The port's number, `None` when the port is not there and may be missing.
    fn bind_one(&mut self, or_address: &OrAddress) -> Result<Option<u16>, String> {
        let port = match or_address.port {
            Port::Fixed(port) => port,
            Port::Auto => 0,
        };
        if !or_address.listen {
            return Ok(Some(port));
        }
        let addr = SocketAddr::new(or_address.address, port);
        let bound = heddle_net::listen(addr).and_then(|socket| Ok((socket.local_addr()?.port(), socket)));
        match bound {
            Ok((port, socket)) => {
                self.sockets.push(socket);
                Ok(Some(port))
            }
            // A machine without IPv6 still has its IPv4 port.
            Err(error) if addr.is_ipv6() && !or_address.explicit => {
                log::info!("Not listening on {addr}: {error}");
                Ok(None)
            }
            Err(error) => Err(format!("ORPort {addr} cannot be opened: {error}; choose another or free it")),
        }
    }

    /// What the descriptor names at first, IPv4 first.
    pub fn advertised(&self) -> Vec<SocketAddr> {
        self.advertised.clone()
    }

    /// How the same is found later.
    pub fn own_addresses(&self) -> OwnAddresses {
        self.own_addresses.clone()
    }

    /// The number of the first ORPort that is listened on.
    pub fn or_port(&self) -> u16 {
        self.sockets.iter().find_map(|socket| socket.local_addr().ok()).map_or(0, |addr| addr.port())
    }

    /// Where datagrams may come: where the ORPorts listen and nowhere else, as far as one socket can. That is every
    /// address of both families (`None`), or of one, or else the first ORPort's address.
    fn udp_address(&self) -> Option<IpAddr> {
        let listened = self.sockets.iter().filter_map(|socket| Some(socket.local_addr().ok()?.ip()));
        let mut addresses: Vec<_> = listened.collect();
        // Addresses that were not named come first, and IPv4 before IPv6.
        addresses.sort_by_key(|address| (!address.is_unspecified(), address.is_ipv6()));
        let everywhere = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        addresses.first().copied().filter(|_| !everywhere.iter().all(|any| addresses.contains(any)))
    }

    /// What UDP ports follow.
    pub(crate) fn udp_place(&self) -> OrPortPlace {
        OrPortPlace { address: self.udp_address(), port: self.or_port() }
    }

    pub(crate) fn into_sockets(self) -> Vec<TcpListener> {
        self.sockets
    }
}

impl OwnAddresses {
    fn new(options: &Options) -> Self {
        let mut authorities = options.authorities();
        let is_public = authorities.any(|authority| is_global((*authority.dir_address.ip()).into()));
        let ipv6 = options.authorities().find_map(|authority| authority.ipv6_or_address);
        OwnAddresses {
            ports: Vec::new(),
            authority_v4: options.authorities().next().map(|authority| authority.dir_address.into()),
            authority_v6: ipv6.map(SocketAddr::V6),
            is_public,
        }
    }

    fn add(&mut self, options: &Options, or_address: &OrAddress, number: u16) {
        let ipv4 = or_address.address.is_ipv4();
        let written = Some(or_address.address).filter(|address| !address.is_unspecified());
        // The operator knows what is in front of the address that is listened on.
        let known = configured(options, ipv4).or(written.filter(|address| !self.is_ours_alone(*address)));
        self.ports.push(ToldPort { number, ipv4, known, written });
    }

    /// What the descriptor is to name now, IPv4 first. `None` while the machine has no way out over IPv4, because a
    /// line that is down for a while makes no address another.
    pub fn look(&self) -> Option<Vec<SocketAddr>> {
        self.guessed(true)?;
        self.find(|_, _| {}).ok()
    }

    /// The same at the start. What is of no use to others is told `not_told`, and what was written there.
    fn find(&self, not_told: impl Fn(IpAddr, Option<IpAddr>)) -> Result<Vec<SocketAddr>, String> {
        let mut found = Vec::new();
        for port in &self.ports {
            let address = match port.known.or_else(|| self.guessed(port.ipv4)).or(port.written) {
                // One at which others cannot be reached is no use.
                Some(address) if port.known.is_none() && self.is_ours_alone(address) => {
                    not_told(address, port.written);
                    None
                }
                address => address,
            };
            match address {
                Some(address) => found.push(SocketAddr::new(address, port.number)),
                // An IPv4 address must be there.
                None if port.ipv4 && self.is_public => {
                    found.push(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port.number));
                }
                None if port.ipv4 => {
                    return Err(
                        "the relay's IPv4 address is not known; add a line such as `Address 192.0.2.1`"
                            .into(),
                    );
                }
                None => {}
            }
        }
        found.sort_by_key(SocketAddr::is_ipv6);
        Ok(found)
    }

    /// Whether an address is of a network of our own, and the network of relays is another.
    fn is_ours_alone(&self, address: IpAddr) -> bool {
        self.is_public && is_internal(address)
    }

    /// The address that the system would send to a directory authority from. Nothing is sent.
    fn guessed(&self, ipv4: bool) -> Option<IpAddr> {
        let authority = if ipv4 { self.authority_v4? } else { self.authority_v6? };
        let any: IpAddr = if ipv4 { [0, 0, 0, 0].into() } else { [0; 16].into() };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(authority).ok()?;
        Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_unspecified())
    }
}

/// An address of a network of our own is not told to the Internet. Where the operator wrote it down that is a warning.
fn say_not_advertised(address: IpAddr, written: Option<IpAddr>) {
    let instead =
        if address.is_ipv4() { "directory authorities are asked for ours" } else { "it is left out" };
    let level = if written.is_some() { log::Level::Warn } else { log::Level::Info };
    let address = written.unwrap_or(address);
    log::log!(level, "Others cannot reach {address}, so {instead}; if they can, an `Address` line says so");
}

/// The address of a family that an `Address` line names.
fn configured(options: &Options, ipv4: bool) -> Option<IpAddr> {
    let addresses = options.address.iter().filter_map(|text| torrc::address(text));
    addresses.into_iter().find(|address: &IpAddr| address.is_ipv4() == ipv4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torrc::Torrc;

    fn bind(lines: &str) -> Listeners {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("torrc");
        std::fs::write(&path, lines).unwrap();
        Listeners::bind(&Torrc::load(&path).unwrap().0).unwrap()
    }

    #[test]
    fn the_configured_address_is_advertised_with_the_port_that_is_bound() {
        let lines = "Address 203.0.113.5\nORPort 127.0.0.1:auto\nORPort 127.0.0.1:9001 NoListen\n";
        let listeners = bind(lines);
        let at = |port| SocketAddr::from(([203, 0, 113, 5], port));
        assert_eq!(listeners.advertised(), [at(listeners.or_port()), at(9001)]);
        let bound = listeners.into_sockets().pop().unwrap().local_addr().unwrap();
        assert_eq!(bound.ip(), IpAddr::from([127, 0, 0, 1]), "what is listened on is another matter");
    }

    /// What is advertised where the authority is here, and where it is on the Internet.
    fn advertised(lines: &str) -> [Vec<SocketAddr>; 2] {
        ["127.0.0.1", "198.51.100.1"].map(|authority| {
            let authority = format!("DirAuthority a orport=443 {authority}:80 {}", "0".repeat(40));
            bind(&format!("{authority}\n{lines}\n")).advertised()
        })
    }

    #[test]
    fn an_address_of_a_network_of_our_own_is_none_for_the_internet() {
        let at = |ip: [u8; 4], port| vec![SocketAddr::from((ip, port))];
        let own = "ORPort 10.1.2.3:9001 NoListen\nORPort 127.0.0.1:auto NoAdvertise";
        let [here, there] = advertised(own);
        assert_eq!(here, at([10, 1, 2, 3], 9001), "in a network of our own it is as good as any");
        // The machine of this test may have an address that others reach, or none from which it could send.
        let sends_from = there[0].ip();
        assert!(sends_from.is_unspecified() || is_global(sends_from), "{there:?}");
        assert_eq!((there.len(), there[0].port()), (1, 9001));
        assert_eq!(
            advertised(&format!("{own}\nAddress 10.9.9.9")),
            [(); 2].map(|()| at([10, 9, 9, 9], 9001))
        );
        let public = "ORPort 203.0.113.5:9001 NoListen\nORPort 127.0.0.1:auto NoAdvertise";
        assert_eq!(advertised(public), [(); 2].map(|()| at([203, 0, 113, 5], 9001)));
    }

    #[test]
    fn what_is_found_later_is_found_as_at_the_start() {
        let authority = format!("DirAuthority a orport=443 127.0.0.1:80 {}", "0".repeat(40));
        for (lines, is_fixed) in [
            ("ORPort auto IPv4Only", false),
            ("ORPort 10.1.2.3:9001 NoListen\nORPort 127.0.0.1:auto NoAdvertise", true),
            ("Address 203.0.113.5\nORPort auto IPv4Only", true),
        ] {
            let listeners = bind(&format!("{authority}\n{lines}\n"));
            let (first, mut own) = (listeners.advertised(), listeners.own_addresses());
            assert_eq!(own.look(), Some(first.clone()), "{lines}");
            // What the machine sends from has become an address of a network of our own.
            own.is_public = true;
            let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, first[0].port()));
            assert_eq!(own.look(), Some(if is_fixed { first } else { vec![unknown] }), "{lines}");
            own.authority_v4 = None;
            assert_eq!(own.look(), None, "without a way out nothing is another");
        }
    }

    #[test]
    fn an_ipv6_port_that_could_not_be_bound_is_not_advertised() {
        // A machine without IPv6 cannot bind it either.
        let occupied = TcpListener::bind("[::1]:0");
        let port = occupied.as_ref().map_or(9001, |socket| socket.local_addr().unwrap().port());
        let listeners = bind(&format!("Address 203.0.113.5\nAddress [2001:db8::5]\nORPort {port}\n"));
        assert_eq!(listeners.advertised(), [SocketAddr::from(([203, 0, 113, 5], port))]);
    }

    #[test]
    fn datagrams_come_where_the_or_ports_listen() {
        let port = |line: &str| bind(&format!("Address 203.0.113.5\n{line}\n")).udp_address();
        assert_eq!(port("ORPort auto IPv4Only"), Some(Ipv4Addr::UNSPECIFIED.into()));
        assert_eq!(port("ORPort 127.0.0.1:auto"), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(port("ORPort 127.0.0.2:auto\nORPort 127.0.0.1:auto"), Some([127, 0, 0, 2].into()));
        assert_eq!(port("ORPort 127.0.0.1:auto\nORPort 9001 NoListen"), Some(Ipv4Addr::LOCALHOST.into()));
        if TcpListener::bind("[::]:0").is_ok() {
            assert_eq!(port("ORPort auto"), None);
        }
    }
}
