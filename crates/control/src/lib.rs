//! A relay's control plane: what it does beside carrying cells. [`ControlPlane`] is a [`Node`](heddle_seam::node::Node), so the
//! program runs it over real sockets, and the simulator in virtual time.
//!
//! - `language` is what it is told and wants beside bytes.
//! - `options` is what the operator chose.
//! - `exchanges` asks directories, each for so long and no longer.
//! - `plane` decides what is due: it follows the consensus, renews keys, finds out whether the relay is reachable, publishes.
//! - `guard` keeps a panic over what a directory sent from ending the relay.

mod exchanges;
mod guard;
mod language;
mod options;
mod plane;

pub use language::{ControlLanguage, Facts, Told, Wanted};
pub use options::ControlOptions;
pub use plane::{ControlPlane, Identity};
