//! Relays that put their circuits on QUIC, whole and in virtual time.

mod support;

use core::net::SocketAddr;
use heddle_netem::{DirectionOptions, Jitter, Loss, Rate, Reorder};
use heddle_proto::origin::{CircuitNumber, ExchangeState, ExchangeStatus};
use heddle_proto::relay::Event;
use heddle_proto::time::Duration;
use heddle_sim::{TraceHash, Wire};
use std::collections::BTreeSet;
use support::{Net, Plan, download, pattern_sha256, upload};

const MB: u64 = 1_000_000;
const LONG: Duration = Duration::from_secs(600);

fn is_over(status: &ExchangeStatus) -> bool {
    matches!(status.state, ExchangeState::Ended(_) | ExchangeState::Lost(_))
}

/// Three relays that all speak QUIC, after a circuit over TLS made them find each other.
fn paired(plan: &Plan) -> Net {
    let mut net = Net::new(&Plan { quic: (0..plan.shards.len()).collect(), ..plan.clone() });
    let first = net.build(&[0, 1, 2], false);
    net.sim.run_for(Duration::from_secs(2));
    net.proxy(|proxy| proxy.close_circuit(first));
    net
}

fn ready(net: &Net) -> usize {
    net.sim.events().iter().filter(|(_, _, event)| matches!(event, Event::ConnectionReady { .. })).count()
}

fn ended(net: &Net) -> Vec<&'static str> {
    let reason = |event: &Event| match event {
        Event::ConnectionEnded { reason, .. } => Some(*reason),
        _ => None,
    };
    net.sim.events().iter().filter_map(|(_, _, event)| reason(event)).collect()
}

fn transfer(net: &mut Net, circuit: CircuitNumber, bytes: u64) {
    let down = net.begin(circuit, download(bytes));
    let status = net.await_status(down, LONG, is_over);
    assert_eq!(status.received_sha256, pattern_sha256(bytes), "{status:?}");
    let up = net.begin(circuit, upload(bytes));
    let status = net.await_status(up, LONG, |status| status.received_bytes == 32);
    assert_eq!(status.received_head, pattern_sha256(bytes), "{status:?}");
}

#[test]
fn circuits_between_upgraded_relays_go_on_quic() {
    let mut net = paired(&Plan::default());
    assert_eq!(ready(&net), 4, "both ends of both pairs say so");
    let circuit = net.build(&[0, 1, 2], true);
    let before = net.cells_out(1);
    transfer(&mut net, circuit, MB);
    let after = net.cells_out(1);
    let [tls, quic] = [after[0] - before[0], after[1] - before[1]];
    assert_eq!(tls, 0, "the middle relay has upgraded neighbours only");
    assert!(quic > 2 * MB / 509, "{quic} cells");
}

#[test]
fn shards_form_pairs_and_carry_circuits_across() {
    for shards in [vec![2, 2, 2], vec![3, 3, 3], vec![1, 3, 2]] {
        let mut net = paired(&Plan { shards: shards.clone(), ..Plan::default() });
        let second = net.build(&[1, 0, 2], false);
        net.sim.run_for(Duration::from_secs(2));
        net.proxy(|proxy| proxy.close_circuit(second));
        let before = net.cells_out(2);
        let circuits: Vec<_> = (0..4)
            .map(|number| net.build(if number % 2 == 0 { &[0, 1, 2] } else { &[1, 0, 2] }, number > 1))
            .collect();
        let downs: Vec<_> = circuits.iter().map(|circuit| net.begin(*circuit, download(MB / 4))).collect();
        for down in downs {
            let status = net.await_status(down, LONG, is_over);
            assert_eq!(status.received_sha256, pattern_sha256(MB / 4), "{shards:?}");
        }
        // The exit has no client: everything goes to and from upgraded relays.
        let after = net.cells_out(2);
        let [tls, quic] = [after[0] - before[0], after[1] - before[1]];
        assert!(quic > MB / 509 && tls == 0, "{shards:?}: {tls} and {quic} cells");
        for circuit in circuits {
            net.proxy(|proxy| proxy.close_circuit(circuit));
        }
        net.sim.run_for(Duration::from_secs(2));
        for (relay, shards) in shards.iter().enumerate() {
            assert!((0..*shards).all(|shard| net.circuits(relay, shard) == 0), "{shards:?}");
            assert_eq!(net.queued_cells(relay), 0, "{shards:?}");
        }
    }
}

