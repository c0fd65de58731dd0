//! Two sides in virtual time: whatever the order of what happens to channels, datagrams and processes, bounds hold at
//! every moment, and once the trouble is over both sides use one and the same connection.

use super::*;
use crate::pair::AttemptId;
use heddle_seam::rng::{Rng, Seed};
use proptest::prelude::*;

const IDS: [RelayIds; 2] = [PEER, RelayIds { rsa: RsaId([9; 20]), ..PEER }];
/// One way, of TLS and of datagrams.
const DELAY: Duration = Duration::from_millis(50);
/// The endpoint's bound of a handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(30);
/// After which an endpoint notices that the other end is gone.
const NOTICED_AFTER: Duration = Duration::from_secs(60);

/// What both ends of a connection have: the secrets' purpose stands for the secrets.
struct Conn {
    purpose: Purpose,
    role: Role,
    ready: bool,
    other: Option<ConnId>,
}

struct Side {
    pairs: Pairs,
    key: [u8; 32],
    channels: BTreeMap<u64, Role>,
    conns: BTreeMap<ConnId, Conn>,
}

enum Event {
    Open {
        side: usize,
        channel: u64,
        role: Role,
    },
    Close {
        side: usize,
        channel: u64,
    },
    Offer {
        to: usize,
        channel: u64,
        body: Vec<u8>,
    },
    /// The dialler's first datagram, sent again a few times.
    Initial {
        to: usize,
        from: ConnId,
        tries: u32,
    },
    /// The listener's answer, and what the dialler says to it.
    Answer {
        to: usize,
        conn: ConnId,
        other: ConnId,
    },
    Finish {
        to: usize,
        conn: ConnId,
    },
    Late {
        side: usize,
        conn: ConnId,
    },
    Dead {
        side: usize,
        conn: ConnId,
    },
    Farewell {
        to: usize,
        conn: ConnId,
    },
    UdpBack,
}

struct World {
    now: Instant,
    rng: Rng,
    sides: [Side; 2],
    queue: BTreeMap<(Instant, u64), Event>,
    events: u64,
    channels: u64,
    conns: u64,
    udp: bool,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    /// A side dials TLS.
    Dial(usize),
    /// A channel ends; the second side notices later.
    Cut {
        first: usize,
        later_s: u64,
    },
    /// No datagram arrives for so long, and all connections die of it.
    Blackout {
        seconds: u64,
    },
    /// A side forgets everything.
    Restart(usize),
    Rotate(usize),
    Wait {
        ms: u64,
    },
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => (0..2usize).prop_map(Action::Dial),
        2 => (0..2usize, 0..40u64).prop_map(|(first, later_s)| Action::Cut { first, later_s }),
        1 => (0..200u64).prop_map(|seconds| Action::Blackout { seconds }),
        1 => (0..2usize).prop_map(Action::Restart),
        1 => (0..2usize).prop_map(Action::Rotate),
        3 => (0..300u64).prop_map(|ms| Action::Wait { ms }),
        3 => (0..100_000u64).prop_map(|ms| Action::Wait { ms }),
    ]
}

impl World {
    fn new(seed: u64) -> Self {
        let side = |key| Side {
            pairs: Pairs::new(offer(key), 4),
            key,
            channels: BTreeMap::new(),
            conns: BTreeMap::new(),
        };
        World {
            now: Instant::ZERO,
            rng: Seed::from_number(seed).rng(),
            sides: [side([10; 32]), side([20; 32])],
            queue: BTreeMap::new(),
            events: 0,
            channels: 0,
            conns: 0,
            udp: true,
        }
    }

