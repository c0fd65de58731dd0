//! What a relay's control plane has in hand: who the relay is, how it says so, and what it knows of the network.
//!
//! - [`keys`] reads, makes and renews the relay's keys in stock Tor's own files.
//! - [`certs`] makes what a channel's CERTS cell carries and verifies a peer's.
//! - [`bandwidth`] remembers what the relay has been seen to carry.
//! - [`descriptor`] writes and signs the router descriptor; [`publish`] says when it is to be published and to whom.
//! - [`consensus`] says what to fetch, verifies and keeps the network's consensus.
//! - [`http`] writes requests to directories and reads their answers.
//! - [`files`] is where all of that lies.
//! - [`authority`] reads the `DirAuthority` lines that name whom to believe.
//!
//! Nothing here is on a cell's way, and nothing but the [`files::Disk`] does I/O: whoever runs it has the sockets. Time
//! comes in as an argument and randomness as a generator.

pub mod authority;
pub mod bandwidth;
pub mod certs;
pub mod consensus;
pub mod descriptor;
pub mod entropy;
pub mod files;
pub mod guard;
pub mod http;
pub mod iso_time;
pub mod keys;
pub mod publish;

mod state;
