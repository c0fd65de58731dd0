//! What the resolver holds of answers that it remembers, and of questions that are not answered. Resident memory is the
//! process's, so this test is alone in its program.

#[allow(dead_code)]
#[path = "loopback/nodes.rs"]
mod nodes;

use heddle_net::{ANSWER_BYTES, Options, Resolver, ResolverOptions};
use heddle_relay::{Input, Output, QUESTION_BYTES};
use heddle_seam::node::{Query, Resolution, ResolveId};
use nodes::{Say, Strings};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

const TYPE_A: u16 = 1;
const QUESTIONS: u64 = 400;
const ANSWERS: u64 = 4_000;
/// Questions at once for them.
const AT_ONCE: u64 = 50;
/// As many addresses as a client can be told.
const ADDRESSES: u8 = Resolution::MAX_ANSWERS as u8;
/// How often the library sends each question, of two families of addresses.
const DATAGRAMS: u64 = 2 * 3;

/// A name of nearly all of its 255 bytes.
fn query(number: u64, zone: &str) -> Query {
    let label = "l".repeat(63);
    Query::Forward(format!("{number:048}.{label}.{label}.{label}.{zone}"))
}

/// Answers with as many addresses as there may be; a name of the silent zone, or nothing at all, is heard only.
fn serve(socket: &UdpSocket) -> bool {
    let mut packet = [0; 1500];
    let (len, from) = socket.recv_from(&mut packet).unwrap();
    if len == 0 {
        return false;
    }
    let query = &packet[..len];
    let name_end = 12 + query[12..].iter().position(|byte| *byte == 0).unwrap();
    let question = &query[12..name_end + 5];
    if question.to_ascii_lowercase().windows(7).any(|part| part == b"\x06silent") {
        return false;
    }
    let rtype = u16::from_be_bytes([query[name_end + 1], query[name_end + 2]]);
    let count = if rtype == TYPE_A { ADDRESSES } else { 0 };
    let mut answer = vec![query[0], query[1], 0x81, 0x80, 0, 1, 0, count, 0, 0, 0, 0];
    answer.extend(question);
    for last in 0..count {
        // A name that was said before, its type and class, an hour, and the address.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 14, 16, 0, 4, 192, 0, 2, last]);
    }
    socket.send_to(&answer, from).unwrap();
    true
}

fn start(server: SocketAddr) -> Strings {
    let resolver = Resolver::start(ResolverOptions {
        name_servers: vec![server],
        // As long as all have to wait for a processor, so that no answer comes late.
        try_timeout: Some(Duration::from_secs(4)),
        query_timeout: Duration::from_secs(600),
        ..ResolverOptions::default()
    });
    let resolver = resolver.unwrap();
    resolver.reload().unwrap();
    Strings::start_with(Options::default(), |event_loop| event_loop.set_resolver(resolver))
}

fn ask(strings: &Strings, numbers: std::ops::Range<u64>, zone: &str) {
    let ask = |n: u64| Say::Do(Output::Resolve { id: ResolveId(n), query: query(n, zone) });
    strings.say(numbers.map(ask));
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn answers_and_questions_take_no_more_than_they_count_for() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let strings = start(socket.local_addr().unwrap());
    let serving = socket.try_clone().unwrap();
    let server = std::thread::spawn(move || while serve(&serving) {});
    // Returns how many were answered: all, but where the machine is so busy that tries end.
    let answer = |from: u64| {
        ask(&strings, from..from + AT_ONCE, "test");
        (0..AT_ONCE).filter(|_| matches!(strings.next().input, Input::Resolved { answer: Ok(_), .. })).count()
    };
    // What it takes at first does not count.
    answer(0);
    let before = resident_bytes();
    let answers: usize = (1..=ANSWERS / AT_ONCE).map(|round| answer(round * AT_ONCE)).sum();
    let each = resident_bytes().saturating_sub(before) / answers;
    println!("{each} bytes of each of {answers} answers");
    let all = answers > ANSWERS as usize / 2;
    assert!(each <= ANSWER_BYTES && each > ANSWER_BYTES / 4 && all, "{each} bytes of each of {answers}");
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[], socket.local_addr().unwrap()).unwrap();
    server.join().unwrap();

    let before = resident_bytes();
    ask(&strings, 0..QUESTIONS, "silent");
    let mut most = 0;
    for _ in 0..DATAGRAMS * QUESTIONS {
        assert!(!serve(&socket));
        most = most.max(resident_bytes());
    }
    // Memory of as many as there were at once before may be used again.
    let each = most.saturating_sub(before) / (QUESTIONS - AT_ONCE) as usize;
    println!("{each} bytes of each question");
    assert!(each <= QUESTION_BYTES && each > QUESTION_BYTES / 4, "{each} bytes of each question");
    strings.running.stop();
}
