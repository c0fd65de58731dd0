//! Before anything goes wrong: strangers want what they should not have, and what honest clients want they get.
//!
//! 1. *Strangers* have circuits extended to a relay's identities at addresses where it is not, want more circuits than
//!    their share, and use none of them. From then on there are also those who [keep no rules](super::malice).
//! 2. *An honest client* builds circuits over all relays at once, asks for names, and has bytes carried both ways.
//!    As nothing is wrong, each circuit stays, and each stream brings all of it within a bound.
//!    That is so until the strangers' circuits have to be over, and a relay has to end each circuit on which a rule was
//!    broken.
//! 3. Two relays lose all datagrams of each other: circuits over both are still built.
//! 4. All is closed, and nothing is left; the strangers' circuits were ended by the relays.

use super::{Expected, Swarm};
use crate::whole::MADE_UP_NAMES;
use crate::{DIGEST, ECHO, OR_PORT, SOURCE, download, upload};
use core::net::{IpAddr, SocketAddr};
use heddle_client::{
    CircuitNumber, Exchange, ExchangeNumber, ExchangeState, Handshake, Hop, OnionProxy, OriginEvent,
    ProxyEvent,
};
use heddle_proto::cell::relay::StreamId;
use heddle_proto::cell::stream::{Answer, HostName, Resolve};
use heddle_proto::ids::{Ed25519Id, RsaId};
use heddle_seam::time::{Duration, Instant};
use heddle_sim::{Service, length};
use std::collections::{BTreeMap, BTreeSet};

/// How long a circuit may take to be built while nothing is wrong with its path, but that datagrams may be lost.
const BUILD_MAX: Duration = Duration::from_secs(60);
/// How long its streams may take: the slowest wires lose one packet in 250 on a round trip of half a second.
const CARRY_MAX: Duration = Duration::from_secs(120);
/// How long strangers' circuits may stay that nobody uses, or that lead nowhere: a minute, and what a relay that looks
/// once a second and a dial may take longer.
const UNUSED_MAX: Duration = Duration::from_secs(80);
/// How long what was ended may take to be gone: a FIN may be lost twice.
const SETTLED_AFTER: Duration = Duration::from_secs(10);
/// What is timed: alone, and then every ten seconds beside those who keep no rules. The median of these times is to be
/// at most so many times as long, and so much more where packets are lost.
const FILE_BYTES: u64 = 120_000;
const BESIDE_TIMES: u32 = 2;
const BESIDE_MORE: Duration = Duration::from_millis(500);
/// Circuits that strangers want extended by each relay.
const EXTENDED: usize = 3;
/// Circuits that a stranger asks one relay for.
const GREEDY_CIRCUITS: usize = 100;
/// Those that it may have then: an address has a fifth of three quarters of a limit.
const GREEDY_CIRCUITS_MAX: usize = super::CIRCUITS_OF_SHARD * 3 / 4 / 5;

/// What strangers have under way.
struct Strangers {
    began_at: Instant,
    circuits: BTreeSet<CircuitNumber>,
    /// Those of two hops that were built after all: a channel that the relay itself named its address on leads to it,
    /// whatever address is asked for.
    built: BTreeSet<CircuitNumber>,
}

impl Swarm {
    /// See the [module](self).
    pub(super) fn be_calm(&mut self) {
        let alone = self.time_a_file();
        let mut strangers = self.let_strangers_loose();
        self.begin_malice(true);
        let circuits = self.build_calmly();
        let asked = self.ask_for_names(&circuits);
        let exchanges = self.begin_calmly(&circuits, 1);
        self.answer_calmly(asked);
        self.carry_calmly(&exchanges);
        self.go_on_calmly(strangers.began_at + UNUSED_MAX, &circuits, alone);
        self.build_past_lost_datagrams();
        for circuit in &circuits {
            self.proxy(|proxy, _| proxy.close_circuit(*circuit));
        }
        self.end_malice();
        self.look();
        self.look_at_strangers(&mut strangers);
        for circuit in strangers.built {
            strangers.circuits.remove(&circuit);
            self.stranger(|proxy, _| proxy.close_circuit(circuit));
        }
        assert!(
            strangers.circuits.is_empty(),
            "after {UNUSED_MAX:?} strangers still have {:?}",
            strangers.circuits
        );
        self.net.sim.run_for(SETTLED_AFTER);
        self.look_for_leftovers();
    }

