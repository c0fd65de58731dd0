//! The `quic` transport: two endpoints on emulated wires, in virtual time.

#[path = "../support/cells.rs"]
mod cells;
#[path = "../support/circuits.rs"]
mod circuits;
mod congestion;
#[path = "../support/estimate.rs"]
mod estimate;
mod evaluation;
mod fairness;
mod flows;
mod isolation;
mod lengths;

#[path = "../support/held.rs"]
mod held;
#[path = "../support/lives.rs"]
mod lives;
#[path = "../support/loads.rs"]
mod loads;
#[path = "../support/matrix.rs"]
mod matrix;
#[path = "../support/observed.rs"]
mod observed;
mod per_circuit;
mod silence;
#[path = "../support/source.rs"]
mod source;
mod steps;
#[path = "../support/strangers.rs"]
mod strangers;
#[path = "../support/tcp.rs"]
mod tcp;
mod weight;

/// What the tests share, with the options of this transport.
#[path = "../support/bench.rs"]
mod wires;

mod bench {
    pub use crate::wires::*;
    use core::ops::Range;
    use heddle_proto::endpoint::ConnectionError;
    use heddle_transport::fuzz_endpoint::Fuzzed;
    use heddle_transport::quic::QuicOptions;

    pub const FUZZED: Fuzzed = Fuzzed::Quic;

    /// One round trip for the handshake, and one for the proofs.
    pub const READY_RTTS: f64 = 2.0;

    /// How a dialler and a listener end who have different proofs of the dialler's.
    pub const OTHER_PROOF: [ConnectionError; 2] = [ConnectionError::PeerClosed, ConnectionError::WrongProof];

    pub fn options() -> QuicOptions {
        QuicOptions::new(anchor())
    }

    /// Where the id of a connection stands in its datagrams, once it is ready.
    pub const ID: Range<usize> = 1..13;

    /// Whether a live connection may acknowledge a packet that it has seen before, to its peer.
    pub const ANSWERS_REPLAYS: bool = true;

    /// The same options, but for what a flow keeps that nobody reads.
    pub fn with_flow_window(bytes: u32) -> QuicOptions {
        QuicOptions { stream_receive_window_bytes: bytes, ..options() }
    }

    /// A datagram of version 1, an Initial, with the token or nearly so.
    pub fn nearly_let_through(tail: &[u8]) -> Vec<u8> {
        let mut datagram = [&[0xc0, 0, 0, 0, 1, 20][..], &[0xaa; 20], &[0, 0], tail].concat();
        datagram.resize(1200, 0);
        datagram
    }
}
