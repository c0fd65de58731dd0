//! Quantities with units, as people write them in a topology: `"50 ms"`, `"10 Mbit/s"`, `"1500 B"`, `"1 %"`.
//!
//! A number without a unit is refused, because nobody can see whether it meant milliseconds or nanoseconds. Decimal
//! fractions are read exactly; what is finer than the smallest unit is refused rather than rounded.

use core::fmt;
use serde::de::{Deserializer, Visitor};

/// Why a quantity could not be read: one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError(String);

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnitError {}

/// The units of one kind of quantity, each as a multiple of the smallest, and an example for messages.
struct Kind {
    what: &'static str,
    example: &'static str,
    smallest: &'static str,
    units: &'static [(&'static str, u64)],
}

const DURATION: Kind = Kind {
    what: "duration",
    example: "50 ms",
    smallest: "1 ns",
    units: &[
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ],
};

const RATE: Kind = Kind {
    what: "rate",
    example: "10 Mbit/s",
    smallest: "1 bit/s",
    units: &[
        ("bit/s", 1),
        ("kbit/s", 1_000),
        ("Mbit/s", 1_000_000),
        ("Gbit/s", 1_000_000_000),
        ("B/s", 8),
        ("kB/s", 8_000),
        ("MB/s", 8_000_000),
        ("KiB/s", 8 << 10),
        ("MiB/s", 8 << 20),
    ],
};

const SIZE: Kind = Kind {
    what: "size",
    example: "1500 B",
    smallest: "1 B",
    units: &[
        ("B", 1),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
    ],
};

/// Nanoseconds from a text such as `"50 ms"` or `"0.5 s"`.
pub fn duration_ns(text: &str) -> Result<u64, UnitError> {
    quantity(text, &DURATION)
}

/// Nanoseconds from a text such as `"-0.5 ms"` or `"3 ms"`.
pub fn signed_duration_ns(text: &str) -> Result<i64, UnitError> {
    let text = text.trim();
    let (sign, magnitude) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let ns = i64::try_from(quantity(magnitude, &DURATION)?).map_err(|_| too_big(text, &DURATION))?;
    Ok(sign * ns)
}

/// Bits per second from a text such as `"10 Mbit/s"` or `"1 MB/s"`.
pub fn rate_bits_per_s(text: &str) -> Result<u64, UnitError> {
    quantity(text, &RATE)
}

/// Bytes from a text such as `"1500 B"` or `"64 KiB"`.
pub fn size_bytes(text: &str) -> Result<u64, UnitError> {
    quantity(text, &SIZE)
}

/// A probability from a text such as `"1 %"` or `"0.01"`. Its range is checked by `validate`.
pub fn probability(text: &str) -> Result<f64, UnitError> {
    let trimmed = text.trim();
    let (number, scale) = trimmed.strip_suffix('%').map_or((trimmed, 1.0), |number| (number.trim(), 100.0));
    let plain = number.starts_with(|c: char| c.is_ascii_digit()) && !number.ends_with('.');
    let value = number.parse::<f64>().ok().filter(|value| plain && value.is_finite());
    value.map(|value| value / scale).ok_or_else(|| {
        UnitError(format!("\"{text}\" is not a probability; write a number such as 0.01 or \"1 %\""))
    })
}

fn quantity(text: &str, kind: &Kind) -> Result<u64, UnitError> {
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(trimmed.len());
    let (number, unit) = (&trimmed[..end], trimmed[end..].trim_start());
    let not_a_quantity = || {
        UnitError(format!(
            "\"{text}\" is not a {}; write a number and a unit, such as \"{}\"",
            kind.what, kind.example
        ))
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if !starts_and_ends_with_digits(whole) || !starts_and_ends_with_digits(fraction) {
        return Err(not_a_quantity());
    }
    if unit.is_empty() {
        return Err(UnitError(format!("\"{text}\" has no unit; write for example \"{}\"", kind.example)));
    }
    let Some((_, scale)) = kind.units.iter().find(|(name, _)| *name == unit) else {
        let known: Vec<&str> = kind.units.iter().map(|(name, _)| *name).collect();
        let known = known.join(", ");
        return Err(UnitError(format!(
            "\"{text}\" has the unknown unit \"{unit}\"; a {} has {known}",
            kind.what
        )));
    };
    let digits: String = whole.chars().chain(fraction.chars()).filter(char::is_ascii_digit).collect();
    let places = fraction.chars().filter(char::is_ascii_digit).count() as u32;
    let scaled = digits.parse::<u128>().ok().and_then(|mantissa| mantissa.checked_mul(u128::from(*scale)));
    let (Some(scaled), Some(divisor)) = (scaled, 10u128.checked_pow(places)) else {
        return Err(too_big(text, kind));
    };
    if scaled % divisor != 0 {
        return Err(UnitError(format!("\"{text}\" is finer than {}", kind.smallest)));
    }
    u64::try_from(scaled / divisor).map_err(|_| too_big(text, kind))
}

fn starts_and_ends_with_digits(text: &str) -> bool {
    let is_digit = |c: char| c.is_ascii_digit();
    text.starts_with(is_digit) && text.ends_with(is_digit) && !text.contains('.')
}

fn too_big(text: &str, kind: &Kind) -> UnitError {
    UnitError(format!("\"{text}\" has too many digits for a {}", kind.what))
}

/// Reads a text by one of the functions above, and says what was expected when it is not a text.
struct Quantity<T> {
    expected: &'static str,
    parse: fn(&str) -> Result<T, UnitError>,
    from_number: Option<fn(f64) -> T>,
}

impl<T> Visitor<'_> for Quantity<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).map_err(E::custom)
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<T, E> {
        match self.from_number {
            Some(from_number) => Ok(from_number(number)),
            None => Err(E::invalid_type(serde::de::Unexpected::Float(number), &self)),
        }
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
        match self.from_number {
            Some(from_number) => Ok(from_number(number as f64)),
            None => Err(E::invalid_type(serde::de::Unexpected::Signed(number), &self)),
        }
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
        match self.from_number {
            Some(from_number) => Ok(from_number(number as f64)),
            None => Err(E::invalid_type(serde::de::Unexpected::Unsigned(number), &self)),
        }
    }
}

