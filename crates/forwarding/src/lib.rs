//! UDP forwarding (C. Viecco's UDP-OR; J. Reardon's thesis, section 8.1.8): circuits whose cells are datagrams, which
//! relays on the way neither repeat nor put in order, and a user-level TCP from the client to the last relay, which
//! does both. For test networks alone: `docs/reference/forwarding.md` says what it gives away.
//!
//! ```text
//!   client                guard            middle            exit
//!   messages ─▶ TCP ─▶ [ tag, layer, layer ] ─▶ [ layer off ] ─▶ [ layer off ] ─▶ [ tag checked ] ─▶ TCP ─▶ messages
//! ```
//!
//! 1. A circuit is built as ever. Then its client sends each hop [`Forward`] with two keys of its own, and each answers
//!    with [`Forwarded`].
//! 2. From then on what the client and the last hop say to each other goes through a [`Session`]: one TCP connection,
//!    whose packets are the contents of DATAGRAM cells.
//! 3. The hops between have a [`HopLayer`] each. It takes a cell at a time, whichever came before it.
//!
//! # A DATAGRAM cell's body
//!
//! | bytes | |
//! |---|---|
//! | 8 | the cell's counter, big-endian: from 1 in each direction, never used again |
//! | 485 | a packet of the session, encrypted |
//! | 16 | its tag |
//!
//! The ends seal a packet by AES-128-GCM with the counter as nonce, and each hop between adds AES-128 in counter mode
//! with the cell's counter as the upper half of the first block.

mod cell;
mod fault;
mod keys;
mod layer;
mod message;
mod session;

pub use fault::Fault;
pub use keys::{Forward, Forwarded, HopKeys, Part};
pub use layer::HopLayer;
pub use message::DIGEST;
pub use session::{Session, SessionStats};
