//! The driver itself: connections, order, flow control and repeatability, without any relay.

use core::net::{IpAddr, SocketAddr};
use heddle_netem::pcapng::Place;
use heddle_netem::{DirectionOptions, HostOptions, InterfaceOptions, Rate, TopologyOptions};
use heddle_seam::language::Plain;
use heddle_seam::node::{Input, Node, Output, SocketError, SocketId};
use heddle_seam::time::{Duration, Instant};
use heddle_sim::{
    AnyNode, Host, HostId, Internet, Options, Service, Simulation, Step, TraceHash, Wire, WireWatch, pattern,
};
use heddle_utcp::wire::parse;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// One connection that sends, reads and closes as it is told.
struct Client {
    to_send: VecDeque<u8>,
    received: Vec<u8>,
    reading: bool,
    writable: usize,
    open: bool,
    failed: Option<SocketError>,
    eof_at: Option<Instant>,
    connected_at: Option<Instant>,
    /// To be sent a FIN after everything.
    half_close: bool,
    outputs: VecDeque<Output<Plain>>,
    buf: Vec<u8>,
}

const SOCKET: SocketId = SocketId::dialled(0);

impl Client {
    fn new(to: SocketAddr, to_send: Vec<u8>) -> Self {
        Client {
            to_send: to_send.into(),
            received: Vec::new(),
            reading: true,
            writable: 0,
            open: false,
            failed: None,
            eof_at: None,
            connected_at: None,
            half_close: false,
            outputs: VecDeque::from([Output::Connect { socket: SOCKET, to }]),
            buf: vec![0; 5000],
        }
    }

    fn set_reading(&mut self, reading: bool) {
        self.reading = reading;
        self.outputs.push_back(Output::Interest { socket: SOCKET, read: reading, write: true });
    }
}

impl Node<Plain> for Client {
    fn recv_buf(&mut self, _: SocketId) -> &mut [u8] {
        &mut self.buf
    }

    fn handle_input(&mut self, now: Instant, input: Input<Plain>) {
        match input {
            Input::Connected { .. } => {
                self.open = true;
                self.connected_at = Some(now);
                self.set_reading(self.reading);
            }
            Input::Read { len, .. } => self.received.extend_from_slice(&self.buf[..len]),
            Input::Writable { bytes, .. } => self.writable = bytes,
            Input::Eof { .. } => self.eof_at = Some(now),
            Input::Failed { error, .. } => {
                self.failed = Some(error);
                self.open = false;
            }
            _ => {}
        }
    }

    fn poll_output(&mut self, _: Instant, buf: &mut Vec<u8>) -> Output<Plain> {
        if let Some(output) = self.outputs.pop_front() {
            return output;
        }
        let len = self.to_send.len().min(self.writable);
        if self.open && len > 0 {
            buf.extend(self.to_send.drain(..len));
            self.writable -= len;
            if self.half_close && self.to_send.is_empty() {
                self.outputs.push_back(Output::ShutdownWrite { socket: SOCKET });
            }
            return Output::Send { socket: SOCKET };
        }
        Output::Timeout(None)
    }
}

const SERVER: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 1));
const CLIENT: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(198, 51, 100, 1));

fn world(seed: u64, wire: Wire, port: u16, to_send: Vec<u8>) -> (Simulation<Plain>, HostId, HostId) {
    world_with(seed, Options { default_wire: wire, ..Options::default() }, port, to_send)
}

fn world_with(
    seed: u64,
    options: Options,
    port: u16,
    to_send: Vec<u8>,
) -> (Simulation<Plain>, HostId, HostId) {
    let mut sim = Simulation::new(seed, options);
    let services = [
        (7, Service::Echo),
        (19, Service::Source),
        (9, Service::Digest),
        (1, Service::Stall),
        (2, Service::Endless),
        (3, Service::Mute),
        (4, Service::Cut),
        (5, Service::Reset),
    ];
    let internet = Internet::new(&services);
    let ports = internet.ports();
    let server = sim.add_host(Host {
        addrs: vec![SERVER],
        ports,
        nodes: vec![Box::new(internet)],
        beside: vec![],
        plain: true,
    });
    let client = Client::new((SERVER, port).into(), to_send);
    let client = sim.add_host(Host {
        addrs: vec![CLIENT],
        ports: vec![],
        nodes: vec![Box::new(client)],
        beside: vec![],
        plain: true,
    });
    (sim, server, client)
}

