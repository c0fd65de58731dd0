//! A relay's CERTS cells verify, and nothing else does.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a real Tor has real sockets and time"
)]

mod stock;

use std::sync::OnceLock;

use heddle_dir::certs::{
    CertError, ChannelCerts, ChannelSide, verify_authenticate_signature, verify_peer_certs,
};
use heddle_dir::keys::{KeyOptions, RelayKeys};
use heddle_seam::rng::Seed;
use proptest::prelude::*;
use stock::Scratch;

const NOW: u64 = 1_700_000_000;
const DAY_S: u64 = 86_400;

fn make(seed: u64) -> (RelayKeys, ChannelCerts) {
    let scratch = Scratch::new(&format!("certs-{seed}"));
    let mut rng = Seed::from_number(seed).rng();
    let options = KeyOptions::new(scratch.path(), "heddle");
    let keys = RelayKeys::load_or_create(options, NOW, &mut rng).unwrap();
    let certs = ChannelCerts::create(&keys, NOW, &mut rng).unwrap();
    (keys, certs)
}

/// One relay for all tests, because its RSA-2048 key takes a while.
fn relay() -> &'static (RelayKeys, ChannelCerts) {
    static RELAY: OnceLock<(RelayKeys, ChannelCerts)> = OnceLock::new();
    RELAY.get_or_init(|| make(1))
}

#[test]
fn a_responder_is_known_by_both_identities() {
    let (keys, certs) = relay();
    let cell = certs.certs_cell(ChannelSide::Responder);
    let digest = certs.tls_cert_sha256();
    let peer = verify_peer_certs(&cell, Some(&digest), NOW).unwrap();
    assert_eq!(peer.rsa_id, keys.rsa_id());
    assert_eq!(peer.ed25519_id, keys.ed25519_id());
    assert_eq!(peer.rsa_key_sha256, certs.rsa_key_sha256());
    assert_eq!(peer.auth_key, None);
    let other = verify_peer_certs(&cell, Some(&[0; 32]), NOW);
    assert_eq!(other, Err(CertError::WrongSubject(5)));
}

#[test]
fn an_initiator_is_known_when_its_key_signs() {
    let (_, certs) = relay();
    let cell = certs.certs_cell(ChannelSide::Initiator);
    let peer = verify_peer_certs(&cell, None, NOW).unwrap();
    let auth_key = peer.auth_key.unwrap();
    let signature = certs.sign_authenticate(b"AUTH0003");
    assert!(verify_authenticate_signature(&auth_key, b"AUTH0003", &signature));
    assert!(!verify_authenticate_signature(&auth_key, b"AUTH0004", &signature));
    assert!(!verify_authenticate_signature(&[2; 32], b"AUTH0003", &signature));
    // Each side must show its own kind of certificate.
    let responder = certs.certs_cell(ChannelSide::Responder);
    assert_eq!(verify_peer_certs(&responder, None, NOW), Err(CertError::Missing(6)));
    let digest = certs.tls_cert_sha256();
    assert_eq!(verify_peer_certs(&cell, Some(&digest), NOW), Err(CertError::Missing(5)));
}

#[test]
fn each_certificate_is_needed_once_and_in_time() {
    let (_, certs) = relay();
    let digest = certs.tls_cert_sha256();
    let cell = certs.certs_cell(ChannelSide::Responder);
    let verify = |cell: &[(u8, &[u8])], now| verify_peer_certs(cell, Some(&digest), now);
    for (index, (kind, _)) in cell.iter().enumerate() {
        let mut without = cell.to_vec();
        let one = without.remove(index);
        assert_eq!(verify(&without, NOW), Err(CertError::Missing(*kind)));
        let mut twice = cell.to_vec();
        twice.push(one);
        assert_eq!(verify(&twice, NOW), Err(CertError::Duplicate(*kind)));
    }
    let mut more = cell.to_vec();
    more.extend([(9, &b"unknown"[..]), (9, b"types")]);
    assert!(verify(&more, NOW).is_ok());
    assert_eq!(verify(&cell, NOW + 3 * DAY_S), Err(CertError::Untimely(5)));
    assert_eq!(verify(&cell, NOW + 31 * DAY_S), Err(CertError::Untimely(4)));
    assert_eq!(verify(&cell, NOW - 3 * DAY_S), Err(CertError::Untimely(2)));
    assert!(!certs.renewal_due(NOW));
    assert!(certs.renewal_due(NOW + 2 * DAY_S - 3600));
    assert!(certs.renewal_due(NOW - 1), "the clock was set back");
}

#[test]
fn certificates_of_two_relays_do_not_mix() {
    let (_, certs) = relay();
    let (_, others) = make(2);
    let digest = certs.tls_cert_sha256();
    let cell = certs.certs_cell(ChannelSide::Responder);
    let other = others.certs_cell(ChannelSide::Responder);
    for (index, fault) in [
        (0, CertError::BadSignature(7)),
        (1, CertError::BadSignature(5)),
        (2, CertError::BadSignature(5)),
        (3, CertError::BadSignature(7)),
    ] {
        let mut mixed = cell;
        mixed[index] = other[index];
        let result = verify_peer_certs(&mixed, Some(&digest), NOW);
        assert_eq!(result, Err(fault), "{index}");
    }
}

#[test]
fn rustls_serves_with_the_link_certificate() {
    let (_, certs) = relay();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(certs.tls_key_pkcs8().to_vec());
    let chain = vec![certs.tls_cert_der().to_vec().into()];
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key.into())
        .unwrap();
}

#[test]
fn every_changed_bit_is_noticed() {
    let (_, certs) = relay();
    let digest = certs.tls_cert_sha256();
    let cell = certs.certs_cell(ChannelSide::Responder);
    for index in 0..cell.len() {
        let (kind, original) = cell[index];
        for at in 0..original.len() * 8 {
            let mut changed = original.to_vec();
            changed[at / 8] ^= 1 << (at % 8);
            let mut mixed = cell;
            mixed[index].1 = &changed;
            let result = verify_peer_certs(&mixed, Some(&digest), NOW);
            assert!(result.is_err(), "bit {} of byte {} of type {kind}", at % 8, at / 8);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_refused_without_a_panic(
        cell in prop::collection::vec((0..9_u8, prop::collection::vec(any::<u8>(), 0..200)), 0..8)
    ) {
        let cell: Vec<(u8, &[u8])> = cell.iter().map(|(kind, cert)| (*kind, &cert[..])).collect();
        prop_assert!(verify_peer_certs(&cell, None, NOW).is_err());
    }
}
