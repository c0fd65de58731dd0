//! Which circuits there are, and for whom.
//!
//! 1. One is built ahead, as soon as the network is known.
//! 2. The first request that takes it gives it its isolation; only requests with the same come after. One that waits
//!    for a circuit to be built takes another that is built earlier, and leaves the first to others.
//! 3. After [`SocksOptions::dirty_max`](super::SocksOptions::dirty_max), or when its exit has failed a stream, it takes
//!    no new ones, and ends with its last.
//! 4. One that cannot be built is tried anew over another path, later each time.

use super::{SocksEvent, SocksProxy};
use crate::circuit::{Handshake, Hop};
use crate::path::{NoPath, Path, PathWanted, allows};
use crate::proxy::CircuitNumber;
use crate::socks::Isolation;
use heddle_proto::cell::measure::Measured;
use heddle_proto::cell::relay::StreamId;
use heddle_proto::ids::RsaId;
use heddle_seam::node::SocketId;
use heddle_seam::time::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};

/// How long a circuit may take to be built, as with stock Tor at first.
const BUILD_MAX: Duration = Duration::from_secs(60);
/// For how long a circuit that nobody has taken is kept (stock Tor's `PREDICTED_CIRCS_RELEVANCE_TIME`).
const UNUSED_MAX: Duration = Duration::from_secs(3600);
/// How long after a circuit that was not built the next is begun; twice as long after each further one.
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// And at most so long.
const RETRY_MOST: Duration = Duration::from_secs(10);
/// Streams of one circuit. As many ENDs at once, beside what waits already, are less than a circuit's cells may be.
const STREAMS_MAX: usize = 256;

/// The circuits of a proxy.
#[derive(Debug, Default)]
pub(super) struct Circuits {
    open: BTreeMap<CircuitNumber, Entry>,
    /// Circuits in a row that were not built.
    failures: u32,
    /// No circuit is begun before.
    build_at: Instant,
    /// Why there was no path when one was last looked for, as it was told.
    told: Option<NoPath>,
}

#[derive(Debug)]
struct Entry {
    names: Vec<String>,
    ports: Vec<(u16, u16)>,
    guard: Option<RsaId>,
    exit: Option<RsaId>,
    /// Whose requests it takes; `None` until the first.
    isolation: Option<Option<Isolation>>,
    begun_at: Instant,
    /// Whether its guard has answered.
    is_begun: bool,
    built: bool,
    used_at: Option<Instant>,
    /// Whether it takes no new streams, however young it is.
    is_retired: bool,
    /// Sessions by their streams; at most [`STREAMS_MAX`].
    streams: BTreeMap<StreamId, SocketId>,
    /// Sessions that are not read because the circuit takes nothing; each at most once.
    held: VecDeque<SocketId>,
}

/// What a request needs of a circuit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs<'a> {
    pub isolation: &'a Option<Isolation>,
    /// The port that its exit has to let out.
    pub port: Option<u16>,
    /// Exits that have refused it.
    pub not_exits: &'a [RsaId],
}

/// Where a request may go.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Over this circuit, now.
    At(CircuitNumber),
    /// Over one that is being built, or once there is room.
    Later,
    /// Nowhere: there is no such path.
    Nowhere,
}

impl Entry {
    fn is_young(&self, now: Instant, dirty_max: Duration) -> bool {
        !self.is_retired && self.used_at.is_none_or(|used_at| now.since(used_at) < dirty_max)
    }
}

impl Circuits {
    /// The session of a stream.
    pub fn session(&self, number: CircuitNumber, stream: StreamId) -> Option<SocketId> {
        self.open.get(&number)?.streams.get(&stream).copied()
    }

    pub fn add_stream(&mut self, number: CircuitNumber, stream: StreamId, session: SocketId, now: Instant) {
        if let Some(entry) = self.open.get_mut(&number) {
            entry.streams.insert(stream, session);
            entry.used_at.get_or_insert(now);
        }
    }

