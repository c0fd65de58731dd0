//! A peer whose keys are right, and who sends what no honest one does inside of them: nothing of it reaches the stack,
//! and nothing ends but by what may end it.

use super::addresses::{CONTROL_PORT, FLOW_PORT};
use super::control::{MESSAGE, Message};
use super::spares::Spares;
use super::{EspEndpoint, EspOptions};
use crate::connections::{ConnKey, Serve, Want};
use core::net::SocketAddr;
use heddle_esp::Lifetime;
use heddle_esp::beet::Inner;
use heddle_esp::packet::{DUMMY, IPV4, TCP};
use heddle_proto::cell::{BODY_LEN, Command};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{
    ConnectionError, ConnectionEvent, ConnectionOptions, Endpoint, PairSecrets, RefusedDatagrams,
};
use heddle_seam::datagrams::{Datagrams, Packets};
use heddle_seam::node::{Input, Output, SocketId, StackId};
use heddle_seam::time::{Duration, Instant};
use zeroize::Zeroizing;

const NOW: Instant = Instant::ZERO;
const STACK: StackId = StackId(0);
/// Of associations that are changed after 300 hours and no sooner.
const ENDLESS: Lifetime =
    Lifetime { packets_max: u64::MAX, bytes_max: u64::MAX, age_max: Duration::from_secs(400 * 3600) };

fn endpoint(key: u8, lifetime: Lifetime) -> EspEndpoint {
    let options = EspOptions { lifetime, ..EspOptions::default() };
    EspEndpoint::new(options, STACK, &Zeroizing::new([key; 32])).expect("good options")
}