fn client<R>(sim: &mut Simulation<Plain>, id: HostId, speak: impl FnOnce(&mut Client) -> R) -> R {
    sim.with(id, 0, |client: &mut Client, _| speak(client))
}

fn download(seed: u64, wire: Wire, len: u64) -> (Duration, TraceHash) {
    download_with(seed, Options { default_wire: wire, ..Options::default() }, len)
}

fn download_with(seed: u64, options: Options, len: u64) -> (Duration, TraceHash) {
    let (mut sim, _, id) = world_with(seed, options, 19, len.to_be_bytes().to_vec());
    let done = sim.run_until(Duration::from_secs(600), |sim| client(sim, id, |c| c.eof_at.is_some()));
    assert!(done, "the download ends");
    client(&mut sim, id, |c| {
        assert_eq!(c.received.len() as u64, len);
        assert!(c.received.iter().enumerate().all(|(offset, byte)| *byte == pattern(offset as u64)));
    });
    (sim.now().since(Instant::ZERO), sim.trace_hash())
}

#[test]
fn a_connection_takes_a_round_trip_and_a_download_the_rate() {
    let wire = Wire { rate_bytes_per_s: Some(1_000_000), ..Wire::default() };
    let (mut sim, _, id) = world(1, wire, 7, vec![]);
    sim.run_for(Duration::from_secs(1));
    let connected_at = client(&mut sim, id, |c| c.connected_at);
    // Both SYNs have headers of 60 bytes, and Ethernet's 38, and a microsecond for each.
    let wires = Duration::from_millis(20) + 2 * Duration::from_micros(60 + 38);
    assert!(
        connected_at.is_some_and(|at| at.since(Instant::ZERO).abs_diff(wires) < Duration::from_micros(20))
    );

    // 1,000,000 bytes in 691 segments with 90 bytes of headers each, and two round trips; slow start keeps the rate.
    let (took, _) = download(1, wire, 1_000_000);
    assert!((1.10..1.15).contains(&took.as_secs_f64()), "{took:?}");
}

#[test]
fn one_seed_makes_one_trace() {
    let wire = Wire { loss_ppm: 20_000, jitter: Duration::from_millis(3), ..Wire::default() };
    let (took, hash) = download(1, wire, 300_000);
    assert_eq!(download(1, wire, 300_000), (took, hash));
    assert_ne!(download(2, wire, 300_000).1, hash);
    let (undisturbed, _) = download(1, Wire::default(), 300_000);
    assert!(took > undisturbed, "losses cost time: {took:?}, {undisturbed:?}");
}

#[test]
fn a_window_bounds_what_is_under_way() {
    let options = Options { receive_buffer_max_bytes: 20_000, ..Options::default() };
    // A window each 20 ms, of which a reader offers what it has read in steps.
    let (took, _) = download_with(1, options, 1_000_000);
    assert!((0.98..1.5).contains(&took.as_secs_f64()), "{took:?}");
}

#[test]
fn who_does_not_read_holds_the_sender_back() {
    let (mut sim, _, id) = world(1, Wire::default(), 1, vec![5; 1_000_000]);
    sim.run_for(Duration::from_secs(60));
    let left = client(&mut sim, id, |c| c.to_send.len());
    // The reader's buffer does not grow while nobody reads; the sender's kernel and socket hold a little more.
    assert!((1_000_000 - 200_000..1_000_000 - 64_000).contains(&left), "{left}");
}

#[test]
fn an_echo_comes_back_and_a_half_closed_stream_ends() {
    let sent: Vec<u8> = (0..200_000).map(pattern).collect();
    let (mut sim, server, id) = world(1, Wire::default(), 7, sent.clone());
    client(&mut sim, id, |c| c.half_close = true);
    sim.run_for(Duration::from_secs(10));
    let received = client(&mut sim, id, |c| std::mem::take(&mut c.received));
    assert!(received == sent);
    assert!(client(&mut sim, id, |c| c.eof_at.is_some()));
    assert_eq!(sim.with(server, 0, |server: &mut Internet, _| server.visitors()), 0);
}