    pub fn remove_stream(&mut self, number: CircuitNumber, stream: StreamId) {
        let Some(entry) = self.open.get_mut(&number) else { return };
        if let Some(session) = entry.streams.remove(&stream) {
            entry.held.retain(|held| *held != session);
        }
    }

    /// Who a circuit's exit is.
    pub fn exit(&self, number: CircuitNumber) -> Option<RsaId> {
        self.open.get(&number)?.exit
    }

    /// A circuit's guard has answered.
    pub fn on_begun(&mut self, number: CircuitNumber) {
        if let Some(entry) = self.open.get_mut(&number) {
            entry.is_begun = true;
        }
    }

    /// A circuit takes no new streams, because its exit has failed one.
    pub fn retire(&mut self, number: CircuitNumber) {
        if let Some(entry) = self.open.get_mut(&number) {
            entry.is_retired = true;
        }
    }

    /// A circuit is for requests of this isolation from now on. Whether it is built; then those that are not, and were
    /// for the same, are for whoever comes first again: nobody is to have two where one is enough.
    fn claim(&mut self, number: CircuitNumber, isolation: &Option<Isolation>) -> bool {
        let Some(entry) = self.open.get_mut(&number) else { return false };
        let is_new = entry.isolation.replace(isolation.clone()).is_none();
        let is_built = entry.built;
        if is_new && is_built {
            let unbuilt = self.open.values_mut().filter(|entry| !entry.built);
            let same = unbuilt.filter(|entry| entry.isolation.as_ref() == Some(isolation));
            same.for_each(|entry| entry.isolation = None);
        }
        is_built
    }

    /// A session is not read until its circuit takes something.
    pub fn hold(&mut self, number: CircuitNumber, session: SocketId) {
        if let Some(entry) = self.open.get_mut(&number)
            && !entry.held.contains(&session)
        {
            entry.held.push_back(session);
        }
    }

    /// The sessions that are held back, with their streams.
    pub fn held(&self) -> impl Iterator<Item = (CircuitNumber, SocketId)> + '_ {
        self.open.iter().flat_map(|(number, entry)| entry.held.iter().map(|session| (*number, *session)))
    }

    pub fn release(&mut self, number: CircuitNumber, session: SocketId) {
        if let Some(entry) = self.open.get_mut(&number) {
            entry.held.retain(|held| *held != session);
        }
    }
}

impl SocksProxy {
    /// A place for a request; a circuit is begun for it if there is none.
    pub(super) fn place(&mut self, needs: Needs<'_>) -> Place {
        let Needs { isolation, port, not_exits } = needs;
        let (now, dirty_max) = (self.now, self.options.dirty_max);
        let is_given = self.options.path.is_some();
        let fits = |entry: &Entry| {
            let allowed = is_given || port.is_none_or(|port| allows(&entry.ports, port));
            let is_refused = entry.exit.is_some_and(|exit| not_exits.contains(&exit));
            let is_free = entry.isolation.as_ref().is_none_or(|claim| claim == isolation);
            let has_room = entry.streams.len() < STREAMS_MAX;
            allowed && !is_refused && is_free && has_room && entry.is_young(now, dirty_max)
        };
        // Those that are built come first, of these those of the same isolation, and of these the oldest.
        let fitting = self.circuits.open.iter().filter(|(_, entry)| fits(entry));
        let found = fitting.min_by_key(|(_, entry)| (!entry.built, entry.isolation.is_none()));
        let number = match found.map(|(number, _)| *number) {
            Some(number) => number,
            None => match self.build(port, not_exits) {
                Ok(Some(number)) => number,
                Ok(None) => return Place::Later,
                Err(_) => return Place::Nowhere,
            },
        };
        if self.circuits.claim(number, isolation) { Place::At(number) } else { Place::Later }
    }

