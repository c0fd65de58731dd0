//! `tcp-dtls` between upgraded relays: one DTLS 1.3 session for each pair of relays, and in it a TCP connection for
//! each circuit, as J. Reardon's thesis has it ("Improving Tor using a TCP-over-DTLS Tunnel", Waterloo 2008).
//!
//! A lost datagram holds back only the circuits whose cells it carried, and a circuit that nobody reads takes its own
//! window and no more. By default they share one congestion window; with CUBIC or Reno each has its own.
//!
//! A cell on a flow is its command and its body, 510 bytes. DESTROY is a reset with Tor's reason; it overtakes data.
//! Neither circuit ids nor anything else that is per circuit can be seen on the wire. The bytes are in
//! `docs/reference/tcp-dtls.md`.

mod datagrams;
mod flow;
mod flows;
#[cfg(test)]
mod hostile;
mod options;
mod tunnelled;

pub use crate::connections::setup::{InvalidOptions, SetupError};
pub use crate::dtls::options::SessionOptions;
pub use options::{CongestionControl, DtlsOptions};

use crate::connections::proof::Protocol;
use crate::connections::setup::Registered;
use crate::dtls::endpoint::SessionEndpoint;
use heddle_proto::endpoint::Endpoint;
use heddle_proto::transport::{Isolation, Scope, Transport, TransportId};
use heddle_seam::rng::Seed;
use zeroize::Zeroizing;

/// What it is to relays.
pub static TRANSPORT: Transport = Transport {
    name: "tcp-dtls",
    id: TransportId(2),
    isolation: Isolation {
        ordering: Scope::Circuit,
        congestion: Scope::Channel,
        backpressure: Scope::Circuit,
    },
};

/// What sessions carry.
pub(crate) const PROTOCOL: Protocol = Protocol { transport: TRANSPORT.name, version: 3 };

/// Its line in the registry.
pub(crate) static REGISTERED: Registered = Registered {
    transport: &TRANSPORT,
    summary: "one DTLS session for each pair of relays, a TCP connection for each circuit",
    testing_only: None,
    options: &[options::CONGESTION_CONTROL],
    stack: None,
    endpoint: DtlsEndpoint::from_setup,
};

type DtlsEndpoint = SessionEndpoint<tunnelled::Tcp>;

/// All connections of one UDP port. Its offers name the key of `secret`, and `seed` must serve it alone.
pub fn endpoint(
    options: DtlsOptions,
    secret: &Zeroizing<[u8; 32]>,
    seed: &Seed,
) -> Result<Box<dyn Endpoint>, SetupError> {
    Ok(Box::new(DtlsEndpoint::new(options, secret, seed)?))
}
