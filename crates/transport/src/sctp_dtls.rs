//! `sctp-dtls` between upgraded relays: one DTLS 1.3 session for each pair of relays, in it one SCTP association, and
//! in that a stream for each circuit, as J. Reardon and I. Goldberg thought of ("Improving Tor using a TCP-over-DTLS
//! Tunnel", USENIX Security 2009, section 5.2).
//!
//! A lost datagram holds back only the circuits whose cells it carried. All share one congestion window, one account of
//! what the receiver has room for, and so one back-pressure.
//!
//! A cell is a message of its command and its body, 510 bytes. DESTROY is one, too, and after it either end has the
//! stream begin anew. The bytes are in `docs/reference/sctp-dtls.md`.

mod flows;
#[cfg(test)]
mod hostile;
mod options;
mod tunnelled;

pub use crate::dtls::options::SessionOptions;
pub use options::{CongestionControl, SctpOptions};

use crate::connections::proof::Protocol;
use crate::connections::setup::{Registered, SetupError};
use crate::dtls::endpoint::SessionEndpoint;
use heddle_proto::endpoint::Endpoint;
use heddle_proto::transport::{Isolation, Scope, Transport, TransportId};
use heddle_seam::rng::Seed;
use zeroize::Zeroizing;

/// What it is to relays.
pub static TRANSPORT: Transport = Transport {
    name: "sctp-dtls",
    id: TransportId(5),
    isolation: Isolation {
        ordering: Scope::Circuit,
        congestion: Scope::Channel,
        backpressure: Scope::Channel,
    },
};

/// What sessions carry.
pub(crate) const PROTOCOL: Protocol = Protocol { transport: TRANSPORT.name, version: 1 };

/// Its line in the registry.
pub(crate) static REGISTERED: Registered = Registered {
    transport: &TRANSPORT,
    summary: "one DTLS session and in it one SCTP association for each pair of relays, a stream for each circuit",
    testing_only: None,
    options: &[options::CONGESTION_CONTROL],
    stack: None,
    endpoint: SctpEndpoint::from_setup,
};

type SctpEndpoint = SessionEndpoint<tunnelled::Sctp>;

/// All connections of one UDP port. Its offers name the key of `secret`, and `seed` must serve it alone.
pub fn endpoint(
    options: SctpOptions,
    secret: &Zeroizing<[u8; 32]>,
    seed: &Seed,
) -> Result<Box<dyn Endpoint>, SetupError> {
    Ok(Box::new(SctpEndpoint::new(options, secret, seed)?))
}
