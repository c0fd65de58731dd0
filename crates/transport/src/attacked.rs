//! A relay with an endpoint, whose neighbours are the test's. All that it allocates is counted, cells and circuits and
//! workers' results with it, and nothing of what its neighbours do.

mod honest;
pub(crate) mod siege;

use crate::counting::{counted, counted_bytes, other_bytes};
use bytes::BytesMut;
use core::net::{IpAddr, SocketAddr};
use heddle_proto::bucket::Limit;
use heddle_proto::cell::create::Create2;
use heddle_proto::cell::{BODY_LEN, Body, CircId, Command};
use heddle_proto::channel::{Channel, ChannelError, Incoming, Opened, Role, StreamTransport, Target};
use heddle_proto::crypto::NtorKeypair;
use heddle_proto::crypto::onionskin::{ClientHandshake, OnionKeys};
use heddle_proto::endpoint::{ConnectionOptions, Endpoint};
use heddle_proto::ids::{Ed25519Id, RelayIds, RsaId};
use heddle_proto::pair::offer::{Offer, OfferDigest, OfferedTransport};
use heddle_proto::pair::secrets::{Purpose, pair_secrets};
use heddle_proto::pool::SLOT_LEN;
use heddle_proto::transport::{Isolation, Scope, Transport, TransportId};
use heddle_relay::{Control, Event, Input, ListedRelay, Output, Relay, RelayConfig, Relays};
use heddle_seam::datagrams::Datagrams;
use heddle_seam::language::Job as _;
use heddle_seam::node::{Node, PortId, SocketId};
use heddle_seam::rng::{Repeatable, Rng, Seed};
use heddle_seam::time::{Instant, UnixTime};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of the relay, by which its address and its keys follow; its neighbours' are lower.
const OURS: u8 = 100;
const UDP_PORT: u16 = 9000;
/// What a relay may hold beyond `MaxMemInQueues`.
const BESIDE: usize = 64 << 20;
/// What it need not say: its own tables, free slots, the channels of a few neighbours.
const UNSAID: usize = 4 << 20;
/// A `MaxMemInQueues` that attacks fill, and one that they do not.
pub(crate) const SCARCE: usize = 16 << 20;
pub(crate) const AMPLE: usize = 1 << 30;
/// More outputs at one instant mean that the relay goes in circles.
const OUTPUTS_MAX: u32 = 1_000_000;

fn addr(number: u8) -> SocketAddr {
    SocketAddr::from(([198, 51, 101, number], UDP_PORT))
}

fn ids(number: u8) -> RelayIds {
    RelayIds { rsa: RsaId([number; 20]), ed25519: Ed25519Id([number; 32]) }
}

/// Where the relay's datagrams go.
pub(crate) trait Neighbours {
    /// A datagram to the neighbour of that number.
    fn deliver(&mut self, now: Instant, number: u8, datagram: &[u8]);
}

pub(crate) struct Attacked {
    pub(crate) relay: Relay,
    pub(crate) now: Instant,
    transport: TransportId,
    max_queue_bytes: usize,
    timeout: Option<Instant>,
    /// What it said on channels.
    said: BTreeMap<SocketId, Vec<u8>>,
    /// What was counted before it was, and at most since.
    before: usize,
    peak: usize,
    resident_before: usize,
    other_before: usize,
    /// How often memory was short.
    pub(crate) pressures: usize,
    buf: Vec<u8>,
}

/// What a relay may hold and read.
pub(crate) struct Bounds {
    pub(crate) max_queue_bytes: usize,
    pub(crate) relay_bandwidth: Option<Limit>,
}

impl Bounds {
    /// A relay without rates.
    pub(crate) fn of(max_queue_bytes: usize) -> Self {
        Bounds { max_queue_bytes, relay_bandwidth: None }
    }
}

