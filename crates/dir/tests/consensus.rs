//! The consensus of a stock authority is fetched, verified and kept, and lists our relay.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a real Tor has real sockets and time"
)]

mod stock;

use std::time::{SystemTime, UNIX_EPOCH};

use heddle_dir::authority::DirAuthority;
use heddle_dir::consensus::Consensus;
use heddle_dir::consensus::client::{DirectoryClient, FetchError};
use heddle_dir::descriptor::{Bandwidth, DescriptorOptions, sign_descriptor};
use heddle_dir::files::Disk;
use heddle_dir::http::{HttpError, Request};
use heddle_dir::keys::{KeyOptions, OnionKeyLifetimes, RelayKeys};
use heddle_dir::publish::{Listing, PostOutcome};
use heddle_seam::rng::Rng;
use heddle_seam::rng::Seed;
use heddle_seam::time::Instant;
use std::sync::Arc;
use stock::{Authority, Scratch, exchange, post};

const PROTOCOLS: &str = "Cons=2 Desc=2 DirCache=2 FlowCtrl=1-2 HSDir=2 HSIntro=4-5 HSRend=2 \
                         Link=4-5 LinkAuth=3 Microdesc=2 Relay=2-4";

fn now_unix_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_secs()
}

/// Publishes a relay to `authority`, and returns its keys.
fn publish_relay(scratch: &Scratch, authority: &Authority) -> RelayKeys {
    let mut rng = Seed::from_number(1).rng();
    let options = KeyOptions::new(scratch.path(), "heddle");
    let keys = RelayKeys::load_or_create(options, now_unix_s(), &mut rng).unwrap();
    let options = DescriptorOptions {
        nickname: "heddle".to_owned(),
        ipv4: [127, 0, 0, 1].into(),
        or_port: 9001,
        dir_port: 0,
        ipv6_or_address: None,
        platform: "Heddle 0.1.0 on Linux".to_owned(),
        protocols: PROTOCOLS.to_owned(),
        uptime_s: 0,
        bandwidth: Bandwidth { rate: 1 << 30, burst: 1 << 30, observed: 0 },
        contact: None,
        family: vec![],
        hibernating: false,
        hidden_service_dir: false,
        tunnelled_dir_server: false,
        exit_policy: vec![],
        ipv6_policy: None,
    };
    let descriptor = sign_descriptor(&options, &keys, now_unix_s()).unwrap();
    let outcome = post(authority, &descriptor);
    assert!(matches!(outcome, PostOutcome::Accepted), "{outcome:?}");
    keys
}

#[test]
fn it_is_followed_and_lists_our_relay() {
    let scratch = Scratch::new("consensus");
    let authority = Authority::start("consensus-authority");
    let keys = publish_relay(&scratch, &authority);
    authority.wait_for_log("Published microdesc consensus");

    let mut rng = Seed::from_number(2).rng();
    let authorities = vec![authority.line.clone()];
    let client = |rng: &mut Rng| {
        DirectoryClient::new(Arc::new(Disk), scratch.path(), authorities.clone(), now_unix_s(), rng)
    };
    let restart = client;
    let mut client = client(&mut rng);
    assert!(client.consensus().is_none());
    while !lists(&client, &keys) {
        match fetch(&mut client, &mut rng) {
            Ok(()) if lists(&client, &keys) => {}
            // It has not voted since our relay was published, or is about to publish.
            Ok(()) | Err(FetchError::NotNewer | FetchError::Refused { status: 404, .. }) => {
                authority.wait_for_log("Published microdesc consensus");
            }
            Err(error) => panic!("{error}"),
        }
    }

    let consensus = client.consensus().unwrap();
    assert!(consensus.is_live(now_unix_s()));
    assert_eq!(consensus.params.get("heddletest"), Some(&7));
    assert_eq!(OnionKeyLifetimes::from_params(&consensus.params).rotation_days, 14);
    let relay = consensus.relay(&keys.rsa_id()).unwrap();
    assert_eq!(relay.nickname, "heddle");
    assert_eq!(relay.ed25519_id, Some(keys.ed25519_id()));
    assert_eq!(relay.ntor_onion_key, Some(keys.ntor_keys()[0].public));
    assert_eq!(relay.or_addresses, ["127.0.0.1:9001".parse().unwrap()]);
    assert_eq!(relay.protocols, PROTOCOLS);
    assert!(!relay.flags.authority);
    assert_eq!(consensus.listing(&keys.rsa_id()), Listing::Listed);
    assert_eq!(consensus.listing(&[0; 20]), Listing::Unlisted);
    assert!(consensus.contains(&keys.rsa_id(), &keys.ed25519_id()));
    assert!(!consensus.contains(&keys.rsa_id(), &[0; 32]));

    let kept = consensus.clone();
    gaps_are_filled(&scratch, &kept, authorities.clone(), &mut rng);

    // A restart needs no authority.
    drop(authority);
    let restarted = restart(&mut rng);
    assert_eq!(restarted.consensus(), Some(&kept));
}

/// Microdescriptors that were lost from the disk are asked for without a newer consensus, again when that failed, and
/// kept.
fn gaps_are_filled(scratch: &Scratch, whole: &Arc<Consensus>, authorities: Vec<DirAuthority>, rng: &mut Rng) {
    std::fs::remove_file(scratch.path().join("cached-microdescs")).unwrap();
    // Ten seconds before the next consensus.
    let at = whole.valid_after_unix_s;
    let mut client = DirectoryClient::new(Arc::new(Disk), scratch.path(), authorities, at, rng);
    assert!(client.consensus().unwrap().relays.iter().all(|relay| relay.ed25519_id.is_none()));
    let asks = |ask: &Request| ask.bytes.starts_with(b"GET /tor/micro/d/");
    let first = client.poll(Instant::ZERO, at, rng).unwrap().expect("they are missing");
    assert!(asks(&first), "{}", String::from_utf8_lossy(&first.bytes));
    let failed = client.on_answer(Instant::ZERO, at, Err(HttpError::TimedOut), rng);
    assert!(matches!(failed, Some(Ok(()))) && client.poll(Instant::ZERO, at, rng).unwrap().is_none());
    let second = client.poll(Instant::ZERO, at + 8, rng).unwrap().expect("they are asked for again");
    assert!(asks(&second), "{}", String::from_utf8_lossy(&second.bytes));
    let answer = exchange(second.to, &second.bytes, second.body_bytes_max);
    let filled = client.on_answer(Instant::ZERO, at + 8, answer, rng);
    assert!(matches!(filled, Some(Ok(()))), "{filled:?}");
    assert_eq!(client.consensus(), Some(whole));
}

/// One round of fetches, whenever the next is due.
fn fetch(client: &mut DirectoryClient, rng: &mut Rng) -> Result<(), FetchError> {
    let mut due_unix_s = now_unix_s();
    loop {
        match client.poll(Instant::ZERO, due_unix_s, rng)? {
            Some(ask) => {
                let answer = exchange(ask.to, &ask.bytes, ask.body_bytes_max);
                if let Some(result) = client.on_answer(Instant::ZERO, now_unix_s(), answer, rng) {
                    return result;
                }
            }
            None => due_unix_s += 1,
        }
    }
}

fn lists(client: &DirectoryClient, keys: &RelayKeys) -> bool {
    client.consensus().is_some_and(|consensus| consensus.relay(&keys.rsa_id()).is_some())
}
