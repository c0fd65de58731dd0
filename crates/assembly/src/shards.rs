//! The shards of a relay, each with its part of what the relay has.
//!
//! - Rates and what is known of clients are shared: the shards' sum keeps to the rates, and one busy shard may use them
//!   whole.
//! - Memory is not: each shard has an even part of `MaxMemInQueues`.

use crate::setup::Setup;
use core::fmt;
use core::net::IpAddr;
use heddle_control::{Shown, transport};
use heddle_dir::certs::ChannelCerts;
use heddle_dir::keys::RelayKeys;
use heddle_proto::channel::StreamTransport;
use heddle_proto::endpoint::Endpoint;
use heddle_relay::{Relay, RelayConfig};
use heddle_seam::node::{PortId, ShardId, StackId};
use heddle_seam::rng::Entropy;
use heddle_seam::stopwatch::Stopwatch;
use heddle_transport::Ciphers;
use heddle_transport::registry::{Chosen, EndpointSetup, Registered, SetupError};
use heddle_transport::tls::{TlsOptions, TlsSetupError};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;
use zeroize::Zeroizing;

/// What chance a part of a shard gets, by what the part is: `relay`, `tls` or a transport's name. In the program it is
/// the system's in any case; in a simulation each part has its own of the seed.
pub type Chance<'a> = &'a dyn Fn(&str) -> Box<dyn Entropy>;

/// What stands between a relay's core and its channels and endpoints. In the program that is nothing; simulations have
/// relays that keep no rules.
pub struct Over<'a> {
    pub channels: &'a dyn Fn(Box<dyn StreamTransport>) -> Box<dyn StreamTransport>,
    pub endpoint: &'a dyn Fn(Box<dyn Endpoint>) -> Box<dyn Endpoint>,
}

/// What all shards of a relay are made of.
pub struct Assembly<'a> {
    /// Each shard's, but for its number.
    config: RelayConfig,
    keys: &'a RelayKeys,
    certs: &'a Arc<ChannelCerts>,
    /// The addresses that NETINFO names.
    addrs: Vec<IpAddr>,
    /// What was chosen of transports' own options.
    chosen: &'a Chosen,
    /// Whether the system cuts batches of datagrams, tells congestion marks and never fragments.
    offload: bool,
    /// The instant of the system's clock that [`heddle_seam::time::Instant::ZERO`] stands for.
    anchor: Instant,
    ciphers: Ciphers,
}

/// A UDP port of a shard, as its driver has it, and what is spoken there.
#[derive(Clone, Copy, Debug)]
pub struct Offered {
    pub port: PortId,
    /// The number that offers name.
    pub number: u16,
    pub transport: &'static Registered,
}

/// A shard cannot be made; our own fault, or that of the keys.
#[derive(Debug)]
pub enum AssemblyError {
    Tls(TlsSetupError),
    Endpoint(SetupError),
}

impl<'a> Assembly<'a> {
    /// What is made of a relay's options and keys. `anchor` is the instant of the system's clock that
    /// [`heddle_seam::time::Instant::ZERO`] stands for.
    pub fn new(
        setup: &Setup<'a>,
        keys: &'a RelayKeys,
        certs: &'a Arc<ChannelCerts>,
        anchor: Instant,
    ) -> Self {
        Assembly {
            config: setup.shard_config(keys),
            keys,
            certs,
            addrs: setup.addrs(),
            chosen: &setup.options.heddle.chosen,
            offload: setup.options.heddle.udp_offload,
            anchor,
            ciphers: Ciphers::default(),
        }
    }

    /// The same with links whose cryptography comes from elsewhere. The program keeps the default.
    pub fn with_ciphers(self, ciphers: Ciphers) -> Self {
        Assembly { ciphers, ..self }
    }

    /// Circuits that a shard takes at most.
    pub fn circuits_max(&self) -> usize {
        self.config.limits.circuits
    }

    /// Shard `number`, which shares rates and clients with `first`, the relay's first one, and tells its times and its
    /// endpoints' to `stopwatch`. Of its ports the first is preferred.
    ///
    /// # Errors
    /// When TLS refuses the keys, or an endpoint its options.
    pub fn shard(
        &self,
        number: u16,
        ports: &[Offered],
        first: Option<&Relay>,
        stopwatch: &Stopwatch,
        chance: Chance<'_>,
    ) -> Result<Relay, AssemblyError> {
        let over = Over { channels: &|channels| channels, endpoint: &|endpoint| endpoint };
        self.shard_over(number, ports, first, stopwatch, chance, &over)
    }

    /// The same over what `over` makes of the relay's own channels and endpoints.
    ///
    /// # Errors
    /// Likewise.
    pub fn shard_over(
        &self,
        number: u16,
        ports: &[Offered],
        first: Option<&Relay>,
        stopwatch: &Stopwatch,
        chance: Chance<'_>,
        over: &Over<'_>,
    ) -> Result<Relay, AssemblyError> {
        let config = RelayConfig { shard: ShardId(number), ..self.config.clone() };
        let shown = Shown { keys: self.keys, certs: self.certs, addrs: &self.addrs };
        let options = TlsOptions { ciphers: self.ciphers, ..TlsOptions::default() };
        let tls = transport(&shown, options, chance("tls"));
        let endpoints: Result<Vec<_>, _> = ports
            .iter()
            .map(|offered| {
                let endpoint = self.endpoint(offered, stopwatch, chance)?;
                Ok((offered.port, offered.number, (over.endpoint)(endpoint)))
            })
            .collect();
        let channels = (over.channels)(Box::new(tls.map_err(AssemblyError::Tls)?));
        let mut relay = Relay::with_endpoints(config, channels, endpoints?, chance("relay"));
        relay.set_stopwatch(stopwatch.clone());
        if let Some(first) = first {
            relay.share_with(first);
        }
        Ok(relay)
    }

    fn endpoint(
        &self,
        offered: &Offered,
        stopwatch: &Stopwatch,
        chance: Chance<'_>,
    ) -> Result<Box<dyn Endpoint>, AssemblyError> {
        let transport = offered.transport;
        let mut entropy = chance(transport.transport.name);
        let setup = EndpointSetup {
            anchor: self.anchor,
            offload: self.offload,
            queue_bytes_max: self.config.max_queue_bytes,
            ciphers: self.ciphers,
            chosen: self.chosen,
            // The relay replaces the key with one of its own before it is offered.
            secret: &Zeroizing::new(entropy.rng().array()),
            // The stack of a port bears its number.
            stack: StackId(offered.port.0),
            seed: entropy.seed(),
            stopwatch: stopwatch.clone(),
        };
        (transport.endpoint)(&setup).map_err(AssemblyError::Endpoint)
    }
}

impl fmt::Display for AssemblyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AssemblyError::Tls(error) => error.fmt(f),
            AssemblyError::Endpoint(error) => error.fmt(f),
        }
    }
}

impl Error for AssemblyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            AssemblyError::Tls(error) => error.source(),
            AssemblyError::Endpoint(error) => error.source(),
        }
    }
}
