//! The sans-IO core of Heddle: cells, circuits, streams, flow control and the relay itself.
//!
//! Nothing here knows a socket, a clock, a thread or the system's randomness: bytes, time and
//! seeds come in as arguments, and what is to be done comes out as values.

pub mod cell;
pub mod crypto;
pub mod flow;
pub mod policy;
pub mod rng;
pub mod time;
