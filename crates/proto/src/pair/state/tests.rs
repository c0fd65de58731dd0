//! One side of a pair, told what happens and asked what it does and when: every transition, and what is bounded. Two
//! sides that race are in `races`.

mod races;

use super::*;
use crate::ids::{Ed25519Id, RelayIds, RsaId};
use crate::pair::{PairCounters, Pairs};
use core::net::{IpAddr, Ipv4Addr};

const OURS: [u8; 32] = [1; 32];
const THEIRS: [u8; 32] = [2; 32];
const PEER: RelayIds = RelayIds { rsa: RsaId([7; 20]), ed25519: Ed25519Id([8; 32]) };
/// Where the peer is.
const HOME: Place = Place { addr: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), canonical: true };
const QUIC: TransportId = TransportId(1);
/// More steps or outputs than this at one instant mean that a side goes in circles.
const STEPS_PER_INSTANT_MAX: u32 = 10_000;

fn offer(key: [u8; 32]) -> Offer {
    Offer { key, transports: vec![OfferedTransport { id: QUIC, port: 443, flows_max: 100 }] }
}

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

/// A side of a pair whose endpoint opens whatever is asked, names connections 1, 2, 3, …, and decides nothing.
struct Bench {
    pairs: Pairs,
    now: Instant,
    conns: u64,
    /// What was wanted, each line with its second.
    log: Vec<String>,
    last_open: Option<OpenRequest>,
    has_secrets: bool,
}

impl Bench {
    fn new() -> Self {
        Bench {
            pairs: Pairs::new(offer(OURS), 10),
            now: Instant::ZERO,
            conns: 0,
            log: Vec::new(),
            last_open: None,
            has_secrets: true,
        }
    }

    /// A side with one channel that won and vouches.
    fn vouched(role: Role) -> Self {
        let mut bench = Bench::new();
        bench.channel(1, role);
        bench.offer(1, THEIRS);
        bench
    }

    /// A side with the live connection 1.
    fn ready(role: Role) -> Self {
        let mut bench = Bench::vouched(role);
        bench.say(PairInput::Ready { conn: conn(1) });
        bench.log.clear();
        bench
    }

    fn say(&mut self, input: PairInput<'_>) {
        self.pairs.handle(self.now, PEER, input);
        self.listen();
    }

    /// A channel opens and wins.
    fn channel(&mut self, number: u64, role: Role) {
        self.channel_to(number, role, HOME);
    }

    fn channel_to(&mut self, number: u64, role: Role, place: Place) {
        self.say(opened(number, role, place));
        self.say(PairInput::Winner(Some(socket(number))));
    }

    fn offer(&mut self, number: u64, key: [u8; 32]) {
        let body = offer(key).encode();
        self.say(PairInput::Vpadding { channel: socket(number), body: &body });
    }

    fn close(&mut self, number: u64) {
        self.say(PairInput::ChannelClosed { channel: socket(number), by_peer: false });
    }

    fn end(&mut self, number: u64, error: ConnectionError) {
        self.say(PairInput::Ended { conn: conn(number), error: &error });
    }

    /// Time passes up to this second.
    fn until(&mut self, second: u64) {
        let end = Instant::ZERO + seconds(second);
        let mut still = 0;
        while let Some(at) = self.pairs.poll_timeout().filter(|at| *at <= end) {
            assert!(at >= self.now, "a time-out lies in the past");
            still = if at > self.now { 0 } else { still + 1 };
            assert!(still < STEPS_PER_INSTANT_MAX, "time stands still at {at:?}");
            self.now = at;
            self.pairs.handle_timeout(at);
            self.listen();
        }
        self.now = end;
    }

    fn listen(&mut self) {
        let mut outputs = 0;
        while let Some((peer, output)) = self.pairs.poll_output() {
            outputs += 1;
            assert!(outputs < STEPS_PER_INSTANT_MAX, "its wishes do not end: {output:?}");
            assert_eq!(peer, PEER);
            let text = match output {
                PairOutput::SendOffer { channel, body } => {
                    assert_eq!(Offer::parse(&body).map(|offer| offer.key), Ok(self.pairs.own.offer.key));
                    format!("offer on {}", channel.get() / 2)
                }
                PairOutput::Open(request) => self.open(&request),
                PairOutput::Close { conn } => format!("close {}", conn.conn.0),
                PairOutput::UseFlows { conn } => format!("use flows of {}", conn.conn.0),
                PairOutput::Probe { conn } => format!("probe {}", conn.conn.0),
                PairOutput::UseTls { .. } => "use TLS".to_owned(),
                PairOutput::DialTls => "dial TLS".to_owned(),
                PairOutput::Fallback { reason, .. } => format!("fallback {}", reason.label()),
            };
            self.log.push(format!("{} {text}", self.now.since(Instant::ZERO).as_secs()));
        }
        check(&self.pairs);
    }

