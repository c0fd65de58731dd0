//! A network in virtual time of three relays, of which the middle one is looked at: a client, a guard, a middle, an
//! exit and a server. What the middle does stands in functions of one name, so that whoever counts instructions can
//! leave all else out.

use super::times::{Keeper, SERIES, Since};
use core::any::Any;
use core::net::{IpAddr, Ipv4Addr};
use heddle_client::{CircuitNumber, Exchange, ExchangeNumber, Handshake, Hop, OnionProxy};
use heddle_network::{
    DIGEST, MadeRelay, OR_PORT, RelayHost, RelayOptions, SERVER, SOURCE, add_client_with, begin, build,
    download, introduce,
};
use heddle_relay::{Control, Input, Observees, Output, Place, Relay, RelayLanguage};
use heddle_seam::node::{Node, SocketId};
use heddle_seam::stopwatch::Stopwatch;
use heddle_seam::time::{Duration, Instant};
use heddle_sim::{AnyNode, Host, HostId, Internet, Options, Service, Simulation, Wire};
use heddle_spe::{Collector, SeriesId};
use heddle_transport::{Ciphers, registry};
use std::hint::black_box;
use std::sync::Arc;

/// What functions of the middle's have in their names, and no others.
pub const MIDDLES: &str = "of_the_middle";
/// The function before which a part of what is counted ends.
pub const END_OF_PART: &str = "end_of_part";
/// What the server answers to an upload.
const DIGEST_BYTES: u64 = 32;
/// Circuits that carry cells at the same time.
const CIRCUITS: usize = 8;
/// What a DATA cell of these circuits carries at most.
const DATA_LEN: u64 = 498;
const MIDDLE: usize = 1;
/// How often families are watched, in virtual time.
const EVERY: Duration = Duration::from_millis(100);

/// Which way the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the client.
    Down,
    /// From the client.
    Up,
}

/// Who looks into the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observer {
    /// Nobody: the relay was started without `HeddleObserve`.
    None,
    /// `HeddleObserve 1`, and nobody asks anything.
    Idle,
    /// All series of times are collected.
    Times,
    /// All families are looked at every 100 ms.
    Families,
    /// Both places force a look each time that they are passed.
    Places,
    /// All of these.
    All,
}

impl Observer {
    pub const ALL: [Observer; 6] = [
        Observer::None,
        Observer::Idle,
        Observer::Times,
        Observer::Families,
        Observer::Places,
        Observer::All,
    ];

    fn is_at(self, part: Observer) -> bool {
        self == part || self == Observer::All
    }
}

/// What is measured.
#[derive(Clone, Copy)]
pub struct Case {
    /// The transport of relays among each other.
    pub over: &'static str,
    /// Where the links' cryptography comes from.
    pub ciphers: Ciphers,
    pub way: Way,
    pub observer: Observer,
    /// How fast wires are. Those without a rate bring together what was sent together, as it comes to a relay that has
    /// much to do; over others cells come one by one.
    pub rate_bytes_per_s: Option<u64>,
}

/// The relay that is looked at. What it does is done in functions that are called and do not end in a call, so that
/// callgrind sees where they begin and end.
struct Middle {
    relay: Relay,
    calls: u64,
}

impl Middle {
    #[inline(never)]
    fn buffer_of_the_middle(&mut self, socket: SocketId) -> &mut [u8] {
        self.calls = black_box(self.calls + 1);
        self.relay.recv_buf(socket)
    }

    #[inline(never)]
    fn input_of_the_middle(&mut self, now: Instant, input: Input) {
        self.relay.handle_input(now, input);
        self.calls = black_box(self.calls + 1);
    }

    #[inline(never)]
    fn output_of_the_middle(&mut self, now: Instant, buf: &mut Vec<u8>) -> Output {
        let output = self.relay.poll_output(now, buf);
        self.calls = black_box(self.calls + 1);
        output
    }
}

impl Node<RelayLanguage> for Middle {
    fn recv_buf(&mut self, socket: SocketId) -> &mut [u8] {
        self.buffer_of_the_middle(socket)
    }

    fn handle_input(&mut self, now: Instant, input: Input) {
        self.input_of_the_middle(now, input);
    }

    fn poll_output(&mut self, now: Instant, buf: &mut Vec<u8>) -> Output {
        self.output_of_the_middle(now, buf)
    }
}

/// What the middle relayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relayed {
    /// Cells that it sent, of all circuits and ways.
    pub cells: u64,
    /// How often it was called.
    pub calls: u64,
}

struct Network {
    sim: Simulation<RelayLanguage>,
    relays: Vec<RelayHost>,
    client: HostId,
    case: Case,
}

/// Has the middle relay at least so many cells of data, and as many more as that takes, once so that all is as it stays
/// then, and once more for whoever counts. Says what it relayed the second time.
pub fn relay(case: Case, cells: u64) -> Relayed {
    let mut network = Network::new(case);
    // The first circuit goes over TLS, and where it goes relays find out what else they speak.
    network.build();
    network.sim.run_for(Duration::from_secs(5));
    let circuits: Vec<CircuitNumber> = (0..CIRCUITS).map(|_| network.build()).collect();
    network.look();
    network.carry(&circuits, cells);
    let before = network.relayed();
    end_of_part(0);
    network.carry(&circuits, cells);
    end_of_part(1);
    let after = network.relayed();
    Relayed { cells: after.cells - before.cells, calls: after.calls - before.calls }
}

/// What was counted until now is of the part that ends here, which is what callgrind knows this function for.
#[inline(never)]
fn end_of_part(part: u32) {
    black_box(part);
}

