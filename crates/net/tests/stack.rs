//! Stacks of the kernel's with nothing between them but a node that swaps the addresses of each packet.
//!
//! The helpers are forked while the program has one thread, so this is a program without a harness. It says `not run`
//! where the system makes no stacks.

#[path = "support/not_run.rs"]
mod not_run;

use heddle_net::{EventLoop, Options, Stack, StackSetup};
use heddle_seam::language::Plain;
use heddle_seam::node::{Input, Node, Output, SocketError, SocketId, StackId, StackOptions};
use heddle_seam::time::Instant;
use not_run::not_run;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, exit};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// What both stacks call themselves, and the other. Swapping the two leaves every checksum right.
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const THEIRS: Ipv4Addr = Ipv4Addr::new(16, 0, 0, 1);
const PORT: u16 = 2;
const STACK: StackOptions = StackOptions { addr: OURS, ports: &[1, PORT], packet_bytes_max: 1334 };
const DIALLER: StackId = StackId(0);
const LISTENER: StackId = StackId(1);

/// Connections of the first part, and what each carries there and back.
const CONNECTIONS: usize = 400;
const BYTES_EACH: usize = 30_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// What the node tells the test.
#[derive(Debug, PartialEq, Eq)]
enum News {
    /// A connection brought back all that it was given.
    Done,
    Failed(SocketError),
}

/// Both ends of all connections, and the wire between them.
struct Ends {
    news: Sender<News>,
    outputs: VecDeque<(Output<Plain>, Vec<u8>)>,
    room: usize,
    /// Connections that are still to be opened.
    wanted: usize,
    dialled: u64,
    /// Bytes that are still to be sent, and to come, of each socket.
    left: BTreeMap<SocketId, (usize, usize)>,
    accepted: BTreeSet<SocketId>,
    buf: Vec<u8>,
    /// Bytes of the longest packet.
    longest: usize,
    /// Segments that opened a connection and had bytes with them.
    opened_with_bytes: usize,
}

impl Ends {
    fn new(news: Sender<News>, wanted: usize) -> Ends {
        Ends {
            news,
            outputs: VecDeque::new(),
            room: 0,
            wanted,
            dialled: 0,
            left: BTreeMap::new(),
            accepted: BTreeSet::new(),
            buf: vec![0; 16 * 1024],
            longest: 0,
            opened_with_bytes: 0,
        }
    }

    fn want(&mut self, output: Output<Plain>) {
        self.outputs.push_back((output, Vec::new()));
    }

    /// Opens what there is room for, and one more at the end, which must fail.
    fn dial(&mut self) {
        while self.wanted > 0 && self.room > 0 {
            self.wanted -= 1;
            self.room -= 1;
            self.open();
        }
    }

    fn open(&mut self) {
        let socket = SocketId::dialled(self.dialled).on(DIALLER);
        self.dialled += 1;
        self.left.insert(socket, (BYTES_EACH, BYTES_EACH));
        self.want(Output::Connect { socket, to: SocketAddr::new(THEIRS.into(), PORT) });
        self.want(Output::Interest { socket, read: true, write: true });
    }

    fn on_read(&mut self, socket: SocketId, len: usize) {
        let (to_send, to_come) = self.left.get_mut(&socket).expect("it is open");
        for (n, byte) in (*to_come - len..*to_come).rev().zip(&self.buf) {
            assert_eq!(*byte, n as u8, "bytes of {socket:?}");
        }
        *to_come -= len;
        if *to_come > 0 {
            return;
        }
        if self.accepted.contains(&socket) {
            *to_send = BYTES_EACH;
            self.want(Output::Interest { socket, read: true, write: true });
        } else {
            self.want(Output::Abort { socket });
            self.left.remove(&socket);
            self.news.send(News::Done).unwrap();
        }
    }
}

impl Node<Plain> for Ends {
    fn recv_buf(&mut self, socket: SocketId) -> &mut [u8] {
        let to_come = self.left.get(&socket).map_or(1, |(_, to_come)| *to_come).max(1);
        let len = self.buf.len().min(to_come);
        &mut self.buf[..len]
    }

    fn handle_input(&mut self, _: Instant, input: Input<Plain>) {
        match input {
            Input::StackRoom { stack: DIALLER, sockets, accepts } => {
                assert!(accepts);
                self.room = sockets;
                self.dial();
            }
            Input::Packets { stack, packets } => {
                let to = if stack == DIALLER { LISTENER } else { DIALLER };
                let mut data = packets.data.to_vec();
                for packet in data.chunks_mut(packets.stride) {
                    self.longest = self.longest.max(packet.len());
                    self.opened_with_bytes += usize::from(opens_with_bytes(packet));
                    let (source, rest) = packet[12..].split_at_mut(4);
                    source.swap_with_slice(&mut rest[..4]);
                }
                self.outputs.push_back((Output::Packets { stack: to, stride: packets.stride }, data));
            }
            Input::Accepted { socket, local, peer } => {
                assert_eq!((socket.stack(), local), (Some(LISTENER), SocketAddr::new(OURS.into(), PORT)));
                assert_eq!(peer.ip(), THEIRS);
                self.accepted.insert(socket);
                self.left.insert(socket, (0, BYTES_EACH));
                self.want(Output::Interest { socket, read: true, write: false });
            }
            Input::Writable { socket, bytes, .. } => {
                let (to_send, _) = self.left.get_mut(&socket).expect("it is open");
                let count = bytes.min(*to_send);
                let data = (*to_send - count..*to_send).rev().map(|n| n as u8).collect();
                *to_send -= count;
                let is_over = *to_send == 0;
                self.outputs.push_back((Output::Send { socket }, data));
                if is_over {
                    self.want(Output::Interest { socket, read: true, write: false });
                }
            }
            Input::Read { socket, len } => self.on_read(socket, len),
            Input::Failed { socket, error } => {
                self.left.remove(&socket);
                if !self.accepted.remove(&socket) {
                    self.news.send(News::Failed(error)).unwrap();
                }
            }
            // One more than there is room for.
            Input::Control(()) => self.open(),
            _ => {}
        }
    }