    fn schedule(&mut self, after: Duration, event: Event) {
        self.events += 1;
        self.queue.insert((self.now + after, self.events), event);
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Dial(side) => {
                self.channels += 1;
                let channel = self.channels;
                // The initiator has the last word of the link handshake, so its end opens first.
                let first = Duration::from_millis(self.rng.below(150));
                self.schedule(first, Event::Open { side, channel, role: Role::Initiator });
                self.schedule(first + DELAY, Event::Open { side: 1 - side, channel, role: Role::Responder });
            }
            Action::Cut { first, later_s } => {
                let open: Vec<_> = self.sides[first].channels.keys().copied().collect();
                if let Some(channel) = open.get(self.rng.below(open.len() as u64) as usize).copied() {
                    self.schedule(Duration::ZERO, Event::Close { side: first, channel });
                    self.schedule(seconds(later_s), Event::Close { side: 1 - first, channel });
                }
            }
            Action::Blackout { seconds: length } => {
                self.udp = false;
                self.schedule(seconds(length), Event::UdpBack);
                for side in 0..2 {
                    let ready = self.sides[side].conns.iter().filter(|(_, conn)| conn.ready);
                    for conn in ready.map(|(conn, _)| *conn).collect::<Vec<_>>() {
                        let after = Duration::from_millis(self.rng.below(40_000));
                        self.schedule(after, Event::Dead { side, conn });
                    }
                }
            }
            Action::Restart(side) => {
                let key = self.rng.array();
                let before = std::mem::replace(&mut self.sides[side].pairs, Pairs::new(offer(key), 4));
                drop(before);
                self.sides[side].key = key;
                for (conn, _) in std::mem::take(&mut self.sides[side].conns) {
                    self.leave(side, conn, false);
                }
                for (channel, _) in std::mem::take(&mut self.sides[side].channels) {
                    self.schedule(DELAY, Event::Close { side: 1 - side, channel });
                }
            }
            Action::Rotate(side) => {
                let key = self.rng.array();
                self.sides[side].key = key;
                self.sides[side].pairs.replace_key(self.now, key);
                self.do_outputs(side);
            }
            Action::Wait { ms } => self.run(Duration::from_millis(ms)),
        }
        self.run(Duration::ZERO);
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        let mut still = 0;
        loop {
            let event = self.queue.first_key_value().map(|(key, _)| key.0);
            let timers = [0, 1].map(|side| self.sides[side].pairs.poll_timeout());
            let next = timers.into_iter().chain([event]).flatten().min();
            let Some(at) = next.filter(|at| *at <= end) else { break };
            still = if at > self.now { 0 } else { still + 1 };
            assert!(still < STEPS_PER_INSTANT_MAX, "time stands still at {:?}", self.now);
            self.now = at.max(self.now);
            if event == Some(at) {
                let (_, event) = self.queue.pop_first().expect("there is an event");
                self.happen(event);
            }
            for side in 0..2 {
                self.sides[side].pairs.handle_timeout(self.now);
                self.do_outputs(side);
            }
        }
        self.now = end;
    }

    fn say(&mut self, side: usize, input: PairInput<'_>) {
        self.sides[side].pairs.handle(self.now, IDS[1 - side], input);
        self.do_outputs(side);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Open { side, channel, role } => {
                self.sides[side].channels.insert(channel, role);
                let opened = opened(channel, role, HOME);
                self.say(side, opened);
                self.choose(side);
            }
            Event::Close { side, channel } => {
                if self.sides[side].channels.remove(&channel).is_some() {
                    self.say(side, PairInput::ChannelClosed { channel: socket(channel), by_peer: false });
                    self.choose(side);
                }
            }
            Event::Offer { to, channel, body } => {
                if self.sides[to].channels.contains_key(&channel) {
                    self.say(to, PairInput::Vpadding { channel: socket(channel), body: &body });
                }
            }
            Event::Initial { to, from, tries } => self.on_initial(to, from, tries),
            Event::Answer { to, conn, other } => {
                if let Some(known) = self.sides[to].conns.get_mut(&conn).filter(|_| self.udp) {
                    (known.ready, known.other) = (true, Some(other));
                    self.schedule(DELAY, Event::Finish { to: 1 - to, conn: other });
                    self.say(to, PairInput::Ready { conn: key(conn) });
                }
            }
            Event::Finish { to, conn } => {
                if let Some(known) = self.sides[to].conns.get_mut(&conn).filter(|_| self.udp) {
                    known.ready = true;
                    self.say(to, PairInput::Ready { conn: key(conn) });
                }
            }
            Event::Late { side, conn } => {
                if self.sides[side].conns.get(&conn).is_some_and(|conn| !conn.ready) {
                    self.end(side, conn, ConnectionError::NoAnswer);
                }
            }
            Event::Dead { side, conn } => self.end(side, conn, ConnectionError::PathDead),
            Event::Farewell { to, conn } => {
                if self.udp {
                    self.end(to, conn, ConnectionError::PeerClosed);
                }
            }
            Event::UdpBack => self.udp = true,
        }
    }

    fn on_initial(&mut self, to: usize, from: ConnId, tries: u32) {
        let Some(dialler) = self.sides[1 - to].conns.get(&from).filter(|conn| !conn.ready) else { return };
        let purpose = dialler.purpose;
        if tries < 4 {
            self.schedule(seconds(1 << tries), Event::Initial { to, from, tries: tries + 1 });
        }
        let waits =
            |conn: &Conn| conn.role == Role::Responder && conn.other.is_none() && conn.purpose == purpose;
        let udp = self.udp;
        let Some((&conn, known)) = self.sides[to].conns.iter_mut().find(|(_, conn)| udp && waits(conn))
        else {
            return;
        };
        known.other = Some(from);
        self.schedule(DELAY, Event::Answer { to: 1 - to, conn: from, other: conn });
    }

    fn end(&mut self, side: usize, conn: ConnId, error: ConnectionError) {
        if let Some(known) = self.sides[side].conns.remove(&conn) {
            self.leave_other(side, known.other, false);
            self.say(side, PairInput::Ended { conn: key(conn), error: &error });
        }
    }

    fn leave(&mut self, side: usize, conn: ConnId, aloud: bool) {
        let others = self.sides[1 - side].conns.iter();
        let other = others.filter(|(_, known)| known.other == Some(conn)).map(|(other, _)| *other).next();
        self.leave_other(side, other, aloud);
    }

    /// One end is gone. The other hears it, or notices.
    fn leave_other(&mut self, side: usize, other: Option<ConnId>, aloud: bool) {
        let Some(conn) = other else { return };
        self.schedule(NOTICED_AFTER, Event::Dead { side: 1 - side, conn });
        if aloud {
            self.schedule(DELAY, Event::Farewell { to: 1 - side, conn });
        }
    }

    /// Both sides choose alike among the channels they know: side 0's first, then the oldest.
    fn choose(&mut self, side: usize) {
        let rank = |(channel, role): (&u64, &Role)| ((*role == Role::Initiator) != (side == 0), *channel);
        let winner = self.sides[side].channels.iter().map(rank).min().map(|(_, channel)| socket(channel));
        self.say(side, PairInput::Winner(winner));
    }

    fn do_outputs(&mut self, side: usize) {
        let mut outputs = 0;
        while let Some((_, output)) = self.sides[side].pairs.poll_output() {
            outputs += 1;
            assert!(outputs < STEPS_PER_INSTANT_MAX, "the wishes of side {side} do not end: {output:?}");
            match output {
                PairOutput::SendOffer { channel, body } => {
                    let offer =
                        Event::Offer { to: 1 - side, channel: channel.get() / 2, body: body.to_vec() };
                    self.schedule(DELAY, offer);
                }
                PairOutput::Open(request) => self.open(side, request.attempt, &request),
                PairOutput::Close { conn } => {
                    if let Some(known) = self.sides[side].conns.remove(&conn.conn) {
                        self.leave_other(side, known.other, true);
                    }
                }
                PairOutput::DialTls => panic!("nothing is ever occupied here"),
                PairOutput::Probe { .. }
                | PairOutput::UseFlows { .. }
                | PairOutput::UseTls { .. }
                | PairOutput::Fallback { .. } => {}
            }
        }
        check(&self.sides[side].pairs);
    }

    fn open(&mut self, side: usize, attempt: AttemptId, request: &OpenRequest) {
        assert_eq!(request.purpose.keys[usize::from(request.role == Role::Responder)], self.sides[side].key);
        self.conns += 1;
        let conn = ConnId(self.conns);
        let (purpose, role) = (request.purpose, request.role);
        self.sides[side].conns.insert(conn, Conn { purpose, role, ready: false, other: None });
        self.sides[side].pairs.handle(self.now, IDS[1 - side], PairInput::Opened { attempt, conn });
        self.schedule(HANDSHAKE_MAX, Event::Late { side, conn });
        if role == Role::Initiator {
            self.schedule(DELAY, Event::Initial { to: 1 - side, from: conn, tries: 0 });
        }
    }

    fn in_use(&self, side: usize) -> Option<ConnId> {
        Some(self.sides[side].pairs.flows_to(&IDS[1 - side], QUIC)?.conn)
    }
}

