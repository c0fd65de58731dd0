//! Stacks of the kernel's with nothing between them but a node that swaps the addresses of each packet.
//!
//! The helpers are forked while the program has one thread, so this is a program without a harness. It says `not run`
//! where the system makes no stacks.

#[path = "support/not_run.rs"]
mod not_run;

use heddle_net::{Counters, EventLoop, LoopHandle, Options, Stack, StackSetup};
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

/// Bytes of a header of IPv4.
const IP_LEN: usize = 20;
/// Bytes of packets that are handed over at once.
const TOGETHER_MAX: usize = 64 * 1024;

/// Connections of the first part, and what each carries there and back.
const CONNECTIONS: usize = 400;
const BYTES_EACH: usize = 30_000;
const PATIENCE: Duration = Duration::from_secs(60);
/// Every such packet that may be marked is, on a wire that marks.
const MARK_EVERY: usize = 50;

/// What the node tells the test.
#[derive(Debug, PartialEq, Eq)]
enum News {
    /// A connection brought back all that it was given.
    Done,
    Failed(SocketError),
    /// The listener had better have nothing opened.
    Refuses,
}

/// What is different in a test.
struct Plan {
    connections: usize,
    bytes_each: usize,
    /// Connections are kept when they are done.
    keeps: bool,
    /// Bytes of the longest packet that the wire carries.
    carries: usize,
    marks: bool,
    /// Packets of one length go on together, with one behind them that is shorter.
    together: bool,
    /// What happens to packets on the wire, by chance.
    mishaps: Option<Mishaps>,
    /// Connections that somebody begins and never completes, before each of ours.
    flood: u32,
    /// Where one more connection goes that the test asks for.
    next_port: u16,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            connections: 1,
            bytes_each: BYTES_EACH,
            keeps: false,
            carries: usize::MAX,
            marks: false,
            together: false,
            mishaps: None,
            flood: 0,
            next_port: PORT,
        }
    }
}

/// Both ends of all connections, and the wire between them.
struct Ends {
    news: Sender<News>,
    outputs: VecDeque<(Output<Plain>, Vec<u8>)>,
    plan: Plan,
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
    marks: Marks,
}

/// What there was to be seen of marks (RFC 3168).
#[derive(Debug, Default)]
struct Marks {
    /// Connections that asked for them, packets that might be marked, those that were, and segments that said so.
    asked: usize,
    capable: usize,
    marked: usize,
    echoed: usize,
}

impl Ends {
    fn new(news: Sender<News>, plan: Plan) -> Ends {
        let wanted = plan.connections;
        Ends {
            news,
            outputs: VecDeque::new(),
            plan,
            room: 0,
            wanted,
            dialled: 0,
            left: BTreeMap::new(),
            accepted: BTreeSet::new(),
            buf: vec![0; 16 * 1024],
            longest: 0,
            opened_with_bytes: 0,
            marks: Marks::default(),
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
            self.open(PORT);
        }
    }

    fn flood(&mut self) {
        let syns: Vec<Vec<u8>> = (0..self.plan.flood).map(syn).collect();
        for batch in syns.chunks(1000) {
            self.outputs
                .push_back((Output::Packets { stack: LISTENER, stride: syns[0].len() }, batch.concat()));
        }
    }

    /// Carries packets to the other stack.
    fn carry(&mut self, to: StackId, stride: usize, packets: &[u8]) {
        for packet in packets.chunks(stride) {
            // What answers the flood goes nowhere.
            if packet.len() > self.plan.carries || packet[16..20] != THEIRS.octets() {
                continue;
            }
            let mut packet = packet.to_vec();
            assert!(is_sound(&packet), "{packet:?}");
            self.longest = self.longest.max(packet.len());
            self.opened_with_bytes += usize::from(opens_with_bytes(&packet));
            self.marks.look(&mut packet, self.plan.marks);
            let (source, rest) = packet[12..].split_at_mut(4);
            source.swap_with_slice(&mut rest[..4]);
            let all = match &mut self.plan.mishaps {
                None => vec![packet],
                Some(mishaps) => mishaps.befall(to, packet),
            };
            all.into_iter().for_each(|packet| self.hand_over(to, packet));
        }
    }

    fn hand_over(&mut self, to: StackId, packet: Vec<u8>) {
        match self.outputs.back_mut() {
            Some((Output::Packets { stack, stride }, before))
                if self.plan.together
                    && *stack == to
                    && before.len().is_multiple_of(*stride)
                    && packet.len() <= *stride
                    && before.len() + packet.len() <= TOGETHER_MAX =>
            {
                before.extend(packet);
            }
            _ => self.outputs.push_back((Output::Packets { stack: to, stride: packet.len() }, packet)),
        }
    }