    fn open(&mut self, request: &OpenRequest) -> String {
        self.last_open = Some(*request);
        let attempt = request.attempt;
        if !self.has_secrets {
            self.pairs.handle(self.now, PEER, PairInput::NotOpened { attempt });
            return "cannot open".to_owned();
        }
        self.conns += 1;
        let conn = ConnId(self.conns);
        self.pairs.handle(self.now, PEER, PairInput::Opened { attempt, conn });
        let verb = if request.role == Role::Initiator { "dial" } else { "listen as" };
        format!("{verb} {} over {} slot {}", self.conns, request.channel.get() / 2, request.purpose.slot)
    }

    fn said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    fn counters(&self) -> &PairCounters {
        self.pairs.counters()
    }
}

fn opened(number: u64, role: Role, place: Place) -> PairInput<'static> {
    PairInput::ChannelOpened { channel: socket(number), role, place, listed: true, exporter: true }
}

fn socket(number: u64) -> SocketId {
    SocketId::dialled(number)
}

fn conn(number: u64) -> ConnKey {
    ConnKey { transport: QUIC, conn: ConnId(number) }
}

/// The bounds of a pair, after every input.
fn check(pairs: &Pairs) {
    let mut conns = 0;
    for pair in pairs.pairs.values() {
        assert!(pair.channels.len() <= CHANNELS_MAX);
        for track in &pair.tracks {
            let dials = track.attempts.iter().filter(|attempt| attempt.role == Role::Initiator);
            assert!(dials.count() <= 1);
            assert!(track.draining.len() <= DRAINING_MAX);
            assert!(track.slots.len() <= CHANNELS_MAX);
            assert!(track.in_use.is_none_or(|conn| track.live.is_some_and(|live| live.conn == conn)));
            conns += track.attempts.len() + track.draining.len() + usize::from(track.live.is_some());
        }
    }
    assert_eq!(pairs.conns.len(), conns, "every connection has its peer, and no other is remembered");
}

#[test]
fn the_initiator_offers_and_dials_at_once() {
    let mut bench = Bench::new();
    bench.channel(1, Role::Initiator);
    assert_eq!(bench.said(), ["0 offer on 1"]);
    bench.until(5);
    bench.offer(1, THEIRS);
    assert_eq!(bench.said(), ["5 dial 1 over 1 slot 0"]);
    let request = bench.last_open.expect("a dial");
    let digests = [OURS, THEIRS].map(|key| OfferDigest::of(&offer(key).encode()));
    let purpose = Purpose { transport: QUIC, slot: 0, offers: digests, keys: [OURS, THEIRS] };
    assert_eq!(request.purpose, purpose);
    assert_eq!((request.peer_port, request.peer_key, request.flows_max), (443, THEIRS, 100));
    bench.say(PairInput::Ready { conn: conn(1) });
    assert_eq!(bench.said(), ["5 use flows of 1"]);
    assert_eq!(bench.pairs.flows_to(&PEER, QUIC), Some(conn(1)));
    assert_eq!(bench.pairs.peer_of(conn(1)), Some(PEER));
    assert_eq!(bench.pairs.in_use(), 1);
}

#[test]
fn the_responder_listens_with_the_same_purpose() {
    let mut bench = Bench::vouched(Role::Responder);
    assert_eq!(bench.said(), ["0 offer on 1", "0 listen as 1 over 1 slot 0"]);
    let request = bench.last_open.expect("a listener");
    let digests = [THEIRS, OURS].map(|key| OfferDigest::of(&offer(key).encode()));
    let purpose = Purpose { transport: QUIC, slot: 0, offers: digests, keys: [THEIRS, OURS] };
    assert_eq!((request.purpose, request.peer_key), (purpose, THEIRS));
    bench.say(PairInput::Ready { conn: conn(1) });
    assert_eq!(bench.said(), ["0 use flows of 1"]);
    bench.until(1000);
    assert_eq!(bench.said(), [""; 0]);
}

