//! What holds over QUIC, over tcp-dtls, over tcp-esp and over sctp-dtls alike.

use super::{
    LONG, MB, Transport, assert_unused, close_all, ended, find_each_other, is_over, ready, transfer,
};
use core::net::SocketAddr;
use heddle_client::{ExchangeState, Handshake, Hop, OnionProxy, ProxyEvent};
use heddle_netem::{DirectionOptions, Jitter, Loss, Rate, Reorder};
use heddle_network::{FIRST_UDP_PORT, Net, Plan, add_client, download, pattern_sha256};
use heddle_proto::params::NetworkParams;
use heddle_relay::Event;
use heddle_seam::time::Duration;
use heddle_sim::{Flood, HostId, TraceHash, Wire};
use std::collections::{BTreeMap, BTreeSet};

/// Each of these over each, as a test of its own.
macro_rules! over_each {
    ($($test:ident),* $(,)?) => {
        mod quic {
            $(#[test] fn $test() { super::$test(super::Transport::named("quic")); })*
        }
        mod dtls {
            $(#[test] fn $test() { super::$test(super::Transport::named("tcp-dtls")); })*
        }
        mod sctp {
            $(#[test] fn $test() { super::$test(super::Transport::named("sctp-dtls")); })*
        }
        mod esp {
            $(#[test] fn $test() { super::$test(super::Transport::named("tcp-esp")); })*
        }
    };
}

over_each! {
    circuits_between_upgraded_relays_leave_tls,
    shards_form_pairs_and_carry_circuits_across,
    a_stock_neighbour_is_served_over_tls,
    blocked_datagrams_cost_no_time,
    tries_go_on_until_datagrams_pass,
    a_path_that_is_gone_for_20_s_ends_no_circuit_and_new_ones_go_over_tls,
    a_flood_of_20_s_at_a_port_ends_no_circuit,
    a_flood_that_fills_its_buffer_costs_a_pair_what_is_told,
    whoever_fills_a_neighbours_queue_of_onionskins_moves_no_circuit_to_tls,
    a_dead_path_ends_its_circuits_and_begun_ones_go_over_tls,
    circuits_survive_a_reset_of_tls,
    a_neighbour_that_ends_takes_its_circuits_along_within_seconds,
    losses_and_reordering_are_borne,
    a_reader_that_stops_for_good_fills_no_queue,
    a_reader_that_stops_for_good_fills_its_window_and_no_more,
    one_seed_makes_one_trace,
    lost_packets_cost_tls_more,
    nothing_is_closed_for_want_of_use_while_a_circuit_lives,
    a_new_key_each_day_costs_no_circuit_and_no_pair,
    the_wire_shows_one_connection_however_many_circuits_come_and_go,
    a_slow_relay_carries_what_its_operator_allows,
}

fn circuits_between_upgraded_relays_leave_tls(over: Transport) {
    let mut net = over.paired(&Plan::default());
    assert_eq!(ready(&net), 4, "both ends of both pairs say so");
    let circuit = net.build(&[0, 1, 2], true);
    let before = over.cells_out(&mut net, 1);
    transfer(&mut net, circuit, MB);
    let after = over.cells_out(&mut net, 1);
    let [tls, datagrams] = [after[0] - before[0], after[1] - before[1]];
    assert_eq!(tls, 0, "the middle relay has upgraded neighbours only");
    assert!(datagrams > 2 * MB / 509, "{datagrams} cells");
}

fn shards_form_pairs_and_carry_circuits_across(over: Transport) {
    for shards in [vec![2, 2, 2], vec![3, 3, 3], vec![1, 3, 2]] {
        let mut net = over.paired(&Plan { shards: shards.clone(), ..Plan::default() });
        find_each_other(&mut net, &[1, 0, 2]);
        let before = over.cells_out(&mut net, 2);
        let circuits: Vec<_> = (0..4)
            .map(|number| net.build(if number % 2 == 0 { &[0, 1, 2] } else { &[1, 0, 2] }, number > 1))
            .collect();
        let downs: Vec<_> = circuits.iter().map(|circuit| net.begin(*circuit, download(MB / 4))).collect();
        for down in downs {
            let status = net.await_status(down, LONG, is_over);
            assert_eq!(status.received_sha256, pattern_sha256(MB / 4), "{shards:?}");
        }
        // The exit has no client: everything goes to and from upgraded relays.
        let after = over.cells_out(&mut net, 2);
        let [tls, datagrams] = [after[0] - before[0], after[1] - before[1]];
        assert!(datagrams > MB / 509 && tls == 0, "{shards:?}: {tls} and {datagrams} cells");
        close_all(&mut net, circuits);
        assert_unused(&mut net, &shards);
    }
}

fn a_stock_neighbour_is_served_over_tls(over: Transport) {
    let mut net = over.paired_among(&[0, 1], &Plan::default());
    assert_eq!(ready(&net), 2);
    let circuit = net.build(&[0, 1, 2], true);
    transfer(&mut net, circuit, MB / 2);
    let [tls, datagrams] = over.cells_out(&mut net, 1);
    assert!(tls > 1000 && datagrams > 1000, "{tls} and {datagrams} cells");
}

fn blocked_datagrams_cost_no_time(over: Transport) {
    let build = |upgraded: &[usize]| {
        let mut net = Net::new(&over.among(upgraded, &Plan::default()));
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
    let (mut net, times) = build(&[0, 1, 2]);
    assert_eq!(times, build(&[]).1, "nobody waits for datagrams");
    assert_eq!(ready(&net), 0);
    let fallbacks = net.stats(0).fallbacks;
    assert!(fallbacks["no_answer"] >= 1, "{fallbacks:?}");
}

fn tries_go_on_until_datagrams_pass(over: Transport) {
    let mut net = Net::new(&over.among(&[0, 1, 2], &Plan::default()));
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

fn a_path_that_is_gone_for_20_s_ends_no_circuit_and_new_ones_go_over_tls(over: Transport) {
    let mut net = over.paired(&Plan::default());
    let circuit = net.build(&[0, 1, 2], true);
    let idle = net.build(&[0, 1, 2], true);
    let down = net.begin(circuit, download(10 * MB));
    net.await_status(down, LONG, |status| status.received_bytes > MB);
    let (a, b) = (net.relays[0].host, net.relays[1].host);
    net.sim.block_datagrams(a, b, true);
    let end = net.sim.now() + Duration::from_secs(20);
    // The first waits until the path is suspect, later ones take what they do over TLS.
    let mut times = Vec::new();
    for _ in 0..4 {
        let begun = net.sim.now();
        let new = net.build(&[0, 1, 2], true);
        times.push(net.sim.now().since(begun));
        transfer(&mut net, new, MB / 100);
    }
    let at_once = times[1..].iter().all(|time| *time < Duration::from_secs(1));
    assert!(times[0] < Duration::from_secs(6) && at_once, "{times:?}");
    assert_eq!(net.stats(0).fallbacks.get("suspect"), Some(&1));
    net.sim.run_for(end.since(net.sim.now()));
    net.sim.block_datagrams(a, b, false);
    let status = net.await_status(down, Duration::from_secs(30), is_over);
    assert_eq!(status.received_sha256, pattern_sha256(10 * MB), "{status:?}");
    transfer(&mut net, idle, MB / 100);
    assert_eq!((ready(&net), ended(&net).len()), (4, 0));
    // New circuits take flows again, once the path has answered for a while.
    net.sim.run_for(Duration::from_secs(5));
    let before = net.cells_out_over(1, "tls");
    let new = net.build(&[0, 1, 2], true);
    transfer(&mut net, new, MB / 4);
    assert_eq!(net.cells_out_over(1, "tls"), before);
}

fn a_flood_of_20_s_at_a_port_ends_no_circuit(over: Transport) {
    // Ten times what the relay takes, and a thousand times, into buffers of a tenth of a second and of one.
    for (times, full_wait_ms) in [(10, 100), (1000, 1000)] {
        // One datagram in a thousand may come through, and with the first seed one does over SCTP just before the new
        // circuit, so that its path is not silent then.
        let seed = if over.name() == "sctp-dtls" { 2 } else { 1 };
        let mut net = over.paired(&Plan { seed, ..Plan::default() });
        let [busy, idle] = [(); 2].map(|()| net.build(&[0, 1, 2], true));
        let down = net.begin(busy, download(10 * MB));
        net.await_status(down, LONG, |status| status.received_bytes > MB);
        let middle = net.relays[1].host;
        let flood = Flood { times, full_wait: Duration::from_millis(full_wait_ms) };
        net.sim.flood(middle, FIRST_UDP_PORT, Some(flood));
        net.sim.run_for(Duration::from_secs(10));
        // A path that is silent takes no new circuits. One on which a tenth of all comes may.
        let begun = net.sim.now();
        if times == 1000 {
            net.build(&[0, 1, 2], true);
        }
        let waited = net.sim.now().since(begun);
        assert!(waited < Duration::from_secs(1), "{waited:?}");
        net.sim.run_for(Duration::from_secs(10) - waited);
        net.sim.flood(middle, FIRST_UDP_PORT, None);
        let status = net.await_status(down, Duration::from_secs(30), is_over);
        assert_eq!(status.received_sha256, pattern_sha256(10 * MB), "{flood:?}: {status:?}");
        transfer(&mut net, idle, MB / 100);
        assert_eq!((ready(&net), ended(&net).len()), (4, 0), "{flood:?}");
    }
}

/// What a circuit brings in ten seconds over wires of 10 Mbit/s while the middle relay's port is flooded, in a buffer
/// that is theirs as well: as over tcp-dtls, and over QUIC by whoever knows the prefix of its ids.
fn brought_beside(over: Transport, flood: Option<Flood>) -> u64 {
    let mut net = over.paired(&Plan::default());
    let rate = Rate::BitsPerS(10_000_000);
    for (a, b) in [(0, 1), (1, 2)] {
        let wire = DirectionOptions { rate, delay_ns: 15_000_000, ..DirectionOptions::default() };
        net.sim.set_wire(net.relays[a].host, net.relays[b].host, wire);
    }
    let circuit = net.build(&[0, 1, 2], true);
    let down = net.begin(circuit, download(1000 * MB));
    net.await_status(down, LONG, |status| status.received_bytes > 2 * MB);
    net.sim.flood(net.relays[1].host, FIRST_UDP_PORT, flood);
    net.sim.run_for(Duration::from_secs(5));
    let before = net.status(down).received_bytes;
    net.sim.run_for(Duration::from_secs(10));
    net.status(down).received_bytes - before
}

/// Where twice as much comes as the relay takes, one datagram in two is lost, whosesoever it is.
fn a_flood_that_fills_its_buffer_costs_a_pair_what_is_told(over: Transport) {
    let flood = |times| Flood { times, full_wait: Duration::from_millis(100) };
    let [alone, twice, tenfold] =
        [None, Some(flood(2)), Some(flood(10))].map(|flood| brought_beside(over, flood));
    println!("{over:?}: {alone} bytes in 10 s, beside a flood {twice} and {tenfold}");
    assert!(alone > 8 * MB, "{alone}");
    assert!(twice < alone / 10 && tenfold < alone / 100, "{twice} and {tenfold} of {alone}");
}

/// Begins circuits of a client, and ends those that were built.
fn build_and_close(net: &mut Net, client: HostId, path: &[(Hop, Handshake)], circuits: u32) {
    net.sim.with(client, 0, |proxy: &mut OnionProxy, _| {
        for event in proxy.take_events() {
            if let ProxyEvent::Built(number) = event {
                proxy.close_circuit(number);
            }
        }
        for _ in 0..circuits {
            proxy.build(path.to_vec()).expect("the path has relays");
        }
    });
}

/// The middle relay works off 80 onionskins a second, and three clients ask for 60 each: one through the guard, which
/// has half of that, because strangers are the other half. So answers would come after four seconds, if all that waits
/// waited there.
fn whoever_fills_a_neighbours_queue_of_onionskins_moves_no_circuit_to_tls(over: Transport) {
    let mut net = over.paired(&Plan::default());
    net.sim.set_job_cost(net.relays[1].host, Duration::from_millis(400));
    let floods: [&[usize]; 3] = [&[0, 1], &[1], &[1]];
    let floods: Vec<_> = (1..)
        .zip(floods)
        .map(|(number, path)| (add_client(&mut net.sim, number), net.path(path, false)))
        .collect();
    let honest = net.path(&[0, 1, 2], true);
    let (mut begun, mut built) = (BTreeMap::new(), Vec::new());
    for turn in 0..200 {
        for (client, path) in &floods {
            build_and_close(&mut net, *client, path, if turn < 150 { 6 } else { 0 });
        }
        if turn < 150 && turn % 5 == 0 {
            let number = net.proxy(|proxy| proxy.build(honest.clone())).expect("the path has relays");
            begun.insert(number, net.sim.now());
        }
        net.sim.run_for(Duration::from_millis(100));
        for event in net.proxy(OnionProxy::take_events) {
            if let ProxyEvent::Built(number) = event {
                built.push((number, net.sim.now().since(begun[&number])));
            }
        }
    }
    let slowest = built.iter().map(|(_, time)| *time).max().unwrap_or_default();
    assert!(built.len() == begun.len() && slowest < Duration::from_secs(4), "{built:?}");
    assert!(net.stats(1).refused[&("onionskin", "late")] > 100, "{:?}", net.stats(1).refused);
    assert_eq!(net.stats(0).fallbacks, BTreeMap::new());
    assert_eq!((ready(&net), ended(&net).len()), (4, 0));
    let before = over.cells_out(&mut net, 2);
    transfer(&mut net, built[0].0, MB / 10);
    assert_eq!(over.cells_out(&mut net, 2)[0], before[0]);
}

fn a_dead_path_ends_its_circuits_and_begun_ones_go_over_tls(over: Transport) {
    let mut net = over.paired(&Plan::default());
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
    let status = net.await_status(lost, Duration::from_secs(70), is_over);
    assert!(matches!(status.state, ExchangeState::Lost(Some(_))), "{status:?}");
    net.sim.run_for(Duration::from_secs(10));
    assert_eq!(ended(&net), ["path_dead", "path_dead"], "both ends notice");
    let waited = net.sim.now().since(blocked_at);
    assert!(waited > Duration::from_secs(60), "a path that is gone for less may come back: {waited:?}");
    transfer(&mut net, begun, MB / 2);
    // The other pair is as it was, and this one comes back once it can.
    net.sim.block_datagrams(a, b, false);
    net.sim.run_for(Duration::from_secs(60));
    assert_eq!(ready(&net), 6);
    let circuit = net.build(&[0, 1, 2], false);
    let before = net.cells_out_over(1, "tls");
    transfer(&mut net, circuit, MB / 4);
    assert_eq!(net.cells_out_over(1, "tls"), before);
}

fn circuits_survive_a_reset_of_tls(over: Transport) {
    let mut net = over.paired(&Plan::default());
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

/// The process is gone: TLS is reset, and datagrams are answered by nobody. Busy circuits and idle ones end as soon as
/// that is sure.
fn a_neighbour_that_ends_takes_its_circuits_along_within_seconds(over: Transport) {
    let mut net = over.paired(&Plan::default());
    let [busy, idle] = [(); 2].map(|()| net.build(&[0, 1, 2], true));
    transfer(&mut net, idle, MB / 100);
    let down = net.begin(busy, download(50 * MB));
    net.await_status(down, LONG, |status| status.received_bytes > MB);
    let killed = net.relays[1].host;
    net.sim.kill(killed);
    let killed_at = net.sim.now();
    net.await_status(down, Duration::from_secs(30), is_over);
    let took = net.sim.now().since(killed_at);
    assert!(took < Duration::from_secs(5), "{took:?}");
    net.sim.run_for(Duration::from_secs(5) - took);
    assert_eq!((net.circuits(0, 0), net.circuits(2, 0)), (0, 0), "guard and exit know");
    assert_eq!(ended(&net).len(), 2, "at both neighbours");
}

fn losses_and_reordering_are_borne(over: Transport) {
    let wire = Wire { loss_ppm: 10_000, jitter: Duration::from_millis(4), ..Wire::default() };
    for seed in 0..5 {
        let mut net = over.paired(&Plan { seed, wire, ..Plan::default() });
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

/// The longest queue of a circuit in guard, middle and exit, after a client stopped to read three streams for good.
fn longest_beside_stuck_readers(
    over: Transport,
    params: NetworkParams,
    congestion_control: bool,
) -> Vec<u64> {
    // The client's own wire passes requests and little else, so its guard has nowhere to put what comes.
    let mut net = over.paired(&Plan { params, ..Plan::default() });
    let (guard, client) = (net.relays[0].host, net.client);
    let circuits: Vec<_> = (0..3).map(|_| net.build(&[0, 1, 2], congestion_control)).collect();
    let stuck = Wire { rate_bytes_per_s: Some(1_000), ..Wire::default() };
    net.sim.set_wire(guard, client, stuck);
    for circuit in &circuits {
        net.begin(*circuit, download(1000 * MB));
    }
    net.sim.run_for(Duration::from_secs(100));
    (0..3).map(|relay| net.stats(relay).queue_cells_max).collect()
}

fn a_reader_that_stops_for_good_fills_no_queue(over: Transport) {
    for congestion_control in [false, true] {
        let params = NetworkParams([("heddle_hop_by_hop_flow_control".to_owned(), 1)].into());
        let longest = longest_beside_stuck_readers(over, params, congestion_control);
        // Towards the client 64 cells wait for each circuit at the guard and at the middle relay; at the exit, which
        // then does not read from the server, 128 and what one read adds. Where a reader that stops would hold back the
        // whole connection nothing is held, and a stream's window is the bound.
        let bounds = if over.name() == "sctp-dtls" { [500; 3] } else { [64, 64, 300] };
        assert!((0..3).all(|relay| longest[relay] <= bounds[relay]), "{longest:?}");
        assert!(longest[0] >= 16, "nothing came that the client does not take: {longest:?}");
    }
}

fn a_reader_that_stops_for_good_fills_its_window_and_no_more(over: Transport) {
    for congestion_control in [false, true] {
        let longest = longest_beside_stuck_readers(over, NetworkParams::default(), congestion_control);
        // A stream has 500 cells under way at most; congestion control's windows begin smaller and grow with what is
        // acknowledged.
        assert!(longest.iter().all(|cells| *cells <= 500), "{longest:?}");
        assert!(longest[0] >= 64, "nothing is held back: {longest:?}");
    }
}

fn one_seed_makes_one_trace(over: Transport) {
    let run = |seed| -> TraceHash {
        let wire = Wire { loss_ppm: 5_000, jitter: Duration::from_millis(2), ..Wire::default() };
        let mut net = over.paired(&Plan { seed, wire, shards: vec![1, 2, 1], ..Plan::default() });
        let circuit = net.build(&[0, 1, 2], true);
        transfer(&mut net, circuit, MB / 4);
        net.sim.trace_hash()
    };
    let hash = run(1);
    assert_eq!(run(1), hash);
    assert_ne!(run(2), hash);
}

/// Bytes that six circuits get in five seconds over 10 Mbit/s between two relays, of whose packets one in a hundred is
/// lost.
fn six_downloads(over: Transport, upgraded: &[usize]) -> u64 {
    let mut net = Net::new(&over.among(upgraded, &Plan::default()));
    let loss = Loss::Bernoulli { probability: 0.01 };
    let rate = Rate::BitsPerS(10_000_000);
    let wire = DirectionOptions { rate, delay_ns: 30_000_000, loss, ..DirectionOptions::default() };
    net.sim.set_wire(net.relays[0].host, net.relays[1].host, wire);
    find_each_other(&mut net, &[0, 1, 2]);
    let circuits: Vec<_> = (0..6).map(|_| net.build(&[0, 1, 2], true)).collect();
    let downs: Vec<_> = circuits.iter().map(|circuit| net.begin(*circuit, download(1000 * MB))).collect();
    let received = |net: &mut Net| downs.iter().map(|down| net.status(*down).received_bytes).sum::<u64>();
    // Slow start is over then.
    net.sim.run_for(Duration::from_secs(3));
    let begun = received(&mut net);
    net.sim.run_for(Duration::from_secs(5));
    received(&mut net) - begun
}

fn lost_packets_cost_tls_more(over: Transport) {
    let (tls, flows) = (six_downloads(over, &[]), six_downloads(over, &[0, 1, 2]));
    assert!(flows > 4 * MB, "{flows} bytes, where 6 MB fit on the wire");
    assert!(tls < flows / 2, "{tls} bytes over one TCP connection, {flows} over six flows");
}

fn nothing_is_closed_for_want_of_use_while_a_circuit_lives(over: Transport) {
    let mut net = over.paired(&Plan::default());
    let circuit = net.build(&[0, 1, 2], true);
    net.sim.run_for(Duration::from_secs(1800));
    let between = |event: &Event| matches!(event, Event::ChannelOpened { .. } | Event::ChannelClosed { .. });
    let changes = net.sim.events().iter().filter(|(_, _, event)| between(event)).count();
    assert_eq!((changes, ended(&net).len()), (4, 0), "both ends of two channels opened, and no more");
    transfer(&mut net, circuit, MB / 10);
    net.proxy(|proxy| proxy.close_circuit(circuit));
    // Channels between relays last up to 75 minutes.
    net.sim.run_for(Duration::from_secs(4600));
    assert_eq!(ended(&net).len(), 4, "without circuits everything closes");
    assert_eq!(net.stats(1).transports[0].links, 0);
}

fn a_new_key_each_day_costs_no_circuit_and_no_pair(over: Transport) {
    let mut net = over.paired(&Plan::default());
    let circuit = net.build(&[0, 1, 2], true);
    net.sim.run_for(Duration::from_secs(25 * 3600));
    transfer(&mut net, circuit, MB / 10);
    assert_eq!((ready(&net), ended(&net).len()), (4, 0));
    // The channels are a day old, and still good for another connection.
    let (a, b) = (net.relays[0].host, net.relays[1].host);
    net.sim.block_datagrams(a, b, true);
    net.sim.run_for(Duration::from_secs(80));
    net.sim.block_datagrams(a, b, false);
    net.sim.run_for(Duration::from_secs(90));
    assert_eq!((ready(&net), ended(&net).len()), (6, 2));
}

/// What can be told apart on the wire between two relays that carry so many circuits: addresses and connections' ids.
fn seen_on_the_wire(
    over: Transport,
    circuits: usize,
) -> (BTreeSet<(SocketAddr, SocketAddr)>, BTreeSet<Vec<u8>>) {
    let mut net = over.paired(&Plan::default());
    let (a, b) = (net.relays[0].host, net.relays[1].host);
    net.sim.tap_datagrams(a, b);
    for _ in 0..circuits {
        let circuit = net.build(&[0, 1, 2], false);
        let down = net.begin(circuit, download(20_000));
        net.await_status(down, LONG, is_over);
        net.proxy(|proxy| proxy.close_circuit(circuit));
    }
    let tapped = net.sim.tap_datagrams(a, b);
    let ends = tapped.iter().map(|datagram| (datagram.from, datagram.to)).collect();
    (ends, tapped.iter().map(|datagram| id_of(over, &datagram.data).to_vec()).collect())
}

/// The id that stands in clear in a datagram.
fn id_of(over: Transport, datagram: &[u8]) -> &[u8] {
    match over.name() {
        "tcp-dtls" | "sctp-dtls" => return &datagram[..8],
        "tcp-esp" => return &datagram[..4],
        _ => {}
    }
    assert_eq!(datagram[0] & 0xC0, 0x40, "short headers only");
    &datagram[1..13]
}

fn the_wire_shows_one_connection_however_many_circuits_come_and_go(over: Transport) {
    for circuits in [1, 20] {
        let (ends, ids) = seen_on_the_wire(over, circuits);
        assert_eq!((ends.len(), ids.len()), (2, 2), "one of each in each direction, {circuits} circuits");
    }
}

/// Of several circuits, whose cells come and go a few at a time, and no less than over TLS (`tests/rates.rs`).
fn a_slow_relay_carries_what_its_operator_allows(over: Transport) {
    const RATE_BYTES_PER_S: u64 = 75 << 10;
    const CIRCUITS: usize = 5;
    const BYTES: u64 = 300_000;
    let wire = Wire { latency: Duration::from_millis(30), ..Wire::default() };
    let mut net = over.paired(&Plan { wire, slow: Some((1, RATE_BYTES_PER_S)), ..Plan::default() });
    let circuits: Vec<_> = (0..CIRCUITS).map(|_| net.build(&[0, 1, 2], true)).collect();
    // What the bucket held at first.
    transfer(&mut net, circuits[0], 2 * RATE_BYTES_PER_S);
    let begun = net.sim.now();
    let downloads: Vec<_> = circuits.iter().map(|circuit| net.begin(*circuit, download(BYTES))).collect();
    for download in downloads {
        net.await_status(download, Duration::from_secs(120), |status| status.received_bytes == BYTES);
    }
    let seconds = net.sim.now().since(begun).as_secs_f64();
    let used = (CIRCUITS as u64 * BYTES) as f64 / seconds / RATE_BYTES_PER_S as f64 * 514.0 / 498.0;
    println!("{used:.3} of the rate");
    assert!((0.94..=1.02).contains(&used), "{used:.3} of the rate");
}
