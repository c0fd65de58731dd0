//! What only a process of its own can test: its descriptors, and what happens without any.

#[allow(dead_code)]
#[path = "loopback/nodes.rs"]
mod nodes;

use heddle_net::Options;
use heddle_proto::node::{Input, Output};
use nodes::{Relay, Running, Strings};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// One test, since both parts are about the whole process.
#[test]
fn descriptors_are_given_back_and_their_lack_is_survived() {
    churn_leaves_none_behind();
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
