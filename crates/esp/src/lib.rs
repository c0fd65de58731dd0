//! ESP (RFC 4303) in user space and without I/O: packets and time come in as arguments, and nothing else does. Keys and
//! SPIs are given, by whatever agreed on them; there is no IKE here.
//!
//! | module | what it is |
//! |---|---|
//! | [`keys`] | what an association is made of: SPI, key and salt (RFC 4106) |
//! | [`packet`] | where things lie in a packet, and what a datagram of the UDP port may be (RFC 3948) |
//! | `cipher` | AES-128-GCM as ESP uses it (RFC 4106) |
//! | [`Window`] | which sequence numbers came, and the half of one that is not sent (RFC 4303, appendix A) |
//! | [`lifetime`] | how long an association may serve |
//! | [`outbound`], [`inbound`] | the two directions of associations |
//! | [`tunnel`] | one association outwards and a few inwards: new keys without losing a packet |
//! | [`beet`] | an inner IPv4 header that is left out because both ends know it |
//!
//! ```
//! use heddle_esp::{Keys, Lifetime, Spi, Tunnel};
//! use heddle_seam::time::Instant;
//!
//! let now = Instant::ZERO;
//! let keys = |byte| Keys::from_material(&[byte; 20]);
//! let [here, there] = [0x1001, 0x2002].map(|spi| Spi::new(spi).expect("none of the reserved ones"));
//! let mut client = Tunnel::new(now, (there, &keys(1)), (here, &keys(2)), Lifetime::default());
//! let mut server = Tunnel::new(now, (here, &keys(2)), (there, &keys(1)), Lifetime::default());
//!
//! let mut datagram = Vec::new();
//! client.seal(now, heddle_esp::packet::TCP, b"a segment", &mut datagram).expect("a new association");
//! let opened = server.open(now, &mut datagram).expect("it is authentic").expect("it is no dummy");
//! assert_eq!((opened.next_header, opened.payload), (heddle_esp::packet::TCP, &b"a segment"[..]));
//! assert!(server.open(now, &mut datagram).is_err(), "a packet comes once");
//! ```
//!
//! A packet is sealed by one call into a buffer of the caller's and opened by one call in place; neither allocates. A
//! stranger gets no further than the first comparison that it fails: the SPI, the length, the replay window, and only
//! then the cipher.
//!
//! **Not** here: **IKE**, **AH**, **32-bit sequence numbers**, **other ciphers**, **shorter check values**, **security
//! policies**, **fragments of inner packets**.

pub mod beet;
mod cipher;
pub mod inbound;
#[cfg(test)]
mod interop;
pub mod keys;
pub mod lifetime;
pub mod outbound;
pub mod packet;
pub mod tunnel;
mod window;

pub use inbound::{Inbound, Opened, Refused};
pub use keys::{Keys, Spi};
pub use lifetime::Lifetime;
pub use outbound::{Outbound, SealError};
pub use packet::Arrived;
pub use tunnel::Tunnel;
pub use window::Window;
