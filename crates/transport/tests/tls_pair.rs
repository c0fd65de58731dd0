//! Two TLS channels back to back in memory, and what happens when the bytes between them suffer.

mod support;

use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::channel::{
    Channel, ChannelError, Incoming, Opened, Role, StreamTransport, Target, VPADDING_LEN_MAX,
};
use heddle_proto::ids::RelayIds;
use heddle_seam::rng::{Rng, Seed};
use heddle_seam::time::{Duration, Instant, UnixTime};
use heddle_transport::tls::{TlsIdentity, TlsOptions};
use proptest::prelude::*;
use std::net::SocketAddr;
use std::sync::OnceLock;

const INITIATOR: usize = 0;
const RESPONDER: usize = 1;
/// When the keys and certificates are made and all channels open: the end of 2026, as in the simulator.
const UNIX_S: u64 = 1_798_000_000;
/// More turns than any test takes until nobody has anything to send.
const TURNS_MAX: u32 = 10_000;

/// Keys take a while to make, so all tests share two relays.
fn relays() -> &'static [TlsIdentity; 2] {
    static RELAYS: OnceLock<[TlsIdentity; 2]> = OnceLock::new();
    RELAYS.get_or_init(|| [support::relay_identity(1, UNIX_S), support::relay_identity(2, UNIX_S)])
}

fn ids(relay: usize) -> RelayIds {
    relays()[relay].link.ids
}

/// What came out of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Got {
    Opened(Opened),
    Cell(u32, Command, Box<Body>),
    Vpadding(Vec<u8>),
}

struct Pair {
    channels: [Box<dyn Channel>; 2],
    got: [Vec<Got>; 2],
    now: Instant,
    /// Bytes per read.
    read_len: usize,
    /// Bytes per write.
    writable: usize,
}

struct Setup {
    options: [TlsOptions; 2],
    initiator_is_relay: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Setup { options: [TlsOptions::default(), TlsOptions::default()], initiator_is_relay: true }
    }
}

impl Pair {
    fn new(setup: Setup) -> Self {
        let addr: SocketAddr = "127.0.0.1:9001".parse().unwrap();
        let wall = UnixTime { ns: UNIX_S * 1_000_000_000 };
        let [ours, theirs] = setup.options;
        let identity = setup.initiator_is_relay.then(|| relays()[INITIATOR].clone());
        let mut dialler = support::transport(ours, identity, 1);
        let mut listener = support::transport(theirs, Some(relays()[RESPONDER].clone()), 2);
        let target =
            Target { rsa: ids(RESPONDER).rsa, ed25519: Some(ids(RESPONDER).ed25519), addrs: vec![addr] };
        Pair {
            channels: [
                dialler.dial(Instant::ZERO, wall, &target, addr),
                listener.accept(Instant::ZERO, wall, addr, addr),
            ],
            got: [Vec::new(), Vec::new()],
            now: Instant::ZERO,
            read_len: 16 * 1024,
            writable: 64 * 1024,
        }
    }

    fn open(setup: Setup) -> Self {
        let mut pair = Self::new(setup);
        pair.run().unwrap();
        assert!(pair.got.iter().all(|got| matches!(got[..], [Got::Opened(_)])));
        pair.got = [Vec::new(), Vec::new()];
        pair
    }

    /// What one side sends now.
    fn transmit(&mut self, from: usize) -> Vec<u8> {
        let mut out = Vec::new();
        self.channels[from].handle_writable(self.now, self.writable);
        self.channels[from].poll_transmit(self.now, &mut out);
        assert!(out.len() <= self.writable);
        out
    }

    fn receive(&mut self, to: usize, bytes: &[u8]) -> Result<(), ChannelError> {
        for mut read in bytes.chunks(self.read_len) {
            while !read.is_empty() {
                let taken = self.channels[to].handle_read(self.now, read)?;
                assert!(taken > 0, "nothing that came before is unread, and yet there is no room");
                support::work_off(&mut *self.channels[to], self.now)?;
                read = &read[taken..];
                while let Some(incoming) = self.channels[to].next_incoming(self.now)? {
                    self.got[to].push(match incoming {
                        Incoming::Opened(opened) => Got::Opened(opened),
                        Incoming::Vpadding { body } => Got::Vpadding(body.to_vec()),
                        Incoming::Cell { circ_id, command, body } => {
                            Got::Cell(circ_id.get(), command, Box::new(*body))
                        }
                    });
                }
            }
        }
        Ok(())
    }

