use super::*;
use heddle_dir::keys::{KeyOptions, RelayKeys};
use heddle_dir::publish::PublishReason;
use heddle_net::ResolverOptions;
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
    plane.fetch(START);
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
