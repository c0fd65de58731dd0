//! How many descriptors programs may have.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of this process, and of those that it starts from then on, as far as it may, and to so many at
/// least.
///
/// # Errors
///
/// The system's, which lets only root go beyond the limit that it gave.
pub fn grant(wanted: u64) -> io::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let limit = if maximum.is_none_or(|maximum| maximum >= wanted) { maximum } else { Some(wanted) };
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit })?)
}