fn open(endpoint: &mut EspEndpoint, role: Role, peer_key: [u8; 32]) -> ConnKey {
    let secrets = PairSecrets {
        token: [1; 20],
        dialler_proof: Zeroizing::new([2; 32]),
        listener_proof: Zeroizing::new([3; 32]),
    };
    let peer = address("192.0.2.1:4430");
    let options = ConnectionOptions { role, local: None, peer, peer_key, secrets, flows_max: 10_000 };
    ConnKey::of(endpoint.open(NOW, options))
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// The attacker dials, and the listener takes what it says.
struct Siege {
    attacker: EspEndpoint,
    listener: EspEndpoint,
    key: ConnKey,
}

impl Siege {
    /// Both proofs were exchanged.
    fn open() -> Self {
        Siege::open_with([Lifetime::default(); 2])
    }

    fn open_with(lifetimes: [Lifetime; 2]) -> Self {
        let mut siege = Siege::with(lifetimes);
        siege.exchange();
        assert_eq!(siege.events(), [ConnectionEvent::Ready, ConnectionEvent::FlowRoom(10_000)]);
        // Their first PINGs are no answers to what a test sends.
        siege.answers();
        while siege.attacker.poll_transmit(NOW, &mut Vec::new()).is_some() {}
        siege
    }

    /// Each side reads the other's proof.
    fn exchange(&mut self) {
        let from =
            self.listener.connections.all_live().next().map(|(_, connection)| connection.inner().remote);
        let from = SocketAddr::new(from.expect("it lives").into(), 50_000);
        let [dialled, accepted] =
            [SocketId::dialled(0), SocketId::accepted(0)].map(|socket| socket.on(STACK));
        let local = address("10.0.0.1:1");
        self.listener.handle_stack(NOW, Input::Accepted { socket: accepted, local, peer: from });
        let local = address("10.0.0.1:50000");
        self.attacker.handle_stack(NOW, Input::Connected { socket: dialled, local });
        let proof = control_bytes(&mut self.attacker, dialled);
        hear(&mut self.listener, accepted, &proof);
        let proof = control_bytes(&mut self.listener, accepted);
        hear(&mut self.attacker, dialled, &proof);
    }

    fn new() -> Self {
        Siege::with([Lifetime::default(); 2])
    }

    /// Associations serve for so long by the attacker, and by the listener.
    fn with(lifetimes: [Lifetime; 2]) -> Self {
        let (mut attacker, mut listener) = (endpoint(1, lifetimes[0]), endpoint(2, lifetimes[1]));
        let keys = [attacker.public_key(), listener.public_key()];
        open(&mut listener, Role::Responder, keys[0]);
        let key = open(&mut attacker, Role::Initiator, keys[1]);
        Siege { attacker, listener, key }
    }

    /// What the listener's stack gets of a packet with such contents.
    fn send(&mut self, next_header: u8, payload: &[u8]) -> Vec<u8> {
        self.send_at(NOW, next_header, payload)
    }

    fn send_at(&mut self, now: Instant, next_header: u8, payload: &[u8]) -> Vec<u8> {
        self.try_send_at(now, next_header, payload).expect("a datagram")
    }

    /// `None` if the attacker's association does not seal it.
    fn try_send_at(&mut self, now: Instant, next_header: u8, payload: &[u8]) -> Option<Vec<u8>> {
        self.attacker.connections.live_mut(self.key).expect("it lives").seal(
            now,
            next_header,
            0,
            payload,
            &mut Spares::default(),
        );
        self.attacker.connections.note(self.key, Want::Transmit);
        let mut data = Vec::new();
        let transmit = self.attacker.poll_transmit(now, &mut data)?;
        let datagrams = Datagrams {
            from: address("192.0.2.1:4430"),
            to: None,
            ecn: 0,
            stride: transmit.stride,
            data: data[..].into(),
        };
        self.listener.handle_datagrams(now, datagrams);
        let mut out = Vec::new();
        while self.listener.poll_stack(now, &mut out).is_some() {}
        Some(out)
    }

    /// The same of one that opens a connection.
    fn send_syn(&mut self, now: Instant, from: u16, to: u16) -> bool {
        let mut syn = Self::segment(from, to, 20);
        syn[13] = 2;
        !self.send_at(now, TCP, &syn).is_empty()
    }

    /// The listener's stack accepts a flow of the attacker's.
    fn accept_flow(&mut self, n: u64) -> SocketId {
        let inside =
            self.listener.connections.all_live().next().map(|(_, connection)| connection.inner().remote);
        let peer = SocketAddr::new(inside.expect("it lives").into(), 50_000);
        let socket = SocketId::accepted(n).on(STACK);
        let local = address("10.0.0.1:2");
        self.listener.handle_stack(NOW, Input::Accepted { socket, local, peer });
        socket
    }

    fn segment(from: u16, to: u16, len: usize) -> Vec<u8> {
        let mut segment = [&from.to_be_bytes()[..], &to.to_be_bytes(), &[0; 16]].concat();
        segment[12] = 5 << 4;
        segment.resize(len, 0);
        segment
    }

    fn events(&mut self) -> Vec<ConnectionEvent> {
        std::iter::from_fn(|| self.listener.poll_event(NOW)).map(|(_, event)| event).collect()
    }

    /// What the listener says in return, in packets.
    fn answers(&mut self) -> usize {
        let mut out = Vec::new();
        std::iter::from_fn(|| self.listener.poll_transmit(NOW, &mut out)).count()
    }

    /// Bytes that the listener keeps and takes, its associations inwards, and when it wants to be called.
    fn kept(&mut self) -> ([usize; 3], Option<Instant>) {
        let listener = &mut self.listener;
        let counts = [listener.buffered_bytes(), listener.state_bytes(), listener.spis.len()];
        (counts, listener.poll_timeout())
    }
}

/// What it writes on the control stream.
fn control_bytes(of: &mut EspEndpoint, socket: SocketId) -> Vec<u8> {
    of.handle_stack(NOW, Input::Writable { socket, bytes: 4096, window_bytes: usize::MAX });
    let mut bytes = Vec::new();
    while of.poll_stack(NOW, &mut bytes).is_some() {}
    bytes
}

fn hear(of: &mut EspEndpoint, socket: SocketId, bytes: &[u8]) {
    of.stack_recv_buf(socket)[..bytes.len()].copy_from_slice(bytes);
    of.handle_stack(NOW, Input::Read { socket, len: bytes.len() });
}

#[test]
fn what_all_keys_come_of_is_kept_until_the_proofs_were_exchanged() {
    let has_proofs =
        |of: &EspEndpoint| of.connections.all_live().all(|(_, connection)| connection.has_proofs());
    let mut siege = Siege::new();
    assert!(has_proofs(&siege.attacker) && has_proofs(&siege.listener));
    siege.send(MESSAGE, &Message::Close.to_bytes());
    assert!(!has_proofs(&siege.listener), "it is over");
    let siege = Siege::open();
    assert!(!has_proofs(&siege.attacker) && !has_proofs(&siege.listener));
}

#[test]
fn no_end_is_a_port_that_only_the_other_listens_on() {
    let mut siege = Siege::new();
    assert!(siege.send(TCP, &Siege::segment(CONTROL_PORT, FLOW_PORT, 20)).is_empty(), "before the proof");
    let mut siege = Siege::open();
    for (from, to) in
        [(CONTROL_PORT, 22), (FLOW_PORT, CONTROL_PORT), (CONTROL_PORT, FLOW_PORT), (22, FLOW_PORT)]
    {
        assert!(siege.send(TCP, &Siege::segment(from, to, 20)).is_empty(), "{from} to {to}");
    }
    for (from, to) in [(FLOW_PORT, 50_000), (50_000, FLOW_PORT), (1024, CONTROL_PORT)] {
        assert_eq!(siege.send(TCP, &Siege::segment(from, to, 20)).len(), 40, "{from} to {to}");
    }
}

#[test]
fn only_so_many_connections_are_begun_at_once_and_in_a_second() {
    let mut siege = Siege::open();
    let ports = || (0..100_000).map(|n| 1024 + (n % 60_000) as u16);
    let reached = ports().filter(|from| siege.send_syn(NOW, *from, FLOW_PORT)).count();
    assert_eq!(reached, 1000);
    assert_eq!(
        siege.send(TCP, &Siege::segment(50_000, FLOW_PORT, 20)).len(),
        40,
        "those that are begun go on"
    );
    // What is permitted again comes bit by bit: no two bursts, however close, are of all.
    let mut reached_at = |ms| {
        let now = NOW + Duration::from_millis(ms);
        ports().take(2000).filter(|from| siege.send_syn(now, *from, FLOW_PORT)).count()
    };
    assert_eq!([1, 999, 1000].map(&mut reached_at), [1, 998, 1]);
    assert_eq!(reached_at(60_000), 1000);
}

/// An honest peer may open as many circuits in a second as it has.
#[test]
fn a_connection_that_became_a_circuit_makes_room_for_another() {
    let mut siege = Siege::open();
    let begun = (1024..10_000).filter(|from| siege.send_syn(NOW, *from, FLOW_PORT)).count();
    assert_eq!(begun, 1000);
    let socket = siege.accept_flow(1);
    assert!(!siege.send_syn(NOW, 20_000, FLOW_PORT), "no cell came of it");
    let create = [&[0, 0, 0, 1, Command::CREATE2.0][..], &[0; BODY_LEN]].concat();
    hear(&mut siege.listener, socket, &create);
    assert!(siege.listener.next_incoming(NOW).is_some());
    assert!(siege.send_syn(NOW, 20_001, FLOW_PORT));
    assert!(!siege.send_syn(NOW, 20_002, FLOW_PORT));
}

#[test]
fn what_is_kept_of_the_control_stream_counts() {
    let mut siege = Siege::open();
    let before = siege.listener.buffered_bytes();
    let socket = SocketId::accepted(0).on(STACK);
    siege.listener.handle_stack(NOW, Input::Unsent { socket, bytes: 5000 });
    assert_eq!(siege.listener.buffered_bytes(), before + 5000);
    siege.listener.handle_stack(NOW, Input::Unsent { socket, bytes: 0 });
    assert_eq!(siege.listener.buffered_bytes(), before);
}

#[test]
fn flows_whose_first_cell_does_not_come_are_refused_beyond_so_many() {
    let mut siege = Siege::open();
    let mut is_refused = |n: u64| {
        siege.accept_flow(n);
        let wishes = core::iter::from_fn(|| siege.listener.poll_stack(NOW, &mut Vec::new()));
        wishes.filter(|wish| matches!(wish, Output::Abort { .. })).count() == 1
    };
    assert_eq!((1..=2000).filter(|n| is_refused(*n)).collect::<Vec<_>>(), (1001..=2000).collect::<Vec<_>>());
}

#[test]
fn only_the_control_stream_gets_through_before_the_proof() {
    let mut siege = Siege::new();
    let opened = siege.send(TCP, &Siege::segment(50_000, CONTROL_PORT, 20));
    assert_eq!(opened.len(), 40, "with the header that was left out");
    assert_eq!((&opened[..2], &opened[16..20]), (&[0x45, 0][..], &[10, 0, 0, 1][..]));
    assert!(siege.send(TCP, &Siege::segment(50_000, FLOW_PORT, 20)).is_empty());
}

/// What a listener opens before its proof came is kept, so much of it, and nothing else is.
#[test]
fn a_dialler_keeps_so_many_openings_until_the_proof_came() {
    let mut siege = Siege::new();
    // The listener knows where its peer is.
    siege.send(MESSAGE, &Message::Ping(7).to_bytes());
    let mut out = Vec::new();
    while siege.attacker.poll_stack(NOW, &mut out).is_some() {}
    let before = siege.attacker.buffered_bytes();
    let key = siege.listener.connections.all_live().next().map(|(key, _)| key).expect("it lives");
    for from in 1024..3024 {
        let mut syn = Siege::segment(from, FLOW_PORT, 60);
        syn[13] = 2;
        for segment in [syn, Siege::segment(from, FLOW_PORT, 60)] {
            siege
                .listener
                .at(key, |connection, _| connection.seal(NOW, TCP, 0, &segment, &mut Spares::default()));
        }
        siege.listener.after(NOW, key);
        let mut data = Vec::new();
        while let Some(transmit) = siege.listener.poll_transmit(NOW, &mut data) {
            let from = address("192.0.2.1:4430");
            let data = data.drain(..).as_slice().into();
            let datagrams = Datagrams { from, to: None, ecn: 0, stride: transmit.stride, data };
            siege.attacker.handle_datagrams(NOW, datagrams);
        }
    }
    out.clear();
    while siege.attacker.poll_stack(NOW, &mut out).is_some() {}
    assert_eq!((out.len(), siege.attacker.buffered_bytes() - before), (0, 64 * 60));
    siege.exchange();
    out.clear();
    while siege.attacker.poll_stack(NOW, &mut out).is_some() {}
    assert_eq!(out.len(), 64 * (20 + 60), "with the headers that were left out");
    assert_eq!(siege.attacker.buffered_bytes(), heddle_esp::packet::sealed_len(5), "its PING alone");
}

#[test]
fn nothing_reaches_the_stack_but_segments_of_its_ports() {
    let mut siege = Siege::new();
    let others = [
        (TCP, Siege::segment(50_000, 22, 20)),
        (TCP, Siege::segment(50_000, 50_000, 1_000)),
        (TCP, Siege::segment(50_000, CONTROL_PORT, 19)),
        (TCP, vec![]),
        (DUMMY, Siege::segment(50_000, CONTROL_PORT, 20)),
        // A whole IPv4 packet, ICMP, UDP, a fragment's and another ESP's.
        (IPV4, [&[0x45, 0, 0, 40][..], &[0; 36]].concat()),
        (1, vec![8; 40]),
        (17, Siege::segment(50_000, CONTROL_PORT, 20)),
        (44, Siege::segment(50_000, CONTROL_PORT, 20)),
        (50, vec![1; 40]),
        // Messages that there are not, and an answer to what was not asked.
        (MESSAGE, vec![]),
        (MESSAGE, vec![9, 9]),
        (MESSAGE, vec![1, 0, 0]),
        (MESSAGE, Message::Pong(7).to_bytes()),
    ];
    for (next_header, payload) in others {
        assert!(siege.send(next_header, &payload).is_empty(), "{next_header} {payload:?}");
        assert_eq!(siege.answers(), 0);
    }
    assert_eq!(siege.events(), []);
    // A question is answered, once.
    assert!(siege.send(MESSAGE, &Message::Ping(7).to_bytes()).is_empty());
    assert_eq!(siege.answers(), 1);
}

#[test]
fn who_closes_is_believed_and_answered_no_more() {
    let mut siege = Siege::new();
    assert!(siege.send(MESSAGE, &Message::Close.to_bytes()).is_empty());
    assert_eq!(siege.events(), [ConnectionEvent::Ended(ConnectionError::PeerClosed)]);
    for _ in 0..100 {
        siege.send(MESSAGE, &Message::Ping(7).to_bytes());
    }
    // It says that it is over, as often as it says so at most.
    let mut out = Vec::new();
    while siege.listener.poll_transmit(NOW, &mut out).is_some() {}
    assert_eq!(out.len() / heddle_esp::packet::sealed_len(1), 7);
    siege.listener.handle_timeout(NOW + Duration::from_secs(3));
    assert!(siege.listener.spis.is_empty() && siege.listener.connections.len() == 0);
    assert_eq!((siege.listener.buffered_bytes(), siege.listener.state_bytes()), (0, 0));
}

/// The next keys, which nobody uses, cost nothing but their place; and those in use are taken no longer for it.
#[test]
fn a_peer_whose_change_of_keys_never_comes_holds_up_nothing() {
    let short = Lifetime { packets_max: 1000, ..Lifetime::default() };
    let mut siege = Siege::open_with([ENDLESS, short]);
    let segment = Siege::segment(50_000, FLOW_PORT, 20);
    assert_eq!(siege.send(TCP, &segment).len(), 40);
    let before = siege.kept();
    assert_eq!(before.0[2], 2, "its keys and the next ones");
    assert!((1..1000).all(|_| siege.send(TCP, &segment).len() == 40));
    assert_eq!((siege.kept(), siege.listener.refused_datagrams()), (before, RefusedDatagrams::default()));
    assert!((0..1000).all(|_| siege.send(TCP, &segment).is_empty()));
    assert!(siege.send(MESSAGE, &Message::Close.to_bytes()).is_empty());
    let refused = RefusedDatagrams { strangers: 0, peers: 1001 };
    assert_eq!((siege.kept(), siege.listener.refused_datagrams()), (before, refused));
    assert_eq!(siege.answers(), 0);
    assert_eq!(siege.events(), []);
    // Not even its answers count, so it ends as one that says nothing.
    let mut events = Vec::new();
    for _ in 0..1000 {
        let Some(at) = siege.listener.poll_timeout() else { break };
        siege.listener.handle_timeout(at);
        siege.send_at(at, MESSAGE, &Message::Pong(1).to_bytes());
        siege.answers();
        events.extend(siege.events());
    }
    assert_eq!(events.last(), Some(&ConnectionEvent::Ended(ConnectionError::PathDead)));
    assert_eq!(siege.kept().0, [0; 3]);
}

/// Keys that nobody has used do not age.
#[test]
fn a_peer_is_heard_again_when_its_change_of_keys_comes_late() {
    let mut siege = Siege::open_with([ENDLESS, Lifetime::default()]);
    let segment = Siege::segment(50_000, FLOW_PORT, 20);
    let hours = |hours: u64| NOW + Duration::from_secs(hours * 3600);
    assert_eq!(siege.send(TCP, &segment).len(), 40);
    let before = siege.kept().0;
    let came = [7, 8, 299, 300].map(|at| siege.send_at(hours(at), TCP, &segment).len());
    assert_eq!(came, [40, 0, 0, 40]);
    assert_eq!(siege.kept().0[2], before[2] + 1, "those before are taken for a minute still");
    let later = hours(300) + Duration::from_secs(60);
    assert_eq!(siege.send_at(later, TCP, &segment).len(), 40);
    assert_eq!(siege.kept().0, before);
}

#[test]
fn what_an_association_may_not_carry_is_lost_and_the_next_one_carries_on() {
    let short = Lifetime { bytes_max: 200, ..Lifetime::default() };
    let mut siege = Siege::with([short, Lifetime::default()]);
    let mut arrived = |len| {
        let segment = Siege::segment(50_000, CONTROL_PORT, len);
        siege.try_send_at(NOW, TCP, &segment).map(|packet| packet.len())
    };
    // Packets have 56, 156 and 216 bytes. An association that carried 150 is changed, and none carries more than 200.
    assert_eq!([20, 120, 20, 20].map(&mut arrived), [Some(40), None, Some(40), Some(40)]);
    assert_eq!([120, 180, 20, 120].map(&mut arrived), [Some(140), None, Some(40), None]);
    assert_eq!([20, 20, 120, 20].map(&mut arrived), [Some(40), Some(40), Some(140), Some(40)]);
    assert_eq!(siege.listener.refused_datagrams(), RefusedDatagrams::default());
    assert_eq!(siege.listener.spis.len(), 3);
}

/// The stack is a whole kernel's, which has more to say than TCP.
#[test]
fn nothing_of_the_stack_leaves_but_tcp_to_a_peer() {
    let mut siege = Siege::open();
    // The listener knows where its peer is.
    siege.send(MESSAGE, &Message::Ping(7).to_bytes());
    assert_eq!(siege.answers(), 1);
    let inner = siege.listener.connections.all_live().next().map(|(_, connection)| connection.inner());
    let inner = inner.expect("it lives");
    let there = Inner { local: inner.remote, remote: inner.local };
    let packet = |protocol| {
        let header = there.header(protocol, 0, 20).expect("short enough");
        [&header[..], &Siege::segment(FLOW_PORT, 50_000, 20)].concat()
    };
    let mut left = |packet: &[u8]| {
        let packets = Packets { stride: packet.len(), data: packet.into() };
        siege.listener.handle_stack(NOW, Input::Packets { stack: STACK, packets });
        siege.answers()
    };
    // ICMP and UDP among them, and our own messages.
    let leaving: Vec<u8> = (0..=255).filter(|protocol| left(&packet(*protocol)) > 0).collect();
    assert_eq!(leaving, [TCP]);
    // Version, options, length, fragments, another address than ours, and one that no peer has.
    for (at, bits) in [(0, 0x10), (0, 1), (3, 1), (6, 0x20), (7, 1), (15, 1), (19, 1)] {
        let mut other = packet(TCP);
        other[at] ^= bits;
        assert_eq!(left(&other), 0, "byte {at}");
    }
    assert_eq!((left(&packet(TCP)[..19]), left(&packet(TCP))), (0, 1));
}
