//! The parts of the `heddle` program that tests and other programs can use.

pub mod torrc;
