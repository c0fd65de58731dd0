//! The `quic` transport: two endpoints on emulated wires, in virtual time.

#[path = "../support/circuits.rs"]
mod circuits;
mod congestion;
mod fairness;
mod flows;
mod isolation;
#[path = "../support/lives.rs"]
mod lives;
#[path = "../support/loads.rs"]
mod loads;
#[path = "../support/matrix.rs"]
mod matrix;
mod per_circuit;
mod silence;
#[path = "../support/source.rs"]
mod source;
#[path = "../support/tcp.rs"]
mod tcp;

/// What the tests share, with the options of this transport.
#[path = "../support/bench.rs"]
mod wires;

mod bench {
    pub use crate::wires::*;
    use heddle_proto::endpoint::ConnectionError;
    use heddle_transport::quic::QuicOptions;

    /// One round trip for the handshake, and one for the proofs.
    pub const READY_RTTS: f64 = 2.0;

    /// How a dialler and a listener end who have different proofs of the dialler's.
    pub const OTHER_PROOF: [ConnectionError; 2] = [ConnectionError::PeerClosed, ConnectionError::WrongProof];

    pub fn options() -> QuicOptions {
        QuicOptions::new(anchor())
    }
}
