//! MEASURE: what relays counted of a circuit, for its own client (PCTCP, section 5.1).

use heddle_client::{CircuitNumber, OnionProxy, OriginEvent, ProxyEvent};
use heddle_network::{Net, Plan, download};
use heddle_proto::cell::measure::Measured;
use heddle_seam::time::Duration;
use heddle_transport::registry;
use std::collections::BTreeSet;

const BYTES: u64 = 2_000_000;

fn ask(net: &mut Net, circuit: CircuitNumber) -> Vec<(usize, Measured)> {
    net.proxy(|proxy: &mut OnionProxy| {
        proxy.take_events();
        proxy.circuit_mut(circuit).map(|circuit| circuit.measure())
    });
    net.sim.run_for(Duration::from_secs(2));
    let events = net.proxy(OnionProxy::take_events).into_iter();
    let measured = events.filter_map(|event| match event {
        ProxyEvent::Answered(of, OriginEvent::Measured { hop, measured }) if of == circuit => {
            Some((hop, *measured))
        }
        _ => None,
    });
    measured.collect()
}

/// Relays of which the middle one is slow, so that cells wait there.
#[test]
fn a_client_learns_where_its_own_cells_wait() {
    let mut plan = Plan { slow: Some((1, 256 << 10)), ..Plan::default() };
    plan.torrc.heddle.measure = true;
    let plan = plan.speaking(registry::named("quic").expect("it is there"), &[1, 2]);
    let mut net = Net::new(&plan);
    let first = net.build(&[0, 1, 2], true);
    net.sim.run_for(Duration::from_secs(5));
    let circuit = net.build(&[0, 1, 2], true);

    let begun = ask(&mut net, circuit);
    assert_eq!(begun.iter().map(|(hop, _)| *hop).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(
        begun.iter().all(|(_, measured)| measured.elapsed_ms == 0 && measured.away.cells == 0),
        "{begun:?}"
    );

    // Another circuit's cells are not counted.
    let beside = net.begin(first, download(BYTES / 4));
    net.await_status(beside, Duration::from_secs(60), |status| status.received_bytes == BYTES / 4);
    let exchange = net.begin(circuit, download(BYTES));
    net.await_status(exchange, Duration::from_secs(60), |status| status.received_bytes == BYTES);
    let measured = ask(&mut net, circuit);
    let [(_, guard), (_, middle), (_, exit)] = measured[..] else { panic!("{measured:?}") };
    let cells = BYTES.div_ceil(498) as u32;
    for lane in [guard.towards_client, middle.towards_client, exit.towards_client] {
        assert!((cells..cells + cells / 10).contains(&lane.cells), "{measured:?}");
    }
    let names = |of: &Measured| [of.towards_client.transport().to_owned(), of.away.transport().to_owned()];
    assert_eq!(
        [&guard, &middle, &exit].map(names),
        [["tls", "tls"], ["tls", "quic"], ["quic", ""]].map(|of| of.map(str::to_owned))
    );
    let waited_ms = |of: &Measured| of.towards_client.waited_us / 1000 / u64::from(of.towards_client.cells);
    assert!(waited_ms(&middle) > 50 && waited_ms(&guard) < 20, "{measured:?}");
    assert!(middle.towards_client.queue_max_cells > 20 && middle.elapsed_ms > 2_000, "{measured:?}");
    assert!(u64::from(middle.towards_client.waited_max_us) >= 1000 * waited_ms(&middle), "{measured:?}");

    let after = ask(&mut net, circuit);
    assert!(after.iter().all(|(_, measured)| measured.towards_client.cells < 20), "counted anew: {after:?}");
}

/// Across threads of a relay, and in the session of a circuit whose cells are datagrams, questions are answered as
/// ever.
#[test]
fn threads_and_sessions_answer_too() {
    let mut plan = Plan { shards: vec![2, 2, 2], ..Plan::default() };
    (plan.torrc.heddle.measure, plan.torrc.heddle.forward_datagrams) = (true, true);
    let mut net = Net::new(&plan);
    net.proxy(|proxy: &mut OnionProxy| proxy.forward_datagrams(true));
    let mut transports = BTreeSet::new();
    for path in [[0, 1, 2], [1, 0, 2], [0, 1, 2], [1, 0, 2]] {
        let circuit = net.build(&path, true);
        assert_eq!(ask(&mut net, circuit).len(), 3);
        let exchange = net.begin(circuit, download(BYTES / 20));
        net.await_status(exchange, Duration::from_secs(60), |status| status.received_bytes == BYTES / 20);
        let measured = ask(&mut net, circuit);
        assert_eq!(measured.iter().map(|(hop, _)| *hop).collect::<Vec<_>>(), [1, 2, 3]);
        let cells = (BYTES / 20).div_ceil(498) as u32;
        for (_, of) in &measured {
            assert!(of.towards_client.cells >= cells, "{measured:?}");
            transports.extend([of.towards_client.transport().to_owned(), of.away.transport().to_owned()]);
        }
    }
    assert_eq!(transports, ["", "shard", "tls"].map(str::to_owned).into());
}

#[test]
fn nobody_answers_who_does_not_allow_it() {
    let mut net = Net::new(&Plan::default());
    let circuit = net.build(&[0, 1, 2], true);
    assert_eq!(ask(&mut net, circuit), []);
    assert!(net.proxy(|proxy| proxy.has_circuit(circuit)));
}