    /// Moves bytes until nobody has any to send.
    fn run(&mut self) -> Result<(), ChannelError> {
        for _ in 0..TURNS_MAX {
            let mut moved = false;
            for from in [INITIATOR, RESPONDER] {
                let bytes = self.transmit(from);
                moved |= !bytes.is_empty();
                self.receive(1 - from, &bytes)?;
            }
            if !moved {
                return Ok(());
            }
        }
        panic!("somebody always has something to send");
    }

    fn send(&mut self, from: usize, circ_id: u32, command: Command, body: &Body) {
        let circ_id = CircId::new(circ_id).unwrap();
        self.channels[from].send(self.now, circ_id, command, body);
    }
}

fn body(rng: &mut Rng) -> Box<Body> {
    Box::new(rng.array())
}

fn link4() -> TlsOptions {
    TlsOptions { link_protocols: vec![4], ..TlsOptions::default() }
}

fn tls12() -> TlsOptions {
    TlsOptions { tls13: false, ..TlsOptions::default() }
}

#[test]
fn channels_open_over_both_tls_versions_and_both_link_protocols() {
    for (ours, theirs, link_protocol) in [
        (TlsOptions::default(), TlsOptions::default(), 5),
        (tls12(), TlsOptions::default(), 5),
        (TlsOptions::default(), tls12(), 5),
        (link4(), TlsOptions::default(), 4),
        (TlsOptions::default(), link4(), 4),
    ] {
        for initiator_is_relay in [false, true] {
            let options = [ours.clone(), theirs.clone()];
            let mut pair = Pair::new(Setup { options, initiator_is_relay });
            pair.run().unwrap();
            let localhost = Some([127, 0, 0, 1].into());
            let initiator = Opened {
                role: Role::Initiator,
                peer: Some(ids(RESPONDER)),
                peer_addrs: vec![[127, 0, 0, 1].into()],
                our_addr: localhost,
                clock_ahead_s: 0,
                link_protocol,
            };
            let responder = Opened {
                role: Role::Responder,
                peer: initiator_is_relay.then(|| ids(INITIATOR)),
                peer_addrs: if initiator_is_relay { initiator.peer_addrs.clone() } else { vec![] },
                our_addr: localhost,
                clock_ahead_s: 0,
                link_protocol,
            };
            assert_eq!(pair.got, [vec![Got::Opened(initiator)], vec![Got::Opened(responder)]]);
        }
    }
}

#[test]
fn cells_arrive_whole_and_in_order_however_the_bytes_are_cut() {
    let mut rng = Seed::from_number(4).rng();
    for (options, read_len, writable) in [
        (TlsOptions::default(), 1, 1 << 20),
        (TlsOptions::default(), 700, 4000),
        (tls12(), 64 * 1024, 1 << 20),
        (TlsOptions::default(), 1 << 20, 1 << 20),
    ] {
        let mut pair = Pair::open(Setup { options: [options, TlsOptions::default()], ..Setup::default() });
        (pair.read_len, pair.writable) = (read_len, writable);
        let mut sent = Vec::new();
        for _ in 0..20 {
            pair.channels[INITIATOR].handle_writable(pair.now, writable);
            for _ in 0..pair.channels[INITIATOR].capacity().min(150) {
                let body = body(&mut rng);
                pair.send(INITIATOR, 9, Command::RELAY, &body);
                sent.push(Got::Cell(9, Command::RELAY, body));
            }
            pair.run().unwrap();
        }
        assert!(sent.len() >= 140);
        assert!(pair.got[RESPONDER] == sent, "read {read_len}, written {writable}");
    }
}

/// Windows of systems, and how many cells a record has with them: what fits an eighth.
const WINDOWS: [(usize, usize); 6] =
    [(1_000, 1), (14_480, 3), (30_000, 7), (64_000, 15), (127_704, 31), (usize::MAX, 31)];

