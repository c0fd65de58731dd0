//! Peers that send what they should not: what closes is the smallest thing concerned.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use heddle_client::ExchangeState;
use heddle_network::{Net, OR_PORT, Plan, download, pattern_sha256};
use heddle_proto::cell::create::FAST_KEY_LEN;
use heddle_proto::cell::{BODY_LEN, Body, CircId, Command};
use heddle_proto::channel::{Channel, Incoming, StreamTransport, Target};
use heddle_relay::{Input, Output, Relay, RelayLanguage};
use heddle_seam::node::{Node, SocketId};
use heddle_seam::rng::{Rng, Seed};
use heddle_seam::time::{Duration, Instant, UnixTime};
use heddle_sim::{Host, HostId};
use heddle_transport::Ciphers;
use heddle_transport::tls::TlsTransport;
use std::collections::{BTreeMap, VecDeque};

const LONG: Duration = Duration::from_secs(600);
const SOCKET: SocketId = SocketId::dialled(0);

/// What a hostile peer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attack {
    /// Random bytes instead of TLS.
    Noise,
    /// A TLS connection that breaks off after so many bytes, at which a FIN is sent.
    BreakOff(usize),
    /// TLS, then random cells with random ids.
    RandomCells,
    /// TLS, then whole circuits that are sent random relay cells.
    RandomCircuits,
    /// TLS, then circuit after circuit, without ever reading an answer.
    NeverReads,
}

struct Hostile {
    attack: Attack,
    transport: TlsTransport,
    target: Target,
    channel: Option<Box<dyn Channel>>,
    wall: UnixTime,
    rng: Rng,
    writable: usize,
    sent: usize,
    cells_sent: u32,
    open: bool,
    over: bool,
    /// Circuits that were asked for, and whether they are open.
    circuits: BTreeMap<CircId, bool>,
    destroyed: u32,
    outputs: VecDeque<Output>,
    buf: Vec<u8>,
}

impl Hostile {
    fn new(attack: Attack, target: Target, seed: &Seed) -> Self {
        let to: SocketAddr = target.addrs[0];
        Hostile {
            attack,
            transport: heddle_network::transport(seed, Ciphers::default()),
            target,
            channel: None,
            wall: UnixTime::default(),
            rng: seed.child("hostile", 0).rng(),
            writable: 0,
            sent: 0,
            cells_sent: 0,
            open: false,
            over: false,
            circuits: BTreeMap::new(),
            destroyed: 0,
            outputs: VecDeque::from([Output::Connect { socket: SOCKET, to }]),
            buf: vec![0; 65_536],
        }
    }

    fn on_cell(&mut self, circ_id: CircId, command: Command) {
        match command {
            Command::CREATED_FAST => {
                self.circuits.insert(circ_id, true);
            }
            Command::DESTROY => {
                self.circuits.remove(&circ_id);
                self.destroyed += 1;
            }
            _ => {}
        }
    }

    fn next_cell(&mut self) -> Option<(CircId, Command, Body)> {
        const CELLS: u32 = 3_000;
        if self.cells_sent >= CELLS {
            return None;
        }
        self.cells_sent += 1;
        let body = self.rng.array();
        let any = CircId::new(1 << 31 | (1 + self.rng.below(20) as u32))?;
        match self.attack {
            Attack::RandomCells => {
                let id = if self.rng.below(4) == 0 { CircId::new(1 + self.rng.next_u32() / 2)? } else { any };
                let commands = [1, 2, 3, 4, 5, 6, 9, 10, 11, 0, 8, 12, 77];
                let command = Command(commands[self.rng.below(commands.len() as u64) as usize]);
                Some((id, command, body))
            }
            Attack::RandomCircuits => match self.circuits.get(&any) {
                None => {
                    self.circuits.insert(any, false);
                    let mut create = [0; BODY_LEN];
                    create[..FAST_KEY_LEN].copy_from_slice(&body[..FAST_KEY_LEN]);
                    Some((any, Command::CREATE_FAST, create))
                }
                Some(true) if self.rng.below(2) == 0 => Some((any, Command::RELAY_EARLY, body)),
                Some(true) => Some((any, Command::RELAY, body)),
                Some(false) => Some((any, Command::CREATE2, body)),
            },
            _ => Some((CircId::new(1 << 31 | self.cells_sent)?, Command::CREATE_FAST, body)),
        }
    }

    fn fill(&mut self, now: Instant, out: &mut Vec<u8>) {
        if self.attack == Attack::Noise {
            let mut noise = vec![0; self.writable.min(1000)];
            self.rng.fill(&mut noise);
            return out.extend(noise);
        }
        let Some(mut channel) = self.channel.take() else { return };
        channel.handle_writable(now, self.writable);
        while self.open && channel.capacity() > 0 {
            let Some((id, command, body)) = self.next_cell() else { break };
            channel.send(now, id, command, &body);
        }
        channel.poll_transmit(now, out);
        self.channel = Some(channel);
        if let Attack::BreakOff(at) = self.attack
            && self.sent + out.len() >= at
        {
            out.truncate(at - self.sent);
            self.over = true;
            self.outputs.push_back(Output::Close { socket: SOCKET });
        }
    }
}

