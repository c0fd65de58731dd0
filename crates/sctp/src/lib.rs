//! SCTP (RFC 9260) without I/O: one association over datagrams that something below keeps secret and whole, as DTLS
//! does for data channels (RFC 8261). Bytes, packets and time come in as arguments, and what is to be done comes out as
//! values. It knows no socket, no clock, no thread and no randomness of its own.
//!
//! | module | what it is |
//! |---|---|
//! | [`wire`] | packets and chunks as bytes |
//! | `association` | the handshake, the end, and what is said beside messages |
//! | `send` | messages in turn by streams (RFC 8260), fragments under way, losses by time (RFC 8985), the window |
//! | `receive` | what came, messages put together of fragments, memory |
//! | [`reno`] | the congestion control of RFC 9260, for whoever has no controller of his own |
//!
//! It has I-DATA (RFC 8260), the reset of streams (RFC 6525) and zero checksums (RFC 9653), and does without each where
//! the peer does. It has **no** multihoming, **no** partial reliability (RFC 3758), **no** restart of an association
//! without a new one below, **no** errors told of unknown chunks and parameters, and delivers **no** message in parts.
//!
//! ```
//! use heddle_sctp::{Association, Event, Options, Random};
//! use heddle_seam::time::Instant;
//!
//! let options = Options::default();
//! let [mut a, mut b] = [1, 2].map(|tag| Association::new(options.clone(), Random { tag, tsn: 9, cookie: [7; 32] }));
//! a.connect();
//! a.write(0, b"a message".to_vec(), 0, false);
//! let now = Instant::ZERO;
//! let mut packet = Vec::new();
//! loop {
//!     if a.poll_packet(now, &mut packet).is_some() {
//!         b.handle_packet(now, &packet);
//!     } else if b.poll_packet(now, &mut packet).is_some() {
//!         a.handle_packet(now, &packet);
//!     } else {
//!         break;
//!     }
//!     packet.clear();
//! }
//! assert_eq!(b.poll_event(), Some(Event::Connected));
//! assert_eq!(b.poll_event(), Some(Event::Readable(0)));
//! assert_eq!(b.read(0).map(|message| message.bytes), Some(b"a message".to_vec()));
//! ```

mod association;
mod options;
mod receive;
pub mod reno;
mod send;
pub mod wire;

pub use association::{Association, Closed, Content, Event};
pub use options::{Options, Random};
pub use receive::Message;
