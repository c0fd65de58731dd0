//! Relays on the way neither repeat nor reorder, and the client and the exit have a TCP connection with each other.

use super::transport::Transport;
use heddle_client::{ExchangeState, OnionProxy, ProxyEvent};
use heddle_network::{Net, Plan, download, pattern_sha256, upload};
use heddle_proto::cell::stream::EndReason;
use heddle_seam::time::Duration;
use heddle_sim::{TraceHash, Wire};

const LONG: Duration = Duration::from_secs(600);
const MB: u64 = 1_000_000;

/// Relays that allow it, over this transport between each other.
fn network(plan: &Plan, over: &str) -> Net {
    let mut plan = plan.clone();
    plan.torrc.heddle.forward_datagrams = true;
    let mut net = match over {
        "tls" => Net::new(&plan),
        over => Transport::named(over).paired(&plan),
    };
    net.proxy(|proxy| proxy.forward_datagrams(true));
    net
}

#[derive(Debug)]
struct Done {
    down_s: f64,
    up_s: f64,
    retransmissions: u64,
    /// The most cells that ever waited on a lane, by relay.
    queue_cells_max: [u64; 3],
    trace: TraceHash,
}

/// Downloads and uploads, and looks at each byte.
fn transfer(net: &mut Net, bytes: u64) -> Done {
    transfer_by(net, bytes, true)
}

/// With congestion control of the circuit, or with windows of 1000 cells.
fn transfer_by(net: &mut Net, bytes: u64, congestion_control: bool) -> Done {
    let circuit = net.build(&[0, 1, 2], congestion_control);
    let down = net.begin(circuit, download(bytes));
    let over = net.await_status(down, LONG, |status| {
        matches!(status.state, ExchangeState::Ended(_) | ExchangeState::Lost(_))
    });
    assert_eq!(over.state, ExchangeState::Ended(EndReason::DONE));
    assert_eq!(over.received_sha256, pattern_sha256(bytes), "{} bytes", over.received_bytes);
    let up = net.begin(circuit, upload(bytes));
    let answered = net.await_status(up, LONG, |status| status.received_bytes == 32);
    assert_eq!(answered.received_head, pattern_sha256(bytes));
    let took = |at: Option<heddle_seam::time::Instant>, since| at.map(|at| at.since(since).as_secs_f64());
    let sessions = net.proxy(|proxy| proxy.circuit(circuit).and_then(|circuit| circuit.session_stats()));
    let session = sessions.expect("its cells are datagrams");
    assert!(session.sent_cells > bytes / 500 && session.received_cells > bytes / 500, "{session:?}");
    Done {
        down_s: took(over.ended_at, over.begun_at).expect("it is over"),
        up_s: took(answered.first_byte_at, answered.begun_at).expect("it was answered"),
        retransmissions: session.retransmissions,
        queue_cells_max: [0, 1, 2].map(|relay| net.stats(relay).queue_cells_max),
        trace: net.sim.trace_hash(),
    }
}

#[test]
fn bytes_go_both_ways_over_channels_that_lose_nothing() {
    let done = transfer(&mut network(&Plan::default(), "tls"), 2 * MB);
    println!("{done:?}");
    assert_eq!(done.retransmissions, 0);
}

#[test]
fn bytes_go_both_ways_over_quic_and_across_shards() {
    let plan = Plan { shards: vec![2, 2, 2], ..Plan::default() };
    let mut crossings = 0;
    for over in ["tls", "quic", "tcp-dtls"] {
        let mut net = network(&plan, over);
        // The relays dial each other, so that they have channels in both shards.
        net.build(&[1, 0, 2], true);
        transfer(&mut net, MB);
        // A circuit that crosses counts in both shards; two pass each relay.
        let counted = (0..3).flat_map(|relay| [(relay, 0), (relay, 1)]);
        crossings += counted.map(|(relay, shard)| net.circuits(relay, shard)).sum::<usize>() - 6;
        println!("{over}: {crossings} so far");
    }
    assert!(crossings > 0, "no circuit crosses");
}

/// Between relays a hundredth of the packets is lost: the client and the exit mend it.
#[test]
fn the_ends_mend_what_wires_lose() {
    for seed in [1, 2] {
        let mut net = network(&Plan { seed, ..Plan::default() }, "tcp-dtls");
        for (one, other) in [(0, 1), (1, 2)] {
            let (one, other) = (net.relays[one].host, net.relays[other].host);
            net.sim.lose_datagrams(one, other, 10_000);
        }
        let before = net.cells_out_over(1, "tcp-dtls");
        let done = transfer(&mut net, 2 * MB);
        assert!(net.cells_out_over(1, "tcp-dtls") - before > 8_000, "they went over the session");
        println!("{done:?}");
        assert!(done.retransmissions > 10, "{done:?}");
        assert!(done.up_s > 0.5 && done.down_s > 0.5, "no byte is faster than the wires: {done:?}");
    }
}

#[test]
fn one_seed_makes_one_trace() {
    let wire = Wire { loss_ppm: 5_000, jitter: Duration::from_millis(2), ..Wire::default() };
    let plan = Plan { wire, ..Plan::default() };
    let [one, other] = [(); 2].map(|()| transfer(&mut network(&plan, "tcp-dtls"), MB / 2).trace);
    assert_eq!(one, other);
}

/// A slow wire in the middle: what is too much is dropped there, as by a router, and the ends slow down. Nothing waits
/// in relays.
#[test]
fn a_slow_wire_is_filled_and_no_queue_grows_with_it() {
    let mut net = network(&Plan::default(), "tcp-dtls");
    let (middle, exit) = (net.relays[1].host, net.relays[2].host);
    let rate = 1 << 20;
    net.sim.set_wire(middle, exit, Wire { rate_bytes_per_s: Some(rate), ..Wire::default() });
    let done = transfer(&mut net, 6 * MB);
    println!("{done:?}");
    // A cell of 448 bytes of messages is 513 in a packet, of which two have some 90 bytes of heads and framing.
    let used = 6.0 * MB as f64 / done.down_s / rate as f64 * 558.0 / 440.0;
    assert!((0.7..=1.0).contains(&used), "{used:.2} of the wire, {done:?}");
    assert!(done.queue_cells_max[1] <= 32, "{done:?}");
}

/// A guard that passes on less than comes drops what is too much, at its bound.
#[test]
fn a_slow_guard_drops_what_is_too_much() {
    let mut net = network(&Plan { slow: Some((0, 400 << 10)), ..Plan::default() }, "tcp-dtls");
    let done = transfer_by(&mut net, 6 * MB, false);
    println!("{done:?}, dropped {}", net.stats(0).dropped_datagrams);
    assert!(net.stats(0).dropped_datagrams > 0);
    assert_eq!(done.queue_cells_max[0], 128);
}

/// Where an operator does not allow it, nobody answers, and what was built stays as it is.
#[test]
fn relays_that_do_not_allow_it_say_nothing() {
    let mut net = Net::new(&Plan::default());
    net.proxy(|proxy| proxy.forward_datagrams(true));
    let path = net.path(&[0, 1, 2], true);
    let circuit = net.proxy(|proxy: &mut OnionProxy| proxy.build(path)).expect("the path has relays");
    net.sim.run_for(Duration::from_secs(30));
    assert_eq!(net.proxy(OnionProxy::take_events), vec![ProxyEvent::Begun(circuit)]);
    let hops = net
        .proxy(|proxy| proxy.circuit(circuit).map(|circuit| (circuit.hops(), circuit.forwards_datagrams())));
    assert_eq!(hops, Some((3, false)));
}
