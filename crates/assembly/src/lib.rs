//! From a relay's options and keys to its shards: one way for the program, which drives them over real sockets, and for
//! the simulator, which drives them in virtual time.
//!
//! Nothing here does I/O. Keys were read, and ports were bound, by whoever asks; what chance is needed comes from a
//! [`Chance`] by the name of what it is for.

mod identity;
mod shards;

pub use identity::{Judge, Shown, padding, transport};
pub use shards::{Assembly, AssemblyError, Chance, Offered};
