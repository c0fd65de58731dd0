//! Time, other threads, and the way in and out of a loop.

use crate::nodes::{STUCK, Say, Strings};
use heddle_net::{EventLoop, LoopHandle, NotTaken, Options, Workers, link_shards, listen, monotonic};
use heddle_proto::crypto::NtorKeypair;
use heddle_proto::crypto::onionskin::{HandshakeType, OnionKeys};
use heddle_relay::{Control, Event, Input, Job, JobResult, Output, RelayLanguage};
use heddle_seam::node::{JobId, Node, SocketId};
use heddle_seam::rng::Seed;
use heddle_seam::time::{Duration, Instant};
use std::collections::BTreeSet;
use std::net::TcpStream;
use std::sync::{Arc, mpsc};
use std::thread;

#[test]
fn the_wall_clock_comes_first() {
    let strings = Strings::start();
    assert!(matches!(strings.next_of_all().input, Input::WallClock(_)));
}

#[test]
fn a_time_out_comes_once_and_never_early() {
    let strings = Strings::start();
    for wait in [Duration::ZERO, Duration::from_micros(300), Duration::from_millis(15)] {
        let due = monotonic() + wait;
        strings.output(Output::Timeout(Some(due)));
        let told = strings.next();
        assert!(matches!(told.input, Input::Timeout), "told {told:?}");
        assert!(told.now >= due);
    }
    // Nothing but a call comes after the last time-out.
    strings.running.handle.control(Control::Drain).unwrap();
    while !matches!(strings.next_of_all().input, Input::Control(_)) {}
}

#[test]
fn a_stopped_loop_returns_its_node_and_takes_no_more() {
    let strings = Strings::start();
    let handle = strings.running.handle.clone();
    strings.running.stop();
    assert_eq!(handle.control(Control::Drain), Err(NotTaken::Stopped));
}

#[test]
fn closing_the_listeners_frees_the_port_and_keeps_the_connections() {
    let strings = Strings::start();
    let addr = strings.running.addr;
    let _client = TcpStream::connect(addr).unwrap();
    let socket = strings.expect_accepted();
    strings.running.handle.close_listeners();
    strings.interest(socket, false, true);
    strings.expect_writable(socket);
    assert!(TcpStream::connect(addr).is_err());
}

#[test]
fn events_reach_the_callback() {
    let (sender, events) = mpsc::channel();
    let strings = Strings::start_with(Options::default(), |event_loop| {
        event_loop.set_on_event(move |event| sender.send(event).unwrap());
    });
    strings.output(Output::Event(Event::Reachable));
    assert_eq!(events.recv_timeout(STUCK).unwrap(), Event::Reachable);
}

fn job(number: u64) -> Job {
    let secret = |n| NtorKeypair::from_secret(&[n; 32]);
    let keys =
        OnionKeys { rsa_id: [1; 20], ed25519_id: [2; 32], ntor_current: secret(3), ntor_previous: None };
    Job::Onionskin {
        keys: Arc::new(keys),
        handshake: HandshakeType::Fast,
        onionskin: vec![4; 20],
        congestion: None,
        seed: Seed::from_number(number),
    }
}

fn expect_all_computed(strings: &Strings, count: u64) {
    strings.say((0..count).map(|n| Say::Do(Output::Compute { id: JobId(n), job: job(n) })));
    let mut done = BTreeSet::new();
    for _ in 0..count {
        match strings.next().input {
            Input::Computed { id, result: JobResult::Onionskin(answer) } => {
                assert!(done.insert(id), "a job was answered twice");
                answer.unwrap();
            }
            other => panic!("told {other:?}"),
        }
    }
}

#[test]
fn workers_answer_every_job() {
    let workers = Workers::start(2, 1000).unwrap();
    let strings = Strings::start_with(Options::default(), |event_loop| event_loop.set_workers(&workers));
    // The loop keeps the threads alive.
    drop(workers);
    expect_all_computed(&strings, 200);
    let handle = strings.running.handle.clone();
    strings.running.stop();
    assert_eq!(handle.counters().jobs_inline, 0);
}

#[test]
fn jobs_that_do_not_fit_run_on_the_loop() {
    let workers = Workers::start(1, 0).unwrap();
    let strings = Strings::start_with(Options::default(), |event_loop| event_loop.set_workers(&workers));
    expect_all_computed(&strings, 20);
    let handle = strings.running.handle.clone();
    strings.running.stop();
    assert_eq!(handle.counters().jobs_inline, 20);
}

/// Tells which shard got a connection.
struct Doorman {
    shard: usize,
    got: mpsc::Sender<(usize, SocketId)>,
}

impl Node<RelayLanguage> for Doorman {
    fn recv_buf(&mut self, _: SocketId) -> &mut [u8] {
        &mut []
    }

    fn handle_input(&mut self, _: Instant, input: Input) {
        if let Input::Accepted { socket, .. } = input {
            let _ = self.got.send((self.shard, socket));
        }
    }

    fn poll_output(&mut self, _: Instant, _: &mut Vec<u8>) -> Output {
        Output::Timeout(None)
    }
}

#[test]
fn connections_are_dealt_out_among_the_shards_in_turn() {
    let (sender, got) = mpsc::channel();
    let doorman = |shard| Doorman { shard, got: sender.clone() };
    let mut loops: Vec<_> =
        (0..3).map(|shard| EventLoop::new(doorman(shard), Options::default()).unwrap()).collect();
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.local_addr().unwrap();
    loops[0].add_listener(listener).unwrap();
    link_shards(&mut loops, 10);
    let handles: Vec<_> = loops.iter().map(EventLoop::handle).collect();
    let threads: Vec<_> = loops.into_iter().map(|event_loop| thread::spawn(|| event_loop.run())).collect();
    let clients: Vec<_> = (0..9).map(|_| TcpStream::connect(addr).unwrap()).collect();
    let took: BTreeSet<_> = clients.iter().map(|_| got.recv_timeout(STUCK).unwrap()).collect();
    let each = |shard| (0..3).map(move |n| (shard, SocketId::accepted(n)));
    assert_eq!(took, (0..3).flat_map(each).collect());
    // One that has ended takes none, and the others do.
    handles[2].stop();
    let mut threads = threads;
    threads.pop().unwrap().join().unwrap().unwrap();
    let _more: Vec<_> = (0..6).map(|_| TcpStream::connect(addr).unwrap()).collect();
    let took: Vec<_> = (0..6).map(|_| got.recv_timeout(STUCK).unwrap().0).collect();
    assert_eq!(took.iter().filter(|shard| **shard == 1).count(), 2);
    assert_eq!(took.iter().filter(|shard| **shard == 0).count(), 4);
    handles[..2].iter().for_each(LoopHandle::stop);
    threads.into_iter().for_each(|thread| drop(thread.join().unwrap().unwrap()));
}