#[test]
fn servers_do_no_good_in_ways_of_their_own() {
    let asked = |port: u16| {
        let wire = Wire { rate_bytes_per_s: Some(1_000_000), ..Wire::default() };
        let (mut sim, _, id) = world(1, wire, port, 100_000u64.to_be_bytes().to_vec());
        sim.run_for(Duration::from_secs(2));
        let received = client(&mut sim, id, |c| std::mem::take(&mut c.received));
        assert!(received.iter().enumerate().all(|(offset, byte)| *byte == pattern(offset as u64)), "{port}");
        (received.len(), client(&mut sim, id, |c| (c.eof_at.is_some(), c.failed)))
    };
    let (endless, how) = asked(2);
    assert!(endless > 1_000_000 && how == (false, None), "{endless} bytes, {how:?}");
    assert_eq!(asked(3), (0, (false, None)));
    assert_eq!(asked(4), (50_000, (true, None)));
    let (reset, how) = asked(5);
    assert!(reset <= 50_000 && how == (false, Some(SocketError::Reset)), "{reset} bytes, {how:?}");
}

#[test]
fn connections_are_refused_reset_and_lead_nowhere() {
    let (mut sim, _, id) = world(1, Wire::default(), 80, vec![]);
    sim.run_for(Duration::from_secs(1));
    assert_eq!(client(&mut sim, id, |c| c.failed), Some(SocketError::Refused));

    let (mut sim, server, id) = world(1, Wire::default(), 7, vec![1]);
    sim.run_for(Duration::from_secs(1));
    sim.kill(server);
    sim.run_for(Duration::from_secs(1));
    assert_eq!(client(&mut sim, id, |c| c.failed), Some(SocketError::Reset));

    let mut sim = Simulation::new(1, Options::default());
    let nowhere = Client::new(([203, 0, 113, 1], 80).into(), vec![]);
    let nodes: Vec<Box<dyn heddle_sim::AnyNode<Plain>>> = vec![Box::new(nowhere)];
    let id = sim.add_host(Host { addrs: vec![CLIENT], ports: vec![], nodes, beside: vec![], plain: true });
    sim.run_for(Duration::from_secs(1));
    assert_eq!(client(&mut sim, id, |c| c.failed), Some(SocketError::HostUnreachable));
}

#[test]
fn a_reader_that_pauses_gets_everything_later() {
    let (mut sim, _, id) = world(1, Wire::default(), 19, 1_000_000u64.to_be_bytes().to_vec());
    client(&mut sim, id, |c| c.reading = false);
    sim.run_for(Duration::from_secs(10));
    assert_eq!(client(&mut sim, id, |c| c.received.len()), 0);
    client(&mut sim, id, |c| c.set_reading(true));
    sim.run_for(Duration::from_secs(10));
    assert_eq!(client(&mut sim, id, |c| c.received.len()), 1_000_000);
    assert!(client(&mut sim, id, |c| c.eof_at.is_some()));
}

#[test]
fn a_scenario_is_a_list_of_steps() {
    let (mut sim, server, id) = world(1, Wire::default(), 19, 5_000_000u64.to_be_bytes().to_vec());
    let received = move |sim: &mut Simulation<Plain>| client(sim, id, |c| c.received.len());
    let slow = Wire { rate_bytes_per_s: Some(10_000), ..Wire::default() };
    sim.play([
        Step::Until {
            what: "the first megabyte",
            time_max: Duration::from_secs(5),
            holds: Box::new(move |sim| received(sim) >= 1_000_000),
        },
        Step::Conditions { between: (server, id), wire: Box::new(slow.into()) },
        Step::Run(Duration::from_secs(60)),
        Step::Check(Box::new(move |sim| assert!(received(sim) < 2_000_000))),
        Step::Kill(server),
        // The reset waits behind a queue of 1000 packets.
        Step::Run(Duration::from_secs(200)),
        Step::Check(Box::new(move |sim| {
            assert_eq!(client(sim, id, |c| c.failed), Some(SocketError::Reset));
        })),
    ]);
}

