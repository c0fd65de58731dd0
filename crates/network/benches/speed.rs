//! How fast networks in virtual time are on this machine: `cargo bench -p heddle-network --bench speed -- hops` prints
//! how many cells relays forward in a second of one core, `hosts` what time and memory networks of more and more hosts
//! take, and without a name the names. Each takes minutes.

use core::net::{IpAddr, Ipv4Addr};
use heddle_client::{CircuitNumber, ExchangeNumber, Handshake, OnionProxy};
use heddle_network::{
    MadeRelay, Net, OR_PORT, Plan, RelayHost, RelayOptions, SERVER, SOURCE, add_client_with, begin, build,
    download, introduce,
};
use heddle_relay::RelayLanguage;
use heddle_seam::rng::Rng;
use heddle_seam::time::Duration;
use heddle_sim::{AnyNode, Host, HostId, Internet, Options, Service, Simulation, TraceHash, Wire};
use heddle_transport::{Ciphers, registry};

/// The program's, because simulations allocate much.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Clients, each with two circuits that download at the same time.
const CLIENTS: u16 = 4;
const BYTES: u64 = 6_000_000;
/// Each way of measuring takes turns with the others so many times.
const REPEATS: usize = 5;
/// Relays of the network. The last is the exit.
const RELAYS: usize = 5;

/// What a network did and how long it took.
struct Measured {
    /// Cells that relays sent over links.
    hops: u64,
    /// What the one thread had of a processor.
    cpu_s: f64,
    /// Virtual time.
    virtual_s: f64,
    hash: TraceHash,
}

impl Measured {
    fn hops_per_s(&self) -> f64 {
        self.hops as f64 / self.cpu_s
    }
}

/// Seconds that this thread has had of a processor, so that others on the machine count less.
#[expect(clippy::disallowed_methods, reason = "the kernel tells it in a file")]
fn cpu_s() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    let ns = text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok());
    ns.expect("nanoseconds come first") as f64 / 1e9
}

fn cells_out(net: &mut Net) -> u64 {
    let of = |relay| net.stats(relay).transports.iter().map(|of| of.cells_out).sum::<u64>();
    (0..RELAYS).map(of).sum()
}

/// Downloads over eight circuits of three relays. Handshakes come before what is measured.
fn measure(over: Option<&str>, ciphers: Ciphers) -> Measured {
    let wire = Wire { rate_bytes_per_s: Some(12_500_000), ..Wire::default() };
    let mut plan = Plan { seed: 17, wire, shards: vec![1; RELAYS], ciphers, ..Plan::default() };
    if let Some(name) = over {
        let all: Vec<usize> = (0..RELAYS).collect();
        plan = plan.speaking(registry::named(name).expect("it is registered"), &all);
    }
    let mut net = Net::new(&plan);
    let others = (1..CLIENTS).map(|index| add_client_with(&mut net.sim, index, ciphers));
    let clients: Vec<HostId> = others.collect();
    let clients = [net.client].into_iter().chain(clients);
    let mut circuits: Vec<(HostId, CircuitNumber)> = Vec::new();
    for (number, client) in clients.enumerate() {
        for turn in 0..2 {
            let (guard, middle) = ((number + turn) % 2, 2 + number % 2);
            let path = net.path(&[guard, middle, RELAYS - 1], true);
            // Pairs are found beside the first circuits, and the later ones take them.
            circuits.push((client, build(&mut net.sim, client, path)));
            net.sim.run_for(Duration::from_secs(2));
        }
    }
    let (before, begun, hops) = (cpu_s(), net.sim.now(), cells_out(&mut net));
    let exchanges: Vec<(HostId, ExchangeNumber)> = circuits
        .into_iter()
        .map(|(client, circuit)| (client, begin(&mut net.sim, client, circuit, download(BYTES))))
        .collect();
    for (client, exchange) in exchanges {
        let received = |net: &mut Net| {
            let status = net.sim.with(client, 0, |proxy: &mut OnionProxy, _| proxy.status(exchange));
            status.expect("it was begun").received_bytes
        };
        while received(&mut net) < BYTES {
            net.sim.run_for(Duration::from_millis(50));
        }
    }
    Measured {
        hops: cells_out(&mut net) - hops,
        cpu_s: cpu_s() - before,
        virtual_s: net.sim.now().since(begun).as_secs_f64(),
        hash: net.sim.trace_hash(),
    }
}

