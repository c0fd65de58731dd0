//! A framing for many connections between two ends that trust their channel: encrypted, authenticated datagrams of one
//! session, such as DTLS records. Addresses and ports become a port id, numbers are short, and one datagram carries
//! segments of many connections, or the acknowledgements of a hundred.
//!
//! It follows the compressed header of J. Reardon's thesis ("Improving Tor using a TCP-over-DTLS Tunnel", Waterloo
//! 2008, section 6.4.2, figure 6.5) and what its chapter 8 left to do.
//!
//! # A datagram
//!
//! One or more segments, one behind the other, to the end of the datagram. Numbers are big-endian. What counts bytes of
//! a flow counts *units* of [`MuxOptions::unit_bytes`], the same at both ends: everything is written in whole units and
//! cut at units. Both directions of a flow begin at number 0.
//!
//! ```text
//! byte 0      bit 7  C  connector: the sender of this segment chose the port id
//!             bit 6  S  opens the flow; with C it carries no acknowledgement
//!             bit 5  F  the sender sends no more after this payload
//!             bit 4  R  the flow is over at once: see below
//!             bit 3  X  the acknowledgement covers the F too
//!             bit 2  Q  asks for an answer: stands for the byte below the sequence number that follows
//!             bit 1  N  the sequence number is behind the F
//!             bit 0  P  padding: from here to the end of the datagram nothing means anything
//! bytes 1–3   port id
//! bytes 4–6   sequence number: where the payload begins, modulo 2^24
//! bytes 7–9   acknowledgement: what is expected next, modulo 2^24
//! bytes 10–11 window: units beyond the acknowledgement that may be sent
//! byte 12     bits 7–6: how many SACK blocks; bits 5–0: the payload's length
//! then        the SACK blocks, six bytes each: first number, number after the last
//! then        the payload
//! ```
//!
//! Every segment but that with C and S acknowledges; there bytes 7–9 are zero. A segment with R has five bytes, and
//! thirteen with X, which answers another end's R: as many as an acknowledgement has.
//!
//! ```text
//! bytes 0–3   as above
//! byte 4      the reason, which is the application's; zero with X
//! bytes 5–12  with X: zeros
//! ```
//!
//! # What differs from TCP
//!
//! - A port id is used once. Each end counts up its own, so a late segment can never meet a later flow, and initial
//!   numbers need not be random.
//! - R is believed whatever its number, because nobody else can send one, and repeated until it is answered, because
//!   nothing else would tell the peer of an idle flow.
//! - A peer that opens more than 65,536 flows at once, or 5,000 a second in the long run, has the rest dropped, and so
//!   has one that ends flows which nobody has heard of. It repeats them.
//! - R leaves in datagrams without payload, so that their [`Content`] says how long they are to be.
//! - What still comes of a flow that was reset is acknowledged for about a time-out, with a window of one unit, and so
//!   is what came and was not acknowledged before the reset: its sender counts it in flight until then.
//! - The first payload goes with the S: a flow opens in no round trip.
//! - No timestamps: round trips are measured on segments that were sent once, and needless retransmissions are known
//!   by the duplicates that the receiver reports.

mod account;
mod age;
mod codec;
mod flow;
mod flow_id;
mod mux;
mod openings;
mod remains;
mod resets;
mod window;

pub use codec::{HEADER_BYTES, Malformed, PADDING};
pub use flow::MuxEvent;
pub use flow_id::FlowId;
pub use mux::{Content, Mux, MuxOptions};
