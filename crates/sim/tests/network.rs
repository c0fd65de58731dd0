//! A client, three relays and the Internet behind them, in virtual time.

mod support;

use heddle_proto::cell::stream::EndReason;
use heddle_proto::origin::ExchangeState;
use heddle_proto::relay::{Control, Event, ProbeHop};
use heddle_proto::time::Duration;
use heddle_sim::{TraceHash, Wire};
use support::{Net, Plan, download, pattern_sha256, upload};

const MB: u64 = 1_000_000;
const LONG: Duration = Duration::from_secs(600);

fn is_over(status: &heddle_proto::origin::ExchangeStatus) -> bool {
    matches!(status.state, ExchangeState::Ended(_) | ExchangeState::Lost(_))
}

/// Downloads and uploads over three relays.
fn transfer(plan: &Plan, bytes: u64, congestion_control: bool) -> (Duration, TraceHash) {
    let mut net = Net::new(plan);
    let circuit = net.build(&[0, 1, 2], congestion_control);
    let down = net.begin(circuit, download(bytes));
    let status = net.await_status(down, LONG, is_over);
    assert_eq!(status.state, ExchangeState::Ended(EndReason::DONE));
    assert_eq!(status.received_bytes, bytes);
    assert_eq!(status.received_sha256, pattern_sha256(bytes));

    let up = net.begin(circuit, upload(bytes));
    let status = net.await_status(up, LONG, |status| status.received_bytes == 32);
    assert_eq!(status.received_head, pattern_sha256(bytes));
    (net.sim.now().since(heddle_proto::time::Instant::ZERO), net.sim.trace_hash())
}

#[test]
fn data_goes_both_ways_with_windows() {
    transfer(&Plan::default(), 3 * MB, false);
}

#[test]
fn data_goes_both_ways_with_congestion_control() {
    transfer(&Plan::default(), 3 * MB, true);
}

#[test]
fn data_goes_both_ways_over_wires_that_lose() {
    let wire = Wire { loss_ppm: 10_000, jitter: Duration::from_millis(2), ..Wire::default() };
    transfer(&Plan { wire, ..Plan::default() }, MB, false);
    transfer(&Plan { wire, ..Plan::default() }, MB, true);
}

#[test]
fn one_seed_makes_one_trace() {
    let wire = Wire { loss_ppm: 5_000, jitter: Duration::from_millis(2), ..Wire::default() };
    let run = |seed| transfer(&Plan { seed, wire, ..Plan::default() }, MB / 2, true).1;
    let hash = run(1);
    assert_eq!(run(1), hash);
    assert_ne!(run(2), hash);
}

#[test]
fn a_relay_finds_itself_reachable() {
    let mut net = Net::new(&Plan::default());
    let hop = |relay: usize| {
        let hop = &net.relays[relay].hop;
        ProbeHop { target: hop.target.clone(), ntor_key: hop.ntor_key }
    };
    let (via, ourselves) = (vec![hop(1), hop(2)], net.relays[0].hop.target.clone());
    let host = net.relays[0].host;
    net.sim.run_for(Duration::from_secs(1));
    net.sim.control(host, 0, Control::ProbeReachability { via, ourselves });
    net.sim.run_for(Duration::from_secs(5));
    let events: Vec<_> =
        net.sim.events().iter().filter(|event| event.1 == host).map(|event| &event.2).collect();
    assert!(events.contains(&&Event::Reachable), "{events:?}");
    assert!(!events.contains(&&Event::ProbeFailed), "{events:?}");
    assert_eq!(net.circuits(0, 0), 0);
}
