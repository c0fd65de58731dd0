//! The main of every target: the binary's name says which one.
//!
//! Built by `cargo fuzz` it is a fuzzer. Built by plain cargo it replays the files it is given, so
//! that a finding can be debugged without nightly.

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| heddle_fuzz::run(env!("CARGO_BIN_NAME"), data));

#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    for path in std::env::args_os().skip(1) {
        heddle_fuzz::run(env!("CARGO_BIN_NAME"), &std::fs::read(path)?);
    }
    Ok(())
}
