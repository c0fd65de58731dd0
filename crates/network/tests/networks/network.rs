//! A client, three relays and the Internet behind them, in virtual time.

use heddle_client::{Closed, Exchange, ExchangeState, Hop, OnionProxy};
use heddle_network::{Net, OR_PORT, Plan, SOURCE, STALL, download, pattern_sha256, upload};
use heddle_proto::cell::stream::EndReason;
use heddle_proto::ids::RelayIds;
use heddle_relay::{Control, Event, ProbeHop};
use heddle_seam::time::Duration;
use heddle_sim::{TraceHash, Wire};

const MB: u64 = 1_000_000;
const LONG: Duration = Duration::from_secs(600);

fn is_over(status: &heddle_client::ExchangeStatus) -> bool {
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
    (net.sim.now().since(heddle_seam::time::Instant::ZERO), net.sim.trace_hash())
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

/// What relay 0 reports of a probe over relays 1 and 2.
fn probe(plan: &Plan) -> (Net, Vec<Event>) {
    let mut net = Net::new(plan);
    let hop = |relay: usize| {
        let hop = &net.relays[relay].hop;
        ProbeHop { target: hop.target.clone(), ntor_key: hop.ntor_key }
    };
    let (via, ourselves) = (vec![hop(1), hop(2)], net.relays[0].hop.target.clone());
    let host = net.relays[0].host;
    net.sim.run_for(Duration::from_secs(1));
    net.sim.control(host, 0, Control::ProbeReachability { via, ourselves });
    net.sim.run_for(Duration::from_secs(40));
    let of_probes = |event: &Event| matches!(event, Event::Reachable | Event::ProbeFailed);
    let events = net.sim.events().iter().filter(|(_, of, event)| *of == host && of_probes(event));
    let events = events.map(|(_, _, event)| event.clone()).collect();
    assert_eq!(net.circuits(0, 0), 0);
    (net, events)
}

#[test]
fn a_relay_finds_out_whether_it_can_be_reached() {
    assert_eq!(probe(&Plan::default()).1, [Event::Reachable]);
    assert_eq!(probe(&Plan { shards: vec![2, 2, 1], ..Plan::default() }).1, [Event::Reachable]);
    assert_eq!(probe(&Plan { unreachable: Some(0), ..Plan::default() }).1, [Event::ProbeFailed]);
    assert_eq!(probe(&Plan { unreachable: Some(1), ..Plan::default() }).1, [Event::ProbeFailed]);
}

#[test]
fn a_relay_that_is_asked_says_where_it_sees_us() {
    for shards in [vec![1, 1, 1], vec![2, 2, 1]] {
        let mut net = Net::new(&Plan { shards: shards.clone(), ..Plan::default() });
        let [us, asked] = [0, 1].map(|relay| (net.relays[relay].host, net.relays[relay].hop.clone()));
        let ask = |net: &mut Net| {
            let (authority, at) = (ids(&asked.1), asked.1.target.addrs[0]);
            net.sim.control(us.0, 0, Control::AskAddress { authority, at });
            net.sim.run_for(Duration::from_secs(5));
        };
        net.sim.run_for(Duration::from_secs(1));
        ask(&mut net);
        // Another channel is opened though there is one.
        ask(&mut net);
        let told = net.sim.events().iter().filter_map(|(_, host, event)| match event {
            Event::OurAddress { ours, by, at } => Some((*host, *ours, *by, *at)),
            _ => None,
        });
        let (ours, at) = (us.1.target.addrs[0].ip(), asked.1.target.addrs[0]);
        assert_eq!(told.collect::<Vec<_>>(), [(us.0, ours, ids(&asked.1), at); 2], "{shards:?}");
    }
}

/// Circuits may have a relay dialled at any address, and what is there speaks for it if he who chose it forwards it so.
#[test]
fn a_relay_that_a_circuit_had_us_dial_says_nothing_of_our_address() {
    let (mut net, events) = probe(&Plan::default());
    assert_eq!(events, [Event::Reachable]);
    let tells = |net: &Net| {
        net.sim.events().iter().filter(|(.., event)| matches!(event, Event::OurAddress { .. })).count()
    };
    assert_eq!(tells(&net), 0);
    // Nor does one that answers in the place of the one that is asked.
    let (host, authority) = (net.relays[0].host, ids(&net.relays[1].hop));
    let at = net.relays[2].hop.target.addrs[0];
    net.sim.control(host, 0, Control::AskAddress { authority, at });
    net.sim.run_for(Duration::from_secs(5));
    assert_eq!(tells(&net), 0);
}

fn ids(hop: &Hop) -> RelayIds {
    RelayIds { rsa: hop.target.rsa, ed25519: hop.target.ed25519.expect("relays have both") }
}

#[test]
fn a_circuit_that_comes_back_over_our_own_channel_proves_nothing() {
    let (mut net, events) = probe(&Plan::default());
    assert_eq!(events, [Event::Reachable]);
    let host = net.relays[0].host;
    let hop = |relay: usize| {
        let hop = &net.relays[relay].hop;
        ProbeHop { target: hop.target.clone(), ntor_key: hop.ntor_key }
    };
    // The first probe has dialled relay 1, which has no reason to dial us now.
    let (via, ourselves) = (vec![hop(2), hop(1)], net.relays[0].hop.target.clone());
    net.sim.control(host, 0, Control::ProbeReachability { via, ourselves });
    net.sim.run_for(Duration::from_secs(5));
    assert_eq!(net.sim.events().last().map(|(_, _, event)| event), Some(&Event::ProbeFailed));
}

/// Whom a probe in vain had us dial would come back over that channel for as long as it lasts, an hour or so. In a
/// small network that is everybody soon.
#[test]
fn a_relay_whose_first_probes_failed_finds_out_later_that_it_can_be_reached() {
    let mut net = Net::new(&Plan { unreachable: Some(0), ..Plan::default() });
    let hops: Vec<ProbeHop> = [1, 2]
        .map(|relay: usize| &net.relays[relay].hop)
        .map(|hop| ProbeHop { target: hop.target.clone(), ntor_key: hop.ntor_key })
        .into();
    let (host, ourselves) = (net.relays[0].host, net.relays[0].hop.target.clone());
    let probe = |net: &mut Net, over: [usize; 2]| {
        let (via, ourselves) = (over.map(|hop| hops[hop].clone()).to_vec(), ourselves.clone());
        net.sim.take_events();
        net.sim.control(host, 0, Control::ProbeReachability { via, ourselves });
        net.sim.run_for(Duration::from_secs(5));
        let of_us = net.sim.events().iter().filter(|(_, of, _)| *of == host).map(|(.., event)| event.clone());
        of_us.filter(|event| matches!(event, Event::Reachable | Event::ProbeFailed)).collect::<Vec<_>>()
    };
    net.sim.run_for(Duration::from_secs(1));
    for over in [[0, 1], [1, 0]] {
        assert_eq!(probe(&mut net, over), [Event::ProbeFailed], "{over:?}");
    }
    net.sim.listen(host, 0, OR_PORT);
    assert_eq!(probe(&mut net, [0, 1]), [Event::ProbeFailed], "both were dialled, and are for some seconds");
    net.sim.run_for(Duration::from_secs(25));
    assert_eq!(probe(&mut net, [0, 1]), [Event::Reachable]);
}

#[test]
fn a_relay_of_two_shards_carries_circuits_across_them() {
    // Shards take connections in turn, so that a relay's channels lie in both.
    for shards in [vec![1, 2, 1], vec![2, 2, 2]] {
        let mut net = Net::new(&Plan { shards: shards.clone(), ..Plan::default() });
        let circuits: Vec<_> = (0..4)
            .map(|number| net.build(if number % 2 == 0 { &[0, 1, 2] } else { &[1, 0, 2] }, number > 1))
            .collect();
        let downs: Vec<_> = circuits.iter().map(|circuit| net.begin(*circuit, download(MB / 2))).collect();
        let ups: Vec<_> = circuits.iter().map(|circuit| net.begin(*circuit, upload(MB / 2))).collect();
        for down in downs {
            let status = net.await_status(down, LONG, is_over);
            assert_eq!(status.received_sha256, pattern_sha256(MB / 2), "{shards:?}");
        }
        for up in ups {
            let status = net.await_status(up, LONG, |status| status.received_bytes == 32);
            assert_eq!(status.received_head, pattern_sha256(MB / 2), "{shards:?}");
        }
        // Four circuits pass each relay; those that cross count in both shards. At the exit, the
        // third relay, none does.
        let doubled: Vec<usize> = (0..2).filter(|relay| shards[*relay] == 2).collect();
        let counted = doubled.iter().map(|relay| net.circuits(*relay, 0) + net.circuits(*relay, 1));
        let crossing = counted.sum::<usize>() - 4 * doubled.len();
        assert!(crossing > 0, "{shards:?}: no circuit crosses");
        for circuit in circuits {
            net.proxy(|proxy| proxy.close_circuit(circuit));
        }
        net.sim.run_for(Duration::from_secs(2));
        for (relay, shards) in shards.iter().enumerate() {
            for shard in 0..*shards {
                assert_eq!(net.circuits(relay, shard), 0, "{shards:?}");
            }
            assert_eq!(net.queued_cells(relay), 0, "{shards:?}");
        }
    }
}

#[test]
fn a_killed_relay_ends_its_circuits_and_no_others() {
    let mut net = Net::new(&Plan { shards: vec![1, 1, 1, 1], ..Plan::default() });
    let doomed = net.build(&[0, 1, 3], true);
    let spared = net.build(&[0, 2, 3], false);
    let lost = net.begin(doomed, download(20 * MB));
    let kept = net.begin(spared, download(3 * MB));
    net.await_status(lost, LONG, |status| status.received_bytes > MB);
    let middle = net.relays[1].host;
    net.sim.kill(middle);
    let killed_at = net.sim.now();
    let status = net.await_status(lost, LONG, is_over);
    assert!(matches!(status.state, ExchangeState::Lost(Some(_))), "{status:?}");
    let noticed_ms = status.ended_at.map(|at| at.since(killed_at).as_millis());
    assert!(noticed_ms.is_some_and(|ms| ms < 100), "{noticed_ms:?}");
    let status = net.await_status(kept, LONG, is_over);
    assert_eq!(status.received_sha256, pattern_sha256(3 * MB));
    // A new circuit over the dead relay is refused, the others stand.
    let path = net.path(&[0, 1, 3], false);
    net.proxy(|proxy| proxy.build(path));
    net.sim.run_for(Duration::from_secs(60));
    assert!(net.proxy(|proxy| proxy.has_circuit(spared)));
    assert_eq!(net.circuits(0, 0), 1);
}

/// The program's own test of this has no such bound, because a busy machine delays its clock. Relays that speak QUIC or
/// tcp-dtls have a test of theirs.
#[test]
fn a_middle_killed_in_a_transfer_leaves_no_circuit_within_five_seconds() {
    let far = Wire { latency: Duration::from_millis(100), loss_ppm: 10_000, ..Wire::default() };
    for (wire, congestion_control) in [(Wire::default(), false), (Wire::default(), true), (far, true)] {
        let mut net = Net::new(&Plan { wire, ..Plan::default() });
        let [busy, idle] = [(); 2].map(|()| net.build(&[0, 1, 2], congestion_control));
        let down = net.begin(busy, download(50 * MB));
        net.await_status(down, LONG, |status| status.received_bytes > MB);
        let middle = net.relays[1].host;
        net.sim.kill(middle);
        net.sim.run_for(Duration::from_secs(5));
        let status = net.status(down);
        let heard = matches!(status.state, ExchangeState::Lost(Some(Closed::Destroyed(_))));
        assert!(heard, "{wire:?}: {status:?}");
        assert!(!net.proxy(|proxy| proxy.has_circuit(busy) || proxy.has_circuit(idle)), "{wire:?}");
        assert_eq!((net.circuits(0, 0), net.circuits(2, 0)), (0, 0), "{wire:?}: guard and exit know");
        assert_eq!((net.queued_cells(0), net.queued_cells(2)), (0, 0), "{wire:?}");
    }
}

#[test]
fn a_server_that_stops_reading_holds_up_its_stream_alone() {
    for congestion_control in [false, true] {
        let mut net = Net::new(&Plan::default());
        let circuit = net.build(&[0, 1, 2], congestion_control);
        let stalled = net.begin(circuit, Exchange { port: STALL, ..upload(50 * MB) });
        net.sim.run_for(Duration::from_secs(20));
        let status = net.status(stalled);
        // The exit holds one window, or what came until XOFF did; the rest waits with us.
        assert!(status.sent_bytes < 2 * MB, "{status:?}");
        let queued: u32 = (0..3).map(|relay| net.queued_cells(relay)).sum();
        assert!(queued < 4_000, "{queued} cells wait");
        net.sim.run_for(Duration::from_secs(20));
        assert_eq!(net.status(stalled).sent_bytes, status.sent_bytes);

        for exchange in [download(MB), upload(MB)] {
            let wanted = if exchange.port == SOURCE { MB } else { 32 };
            let other = net.begin(circuit, exchange);
            net.await_status(other, LONG, |status| status.received_bytes == wanted);
        }
    }
}

#[test]
fn a_client_that_stops_reading_holds_up_its_stream_alone() {
    for congestion_control in [false, true] {
        let mut net = Net::new(&Plan::default());
        let circuit = net.build(&[0, 1, 2], congestion_control);
        let stalled = net.begin(circuit, Exchange { reading: false, ..download(4 * MB) });
        net.sim.run_for(Duration::from_secs(20));
        assert_eq!(net.status(stalled).received_bytes, 0);
        let queued: u32 = (0..3).map(|relay| net.queued_cells(relay)).sum();
        assert!(queued < 500, "{queued} cells wait");
        let other = net.begin(circuit, download(MB));
        net.await_status(other, LONG, is_over);
        let client = net.client;
        net.sim.with(client, 0, |proxy: &mut OnionProxy, now| proxy.set_reading(now, stalled, true));
        let status = net.await_status(stalled, LONG, is_over);
        assert_eq!(status.received_sha256, pattern_sha256(4 * MB));
    }
}
