use super::*;
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
