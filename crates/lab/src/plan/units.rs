//! Durations and sizes as plans write them.

use std::time::Duration;

use heddle_netem::units;
use serde::{Deserialize, Deserializer};

/// Reads a duration such as `"50 ms"`.
pub(super) fn duration<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    units::duration_ns(&text).map(Duration::from_nanos).map_err(serde::de::Error::custom)
}

/// The same, where there may be none.
pub(super) fn some_duration<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<Option<Duration>, D::Error> {
    duration(from).map(Some)
}

/// Reads the least and the greatest of two durations.
pub(super) fn durations<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<[Duration; 2], D::Error> {
    let both = both(from, units::duration_ns)?;
    Ok(both.map(Duration::from_nanos))
}

/// Reads the least and the greatest of two sizes such as `"300 KiB"`, in bytes.
pub(super) fn sizes_bytes<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<[u64; 2], D::Error> {
    both(from, units::size_bytes)
}

fn both<'de, D: Deserializer<'de>, E: std::fmt::Display>(
    from: D,
    read: impl Fn(&str) -> std::result::Result<u64, E>,
) -> std::result::Result<[u64; 2], D::Error> {
    let [least, greatest] = <[String; 2]>::deserialize(from)?;
    let read = |text: String| read(&text).map_err(serde::de::Error::custom);
    Ok([read(least)?, read(greatest)?])
}
