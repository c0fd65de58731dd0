//! Emulated network paths without I/O: delay, jitter, loss, reordering, duplication, corruption, rate and queues.
//!
//! A [`Topology`] has hosts and wires between them. A driver puts packets in with [`Topology::send`] and takes them out
//! with [`Topology::poll`]; time is a number that it passes in, so the same code emulates wires between real programs
//! and in a simulator's virtual time. One [`Seed`] decides everything that chance does, and each effect on each
//! direction of each wire has a generator of its own.
//!
//! ```
//! use heddle_netem::{Seed, Instant, Topology, TopologyOptions};
//!
//! let options: TopologyOptions = toml::from_str(
//!     r#"
//!     [[host]]
//!     name = "client"
//!
//!     [[host]]
//!     name = "relay"
//!
//!     [[wire]]
//!     from = "client"
//!     to = "relay"
//!     there = { rate = "10 Mbit/s", delay = "50 ms", loss = { bernoulli = { probability = "0.1 %" } } }
//!     "#,
//! )?;
//! let mut topology = Topology::new(&options, &Seed::from_number(1))?;
//! let (client, relay) = (topology.host("client").unwrap(), topology.host("relay").unwrap());
//! topology.send(Instant::ZERO, client, relay, vec![0; 1250])?;
//! while let Some(time) = topology.next_time() {
//!     while let Some(delivery) = topology.poll(time) {
//!         assert_eq!(delivery.at.as_nanos(), 51_000_000); // 1 ms for 10 000 bits, and the delay
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Not** here: routing over several wires, and packets that are too big being answered by anything but silence.

mod agenda;
mod codel;
mod direction;
mod drop_log;
mod fate;
mod flight;
mod interface;
mod loss;
mod options;
pub mod pcapng;
mod policer;
mod rate;
mod seed;
mod stats;
mod topology;
mod transit;
pub mod units;
mod validate;
mod waiting;

pub use drop_log::Dropped;
pub use heddle_seam::time::Instant;
pub use options::{
    CodelOptions, DirectionOptions, Flap, HostOptions, InterfaceOptions, Jitter, Loss, PolicerOptions,
    QueueOptions, RateStep, Reorder, Step, TopologyOptions, WireOptions,
};
pub use rate::Rate;
pub use seed::{Rng, Seed};
pub use stats::{DirectionStats, DropReason, Drops, InterfaceStats, QueueStats, Totals};
pub use topology::{SendError, Topology};
pub use transit::{Delivery, HostId, Packet};
pub use validate::OptionsError;
