//! Credit from hop to hop on channels (N23 of DefenestraTor): what relays agree on, and what each side may send.

use crate::bench::{Bench, Sock, config};
use crate::client::{Client, Hop, Kind, extend, theirs};
use crate::datagrams::forward;
use heddle_forwarding::Part;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::frame::write_variable;
use heddle_proto::cell::relay::RelayCommand;
use heddle_proto::cell::{CircId, Command};
use heddle_proto::credit::{CreditCell, CreditMessage, HopCredit, N3, N23};
use heddle_relay::RelayConfig;
use heddle_seam::time::Duration;

/// By which we count, and by which our neighbours do.
const OURS: N23 = N23 { n2_cells: 2, n3: N3::Static(3) };
const THEIRS: N23 = N23 { n2_cells: 4, n3: N3::Static(2) };

fn counting() -> RelayConfig {
    RelayConfig { hop_credit: HopCredit::N23(OURS), ..config() }
}

fn say(bench: &mut Bench, sock: Sock, cell: CreditCell) {
    let mut bytes = Vec::new();
    write_variable(&mut bytes, 0, Command::VPADDING, &cell.encode());
    bench.write(sock, &bytes);
}

fn say_of(bench: &mut Bench, sock: Sock, circ_id: CircId, message: CreditMessage) {
    say(bench, sock, CreditCell::Circuit { circ_id, message });
}

/// What was said of credit on a channel, before cells that were taken or after them.
fn heard(bench: &mut Bench, sock: Sock) -> Vec<CreditCell> {
    let said = bench.paddings(sock);
    said.iter()
        .filter_map(|body| CreditCell::parse(body))
        .map(|cell| cell.expect("it is understood"))
        .collect()
}

/// What was said of one circuit's credit.
fn heard_of(bench: &mut Bench, sock: Sock, circuit: CircId) -> Vec<CreditMessage> {
    let of = |cell| match cell {
        CreditCell::Circuit { circ_id, message } if circ_id == circuit => Some(message),
        _ => None,
    };
    heard(bench, sock).into_iter().filter_map(of).collect()
}

/// A channel from test relay 1, with which we agree.
fn neighbour(bench: &mut Bench) -> Sock {
    let sock = bench.relay_channel(0, 1);
    assert_eq!(heard(bench, sock), [CreditCell::Agreement(OURS)]);
    say(bench, sock, CreditCell::Agreement(THEIRS));
    sock
}

/// A circuit from relay 1 to relay 2, both of which count if they are to.
fn through(bench: &mut Bench, prev: Sock, next_counts: bool) -> (Client, Hop) {
    let mut client = Client::create(bench, prev, theirs(1), Kind::Fast);
    let (handshake, data) = client.extend2(2);
    client.send(bench, RelayCommand::EXTEND2, 0, &data);
    let next = bench.answer_dial(0, 2);
    if next_counts {
        say(bench, next, CreditCell::Agreement(THEIRS));
    }
    let hop = Hop::answer(bench, next, 2);
    let got = client.got_one(bench);
    client.extended(handshake, &got);
    (client, hop)
}

fn relay_cells(bench: &mut Bench, sock: Sock) -> usize {
    bench.cells(sock).iter().filter(|cell| cell.command == Command::RELAY).count()
}

fn granted(cells: u64) -> CreditMessage {
    CreditMessage::Granted { cells }
}

/// Relays meet before each knows the consensus that lists the other.
#[test]
fn whoever_proves_to_be_a_relay_is_told_first_of_all_and_nobody_else() {
    let mut bench = Bench::new(counting());
    bench.list(&[1]);
    for (sock, told) in [
        (bench.relay_channel(0, 1), vec![CreditCell::Agreement(OURS)]),
        (bench.relay_channel(0, 3), vec![CreditCell::Agreement(OURS)]),
        (bench.client_channel(0), vec![]),
    ] {
        assert_eq!(heard(&mut bench, sock), told);
    }

    let mut without = Bench::new(config());
    without.list(&[1]);
    let sock = without.relay_channel(0, 1);
    assert_eq!(without.paddings(sock).len(), 0, "it is off by default");
}

#[test]
fn one_side_alone_counts_nothing() {
    let mut bench = Bench::new(counting());
    bench.list(&[2]);
    let prev = bench.relay_channel(0, 1);
    let (mut client, hop) = through(&mut bench, prev, false);
    for _ in 0..20 {
        client.send_to(&mut bench, 1, RelayCommand::DROP, 0, &[]);
    }
    assert_eq!(relay_cells(&mut bench, hop.sock), 20, "relay 2 said nothing");
}

