//! A relay's control plane: what it does beside carrying cells. [`ControlPlane`] is a
//! [`Node`](heddle_seam::node::Node), so the program runs it over real sockets, and the simulator in virtual time.
//!
//! - `language` is what it is told and wants beside bytes.
//! - `options` is what the operator chose.
//! - `exchanges` asks directories, each for so long and no longer.
//! - `metrics` answers at the `MetricsPort`.
//! - `plane` decides what is due: it follows the consensus, renews keys, finds out whether the relay is reachable,
//!   publishes.
//! - `follower` is the part of a client: it follows the consensus, and tells of the network.
//! - `shown` is what channels show of the relay's keys, and the judge of its peers' certificates.
//! - `clock` knows the time of the wall between two times that it is told.

mod clock;
mod exchanges;
mod follower;
mod language;
pub mod metrics;
mod options;
mod plane;
mod shown;

pub use follower::{Follower, FollowerLanguage, News};
pub use language::{Carried, ControlLanguage, Figures, Standing, Told, Wanted};
pub use options::ControlOptions;
pub use plane::{ControlPlane, Identity};
pub use shown::{Judge, Shown, transport};
