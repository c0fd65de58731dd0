//! Datagrams, as they come to a port and as they leave it; and IP packets, as a stack of a node's own sends them.

use bytes::BytesMut;
use core::net::{IpAddr, SocketAddr};

/// Datagrams of one sender that came together: `data` is cut every `stride` bytes, the last may be shorter. It may be
/// part of a buffer that the driver uses again, and lasts as long as any byte of it is kept: what is to stay is to be
/// copied.
#[derive(Debug)]
pub struct Datagrams {
    pub from: SocketAddr,
    /// The address that they were sent to, when the system tells.
    pub to: Option<IpAddr>,
    /// The two bits of explicit congestion notification (RFC 3168).
    pub ecn: u8,
    /// Length of each datagram, at least one.
    pub stride: usize,
    pub data: BytesMut,
}

/// How the ids begin to which peers send, and strangers can only guess: a datagram has this prefix if the highest bit
/// of its first byte is clear and the two bytes after that are these. A driver may give what has a port's prefix a
/// buffer of its own, so that a flood does not take its place. The node gets both kinds alike, and trusts neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdPrefix(pub [u8; 2]);

/// IP packets that a stack of the node's own sends, which came together: `data` is cut every `stride` bytes, the last
/// may be shorter. It lasts like that of [`Datagrams`].
#[derive(Debug)]
pub struct Packets {
    /// Length of each packet, at least one.
    pub stride: usize,
    pub data: BytesMut,
}

/// Where bytes that an endpoint appended to a buffer go: they are cut every `stride` bytes, the last may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    pub to: SocketAddr,
    /// The address to send from; the system chooses when there is none.
    pub from: Option<IpAddr>,
    pub ecn: u8,
    pub stride: usize,
}
