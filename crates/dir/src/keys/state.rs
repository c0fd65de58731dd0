//! The one line of stock Tor's `state` file that belongs to keys: `LastRotatedOnionKey`.
//!
//! Every other line is kept as it is, so that a stock Tor that returns finds its history.

use std::path::Path;

use super::KeyError;
use crate::{disk, iso_time};

const FILE_BYTES_MAX: usize = 1 << 20;
const KEYWORD: &str = "LastRotatedOnionKey";

/// The time on the last `LastRotatedOnionKey` line of a state file, in seconds since 1970.
pub fn last_rotated_onion_key(state: &str) -> Option<u64> {
    state
        .lines()
        .filter_map(|line| line.strip_prefix(KEYWORD)?.strip_prefix(' '))
        .next_back()
        .and_then(|time| iso_time::parse(time.trim()))
}

/// Reads the time from the file `path`; `None` when it says none.
pub(super) fn read(path: &Path) -> Result<Option<u64>, KeyError> {
    Ok(last_rotated_onion_key(&read_text(path)?))
}

/// Sets the time in the file `path`.
pub(super) fn write(path: &Path, rotated_unix_s: u64) -> Result<(), KeyError> {
    let mut text = String::new();
    for line in read_text(path)?.lines() {
        if line.split(' ').next() != Some(KEYWORD) {
            text.push_str(line);
            text.push('\n');
        }
    }
    text.push_str(&format!("{KEYWORD} {}\n", iso_time::format(rotated_unix_s)));
    disk::write(path, text.as_bytes()).map_err(|source| KeyError::write(path, source))
}

fn read_text(path: &Path) -> Result<String, KeyError> {
    let file = disk::read(path, FILE_BYTES_MAX).map_err(|source| KeyError::read(path, source))?;
    Ok(file.map_or_else(String::new, |bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts_and_prefixes_do_not() {
        let text = "# comment\nLastRotatedOnionKeyX 2001-01-01 00:00:00\n\
                    LastRotatedOnionKey 2023-11-14 22:13:20\nTorVersion Tor 0.4.9.11\n";
        assert_eq!(last_rotated_onion_key(text), Some(1_700_000_000));
        assert_eq!(last_rotated_onion_key("LastRotatedOnionKey soon\n"), None);
        assert_eq!(last_rotated_onion_key(""), None);
    }
}
