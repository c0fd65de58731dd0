//! Hosts whose computing takes time: what arithmetic says of queues is what comes out, to the nanosecond.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use heddle_seam::datagrams::Transmit;
use heddle_seam::language::{Job, Language};
use heddle_seam::node::{Input, JobId, Node, Output, PortId, SocketId};
use heddle_seam::time::{Duration, Instant};
use heddle_sim::{AnyNode, Costs, Host, HostId, Options, Processors, Simulation, TraceHash, Wire};
use std::collections::{BTreeMap, VecDeque};

const PORT: u16 = 9;
const STREAM_PORT: u16 = 80;
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
/// A datagram of the tests, which fits any wire.
const DATAGRAM_BYTES: usize = 1_000;
const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;

/// Nodes that say nothing beside bytes, but have jobs.
#[derive(Debug)]
enum Working {}

#[derive(Debug)]
struct Sum(u64);

impl Job for Sum {
    type Result = u64;

    fn kind(&self) -> &'static str {
        if self.0 == 0 { "nothing" } else { "sum" }
    }

    fn run(self) -> u64 {
        self.0
    }
}

impl Language for Working {
    type Control = ();
    type Event = u64;
    type Message = ();
    type Job = Sum;
}

/// Sends a datagram at each of its moments, to a port whose number it may change, and knows when answers came.
struct Client {
    due: VecDeque<(Instant, u16)>,
    answers: Vec<Instant>,
}

impl Node<Working> for Client {
    fn recv_buf(&mut self, _: SocketId) -> &mut [u8] {
        &mut []
    }

    fn handle_input(&mut self, now: Instant, input: Input<Working>) {
        if let Input::Datagrams { datagrams, .. } = input {
            let answers = datagrams.data.len().div_ceil(datagrams.stride);
            self.answers.extend(std::iter::repeat_n(now, answers));
        }
    }

    fn poll_output(&mut self, now: Instant, buf: &mut Vec<u8>) -> Output<Working> {
        match self.due.front().copied() {
            Some((at, port)) if at <= now => {
                self.due.pop_front();
                buf.resize(DATAGRAM_BYTES, 0);
                let to = SocketAddr::new(SERVER, port);
                let transmit = Transmit { to, from: None, ecn: 0, stride: DATAGRAM_BYTES };
                Output::Datagrams { port: PortId(0), transmit }
            }
            next => Output::Timeout(next.map(|(at, _)| at)),
        }
    }
}

/// Answers datagrams one by one, reads streams to their ends, and has a job done for each message of its operator.
#[derive(Default)]
struct Server {
    answers: VecDeque<SocketAddr>,
    /// At what times it was told of datagrams, and of how many then.
    told: BTreeMap<Instant, usize>,
    outputs: VecDeque<Output<Working>>,
    jobs: u64,
    read: (usize, Option<Instant>),
    job_of: u64,
    buf: Vec<u8>,
}

impl Node<Working> for Server {
    fn recv_buf(&mut self, _: SocketId) -> &mut [u8] {
        self.buf.resize(64 << 10, 0);
        &mut self.buf
    }

    fn handle_input(&mut self, now: Instant, input: Input<Working>) {
        match input {
            Input::Datagrams { datagrams, .. } => {
                let count = datagrams.data.len().div_ceil(datagrams.stride);
                *self.told.entry(now).or_default() += count;
                self.answers.extend(std::iter::repeat_n(datagrams.from, count));
            }
            Input::Accepted { socket, .. } => {
                self.outputs.push_back(Output::Interest { socket, read: true, write: false });
            }
            Input::Read { len, .. } => self.read.0 += len,
            Input::Eof { .. } => self.read.1 = Some(now),
            Input::Control(()) => {
                self.outputs.push_back(Output::Compute { id: JobId(self.jobs), job: Sum(self.job_of) });
                self.jobs += 1;
            }
            Input::Computed { result, .. } => self.outputs.push_back(Output::Event(result)),
            _ => {}
        }
    }

    fn poll_output(&mut self, _: Instant, buf: &mut Vec<u8>) -> Output<Working> {
        if let Some(output) = self.outputs.pop_front() {
            return output;
        }
        match self.answers.pop_front() {
            Some(to) => {
                buf.resize(DATAGRAM_BYTES, 0);
                let transmit = Transmit { to, from: None, ecn: 0, stride: DATAGRAM_BYTES };
                Output::Datagrams { port: PortId(0), transmit }
            }
            None => Output::Timeout(None),
        }
    }
}

