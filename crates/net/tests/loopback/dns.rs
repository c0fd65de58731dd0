//! The resolver against a name server of its own.

use crate::nodes::Strings;
use heddle_net::{Options, Resolver, ResolverOptions};
use heddle_relay::{Input, Output};
use heddle_seam::node::{Query, Resolution, ResolveError, ResolveId};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const TYPE_A: u16 = 1;
const TYPE_PTR: u16 = 12;
const TYPE_AAAA: u16 = 28;
const SERVFAIL: u8 = 2;
const NXDOMAIN: u8 = 3;

/// Answers a handful of names on loopback until it is dropped.
struct NameServer {
    addr: SocketAddr,
    thread: Option<JoinHandle<usize>>,
}

/// Records of one type: their data and their time to live in seconds.
enum Reply {
    Records(Vec<(Vec<u8>, u32)>),
    Code(u8),
    Silence,
}

fn reply(name: &str, rtype: u16) -> Reply {
    let v4 = |last| Ipv4Addr::new(192, 0, 2, last).octets().to_vec();
    let v6 = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).octets().to_vec();
    match (name, rtype) {
        ("both.test", TYPE_A) => Reply::Records(vec![(v4(1), 300), (v4(2), 200)]),
        ("both.test", TYPE_AAAA) => Reply::Records(vec![(v6(1), 100)]),
        ("v4.test", TYPE_A) => Reply::Records(vec![(v4(3), 60)]),
        ("half.test", TYPE_A) => Reply::Records(vec![(v4(4), 60)]),
        ("half.test", _) => Reply::Silence,
        ("many.test", TYPE_A) => Reply::Records((0..25).map(|n| (v4(n), 60)).collect()),
        ("zero.test", TYPE_A) => Reply::Records(vec![(v4(5), 0)]),
        ("day.test", TYPE_A) => Reply::Records(vec![(v4(6), 86_400)]),
        ("v4.test" | "empty.test" | "many.test" | "zero.test" | "day.test", _) => Reply::Records(Vec::new()),
        ("1.2.0.192.in-addr.arpa", TYPE_PTR) => Reply::Records(vec![(b"\x04host\x04test\x00".to_vec(), 77)]),
        ("broken.test", _) => Reply::Code(SERVFAIL),
        ("silent.test", _) => Reply::Silence,
        _ => Reply::Code(NXDOMAIN),
    }
}

/// What a provider's server says that shows advertisements for names which do not exist.
fn lie(name: &str, rtype: u16) -> Reply {
    match reply(name, rtype) {
        Reply::Code(NXDOMAIN) if rtype == TYPE_A => {
            Reply::Records(vec![(Ipv4Addr::new(192, 0, 2, 66).octets().to_vec(), 60)])
        }
        other => other,
    }
}

impl NameServer {
    fn start() -> Self {
        Self::start_with(reply)
    }

    fn start_with(reply: fn(&str, u16) -> Reply) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = socket.local_addr().unwrap();
        let thread = thread::spawn(move || {
            let mut questions = 0;
            let mut packet = [0; 1500];
            loop {
                let (len, from) = socket.recv_from(&mut packet).unwrap();
                if len == 0 {
                    return questions;
                }
                questions += 1;
                if let Some(answer) = answer(&packet[..len], reply) {
                    socket.send_to(&answer, from).unwrap();
                }
            }
        });
        NameServer { addr, thread: Some(thread) }
    }

    /// Ends the server and returns how often it was asked.
    fn stop(mut self) -> usize {
        self.end().unwrap()
    }

    fn end(&mut self) -> Option<usize> {
        let thread = self.thread.take()?;
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[], self.addr).unwrap();
        Some(thread.join().unwrap())
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// The answer to a question (RFC 1035, section 4): its header, the question as it came, records.
fn answer(query: &[u8], reply: fn(&str, u16) -> Reply) -> Option<Vec<u8>> {
    let mut labels = Vec::new();
    let mut at = 12;
    while query[at] != 0 {
        let len = usize::from(query[at]);
        labels.push(String::from_utf8(query[at + 1..][..len].to_vec()).unwrap().to_lowercase());
        at += 1 + len;
    }
    let rtype = u16::from_be_bytes([query[at + 1], query[at + 2]]);
    let question = &query[12..at + 5];
    let (code, records) = match reply(&labels.join("."), rtype) {
        Reply::Records(records) => (0, records),
        Reply::Code(code) => (code, Vec::new()),
        Reply::Silence => return None,
    };
    let mut packet = vec![query[0], query[1], 0x81, 0x80 | code, 0, 1, 0, records.len() as u8, 0, 0, 0, 0];
    packet.extend(question);
    for (data, ttl) in records {
        packet.extend([0xc0, 12]);
        packet.extend(rtype.to_be_bytes());
        packet.extend(1u16.to_be_bytes());
        packet.extend(ttl.to_be_bytes());
        packet.extend((data.len() as u16).to_be_bytes());
        packet.extend(data);
    }
    Some(packet)
}