#[test]
fn a_stock_neighbour_is_served_over_tls() {
    let mut net = Net::new(&Plan { quic: vec![0, 1], ..Plan::default() });
    let first = net.build(&[0, 1, 2], false);
    net.sim.run_for(Duration::from_secs(2));
    net.proxy(|proxy| proxy.close_circuit(first));
    assert_eq!(ready(&net), 2);
    let circuit = net.build(&[0, 1, 2], true);
    transfer(&mut net, circuit, MB / 2);
    let [tls, quic] = net.cells_out(1);
    assert!(tls > 1000 && quic > 1000, "{tls} and {quic} cells");
}

#[test]
fn blocked_datagrams_cost_no_time() {
    let build = |quic: Vec<usize>| {
        let mut net = Net::new(&Plan { quic, ..Plan::default() });
        for (a, b) in [(0, 1), (1, 2), (0, 2)] {
            let (a, b) = (net.relays[a].host, net.relays[b].host);
            net.sim.block_datagrams(a, b, true);
        }
        let mut times = Vec::new();
        for _ in 0..5 {
            let begun = net.sim.now();
            net.build(&[0, 1, 2], true);
            times.push(net.sim.now().since(begun));
            net.sim.run_for(Duration::from_secs(7));
        }
        (net, times)
    };
    let (mut net, times) = build(vec![0, 1, 2]);
    assert_eq!(times, build(vec![]).1, "nobody waits for QUIC");
    assert_eq!(ready(&net), 0);
    let fallbacks = net.stats(0).fallbacks;
    assert!(fallbacks["no_answer"] >= 1, "{fallbacks:?}");
}

#[test]
fn tries_go_on_until_datagrams_pass() {
    let mut net = Net::new(&Plan { quic: vec![0, 1, 2], ..Plan::default() });
    let (a, b) = (net.relays[0].host, net.relays[1].host);
    net.sim.block_datagrams(a, b, true);
    let circuit = net.build(&[0, 1, 2], false);
    net.sim.run_for(Duration::from_secs(65));
    assert_eq!(ready(&net), 2, "the other pair");
    net.sim.block_datagrams(a, b, false);
    net.sim.run_for(Duration::from_secs(10));
    assert_eq!(ready(&net), 4, "the third try is within a slot of its own");
    net.proxy(|proxy| proxy.close_circuit(circuit));
}

#[test]
fn a_dead_path_ends_its_circuits_and_begun_ones_go_over_tls() {
    let mut net = paired(&Plan::default());
    let doomed = net.build(&[0, 1, 2], true);
    let lost = net.begin(doomed, download(50 * MB));
    net.await_status(lost, LONG, |status| status.received_bytes > MB);
    let (a, b) = (net.relays[0].host, net.relays[1].host);
    net.sim.block_datagrams(a, b, true);
    let blocked_at = net.sim.now();
    // Its second CREATE2 goes on a flow that leads nowhere, which nobody knows yet.
    let begun = net.build(&[0, 1, 2], true);
    let waited = net.sim.now().since(blocked_at);
    assert!(waited < Duration::from_secs(10), "{waited:?}");
    assert_eq!(net.stats(0).fallbacks.get("create_again"), Some(&1));
    let status = net.await_status(lost, Duration::from_secs(10), is_over);
    assert!(matches!(status.state, ExchangeState::Lost(Some(_))), "{status:?}");
    net.sim.run_for(Duration::from_secs(10));
    assert_eq!(ended(&net), ["path_dead", "path_dead"], "both ends notice");
    transfer(&mut net, begun, MB / 2);
    // The other pair is as it was, and this one comes back once it can.
    net.sim.block_datagrams(a, b, false);
    net.sim.run_for(Duration::from_secs(60));
    assert_eq!(ready(&net), 6);
    let circuit = net.build(&[0, 1, 2], false);
    let before = net.cells_out(1);
    transfer(&mut net, circuit, MB / 4);
    assert_eq!(net.cells_out(1)[0], before[0]);
}