#[test]
fn nothing_goes_to_a_peer_outside_the_consensus() {
    let mut bench = Bench::new();
    let role = Role::Initiator;
    bench.say(PairInput::ChannelOpened {
        channel: socket(1),
        role,
        place: HOME,
        listed: false,
        exporter: true,
    });
    bench.say(PairInput::Winner(Some(socket(1))));
    bench.offer(1, THEIRS);
    bench.until(100);
    assert_eq!(bench.said(), [""; 0]);
    // The consensus that lists it comes later; its offer was kept.
    bench.pairs.handle_consensus(bench.now, |peer| *peer == PEER);
    bench.listen();
    assert_eq!(bench.said(), ["100 offer on 1", "100 dial 1 over 1 slot 0"]);
}

#[test]
fn a_peer_that_left_the_consensus_keeps_what_is_live_and_gets_no_more() {
    let mut bench = Bench::ready(Role::Initiator);
    bench.pairs.handle_consensus(bench.now, |_| false);
    bench.until(60);
    assert_eq!(bench.said(), [""; 0]);
    bench.end(1, ConnectionError::PathDead);
    bench.until(10_000);
    assert_eq!(
        bench.said(),
        ["60 use TLS", "60 fallback path_dead"].map(String::from).into_iter().rev().collect::<Vec<_>>()
    );
}

#[test]
fn nothing_is_offered_without_an_exporter() {
    let mut bench = Bench::new();
    let role = Role::Initiator;
    bench.say(PairInput::ChannelOpened {
        channel: socket(1),
        role,
        place: HOME,
        listed: true,
        exporter: false,
    });
    bench.say(PairInput::Winner(Some(socket(1))));
    bench.offer(1, THEIRS);
    bench.until(100);
    assert_eq!(bench.said(), [""; 0]);
}

#[test]
fn padding_is_dropped_and_bad_or_repeated_offers_are_refused() {
    let mut bench = Bench::new();
    bench.channel(1, Role::Initiator);
    bench.say(PairInput::Vpadding { channel: socket(1), body: &[0; 100] });
    assert_eq!(bench.counters().offers_refused, 0);
    bench.say(PairInput::Vpadding { channel: socket(1), body: b"\x89heddle\n\x02" });
    assert_eq!(bench.counters().offers_refused, 1);
    bench.offer(1, THEIRS);
    bench.offer(1, THEIRS);
    assert_eq!((bench.counters().offers_received, bench.counters().offers_refused), (1, 2));
    assert_eq!(bench.said(), ["0 offer on 1", "0 dial 1 over 1 slot 0"]);
    assert_eq!(bench.last_open.map(|open| open.peer_key), Some(THEIRS));
}

#[test]
fn a_peer_without_our_transports_stays_on_tls() {
    let mut bench = Bench::new();
    bench.channel(1, Role::Responder);
    let other = OfferedTransport { id: TransportId(99), port: 1, flows_max: 1 };
    let body = Offer { key: THEIRS, transports: vec![other] }.encode();
    bench.say(PairInput::Vpadding { channel: socket(1), body: &body });
    bench.until(100);
    assert_eq!(bench.said(), ["0 offer on 1"]);
}

#[test]
fn three_tries_then_waits_that_double() {
    let mut bench = Bench::vouched(Role::Initiator);
    let mut dials = Vec::new();
    let mut number = 0;
    while bench.now < Instant::ZERO + seconds(20_000) {
        let next = bench.now.since(Instant::ZERO).as_secs() + 1;
        bench.until(next);
        if bench.conns > number {
            number = bench.conns;
            dials.push(bench.now.since(Instant::ZERO).as_secs());
            bench.until(next + 29);
            bench.end(number, ConnectionError::NoAnswer);
        }
    }
    // The dial of a slot begins ten seconds into it, unless a wait ends a little later.
    assert_eq!(dials[..5], [1, 40, 70, 220, 490]);
    let waits: Vec<_> = dials.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(waits[4..7], [510, 990, 1950]);
    assert!(waits[7..].iter().all(|wait| (3600..3660).contains(wait)), "{waits:?}");
    assert_eq!(bench.counters().fallbacks[Fallback::NoAnswer as usize], dials.len() as u64);
}

