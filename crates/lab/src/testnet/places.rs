//! Where the processes of a network are.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use crate::error::Result;

/// Gives every process of a network an address and a place to run in. Nodes are known by their nicknames: those of the
/// relays, `auth0` and so on for the authorities, `client`, `client1` and so on for the clients.
///
/// Processes find each other under their addresses, while a client's SOCKS port and what exits connect to may be on the
/// loopback of their own place.
pub trait Places: fmt::Debug + Sync {
    /// The address of a node.
    fn address(&self, nickname: &str) -> Result<IpAddr>;

    /// Has `command` run where the node is, when it is spawned.
    fn enter(&self, nickname: &str, command: &mut Command) -> Result<()>;
}

/// All nodes are on this machine's loopback.
#[derive(Clone, Copy, Debug)]
pub struct Loopback;

impl Places for Loopback {
    fn address(&self, _nickname: &str) -> Result<IpAddr> {
        Ok(Ipv4Addr::LOCALHOST.into())
    }

    fn enter(&self, _nickname: &str, _command: &mut Command) -> Result<()> {
        Ok(())
    }
}
