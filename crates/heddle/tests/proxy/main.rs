//! `heddle proxy` over stock and Heddle relays in every arrangement: files, many streams, streams that stand still,
//! names, and what is refused.

mod flow_control;
mod running;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use heddle_lab::error::Result;
use heddle_lab::socks::{self, Isolation, Target};
use heddle_lab::testnet::NetworkOptions;
use heddle_lab::traffic::{self, Content, Echo, Transfer};
use running::Proxy;
use support::{Lab, PROGRAMS, TIMEOUT, nickname, six_relays};

/// A port that the Heddle exit lets nobody out to.
const CLOSED_PORT: u16 = 79;

fn lab() -> &'static Lab {
    static LAB: OnceLock<Lab> = OnceLock::new();
    LAB.get_or_init(|| {
        let mut relays =
            [six_relays(&["HeddleShards 1", "HeddleForwardDatagrams 1"]), flow_control::exits()].concat();
        for relay in relays.iter_mut().filter(|relay| relay.exit) {
            relay.torrc.push(format!("ExitPolicy reject *:{CLOSED_PORT}"));
        }
        Lab::start(NetworkOptions { relays, ..NetworkOptions::default() })
    })
}

fn stream(proxy: &Proxy, isolation: Option<&Isolation>) -> Result<TcpStream> {
    let stream = socks::connect(proxy.socks(), &lab().target(), isolation, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    Ok(stream)
}

fn download(proxy: &Proxy, content: Content) -> Result<Transfer> {
    let start = Instant::now();
    traffic::download(stream(proxy, None)?, content, content.sha256(), start, TIMEOUT, &mut |_| ())
}

fn both_ways(proxy: &Proxy, content: Content) {
    assert!(download(proxy, content).unwrap().sha256_ok, "other bytes came down");
    let start = Instant::now();
    let up = traffic::upload(stream(proxy, None).unwrap(), content, content.sha256(), start, TIMEOUT);
    assert!(up.unwrap().sha256_ok, "other bytes went up");
}

fn echo(proxy: &Proxy) -> Echo {
    Echo::new(stream(proxy, None).unwrap(), TIMEOUT).unwrap()
}

/// All stock, Heddle in each position, all Heddle, and the others.
#[test]
fn files_survive_every_arrangement() {
    let lab = lab();
    thread::scope(|scope| {
        for exit in PROGRAMS {
            scope.spawn(move || {
                for (guard, middle) in PROGRAMS.into_iter().flat_map(|guard| PROGRAMS.map(|it| (guard, it))) {
                    let path = [nickname(guard, "guard"), nickname(middle, "middle"), nickname(exit, "exit")];
                    let start = Instant::now();
                    let mut proxy = Proxy::start(lab, &["--path", &path.join(",")]);
                    both_ways(&proxy, Content { seed: 30, len: 5_000_000 });
                    println!("{}: {:.1} s", path.join(" > "), start.elapsed().as_secs_f64());
                    assert_eq!(proxy.built(), [path.to_vec(), path.to_vec()], "one in use and one ahead");
                }
            });
        }
    });
    lab.check();
}

#[test]
fn paths_are_chosen_and_isolated_by_user_name() {
    let lab = lab();
    let mut proxy = Proxy::start(lab, &[]);
    let isolation = |name: &str| Isolation { username: name.to_owned(), password: "x".to_owned() };
    let mut streams: Vec<_> = ["a", "b", "a"]
        .map(|name| Echo::new(stream(&proxy, Some(&isolation(name))).unwrap(), TIMEOUT).unwrap())
        .into();
    streams.push(echo(&proxy));
    for (number, echo) in streams.iter_mut().enumerate() {
        echo.round_trip(format!("stream {number}").as_bytes()).unwrap();
    }
    // Two user names and nobody have a circuit each, and one waits for the next.
    let built = proxy.built_at_least(4);
    assert_eq!(built.len(), 4, "{built:?}");
    // Where the first guard is the exit, the second takes its place.
    let guards: BTreeSet<_> = built.iter().map(|path| &path[0]).collect();
    assert!(built.iter().all(|path| path.len() == 3 && path[2].contains("exit")), "{built:?}");
    assert!(guards.len() <= 2, "{built:?}");
    lab.check();
}

#[test]
fn many_streams_share_a_circuit() {
    let lab = lab();
    let proxy = Proxy::start(lab, &["--path", "stockguard,heddlemiddle,heddleexit"]);
    let mut echoes: Vec<_> = (0..200).map(|_| echo(&proxy)).collect();
    for round in 0..3 {
        for (index, echo) in echoes.iter_mut().enumerate() {
            echo.round_trip(format!("{round} {index}").as_bytes()).unwrap();
        }
    }
    drop(echoes);
    thread::scope(|scope| {
        for worker in 0..4 {
            let proxy = &proxy;
            scope.spawn(move || {
                for fetch in 0..50 {
                    let content = Content { seed: worker, len: fetch * 37 };
                    assert!(download(proxy, content).unwrap().sha256_ok);
                }
            });
        }
    });
    lab.check();
}

/// A download that its program does not read stands still, and so does the exit; the circuit's other streams go on,
/// and the proxy holds no more than XOFF lets come. Afterwards all of it arrives.
#[test]
fn a_program_that_does_not_read_holds_up_nobody() {
    let lab = lab();
    let proxy = Proxy::start(lab, &["--path", "heddleguard,stockmiddle,heddleexit"]);
    let before = proxy.rss_bytes();
    let content = Content { seed: 31, len: 30_000_000 };
    let mut stalled = stream(&proxy, None).unwrap();
    write!(stalled, "GET /bytes/{}/{} HTTP/1.0\r\n\r\n", content.seed, content.len).unwrap();
    stalled.read_exact(&mut [0; 8]).unwrap();
    for _ in 0..3 {
        both_ways(&proxy, Content { seed: 32, len: 2_000_000 });
    }
    let grown = proxy.rss_bytes().saturating_sub(before);
    assert!(grown < 16_000_000, "the proxy has grown by {grown} bytes");
    let mut rest = Vec::new();
    stalled.read_to_end(&mut rest).unwrap();
    let head = rest.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert_eq!((rest.len() - head) as u64, content.len);
    lab.check();
}

#[test]
fn names_are_looked_up_at_the_exit_and_ends_are_told() {
    let lab = lab();
    let proxy = Proxy::start(lab, &["--path", "heddleguard,heddlemiddle,heddleexit"]);
    let port = lab.server.addr().port();
    let by_name = socks::connect(proxy.socks(), &Target::Name("localhost".into(), port), None, TIMEOUT);
    Echo::new(by_name.unwrap(), TIMEOUT).unwrap().round_trip(b"by name").unwrap();
    assert!(socks::resolve(proxy.socks(), "localhost", None, TIMEOUT).unwrap().is_loopback());
    let refusal = |port| {
        let target = Target::Addr(([127, 0, 0, 1], port).into());
        socks::connect(proxy.socks(), &target, None, TIMEOUT).unwrap_err().to_string()
    };
    assert!(refusal(1).contains("connection refused"), "{}", refusal(1));
    assert!(refusal(CLOSED_PORT).contains("not allowed"), "{}", refusal(CLOSED_PORT));
    assert!(socks::connect(proxy.socks(), &Target::Name("no such name".into(), 80), None, TIMEOUT).is_err());
    both_ways(&proxy, Content { seed: 33, len: 100_000 });
    lab.check();
}

#[test]
fn strangers_at_the_port_disturb_nobody() {
    let lab = lab();
    let proxy = Proxy::start(lab, &["--path", "stockguard,stockmiddle,heddleexit"]);
    for (said, answer) in [
        (&b"GET / HTTP/1.0\r\n\r\n"[..], &b""[..]),
        (b"\x04\x01\0\x50\x7f\0\0\x01\0", b""),
        (b"\x05\x01\x01", b"\x05\xff"),
        (b"\x05\x01\0\x05\x02\0\x01\x7f\0\0\x01\0\x50", b"\x05\0\x05\x07\0\x01\0\0\0\0\0\0"),
    ] {
        let mut stranger = TcpStream::connect(proxy.socks()).unwrap();
        stranger.set_read_timeout(Some(TIMEOUT)).unwrap();
        stranger.write_all(said).unwrap();
        let mut heard = Vec::new();
        // What it said and nobody read makes the end a reset.
        let _ = stranger.read_to_end(&mut heard);
        assert_eq!(heard, answer, "{said:?}");
    }
    let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(proxy.socks()).unwrap()).collect();
    both_ways(&proxy, Content { seed: 34, len: 100_000 });
    drop(silent);
    lab.check();
}

