//! Who keeps no rules, beside the honest client.
//!
//! - *Hostile clients* each have a channel to a relay on which they do one thing after the other that they
//!   [should not](Attack).
//! - *A malicious relay*, in networks of five and more, does to cells what it should not ([`crate::mischief`]). The
//!   circuits of one client, the victim, all go over it, those of the honest client never do.
//! - *Malicious servers* send without end, say nothing, close in the midst, or reset. The honest client comes to them
//!   on the circuits that carry its other streams.
//! - *Resolvers* are dead for a while, or answer rubbish; a *disk* is dead for the whole time.

use super::{Expected, Swarm};
use crate::hostile::{Attack, Hostile, Progress};
use crate::mischief::Mischief;
use crate::{CUT, DIGEST, ENDLESS, MUTE, RESET, SERVER, SOURCE, download, upload};
use heddle_client::{
    CircuitNumber, Destination, Exchange, ExchangeNumber, Handshake, Hop, OnionProxy, ProxyEvent,
};
use heddle_proto::cell::CircId;
use heddle_seam::rng::{Rng, Seed};
use heddle_seam::time::{Duration, Instant};
use heddle_sim::{HostId, Resolver, Service, length};
use std::sync::Arc;

/// How often all of them go on.
const STEP: Duration = Duration::from_millis(200);
/// Hostile clients that are at work at once.
pub(super) const HOSTILE: usize = 2;
/// Cells of an attack that has no end of its own.
const CELLS: u32 = 200;
/// How long a hostile client goes on with what nobody ends.
const GOES_ON: Duration = Duration::from_secs(2);
/// How long it rests before the next.
const RESTS: Duration = Duration::from_secs(2);
/// How long a relay may take to end a circuit on which a rule was broken, while nothing else is wrong: the way of what
/// was sent over the slowest wires, and that of the answer.
const PUNISHED_MAX: Duration = Duration::from_secs(30);
/// How long a hostile client tries: it may have no share left of what it wants.
const TRIES_MAX: Duration = Duration::from_secs(30);
/// Circuits and streams of the victim at once, and how long a circuit is used.
const VICTIM_CIRCUITS: usize = 2;
const VICTIM_EXCHANGES: usize = 12;
const VICTIM_USES: Duration = Duration::from_secs(15);
/// How long it waits before it asks for another.
const VICTIM_RESTS: Duration = Duration::from_secs(3);
/// Streams with malicious servers at once.
const TRICKED: usize = 6;
/// How long a server that never stops is read from.
const ENDLESS_READ: Duration = Duration::from_millis(50);

/// A hostile client.
struct Attacker {
    under_way: Option<UnderWay>,
    rests_until: Instant,
}

/// What a hostile client has under way.
struct UnderWay {
    attack: Attack,
    began_at: Instant,
    struck_at: Option<Instant>,
}

/// What is under way.
pub(super) struct Malice {
    rng: Rng,
    rogue: Option<(usize, Arc<Mischief>)>,
    is_on: bool,
    goes_on_at: Instant,
    /// Whether nothing else is wrong, so that what breaks a rule has to be answered.
    is_calm: bool,
    /// What is done next, from the last on.
    left: Vec<Attack>,
    attackers: Vec<Attacker>,
    victim_circuits: Vec<(CircuitNumber, Instant)>,
    victim_rests_until: Instant,
    victim_exchanges: Vec<(ExchangeNumber, Expected)>,
    /// The honest client's streams with malicious servers.
    tricked: Vec<(ExchangeNumber, Expected)>,
    /// Whether names were ever answered by what is not true.
    pub resolver_was_bad: bool,
}

impl Malice {
    /// What a seed has of it in a network of so many relays.
    pub fn new(seed: u64, relays: usize) -> Self {
        let seed = Seed::from_number(seed).child("malice", 0);
        let mut rng = seed.rng();
        let one_in = 10 << rng.below(4);
        let rogue = (relays >= 5).then(|| (relays - 2, Mischief::new(&seed, one_in)));
        Malice {
            rng,
            rogue,
            is_on: false,
            goes_on_at: Instant::ZERO,
            is_calm: false,
            left: Vec::new(),
            attackers: (0..HOSTILE)
                .map(|_| Attacker { under_way: None, rests_until: Instant::ZERO })
                .collect(),
            victim_circuits: Vec::new(),
            victim_rests_until: Instant::ZERO,
            victim_exchanges: Vec::new(),
            tricked: Vec::new(),
            resolver_was_bad: false,
        }
    }

