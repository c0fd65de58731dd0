//! The `sctp-dtls` transport: two endpoints on emulated wires, in virtual time.

#[path = "../support/cells.rs"]
mod cells;
#[path = "../support/circuits.rs"]
mod circuits;
mod fairness;
mod flows;
mod lengths;
#[path = "../support/lives.rs"]
mod lives;
#[path = "../support/loads.rs"]
mod loads;
#[path = "../support/lone.rs"]
mod lone;
#[path = "../support/matrix.rs"]
mod matrix;
#[path = "../support/observed.rs"]
mod observed;
mod paths;
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
    use heddle_proto::endpoint::ConnectionError;
    use heddle_transport::fuzz_endpoint::Fuzzed;
    use heddle_transport::sctp_dtls::SctpOptions;

    pub const FUZZED: Fuzzed = Fuzzed::Sctp;

    /// One round trip for the handshake, one for the proofs, half a one until the listener knows that its own arrived,
    /// and two for the association.
    pub const READY_RTTS: f64 = 4.5;

    /// How a dialler and a listener end who have different proofs of the dialler's: sessions' ids follow from it.
    pub const OTHER_PROOF: [ConnectionError; 2] = [ConnectionError::NoAnswer, ConnectionError::NoAnswer];

    pub fn options() -> SctpOptions {
        SctpOptions::new(anchor())
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