/// A server and two clients in one network, whose server's uplink has a rate. It listens beside its first node.
fn networked(seed: u64, len: u64) -> (Simulation<Plain>, HostId, [HostId; 2]) {
    const PORT: u16 = 19;
    let link = InterfaceOptions { rate: Rate::BitsPerS(8_000_000), ..InterfaceOptions::default() };
    let host = |name: &str| HostOptions { name: name.to_owned(), ..HostOptions::default() };
    let options = TopologyOptions {
        hosts: vec![HostOptions { up: link, ..host("server") }, host("one"), host("other")],
        default_wire: Some(DirectionOptions { delay_ns: 10_000_000, ..DirectionOptions::default() }),
        ..TopologyOptions::default()
    };
    let mut sim = Simulation::new(seed, Options::default());
    sim.set_network(&options, &heddle_netem::Seed::from_number(seed)).expect("the options are good");
    let services =
        |of: &[(u16, Service)]| -> Vec<Box<dyn AnyNode<Plain>>> { vec![Box::new(Internet::new(of))] };
    let (nodes, beside) = (services(&[]), services(&[(PORT, Service::Source)]));
    let server = sim.add_host(Host { addrs: vec![SERVER], ports: vec![], nodes, beside, plain: true });
    sim.listen(server, 1, PORT);
    let clients = [1, 2].map(|last| {
        let client = Client::new((SERVER, PORT).into(), len.to_be_bytes().to_vec());
        let addrs = vec![IpAddr::from([198, 51, 100, last])];
        let nodes: Vec<Box<dyn AnyNode<Plain>>> = vec![Box::new(client)];
        sim.add_host(Host { addrs, ports: vec![], nodes, beside: vec![], plain: false })
    });
    (sim, server, clients)
}

/// How long both downloads of half a million bytes took, what went to each client, and the trace.
fn both_downloads(seed: u64) -> (f64, [u64; 2], TraceHash) {
    let (mut sim, server, clients) = networked(seed, 500_000);
    let done = sim.run_until(Duration::from_secs(60), |sim| {
        clients.iter().all(|id| client(sim, *id, |client| client.eof_at.is_some()))
    });
    assert!(done);
    let took = sim.now().since(Instant::ZERO).as_secs_f64();
    // Acknowledgements of the end are under way still.
    sim.run_for(Duration::from_secs(1));
    assert_eq!(sim.network_totals().inside, 0);
    (took, clients.map(|id| sim.network_stats(server, id).bytes_out), sim.trace_hash())
}

#[test]
fn the_wires_of_a_host_share_its_link_in_a_network() {
    let (took, [to_one, to_other], hash) = both_downloads(1);
    // A million bytes with their headers at a million a second, and round trips.
    assert!((1.03..1.15).contains(&took), "{took}");
    assert!(to_one.abs_diff(to_other) < 50_000 && to_one > 500_000, "{to_one} {to_other}");
    assert_eq!(both_downloads(1).2, hash);
}

#[test]
fn a_wire_of_a_network_that_is_down_carries_nothing() {
    let (mut sim, server, [one, other]) = networked(1, 500_000);
    sim.run_for(Duration::from_millis(100));
    let down = heddle_netem::Step { down: Some(true), ..heddle_netem::Step::default() };
    sim.change_network(server, one, &down).expect("there is a wire");
    sim.run_for(Duration::from_secs(5));
    assert!(client(&mut sim, one, |client| client.eof_at.is_none()));
    assert!(client(&mut sim, other, |client| client.eof_at.is_some()));
}

/// Remembers between whom packets were forged.
struct Forgeries(Rc<RefCell<Vec<(HostId, HostId)>>>);

impl WireWatch for Forgeries {
    fn wants(&self, _: HostId, _: HostId) -> bool {
        true
    }

    fn on_packet(&mut self, _: Instant, from: HostId, to: HostId, place: Place, packet: &[u8]) {
        let segment = parse(packet).expect("packets are as kernels send them");
        if place == Place::Forged {
            assert!(segment.tcp.flags.rst && segment.payload.is_empty());
            self.0.borrow_mut().push((from, to));
        }
    }
}

#[test]
fn who_watches_tells_forged_resets_from_others() {
    let forgeries = Rc::new(RefCell::new(Vec::new()));
    let (mut sim, server, id) = world(1, Wire::default(), 1, vec![0; 1_000_000]);
    sim.watch_wires(Box::new(Forgeries(forgeries.clone())));
    sim.run_for(Duration::from_secs(1));
    assert_eq!(forgeries.take(), []);
    sim.reset_streams(server, id);
    sim.run_for(Duration::from_secs(1));
    assert_eq!(forgeries.take(), [(id, server), (server, id)]);
    assert_eq!(client(&mut sim, id, |c| c.failed), Some(SocketError::Reset));
}