    /// Begins a circuit. `None` while there are too many, too many failed, or the network is not known.
    fn build(&mut self, port: Option<u16>, not_exits: &[RsaId]) -> Result<Option<CircuitNumber>, NoPath> {
        let may_be_one_more = self.has_place() || self.idle().is_some();
        if self.now < self.circuits.build_at || !may_be_one_more {
            return Ok(None);
        }
        let Some(directory) = &self.directory else { return Ok(None) };
        let flow_control = self.options.flow_control;
        let is_first_try = not_exits.is_empty();
        let chosen = match &self.options.path {
            Some(names) => directory.given(names, flow_control),
            None => {
                let wanted = PathWanted { port, flow_control, not_exits };
                directory.choose(wanted, &mut self.guards, self.now, &mut self.rng)
            }
        };
        let Path { hops, names, ports } = chosen.inspect_err(|why| {
            if is_first_try && self.circuits.told.as_ref() != Some(why) {
                self.circuits.told = Some(why.clone());
                self.outputs.push_back(super::Output::Event(SocksEvent::NoPath { why: why.to_string() }));
            }
        })?;
        let relay = |hop: Option<&(Hop, Handshake)>| hop.map(|(hop, _)| hop.target.rsa);
        let (guard, exit) = (relay(hops.first()), relay(hops.last()));
        // Now that there is a path, the oldest that has no streams gives way.
        if let Some(idle) = self.idle().filter(|_| !self.has_place()) {
            self.end_circuit(idle);
        }
        let Some(number) = self.proxy.build(hops) else { return Ok(None) };
        let entry = Entry {
            names,
            ports,
            guard,
            exit,
            isolation: None,
            begun_at: self.now,
            is_begun: false,
            built: false,
            used_at: None,
            is_retired: false,
            streams: BTreeMap::new(),
            held: VecDeque::new(),
        };
        self.circuits.open.insert(number, entry);
        Ok(Some(number))
    }

    /// Whether one circuit more may be there.
    fn has_place(&self) -> bool {
        self.circuits.open.len() < self.options.circuits_max
    }

    /// The oldest circuit that is built and has no streams.
    fn idle(&self) -> Option<CircuitNumber> {
        let idle = self.circuits.open.iter().find(|(_, entry)| entry.built && entry.streams.is_empty());
        idle.map(|(number, _)| *number)
    }

    /// Begins a circuit ahead of requests, if none is free.
    pub(super) fn build_ahead(&mut self) {
        if self.has_place() && self.circuits.open.values().all(|entry| entry.isolation.is_some()) {
            // Why there is none was told.
            let _ = self.build(None, &[]);
        }
    }

    /// When a circuit may be begun that was put off.
    pub(super) fn next_build(&self) -> Option<Instant> {
        let at = self.circuits.build_at;
        (at > self.now && self.directory.is_some()).then_some(at)
    }

    pub(super) fn on_built(&mut self, number: CircuitNumber) {
        let Some(entry) = self.circuits.open.get_mut(&number) else { return };
        entry.built = true;
        let (path, took) = (entry.names.clone(), self.now.since(entry.begun_at));
        self.circuits.failures = 0;
        self.circuits.told = None;
        self.unserved = true;
        self.tell(SocksEvent::Built { circuit: number.0, path, took });
    }

    /// Asks the relays of all circuits what they counted, when it is time.
    pub(super) fn measure_circuits(&mut self) {
        let Some(every) = self.options.measure_every.filter(|_| self.now >= self.measure_at) else { return };
        self.measure_at = self.now + every;
        let built = self.circuits.open.iter().filter(|(_, entry)| entry.built);
        for number in built.map(|(number, _)| *number).collect::<Vec<_>>() {
            if let Some(circuit) = self.proxy.circuit_mut(number) {
                // One that is over is told of as such.
                let _ = circuit.measure();
            }
        }
    }

    /// A relay says what it counted.
    pub(super) fn on_measured(&mut self, number: CircuitNumber, hop: usize, measured: Box<Measured>) {
        let names = self.circuits.open.get(&number).map(|entry| &entry.names);
        if let Some(relay) = names.and_then(|names| names.get(hop - 1)).cloned() {
            self.tell(SocksEvent::Measured { circuit: number.0, relay, measured });
        }
    }

