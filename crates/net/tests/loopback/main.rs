//! The event loop over real sockets on loopback, with small nodes.

mod data;
mod datagrams;
mod dns;
mod life;
mod nodes;
#[path = "../support/not_run.rs"]
mod not_run;
mod threads;