impl Node<RelayLanguage> for Hostile {
    fn recv_buf(&mut self, _: SocketId) -> &mut [u8] {
        &mut self.buf
    }

    fn handle_input(&mut self, now: Instant, input: Input) {
        match input {
            Input::WallClock(wall) => self.wall = wall,
            Input::Connected { .. } => {
                let peer = self.target.addrs[0];
                self.channel = Some(self.transport.dial(now, self.wall, &self.target, peer));
                self.outputs.push_back(Output::Interest { socket: SOCKET, read: true, write: true });
            }
            Input::Writable { bytes, .. } => self.writable = bytes,
            Input::Eof { .. } | Input::Failed { .. } => self.over = true,
            Input::Read { len, .. } => {
                let Some(mut channel) = self.channel.take() else { return };
                let mut used = 0;
                while used < len && !self.over {
                    match channel.handle_read(now, &self.buf[used..len]) {
                        Ok(taken) => used += taken,
                        Err(_) => self.over = true,
                    }
                    while let Ok(Some(incoming)) = channel.next_incoming(now) {
                        match incoming {
                            Incoming::Opened(_) => {
                                self.open = true;
                                let read = self.attack != Attack::NeverReads;
                                self.outputs.push_back(Output::Interest {
                                    socket: SOCKET,
                                    read,
                                    write: true,
                                });
                            }
                            Incoming::Cell { circ_id, command, .. } => self.on_cell(circ_id, command),
                            Incoming::Vpadding { .. } => {}
                        }
                    }
                }
                self.channel = Some(channel);
            }
            _ => {}
        }
    }

    fn poll_output(&mut self, now: Instant, buf: &mut Vec<u8>) -> Output {
        if let Some(output) = self.outputs.pop_front() {
            return output;
        }
        if !self.over {
            self.fill(now, buf);
            self.sent += buf.len();
            self.writable -= buf.len();
        }
        if buf.is_empty() { Output::Timeout(None) } else { Output::Send { socket: SOCKET } }
    }
}

/// Runs an attack on the guard beside a client's download; returns the attacker.
fn attack(attack: Attack, seed: u64) -> (Net, HostId) {
    let mut net = Net::new(&Plan { seed, ..Plan::default() });
    let circuit = net.build(&[0, 1, 2], true);
    let down = net.begin(circuit, download(1_000_000));
    let target = net.relays[0].hop.target.clone();
    assert_eq!(target.addrs[0].port(), OR_PORT);
    let node = Hostile::new(attack, target, &net.sim.seed().child("attacker", 0));
    let addrs = vec![IpAddr::V4(Ipv4Addr::new(172, 16, 9, 9))];
    let host = net.sim.add_host(Host {
        addrs,
        ports: vec![],
        nodes: vec![Box::new(node)],
        beside: vec![],
        plain: false,
    });
    let status = net.await_status(down, LONG, |status| status.ended_at.is_some());
    assert!(matches!(status.state, ExchangeState::Ended(_)), "{attack:?}: {status:?}");
    assert_eq!(status.received_sha256, pattern_sha256(1_000_000));
    net.sim.run_for(Duration::from_secs(100));
    assert!(net.proxy(|proxy| proxy.has_circuit(circuit)), "{attack:?}");
    (net, host)
}

fn hostile<R>(net: &mut Net, host: HostId, speak: impl FnOnce(&mut Hostile) -> R) -> R {
    net.sim.with(host, 0, |hostile: &mut Hostile, _| speak(hostile))
}

#[test]
fn noise_closes_its_own_connection() {
    let (mut net, host) = attack(Attack::Noise, 1);
    assert!(hostile(&mut net, host, |hostile| hostile.over));
}

#[test]
fn a_handshake_may_break_off_anywhere() {
    for at in [1, 5, 100, 300, 600, 1000, 2000] {
        let (mut net, _) = attack(Attack::BreakOff(at), 1);
        assert_eq!(net.circuits(0, 0), 1);
    }
}

#[test]
fn random_cells_close_no_channel() {
    for seed in 0..5 {
        let (mut net, host) = attack(Attack::RandomCells, seed);
        let (over, sent) = hostile(&mut net, host, |hostile| (hostile.over, hostile.cells_sent));
        assert!(!over, "the channel lives");
        assert_eq!(sent, 3_000);
    }
}

#[test]
fn random_relay_cells_close_their_circuits() {
    let (mut net, host) = attack(Attack::RandomCircuits, 1);
    let (over, destroyed) = hostile(&mut net, host, |hostile| (hostile.over, hostile.destroyed));
    assert!(!over, "the channel lives");
    // There are twenty ids; each is used for a circuit, and used again once that was destroyed.
    assert!(destroyed >= 20, "{destroyed} circuits were destroyed");
}

#[test]
fn who_never_reads_does_not_grow_our_queues() {
    let (mut net, host) = attack(Attack::NeverReads, 1);
    assert!(!hostile(&mut net, host, |hostile| hostile.over));
    let relay = net.relays[0].host;
    let (queued, circuits) =
        net.sim.with(relay, 0, |relay: &mut Relay, _| (relay.queued_cells(), relay.circuits()));
    assert!(circuits <= 3_001 && queued <= 3_001, "{circuits} circuits, {queued} cells");
}
