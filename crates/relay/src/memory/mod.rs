//! What a shard holds, and who gives some of it up when memory is short.

mod buffers;
mod in_use;
mod pressure;
mod shares;

pub(crate) use buffers::Buffers;
pub use in_use::InUse;
pub(crate) use pressure::{BUFFERS_PART, FREED_PART, Holder, Holding, end_in_order};
pub(crate) use shares::{Account, account, fair_level, shares};

/// What a question to the resolver takes until it is answered, at most: up to eight sockets, each with a buffer for an
/// answer, and what the library knows of it. `net/tests/resolver_memory.rs` measures it.
pub const QUESTION_BYTES: usize = 80 * 1024;
