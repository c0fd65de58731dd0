//! Directories that are slow, silent or endless cost a round of fetches no more than its limits, and another is asked.

use heddle_dir::authority::DirAuthority;
use heddle_dir::consensus::client::{DirectoryClient, FetchLimits};
use heddle_seam::rng::Seed;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

const CONSENSUS: &str = include_str!("fixtures/microdesc-consensus");
const CERTS: &str = include_str!("fixtures/certs");
const MICRODESCS: &str = include_str!("fixtures/microdescs");
const V3_IDENT: &str = "3A1CEB849C2532E1BF0FF86900CF217296106DE4";
/// When the consensus became valid.
const NOW: u64 = 1_795_202_540;
const LIMITS: FetchLimits = FetchLimits {
    request: Duration::from_millis(200),
    directory: Duration::from_millis(300),
    round: Duration::from_millis(900),
};
/// What a busy machine may add to a limit.
const SLACK: Duration = Duration::from_millis(700);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    Honest,
    /// It takes the request and says nothing.
    Silent,
    /// A byte of the head every 20 ms.
    TrickledHead,
    /// A byte of the body every 20 ms.
    TrickledBody,
    /// A body without an end, as fast as it is read.
    Endless,
    /// Good answers to all but microdescriptors, which it trickles.
    TrickledMicrodescs,
}

/// A directory that answers each request on a thread of its own, until the test ends.
fn directory(manner: Manner) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            thread::spawn(move || drop(answer(stream, manner)));
        }
    });
    address
}

fn answer(mut stream: TcpStream, manner: Manner) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        request.extend(byte);
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    let body = [("/tor/status-vote/", CONSENSUS), ("/tor/keys/", CERTS), ("/tor/micro/", MICRODESCS)];
    let body = body.iter().find(|(path, _)| request.contains(path)).map_or("", |(_, body)| body);
    let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    match manner {
        Manner::Silent => thread::sleep(Duration::from_secs(10)),
        Manner::TrickledHead => trickle(&mut stream, &head)?,
        Manner::TrickledMicrodescs if request.contains("/tor/micro/") => trickle(&mut stream, &head)?,
        Manner::TrickledBody => {
            stream.write_all(head.as_bytes())?;
            trickle(&mut stream, body)?;
        }
        Manner::Endless => {
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n")?;
            loop {
                stream.write_all(&[b'x'; 4096])?;
            }
        }
        Manner::Honest | Manner::TrickledMicrodescs => {
            stream.write_all(format!("{head}{body}").as_bytes())?
        }
    }
    Ok(())
}

fn trickle(stream: &mut TcpStream, text: &str) -> std::io::Result<()> {
    for byte in text.as_bytes() {
        stream.write_all(&[*byte])?;
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn authority(address: SocketAddr, v3_ident: &str) -> DirAuthority {
    let line = format!("auth v3ident={v3_ident} {address} {}", "0".repeat(40));
    DirAuthority::parse(&line, &mut Vec::new()).unwrap()
}

/// What a round of fetches from directories of these manners comes to: whether there is a consensus, how many
/// microdescriptors, and how long it took.
fn fetch(manners: &[Manner]) -> (bool, usize, Duration) {
    let scratch = tempfile::tempdir().unwrap();
    // All are the one authority that has signed the consensus.
    let authorities: Vec<_> = manners.iter().map(|manner| authority(directory(*manner), V3_IDENT)).collect();
    let mut rng = Seed::from_number(1).rng();
    let client = DirectoryClient::new(scratch.path(), authorities, None, NOW, &mut rng);
    let mut client = client.with_limits(LIMITS);
    let started = Instant::now();
    let fetched = client.fetch(NOW, &mut rng).is_ok();
    let known = client
        .consensus()
        .map_or(0, |consensus| consensus.relays.iter().filter(|relay| relay.ed25519_id.is_some()).count());
    (fetched, known, started.elapsed())
}

#[test]
fn a_round_ends_in_time_whatever_directories_do() {
    for manner in [Manner::Silent, Manner::TrickledHead, Manner::TrickledBody, Manner::Endless] {
        let (fetched, _, took) = fetch(&[manner; 8]);
        assert!(!fetched, "{manner:?}");
        assert!(took < LIMITS.round + SLACK, "{manner:?} took {took:?}");
    }
}

#[test]
fn an_honest_one_is_asked_after_a_slow_one() {
    for manner in [Manner::Silent, Manner::TrickledBody] {
        let (fetched, known, took) = fetch(&[manner, Manner::Honest]);
        assert!(fetched && known > 0, "{manner:?}");
        assert!(took < LIMITS.round + SLACK, "{manner:?} took {took:?}");
    }
}

#[test]
fn microdescriptors_that_trickle_cost_no_consensus() {
    let (fetched, known, took) = fetch(&[Manner::TrickledMicrodescs; 8]);
    assert!(fetched && known == 0);
    assert!(took < LIMITS.round + SLACK, "{took:?}");
}