#[test]
fn capacity_is_what_fits_and_a_full_record_is_an_eighth_of_the_window() {
    for options in [TlsOptions::default(), tls12()] {
        let mut pair = Pair::open(Setup { options: [options, TlsOptions::default()], ..Setup::default() });
        for writable in [0, 100, 542, 543, 5000, 16_000, 40_000, 70_000] {
            for (window_bytes, cells) in WINDOWS {
                let channel = &mut pair.channels[INITIATOR];
                channel.handle_window(window_bytes);
                channel.handle_writable(Instant::ZERO, writable);
                let capacity = channel.capacity();
                let least = writable / (cells * 514 + 29) * cells;
                assert!((least..=writable / 514).contains(&capacity), "{capacity} in {writable}");
                let out = send_cells(&mut **channel, Instant::ZERO, capacity);
                assert!(out.len() <= writable);
                let records = count_records(&out);
                assert_eq!(records, capacity.div_ceil(cells), "{capacity} cells, window {window_bytes}");
                pair.receive(RESPONDER, &out).unwrap();
            }
        }
    }
}

#[test]
fn records_are_short_again_after_a_pause_until_the_system_tells() {
    let mut pair = Pair::open(Setup::default());
    let channel = &mut pair.channels[INITIATOR];
    channel.handle_window(1 << 20);
    let mut now = Instant::ZERO;
    let mut records_after = |pause_ms, window_bytes: Option<usize>| {
        now += Duration::from_millis(pause_ms);
        if let Some(bytes) = window_bytes {
            channel.handle_window(bytes);
        }
        channel.handle_writable(now, 64 << 10);
        count_records(&send_cells(&mut **channel, now, 31))
    };
    assert_eq!(records_after(0, None), 1);
    assert_eq!(records_after(199, None), 1, "the kernel's window shrinks after 200 ms");
    assert_eq!(records_after(200, None), 11);
    assert_eq!(records_after(1, None), 11, "nobody said that the window is longer");
    assert_eq!(records_after(1, Some(1 << 20)), 1);
    assert_eq!(records_after(3000, Some(1 << 20)), 11, "what was said in the pause is no longer true");
    assert_eq!(records_after(1, Some(40_000)), 4);
}

/// Sends so many cells, which are no more than the capacity, and gives the bytes.
fn send_cells(channel: &mut dyn Channel, now: Instant, cells: usize) -> Vec<u8> {
    let capacity = channel.capacity();
    for sent in 1..=cells {
        channel.send(now, CircId::new(1).unwrap(), Command::RELAY, &[1; 509]);
        assert_eq!(channel.capacity(), capacity - sent);
    }
    let mut out = Vec::new();
    assert!(!channel.poll_transmit(now, &mut out), "everything left at once");
    out
}

fn count_records(mut bytes: &[u8]) -> usize {
    let mut records = 0;
    while let [23, 3, 3, high, low, ..] = bytes {
        bytes = &bytes[5 + usize::from(u16::from_be_bytes([*high, *low]))..];
        records += 1;
    }
    assert!(bytes.is_empty());
    records
}

#[test]
fn closing_says_goodbye_after_what_was_sent() {
    let mut pair = Pair::open(Setup::default());
    pair.send(INITIATOR, 5, Command::DESTROY, &[9; 509]);
    pair.channels[INITIATOR].close();
    pair.send(INITIATOR, 5, Command::RELAY, &[9; 509]);
    assert_eq!(pair.channels[INITIATOR].capacity(), 0);
    let bytes = pair.transmit(INITIATOR);
    assert_eq!(pair.receive(RESPONDER, &bytes), Err(ChannelError::PeerClosed));
    assert_eq!(pair.got[RESPONDER], [Got::Cell(5, Command::DESTROY, Box::new([9; 509]))]);
    assert_eq!(pair.channels[RESPONDER].handle_eof(pair.now), Err(ChannelError::PeerClosed));
}

#[test]
fn a_stream_that_just_ends_ends_the_channel() {
    let mut pair = Pair::open(Setup::default());
    assert_eq!(pair.channels[RESPONDER].handle_eof(pair.now), Err(ChannelError::PeerClosed));
    assert_eq!(pair.channels[RESPONDER].handle_read(pair.now, &[1]), Err(ChannelError::PeerClosed));
}

