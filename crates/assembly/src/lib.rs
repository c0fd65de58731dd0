//! From a relay's options and keys to its shards and its control plane: one way for the program, which drives them over
//! real sockets, and for the simulator, which drives them in virtual time.
//!
//! Nothing here does I/O. Keys and the torrc were read, and ports were bound, by whoever asks; what chance is needed
//! comes from a [`Chance`] by the name of what it is for.

mod limits;
mod setup;
mod shards;

pub use limits::{queue_bytes_max, shard_limits, sixteenth};
pub use setup::{Setup, key_options};
pub use shards::{Assembly, AssemblyError, Chance, Offered, Over};
