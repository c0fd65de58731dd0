//! Relays that start with nothing but the line of an authority, in virtual time.

use heddle_client::{ExchangeState, OnionProxy, ProxyEvent};
use heddle_dir::files::Files;
use heddle_network::authority::Authority;
use heddle_network::whole::{WholeNet, WholePlan};
use heddle_network::{download, pattern_sha256};
use heddle_proto::cell::stream::EndReason;
use heddle_seam::time::{Duration, Instant};
use heddle_sim::TraceHash;
use std::path::Path;

const LONG: Duration = Duration::from_secs(1800);
const BYTES: u64 = 300_000;

/// How many relays have published.
fn published(net: &mut WholeNet) -> usize {
    let authority = net.authority;
    net.sim.with(authority, 0, |authority: &mut Authority, _| authority.published())
}

/// Lets time pass until every relay knows of so many, and says when that was.
fn await_known(net: &mut WholeNet, wanted: usize) -> Duration {
    // What relays know changes with what directories send, so asking now and then is enough.
    while net.sim.now().since(Instant::ZERO) < LONG {
        net.sim.run_for(Duration::from_secs(1));
        let relays = 0..net.relays.len();
        if relays.map(|relay| net.known(relay).len()).all(|known| known == wanted) {
            return net.sim.now().since(Instant::ZERO);
        }
    }
    panic!("after {LONG:?} relays do not know of {wanted}, and {} have published", published(net));
}

fn await_built(net: &mut WholeNet, relays: &[usize]) -> heddle_client::CircuitNumber {
    let path = net.path(relays).expect("the consensus lists them");
    let client = net.client;
    let number = net.sim.with(client, 0, |proxy: &mut OnionProxy, _| proxy.build(path)).unwrap();
    let mut seen = Vec::new();
    let built = net.sim.run_until(Duration::from_secs(60), |sim| {
        seen.extend(sim.with(client, 0, |proxy: &mut OnionProxy, _| proxy.take_events()));
        seen.contains(&ProxyEvent::Built(number))
    });
    assert!(built, "{seen:?}");
    number
}

/// A network that comes up from nothing and carries a file: when all relays knew of all, and the hash of all that happened.
fn bootstrap(plan: &WholePlan) -> (WholeNet, Duration, TraceHash) {
    let mut net = WholeNet::new(plan);
    let took = await_known(&mut net, plan.shards.len());
    let last = plan.shards.len() - 1;
    let circuit = await_built(&mut net, &[0, 1, last]);
    let client = net.client;
    let begin = |proxy: &mut OnionProxy, now| proxy.begin(now, circuit, download(BYTES));
    let exchange = net.sim.with(client, 0, begin).unwrap();
    let mut status = None;
    net.sim.run_until(Duration::from_secs(120), |sim| {
        status = sim.with(client, 0, |proxy: &mut OnionProxy, _| proxy.status(exchange));
        status.as_ref().is_some_and(|status| status.state == ExchangeState::Ended(EndReason::DONE))
    });
    let status = status.expect("the exchange was begun");
    assert_eq!(status.received_sha256, pattern_sha256(BYTES), "{status:?}");
    let hash = net.sim.trace_hash();
    (net, took, hash)
}

#[test]
fn a_network_comes_up_from_nothing_and_twice_the_same() {
    let plan = WholePlan { shards: vec![1, 2, 1], ..WholePlan::default() };
    let (mut net, took, hash) = bootstrap(&plan);
    assert!(took < Duration::from_secs(180), "{took:?}");
    for relay in 0..plan.shards.len() {
        let facts = net.control(relay, |control| control.facts.clone());
        assert_eq!(facts.relays, 3);
        assert!(facts.flags.is_some_and(|flags| flags.fast && !flags.authority), "the consensus lists it");
        let kept = net.relays[relay].files.read(Path::new("data/cached-microdesc-consensus"), 1 << 20);
        assert!(kept.unwrap().is_some_and(|text| text.starts_with(b"network-status-version 3 microdesc")));
    }
    assert_eq!(bootstrap(&plan).2, hash);
    assert_ne!(bootstrap(&WholePlan { seed: 2, ..plan }).2, hash);
}

#[test]
fn a_relay_that_finds_itself_reached_publishes_then_and_not_before() {
    let plan = WholePlan { shards: vec![1, 1, 1, 1], unsure: vec![1], ..WholePlan::default() };
    let (mut net, _, _) = bootstrap(&plan);
    assert_eq!(published(&mut net), 4);

    let mut net = WholeNet::new(&plan);
    net.sim.run_for(plan.interval);
    assert_eq!(published(&mut net), 3, "before there is a consensus nobody can have reached it");

    let mut net = WholeNet::new(&WholePlan { unreachable: vec![1], ..plan });
    net.sim.run_for(Duration::from_secs(600));
    assert_eq!(published(&mut net), 3, "it is never reached");
    assert_eq!(net.known(1).len(), 3, "though it follows the consensus");
}

#[test]
fn relays_of_a_consensus_move_circuits_to_flows_by_themselves() {
    let (mut net, ..) = bootstrap(&WholePlan::default());
    // The first circuit had them meet; those that come later find a connection.
    net.sim.run_for(Duration::from_secs(5));
    await_built(&mut net, &[0, 1, 2]);
    let host = net.relays[0].host;
    let shard = |node: &mut heddle_network::whole::ShardNode, _| node.relay.stats();
    let stats = net.sim.with(host, 0, shard);
    let quic = stats.transports.iter().find(|of| of.name == "quic").expect("it speaks QUIC");
    assert!(quic.cells_out > 0, "{quic:?}");
}

#[test]
fn what_was_carried_shows_in_the_next_descriptor() {
    let plan = WholePlan { interval: Duration::from_secs(300), ..WholePlan::default() };
    let (mut net, ..) = bootstrap(&plan);
    let observed = |net: &mut WholeNet| {
        let authority = net.authority;
        net.sim.with(authority, 0, |authority: &mut Authority, _| authority.bandwidths())
    };
    let before = observed(&mut net);
    net.sim.run_for(Duration::from_secs(120));
    let after = observed(&mut net);
    assert!(before.iter().all(|rate| *rate == 0), "{before:?}");
    assert!(after.iter().all(|rate| *rate > 10), "{after:?} kB/s, of 300 kB in a few seconds");
}