/// Sends so many bytes on one connection, and then its end.
struct Writer {
    left: usize,
    credit: usize,
    outputs: VecDeque<Output<Working>>,
}

impl Writer {
    fn new(bytes: usize) -> Self {
        let socket = SocketId::dialled(0);
        let connect = Output::Connect { socket, to: SocketAddr::new(SERVER, STREAM_PORT) };
        let interest = Output::Interest { socket, read: false, write: true };
        Writer { left: bytes, credit: 0, outputs: VecDeque::from([connect, interest]) }
    }
}

impl Node<Working> for Writer {
    fn recv_buf(&mut self, _: SocketId) -> &mut [u8] {
        &mut []
    }

    fn handle_input(&mut self, _: Instant, input: Input<Working>) {
        if let Input::Writable { bytes, .. } = input {
            self.credit = bytes;
        }
    }

    fn poll_output(&mut self, _: Instant, buf: &mut Vec<u8>) -> Output<Working> {
        let socket = SocketId::dialled(0);
        let len = self.left.min(self.credit);
        if len > 0 {
            (self.left, self.credit) = (self.left - len, self.credit - len);
            buf.resize(len, 0);
            if self.left == 0 {
                self.outputs.push_back(Output::ShutdownWrite { socket });
            }
            return Output::Send { socket };
        }
        self.outputs.pop_front().unwrap_or(Output::Timeout(None))
    }
}

/// A client whose datagrams arrive at these moments at the server's ports, and a server of so many shards.
struct World {
    sim: Simulation<Working>,
    server: HostId,
    client: HostId,
}

fn host(addr: IpAddr, nodes: Vec<Box<dyn AnyNode<Working>>>) -> Host<Working> {
    Host { addrs: vec![addr], ports: vec![STREAM_PORT], nodes, beside: vec![], plain: false }
}

fn world(shards: u16, processors: Option<Processors>, due: impl IntoIterator<Item = (u64, u16)>) -> World {
    let wire = Wire { latency: Duration::ZERO, ..Wire::default() };
    let mut sim = Simulation::new(1, Options { default_wire: wire, ..Options::default() });
    let due = due.into_iter().map(|(at, port)| (Instant::from_nanos(at), port)).collect();
    let client = sim.add_host(host(CLIENT, vec![Box::new(Client { due, answers: vec![] })]));
    sim.open_ports(client, 0, &[PORT]);
    let nodes = (0..shards).map(|_| Box::new(Server::default()) as Box<dyn AnyNode<Working>>);
    let server = sim.add_host(host(SERVER, nodes.collect()));
    for shard in 0..shards {
        sim.open_ports(server, shard.into(), &[PORT + shard]);
    }
    if let Some(processors) = processors {
        sim.set_processors(server, processors);
    }
    World { sim, server, client }
}

impl World {
    /// When answers came, in nanoseconds.
    fn answers(&mut self) -> Vec<u64> {
        let answers = self.sim.with(self.client, 0, |client: &mut Client, _| client.answers.clone());
        answers.into_iter().map(Instant::as_nanos).collect()
    }

    /// When a shard was told of datagrams, and of how many.
    fn told(&mut self, shard: usize) -> Vec<(u64, usize)> {
        let told = self.sim.with(self.server, shard, |server: &mut Server, _| server.told.clone());
        told.into_iter().map(|(at, count)| (at.as_nanos(), count)).collect()
    }

    fn spent_ns(&self) -> u64 {
        self.sim.processor_time(self.server).unwrap().as_nanos() as u64
    }
}

fn processors(cores: usize, costs: Costs) -> Option<Processors> {
    Some(Processors { cores, costs, turns_apart: Duration::ZERO })
}

/// A datagram and its answer cost so much together.
fn by_datagram(both_us: u64) -> Costs {
    Costs { datagram_ns: both_us * MICROSECOND / 2, ..Costs::default() }
}

/// Datagrams from some moment on, each so long after the other.
fn every(us: u64, count: u64, port: u16) -> impl Iterator<Item = (u64, u16)> {
    (0..count).map(move |number| (MILLISECOND + number * us * MICROSECOND, port))
}

