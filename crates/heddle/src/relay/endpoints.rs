//! The UDP ports of the shards, and the transports over them.
//!
//! Each shard has a port of its own for each transport, which its offers name: a datagram always reaches the shard that
//! owns the connection. Ports are open where the ORPort listens: on every address, of both families where there are both,
//! or on the one that the operator named. Datagrams go between the very addresses that the TLS channel has, so a channel
//! from another address of ours keeps its circuits. They answer no stranger.

use super::Failure;
use crate::torrc::{Options, Transport, UdpPort};
use heddle_net::{SystemEntropy, anchor, bind_udp};
use heddle_proto::endpoint::Endpoint;
use heddle_seam::node::PortId;
use heddle_seam::rng::Entropy;
use heddle_seam::stopwatch::Stopwatch;
use heddle_transport::dtls::{DtlsEndpoint, DtlsOptions, POOL_BYTES_MIN};
use heddle_transport::per_circuit::PerCircuitEndpoint;
use heddle_transport::quic::{QuicEndpoint, QuicOptions};
use std::io;
use std::net::{IpAddr, UdpSocket};
use zeroize::Zeroizing;

/// A shard's endpoint and its socket.
pub struct Bound {
    pub socket: UdpSocket,
    pub port: PortId,
    /// What offers name.
    pub offered: u16,
    pub endpoint: Box<dyn Endpoint>,
}

/// Which shard of how many, and its part of `MaxMemInQueues`.
#[derive(Clone, Copy, Debug)]
pub struct Shard {
    pub number: u16,
    pub count: u16,
    pub max_queue_bytes: usize,
}

/// What UDP ports follow: the address of the ORPort, `None` for all, and by default its number.
#[derive(Clone, Copy, Debug)]
pub struct OrPortPlace {
    pub address: Option<IpAddr>,
    pub port: u16,
}

/// What a shard has beside TLS, the preferred first. Endpoints tell their times to `stopwatch`.
pub fn bind(
    options: &Options,
    or_port: OrPortPlace,
    shard: Shard,
    stopwatch: &Stopwatch,
    entropy: SystemEntropy,
) -> Result<Vec<Bound>, Failure> {
    let mut bound = Vec::new();
    let datagrams = options.heddle.transports.iter().filter(|transport| **transport != Transport::Tls);
    for (place, transport) in (0_u16..).zip(datagrams.filter(|transport| options.heddle.uses(**transport))) {
        let offset = place.saturating_mul(shard.count).saturating_add(shard.number);
        let socket = match bind_port(options.heddle.udp_port, or_port, offset) {
            Ok(socket) => socket,
            Err(Unbound::Chosen(error)) => return Err(error.into()),
            Err(Unbound::Any(error)) => {
                log::warn!(
                    "A way to other Heddle relays is missing, since no UDP port can be opened: {error}"
                );
                continue;
            }
        };
        let offered = socket.local_addr()?.port();
        // The loop counts ports as it gets them.
        let port = PortId(u8::try_from(bound.len()).unwrap_or(u8::MAX));
        bound.push(Bound {
            socket,
            port,
            offered,
            endpoint: endpoint(options, *transport, shard.max_queue_bytes, stopwatch, entropy)?,
        });
    }
    Ok(bound)
}

fn endpoint(
    options: &Options,
    transport: Transport,
    max_queue_bytes: usize,
    stopwatch: &Stopwatch,
    mut entropy: SystemEntropy,
) -> Result<Box<dyn Endpoint>, Failure> {
    let seed = entropy.seed();
    // The relay replaces the key with one of its own before it is offered.
    let secret = Zeroizing::new(entropy.rng().array());
    Ok(match transport {
        Transport::TcpDtls => {
            let mut endpoint = DtlsEndpoint::new(dtls_options(options, max_queue_bytes), &secret, &seed)?;
            endpoint.set_stopwatch(stopwatch.clone());
            Box::new(endpoint)
        }
        Transport::QuicPerCircuit => {
            let quic = QuicEndpoint::new(quic_options(options, max_queue_bytes), &secret, &seed)?;
            Box::new(PerCircuitEndpoint::new(quic))
        }
        Transport::Quic | Transport::Tls => {
            Box::new(QuicEndpoint::new(quic_options(options, max_queue_bytes), &secret, &seed)?)
        }
    })
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

/// Of what a shard may hold in queues, flows take half at most: what the relay holds of their circuits is to find memory, too.
fn dtls_options(options: &Options, max_queue_bytes: usize) -> DtlsOptions {
    let defaults = match options.heddle.udp_offload {
        true => DtlsOptions::new(anchor()),
        false => DtlsOptions::plain(anchor()),
    };
    let congestion = options.heddle.tcp_congestion_control.unwrap_or(defaults.congestion);
    let pool_bytes_max = (max_queue_bytes / 2).clamp(POOL_BYTES_MIN, defaults.pool_bytes_max);
    DtlsOptions { congestion, pool_bytes_max, ..defaults }
}

/// Half at most is what peers may send beyond what was read, likewise.
fn quic_options(options: &Options, max_queue_bytes: usize) -> QuicOptions {
    let defaults = match options.heddle.udp_offload {
        true => QuicOptions::new(anchor()),
        false => QuicOptions::plain(anchor()),
    };
    let congestion = options.heddle.quic_congestion_control.unwrap_or(defaults.congestion);
    let shared_receive_window_bytes = max_queue_bytes / 2;
    QuicOptions { congestion, shared_receive_window_bytes, ..defaults }
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

    #[test]
    fn flows_share_half_of_what_a_shard_may_hold() {
        let bytes = |queues: usize| dtls_options(&Options::default(), queues).pool_bytes_max;
        assert_eq!([0, 8 << 20, 8 << 30].map(bytes), [1 << 20, 4 << 20, 256 << 20]);
    }
}
