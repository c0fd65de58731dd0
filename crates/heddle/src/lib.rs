//! The parts of the `heddle` program that tests and other programs can use.

pub mod bench_cli;
pub mod circuits_bench;
pub mod cli;
pub mod crowd;
pub mod demo_cli;
pub mod emulate;
pub mod lab_cli;
pub mod logging;
pub mod relay;
pub mod torrc;
pub mod traffic;
