//! Which TCP connections a process has, and how many sockets, as Linux' `/proc` tells it.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use crate::error::{Error, Result};

/// The state of an open connection in `/proc/net/tcp` (`TCP_ESTABLISHED` of Linux' tcp_states.h).
const ESTABLISHED: &str = "01";

/// An open TCP connection over IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Connection {
    /// The process' own end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
}

/// The open TCP connections over IPv4 that a process of this machine has, in order.
pub fn connections(pid: u32) -> Result<Vec<Connection>> {
    let read = || -> io::Result<Vec<Connection>> {
        let inodes = sockets(pid)?;
        let table = fs::read_to_string(format!("/proc/{pid}/net/tcp"))?;
        Ok(of_the_table(&table, &inodes))
    };
    read().map_err(Error::io(format!("reading the connections of process {pid}")))
}

/// The connections of `/proc/net/tcp` that belong to the sockets with these inodes, in order and each once.
fn of_the_table(table: &str, inodes: &[u64]) -> Vec<Connection> {
    let mine = table.lines().filter_map(parse).filter(|(_, inode)| inodes.contains(inode));
    let mut connections: Vec<Connection> = mine.map(|(connection, _)| connection).collect();
    connections.sort_unstable();
    // Between two reads of its table the kernel finds its place again by counting, and tells a socket twice when
    // another came in before it.
    connections.dedup();
    connections
}

/// How many sockets a process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Of all kinds.
    pub all: usize,
    /// UDP's, of both families.
    pub udp: usize,
}

/// Counts the sockets of a process of this machine.
pub fn count(pid: u32) -> Result<Counts> {
    let read = || -> io::Result<Counts> {
        let inodes = sockets(pid)?;
        let mut udp = HashSet::new();
        for table in ["udp", "udp6"] {
            let table = fs::read_to_string(format!("/proc/{pid}/net/{table}"))?;
            let of =
                table.lines().filter_map(|line| line.split_ascii_whitespace().nth(9)?.parse::<u64>().ok());
            udp.extend(of.filter(|inode| inodes.contains(inode)));
        }
        Ok(Counts { all: inodes.len(), udp: udp.len() })
    };
    read().map_err(Error::io(format!("counting the sockets of process {pid}")))
}

/// The inodes of a process' sockets (proc_pid_fd(5)).
fn sockets(pid: u32) -> io::Result<Vec<u64>> {
    let mut inodes = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // A descriptor may be closed while its neighbours are read.
        let Ok(link) = fs::read_link(entry?.path()) else { continue };
        let link = link.to_string_lossy();
        let inode = link.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        inodes.extend(inode.and_then(|inode| inode.parse::<u64>().ok()));
    }
    Ok(inodes)
}

/// Reads a line of `/proc/net/tcp` (proc_pid_net(5)): an open connection and its socket's inode.
fn parse(line: &str) -> Option<(Connection, u64)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    if *fields.get(3)? != ESTABLISHED {
        return None;
    }
    let connection = Connection { local: address(fields[1])?, remote: address(fields[2])? };
    Some((connection, fields.get(9)?.parse().ok()?))
}

/// An address as the kernel writes it: a number in the machine's byte order, and a port.
fn address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.split_once(':')?;
    let host = u32::from_str_radix(host, 16).ok()?;
    let port = u16::from_str_radix(port, 16).ok()?;
    Some(SocketAddr::from((Ipv4Addr::from(host.to_ne_bytes()), port)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn our_own_connections_are_seen_from_both_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let there = listener.accept().unwrap();
        let ours = connections(std::process::id()).unwrap();
        let wanted = Connection { local: here.local_addr().unwrap(), remote: here.peer_addr().unwrap() };
        assert!(ours.contains(&wanted), "{ours:?}");
        assert!(ours.contains(&Connection { local: wanted.remote, remote: wanted.local }));
        drop((here, there));
        assert!(!connections(std::process::id()).unwrap().contains(&wanted));
    }

    #[test]
    fn a_connection_that_the_table_has_twice_is_one() {
        let line = |inode: u64| {
            format!(
                "0: 0100007F:2711 0100007F:2712 01 00000000:00000000 00:00000000 00000000 0 0 {inode} 1 x\n"
            )
        };
        let table = [line(7), line(8), line(7)].concat();
        let connections = of_the_table(&table, &[7]);
        assert_eq!(connections.len(), 1, "{connections:?}");
    }

    #[test]
    fn our_own_sockets_are_counted() {
        let udp = [0; 50].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        let with = count(std::process::id()).unwrap();
        drop(udp);
        let without = count(std::process::id()).unwrap();
        // Other tests have sockets too, but not so many.
        assert!(with.udp >= 50 && with.all >= with.udp && without.udp < with.udp, "{with:?} {without:?}");
    }

    #[test]
    fn lines_that_are_no_open_connection_are_skipped() {
        let listening = "0: 0100007F:2711 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 7 1 x";
        assert_eq!(parse(listening), None);
        assert_eq!(parse("  sl  local_address rem_address   st tx_queue"), None);
        assert!(connections(u32::MAX - 1).is_err());
    }
}
