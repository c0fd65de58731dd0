//! Hosts that exchange real packets over a wire that flips bits.

use heddle_netem::{
    DirectionOptions, HostId, HostOptions, Loss, Reorder, Seed, Topology, TopologyOptions, WireOptions,
};
use heddle_utcp::{BufferPool, CloseReason, ConnectionId, Host, HostLimits, Instant, Options, State};
use std::net::SocketAddr;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
/// More steps and packets than any test takes. Those that run until nothing is left to happen would else never end if a
/// host always has something to do.
const STEPS_MAX: u32 = 1_000_000;

struct Pair {
    now: Instant,
    /// Steps and packets so far.
    steps: u32,
    hosts: [Host; 2],
    topology: Topology<Vec<u8>>,
}

impl Pair {
    fn new(direction: DirectionOptions, seed: u64) -> Self {
        let host = |name: &str| HostOptions { name: name.to_owned(), ..HostOptions::default() };
        let options = TopologyOptions {
            hosts: vec![host("a"), host("b")],
            wires: vec![WireOptions { from: "a".into(), to: "b".into(), there: direction, back: None }],
            default_wire: None,
        };
        let pool = BufferPool::new(64 << 20);
        let hosts = [1, 2].map(|number| {
            let mut rng = Seed::from_number(seed * 2 + number).rng();
            let limits = HostLimits { connections_max: 100, backlog_max: 3 };
            let random = Box::new(move || rng.next_u64());
            Host::new(Options { time_wait_ns: S, ..Options::default() }, pool.clone(), limits, random)
        });
        let topology = Topology::new(&options, &Seed::from_number(seed)).expect("good options");
        Pair { now: Instant::from_nanos(S), steps: 0, hosts, topology }
    }

    fn count_step(&mut self) {
        self.steps += 1;
        assert!(self.steps < STEPS_MAX, "they go on for ever, at {:?}", self.now);
    }

    /// Does the next thing that is due. False when there is none.
    fn step(&mut self) -> bool {
        self.count_step();
        for number in 0..2 {
            let mut packet = Vec::new();
            while self.hosts[number].poll_packet(self.now, &mut packet) {
                self.count_step();
                let now = self.now;
                let (from, to) = (HostId(number as u32), HostId(1 - number as u32));
                self.topology.send(now, from, to, core::mem::take(&mut packet)).expect("a wire");
            }
        }
        let wire = self.topology.next_time();
        let timers = self.hosts.iter().filter_map(Host::poll_timeout);
        let Some(next) = timers.chain(wire).min() else { return false };
        self.now = self.now.max(next);
        while let Some(delivery) = self.topology.poll(self.now) {
            self.hosts[delivery.to.0 as usize].handle_packet(self.now, &delivery.packet);
        }
        self.hosts.iter_mut().for_each(|host| host.handle_timeout(self.now));
        true
    }

    /// Moves `bytes` bytes from the first host's connection to the second's, then closes both.
    fn transfer(&mut self, sender: ConnectionId, bytes: usize) {
        let data: Vec<u8> = (0..bytes).map(|n| (n * 31 + n / 251) as u8).collect();
        let (mut written, mut read, mut receiver) = (0, Vec::new(), None);
        while read.len() < bytes {
            assert!(self.now < Instant::from_nanos(10_000 * S), "{} of {bytes}", read.len());
            assert!(self.step(), "stuck after {} of {bytes}", read.len());
            let connection = self.hosts[0].get_mut(sender).expect("it is ours");
            written += connection.write(&data[written..]);
            receiver = receiver.or_else(|| self.hosts[1].poll_accept());
            let Some(connection) = receiver.and_then(|id| self.hosts[1].get_mut(id)) else { continue };
            let mut buffer = [0; 5000];
            loop {
                let count = connection.read(self.now, &mut buffer);
                read.extend_from_slice(&buffer[..count]);
                if count == 0 {
                    break;
                }
            }
        }
        assert!(read == data, "the bytes differ");
        let receiver = receiver.expect("it received");
        self.hosts[0].get_mut(sender).expect("it is ours").shutdown();
        self.hosts[1].get_mut(receiver).expect("it is theirs").shutdown();
        while self.step() {}
        for (host, id) in [(0, sender), (1, receiver)] {
            let connection = self.hosts[host].get(id).expect("it was not released");
            assert_eq!(connection.close_reason(), Some(CloseReason::Finished));
            self.hosts[host].release(id);
        }
        self.step();
    }
}