#[test]
fn cells_leave_as_the_next_relay_has_credit_for_them() {
    let mut bench = Bench::new(counting());
    bench.list(&[1, 2]);
    let prev = neighbour(&mut bench);
    let (mut client, hop) = through(&mut bench, prev, true);
    for _ in 0..8 {
        // Relay 1 would be told that these were passed on before it sends the rest.
        client.send_to(&mut bench, 1, RelayCommand::DROP, 0, &[]);
    }
    assert_eq!((relay_cells(&mut bench, hop.sock), bench.queued_cells()), (6, 2), "N2 + N3 of relay 2's");
    say_of(&mut bench, hop.sock, hop.circ_id, granted(6));
    assert_eq!(bench.queued_cells(), 2, "no news");
    say_of(&mut bench, hop.sock, hop.circ_id, granted(7));
    say_of(&mut bench, hop.sock, hop.circ_id, granted(7));
    assert_eq!((relay_cells(&mut bench, hop.sock), bench.queued_cells()), (1, 1));

    // It asks after a second, then after two.
    assert_eq!(heard_of(&mut bench, hop.sock, hop.circ_id), []);
    bench.pass(Duration::from_secs(2));
    assert_eq!(heard_of(&mut bench, hop.sock, hop.circ_id), [CreditMessage::Asked]);
    bench.pass(Duration::from_millis(500));
    assert_eq!(heard_of(&mut bench, hop.sock, hop.circ_id), []);
    bench.pass(Duration::from_secs(3));
    assert_eq!(heard_of(&mut bench, hop.sock, hop.circ_id), [CreditMessage::Asked]);
    say_of(&mut bench, hop.sock, hop.circ_id, granted(13));
    assert_eq!(
        (relay_cells(&mut bench, hop.sock), bench.queued_cells()),
        (1, 0),
        "seven sent, and six more at most"
    );
}

#[test]
fn credit_without_end_costs_the_circuit() {
    let mut bench = Bench::new(counting());
    bench.list(&[1, 2]);
    let prev = neighbour(&mut bench);
    let (mut client, hop) = through(&mut bench, prev, true);
    client.send_to(&mut bench, 1, RelayCommand::DROP, 0, &[]);
    say_of(&mut bench, hop.sock, hop.circ_id, granted(8));
    assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::PROTOCOL));
    assert_eq!(bench.circuits(), 0);
    // Nobody minds a word about a circuit that is over.
    say_of(&mut bench, hop.sock, hop.circ_id, granted(8));
    Client::create(&mut bench, prev, theirs(2), Kind::Fast);
}

/// What waits for the next relay was not passed on. Whoever sends more than N2 + N3 then loses that circuit, and no
/// other one.
#[test]
fn a_cell_beyond_the_credit_costs_the_circuit_alone() {
    let mut bench = Bench::new(counting());
    bench.list(&[1, 2]);
    let prev = neighbour(&mut bench);
    let mut other = Client::create(&mut bench, prev, theirs(9), Kind::Fast);
    let (mut client, hop) = through(&mut bench, prev, false);
    assert_eq!(heard_of(&mut bench, prev, client.circ_id), [], "EXTEND2 ended here: one of N2");
    bench.set_willing(hop.sock, false);
    bench.grant(hop.sock, 0);
    // With EXTEND2 it is five.
    for _ in 0..4 {
        client.send_to(&mut bench, 1, RelayCommand::DROP, 0, &[]);
    }
    assert_eq!((bench.queued_cells(), client.destroyed(&mut bench)), (4, None));
    client.send_to(&mut bench, 1, RelayCommand::DROP, 0, &[]);
    assert_eq!(client.destroyed(&mut bench), Some(DestroyReason::PROTOCOL));
    other.connect(&mut bench, 1);
}

/// Cells that end here count as passed on, and so do those that wait for a next relay that is cut off.
#[test]
fn what_goes_nowhere_from_here_is_granted_again() {
    let mut bench = Bench::new(counting());
    bench.list(&[1, 2]);
    let prev = neighbour(&mut bench);
    let mut client = Client::create(&mut bench, prev, theirs(1), Kind::Fast);
    client.send(&mut bench, RelayCommand::DROP, 0, &[]);
    assert_eq!(heard_of(&mut bench, prev, client.circ_id), []);
    client.send(&mut bench, RelayCommand::DROP, 0, &[]);
    assert_eq!(heard_of(&mut bench, prev, client.circ_id), [granted(2 + 5)]);

    let mut bench = Bench::new(counting());
    bench.list(&[1, 2]);
    let prev = neighbour(&mut bench);
    let (mut client, hop) = through(&mut bench, prev, false);
    bench.set_willing(hop.sock, false);
    bench.grant(hop.sock, 0);
    for _ in 0..3 {
        client.send_to(&mut bench, 1, RelayCommand::DROP, 0, &[]);
    }
    assert_eq!(heard_of(&mut bench, prev, client.circ_id), []);
    client.send_to(&mut bench, 0, RelayCommand::TRUNCATE, 0, &[]);
    // EXTEND2, three that waited, and TRUNCATE: the fourth was told of, and the fifth will be with the next.
    assert_eq!(heard_of(&mut bench, prev, client.circ_id), [granted(4 + 5)]);
    say_of(&mut bench, prev, client.circ_id, CreditMessage::Asked);
    assert_eq!(heard_of(&mut bench, prev, client.circ_id), [granted(5 + 5)]);
}

