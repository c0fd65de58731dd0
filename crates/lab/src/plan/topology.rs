//! Wires by where their hosts are: places, and what a packet takes and risks between each two of them.

use heddle_netem::{DirectionOptions, Jitter, Loss};
use serde::Deserialize;

use super::drawn::chance;

/// The most places.
const PLACES_MAX: usize = 1000;

/// What a packet takes and risks between places, in TOML `[tor.topology]`. The wire of two hosts that have places is as
/// this says, the same there and back, and in all else like `default_wire`: where both are on the path of a client, or
/// ends of a flow or of pings, and no group names the pair.
///
/// What is of two places stands in a triangle: the row of each place has its own value and those of the places before
/// it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Their names.
    pub places: Vec<String>,
    /// The delay in milliseconds, one way; a triangle.
    pub delay_ms: Vec<Vec<f64>>,
    /// The standard deviation of a normal jitter in milliseconds, one way; a triangle. Default: as in
    /// `default_wire`.
    #[serde(default)]
    pub jitter_ms: Vec<Vec<f64>>,
    /// For each place how many percent of the packets that leave it or come to it are lost there: of those from one
    /// place to another what both leave arrives. Default: as in `default_wire`.
    #[serde(default)]
    pub lost_pct: Vec<f64>,
    /// The place of the server, if that has a host of its own. Default: that host has none.
    #[serde(default)]
    pub server: Option<String>,
}

/// Where a host is: the name of a place, or a list of such, of which each of a group's members has one that is drawn by
/// the seed and its name.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Place {
    /// There.
    At(String),
    /// At one of these, each with the same chance.
    OneOf(Vec<String>),
}

impl Place {
    /// The one place of the host with this name.
    pub(super) fn drawn(&self, seed: u64, host: &str) -> Result<String, String> {
        match self {
            Place::At(place) => Ok(place.clone()),
            Place::OneOf(places) => {
                let at = chance(seed, "place", &[host]).unit() * places.len() as f64;
                let last = places.len().checked_sub(1).ok_or("a list of places has one at least")?;
                Ok(places[(at as usize).min(last)].clone())
            }
        }
    }

    /// The names of all places that it may be.
    fn names(&self) -> &[String] {
        match self {
            Place::At(place) => std::slice::from_ref(place),
            Place::OneOf(places) => places,
        }
    }
}

impl Topology {
    /// What is wrong with it.
    pub(super) fn fault(&self) -> Option<String> {
        let count = self.places.len();
        if !(1..=PLACES_MAX).contains(&count) {
            return Some(format!("topology: {count} places; possible is from 1 to {PLACES_MAX}"));
        }
        if let Some(twice) =
            self.places.iter().enumerate().find(|(at, place)| self.places[..*at].contains(place))
        {
            return Some(format!("topology: {:?} is there twice", twice.1));
        }
        let is_triangle = |rows: &[Vec<f64>]| {
            rows.len() == count && rows.iter().enumerate().all(|(at, row)| row.len() == at + 1)
        };
        for (name, rows) in [("delay_ms", &self.delay_ms), ("jitter_ms", &self.jitter_ms)] {
            if !(is_triangle(rows) || name == "jitter_ms" && rows.is_empty()) {
                return Some(format!(
                    "topology: {name} has a row for each of {count} places, with its own value and those before it"
                ));
            }
            if let Some(value) = rows.iter().flatten().find(|value| !(value.is_finite() && **value >= 0.0)) {
                return Some(format!("topology: {name} has {value}, which is no time"));
            }
        }
        if !self.lost_pct.is_empty() && self.lost_pct.len() != count {
            return Some(format!("topology: lost_pct has a value for each of {count} places"));
        }
        if let Some(value) = self.lost_pct.iter().find(|value| !(0.0..100.0).contains(*value)) {
            return Some(format!("topology: lost_pct has {value}, which leaves nothing or is no part"));
        }
        self.server.iter().find_map(|server| self.unknown(server))
    }

    /// What is wrong with where a host is.
    pub(super) fn fault_of(&self, place: &Place) -> Option<String> {
        match place.names().is_empty() {
            true => Some("a list of places has one at least".to_owned()),
            false => place.names().iter().find_map(|name| self.unknown(name)),
        }
    }

    fn unknown(&self, place: &str) -> Option<String> {
        let is_known = self.places.iter().any(|known| known == place);
        (!is_known).then(|| format!("the topology has no place {place:?}"))
    }

