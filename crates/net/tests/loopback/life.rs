//! How sockets begin and end.

use crate::nodes::{STUCK, Say, Strings};
use crate::not_run::not_run;
use heddle_net::{Options, listen};
use heddle_relay::{Input, Output};
use heddle_seam::node::{SocketError, SocketId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{self, AddressFamily, SendFlags, SocketType, sockopt};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

fn connect(strings: &Strings) -> (TcpStream, SocketId) {
    let client = TcpStream::connect(strings.running.addr).unwrap();
    client.set_read_timeout(Some(STUCK)).unwrap();
    (client, strings.expect_accepted())
}

fn reset(client: TcpStream) {
    sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
}

fn dial(strings: &Strings, to: SocketAddr) -> SocketId {
    let socket = SocketId::dialled(0);
    strings.output(Output::Connect { socket, to });
    socket
}

fn expect_failed(strings: &Strings, which: SocketId, why: SocketError) {
    match strings.next().input {
        Input::Failed { socket, error } => assert_eq!((socket, error), (which, why)),
        other => panic!("told {other:?}"),
    }
}

#[test]
fn a_dialled_connection_tells_its_own_address() {
    let strings = Strings::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let dialled = dial(&strings, listener.local_addr().unwrap());
    let (mut peer, from) = listener.accept().unwrap();
    match strings.next().input {
        Input::Connected { socket, local } => assert_eq!((socket, local), (dialled, from)),
        other => panic!("told {other:?}"),
    }
    strings.interest(dialled, true, true);
    assert!(strings.expect_writable(dialled) > 0);
    strings.say([Say::Send(dialled, b"hello".to_vec())]);
    let mut buf = [0; 5];
    peer.read_exact(&mut buf).unwrap();
    assert_eq!(&buf, b"hello");
}

#[test]
fn a_connection_comes_from_the_address_that_the_operator_chose() {
    let from = Ipv4Addr::new(127, 0, 0, 7);
    let options = Options { outbound_bind_v4: Some(from), ..Options::default() };
    let strings = Strings::start_with(options, |_| {});
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    dial(&strings, listener.local_addr().unwrap());
    assert_eq!(listener.accept().unwrap().1.ip(), from);
}

#[test]
fn a_port_that_nobody_listens_on_refuses() {
    // Bound, so that nobody else takes the port, but not listening.
    let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let addr = SocketAddr::try_from(net::getsockname(&socket).unwrap()).unwrap();
    let strings = Strings::start();
    let dialled = dial(&strings, addr);
    expect_failed(&strings, dialled, SocketError::Refused);
}

#[test]
fn an_address_that_no_route_leads_to_fails_at_once() {
    let strings = Strings::start();
    // TCP cannot be broadcast: the kernel refuses without sending anything.
    let dialled = dial(&strings, "255.255.255.255:9".parse().unwrap());
    expect_failed(&strings, dialled, SocketError::NetworkUnreachable);
}

#[test]
fn the_peer_may_close_its_half_first() {
    let strings = Strings::start();
    let (mut client, socket) = connect(&strings);
    strings.interest(socket, true, true);
    strings.expect_writable(socket);
    client.write_all(b"request").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(strings.expect_bytes(socket, 7), b"request");
    strings.expect_eof(socket);
    strings.say([Say::Send(socket, b"late".to_vec()), Say::Do(Output::ShutdownWrite { socket })]);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"late");
}

#[test]
fn the_node_may_close_its_half_first() {
    let strings = Strings::start();
    let (mut client, socket) = connect(&strings);
    strings.interest(socket, true, true);
    strings.expect_writable(socket);
    strings.say([Say::Send(socket, b"request".to_vec()), Say::Do(Output::ShutdownWrite { socket })]);
    let mut request = Vec::new();
    client.read_to_end(&mut request).unwrap();
    assert_eq!(request, b"request");
    client.write_all(b"answer").unwrap();
    drop(client);
    assert_eq!(strings.expect_bytes(socket, 6), b"answer");
    strings.expect_eof(socket);
}

#[test]
fn a_fin_waits_until_the_node_reads() {
    let strings = Strings::start();
    let (mut client, socket) = connect(&strings);
    client.write_all(&[7; 10_000]).unwrap();
    drop(client);
    // The other half of a second connection proves that the first one's events have been seen.
    let (_other, _) = connect(&strings);
    strings.interest(socket, true, false);
    assert_eq!(strings.expect_bytes(socket, 10_000), [7; 10_000]);
    strings.expect_eof(socket);
}

#[test]
fn a_reset_is_noticed_while_the_node_does_not_read() {
    let strings = Strings::start();
    let (client, socket) = connect(&strings);
    reset(client);
    expect_failed(&strings, socket, SocketError::Reset);
    // It is told once: the next input is about somebody else.
    let (_other, other) = connect(&strings);
    assert_ne!(socket, other);
}

#[test]
fn a_reset_is_noticed_behind_bytes_that_the_node_does_not_read() {
    let strings = Strings::start();
    let (mut client, socket) = connect(&strings);
    client.write_all(&[1; 100_000]).unwrap();
    reset(client);
    expect_failed(&strings, socket, SocketError::Reset);
}

#[test]
fn a_reset_is_noticed_while_the_node_reads() {
    let strings = Strings::start();
    let (client, socket) = connect(&strings);
    strings.interest(socket, true, false);
    reset(client);
    expect_failed(&strings, socket, SocketError::Reset);
}