impl Attacked {
    pub(crate) fn new(bounds: &Bounds, endpoint: impl FnOnce() -> Box<dyn Endpoint>) -> Self {
        let before = counted_bytes();
        let config = RelayConfig {
            max_queue_bytes: bounds.max_queue_bytes,
            relay_bandwidth: bounds.relay_bandwidth,
            ..RelayConfig::new(ids(OURS))
        };
        let (relay, transport) = counted(|| {
            let endpoint = endpoint();
            let transport = endpoint.transport().id;
            let entropy = Box::new(Repeatable::new(&Seed::from_number(3)));
            let endpoints = vec![(PortId(0), UDP_PORT, endpoint)];
            let mut relay = Relay::with_endpoints(config, Box::new(Vouching), endpoints, entropy);
            let listed = (1..OURS).map(|number| {
                let RelayIds { rsa, ed25519 } = ids(number);
                ListedRelay { rsa, ed25519: Some(ed25519), or_addrs: vec![addr(number)] }
            });
            let listed = Arc::new(Relays::new(listed, []));
            for control in [Control::Peers(listed), Control::OnionKeys(Arc::new(onion_keys()))] {
                relay.handle_input(Instant::ZERO, Input::Control(control));
            }
            (relay, transport)
        });
        let mut attacked = Attacked {
            relay,
            max_queue_bytes: bounds.max_queue_bytes,
            now: Instant::ZERO,
            transport,
            timeout: None,
            said: BTreeMap::new(),
            before,
            peak: 0,
            resident_before: resident_bytes(),
            other_before: other_bytes(),
            pressures: 0,
            buf: Vec::with_capacity(1 << 17),
        };
        attacked.note_peak();
        attacked
    }

    /// It never allocated more than it may, and says of what it has how much it is.
    pub(crate) fn assert_bounds(&self, what: &str) {
        let (peak, now, said, max) = (self.peak, self.bytes(), self.said_bytes(), self.max_queue_bytes);
        println!("{what}: {peak} bytes at most where {max} are permitted; {now} now where {said} are said");
        assert!(peak <= max + BESIDE, "{peak} bytes where {max} are permitted");
        assert!(now <= said + said / 5 + UNSAID, "{now} bytes where {said} are said");
    }

    /// It never allocated more than is permitted, but for what it need not say.
    pub(crate) fn assert_peak(&self, what: &str) {
        let (peak, max) = (self.peak, self.max_queue_bytes);
        println!("{what}: {peak} bytes at most where {max} are permitted");
        assert!(peak <= max + UNSAID, "{peak} bytes where {max} are permitted");
    }

    /// What the process has in memory for the relay, libraries in C and what the heap has lost between pieces with it,
    /// is no more than it may be, and about what is said where `is_said`: as long as nothing was freed. Right only for
    /// a process of one test.
    pub(crate) fn assert_resident(&self, what: &str, is_said: bool) {
        let others = other_bytes().saturating_sub(self.other_before);
        let resident = resident_bytes().saturating_sub(self.resident_before + others);
        let (said, max) = (self.said_bytes(), self.max_queue_bytes);
        println!("{what}: {resident} bytes are resident where {max} are permitted and {said} are said");
        assert!(resident <= max + BESIDE, "{resident} bytes where {max} are permitted");
        assert!(!is_said || resident <= said + said / 10 + UNSAID, "{resident} bytes where {said} are said");
    }

    fn bytes(&self) -> usize {
        counted_bytes() - self.before
    }

    /// What it says that it holds: cells, flows, buffers, and the state of circuits, flows and connections.
    fn said_bytes(&self) -> usize {
        let (held, stats) = (self.relay.in_use(), self.relay.stats());
        let state = stats.flow_state_bytes + stats.circuit_state_bytes + stats.channel_state_bytes;
        held.slots as usize * SLOT_LEN + held.flow_bytes + held.buffer_bytes + state as usize
    }

    fn note_peak(&mut self) {
        self.peak = self.peak.max(self.bytes());
    }

