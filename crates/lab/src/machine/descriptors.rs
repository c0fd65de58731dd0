//! How many descriptors programs may have.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the hard limit of this process, and of those that it starts from then on, to so many at least. Relays take all
/// of it themselves.
///
/// # Errors
///
/// The system's, which lets only root go beyond the limit that it gave.
pub fn grant(wanted: u64) -> io::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if maximum.is_none_or(|maximum| maximum >= wanted) {
        return Ok(());
    }
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: Some(wanted) })?)
}
