//! Documents that a stock authority made are believed, and nothing that differs from them.
//!
//! The fixtures are what the authority of a private network of one gave to a directory client.

use heddle_dir::authority::DirAuthority;
use heddle_dir::consensus::{AuthorityCerts, Consensus, ConsensusError, Microdescs};
use proptest::prelude::*;

const CONSENSUS: &str = include_str!("fixtures/microdesc-consensus");
const CERTS: &str = include_str!("fixtures/certs");
const MICRODESCS: &str = include_str!("fixtures/microdescs");
const V3_IDENT: &str = "3A1CEB849C2532E1BF0FF86900CF217296106DE4";
/// 2026-11-20 19:22:20, when the consensus became valid.
const NOW: u64 = 1_795_202_540;
const YEAR_S: u64 = 366 * 86_400;

fn authority(v3_ident: &str) -> DirAuthority {
    let line = format!("auth v3ident={v3_ident} 127.0.0.1:9 {}", "0".repeat(40));
    DirAuthority::parse(&line, &mut Vec::new()).unwrap()
}

fn authorities() -> Vec<DirAuthority> {
    vec![authority(V3_IDENT)]
}

fn certs() -> AuthorityCerts {
    let mut certs = AuthorityCerts::default();
    assert_eq!(certs.add(CERTS, &authorities(), NOW), 1);
    certs
}

fn consensus() -> Consensus {
    Consensus::parse(CONSENSUS, &authorities(), &certs()).unwrap()
}

#[test]
fn a_signed_consensus_says_what_it_says() {
    let consensus = consensus();
    let times = [consensus.valid_after_unix_s, consensus.fresh_until_unix_s, consensus.valid_until_unix_s];
    assert_eq!(times, [NOW, NOW + 10, NOW + 30]);
    assert!(!consensus.is_live(NOW - 1) && consensus.is_live(NOW));
    assert!(consensus.is_live(NOW + 30) && !consensus.is_live(NOW + 31));
    assert!(consensus.is_reasonably_live(NOW + 86_430));
    assert!(!consensus.is_reasonably_live(NOW + 86_431));
    let params: Vec<(&str, i32)> =
        consensus.params.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let expected = [("AuthDirMaxServersPerAddr", 0), ("heddletest", 7), ("onion-key-rotation-days", 14)];
    assert_eq!(params, expected);
    let names: Vec<&str> = consensus.relays.iter().map(|r| r.nickname.as_str()).collect();
    assert_eq!(names, ["heddle", "auth"]);
    let [ours, auths] = &consensus.relays[..] else { unreachable!() };
    assert!(ours.flags.fast && ours.flags.stable && !ours.flags.guard);
    assert!(auths.flags.authority && auths.flags.hs_dir && auths.flags.v2_dir);
    assert!(consensus.contains(&ours.rsa_id, &[0; 32]), "its key is not known yet");
}

#[test]
fn a_relay_learns_what_it_lacks() {
    let consensus = consensus();
    let required = "Cons=2 Desc=2 DirCache=2 FlowCtrl=1-2 HSDir=2 HSIntro=4-5 HSRend=2 Link=4-5 \
                    LinkAuth=3 Microdesc=2 Relay=2-4";
    assert_eq!(consensus.missing_protocols(required), None);
    for supported in [&required.replace("Relay=2-4", "Relay=2-3"), "", "nonsense"] {
        let missing = consensus.missing_protocols(supported).unwrap();
        assert!(missing.required && missing.explanation.contains("Relay="), "{missing:?}");
    }
}

#[test]
fn more_than_half_of_our_authorities_must_have_signed() {
    let other = authority(&"A".repeat(40));
    let parse = |authorities: &[DirAuthority], certs: &AuthorityCerts| {
        Consensus::parse(CONSENSUS, authorities, certs).unwrap_err()
    };
    let none = AuthorityCerts::default();
    let ident = authorities()[0].v3_ident.unwrap();
    assert_eq!(parse(&authorities(), &none), ConsensusError::CertsMissing(vec![ident]));
    let two = [authorities(), vec![other.clone()]].concat();
    assert_eq!(parse(&two, &certs()), ConsensusError::Unsigned);
    assert_eq!(parse(&[other], &certs()), ConsensusError::Unsigned);
    assert_eq!(parse(&[], &certs()), ConsensusError::Unsigned);
}

/// Whoever sends a consensus cannot have us check as many signatures as he likes.
#[test]
fn a_consensus_with_too_many_signatures_is_refused() {
    let (body, signature) = CONSENSUS.split_at(CONSENSUS.find("directory-signature ").unwrap());
    let begin = "-----BEGIN SIGNATURE-----\n";
    let first = signature.find(begin).unwrap() + begin.len();
    let mut bent = signature.to_owned();
    let other = if bent[first..].starts_with('A') { "B" } else { "A" };
    bent.replace_range(first..=first, other);
    let parse = |text: &str, certs: &AuthorityCerts| Consensus::parse(text, &authorities(), certs);
    let bent_many = |many: usize| format!("{body}{}{signature}", bent.repeat(many));
    assert_eq!(parse(&bent_many(3), &certs()).unwrap(), consensus(), "one of them is right");
    assert_eq!(parse(&format!("{body}{bent}"), &certs()), Err(ConsensusError::Unsigned));
    let refused = parse(&bent_many(104), &certs()).unwrap_err();
    assert_eq!(refused.to_string(), "the consensus is malformed: it has 105 signatures");
    // Two keys of one authority that we lack are asked for by its name, once.
    let key = signature.split_whitespace().nth(3).unwrap();
    let twice = format!("{body}{signature}{}", signature.replace(key, &"B".repeat(key.len())));
    let ident = authorities()[0].v3_ident.unwrap();
    let missing = parse(&twice, &AuthorityCerts::default());
    assert_eq!(missing, Err(ConsensusError::CertsMissing(vec![ident])));
}

