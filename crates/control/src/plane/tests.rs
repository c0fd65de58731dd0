mod addresses;
mod world;

use super::*;
use crate::language::Carried;
use heddle_dir::authority::DirAuthority;
use heddle_dir::certs::ChannelCerts;
use heddle_dir::consensus::client::{REQUEST_MAX, ROUND_MAX};
use heddle_dir::files::InMemory;
use heddle_dir::keys::{KeyOptions, RelayKeys};
use heddle_proto::policy::ExitPolicy;
use heddle_seam::rng::{Repeatable, Seed};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use world::{Manner, World};
use zeroize::Zeroizing;

const HOUR_S: u64 = 3600;
const START: u64 = 1_700_000_000;
/// The onion keys that were made at the start are due then, and so, soon, are the link certificates.
const DUE: u64 = START + 28 * 24 * HOUR_S;
/// Who signed the consensus of the tests, and when it became valid.
const V3_IDENT: &str = "3A1CEB849C2532E1BF0FF86900CF217296106DE4";
const NOW: u64 = 1_795_202_540;

fn options(authorities: Vec<DirAuthority>) -> ControlOptions {
    ControlOptions::new("heddle", "data", vec![([203, 0, 113, 5], 9001).into()], authorities)
}

/// An authority with a vote and one without.
fn authority(address: SocketAddr, v3_ident: Option<&str>) -> DirAuthority {
    let vote = v3_ident.map(|ident| format!("v3ident={ident} ")).unwrap_or_default();
    DirAuthority::parse(&format!("a {vote}{address} {}", "0".repeat(40)), &mut Vec::new()).unwrap()
}

fn address(number: u8) -> SocketAddr {
    ([192, 0, 2, number], 80).into()
}

fn plane_with(
    options: ControlOptions,
    files: Arc<dyn Files>,
    keys_made_unix_s: u64,
    now_unix_s: u64,
    seed: u64,
) -> ControlPlane {
    let mut entropy = Repeatable::new(&Seed::from_number(seed));
    let key_options =
        KeyOptions { files: files.clone(), ..KeyOptions::new(&options.data_directory, "heddle") };
    let keys = RelayKeys::load_or_create(key_options, keys_made_unix_s, &mut entropy.rng()).unwrap();
    let certs = ChannelCerts::create(&keys, now_unix_s - 46 * HOUR_S, &mut entropy.rng()).unwrap();
    let identity = Identity { keys, certs: Arc::new(certs), files };
    ControlPlane::new(options, identity, 2, true, now_unix_s, Box::new(entropy))
}

fn plane(options: ControlOptions, now_unix_s: u64) -> ControlPlane {
    plane_with(options, Arc::new(InMemory::default()), START, now_unix_s, 1)
}

/// Files of which some cannot be written.
#[derive(Debug, Default)]
struct Refusing {
    files: InMemory,
    refused: &'static str,
}

impl Files for Refusing {
    fn read(&self, path: &Path, bytes_max: usize) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
        self.files.read(path, bytes_max)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if path.to_string_lossy().contains(self.refused) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.files.write(path, bytes)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.files.exists(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.remove(path)
    }

    fn create_private_dir(&self, path: &Path) -> io::Result<()> {
        self.files.create_private_dir(path)
    }
}

fn is_tell(wanted: &Wanted, what: &str) -> bool {
    matches!(wanted, Wanted::Tell { control, .. } if format!("{control:?}") == what)
}

/// How often a shard was to be told of this.
fn tells(world: &World, what: &str) -> usize {
    world.wanted.iter().filter(|wanted| is_tell(wanted, what)).count()
}

#[test]
fn link_certificates_are_renewed_though_a_key_file_cannot_be_written() {
    let files = Arc::new(Refusing { refused: "secret_onion_key.old", ..Refusing::default() });
    let mut plane = plane_with(options(Vec::new()), files, START, DUE, 1);
    assert!(plane.credentials.certs().renewal_due(DUE));
    plane.renew(DUE);
    assert_eq!(plane.credentials.keys().ntor_keys().len(), 1, "the onion keys are as before");
    assert!(!plane.credentials.certs().renewal_due(DUE + 44 * HOUR_S));
    let transports = plane.wanted.iter().filter(|wanted| is_tell(wanted, "Transport")).count();
    assert_eq!(transports, 2, "each shard has a new one");
}

