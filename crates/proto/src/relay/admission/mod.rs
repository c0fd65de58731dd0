//! Who may have how much of what a shard has: one client must not decide what others get.
//!
//! [`Admission`] holds the accounts. The relay asks before it begins something for a neighbour, and says when that is over.
//!
//! - [`party`]: a neighbour is a relay of the consensus by its identity, or an address: IPv4 /32, IPv6 /64 and /48.
//! - [`share`]: how much of one thing is held, and how much one holder may have of what is free.
//! - [`crowd`]: things that stay, of which the greediest gives way when nothing is free.

mod claims;
mod crowd;
mod party;
mod share;

pub(super) use party::{Class, Key, Party};
pub(super) use share::{Refusal, Share};

use super::circuit::CircuitKey;
use super::config::Limits;
use crate::time::Instant;
use claims::CircuitClaim;
use crowd::{Admitted, Crowd};
use std::collections::BTreeMap;

/// The accounts of a shard; see [the module](self).
#[derive(Debug)]
pub(super) struct Admission {
    /// Circuits, those that cross from other shards included.
    circuits: Crowd<CircuitClaim>,
    /// Onionskins that wait for a worker or are with one.
    onionskins: Share,
    refused: BTreeMap<(&'static str, &'static str), u64>,
}

impl Admission {
    /// `pool_slots_max` bounds circuits too: two slots for each is the least with which it moves.
    pub fn new(limits: &Limits, pool_slots_max: u32) -> Self {
        Admission {
            circuits: Crowd::new(limits.circuits.min((pool_slots_max / 2) as usize), None),
            onionskins: Share::new(limits.onionskins),
            refused: BTreeMap::new(),
        }
    }

    /// Whether a neighbour may begin a circuit with an onionskin. Another circuit may have to end for it, which is
    /// returned. The onionskin counts from now on, until [`Admission::onionskin_ends`].
    pub fn admit_create(&mut self, now: Instant, party: Party) -> Result<Option<CircuitKey>, Refusal> {
        let onionskin = self.onionskins.admits(party.class(), party.holders(), 1);
        onionskin.inspect_err(|why| self.note("onionskin", why.label()))?;
        let instead = self.admit_circuit(now, party)?;
        self.onionskins.take(party.class(), party.holders(), 1);
        Ok(instead)
    }

    /// Whether a circuit of another shard may go on here, or one of our own begin.
    pub fn admit_circuit(&mut self, now: Instant, party: Party) -> Result<Option<CircuitKey>, Refusal> {
        let admitted = self.circuits.admit(now, CircuitClaim(party), 1);
        self.note_crowd("circuit", admitted)
    }

    /// A circuit is there, until [`Admission::circuit_ends`].
    pub fn circuit_begins(&mut self, now: Instant, circuit: CircuitKey, party: Party) {
        self.circuits.insert(now, circuit, CircuitClaim(party), 1);
    }

    /// The neighbour of a circuit turned out to be another party: the consensus changed.
    pub fn circuit_moves(&mut self, circuit: CircuitKey, to: Party) {
        self.circuits.reclaim(circuit, CircuitClaim(to));
    }

    pub fn circuit_ends(&mut self, circuit: CircuitKey) {
        self.circuits.remove(circuit);
    }

    /// An onionskin was answered, or will not be.
    pub fn onionskin_ends(&mut self, party: Party) {
        self.onionskins.give(party.class(), party.holders(), 1);
    }

    /// What is held of each thing: circuits and onionskins.
    pub fn held(&self) -> [u64; 2] {
        [self.circuits.used(), self.onionskins.used()]
    }

    /// How often what was refused or ended, and why.
    pub fn refused(&self) -> &BTreeMap<(&'static str, &'static str), u64> {
        &self.refused
    }

    fn note(&mut self, what: &'static str, why: &'static str) {
        *self.refused.entry((what, why)).or_default() += 1;
    }

    fn note_crowd<Id>(&mut self, what: &'static str, admitted: Admitted<Id>) -> Result<Option<Id>, Refusal> {
        match admitted {
            Admitted::Yes => Ok(None),
            Admitted::InsteadOf(other) => {
                self.note(what, "gave_way");
                Ok(Some(other))
            }
            Admitted::No(why) => {
                self.note(what, why.label());
                Err(why)
            }
        }
    }
}
