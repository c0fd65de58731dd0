//! What comes from directories and peers as text or certificates, and `DirAuthority` lines. The first
//! byte says which.

use heddle_dir::authority::DirAuthority;
use heddle_dir::certs::verify_peer_certs;
use heddle_dir::consensus::{AuthorityCerts, Consensus, Microdescs};
use heddle_dir::http;

/// When the fixtures were made.
const NOW_UNIX_S: u64 = 1_795_202_540;

pub fn run(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(data);
    match kind % 8 {
        0 => certs(data),
        1 => consensus(&text),
        2 => {
            let mut microdescs = Microdescs::default();
            microdescs.add(&text, |_| true);
            let again = microdescs.to_text(NOW_UNIX_S);
            let mut same = Microdescs::default();
            same.add(&again, |_| true);
            assert_eq!(same.to_text(NOW_UNIX_S), again);
        }
        3 => {
            if let Ok(whole) = http::parse_head(data) {
                // What is whole stays whole, whatever follows.
                let longer = [data, b"more"].concat();
                assert!(whole.is_none() || matches!(http::parse_head(&longer), Ok(Some(_))));
            }
            let _ = http::inflate(data, 1 << 16);
        }
        4 => drop(DirAuthority::parse(&text, &mut Vec::new())),
        5 => http_answer(data),
        7 => {
            let mut certs = AuthorityCerts::default();
            certs.add(&text, &authorities(), NOW_UNIX_S);
            let mut same = AuthorityCerts::default();
            same.add(&certs.to_text(), &authorities(), NOW_UNIX_S);
            assert_eq!(same.to_text(), certs.to_text());
        }
        _ => signed_consensus(&text),
    }
}

fn authorities() -> [DirAuthority; 1] {
    [DirAuthority::parse(AUTHORITY, &mut Vec::new()).expect("a good line")]
}

/// Whatever is believed says what the authority signed; and without its certificates nothing is.
fn consensus(text: &str) {
    let mut certs = AuthorityCerts::default();
    certs.add(CERTS, &authorities(), NOW_UNIX_S);
    let parse = |text: &str, certs: &AuthorityCerts| Consensus::parse(text, &authorities(), certs);
    if let Ok(consensus) = parse(text, &certs) {
        assert_eq!(parse(SIGNED, &certs), Ok(consensus));
    }
    assert!(parse(text, &AuthorityCerts::default()).is_err());
}

/// An answer is the same in whatever pieces it comes, and never longer than was asked for.
fn http_answer(data: &[u8]) {
    const BODY_BYTES_MAX: usize = 64;
    let read = |piece: usize| {
        let mut answer = http::Answer::new(BODY_BYTES_MAX);
        for piece in data.chunks(piece) {
            match answer.push(piece) {
                Ok(None) => {}
                done => return done,
            }
        }
        answer.end().map(Some)
    };
    // Bytes after the body may make it too long, and are seen only if they come with it.
    if let (Ok(whole), Ok(pieces)) = (read(data.len().max(1)), read(1)) {
        assert_eq!(whole, pieces);
        assert!(whole.is_none_or(|response| response.body.len() <= BODY_BYTES_MAX));
    }
}

/// What the authorities sign is no more trusted to be in order than what strangers send.
fn signed_consensus(text: &str) {
    let Ok(mut consensus) = Consensus::parse_unverified(text) else { return };
    assert!(consensus.relays.is_sorted_by_key(|relay| relay.rsa_id));
    consensus.apply_microdescs(&Microdescs::default());
    let first = consensus.relays.first().map_or([0; 20], |relay| relay.rsa_id);
    assert_eq!(consensus.relay(&first).is_some(), !consensus.relays.is_empty());
    let _ = (consensus.listing(&first), consensus.contains(&first, &[0; 32]));
    let _ = (consensus.is_live(NOW_UNIX_S), consensus.is_reasonably_live(u64::MAX));
    let _ = consensus.missing_protocols("Link=4-5 Relay=2-4");
}

/// A list of certificates: type, length in two bytes, the certificate.
fn certs(mut data: &[u8]) {
    let mut certs = Vec::new();
    while let [kind, high, low, rest @ ..] = data {
        let len = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        certs.push((*kind, &rest[..len]));
        data = &rest[len..];
    }
    let _ = verify_peer_certs(&certs, Some(&[0; 32]), NOW_UNIX_S);
    let _ = verify_peer_certs(&certs, None, NOW_UNIX_S);
}

const AUTHORITY: &str = "auth orport=9001 v3ident=3A1CEB849C2532E1BF0FF86900CF217296106DE4 127.0.0.1:9 \
                         0000000000000000000000000000000000000000";

const SIGNED: &str = include_str!("../../crates/dir/tests/fixtures/microdesc-consensus");
const CERTS: &str = include_str!("../../crates/dir/tests/fixtures/certs");

pub fn seeds() -> Vec<Vec<u8>> {
    let seed = |kind: u8, data: &[u8]| [&[kind], data].concat();
    // An Ed25519 signing key as its header begins, and every type that a peer sends.
    let mut certs = Vec::new();
    for kind in [2, 4, 5, 6, 7] {
        certs.extend_from_slice(&[kind, 0, 140, 1, kind, 0, 7, 160, 0, 1]);
        certs.resize(certs.len() + 133, kind);
    }
    vec![
        seed(0, &certs),
        seed(1, SIGNED.as_bytes()),
        seed(2, include_bytes!("../../crates/dir/tests/fixtures/microdescs")),
        seed(3, b"HTTP/1.0 200 OK\r\nContent-Length: 12\r\nContent-Encoding: deflate\r\n\r\nmore"),
        seed(4, AUTHORITY.as_bytes()),
        seed(5, b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nbody"),
        seed(5, b"HTTP/1.0 404 Not found\r\n\r\nno length"),
        seed(6, SIGNED.as_bytes()),
        seed(7, CERTS.as_bytes()),
    ]
}
