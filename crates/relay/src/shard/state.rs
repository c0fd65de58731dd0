//! Circuits and flows that end when their state takes too much of a shard's memory ([`crate::memory`]).

use super::Ports;
use crate::admission::Party;
use crate::core::Core;
use crate::keys::CircuitKey;
use crate::links::Link;
use crate::memory::{Account, account, shares};
use heddle_proto::cell::CircId;
use heddle_proto::endpoint::{Backlog, ConnId};
use heddle_seam::time::Instant;
use std::collections::BTreeMap;

/// What ends as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Circuit(CircuitKey),
    /// A flow without a circuit, by its port: its first cell has not come.
    Flow(usize, ConnId, CircId),
}

#[derive(Clone, Copy, Debug)]
struct Held {
    party: Party,
    /// Since when it is idle.
    since: Instant,
    bytes: usize,
}

impl Ports {
    /// Those who have more state than their share lose what has been idle longest, until all have `max` at most.
    pub fn relieve_state(&mut self, core: &mut Core, now: Instant, max: usize) {
        let things = self.things(core);
        let mut held: BTreeMap<Account, usize> = BTreeMap::new();
        for thing in things.values() {
            *held.entry(account(thing.party)).or_default() += thing.bytes;
        }
        let sum: usize = held.values().sum();
        let other = self.all_state_bytes(core).saturating_sub(sum);
        let keeps = shares(&held, max.saturating_sub(other));
        let mut in_order: Vec<_> = things.iter().map(|(thing, held)| (held.since, *thing)).collect();
        in_order.sort_unstable();
        for (_, thing) in in_order {
            let of = account(things[&thing].party);
            let Some(has) = held.get_mut(&of).filter(|has| **has > keeps[&of]) else { continue };
            *has = has.saturating_sub(things[&thing].bytes.max(1));
            match thing {
                Thing::Circuit(key) => self.end_with_flows(core, now, key),
                Thing::Flow(port, conn, circ_id) => self.end_flow(core, now, (port, conn, circ_id)),
            }
        }
    }

    /// All circuits, each with its flows, and flows of none.
    fn things(&self, core: &Core) -> BTreeMap<Thing, Held> {
        let circuits = core.circuits().map(|(key, party, since)| {
            (Thing::Circuit(key), Held { party, since, bytes: Core::CIRCUIT_BYTES })
        });
        let mut things: BTreeMap<_, _> = circuits.collect();
        for (port, Backlog { conn, circ_id, state_bytes, since, .. }) in self.backlogs() {
            let Some(link) = self.link(port, conn) else { continue };
            let thing = match core.circuit_of(link, circ_id) {
                Some(key) => Thing::Circuit(key),
                None => Thing::Flow(port, conn, circ_id),
            };
            let Some(party) = core.link(link).map(Link::party) else { continue };
            let held = things.entry(thing).or_insert(Held { party, since, bytes: 0 });
            held.since = held.since.max(since);
            held.bytes += state_bytes;
        }
        things
    }
}