#[test]
fn circuits_on_quic_survive_a_reset_of_tls() {
    let mut net = paired(&Plan::default());
    let circuit = net.build(&[0, 1, 2], true);
    let down = net.begin(circuit, download(4 * MB));
    net.await_status(down, LONG, |status| status.received_bytes > MB);
    for (a, b) in [(0, 1), (1, 2)] {
        let (a, b) = (net.relays[a].host, net.relays[b].host);
        net.sim.reset_streams(a, b);
    }
    let links = |net: &mut Net| net.stats(1).transports[0].links;
    net.sim.run_for(Duration::from_millis(100));
    assert_eq!(links(&mut net), 0, "both channels of the middle relay are gone");
    let status = net.await_status(down, LONG, is_over);
    assert_eq!(status.received_sha256, pattern_sha256(4 * MB));
    net.sim.run_for(Duration::from_secs(3));
    assert_eq!(links(&mut net), 2, "TLS was dialled again");
    assert_eq!((ready(&net), ended(&net).len()), (4, 0), "the connections serve the new channels");
    transfer(&mut net, circuit, MB / 4);
}

#[test]
fn losses_and_reordering_are_borne() {
    let wire = Wire { loss_ppm: 10_000, jitter: Duration::from_millis(4), ..Wire::default() };
    for seed in 0..5 {
        let mut net = paired(&Plan { seed, wire, ..Plan::default() });
        for (a, b) in [(0, 1), (1, 2)] {
            let (a, b) = (net.relays[a].host, net.relays[b].host);
            net.sim.set_wire(a, b, rough());
        }
        let circuit = net.build(&[0, 1, 2], seed % 2 == 0);
        transfer(&mut net, circuit, MB / 2);
        assert_eq!(ended(&net).len(), 0);
    }
}

/// A wire that loses, delays, duplicates and reorders.
fn rough() -> DirectionOptions {
    DirectionOptions {
        delay_ns: 10_000_000,
        jitter: Jitter::Exponential { mean_ns: 2_000_000 },
        jitter_reorders: true,
        loss: Loss::Bernoulli { probability: 0.01 },
        reorder: Some(Reorder { probability: 0.05, hold_ns: 20_000_000 }),
        duplicate: 0.01,
        ..DirectionOptions::default()
    }
}

#[test]
fn a_reader_that_stops_for_good_fills_no_queue() {
    // The client's own wire passes next to nothing, so its guard has nowhere to put what comes.
    for congestion_control in [false, true] {
        let mut net = paired(&Plan::default());
        let (guard, client) = (net.relays[0].host, net.client);
        let circuits: Vec<_> = (0..3).map(|_| net.build(&[0, 1, 2], congestion_control)).collect();
        let stuck = Wire { rate_bytes_per_s: Some(1), ..Wire::default() };
        net.sim.set_wire(guard, client, stuck);
        for circuit in &circuits {
            net.begin(*circuit, download(1000 * MB));
        }
        net.sim.run_for(Duration::from_secs(100));
        let longest = (0..3).map(|relay| net.stats(relay).queue_cells_max).collect::<Vec<_>>();
        // Towards the client 64 cells wait for each circuit at the guard and at the middle relay; at the exit, which then
        // does not read from the server, 128 and what one read adds.
        assert!(longest[0] <= 64 && longest[1] <= 64 && longest[2] <= 300, "{longest:?}");
    }
}

#[test]
fn one_seed_makes_one_trace() {
    let run = |seed| -> TraceHash {
        let wire = Wire { loss_ppm: 5_000, jitter: Duration::from_millis(2), ..Wire::default() };
        let mut net = paired(&Plan { seed, wire, shards: vec![1, 2, 1], ..Plan::default() });
        let circuit = net.build(&[0, 1, 2], true);
        transfer(&mut net, circuit, MB / 4);
        net.sim.trace_hash()
    };
    let hash = run(1);
    assert_eq!(run(1), hash);
    assert_ne!(run(2), hash);
}

