//! Circuits, flows and channels that end when their state takes too much of a shard's memory ([`crate::memory`]).

use super::Relay;
use crate::admission::Party;
use crate::keys::{CircuitKey, LinkKey};
use crate::links::Link;
use crate::memory::{Account, account, fair_level, shares};
use core::cmp::Reverse;
use heddle_proto::cell::CircId;
use heddle_proto::channel::ChannelError;
use heddle_proto::endpoint::{Backlog, ConnId};
use heddle_seam::time::Instant;
use std::collections::BTreeMap;

/// What ends as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Circuit(CircuitKey),
    /// A flow without a circuit, by its port: its first cell has not come.
    Flow(usize, ConnId, CircId),
    /// A channel, by its link. Its circuits are things of their own.
    Channel(LinkKey),
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    party: Party,
    /// Since when it is idle.
    since: Instant,
    bytes: usize,
    /// What of them the resolver takes for questions.
    asked_bytes: usize,
}

type Things = BTreeMap<Thing, Taken>;

impl Relay {
    /// Those who have more state than their share lose what has been idle longest, until all have `max` at most; but
    /// before that whoever holds much by asking.
    pub(super) fn relieve_state(&mut self, now: Instant, max: usize) {
        let mut things = self.things();
        let mut taken: BTreeMap<Account, usize> = BTreeMap::new();
        for thing in things.values() {
            *taken.entry(account(thing.party)).or_default() += thing.bytes;
        }
        let sum: usize = taken.values().sum();
        let other = self.all_state_bytes().saturating_sub(sum);
        let keeps = shares(&taken, max.saturating_sub(other));
        let mut in_order: Vec<_> = things.iter().map(|(thing, taken)| (taken.since, *thing)).collect();
        in_order.sort_unstable();
        let asking = asking(&things, &keeps);
        for thing in asking.into_iter().chain(in_order.into_iter().map(|(_, thing)| thing)) {
            let Some(Taken { party, bytes, .. }) = things.get(&thing).copied() else { continue };
            let of = account(party);
            let Some(has) = taken.get_mut(&of).filter(|has| **has > keeps[&of]) else { continue };
            *has = has.saturating_sub(bytes.max(1));
            things.remove(&thing);
            match thing {
                Thing::Circuit(key) => self.end_with_flows(now, key),
                Thing::Flow(port, conn, circ_id) => self.end_flow(now, (port, conn, circ_id)),
                Thing::Channel(link) => self.end_channel(now, link, ChannelError::Crowded),
            }
        }
        self.core.give_up_left_questions();
    }

    /// All circuits, each with its flows, flows of none, and open channels.
    fn things(&self) -> Things {
        let core = &self.core;
        let circuits = core.circuits().map(|(key, party, since, (own_bytes, asked_bytes))| {
            let bytes = own_bytes + asked_bytes;
            (Thing::Circuit(key), Taken { party, since, bytes, asked_bytes })
        });
        let mut things: Things = circuits.collect();
        for (port, Backlog { conn, circ_id, state_bytes, since, .. }) in self.ports.backlogs() {
            let Some(link) = self.ports.link(port, conn) else { continue };
            let thing = match core.circuit_of(link, circ_id) {
                Some(key) => Thing::Circuit(key),
                None => Thing::Flow(port, conn, circ_id),
            };
            let Some(party) = core.link(link).map(Link::party) else { continue };
            let taken = things.entry(thing).or_insert(Taken { party, since, bytes: 0, asked_bytes: 0 });
            taken.since = taken.since.max(since);
            taken.bytes += state_bytes;
        }
        for (link, carrier) in self.carriers.iter().filter(|(_, carrier)| carrier.state_bytes() > 0) {
            let Some(party) = core.link(link).map(Link::party) else { continue };
            let (since, bytes) = (core.channel_used_at(link), carrier.state_bytes());
            things.insert(Thing::Channel(link), Taken { party, since, bytes, asked_bytes: 0 });
        }
        things
    }

    pub(super) fn end_flow(&mut self, now: Instant, (port, conn, circ_id): (usize, ConnId, CircId)) {
        let known = self.ports.link(port, conn).and_then(|link| self.core.circuit_of(link, circ_id));
        match known {
            Some(key) => self.end_with_flows(now, key),
            None => self.ports.reset(now, port, conn, circ_id),
        }
    }

    /// All memory of the circuit is free at once: nothing waits for its last word to be sent.
    pub(super) fn end_with_flows(&mut self, now: Instant, key: CircuitKey) {
        let flows = self.core.open_flows(key);
        self.core.end_with_streams(key);
        for (link, port, conn, circ_id) in flows {
            self.ports.reset(now, port, conn, circ_id);
            self.core.forget_farewell(link, circ_id);
        }
    }

    /// Bytes that connections, flows, circuits and channels take themselves.
    pub(super) fn all_state_bytes(&self) -> usize {
        self.ports.state_bytes() + self.core.circuits_bytes() + self.core.channels_bytes()
    }
}

/// Circuits that hold more than an equal part of what somebody may keep, and would not had they not asked the resolver:
/// those that hold most first. A question takes as much as some forty circuits and is always young, so that whoever
/// asks and asks would otherwise outlive all idle circuits of the same neighbour. Where circuits are too many by
/// themselves questions are not the reason, and none is named.
fn asking(things: &Things, keeps: &BTreeMap<Account, usize>) -> Vec<Thing> {
    let mut shared: BTreeMap<Account, Vec<usize>> = BTreeMap::new();
    let mut rooms = keeps.clone();
    for (thing, taken) in things {
        let of = account(taken.party);
        match (thing, rooms.get_mut(&of)) {
            (Thing::Channel(_), Some(room)) => *room = room.saturating_sub(taken.bytes),
            _ => shared.entry(of).or_default().push(taken.bytes),
        }
    }
    let level =
        |(of, each): (Account, Vec<usize>)| (of, fair_level(each, rooms.get(&of).copied().unwrap_or(0)));
    let levels: BTreeMap<Account, usize> = shared.into_iter().map(level).collect();
    let holds_by_asking = |taken: &Taken| {
        let level = levels.get(&account(taken.party)).copied().unwrap_or(0);
        taken.bytes > level && taken.bytes - taken.asked_bytes <= level
    };
    let asking = things.iter().filter(|(_, taken)| holds_by_asking(taken));
    let mut asking: Vec<_> =
        asking.map(|(thing, taken)| (Reverse(taken.bytes), taken.since, *thing)).collect();
    asking.sort_unstable();
    asking.into_iter().map(|(.., thing)| thing).collect()
}
