//! Two endpoints of tcp-esp on hosts of the simulator: what they make of a path, of each other, and of whoever is
//! between them.

use bytes::BytesMut;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use heddle_esp::Lifetime;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{BODY_LEN, Body, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{
    ConnId, ConnectionError, ConnectionEvent, ConnectionOptions, Endpoint, FlowState, PairSecrets,
};
use heddle_seam::datagrams::Datagrams;
use heddle_seam::language::Plain;
use heddle_seam::node::{Input, Node, Output, PortId, SocketId, StackId};
use heddle_seam::time::{Duration, Instant};
use heddle_sim::{Host, HostId, Options, Simulation, Wire};
use heddle_transport::registry;
use heddle_transport::tcp_esp::{EspEndpoint, EspOptions};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use zeroize::Zeroizing;

const UDP_PORT: u16 = 4430;
const STACK: StackId = StackId(0);
const ADDRS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2))];
const MINUTE: Duration = Duration::from_secs(60);

/// A relay that does what the test says.
struct End {
    endpoint: EspEndpoint,
    conn: Option<ConnId>,
    events: Vec<ConnectionEvent>,
    came: BTreeMap<CircId, Vec<(Command, u32)>>,
    to_send: BTreeMap<CircId, VecDeque<u32>>,
    blocked: BTreeSet<CircId>,
    /// Whether somebody on the way repeats each datagram and sends copies with flipped bits.
    is_attacked: bool,
    datagrams: usize,
}

impl End {
    fn new(options: EspOptions, key: u8) -> Self {
        let endpoint = EspEndpoint::new(options, STACK, &Zeroizing::new([key; 32])).expect("good options");
        End {
            endpoint,
            conn: None,
            events: Vec::new(),
            came: BTreeMap::new(),
            to_send: BTreeMap::new(),
            blocked: BTreeSet::new(),
            is_attacked: false,
            datagrams: 0,
        }
    }

    fn open(&mut self, now: Instant, role: Role, peer_key: [u8; 32], flows_max: u32) {
        let secrets = PairSecrets {
            token: [1; 20],
            dialler_proof: Zeroizing::new([2; 32]),
            listener_proof: Zeroizing::new([3; 32]),
        };
        let other = usize::from(role == Role::Initiator);
        let (local, peer) = (Some(ADDRS[1 - other]), SocketAddr::new(ADDRS[other], UDP_PORT));
        let options = ConnectionOptions { role, local, peer, peer_key, secrets, flows_max };
        self.conn = Some(self.endpoint.open(now, options));
    }

    fn is(&self, event: &ConnectionEvent) -> bool {
        self.events.contains(event)
    }

    fn send(&mut self, now: Instant, circ_id: CircId, command: Command, number: u32) -> FlowState {
        let mut body: Body = [0; BODY_LEN];
        body[..4].copy_from_slice(&number.to_be_bytes());
        self.endpoint.send(now, self.conn.expect("it was opened"), circ_id, command, &body)
    }

    fn destroy(&mut self, now: Instant, circ_id: CircId, reason: DestroyReason) {
        self.send(now, circ_id, Command::DESTROY, u32::from(reason.0) << 24);
    }

    /// Works off what there is, and sends what is to be sent as far as flows take it.
    fn work(&mut self, now: Instant) {
        loop {
            let mut is_done = true;
            while let Some((_, event)) = self.endpoint.poll_event(now) {
                if let ConnectionEvent::Writable(circ_id) = event {
                    self.blocked.remove(&circ_id);
                } else {
                    self.events.push(event);
                }
                is_done = false;
            }
            while let Some(cell) = self.endpoint.next_incoming(now) {
                let number = u32::from_be_bytes(*cell.body.first_chunk().expect("a body"));
                self.came.entry(cell.circ_id).or_default().push((cell.command, number));
                is_done = false;
            }
            let circuits: Vec<CircId> = self.to_send.keys().copied().collect();
            let is_ready = self.is(&ConnectionEvent::Ready);
            for circ_id in circuits.into_iter().filter(|_| is_ready) {
                while !self.blocked.contains(&circ_id)
                    && let Some(number) = self.to_send.get_mut(&circ_id).and_then(VecDeque::pop_front)
                {
                    let command = if number == 0 { Command::CREATE2 } else { Command::RELAY };
                    if self.send(now, circ_id, command, number) == FlowState::Blocked {
                        self.blocked.insert(circ_id);
                    }
                    is_done = false;
                }
            }
            if is_done {
                return;
            }
        }
    }
}

