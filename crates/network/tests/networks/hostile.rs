//! Peers that send what they should not: what closes is the smallest thing concerned.

use core::net::{IpAddr, Ipv4Addr};
use heddle_client::ExchangeState;
use heddle_netem::DirectionOptions;
use heddle_network::hostile::{Attack, Hostile, Progress};
use heddle_network::{HOLE, Net, OR_PORT, Plan, download, pattern_sha256};
use heddle_relay::Relay;
use heddle_seam::rng::Seed;
use heddle_seam::time::Duration;
use heddle_sim::{Host, HostId, Internet};

const LONG: Duration = Duration::from_secs(600);
/// Cells of attacks that have no end of their own.
const CELLS: u32 = 3_000;

/// Has somebody attack the guard; returns the attacker.
fn let_loose(net: &mut Net, attack: Attack) -> HostId {
    let path = [0, 2].map(|relay| net.relays[relay].hop.clone()).to_vec();
    assert_eq!(path[0].target.addrs[0].port(), OR_PORT);
    let node = Hostile::new(&net.sim.seed().child("attacker", 0));
    let addrs = vec![IpAddr::V4(Ipv4Addr::new(172, 16, 9, 9))];
    let host = net.sim.add_host(Host {
        addrs,
        ports: vec![],
        nodes: vec![Box::new(node)],
        beside: vec![],
        plain: false,
    });
    net.sim.with(host, 0, |hostile: &mut Hostile, _| hostile.begin(attack, path, vec![], CELLS));
    host
}

/// Runs an attack on the guard beside a client's download; returns the attacker.
fn attack(attack: Attack, seed: u64) -> (Net, HostId) {
    attack_in(&Plan { seed, ..Plan::default() }, attack)
}

fn attack_in(plan: &Plan, attack: Attack) -> (Net, HostId) {
    let mut net = Net::new(plan);
    let circuit = net.build(&[0, 1, 2], true);
    let down = net.begin(circuit, download(1_000_000));
    let host = let_loose(&mut net, attack);
    let status = net.await_status(down, LONG, |status| status.ended_at.is_some());
    assert!(matches!(status.state, ExchangeState::Ended(_)), "{attack:?}: {status:?}");
    assert_eq!(status.received_sha256, pattern_sha256(1_000_000));
    net.sim.run_for(Duration::from_secs(100));
    assert!(net.proxy(|proxy| proxy.has_circuit(circuit)), "{attack:?}");
    (net, host)
}

fn progress(net: &mut Net, host: HostId) -> Progress {
    net.sim.with(host, 0, |hostile: &mut Hostile, _| hostile.progress())
}

#[test]
fn noise_closes_its_own_connection() {
    let (mut net, host) = attack(Attack::Noise, 1);
    assert!(progress(&mut net, host).is_over);
}

#[test]
fn a_handshake_may_break_off_anywhere() {
    for at in [1, 5, 100, 300, 600, 1000, 2000] {
        let (mut net, host) = attack(Attack::BreakOff(at), 1);
        assert!(progress(&mut net, host).has_struck, "after {at} bytes");
        assert_eq!(net.circuits(0, 0), 1);
    }
}

#[test]
fn random_cells_close_no_channel() {
    for seed in 0..5 {
        let (mut net, host) = attack(Attack::RandomCells, seed);
        let Progress { is_over, cells_sent, .. } = progress(&mut net, host);
        assert!(!is_over, "the channel lives");
        assert_eq!(cells_sent, CELLS);
    }
}

#[test]
fn random_relay_cells_close_their_circuits() {
    let (mut net, host) = attack(Attack::RandomCircuits, 1);
    let Progress { is_over, destroyed, .. } = progress(&mut net, host);
    assert!(!is_over, "the channel lives");
    // There are twenty ids; each is used for a circuit, and used again once that was destroyed.
    assert!(destroyed >= 20, "{destroyed} circuits were destroyed");
}

#[test]
fn who_never_reads_does_not_grow_our_queues() {
    let (mut net, host) = attack(Attack::NeverReads, 1);
    let Progress { is_over, cells_sent, .. } = progress(&mut net, host);
    assert!(!is_over);
    assert_eq!(cells_sent, CELLS);
    assert_eq!(held(&mut net), (1, 0), "circuits that nobody uses are over, and the client's is left");
    // Where the attacker's kernel takes next to nothing for it, the answers wait with the relay.
    let (mut net, host) =
        attack_in(&Plan { receive_buffer_max_bytes: 16_000, ..Plan::default() }, Attack::NeverReads);
    assert!(progress(&mut net, host).has_struck);
    assert_eq!(held(&mut net), (1, 0), "what waits for nobody goes with its circuits");
}

/// Circuits of the guard, and cells that wait there.
fn held(net: &mut Net) -> (usize, u32) {
    let relay = net.relays[0].host;
    net.sim.with(relay, 0, |relay: &mut Relay, _| (relay.circuits(), relay.queued_cells()))
}

/// Before it would be for want of use.
#[test]
fn who_breaks_a_rule_on_a_circuit_loses_it() {
    let mut rng = Seed::from_number(1).rng();
    for rule in Attack::all(&mut rng).into_iter().filter(|attack| attack.ends_its_circuit()) {
        let mut net = Net::new(&Plan::default());
        let hole = Host {
            addrs: vec![HOLE],
            ports: vec![],
            nodes: vec![Box::new(Internet::new(&[]))],
            beside: vec![],
            plain: true,
        };
        let hole = net.sim.add_host(hole);
        let down = DirectionOptions { down: true, ..DirectionOptions::default() };
        net.sim.set_wire(net.relays[2].host, hole, down);
        let host = let_loose(&mut net, rule);
        net.sim.run_for(Duration::from_secs(10));
        let progress = progress(&mut net, host);
        assert!(progress.has_struck && progress.is_answered, "{rule:?}: {progress:?}");
        assert!(!progress.is_over, "{rule:?}: the channel lives");
    }
}