    /// The malicious relay.
    pub fn rogue(&self) -> Option<(usize, Arc<Mischief>)> {
        self.rogue.clone()
    }

    fn next_attack(&mut self) -> Attack {
        if self.left.is_empty() {
            let mut all = Attack::all(&mut self.rng);
            while !all.is_empty() {
                let place = self.rng.below(all.len() as u64) as usize;
                self.left.push(all.swap_remove(place));
            }
        }
        self.left.pop().expect("there are attacks")
    }
}

impl Swarm {
    /// Relays that may begin the honest client's circuits: all but the exit and a malicious one.
    pub(super) fn middles(&self) -> Vec<usize> {
        let rogue = self.malice.rogue.as_ref().map(|(relay, _)| *relay);
        (0..self.relays() - 1).filter(|relay| rogue != Some(*relay)).collect()
    }

    pub(super) fn begin_malice(&mut self, is_calm: bool) {
        (self.malice.is_on, self.malice.is_calm) = (true, is_calm);
        if let Some((_, mischief)) = &self.malice.rogue {
            mischief.set_on(true);
        }
        if !is_calm && self.malice.rng.below(2) == 0 {
            let relay = self.malice.rng.below(self.relays() as u64) as usize;
            self.note("disks dead");
            self.net.relays[relay].disk.set_dead(true);
        }
    }

    /// All of them leave, and what they had begun is over. What stood on circuits over a malicious relay ends with its
    /// channels: nobody knows what it told others of them.
    pub(super) fn end_malice(&mut self) {
        if !std::mem::take(&mut self.malice.is_on) {
            return;
        }
        for (index, host) in self.net.hostile.clone().into_iter().enumerate() {
            self.net.sim.with(host, 0, |hostile: &mut Hostile, _| hostile.stop());
            self.malice.attackers[index].under_way = None;
        }
        for (exchange, expected) in std::mem::take(&mut self.malice.tricked) {
            self.proxy(|proxy, now| proxy.end(now, exchange));
            self.check(exchange, expected);
        }
        self.net.sim.set_resolver(Resolver::Good);
        let Some((rogue, mischief)) = self.malice.rogue() else { return };
        mischief.set_on(false);
        for (circuit, _) in std::mem::take(&mut self.malice.victim_circuits) {
            self.victim(|proxy, _| proxy.close_circuit(circuit));
        }
        for (exchange, expected) in std::mem::take(&mut self.malice.victim_exchanges) {
            self.check_of(self.net.victim, exchange, expected);
        }
        self.net.sim.run_for(Duration::from_secs(2));
        let rogue = self.net.relays[rogue].host;
        let others = self.net.relays.iter().map(|relay| relay.host);
        let others: Vec<HostId> = others.chain([self.net.victim]).chain(self.net.hostile.clone()).collect();
        for other in others.into_iter().filter(|other| *other != rogue) {
            self.net.sim.reset_streams(rogue, other);
        }
        for (deed, times) in mischief.done() {
            self.outcome.faults.insert(deed, times);
        }
    }

    fn victim<R>(&mut self, speak: impl FnOnce(&mut OnionProxy, Instant) -> R) -> R {
        self.net.sim.with(self.net.victim, 0, speak)
    }

    /// Everybody goes on with what he does. `circuits` are the honest client's.
    pub(super) fn go_on_with_malice(&mut self, circuits: &[CircuitNumber]) {
        if !self.malice.is_on || self.net.sim.now() < self.malice.goes_on_at {
            return;
        }
        self.malice.goes_on_at = self.net.sim.now() + STEP;
        for index in 0..self.net.hostile.len() {
            self.go_on_with_attack(index, circuits);
        }
        self.go_on_with_victim();
        self.go_on_with_servers(circuits);
        if !self.malice.is_calm && self.malice.rng.below(12) == 0 {
            self.change_resolver();
        }
    }

