//! The discrete-event driver: many nodes, one thread, virtual time.
//!
//! A [`Simulation`] runs [`Node`](heddle_seam::node::Node)s, the very code that production runs,
//! over emulated wires. There is no socket, no clock and no thread: an event queue hands
//! each node its inputs and does what its outputs say. Two runs with one seed do the same things at
//! the same times, and [`Simulation::trace_hash`] proves it.
//!
//! 1. Hosts are added, each with its addresses and one node for each of its shards.
//! 2. Wires between hosts are given latency, jitter, rate and loss; the rest have the default ones.
//! 3. Time passes ([`Simulation::run_for`], [`Simulation::run_until`], or steps given as data,
//!    [`Simulation::play`]), and in between the test speaks with its nodes ([`Simulation::with`]).
//!
//! # The order of events
//!
//! Events are total in their order: first by virtual time, then by the order in which they were
//! scheduled. A node takes one input at a time, and all that it wants done is scheduled before the
//! next event, so nothing depends on anything but the seed.
//!
//! # TCP
//!
//! Every host has a kernel with a TCP of its own, `heddle-utcp` with Linux' defaults: handshakes, congestion control,
//! retransmissions, buffers that grow, resets and half-closed connections are those of real segments. Segments and
//! datagrams take the same wires of `heddle-netem` ([`Simulation::set_wire`]), wait in the same queues and share their
//! rate. One network may join all hosts instead ([`Simulation::set_network`]), with links of hosts that their wires
//! share.
//!
//! # Time of computing
//!
//! Nodes take no time, but for a set cost of jobs, unless a host is given processors ([`Simulation::set_processors`]):
//! then its shards are charged for what they take in and put out, and what comes while they are busy waits.
//!
//! Whoever wants to see what goes over the wires watches them ([`Simulation::watch_wires`]).

mod costs;
mod internet;
mod queue;
mod simulation;
mod steps;
mod trace;
mod wire;

pub use costs::{Costs, Processors};
pub use heddle_utcp::Options as KernelOptions;
pub use internet::{Internet, Service, length, pattern, place};
pub use simulation::{
    AnyNode, Flood, Host, HostId, JobWatch, Options, Resolver, Simulation, Tapped, WireWatch,
};
pub use steps::{Action, Condition, Step};
pub use trace::TraceHash;
pub use wire::Wire;
