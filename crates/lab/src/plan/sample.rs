//! The network that a seed makes of a plan's: the members of its groups, the rates of relays, the paths of clients that
//! have none, and the delays of the wires along paths.
//!
//! 1. Each group becomes its members. A relay's rate is drawn by the seed and its name, so that one more relay changes
//!    no other one's.
//! 2. Relays have flags as directories give them by bandwidth: a relay that is as fast as the median or faster is a
//!    guard (dir-spec, section 3.4.2), one that exits is an exit.
//! 3. Each client without a path chooses one as a client of Heddle's does ([`Directory::choose`]): by relays' rates
//!    times the weights of positions. Its draws are its own, by its name.
//! 4. Wires along paths that no group names get a delay each, by the names of their ends.
//!    In a network with a topology hosts are at places, one of a list each, drawn by their names, and those wires are
//!    what it says of both places.
//! 5. Relays get the order in which they upgrade, for arms in which a part of them is (`upgrade.rs`).
//!
//! Nothing of it depends on an arm, so the arms of a run have one network.

use std::collections::{BTreeMap, BTreeSet};

use heddle_client::{Candidate, Directory, Guards, Hop, PathWanted};
use heddle_netem::{DirectionOptions, WireOptions};
use heddle_proto::channel::Target;
use heddle_proto::ids::RsaId;
use heddle_seam::rng::Seed as ChoiceSeed;
use heddle_seam::time::Instant;
use toml::Spanned;

use super::clients::Client;
use super::drawn::chance;
use super::hosts::NETWORK_HOSTS_MAX;
use super::network::{Phase, Relay, Tor, WireGroup};
use super::pings::PAIRS_MAX;
use super::shares::sizes;
use super::topology::Place;
use super::upgrade;
use super::weights::Bandwidths;

/// The least rate that relays take, which is stock Tor's (`RelayBandwidthRate`).
const RATE_KIB_S_MIN: f64 = 75.0;

/// A byte of the plan's text, or none when the fault has no place of its own, and one sentence.
pub(crate) type Fault = (Option<usize>, String);

/// A relay that is a host of its own, and its rate, where it has one.
struct Member {
    relay: Spanned<Relay>,
    rate_kib_s: Option<f64>,
}

impl Tor {
    /// The network of this seed, in which nothing is left to be drawn. A network that has no groups, rates or paths to
    /// be drawn is as it was.
    ///
    /// # Errors
    ///
    /// What cannot be drawn, and where in the plan's text that is.
    pub(crate) fn drawn(&self, seed: u64) -> Result<Tor, Fault> {
        self.check_counts()?;
        if let Some(what) = upgrade::fault(&self.upgrade_steps) {
            return Err((None, what.to_owned()));
        }
        let members = self.members(seed)?;
        let relays = self.relays.iter().map(|relay| &*relay.as_ref().name).zip(self.names_of_relays());
        let clients = self.clients.iter().map(|client| &*client.as_ref().name).zip(self.names_of_clients());
        let groups: BTreeMap<&str, Vec<String>> = relays.chain(clients).collect();
        let clients = self.drawn_clients(&members, seed)?;
        let mut drawn = Tor {
            relays: members.into_iter().map(|member| member.relay).collect(),
            clients,
            wires: self.wires.iter().map(|wires| with_members(wires, &groups)).collect(),
            delay_ms: None,
            ..self.clone()
        };
        for pings in &mut drawn.pings {
            let at = pings.span().start;
            let pings = pings.get_mut();
            let pairs = count_of_pairs(&pings.between, &groups);
            if pairs > PAIRS_MAX {
                return Err((
                    Some(at),
                    format!("{pairs} pairs of hosts that ping; possible are {PAIRS_MAX}"),
                ));
            }
            pings.between = pairs_of_members(&pings.between, &groups);
        }
        for phase in &mut drawn.phases {
            let phase: &mut Phase = phase.get_mut();
            phase.clients = all_members(&phase.clients, &groups);
        }
        for bottleneck in &mut drawn.bottlenecks {
            let bottleneck = bottleneck.get_mut();
            bottleneck.clients = all_members(&bottleneck.clients, &groups);
        }
        drawn.label_by_upgrades();
        let fresh = self.drawn_wires(&drawn, seed)?;
        drawn.drawn_wires.extend(fresh);
        Ok(drawn)
    }

