use super::*;
use heddle_dir::consensus::AuthorityCerts;
use heddle_dir::descriptor::{Bandwidth, DescriptorOptions, sign_descriptor};
use heddle_dir::files::InMemory;
use heddle_dir::keys::{KeyOptions, RelayKeys};
use heddle_seam::rng::Seed;
use std::sync::Arc;

const NOW: u64 = 1_798_000_000;
const ADDRESS: SocketAddrV4 = SocketAddrV4::new(core::net::Ipv4Addr::new(10, 255, 0, 1), DIR_PORT);

fn authority() -> Authority {
    let mut rng = Seed::from_number(1).rng();
    let mut authority = Authority::new(ADDRESS, Duration::from_secs(60), BTreeMap::new(), &mut rng);
    let clock = Input::<Plain>::WallClock(UnixTime { ns: NOW * 1_000_000_000 });
    authority.handle_input(Instant::ZERO, clock);
    authority
}

fn keys(seed: u64) -> RelayKeys {
    let files = Arc::new(InMemory::default());
    let options = KeyOptions { files, ..KeyOptions::new("data", "relay") };
    RelayKeys::load_or_create(options, NOW, &mut Seed::from_number(seed).rng()).unwrap()
}

fn descriptor(keys: &RelayKeys, published_unix_s: u64) -> String {
    let options = DescriptorOptions {
        nickname: "relay".to_owned(),
        ipv4: [10, 0, 0, 1].into(),
        or_port: 9001,
        dir_port: 0,
        ipv6_or_address: None,
        platform: "Heddle".to_owned(),
        protocols: "Link=4-5 Relay=2-4".to_owned(),
        uptime_s: 0,
        bandwidth: Bandwidth { rate: 1 << 20, burst: 1 << 20, observed: 5000 },
        contact: None,
        family: vec![],
        hibernating: false,
        hidden_service_dir: false,
        tunnelled_dir_server: false,
        exit_policy: vec!["accept *:80".to_owned()],
        ipv6_policy: None,
    };
    sign_descriptor(&options, keys, published_unix_s).unwrap().text
}

fn status(authority: &mut Authority, text: &str) -> String {
    let answer = authority.answer(Instant::ZERO, "POST /tor/ HTTP/1.0", text);
    String::from_utf8(answer).unwrap().lines().next().unwrap().to_owned()
}

#[test]
fn what_is_wrong_with_a_descriptor_is_said_and_changes_nothing() {
    let mut authority = authority();
    let keys = keys(1);
    let good = descriptor(&keys, NOW);
    assert_eq!(status(&mut authority, &good), "HTTP/1.0 200 OK");
    let refused = [
        good.replace("bandwidth 1048576", "bandwidth 2097152"),
        good.replace("router relay", "router other"),
        format!("{good}more"),
        good[..good.len() / 2].to_owned(),
        String::new(),
        descriptor(&keys, NOW - DAY_S),
        descriptor(&keys, NOW + SKEW_MAX_S + 1),
        descriptor(&keys, NOW - 1),
    ];
    for text in &refused {
        let said = status(&mut authority, text);
        assert!(said.starts_with("HTTP/1.0 400 ") && said.len() > 15, "{said}");
    }
    assert_eq!((authority.taken, authority.refused), (1, refused.len() as u32));
    let [known] = &authority.descriptors.values().collect::<Vec<_>>()[..] else { panic!("one relay") };
    assert_eq!((known.published_unix_s, known.entry.bandwidth), (NOW, 5));
    assert!(known.entry.flags.starts_with("Exit "));
    assert_eq!(status(&mut authority, &descriptor(&keys, NOW + 1)), "HTTP/1.0 200 OK");
}

#[test]
fn nobody_takes_half_of_anothers_identity() {
    let mut authority = authority();
    let [one, other] = [keys(1), keys(2)];
    assert_eq!(status(&mut authority, &descriptor(&one, NOW)), "HTTP/1.0 200 OK");
    // What was kept of one has an Ed25519 identity that another shows now.
    let id = authority.descriptors.values_mut().next().unwrap();
    id.ed25519_id = other.ed25519_id();
    for keys in [&one, &other] {
        assert!(status(&mut authority, &descriptor(keys, NOW + 1)).starts_with("HTTP/1.0 400 its two"));
    }
}

#[test]
fn requests_are_bounded_and_may_come_in_pieces() {
    let get = b"GET /tor/keys/all HTTP/1.0\r\n\r\n";
    for cut in 0..get.len() {
        assert_eq!(whole(&get[..cut]), Ok(None));
    }
    assert!(matches!(whole(get), Ok(Some(_))));
    assert_eq!(whole(&[b'x'; REQUEST_BYTES_MAX + 1]), Err("413 Too long"));
    assert_eq!(whole(b"POST / HTTP/1.0\r\nContent-Length: x\r\n\r\n"), Err("400 No length"));
    assert!(whole(&[0xff; 10]).is_err());
}

#[test]
fn a_certificate_ends_two_days_after_a_newer_one_and_the_newest_are_kept() {
    const HOUR_S: u64 = 3600;
    let mut rng = Seed::from_number(3).rng();
    let mut signer = Signer::generate(ADDRESS, &mut rng);
    let line = format!("auth v3ident={} {ADDRESS} {}", signer.v3_ident(), "0".repeat(40));
    let authorities = [DirAuthority::parse(&line, &mut Vec::new()).unwrap()];
    // Each an hour after the one before, and each of another key.
    let certificates: Vec<String> = (0..6)
        .map(|hour| {
            signer.change_signing_key(&mut rng);
            signer.certificate(NOW + hour * HOUR_S)
        })
        .collect();
    let kept = |certs: &AuthorityCerts| -> Vec<usize> {
        let text = certs.to_text();
        (0..certificates.len()).filter(|hour| text.contains(certificates[*hour].trim())).collect()
    };
    let two_days_later = NOW + HOUR_S + 2 * 86_400;
    let mut certs = AuthorityCerts::default();
    assert_eq!(certs.add(&certificates[..2].concat(), &authorities, NOW + HOUR_S), 2);
    certs.add("", &authorities, two_days_later);
    assert_eq!(kept(&certs), [0, 1]);
    certs.add("", &authorities, two_days_later + 1);
    assert_eq!(kept(&certs), [1]);
    assert_eq!(certs.add(&certificates[0], &authorities, two_days_later + 1), 0, "it is superseded");

    // Old ones that are still good keep no newer one out.
    let now = NOW + 5 * HOUR_S;
    let mut certs = AuthorityCerts::default();
    assert_eq!(certs.add(&certificates[..4].concat(), &authorities, now), 4);
    assert_eq!(certs.add(&certificates[4..].concat(), &authorities, now), 2);
    assert_eq!(kept(&certs), [2, 3, 4, 5]);
    assert_eq!(certs.add(&certificates[0], &authorities, now), 0);

    // The same key may have a later certificate.
    let renewed = signer.certificate(NOW + 6 * HOUR_S);
    assert_eq!(certs.add(&renewed, &authorities, NOW + 6 * HOUR_S), 1);
    assert!(certs.to_text().contains(renewed.trim()));
    assert_eq!(certs.add(&certificates[5], &authorities, NOW + 6 * HOUR_S), 0, "it is known");
}