#[test]
fn a_node_with_time_to_spare_answers_after_what_the_answer_costs() {
    let mut world = world(1, processors(1, by_datagram(200)), every(300, 100, PORT));
    world.sim.run_for(Duration::from_secs(1));
    let expected: Vec<u64> = every(300, 100, PORT).map(|(at, _)| at + 200 * MICROSECOND).collect();
    assert_eq!(world.answers(), expected);
    assert_eq!(world.spent_ns(), 100 * 200 * MICROSECOND);
}

#[test]
fn a_saturated_node_answers_as_often_as_an_answer_fits_into_time() {
    // It is asked 10,000 times a second and answers 5,000 times; its queue has room for what it is behind by.
    let mut world = world(1, processors(1, by_datagram(200)), every(100, 400, PORT));
    world.sim.run_for(Duration::from_secs(1));
    let answers = world.answers();
    assert_eq!(answers.len(), 400);
    // It is never idle, so the last answer comes when all the work is done; none comes before it is paid for.
    assert_eq!(answers.last().copied(), Some(MILLISECOND + 400 * 200 * MICROSECOND));
    for (number, at) in (1..).zip(&answers) {
        assert!(*at >= MILLISECOND + number * 200 * MICROSECOND, "answer {number} at {at}");
    }
    assert_eq!(world.sim.datagrams_overrun(world.server), 0);
    assert_eq!(world.spent_ns(), 400 * 200 * MICROSECOND);
}

#[test]
fn what_comes_meanwhile_goes_in_together_at_the_time_at_which_the_node_runs() {
    let burst = (0..10).map(|_| (MILLISECOND + 50 * MICROSECOND, PORT));
    let mut world = world(1, processors(1, by_datagram(200)), every(1, 1, PORT).chain(burst));
    world.sim.run_for(Duration::from_secs(1));
    let second = MILLISECOND + 200 * MICROSECOND;
    assert_eq!(world.told(0), [(MILLISECOND, 1), (second, 10)]);
    // Ten are taken in, and then ten answers leave one after the other.
    let behind = (1..=10).map(|number| second + (1_000 + 100 * number) * MICROSECOND);
    assert_eq!(world.answers(), [second].into_iter().chain(behind).collect::<Vec<_>>());
}

#[test]
fn four_rounds_are_a_turn_and_a_pause_ends_it() {
    let costs = Costs { turn_ns: 40 * MICROSECOND, ..by_datagram(200) };
    // Eight in a row are two turns; with a pause after each there are eight.
    for (us, turns) in [(150, 2), (300, 8)] {
        let mut world = world(1, processors(1, costs.clone()), every(us, 8, PORT));
        world.sim.run_for(Duration::from_millis(900));
        let rounds = world.told(0).len() as u64;
        let wanted = if us == 300 { turns } else { rounds.div_ceil(4) };
        // The wall clock woke it up once before.
        assert_eq!(world.spent_ns(), 8 * 200 * MICROSECOND + (wanted + 1) * 40 * MICROSECOND, "{us}");
    }
}

#[test]
fn a_node_that_moved_little_rests_as_in_production() {
    let costs = by_datagram(2);
    let turns_apart = Duration::from_millis(1);
    let processors = Processors { cores: 1, costs, turns_apart };
    let later = every(100, 29, PORT).map(|(at, port)| (at + 50 * MICROSECOND, port));
    let mut world = world(1, Some(processors), every(1, 1, PORT).chain(later));
    world.sim.run_for(Duration::from_secs(1));
    // At the end of a rest the node has what came in it.
    let told = world.told(0);
    let expected = [(MILLISECOND, 1), (2 * MILLISECOND, 10), (3 * MILLISECOND, 10), (4 * MILLISECOND, 9)];
    assert_eq!(told, expected);
}

#[test]
fn two_shards_share_one_core_and_not_two() {
    let last = |cores| {
        let both = every(1, 1, PORT).chain(every(1, 1, PORT + 1));
        let both = both.flat_map(|due| std::iter::repeat_n(due, 50));
        let mut world = world(2, processors(cores, by_datagram(200)), both);
        world.sim.run_for(Duration::from_secs(1));
        assert_eq!(world.spent_ns(), 100 * 200 * MICROSECOND);
        assert_eq!(world.answers().len(), 100);
        world.answers().last().copied().unwrap() - MILLISECOND
    };
    assert_eq!(last(1), 100 * 200 * MICROSECOND);
    assert_eq!(last(2), 50 * 200 * MICROSECOND);
    assert_eq!(last(3), 50 * 200 * MICROSECOND);
}