    fn go_on_with_attack(&mut self, index: usize, circuits: &[CircuitNumber]) {
        let (host, now) = (self.net.hostile[index], self.net.sim.now());
        let attacker = &mut self.malice.attackers[index];
        let Some(mut under_way) = attacker.under_way.take() else {
            if attacker.rests_until <= now {
                self.begin_attack(index, circuits);
            }
            return;
        };
        let progress: Progress = self.net.sim.with(host, 0, |hostile: &mut Hostile, _| hostile.progress());
        let attack = under_way.attack;
        if progress.has_struck && under_way.struck_at.is_none() {
            under_way.struck_at = Some(now);
            self.note(attack.name());
        }
        let is_over = match under_way.struck_at {
            None => progress.is_over || now.since(under_way.began_at) > TRIES_MAX,
            Some(at) if attack.ends_its_circuit() => {
                let is_late = now.since(at) > PUNISHED_MAX;
                let is_borne = is_late && !progress.is_answered && self.malice.is_calm;
                assert!(!is_borne, "{attack:?}: no relay ended the circuit within {PUNISHED_MAX:?}");
                progress.is_answered || is_late
            }
            Some(at) => progress.is_over || now.since(at) > GOES_ON,
        };
        if is_over {
            self.net.sim.with(host, 0, |hostile: &mut Hostile, _| hostile.stop());
            self.malice.attackers[index].rests_until = now + RESTS;
        } else {
            self.malice.attackers[index].under_way = Some(under_way);
        }
    }

    fn begin_attack(&mut self, index: usize, circuits: &[CircuitNumber]) {
        let middles = self.middles();
        let guard = middles[self.malice.rng.below(middles.len() as u64) as usize];
        if self.killed == Some(guard) {
            return;
        }
        let Some(path) = self.net.path(&[guard, self.relays() - 1]) else { return };
        let path: Vec<Hop> = path.into_iter().map(|(hop, _)| hop).collect();
        let ids = |proxy: &mut OnionProxy, _| circuits.iter().filter_map(|of| proxy.circ_id(*of)).collect();
        let mut foreign: Vec<CircId> = self.proxy(ids);
        let any = self.malice.rng.next_u32() | 1 << 31;
        foreign.extend(CircId::new(any));
        let attack = self.malice.next_attack();
        let began_at = self.net.sim.now();
        self.malice.attackers[index].under_way = Some(UnderWay { attack, began_at, struck_at: None });
        let begin = |hostile: &mut Hostile, _| hostile.begin(attack, path, foreign, CELLS);
        self.net.sim.with(self.net.hostile[index], 0, begin);
    }

    /// The victim has circuits over the malicious relay, which begin with it, pass it or end there, and streams on
    /// them.
    fn go_on_with_victim(&mut self) {
        let Some((rogue, _)) = self.malice.rogue() else { return };
        for event in self.victim(|proxy, _| proxy.take_events()) {
            match event {
                ProxyEvent::Built(circuit) => self.begin_as_victim(circuit),
                ProxyEvent::CircuitClosed(circuit, _) => {
                    self.malice.victim_circuits.retain(|(number, _)| *number != circuit);
                }
                _ => {}
            }
        }
        let now = self.net.sim.now();
        let (old, young) = std::mem::take(&mut self.malice.victim_circuits)
            .into_iter()
            .partition(|(_, since)| now.since(*since) > VICTIM_USES);
        self.malice.victim_circuits = young;
        let old: Vec<(CircuitNumber, Instant)> = old;
        old.into_iter().for_each(|(circuit, _)| self.victim(|proxy, _| proxy.close_circuit(circuit)));
        if self.malice.victim_circuits.len() < VICTIM_CIRCUITS && self.malice.victim_rests_until <= now {
            self.malice.victim_rests_until = now + VICTIM_RESTS;
            self.build_as_victim(rogue);
        }
    }

