//! Circuits whose cells are datagrams (`docs/reference/forwarding.md`).

mod circuits;
mod exit_by_round_trip;
#[allow(dead_code, reason = "of use to others' tests")]
#[path = "../upgraded/transport.rs"]
mod transport;
