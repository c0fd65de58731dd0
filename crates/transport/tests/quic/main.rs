//! The `quic` transport: two endpoints on emulated wires, in virtual time.

mod bench;
mod congestion;
mod flows;
mod lives;
mod loads;
mod silence;
mod source;
