//! The parts of the `heddle` and `heddle-relay` programs that tests and other programs can use.

#[cfg(feature = "lab")]
pub mod bench_cli;
#[cfg(feature = "lab")]
pub mod book_cli;
#[cfg(feature = "lab")]
pub mod circuits_bench;
#[cfg(feature = "lab")]
pub mod cli;
#[cfg(feature = "lab")]
pub mod crowd;
#[cfg(feature = "lab")]
pub mod demo_cli;
#[cfg(feature = "lab")]
pub mod emulate;
#[cfg(feature = "lab")]
pub mod lab_cli;
pub mod logging;
#[cfg(feature = "lab")]
pub mod observe_cli;
#[cfg(feature = "lab")]
mod observe_draw;
#[cfg(feature = "lab")]
pub mod output;
#[cfg(feature = "lab")]
pub mod proxy_cli;
pub mod relay;
pub mod relay_cli;
#[cfg(feature = "lab")]
pub mod sim_cli;
#[cfg(feature = "lab")]
mod trace_cli;
#[cfg(feature = "lab")]
pub mod traffic;

pub use heddle_torrc as torrc;