/// Functions for `deserialize_with`.
pub mod read {
    use super::{Deserializer, Quantity, rate_bits_per_s, signed_duration_ns};
    use serde::de::Error as _;

    /// Nanoseconds, as [`duration_ns`](super::duration_ns) reads them.
    pub fn duration_ns<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let expected = "a duration with a unit, such as \"50 ms\"";
        from.deserialize_any(Quantity { expected, parse: super::duration_ns, from_number: None })
    }

    pub(crate) fn option_duration_ns<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        duration_ns(from).map(Some)
    }

    pub(crate) fn offsets_ns<'de, D: Deserializer<'de>>(from: D) -> Result<std::sync::Arc<[i64]>, D::Error> {
        let texts = <Vec<String> as serde::Deserialize>::deserialize(from)?;
        texts.iter().map(|text| signed_duration_ns(text)).collect::<Result<_, _>>().map_err(D::Error::custom)
    }

    pub(crate) fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<crate::rate::Rate, D::Error> {
        let expected = "a rate with a unit, such as \"10 Mbit/s\", or \"unlimited\"";
        let parse = |text: &str| match text.trim() {
            "unlimited" => Ok(crate::rate::Rate::Unlimited),
            text => rate_bits_per_s(text).map(crate::rate::Rate::BitsPerS),
        };
        from.deserialize_any(Quantity { expected, parse, from_number: None })
    }

    /// Bits per second, as [`rate_bits_per_s`] reads them.
    pub(crate) fn bits_per_s<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let expected = "a rate with a unit, such as \"10 Mbit/s\"";
        from.deserialize_any(Quantity { expected, parse: super::rate_bits_per_s, from_number: None })
    }

    pub(crate) fn option_rate<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<crate::rate::Rate>, D::Error> {
        rate(from).map(Some)
    }

    pub(crate) fn size_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let expected = "a size with a unit, such as \"1500 B\"";
        from.deserialize_any(Quantity { expected, parse: super::size_bytes, from_number: None })
    }

    pub(crate) fn option_size_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        size_bytes(from).map(Some)
    }

    /// A probability, also as a number without quotes; its range is for others to check.
    pub fn probability<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        let expected = "a probability such as 0.01 or \"1 %\"";
        from.deserialize_any(Quantity {
            expected,
            parse: super::probability,
            from_number: Some(|number| number),
        })
    }

    pub(crate) fn option_probability<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
        probability(from).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_exactly() {
        assert_eq!(duration_ns("50 ms"), Ok(50_000_000));
        assert_eq!(duration_ns(" 1.5s "), Ok(1_500_000_000));
        assert_eq!(duration_ns("0.1 us"), Ok(100));
        assert_eq!(duration_ns("2 min"), Ok(120_000_000_000));
        assert_eq!(signed_duration_ns("-0.25 ms"), Ok(-250_000));
        assert_eq!(rate_bits_per_s("10 Mbit/s"), Ok(10_000_000));
        assert_eq!(rate_bits_per_s("1_000 kB/s"), Ok(8_000_000));
        assert_eq!(size_bytes("64 KiB"), Ok(65_536));
        assert_eq!(probability("1 %"), Ok(0.01));
        assert_eq!(probability("0.5"), Ok(0.5));
    }

    #[test]
    fn bad_quantities_say_what_to_write() {
        let message = |result: Result<u64, UnitError>| result.expect_err("bad").to_string();
        assert_eq!(message(duration_ns("50")), "\"50\" has no unit; write for example \"50 ms\"");
        assert_eq!(
            message(duration_ns("fast")),
            "\"fast\" is not a duration; write a number and a unit, such as \"50 ms\""
        );
        assert_eq!(message(duration_ns("1.5 ns")), "\"1.5 ns\" is finer than 1 ns");
        assert!(
            message(rate_bits_per_s("10 Mbps")).contains("unknown unit \"Mbps\"; a rate has bit/s, kbit/s")
        );
        assert!(message(duration_ns(&format!("{} h", "9".repeat(60)))).contains("too many digits"));
        assert!(message(duration_ns(&format!("0.{}1 h", "0".repeat(60)))).contains("too many digits"));
        for text in ["", ".", "1.", ".5 ms", "1..2 ms", "-1 ms", "_ ms", "1,5 ms"] {
            assert!(duration_ns(text).is_err(), "{text}");
        }
        for text in ["", "%", "x %", "-1 %", "nan", "inf", "1.", "1 % %"] {
            assert!(probability(text).is_err(), "{text}");
        }
        assert_eq!(
            signed_duration_ns("-5").expect_err("bad").to_string(),
            "\"5\" has no unit; write for example \"50 ms\""
        );
    }
}
