//! The shards of a relay, each with its part of what the relay has.
//!
//! - Rates and what is known of clients are shared: the shards' sum keeps to the rates, and one busy shard may use them
//!   whole.
//! - Memory is not: each shard has an even part of `MaxMemInQueues`.

use crate::identity::{Shown, transport};
use core::fmt;
use heddle_proto::endpoint::Endpoint;
use heddle_relay::{Relay, RelayConfig};
use heddle_seam::node::{PortId, ShardId, StackId};
use heddle_seam::rng::Entropy;
use heddle_seam::stopwatch::Stopwatch;
use heddle_transport::PaddingOptions;
use heddle_transport::registry::{Chosen, EndpointSetup, Registered, SetupError};
use heddle_transport::tls::TlsSetupError;
use std::error::Error;
use std::time::Instant;
use zeroize::Zeroizing;

/// What chance a part of a shard gets, by what the part is: `relay`, `tls` or a transport's name. In the program it is
/// the system's in any case; in a simulation each part has its own of the seed.
pub type Chance<'a> = &'a dyn Fn(&str) -> Box<dyn Entropy>;

/// What all shards of a relay are made of.
pub struct Assembly<'a> {
    /// The whole relay's, but for the limits, which are each shard's own.
    pub config: RelayConfig,
    pub shards: u16,
    pub shown: Shown<'a>,
    /// What was chosen of transports' own options.
    pub chosen: &'a Chosen,
    /// Whether the system cuts batches of datagrams, tells congestion marks and never fragments.
    pub offload: bool,
    /// The instant of the system's clock that [`heddle_seam::time::Instant::ZERO`] stands for.
    pub anchor: Instant,
    /// What endpoints and shards tell their times to.
    pub stopwatch: Stopwatch,
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

impl Assembly<'_> {
    /// Shard `number`, which shares rates and clients with `first`, the relay's first one. Of its ports the first is
    /// preferred.
    ///
    /// # Errors
    /// When TLS refuses the keys, or an endpoint its options.
    pub fn shard(
        &self,
        number: u16,
        ports: &[Offered],
        first: Option<&Relay>,
        chance: Chance<'_>,
    ) -> Result<Relay, AssemblyError> {
        let config = self.part_of(number);
        let tls = transport(&self.shown, PaddingOptions::default(), chance("tls"));
        let endpoints: Result<Vec<_>, _> = ports
            .iter()
            .map(|offered| {
                let endpoint = self.endpoint(offered, config.max_queue_bytes, chance)?;
                Ok((offered.port, offered.number, endpoint))
            })
            .collect();
        let tls = Box::new(tls.map_err(AssemblyError::Tls)?);
        let mut relay = Relay::with_endpoints(config, tls, endpoints?, chance("relay"));
        relay.set_stopwatch(self.stopwatch.clone());
        if let Some(first) = first {
            relay.share_with(first);
        }
        Ok(relay)
    }

    fn part_of(&self, number: u16) -> RelayConfig {
        RelayConfig {
            max_queue_bytes: self.config.max_queue_bytes / usize::from(self.shards),
            shard: ShardId(number),
            shards: self.shards,
            ..self.config.clone()
        }
    }

    fn endpoint(
        &self,
        offered: &Offered,
        queue_bytes_max: usize,
        chance: Chance<'_>,
    ) -> Result<Box<dyn Endpoint>, AssemblyError> {
        let transport = offered.transport;
        let mut entropy = chance(transport.transport.name);
        let setup = EndpointSetup {
            anchor: self.anchor,
            offload: self.offload,
            queue_bytes_max,
            chosen: self.chosen,
            // The relay replaces the key with one of its own before it is offered.
            secret: &Zeroizing::new(entropy.rng().array()),
            // The stack of a port bears its number.
            stack: StackId(offered.port.0),
            seed: entropy.seed(),
            stopwatch: self.stopwatch.clone(),
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
