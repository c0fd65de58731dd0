//! A few seeds of the swarm, of which `heddle sim swarm` runs as many as wanted.

use heddle_network::hostile::Attack;
use heddle_network::swarm::{MISCHIEF, Swarm, run};
use heddle_seam::rng::Seed;
use heddle_seam::time::Duration;

/// Between them they have all that chance may say.
const SEEDS: [u64; 4] = [0, 1, 2, 78];

#[test]
fn a_few_seeds_break_nothing() {
    let mut faults = std::collections::BTreeMap::new();
    let (mut rogue_bytes, mut brought) = (0, 0);
    for seed in SEEDS {
        let outcome = run(seed, Duration::from_secs(30));
        assert!(outcome.circuits > 0 && outcome.streams > 0 && outcome.bytes > 0, "{outcome:?}");
        rogue_bytes += outcome.rogue_bytes;
        brought += outcome.brought;
        for (fault, times) in outcome.faults {
            *faults.entry(fault).or_insert(0) += times;
        }
    }
    assert!(
        rogue_bytes > 100_000,
        "over malicious relays came {rogue_bytes} bytes: nobody saw what they did"
    );
    assert!(brought > 0, "no stream was held to bring all in the end");
    // Were there none of a kind, it would not have been borne.
    let troubles = [
        "connections reset",
        "datagrams blocked",
        "relays killed",
        "relays started anew",
        "wires changed",
        "networks parted",
        "clocks set",
        "disks full",
        "disks dead",
        "wires flapping",
        "resolvers dead",
        "resolvers that answer rubbish",
    ];
    let servers = [
        "servers that never stop",
        "servers that say nothing",
        "servers that close in the midst",
        "servers that reset",
    ];
    let attacks = Attack::all(&mut Seed::from_number(0).rng());
    let attacks = attacks.into_iter().map(Attack::name);
    for fault in troubles.into_iter().chain(servers).chain(MISCHIEF).chain(attacks) {
        assert!(faults.get(fault).is_some_and(|times| *times > 0), "{fault}: {faults:?}");
    }
}

#[test]
fn a_seed_repeats() {
    let time = Duration::from_secs(15);
    let first = run(77, time);
    assert_eq!(run(77, time), first);
    assert_ne!(run(78, time).hash, first.hash);
}

/// Traces name wires by them.
#[test]
fn each_host_has_a_name_before_anything_happens() {
    let names = Swarm::new(78).net().host_names();
    let different: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(different.len(), names.len(), "{names:?}");
    assert!(["hostile1", "victim"].iter().all(|name| names.iter().any(|of| of == name)), "{names:?}");
}
