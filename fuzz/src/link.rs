//! Link and circuit messages: what is read is written back, and read again as the same.

use heddle_proto::cell::create::{Create2, CreateFast, Created2, CreatedFast, DestroyReason};
use heddle_proto::cell::extend::Extended2;
use heddle_proto::cell::link::{AuthChallenge, Authenticate, Certs, Netinfo, PaddingNegotiate, Versions};

pub fn run(data: &[u8]) {
    if let Ok(versions) = Versions::parse(data) {
        let _ = versions.best_common(&[4, 5]);
        let mut body = Vec::new();
        versions.encode(&mut body);
        assert_eq!(body, data);
    }
    if let Ok(certs) = Certs::parse(data) {
        let mut body = Vec::new();
        certs.encode(&mut body);
        assert!(data.starts_with(&body));
    }
    if let Ok(challenge) = AuthChallenge::parse(data) {
        let mut body = Vec::new();
        challenge.encode(&mut body);
        assert!(data.starts_with(&body));
    }
    if let Ok(authenticate) = Authenticate::parse(data) {
        let _ = authenticate.ed25519();
        let mut body = Vec::new();
        authenticate.encode(&mut body);
        assert!(data.starts_with(&body));
    }
    netinfo(data);
    if let Ok(padding) = PaddingNegotiate::parse(data) {
        let mut body = Vec::new();
        padding.encode(&mut body);
        assert_eq!(PaddingNegotiate::parse(&body), Ok(padding));
    }
    handshakes(data);
}

fn netinfo(data: &[u8]) {
    let Ok(netinfo) = Netinfo::parse(&data[..data.len().min(509)]) else { return };
    let mut body = Vec::new();
    netinfo.encode(&mut body);
    assert!(body.len() <= 509);
    let again = Netinfo::parse(&body).expect("what we encode is well formed");
    assert!(netinfo.my_addrs.starts_with(&again.my_addrs));
}

fn handshakes(data: &[u8]) {
    if let Ok(create) = Create2::parse(data) {
        let mut body = Vec::new();
        create.encode(&mut body);
        assert!(data.starts_with(&body));
    }
    if let Ok(created) = Created2::parse(data) {
        let mut body = Vec::new();
        created.encode(&mut body);
        assert!(data.starts_with(&body));
        if let Ok(extended) = Extended2::from_created(&created) {
            let mut relayed = Vec::new();
            extended.encode(&mut relayed);
            assert!(relayed.len() <= 498 && relayed == body);
        }
    }
    if let Ok(fast) = CreateFast::parse(data) {
        assert!(data.starts_with(&fast.key_material));
    }
    if let Ok(fast) = CreatedFast::parse(data) {
        assert_eq!(data[20..40], fast.derivative_key);
    }
    let _ = DestroyReason::parse(data).to_string();
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut netinfo = vec![0x5F, 0x6F, 0x85, 0x9C, 4, 4, 127, 0, 0, 1, 2, 4, 4, 127, 0, 0, 1, 6, 16];
    netinfo.extend_from_slice(&[1; 16]);
    let mut challenge = vec![9; 32];
    challenge.extend_from_slice(&[0, 2, 0, 1, 0, 3]);
    let mut authenticate = vec![0, 3, 1, 0x60];
    authenticate.extend_from_slice(&[7; 352]);
    vec![
        vec![0, 3, 0, 4, 0, 5],
        vec![2, 4, 0, 3, 1, 2, 3, 7, 0, 0],
        netinfo,
        challenge,
        authenticate,
        vec![0, 2, 0x25, 0xE4, 0x27, 0x10],
        vec![0, 2, 0, 4, 1, 2, 3, 4],
        vec![0, 4, 1, 2, 3, 4],
    ]
}
