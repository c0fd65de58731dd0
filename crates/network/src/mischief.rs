//! A malicious relay: a whole one, with its keys and its place in the consensus, whose [channels] and [flows] do to
//! cells what they should not once the core has made them.
//!
//! Relays and clients at the other ends see what they would see of a relay whose program is like that. Its own core
//! keeps the rules, so what it holds can be looked at as with others.

mod channels;
mod flows;

use channels::RogueTransport;
use flows::RogueEndpoint;
use heddle_proto::cell::{BODY_LEN, Body};
use heddle_proto::channel::StreamTransport;
use heddle_proto::endpoint::Endpoint;
use heddle_seam::rng::{Rng, Seed};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// What is done to a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Deed {
    Drop,
    /// One bit of its body.
    Change,
    Double,
    /// It goes behind the next cell of its channel or flow.
    HoldBack,
    /// It goes under the id of another circuit, or of none.
    Stray,
    /// Random bytes go before it.
    Forge,
    /// A DESTROY goes behind it, for any circuit of the channel.
    Destroy,
    /// The channel ends.
    End,
}

impl Deed {
    const ALL: [Deed; MISCHIEF.len()] = [
        Deed::Drop,
        Deed::Change,
        Deed::Double,
        Deed::HoldBack,
        Deed::Stray,
        Deed::Forge,
        Deed::Destroy,
        Deed::End,
    ];

    const OF_FLOWS: [Deed; 5] = [Deed::Drop, Deed::Change, Deed::Double, Deed::HoldBack, Deed::Forge];

    fn name(self) -> &'static str {
        MISCHIEF[self as usize]
    }
}

/// What each is called, in their order.
pub const MISCHIEF: [&str; 8] = [
    "cells dropped by a relay",
    "cells changed by a relay",
    "cells doubled by a relay",
    "cells put out of order by a relay",
    "cells sent on other circuits by a relay",
    "cells forged by a relay",
    "circuits destroyed by a relay",
    "channels ended by a relay",
];

#[derive(Debug)]
struct State {
    rng: Rng,
    is_on: bool,
    /// Of so many cells something is done to one.
    one_in: u64,
    done: BTreeMap<Deed, u64>,
}

impl State {
    /// Whether something is done to the next cell.
    fn strikes(&mut self) -> bool {
        self.is_on && self.rng.below(self.one_in) == 0
    }
}

/// What all channels and endpoints of a malicious relay do together.
#[derive(Debug)]
pub struct Mischief(Mutex<State>);

impl Mischief {
    /// One that has not begun yet, and does something to one of so many cells then.
    pub fn new(seed: &Seed, one_in: u64) -> Arc<Self> {
        let rng = seed.child("mischief", 0).rng();
        Arc::new(Mischief(Mutex::new(State { rng, is_on: false, one_in, done: BTreeMap::new() })))
    }

    /// Begins, or rests.
    pub(crate) fn set_on(&self, is_on: bool) {
        self.state().is_on = is_on;
    }

    /// What was done so far, by name.
    pub fn done(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let done = self.state().done.clone();
        done.into_iter().map(|(deed, times)| (deed.name(), times))
    }

    /// The channels of a relay that does these things.
    pub(crate) fn over_channels(
        self: &Arc<Self>,
        channels: Box<dyn StreamTransport>,
    ) -> Box<dyn StreamTransport> {
        Box::new(RogueTransport { channels, mischief: self.clone() })
    }

    /// The same with an endpoint.
    pub(crate) fn over_endpoint(self: &Arc<Self>, endpoint: Box<dyn Endpoint>) -> Box<dyn Endpoint> {
        Box::new(RogueEndpoint::new(endpoint, self.clone()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nobody fails who holds it")
    }

    /// What is done to the next cell of a channel, if anything is.
    fn deed(&self) -> Option<Deed> {
        let state = &mut *self.state();
        if !state.strikes() {
            return None;
        }
        let deed = Deed::ALL[state.rng.below(Deed::ALL.len() as u64) as usize];
        *state.done.entry(deed).or_default() += 1;
        Some(deed)
    }

    /// What is done to the next cell of a flow: what concerns that flow alone, because an endpoint trusts its relay to
    /// keep flows apart.
    fn deed_of_flow(&self) -> Option<Deed> {
        let state = &mut *self.state();
        if !state.strikes() {
            return None;
        }
        let deed = Deed::OF_FLOWS[state.rng.below(Deed::OF_FLOWS.len() as u64) as usize];
        *state.done.entry(deed).or_default() += 1;
        Some(deed)
    }

    /// A body in which one bit is another.
    fn changed(&self, body: &Body) -> Body {
        let mut changed = *body;
        let bit = self.random(|rng| rng.below(8 * BODY_LEN as u64)) as usize;
        changed[bit / 8] ^= 1 << (bit % 8);
        changed
    }

    fn random<R>(&self, draw: impl FnOnce(&mut Rng) -> R) -> R {
        draw(&mut self.state().rng)
    }
}
