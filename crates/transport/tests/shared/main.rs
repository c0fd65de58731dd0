//! The transports `imux-dtls` and `torchestra-dtls`: two endpoints on emulated wires, in virtual time. What is not said
//! of either is `imux-dtls`.

#[path = "../support/circuits.rs"]
mod circuits;
mod comparison;
#[path = "../support/lives.rs"]
mod lives;
#[path = "../support/lone.rs"]
mod lone;
#[path = "../dtls/silence.rs"]
mod silence;
#[path = "../support/source.rs"]
mod source;
#[path = "../support/strangers.rs"]
mod strangers;
#[path = "../support/tcp.rs"]
mod tcp;

/// What the tests share, with the options of this transport.
#[path = "../support/bench.rs"]
mod wires;

mod bench {
    pub use crate::wires::*;
    use core::ops::Range;
    use heddle_proto::endpoint::{ConnectionError, Endpoint};
    use heddle_seam::rng::Seed;
    use heddle_transport::fuzz_endpoint::Fuzzed;
    use heddle_transport::shared_tcp::{self, SharedTcpOptions};
    use zeroize::Zeroizing;

    pub const FUZZED: Fuzzed = Fuzzed::Imux;

    /// One round trip for the handshake, one for the proofs, half a one until the listener knows that its own arrived,
    /// and one for the connections.
    pub const READY_RTTS: f64 = 3.5;

    /// How a dialler and a listener end who have different proofs of the dialler's: sessions' ids follow from it.
    pub const OTHER_PROOF: [ConnectionError; 2] = [ConnectionError::NoAnswer, ConnectionError::NoAnswer];

    /// `imux-dtls`.
    #[derive(Clone)]
    pub struct Imux(SharedTcpOptions);

    impl Options for Imux {
        fn endpoint(self, secret: &Zeroizing<[u8; 32]>, seed: &Seed) -> Box<dyn Endpoint> {
            shared_tcp::imux(self.0, secret, seed).expect("good options")
        }
    }

    /// `torchestra-dtls`.
    #[derive(Clone)]
    pub struct Torchestra;

    impl Options for Torchestra {
        fn endpoint(self, secret: &Zeroizing<[u8; 32]>, seed: &Seed) -> Box<dyn Endpoint> {
            shared_tcp::torchestra(SharedTcpOptions::new(anchor()), secret, seed).expect("good options")
        }
    }

    pub fn options() -> Imux {
        with_connections(4)
    }

    pub fn with_connections(connections: usize) -> Imux {
        Imux(SharedTcpOptions { connections, ..SharedTcpOptions::new(anchor()) })
    }

    /// Where the id of a session stands in its datagrams.
    pub const ID: Range<usize> = 0..8;

    /// Whether a live connection may acknowledge a packet that it has seen before, to its peer.
    pub const ANSWERS_REPLAYS: bool = false;

    /// A datagram with the token or nearly so, and the head of a record.
    pub fn nearly_let_through(tail: &[u8]) -> Vec<u8> {
        [&[0xaa; 20][..], &[22, 254, 253], tail].concat()
    }
}
