//! What only a process of its own can test: its descriptors, and what happens without any.

#[allow(dead_code)]
#[path = "loopback/nodes.rs"]
mod nodes;

use heddle_net::{Options, Resolver, ResolverOptions, SOCKETS_PER_QUESTION};
use heddle_relay::{Input, Output};
use heddle_seam::node::{Query, ResolveId};
use nodes::{Relay, Running, Say, Strings};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// One test, because all parts are about the whole process.
#[test]
fn descriptors_are_given_back_and_their_lack_is_survived() {
    churn_leaves_none_behind();
    questions_to_silent_servers_hold_no_more_than_is_reckoned();
    accepting_pauses_without_and_goes_on_with();
}

fn churn_leaves_none_behind() {
    let before = open_descriptors();
    let echo = Running::start(Relay::new(None));
    let relay = Running::start(Relay::new(Some(echo.addr)));
    for n in 0..1000u32 {
        let mut client = TcpStream::connect(relay.addr).unwrap();
        client.write_all(&n.to_be_bytes()).unwrap();
        if n % 3 == 0 {
            continue;
        }
        client.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, n.to_be_bytes());
    }
    let handles = [relay.handle.clone(), echo.handle.clone()];
    relay.stop();
    echo.stop();
    assert!(handles.iter().all(|handle| handle.counters().sockets_opened >= 600));
    // A handle keeps the descriptor by which it wakes its loop.
    drop(handles);
    assert_eq!(open_descriptors(), before);
}

/// The library sends a question again after a third of a second, from a socket more.
fn questions_to_silent_servers_hold_no_more_than_is_reckoned() {
    const QUESTIONS_MAX: usize = 10;
    let silent = ["127.0.0.1:0", "127.0.0.2:0"].map(|addr| UdpSocket::bind(addr).unwrap());
    let resolver = Resolver::start(ResolverOptions {
        name_servers: silent.iter().map(|socket| socket.local_addr().unwrap()).collect(),
        in_flight_max: QUESTIONS_MAX,
        try_timeout: Some(Duration::from_millis(1500)),
        ..ResolverOptions::default()
    })
    .unwrap();
    resolver.reload().unwrap();
    let strings = Strings::start_with(Options::default(), |event_loop| event_loop.set_resolver(resolver));
    let before = open_descriptors();
    let ask = |n: u64| Output::Resolve { id: ResolveId(n), query: Query::Forward(format!("{n}.test")) };
    strings.say((0..4 * QUESTIONS_MAX as u64).map(|n| Say::Do(ask(n))));
    let answered = std::iter::repeat_with(|| strings.next()).take(3 * QUESTIONS_MAX);
    assert!(answered.into_iter().all(|told| matches!(told.input, Input::Resolved { answer: Err(_), .. })));
    let mut most = 0;
    let until = Instant::now() + Duration::from_millis(1200);
    while Instant::now() < until {
        most = most.max(open_descriptors() - before);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!((2 * QUESTIONS_MAX..=SOCKETS_PER_QUESTION * QUESTIONS_MAX).contains(&most), "{most} sockets");
    strings.running.stop();
}

fn accepting_pauses_without_and_goes_on_with() {
    const CLIENTS: usize = 20;
    let strings = Strings::start_with(Options::default(), |_| {});
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // The clients have their descriptors already; of the loop's, a few are left.
    let room = open_descriptors() + CLIENTS + 3;
    let clients: Vec<TcpStream> = {
        setrlimit(Resource::Nofile, Rlimit { current: Some(room as u64), maximum }).unwrap();
        let mut clients = Vec::new();
        while clients.len() < CLIENTS {
            match TcpStream::connect(strings.running.addr) {
                Ok(client) => clients.push(client),
                // The loop was quicker and holds it: what it accepted is closed below.
                Err(_) => break,
            }
        }
        clients
    };
    let mut accepted = 0;
    while accepted < clients.len() {
        if let Input::Accepted { socket, .. } = strings.next().input {
            accepted += 1;
            strings.output(Output::Close { socket });
        }
    }
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    let handle = strings.running.handle.clone();
    strings.running.stop();
    let pauses = handle.counters().accepts_out_of_resources;
    assert!(pauses > 0 && pauses <= clients.len() as u64 + 1, "{pauses} pauses");
}
