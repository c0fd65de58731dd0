//! A relay's shard goes on while workers sign for its handshakes.

#[allow(unused)]
mod support;

use heddle_proto::channel::{Channel, ChannelError, StreamTransport, Target};
use heddle_relay::{Input, Job, Output, Relay, RelayConfig};
use heddle_seam::language::Job as _;
use heddle_seam::node::{JobId, Node, SocketError, SocketId};
use heddle_seam::rng::{Repeatable, Seed};
use heddle_seam::time::{Instant, UnixTime};
use heddle_transport::tls::TlsOptions;
use std::collections::BTreeMap;
use std::net::SocketAddr;

const UNIX_S: u64 = 1_780_000_000;
const NOW: Instant = Instant::ZERO;

/// A shard, and clients that connect to it.
struct Shard {
    relay: Relay,
    clients: Vec<Box<dyn Channel>>,
    jobs: Vec<(JobId, Job)>,
    /// What clients have not read yet.
    sent: BTreeMap<SocketId, Vec<u8>>,
}

fn addr() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 9001))
}

fn socket(client: usize) -> SocketId {
    SocketId::accepted(client as u64)
}

impl Shard {
    /// Clients have connected, each from another address, and said nothing yet.
    fn new(clients: usize, options: &TlsOptions) -> Self {
        let identity = support::relay_identity(1, UNIX_S);
        let ids = identity.link.ids;
        let config = RelayConfig { extend_to_private: true, ..RelayConfig::new(ids) };
        let listener = support::transport(TlsOptions::default(), Some(identity), 1);
        let entropy = Box::new(Repeatable::new(&Seed::from_number(3)));
        let mut relay = Relay::new(config, Box::new(listener), entropy);
        let wall = UnixTime { ns: UNIX_S * 1_000_000_000 };
        relay.handle_input(NOW, Input::WallClock(wall));
        let mut dialler = support::transport(options.clone(), None, 2);
        let target = Target { rsa: ids.rsa, ed25519: Some(ids.ed25519), addrs: vec![addr()] };
        let mut shard = Shard { relay, clients: Vec::new(), jobs: Vec::new(), sent: BTreeMap::new() };
        for client in 0..clients {
            let peer = SocketAddr::from(([127, 0, 1, client as u8], 50_000));
            let input = Input::Accepted { socket: socket(client), local: addr(), peer };
            shard.relay.handle_input(NOW, input);
            let bytes = 1 << 16;
            let input = Input::Writable { socket: socket(client), bytes, window_bytes: usize::MAX };
            shard.relay.handle_input(NOW, input);
            shard.clients.push(dialler.dial(NOW, wall, &target, addr()));
        }
        shard.poll();
        shard
    }

    fn poll(&mut self) {
        loop {
            let mut bytes = Vec::new();
            match self.relay.poll_output(NOW, &mut bytes) {
                Output::Send { socket } => self.sent.entry(socket).or_default().extend(bytes),
                Output::Compute { id, job } => self.jobs.push((id, job)),
                Output::Timeout(_) => return,
                _ => {}
            }
        }
    }

    /// A client says what it has to say.
    fn say(&mut self, client: usize) {
        let mut bytes = Vec::new();
        self.clients[client].handle_writable(NOW, 1 << 16);
        self.clients[client].poll_transmit(NOW, &mut bytes);
        if !bytes.is_empty() {
            self.relay.recv_buf(socket(client))[..bytes.len()].copy_from_slice(&bytes);
            self.relay.handle_input(NOW, Input::Read { socket: socket(client), len: bytes.len() });
        }
        self.poll();
    }

    /// A client hears what the shard said; returns how many bytes that were.
    fn hear(&mut self, client: usize) -> Result<usize, ChannelError> {
        let bytes = self.sent.remove(&socket(client)).unwrap_or_default();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            rest = &rest[self.clients[client].handle_read(NOW, rest)?..];
            while self.clients[client].next_incoming(NOW)?.is_some() {}
        }
        Ok(bytes.len())
    }

    /// A worker has done the job of that place in the order.
    fn work(&mut self, job: usize) {
        let (id, job) = self.jobs.remove(job);
        self.relay.handle_input(NOW, Input::Computed { id, result: job.run() });
        self.poll();
    }

    /// A client and the shard speak until neither has anything to say.
    fn finish(&mut self, client: usize) {
        for _ in 0..20 {
            self.say(client);
            assert!(self.jobs.is_empty(), "there is one signature in a handshake");
            self.hear(client).expect("a good handshake");
        }
    }

    fn is_open(&self, client: usize) -> bool {
        self.clients[client].capacity() > 0
    }
}

#[test]
fn a_shard_opens_channels_while_a_worker_signs_for_another() {
    for options in [TlsOptions::default(), TlsOptions { tls13: false, ..TlsOptions::default() }] {
        let mut shard = Shard::new(2, &options);
        shard.say(0);
        assert_eq!((shard.jobs.len(), shard.hear(0)), (1, Ok(0)), "the worker is to answer");
        shard.say(1);
        assert_eq!((shard.jobs.len(), shard.hear(1)), (2, Ok(0)));
        shard.work(1);
        let (slow_id, slow) = shard.jobs.remove(0);
        assert!(shard.hear(1).is_ok_and(|bytes| bytes > 500), "ServerHello and certificate");
        shard.finish(1);
        assert!(shard.is_open(1) && !shard.is_open(0));
        shard.jobs.push((slow_id, slow));
        shard.work(0);
        assert!(shard.hear(0).is_ok_and(|bytes| bytes > 500));
        shard.finish(0);
        assert!(shard.is_open(0));
    }
}

#[test]
fn what_comes_before_the_worker_is_done_ends_the_channel_and_nothing_else() {
    let mut shard = Shard::new(2, &TlsOptions::default());
    shard.say(0);
    shard.relay.recv_buf(socket(0))[0] = 22;
    shard.relay.handle_input(NOW, Input::Read { socket: socket(0), len: 1 });
    shard.say(1);
    // The channel of the first job is gone, and with it who wants to know.
    shard.work(0);
    assert_eq!(shard.hear(0), Ok(0));
    // So is the channel of this one, but by its socket.
    shard.relay.handle_input(NOW, Input::Failed { socket: socket(1), error: SocketError::Reset });
    shard.work(0);
    assert_eq!((shard.jobs.len(), shard.relay.in_use().channels), (0, 0));
}
