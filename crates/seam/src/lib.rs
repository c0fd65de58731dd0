//! What a node and its driver say to each other, and nothing of what either is.
//!
//! A [`node::Node`] decides, a driver has the sockets, the clock and the threads. Between them go inputs and outputs; a
//! [`language`] says what they tell each other beside bytes. Time and randomness come in as arguments: there is one
//! [`time::Instant`] for all crates, and one [`rng::Seed`] for all nodes. Emulated wires and the user-level TCP, which
//! are useful without the rest, take the time alone: the feature `node` is everything else. What wires draw comes of a
//! seed of `netem`'s, which the simulator derives from its own.

#[cfg(feature = "node")]
pub mod datagrams;
#[cfg(feature = "node")]
pub mod language;
#[cfg(feature = "node")]
pub mod node;
#[cfg(feature = "node")]
pub mod rng;
#[cfg(feature = "node")]
pub mod stopwatch;
pub mod time;
