//! What the resolver holds of answers that it remembers, and of questions that are not answered. Resident memory is the
//! process's, so this test is alone in its program.

#[allow(dead_code)]
#[path = "loopback/nodes.rs"]
mod nodes;

use heddle_net::{ANSWER_BYTES, Options, Resolver, ResolverOptions};
use heddle_relay::{Input, Output, QUESTION_BYTES};
use heddle_seam::node::{Query, Resolution, ResolveId};
use nodes::{Say, Strings};
use std::io::ErrorKind;
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
/// How long the library is silent when it has sent all that it sends: much longer than it waits between tries.
const SILENCE: Duration = Duration::from_secs(30);
/// What the kernel is asked to keep of datagrams that were not read yet. It may well keep less, and drop the others.
const RECEIVE_BUFFER_BYTES: usize = 16 << 20;

/// A name of nearly all of its 255 bytes.
fn query(number: u64, zone: &str) -> Query {
    let label = "l".repeat(63);
    Query::Forward(format!("{number:048}.{label}.{label}.{label}.{zone}"))
}

/// What came of waiting for a datagram.
enum Heard {
    Answered,
    /// The number of a name of the silent zone, and the type that was asked for.
    Unanswered(usize, u16),
    /// An empty one, or none in time.
    Nothing,
}

/// Answers with as many addresses as there may be; a name of the silent zone, or nothing at all, is heard only.
fn serve(socket: &UdpSocket) -> Heard {
    let mut packet = [0; 1500];
    let (len, from) = match socket.recv_from(&mut packet) {
        Ok(came) => came,
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            return Heard::Nothing;
        }
        Err(error) => panic!("{error}"),
    };
    if len == 0 {
        return Heard::Nothing;
    }
    let query = &packet[..len];
    let name_end = 12 + query[12..].iter().position(|byte| *byte == 0).unwrap();
    let question = &query[12..name_end + 5];
    let rtype = u16::from_be_bytes([query[name_end + 1], query[name_end + 2]]);
    if question.to_ascii_lowercase().windows(7).any(|part| part == b"\x06silent") {
        // Behind its length the first label is the number, in 48 digits.
        let number = std::str::from_utf8(&question[1..49]).unwrap().parse().unwrap();
        return Heard::Unanswered(number, rtype);
    }
    let count = if rtype == TYPE_A { ADDRESSES } else { 0 };
    let mut answer = vec![query[0], query[1], 0x81, 0x80, 0, 1, 0, count, 0, 0, 0, 0];
    answer.extend(question);
    for last in 0..count {
        // A name that was said before, its type and class, an hour, and the address.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 14, 16, 0, 4, 192, 0, 2, last]);
    }
    socket.send_to(&answer, from).unwrap();
    Heard::Answered
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
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES).unwrap();
    let strings = start(socket.local_addr().unwrap());
    let serving = socket.try_clone().unwrap();
    let server = std::thread::spawn(move || while matches!(serve(&serving), Heard::Answered) {});
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

    socket.set_read_timeout(Some(SILENCE)).unwrap();
    // Of each name both types. It takes nothing of the memory that is measured while it is filled.
    let mut was_heard = [[false; 2]; QUESTIONS as usize];
    let before = resident_bytes();
    ask(&strings, 0..QUESTIONS, "silent");
    let mut most = 0;
    for _ in 0..DATAGRAMS * QUESTIONS {
        match serve(&socket) {
            Heard::Unanswered(number, rtype) => was_heard[number][usize::from(rtype != TYPE_A)] = true,
            // Some of so many at once may have been dropped.
            Heard::Nothing => break,
            Heard::Answered => panic!("a name of another zone was asked for"),
        }
        most = most.max(resident_bytes());
    }
    let missing = was_heard.iter().flatten().filter(|was_heard| !**was_heard).count();
    assert_eq!(missing, 0, "questions that were never sent");
    // Memory of as many as there were at once before may be used again.
    let each = most.saturating_sub(before) / (QUESTIONS - AT_ONCE) as usize;
    println!("{each} bytes of each question");
    assert!(each <= QUESTION_BYTES && each > QUESTION_BYTES / 4, "{each} bytes of each question");
    strings.running.stop();
}