#[test]
fn each_slot_is_listened_to_until_somebody_comes() {
    let mut bench = Bench::vouched(Role::Responder);
    for number in 1..=3 {
        bench.until(30 * number);
        bench.end(number, ConnectionError::NoAnswer);
    }
    let expected = [
        "0 offer on 1",
        "0 listen as 1 over 1 slot 0",
        "30 listen as 2 over 1 slot 1",
        "30 fallback no_answer",
        "60 listen as 3 over 1 slot 2",
        "90 listen as 4 over 1 slot 3",
    ];
    assert_eq!(bench.said(), expected);
    bench.say(PairInput::Ready { conn: conn(4) });
    bench.until(1000);
    assert_eq!(bench.said(), ["90 use flows of 4"]);
}

#[test]
fn a_dead_path_leads_to_tls_and_to_another_try() {
    let mut bench = Bench::ready(Role::Initiator);
    bench.until(700);
    bench.end(1, ConnectionError::PathDead);
    bench.until(800);
    assert_eq!(bench.said(), ["700 fallback path_dead", "700 dial 2 over 1 slot 23", "700 use TLS"]);
    bench.say(PairInput::Ready { conn: conn(2) });
    assert_eq!(bench.said(), ["800 use flows of 2"]);
}

#[test]
fn connections_that_die_young_count_as_failed_tries() {
    let mut bench = Bench::vouched(Role::Initiator);
    for number in 1..=3 {
        let at = bench.now.since(Instant::ZERO).as_secs();
        bench.say(PairInput::Ready { conn: conn(number) });
        bench.until(at + 5);
        bench.end(number, ConnectionError::PathDead);
        bench.until(at + 40);
    }
    let dials: Vec<_> = bench.said().into_iter().filter(|line| line.contains("dial")).collect();
    let expected = ["0 dial 1 over 1 slot 0", "40 dial 2 over 1 slot 1", "70 dial 3 over 1 slot 2"];
    assert_eq!(dials, expected);
    bench.until(400);
    assert_eq!(bench.said().last().map(String::as_str), Some("220 dial 4 over 1 slot 7"));
}

#[test]
fn a_channel_may_die_while_its_connection_is_made() {
    let mut bench = Bench::vouched(Role::Initiator);
    bench.close(1);
    bench.say(PairInput::Ready { conn: conn(1) });
    assert_eq!(bench.said(), ["0 offer on 1", "0 dial 1 over 1 slot 0", "0 use flows of 1"]);
}

#[test]
fn a_connection_outlives_its_channel_and_serves_the_next() {
    let mut bench = Bench::ready(Role::Initiator);
    bench.say(PairInput::Occupied { conn: conn(1) });
    bench.until(10);
    bench.close(1);
    bench.until(11);
    bench.channel(2, Role::Initiator);
    bench.offer(2, THEIRS);
    bench.until(1000);
    assert_eq!(bench.said(), ["11 dial TLS", "11 offer on 2"]);
    assert_eq!(bench.pairs.flows_to(&PEER, QUIC), Some(conn(1)));
}

#[test]
fn a_responder_listens_once_on_a_new_channel_though_a_connection_lives() {
    let mut bench = Bench::ready(Role::Responder);
    bench.close(1);
    bench.channel(2, Role::Responder);
    bench.offer(2, THEIRS);
    bench.until(30);
    bench.end(2, ConnectionError::NoAnswer);
    bench.until(1000);
    assert_eq!(bench.said(), ["0 offer on 2", "0 listen as 2 over 2 slot 0"]);
    assert_eq!(bench.counters().fallbacks, [0; Fallback::ALL.len()]);
}

#[test]
fn a_peer_with_another_key_is_dialled_anew_and_the_old_connection_drains() {
    let mut bench = Bench::ready(Role::Initiator);
    bench.say(PairInput::Occupied { conn: conn(1) });
    bench.close(1);
    bench.channel(2, Role::Initiator);
    bench.offer(2, [3; 32]);
    assert_eq!(bench.said(), ["0 offer on 2", "0 dial 2 over 2 slot 0"]);
    bench.say(PairInput::Ready { conn: conn(2) });
    bench.until(100);
    assert_eq!(bench.said(), ["0 use flows of 2"]);
    bench.say(PairInput::Drained { conn: conn(1) });
    bench.until(105);
    bench.say(PairInput::Occupied { conn: conn(1) });
    bench.until(120);
    bench.say(PairInput::Drained { conn: conn(1) });
    bench.until(200);
    assert_eq!(bench.said(), ["130 close 1"]);
    assert_eq!(bench.pairs.peer_of(conn(1)), None);
}