    /// Those circuits are lost that went with their channel.
    pub(super) fn lose_gone(&mut self, why: &str) {
        let gone = self.circuits.open.keys().filter(|number| !self.proxy.has_circuit(**number));
        for number in gone.copied().collect::<Vec<_>>() {
            let entry = self.circuits.open.get(&number);
            if let Some(guard) = entry.filter(|entry| !entry.built).and_then(|entry| entry.guard) {
                self.guards.on_down(guard, self.now);
            }
            self.lose(number, why);
        }
    }

    /// A relay ended a circuit. Where that is a guard that has not even begun it, another guard is tried for a while.
    pub(super) fn lose_refused(&mut self, number: CircuitNumber, why: &str) {
        let entry = self.circuits.open.get(&number).filter(|entry| !entry.is_begun);
        if let Some(guard) = entry.and_then(|entry| entry.guard) {
            self.guards.on_down(guard, self.now);
        }
        self.lose(number, why);
    }

    /// A circuit is not built in time. A guard that has not answered is left alone for a while.
    fn lose_late(&mut self, number: CircuitNumber) {
        let Some(entry) = self.circuits.open.get(&number) else { return };
        let joined = self.proxy.circuit(number).map_or(0, |circuit| circuit.hops());
        let why = match entry.names.get(joined) {
            Some(relay) => format!("{relay} did not answer in time"),
            None if self.options.forward_datagrams => {
                "not all of its relays have allowed datagrams, for which they need HeddleForwardDatagrams 1"
                    .to_owned()
            }
            None => "it was not built in time".to_owned(),
        };
        if let Some(guard) = entry.guard.filter(|_| !entry.is_begun) {
            self.guards.on_down(guard, self.now);
            self.proxy.give_up_dial(number);
        }
        self.proxy.close_circuit(number);
        self.lose(number, &why);
    }

    /// A circuit is over, and its streams with it.
    pub(super) fn lose(&mut self, number: CircuitNumber, why: &str) {
        let Some(entry) = self.circuits.open.remove(&number) else { return };
        self.unserved = true;
        if !entry.built {
            let failures = &mut self.circuits.failures;
            let delay = RETRY_FIRST.saturating_mul(1 << (*failures).min(10)).min(RETRY_MOST);
            *failures += 1;
            self.circuits.build_at = self.now + delay;
        }
        self.tell(SocksEvent::Closed { circuit: number.0, path: entry.names, why: why.to_owned() });
        for session in entry.streams.into_values() {
            self.on_circuit_lost(session);
        }
    }

    /// Ends a circuit that nobody uses.
    fn end_circuit(&mut self, number: CircuitNumber) {
        self.proxy.close_circuit(number);
        self.circuits.open.remove(&number);
        self.unserved = true;
    }

    /// Ends circuits that are not built in time, and those that are old and have no streams.
    pub(super) fn expire_circuits(&mut self) {
        let (now, dirty_max) = (self.now, self.options.dirty_max);
        let is_late = |entry: &Entry| !entry.built && now.since(entry.begun_at) >= BUILD_MAX;
        let is_old = |entry: &Entry| {
            let unused = entry.used_at.is_none() && now.since(entry.begun_at) >= UNUSED_MAX;
            entry.streams.is_empty() && (unused || !entry.is_young(now, dirty_max))
        };
        let numbers = |is: &dyn Fn(&Entry) -> bool| {
            let found = self.circuits.open.iter().filter(|(_, entry)| is(entry));
            found.map(|(number, _)| *number).collect::<Vec<_>>()
        };
        let (late, old) = (numbers(&is_late), numbers(&is_old));
        for number in late {
            self.lose_late(number);
        }
        for number in old {
            self.end_circuit(number);
        }
    }
}
