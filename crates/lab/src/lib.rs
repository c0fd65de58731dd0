//! Private Tor networks of real processes on loopback, and what is measured in them.
//!
//! [`testnet`] starts stock authorities, stock and Heddle relays and a stock client; [`control`] and [`socks`] drive
//! the client; [`traffic`] is what flows; [`metrics`] is what a Heddle relay tells of itself; [`machine`] is what this
//! machine has: processes, files, sockets; [`emulator`] is a network of wires between hosts of their own on one
//! machine; [`figures`] turns samples into figures. An experiment is a [`plan`], which [`run`] does on a backend; what
//! came of it is in [`results`], which [`report`] draws; `view` reads what passed on a wire, and nothing else;
//! [`fidelity`] compares the backends, and [`trace`] is what went over the wires in virtual time. [`mod@demo`] is the
//! project's main job and [`mod@bench`] what it costs, both built from these.

pub mod arm;
pub(crate) mod backend;
pub mod bench;
pub mod book;
pub(crate) mod capture;
pub mod control;
pub mod costs;
pub mod demo;
pub mod emulator;
pub mod error;
pub mod fidelity;
pub mod figures;
pub mod machine;
pub mod metrics;
pub mod plan;
pub mod report;
pub mod results;
pub mod run;
pub mod socks;
pub mod statistics;
pub mod testnet;
pub mod trace;
pub mod traffic;
pub(crate) mod turns;
pub(crate) mod view;

use std::path::Path;

pub use demo::{DemoOptions, demo};
pub use error::{Error, Result};

/// Runs a plan and draws its report, of the runs that were complete also after an error or Ctrl-C.
///
/// # Errors
///
/// See [`run::run`].
pub fn experiment(options: &run::RunOptions) -> Result<results::Summary> {
    run::run(options, &mut |results| write_report(&options.out, results))
}

/// Puts together what jobs gave and draws the report; `on_fault` hears of each that cannot be taken.
///
/// # Errors
///
/// See [`run::collect`].
pub fn collect(options: &run::CollectOptions, on_fault: &mut dyn FnMut(&str)) -> Result<results::Summary> {
    run::collect(options, on_fault, &mut |results| write_report(&options.out, results))
}

fn write_report(out: &Path, results: &results::Results<'_>) -> Result<()> {
    machine::files::write_whole(&out.join("report.html"), report::page(&[*results]).as_bytes())
}