fn key(conn: ConnId) -> ConnKey {
    ConnKey { transport: QUIC, conn }
}

#[test]
fn both_dial_tls_at_once() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        world.act(Action::Dial(0));
        world.act(Action::Dial(1));
        world.run(seconds(20));
        let (ours, theirs) = (world.in_use(0).expect("in use"), world.in_use(1).expect("in use"));
        assert_eq!(world.sides[0].conns[&ours].other, Some(theirs), "seed {seed}");
        world.run(seconds(40));
        assert_eq!([world.sides[0].conns.len(), world.sides[1].conns.len()], [1, 1], "seed {seed}");
    }
}

#[test]
fn a_restarted_peer_is_found_again_at_once() {
    for side in 0..2 {
        let mut world = World::new(side as u64);
        world.act(Action::Dial(0));
        world.run(seconds(100));
        world.act(Action::Restart(side));
        world.act(Action::Dial(side));
        world.run(seconds(2));
        let (ours, theirs) = (world.in_use(0).expect("in use"), world.in_use(1).expect("in use"));
        assert_eq!(world.sides[0].conns[&ours].other, Some(theirs));
    }
}

#[test]
fn a_late_token_is_not_answered() {
    let mut world = World::new(0);
    world.act(Action::Dial(0));
    world.act(Action::Blackout { seconds: 35 });
    world.run(seconds(36));
    assert_eq!(world.in_use(0), None);
    world.run(seconds(10));
    assert!(world.in_use(0).is_some() && world.in_use(1).is_some());
}

