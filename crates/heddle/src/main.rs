//! The `heddle` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    match heddle::cli::run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("heddle: {error}");
            ExitCode::FAILURE
        }
    }
}
