//! How long circuits take to be built where many datagrams are lost, but not all.

use super::{Transport, find_each_other};
use heddle_client::{CircuitNumber, OnionProxy, ProxyEvent};
use heddle_network::{Net, Plan};
use heddle_seam::time::Duration;
use heddle_sim::Wire;

/// Whose packets are lost between two relays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    Datagrams,
    All,
}

/// A path on which circuits are built.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Nothing for TLS alone.
    pub over: Option<Transport>,
    /// Between this relay and the next.
    pub at: usize,
    pub lost: Lost,
    pub loss_ppm: u32,
    pub latency_ms: u64,
}

/// No client waits so long: stock gives a circuit up after 60 s, before it has learned better.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Circuits that are built at once.
const BATCH: usize = 5;

/// How long each of so many circuits takes, the shortest first.
pub fn builds(path: Path, seed: u64, count: usize) -> Vec<Duration> {
    let latency = Duration::from_millis(path.latency_ms);
    let wire = Wire { latency, jitter: Duration::from_millis(1), ..Wire::default() };
    let plan = Plan { seed, wire, ..Plan::default() };
    let plan = path.over.map_or(plan.clone(), |over| over.among(&[0, 1, 2], &plan));
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
pub fn percentile(times: &[Duration], percent: usize) -> Duration {
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

/// Before the last relay only CREATE2 and CREATED2 depend on the flow. It has three seconds, by a clock of one second,
/// and without losses all three relays take 1.2 s.
#[test]
fn creation_takes_seconds_at_most_where_datagrams_are_lost() {
    for over in ["quic", "tcp-dtls"].map(Transport::named) {
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
            let over = Some(Transport::named("tcp-dtls"));
            let path = Path { over, at: 0, lost, loss_ppm: 300_000, latency_ms };
            let times = builds(path, seed, 100);
            let [half, p95, most] = [50, 95, 100].map(|percent| percentile(&times, percent));
            println!("{lost:?} {latency_ms} ms, seed {seed}: {half:?} {p95:?} {most:?}");
            assert!(p95 < Duration::from_secs(8) && most < Duration::from_secs(12), "{path:?}: {times:?}");
        }
    }
}
