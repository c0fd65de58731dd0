//! The control plane of a relay: who it is, how it says so, and what it knows of the network.
//!
//! - [`keys`] reads, makes and renews the relay's keys in stock Tor's own files.
//! - [`certs`] makes what a channel's CERTS cell carries and verifies a peer's.
//! - [`bandwidth`] remembers what the relay has been seen to carry.
//! - [`descriptor`] writes and signs the router descriptor; [`publish`] says when and sends it.
//! - [`consensus`] fetches, verifies and keeps the network's consensus.
//! - [`http`] asks directories, over a [`deadline`] stream that nobody can keep waiting.
//! - [`authority`] reads the `DirAuthority` lines that name whom to believe.
//!
//! Nothing here is on a cell's way: the calls block, and a relay makes them from a thread of
//! its own. Time comes in as seconds since 1970 and randomness as a generator.

pub mod authority;
pub mod bandwidth;
pub mod certs;
pub mod consensus;
pub mod deadline;
pub mod descriptor;
pub mod http;
pub mod keys;
pub mod publish;

mod disk;
mod entropy;
mod iso_time;
mod state;
