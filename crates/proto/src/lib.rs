//! Values and machines without a node: cells, cryptography, end-to-end flow control, exit policies, rates, what joins
//! pairs of relays, and what a relay asks of its transports.
//!
//! Nothing here knows a socket, a clock, a thread or the system's randomness: bytes, time and
//! seeds come in as arguments, and what is to be done comes out as values.

pub mod addr;
pub mod bucket;
pub mod cell;
pub mod channel;
pub mod credit;
pub mod crypto;
pub mod endpoint;
pub mod flow_control;
pub mod ids;
pub mod pace;
pub mod pair;
pub mod params;
pub mod policy;
pub mod pool;
pub mod transport;
