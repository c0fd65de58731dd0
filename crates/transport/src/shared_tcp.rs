//! TCP connections over DTLS that circuits share, for comparison with those who proposed so: one DTLS 1.3 session for
//! each pair of relays, and in it a few TCP connections, over which all circuits are spread.
//!
//! - `torchestra-dtls` has two, one for circuits that send little and one for those that send much (D. Gopal and N.
//!   Heninger, "Torchestra: Reducing Interactive Traffic Delays over Tor", WPES 2012);
//! - `imux-dtls` has a few, to each of which the same number of circuits goes (J. Geddes, R. Jansen and N. Hopper,
//!   "IMUX: Managing Tor Connections from Two to Infinity, and Beyond", WPES 2014).
//!
//! A lost datagram holds back all circuits of its connection, and so does a circuit that nobody reads. Each connection
//! has CUBIC, as a kernel's has. The bytes are in `docs/reference/shared-tcp.md`.

mod flows;
mod frame;
mod lane;
mod options;
mod spread;
#[cfg(test)]
mod tests;
mod tunnelled;

pub use options::SharedTcpOptions;

use crate::connections::proof::Protocol;
use crate::connections::setup::{Registered, SetupError};
use crate::dtls::endpoint::SessionEndpoint;
use heddle_proto::endpoint::Endpoint;
use heddle_proto::transport::{Isolation, Scope, Transport, TransportId};
use heddle_seam::rng::Seed;
use spread::{Even, LightAndBulk};
use tunnelled::SharedTcp;
use zeroize::Zeroizing;

const ISOLATION: Isolation =
    Isolation { ordering: Scope::Channel, congestion: Scope::Channel, backpressure: Scope::Channel };

/// What Torchestra's is to relays.
static TORCHESTRA: Transport =
    Transport { name: "torchestra-dtls", id: TransportId(6), isolation: ISOLATION };

/// What IMUX' is to relays.
static IMUX: Transport = Transport { name: "imux-dtls", id: TransportId(7), isolation: ISOLATION };

const WHY_TESTING: &str = "it is here to be compared with, and on it circuits hold back each other";

/// Torchestra's line in the registry.
pub(crate) static TORCHESTRA_REGISTERED: Registered = Registered {
    transport: &TORCHESTRA,
    summary: "one DTLS session for each pair of relays, and two TCP connections in it, for light and for bulk circuits",
    testing_only: Some(WHY_TESTING),
    options: &[],
    stack: None,
    endpoint: SessionEndpoint::<SharedTcp<LightAndBulk>>::from_setup,
};

/// IMUX' line in the registry.
pub(crate) static IMUX_REGISTERED: Registered = Registered {
    transport: &IMUX,
    summary: "one DTLS session for each pair of relays, and a few TCP connections in it, over which circuits are spread",
    testing_only: Some(WHY_TESTING),
    options: &[options::CONNECTIONS],
    stack: None,
    endpoint: SessionEndpoint::<SharedTcp<Even>>::from_setup,
};

/// What sessions carry.
pub(crate) const fn protocol(transport: &'static str) -> Protocol {
    Protocol { transport, version: 1 }
}

/// All connections of one UDP port with `torchestra-dtls`. Its offers name the key of `secret`, and `seed` must serve
/// it alone.
pub fn torchestra(
    options: SharedTcpOptions,
    secret: &Zeroizing<[u8; 32]>,
    seed: &Seed,
) -> Result<Box<dyn Endpoint>, SetupError> {
    Ok(Box::new(SessionEndpoint::<SharedTcp<LightAndBulk>>::new(options, secret, seed)?))
}

/// The same with `imux-dtls`.
pub fn imux(
    options: SharedTcpOptions,
    secret: &Zeroizing<[u8; 32]>,
    seed: &Seed,
) -> Result<Box<dyn Endpoint>, SetupError> {
    Ok(Box::new(SessionEndpoint::<SharedTcp<Even>>::new(options, secret, seed)?))
}
