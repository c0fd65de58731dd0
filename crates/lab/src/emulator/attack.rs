//! Somebody on a wire who reads the packets of one direction and forges others, or keeps some from arriving.
//!
//! An attacker acts when a packet passes that it is interested in, so it needs no timers: what it does depends on the
//! packets and on its seed alone. It sits at the beginning of the wire; what it injects meets the queue, the loss and
//! the delay of the wire like any other packet. It cannot see into encrypted payloads, and it knows no keys.
//!
//! It never holds more than [`REMEMBERED_MAX`] packets, and for one packet it sends at most three.

use std::collections::{BTreeMap, VecDeque};

use heddle_net::packet;
use heddle_netem::units::read;
use heddle_netem::{HostId, Instant as Time, Rng, Seed};
use serde::{Deserialize, Serialize};

use super::forge::{self, View};

/// The most packets that an attacker keeps to send them later.
pub const REMEMBERED_MAX: usize = 64;

/// An attacker on one direction of a wire.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttackOptions {
    /// The host whose packets it reads.
    pub from: String,
    /// The host that they are for.
    pub to: String,
    /// Which packets interest it. Default: all that carry TCP or UDP.
    #[serde(default)]
    pub flow: FlowFilter,
    /// For which of these it acts. Default: every one.
    #[serde(default)]
    pub each: Trigger,
    /// The most times that it acts. Default: no limit.
    #[serde(default)]
    pub times: Option<u64>,
    /// When it begins, from the beginning of the emulation. Default: at once.
    #[serde(default, rename = "after", deserialize_with = "read::duration_ns")]
    pub after_ns: u64,
    /// What it does.
    pub kind: Attack,
}

/// Which packets interest an attacker: those for which all that is said here is so.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowFilter {
    /// The protocol above IP. Default: TCP and UDP.
    #[serde(default)]
    pub protocol: Option<Protocol>,
    /// The sender's port. Default: any.
    #[serde(default)]
    pub from_port: Option<u16>,
    /// The receiver's port. Default: any.
    #[serde(default)]
    pub to_port: Option<u16>,
    /// The least number of payload bytes above TCP or UDP; with 1, bare acknowledgements do not count. Default: 0.
    #[serde(default)]
    pub payload_bytes_min: usize,
}

/// What is above IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// For which of the packets that interest it an attacker acts. In TOML: `{ packets = 1000 }` and so on.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Trigger {
    /// For every one.
    #[default]
    Packet,
    /// For one after so many have passed, and so on: 1000 lets 1000 pass and acts for the next.
    Packets(u64),
    /// For one, and then for none until this long has passed.
    Interval(#[serde(deserialize_with = "read::duration_ns")] u64),
    /// For each with this probability, by the seed.
    Probability(#[serde(deserialize_with = "read::probability")] f64),
}

/// What an attacker does with a packet of its interest. In TOML: `{ reset = {} }` and so on.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Attack {
    /// Sends a TCP RST behind the packet, with the sequence number that the receiver expects then (RFC 5961, section
    /// 3.2, has it obeyed only if it is exactly that one). With `both_ends` the sender gets one too.
    Reset {
        #[serde(default)]
        both_ends: bool,
    },
    /// Sets the RST flag of the packet itself, as experiment 13 of Reardon's thesis did.
    SetReset {},
    /// Answers the sender with ICMP "destination unreachable" in the receiver's name, and lets the packet pass. `code`
    /// is that of ICMPv4 (RFC 792), by default 3, "port unreachable"; for IPv6 it is translated. With `code` 4, "too
    /// big", `mtu` is what the packet would have had to fit into, by default 576.
    Unreachable {
        #[serde(default = "port_unreachable")]
        code: u8,
        #[serde(default = "small_mtu")]
        mtu: u16,
    },
    /// Sends once more a packet that passed before, chosen by the seed among the last [`REMEMBERED_MAX`].
    Replay {},
    /// Sends a packet of the same flow behind the packet: its first `keep` payload bytes are the packet's own, and the
    /// others, as many as the packet has, are random. Its checksums are good. Default: nothing is kept.
    Garbage {
        #[serde(default)]
        keep: usize,
    },
    /// Flips one random bit of the payload and makes the checksums good again, so that only cryptography notices.
    Tamper {},
    /// Cuts the payload to `keep` bytes, and makes lengths and checksums good again. Default: to a random length.
    Truncate {
        #[serde(default)]
        keep: Option<usize>,
    },
    /// Holds the packet until so many others that interest it have passed, at most [`REMEMBERED_MAX`].
    Reorder { behind: usize },
    /// Keeps the packet from arriving.
    Drop {},
}

