//! The network as a client knows it, and the paths that it chooses through it (path-spec, section 2.2; dir-spec,
//! section 3.8.3, for the weights).
//!
//! 1. The exit is chosen first, of those whose policy lets the port out.
//! 2. Of the client's guards, in their order, the first that is not down and is another relay is the first hop.
//! 3. The middle is any third relay.
//!
//! All are drawn by their bandwidth times the weight that the consensus gives their flags in that position. Families
//! and networks are not looked at: where stock Tor keeps them apart, a private network has all relays in one.

use crate::circuit::{Handshake, Hop};
use core::fmt;
use core::str::FromStr;
use heddle_proto::flow_control::FlowChoice;
use heddle_proto::ids::RsaId;
use heddle_proto::params::NetworkParams;
use heddle_seam::rng::Rng;
use heddle_seam::time::{Duration, Instant};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Guards that a client keeps in its order of preference.
const GUARDS_MAX: usize = 3;
/// For how long a guard that could not be reached is left out.
const GUARD_DOWN: Duration = Duration::from_secs(60);
/// Hops of a path that is given: one that is created, and eight RELAY_EARLY cells.
const HOPS_MAX: usize = 9;
/// What bandwidths are multiplied with where the consensus gives no weight (`bwweightscale`).
const WEIGHT_SCALE: i32 = 10_000;

/// A relay that a path may use.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub nickname: String,
    pub hop: Hop,
    /// Whether it has the flag Guard.
    pub guard: bool,
    /// Whether it has the flag Exit.
    pub exit: bool,
    /// Its weight of the consensus, in kilobytes per second.
    pub bandwidth: u32,
    /// The ports that it lets out to most addresses, first and last; none of a relay that must not be an exit.
    pub ports: Vec<(u16, u16)>,
    /// Whether it speaks ntor-v3 (`Relay=4`).
    pub ntor_v3: bool,
    /// Whether it can control congestion (`FlowCtrl=2`).
    pub congestion_control: bool,
}

/// A network as its consensus and its microdescriptors describe it.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    pub params: Arc<NetworkParams>,
    /// The weights of positions, by their names: `Wgg` and so on.
    pub weights: BTreeMap<String, i32>,
    /// Those relays whose keys are known.
    pub relays: Vec<Candidate>,
}

/// How a relay of a given path is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayName {
    Nickname(String),
    /// The SHA-1 of its RSA identity.
    Fingerprint(RsaId),
}

/// A path that was chosen.
#[derive(Clone, Debug)]
pub struct Path {
    pub hops: Vec<(Hop, Handshake)>,
    /// The nicknames of its relays.
    pub names: Vec<String>,
    /// The ports that its exit lets out.
    pub ports: Vec<(u16, u16)>,
}

/// What a path is chosen for.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathWanted<'a> {
    /// What its exit is to let out; `None` is any port.
    pub port: Option<u16>,
    pub flow_control: FlowChoice,
    /// Relays that are not to be its exit.
    pub not_exits: &'a [RsaId],
}

/// Why there is no path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoPath {
    /// No relay of the consensus has that name and known keys.
    Unknown(String),
    /// Several have that nickname.
    Ambiguous(String),
    /// No exit lets this port out.
    NoExit {
        port: Option<u16>,
    },
    NoGuard,
    NoMiddle,
}

impl fmt::Display for NoPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoPath::Unknown(name) => write!(f, "the consensus lists no relay `{name}` whose keys are known"),
            NoPath::Ambiguous(name) => {
                write!(f, "several relays are called `{name}`; name the one by its fingerprint")
            }
            NoPath::NoExit { port: Some(port) } => write!(f, "no exit lets port {port} out"),
            NoPath::NoExit { port: None } => f.write_str("the consensus lists no exit"),
            NoPath::NoGuard => f.write_str("the consensus lists no guard beside the exit"),
            NoPath::NoMiddle => f.write_str("the consensus lists no third relay"),
        }
    }
}

impl core::error::Error for NoPath {}

impl FromStr for RelayName {
    type Err = String;

