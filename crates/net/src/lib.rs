//! The real driver of a [`Node`](heddle_seam::node::Node): sockets, a clock, worker threads and DNS.
//!
//! One [`EventLoop`] runs one node on one thread. Around it:
//!
//! - [`LoopHandle`] reaches a loop from other threads, and counts what it did;
//! - [`Workers`] run what is too slow for the data path;
//! - [`Resolver`] asks the name servers;
//! - [`link_shards`] lets the loops of one relay's shards talk to each other;
//! - [`SystemEntropy`] draws what secrets are made of;
//! - [`process`] holds what concerns the whole process: descriptors, memory and signals.
//!
//! [`time_buckets`] are what distributions of times are counted in.
//!
//! For emulated networks there are [`namespace`], [`netlink`] and [`tun`], what a card does at a device's other side
//! ([`offload`], [`packet`]), [`realtime`] for who drives them, and [`tcp_diag`] for who looks at their connections.
//!
//! Linux only: the loop is edge-triggered `epoll`, woken by `eventfd`.

mod clock;
mod counters;
mod dns;
mod entropy;
mod event_loop;
mod mailbox;
pub mod namespace;
pub mod netlink;
pub mod offload;
mod options;
pub mod packet;
mod port;
pub mod process;
pub mod realtime;
mod send_window;
mod socket;
mod stack;
mod sys;
pub mod tcp_diag;
pub mod time_buckets;
pub mod tun;
mod workers;

pub use clock::{anchor, monotonic, wall_clock};
pub use counters::Counters;
pub use dns::{ANSWER_BYTES, Resolver, ResolverOptions, SOCKETS_PER_QUESTION, fuzz_answers};
pub use entropy::SystemEntropy;
pub use event_loop::{EventLoop, link_shards};
pub use mailbox::{LoopHandle, NotTaken};
pub use options::Options;
pub use port::{PortInfo, bind_udp};
pub use stack::{Stack, StackError, StackSetup};
pub use sys::listen;
pub use workers::Workers;