fn start(server: &NameServer, change: impl FnOnce(&mut ResolverOptions)) -> Strings {
    let mut options = ResolverOptions {
        name_servers: vec![server.addr],
        // Long enough for a server that has to wait for a processor.
        try_timeout: Some(Duration::from_secs(1)),
        ..ResolverOptions::default()
    };
    change(&mut options);
    let resolver = Resolver::start(options).unwrap();
    resolver.reload().unwrap();
    Strings::start_with(Options::default(), |event_loop| event_loop.set_resolver(resolver))
}

fn ask(strings: &Strings, query: Query) -> Result<Resolution, ResolveError> {
    strings.output(Output::Resolve { id: ResolveId(9), query });
    match strings.next().input {
        Input::Resolved { id: ResolveId(9), answer } => answer,
        other => panic!("told {other:?}"),
    }
}

fn forward(strings: &Strings, name: &str) -> Result<Resolution, ResolveError> {
    ask(strings, Query::Forward(name.into()))
}

#[test]
fn names_resolve_to_the_addresses_of_both_families() {
    let server = NameServer::start();
    let strings = start(&server, |_| {});
    let v4 = |last| IpAddr::from([192, 0, 2, last]);
    let v6 = IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]);
    let found = |name: &str| match forward(&strings, name) {
        Ok(Resolution::Addresses(mut found)) => {
            found.sort();
            found.into_iter().map(|(addr, _)| addr).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(found("both.test"), [v4(1), v4(2), v6]);
    assert_eq!(found("V4.Test."), [v4(3)]);
    match forward(&strings, "many.test") {
        Ok(Resolution::Addresses(found)) => assert_eq!(found.len(), Resolution::MAX_ANSWERS),
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_family_is_enough_when_the_other_stays_silent() {
    let server = NameServer::start();
    let strings = start(&server, |_| {});
    match forward(&strings, "half.test") {
        Ok(Resolution::Addresses(found)) => {
            assert_eq!(
                found.iter().map(|(addr, _)| *addr).collect::<Vec<_>>(),
                [IpAddr::from([192, 0, 2, 4])]
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn addresses_resolve_to_names() {
    let server = NameServer::start();
    let strings = start(&server, |_| {});
    let known = Query::Reverse(IpAddr::from([192, 0, 2, 1]));
    match ask(&strings, known) {
        Ok(Resolution::Name(name, _)) => assert_eq!(name, "host.test"),
        other => panic!("{other:?}"),
    }
    let unknown = Query::Reverse("2001:db8::9".parse().unwrap());
    assert_eq!(ask(&strings, unknown), Err(ResolveError::NotFound));
}

#[test]
fn what_is_final_is_told_from_what_may_work_later() {
    let server = NameServer::start();
    let strings = start(&server, |_| {});
    for (name, error) in [
        ("missing.test", ResolveError::NotFound),
        ("empty.test", ResolveError::NotFound),
        ("broken.test", ResolveError::Transient),
        ("silent.test", ResolveError::Transient),
        ("not a name\u{e9}", ResolveError::NotFound),
        (&"a".repeat(64), ResolveError::NotFound),
        ("", ResolveError::NotFound),
    ] {
        assert_eq!(forward(&strings, name), Err(error), "{name:?}");
    }
}

#[test]
fn answers_are_remembered() {
    let server = NameServer::start();
    let strings = start(&server, |options| options.ipv6 = false);
    for _ in 0..5 {
        forward(&strings, "v4.test").unwrap();
        forward(&strings, "missing.test").unwrap_err();
    }
    strings.running.stop();
    // Once for each name, and again where the machine was slow. A name that is not remembered is asked for five times.
    let asked = server.stop();
    assert!((2..6).contains(&asked), "{asked} questions");
}

#[test]
fn times_to_live_are_two_blurred_values_and_stay_as_they_were_told() {
    let server = NameServer::start();
    let strings = start(&server, |_| {});
    let ttls_s = |name: &str| match forward(&strings, name) {
        Ok(Resolution::Addresses(found)) => found,
        other => panic!("{other:?}"),
    };
    let first: Vec<(IpAddr, u32)> = ttls_s("both.test");
    // The server says 200 and 300 s for IPv4, and 100 s for IPv6.
    assert!(first.iter().all(|(_, ttl_s)| (60..=540).contains(ttl_s)), "{first:?}");
    assert_eq!(ttls_s("both.test"), first);
    // Not even an answer that must not be kept is forgotten at once.
    let zero = ttls_s("zero.test");
    assert!((60..=540).contains(&zero[0].1), "{zero:?}");
    assert_eq!(ttls_s("zero.test"), zero);
    assert!((3360..=3840).contains(&ttls_s("day.test")[0].1));
    strings.running.stop();
    // Each of three names was asked for in both families, once, or more often where the machine was slow.
    let asked = server.stop();
    assert!((6..10).contains(&asked), "{asked} questions");
}

#[test]
fn a_resolver_that_was_not_told_of_servers_fails_until_it_is() {
    let server = NameServer::start();
    let options = ResolverOptions { name_servers: vec![server.addr], ..ResolverOptions::default() };
    let resolver = Resolver::start(options).unwrap();
    let of_loop = resolver.clone();
    let strings = Strings::start_with(Options::default(), |event_loop| event_loop.set_resolver(of_loop));
    assert_eq!(forward(&strings, "v4.test"), Err(ResolveError::Transient));
    resolver.reload().unwrap();
    forward(&strings, "v4.test").unwrap();
}

#[test]
fn too_many_questions_fail_at_once_and_the_rest_are_answered() {
    let server = NameServer::start();
    let strings = start(&server, |options| options.in_flight_max = 1);
    // Both are asked in one turn, and the first cannot be answered before its time-out.
    let query = |name: &str| Query::Forward(name.into());
    strings.say(
        ["silent.test", "both.test"].into_iter().zip([1, 2]).map(|(name, id)| {
            crate::nodes::Say::Do(Output::Resolve { id: ResolveId(id), query: query(name) })
        }),
    );
    match strings.next().input {
        Input::Resolved { id, answer } => {
            assert_eq!((id, answer), (ResolveId(2), Err(ResolveError::Transient)))
        }
        other => panic!("told {other:?}"),
    }
    match strings.next().input {
        Input::Resolved { id, answer } => {
            assert_eq!((id, answer), (ResolveId(1), Err(ResolveError::Transient)))
        }
        other => panic!("told {other:?}"),
    }
    forward(&strings, "both.test").unwrap();
}

/// Its place is free at once, though the name server would have been waited for.
#[test]
fn a_question_that_is_given_up_leaves_its_place_to_another() {
    let server = NameServer::start();
    let strings = start(&server, |options| options.in_flight_max = 1);
    let ask = |id, name: &str| Output::Resolve { id: ResolveId(id), query: Query::Forward(name.into()) };
    let outputs = [ask(1, "silent.test"), Output::StopResolving { id: ResolveId(1) }, ask(2, "both.test")];
    strings.say(outputs.into_iter().map(crate::nodes::Say::Do));
    let mut answers: Vec<_> = (0..2)
        .map(|_| match strings.next().input {
            Input::Resolved { id, answer } => (id, answer.is_ok()),
            other => panic!("told {other:?}"),
        })
        .collect();
    answers.sort();
    assert_eq!(answers, [(ResolveId(1), false), (ResolveId(2), true)]);
}

/// One server is asked after the other, so one that is silent costs its time and no name.
#[test]
fn a_silent_server_beside_another_is_no_harm() {
    let silent = UdpSocket::bind("127.0.0.2:0").unwrap();
    let server = NameServer::start();
    let strings = start(&server, |options| {
        options.name_servers.push(silent.local_addr().unwrap());
        options.try_timeout = Some(Duration::from_millis(300));
    });
    for name in ["both.test", "v4.test", "many.test", "zero.test", "day.test"] {
        assert!(forward(&strings, name).is_ok(), "{name}");
    }
}

#[test]
fn without_a_resolver_every_question_fails() {
    let strings = Strings::start();
    assert_eq!(forward(&strings, "both.test"), Err(ResolveError::Transient));
}

#[test]
fn addresses_of_names_that_nobody_has_are_no_answers() {
    let server = NameServer::start_with(lie);
    let strings = start(&server, |options| options.detect_hijacking = true);
    let begun = Instant::now();
    while forward(&strings, "nobody.test") != Err(ResolveError::NotFound) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the lie is not seen");
    }
    let address = |strings: &Strings, name: &str| match forward(strings, name) {
        Ok(Resolution::Addresses(found)) => found[..].iter().map(|(addr, _)| *addr).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(address(&strings, "v4.test"), [IpAddr::from([192, 0, 2, 3])]);
    let strings = start(&server, |_| {});
    assert_eq!(address(&strings, "nobody.test"), [IpAddr::from([192, 0, 2, 66])], "nobody looked");
}

#[test]
fn servers_that_lie_about_everything_are_none() {
    let server = NameServer::start_with(lie);
    for (well_known, is_ready) in [(["nobody.test", "v4.test"], true), (["nobody.test", "other.test"], false)]
    {
        let resolver = Resolver::start(ResolverOptions {
            name_servers: vec![server.addr],
            detect_hijacking: true,
            well_known: well_known.map(str::to_owned).into(),
            try_timeout: Some(Duration::from_secs(1)),
            ..ResolverOptions::default()
        });
        let resolver = resolver.unwrap();
        resolver.reload().unwrap();
        let listening = resolver.clone();
        let strings =
            Strings::start_with(Options::default(), |event_loop| event_loop.set_resolver(listening));
        let begun = Instant::now();
        // The well-known names are asked for behind the others.
        while resolver.is_ready() != is_ready || forward(&strings, "a.test") != Err(ResolveError::NotFound) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{well_known:?}");
            thread::yield_now();
        }
        assert_eq!(resolver.is_ready(), is_ready);
    }
}