/// Who learns the generator for what is no secret, say from a dump of memory, learns no key from it.
#[test]
fn keys_are_not_made_by_the_generator_that_the_control_plane_keeps() {
    let made = [1, 2].map(|seed| {
        let files = Arc::new(InMemory::default());
        let mut plane = plane_with(options(Vec::new()), files, START, DUE, seed);
        plane.rng = Seed::from_number(1).rng();
        plane.renew(DUE);
        assert_eq!(plane.credentials.keys().ntor_keys().len(), 2, "the new key and the one before");
        let tls_key = plane.credentials.certs().tls_key_pkcs8().to_vec();
        (plane.credentials.keys().ntor_keys()[0].public, tls_key)
    });
    assert!(made[0].0 != made[1].0 && made[0].1 != made[1].1);
}

#[test]
fn an_exit_is_one_once_its_name_servers_are_known() {
    let exit_policy = ExitPolicy::from_rules(&["accept *:80".parse().unwrap()]);
    let authorities = vec![authority(address(1), None)];
    let mut plane = plane(ControlOptions { exit_policy, ..options(authorities) }, START);
    plane.name_servers = NameServers::new(false);
    let mut world = World::new(plane, START, vec![(address(1), Manner::Honest)]);
    let rejects_all = |world: &World| {
        let (_, post) = world.heard.last().unwrap();
        post.contains("\nreject *:*\n") && !post.contains("\naccept *:80\n")
    };
    let reloads = |world: &World| {
        world.wanted.iter().filter(|wanted| matches!(wanted, Wanted::NameServers { reload: true })).count()
    };
    world.run(Duration::from_secs(599), |_| false);
    assert_eq!(world.posts(), 1);
    assert!(rejects_all(&world));
    assert!(world.wanted.iter().any(|wanted| matches!(wanted, Wanted::NameServers { reload: false })));
    assert_eq!(reloads(&world), 0, "the list is not read again at once");
    world.run(TICK * 2, |_| false);
    assert_eq!(reloads(&world), 1);

    world.tell(Told::NameServers { known: false });
    world.run(Duration::from_secs(90), |_| false);
    assert_eq!(world.posts(), 1);
    world.tell(Told::NameServers { known: true });
    world.run(TICK * 2, |_| false);
    assert_eq!(world.posts(), 2);
    assert!(!rejects_all(&world));

    // It goes on being asked, because they may begin to lie.
    world.wanted.clear();
    world.run(Duration::from_secs(120), |_| false);
    let asked = world.wanted.iter().filter(|wanted| matches!(wanted, Wanted::NameServers { reload: false }));
    assert_eq!(asked.count(), 2);
    world.tell(Told::NameServers { known: false });
    world.run(Duration::from_secs(90), |_| false);
    assert_eq!(world.posts(), 3);
    assert!(rejects_all(&world));
}

#[test]
fn what_was_carried_is_known_after_a_restart() {
    let files = Arc::new(InMemory::default());
    let mut world =
        World::new(plane_with(options(Vec::new()), files.clone(), START, START, 1), START, Vec::new());
    for second in 1..=11 {
        world.run(TICK, |_| false);
        world.tell(Told::Carried(Carried { read: 10_240 * second, written: 20_480 * second }));
    }
    world.run(TICK, |_| false);
    let asked = world.wanted.iter().filter(|wanted| matches!(wanted, Wanted::Carried)).count();
    assert!((11..=13).contains(&asked), "it asks once a second, and did {asked} times in 12 s");
    world.plane.save();
    let after = plane_with(options(Vec::new()), files, START, START + HOUR_S, 1);
    assert_eq!(after.bandwidth.observed(), 10_240);
}