impl Network {
    fn new(case: Case) -> Network {
        let default_wire = Wire { rate_bytes_per_s: case.rate_bytes_per_s, ..Wire::default() };
        let mut sim = Simulation::new(17, Options { default_wire, ..Options::default() });
        let relays: Vec<RelayHost> = (0..3).map(|index| add_relay(&mut sim, index, case)).collect();
        introduce(&mut sim, relays.iter());
        let internet = Internet::new(&[(SOURCE, Service::Source), (DIGEST, Service::Digest)]);
        let ports = internet.ports();
        let nodes: Vec<Box<dyn AnyNode<RelayLanguage>>> = vec![Box::new(internet)];
        sim.add_host(Host { addrs: vec![SERVER], ports, nodes, beside: vec![], plain: true });
        let client = add_client_with(&mut sim, 0, case.ciphers);
        Network { sim, relays, client, case }
    }

    fn build(&mut self) -> CircuitNumber {
        let last = self.relays.len() - 1;
        let hop = |(place, relay): (usize, &RelayHost)| -> (Hop, Handshake) {
            (relay.hop.clone(), Handshake::NtorV3 { congestion_control: place == last })
        };
        let path = self.relays.iter().enumerate().map(hop).collect();
        build(&mut self.sim, self.client, path)
    }

    fn control(&mut self, control: Control) {
        let host = self.relays[MIDDLE].host;
        self.sim.control(host, 0, control);
    }

    /// Whoever looks begins to.
    fn look(&mut self) {
        if self.case.observer.is_at(Observer::Places) {
            Place::ALL.into_iter().for_each(|place| self.control(Control::Force { place, on: true }));
        }
    }

    /// So many cells of data, by all circuits together.
    fn carry(&mut self, circuits: &[CircuitNumber], cells: u64) {
        let bytes = cells / CIRCUITS as u64 * DATA_LEN;
        let (exchange, answer_bytes) = match self.case.way {
            Way::Down => (download(bytes), bytes),
            Way::Up => (Exchange { port: DIGEST, body_bytes: bytes, ..download(bytes) }, DIGEST_BYTES),
        };
        let begin = |circuit: &CircuitNumber| begin(&mut self.sim, self.client, *circuit, exchange.clone());
        let exchanges: Vec<ExchangeNumber> = circuits.iter().map(begin).collect();
        self.run(&exchanges, answer_bytes);
    }

    /// Until each exchange has received so many bytes.
    fn run(&mut self, exchanges: &[ExchangeNumber], bytes: u64) {
        let end = self.sim.now() + Duration::from_secs(3600);
        let client = self.client;
        while self.sim.now() < end {
            if self.case.observer.is_at(Observer::Families) {
                for observees in Observees::ALL {
                    self.control(Control::Observe { request: 1, observees, index: None });
                }
            }
            self.sim.run_for(EVERY);
            // The observatory would take them, on a thread of its own.
            self.sim.take_events();
            let has_all = |proxy: &mut OnionProxy, _| {
                let received =
                    |exchange: &ExchangeNumber| proxy.status(*exchange).map(|status| status.received_bytes);
                exchanges.iter().all(|exchange| received(exchange) == Some(bytes))
            };
            if self.sim.with(client, 0, has_all) {
                return;
            }
        }
        panic!("an hour is over, and not all came");
    }

    fn relayed(&mut self) -> Relayed {
        let (host, over) = (self.relays[MIDDLE].host, self.case.over);
        let (stats, calls) =
            self.sim.with(host, 0, |middle: &mut Middle, _| (middle.relay.stats(), middle.calls));
        let cells: u64 = stats.transports.iter().map(|of| of.cells_out).sum();
        let wanted = stats.transports.iter().find(|of| of.name == over).map_or(0, |of| of.cells_out);
        assert!(20 * wanted > 19 * cells, "the middle sent {wanted} of {cells} cells over {over}");
        Relayed { cells, calls }
    }
}

fn add_relay(sim: &mut Simulation<RelayLanguage>, index: usize, case: Case) -> RelayHost {
    let addr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, index as u8 + 1));
    let mut options = RelayOptions { ciphers: case.ciphers, ..RelayOptions::new(addr) };
    options.torrc.heddle.transports = registry::named(case.over).into_iter().collect();
    if index == 2 {
        options.torrc.exit_relay = Some(true);
        options.torrc.exit_policy = vec!["accept *:*".parse().expect("a rule of the grammar")];
    }
    let mut made = MadeRelay::new(sim, index, options);
    let mut host = made.host(vec![OR_PORT], vec![]);
    if index == MIDDLE {
        let nodes = host.nodes.into_iter().map(|node| observed(node, case.observer));
        host.nodes = nodes.collect();
    }
    let host = sim.add_host(host);
    made.settle(sim, host)
}

/// A relay's shard with its observer.
fn observed(node: Box<dyn AnyNode<RelayLanguage>>, observer: Observer) -> Box<dyn AnyNode<RelayLanguage>> {
    let node: Box<dyn Any> = node;
    let mut relay = *node.downcast::<Relay>().expect("shards of a relay are nodes of this type");
    relay.set_stopwatch(stopwatch(observer));
    Box::new(Middle { relay, calls: 0 })
}

/// What the program lends a shard: without `HeddleObserve` nothing.
fn stopwatch(observer: Observer) -> Stopwatch {
    if observer == Observer::None {
        return Stopwatch::default();
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "what a look at the clock costs is part of what is measured"
    )]
    let now = std::time::Instant::now;
    let collector = Arc::new(Collector::new(SERIES, Box::new(Since(now()))));
    if observer.is_at(Observer::Times) {
        let all = (0..).take(SERIES.len()).map(SeriesId);
        all.for_each(|series| collector.turn(series, true));
    }
    let keeper = Keeper { clock: Since(now()), shard: 0, timings: None, collector: Some(collector) };
    Stopwatch::new(Arc::new(keeper))
}
