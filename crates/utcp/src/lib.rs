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
//!
//! ```
//! use heddle_utcp::{BufferPool, Connection, Ecn, Instant, Options};
//! use std::sync::Arc;
//!
//! let (pool, options) = (BufferPool::new(1 << 20), Arc::new(Options::default()));
//! let now = Instant::from_nanos(1_000_000_000);
//! // The last argument is random: nobody must be able to guess it.
//! let mut client = Connection::connect(now, Arc::clone(&options), &pool, 0x1234_5678_9abc_def0);
//! client.write(b"hello");
//!
//! let mut payload = Vec::new();
//! let syn = client.poll_transmit(now, &mut payload).expect("a SYN").header;
//! let server = Connection::accept(now, options, &pool, 0x0fed_cba9_8765_4321, &syn, &payload);
//! let mut server = server.expect("it is a SYN");
//!
//! // A wire without delay: what one end sends, the other gets.
//! loop {
//!     payload.clear();
//!     if let Some(sent) = server.poll_transmit(now, &mut payload) {
//!         client.handle_segment(now, &sent.header, &payload, Ecn::NotEct);
//!     } else if let Some(sent) = client.poll_transmit(now, &mut payload) {
//!         server.handle_segment(now, &sent.header, &payload, Ecn::NotEct);
//!     } else {
//!         break;
//!     }
//! }
//! let mut read = [0; 10];
//! assert_eq!(server.read(now, &mut read), 5);
//! assert_eq!(&read[..5], b"hello");
//! ```
//!
//! What an end can make the other hold or do is bounded: bytes by the pool and by the windows, ranges out of order,
//! segments on the scoreboard, answers to nonsense by time. Growth is by bytes, acknowledgements of what was not sent
//! are refused, and SACK blocks count only where they cover whole segments.
//!
//! **Not** here: **path MTU discovery**, **the urgent pointer**, **TCP Fast Open's cookies**, **TCP-MD5 and TCP-AO**,
//! **multipath**, **BBR**. SYNs leave no cookies; a host bounds them by its backlog. An acknowledgement that arrives
//! before what it acknowledges (optimistic) is believed if it is not beyond what was sent, as by other TCPs.

pub mod allowance;
mod buffer;
pub mod compact;
pub mod congestion;
pub mod connection;
pub mod host;
pub mod options;
pub mod pool;
pub mod ranges;
mod receive;
pub mod segment;
mod send;
pub mod time;
pub mod used;
pub mod wire;

pub use connection::{CloseReason, Connection, State};
pub use host::{ConnectionId, Host, HostLimits};
pub use options::{Algorithm, KeepAlive, Options};
pub use pool::BufferPool;
pub use segment::{Ecn, Header, Transmit};
pub use send::Pacer;
pub use time::Instant;