#[test]
fn cells_of_a_full_record_are_lent_where_they_were_decrypted() {
    let mut pair = Pair::open(Setup::default());
    pair.channels[INITIATOR].handle_window(usize::MAX);
    for _ in 0..31 {
        pair.send(INITIATOR, 1, Command::RELAY, &[1; 509]);
    }
    let bytes = pair.transmit(INITIATOR);
    let channel = &mut pair.channels[RESPONDER];
    assert_eq!(channel.handle_read(Instant::ZERO, &bytes), Ok(bytes.len()));
    let mut addresses = Vec::new();
    while let Some(Incoming::Cell { body, .. }) = channel.next_incoming(Instant::ZERO).unwrap() {
        addresses.push(body.as_ptr().addr());
    }
    assert_eq!(addresses.len(), 31);
    assert!(addresses.windows(2).all(|pair| pair[1] - pair[0] == 514), "{addresses:x?}");
}

#[test]
fn a_record_that_is_begun_is_held_until_it_is_whole() {
    for options in [TlsOptions::default(), tls12()] {
        let mut pair = Pair::open(Setup { options: [options, TlsOptions::default()], ..Setup::default() });
        pair.channels[INITIATOR].handle_window(usize::MAX);
        for _ in 0..31 {
            pair.send(INITIATOR, 1, Command::RELAY, &[1; 509]);
        }
        let bytes = pair.transmit(INITIATOR);
        let begun = bytes.len() - 1;
        assert_eq!(pair.channels[RESPONDER].buffered_bytes(), 0);
        pair.receive(RESPONDER, &bytes[..begun]).unwrap();
        assert_eq!((pair.channels[RESPONDER].buffered_bytes(), pair.got[RESPONDER].len()), (begun, 0));
        pair.receive(RESPONDER, &bytes[begun..]).unwrap();
        assert_eq!((pair.channels[RESPONDER].buffered_bytes(), pair.got[RESPONDER].len()), (0, 31));
    }
}

/// A variable-length cell as long as a fixed-length one.
const VARIABLE: [u8; 509] = {
    let mut body = [0; 509];
    [body[0], body[1]] = 507u16.to_be_bytes();
    body
};

#[test]
fn what_concerns_the_channel_ends_in_it() {
    for ignored in [0, 7, 8, 12, 13, 100, 128, 132, 200].map(Command) {
        let mut pair = Pair::open(Setup::default());
        pair.send(INITIATOR, 1, ignored, &VARIABLE);
        pair.send(INITIATOR, 1, Command::DESTROY, &[0; 509]);
        pair.run().unwrap();
        assert_eq!(pair.got[RESPONDER], [Got::Cell(1, Command::DESTROY, Box::new([0; 509]))], "{ignored}");
    }
    for forbidden in [Command::CERTS, Command::AUTH_CHALLENGE, Command::AUTHENTICATE] {
        let mut pair = Pair::open(Setup::default());
        pair.send(INITIATOR, 1, forbidden, &VARIABLE);
        assert!(matches!(pair.run(), Err(ChannelError::PeerMisbehaved(_))), "{forbidden}");
    }
    let mut pair = Pair::open(Setup::default());
    pair.send(INITIATOR, 1, Command::VPADDING, &[255; 509]);
    let error = ChannelError::PeerMisbehaved("a variable-length cell is too long");
    assert_eq!(pair.run(), Err(error));
}

#[test]
fn vpadding_goes_both_ways_between_relays_up_to_its_length() {
    let mut pair = Pair::open(Setup::default());
    let now = pair.now;
    for (from, to) in [(INITIATOR, RESPONDER), (RESPONDER, INITIATOR)] {
        pair.channels[from].send_vpadding(now, &[7; VPADDING_LEN_MAX + 1]);
        pair.channels[from].send_vpadding(now, b"offer");
        pair.run().unwrap();
        assert_eq!(
            pair.got[to],
            [Got::Vpadding(vec![7; VPADDING_LEN_MAX]), Got::Vpadding(b"offer".to_vec())]
        );
        pair.got[to].clear();
    }
}

/// What it is about is the relay's to say: it heeds no offer of a client's, but a word about credit.
#[test]
fn a_clients_vpadding_is_told() {
    let mut pair = Pair::open(Setup { initiator_is_relay: false, ..Setup::default() });
    let now = pair.now;
    pair.channels[INITIATOR].send_vpadding(now, b"offer");
    pair.send(INITIATOR, 1, Command::DESTROY, &[0; 509]);
    pair.run().unwrap();
    let cell = Got::Cell(1, Command::DESTROY, Box::new([0; 509]));
    assert_eq!(pair.got[RESPONDER], [Got::Vpadding(b"offer".to_vec()), cell]);
}

