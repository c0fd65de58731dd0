//! Circuits, flows and channels that end when their state takes too much of a shard's memory ([`crate::memory`]).

use super::Relay;
use crate::admission::Party;
use crate::keys::{CircuitKey, LinkKey};
use crate::links::Link;
use crate::memory::{Account, account, shares};
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
struct Held {
    party: Party,
    /// Since when it is idle.
    since: Instant,
    bytes: usize,
}

impl Relay {
    /// Those who have more state than their share lose what has been idle longest, until all have `max` at most.
    pub(super) fn relieve_state(&mut self, now: Instant, max: usize) {
        let things = self.things();
        let mut held: BTreeMap<Account, usize> = BTreeMap::new();
        for thing in things.values() {
            *held.entry(account(thing.party)).or_default() += thing.bytes;
        }
        let sum: usize = held.values().sum();
        let other = self.all_state_bytes().saturating_sub(sum);
        let keeps = shares(&held, max.saturating_sub(other));
        let mut in_order: Vec<_> = things.iter().map(|(thing, held)| (held.since, *thing)).collect();
        in_order.sort_unstable();
        for (_, thing) in in_order {
            let of = account(things[&thing].party);
            let Some(has) = held.get_mut(&of).filter(|has| **has > keeps[&of]) else { continue };
            *has = has.saturating_sub(things[&thing].bytes.max(1));
            match thing {
                Thing::Circuit(key) => self.end_with_flows(now, key),
                Thing::Flow(port, conn, circ_id) => {
                    self.end_flow(now, (port, conn, circ_id));
                }
                Thing::Channel(link) => self.end_channel(now, link, ChannelError::Crowded),
            }
        }
        self.core.give_up_left_questions();
    }

    /// All circuits, each with its flows, flows of none, and open channels.
    fn things(&self) -> BTreeMap<Thing, Held> {
        let core = &self.core;
        let circuits = core
            .circuits()
            .map(|(key, party, since, bytes)| (Thing::Circuit(key), Held { party, since, bytes }));
        let mut things: BTreeMap<_, _> = circuits.collect();
        for (port, Backlog { conn, circ_id, state_bytes, since, .. }) in self.ports.backlogs() {
            let Some(link) = self.ports.link(port, conn) else { continue };
            let thing = match core.circuit_of(link, circ_id) {
                Some(key) => Thing::Circuit(key),
                None => Thing::Flow(port, conn, circ_id),
            };
            let Some(party) = core.link(link).map(Link::party) else { continue };
            let held = things.entry(thing).or_insert(Held { party, since, bytes: 0 });
            held.since = held.since.max(since);
            held.bytes += state_bytes;
        }
        for (link, carrier) in self.carriers.iter().filter(|(_, carrier)| carrier.state_bytes() > 0) {
            let Some(party) = core.link(link).map(Link::party) else { continue };
            let (since, bytes) = (core.channel_used_at(link), carrier.state_bytes());
            things.insert(Thing::Channel(link), Held { party, since, bytes });
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
