//! The `quic` transport: two endpoints on emulated wires, in virtual time.

mod bench;
mod flows;
mod lives;
mod silence;
mod source;
