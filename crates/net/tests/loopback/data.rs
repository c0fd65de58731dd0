//! Bytes: whole, in order, bounded in memory, with few system calls.

use crate::nodes::{RELAY_BUFFER, Relay, Running, STUCK, Say, Strings};
use heddle_net::Options;
use heddle_relay::{Input, Output};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

/// Bytes that tell their place, so that a loss or a swap shows.
fn pattern(from: u64, buf: &mut [u8]) {
    for (n, byte) in buf.iter_mut().enumerate() {
        let place = from + n as u64;
        *byte = (place ^ (place >> 8) ^ (place >> 16)) as u8;
    }
}

/// Writes `total` patterned bytes and then a FIN.
fn supply(stream: &TcpStream, total: u64, chunk: usize) {
    let mut stream = stream;
    let mut buf = vec![0; chunk];
    let mut sent = 0;
    while sent < total {
        let len = (chunk as u64).min(total - sent) as usize;
        pattern(sent, &mut buf[..len]);
        stream.write_all(&buf[..len]).unwrap();
        sent += len as u64;
    }
    stream.shutdown(Shutdown::Write).unwrap();
}

/// Reads patterned bytes to the end and returns how many came.
fn consume(stream: &TcpStream, chunk: usize) -> u64 {
    let mut stream = stream;
    let (mut buf, mut expected) = (vec![0; chunk], vec![0; chunk]);
    let mut total = 0;
    loop {
        let len = match stream.read(&mut buf) {
            // A read that has a time-out ends when the process is stopped and goes on.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.unwrap(),
        };
        if len == 0 {
            return total;
        }
        pattern(total, &mut expected[..len]);
        assert!(buf[..len] == expected[..len], "bytes differ within {len} of {total}");
        total += len as u64;
    }
}

/// Reads and writes of this stream fail rather than wait for ever.
fn bound_waits(stream: &TcpStream) {
    stream.set_read_timeout(Some(STUCK)).unwrap();
    stream.set_write_timeout(Some(STUCK)).unwrap();
}

fn echo_through(addr: std::net::SocketAddr, total: u64, chunk: usize) {
    let stream = TcpStream::connect(addr).unwrap();
    bound_waits(&stream);
    thread::scope(|scope| {
        scope.spawn(|| supply(&stream, total, chunk));
        assert_eq!(consume(&stream, chunk * 3 / 2), total);
    });
}

#[test]
fn an_echo_node_returns_every_byte_to_many_clients_at_once() {
    let echo = Running::start(Relay::new(None));
    let addr = echo.addr;
    let clients: Vec<_> =
        (1..=16).map(|n| thread::spawn(move || echo_through(addr, 300_000 + n, 1000 * n as usize))).collect();
    for client in clients {
        client.join().unwrap();
    }
    let echo = echo.stop();
    assert_eq!(echo.failures, 0);
    assert!(echo.held_max <= RELAY_BUFFER);
}

#[test]
fn a_chain_of_nodes_carries_bytes_both_ways() {
    let echo = Running::start(Relay::new(None));
    let second = Running::start(Relay::new(Some(echo.addr)));
    let first = Running::start(Relay::new(Some(second.addr)));
    echo_through(first.addr, 5_000_000, 70_000);
    assert_eq!(first.stop().failures + second.stop().failures + echo.stop().failures, 0);
}

/// The reader takes nothing until the whole path from the writer is full, and then everything. Nodes
/// hold no more than their buffers while hundreds of megabytes pass.
#[test]
fn a_slow_reader_holds_back_the_writer_and_memory_stays_bounded() {
    const TOTAL: u64 = 200_000_000;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let relay = Running::start(Relay::new(Some(listener.local_addr().unwrap())));
    let writer = TcpStream::connect(relay.addr).unwrap();
    let (reader, _) = listener.accept().unwrap();
    bound_waits(&writer);
    bound_waits(&reader);
    // The kernel's buffers take a few megabytes before they are full.
    let mut full = writer.try_clone().unwrap();
    full.set_nonblocking(true).unwrap();
    let mut buf = vec![0; 100_000];
    let mut sent = 0;
    loop {
        pattern(sent, &mut buf);
        match full.write(&buf) {
            Ok(len) => sent += len as u64,
            // The relay could not pass on what it had, and the kernel takes no more from us.
            Err(_) if relay.handle.counters().sends_blocked > 0 => break,
            Err(_) => thread::yield_now(),
        }
        assert!(sent < TOTAL / 2, "nothing held back the writer");
    }
    full.set_nonblocking(false).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = &writer;
            while sent < TOTAL {
                let len = buf.len().min((TOTAL - sent) as usize);
                pattern(sent, &mut buf[..len]);
                writer.write_all(&buf[..len]).unwrap();
                sent += len as u64;
            }
            writer.shutdown(Shutdown::Write).unwrap();
        });
        assert_eq!(consume(&reader, 50_000), TOTAL);
        reader.shutdown(Shutdown::Write).unwrap();
    });
    let node = relay.stop();
    assert!(node.held_max <= RELAY_BUFFER);
    assert_eq!(node.failures, 0);
}

