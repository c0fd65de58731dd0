//! How soon a page begins after a pause: as soon as the wires allow, whatever the transport.
//!
//! Kernels are as Linux here: they send ten segments at first, and after a pause again. What a channel hands them
//! beyond that leaves a round trip later, so that the first byte must not depend on it.

use heddle_client::{CircuitNumber, ExchangeState};
use heddle_network::{Net, Plan, add_client, download};
use heddle_seam::time::Duration;
use heddle_sim::Wire;
use heddle_transport::registry;

/// What a page has: several times what a kernel sends at first.
const PAGE_BYTES: u64 = 60_000;
/// Client to guard, guard to middle, middle to exit, exit to server.
const WIRES: u32 = 4;
/// BEGIN to CONNECTED, while the exit opens its connection; and request to answer.
const ROUND_TRIPS: u32 = 2;

/// By their names in the registry, which does not have TLS.
const TRANSPORTS: [&str; 3] = ["tls", "quic", "tcp-dtls"];

/// A network, and a circuit over its three relays, whose pairs have found each other.
fn network(transport: &str, round_trip: Duration) -> (Net, CircuitNumber) {
    let wire = Wire { latency: round_trip / 2, ..Wire::default() };
    let plan = Plan { wire, ..Plan::default() };
    let mut net = Net::new(&match registry::named(transport) {
        Some(transport) => plan.speaking(transport, &[0, 1, 2]),
        None => plan,
    });
    let first = net.build(&[0, 1, 2], true);
    net.sim.run_for(Duration::from_secs(10));
    net.proxy(|proxy| proxy.close_circuit(first));
    let circuit = net.build(&[0, 1, 2], true);
    (net, circuit)
}

/// From the request for a stream to the first byte, of pages after these pauses.
fn first_bytes(net: &mut Net, circuit: CircuitNumber, pauses_ms: &[u64]) -> Vec<Duration> {
    let fetch = |pause_ms| {
        net.sim.run_for(Duration::from_millis(pause_ms));
        let page = net.begin(circuit, download(PAGE_BYTES));
        let status = net.await_status(page, Duration::from_secs(60), |status| {
            matches!(status.state, ExchangeState::Ended(_) | ExchangeState::Lost(_))
        });
        assert_eq!(status.received_bytes, PAGE_BYTES);
        status.first_byte_at.expect("it has bytes").since(status.begun_at)
    };
    pauses_ms.iter().copied().map(fetch).collect()
}

fn assert_near_floor(took: &[Duration], round_trip: Duration, case: &str) {
    let floor = round_trip * WIRES * ROUND_TRIPS;
    assert!(took.iter().all(|took| (floor..=floor * 21 / 20).contains(took)), "{case}: {took:?}, {floor:?}");
}

#[test]
fn a_page_begins_when_the_wires_allow() {
    for transport in TRANSPORTS {
        for round_trip in [20, 80, 200].map(Duration::from_millis) {
            let (mut net, circuit) = network(transport, round_trip);
            let took = first_bytes(&mut net, circuit, &[1000, 2000, 3000]);
            assert_near_floor(&took, round_trip, &format!("{transport:?}"));
        }
    }
}

/// Over each transport the guard's channel to the client is TLS, and idle between pages; over TLS the other channels
/// are busy.
#[test]
fn a_page_begins_when_the_wires_allow_beside_bulk() {
    for transport in TRANSPORTS {
        for round_trip in [20, 80, 200].map(Duration::from_millis) {
            let (mut net, circuit) = network(transport, round_trip);
            let (web, bulk) = (net.client, add_client(&mut net.sim, 1));
            net.client = bulk;
            let beside = net.build(&[0, 1, 2], true);
            let endless = net.begin(beside, download(1 << 40));
            net.await_status(endless, Duration::from_secs(30), |status| status.received_bytes > 1_000_000);
            net.client = web;
            let took = first_bytes(&mut net, circuit, &[1000, 2000]);
            assert_near_floor(&took, round_trip, &format!("{transport:?} beside bulk"));
        }
    }
}
