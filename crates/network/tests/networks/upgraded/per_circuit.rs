//! What is particular to a QUIC connection for each circuit.

use super::{LONG, MB, Transport, assert_unused, close_all, find_each_other, is_over, ready};
use heddle_client::ExchangeState;
use heddle_netem::{DirectionOptions, Loss};
use heddle_network::{Plan, download, pattern_sha256};
use heddle_seam::time::Duration;

fn per_circuit() -> Transport {
    Transport::named("quic-per-circuit")
}

#[test]
fn circuits_of_several_shards_go_over_connections_of_their_own() {
    let shards = vec![1, 2, 2];
    let mut net = per_circuit().paired(&Plan { shards: shards.clone(), ..Plan::default() });
    // The other shards find each other with circuits of their own.
    find_each_other(&mut net, &[1, 0, 2]);
    let lossy = DirectionOptions {
        delay_ns: 10_000_000,
        loss: Loss::Bernoulli { probability: 0.01 },
        ..DirectionOptions::default()
    };
    let (a, b) = (net.relays[0].host, net.relays[1].host);
    net.sim.set_wire(a, b, lossy);
    for _ in 0..2 {
        let before = net.cells_out_over(1, per_circuit().name());
        let circuits: Vec<_> = (0..8).map(|number| net.build(&[0, 1, 2], number % 2 == 0)).collect();
        let begin = |circuit: &_| net.begin(*circuit, download(MB / 8));
        let downs: Vec<_> = circuits.iter().map(begin).collect();
        for down in downs {
            let status = net.await_status(down, LONG, is_over);
            assert_eq!(status.received_sha256, pattern_sha256(MB / 8), "{shards:?}");
        }
        assert!(net.cells_out_over(1, per_circuit().name()) - before > MB / 509, "{shards:?}");
        close_all(&mut net, circuits);
    }
    assert_unused(&mut net, &shards);
}

#[test]
fn a_dead_path_ends_the_pair_and_it_comes_back() {
    let mut net = per_circuit().paired(&Plan::default());
    assert_eq!(ready(&net), 4, "however many connections there are, pairs are ready once");
    let doomed = net.build(&[0, 1, 2], true);
    let lost = net.begin(doomed, download(50 * MB));
    net.await_status(lost, LONG, |status| status.received_bytes > MB);
    let (a, b) = (net.relays[0].host, net.relays[1].host);
    net.sim.block_datagrams(a, b, true);
    let status = net.await_status(lost, Duration::from_secs(20), is_over);
    assert!(matches!(status.state, ExchangeState::Lost(Some(_))), "{status:?}");
    net.sim.run_for(Duration::from_secs(80));
    net.sim.block_datagrams(a, b, false);
    net.sim.run_for(Duration::from_secs(60));
    assert_eq!(ready(&net), 6);
    let circuit = net.build(&[0, 1, 2], false);
    let tls = net.cells_out_over(1, "tls");
    let down = net.begin(circuit, download(MB / 4));
    let status = net.await_status(down, LONG, is_over);
    assert_eq!(status.received_sha256, pattern_sha256(MB / 4));
    assert_eq!(net.cells_out_over(1, "tls"), tls);
}