impl Node<Plain> for End {
    fn recv_buf(&mut self, socket: SocketId) -> &mut [u8] {
        self.endpoint.stack_recv_buf(socket)
    }

    fn handle_input(&mut self, now: Instant, input: Input<Plain>) {
        match input {
            Input::Timeout => self.endpoint.handle_timeout(now),
            Input::WallClock(_) => {}
            Input::Datagrams { datagrams, .. } => {
                let Datagrams { from, to, ecn, stride, .. } = datagrams;
                let copies = if self.is_attacked { 3 } else { 1 };
                self.datagrams += datagrams.data.len().div_ceil(stride);
                for copy in 0..copies {
                    let mut data = BytesMut::from(&datagrams.data[..]);
                    if copy != 1 && copies > 1 {
                        // Before and after the true one, with another bit of each.
                        data.chunks_mut(stride).for_each(|datagram| {
                            let at = 4 + (datagram.len() * 7 + copy) % (datagram.len() - 4);
                            datagram[at] ^= 1 << (copy + 1);
                        });
                    }
                    self.endpoint.handle_datagrams(now, Datagrams { from, to, ecn, stride, data });
                }
                if self.is_attacked {
                    self.endpoint.handle_datagrams(now, datagrams);
                }
            }
            input => self.endpoint.handle_stack(now, input),
        }
        self.work(now);
    }

    fn poll_output(&mut self, now: Instant, buf: &mut Vec<u8>) -> Output<Plain> {
        self.work(now);
        if let Some(output) = self.endpoint.poll_stack(now, buf) {
            return output;
        }
        match self.endpoint.poll_transmit(now, buf) {
            Some(transmit) => Output::Datagrams { port: PortId(0), transmit },
            None => Output::Timeout(self.endpoint.poll_timeout()),
        }
    }
}

/// Two relays, the dialler first, that are about to be joined.
struct World {
    sim: Simulation<Plain>,
    hosts: [HostId; 2],
}

impl World {
    fn new(options: EspOptions, flows_max: u32) -> Self {
        Self::with_key(options, flows_max, 1)
    }

    /// The same where the listener takes the dialler for somebody with another key.
    fn with_key(options: EspOptions, flows_max: u32, dialler_key: u8) -> Self {
        let wire = Wire { latency: Duration::from_millis(20), ..Wire::default() };
        let mut sim = Simulation::new(1, Options { default_wire: wire, ..Options::default() });
        let stack = registry::named("tcp-esp").and_then(|line| line.stack).expect("it wants one");
        let hosts = [0, 1].map(|place: usize| {
            let nodes: Vec<Box<dyn heddle_sim::AnyNode<Plain>>> =
                vec![Box::new(End::new(options, place as u8 + 1))];
            let addrs = vec![ADDRS[place]];
            let host = sim.add_host(Host { addrs, ports: vec![], nodes, beside: vec![], plain: false });
            sim.open_ports(host, 0, &[UDP_PORT]);
            sim.open_stack(host, 0, STACK, stack);
            host
        });
        let mut world = World { sim, hosts };
        let key_of = |key| End::new(options, key).endpoint.public_key();
        let (of_dialler, of_listener) = (key_of(dialler_key), key_of(2));
        world.at(1, |end, now| end.open(now, Role::Responder, of_dialler, flows_max));
        world.at(0, |end, now| end.open(now, Role::Initiator, of_listener, flows_max));
        world
    }

    fn open(options: EspOptions, flows_max: u32) -> Self {
        let mut world = World::new(options, flows_max);
        world.wait(|world| (0..2).all(|place| world.at(place, |end, _| end.is(&ConnectionEvent::Ready))));
        world
    }

    fn at<R>(&mut self, place: usize, speak: impl FnOnce(&mut End, Instant) -> R) -> R {
        self.sim.with(self.hosts[place], 0, speak)
    }

    fn wait(&mut self, seen: impl Fn(&mut World) -> bool) {
        let end = self.sim.now() + 10 * MINUTE;
        while !seen(self) {
            assert!(self.sim.now() < end, "it does not come");
            self.sim.run_for(Duration::from_millis(10));
        }
    }

    fn ended(&mut self, place: usize) -> Option<ConnectionError> {
        self.at(place, |end, _| {
            end.events.iter().find_map(|event| match event {
                ConnectionEvent::Ended(why) => Some(why.clone()),
                _ => None,
            })
        })
    }

    /// Flows that an end knows.
    fn flows(&mut self, place: usize) -> usize {
        self.at(place, |end, _| {
            let mut flows = 0;
            end.endpoint.backlogs(&mut |_| flows += 1);
            flows
        })
    }
}