impl Attack {
    /// Its name in TOML and in results.
    pub fn name(&self) -> &'static str {
        match self {
            Attack::Reset { .. } => "reset",
            Attack::SetReset {} => "set_reset",
            Attack::Unreachable { .. } => "unreachable",
            Attack::Replay {} => "replay",
            Attack::Garbage { .. } => "garbage",
            Attack::Tamper {} => "tamper",
            Attack::Truncate { .. } => "truncate",
            Attack::Reorder { .. } => "reorder",
            Attack::Drop {} => "drop",
        }
    }
}

impl AttackOptions {
    /// What is wrong with it, if anything is. Whether a wire joins the hosts is the network's to check.
    pub fn fault(&self) -> Option<String> {
        let place = format!("attack from \"{}\" to \"{}\"", self.from, self.to);
        let said = match (&self.kind, &self.each) {
            _ if self.from == self.to => "it is on a wire between two different hosts",
            (_, Trigger::Interval(0)) => "each: an interval is longer than 0",
            (_, Trigger::Probability(probability)) if !(0.0..=1.0).contains(probability) => {
                "each: a probability is from 0 to 1"
            }
            (Attack::Reset { .. } | Attack::SetReset {}, _) if self.flow.protocol == Some(Protocol::Udp) => {
                "only TCP can be reset"
            }
            (Attack::Reorder { behind }, _) if !(1..=REMEMBERED_MAX).contains(behind) => {
                "reorder: behind is from 1 to 64"
            }
            _ => return None,
        };
        Some(format!("{place}: {said}"))
    }
}

/// What an attacker did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AttackSummary {
    /// The host whose packets it read.
    pub from: String,
    /// The host that they were for.
    pub to: String,
    /// What it did.
    pub kind: &'static str,
    /// Packets that interested it.
    pub seen: u64,
    /// How often it acted.
    pub acted: u64,
}

/// A packet on its way from one host to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Passing {
    pub from: HostId,
    pub to: HostId,
    pub packet: Vec<u8>,
}

/// All attackers of a network.
#[derive(Debug, Default)]
pub(super) struct Attackers {
    /// Those of one direction act in the order of the options, each on what the one before let pass or sent.
    directions: BTreeMap<(HostId, HostId), Vec<Attacker>>,
}

impl Attackers {
    /// `find` gives the host of a name.
    pub(super) fn new(
        options: &[AttackOptions],
        find: impl Fn(&str) -> Option<HostId>,
        seed: &Seed,
    ) -> Attackers {
        let mut attackers = Attackers::default();
        for (place, options) in options.iter().enumerate() {
            let (Some(from), Some(to)) = (find(&options.from), find(&options.to)) else { continue };
            let seed = seed.child(&["attack", &options.from, &options.to, &place.to_string()]);
            let attacker = Attacker::new(options.clone(), seed.rng());
            attackers.directions.entry((from, to)).or_default().push(attacker);
        }
        attackers
    }

    /// Whether there are any on this direction.
    pub(super) fn are_on(&self, from: HostId, to: HostId) -> bool {
        self.directions.contains_key(&(from, to))
    }

    /// What is on the wire at `now` instead of `packet`, in this order.
    pub(super) fn pass(&mut self, now: Time, passing: Passing) -> Vec<Passing> {
        let direction = (passing.from, passing.to);
        let mut on_wire = vec![passing];
        for attacker in self.directions.get_mut(&direction).into_iter().flatten() {
            let before = std::mem::take(&mut on_wire);
            for passing in before {
                if (passing.from, passing.to) == direction {
                    attacker.pass(now, passing, &mut on_wire);
                } else {
                    on_wire.push(passing);
                }
            }
        }
        on_wire
    }

    /// What was held to be overtaken, the longest held of each direction first. Nobody holds anything then.
    pub(super) fn release(&mut self) -> Vec<Passing> {
        // What a later attacker holds has passed the earlier ones before what they hold.
        self.directions
            .values_mut()
            .flat_map(|all| all.iter_mut().rev())
            .flat_map(Attacker::release)
            .collect()
    }

    pub(super) fn summaries(&self) -> Vec<AttackSummary> {
        self.directions.values().flatten().map(Attacker::summary).collect()
    }
}

#[derive(Debug)]
struct Attacker {
    options: AttackOptions,
    rng: Rng,
    seen: u64,
    acted: u64,
    /// Packets of its interest since it last acted.
    since: u64,
    /// When it last acted.
    last: Option<Time>,
    /// What it keeps: for a replay the last packets, for reordering what is held and how many must still pass.
    kept: VecDeque<(Passing, usize)>,
}

impl Attacker {
    fn new(options: AttackOptions, rng: Rng) -> Attacker {
        Attacker { options, rng, seen: 0, acted: 0, since: 0, last: None, kept: VecDeque::new() }
    }

