//! A stock authority takes our descriptor and shows it to others.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a real Tor has real sockets and time"
)]

mod stock;

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use heddle_dir::descriptor::{Bandwidth, DescriptorError, DescriptorOptions, sign_descriptor};
use heddle_dir::http;
use heddle_dir::keys::{KeyOptions, RelayKeys};
use heddle_dir::publish::PostOutcome;
use heddle_seam::rng::Seed;
use stock::{Authority, Scratch, exchange, post};
use tor_checkable::{SelfSigned, TimeBound};
use tor_netdoc::doc::routerdesc::RouterDesc;

fn now_unix_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_secs()
}

fn keys(scratch: &Scratch) -> RelayKeys {
    let mut rng = Seed::from_number(1).rng();
    RelayKeys::load_or_create(KeyOptions::new(scratch.path(), "heddle"), now_unix_s(), &mut rng).unwrap()
}

fn options() -> DescriptorOptions {
    DescriptorOptions {
        nickname: "heddle".to_owned(),
        ipv4: [127, 0, 0, 1].into(),
        or_port: 9001,
        dir_port: 0,
        ipv6_or_address: Some("[::1]:9001".parse().unwrap()),
        platform: "Heddle 0.1.0 on Linux".to_owned(),
        protocols: "Cons=2 Desc=2 DirCache=2 FlowCtrl=1-2 HSDir=2 HSIntro=4-5 HSRend=2 Link=4-5 \
                    LinkAuth=3 Microdesc=2 Relay=2-4"
            .to_owned(),
        uptime_s: 12,
        bandwidth: Bandwidth { rate: 1_073_741_824, burst: 1_073_741_824, observed: 0 },
        contact: Some("Tor Operator <nobody@example.com>".to_owned()),
        family: vec!["$9695DFC35FFEB861329B9F1AB04C46397020CE31".to_owned()],
        hibernating: false,
        hidden_service_dir: false,
        tunnelled_dir_server: false,
        exit_policy: vec!["accept *:80".to_owned(), "reject *:*".to_owned()],
        ipv6_policy: Some("accept 80,443".to_owned()),
    }
}

#[test]
fn a_stock_authority_takes_it_and_shows_it() {
    let scratch = Scratch::new("descriptor");
    let authority = Authority::start("descriptor-authority");
    let keys = keys(&scratch);
    let descriptor = sign_descriptor(&options(), &keys, now_unix_s()).unwrap();
    let outcome = post(&authority, &descriptor);
    assert!(matches!(outcome, PostOutcome::Accepted), "{outcome:?}");

    let address = SocketAddr::V4(authority.dir_address());
    let path = format!("/tor/server/fp/{}", keys.fingerprint());
    let response = exchange(address, &http::get(address, &path, None), 1 << 20).unwrap();
    assert_eq!(response.status, 200);
    assert_eq!(String::from_utf8(response.body).unwrap(), descriptor.text);

    // Once more with a hibernating relay: a change that authorities take at once. The options
    // that were absent above are all present, and the other way round.
    let changed = DescriptorOptions {
        dir_port: 9030,
        ipv6_or_address: None,
        contact: None,
        family: vec![],
        hibernating: true,
        hidden_service_dir: true,
        tunnelled_dir_server: true,
        exit_policy: vec![],
        ipv6_policy: None,
        ..options()
    };
    let descriptor = sign_descriptor(&changed, &keys, now_unix_s() + 1).unwrap();
    let outcome = post(&authority, &descriptor);
    assert!(matches!(outcome, PostOutcome::Accepted), "{outcome:?}");
}

#[test]
fn a_stock_authority_says_why_it_refuses() {
    let scratch = Scratch::new("refused");
    let authority = Authority::start("refusing-authority");
    let keys = keys(&scratch);
    let old = DescriptorOptions { platform: "Tor 0.2.4.1 on Linux".to_owned(), ..options() };
    let descriptor = sign_descriptor(&old, &keys, now_unix_s()).unwrap();
    match post(&authority, &descriptor) {
        PostOutcome::Refused { status: 400, reason } => {
            assert!(reason.contains("Please upgrade"), "{reason}");
        }
        outcome => panic!("{outcome:?}"),
    }
}

#[test]
fn another_implementation_verifies_it() {
    let scratch = Scratch::new("verified");
    let keys = keys(&scratch);
    let now = now_unix_s();
    let descriptor = sign_descriptor(&options(), &keys, now).unwrap();
    let parsed = RouterDesc::parse(&descriptor.text)
        .unwrap()
        .check_signature()
        .unwrap()
        .if_valid_at(&(UNIX_EPOCH + Duration::from_secs(now + 3600)))
        .unwrap();
    assert_eq!(parsed.rsa_identity().to_bytes(), keys.rsa_id());
    assert_eq!(parsed.ed_identity().as_bytes(), keys.ed25519_id());
    assert_eq!(parsed.ntor_onion_key().to_bytes(), keys.ntor_keys()[0].public);
}

#[test]
fn what_would_break_the_document_is_refused() {
    let scratch = Scratch::new("invalid");
    let keys = keys(&scratch);
    let refused = |change: fn(&mut DescriptorOptions)| {
        let mut options = options();
        change(&mut options);
        sign_descriptor(&options, &keys, now_unix_s()).unwrap_err()
    };
    let changes: [fn(&mut DescriptorOptions); 11] = [
        |options| options.nickname = "not-legal".to_owned(),
        |options| options.nickname.clear(),
        |options| options.or_port = 0,
        |options| options.contact = Some("a\nreject *:*".to_owned()),
        |options| options.platform = "Heddle\r".to_owned(),
        |options| options.family = vec!["$12".to_owned()],
        |options| options.family = vec!["two words".to_owned()],
        |options| options.exit_policy = vec!["accept *:80\nrouter x".to_owned()],
        |options| options.exit_policy = vec!["permit *:80".to_owned()],
        |options| options.ipv6_policy = Some(String::new()),
        |options| options.bandwidth.rate = 0,
    ];
    for change in changes {
        assert!(matches!(refused(change), DescriptorError::Invalid { .. }));
    }
    let long = refused(|options| options.exit_policy = vec!["accept 1.2.3.4:5".to_owned(); 2000]);
    assert!(matches!(long, DescriptorError::TooLong { .. }));
}