#[test]
fn both_ends_export_the_same_secret_and_other_contexts_give_others() {
    let pair = Pair::open(Setup::default());
    let export = |end: usize, label: &[u8], context: &[u8]| {
        let mut secret = [0; 64];
        assert!(pair.channels[end].export_secret(label, context, &mut secret));
        secret
    };
    let secret = export(INITIATOR, b"label", b"context");
    assert_eq!(secret, export(RESPONDER, b"label", b"context"));
    assert_ne!(secret, export(RESPONDER, b"label", b"other"));
    assert_ne!(secret, export(RESPONDER, b"other", b"context"));
}

#[test]
fn a_client_may_stop_padding_but_a_relay_may_not_negotiate_it_with_a_client() {
    let mut stop = [0; 509];
    stop[1] = 1;
    let mut pair = Pair::open(Setup { initiator_is_relay: false, ..Setup::default() });
    pair.send(INITIATOR, 1, Command::RELAY_EARLY, &[0; 509]);
    pair.send(INITIATOR, 1, Command::PADDING_NEGOTIATE, &stop);
    pair.run().unwrap();
    let keepalive = Instant::ZERO + Duration::from_secs(300);
    assert_eq!(pair.channels[RESPONDER].poll_timeout(), Some(keepalive));
    pair.send(RESPONDER, 1, Command::PADDING_NEGOTIATE, &stop);
    assert!(matches!(pair.run(), Err(ChannelError::PeerMisbehaved(_))));
}

#[test]
fn a_handshake_that_stalls_times_out() {
    let mut pair = Pair::new(Setup::default());
    let deadline = Instant::ZERO + Duration::from_secs(60);
    for channel in &mut pair.channels {
        assert_eq!(channel.poll_timeout(), Some(deadline));
        assert_eq!(channel.handle_timeout(deadline - Duration::from_nanos(1)), Ok(()));
        assert_eq!(channel.handle_timeout(deadline), Err(ChannelError::TimedOut));
        assert_eq!(channel.poll_timeout(), None);
    }
}

#[test]
fn a_client_is_padded_once_its_circuits_extend_and_relays_are_not() {
    for initiator_is_relay in [false, true] {
        let mut pair = Pair::open(Setup { initiator_is_relay, ..Setup::default() });
        pair.send(INITIATOR, 1 << 31, Command::RELAY_EARLY, &[0; 509]);
        pair.run().unwrap();
        let due = [INITIATOR, RESPONDER].map(|side| pair.channels[side].poll_timeout().unwrap());
        for (side, due) in due.into_iter().enumerate() {
            let seconds = due.since(pair.now).as_secs();
            assert_eq!(seconds, if initiator_is_relay { 300 } else { seconds.clamp(1, 9) });
            pair.channels[side].handle_timeout(due).unwrap();
            let bytes = pair.transmit(side);
            assert_eq!(bytes.len(), 514 + 22, "one padding cell in a record of TLS 1.3");
            assert!(pair.channels[side].poll_timeout() > Some(due));
        }
    }
}

#[test]
fn circuit_ids_belong_to_the_side_that_proposes_them() {
    let pair = Pair::new(Setup::default());
    let mut rng = Seed::from_number(1).rng();
    for _ in 0..100 {
        let [initiator, responder] =
            pair.channels.each_ref().map(|channel| channel.propose_circ_id(&mut rng).get());
        assert!(initiator >= 1 << 31 && responder < 1 << 31);
    }
}