#[test]
fn another_key_of_the_peer_ends_a_wait() {
    let mut bench = Bench::vouched(Role::Initiator);
    for number in 1..=3 {
        bench.until(40 * number);
        bench.end(number, ConnectionError::WrongProof);
    }
    bench.close(1);
    bench.said();
    bench.channel(2, Role::Initiator);
    bench.offer(2, [3; 32]);
    assert_eq!(bench.said(), ["120 offer on 2", "120 dial 4 over 2 slot 0"]);
}

#[test]
fn a_wait_outlasts_the_channel() {
    let mut bench = Bench::vouched(Role::Initiator);
    for number in 1..=3 {
        bench.until(40 * number);
        bench.end(number, ConnectionError::NoAnswer);
    }
    bench.close(1);
    bench.said();
    bench.channel(2, Role::Initiator);
    bench.offer(2, THEIRS);
    bench.until(1000);
    assert_eq!(bench.said(), ["120 offer on 2", "250 dial 4 over 2 slot 4"]);
}

#[test]
fn our_replaced_key_is_offered_on_channels_that_are_open() {
    let mut bench = Bench::ready(Role::Initiator);
    bench.pairs.replace_key(bench.now, [5; 32]);
    bench.listen();
    assert_eq!(bench.pairs.flows_to(&PEER, QUIC), Some(conn(1)));
    bench.until(1000);
    assert_eq!(bench.said(), ["0 offer on 1"], "what is live lives on");
    bench.end(1, ConnectionError::PathDead);
    bench.until(1010);
    assert_eq!(bench.said(), ["1000 fallback path_dead", "1000 dial 2 over 1 slot 33", "1000 use TLS"]);
    let purpose = bench.last_open.expect("a dial").purpose;
    let digests = [[5; 32], THEIRS].map(|key| OfferDigest::of(&offer(key).encode()));
    assert_eq!((purpose.keys, purpose.offers), ([[5; 32], THEIRS], digests));
}

#[test]
fn the_peers_replaced_key_counts_for_the_next_try() {
    let mut bench = Bench::ready(Role::Responder);
    bench.until(100);
    bench.offer(1, [3; 32]);
    bench.until(1000);
    assert_eq!(bench.said(), [""; 0], "what is live lives on");
    bench.end(1, ConnectionError::PathDead);
    assert_eq!(bench.last_open.map(|open| (open.peer_key, open.purpose.slot)), Some(([3; 32], 33)));
    for key in 10..100 {
        bench.offer(1, [key; 32]);
    }
    assert_eq!(bench.counters().offers_received, OFFERS_MAX.into(), "their number is bounded");
}

#[test]
fn a_dial_over_a_channel_that_loses_is_given_up() {
    let mut bench = Bench::vouched(Role::Initiator);
    bench.said();
    // The peer dialled TLS at the same time; its channel wins.
    bench.channel(2, Role::Responder);
    bench.offer(2, THEIRS);
    assert_eq!(bench.said(), ["0 offer on 2", "0 close 1", "0 listen as 2 over 2 slot 0"]);
    bench.say(PairInput::Ready { conn: conn(2) });
    assert_eq!(bench.said(), ["0 use flows of 2"]);
}

#[test]
fn the_losers_connection_is_used_until_the_winners_is_ready_and_then_drains() {
    let mut bench = Bench::ready(Role::Responder);
    bench.say(PairInput::Occupied { conn: conn(1) });
    bench.channel(2, Role::Initiator);
    bench.offer(2, THEIRS);
    assert_eq!(bench.said(), ["0 offer on 2", "0 dial 2 over 2 slot 0"]);
    assert_eq!(bench.pairs.flows_to(&PEER, QUIC), Some(conn(1)));
    bench.say(PairInput::Ready { conn: conn(2) });
    bench.say(PairInput::Drained { conn: conn(1) });
    bench.until(60);
    assert_eq!(bench.said(), ["0 use flows of 2", "10 close 1"]);
}

#[test]
fn a_losers_connection_that_comes_late_only_drains() {
    let mut bench = Bench::new();
    bench.channel(1, Role::Responder);
    bench.offer(1, THEIRS);
    bench.channel(2, Role::Responder);
    bench.offer(2, THEIRS);
    bench.said();
    bench.say(PairInput::Ready { conn: conn(2) });
    bench.say(PairInput::Ready { conn: conn(1) });
    bench.until(20);
    assert_eq!(bench.said(), ["0 use flows of 2", "10 close 1"]);
}

