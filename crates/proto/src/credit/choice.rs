//! How an operator, or whoever experiments, names hop-by-hop credit.

use super::{HopCredit, N3, N23};
use core::fmt;
use core::str::FromStr;

/// N2 and N3 where nothing is said: those of the paper's experiments with a bottleneck (section 5.1).
const N2_CELLS: u16 = 10;
const N3_CELLS: u16 = 70;
/// More are no bound for a queue. Both together are at most as many as a lane may hold in any case.
const CELLS_MAX: u16 = 20_000;

const FORMS: &str = "`none`, `n23 N2 N3` or `n23-adaptive N2`, where numbers may be left out";

impl fmt::Display for HopCredit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HopCredit::None => f.write_str("none"),
            HopCredit::N23(N23 { n2_cells, n3: N3::Static(n3_cells) }) => {
                write!(f, "n23 {n2_cells} {n3_cells}")
            }
            HopCredit::N23(N23 { n2_cells, n3: N3::Adaptive }) => write!(f, "n23-adaptive {n2_cells}"),
        }
    }
}

impl FromStr for HopCredit {
    type Err = String;

    /// `none`; `n23`, with N2 and N3 if wanted; or `n23-adaptive`, with N2 if wanted. In any case of letters.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_ascii_whitespace();
        let scheme = words.next().unwrap_or_default().to_ascii_lowercase();
        let mut number = |name: &str, default: u16, least: u16| {
            let Some(word) = words.next() else { return Ok(default) };
            let read = word.parse().ok().filter(|cells| (least..=CELLS_MAX).contains(cells));
            read.ok_or_else(|| format!("{name} is `{word}`, which is no number from {least} to {CELLS_MAX}"))
        };
        let credit = match scheme.as_str() {
            "none" => HopCredit::None,
            "n23" => HopCredit::N23(N23 {
                n2_cells: number("N2", N2_CELLS, 1)?,
                n3: N3::Static(number("N3", N3_CELLS, 0)?),
            }),
            "n23-adaptive" => HopCredit::N23(N23 { n2_cells: number("N2", N2_CELLS, 1)?, n3: N3::Adaptive }),
            _ => return Err(format!("`{text}` is none of {FORMS}")),
        };
        match words.next() {
            None => Ok(credit),
            Some(more) => Err(format!("`{more}` is too much; there are {FORMS}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let n23 = |n2_cells, n3| HopCredit::N23(N23 { n2_cells, n3 });
        for (text, wanted) in [
            ("none", HopCredit::None),
            ("N23", n23(10, N3::Static(70))),
            ("n23 20", n23(20, N3::Static(70))),
            ("n23  20 500", n23(20, N3::Static(500))),
            ("n23 1 0", n23(1, N3::Static(0))),
            ("n23-adaptive", n23(10, N3::Adaptive)),
            ("n23-Adaptive 20", n23(20, N3::Adaptive)),
        ] {
            let read = text.parse::<HopCredit>();
            assert_eq!(read, Ok(wanted), "{text}");
            assert_eq!(wanted.to_string().parse(), Ok(wanted));
        }
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let error = |text: &str| text.parse::<HopCredit>().unwrap_err();
        assert_eq!(
            error("credit"),
            "`credit` is none of `none`, `n23 N2 N3` or `n23-adaptive N2`, where numbers may be left out"
        );
        assert_eq!(error("n23 0"), "N2 is `0`, which is no number from 1 to 20000");
        assert_eq!(error("n23 10 70000"), "N3 is `70000`, which is no number from 0 to 20000");
        assert!(error("n23-adaptive 10 70").starts_with("`70` is too much"));
        assert!(error("none 1").starts_with("`1` is too much"));
        assert!(error("").starts_with("`` is none of"));
    }
}