    fn open(&mut self, port: u16) {
        self.flood();
        let socket = SocketId::dialled(self.dialled).on(DIALLER);
        self.dialled += 1;
        self.left.insert(socket, (self.plan.bytes_each, self.plan.bytes_each));
        self.want(Output::Connect { socket, to: SocketAddr::new(THEIRS.into(), port) });
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
            *to_send = self.plan.bytes_each;
            self.want(Output::Interest { socket, read: true, write: true });
        } else {
            if !self.plan.keeps {
                self.want(Output::Abort { socket });
                self.left.remove(&socket);
            }
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
            Input::StackRoom { stack: DIALLER, sockets, .. } => {
                self.room = sockets;
                self.dial();
            }
            Input::StackRoom { stack: LISTENER, accepts: false, .. } => {
                self.news.send(News::Refuses).unwrap()
            }
            Input::Packets { stack, packets } => {
                let to = if stack == DIALLER { LISTENER } else { DIALLER };
                self.carry(to, packets.stride, &packets.data);
            }
            Input::Accepted { socket, local, peer } => {
                assert_eq!((socket.stack(), local.ip()), (Some(LISTENER), OURS.into()));
                assert_eq!(peer.ip(), THEIRS);
                self.accepted.insert(socket);
                self.left.insert(socket, (0, self.plan.bytes_each));
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
            Input::Control(()) => self.open(self.plan.next_port),
            _ => {}
        }
    }

    fn poll_output(&mut self, _: Instant, buf: &mut Vec<u8>) -> Output<Plain> {
        let Some((output, data)) = self.outputs.pop_front() else { return Output::Timeout(None) };
        buf.extend(data);
        output
    }
}

impl Marks {
    /// Looks at a packet, and marks it if it is its turn.
    fn look(&mut self, packet: &mut [u8], marks: bool) {
        const CAPABLE: u8 = 2;
        const CONGESTED: u8 = 3;
        const SYN: u8 = 2;
        const ACK: u8 = 16;
        const ECHO: u8 = 64;
        const REDUCED: u8 = 128;
        let flags = packet[IP_LEN + 13];
        self.asked += usize::from(flags & (SYN | ACK | ECHO | REDUCED) == SYN | ECHO | REDUCED);
        self.echoed += usize::from(flags & (SYN | ECHO) == ECHO);
        if packet[1] & 3 != CAPABLE {
            return;
        }
        self.capable += 1;
        if marks && self.capable.is_multiple_of(MARK_EVERY) {
            self.marked += 1;
            packet[1] |= CONGESTED;
            packet[10..12].fill(0);
            let sum = checksum(&[&packet[..IP_LEN]]);
            packet[10..12].copy_from_slice(&sum);
        }
    }
}

/// A wire on which packets are lost, come twice and out of order, and come with others that are none.
struct Mishaps {
    state: u64,
    /// One that comes later than the next, and where to.
    late: Option<(StackId, Vec<u8>)>,
}

impl Mishaps {
    /// Those of a seed.
    fn new(seed: u64) -> Mishaps {
        Mishaps { state: seed, late: None }
    }

    fn below(&mut self, bound: u64) -> u64 {
        // Knuth's generator.
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % bound
    }

    /// What arrives in the place of a packet.
    fn befall(&mut self, to: StackId, packet: Vec<u8>) -> Vec<Vec<u8>> {
        let mut all = match self.below(100) {
            0 => Vec::new(),
            1 => vec![packet.clone(), packet],
            2 if self.late.is_none() => {
                self.late = Some((to, packet));
                Vec::new()
            }
            3..6 => vec![self.spoil(packet.clone()), packet],
            6..9 => {
                let spoilt = self.spoil(packet.clone());
                vec![packet, spoilt]
            }
            _ => vec![packet],
        };
        let late = self.late.take_if(|(late_to, _)| *late_to == to && !all.is_empty());
        all.extend(late.map(|(_, packet)| packet));
        all
    }

    /// Another packet like this one, which no kernel takes for a segment of it.
    fn spoil(&mut self, mut packet: Vec<u8>) -> Vec<u8> {
        match self.below(8) {
            0 => packet[6] |= 0x20,
            1 => packet[7] = 1,
            2 => packet[9] = 17,
            3 => packet[0] = 0x65,
            4 => packet[0] = 0x46,
            5 => packet[3] ^= 1,
            6 => packet[IP_LEN + 12] = 0x10,
            _ => packet.truncate(1 + self.below(60) as usize),
        }
        if packet.len() >= IP_LEN && packet[0] == 0x45 {
            packet[10..12].fill(0);
            let sum = checksum(&[&packet[..IP_LEN]]);
            packet[10..12].copy_from_slice(&sum);
        }
        packet
    }
}

