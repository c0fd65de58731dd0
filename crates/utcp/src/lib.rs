//! A user-level TCP without I/O: bytes, segments and time come in as arguments, and what is to be done comes out as
//! values. It knows no socket, no clock, no thread and no randomness of its own.
//!
//! The modules, from the inside out:
//!
//! | module | what it is |
//! |---|---|
//! | [`segment`] | a segment without its framing; sequence numbers of 64 bits |
//! | [`pool`] | memory for the bytes of all connections |
//! | `send` | scoreboard, round trips (RFC 6298), RACK-TLP (RFC 8985), PRR (RFC 6937), undo, pacing |
//! | [`congestion`] | CUBIC (RFC 9438) with HyStart++ (RFC 9406), Reno (RFC 5681) |
//! | `receive` | reassembly, SACK blocks, delayed acknowledgements, the size of the buffer |
//! | [`connection`] | the state machine (RFC 9293) around both |
//! | [`wire`] | the framing of kernels: TCP over IPv4 and IPv6 |
//! | [`compact`] | the framing of an encrypted session: many connections in few bytes |
//! | [`host`] | many connections over that framing: ports, backlog, resets |

mod buffer;
pub mod compact;
pub mod congestion;
pub mod connection;
pub mod host;
pub mod options;
pub mod pool;
mod ranges;
mod receive;
pub mod segment;
mod send;
pub mod time;
pub mod wire;

pub use connection::{CloseReason, Connection, State};
pub use host::{ConnectionId, Host, HostLimits};
pub use options::{Algorithm, KeepAlive, Options};
pub use pool::BufferPool;
pub use segment::{Ecn, Header, Transmit};
pub use time::Instant;
