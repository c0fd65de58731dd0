//! Whether moments at which something happened can be told from others by how many packets of which lengths passed.
//!
//! The rule is the simplest that there is: so many packets of one length in one direction, or of all lengths, or more.
//! The best such rule is learnt from half of the moments and tried on the other half, and the other way round, because
//! a rule always fits the moments that it was made from. Whoever has a better rule learns more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::capture::Capture;

/// How many packets passed by direction and length; those of all lengths have the length 0.
pub(crate) type Lengths = BTreeMap<(bool, usize), usize>;

/// A rule: at least so many of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    of: (bool, usize),
    least: usize,
    /// Whether it says that nothing happened, where there are so many.
    is_inverse: bool,
}

/// The packets of so long from each of these moments on.
pub(crate) fn lengths(capture: &Capture, moments: &[Duration], length: Duration) -> Vec<Lengths> {
    let packets = capture.packets();
    let of = |begin: &Duration| {
        let first = packets.partition_point(|captured| captured.at < *begin);
        let within =
            packets[first..].iter().take_while(|captured| captured.at < begin.saturating_add(length));
        let mut lengths = Lengths::new();
        for captured in within {
            for length in [0, captured.packet.len()] {
                *lengths.entry((captured.is_there, length)).or_default() += 1;
            }
        }
        lengths
    };
    moments.iter().map(of).collect()
}

/// The part of moments that are taken for what they are, where both kinds weigh the same: ½ is chance, 1 is certainty.
/// `None` where there are fewer than four of a kind.
pub(crate) fn told_apart(happened: &[Lengths], nothing: &[Lengths]) -> Option<f64> {
    if happened.len().min(nothing.len()) < 4 {
        return None;
    }
    let [halves, others] = [happened, nothing].map(split);
    let tried = |learnt: usize| {
        let rule = Rule::learnt(&halves[learnt], &others[learnt]);
        rule.right(&halves[1 - learnt], &others[1 - learnt])
    };
    Some((tried(0) + tried(1)) / 2.0)
}

/// Every other one.
fn split(all: &[Lengths]) -> [Vec<&Lengths>; 2] {
    [0, 1].map(|first| all.iter().skip(first).step_by(2).collect())
}

impl Rule {
    /// The one that is right most often.
    fn learnt(happened: &[&Lengths], nothing: &[&Lengths]) -> Rule {
        let all = || happened.iter().chain(nothing).flat_map(|lengths| lengths.iter());
        let candidates: BTreeSet<((bool, usize), usize)> = all().map(|(of, count)| (*of, *count)).collect();
        let mut best = (Rule { of: (true, 0), least: 0, is_inverse: false }, 0.5);
        for (of, least) in candidates {
            for is_inverse in [false, true] {
                let rule = Rule { of, least, is_inverse };
                let right = rule.right(happened, nothing);
                if right > best.1 {
                    best = (rule, right);
                }
            }
        }
        best.0
    }

    fn says(self, lengths: &Lengths) -> bool {
        (lengths.get(&self.of).copied().unwrap_or_default() >= self.least) != self.is_inverse
    }

    fn right(self, happened: &[&Lengths], nothing: &[&Lengths]) -> f64 {
        let part = |of: &[&Lengths], wanted: bool| {
            let right = of.iter().filter(|lengths| self.says(lengths) == wanted).count();
            right as f64 / of.len() as f64
        };
        (part(happened, true) + part(nothing, false)) / 2.0
    }
}
