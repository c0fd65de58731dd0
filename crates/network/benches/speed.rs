//! How fast networks in virtual time are on this machine: `cargo bench -p heddle-network --bench speed -- hops` prints
//! how many cells relays forward in a second of one core, `hosts` what time and memory networks of more and more hosts
//! take, and without a name the names. Each takes minutes.

use heddle_client::{CircuitNumber, ExchangeNumber, OnionProxy};
use heddle_network::{Net, Plan, add_client_with, begin, build, download};
use heddle_seam::time::Duration;
use heddle_sim::{HostId, TraceHash, Wire};
use heddle_transport::{Ciphers, registry};

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

#[allow(clippy::disallowed_methods, reason = "a program takes arguments")]
fn main() {
    // What cargo adds begins with a dash.
    match std::env::args().skip(1).find(|name| !name.starts_with('-')).as_deref() {
        Some("hops") => hops(),
        // One of them by itself, for a profiler.
        Some("one") => {
            let over = std::env::args().nth(2).filter(|name| name != "tls");
            let run = measure(over.as_deref(), heddle_nullcrypto::ciphers());
            println!("{} hops in {:.3} s of a core: {:.0} a second", run.hops, run.cpu_s, run.hops_per_s());
        }
        Some(other) => panic!("nothing is called {other}"),
        None => println!("hops"),
    }
}