    /// A nickname, or 40 hexadecimal digits with or without `$`.
    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix('$').unwrap_or(text);
        let nibble = |place: usize| char::to_digit(char::from(digits.as_bytes()[place]), 16);
        if digits.len() == 40 && (0..40).all(|place| nibble(place).is_some()) {
            let byte = |place: usize| {
                let byte = nibble(2 * place).unwrap_or(0) << 4 | nibble(2 * place + 1).unwrap_or(0);
                u8::try_from(byte).unwrap_or(0)
            };
            return Ok(RelayName::Fingerprint(RsaId(core::array::from_fn(byte))));
        }
        let is_nickname =
            (1..=19).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        match is_nickname {
            true => Ok(RelayName::Nickname(text.to_owned())),
            false => {
                Err(format!("`{text}` is neither a nickname nor a fingerprint of 40 hexadecimal digits"))
            }
        }
    }
}

impl fmt::Display for RelayName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RelayName::Nickname(name) => f.write_str(name),
            RelayName::Fingerprint(id) => id.0.iter().try_for_each(|byte| write!(f, "{byte:02X}")),
        }
    }
}

/// A place in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Guard,
    Middle,
    Exit,
}

impl Directory {
    /// A path over these relays, the guard first.
    ///
    /// # Errors
    /// One of them is not known.
    pub fn given(&self, names: &[RelayName], flow_control: FlowChoice) -> Result<Path, NoPath> {
        let relays = names.iter().take(HOPS_MAX).map(|name| self.named(name));
        Ok(self.path(&relays.collect::<Result<Vec<_>, _>>()?, flow_control))
    }

    /// A path of three relays.
    ///
    /// # Errors
    /// There are not relays enough.
    pub fn choose(
        &self,
        wanted: PathWanted<'_>,
        guards: &mut Guards,
        now: Instant,
        rng: &mut Rng,
    ) -> Result<Path, NoPath> {
        let PathWanted { port, flow_control, not_exits } = wanted;
        let lets_out = |relay: &Candidate| match port {
            Some(port) => allows(&relay.ports, port),
            None => !relay.ports.is_empty(),
        };
        // Whoever is the only guard must not be taken for an exit, as long as there is another.
        guards.renew(self, rng);
        let only_guard = match &guards.kept[..] {
            [only] => Some(only.id),
            _ => None,
        };
        let is_free = |relay: &Candidate| {
            let id = relay.hop.target.rsa;
            Some(id) != only_guard && !not_exits.contains(&id)
        };
        let exit = self
            .draw(Position::Exit, rng, |relay| lets_out(relay) && is_free(relay))
            .ok_or(NoPath::NoExit { port })?;
        let guard = guards.first(self, exit.hop.target.rsa, now).ok_or(NoPath::NoGuard)?;
        let taken = [exit.hop.target.rsa, guard.hop.target.rsa];
        let middle = self
            .draw(Position::Middle, rng, |relay| !taken.contains(&relay.hop.target.rsa))
            .ok_or(NoPath::NoMiddle)?;
        Ok(self.path(&[guard, middle, exit], flow_control))
    }

    fn named(&self, name: &RelayName) -> Result<&Candidate, NoPath> {
        let is_it = |relay: &&Candidate| match name {
            RelayName::Nickname(name) => relay.nickname.eq_ignore_ascii_case(name),
            RelayName::Fingerprint(id) => relay.hop.target.rsa == *id,
        };
        let mut found = self.relays.iter().filter(is_it);
        match (found.next(), found.next()) {
            (Some(relay), None) => Ok(relay),
            (None, _) => Err(NoPath::Unknown(name.to_string())),
            (Some(_), Some(_)) => Err(NoPath::Ambiguous(name.to_string())),
        }
    }

