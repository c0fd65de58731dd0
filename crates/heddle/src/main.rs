//! The `heddle` program.

use mimalloc::MiMalloc;
use std::process::ExitCode;

/// A relay allocates for every datagram and frees in another order, which the system's allocator takes longer for.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    match heddle::cli::run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("heddle: {error}");
            ExitCode::FAILURE
        }
    }
}
