//! The relay: [`Relay`] is one shard of it, a [`Node`](heddle_seam::node::Node).
//!
//! A cell's way: `shard` reads it from a channel, or `ports` from an endpoint; `core` finds its circuit, `hop` applies the
//! layer and queues it on a lane; `core` hands it out when its link's `scheduler` says so, and `shard` or `ports` give it to
//! the next channel or connection. `flows` is what is particular to lanes that are flows: they are held, and begin again,
//! also where a CREATE2 is answered too `late`.
//!
//! The other files are what happens less often: circuits begin (`create`) and grow (`extend`) over channels that are found
//! (`channels`) or dialled (`dial`), over connections of a pair (`pairs`), or over another shard (`crossing`); streams begin
//! and end (`streams`, `resolve`) and carry data (`data`). `admission` says who may have how much, `dos`
//! what stock's defences refuse, `job` what workers do, `jobs` whose onionskin is next, `unanswered` who goes on to the next
//! relay, `work` what channels leave to workers. `probe` is the one circuit that begins here. `pressure` ends some when memory
//! is used up. `relays` are those of the consensus. `stats` counts. `language` is what a relay is told and tells beside bytes.

mod admission;
mod buffers;
mod carrier;
mod channels;
mod config;
mod core;
mod create;
mod crossing;
mod data;
mod dial;
mod dos;
mod end;
mod extend;
mod farewells;
mod flows;
mod held;
mod hop;
mod idle;
mod job;
mod jobs;
mod keys;
mod language;
mod late;
mod link;
mod message;
mod pairs;
mod ports;
mod pressure;
mod probe;
mod rate_queue;
mod rates;
mod relays;
mod resolve;
mod scheduler;
mod shard;
mod state_shares;
mod stats;
mod streams;
mod stuck;
mod table;
mod turns;
mod unanswered;
mod unread;
mod work;

pub use admission::{Granted, REFUSALS};
pub use config::{Limits, RelayConfig};
pub use dos::DosOptions;
pub use held::Held;
pub use job::{Job, JobResult};
pub use language::{Input, Output, RelayLanguage};
pub use message::{Control, Crossed, CrossedCell, Event, ProbeHop, ShardMessage, Wanted};
pub use relays::{ListedRelay, Relays};
pub use scheduler::Scheduler;
pub use shard::Relay;
pub use stats::{DelayHistogram, RelayStats, TransportStats};