#[test]
fn a_week_old_connection_drains_and_is_replaced() {
    let mut bench = Bench::ready(Role::Initiator);
    bench.say(PairInput::Occupied { conn: conn(1) });
    let week = 7 * 24 * 3600;
    bench.until(week - 1);
    assert_eq!(bench.said(), [""; 0]);
    bench.until(week + 20);
    assert_eq!(
        bench.said(),
        [format!("{} dial 2 over 1 slot 20160", week + 10), format!("{week} use TLS")]
            .into_iter()
            .rev()
            .collect::<Vec<_>>()
    );
    bench.say(PairInput::Ready { conn: conn(2) });
    bench.say(PairInput::Drained { conn: conn(1) });
    bench.until(week + 60);
    assert_eq!(bench.said(), [format!("{} use flows of 2", week + 20), format!("{} close 1", week + 30)]);
}

#[test]
fn a_peer_that_answers_worse_on_flows_goes_back_to_tls_for_an_hour() {
    let mut bench = Bench::ready(Role::Initiator);
    (0..20).for_each(|_| bench.say(PairInput::Created { over: Over::Tls, answered: true }));
    (0..15).for_each(|_| bench.say(PairInput::Created { over: Over::Flow(conn(1)), answered: false }));
    assert_eq!(bench.said(), [""; 0]);
    bench.say(PairInput::Created { over: Over::Flow(conn(1)), answered: false });
    bench.until(10_000);
    assert_eq!(bench.said(), ["0 fallback worse_than_tls", "0 use TLS", "3600 use flows of 1"]);
}

#[test]
fn a_suspect_connection_takes_no_new_circuits_until_it_answers() {
    let mut bench = Bench::ready(Role::Initiator);
    bench.say(PairInput::Suspect { conn: conn(1), suspect: true });
    bench.until(20);
    bench.say(PairInput::Suspect { conn: conn(1), suspect: false });
    bench.until(1000);
    // Nothing is dialled beside it, and nothing waits.
    assert_eq!(bench.said(), ["0 fallback suspect", "0 use TLS", "25 use flows of 1"]);
}

#[test]
fn a_path_that_stumbles_takes_new_circuits_only_after_it_has_answered_for_a_while() {
    let mut bench = Bench::ready(Role::Initiator);
    for (second, suspect) in [(10, true), (14, false), (17, true), (21, false), (30, true), (40, false)] {
        bench.until(second);
        bench.say(PairInput::Suspect { conn: conn(1), suspect });
    }
    bench.until(1000);
    // 20 s after the third time.
    assert_eq!(bench.said(), ["10 fallback suspect", "10 use TLS", "60 use flows of 1"]);
}

#[test]
fn what_a_restarted_peer_no_longer_knows_ends_when_it_is_silent() {
    // Whether the silence is noticed before the peer's new offer or after, and whether it is new.
    for (suspect_at, key, ends) in [
        (1, [3; 32], true),
        (10, [3; 32], true),
        (1, THEIRS, false),
        (10, THEIRS, false),
        (90, [3; 32], false),
    ] {
        let mut bench = Bench::ready(Role::Initiator);
        bench.say(PairInput::Occupied { conn: conn(1) });
        bench.close(1);
        if suspect_at < 5 {
            bench.until(suspect_at);
            bench.say(PairInput::Suspect { conn: conn(1), suspect: true });
        }
        bench.until(5);
        bench.channel(2, Role::Initiator);
        bench.offer(2, key);
        if suspect_at >= 5 {
            bench.until(suspect_at);
            bench.say(PairInput::Suspect { conn: conn(1), suspect: true });
        }
        let closed_at = format!("{} close 1", suspect_at.max(5));
        let said = bench.said();
        assert_eq!(said.contains(&closed_at), ends, "{suspect_at}: {said:?}");
    }
}