    /// The circuits go on to be used until then, and a file takes hardly longer than it took alone.
    fn go_on_calmly(&mut self, until: Instant, circuits: &[CircuitNumber], alone: Duration) {
        let mut beside = Vec::new();
        while beside.is_empty() || self.net.sim.now() < until {
            // Circuits that nobody uses would be ended.
            let exchanges = self.begin_calmly(circuits, 60);
            self.carry_calmly(&exchanges);
            beside.push(self.time_a_file());
            (0..20).for_each(|_| _ = self.look_calmly(Duration::from_millis(500), circuits));
        }
        beside.sort_unstable();
        let median = beside[beside.len() / 2];
        let bound = alone * BESIDE_TIMES + BESIDE_MORE;
        assert!(median <= bound, "a file takes {alone:?} alone, and beside the others {beside:?}");
    }

    fn stranger<R>(&mut self, speak: impl FnOnce(&mut OnionProxy, Instant) -> R) -> R {
        self.net.sim.with(self.net.stranger, 0, speak)
    }

    /// Strangers begin what they should not.
    fn let_strangers_loose(&mut self) -> Strangers {
        let began_at = self.net.sim.now();
        let middles = self.middles();
        let mut paths = Vec::new();
        for (place, guard) in middles.iter().enumerate() {
            let [victim, other] = [1, 2].map(|on| middles[(place + on) % middles.len()]);
            let path = self.net.path(&[*guard, victim]).expect("relays know of each other");
            let elsewhere = self.net.relays[other].addr;
            // Where nobody answers, and where another relay does.
            let mut extend =
                |hop: Hop| paths.push(vec![(path[0].0.clone(), Handshake::Fast), (hop, path[1].1)]);
            [self.net.hole, elsewhere].into_iter().for_each(|addr| extend(at(&path[1].0, addr)));
            // Who nobody is, so that no channel ever leads there.
            let mut nobody = at(&path[1].0, self.net.hole);
            (nobody.target.rsa, nobody.target.ed25519) = (RsaId([9; 20]), Some(Ed25519Id([9; 32])));
            extend(nobody);
        }
        let greedy = self.net.path(&[0]).expect("a relay knows of itself");
        paths.extend((0..GREEDY_CIRCUITS).map(|_| vec![(greedy[0].0.clone(), Handshake::Fast)]));
        let build =
            |proxy: &mut OnionProxy, _| paths.into_iter().filter_map(|path| proxy.build(path)).collect();
        let circuits = self.stranger(build);
        let mut strangers = Strangers { began_at, circuits, built: BTreeSet::new() };
        // Handshakes of a channel and a circuit, and the way of EXTEND2.
        self.net.sim.run_for(Duration::from_secs(3));
        self.look_at_strangers(&mut strangers);
        // Those that are to be extended come first.
        let greedy = |number: &&CircuitNumber| number.0 >= (EXTENDED * middles.len()) as u64;
        let held = strangers.circuits.iter().filter(greedy).count();
        assert!(
            held <= GREEDY_CIRCUITS_MAX,
            "a stranger holds {held} circuits of {}, which are more than its share",
            super::CIRCUITS_OF_SHARD
        );
        strangers
    }

    /// Forgets the strangers' circuits that are over.
    fn look_at_strangers(&mut self, strangers: &mut Strangers) {
        let extended = (EXTENDED * self.middles().len()) as u64;
        for event in self.stranger(|proxy, _| proxy.take_events()) {
            match event {
                ProxyEvent::CircuitClosed(number, _) => {
                    strangers.circuits.remove(&number);
                }
                ProxyEvent::Built(number) if number.0 < extended => {
                    strangers.built.insert(number);
                }
                _ => {}
            }
        }
    }

    /// Circuits that begin with each relay but the exit, twice, all at once.
    fn build_calmly(&mut self) -> Vec<CircuitNumber> {
        let (middles, exit) = (self.middles(), self.relays() - 1);
        let mut circuits = Vec::new();
        for place in (0..middles.len()).chain(0..middles.len()) {
            let (guard, middle) = (middles[place], middles[(place + 1) % middles.len()]);
            let path = self.net.path(&[guard, middle, exit]).expect("relays know of each other");
            circuits.push(self.proxy(|proxy, _| proxy.build(path)).expect("the path has relays"));
        }
        self.await_built(&circuits);
        circuits
    }