/// Bytes that six circuits get in five seconds over 10 Mbit/s between two relays, of whose packets one in a hundred is lost.
fn six_downloads(quic: Vec<usize>) -> u64 {
    let mut net = Net::new(&Plan { quic, ..Plan::default() });
    let loss = Loss::Bernoulli { probability: 0.01 };
    let rate = Rate::BitsPerS(10_000_000);
    let wire = DirectionOptions { rate, delay_ns: 30_000_000, loss, ..DirectionOptions::default() };
    net.sim.set_wire(net.relays[0].host, net.relays[1].host, wire);
    net.build(&[0, 1, 2], false);
    net.sim.run_for(Duration::from_secs(2));
    let circuits: Vec<_> = (0..6).map(|_| net.build(&[0, 1, 2], true)).collect();
    let downs: Vec<_> = circuits.iter().map(|circuit| net.begin(*circuit, download(1000 * MB))).collect();
    let received = |net: &mut Net| downs.iter().map(|down| net.status(*down).received_bytes).sum::<u64>();
    // Slow start is over then.
    net.sim.run_for(Duration::from_secs(3));
    let begun = received(&mut net);
    net.sim.run_for(Duration::from_secs(5));
    received(&mut net) - begun
}

#[test]
fn lost_packets_cost_tls_what_they_do_not_cost_quic() {
    let (tls, quic) = (six_downloads(vec![]), six_downloads(vec![0, 1, 2]));
    assert!(quic > 4 * MB, "{quic} bytes, where 6 MB fit on the wire");
    assert!(tls < quic / 2, "{tls} bytes over one TCP connection, {quic} over six flows");
}

#[test]
fn nothing_is_closed_for_want_of_use_while_a_circuit_lives() {
    let mut net = paired(&Plan::default());
    let circuit = net.build(&[0, 1, 2], true);
    net.sim.run_for(Duration::from_secs(1800));
    let between = |event: &Event| matches!(event, Event::ChannelOpened { .. } | Event::ChannelClosed { .. });
    let changes = net.sim.events().iter().filter(|(_, _, event)| between(event)).count();
    assert_eq!((changes, ended(&net).len()), (4, 0), "both ends of two channels opened, and no more");
    transfer(&mut net, circuit, MB / 10);
    net.proxy(|proxy| proxy.close_circuit(circuit));
    net.sim.run_for(Duration::from_secs(1800));
    assert_eq!(ended(&net).len(), 4, "without circuits everything closes");
    assert_eq!(net.stats(1).transports[0].links, 0);
}

#[test]
fn a_new_key_each_day_costs_no_circuit_and_no_pair() {
    let mut net = paired(&Plan::default());
    let circuit = net.build(&[0, 1, 2], true);
    net.sim.run_for(Duration::from_secs(25 * 3600));
    transfer(&mut net, circuit, MB / 10);
    assert_eq!((ready(&net), ended(&net).len()), (4, 0));
    // The channels are a day old, and still good for another connection.
    let (a, b) = (net.relays[0].host, net.relays[1].host);
    net.sim.block_datagrams(a, b, true);
    net.sim.run_for(Duration::from_secs(60));
    net.sim.block_datagrams(a, b, false);
    net.sim.run_for(Duration::from_secs(90));
    assert_eq!((ready(&net), ended(&net).len()), (6, 2));
}

/// What can be told apart on the wire between two relays that carry so many circuits: addresses and connection ids.
fn seen_on_the_wire(circuits: usize) -> (BTreeSet<(SocketAddr, SocketAddr)>, BTreeSet<Vec<u8>>) {
    /// The connection id, twelve bytes, stands behind the first byte of a short header.
    const ID: core::ops::Range<usize> = 1..13;
    let mut net = paired(&Plan::default());
    let (a, b) = (net.relays[0].host, net.relays[1].host);
    net.sim.tap_datagrams(a, b);
    for _ in 0..circuits {
        let circuit = net.build(&[0, 1, 2], false);
        let down = net.begin(circuit, download(20_000));
        net.await_status(down, LONG, is_over);
        net.proxy(|proxy| proxy.close_circuit(circuit));
    }
    let tapped = net.sim.tap_datagrams(a, b);
    assert!(tapped.iter().all(|datagram| datagram.data[0] & 0xC0 == 0x40), "short headers only");
    let ends = tapped.iter().map(|datagram| (datagram.from, datagram.to)).collect();
    (ends, tapped.iter().map(|datagram| datagram.data[ID].to_vec()).collect())
}

#[test]
fn the_wire_shows_one_connection_however_many_circuits_come_and_go() {
    for circuits in [1, 20] {
        let (ends, ids) = seen_on_the_wire(circuits);
        assert_eq!((ends.len(), ids.len()), (2, 2), "one of each in each direction, {circuits} circuits");
    }
}