/// Whether a segment is as long as its packet says and both checksums are right.
fn is_sound(packet: &[u8]) -> bool {
    let tcp_len = (packet.len() - IP_LEN) as u16;
    packet[2..4] == (packet.len() as u16).to_be_bytes()
        && checksum(&[&packet[..IP_LEN]]) == [0, 0]
        && checksum(&[&packet[12..IP_LEN], &[0, 6], &tcp_len.to_be_bytes(), &packet[IP_LEN..]]) == [0, 0]
}

/// The Internet's checksum (RFC 1071) of parts that have even numbers of bytes, but the last.
fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let word = |word: &[u8]| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
    let mut sum: u32 = parts.iter().flat_map(|part| part.chunks(2)).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

/// The `n`-th of segments that open connections and that nobody follows.
fn syn(n: u32) -> Vec<u8> {
    const PORTS: u32 = 60_000;
    let from = Ipv4Addr::from(u32::from(Ipv4Addr::new(17, 0, 0, 1)) + n / PORTS).octets();
    let mut ip = [&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0][..], &from, &OURS.octets()].concat();
    let sum = checksum(&[&ip]);
    ip[10..12].copy_from_slice(&sum);
    let port = (1024 + n % PORTS) as u16;
    let mut tcp = [
        &port.to_be_bytes()[..],
        &PORT.to_be_bytes(),
        &[0, 0, 0, 9, 0, 0, 0, 0, 0x50, 2, 255, 255, 0, 0, 0, 0],
    ]
    .concat();
    let sum = checksum(&[&ip[12..], &[0, 6, 0, 20], &tcp]);
    tcp[16..18].copy_from_slice(&sum);
    [ip, tcp].concat()
}

/// Whether a packet is the first of a connection and has bytes of it.
fn opens_with_bytes(packet: &[u8]) -> bool {
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    let header_len = IP_LEN + usize::from(packet[IP_LEN + 12] >> 4) * 4;
    packet[9] == 6 && packet[IP_LEN + 13] & (SYN | ACK) == SYN && packet.len() > header_len
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
    let open = || match Stack::open(&STACK, &setup) {
        Ok(stack) => stack,
        Err(error) => {
            not_run(&format!("stacks of the kernel's, because {error}"));
            exit(0)
        }
    };
    let pair = || [open(), open()];
    no_helper_outlives_its_stack(open());
    let [first, narrow, flooded, full, down, bulk, mishaps] = [(); 7].map(|()| pair());
    let plain_setup = StackSetup { plain_device: true, ..setup.clone() };
    let plain = [(); 2].map(|()| Stack::open(&STACK, &plain_setup).expect("others were made"));
    let helpers = first.each_ref().map(|stack| stack.helper_pid().expect("it runs"));
    helpers_have_no_rights(helpers);
    let is_set = first[0].unwritten_settings().is_empty();
    signals_for_the_relay_end_no_helper(helpers);
    connections_work_and_outlive_the_helper(first, helpers, is_set);
    the_first_port_has_places_where_the_others_have_none(full);
    a_device_that_is_down_is_told(down);
    a_plain_device_takes_packets_one_by_one(plain);
    much_goes_through_a_device_in_large_pieces(bulk);
    streams_arrive_whatever_happens_to_packets(mishaps);
    if is_set {
        a_path_that_carries_less_carries_nevertheless(narrow);
        openings_that_nobody_completes_keep_nobody_out(flooded);
    } else {
        not_run("what the settings of a stack's namespace do, because they cannot be written");
    }
    println!("stack: ok");
}

/// Both stacks in a loop, which goes on while `test` is done; and what the node knows then.
fn run(
    stacks: [Stack; 2],
    plan: Plan,
    options: Options,
    test: impl FnOnce(&LoopHandle<Plain>, &Receiver<News>),
) -> Ends {
    let (sender, news) = channel();
    let mut event_loop = EventLoop::new(Ends::new(sender, plan), options).unwrap();
    for (id, stack) in [DIALLER, LISTENER].into_iter().zip(stacks) {
        event_loop.add_stack(id, &STACK, stack).unwrap();
    }
    let handle = event_loop.handle();
    let running = thread::spawn(move || event_loop.run().unwrap());
    test(&handle, &news);
    handle.stop();
    running.join().unwrap()
}

