//! Where circuits leave the network: streams, their connections and what those are owed, and the names that clients ask
//! for.

mod end;
mod owed;
mod stream;
mod streams;
mod unread;

pub(crate) use end::End;
pub(crate) use owed::Owed;
pub(crate) use stream::{Drained, Stream, StreamState};
pub(crate) use streams::{Asked, Streams};