#[test]
fn certificates_count_when_they_are_ours_and_hold() {
    let mut certs = AuthorityCerts::default();
    assert_eq!(certs.add(CERTS, &[authority(&"A".repeat(40))], NOW), 0);
    assert_eq!(certs.add(CERTS, &authorities(), NOW - YEAR_S), 0);
    assert_eq!(certs.add(CERTS, &authorities(), NOW + 2 * YEAR_S), 0);
    let tampered = CERTS.replacen("dir-key-published 20", "dir-key-published 19", 1);
    assert_eq!(certs.add(&tampered, &authorities(), NOW), 0);
    assert_eq!(certs.add(CERTS, &authorities(), NOW), 1);
    assert_eq!(certs.add(&CERTS.repeat(2), &authorities(), NOW), 0, "it is known");

    let mut again = AuthorityCerts::default();
    assert_eq!(again.add(&certs.to_text(), &authorities(), NOW), 1);
    // What holds no longer makes room.
    certs.add("", &authorities(), NOW + 2 * YEAR_S);
    assert_eq!(certs.to_text(), "");
}

#[test]
fn microdescriptors_count_when_the_consensus_lists_them() {
    let mut consensus = consensus();
    let listed: Vec<[u8; 32]> = consensus.relays.iter().map(|r| r.microdesc_digest).collect();
    let mut microdescs = Microdescs::default();
    assert_eq!(microdescs.add(MICRODESCS, |_| false), 0);
    let tampered = MICRODESCS.replace("ntor-onion-key ", "ntor-onion-key  ");
    assert_eq!(microdescs.add(&tampered, |digest| listed.contains(digest)), 0);
    assert_eq!(microdescs.add(MICRODESCS, |digest| listed.contains(digest)), 2);
    assert_eq!(microdescs.add(MICRODESCS, |digest| listed.contains(digest)), 0);

    let mut again = Microdescs::default();
    assert_eq!(again.add(&microdescs.to_text(NOW), |_| true), 2);
    assert_eq!(again, microdescs);
    consensus.apply_microdescs(&microdescs);
    for relay in &consensus.relays {
        let ed25519_id = relay.ed25519_id.unwrap();
        assert!(consensus.contains(&relay.rsa_id, &ed25519_id));
        assert!(!consensus.contains(&relay.rsa_id, &[0; 32]));
        assert!(relay.ntor_onion_key.is_some());
    }
    microdescs.retain(|digest| *digest == listed[0]);
    assert!(microdescs.get(&listed[0]).is_some() && microdescs.get(&listed[1]).is_none());
}

/// `text` with one byte replaced by another ASCII character.
fn replace(text: &str, place: prop::sample::Index, byte: u8) -> String {
    let mut bytes = text.as_bytes().to_vec();
    bytes[place.index(text.len())] = byte;
    String::from_utf8(bytes).unwrap()
}

proptest! {
    #[test]
    fn a_changed_consensus_is_refused_or_says_the_same(
        place in any::<prop::sample::Index>(), byte in 0..128_u8
    ) {
        let changed = replace(CONSENSUS, place, byte);
        if let Ok(parsed) = Consensus::parse(&changed, &authorities(), &certs()) {
            prop_assert_eq!(parsed, consensus());
        }
    }

    #[test]
    fn a_cut_consensus_is_refused(place in any::<prop::sample::Index>()) {
        let cut = &CONSENSUS[..place.index(CONSENSUS.len() - 1)];
        prop_assert!(Consensus::parse(cut, &authorities(), &certs()).is_err());
    }

    #[test]
    fn changed_certificates_and_microdescriptors_do_not_panic(
        place in any::<prop::sample::Index>(), byte in 0..128_u8
    ) {
        let mut certs = AuthorityCerts::default();
        certs.add(&replace(CERTS, place, byte), &authorities(), NOW);
        let mut microdescs = Microdescs::default();
        microdescs.add(&replace(MICRODESCS, place, byte), |_| true);
    }

    #[test]
    fn any_text_is_refused_without_a_panic(text in "\\PC{0,300}") {
        prop_assert!(Consensus::parse(&text, &authorities(), &certs()).is_err());
        prop_assert_eq!(AuthorityCerts::default().add(&text, &authorities(), NOW), 0);
        prop_assert_eq!(Microdescs::default().add(&text, |_| true), 0);
    }
}
