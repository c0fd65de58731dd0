//! The relay: [`Relay`] is one shard of it, a [`Node`](heddle_seam::node::Node).
//!
//! Each part owns its data, behind private fields and a few verbs:
//!
//! | part | what it owns |
//! |---|---|
//! | `table` | circuits, their lanes on links, the ids and turns there |
//! | `scheduler` | the order of a link's turns |
//! | `links` | channels, dials, connections with flows, crossings to other shards |
//! | `exit` | streams, their connections, questions to the resolver |
//! | `circuits` | onionskins that wait, circuits that nobody uses, the probe of ourselves |
//! | `admission`, `dos` | who has how much, and what stock's defences remember |
//! | `forwarding` | when ends of sessions of circuits whose cells are datagrams are looked at, and what they take |
//! | `rates` | the operator's rates, and who waits for them |
//! | `memory` | bytes of sockets, and the order in which some end when memory is short |
//! | `shard` | sockets, endpoints and their pairs |
//!
//! `core` holds one of each, and does what takes several of them at once; the parts know nothing of it, and the shard
//! uses its verbs alone.
//!
//! A cell's way: `shard` reads it from a channel or an endpoint, `core/hop.rs` has its circuit apply the layer, `table`
//! queues it on a lane and hands it out when its link's scheduler says so, and `shard` gives it to the next channel or
//! connection.
//!
//! `language` is what a relay is told and tells beside bytes, `message` its words, `job` what workers do, `relays`
//! are those of the consensus, `stats` counts, `observe` says what can be seen of it all, and `circuit_log` what is
//! told of single circuits where somebody follows them.

mod admission;
mod circuit_log;
mod circuits;
mod config;
mod core;
mod dos;
mod exit;
mod forwarding;
mod job;
mod keys;
mod language;
mod links;
mod memory;
mod message;
mod observe;
mod rates;
mod relays;
mod scheduler;
mod shard;
mod stats;
mod table;
mod turns;

pub use admission::{Granted, REFUSALS};
pub use circuit_log::{CircuitLog, EndedBy, Happened, Neighbour, What};
pub use config::{Limits, RelayConfig};
pub use dos::DosOptions;
pub use job::{Job, JobResult};
pub use language::{Input, Output, RelayLanguage};
pub use memory::{InUse, QUESTION_BYTES};
pub use message::{Control, Crossed, CrossedCell, Event, ProbeHop, ShardMessage, Wanted};
pub use observe::{Observed, Observees, Place, Why};
pub use relays::{ListedRelay, Relays};
pub use scheduler::Scheduler;
pub use shard::Relay;
pub use stats::{DelayHistogram, RelayStats, TransportStats};
