//! What is in clear that could name something, and how many circuits it tells apart.
//!
//! A *name* of a circuit stays with it and differs from another one's. So a value counts as one that is there second by
//! second, in more than half of the seconds in which enough passes, and each time in a good part of the packets. Of
//! circuits that are busy together, each over a connection of its own in clear, each has such a value; where all share
//! one connection there is one. What only runs on, such as a sequence number, is no name, and a value that comes once
//! in a while is none of a circuit that is busy.

use std::collections::BTreeMap;
use std::time::Duration;

/// The least packets of a second in which something can be told.
const PACKETS_MIN: u32 = 50;
/// The least part of a second's packets that a value stands in: one in so many. More circuits than this are not told
/// apart here.
const PART: u32 = 50;
/// The most values of a field that are kept.
const VALUES_MAX: usize = 2000;

/// The values of all fields, in both directions.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    fields: BTreeMap<(&'static str, bool), Field>,
}

#[derive(Clone, Debug, Default)]
struct Field {
    /// By a number each.
    values: BTreeMap<Vec<u8>, usize>,
    seconds: BTreeMap<u64, Second>,
}

/// What passed in a second.
#[derive(Clone, Debug, Default)]
struct Second {
    packets: u32,
    /// By the value's number.
    by_value: BTreeMap<usize, u32>,
}

impl Names {
    /// Adds what a field was in a packet.
    pub(super) fn add(&mut self, name: &'static str, is_there: bool, at: Duration, value: &[u8]) {
        let field = self.fields.entry((name, is_there)).or_default();
        let second = field.seconds.entry(at.as_secs()).or_default();
        second.packets += 1;
        let number = match field.values.get(value) {
            Some(number) => *number,
            None if field.values.len() >= VALUES_MAX => return,
            None => {
                let number = field.values.len();
                field.values.insert(value.to_vec(), number);
                number
            }
        };
        *second.by_value.entry(number).or_default() += 1;
    }

    /// How many values each field had in a direction.
    pub(super) fn values(&self, is_there: bool) -> BTreeMap<&'static str, usize> {
        let fields = self.fields.iter().filter(|((_, there), _)| *there == is_there);
        fields.map(|((name, _), field)| (*name, field.values.len())).collect()
    }

    /// How many circuits the field tells apart that tells the most; `None` where too little passed.
    pub(super) fn told_apart(&self) -> Option<usize> {
        self.fields.values().filter_map(Field::names).max()
    }
}

impl Field {
    /// How many of its values are names.
    fn names(&self) -> Option<usize> {
        let busy: Vec<&Second> =
            self.seconds.values().filter(|second| second.packets >= PACKETS_MIN).collect();
        let is_name = |value: &usize| {
            let there = busy.iter().filter(|second| second.has(*value)).count();
            2 * there > busy.len()
        };
        (!busy.is_empty()).then(|| (0..self.values.len()).filter(is_name).count())
    }
}

impl Second {
    /// Whether a good part of its packets have this value.
    fn has(&self, value: usize) -> bool {
        self.by_value.get(&value).is_some_and(|count| count.saturating_mul(PART) >= self.packets)
    }
}