    fn pass(&mut self, now: Time, passing: Passing, on_wire: &mut Vec<Passing>) {
        let view = forge::view(&passing.packet);
        let Some(view) = view.filter(|view| now.as_nanos() >= self.options.after_ns && self.wants(view))
        else {
            on_wire.push(passing);
            return;
        };
        self.seen += 1;
        let acts = self.triggers(now) && self.options.times.is_none_or(|times| self.acted < times);
        if acts {
            (self.since, self.last) = (0, Some(now));
            self.acted += 1;
        } else {
            self.since += 1;
        }
        match self.options.kind {
            Attack::Replay {} => self.replay(passing, acts, on_wire),
            Attack::Reorder { behind } => self.reorder(passing, acts.then_some(behind), on_wire),
            _ if acts => self.act(passing, &view, on_wire),
            _ => on_wire.push(passing),
        }
    }

    fn wants(&self, view: &View) -> bool {
        let FlowFilter { protocol, from_port, to_port, payload_bytes_min } = &self.options.flow;
        let resets = matches!(self.options.kind, Attack::Reset { .. } | Attack::SetReset {});
        let is_tcp = view.protocol == packet::TCP;
        let protocol_fits = protocol.is_none_or(|protocol| (protocol == Protocol::Tcp) == is_tcp);
        protocol_fits
            && (is_tcp || !resets)
            && from_port.is_none_or(|port| port == view.from_port)
            && to_port.is_none_or(|port| port == view.to_port)
            && view.payload_bytes >= *payload_bytes_min
    }

    /// Whether it acts for a packet of its interest at `now`.
    fn triggers(&mut self, now: Time) -> bool {
        match self.options.each {
            Trigger::Packet => true,
            Trigger::Packets(packets) => self.since >= packets,
            Trigger::Interval(ns) => self.last.is_none_or(|last| now.ns_since(last) >= ns),
            Trigger::Probability(probability) => self.rng.chance(probability),
        }
    }

    fn act(&mut self, passing: Passing, view: &View, on_wire: &mut Vec<Passing>) {
        let Passing { from, to, mut packet } = passing;
        let rng = &mut self.rng;
        let (mut behind, mut back) = (None, None);
        match self.options.kind {
            Attack::Reset { both_ends } => {
                behind = Some(forge::reset(&packet, view));
                back = both_ends.then(|| forge::reset_back(&packet, view));
            }
            Attack::SetReset {} => forge::set_reset(&mut packet, view),
            Attack::Unreachable { code, mtu } => back = Some(forge::unreachable(&packet, code, mtu)),
            Attack::Garbage { keep } => behind = Some(forge::garbage(&packet, view, keep, rng)),
            Attack::Tamper {} => forge::tamper(&mut packet, view, rng),
            Attack::Truncate { keep } => {
                let keep = keep.unwrap_or_else(|| rng.below(view.payload_bytes as u64) as usize);
                forge::truncate(&mut packet, view, keep);
            }
            Attack::Drop {} => return,
            // These keep packets; see `pass`.
            Attack::Replay {} | Attack::Reorder { .. } => {}
        }
        on_wire.push(Passing { from, to, packet });
        on_wire.extend(behind.map(|packet| Passing { from, to, packet }));
        on_wire.extend(back.map(|packet| Passing { from: to, to: from, packet }));
    }

    fn replay(&mut self, passing: Passing, acts: bool, on_wire: &mut Vec<Passing>) {
        let chosen = self.rng.below(self.kept.len() as u64) as usize;
        let old = self.kept.get(chosen).map(|(old, _)| old.clone());
        if self.kept.len() == REMEMBERED_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back((passing.clone(), 0));
        on_wire.push(passing);
        on_wire.extend(old.filter(|_| acts));
    }

    fn reorder(&mut self, passing: Passing, hold: Option<usize>, on_wire: &mut Vec<Passing>) {
        for (_, left) in &mut self.kept {
            *left = left.saturating_sub(1);
        }
        match hold.filter(|_| self.kept.len() < REMEMBERED_MAX) {
            Some(behind) => self.kept.push_back((passing, behind)),
            None => on_wire.push(passing),
        }
        // All are held for the same number of packets, so the first is the first to go on.
        let due = self.kept.iter().take_while(|(_, left)| *left == 0).count();
        on_wire.extend(self.kept.drain(..due).map(|(passing, _)| passing));
    }

    fn release(&mut self) -> impl Iterator<Item = Passing> {
        let held = match self.options.kind {
            Attack::Reorder { .. } => std::mem::take(&mut self.kept),
            _ => VecDeque::new(),
        };
        held.into_iter().map(|(passing, _)| passing)
    }

    fn summary(&self) -> AttackSummary {
        let AttackOptions { from, to, kind, .. } = &self.options;
        AttackSummary {
            from: from.clone(),
            to: to.clone(),
            kind: kind.name(),
            seen: self.seen,
            acted: self.acted,
        }
    }
}

fn port_unreachable() -> u8 {
    3
}

fn small_mtu() -> u16 {
    576
}

#[cfg(test)]
mod tests;
