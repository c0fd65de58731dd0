//! Stacks of nodes' own: connections on them reach whoever the node hands their packets to, and nobody else.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use heddle_seam::datagrams::Transmit;
use heddle_seam::language::Plain;
use heddle_seam::node::{Input, Node, Output, PortId, SocketError, SocketId, StackId, StackOptions};
use heddle_seam::time::{Duration, Instant};
use heddle_sim::{Host, HostId, Options, Simulation, TraceHash, Wire, pattern};
use std::collections::VecDeque;

const STACK: StackId = StackId(3);
const PORT: u16 = 7;
const UDP_PORT: u16 = 4500;
/// On its stack the dialler is called so, and the other one of what it is told.
const INNER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
const OUTER: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const PACKET_BYTES_MAX: u16 = 1300;
const BYTES: u64 = 300_000;

/// A tunnel without any secrets: a packet is a datagram. The dialler sends a pattern on a connection inside and the
/// listener sends it back.
struct End {
    peer: SocketAddr,
    socket: Option<SocketId>,
    credit: usize,
    to_send: VecDeque<u8>,
    received: Vec<u8>,
    failed: Option<SocketError>,
    lengths: Vec<usize>,
    outputs: VecDeque<(Output<Plain>, Vec<u8>)>,
    buf: Vec<u8>,
}

impl End {
    fn new(place: usize) -> Self {
        let mut end = End {
            peer: SocketAddr::new(IpAddr::V4(OUTER[1 - place]), UDP_PORT),
            socket: None,
            credit: 0,
            to_send: VecDeque::new(),
            received: Vec::new(),
            failed: None,
            lengths: Vec::new(),
            outputs: VecDeque::new(),
            buf: vec![0; 4_000],
        };
        if place == 0 {
            let socket = SocketId::dialled(0).on(STACK);
            end.want(Output::Connect { socket, to: (INNER[1], PORT).into() });
            end.to_send = (0..BYTES).map(pattern).collect();
        }
        end
    }

    fn want(&mut self, output: Output<Plain>) {
        self.outputs.push_back((output, Vec::new()));
    }

    fn begin(&mut self, socket: SocketId) {
        assert_eq!(socket.stack(), Some(STACK));
        self.socket = Some(socket);
        self.want(Output::Interest { socket, read: true, write: true });
    }
}

impl Node<Plain> for End {
    fn recv_buf(&mut self, socket: SocketId) -> &mut [u8] {
        assert_eq!(Some(socket), self.socket);
        &mut self.buf
    }

    fn handle_input(&mut self, _: Instant, input: Input<Plain>) {
        match input {
            Input::Packets { stack, packets } => {
                assert_eq!(stack, STACK);
                self.lengths.extend(packets.data.chunks(packets.stride).map(<[u8]>::len));
                let transmit = Transmit { to: self.peer, from: None, ecn: 0, stride: packets.stride };
                self.outputs
                    .push_back((Output::Datagrams { port: PortId(0), transmit }, packets.data.to_vec()));
            }
            Input::Datagrams { datagrams, .. } => {
                let output = Output::Packets { stack: STACK, stride: datagrams.stride };
                self.outputs.push_back((output, datagrams.data.to_vec()));
            }
            Input::Accepted { socket, local, peer } => {
                assert_eq!((local, peer.ip()), ((INNER[1], PORT).into(), IpAddr::V4(INNER[0])));
                self.begin(socket);
            }
            Input::Connected { socket, local } => {
                assert_eq!(local.ip(), IpAddr::V4(INNER[0]));
                self.begin(socket);
            }
            Input::Read { len, .. } => {
                self.received.extend_from_slice(&self.buf[..len]);
                if self.peer.ip() == IpAddr::V4(OUTER[0]) {
                    self.to_send.extend(&self.buf[..len]);
                }
            }
            Input::Writable { bytes, .. } => self.credit = bytes,
            Input::Failed { error, .. } => self.failed = Some(error),
            _ => {}
        }
    }

    fn poll_output(&mut self, _: Instant, buf: &mut Vec<u8>) -> Output<Plain> {
        if let Some((output, bytes)) = self.outputs.pop_front() {
            buf.extend_from_slice(&bytes);
            return output;
        }
        let len = self.to_send.len().min(self.credit);
        match self.socket.filter(|_| len > 0 && self.failed.is_none()) {
            Some(socket) => {
                buf.extend(self.to_send.drain(..len));
                self.credit -= len;
                Output::Send { socket }
            }
            None => Output::Timeout(None),
        }
    }
}

fn world(seed: u64) -> (Simulation<Plain>, [HostId; 2]) {
    let wire = Wire { latency: Duration::from_millis(20), ..Wire::default() };
    let mut sim = Simulation::new(seed, Options { default_wire: wire, ..Options::default() });
    let hosts = [0, 1].map(|place| {
        let host = sim.add_host(Host {
            addrs: vec![IpAddr::V4(OUTER[place])],
            ports: vec![],
            nodes: vec![Box::new(End::new(place))],
            beside: vec![],
            plain: false,
        });
        sim.open_ports(host, 0, &[UDP_PORT]);
        let addr = INNER[place];
        sim.open_stack(
            host,
            0,
            STACK,
            StackOptions { addr, ports: &[PORT], packet_bytes_max: PACKET_BYTES_MAX },
        );
        host
    });
    (sim, hosts)
}

fn received(sim: &mut Simulation<Plain>, host: HostId) -> usize {
    sim.with(host, 0, |end: &mut End, _| end.received.len())
}

fn run(seed: u64, loss_ppm: u32) -> TraceHash {
    let (mut sim, [dialler, listener]) = world(seed);
    sim.lose_datagrams(dialler, listener, loss_ppm);
    let whole = |sim: &mut Simulation<Plain>| received(sim, dialler) == BYTES as usize;
    assert!(sim.run_until(Duration::from_secs(60), whole));
    sim.with(dialler, 0, |end: &mut End, _| {
        assert!(end.received.iter().copied().eq((0..BYTES).map(pattern)));
        let longest = end.lengths.iter().max();
        assert_eq!(longest, Some(&usize::from(PACKET_BYTES_MAX)), "segments fit the stack's device");
    });
    sim.trace_hash()
}

#[test]
fn connections_inside_bear_what_the_path_does_and_twice_the_same() {
    assert_eq!(run(1, 20_000), run(1, 20_000));
    assert_ne!(run(1, 20_000), run(2, 20_000));
}

#[test]
fn a_stack_goes_and_comes_with_its_process() {
    let (mut sim, [dialler, listener]) = world(1);
    assert!(sim.run_until(Duration::from_secs(60), |sim| received(sim, listener) > 10_000));
    sim.kill(listener);
    sim.run_for(Duration::from_secs(1));
    assert_eq!(sim.with(dialler, 0, |end: &mut End, _| end.failed), None, "nobody says anything");
    sim.start_anew(listener, vec![Box::new(End::new(1))], vec![]);
    sim.run_for(Duration::from_secs(60));
    let failed = sim.with(dialler, 0, |end: &mut End, _| end.failed);
    assert_eq!(failed, Some(SocketError::Reset), "its new stack knows nothing of the connection");
}