/// The least, the median and the most.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [values[0], values[values.len() / 2], values[values.len() - 1]]
}

fn hops() {
    const KINDS: [Option<&str>; 3] = [None, Some("quic"), Some("tcp-dtls")];
    println!(
        "{} downloads of {} MB over three of {RELAYS} relays; {REPEATS} times, real and null in turn; a hop is a cell \
         that a relay sent; clients, server and kernels are in the time, handshakes are not",
        2 * CLIENTS,
        BYTES / 1_000_000,
    );
    println!(
        "over       cryptography    hops  virtual s   core s   hops/s and core: least   median     most"
    );
    for over in KINDS {
        let [mut real, mut null]: [Vec<Measured>; 2] = [vec![], vec![]];
        for _ in 0..REPEATS {
            real.push(measure(over, Ciphers::default()));
            null.push(measure(over, heddle_nullcrypto::ciphers()));
        }
        for (name, of) in [("real", &real), ("null", &null)] {
            assert!(of.iter().all(|run| run.hash == real[0].hash), "one seed gives one run");
            let [_, cpu_s, _] = spread(of.iter().map(|run| run.cpu_s).collect());
            let [least, median, most] = spread(of.iter().map(Measured::hops_per_s).collect());
            println!(
                "{:<10} {name:<12} {:>7} {:>10.2} {cpu_s:>8.3} {least:>24.0} {median:>8.0} {most:>8.0}",
                over.unwrap_or("tls"),
                of[0].hops,
                of[0].virtual_s,
            );
        }
    }
}

/// What a client downloads in a network of many hosts.
const DOWNLOAD_BYTES: u64 = 100_000;

/// A network of many hosts.
struct Many {
    sim: Simulation<RelayLanguage>,
    relays: Vec<RelayHost>,
    ciphers: Ciphers,
}

impl Many {
    /// Relays that speak QUIC, a third of them exits, and a server.
    fn new(relays: usize) -> Many {
        let (seed, ciphers) = (17, heddle_nullcrypto::ciphers());
        let wire = Wire { rate_bytes_per_s: Some(12_500_000), ..Wire::default() };
        let mut sim = Simulation::new(seed, Options { default_wire: wire, ..Options::default() });
        let relays: Vec<RelayHost> = (0..relays).map(|index| add_relay(&mut sim, index, ciphers)).collect();
        introduce(&mut sim, relays.iter());
        let internet = Internet::new(&[(SOURCE, Service::Source)]);
        let ports = internet.ports();
        let nodes: Vec<Box<dyn AnyNode<RelayLanguage>>> = vec![Box::new(internet)];
        sim.add_host(Host { addrs: vec![SERVER], ports, nodes, beside: vec![], plain: true });
        Many { sim, relays, ciphers }
    }

    /// A new client, which asks for a circuit.
    fn add_client(&mut self, index: usize, chance: &mut Rng) -> (HostId, CircuitNumber) {
        let client = add_client_with(&mut self.sim, index as u16, self.ciphers);
        let exits = self.relays.len().div_ceil(3) as u64;
        // No exit is guard or middle.
        let other = |drawn: u64| 1 + 3 * (drawn / 2) as usize + (drawn % 2) as usize;
        let others = 2 * (self.relays.len() / 3) as u64;
        let (guard, exit) = (chance.below(others), 3 * chance.below(exits) as usize);
        let middle = (guard + 1 + chance.below(others - 1)) % others;
        let hop = |relay: usize| {
            let congestion_control = relay == exit;
            (self.relays[relay].hop.clone(), Handshake::NtorV3 { congestion_control })
        };
        let path = [other(guard), other(middle), exit].map(hop).to_vec();
        let asked = self.sim.with(client, 0, |proxy: &mut OnionProxy, _| proxy.build(path));
        (client, asked.expect("the path has relays"))
    }
}