    /// A neighbour dials a channel and offers a connection, which it is to dial with what this returns; `key` is its
    /// public one.
    pub(crate) fn vouch(
        &mut self,
        number: u8,
        key: [u8; 32],
        neighbours: &mut impl Neighbours,
    ) -> ConnectionOptions {
        let flows_max = 50_000;
        let offered = OfferedTransport { id: self.transport, port: UDP_PORT, flows_max };
        let theirs = Offer { key, transports: vec![offered] }.encode();
        let socket = SocketId::accepted(number.into());
        self.input(Input::Accepted { socket, local: addr(OURS), peer: addr(number) });
        self.input(Input::Writable { socket, bytes: 1 << 16, window_bytes: usize::MAX });
        let room = self.relay.recv_buf(socket);
        room[..theirs.len()].copy_from_slice(&theirs);
        self.input(Input::Read { socket, len: theirs.len() });
        self.poll(neighbours);
        let ours = self.said.remove(&socket).expect("it offers, too");
        let parsed = Offer::parse(&ours).expect("an offer");
        let purpose = Purpose {
            transport: self.transport,
            slot: 0,
            offers: [OfferDigest::of(&theirs), OfferDigest::of(&ours)],
            keys: [key, parsed.key],
        };
        ConnectionOptions {
            role: Role::Initiator,
            local: Some(addr(number).ip()),
            peer: addr(OURS),
            peer_key: parsed.key,
            secrets: pair_secrets(export_secret, &purpose).expect("there is an exporter"),
            flows_max,
        }
    }

    /// Gives the relay datagrams of a neighbour, of which each but the last has `stride` bytes.
    pub(crate) fn deliver(&mut self, number: u8, stride: usize, data: &[u8]) {
        let to = Some(addr(OURS).ip());
        let data = counted(|| BytesMut::from(data));
        let datagrams = Datagrams { from: addr(number), to, ecn: 0, stride, data };
        self.input(Input::Datagrams { port: PortId(0), datagrams });
    }

    /// The time of what is to be done next.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.timeout
    }

    /// What was due is done.
    pub(crate) fn handle_timeout(&mut self) {
        self.input(Input::Timeout);
    }

    fn input(&mut self, input: Input) {
        counted(|| self.relay.handle_input(self.now, input));
        self.note_peak();
    }

    /// Does what the relay wants. Returns how many datagrams it sent.
    pub(crate) fn poll(&mut self, neighbours: &mut impl Neighbours) -> usize {
        let mut datagrams = 0;
        for outputs in 0.. {
            assert!(outputs < OUTPUTS_MAX, "the relay does not come to rest at {:?}", self.now);
            self.buf.clear();
            let output = counted(|| {
                let output = self.relay.poll_output(self.now, &mut self.buf);
                // Workers' memory is the relay's, too.
                let Output::Compute { id, job } = output else { return output };
                self.relay.handle_input(self.now, Input::Computed { id, result: job.run() });
                Output::Timeout(None)
            });
            self.note_peak();
            match &output {
                Output::Datagrams { transmit, .. } => {
                    let IpAddr::V4(to) = transmit.to.ip() else { unreachable!("all have such addresses") };
                    for datagram in self.buf.chunks(transmit.stride) {
                        datagrams += 1;
                        neighbours.deliver(self.now, to.octets()[3], datagram);
                    }
                }
                Output::Send { socket } => {
                    self.said.entry(*socket).or_default().extend_from_slice(&self.buf);
                }
                Output::Event(Event::MemoryPressure { .. }) => self.pressures += 1,
                Output::Timeout(Some(at)) => {
                    self.timeout = Some(*at);
                    break;
                }
                _ => {}
            }
            counted(|| drop(output));
        }
        datagrams
    }
}

#[allow(clippy::disallowed_methods, reason = "only the system knows")]
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4096
}

/// Runs the test of this name in a process of its own, where nothing else takes memory. There it does `work`.
#[allow(clippy::disallowed_methods, reason = "a test that is to be alone needs a process")]
pub(crate) fn alone(name: &str, work: impl FnOnce()) {
    const ALONE: &str = "HEDDLE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return work();
    }
    let program = std::env::current_exe().expect("the test's own program");
    let child = std::process::Command::new(program)
        .args(["--exact", name, "--include-ignored", "--nocapture", "--test-threads=1"])
        .env(ALONE, "1")
        .output()
        .expect("it starts");
    let said = [child.stdout, child.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    println!("{}", said[0]);
    assert!(child.status.success() && said[0].contains("1 passed"), "{}", said[1]);
}

fn onion_keys() -> OnionKeys {
    OnionKeys {
        rsa_id: ids(OURS).rsa.0,
        ed25519_id: ids(OURS).ed25519.0,
        ntor_current: NtorKeypair::from_secret(&[OURS; 32]),
        ntor_previous: None,
    }
}

