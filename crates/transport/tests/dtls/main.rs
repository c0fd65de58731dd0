//! The `tcp-dtls` transport: two endpoints on emulated wires, in virtual time.

#[path = "../support/circuits.rs"]
mod circuits;
mod fairness;
mod flows;
#[path = "../support/lives.rs"]
mod lives;
#[path = "../support/loads.rs"]
mod loads;
#[path = "../support/matrix.rs"]
mod matrix;
mod paths;
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
    use heddle_transport::dtls::DtlsOptions;

    /// One round trip for the handshake, one for the proofs, and half a one until the listener knows that its own arrived.
    pub const READY_RTTS: f64 = 2.5;

    /// How a dialler and a listener end who have different proofs of the dialler's: sessions' ids follow from it.
    pub const OTHER_PROOF: [ConnectionError; 2] = [ConnectionError::NoAnswer, ConnectionError::NoAnswer];

    pub fn options() -> DtlsOptions {
        DtlsOptions::new(anchor())
    }
}