#[test]
fn jobs_take_cores_by_their_kind() {
    let ended = |cores, job_of| {
        let costs = Costs { jobs_ns: BTreeMap::from([("sum".to_owned(), MILLISECOND)]), ..by_datagram(200) };
        // Where a job has the only core, the datagram waits for it.
        let mut world = world(1, processors(cores, costs), every(1, 1, PORT));
        world.sim.with(world.server, 0, |server: &mut Server, _| server.job_of = job_of);
        world.sim.run_for(Duration::from_nanos(MILLISECOND / 2));
        (0..4).for_each(|_| world.sim.control(world.server, 0, ()));
        world.sim.run_for(Duration::from_secs(1));
        let jobs: Vec<u64> = world
            .sim
            .events()
            .iter()
            .map(|(at, ..)| (at.as_nanos() - MILLISECOND / 2) / MICROSECOND)
            .collect();
        (jobs, world.answers()[0] / MICROSECOND, world.spent_ns() / MICROSECOND)
    };
    // The node stands in the same line, behind all jobs, and then hears of them together.
    assert_eq!(ended(1, 7), (vec![4_100; 4], 4_700, 4_200));
    assert_eq!(ended(5, 7), (vec![1_000; 4], 1_200, 4_200));
    assert_eq!(ended(1, 0), (vec![0; 4], 1_200, 200));
}

#[test]
fn a_stream_is_read_no_faster_than_its_bytes_cost() {
    const BYTES: usize = 2_000_000;
    let costs = Costs { stream_byte_ps: 1_000_000, ..Costs::default() };
    let mut world = world(1, processors(1, costs), []);
    let addr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 3));
    world.sim.add_host(host(addr, vec![Box::new(Writer::new(BYTES))]));
    world.sim.run_for(Duration::from_secs(1));
    let read = |world: &mut World| world.sim.with(world.server, 0, |server: &mut Server, _| server.read);
    let half = read(&mut world).0;
    // A round is at most its bytes and one read ahead of what it has been charged for.
    assert!((1_000_000..1_330_000).contains(&half), "{half} bytes in a second");
    world.sim.run_for(Duration::from_secs(2));
    let (bytes, end) = read(&mut world);
    let end = end.expect("all is read").as_nanos();
    assert_eq!(bytes, BYTES);
    assert!((2_000 * MILLISECOND..2_010 * MILLISECOND).contains(&end), "{end}");
    assert_eq!(world.spent_ns(), 2_000 * MILLISECOND);
}

#[test]
fn a_ports_buffer_has_an_end() {
    let burst = (0..400).map(|_| (MILLISECOND + 50 * MICROSECOND, PORT));
    let mut world = world(1, processors(1, by_datagram(200)), every(1, 1, PORT).chain(burst));
    world.sim.run_for(Duration::from_secs(1));
    let lost = world.sim.datagrams_overrun(world.server);
    assert_eq!(world.answers().len() as u64, 401 - lost);
    // There is room for 262 of these, and 64 come together.
    assert_eq!(lost, 400 - 4 * 64);
}

#[test]
fn who_is_killed_at_work_does_no_more_and_may_start_anew() {
    let mut world = world(1, processors(1, by_datagram(200)), every(100, 400, PORT));
    world.sim.run_for(Duration::from_nanos(11 * MILLISECOND));
    world.sim.kill(world.server);
    let before = world.answers().len();
    assert!((20..50).contains(&before), "{before}");
    world.sim.run_for(Duration::from_millis(10));
    assert_eq!(world.answers().len(), before);
    world.sim.start_anew(world.server, vec![Box::new(Server::default())], vec![]);
    world.sim.run_for(Duration::from_secs(1));
    // It has what comes from then on, and nothing of before.
    assert_eq!(world.answers().len(), before + 199);
}

#[test]
fn with_costs_a_run_is_the_same_again_and_without_them_it_is_another() {
    let hash = |processors| -> TraceHash {
        let mut world = world(2, processors, every(100, 300, PORT).chain(every(70, 300, PORT + 1)));
        world.sim.run_for(Duration::from_secs(1));
        world.sim.trace_hash()
    };
    let costs =
        Costs { turn_ns: 7_777, datagram_call_ns: 3_333, datagram_byte_ps: 1_234, ..by_datagram(100) };
    let (one, again) = (hash(processors(1, costs.clone())), hash(processors(1, costs.clone())));
    assert_eq!(one, again);
    assert_ne!(one, hash(processors(2, costs)));
    assert_ne!(one, hash(None));
}
