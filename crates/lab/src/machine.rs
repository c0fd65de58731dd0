//! This machine: what it is and how busy, its processes, files, ports and sockets, and Ctrl-C.
//!
//! Nothing here outlives its owner: processes die with the process that started them, even when that one is killed, and
//! so do their files (see [`process`] and [`scratch`]).

pub mod conditions;
pub mod descriptors;
pub(crate) mod files;
pub mod interrupt;
pub mod kernel_memory;
pub mod ports;
pub mod process;
pub(crate) mod progress_line;
pub mod scratch;
pub mod sockets;
pub mod usage;

use std::time::Duration;

/// The longest that something may be asked to take: more is a slip of the keyboard.
pub(crate) const BUDGET_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
