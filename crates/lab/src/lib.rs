//! Private Tor networks of real processes on loopback, and what is measured in them.
//!
//! [`testnet`] starts stock authorities, stock and Heddle relays and a stock client; [`control`]
//! and [`socks`] drive the client; [`traffic`] is what flows; [`metrics`] is what a Heddle relay tells of itself;
//! [`machine`] is what this machine has: processes, files, sockets;
//! [`emulator`] is a network of wires between hosts of their own on one machine;
//! [`figures`] turns samples into figures; [`plan`] runs experiments and [`report`] draws them;
//! [`demo`] is the project's main job and [`bench`] what it costs, both built from these.

pub mod bench;
pub mod control;
pub mod demo;
pub mod emulator;
pub mod error;
pub mod figures;
pub mod machine;
pub mod metrics;
pub mod plan;
pub mod report;
pub mod socks;
pub mod testnet;
pub mod traffic;

use std::time::Duration;

pub use demo::{DemoOptions, demo};
pub use error::{Error, Result};

/// The longest that a demo or a bench may take.
const BUDGET_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