    /// The last hop is asked for congestion control if it has it and the choice of flow control wants it.
    fn path(&self, relays: &[&Candidate], flow_control: FlowChoice) -> Path {
        let enabled = flow_control.wants_congestion_control(&|name| self.params.0.get(name).copied());
        let handshake = |place: usize, relay: &Candidate| {
            let congestion_control = place + 1 == relays.len() && enabled && relay.congestion_control;
            match relay.ntor_v3 {
                true => Handshake::NtorV3 { congestion_control },
                false => Handshake::Ntor,
            }
        };
        let hop = |(place, relay): (usize, &&Candidate)| (relay.hop.clone(), handshake(place, relay));
        Path {
            hops: relays.iter().enumerate().map(hop).collect(),
            names: relays.iter().map(|relay| relay.nickname.clone()).collect(),
            ports: relays.last().map(|relay| relay.ports.clone()).unwrap_or_default(),
        }
    }

    /// Draws one of those that `fits`, by their weights in that position; evenly where none has any, as in a network
    /// whose relays were never measured.
    fn draw(
        &self,
        position: Position,
        rng: &mut Rng,
        fits: impl Fn(&Candidate) -> bool,
    ) -> Option<&Candidate> {
        let fitting: Vec<_> = self.relays.iter().filter(|relay| fits(relay)).collect();
        // So that their sum is a number, whatever authorities write.
        let weight_max = u64::MAX / (fitting.len() as u64).max(1);
        let weights: Vec<u64> =
            fitting.iter().map(|relay| self.weight(relay, position).min(weight_max)).collect();
        let total: u64 = weights.iter().sum();
        if total == 0 {
            let count = u64::try_from(fitting.len()).ok().filter(|count| *count > 0)?;
            return fitting.get(usize::try_from(rng.below(count)).ok()?).copied();
        }
        let mut left = rng.below(total);
        for (relay, weight) in fitting.into_iter().zip(weights) {
            if left < weight {
                return Some(relay);
            }
            left -= weight;
        }
        None
    }

    /// A relay's bandwidth times what its flags weigh in that position. The product is at most 2^63.
    fn weight(&self, relay: &Candidate, position: Position) -> u64 {
        let name = match (position, relay.guard, relay.exit) {
            (Position::Guard, _, true) => "Wgd",
            (Position::Guard, true, false) => "Wgg",
            (Position::Guard, false, false) => "Wgm",
            (Position::Middle, true, true) => "Wmd",
            (Position::Middle, true, false) => "Wmg",
            (Position::Middle, false, true) => "Wme",
            (Position::Middle, false, false) => "Wmm",
            (Position::Exit, true, true) => "Wed",
            (Position::Exit, true, false) => "Weg",
            (Position::Exit, false, true) => "Wee",
            (Position::Exit, false, false) => "Wem",
        };
        let weight = self.weights.get(name).copied().unwrap_or(WEIGHT_SCALE).max(0);
        u64::from(relay.bandwidth) * u64::from(weight.unsigned_abs())
    }
}

/// Whether a port is in one of these ranges.
pub(crate) fn allows(ports: &[(u16, u16)], port: u16) -> bool {
    ports.iter().any(|(first, last)| (*first..=*last).contains(&port))
}

/// The guards of a client, in its order of preference. They live as long as it does.
#[derive(Clone, Debug, Default)]
pub struct Guards {
    /// At most [`GUARDS_MAX`].
    kept: Vec<Kept>,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    id: RsaId,
    down_until: Option<Instant>,
}

impl Guards {
    /// Nobody could be reached there for a while.
    pub(crate) fn on_down(&mut self, id: RsaId, now: Instant) {
        for guard in self.kept.iter_mut().filter(|guard| guard.id == id) {
            guard.down_until = Some(now + GUARD_DOWN);
        }
    }

    /// Leaves out those that are listed no more, and draws others. Where no relay has the flag, any may be a guard.
    fn renew(&mut self, directory: &Directory, rng: &mut Rng) {
        let relays = &directory.relays;
        self.kept.retain(|guard| relays.iter().any(|relay| relay.hop.target.rsa == guard.id));
        let flagged = relays.iter().any(|relay| relay.guard);
        while self.kept.len() < GUARDS_MAX {
            let kept = &self.kept;
            let is_new = |relay: &Candidate| {
                let id = relay.hop.target.rsa;
                (relay.guard || !flagged) && kept.iter().all(|guard| guard.id != id)
            };
            let Some(relay) = directory.draw(Position::Guard, rng, is_new) else { return };
            self.kept.push(Kept { id: relay.hop.target.rsa, down_until: None });
        }
    }

