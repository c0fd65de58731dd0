//! Relays that start with nothing but the line of an authority, in virtual time.

use heddle_client::ExchangeState;
use heddle_network::authority::Authority;
use heddle_network::whole::{ShardNode, WholeNet, WholePlan};
use heddle_network::{await_status, begin, build, download, pattern_sha256};
use heddle_proto::cell::stream::EndReason;
use heddle_seam::time::{Duration, Instant};
use heddle_sim::TraceHash;
use std::collections::BTreeMap;

const LONG: Duration = Duration::from_secs(1800);
const BYTES: u64 = 300_000;

fn authority<R>(net: &mut WholeNet, speak: impl FnOnce(&mut Authority) -> R) -> R {
    let host = net.authority;
    net.sim.with(host, 0, |authority: &mut Authority, _| speak(authority))
}

/// Lets time pass until every relay knows of so many.
fn await_known(net: &mut WholeNet, wanted: usize) {
    // What relays know changes with what directories send, so asking now and then is enough.
    while net.sim.now().since(Instant::ZERO) < LONG {
        net.sim.run_for(Duration::from_secs(1));
        let relays = 0..net.relays.len();
        if relays.map(|relay| net.known(relay).len()).all(|known| known == wanted) {
            return;
        }
    }
    panic!("after {LONG:?} relays do not know of {wanted}, and {} have published", published(net));
}

/// How many relays have published.
fn published(net: &mut WholeNet) -> usize {
    authority(net, |authority| authority.published())
}

/// Has the client read a file over these relays.
fn read_file(net: &mut WholeNet, relays: &[usize]) {
    let path = net.path(relays).expect("the consensus lists them");
    let circuit = build(&mut net.sim, net.client, path);
    let exchange = begin(&mut net.sim, net.client, circuit, download(BYTES));
    let is_over =
        |status: &heddle_client::ExchangeStatus| status.state == ExchangeState::Ended(EndReason::DONE);
    let status = await_status(&mut net.sim, net.client, exchange, Duration::from_secs(120), is_over);
    assert_eq!(status.received_sha256, pattern_sha256(BYTES), "{status:?}");
}

/// A network whose relays all know of all.
fn bootstrap(plan: &WholePlan) -> WholeNet {
    let mut net = WholeNet::new(plan);
    await_known(&mut net, plan.shards.len());
    net
}

/// The hash of all that happens until a network has come up and carried a file, and of what relays know and keep then.
fn hash(plan: &WholePlan) -> TraceHash {
    let mut net = bootstrap(plan);
    read_file(&mut net, &[0, 1, plan.shards.len() - 1]);
    net.note_all();
    net.sim.trace_hash()
}

#[test]
fn a_network_comes_up_from_nothing_and_twice_the_same() {
    let plan = WholePlan { shards: vec![1, 2, 1], ..WholePlan::default() };
    let mut net = bootstrap(&plan);
    assert!(net.sim.now().since(Instant::ZERO) < Duration::from_secs(180));
    for relay in 0..plan.shards.len() {
        let standing = net.control(relay, |control| control.plane.standing().clone());
        assert_eq!(standing.relays, 3);
        let flags = standing.flags.expect("the consensus lists it");
        assert_eq!(flags.exit, relay == 2, "the last one alone is an exit");
    }
    assert_eq!(authority(&mut net, |authority| (authority.taken, authority.refused)), (3, 0));
    let first = hash(&plan);
    assert_eq!(hash(&plan), first);
    assert_ne!(hash(&WholePlan { seed: 2, ..plan }), first);
}

/// The same in another process, where addresses of memory, clocks and what was made before are others.
#[test]
fn another_process_sees_the_same() {
    const ASKED: &str = "HEDDLE_TEST_PRINT_HASH";
    let plan = WholePlan { seed: 7, ..WholePlan::default() };
    let ours = format!("{:?}", hash(&plan));
    #[expect(clippy::disallowed_methods, reason = "it is how a test of the child's process is asked")]
    if std::env::var_os(ASKED).is_some() {
        return println!("hash {ours}");
    }
    let program = std::env::current_exe().unwrap();
    let mut child = std::process::Command::new(program);
    child.args(["--exact", "bootstrap::another_process_sees_the_same", "--nocapture"]).env(ASKED, "1");
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains(&format!("hash {ours}")), "{ours} here, and there {said}");
}