    fn await_built(&mut self, circuits: &[CircuitNumber]) {
        let mut waited_for: BTreeSet<_> = circuits.iter().copied().collect();
        let ends = self.net.sim.now() + BUILD_MAX;
        while !waited_for.is_empty() {
            assert!(self.net.sim.now() < ends, "after {BUILD_MAX:?} these are not built: {waited_for:?}");
            for event in self.look_calmly(Duration::from_millis(200), &[]) {
                if let ProxyEvent::Built(number) = event {
                    waited_for.remove(&number);
                }
            }
        }
        self.outcome.circuits += circuits.len() as u64;
    }

    /// Lets so much time pass, in which others do what they should not, and looks. Nothing of the honest client's ends
    /// by itself meanwhile.
    fn look_calmly(&mut self, time: Duration, circuits: &[CircuitNumber]) -> Vec<ProxyEvent> {
        self.net.sim.run_for(time);
        self.go_on_with_malice(circuits);
        let events = self.look();
        for event in &events {
            let has_ended = matches!(event, ProxyEvent::CircuitClosed(..) | ProxyEvent::ChannelClosed(_));
            assert!(!has_ended, "nothing was wrong, and {event:?}");
        }
        events
    }

    /// Asks for several names over each circuit at once.
    fn ask_for_names(&mut self, circuits: &[CircuitNumber]) -> BTreeMap<(CircuitNumber, StreamId), IpAddr> {
        let mut asked = BTreeMap::new();
        for (place, circuit) in circuits.iter().enumerate() {
            for of in 0..3 {
                let (name, addr) = &MADE_UP_NAMES[(place + of) % MADE_UP_NAMES.len()];
                let question = Resolve::Name(HostName::new(name).expect("it is a name"));
                let ask = |proxy: &mut OnionProxy, _| proxy.circuit_mut(*circuit)?.resolve(&question).ok();
                let stream = self.proxy(ask).expect("a circuit that is built takes questions");
                asked.insert((*circuit, stream), (*addr).into());
            }
        }
        asked
    }

    /// Each question is answered by what is true.
    fn answer_calmly(&mut self, mut asked: BTreeMap<(CircuitNumber, StreamId), IpAddr>) {
        let ends = self.net.sim.now() + BUILD_MAX;
        while !asked.is_empty() {
            assert!(self.net.sim.now() < ends, "after {BUILD_MAX:?} there is no answer to {asked:?}");
            for event in self.look_calmly(Duration::from_millis(200), &[]) {
                let ProxyEvent::Answered(circuit, OriginEvent::Resolved { stream, resolved }) = event else {
                    continue;
                };
                let addr = asked.remove(&(circuit, stream)).expect("it was asked for, and not answered yet");
                let answers: Vec<_> = resolved.answers().iter().map(|(answer, _)| answer.clone()).collect();
                assert_eq!(answers, [Answer::Addr(addr)], "a name stands for another address");
            }
        }
    }

    /// Streams of each kind on each circuit, which carry one part in so many of what they might.
    fn begin_calmly(&mut self, circuits: &[CircuitNumber], part: u64) -> Vec<(ExchangeNumber, Expected)> {
        let mut exchanges = Vec::new();
        for (place, circuit) in circuits.iter().enumerate() {
            // One carries so much that its windows have to move.
            let many = if place == 0 { 4 } else { 1 };
            let kinds = [
                (Service::Source, SOURCE, 90_000 * many),
                (Service::Digest, DIGEST, 60_000 * many),
                (Service::Echo, ECHO, 10_000 * many),
            ];
            for (kind, port, bytes) in kinds {
                let bytes = bytes / part;
                self.salt += 1;
                let expected = Expected { kind, bytes, salt: self.salt, circuit: *circuit };
                let exchange = match kind {
                    Service::Source => download(bytes),
                    _ => upload(bytes),
                };
                let head = length(bytes, self.salt).to_be_bytes().to_vec();
                let exchange = Exchange { port, head, ..exchange };
                let begun = self.proxy(|proxy, now| proxy.begin(now, *circuit, exchange));
                exchanges.push((begun.expect("a circuit that is built takes streams"), expected));
                self.outcome.streams += 1;
            }
        }
        exchanges
    }

