//! What a node and its driver say to each other, and nothing of what either is.
//!
//! A [`node::Node`] decides, a driver has the sockets, the clock and the threads. Between them go inputs and outputs; a
//! [`language`] says what they tell each other beside bytes. Time and randomness come in as arguments: there is one
//! [`time::Instant`] and one [`rng::Seed`] for all crates.

pub mod datagrams;
pub mod language;
pub mod node;
pub mod rng;
pub mod stopwatch;
pub mod time;
