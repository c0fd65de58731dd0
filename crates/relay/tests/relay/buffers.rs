//! What waits in sockets' buffers counts against the memory for cells: of channels, of exit streams, and of sockets
//! that are closed and still send. So does what channels take themselves, and the resolver for questions.

use super::bench::{Bench, Gone, OURS, Sock, config, host};
use super::client::{Client, Kind, theirs};
use super::plain::PlainTransport;
use super::streams::exit_with;
use heddle_proto::cell::relay::RelayCommand;
use heddle_proto::cell::{CELL_LEN, Command};
use heddle_relay::{Control, QUESTION_BYTES, RelayConfig};
use heddle_seam::node::ResolveError;
use heddle_seam::time::Duration;
use std::net::{IpAddr, Ipv4Addr};

const MAX: usize = 500_000;
/// What a driver keeps of one socket.
const BUFFER: usize = 32 * 1024;

fn small() -> RelayConfig {
    RelayConfig { max_queue_bytes: MAX, ..config() }
}

/// So many channels of clients, of which the driver keeps what they do not read: each a little younger than the one
/// before.
fn unread_channels(bench: &mut Bench, count: usize) -> Vec<Sock> {
    let socks: Vec<Sock> = (0..count).map(|_| bench.client_channel(0)).collect();
    for sock in &socks {
        bench.set_unsent(*sock, BUFFER);
        bench.pass(Duration::from_millis(1));
        let bytes = bench.unsent(0).len() * BUFFER;
        assert!(bytes <= MAX, "{bytes} bytes wait where {MAX} are permitted");
    }
    socks
}

#[test]
fn channels_that_read_nothing_end_when_their_buffers_take_the_memory_and_the_oldest_first() {
    let mut bench = Bench::new(small());
    let sock = bench.client_channel(0);
    let mut honest = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    let socks = unread_channels(&mut bench, 20);
    let gone: Vec<bool> = socks.iter().map(|sock| bench.gone(*sock) == Some(Gone::Aborted)).collect();
    let ended = gone.iter().filter(|gone| **gone).count();
    assert!(gone[..ended].iter().all(|gone| *gone), "{gone:?}");
    assert!((10..19).contains(&ended), "{ended} of 20 ended");
    honest.send(&mut bench, RelayCommand::RESOLVE, 1, b"x.example\0");
    assert_eq!(honest.got(&mut bench).len(), 1, "the circuit answers");
    assert_eq!(bench.held_buffers(), (20 - ended) * BUFFER);
}

#[test]
fn a_channel_whose_buffer_moves_on_outlives_those_that_are_stuck() {
    let mut bench = Bench::new(small());
    // All are open before: a handshake counts, too.
    let (moving, last) = (bench.client_channel(0), bench.client_channel(0));
    let mut stuck = Vec::new();
    for _ in 0..2 {
        bench.set_unsent(moving, BUFFER);
        stuck.extend(unread_channels(&mut bench, 7));
        bench.set_unsent(moving, 0);
    }
    bench.set_unsent(moving, BUFFER);
    bench.set_unsent(last, BUFFER);
    assert!(stuck.iter().all(|sock| bench.gone(*sock) == Some(Gone::Aborted)));
    assert_eq!((bench.gone(moving), bench.gone(last)), (None, None));
}

#[test]
fn who_takes_all_of_the_memory_at_once_is_the_only_one_that_ends() {
    let mut bench = Bench::new(small());
    let socks = unread_channels(&mut bench, 3);
    let (first, rest) = socks.split_first().expect("three");
    bench.set_unsent(*first, MAX);
    assert_eq!(bench.gone(*first), Some(Gone::Aborted), "it alone is too much");
    assert!(rest.iter().all(|sock| bench.gone(*sock).is_none()));
}

#[test]
fn connections_of_streams_end_for_their_buffers_whether_they_are_open_or_owed_or_closed() {
    let (mut bench, mut client) = exit_with(small(), Kind::Ntor);
    let servers: Vec<Sock> = (1..=3).map(|stream| client.connect(&mut bench, stream)).collect();
    let [open, owed, closed] = servers[..] else { panic!("three servers") };
    for sock in [owed, closed] {
        bench.set_unsent(sock, 100);
    }
    bench.set_willing(owed, false);
    bench.grant(owed, 0);
    client.send(&mut bench, RelayCommand::DATA, 2, b"last words");
    client.send(&mut bench, RelayCommand::END, 2, &[6]);
    client.send(&mut bench, RelayCommand::END, 3, &[6]);
    assert_eq!([open, owed, closed].map(|sock| bench.gone(sock)), [None, None, Some(Gone::Closed)]);
    for sock in [closed, owed, open] {
        bench.set_unsent(sock, MAX);
        assert!(bench.gone(sock) == Some(Gone::Aborted) && bench.held_buffers() <= 100);
    }
    let ended: Vec<u16> = client.got(&mut bench).iter().map(|got| got.stream).collect();
    assert_eq!((ended, bench.circuits(), bench.queued_cells()), (vec![1], 1, 0));
}

