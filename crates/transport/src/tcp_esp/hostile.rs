//! A peer whose keys are right, and who sends what no honest one does inside of them: nothing of it reaches the stack,
//! and nothing ends but by what may end it.

use super::addresses::{CONTROL_PORT, FLOW_PORT};
use super::control::{MESSAGE, Message};
use super::{EspEndpoint, EspOptions};
use crate::links::{LinkKey, Want};
use heddle_esp::packet::{DUMMY, IPV4, TCP};
use heddle_proto::channel::Role;
use heddle_proto::endpoint::{ConnectionError, ConnectionEvent, ConnectionOptions, Endpoint, PairSecrets};
use heddle_seam::datagrams::Datagrams;
use heddle_seam::node::StackId;
use heddle_seam::time::{Duration, Instant};
use zeroize::Zeroizing;

const NOW: Instant = Instant::ZERO;

fn endpoint(key: u8) -> EspEndpoint {
    EspEndpoint::new(EspOptions::default(), StackId(0), &Zeroizing::new([key; 32])).expect("good options")
}

fn open(endpoint: &mut EspEndpoint, role: Role, peer_key: [u8; 32]) -> LinkKey {
    let secrets = PairSecrets {
        token: [1; 20],
        dialler_proof: Zeroizing::new([2; 32]),
        listener_proof: Zeroizing::new([3; 32]),
    };
    let peer = "192.0.2.1:4430".parse().expect("an address");
    let options = ConnectionOptions { role, local: None, peer, peer_key, secrets, flows_max: 10 };
    LinkKey::of(endpoint.open(NOW, options))
}

/// The attacker dials, and the listener takes what it says.
struct Siege {
    attacker: EspEndpoint,
    listener: EspEndpoint,
    key: LinkKey,
}

impl Siege {
    fn new() -> Self {
        let (mut attacker, mut listener) = (endpoint(1), endpoint(2));
        let keys = [attacker.public_key(), listener.public_key()];
        open(&mut listener, Role::Responder, keys[0]);
        let key = open(&mut attacker, Role::Initiator, keys[1]);
        Siege { attacker, listener, key }
    }

    /// What the listener's stack gets of a packet with such contents.
    fn send(&mut self, next_header: u8, payload: &[u8]) -> Vec<u8> {
        self.attacker.links.live_mut(self.key).expect("it lives").seal(NOW, next_header, 0, payload);
        self.attacker.links.note(self.key, Want::Transmit);
        let mut data = Vec::new();
        let transmit = self.attacker.poll_transmit(NOW, usize::MAX, &mut data).expect("a datagram");
        let datagrams = Datagrams {
            from: "192.0.2.1:4430".parse().expect("an address"),
            to: None,
            ecn: 0,
            stride: transmit.stride,
            data: data[..].into(),
        };
        self.listener.handle_datagrams(NOW, datagrams);
        let mut out = Vec::new();
        while self.listener.poll_stack(NOW, &mut out).is_some() {}
        out
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
        std::iter::from_fn(|| self.listener.poll_transmit(NOW, usize::MAX, &mut out)).count()
    }
}

#[test]
fn only_the_control_stream_gets_through_before_the_proof() {
    let mut siege = Siege::new();
    let opened = siege.send(TCP, &Siege::segment(50_000, CONTROL_PORT, 20));
    assert_eq!(opened.len(), 40, "with the header that was left out");
    assert_eq!((&opened[..2], &opened[16..20]), (&[0x45, 0][..], &[10, 0, 0, 1][..]));
    assert!(siege.send(TCP, &Siege::segment(50_000, FLOW_PORT, 20)).is_empty());
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
    while siege.listener.poll_transmit(NOW, usize::MAX, &mut out).is_some() {}
    assert_eq!(out.len() / heddle_esp::packet::sealed_len(1), 7);
    siege.listener.handle_timeout(NOW + Duration::from_secs(3));
    assert!(siege.listener.spis.is_empty() && siege.listener.links.len() == 0);
    assert_eq!((siege.listener.held_bytes(), siege.listener.state_bytes()), (0, 0));
}
