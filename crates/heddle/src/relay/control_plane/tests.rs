use super::*;
use heddle_dir::keys::{KeyOptions, RelayKeys};
use heddle_dir::publish::PublishReason;
use heddle_net::ResolverOptions;
use heddle_seam::rng::Seed;
use std::net::TcpListener;
use std::path::Path;
use std::sync::mpsc;

const HOUR_S: u64 = 3600;
const START: u64 = 1_700_000_000;
/// The onion keys that were made at the start are due then, and so, soon, are the link certificates.
const DUE: u64 = START + 28 * 24 * HOUR_S;

fn options(directory: &Path) -> Options {
    Options { data_directory: directory.to_owned(), ..Options::default() }
}

/// A control plane without shards, which does nothing by itself.
fn plane(options: Options, now_unix_s: u64) -> ControlPlane {
    let mut entropy = SystemEntropy::new().unwrap();
    let key_options = KeyOptions::new(&options.data_directory, "heddle");
    let keys = RelayKeys::load_or_create(key_options, START, &mut entropy.rng()).unwrap();
    let certs = ChannelCerts::create(&keys, DUE - 46 * HOUR_S, &mut entropy.rng()).unwrap();
    let reach =
        Reach { handles: Vec::new(), events: mpsc::channel().1, known: Known::default(), resolver: None };
    ControlPlane::new(options, keys, Arc::new(certs), Vec::new(), reach, entropy, now_unix_s)
}

#[test]
fn link_certificates_are_renewed_though_a_key_file_cannot_be_written() {
    let directory = tempfile::tempdir().unwrap();
    let mut plane = plane(options(directory.path()), DUE);
    // What no key can take the place of, whoever runs this.
    std::fs::create_dir(plane.keys.directory().join("secret_onion_key.old")).unwrap();

    assert!(plane.certs.renewal_due(DUE));
    plane.renew(DUE);
    assert_eq!(plane.keys.ntor_keys().len(), 1, "the onion keys are as before");
    assert!(!plane.certs.renewal_due(DUE + 44 * HOUR_S));
}

/// Who learns the generator for what is no secret, say from a dump of memory, learns no key from it.
#[test]
fn keys_are_not_made_by_the_generator_that_the_control_plane_keeps() {
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut planes = directories.each_ref().map(|directory| plane(options(directory.path()), DUE));
    for plane in &mut planes {
        plane.rng = Seed::from_number(1).rng();
        plane.renew(DUE);
        assert_eq!(plane.keys.ntor_keys().len(), 2, "the new key and the one before");
    }
    let [one, other] = planes.map(|plane| plane.keys.ntor_keys()[0].public);
    assert_ne!(one, other);
}

#[test]
fn authorities_are_asked_from_the_address_that_the_operator_chose() {
    let directory = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let authority = format!("a v3ident={0} {1} {0}", "00".repeat(20), listener.local_addr().unwrap());
    let mut options = options(directory.path());
    options.dir_authority.push(DirAuthority::parse(&authority, &mut Vec::new()).unwrap());
    options.outbound_bind_address.push([127, 0, 0, 2].into());
    let mut plane = plane(options, START);
    let peer = std::thread::spawn(move || listener.accept().unwrap().1);
    plane.tick(START);
    assert_eq!(peer.join().unwrap().ip(), IpAddr::from([127, 0, 0, 2]));
}

#[test]
fn an_exit_is_one_once_its_name_servers_are_known() {
    let directory = tempfile::tempdir().unwrap();
    let resolv_conf = directory.path().join("resolv.conf");
    let resolver_options = ResolverOptions { resolv_conf: resolv_conf.clone(), ..ResolverOptions::default() };
    let resolver = Resolver::start(resolver_options).unwrap();
    assert!(resolver.reload().is_err());
    let mut options = options(directory.path());
    options.exit_relay = Some(true);
    let mut plane = plane(options, START);
    plane.advertised = vec![([203, 0, 113, 5], 9001).into()];
    plane.shards.resolver = Some(resolver);
    plane.resolves = plane.shards.can_resolve();
    let view = PublishView { now_unix_s: START, uptime_s: 0, observed_bandwidth: 0, listing: None };
    let rejects_all = |plane: &ControlPlane| plane.describe(&view).unwrap().exit_policy == ["reject *:*"];

    assert!(rejects_all(&plane));
    std::fs::write(&resolv_conf, "nameserver 192.0.2.1\n").unwrap();
    plane.find_name_servers();
    assert!(rejects_all(&plane), "it is not looked for at once");
    plane.name_servers_at = Instant::now().checked_sub(NAME_SERVERS_EVERY).unwrap();
    plane.schedule.on_published(&view, true);
    plane.find_name_servers();
    assert!(!rejects_all(&plane));
    let later = PublishView { now_unix_s: START + 60, ..view };
    assert_eq!(plane.schedule.poll(&later), Some(PublishReason::Changed));
}

