//! This machine: what it is and how busy, its processes, files, ports and sockets, and Ctrl-C.
//!
//! Nothing here outlives its owner: processes die with the process that started them, even when that one is killed, and
//! so do their files (see [`process`] and [`scratch`]).

pub mod conditions;
pub mod interrupt;
pub mod ports;
pub mod process;
pub mod scratch;
pub mod sockets;
pub mod usage;