    /// Whether groups have members, and not too many.
    fn check_counts(&self) -> Result<(), Fault> {
        let relays =
            self.relays.iter().map(|relay| (relay.span().start, relay.as_ref().count, relay.as_ref().share));
        let clients = self.clients.iter();
        let clients =
            clients.map(|client| (client.span().start, client.as_ref().count, client.as_ref().share));
        for (at, count, share) in relays.chain(clients) {
            let fault = |what: String| Err((Some(at), what));
            if count == Some(0) {
                return fault("a group of hosts has at least one".to_owned());
            }
            if share.is_some_and(|share| count.is_none() || !(share > 0.0 && share <= 1.0)) {
                return fault("a share is of a `count`, above 0, and 1 at most".to_owned());
            }
            if count.is_some_and(|count| count > NETWORK_HOSTS_MAX) {
                return fault(format!("there are more hosts than {NETWORK_HOSTS_MAX}"));
            }
        }
        // No sum of theirs overflows, because each has so many at most.
        let mut all = 0;
        for (place, size) in self.sizes_of_relays().into_iter().chain(self.sizes_of_clients()).enumerate() {
            all += size.unwrap_or(1);
            if all > NETWORK_HOSTS_MAX {
                let spans =
                    self.relays.iter().map(Spanned::span).chain(self.clients.iter().map(Spanned::span));
                let at = spans.map(|span| span.start).nth(place);
                return Err((at, format!("there are more hosts than {NETWORK_HOSTS_MAX}")));
            }
        }
        Ok(())
    }

    /// How many members the groups of relays have.
    fn sizes_of_relays(&self) -> Vec<Option<usize>> {
        let groups = self.relays.iter().map(|relay| (relay.as_ref().count, relay.as_ref().share));
        sizes(&groups.collect::<Vec<_>>())
    }

    fn sizes_of_clients(&self) -> Vec<Option<usize>> {
        let groups = self.clients.iter().map(|client| (client.as_ref().count, client.as_ref().share));
        sizes(&groups.collect::<Vec<_>>())
    }

    /// The names of the members of each group of relays.
    fn names_of_relays(&self) -> Vec<Vec<String>> {
        let sized = self.relays.iter().zip(self.sizes_of_relays());
        sized.map(|(relay, size)| names(&relay.as_ref().name, size)).collect()
    }

    fn names_of_clients(&self) -> Vec<Vec<String>> {
        let sized = self.clients.iter().zip(self.sizes_of_clients());
        sized.map(|(client, size)| names(&client.as_ref().name, size)).collect()
    }

    /// Every relay, with its rate.
    fn members(&self, seed: u64) -> Result<Vec<Member>, Fault> {
        let mut members = Vec::new();
        for (group, names) in self.relays.iter().zip(self.names_of_relays()) {
            let relay = group.as_ref();
            if let Some(what) = relay.rate_kib_s.as_ref().and_then(|rate| rate.fault(RATE_KIB_S_MIN)) {
                return Err((Some(group.span().start), format!("rate_kib_s: {what}")));
            }
            for name in names {
                let rate_kib_s =
                    relay.rate_kib_s.as_ref().map(|rate| rate.draw(&mut chance(seed, "rate", &[&name])));
                let torrc = rate_kib_s.into_iter().flat_map(rate_lines).chain(relay.torrc.iter().cloned());
                let torrc = torrc.collect();
                let place = self.place_of(relay.place.as_ref(), seed, &name);
                let place = place.map_err(|what| (Some(group.span().start), what))?;
                let relay =
                    Relay { name, count: None, share: None, rate_kib_s: None, place, torrc, ..relay.clone() };
                members.push(Member { relay: Spanned::new(group.span(), relay), rate_kib_s });
            }
        }
        let rates: Vec<(&str, Option<f64>)> =
            members.iter().map(|member| (&*member.relay.as_ref().name, member.rate_kib_s)).collect();
        let ranks = upgrade::ranks(seed, &rates);
        for (member, rank) in members.iter_mut().zip(ranks) {
            // One that was drawn before keeps what it had by its rate.
            member.relay.get_mut().upgrade_rank.get_or_insert(rank);
        }
        Ok(members)
    }

    /// Every client, with its path.
    fn drawn_clients(&self, members: &[Member], seed: u64) -> Result<Vec<Spanned<Client>>, Fault> {
        let mut clients = Vec::new();
        let mut directory = None;
        for (group, names) in self.clients.iter().zip(self.names_of_clients()) {
            let at = |what: String| (Some(group.span().start), what);
            let client = group.as_ref();
            for name in names {
                let mut path = client.path.clone();
                if path.is_empty() {
                    let known = match &directory {
                        Some(known) => known,
                        None => &*directory.insert(self::directory(members).map_err(at)?),
                    };
                    path = choose(known, seed, &name).map_err(at)?;
                }
                let place = self.place_of(client.place.as_ref(), seed, &name).map_err(at)?;
                let client = Client { name, count: None, share: None, place, path, ..client.clone() };
                clients.push(Spanned::new(group.span(), client));
            }
        }
        Ok(clients)
    }

