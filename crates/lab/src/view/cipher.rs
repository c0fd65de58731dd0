//! Whether bytes look encrypted: at each place of payloads all values ought to be as likely.

use std::ops::Range;

/// The places of a payload that are looked at, which are more than a packet has on our wires.
const PLACES_MAX: usize = 2048;
/// How many payloads must have a place before it is judged: with so many, bytes that are equally likely come to 7.6
/// bits.
const COUNT_MIN: u32 = 512;
/// The least entropy, in bits, of what looks encrypted.
const ENTROPY_MIN: f64 = 6.0;

/// The bytes of many payloads, by their place.
#[derive(Clone, Debug, Default)]
pub(super) struct Bytes {
    places: Vec<Place>,
}

/// The bytes at one place.
#[derive(Clone, Debug)]
struct Place {
    count: u32,
    values: Box<[u32; 256]>,
}

impl Bytes {
    /// Adds all bytes of a payload but these, which come one after the other.
    pub(super) fn add(&mut self, payload: &[u8], clear: &[Range<usize>]) {
        let mut clear = clear.iter().peekable();
        for (place, value) in payload.iter().take(PLACES_MAX).enumerate() {
            while clear.next_if(|range| range.end <= place).is_some() {}
            if clear.peek().is_some_and(|range| range.contains(&place)) {
                continue;
            }
            if place >= self.places.len() {
                self.places.resize_with(place + 1, Place::default);
            }
            self.places[place].count += 1;
            self.places[place].values[usize::from(*value)] += 1;
        }
    }

    /// How many places do not look encrypted; `None` where none was in enough payloads.
    pub(super) fn not_encrypted(&self) -> Option<usize> {
        let judged = self.places.iter().filter(|place| place.count >= COUNT_MIN);
        let low: Vec<bool> = judged.map(|place| place.entropy() < ENTROPY_MIN).collect();
        (!low.is_empty()).then(|| low.into_iter().filter(|is_low| *is_low).count())
    }
}

impl Default for Place {
    fn default() -> Self {
        Place { count: 0, values: Box::new([0; 256]) }
    }
}

impl Place {
    /// In bits.
    fn entropy(&self) -> f64 {
        let all = f64::from(self.count);
        let of = |count: &u32| f64::from(*count) / all;
        self.values.iter().filter(|count| **count > 0).map(of).map(|part| -part * libm::log2(part)).sum()
    }
}