fn local(v6: bool) -> SocketAddr {
    if v6 { "[fd00::1]:0" } else { "10.0.0.1:0" }.parse().expect("an address")
}

fn remote(v6: bool) -> SocketAddr {
    if v6 { "[fd00::2]:80" } else { "10.0.0.2:80" }.parse().expect("an address")
}

#[test]
fn bytes_survive_loss_reordering_duplicates_and_flips() {
    for (seed, v6) in [(1, false), (2, true), (3, false)] {
        let mut pair = Pair::new(
            DirectionOptions {
                delay_ns: 20 * MS,
                loss: Loss::Bernoulli { probability: 0.02 },
                reorder: Some(Reorder { probability: 0.05, hold_ns: 5 * MS }),
                duplicate: 0.02,
                corrupt: 0.05,
                ..DirectionOptions::default()
            },
            seed,
        );
        pair.hosts[1].listen(80);
        let id = pair.hosts[0].connect(pair.now, local(v6), remote(v6)).expect("room");
        pair.transfer(id, 400_000);
        assert!(pair.hosts.iter().all(Host::is_empty));
    }
}

#[test]
fn a_port_that_does_not_listen_refuses() {
    let mut pair = Pair::new(DirectionOptions { delay_ns: MS, ..DirectionOptions::default() }, 1);
    let id = pair.hosts[0].connect(pair.now, local(false), remote(false)).expect("room");
    while pair.step() {}
    let connection = pair.hosts[0].get(id).expect("it is ours");
    assert_eq!((connection.state(), connection.close_reason()), (State::Closed, Some(CloseReason::Refused)));
}

#[test]
fn the_backlog_is_bounded_and_pairs_are_unique() {
    let mut pair = Pair::new(DirectionOptions { delay_ns: MS, ..DirectionOptions::default() }, 1);
    pair.hosts[1].listen(80);
    let ids: Vec<_> =
        (0..5).map(|_| pair.hosts[0].connect(pair.now, local(false), remote(false)).expect("room")).collect();
    let taken = pair.hosts[0].addresses(ids[0]).expect("ours").0;
    assert_eq!(pair.hosts[0].connect(pair.now, taken, remote(false)), None);
    while pair.now < Instant::from_nanos(S + 20 * MS) && pair.step() {}
    assert_eq!(pair.hosts[1].len(), 3);
    let established =
        ids.iter().filter(|id| pair.hosts[0].get(**id).expect("ours").state() == State::Established);
    assert_eq!(established.count(), 3);
}

#[test]
fn changes_are_told_once_and_ports_can_be_closed() {
    let mut pair = Pair::new(DirectionOptions { delay_ns: MS, ..DirectionOptions::default() }, 1);
    pair.hosts[1].listen(80);
    let id = pair.hosts[0].connect(pair.now, local(false), remote(false)).expect("room");
    assert_eq!(pair.hosts[0].poll_changed(), None, "the application knows what it does itself");
    while pair.now < Instant::from_nanos(S + 5 * MS) && pair.step() {}
    assert_eq!(pair.hosts[0].poll_changed(), Some(id));
    assert_eq!(pair.hosts[0].poll_changed(), None);
    let (from, to) = pair.hosts[0].addresses(id).expect("ours");
    assert_eq!(pair.hosts[0].find(from, to), Some(id));
    let accepted = pair.hosts[1].poll_accept().expect("the handshake is done");
    assert_eq!(pair.hosts[1].open_connections().collect::<Vec<_>>(), [(to, from, accepted)]);

    pair.hosts[1].stop_listening();
    let late = pair.hosts[0].connect(pair.now, local(false), remote(false)).expect("room");
    pair.hosts[1].get_mut(accepted).expect("ours").abort(0);
    while pair.step() {}
    let reason = |id| pair.hosts[0].get(id).and_then(heddle_utcp::Connection::close_reason);
    assert_eq!(reason(late), Some(CloseReason::Refused));
    assert_eq!(reason(id), Some(CloseReason::Reset { code: 0 }));
    assert_eq!(pair.hosts[0].find(from, to), None, "it is closed");
    // Nothing is told of what is forgotten.
    pair.hosts[0].release(id);
    pair.hosts[0].release(late);
    while pair.hosts[0].poll_packet(pair.now, &mut Vec::new()) {}
    assert_eq!((pair.hosts[0].len(), pair.hosts[0].poll_changed()), (0, None));
}
