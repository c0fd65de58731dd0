//! How long circuits take to be built where many datagrams are lost, but not all.
//!
//! `table` prints more than is asserted:
//! `cargo test --release -p heddle-sim --test upgraded -- --ignored --nocapture lossy::table`.

use crate::{Transport, find_each_other};
use heddle_client::{CircuitNumber, OnionProxy, ProxyEvent};
use heddle_network::{Net, Plan};
use heddle_seam::time::Duration;
use heddle_sim::Wire;

/// Whose packets are lost between two relays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    Datagrams,
    All,
}

/// A path on which circuits are built.
#[derive(Clone, Copy, Debug)]
struct Path {
    /// Nothing for TLS alone.
    over: Option<Transport>,
    /// Between this relay and the next.
    at: usize,
    lost: Lost,
    loss_ppm: u32,
    latency_ms: u64,
}

/// No client waits so long: stock gives a circuit up after 60 s, before it has learned better.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Circuits that are built at once.
const BATCH: usize = 5;

/// How long each of so many circuits takes, the shortest first.
fn builds(path: Path, seed: u64, count: usize) -> Vec<Duration> {
    let latency = Duration::from_millis(path.latency_ms);
    let wire = Wire { latency, jitter: Duration::from_millis(1), ..Wire::default() };
    let plan = Plan { seed, wire, ..Plan::default() };
    let plan = path.over.map_or(plan.clone(), |over| over.among(vec![0, 1, 2], &plan));
    let mut net = Net::new(&plan);
    find_each_other(&mut net, &[0, 1, 2]);
    let (a, b) = (net.relays[path.at].host, net.relays[path.at + 1].host);
    match path.lost {
        Lost::Datagrams => net.sim.lose_datagrams(a, b, path.loss_ppm),
        Lost::All => net.sim.set_wire(a, b, Wire { loss_ppm: path.loss_ppm, ..wire }),
    }
    let mut times = Vec::new();
    while times.len() < count {
        times.extend(batch(&mut net));
        net.sim.run_for(Duration::from_secs(1));
    }
    times.sort_unstable();
    times
}

/// What circuits take that are begun at one time.
fn batch(net: &mut Net) -> Vec<Duration> {
    let begun = net.sim.now();
    let path = net.path(&[0, 1, 2], false);
    let circuits: Vec<CircuitNumber> = (0..BATCH)
        .map(|_| net.proxy(|proxy| proxy.build(path.clone())).expect("the path has relays"))
        .collect();
    let mut times = vec![WAIT_MAX; BATCH];
    let mut open = BATCH;
    let client = net.client;
    net.sim.run_until(WAIT_MAX, |sim| {
        for event in sim.with(client, 0, |proxy: &mut OnionProxy, _| proxy.take_events()) {
            if let ProxyEvent::Built(number) = event
                && let Some(place) = circuits.iter().position(|circuit| *circuit == number)
            {
                times[place] = sim.now().since(begun);
                open -= 1;
            }
        }
        open == 0
    });
    for circuit in circuits {
        net.proxy(|proxy| proxy.close_circuit(circuit));
    }
    times
}

/// The value below which so many of a hundred are.
fn percentile(times: &[Duration], percent: usize) -> Duration {
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

/// Before the last relay only CREATE2 and CREATED2 depend on the flow. It has three seconds, by a clock of one second,
/// and without losses all three relays take 1.2 s.
#[test]
fn creation_takes_seconds_at_most_where_datagrams_are_lost() {
    for over in [Transport::Quic, Transport::Dtls] {
        for loss_ppm in [100_000, 200_000, 300_000] {
            let path = Path { over: Some(over), at: 1, lost: Lost::Datagrams, loss_ppm, latency_ms: 100 };
            let times = builds(path, 1, 60);
            let [half, p95, most] = [50, 95, 100].map(|percent| percentile(&times, percent));
            println!("{over:?} {loss_ppm}: {half:?} {p95:?} {most:?}");
            assert!(most < Duration::from_millis(5_500), "{over:?} {loss_ppm}: {times:?}");
        }
    }
}

/// EXTEND2 goes over a flow of the earlier link as data does, and does not leave it for TLS.
#[test]
fn circuits_over_an_earlier_link_that_loses_three_packets_in_ten_take_seconds() {
    for (lost, latency_ms) in [(Lost::Datagrams, 10), (Lost::All, 10), (Lost::Datagrams, 100)] {
        for seed in [1, 2] {
            let path = Path { over: Some(Transport::Dtls), at: 0, lost, loss_ppm: 300_000, latency_ms };
            let times = builds(path, seed, 100);
            let [half, p95, most] = [50, 95, 100].map(|percent| percentile(&times, percent));
            println!("{lost:?} {latency_ms} ms, seed {seed}: {half:?} {p95:?} {most:?}");
            assert!(p95 < Duration::from_secs(8) && most < Duration::from_secs(12), "{path:?}: {times:?}");
        }
    }
}

/// Circuits of the table's rows.
const COUNT: usize = 200;

#[test]
#[ignore = "takes minutes, and prints figures"]
fn table() {
    println!("{COUNT} circuits, seed 1, packets lost between the first two of three relays; seconds");
    println!("lost       loss  one way  over        median    95 %    99 %  longest  over 5 s");
    for (lost, latency_ms) in
        [(Lost::Datagrams, 10), (Lost::All, 10), (Lost::Datagrams, 100), (Lost::All, 100)]
    {
        for loss_ppm in [100_000, 200_000, 300_000] {
            for over in [None, Some(Transport::Quic), Some(Transport::Dtls)] {
                let times = builds(Path { over, at: 0, lost, loss_ppm, latency_ms }, 1, COUNT);
                let [half, p95, p99, most] = [50, 95, 99, 100].map(|p| percentile(&times, p).as_secs_f64());
                let long = times.iter().filter(|time| **time > Duration::from_secs(5)).count();
                println!(
                    "{:<9} {:>3} % {latency_ms:>5} ms  {:<8} {half:>9.2} {p95:>7.2} {p99:>7.2} {most:>8.2} {long:>9}",
                    format!("{lost:?}"),
                    loss_ppm / 10_000,
                    over.map_or("tls", Transport::name),
                );
            }
        }
    }
}
