//! What a shard holds, and who gives some of it up when memory is short.

mod buffers;
mod held;
mod pressure;
mod shares;

pub(crate) use buffers::Buffers;
pub use held::Held;