fn is_there(process: u32) -> bool {
    fs::exists(format!("/proc/{process}")).unwrap()
}

fn no_helper_outlives_its_stack(stack: Stack) {
    let helper = stack.helper_pid().expect("it runs");
    assert!(is_there(helper));
    drop(stack);
    assert!(!is_there(helper), "not even a zombie of it");
}

/// They would show as connections that find no sockets, because there are more than are made in advance.
fn signals_for_the_relay_end_no_helper(helpers: [u32; 2]) {
    for signal in ["INT", "TERM", "HUP", "USR1", "USR2"] {
        let helpers = helpers.map(|helper| helper.to_string());
        assert!(Command::new("kill").arg(format!("-{signal}")).args(helpers).status().unwrap().success());
    }
}

fn the_first_port_has_places_where_the_others_have_none(stacks: [Stack; 2]) {
    let options = Options { stack_sockets_max: 20, ..Options::default() };
    let plan = Plan { connections: 15, keeps: true, next_port: STACK.ports[0], ..Plan::default() };
    run(stacks, plan, options, |handle, news| {
        let told: Vec<News> = (0..15).map(|_| hear(news)).collect();
        assert_eq!(told.iter().filter(|news| **news == News::Done).count(), 14, "{told:?}");
        handle.control(()).unwrap();
        let told = [hear(news), hear(news)];
        assert!(told.contains(&News::Done) && told.contains(&News::Refuses), "{told:?}");
    });
}

fn a_device_that_is_down_is_told(stacks: [Stack; 2]) {
    let listener = stacks[1].helper_pid().expect("it runs").to_string();
    let plan = Plan { keeps: true, ..Plan::default() };
    run(stacks, plan, Options::default(), |handle, news| {
        assert_eq!(hear(news), News::Done);
        let words = ["--target", &listener, "--net", "ip", "link", "set", "esp0", "down"];
        if !Command::new("nsenter").args(words).output().is_ok_and(|output| output.status.success()) {
            return not_run("a device that is down, for want of root, nsenter or ip");
        }
        handle.control(()).unwrap();
        assert_eq!(hear(news), News::Refuses);
        assert!(handle.counters().stack_packets_lost > 0);
    });
}

/// How many connections of a plan brought everything back, and what it took.
fn carried(stacks: [Stack; 2], plan: Plan) -> (Ends, Counters) {
    let connections = plan.connections;
    let mut counters = Counters::default();
    let ends = run(stacks, plan, Options::default(), |handle, news| {
        assert!((0..connections).all(|_| hear(news) == News::Done));
        counters = handle.counters();
    });
    let Counters { stack_packets_received, stack_recvs, stack_packets_sent, stack_sends, .. } = counters;
    println!(
        "{stack_packets_received} packets from devices by {stack_recvs} calls, {stack_packets_sent} to them by \
         {stack_sends}"
    );
    (ends, counters)
}

fn a_plain_device_takes_packets_one_by_one(stacks: [Stack; 2]) {
    assert!(stacks.iter().all(Stack::has_plain_device));
    let plan = Plan { connections: 4, bytes_each: 1_000_000, together: true, ..Plan::default() };
    let (ends, counters) = carried(stacks, plan);
    assert!(counters.stack_packets_received < counters.stack_recvs);
    assert_eq!((counters.stack_packets_sent, counters.stack_packets_lost), (counters.stack_sends, 0));
    assert_eq!(ends.longest, STACK.packet_bytes_max.into());
    let on_stacks = (counters.stack_recv_bytes, counters.stack_send_bytes);
    assert_eq!(on_stacks, (counters.recv_bytes, counters.send_bytes), "there are no others");
    assert!(on_stacks.1 >= 2 * 4 * 1_000_000);
}

/// Packets are as long as over a plain device, and as many, but for acknowledgements.
fn much_goes_through_a_device_in_large_pieces(stacks: [Stack; 2]) {
    if stacks.iter().any(Stack::has_plain_device) {
        return not_run("packets that go through a device together, because it has no offloads");
    }
    const CONNECTIONS: usize = 4;
    const BYTES_EACH: usize = 4_000_000;
    let plan = Plan { connections: CONNECTIONS, bytes_each: BYTES_EACH, together: true, ..Plan::default() };
    let (ends, counters) = carried(stacks, plan);
    assert_eq!(ends.longest, STACK.packet_bytes_max.into());
    let least = (2 * CONNECTIONS * BYTES_EACH / usize::from(STACK.packet_bytes_max)) as u64;
    assert!(counters.stack_packets_received > least && counters.stack_packets_sent > least);
    assert!(counters.stack_packets_received > 2 * counters.stack_recvs);
    assert!(counters.stack_packets_sent > 2 * counters.stack_sends);
}