/// The same towards the client: what we say ourselves is in the queue, too, but came from nobody.
#[test]
fn cells_towards_the_client_are_counted_alike() {
    let mut bench = Bench::new(counting());
    bench.list(&[1, 2]);
    let prev = neighbour(&mut bench);
    let (mut client, mut hop) = through(&mut bench, prev, true);
    // EXTENDED2 was one of the six that relay 1 takes.
    for _ in 0..5 {
        hop.send(&mut bench, RelayCommand::DROP, 0, &[]);
    }
    assert_eq!((client.got(&mut bench).len(), bench.queued_cells()), (5, 0));
    assert_eq!(heard_of(&mut bench, hop.sock, hop.circ_id), [granted(2 + 5), granted(4 + 5)]);
    for _ in 0..4 {
        hop.send(&mut bench, RelayCommand::DROP, 0, &[]);
    }
    assert_eq!((client.got(&mut bench).len(), bench.queued_cells()), (0, 4));
    say_of(&mut bench, prev, client.circ_id, granted(12));
    assert_eq!((client.got(&mut bench).len(), bench.queued_cells()), (4, 0));
}

/// A client is told nothing unless it says that it counts; then both do.
#[test]
fn clients_count_if_they_say_so() {
    let mut bench = Bench::new(counting());
    bench.list(&[2]);
    let sock = bench.client_channel(0);
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Fast);
    extend(&mut bench, &mut client, 2);
    for _ in 0..50 {
        client.send_to(&mut bench, 0, RelayCommand::DROP, 0, &[]);
    }
    assert_eq!((heard(&mut bench, sock), client.destroyed(&mut bench)), (vec![], None));

    say(&mut bench, sock, CreditCell::Agreement(THEIRS));
    say(&mut bench, sock, CreditCell::Agreement(OURS));
    assert_eq!(heard(&mut bench, sock), [CreditCell::Agreement(OURS)], "once");
    let mut counted = Client::create(&mut bench, sock, theirs(2), Kind::Fast);
    for _ in 0..2 {
        counted.send(&mut bench, RelayCommand::DROP, 0, &[]);
    }
    assert_eq!(heard_of(&mut bench, sock, counted.circ_id), [granted(2 + 5)]);
    client.send_to(&mut bench, 0, RelayCommand::DROP, 0, &[]);
    assert_eq!(heard(&mut bench, sock), [], "the circuit of before is not counted");

    let mut without = Bench::new(config());
    let sock = without.client_channel(0);
    say(&mut without, sock, CreditCell::Agreement(THEIRS));
    assert_eq!(heard(&mut without, sock), [], "it is off by default");
}

/// DATAGRAM cells count as RELAY cells do: those that are passed on, and those that go no further.
#[test]
fn datagrams_are_counted_as_relay_cells_are() {
    let mut bench = Bench::new(RelayConfig { forwards_datagrams: true, ..counting() });
    bench.list(&[1, 2]);
    let prev = neighbour(&mut bench);
    let (mut client, hop) = through(&mut bench, prev, true);
    client.send_to(&mut bench, 0, RelayCommand::FORWARD, 0, &forward(Part::Pass));
    assert_eq!(client.got_one(&mut bench).command, RelayCommand::FORWARDED);
    assert_eq!(heard_of(&mut bench, prev, client.circ_id), [granted(2 + 5)], "EXTEND2 and FORWARD");
    let datagrams = |bench: &mut Bench| {
        let cells = bench.cells(hop.sock);
        cells.iter().filter(|cell| cell.command == Command::DATAGRAM).count()
    };
    for _ in 0..5 {
        bench.send(prev, client.circ_id, Command::DATAGRAM, &[7; 509]);
    }
    assert_eq!(heard_of(&mut bench, prev, client.circ_id), [granted(4 + 5), granted(6 + 5)]);
    for _ in 0..4 {
        bench.send(prev, client.circ_id, Command::DATAGRAM, &[7; 509]);
    }
    assert_eq!((datagrams(&mut bench), bench.queued_cells()), (6, 3), "relay 2 takes six");
    assert_eq!(heard_of(&mut bench, prev, client.circ_id), [granted(8 + 5)], "what waits is not passed on");
    say_of(&mut bench, hop.sock, hop.circ_id, granted(9));
    assert_eq!((datagrams(&mut bench), bench.queued_cells()), (3, 0));
    assert_eq!(client.destroyed(&mut bench), None);

    let mut bench = Bench::new(counting());
    bench.list(&[1, 2]);
    let prev = neighbour(&mut bench);
    let (mut client, hop) = through(&mut bench, prev, false);
    for _ in 0..3 {
        bench.send(prev, client.circ_id, Command::DATAGRAM, &[7; 509]);
    }
    assert_eq!(heard_of(&mut bench, prev, client.circ_id), [granted(2 + 5), granted(4 + 5)]);
    assert_eq!((bench.cells(hop.sock).len(), client.destroyed(&mut bench)), (0, None));
}