#[test]
fn a_peer_that_closed_tls_and_is_silent_is_gone() {
    // When it is silent, whether it was the one who closed TLS, and when it comes back with its key.
    for (suspect_at, by_peer, back_at, ends) in [
        (3, true, None, true),
        (59, true, None, true),
        (61, true, None, false),
        (3, false, None, false),
        (10, true, Some(5), false),
        (3, true, Some(5), true),
    ] {
        let mut bench = Bench::ready(Role::Responder);
        bench.say(PairInput::Occupied { conn: conn(1) });
        bench.say(PairInput::ChannelClosed { channel: socket(1), by_peer });
        assert_eq!(bench.said().contains(&"0 probe 1".to_owned()), by_peer);
        let come_back = |bench: &mut Bench, at| {
            bench.until(at);
            bench.channel(2, Role::Responder);
            bench.offer(2, THEIRS);
        };
        if let Some(at) = back_at.filter(|at| *at < suspect_at) {
            come_back(&mut bench, at);
        }
        bench.until(suspect_at);
        bench.say(PairInput::Suspect { conn: conn(1), suspect: true });
        if let Some(at) = back_at.filter(|at| *at > suspect_at) {
            come_back(&mut bench, at);
        }
        let said = bench.said();
        assert_eq!(said.contains(&format!("{suspect_at} close 1")), ends, "{suspect_at} {by_peer}: {said:?}");
    }
}

/// Each shard of a peer has a port and a key.
#[test]
fn another_shard_of_a_peer_is_no_new_start() {
    let mut bench = Bench::ready(Role::Initiator);
    bench.close(1);
    bench.channel(2, Role::Initiator);
    let mut other = offer([3; 32]);
    other.transports[0].port += 1;
    let body = other.encode();
    bench.say(PairInput::Vpadding { channel: socket(2), body: &body });
    bench.say(PairInput::Suspect { conn: conn(1), suspect: true });
    let said = bench.said();
    assert!(!said.iter().any(|line| line.contains("close")), "{said:?}");
}

#[test]
fn a_peer_that_replaces_its_key_knows_its_connections() {
    let mut bench = Bench::ready(Role::Initiator);
    bench.offer(1, [3; 32]);
    bench.close(1);
    bench.channel(2, Role::Initiator);
    bench.offer(2, [3; 32]);
    bench.say(PairInput::Suspect { conn: conn(1), suspect: true });
    let said = bench.said();
    assert!(!said.iter().any(|line| line.contains("close")), "{said:?}");
}

#[test]
fn a_peer_that_is_as_bad_on_tls_stays_on_flows() {
    let mut bench = Bench::ready(Role::Initiator);
    (0..20).for_each(|_| bench.say(PairInput::Created { over: Over::Tls, answered: false }));
    (0..60).for_each(|_| bench.say(PairInput::Created { over: Over::Flow(conn(1)), answered: false }));
    assert_eq!(bench.said(), [""; 0]);
}

#[test]
fn circuits_keep_to_tls_while_relays_are_to_pad() {
    let mut bench = Bench::ready(Role::Initiator);
    bench.pairs.handle_padding(bench.now, true);
    bench.listen();
    bench.until(100);
    bench.end(1, ConnectionError::PathDead);
    bench.until(1000);
    assert_eq!(bench.said(), ["0 use TLS", "100 fallback path_dead"]);
    bench.pairs.handle_padding(bench.now, false);
    bench.listen();
    bench.until(1010);
    assert_eq!(bench.said(), ["1000 dial 2 over 1 slot 33"]);
}

#[test]
fn tls_is_dialled_again_while_circuits_run_on_flows() {
    let mut bench = Bench::ready(Role::Initiator);
    bench.say(PairInput::Occupied { conn: conn(1) });
    bench.close(1);
    bench.until(100);
    let dials = [1, 2, 3, 7, 15, 31, 63].map(|second| format!("{second} dial TLS"));
    assert_eq!(bench.said(), dials);
    bench.until(3000);
    let last: Vec<_> =
        bench.said().iter().filter_map(|line| line.split(' ').next()?.parse::<u64>().ok()).collect();
    assert!(last.windows(2).skip(2).all(|pair| pair[1] - pair[0] == 256), "{last:?}");
    bench.say(PairInput::Drained { conn: conn(1) });
    bench.until(3100);
    assert_eq!(bench.said(), [""; 0]);
}

#[test]
fn only_the_dialler_dials_tls_again() {
    let mut bench = Bench::ready(Role::Responder);
    bench.say(PairInput::Occupied { conn: conn(1) });
    bench.close(1);
    bench.until(100);
    assert_eq!(bench.said(), [""; 0]);
}

