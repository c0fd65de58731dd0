//! The UDP ports of the shards.
//!
//! Each shard has a port of its own for each transport, which its offers name: a datagram always reaches the shard that
//! owns the connection. Ports are open where the ORPort listens: on every address, of both families where there are
//! both, or on the one that the operator named. Datagrams go between the very addresses that the TLS channel has, so a
//! channel from another address of ours keeps its circuits. They answer no stranger.

use super::Failure;
use super::stacks::Stacks;
use crate::torrc::{Options, UdpPort};
use heddle_assembly::Offered;
use heddle_net::{Stack, bind_udp};
use heddle_seam::node::PortId;
use std::io;
use std::net::{IpAddr, UdpSocket};

/// A shard's UDP port, and what is spoken there.
pub struct Bound {
    pub socket: UdpSocket,
    pub offered: Offered,
    /// The stack of its transport, if that wants one.
    pub stack: Option<Stack>,
}

/// What UDP ports follow: the address of the ORPort, `None` for all, and by default its number.
#[derive(Clone, Copy, Debug)]
pub struct OrPortPlace {
    pub address: Option<IpAddr>,
    pub port: u16,
}

/// The ports of shard `number` of `count`, the one of the preferred transport first. A transport that lacks its stack
/// is left out.
pub fn bind(
    options: &Options,
    or_port: OrPortPlace,
    (number, count): (u16, u16),
    stacks: &mut Stacks,
) -> Result<Vec<Bound>, Failure> {
    let mut bound = Vec::new();
    for (place, transport) in (0_u16..).zip(options.heddle.over_datagrams().iter().copied()) {
        let stack = stacks.take(number, transport);
        if transport.stack.is_some() && stack.is_none() {
            continue;
        }
        let offset = place.saturating_mul(count).saturating_add(number);
        let socket = match bind_port(options.heddle.udp_port, or_port, offset) {
            Ok(socket) => socket,
            Err(Unbound::Chosen(error)) => return Err(error.into()),
            Err(Unbound::Any(error)) => {
                log::warn!(
                    "A way to other Heddle relays is missing, because no UDP port can be opened: {error}"
                );
                continue;
            }
        };
        let number = socket.local_addr()?.port();
        // The loop counts ports as it gets them.
        let port = PortId(u8::try_from(bound.len()).unwrap_or(u8::MAX));
        bound.push(Bound { socket, offered: Offered { port, number, transport }, stack });
    }
    Ok(bound)
}

enum Unbound {
    /// The operator's own choice, and why not.
    Chosen(String),
    Any(io::Error),
}

fn bind_port(choice: UdpPort, or_port: OrPortPlace, offset: u16) -> Result<UdpSocket, Unbound> {
    let any = || bind_udp(or_port.address, 0).map_err(Unbound::Any);
    let nth = |first: u16| first.checked_add(offset).filter(|port| *port != 0);
    match choice {
        UdpPort::Fixed(first) => {
            let port = nth(first).ok_or_else(|| {
                Unbound::Chosen(format!("HeddleUDPPort {first} leaves no port {offset} above it; lower it"))
            })?;
            bind_udp(or_port.address, port).map_err(|error| {
                Unbound::Chosen(format!(
                    "HeddleUDPPort {port} cannot be opened: {error}; choose another or free it"
                ))
            })
        }
        // Peers learn the port from the offer, so another one is as good unless a firewall thinks otherwise.
        UdpPort::AsOrPort => match nth(or_port.port).map(|port| bind_udp(or_port.address, port)) {
            Some(Ok(socket)) => Ok(socket),
            _ => any(),
        },
        UdpPort::Auto | UdpPort::Off => any(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn everywhere(port: u16) -> OrPortPlace {
        OrPortPlace { address: None, port }
    }

    #[test]
    fn shards_follow_the_number_and_an_explicit_one_is_not_left() {
        let taken = bind_udp(None, 0).unwrap();
        let port = taken.local_addr().unwrap().port();
        assert!(matches!(bind_port(UdpPort::Fixed(port), everywhere(1), 0), Err(Unbound::Chosen(_))));
        let beside = bind_port(UdpPort::AsOrPort, everywhere(port), 0).ok().unwrap();
        assert_ne!(beside.local_addr().unwrap().port(), port);
        assert!(matches!(bind_port(UdpPort::Fixed(65535), everywhere(1), 1), Err(Unbound::Chosen(_))));
        assert!(bind_port(UdpPort::AsOrPort, everywhere(65535), 1).is_ok());
    }

    #[test]
    fn ports_are_open_only_where_the_or_port_is() {
        let address = Some(Ipv4Addr::new(127, 0, 0, 2).into());
        for choice in [UdpPort::AsOrPort, UdpPort::Auto] {
            let socket = bind_port(choice, OrPortPlace { address, port: 0 }, 0).ok().unwrap();
            let open = socket.local_addr().unwrap();
            assert_eq!(Some(open.ip()), address);
            // At another address the same number is free, and whoever sends there is told that nobody listens.
            let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
            stranger.connect(("127.0.0.1", open.port())).unwrap();
            stranger.send(b"anybody?").unwrap();
            assert_eq!(stranger.send(b"anybody?").unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        }
    }
}
