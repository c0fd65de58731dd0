//! What a relay says that channels take, against what the process has: sessions, records that are begun, and buffers
//! that are kept to be used again. Resident memory is the process's, so this test is alone in its program.

mod support;

use heddle_proto::cell::CELL_LEN;
use heddle_proto::ids::RelayIds;
use heddle_relay::{Control, Input, Output, Relay, RelayConfig, Relays};
use heddle_seam::language::Job as _;
use heddle_seam::node::{Node, SocketId};
use heddle_seam::rng::{Repeatable, Seed};
use heddle_seam::time::{Duration, Instant, UnixTime};
use heddle_transport::tls::TlsOptions;
use std::net::SocketAddr;
use std::sync::Arc;
use support::client::{self, APPLICATION_DATA, Sealer};

const UNIX_S: u64 = 1_798_000_000;
const CHANNELS: usize = 1_000;
/// Channels that are opened before anything is measured, so that what the process itself begins with does not count.
const WARM: usize = 50;
/// Longer than one answer of a listener waits for the next.
const ANSWER_TURN: Duration = Duration::from_millis(10);
/// As much as one record of another relay holds: 31 cells.
const LONG: usize = 31 * CELL_LEN;
/// Bytes of such a record that come.
const HALF: usize = 15_000;
/// What rustls reads at once, and has room for on any channel.
const READ_LEN: usize = 4_096;

struct Table {
    relay: Relay,
    now: Instant,
    accepted: u64,
}

impl Table {
    fn new() -> Self {
        let identity = support::relay_identity(1, UNIX_S);
        let ids = identity.link.ids;
        let transport = Box::new(support::transport(TlsOptions::default(), Some(identity), 2));
        let entropy = Box::new(Repeatable::new(&Seed::from_number(3)));
        let mut table =
            Table { relay: Relay::new(config(ids), transport, entropy), now: Instant::ZERO, accepted: 0 };
        let wall = UnixTime { ns: UNIX_S * 1_000_000_000 };
        table.relay.handle_input(table.now, Input::WallClock(wall));
        table.relay.handle_input(table.now, Input::Control(Control::Peers(Arc::new(Relays::new([], [])))));
        table
    }

    /// Does all that the relay wants; returns what it sent.
    fn poll(&mut self) -> Vec<u8> {
        let (mut sent, mut buf) = (Vec::new(), Vec::new());
        loop {
            buf.clear();
            match self.relay.poll_output(self.now, &mut buf) {
                Output::Compute { id, job } => {
                    self.relay.handle_input(self.now, Input::Computed { id, result: job.run() });
                }
                Output::Send { .. } => sent.extend_from_slice(&buf),
                Output::Abort { socket } | Output::Close { socket } => panic!("{socket:?} ends"),
                Output::Timeout(_) => return sent,
                _ => {}
            }
        }
    }

    /// A client of an address of its own.
    fn open(&mut self) -> (SocketId, Sealer) {
        self.now += ANSWER_TURN;
        let socket = SocketId::accepted(self.accepted);
        self.accepted += 1;
        let [.., high, low] = self.accepted.to_be_bytes();
        let local = SocketAddr::from(([192, 0, 2, 1], 9001));
        let peer = SocketAddr::from(([198, 18, high, low], 5000));
        self.relay.handle_input(self.now, Input::Accepted { socket, local, peer });
        let grant = Input::Writable { socket, bytes: 64 << 10, window_bytes: 14_480 };
        self.relay.handle_input(self.now, grant);
        (socket, client::open_over(|bytes| self.read(socket, bytes)))
    }

    fn read(&mut self, socket: SocketId, bytes: &[u8]) -> Vec<u8> {
        self.relay.recv_buf(socket)[..bytes.len()].copy_from_slice(bytes);
        self.relay.handle_input(self.now, Input::Read { socket, len: bytes.len() });
        self.poll()
    }

    /// Each client sends a record of so many bytes of padding, of which so many come.
    fn send(&mut self, clients: &mut [(SocketId, Sealer)], len: usize, come: usize) {
        for (socket, sealer) in clients {
            let record = sealer.record(APPLICATION_DATA, &vec![0; len]);
            self.read(*socket, &record[..come.min(record.len())]);
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.relay.handle_input(self.now, Input::Timeout);
        self.poll();
    }

    fn said(&self) -> usize {
        let stats = self.relay.stats();
        (stats.channel_state_bytes + stats.buffer_bytes) as usize
    }
}

fn config(ids: RelayIds) -> RelayConfig {
    RelayConfig { max_queue_bytes: 1 << 30, ..RelayConfig::new(ids) }
}

#[test]
fn what_channels_take_is_what_the_relay_says() {
    let mut table = Table::new();
    let _warm: Vec<_> = (0..WARM).map(|_| table.open()).collect();
    let (resident_before, said_before) = (support::resident_bytes(), table.said());
    let mut clients: Vec<_> = (0..CHANNELS).map(|_| table.open()).collect();
    let each = |table: &Table, what: &str| {
        let resident = (support::resident_bytes() - resident_before) / CHANNELS;
        let said = (table.said() - said_before) / CHANNELS;
        println!("{what}: {said} bytes are said and {resident} are resident of each channel");
        assert!(resident <= said + said / 8, "{what}: {resident} bytes where {said} are said");
        said
    };
    let open = each(&table, "open");
    let resident = (support::resident_bytes() - resident_before) / CHANNELS;
    assert!(open <= resident + resident / 3, "{open} bytes are said where {resident} are there");
    table.send(&mut clients, LONG, usize::MAX);
    let long = each(&table, "after a long record");
    assert!(long > open + LONG / 2, "rustls keeps its buffer: {long}");
    // The first tick sees that something passed, the second that nothing did.
    table.pass(Duration::from_secs(1));
    table.pass(Duration::from_secs(1));
    let idle = (table.said() - said_before) / CHANNELS;
    assert!(idle <= open, "it was given back: {idle}");
    table.send(&mut clients, LONG, HALF);
    let half = each(&table, "in a long record");
    assert!(half >= idle + HALF - READ_LEN, "{half}");
    // What is said to have been given back is free for others: as many channels more need little new memory.
    let mut more: Vec<_> = (0..CHANNELS / 4).map(|_| table.open()).collect();
    table.send(&mut more, LONG, usize::MAX);
    each(&table, "with a quarter more");
    drop(clients);
}