fn circ_id(of: Role, number: u32) -> CircId {
    of.circ_id(number).expect("not zero")
}

/// Circuits of either side send so many cells each, the first of which opens it.
fn transfer(world: &mut World, circuits: u32, cells: u32) {
    for (place, role) in [(0, Role::Initiator), (1, Role::Responder)] {
        world.at(place, |end, _| {
            end.to_send =
                (1..=circuits).map(|number| (circ_id(role, number), (0..cells).collect())).collect();
        });
    }
    let came =
        |world: &mut World, place| world.at(place, |end, _| end.came.values().map(Vec::len).sum::<usize>());
    world.wait(|world| (0..2).all(|place| came(world, place) == (circuits * cells) as usize));
    for place in 0..2 {
        world.at(place, |end, _| {
            assert_eq!(end.came.len(), circuits as usize);
            for cells_of_it in end.came.values() {
                assert_eq!(cells_of_it[0].0, Command::CREATE2);
                assert!(cells_of_it.iter().map(|(_, number)| *number).eq(0..cells), "all, once, in order");
            }
        });
        assert_eq!(world.ended(place), None);
    }
}

#[test]
fn keys_change_under_load_and_loss_and_no_cell_is_missing() {
    let lifetime = Lifetime { packets_max: 1_000, ..Lifetime::default() };
    let mut world = World::open(EspOptions { lifetime, ..EspOptions::default() }, 100);
    let [a, b] = world.hosts;
    world.sim.lose_datagrams(a, b, 10_000);
    world.sim.tap_datagrams(a, b);
    transfer(&mut world, 8, 1_500);
    let tapped = world.sim.tap_datagrams(a, b);
    let spis: BTreeSet<_> =
        tapped.iter().map(|datagram| (datagram.from, datagram.data[..4].to_vec())).collect();
    let packets = tapped.len();
    // Of each three quarters serve, in each direction.
    assert!(packets > 8_000 && spis.len() >= packets / 1_000, "{} SPIs of {packets} packets", spis.len());
    let longest = tapped.iter().map(|datagram| datagram.data.len()).max();
    assert!(longest.is_some_and(|longest| (1_300..=1_350).contains(&longest)), "{longest:?}");
}

#[test]
fn replays_and_flipped_bits_end_nothing() {
    let mut world = World::new(EspOptions::default(), 100);
    (0..2).for_each(|place| world.at(place, |end, _| end.is_attacked = true));
    world.wait(|world| (0..2).all(|place| world.at(place, |end, _| end.is(&ConnectionEvent::Ready))));
    transfer(&mut world, 4, 200);
    for place in 0..2 {
        world.at(place, |end, _| {
            let refused = end.endpoint.refused_datagrams();
            assert_eq!(
                refused.strangers + refused.peers,
                3 * end.datagrams as u64,
                "two with flipped bits and a replay of each"
            );
        });
    }
}

#[test]
fn a_reset_says_why_and_leaves_nothing() {
    for (closer, other) in [(0, 1), (1, 0)] {
        let mut world = World::open(EspOptions::default(), 100);
        transfer(&mut world, 3, 20);
        assert_eq!((world.flows(0), world.flows(1)), (6, 6));
        // Both a flow that the closer opened and one that it did not.
        let theirs: Vec<CircId> = world.at(closer, |end, _| end.came.keys().copied().collect());
        let own = circ_id(if closer == 0 { Role::Initiator } else { Role::Responder }, 1);
        world.at(other, |end, _| end.came.clear());
        world.at(closer, |end, now| {
            end.destroy(now, theirs[0], DestroyReason(9));
            end.destroy(now, own, DestroyReason(7));
        });
        world.sim.run_for(Duration::from_secs(5));
        let reasons = world.at(other, |end, _| {
            let cells = end.came.values().flatten();
            cells.map(|(command, body)| (*command, body >> 24)).collect::<BTreeSet<_>>()
        });
        assert_eq!(reasons, BTreeSet::from([(Command::DESTROY, 7), (Command::DESTROY, 9)]));
        assert_eq!((world.flows(0), world.flows(1)), (4, 4));
    }
}