#[test]
fn first_bytes_travel_with_begin_where_that_is_asked_for() {
    let lab = lab();
    let proxy = Proxy::start(lab, &["--path", "stockguard,heddlemiddle,stockexit", "--optimistic"]);
    both_ways(&proxy, Content { seed: 35, len: 1_000_000 });
    // Success was said before the exit knew better.
    let target = Target::Addr(([127, 0, 0, 1], 1).into());
    let mut refused = socks::connect(proxy.socks(), &target, None, TIMEOUT).unwrap();
    refused.set_read_timeout(Some(TIMEOUT)).unwrap();
    assert_eq!(refused.read(&mut [0; 1]).unwrap(), 0);
    lab.check();
}

/// Cells are datagrams from end to end, over relays that allow it.
#[test]
fn datagrams_carry_files() {
    let lab = lab();
    let path = ["heddleguard,heddlemiddle,heddleexit", "heddlemiddle,heddleexit"];
    for path in path {
        let proxy = Proxy::start(lab, &["--path", path, "--forward-datagrams"]);
        both_ways(&proxy, Content { seed: 33, len: 3_000_000 });
        drop(echo(&proxy));
    }
    lab.check();
}

#[test]
fn it_starts_in_testing_networks_only() {
    let directory = tempfile::tempdir().unwrap();
    let torrc = directory.path().join("torrc");
    std::fs::write(&torrc, format!("DataDirectory {}\nSocksPort auto\n", directory.path().display()))
        .unwrap();
    let output = running::command(&torrc, &[]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("TestingTorNetwork"), "{said}");
    assert!(said.contains(&torrc.display().to_string()), "{said}");
}

/// A relay that does not exist is told at once, and a request over it is refused.
#[test]
fn a_path_over_an_unknown_relay_is_told() {
    let mut proxy = Proxy::start_unready(lab(), &["--path", "stockguard,nobody,stockexit"]);
    let why = proxy.wait_for("no_path");
    assert!(why["why"].as_str().unwrap().contains("nobody"), "{why}");
    let start = Instant::now();
    assert!(stream(&proxy, None).is_err());
    assert!(start.elapsed() < Duration::from_secs(20));
}
