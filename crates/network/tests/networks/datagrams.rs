//! Circuits whose cells are datagrams (`docs/reference/forwarding.md`).

mod circuits;
mod exit_by_round_trip;

use crate::upgraded::transport;
