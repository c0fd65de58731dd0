//! The receiving half: reassembly, what to acknowledge when, how much to offer.

mod acks;
mod autotune;
mod receiver;

pub(crate) use receiver::{Arrival, Receiver};