fn add_relay(sim: &mut Simulation<RelayLanguage>, index: usize, ciphers: Ciphers) -> RelayHost {
    let addr = IpAddr::V4(Ipv4Addr::from(0x0a00_0001 + index as u32));
    let mut options = RelayOptions { ciphers, ..RelayOptions::new(addr) };
    options.torrc.heddle.transports = registry::named("quic").into_iter().collect();
    if index.is_multiple_of(3) {
        options.torrc.exit_relay = Some(true);
        options.torrc.exit_policy = vec!["accept *:*".parse().expect("a rule of the grammar")];
    }
    let mut made = MadeRelay::new(sim, index, options);
    let host = made.host(vec![OR_PORT], vec![]);
    let host = sim.add_host(host);
    made.settle(sim, host)
}

/// What a network of so many hosts takes. In the first minute of virtual time its clients ask for a circuit each, in
/// the second they begin a download each, and half a minute later all is over.
fn run_hosts(hosts: usize) {
    let relays = (hosts / 20).max(6);
    let clients = hosts - relays;
    let step = Duration::from_secs(60) / clients as u32;
    let nobody = Simulation::new(17, Options::default());
    // Keys are made once in a process, and then the same are taken.
    (0..relays).for_each(|index| drop(MadeRelay::new(&nobody, index, RelayOptions::new(SERVER))));
    let before_s = cpu_s();

    let mut many = Many::new(relays);
    let mut chance = many.sim.seed().child("paths", 0).rng();
    let mut circuits = Vec::new();
    for index in 0..clients {
        circuits.push(many.add_client(index, &mut chance));
        many.sim.run_for(step);
    }
    let mut exchanges: Vec<(HostId, ExchangeNumber)> = Vec::new();
    for (client, circuit) in circuits {
        exchanges.push((client, begin(&mut many.sim, client, circuit, download(DOWNLOAD_BYTES))));
        many.sim.run_for(step);
    }
    many.sim.run_for(Duration::from_secs(30));
    let mut is_whole = |(client, exchange): &(HostId, ExchangeNumber)| {
        let status = many.sim.with(*client, 0, |proxy: &mut OnionProxy, _| proxy.status(*exchange));
        status.is_some_and(|status| status.received_bytes == DOWNLOAD_BYTES)
    };
    let whole = exchanges.iter().filter(|exchange| is_whole(exchange)).count();
    let (cpu_s, resident_mib) = (cpu_s() - before_s, most_resident_mib());
    println!(
        "{hosts:>6} {relays:>7} {whole:>10} {cpu_s:>8.2} {:>12.2} {resident_mib:>8.1} {:>14.1}",
        cpu_s * 1e3 / hosts as f64,
        resident_mib * 1024.0 / hosts as f64,
    );
}

/// The most memory that this process ever had.
#[expect(clippy::disallowed_methods, reason = "the kernel tells it in a file")]
fn most_resident_mib() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|kib| kib.parse::<f64>().ok());
    kib.expect("a number of kB") / 1024.0
}

/// Each network in a process of its own, because its memory is told.
fn hosts() {
    println!("clients and relays with null link cryptography, 20 hosts a relay; 150 s of virtual time");
    println!(" hosts  relays  downloads   core s  ms for each  MiB most  KiB for each");
    for hosts in ["100", "500", "1000", "5000"] {
        let program = std::env::current_exe().expect("it runs");
        let status = std::process::Command::new(program).args(["hosts-of", hosts]).status();
        assert!(status.is_ok_and(|status| status.success()), "the network of {hosts} hosts failed");
    }
}

#[allow(clippy::disallowed_methods, reason = "a program takes arguments")]
fn main() {
    // What cargo adds begins with a dash.
    let mut args = std::env::args().skip(1).filter(|name| !name.starts_with('-'));
    match args.next().as_deref() {
        Some("hops") => hops(),
        Some("hosts") => hosts(),
        Some("hosts-of") => run_hosts(args.next().and_then(|hosts| hosts.parse().ok()).expect("how many")),
        // One transport by itself, for a profiler.
        Some("one") => {
            let over = args.next().filter(|name| name != "tls");
            let run = measure(over.as_deref(), heddle_nullcrypto::ciphers());
            println!(
                "{} hops in {:.3} s of a core: {:.0} a second; {}",
                run.hops,
                run.cpu_s,
                run.hops_per_s(),
                run.hash,
            );
        }
        Some(other) => panic!("nothing is called {other}"),
        None => println!("hops\nhosts"),
    }
}