    fn poll_output(&mut self, _: Instant, buf: &mut Vec<u8>) -> Output<Plain> {
        let Some((output, data)) = self.outputs.pop_front() else { return Output::Timeout(None) };
        buf.extend(data);
        output
    }
}

/// Whether a packet is the first of a connection and has bytes of it.
fn opens_with_bytes(packet: &[u8]) -> bool {
    const IP_LEN: usize = 20;
    const SYN: u8 = 2;
    let header_len = IP_LEN + usize::from(packet[IP_LEN + 12] >> 4) * 4;
    packet[9] == 6 && packet[IP_LEN + 13] == SYN && packet.len() > header_len
}

fn hear(news: &Receiver<News>) -> News {
    news.recv_timeout(PATIENCE).expect("the node has news")
}

fn main() {
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    an_unknown_congestion_control_is_told_by_its_own_error();
    let setup = StackSetup { congestion_control: Some("reno".to_owned()), ..StackSetup::default() };
    let stacks = [(); 2].map(|()| match Stack::open(&STACK, &setup) {
        Ok(stack) => stack,
        Err(error) => {
            not_run(&format!("stacks of the kernel's, because {error}"));
            exit(0)
        }
    });
    let helpers = stacks.each_ref().map(|stack| stack.helper_pid().expect("it runs"));
    helpers_have_no_rights(helpers);
    connections_work_and_outlive_the_helper(stacks, helpers);
    println!("stack: ok");
}

fn an_unknown_congestion_control_is_told_by_its_own_error() {
    let setup = StackSetup { congestion_control: Some("nonesuch".to_owned()), ..StackSetup::default() };
    match Stack::open(&STACK, &setup) {
        Ok(_) => panic!("there is no such congestion control"),
        Err(error) if error.is_congestion_control() => {}
        Err(error) => {
            not_run(&format!("stacks of the kernel's, because {error}"));
            exit(0)
        }
    }
}

/// A helper can change nothing of its namespace, let alone of the machine, and has nothing of the relay's open.
fn helpers_have_no_rights(helpers: [u32; 2]) {
    let network = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
    for helper in helpers {
        let status = fs::read_to_string(format!("/proc/{helper}/status")).unwrap();
        let line = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_start_matches(':').trim().to_owned()
        };
        for rights in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(line(rights), "0000000000000000", "{rights} of {helper}");
        }
        assert_eq!(line("NoNewPrivs"), "1");
        // Only root sees more of another process that may not be looked into.
        if let Ok(open) = fs::read_dir(format!("/proc/{helper}/fd")) {
            let open = open.filter_map(Result::ok).filter(|entry| {
                fs::read_link(entry.path()).is_ok_and(|link| link.to_string_lossy() != "/dev/null")
            });
            // Its socket, and what it handed over just now.
            assert!(open.count() <= 2 + STACK.ports.len());
            assert_ne!(network(&helper.to_string()), network("self"));
        }
    }
}

fn connections_work_and_outlive_the_helper(stacks: [Stack; 2], helpers: [u32; 2]) {
    let (sender, news) = channel();
    let mut event_loop = EventLoop::new(Ends::new(sender, CONNECTIONS), Options::default()).unwrap();
    for (id, stack) in [DIALLER, LISTENER].into_iter().zip(stacks) {
        event_loop.add_stack(id, &STACK, stack).unwrap();
    }
    let handle = event_loop.handle();
    let running = thread::spawn(move || event_loop.run().unwrap());
    assert!((0..CONNECTIONS).all(|_| hear(&news) == News::Done));
    println!("{CONNECTIONS} connections carried {BYTES_EACH} bytes each way");
    let [dialler, _] = helpers;
    assert!(Command::new("kill").args(["-KILL", &dialler.to_string()]).status().unwrap().success());
    // Not even a zombie of it is left.
    let begun = std::time::Instant::now();
    while fs::exists(format!("/proc/{dialler}")).unwrap() {
        assert!(begun.elapsed() < PATIENCE, "the helper is still there");
        thread::sleep(Duration::from_millis(10));
    }
    // What it had made is used up, and then no more is to be had.
    let mut done = 0;
    loop {
        handle.control(()).unwrap();
        match hear(&news) {
            News::Done => done += 1,
            News::Failed(SocketError::ResourceLimit) => break,
            News::Failed(error) => panic!("after {done}: {error}"),
        }
    }
    println!("{done} more without the helper");
    assert!((1..=256).contains(&done), "{done}");
    handle.stop();
    let node = running.join().unwrap();
    if node.opened_with_bytes == 0 {
        not_run("Fast Open, because the namespace's settings cannot be written");
    } else {
        assert!(node.opened_with_bytes >= CONNECTIONS, "{}", node.opened_with_bytes);
    }
    assert!(node.longest > 1300 && node.longest <= STACK.packet_bytes_max.into(), "{}", node.longest);
    assert!(node.left.keys().all(|socket| node.accepted.contains(socket)));
}