    fn build_as_victim(&mut self, rogue: usize) {
        let mut others = self.middles();
        let place = self.malice.rng.below(3) as usize;
        let mut draw = |rng: &mut Rng| others.swap_remove(rng.below(others.len() as u64) as usize);
        let rng = &mut self.malice.rng;
        let path = match place {
            0 => [rogue, draw(rng), self.net.relays.len() - 1],
            1 => [draw(rng), rogue, self.net.relays.len() - 1],
            _ => [draw(rng), draw(rng), rogue],
        };
        if path.iter().any(|relay| self.killed == Some(*relay)) {
            return;
        }
        let Some(path): Option<Vec<(Hop, Handshake)>> = self.net.path(&path) else { return };
        let now = self.net.sim.now();
        let built = self.victim(|proxy, _| proxy.build(path));
        self.malice.victim_circuits.extend(built.map(|circuit| (circuit, now)));
        self.note("circuits over a malicious relay");
    }

    fn begin_as_victim(&mut self, circuit: CircuitNumber) {
        for (kind, port) in [(Service::Source, SOURCE), (Service::Digest, DIGEST)] {
            while self.malice.victim_exchanges.len() >= VICTIM_EXCHANGES {
                let (exchange, expected) = self.malice.victim_exchanges.remove(0);
                self.victim(|proxy, now| proxy.end(now, exchange));
                self.check_of(self.net.victim, exchange, expected);
            }
            self.salt += 1;
            let bytes = self.malice.rng.below(50_000);
            let expected = Expected { kind, bytes, salt: self.salt, circuit };
            let exchange = if kind == Service::Source { download(bytes) } else { upload(bytes) };
            let head = length(bytes, self.salt).to_be_bytes().to_vec();
            let exchange = Exchange { port, head, ..exchange };
            let begun = self.victim(|proxy, now| proxy.begin(now, circuit, exchange));
            self.malice.victim_exchanges.extend(begun.ok().map(|begun| (begun, expected)));
        }
    }

    /// The honest client comes to servers that do it no good, and leaves the oldest of them.
    fn go_on_with_servers(&mut self, circuits: &[CircuitNumber]) {
        let choice = self.malice.rng.below(4);
        if self.malice.tricked.len() >= TRICKED || choice == 0 && !self.malice.tricked.is_empty() {
            let (exchange, expected) = self.malice.tricked.remove(0);
            if expected.kind == Service::Endless {
                self.proxy(|proxy, now| proxy.set_reading(now, exchange, true));
                self.net.sim.run_for(ENDLESS_READ);
            }
            self.proxy(|proxy, now| proxy.end(now, exchange));
            self.check(exchange, expected);
        }
        if choice != 1 || circuits.is_empty() {
            return;
        }
        let circuit = circuits[self.malice.rng.below(circuits.len() as u64) as usize];
        let (kind, port, name) = [
            (Service::Endless, ENDLESS, "servers that never stop"),
            (Service::Mute, MUTE, "servers that say nothing"),
            (Service::Cut, CUT, "servers that close in the midst"),
            (Service::Reset, RESET, "servers that reset"),
        ][self.malice.rng.below(4) as usize];
        self.salt += 1;
        let bytes = self.malice.rng.below(60_000);
        let expected = Expected { kind, bytes, salt: self.salt, circuit };
        let head = length(bytes, self.salt).to_be_bytes().to_vec();
        let reading = kind != Service::Endless;
        let to = Destination::Addr(SERVER);
        let exchange = Exchange { to, port, head, reading, ..download(bytes) };
        if let Ok(begun) = self.proxy(|proxy, now| proxy.begin(now, circuit, exchange)) {
            self.malice.tricked.push((begun, expected));
            self.note(name);
        }
    }

    fn change_resolver(&mut self) {
        let (kind, name) = match self.malice.rng.below(3) {
            0 => return self.net.sim.set_resolver(Resolver::Good),
            1 => (Resolver::Dead, "resolvers dead"),
            _ => (Resolver::Rubbish, "resolvers that answer rubbish"),
        };
        self.note(name);
        self.malice.resolver_was_bad = true;
        self.net.sim.set_resolver(kind);
    }
}