#[test]
fn bytes_behind_urgent_data_are_read_at_once() {
    let strings = Strings::start();
    let (client, socket) = connect(&strings);
    for (bytes, flags) in [("abc", SendFlags::empty()), ("!", SendFlags::OOB), ("def", SendFlags::empty())] {
        net::send(&client, bytes.as_bytes(), flags).unwrap();
    }
    strings.interest(socket, true, false);
    // The urgent byte itself is no part of the stream.
    assert_eq!(strings.expect_bytes(socket, 6), b"abcdef");
}

#[test]
fn a_fin_may_be_ordered_before_the_connection_is_there() {
    let strings = Strings::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = SocketId::dialled(0);
    let to = listener.local_addr().unwrap();
    strings.say([Say::Do(Output::Connect { socket, to }), Say::Do(Output::ShutdownWrite { socket })]);
    let (mut peer, _) = listener.accept().unwrap();
    assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn a_listener_on_every_address_tells_which_one_was_called() {
    let listener = listen("0.0.0.0:0".parse().unwrap()).unwrap();
    let addr = SocketAddr::from(([127, 0, 0, 9], listener.local_addr().unwrap().port()));
    let strings = Strings::start_with(Options::default(), |event_loop| {
        event_loop.add_listener(listener).unwrap();
    });
    let client = TcpStream::connect(addr).unwrap();
    match strings.next().input {
        Input::Accepted { local, peer, .. } => {
            assert_eq!((local, peer), (addr, client.local_addr().unwrap()))
        }
        other => panic!("told {other:?}"),
    }
}

#[test]
fn ipv6_works_like_ipv4() {
    let Ok(listener) = listen("[::1]:0".parse().unwrap()) else {
        return not_run("sockets of IPv6, for want of an address");
    };
    let addr = listener.local_addr().unwrap();
    let strings = Strings::start_with(Options::default(), |event_loop| {
        event_loop.add_listener(listener).unwrap();
    });
    let dialled = dial(&strings, addr);
    let (mut locals, mut peers) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        match strings.next().input {
            Input::Connected { socket, local } => {
                assert_eq!(socket, dialled);
                peers.push(local);
            }
            Input::Accepted { local, peer, .. } => {
                locals.push(local);
                peers.push(peer);
            }
            other => panic!("told {other:?}"),
        }
    }
    assert_eq!(locals, [addr]);
    assert_eq!(peers[0], peers[1]);
}

/// Hands over bytes until the kernel takes no more, and returns how many there are.
fn fill(strings: &Strings, socket: SocketId) -> usize {
    strings.interest(socket, false, true);
    let mut total = 0;
    let begun = std::time::Instant::now();
    while strings.running.handle.counters().sends_blocked == 0 {
        assert!(begun.elapsed() < STUCK, "the kernel took {total} bytes and no more");
        if total == 0 || strings.running.handle.counters().send_bytes == total as u64 {
            let credit = strings.expect_writable(socket);
            strings.say([Say::Send(socket, vec![0x5a; credit])]);
            total += credit;
        }
    }
    total
}

#[test]
fn close_sends_what_is_pending() {
    let strings = Strings::start();
    let (mut client, socket) = connect(&strings);
    let total = fill(&strings, socket);
    strings.output(Output::Close { socket });
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), total);
    assert!(bytes.iter().all(|byte| *byte == 0x5a));
}

#[test]
fn a_stopped_loop_still_sends_what_is_pending() {
    let strings = Strings::start();
    let (mut client, socket) = connect(&strings);
    let total = fill(&strings, socket);
    strings.output(Output::Close { socket });
    strings.running.handle.stop();
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), total);
    strings.running.join().unwrap();
}

#[test]
fn close_resets_a_peer_that_takes_nothing() {
    let options = Options { close_flush_max: Duration::from_millis(20), ..Options::default() };
    let strings = Strings::start_with(options, |_| {});
    let (mut client, socket) = connect(&strings);
    fill(&strings, socket);
    strings.output(Output::Close { socket });
    let reset = PollFlags::ERR | PollFlags::HUP;
    let mut waits = [PollFd::new(&client, PollFlags::empty())];
    let stuck = Timespec { tv_sec: STUCK.as_secs() as _, tv_nsec: 0 };
    poll(&mut waits, Some(&stuck)).unwrap();
    assert!(waits[0].revents().contains(reset));
    let mut bytes = Vec::new();
    assert_eq!(client.read_to_end(&mut bytes).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn abort_resets() {
    let strings = Strings::start();
    let (mut client, socket) = connect(&strings);
    strings.output(Output::Abort { socket });
    assert_eq!(client.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn outputs_that_name_a_socket_that_is_gone_do_nothing() {
    let strings = Strings::start();
    let (client, socket) = connect(&strings);
    reset(client);
    expect_failed(&strings, socket, SocketError::Reset);
    strings.say([
        Say::Send(socket, vec![1; 100]),
        Say::Do(Output::Interest { socket, read: true, write: true }),
        Say::Do(Output::ShutdownWrite { socket }),
        Say::Do(Output::Close { socket }),
        Say::Do(Output::Abort { socket }),
    ]);
    let (_other, other) = connect(&strings);
    strings.interest(other, false, true);
    strings.expect_writable(other);
}
