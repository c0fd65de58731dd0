//! Experiments as files: what a plan says. Values only; `run` does what they say.
//!
//! [`Plan::load`] reads a plan that ships ([`shipped()`]) or a TOML file of the same form, puts the values of `--set`
//! into it, and checks it. Commented plans to copy are `plans/calibrate.toml`, for what flows over single wires, and
//! `plans/thesis-exp11.toml`, for private Tor networks.

mod case;
mod check;
mod check_network;
mod choose;
mod clients;
mod congestion_control;
mod contest;
mod contest_phases;
mod drawn;
mod estimate;
mod grid;
mod grid_cases;
pub(crate) mod hosts;
mod load;
mod model;
mod modelled;
mod network;
mod pings;
mod sample;
mod shares;
mod shipped;
mod text;
mod topology;
mod units;
mod upgrade;
mod view;
mod weights;

#[cfg(test)]
pub(crate) mod network_tests;
#[cfg(test)]
pub(crate) mod tests;

pub use case::{Bulk, Case, Ping, Probe, Share, Tcp};
pub(crate) use check::RUNS_MAX;
pub use clients::{Client, Flow, Traffic};
pub use contest::{Becomes, Contest, Contests, Queue};
pub use drawn::Drawn;
pub use estimate::estimate;
pub use grid::{Batch, Grid, GridArm, GridWire};
pub use load::Loaded;
#[cfg(test)]
pub(crate) use load::parse;
pub use model::{Arm, Compare, Comparison, Known, Plan, Plot, Statistic, Target};
pub(crate) use modelled::{is_of_model, of_model};
pub use network::{Bottleneck, Change, Phase, Relay, Tor, TorArm, Way, WireGroup, WirePair};
pub use pings::Pings;
pub use shipped::{Shipped, shipped};
pub use topology::{Place, Topology};
pub use view::View;
