//! Numbers with units, as stock Tor's torrc has them (tor(1), "THE CONFIGURATION FILE FORMAT").

/// The names of each unit in lower case, and its size.
const BYTES: &[(&[&str], u64)] = &[
    (&["", "b", "byte", "bytes"], 1),
    (&["kb", "kbyte", "kbytes", "kilobyte", "kilobytes"], 1 << 10),
    (&["m", "mb", "mbyte", "mbytes", "megabyte", "megabytes"], 1 << 20),
    (&["gb", "gbyte", "gbytes", "gigabyte", "gigabytes"], 1 << 30),
    (&["tb", "tbyte", "tbytes", "terabyte", "terabytes"], 1 << 40),
    (&["kbit", "kbits", "kilobit", "kilobits"], 1 << 7),
    (&["mbit", "mbits", "megabit", "megabits"], 1 << 17),
    (&["gbit", "gbits", "gigabit", "gigabits"], 1 << 27),
    (&["tbit", "tbits", "terabit", "terabits"], 1 << 37),
];

const SECONDS: &[(&[&str], u64)] = &[
    (&["", "second", "seconds"], 1),
    (&["minute", "minutes"], 60),
    (&["hour", "hours"], 3600),
    (&["day", "days"], 86_400),
    (&["week", "weeks"], 604_800),
    (&["month", "months"], 2_629_728),
];

/// Stock Tor knows no months here.
const MILLISECONDS: &[(&[&str], u64)] = &[
    (&["", "msec", "millisecond", "milliseconds"], 1),
    (&["second", "seconds"], 1000),
    (&["minute", "minutes"], 60_000),
    (&["hour", "hours"], 3_600_000),
    (&["day", "days"], 86_400_000),
    (&["week", "weeks"], 604_800_000),
];

/// The longest interval stock Tor takes: it keeps intervals in a C `int`.
const INTERVAL_MAX: u64 = i32::MAX as u64;

/// Reads an amount of memory or bytes per second, such as `16 GB` or `1.5 MBytes`. A bare number is
/// bytes, and `kbit` and its kin are eighths.
pub(super) fn parse_bytes(text: &str) -> Result<u64, String> {
    parse(text, BYTES, i64::MAX as u64)
        .ok_or_else(|| format!("`{text}` is not an amount: write a number and a unit, such as `16 MBytes`"))
}

/// Reads a time, such as `90` or `1.5 minutes`, in whole seconds.
pub(super) fn parse_seconds(text: &str) -> Result<u64, String> {
    parse(text, SECONDS, INTERVAL_MAX)
        .ok_or_else(|| format!("`{text}` is not a time: write a number and a unit, such as `30 seconds`"))
}

/// Reads a time, such as `1750` or `1.5 seconds`, in whole milliseconds.
pub(super) fn parse_milliseconds(text: &str) -> Result<u64, String> {
    parse(text, MILLISECONDS, INTERVAL_MAX)
        .ok_or_else(|| format!("`{text}` is not a time: write a number and a unit, such as `500 msec`"))
}

fn parse(text: &str, table: &[(&[&str], u64)], max: u64) -> Option<u64> {
    let text = text.trim();
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let unit = unit.trim_start().to_ascii_lowercase();
    let (_, size) = table.iter().find(|(names, _)| names.contains(&unit.as_str()))?;
    let value = match number.parse::<u64>() {
        Ok(number) => number.checked_mul(*size)?,
        // Fractions are rounded down; the cast saturates, and what is too large fails below.
        Err(_) => (number.parse::<f64>().ok()? * *size as f64) as u64,
    };
    (value <= max).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_stock_units() {
        let cases = [
            ("0", 0),
            ("75 KB", 75 << 10),
            ("75KBytes", 75 << 10),
            ("1 mbit", 1 << 17),
            ("1.5 GB", 3 << 29),
            ("2 TB", 2 << 40),
            ("100 bytes", 100),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "MB",
            "1 parsec",
            "-1",
            "1 MB x",
            "1.2.3 MB",
            "9000000000000000000 TB",
            "99999999999999999999",
        ] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_stock_units() {
        for (text, seconds) in [("30", 30), ("2 minutes", 120), ("1Hour", 3600), ("0.5 days", 43_200)] {
            assert_eq!(parse_seconds(text), Ok(seconds), "{text}");
        }
        for text in ["1 fortnight", "100 years", "9999999999", "2 msec"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
        for (text, milliseconds) in [("30", 30), ("2 seconds", 2000), ("0.5Minutes", 30_000), ("7 msec", 7)] {
            assert_eq!(parse_milliseconds(text), Ok(milliseconds), "{text}");
        }
        for text in ["1 month", "4 weeks", "9999999999", "2 ms"] {
            assert!(parse_milliseconds(text).is_err(), "{text}");
        }
    }
}