/// A CREATE2 that the relay answers, and what its client knows.
pub(crate) fn create2(rng: &mut Rng) -> (ClientHandshake, Body) {
    let keys = onion_keys();
    let (handshake, hdata) = ClientHandshake::ntor(&keys.rsa_id, keys.ntor_current.public(), rng);
    let (mut bytes, mut body) = (Vec::new(), [0; BODY_LEN]);
    let htype = handshake.handshake_type().htype().expect("CREATE2 has a type");
    Create2 { htype, hdata: &hdata }.encode(&mut bytes);
    body[..bytes.len()].copy_from_slice(&bytes);
    (handshake, body)
}

/// Channels on which both sides say what they offer and nothing else; who is at the other end follows from the address.
struct Vouching;

static VOUCHING: Transport = Transport {
    name: "vouching",
    id: TransportId::TLS,
    isolation: Isolation {
        ordering: Scope::Channel,
        congestion: Scope::Channel,
        backpressure: Scope::Channel,
    },
};

impl StreamTransport for Vouching {
    fn transport(&self) -> &'static Transport {
        &VOUCHING
    }

    fn accept(&mut self, _: Instant, _: UnixTime, _: SocketAddr, peer: SocketAddr) -> Box<dyn Channel> {
        Box::new(Voucher { peer, is_open: false, came: Vec::new(), lent: Vec::new(), to_say: Vec::new() })
    }

    fn dial(&mut self, _: Instant, _: UnixTime, _: &Target, _: SocketAddr) -> Box<dyn Channel> {
        unreachable!("neighbours dial")
    }
}

/// What both ends of any channel get.
fn export_secret(_: &[u8], context: &[u8], out: &mut [u8]) -> bool {
    out.iter_mut().zip(context.iter().cycle()).for_each(|(to, byte)| *to = *byte);
    true
}

struct Voucher {
    peer: SocketAddr,
    is_open: bool,
    came: Vec<u8>,
    lent: Vec<u8>,
    to_say: Vec<u8>,
}

impl Channel for Voucher {
    fn handle_read(&mut self, _: Instant, bytes: &[u8]) -> Result<usize, ChannelError> {
        self.came = bytes.to_vec();
        Ok(bytes.len())
    }

    fn next_incoming(&mut self, _: Instant) -> Result<Option<Incoming<'_>>, ChannelError> {
        if !core::mem::replace(&mut self.is_open, true) {
            let IpAddr::V4(ip) = self.peer.ip() else { unreachable!("all have such addresses") };
            let (peer, peer_addrs) = (Some(ids(ip.octets()[3])), vec![self.peer.ip()]);
            let opened = Opened {
                role: Role::Responder,
                peer,
                peer_addrs,
                our_addr: None,
                clock_ahead_s: 0,
                link_protocol: 5,
            };
            return Ok(Some(Incoming::Opened(opened)));
        }
        self.lent = core::mem::take(&mut self.came);
        Ok((!self.lent.is_empty()).then_some(Incoming::Vpadding { body: &self.lent }))
    }

    fn send_vpadding(&mut self, _: Instant, body: &[u8]) {
        self.to_say.extend_from_slice(body);
    }

    fn poll_transmit(&mut self, _: Instant, out: &mut Vec<u8>) -> bool {
        out.append(&mut self.to_say);
        false
    }

    fn export_secret(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> bool {
        export_secret(label, context, out)
    }

    fn capacity(&self) -> usize {
        0
    }

    fn send(&mut self, _: Instant, _: CircId, _: Command, _: &Body) {
        unreachable!("there is no capacity")
    }

    fn propose_circ_id(&self, _: &mut Rng) -> CircId {
        unreachable!("no circuit goes on")
    }

    fn handle_eof(&mut self, _: Instant) -> Result<(), ChannelError> {
        Err(ChannelError::PeerClosed)
    }

    fn handle_window(&mut self, _: usize) {}

    fn handle_writable(&mut self, _: Instant, _: usize) {}

    fn handle_timeout(&mut self, _: Instant) -> Result<(), ChannelError> {
        Ok(())
    }

    fn handle_wall_clock(&mut self, _: UnixTime) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn close(&mut self) {}
}