#[test]
fn a_connection_without_flows_and_channels_is_closed_and_the_pair_forgotten() {
    let mut bench = Bench::ready(Role::Initiator);
    bench.until(1000);
    bench.close(1);
    bench.until(2000);
    assert_eq!(bench.said(), ["1180 use TLS", "1190 close 1"]);
    assert!(bench.pairs.pairs.is_empty());
    assert_eq!(bench.pairs.poll_timeout(), None);
}

#[test]
fn too_many_draining_connections_stop_further_ones() {
    let mut bench = Bench::ready(Role::Responder);
    for number in 1..=4 {
        bench.say(PairInput::Occupied { conn: conn(number) });
        bench.close(number);
        bench.channel(number + 1, Role::Responder);
        bench.offer(number + 1, [10 + number as u8; 32]);
        bench.say(PairInput::Ready { conn: conn(number + 1) });
    }
    bench.until(200);
    let said = bench.said();
    assert_eq!(said.iter().filter(|line| line.contains("use flows")).count(), 3);
    assert_eq!(bench.conns, 4, "the fifth is not listened for while three drain: {said:?}");
    bench.end(1, ConnectionError::PeerClosed);
    assert_eq!(bench.said(), ["200 listen as 5 over 5 slot 6"]);
}

#[test]
fn a_newcomer_beyond_the_draining_ones_is_closed() {
    let mut bench = Bench::new();
    for number in 1..=5 {
        bench.channel(number, Role::Responder);
        bench.offer(number, THEIRS);
    }
    bench.said();
    for number in 1..=5 {
        bench.say(PairInput::Ready { conn: conn(number) });
        bench.say(PairInput::Occupied { conn: conn(number) });
    }
    let uses = [1, 2, 3, 4].map(|number| format!("0 use flows of {number}"));
    let said = bench.said();
    assert_eq!(said[..4], uses);
    assert_eq!(said[4..], ["0 close 5", "0 fallback crowded"]);
    assert_eq!(bench.pairs.flows_to(&PEER, QUIC), Some(conn(4)));
}

#[test]
fn a_channel_that_exports_nothing_after_all_counts_as_a_failure() {
    let mut bench = Bench::new();
    bench.has_secrets = false;
    bench.channel(1, Role::Initiator);
    bench.offer(1, THEIRS);
    bench.until(100);
    assert_eq!(bench.counters().dials, 3);
    assert_eq!(bench.counters().fallbacks[Fallback::NoSecrets as usize], 3);
}

/// A connection that only circuits to a stranger's address may use does not stand in for one to the peer's own.
#[test]
fn a_connection_goes_on_with_a_channel_whose_circuits_can_use_it() {
    let other = Place { addr: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 66)), canonical: false };
    let nameless = Place { canonical: false, ..HOME };
    for (first, second, goes_on) in [
        (HOME, HOME, true),
        (HOME, other, true),
        (nameless, nameless, true),
        (other, HOME, false),
        (other, nameless, false),
    ] {
        for (role, verb) in [(Role::Initiator, "dial"), (Role::Responder, "listen as")] {
            let mut bench = Bench::new();
            bench.channel_to(1, role, first);
            bench.offer(1, THEIRS);
            bench.say(PairInput::Ready { conn: conn(1) });
            bench.close(1);
            bench.until(40);
            bench.said();
            bench.channel_to(2, role, second);
            bench.offer(2, THEIRS);
            bench.until(80);
            let said = bench.said();
            // The first slot of a channel is listened to in any case.
            let slot = if role == Role::Initiator { 0 } else { 1 };
            let opens = said.iter().any(|line| line.contains(verb) && line.contains(&format!("slot {slot}")));
            assert_eq!(opens, !goes_on, "{first:?}, {second:?}, {role:?}: {said:?}");
        }
    }
}

#[test]
fn channels_and_pairs_are_bounded() {
    let mut bench = Bench::new();
    for number in 1..=20 {
        bench.channel(number, Role::Responder);
        bench.offer(number, THEIRS);
    }
    assert_eq!(bench.counters().offers_sent, 8);
    for number in 0..20 {
        let peer = RelayIds { rsa: RsaId([number; 20]), ..PEER };
        let opened = opened(100 + u64::from(number), Role::Responder, HOME);
        bench.pairs.handle(bench.now, peer, opened);
    }
    assert_eq!(bench.pairs.pairs.len(), 10);
}