    /// The wires along the paths of `drawn` that no group names, where delays are drawn.
    fn drawn_wires(&self, drawn: &Tor, seed: u64) -> Result<Vec<WireOptions>, Fault> {
        let general = |what: String| (None, what);
        match (&self.delay_ms, &self.topology) {
            (Some(_), Some(_)) => {
                return Err(general("delays are drawn, or a topology's, and not both".into()));
            }
            (Some(delay_ms), None) => {
                delay_ms.fault(0.0).map_or(Ok(()), |what| Err(general(format!("delay_ms: {what}"))))?;
            }
            (None, Some(topology)) => topology.fault().map_or(Ok(()), |what| Err(general(what)))?,
            (None, None) => return Ok(Vec::new()),
        }
        let places = drawn.places();
        let named = drawn.wires.iter().flat_map(|group| &group.as_ref().between);
        let before = self.drawn_wires.iter().map(|wire| ends(&wire.from, &wire.to));
        let mut taken: BTreeSet<[&str; 2]> = named.map(|[from, to]| ends(from, to)).chain(before).collect();
        let mut wires = Vec::new();
        for pair in drawn.steps() {
            let [from, to] = pair;
            let like = &self.default_wire;
            let there = match (&self.delay_ms, &self.topology) {
                (Some(delay_ms), _) => {
                    let ms = delay_ms.draw(&mut chance(seed, "delay", &pair));
                    Some(DirectionOptions { delay_ns: (ms * 1e6).round() as u64, ..like.clone() })
                }
                (None, Some(topology)) => match (places.get(from), places.get(to)) {
                    (Some(one), Some(other)) => topology.wire([one, other], like),
                    _ => None,
                },
                (None, None) => None,
            };
            if let Some(there) = there
                && taken.insert(pair)
            {
                wires.push(WireOptions { from: from.to_owned(), to: to.to_owned(), there, back: None });
            }
        }
        Ok(wires)
    }

    /// Where a host is: its own place in a network with a topology.
    fn place_of(&self, place: Option<&Place>, seed: u64, host: &str) -> Result<Option<Place>, String> {
        let Some(place) = place else { return Ok(None) };
        let topology = self.topology.as_ref().ok_or("the network has no topology with places")?;
        topology.fault_of(place).map_or(Ok(()), Err)?;
        place.drawn(seed, host).map(|place| Some(Place::At(place)))
    }

    /// Where the hosts of a network are that is drawn, by their names.
    fn places(&self) -> BTreeMap<&str, &str> {
        let relays = self.relays.iter().map(Spanned::as_ref).map(|relay| (&*relay.name, &relay.place));
        let clients = self.clients.iter().map(Spanned::as_ref).map(|client| (&*client.name, &client.place));
        let placed = relays.chain(clients).filter_map(|(name, place)| match place {
            Some(Place::At(place)) => Some((name, &**place)),
            _ => None,
        });
        let server = self.topology.as_ref().and_then(|topology| topology.server.as_deref());
        placed.chain(self.server.as_deref().zip(server)).collect()
    }

    /// Both ends of every step on the ways of clients to their server, of flows, and of pings.
    fn steps(&self) -> Vec<[&str; 2]> {
        let mut steps = Vec::new();
        for client in self.clients.iter().map(Spanned::as_ref) {
            let phases = self.phases.iter().map(|phase| phase.as_ref().path_of(client));
            for path in phases.chain([&*client.path]) {
                let relays = path.iter().map(String::as_str);
                let way: Vec<&str> =
                    [&*client.name].into_iter().chain(relays).chain(self.server.as_deref()).collect();
                steps.extend(way.windows(2).map(|step| ends(step[0], step[1])));
            }
        }
        let flows = self.flows.iter().map(Spanned::as_ref);
        steps.extend(flows.map(|flow| ends(&flow.from, &flow.to)));
        let pings = self.pings.iter().flat_map(|pings| &pings.as_ref().between);
        steps.extend(pings.map(|[from, to]| ends(from, to)));
        steps
    }
}

/// The names of a group's members, numbered from 1; of a host that is no group, its own.
fn names(stem: &str, size: Option<usize>) -> Vec<String> {
    let Some(size) = size else { return vec![stem.to_owned()] };
    (1..=size).map(|number| format!("{stem}{number}")).collect()
}

/// Names with those of members in place of their groups'.
fn all_members(named: &[String], groups: &BTreeMap<&str, Vec<String>>) -> Vec<String> {
    named.iter().flat_map(|name| members_of(name, groups)).collect()
}

fn members_of(name: &str, groups: &BTreeMap<&str, Vec<String>>) -> Vec<String> {
    groups.get(name).cloned().unwrap_or_else(|| vec![name.to_owned()])
}