#[test]
fn a_reset_overtakes_cells_that_nobody_reads() {
    let mut world = World::open(EspOptions::default(), 100);
    let id = circ_id(Role::Initiator, 1);
    world.at(0, |end, _| end.to_send = BTreeMap::from([(id, (0..10_000).collect())]));
    world.wait(|world| world.at(1, |end, _| !end.came.is_empty()));
    let named = world.at(1, |end, _| *end.came.keys().next().expect("one came"));
    world.at(1, |end, _| end.endpoint.hold(end.conn.expect("open"), named, true));
    world.sim.run_for(Duration::from_secs(10));
    let held = world.at(1, |end, _| {
        assert!(end.came[&named].len() < 10_000, "the kernels' windows are full");
        assert!(end.endpoint.buffered_bytes() <= 64 * 1024, "{}", end.endpoint.buffered_bytes());
        end.came[&named].len()
    });
    world.at(0, |end, now| {
        end.to_send.clear();
        end.destroy(now, id, DestroyReason(3));
    });
    world.sim.run_for(Duration::from_secs(1));
    world.at(1, |end, _| {
        let cells = &end.came[&named];
        assert_eq!((cells.len(), cells.last()), (held + 1, Some(&(Command::DESTROY, 3 << 24))));
        assert_eq!(end.endpoint.buffered_bytes(), 0);
    });
}

#[test]
fn no_more_flows_than_the_peer_permits() {
    let mut world = World::open(EspOptions::default(), 2);
    assert!((0..2).all(|place| world.at(place, |end, _| end.is(&ConnectionEvent::FlowRoom(2)))));
    world.at(0, |end, now| {
        for number in 1..=3 {
            end.send(now, circ_id(Role::Initiator, number), Command::CREATE2, 0);
        }
    });
    world.sim.run_for(Duration::from_secs(1));
    assert_eq!((world.flows(0), world.flows(1)), (2, 2));
    world.at(0, |end, _| {
        let refused = &end.came[&circ_id(Role::Initiator, 3)];
        let reason = u32::from(DestroyReason::RESOURCELIMIT.0) << 24;
        assert_eq!(refused, &[(Command::DESTROY, reason)]);
    });
}

/// A listener is ready as soon as it sent its proof. That is lost, so a flow of the listener's comes first, and its
/// kernel would open it anew only after a second.
#[test]
fn what_a_listener_opens_before_its_proof_came_waits_for_it() {
    let is_ready = |world: &mut World, place| world.at(place, |end, _| end.is(&ConnectionEvent::Ready));
    for is_lost in [true, false] {
        let mut world = World::new(EspOptions::default(), 100);
        let [a, b] = world.hosts;
        // The control stream is open, and the dialler's proof on its way.
        world.sim.run_for(Duration::from_millis(50));
        assert!(!is_ready(&mut world, 1));
        world.sim.block_datagrams(b, a, is_lost);
        let to_send = BTreeMap::from([(circ_id(Role::Responder, 1), VecDeque::from([0]))]);
        if !is_lost {
            world.at(1, |end, _| end.to_send = to_send.clone());
        }
        world.wait(|world| is_ready(world, 1));
        if is_lost {
            world.sim.block_datagrams(b, a, false);
            world.at(1, |end, _| end.to_send = to_send);
        }
        world.wait(|world| is_ready(world, 0));
        let ready_at = world.sim.now();
        world.wait(|world| world.at(0, |end, _| !end.came.is_empty()));
        let took = world.sim.now().since(ready_at);
        assert!(took <= Duration::from_millis(60), "a round trip later and not {took:?}");
    }
}

/// A driver out of sockets: the relay hears of it, and who did not hear in time gets no flow.
#[test]
fn no_more_flows_than_the_driver_opens_sockets() {
    let mut world = World::open(EspOptions::default(), 100);
    let tell = |world: &mut World, sockets, accepts| {
        world.at(1, |end, _| end.events.clear());
        world.at(0, |end, now| {
            end.events.clear();
            end.endpoint.handle_stack(now, Input::StackRoom { stack: STACK, sockets, accepts });
        });
        world.sim.run_for(Duration::from_secs(1));
    };
    tell(&mut world, 2, true);
    world.at(0, |end, now| {
        assert!(end.is(&ConnectionEvent::FlowRoom(2)));
        for number in 1..=3 {
            end.send(now, circ_id(Role::Initiator, number), Command::CREATE2, 0);
        }
    });
    world.sim.run_for(Duration::from_secs(1));
    assert_eq!((world.flows(0), world.flows(1)), (2, 2));
    world.at(0, |end, _| {
        assert!(end.is(&ConnectionEvent::FlowRoom(0)));
        let refused = &end.came[&circ_id(Role::Initiator, 3)];
        let reason = u32::from(DestroyReason::RESOURCELIMIT.0) << 24;
        assert_eq!(refused, &[(Command::DESTROY, reason)]);
    });
    // What the peer opens needs no socket of ours.
    world.at(1, |end, now| {
        end.send(now, circ_id(Role::Responder, 9), Command::CREATE2, 0);
    });
    world.sim.run_for(Duration::from_secs(1));
    assert_eq!((world.flows(0), world.flows(1)), (3, 3));
    tell(&mut world, 500, true);
    world.at(0, |end, _| assert!(end.is(&ConnectionEvent::FlowRoom(98)), "{:?}", end.events));
}

