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
    match kind % 5 {
        0 => certs(data),
        1 => {
            // Nobody has signed it for us, whatever it says.
            let authority = DirAuthority::parse(AUTHORITY, &mut Vec::new()).expect("a good line");
            assert!(Consensus::parse(&text, &[authority], &AuthorityCerts::default()).is_err());
        }
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
        _ => drop(DirAuthority::parse(&text, &mut Vec::new())),
    }
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
        seed(1, include_bytes!("../../crates/dir/tests/fixtures/microdesc-consensus")),
        seed(2, include_bytes!("../../crates/dir/tests/fixtures/microdescs")),
        seed(3, b"HTTP/1.0 200 OK\r\nContent-Length: 12\r\nContent-Encoding: deflate\r\n\r\nmore"),
        seed(4, AUTHORITY.as_bytes()),
    ]
}
