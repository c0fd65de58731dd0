//! Times as directory documents and the state file write them: `YYYY-MM-DD HH:MM:SS`, in UTC
//! (dir-spec, section 1.2); and as HTTP does.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

const FORMAT: &[BorrowedFormatItem<'static>] =
    format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");

const HTTP_FORMAT: &[BorrowedFormatItem<'static>] =
    format_description!("[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT");

/// The latest second that four digits of year can hold, the end of 9999.
const LATEST_UNIX_S: u64 = 253_402_300_799;

/// Writes `unix_s`; a time after the year 9999 is written as the end of that year.
pub fn format(unix_s: u64) -> String {
    format_as(unix_s, FORMAT)
}

/// Writes `unix_s` for an HTTP header, `Tue, 14 Nov 2023 22:13:20 GMT` for instance.
pub fn format_http(unix_s: u64) -> String {
    format_as(unix_s, HTTP_FORMAT)
}

fn format_as(unix_s: u64, format: &[BorrowedFormatItem<'static>]) -> String {
    let seconds = i64::try_from(unix_s.min(LATEST_UNIX_S)).expect("it is below 2^38");
    let at = OffsetDateTime::from_unix_timestamp(seconds).expect("the year is at most 9999");
    at.format(format).expect("every field of the format is present")
}

/// Reads a time; `None` when it is malformed or before 1970.
pub fn parse(text: &str) -> Option<u64> {
    let at = PrimitiveDateTime::parse(text, FORMAT).ok()?;
    u64::try_from(at.assume_utc().unix_timestamp()).ok()
}

/// `unix_s` as the standard library's time, saturating at the year 9999.
pub fn to_system_time(unix_s: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(unix_s.min(LATEST_UNIX_S))
}

/// The standard library's time in seconds since 1970, zero for anything earlier.
pub fn from_system_time(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times_are_written_and_read() {
        for (unix_s, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_700_000_000, "2023-11-14 22:13:20"),
        ] {
            assert_eq!(format(unix_s), text);
            assert_eq!(parse(text), Some(unix_s));
        }
        assert_eq!(format(u64::MAX), "9999-12-31 23:59:59");
    }

    #[test]
    fn malformed_times_are_refused() {
        for text in ["", "2023-11-14", "2023-13-14 22:13:20", "2023-11-14T22:13:20", "1969-12-31 23:59:59"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