    /// The wire between hosts at these places, either way.
    pub(super) fn wire(&self, ends: [&str; 2], like: &DirectionOptions) -> Option<DirectionOptions> {
        let [one, other] = ends.map(|end| self.places.iter().position(|place| place == end));
        let (one, other) = (one?, other?);
        let of = |rows: &[Vec<f64>]| {
            let row = rows.get(one.max(other));
            row.and_then(|row| row.get(one.min(other))).copied().unwrap_or_default()
        };
        let nanoseconds = |ms: f64| (ms * 1e6).round() as u64;
        let kept = |place: usize| 1.0 - self.lost_pct.get(place).copied().unwrap_or_default() / 100.0;
        let jitter = match nanoseconds(of(&self.jitter_ms)) {
            _ if self.jitter_ms.is_empty() => like.jitter.clone(),
            0 => Jitter::None,
            std_dev_ns => Jitter::Normal { std_dev_ns },
        };
        let loss = match self.lost_pct.is_empty() {
            true => like.loss.clone(),
            false => Loss::Bernoulli { probability: 1.0 - kept(one) * kept(other) },
        };
        Some(DirectionOptions { delay_ns: nanoseconds(of(&self.delay_ms)), jitter, loss, ..like.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology() -> Topology {
        Topology {
            places: ["A", "B", "C"].map(str::to_owned).to_vec(),
            delay_ms: vec![vec![1.0], vec![2.0, 3.0], vec![4.0, 5.5, 6.0]],
            jitter_ms: vec![vec![0.0], vec![0.2, 0.3], vec![0.4, 0.5, 0.6]],
            lost_pct: vec![10.0, 20.0, 0.0],
            server: None,
        }
    }

    #[test]
    fn a_wire_is_what_its_places_say_either_way() {
        let like = DirectionOptions { jitter_reorders: true, ..DirectionOptions::default() };
        let of = |ends| topology().wire(ends, &like).unwrap();
        assert_eq!(of(["B", "C"]), of(["C", "B"]));
        let wire = of(["C", "B"]);
        assert_eq!((wire.delay_ns, wire.jitter_reorders), (5_500_000, true));
        assert_eq!(wire.jitter, Jitter::Normal { std_dev_ns: 500_000 });
        let Loss::Bernoulli { probability } = of(["A", "B"]).loss else { panic!("{wire:?}") };
        assert!((probability - 0.28).abs() < 1e-12, "{probability}");
        assert_eq!((of(["A", "A"]).delay_ns, of(["A", "A"]).jitter), (1_000_000, Jitter::None));
        assert_eq!(topology().wire(["A", "D"], &like), None);
        // What it says nothing of is as in other wires, and a zero says something.
        let jitter = Jitter::Normal { std_dev_ns: 9 };
        let like =
            DirectionOptions { jitter: jitter.clone(), loss: Loss::Bernoulli { probability: 0.5 }, ..like };
        let bare =
            Topology { jitter_ms: vec![], lost_pct: vec![], ..topology() }.wire(["A", "A"], &like).unwrap();
        assert_eq!((bare.jitter, bare.loss), (jitter, like.loss.clone()));
        assert_eq!(topology().wire(["A", "A"], &like).unwrap().jitter, Jitter::None);
    }

    #[test]
    fn places_are_drawn_by_the_seed_and_the_name() {
        let list = Place::OneOf(["A", "B", "B", "B"].map(str::to_owned).to_vec());
        let drawn: Vec<String> = (0..2000).map(|seed| list.drawn(seed, "relay1").unwrap()).collect();
        let of_a = drawn.iter().filter(|place| *place == "A").count();
        assert!((430..570).contains(&of_a), "{of_a}");
        assert_eq!(list.drawn(7, "relay1"), list.drawn(7, "relay1"));
        assert!((0..20).any(|seed| list.drawn(seed, "relay1") != list.drawn(seed, "relay2")));
        assert_eq!(Place::At("C".into()).drawn(1, "relay1").as_deref(), Ok("C"));
    }

    #[test]
    fn a_topology_that_is_none_is_refused() {
        type Change = fn(&mut Topology);
        let cases: [(Change, &str); 7] = [
            (|bad| bad.places.clear(), "0 places"),
            (|bad| bad.places[2] = "A".into(), "\"A\" is there twice"),
            (|bad| bad.delay_ms[1].push(1.0), "delay_ms has a row for each of 3 places"),
            (|bad| bad.jitter_ms[2][1] = f64::NAN, "jitter_ms has NaN"),
            (|bad| bad.lost_pct.truncate(2), "lost_pct has a value for each"),
            (|bad| bad.lost_pct[0] = 100.0, "leaves nothing"),
            (|bad| bad.server = Some("D".into()), "no place \"D\""),
        ];
        for (change, what) in cases {
            let mut bad = topology();
            change(&mut bad);
            assert!(bad.fault().is_some_and(|fault| fault.contains(what)), "{what}: {:?}", bad.fault());
        }
        assert_eq!(topology().fault(), None);
        assert!(topology().fault_of(&Place::OneOf(vec![])).is_some());
        assert!(topology().fault_of(&Place::At("D".into())).is_some_and(|fault| fault.contains("\"D\"")));
    }
}
