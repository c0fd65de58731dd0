//! The `heddle` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    match heddle::cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("heddle: {error}");
            ExitCode::FAILURE
        }
    }
}