#[test]
fn a_client_accepts_nothing() {
    let mut transport = support::transport(TlsOptions::default(), None, 1);
    let addr: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let mut channel = transport.accept(Instant::ZERO, UnixTime { ns: 0 }, addr, addr);
    assert_eq!(channel.poll_timeout(), Some(Instant::ZERO));
    assert!(channel.handle_timeout(Instant::ZERO).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Neither side panics, and neither hears anything that was not said. (A changed record version
    /// is the one thing that TLS does not mind.)
    #[test]
    fn a_flipped_bit_changes_nothing_that_is_heard(
        at in 0..24_000usize,
        bit in 0..8u8,
        is_open in any::<bool>(),
    ) {
        let setup = Setup { options: [tls12(), TlsOptions::default()], ..Setup::default() };
        let setup = if at % 2 == 0 { setup } else { Setup::default() };
        let at = at / 2;
        let mut honest = Pair::new(Setup::default());
        let mut pair = Pair::new(setup);
        honest.run().unwrap();
        if is_open {
            pair.run().unwrap();
            for _ in 0..20 {
                for side in [INITIATOR, RESPONDER] {
                    pair.send(side, 1, Command::RELAY, &[3; 509]);
                    honest.send(side, 1, Command::RELAY, &[3; 509]);
                }
            }
            honest.run().unwrap();
        }
        let mut sent = 0;
        let mut moved = true;
        let mut result = Ok(());
        let mut turns = 0;
        while moved && result.is_ok() {
            turns += 1;
            prop_assert!(turns < TURNS_MAX, "somebody always has something to send");
            moved = false;
            for from in [INITIATOR, RESPONDER] {
                let mut bytes = pair.transmit(from);
                moved |= !bytes.is_empty();
                if (sent..sent + bytes.len()).contains(&at) {
                    bytes[at - sent] ^= 1 << bit;
                }
                sent += bytes.len();
                result = result.and(pair.receive(1 - from, &bytes));
            }
        }
        for side in [INITIATOR, RESPONDER] {
            prop_assert!(honest.got[side].starts_with(&pair.got[side]));
        }
    }

    #[test]
    fn random_bytes_break_neither_side(bytes in proptest::collection::vec(any::<u8>(), 0..2000), side in 0..2usize) {
        let mut pair = Pair::new(Setup::default());
        let hello = pair.transmit(INITIATOR);
        if side == RESPONDER && bytes.len() % 2 == 0 {
            pair.receive(RESPONDER, &hello).unwrap();
        }
        let _ = pair.receive(side, &bytes);
        pair.transmit(side);
        prop_assert!(pair.got[side].is_empty());
    }
}

/// Only the record that ends the ClientHello makes rustls sign, so what comes before it waits for nobody.
#[test]
fn a_client_hello_may_come_in_several_records() {
    for options in [TlsOptions::default(), tls12()] {
        let mut pair = Pair::new(Setup { options: [options, TlsOptions::default()], ..Setup::default() });
        let hello = pair.transmit(INITIATOR);
        let (header, message) = hello.split_at(5);
        let mut cut = Vec::new();
        for part in [&message[..50], &message[50..60], &message[60..]] {
            cut.extend_from_slice(&header[..3]);
            cut.extend_from_slice(&(part.len() as u16).to_be_bytes());
            cut.extend_from_slice(part);
        }
        pair.receive(RESPONDER, &cut).unwrap();
        pair.run().unwrap();
        assert!(pair.got.iter().all(|got| matches!(got[..], [Got::Opened(_)])));
    }
}

/// A record may end within the four bytes that say how long the ClientHello is. Whatever the cut, a worker signs.
#[test]
fn a_client_hello_is_answered_by_a_worker_wherever_it_is_cut() {
    for (cut, tls13) in (1..=5).flat_map(|cut| [(cut, true), (cut, false)]) {
        let options = if tls13 { TlsOptions::default() } else { tls12() };
        let mut pair = Pair::new(Setup { options: [options, TlsOptions::default()], ..Setup::default() });
        let hello = pair.transmit(INITIATOR);
        let (header, message) = hello.split_at(5);
        let [first, second] = [&message[..cut], &message[cut..]]
            .map(|part| [&header[..3], &(part.len() as u16).to_be_bytes(), part].concat());
        let (now, responder) = (pair.now, &mut pair.channels[RESPONDER]);
        assert_eq!(responder.handle_read(now, &first), Ok(first.len()));
        assert!(responder.poll_work().is_none(), "cut at {cut}: nothing is to be signed yet");
        assert_eq!(responder.handle_read(now, &second), Ok(second.len()));
        assert_eq!(pair.transmit(RESPONDER).len(), 0, "cut at {cut}: the shard's thread signed");
        support::work_off(&mut *pair.channels[RESPONDER], now).unwrap();
        assert!(pair.transmit(RESPONDER).len() > 500, "cut at {cut}: ServerHello and certificates");
    }
}

/// ClientHellos at one listener, at one time.
struct Hellos {
    now: Instant,
    responders: Vec<Box<dyn Channel>>,
    /// When each responder answered.
    answered: Vec<Option<Instant>>,
}

impl Hellos {
    fn new(options: &TlsOptions, from: impl IntoIterator<Item = SocketAddr>) -> Self {
        let addr: SocketAddr = "127.0.0.1:9001".parse().unwrap();
        let wall = UnixTime { ns: UNIX_S * 1_000_000_000 };
        let mut dialler = support::transport(options.clone(), None, 1);
        let mut listener = support::transport(TlsOptions::default(), Some(relays()[RESPONDER].clone()), 2);
        let target =
            Target { rsa: ids(RESPONDER).rsa, ed25519: Some(ids(RESPONDER).ed25519), addrs: vec![addr] };
        let mut hellos = Hellos { now: Instant::ZERO, responders: Vec::new(), answered: Vec::new() };
        for peer in from {
            let mut initiator = dialler.dial(hellos.now, wall, &target, addr);
            let mut responder = listener.accept(hellos.now, wall, addr, peer);
            let mut hello = Vec::new();
            initiator.handle_writable(hellos.now, 1 << 16);
            initiator.poll_transmit(hellos.now, &mut hello);
            responder.handle_writable(hellos.now, 1 << 16);
            assert_eq!(responder.handle_read(hellos.now, &hello).unwrap(), hello.len());
            support::work_off(&mut *responder, hellos.now).unwrap();
            hellos.responders.push(responder);
            hellos.answered.push(None);
            hellos.collect();
        }
        hellos
    }

    fn collect(&mut self) {
        for (responder, answered) in self.responders.iter_mut().zip(&mut self.answered) {
            let mut out = Vec::new();
            responder.poll_transmit(self.now, &mut out);
            if !out.is_empty() {
                answered.get_or_insert(self.now);
            }
        }
    }

    fn count(&self) -> usize {
        self.answered.iter().flatten().count()
    }

    /// Fires the timers of the next millisecond.
    fn step(&mut self) {
        self.now += Duration::from_millis(1);
        for responder in &mut self.responders {
            if responder.poll_timeout().is_some_and(|at| at <= self.now) {
                responder.handle_timeout(self.now).unwrap();
                support::work_off(&mut **responder, self.now).unwrap();
            }
        }
        self.collect();
    }
}

/// A signature takes the thread that relays cells, so it has its time between them.
#[test]
fn many_client_hellos_at_once_are_answered_a_few_at_a_time() {
    for options in [TlsOptions::default(), tls12()] {
        let mut hellos = Hellos::new(&options, (0..60).map(|n| SocketAddr::from(([10, 0, 0, n], 1))));
        assert_eq!(hellos.count(), 4);
        for ms in 1..=112 {
            let before = hellos.count();
            hellos.step();
            assert!(hellos.count() - before <= 1, "in millisecond {ms}");
        }
        assert_eq!(hellos.count(), 60);
    }
}

#[test]
fn an_address_with_many_client_hellos_does_not_hold_others_back() {
    let crowd: SocketAddr = "10.0.0.1:1".parse().unwrap();
    let other: SocketAddr = "10.0.0.2:1".parse().unwrap();
    let mut hellos = Hellos::new(&TlsOptions::default(), [crowd; 50].into_iter().chain([other; 2]));
    (0..10).for_each(|_| hellos.step());
    assert!(hellos.answered[50..].iter().all(Option::is_some), "{:?}", hellos.answered);
}

#[test]
fn what_follows_a_client_hello_that_waits_ends_the_channel() {
    let mut hellos = Hellos::new(&TlsOptions::default(), [SocketAddr::from(([10, 0, 0, 1], 1)); 5]);
    let waiting = &mut hellos.responders[4];
    assert_eq!(
        waiting.handle_read(hellos.now, &[22]),
        Err(ChannelError::PeerMisbehaved("more bytes before our answer to a ClientHello"))
    );
    // Its place goes with it.
    hellos.responders.truncate(4);
    hellos.step();
}
