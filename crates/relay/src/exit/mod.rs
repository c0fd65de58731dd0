//! Where circuits leave the network: streams, their data, and the names that clients ask for.

mod data;
mod end;
mod resolve;
mod streams;
mod unread;

pub(crate) use end::End;
pub(crate) use streams::Streams;