#[test]
fn a_round_trip_costs_one_wait_one_receive_and_one_send() {
    const TRIPS: u64 = 200;
    let echo = Running::start(Relay::new(None));
    let mut client = TcpStream::connect(echo.addr).unwrap();
    bound_waits(&client);
    client.set_nodelay(true).unwrap();
    for n in 0..TRIPS {
        let message = n.to_be_bytes();
        client.write_all(&message).unwrap();
        let mut answer = [0; 8];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer, message);
    }
    let handle = echo.handle.clone();
    echo.stop();
    let counters = handle.counters();
    assert_eq!(counters.sends, TRIPS);
    assert_eq!(counters.sends_blocked, 0);
    assert!(counters.recvs <= TRIPS + 1, "{counters:?}");
    // The loop's wakeup, the listener, the connection: interest that changes costs nothing.
    assert_eq!(counters.epoll_ctls, 3);
    assert!(counters.waits <= TRIPS + 8, "{counters:?}");
}

#[test]
fn what_one_turn_hands_over_for_a_socket_is_one_send() {
    let strings = Strings::start();
    let mut client = TcpStream::connect(strings.running.addr).unwrap();
    bound_waits(&client);
    let socket = strings.expect_accepted();
    strings.interest(socket, false, true);
    strings.expect_writable(socket);
    strings.say((0..30).map(|n| Say::Send(socket, vec![n; 514])));
    let mut cells = vec![0; 30 * 514];
    client.read_exact(&mut cells).unwrap();
    assert!(cells.chunks(514).enumerate().all(|(n, cell)| cell.iter().all(|byte| *byte == n as u8)));
    // Interest in writing was never lost, and all is sent: so credit comes again.
    assert_eq!(strings.expect_writable(socket), Options::default().write_quantum_bytes);
    let handle = strings.running.handle.clone();
    strings.running.stop();
    assert_eq!(handle.counters().sends, 1);
}

#[test]
fn credit_comes_anew_when_interest_does_and_only_then() {
    let options = Options { write_quantum_bytes: 5000, ..Options::default() };
    let strings = Strings::start_with(options, |_| {});
    let _client = TcpStream::connect(strings.running.addr).unwrap();
    let socket = strings.expect_accepted();
    for _ in 0..3 {
        strings.interest(socket, false, true);
        assert_eq!(strings.expect_writable(socket), 5000);
        strings.interest(socket, false, false);
    }
    // Without interest, a send brings no credit: the next input is the reply to the last call.
    strings.say([Say::Send(socket, vec![1; 5000])]);
    strings.output(Output::Connect {
        socket: heddle_seam::node::SocketId::dialled(0),
        to: strings.running.addr,
    });
    let told = strings.next();
    assert!(!matches!(told.input, Input::Writable { .. }), "told {told:?}");
}

/// What the kernel does not take of a socket is told until all was sent, or until the socket is gone; whatever took it
/// itself costs no word.
#[test]
fn the_node_hears_how_much_memory_waits_for_the_kernel_and_when_no_more_does() {
    let strings = Strings::start();
    let mut client = TcpStream::connect(strings.running.addr).unwrap();
    bound_waits(&client);
    let socket = strings.expect_accepted();
    strings.interest(socket, false, true);
    let mut sent = 0;
    let unsent = loop {
        match strings.next().input {
            Input::Writable { bytes, .. } => {
                strings.say([Say::Send(socket, vec![7; bytes])]);
                sent += bytes;
            }
            Input::Unsent { socket: which, bytes } => {
                assert_eq!(which, socket);
                break bytes;
            }
            other => panic!("told {other:?}"),
        }
    };
    let quantum = Options::default().write_quantum_bytes;
    assert!((quantum..=2 * quantum).contains(&unsent), "{unsent}");
    // It is closed and still sends.
    strings.output(Output::Close { socket });
    let mut came = Vec::new();
    client.read_to_end(&mut came).unwrap();
    assert_eq!(came.len(), sent);
    let told = strings.next().input;
    assert!(matches!(told, Input::Unsent { socket: which, bytes: 0 } if which == socket), "told {told:?}");
}

#[test]
fn a_closed_socket_may_still_be_aborted() {
    let strings = Strings::start();
    let mut client = TcpStream::connect(strings.running.addr).unwrap();
    bound_waits(&client);
    let socket = strings.expect_accepted();
    strings.interest(socket, false, true);
    while let Input::Writable { bytes, .. } = strings.next().input {
        strings.say([Say::Send(socket, vec![7; bytes])]);
    }
    strings.say([Say::Do(Output::Close { socket }), Say::Do(Output::Abort { socket })]);
    let told = strings.next().input;
    assert!(matches!(told, Input::Unsent { socket: which, bytes: 0 } if which == socket), "told {told:?}");
    let error = client.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}