    /// How long a file takes over a circuit of its own.
    fn time_a_file(&mut self) -> Duration {
        let middles = self.middles();
        let path =
            self.net.path(&[middles[0], middles[1], self.relays() - 1]).expect("relays know of each other");
        let circuit = self.proxy(|proxy, _| proxy.build(path)).expect("the path has relays");
        self.await_built(&[circuit]);
        self.salt += 1;
        let expected = Expected { kind: Service::Source, bytes: FILE_BYTES, salt: self.salt, circuit };
        let head = length(FILE_BYTES, self.salt).to_be_bytes().to_vec();
        let exchange = Exchange { head, ..download(FILE_BYTES) };
        let began_at = self.net.sim.now();
        let begun = self.proxy(|proxy, now| proxy.begin(now, circuit, exchange));
        let begun = begun.expect("a circuit that is built takes streams");
        loop {
            self.look_calmly(Duration::from_millis(20), &[]);
            let took = self.net.sim.now().since(began_at);
            let received = self.proxy(|proxy, _| proxy.status(begun)).expect("it was begun").received_bytes;
            if received == FILE_BYTES {
                self.check(begun, expected);
                self.proxy(|proxy, _| proxy.close_circuit(circuit));
                return took;
            }
            assert!(took < CARRY_MAX, "after {took:?} {received} bytes of a file have come");
        }
    }

    fn carry_calmly(&mut self, exchanges: &[(ExchangeNumber, Expected)]) {
        let ends = self.net.sim.now() + CARRY_MAX;
        let brought = |swarm: &mut Self, (exchange, expected): &(ExchangeNumber, Expected)| {
            let status = swarm.proxy(|proxy, _| proxy.status(*exchange)).expect("it was begun");
            let is_told = expected.kind != Service::Source || matches!(status.state, ExchangeState::Ended(_));
            is_told && status.received_bytes >= expected.length()
        };
        let circuits: BTreeSet<_> = exchanges.iter().map(|(_, expected)| expected.circuit).collect();
        let circuits: Vec<_> = circuits.into_iter().collect();
        while !exchanges.iter().all(|exchange| brought(self, exchange)) {
            let late: Vec<_> = exchanges.iter().filter(|exchange| !brought(self, exchange)).collect();
            assert!(self.net.sim.now() < ends, "after {CARRY_MAX:?} these did not bring all: {late:?}");
            self.look_calmly(Duration::from_millis(500), &circuits);
        }
        for (exchange, expected) in exchanges {
            self.check(*exchange, *expected).expect("it was begun");
            self.proxy(|proxy, now| proxy.end(now, *exchange));
        }
    }

    /// Circuits go over TLS where datagrams are lost.
    fn build_past_lost_datagrams(&mut self) {
        let (a, b) = (self.net.relays[0].host, self.net.relays[1].host);
        self.net.sim.block_datagrams(a, b, true);
        let path = self.net.path(&[0, 1, self.relays() - 1]).expect("relays know of each other");
        let circuit = self.proxy(|proxy, _| proxy.build(path)).expect("the path has relays");
        self.await_new(circuit);
        self.net.sim.block_datagrams(a, b, false);
        self.proxy(|proxy, _| proxy.close_circuit(circuit));
    }

    /// The same as [`Swarm::await_built`], while others may end.
    fn await_new(&mut self, circuit: CircuitNumber) {
        let ends = self.net.sim.now() + BUILD_MAX;
        loop {
            assert!(
                self.net.sim.now() < ends,
                "after {BUILD_MAX:?} without datagrams {circuit:?} is not built"
            );
            self.net.sim.run_for(Duration::from_millis(200));
            for event in self.look() {
                match event {
                    ProxyEvent::Built(number) if number == circuit => return,
                    ProxyEvent::CircuitClosed(number, why) if number == circuit => {
                        panic!("without datagrams {circuit:?} was not built: {why}")
                    }
                    _ => {}
                }
            }
        }
    }
}

/// A relay where it is not.
fn at(hop: &Hop, addr: IpAddr) -> Hop {
    let mut hop = hop.clone();
    hop.target.addrs = vec![SocketAddr::new(addr, OR_PORT)];
    hop
}
