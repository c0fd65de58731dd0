//! The UDP ports of the shards, and the transports over them.
//!
//! Each shard has a port of its own for each transport, which its offers name: a datagram always reaches the shard that
//! owns the connection. Ports are open on every address, of both families where there are both, because datagrams go
//! between the very addresses that the TLS channel has, whichever of ours that is. They answer no stranger.

use super::Failure;
use crate::torrc::{Options, Transport, UdpPort};
use heddle_net::{anchor, bind_udp};
use heddle_proto::endpoint::Endpoint;
use heddle_proto::node::PortId;
use heddle_proto::rng::Seed;
use heddle_transport::quic::{QuicEndpoint, QuicOptions};
use std::io;
use std::net::UdpSocket;
use zeroize::Zeroizing;

/// The port of the transport `quic`, in every shard.
const QUIC_PORT: PortId = PortId(0);

/// A shard's endpoint and its socket.
pub struct Bound {
    pub socket: UdpSocket,
    pub port: PortId,
    /// What offers name.
    pub offered: u16,
    pub endpoint: Box<dyn Endpoint>,
}

/// What a shard has beside TLS. `or_port` is the number that its UDP port follows by default.
pub fn bind(options: &Options, or_port: u16, shard: u16, seed: &Seed) -> Result<Vec<Bound>, Failure> {
    if !options.heddle.uses(Transport::Quic) {
        return Ok(Vec::new());
    }
    let socket = match bind_port(options.heddle.udp_port, or_port, shard) {
        Ok(socket) => socket,
        Err(Unbound::Chosen(error)) => return Err(error.into()),
        Err(Unbound::Any(error)) => {
            log::warn!(
                "Circuits to other Heddle relays go over TLS only: no UDP port can be opened: {error}"
            );
            return Ok(Vec::new());
        }
    };
    let offered = socket.local_addr()?.port();
    // The relay replaces the key with one of its own generator before it is offered.
    let secret = Zeroizing::new(seed.child("first key", 0).rng().array());
    let endpoint = QuicEndpoint::new(quic_options(options), &secret, seed)?;
    Ok(vec![Bound { socket, port: QUIC_PORT, offered, endpoint: Box::new(endpoint) }])
}

enum Unbound {
    /// The operator's own choice, and why not.
    Chosen(String),
    Any(io::Error),
}

fn bind_port(choice: UdpPort, or_port: u16, shard: u16) -> Result<UdpSocket, Unbound> {
    let any = || bind_udp(None, 0).map_err(Unbound::Any);
    let nth = |first: u16| first.checked_add(shard).filter(|port| *port != 0);
    match choice {
        UdpPort::Fixed(first) => {
            let port = nth(first).ok_or_else(|| {
                Unbound::Chosen(format!("HeddleUDPPort {first} leaves no port for shard {shard}; lower it"))
            })?;
            bind_udp(None, port).map_err(|error| {
                Unbound::Chosen(format!(
                    "HeddleUDPPort {port} cannot be opened: {error}; choose another or free it"
                ))
            })
        }
        // Peers learn the port from the offer, so another one is as good unless a firewall thinks otherwise.
        UdpPort::AsOrPort => match nth(or_port).map(|port| bind_udp(None, port)) {
            Some(Ok(socket)) => Ok(socket),
            _ => any(),
        },
        UdpPort::Auto | UdpPort::Off => any(),
    }
}

fn quic_options(options: &Options) -> QuicOptions {
    let defaults = match options.heddle.udp_offload {
        true => QuicOptions::new(anchor()),
        false => QuicOptions::plain(anchor()),
    };
    let congestion = options.heddle.quic_congestion_control.unwrap_or(defaults.congestion);
    QuicOptions { congestion, ..defaults }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_follow_the_number_and_an_explicit_one_is_not_left() {
        let taken = bind_udp(None, 0).unwrap();
        let port = taken.local_addr().unwrap().port();
        assert!(matches!(bind_port(UdpPort::Fixed(port), 1, 0), Err(Unbound::Chosen(_))));
        let beside = bind_port(UdpPort::AsOrPort, port, 0).ok().unwrap();
        assert_ne!(beside.local_addr().unwrap().port(), port);
        assert!(matches!(bind_port(UdpPort::Fixed(65535), 1, 1), Err(Unbound::Chosen(_))));
        assert!(bind_port(UdpPort::AsOrPort, 65535, 1).is_ok());
    }
}