#[test]
fn a_relay_that_finds_itself_reached_publishes_then_and_not_before() {
    let plan = WholePlan { shards: vec![1, 1, 1, 1], unsure: vec![1], ..WholePlan::default() };
    let mut net = bootstrap(&plan);
    let reached_at = net.control(1, |control| control.reached_at).expect("it was reached");
    let rsa = net.relays[1].ids.rsa.0;
    let taken_at = authority(&mut net, |authority| authority.first_taken_at[&rsa]);
    assert!(taken_at > reached_at);
    assert!(taken_at.since(reached_at) < Duration::from_secs(2), "{:?}", taken_at.since(reached_at));

    let mut net = WholeNet::new(&WholePlan { unreachable: vec![1], ..plan });
    net.sim.run_for(Duration::from_secs(600));
    assert_eq!(published(&mut net), 3, "it is never reached");
    assert_eq!(net.known(1).len(), 3, "though it follows the consensus");
    let (probes, failed) = net.control(1, |control| (control.probes, control.probes_failed));
    assert!(probes > 10 && failed >= probes - 2, "{failed} of {probes}");
}

/// Cells that relay 0 sent over QUIC.
fn quic_cells(net: &mut WholeNet) -> Option<u64> {
    let host = net.relays[0].host;
    let stats = net.sim.with(host, 0, |node: &mut ShardNode, _| node.relay.stats());
    stats.transports.iter().find(|of| of.name == "quic").map(|of| of.cells_out)
}

#[test]
fn relays_of_a_consensus_move_circuits_to_flows_by_themselves() {
    let mut net = bootstrap(&WholePlan::default());
    // The first circuit has them meet; those that come later find a connection.
    read_file(&mut net, &[0, 1, 2]);
    assert_eq!(quic_cells(&mut net), Some(0));
    net.sim.run_for(Duration::from_secs(5));
    read_file(&mut net, &[0, 1, 2]);
    assert!(quic_cells(&mut net) > Some(0));

    let mut plan = WholePlan::default();
    plan.torrc.heddle.transports.clear();
    let mut net = bootstrap(&plan);
    for _ in 0..2 {
        read_file(&mut net, &[0, 1, 2]);
        net.sim.run_for(Duration::from_secs(5));
    }
    assert_eq!(quic_cells(&mut net), None);
}

#[test]
fn what_was_carried_shows_in_the_next_descriptor() {
    let mut net = bootstrap(&WholePlan { interval: Duration::from_secs(300), ..WholePlan::default() });
    let observed = |net: &mut WholeNet| authority(net, |authority| authority.bandwidths());
    assert!(observed(&mut net).values().all(|rate| *rate == 0));
    let taken = authority(&mut net, |authority| authority.taken);
    read_file(&mut net, &[0, 1, 2]);
    let carried: Vec<_> = (0..3).map(|relay| net.carried(relay)).collect();
    net.sim.run_for(Duration::from_secs(120));
    assert_eq!(authority(&mut net, |authority| authority.taken), taken + 3, "each says it once");
    let observed = observed(&mut net);
    for (relay, carried) in carried.into_iter().enumerate() {
        // The best ten seconds, of the direction that had less, in kilobytes per second.
        let most = carried.read.min(carried.written) / 10_000;
        let rate = observed[&net.relays[relay].ids.rsa.0];
        assert!(rate <= most && rate >= most / 2 && rate > BYTES / 20_000, "{rate} of {most} kB/s");
    }
}

#[test]
fn a_relay_that_is_started_anew_is_who_it_was_and_knows_what_it_knew() {
    let plan = WholePlan { interval: Duration::from_secs(300), ..WholePlan::default() };
    let mut net = bootstrap(&plan);
    let known = net.known(1).len();
    let taken = authority(&mut net, |authority| authority.taken);
    net.kill(1);
    net.sim.run_for(Duration::from_secs(10));
    net.start_anew(1);
    assert_eq!(net.known(1).len(), known, "it has asked nobody yet");
    net.sim.run_for(Duration::from_secs(10));
    assert_eq!(authority(&mut net, |authority| authority.taken), taken + 1, "it says that it is back");
    read_file(&mut net, &[0, 1, 2]);
}

#[test]
fn what_the_consensus_says_reaches_relays() {
    let params = BTreeMap::from([("onion-key-rotation-days".to_owned(), 1)]);
    let mut net =
        bootstrap(&WholePlan { params, interval: Duration::from_secs(600), ..WholePlan::default() });
    let key = |net: &mut WholeNet| net.known(0).iter().map(|hop| hop.ntor_key).collect::<Vec<_>>();
    let before = key(&mut net);
    net.sim.run_for(Duration::from_secs(27 * 3600));
    let after = key(&mut net);
    assert!(before.iter().all(|key| !after.contains(key)), "a day is over, and onion keys are new");
    read_file(&mut net, &[0, 1, 2]);
}