#[test]
fn what_was_carried_is_known_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let mut before = plane(options(directory.path()), START);
    for second in 1..=10 {
        before.bandwidth.sample(START + second, 10_240 * second, 20_480 * second);
    }
    // It ends at once, since there are no shards.
    before.run();
    let after = plane(options(directory.path()), START + HOUR_S);
    assert_eq!(after.bandwidth.observed(), 10_240);
}

/// A relay that all may reach, of two authorities at these addresses, one of which has a vote.
fn published_to(directory: &Path, voter: SocketAddr, other: SocketAddr) -> ControlPlane {
    let mut options = options(directory);
    for line in
        [format!("a v3ident={0} {voter} {0}", "00".repeat(20)), format!("b {other} {}", "11".repeat(20))]
    {
        options.dir_authority.push(DirAuthority::parse(&line, &mut Vec::new()).unwrap());
    }
    options.assume_reachable = true;
    options.publish_server_descriptor = true;
    let mut plane = plane(options, START);
    plane.advertised = vec![([203, 0, 113, 5], 9001).into()];
    plane
}

#[test]
fn a_directory_that_never_answers_keeps_nothing_from_being_published_or_renewed() {
    use std::io::Read;
    let directory = tempfile::tempdir().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let heard = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut plane = published_to(directory.path(), silent.local_addr().unwrap(), heard.local_addr().unwrap());
    let started = Instant::now();
    plane.tick(DUE);
    let took = started.elapsed();
    let mut request = [0; 13];
    heard.accept().unwrap().0.read_exact(&mut request).unwrap();
    assert_eq!(&request, b"POST /tor/ HT");
    assert!(plane.directory.is_fetching() && plane.posting.is_some());
    assert!(!plane.certs.renewal_due(DUE + 44 * HOUR_S));
    assert!(took < Duration::from_secs(20), "{took:?}: it waited for the directory");
}

#[test]
fn a_change_while_a_descriptor_is_posted_is_published_too() {
    let directory = tempfile::tempdir().unwrap();
    // Nobody listens there.
    let closed: SocketAddr = ([127, 0, 0, 1], 9).into();
    let mut plane = published_to(directory.path(), closed, closed);
    plane.publish(START);
    plane.schedule.on_change();
    while plane.posting.is_some() {
        plane.publish(START);
    }
    let view = PublishView { now_unix_s: START, uptime_s: 0, observed_bandwidth: 0, listing: None };
    plane.schedule.on_published(&view, true);
    let later = PublishView { now_unix_s: START + 60, ..view };
    assert_eq!(plane.schedule.poll(&later), Some(PublishReason::Changed));
}

#[test]
fn a_panic_over_what_a_directory_sent_ends_that_round_alone() {
    let directory = tempfile::tempdir().unwrap();
    let mut plane = plane(options(directory.path()), START);
    let ControlPlane { directory, rng, .. } = &mut plane;
    let wait = |directory: &mut Follower, rng: &mut Rng| loop {
        if let Some(result) = directory.poll(START, rng) {
            return result;
        }
    };
    directory.start(START, rng, |_, _, _| panic!("as the test wants")).unwrap();
    assert!(matches!(wait(directory, rng), Err(FetchError::Panicked(_))));
    assert!(directory.poll(START, rng).is_none() && !directory.is_fetching(), "the next is later");
    directory.start(START, rng, DirectoryClient::fetch).unwrap();
    assert!(matches!(wait(directory, rng), Err(FetchError::NoAuthorities)));
}