#[test]
fn a_channel_that_outlived_keys_still_vouches() {
    for side in 0..2 {
        let mut world = World::new(side as u64);
        world.act(Action::Dial(0));
        world.run(seconds(100));
        world.act(Action::Rotate(side));
        world.act(Action::Rotate(1 - side));
        world.run(seconds(10));
        let before = world.in_use(0).expect("what is live lives on");
        world.act(Action::Blackout { seconds: 45 });
        world.run(seconds(200));
        let (ours, theirs) = (world.in_use(0).expect("in use"), world.in_use(1).expect("in use"));
        assert_ne!(ours, before);
        assert_eq!(world.sides[0].conns[&ours].other, Some(theirs));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn both_sides_end_up_with_one_connection(
        seed in any::<u64>(),
        actions in prop::collection::vec(action(), 0..40),
        last in 0..2usize,
    ) {
        let mut world = World::new(seed);
        actions.into_iter().for_each(|action| world.act(action));
        // The trouble ends: old channels go, one new channel comes, and time passes.
        for channel in 1..=world.channels {
            (0..2).for_each(|side| world.schedule(seconds(1), Event::Close { side, channel }));
        }
        world.run(seconds(200));
        world.act(Action::Dial(last));
        world.run(seconds(3 * 3600));
        for side in 0..2 {
            let conns: Vec<_> = world.sides[side].conns.keys().copied().collect();
            prop_assert_eq!(conns, vec![world.in_use(side).expect("a connection is in use")]);
        }
        let ours = world.in_use(0).expect("checked");
        prop_assert_eq!(world.sides[0].conns[&ours].other, world.in_use(1));
    }
}