#[test]
fn a_directory_that_never_answers_keeps_nothing_from_being_published_or_renewed() {
    let authorities = vec![authority(address(1), Some(V3_IDENT)), authority(address(2), None)];
    let directories = vec![(address(1), Manner::Silent), (address(2), Manner::Honest)];
    let mut world = World::new(plane(options(authorities), DUE - HOUR_S), DUE - HOUR_S, directories);
    world.run(Duration::from_secs(5), |_| false);
    assert_eq!(world.posts(), 2);
    assert!(world.plane.following.is_fetching() && world.plane.publishing.is_posting());
    world.run(Duration::from_secs(HOUR_S), |_| false);
    assert!(!world.plane.credentials.certs().renewal_due(DUE + 44 * HOUR_S));
    assert_eq!(world.plane.credentials.keys().ntor_keys().len(), 2, "a new onion key and the one before");
    assert_eq!(world.posts(), 4, "the new onion key is published, and the silent one has lost its minute");
}

#[test]
fn a_change_while_a_descriptor_is_posted_is_published_too() {
    let authorities = vec![authority(address(1), None), authority(address(2), None)];
    let directories = vec![(address(1), Manner::Silent), (address(2), Manner::Honest)];
    let mut world = World::new(plane(options(authorities), START), START, directories);
    let took = world.run(ROUND_MAX, |world| world.posts() == 2);
    assert!(took < TICK, "{took:?}");
    world.plane.publishing.on_change();
    let took = world.run(ROUND_MAX, |world| world.posts() == 4);
    assert!(took > Duration::from_secs(59), "one descriptor at a time is under way, and not {took:?}");
    assert!(took < Duration::from_secs(62), "a minute for the silent one, and then the change: {took:?}");
}

#[test]
fn authorities_that_take_nothing_are_asked_ever_more_slowly() {
    let authorities = vec![authority(address(1), None), authority(address(2), None)];
    let mut world = World::new(plane(options(authorities), START), START, Vec::new());
    world.run(Duration::from_secs(200), |_| false);
    let dialled: Vec<u64> = world.dialled.iter().map(|(after, _)| after.as_secs()).collect();
    assert_eq!(dialled, [0, 5, 15, 35, 75, 155].map(|at| [at; 2]).concat());
}

#[test]
fn a_consensus_that_cannot_be_kept_is_told_all_the_same() {
    let files = Arc::new(Refusing { refused: "cached-", ..Refusing::default() });
    let authorities = vec![authority(address(1), Some(V3_IDENT))];
    let plane = plane_with(options(authorities), files, NOW, NOW, 1);
    let mut world = World::new(plane, NOW, vec![(address(1), Manner::Honest)]);
    world.run(Duration::from_secs(3), |_| false);
    assert_eq!(world.plane.standing().relays, 2);
    // At the start, when nothing was known, and then.
    assert_eq!((tells(&world, "Peers"), tells(&world, "Params")), (4, 4));
}

#[test]
fn a_shard_that_missed_something_is_told_all_of_it_again() {
    let mut world = World::new(plane(options(Vec::new()), START), START, Vec::new());
    world.run(TICK, |_| false);
    world.wanted.clear();
    world.tell(Told::Missed { shard: 1 });
    world.run(TICK * 2, |_| false);
    for what in ["OnionKeys", "Params", "Peers", "Transport"] {
        assert_eq!(tells(&world, what), 1, "{what}");
    }
    let to_others = |wanted: &&Wanted| matches!(wanted, Wanted::Tell { shard, .. } if *shard != 1);
    assert_eq!(world.wanted.iter().filter(to_others).count(), 0);
}

/// What a round of fetches from directories of these manners comes to.
struct Round {
    /// Whether there is a consensus, and of how many relays the microdescriptors are known.
    fetched: bool,
    known: u64,
    took: Duration,
    /// Whom it asked first.
    first: Option<SocketAddr>,
}

