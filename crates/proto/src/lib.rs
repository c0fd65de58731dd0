//! The sans-IO core of Heddle: cells, circuits, streams, flow control and the relay itself.
//!
//! Nothing here knows a socket, a clock, a thread or the system's randomness: bytes, time and
//! seeds come in as arguments, and what is to be done comes out as values.

pub mod addr;
pub mod bucket;
pub mod cell;
pub mod channel;
pub mod crypto;
pub mod endpoint;
pub mod flow;
pub mod ids;
pub mod node;
pub mod origin;
pub mod pair;
pub mod policy;
pub mod pool;
pub mod relay;
pub mod rng;
pub mod stopwatch;
pub mod time;
pub mod work;
