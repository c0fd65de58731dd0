//! What only a process of its own can test: its descriptors, and what happens without any.

#[allow(dead_code)]
#[path = "loopback/nodes.rs"]
mod nodes;

use heddle_net::{Options, Resolver, ResolverOptions, SOCKETS_PER_QUESTION};
use heddle_relay::{Input, Output};
use heddle_seam::node::{Query, ResolveId};
use nodes::{Relay, Running, STUCK, Say, Strings};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
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

/// The library sends a question again after a third of a second, from a socket more. No try ends while this looks, so
/// that all sockets are open when the last of them has sent its datagram, however long that took.
fn questions_to_silent_servers_hold_no_more_than_is_reckoned() {
    const QUESTIONS_MAX: usize = 10;
    // Three times for each family of addresses.
    const DATAGRAMS: usize = 2 * 3 * QUESTIONS_MAX;
    let silent = ["127.0.0.1:0", "127.0.0.2:0"].map(|addr| UdpSocket::bind(addr).unwrap());
    for socket in &silent {
        socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    }
    let resolver = Resolver::start(ResolverOptions {
        name_servers: silent.iter().map(|socket| socket.local_addr().unwrap()).collect(),
        in_flight_max: QUESTIONS_MAX,
        try_timeout: Some(10 * STUCK),
        query_timeout: 10 * STUCK,
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
    let (begun, mut came, mut most) = (Instant::now(), 0, 0);
    while came < DATAGRAMS {
        assert!(begun.elapsed() < STUCK, "{came} datagrams came of {DATAGRAMS}");
        came += silent.iter().filter(|socket| socket.recv(&mut [0; 512]).is_ok()).count();
        most = most.max(open_descriptors() - before);
    }
    assert!((DATAGRAMS..=SOCKETS_PER_QUESTION * QUESTIONS_MAX).contains(&most), "{most} sockets");
    strings.running.stop();
}

fn accepting_pauses_without_and_goes_on_with() {
    const CLIENTS: usize = 20;
    /// What is left for the loop, which accepts so many.
    const ROOM: usize = 3;
    let strings = Strings::start_with(Options::default(), |_| {});
    let handle = strings.running.handle.clone();
    let socket =
        |_: usize| socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    // They have their descriptors before there are too few, because they and the loop would else take them in turns,
    // and the loop might have one for each connection.
    let clients: Vec<OwnedFd> = (0..CLIENTS).map(socket).collect();
    // The lowest that are free, of which the last is the highest that the limit allows.
    let room: Vec<OwnedFd> = (0..ROOM).map(socket).collect();
    let limit = room.iter().map(|fd| fd.as_raw_fd() as u64 + 1).max();
    drop(room);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let begun = Instant::now();
    setrlimit(Resource::Nofile, Rlimit { current: limit, maximum }).unwrap();
    clients.iter().for_each(|client| connect(client, &strings.running.addr).unwrap());
    // Nothing is closed before the loop has found out.
    while handle.counters().accepts_out_of_resources == 0 {
        assert!(begun.elapsed() < STUCK, "more than {ROOM} were accepted");
        std::thread::yield_now();
    }
    let mut accepted = 0;
    while accepted < CLIENTS {
        if let Input::Accepted { socket, .. } = strings.next().input {
            accepted += 1;
            strings.output(Output::Close { socket });
        }
    }
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    strings.running.stop();
    let pauses = handle.counters().accepts_out_of_resources;
    // Each but the last ended because a descriptor was given back, or after a second.
    let pauses_max = CLIENTS as u64 + begun.elapsed().as_secs() + 1;
    assert!(pauses <= pauses_max, "{pauses} pauses, at most {pauses_max}");
}