    /// The first that is up and another relay than the exit. While all are down, the one that has been so longest.
    fn first<'a>(&self, directory: &'a Directory, exit: RsaId, now: Instant) -> Option<&'a Candidate> {
        let others = self.kept.iter().filter(|guard| guard.id != exit);
        let down_until = |guard: &&Kept| guard.down_until.filter(|until| *until > now);
        let guard = others.min_by_key(down_until)?;
        directory.relays.iter().find(|relay| relay.hop.target.rsa == guard.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_proto::channel::Target;
    use heddle_seam::rng::Seed;

    const NOW: Instant = Instant::ZERO;
    const ANY: PathWanted<'static> =
        PathWanted { port: None, flow_control: FlowChoice::Auto, not_exits: &[] };

    fn relay(number: u8, guard: bool, exit: bool, bandwidth: u32) -> Candidate {
        let target = Target {
            rsa: RsaId([number; 20]),
            ed25519: None,
            addrs: vec![([127, 0, 0, number], 9001).into()],
        };
        Candidate {
            nickname: format!("relay{number}"),
            hop: Hop { target, ntor_key: [number; 32] },
            guard,
            exit,
            bandwidth,
            ports: if exit { vec![(1, 79), (81, 65535)] } else { Vec::new() },
            ntor_v3: number != 3,
            congestion_control: number != 4,
        }
    }

    fn directory(relays: Vec<Candidate>) -> Directory {
        Directory { relays, ..Directory::default() }
    }

    fn place(relay: &str) -> usize {
        relay.trim_start_matches("relay").parse::<usize>().unwrap() - 1
    }

    #[test]
    fn three_relays_are_three_and_the_guard_stays() {
        let relays = (1..=8).map(|n| relay(n, n <= 4, n >= 4, u32::from(n))).collect();
        let (directory, mut guards) = (directory(relays), Guards::default());
        let mut rng = Seed::from_number(1).rng();
        let mut firsts = std::collections::BTreeSet::new();
        for _ in 0..500 {
            let path =
                directory.choose(PathWanted { port: Some(443), ..ANY }, &mut guards, NOW, &mut rng).unwrap();
            let places: std::collections::BTreeSet<_> = path.names.iter().map(|name| place(name)).collect();
            assert_eq!(places.len(), 3);
            assert!(place(&path.names[0]) <= 3 && place(&path.names[2]) >= 3, "{:?}", path.names);
            firsts.insert(path.names[0].clone());
        }
        // The one relay that is guard and exit may have been the first guard.
        assert!(firsts.len() <= 2, "{firsts:?}");
    }

    /// The exit alone is drawn by weight here: the shares come out within what chance allows (a chi-squared of three
    /// degrees of freedom above 16.3 has a probability of 0.1 %, and the seed is fixed).
    #[test]
    fn relays_are_drawn_by_bandwidth_times_weight() {
        let mut directory = directory(vec![
            relay(1, true, false, 100),
            relay(2, false, false, 300),
            relay(5, true, true, 200),
            relay(6, false, true, 400),
        ]);
        let weights = [("Wmg", 5_000), ("Wmm", 10_000), ("Wmd", 0), ("Wme", 2_500)];
        directory.weights = weights.map(|(name, weight)| (name.to_owned(), weight)).into();
        let mut rng = Seed::from_number(2).rng();
        let mut drawn = BTreeMap::<String, u32>::new();
        for _ in 0..9_000 {
            let relay = directory.draw(Position::Middle, &mut rng, |_| true).unwrap();
            *drawn.entry(relay.nickname.clone()).or_default() += 1;
        }
        let expected = [("relay1", 50.0), ("relay2", 300.0), ("relay6", 100.0)];
        assert_eq!(drawn.len(), expected.len(), "a weight of zero is never drawn: {drawn:?}");
        let chi_squared: f64 = expected
            .iter()
            .map(|(name, weight)| {
                let wanted = 9_000.0 * weight / 450.0;
                (f64::from(drawn[*name]) - wanted).powi(2) / wanted
            })
            .sum();
        assert!(chi_squared < 16.3, "{drawn:?}");
    }

    #[test]
    fn without_bandwidths_all_are_drawn() {
        let directory = directory((1..=4).map(|n| relay(n, true, true, 0)).collect());
        let mut rng = Seed::from_number(3).rng();
        let mut exits = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let path = directory.choose(ANY, &mut Guards::default(), NOW, &mut rng).unwrap();
            exits.insert(path.names[2].clone());
        }
        assert_eq!(exits.len(), 4);
    }

    #[test]
    fn a_guard_that_is_down_gives_way_for_a_minute() {
        let directory = directory((1..=6).map(|n| relay(n, n < 5, n >= 5, 1)).collect());
        let (mut guards, mut rng) = (Guards::default(), Seed::from_number(4).rng());
        let mut first = |guards: &mut Guards, now| {
            directory.choose(ANY, guards, now, &mut rng).unwrap().hops[0].0.target.rsa
        };
        let favourite = first(&mut guards, NOW);
        guards.on_down(favourite, NOW);
        let second = first(&mut guards, NOW);
        assert_ne!(second, favourite);
        assert_eq!(first(&mut guards, NOW + GUARD_DOWN), favourite);
        // When nobody is up, whoever is up soonest is tried.
        guards.on_down(second, NOW);
        let third = first(&mut guards, NOW);
        guards.on_down(third, NOW + Duration::from_secs(1));
        assert!([favourite, second].contains(&first(&mut guards, NOW + Duration::from_secs(2))));
    }

    #[test]
    fn what_is_missing_is_said() {
        let mut rng = Seed::from_number(5).rng();
        let mut choose = |relays, port| {
            directory(relays)
                .choose(PathWanted { port, ..ANY }, &mut Guards::default(), NOW, &mut rng)
                .unwrap_err()
        };
        assert_eq!(choose(vec![relay(1, true, false, 1)], None), NoPath::NoExit { port: None });
        let two = || vec![relay(1, true, false, 1), relay(2, false, true, 1)];
        assert_eq!(choose(two(), Some(80)), NoPath::NoExit { port: Some(80) });
        assert_eq!(choose(two(), Some(81)), NoPath::NoMiddle);
    }

    #[test]
    fn given_relays_are_found_by_both_names() {
        let directory =
            directory(vec![relay(1, true, false, 1), relay(3, true, false, 1), relay(4, true, true, 1)]);
        let named = |text: &str| text.parse::<RelayName>().unwrap();
        let path = directory
            .given(&[named("RELAY1"), named(&"03".repeat(20)), named("relay4")], FlowChoice::Auto)
            .unwrap();
        assert_eq!(path.names, ["relay1", "relay3", "relay4"]);
        let handshakes: Vec<_> = path.hops.iter().map(|(_, handshake)| *handshake).collect();
        let v3 = Handshake::NtorV3 { congestion_control: false };
        assert_eq!(handshakes, [v3, Handshake::Ntor, v3], "relay4 cannot control congestion");
        for (choice, congestion_control) in
            [(FlowChoice::Auto, true), (FlowChoice::Vegas, true), (FlowChoice::Dynamic, false)]
        {
            let path = directory.given(&[named("relay1")], choice).unwrap();
            assert_eq!(path.hops[0].1, Handshake::NtorV3 { congestion_control });
        }
        assert_eq!(
            directory.given(&[named("nobody")], FlowChoice::Auto).unwrap_err(),
            NoPath::Unknown("nobody".to_owned())
        );
        let fingerprint = format!("${}", "AB".repeat(20));
        assert_eq!(named(&fingerprint).to_string(), "AB".repeat(20));
        for bad in ["", "a-b", &"a".repeat(20), "$AB"] {
            assert!(bad.parse::<RelayName>().is_err(), "{bad}");
        }
    }
}
