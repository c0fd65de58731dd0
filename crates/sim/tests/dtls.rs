//! Relays that put their circuits on tcp-dtls, whole and in virtual time.

mod support;

use heddle_netem::{DirectionOptions, Jitter, Loss, Reorder};
use heddle_proto::origin::{CircuitNumber, ExchangeState, ExchangeStatus};
use heddle_proto::relay::Event;
use heddle_proto::time::Duration;
use heddle_sim::{TraceHash, Wire};
use support::{Net, Plan, download, pattern_sha256, upload};

const MB: u64 = 1_000_000;
const LONG: Duration = Duration::from_secs(600);

fn is_over(status: &ExchangeStatus) -> bool {
    matches!(status.state, ExchangeState::Ended(_) | ExchangeState::Lost(_))
}

/// Relays that all speak tcp-dtls, after a circuit over TLS made them find each other.
fn paired(plan: &Plan) -> Net {
    let mut net = Net::new(&Plan { dtls: (0..plan.shards.len()).collect(), ..plan.clone() });
    let first = net.build(&[0, 1, 2], false);
    net.sim.run_for(Duration::from_secs(2));
    net.proxy(|proxy| proxy.close_circuit(first));
    net
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

fn over(net: &mut Net, transport: &str) -> u64 {
    net.cells_out_over(1, transport)
}

#[test]
fn circuits_between_relays_that_speak_it_go_on_tcp_dtls() {
    let mut net = paired(&Plan::default());
    let circuit = net.build(&[0, 1, 2], true);
    let before = ["tls", "tcp-dtls"].map(|transport| over(&mut net, transport));
    transfer(&mut net, circuit, MB);
    assert_eq!(over(&mut net, "tls"), before[0], "the middle relay has upgraded neighbours only");
    assert!(over(&mut net, "tcp-dtls") - before[1] > 2 * MB / 509);
}

#[test]
fn a_pair_that_speaks_both_takes_the_preferred_and_has_the_other_ready() {
    let mut net = paired(&Plan { quic: vec![0, 1], ..Plan::default() });
    let circuit = net.build(&[0, 1, 2], true);
    let before = over(&mut net, "quic");
    transfer(&mut net, circuit, MB / 2);
    assert_eq!(over(&mut net, "quic"), before);
    let ready = |event: &Event| matches!(event, Event::ConnectionReady { .. });
    let count = net.sim.events().iter().filter(|(_, _, event)| ready(event)).count();
    assert_eq!(count, 6, "both ends of two connections and of one");
}

#[test]
fn shards_carry_circuits_across() {
    for shards in [vec![2, 2, 2], vec![1, 3, 2]] {
        let mut net = paired(&Plan { shards: shards.clone(), ..Plan::default() });
        let circuits: Vec<_> = (0..4).map(|_| net.build(&[0, 1, 2], true)).collect();
        let downs: Vec<_> = circuits.iter().map(|circuit| net.begin(*circuit, download(MB / 4))).collect();
        for down in downs {
            let status = net.await_status(down, LONG, is_over);
            assert_eq!(status.received_sha256, pattern_sha256(MB / 4), "{shards:?}");
        }
        assert!(over(&mut net, "tcp-dtls") > 0);
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
fn a_dead_path_ends_its_circuits_and_begun_ones_go_over_tls() {
    let mut net = paired(&Plan::default());
    let doomed = net.build(&[0, 1, 2], true);
    let lost = net.begin(doomed, download(50 * MB));
    net.await_status(lost, LONG, |status| status.received_bytes > MB);
    let (a, b) = (net.relays[0].host, net.relays[1].host);
    net.sim.block_datagrams(a, b, true);
    let blocked_at = net.sim.now();
    let begun = net.build(&[0, 1, 2], true);
    let waited = net.sim.now().since(blocked_at);
    assert!(waited < Duration::from_secs(10), "{waited:?}");
    let status = net.await_status(lost, Duration::from_secs(10), is_over);
    assert!(matches!(status.state, ExchangeState::Lost(Some(_))), "{status:?}");
    net.sim.run_for(Duration::from_secs(10));
    assert_eq!(ended(&net), ["path_dead", "path_dead"], "both ends notice");
    transfer(&mut net, begun, MB / 4);
}

#[test]
fn circuits_survive_a_reset_of_tls() {
    let mut net = paired(&Plan::default());
    let circuit = net.build(&[0, 1, 2], true);
    let down = net.begin(circuit, download(4 * MB));
    net.await_status(down, LONG, |status| status.received_bytes > MB);
    for (a, b) in [(0, 1), (1, 2)] {
        let (a, b) = (net.relays[a].host, net.relays[b].host);
        net.sim.reset_streams(a, b);
    }
    let status = net.await_status(down, LONG, is_over);
    assert_eq!(status.received_sha256, pattern_sha256(4 * MB));
    net.sim.run_for(Duration::from_secs(3));
    assert_eq!(net.stats(1).transports[0].links, 2, "TLS was dialled again");
    assert_eq!(ended(&net).len(), 0);
    transfer(&mut net, circuit, MB / 4);
}

#[test]
fn losses_and_reordering_are_borne() {
    let wire = Wire { loss_ppm: 10_000, jitter: Duration::from_millis(4), ..Wire::default() };
    for seed in 0..3 {
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
    let mut net = paired(&Plan::default());
    let (guard, client) = (net.relays[0].host, net.client);
    let circuits: Vec<_> = (0..3).map(|_| net.build(&[0, 1, 2], true)).collect();
    let stuck = Wire { rate_bytes_per_s: Some(1), ..Wire::default() };
    net.sim.set_wire(guard, client, stuck);
    for circuit in &circuits {
        net.begin(*circuit, download(1000 * MB));
    }
    net.sim.run_for(Duration::from_secs(100));
    let longest = (0..3).map(|relay| net.stats(relay).queue_cells_max).collect::<Vec<_>>();
    assert!(longest[0] <= 64 && longest[1] <= 64 && longest[2] <= 300, "{longest:?}");
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