fn fetch(manners: &[Manner], seed: u64) -> Round {
    let addresses = (1..).map(address);
    let directories: Vec<_> = addresses.zip(manners.iter().copied()).collect();
    // All are the one authority that has signed the consensus.
    let authorities = directories.iter().map(|(address, _)| authority(*address, Some(V3_IDENT))).collect();
    let options = ControlOptions { publish: false, ..options(authorities) };
    let plane = plane_with(options, Arc::new(InMemory::default()), START, NOW, seed);
    let mut world = World::new(plane, NOW, directories);
    let has_ended = |world: &World| !world.dialled.is_empty() && !world.plane.following.is_fetching();
    let took = world.run(ROUND_MAX * 2, has_ended);
    Round {
        fetched: world.plane.consensus().is_some(),
        known: world.plane.standing().relays,
        took,
        first: world.dialled.first().map(|(_, address)| *address),
    }
}

#[test]
fn a_round_ends_in_time_whatever_directories_do() {
    for (manner, most) in [
        (Manner::Silent, ROUND_MAX),
        (Manner::TrickledHead, ROUND_MAX),
        (Manner::TrickledBody, ROUND_MAX),
        // It is as much as a consensus may have at a megabyte a second, and eight of them.
        (Manner::Endless, Duration::from_secs(8 * 17)),
    ] {
        let Round { fetched, took, .. } = fetch(&[manner; 8], 1);
        assert!(!fetched, "{manner:?}");
        assert!(took <= most && took > most / 2, "{manner:?} took {took:?}");
    }
}

#[test]
fn an_honest_one_is_asked_after_one_that_is_of_no_use() {
    for (manner, takes) in [
        (Manner::Silent, REQUEST_MAX),
        (Manner::TrickledHead, REQUEST_MAX),
        (Manner::TrickledBody, REQUEST_MAX),
        (Manner::Endless, Duration::from_secs(15)),
        (Manner::Closed, Duration::ZERO),
        (Manner::Empty, Duration::ZERO),
        (Manner::NotModified, Duration::ZERO),
        (Manner::CutShort, Duration::ZERO),
        (Manner::Binary, Duration::ZERO),
        (Manner::Forged, Duration::ZERO),
        (Manner::NoCerts, Duration::ZERO),
    ] {
        let rounds = (1..).map(|seed| fetch(&[manner, Manner::Honest], seed));
        let mut bad_ones_first = rounds.take(20).filter(|round| round.first == Some(address(1)));
        let Round { fetched, known, took, .. } = bad_ones_first.next().expect("one in two begins with it");
        assert!(fetched && known > 0, "{manner:?}");
        assert!(took >= takes && took <= takes + TICK, "{manner:?} took {took:?}");
    }
}

#[test]
fn microdescriptors_that_trickle_cost_no_consensus() {
    let Round { fetched, known, took, .. } = fetch(&[Manner::TrickledMicrodescs; 8], 1);
    assert!(fetched && known == 0);
    assert!(took <= ROUND_MAX, "{took:?}");
}

#[test]
fn a_relay_looks_whether_it_is_reached_before_it_says_that_it_is() {
    let authorities = vec![authority(address(1), Some(V3_IDENT))];
    let plane = plane(ControlOptions { assume_reachable: false, ..options(authorities) }, NOW);
    let mut world = World::new(plane, NOW, vec![(address(1), Manner::Honest)]);
    world.run(Duration::from_secs(95), |_| false);
    let probes = tells(&world, "ProbeReachability");
    assert!((3..=4).contains(&probes), "one in 30 s, and there were {probes}");
    world.tell(Told::ProbeFailed);
    world.run(TICK * 2, |_| false);
    assert_eq!(world.posts(), 0);
    world.tell(Told::Reachable);
    world.run(TICK * 2, |_| false);
    assert_eq!(world.posts(), 1);
}

/// A clock that is set while the relay runs is the one by which it renews and publishes.
#[test]
fn a_clock_that_is_set_counts_at_once() {
    let authorities = vec![authority(address(1), None)];
    let mut world = World::new(plane(options(authorities), START), START, vec![(address(1), Manner::Honest)]);
    world.run(TICK * 3, |_| false);
    assert_eq!((world.posts(), world.plane.credentials.keys().ntor_keys().len()), (1, 1));
    world.set_clock(DUE);
    world.run(TICK * 2, |_| false);
    assert_eq!((world.posts(), world.plane.credentials.keys().ntor_keys().len()), (2, 2));
}