/// Every byte is looked at where it arrives.
fn streams_arrive_whatever_happens_to_packets(stacks: [Stack; 2]) {
    let (connections, mishaps) = (40, Some(Mishaps::new(7)));
    let plan = Plan { connections, bytes_each: 200_000, together: true, mishaps, ..Plan::default() };
    carried(stacks, plan);
}

fn a_path_that_carries_less_carries_nevertheless(stacks: [Stack; 2]) {
    let plan = Plan { bytes_each: 100_000, carries: 1200, ..Plan::default() };
    let node = run(stacks, plan, Options::default(), |_, news| assert_eq!(hear(news), News::Done));
    assert!((1000..=1200).contains(&node.longest), "{}", node.longest);
}

/// More than the queue of connections that are not complete holds, of all peers; and it holds each for 7 s. Who is done
/// before that had no place of one that was given up. Where the machine itself took longer, there is another flood,
/// which finds the queue empty, because the connection that came late came when the one before was given up.
fn openings_that_nobody_completes_keep_nobody_out(stacks: [Stack; 2]) {
    const FLOODS_MAX: usize = 8;
    run(stacks, Plan { flood: 70_000, ..Plan::default() }, Options::default(), |handle, news| {
        for _ in 0..FLOODS_MAX {
            match news.recv_timeout(Duration::from_secs(5)) {
                Ok(told) => return assert_eq!(told, News::Done),
                Err(_) => assert_eq!(hear(news), News::Done),
            }
            handle.control(()).unwrap();
        }
        panic!("of {FLOODS_MAX} connections none came before those of a flood were given up");
    });
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

/// How many descriptors of a process are open on something.
fn opened(process: u32) -> usize {
    let open = fs::read_dir(format!("/proc/{process}/fd")).unwrap().filter_map(Result::ok);
    let is_something = |entry: &fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|link| link.to_string_lossy() != "/dev/null")
    };
    open.filter(is_something).count()
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
        let Some(of_helper) = network(&helper.to_string()) else {
            not_run("what a helper has open, for want of root");
            continue;
        };
        assert_ne!(Some(of_helper), network("self"));
        let begun = std::time::Instant::now();
        // Its socket to us; what it handed over it closes in a moment.
        while opened(helper) != 1 {
            assert!(begun.elapsed() < PATIENCE, "{} are open", opened(helper));
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn connections_work_and_outlive_the_helper(stacks: [Stack; 2], helpers: [u32; 2], is_set: bool) {
    let plan = Plan { connections: CONNECTIONS, marks: true, ..Plan::default() };
    let node = run(stacks, plan, Options::default(), |handle, news| {
        assert!((0..CONNECTIONS).all(|_| hear(news) == News::Done));
        println!("{CONNECTIONS} connections carried {BYTES_EACH} bytes each way");
        outlive_the_helper(helpers[0], handle, news);
    });
    if is_set {
        assert!(node.opened_with_bytes >= CONNECTIONS, "{}", node.opened_with_bytes);
        let Marks { asked, capable, marked, echoed } = node.marks;
        assert!(
            asked >= CONNECTIONS && capable > CONNECTIONS && marked > 0 && echoed > 0,
            "{:?}",
            node.marks
        );
    }
    assert!(node.longest > 1300 && node.longest <= STACK.packet_bytes_max.into(), "{}", node.longest);
    assert!(node.left.keys().all(|socket| node.accepted.contains(socket)));
}

fn outlive_the_helper(helper: u32, handle: &LoopHandle<Plain>, news: &Receiver<News>) {
    assert!(Command::new("kill").args(["-KILL", &helper.to_string()]).status().unwrap().success());
    // Not even a zombie of it is left.
    let begun = std::time::Instant::now();
    while is_there(helper) {
        assert!(begun.elapsed() < PATIENCE, "the helper is still there");
        thread::sleep(Duration::from_millis(10));
    }
    // What it had made is used up, and then no more is to be had.
    let mut done = 0;
    loop {
        handle.control(()).unwrap();
        match hear(news) {
            News::Done => done += 1,
            News::Failed(SocketError::ResourceLimit) => break,
            other => panic!("after {done}: {other:?}"),
        }
    }
    println!("{done} more without the helper");
    assert!((1..=256).contains(&done), "{done}");
}