#[test]
fn cells_that_are_begun_count_until_they_are_whole() {
    let mut bench = Bench::new(config());
    let socks: Vec<Sock> = (0..4).map(|_| bench.client_channel(0)).collect();
    let mut cell = vec![0; CELL_LEN];
    cell[4] = Command::PADDING.0;
    for sock in &socks {
        bench.write(*sock, &cell[..400]);
    }
    assert_eq!(bench.held_buffers(), 4 * 400);
    bench.write(socks[0], &cell[400..]);
    bench.finish(socks[1]);
    assert_eq!(bench.held_buffers(), 2 * 400);
    assert_eq!(bench.shards[0].relay.stats().buffer_bytes, 2 * 400);
}

/// What the tests' channels say that they take themselves.
const STATE: usize = 10_000;

/// Whose channels are large.
fn with_state() -> Bench {
    let mut bench = Bench::new(small());
    let transport = PlainTransport { number: OURS, addr: host(OURS), state_bytes: STATE };
    bench.control(0, Control::Transport(Box::new(transport)));
    bench
}

/// So many channels of one address, each a little younger than the one before.
fn channels(bench: &mut Bench, addr: IpAddr, count: usize) -> Vec<Sock> {
    let mut socks = Vec::new();
    for _ in 0..count {
        socks.push(bench.client_at(0, addr));
        bench.pass(Duration::from_secs(1));
        let said = bench.shards[0].relay.stats().channel_state_bytes as usize;
        assert!(said <= MAX, "{said} bytes where {MAX} are permitted");
    }
    socks
}

#[test]
fn whoever_has_most_loses_its_idle_channels_when_channels_take_the_memory() {
    let [modest, greedy] = [1, 2].map(|number| Ipv4Addr::new(203, 0, 113, number).into());
    let mut bench = with_state();
    let few = channels(&mut bench, modest, 2);
    let mut used = Client::create(&mut bench, few[0], theirs(1), Kind::Fast);
    let oldest = channels(&mut bench, greedy, 1)[0];
    let mut many = channels(&mut bench, greedy, 33);
    let mut busy = Client::create(&mut bench, oldest, theirs(1), Kind::Fast);
    many.extend(channels(&mut bench, greedy, 8));
    for client in [&mut used, &mut busy] {
        client.send(&mut bench, RelayCommand::RESOLVE, 1, b"x.example\0");
        assert_eq!(client.got(&mut bench).len(), 1, "a channel with a circuit is no idle one");
    }
    let gone: Vec<bool> = many.iter().map(|sock| bench.gone(*sock).is_some()).collect();
    let ended = gone.iter().filter(|gone| **gone).count();
    assert!(
        (15..33).contains(&ended) && gone[..ended].iter().all(|gone| *gone),
        "the oldest first: {gone:?}"
    );
    assert!(few.iter().all(|sock| bench.gone(*sock).is_none()), "who has little keeps it");
}

#[test]
fn what_a_channel_keeps_to_use_again_is_given_back_when_nothing_passes() {
    let mut bench = with_state();
    let socks: Vec<Sock> = (0..2).map(|_| bench.client_channel(0)).collect();
    let said = |bench: &Bench| bench.shards[0].relay.stats().channel_state_bytes as usize;
    let new = said(&bench);
    assert!(new >= 2 * 2 * STATE, "{new}");
    bench.pass(Duration::from_millis(1_500));
    bench.write(socks[0], &[0; CELL_LEN]);
    bench.pass(Duration::from_secs(1));
    assert_eq!(said(&bench), new - STATE, "one of them is in use");
    bench.pass(Duration::from_secs(1));
    assert_eq!(said(&bench), new - 2 * STATE);
    socks.iter().for_each(|sock| bench.finish(*sock));
    assert_eq!(said(&bench), 0);
}

/// What the resolver takes for a question counts for its circuit, and is free when that ends for it.
#[test]
fn questions_count_in_the_memory_and_who_has_most_of_them_ends() {
    // There is room for a few questions.
    let (mut bench, mut greedy) = exit_with(small(), Kind::Ntor);
    let sock = bench.relay_channel(0, 2);
    let mut other = Client::create(&mut bench, sock, theirs(1), Kind::Ntor);
    let said = |bench: &Bench| bench.shards[0].relay.stats().circuit_state_bytes as usize;
    let before = said(&bench);
    other.send(&mut bench, RelayCommand::RESOLVE, 1, b"b.example\0");
    assert_eq!(said(&bench), before + QUESTION_BYTES);
    let mut asked = 0;
    while bench.circuits() == 2 {
        asked += 1;
        greedy.send(&mut bench, RelayCommand::RESOLVE, asked, b"a.example\0");
        assert!(asked < 16 && said(&bench) <= MAX, "{asked}: {}", said(&bench));
    }
    assert!(asked > 3, "{asked}");
    assert_eq!((bench.circuits(), bench.shards[0].relay.in_use().questions), (1, 1));
    bench.resolve_next(0, Err(ResolveError::NotFound));
    assert_eq!(other.got(&mut bench).len(), 1, "who asks for little is answered");
    assert!(said(&bench) < before);
}