/// A driver out of sockets: the peer hears of it, sends its circuits elsewhere, and keeps those that it has.
#[test]
fn a_peer_opens_no_flows_while_there_are_no_sockets_for_them() {
    let mut world = World::open(EspOptions::default(), 100);
    let number = |number| circ_id(Role::Responder, number);
    world.at(1, |end, now| end.send(now, number(1), Command::CREATE2, 0));
    world.sim.run_for(Duration::from_secs(1));
    for (accepts, room, refused) in [(false, 0, true), (true, 99, false)] {
        world.at(1, |end, _| end.events.clear());
        world.at(0, |end, now| {
            let room = Input::StackRoom { stack: STACK, sockets: 500, accepts };
            end.endpoint.handle_stack(now, room);
        });
        world.sim.run_for(Duration::from_secs(1));
        world.at(1, |end, now| {
            assert!(end.is(&ConnectionEvent::FlowRoom(room)), "{:?}", end.events);
            end.send(now, number(2 + room), Command::CREATE2, 0);
        });
        world.sim.run_for(Duration::from_secs(1));
        world.at(1, |end, _| assert_eq!(end.came.contains_key(&number(2 + room)), refused));
    }
    assert_eq!((world.flows(0), world.flows(1)), (2, 2));
}

#[test]
fn who_has_not_the_key_of_the_offer_is_refused() {
    let mut world = World::with_key(EspOptions::default(), 100, 3);
    world.sim.run_for(MINUTE);
    assert_eq!(world.ended(1), Some(ConnectionError::WrongProof));
    assert_eq!(world.ended(0), Some(ConnectionError::PeerClosed));
    assert!((0..2).all(|place| world.at(place, |end, _| !end.is(&ConnectionEvent::Ready))));
}

#[test]
fn a_dialler_without_a_listener_gives_up_and_a_closed_connection_says_so() {
    let mut world = World::new(EspOptions::default(), 100);
    let [a, b] = world.hosts;
    world.sim.block_datagrams(a, b, true);
    world.sim.run_for(MINUTE);
    assert_eq!([0, 1].map(|place| world.ended(place)), [(); 2].map(|()| Some(ConnectionError::NoAnswer)));

    let mut world = World::open(EspOptions::default(), 100);
    transfer(&mut world, 2, 5);
    world.at(0, |end, now| end.endpoint.close(now, end.conn.expect("open")));
    world.sim.run_for(Duration::from_secs(10));
    assert_eq!((world.ended(0), world.ended(1)), (None, Some(ConnectionError::PeerClosed)));
    assert_eq!((world.flows(0), world.flows(1)), (0, 0));
    // What is gone takes nothing.
    let state = world.at(0, |end, _| (end.endpoint.buffered_bytes(), end.endpoint.state_bytes()));
    assert_eq!(state, (0, 0));
}

#[test]
fn a_stranger_is_not_answered() {
    let mut world = World::open(EspOptions::default(), 100);
    let strangers = [
        // Any SPI of the peer's address, one of another address, a keep-alive, IKE, nothing much.
        (ADDRS[0], vec![7; 100]),
        (IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9)), vec![7; 100]),
        (ADDRS[0], vec![0xff]),
        (ADDRS[0], vec![0; 100]),
        (ADDRS[0], vec![1, 2, 3]),
    ];
    world.at(1, |end, now| {
        for (number, (from, data)) in strangers.into_iter().enumerate() {
            let (from, stride) = (SocketAddr::new(from, UDP_PORT), data.len());
            let datagrams = Datagrams { from, to: None, ecn: 0, stride, data: BytesMut::from(&data[..]) };
            end.endpoint.handle_datagrams(now, datagrams);
            let mut out = Vec::new();
            assert!(end.endpoint.poll_stack(now, &mut out).is_none());
            assert!(end.endpoint.poll_transmit(now, &mut out).is_none());
            assert_eq!(end.endpoint.refused_datagrams().strangers, number as u64 + 1);
        }
    });
    transfer(&mut world, 1, 5);
}