/// Wires between each member of one group and each of another; within a group, between each two.
fn with_members(wires: &Spanned<WireGroup>, groups: &BTreeMap<&str, Vec<String>>) -> Spanned<WireGroup> {
    let between = pairs_of_members(&wires.as_ref().between, groups);
    Spanned::new(wires.span(), WireGroup { between, ..wires.as_ref().clone() })
}

/// Pairs of members in place of pairs of groups; within a group, each two.
fn pairs_of_members(pairs: &[[String; 2]], groups: &BTreeMap<&str, Vec<String>>) -> Vec<[String; 2]> {
    let mut between = Vec::new();
    for [from, to] in pairs {
        let is_within = from == to && members_of(from, groups) != [from.as_str()];
        for (place, one) in members_of(from, groups).into_iter().enumerate() {
            let others = members_of(to, groups).into_iter().skip(if is_within { place + 1 } else { 0 });
            between.extend(others.map(|other| [one.clone(), other]));
        }
    }
    between
}

/// How many pairs of members there are at most, before any is made.
fn count_of_pairs(pairs: &[[String; 2]], groups: &BTreeMap<&str, Vec<String>>) -> usize {
    let size = |name: &String| groups.get(&**name).map_or(1, Vec::len);
    pairs.iter().fold(0, |sum: usize, [from, to]| {
        let within = if from == to { 2 } else { 1 };
        sum.saturating_add((size(from).saturating_mul(size(to)) / within).max(1))
    })
}

/// The ends of a wire, the same whichever comes first.
fn ends<'a>(one: &'a str, other: &'a str) -> [&'a str; 2] {
    if one < other { [one, other] } else { [other, one] }
}

/// What a relay's torrc says of its rate. Addresses of the laboratory's hosts are private ones.
fn rate_lines(kib_s: f64) -> [String; 3] {
    let bytes = (kib_s * 1024.0).round() as u64;
    [
        "CountPrivateBandwidth 1".to_owned(),
        format!("RelayBandwidthRate {bytes} bytes"),
        format!("RelayBandwidthBurst {bytes} bytes"),
    ]
}

/// The relays as a consensus lists them. Their rates are their bandwidths, and their addresses and keys are left out,
/// because paths are chosen by neither.
fn directory(members: &[Member]) -> Result<Directory, String> {
    let mut rates: Vec<f64> = members.iter().filter_map(|member| member.rate_kib_s).collect();
    if !rates.is_empty() && rates.len() < members.len() {
        return Err(
            "paths are chosen by relays' rates, and some have a `rate_kib_s` and others have none".into()
        );
    }
    rates.sort_by(f64::total_cmp);
    let median = rates.get(rates.len() / 2).copied();
    let candidate = |(number, member): (u64, &Member)| {
        let Member { relay, rate_kib_s } = member;
        let relay = relay.as_ref();
        let mut rsa = [0; 20];
        rsa[..8].copy_from_slice(&number.to_be_bytes());
        let target = Target { rsa: RsaId(rsa), ed25519: None, addrs: Vec::new() };
        Candidate {
            nickname: relay.name.clone(),
            hop: Hop { target, ntor_key: [0; 32] },
            guard: rate_kib_s.zip(median).is_some_and(|(rate, median)| rate >= median),
            exit: relay.exit,
            bandwidth: rate_kib_s.unwrap_or_default() as u32,
            ports: if relay.exit { vec![(1, u16::MAX)] } else { Vec::new() },
            ntor_v3: true,
            congestion_control: true,
        }
    };
    let relays: Vec<Candidate> = (0..).zip(members).map(candidate).collect();
    let sum = |guard: bool, exit: bool| {
        let of_kind = relays.iter().filter(|relay| (relay.guard, relay.exit) == (guard, exit));
        of_kind.map(|relay| f64::from(relay.bandwidth)).sum()
    };
    let bandwidths = Bandwidths {
        guards: sum(true, false),
        exits: sum(false, true),
        both: sum(true, true),
        neither: sum(false, false),
    };
    Ok(Directory { weights: bandwidths.weights(), relays, ..Directory::default() })
}

/// The path that a client of this name chooses.
fn choose(directory: &Directory, seed: u64, client: &str) -> Result<Vec<String>, String> {
    // Its chance is a child of what its name and the run's seed give.
    let number = chance(seed, "path", &[client]).next_u64();
    let mut rng = ChoiceSeed::from_number(number).rng();
    let path = directory.choose(PathWanted::default(), &mut Guards::default(), Instant::ZERO, &mut rng);
    path.map(|path| path.names).map_err(|why| format!("no path can be chosen: {why}"))
}

#[cfg(test)]
mod tests;
