//! A relay whose rate is low, beside honest neighbours that send at full speed: what it holds stays within its bounds,
//! and nobody's circuit ends.

use super::{Attacked, Bounds, Neighbours, create2};
use crate::dtls::options::{POOL_BYTES_MIN, SessionOptions};
use crate::quic::{QuicEndpoint, QuicOptions};
use crate::sctp_dtls::{self, SctpOptions};
use crate::tcp_dtls::{self, DtlsOptions};
use bytes::BytesMut;
use heddle_proto::bucket::Limit;
use heddle_proto::cell::create::Created2;
use heddle_proto::cell::relay::{self, RelayCommand};
use heddle_proto::cell::{BODY_LEN, CELL_LEN, CircId, Command};
use heddle_proto::channel::Role;
use heddle_proto::crypto::OriginLayers;
use heddle_proto::crypto::onionskin::ClientHandshake;
use heddle_proto::endpoint::{ConnId, ConnectionEvent, Endpoint, FlowState};
use heddle_seam::datagrams::Datagrams;
use heddle_seam::rng::{Rng, Seed};
use heddle_seam::time::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};
use zeroize::Zeroizing;

/// How long a datagram is on its way.
const DELAY: Duration = Duration::from_millis(10);

/// A circuit of a neighbour, which is a client in this.
struct Circuit {
    circ_id: CircId,
    handshake: Option<ClientHandshake>,
    layers: OriginLayers,
    is_blocked: bool,
}

/// A neighbour's end, and what is on its way to it and from it.
struct Neighbour {
    endpoint: Box<dyn Endpoint>,
    conn: ConnId,
    is_ready: bool,
    circuits: Vec<Circuit>,
    rng: Rng,
    ended: usize,
    to_relay: VecDeque<(Instant, Vec<u8>)>,
    to_it: VecDeque<(Instant, Vec<u8>)>,
}

/// What has arrived by now.
fn pop_due(wire: &mut VecDeque<(Instant, Vec<u8>)>, now: Instant) -> Option<Vec<u8>> {
    let is_due = wire.front().is_some_and(|(at, _)| *at <= now);
    if is_due { wire.pop_front().map(|(_, datagram)| datagram) } else { None }
}

struct Street(BTreeMap<u8, Neighbour>);

impl Neighbours for Street {
    fn deliver(&mut self, now: Instant, number: u8, datagram: &[u8]) {
        if let Some(neighbour) = self.0.get_mut(&number) {
            neighbour.to_it.push_back((now + DELAY, datagram.to_vec()));
        }
    }
}

impl Neighbour {
    /// Does what is to be done now.
    fn work(&mut self, now: Instant) {
        while let Some(datagram) = pop_due(&mut self.to_it, now) {
            let (from, stride) = (super::addr(super::OURS), datagram.len());
            let data = BytesMut::from(&datagram[..]);
            self.endpoint.handle_datagrams(now, Datagrams { from, to: None, ecn: 0, stride, data });
        }
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
        loop {
            self.hear(now);
            self.supply(now);
            if !self.transmit(now) {
                break;
            }
        }
    }

    fn hear(&mut self, now: Instant) {
        while let Some((_, event)) = self.endpoint.poll_event(now) {
            match event {
                ConnectionEvent::Ready => self.is_ready = true,
                ConnectionEvent::Writable(circ_id) => {
                    let circuit = self.circuits.iter_mut().find(|circuit| circuit.circ_id == circ_id);
                    circuit.into_iter().for_each(|circuit| circuit.is_blocked = false);
                }
                ConnectionEvent::Ended(error) => panic!("{error}"),
                ConnectionEvent::FlowRoom(_) | ConnectionEvent::Capacity | ConnectionEvent::Suspect(_) => {}
            }
        }
        while let Some(cell) = self.endpoint.next_incoming(now) {
            let at = self.circuits.iter().position(|circuit| circuit.circ_id == cell.circ_id);
            let at = at.expect("nothing comes after the end");
            match cell.command {
                Command::CREATED2 => {
                    let circuit = &mut self.circuits[at];
                    let hdata = Created2::parse(cell.body).expect("a CREATED2").hdata;
                    let handshake = circuit.handshake.take().expect("once");
                    circuit.layers.add_hop(&handshake.finish(hdata).expect("the relay's keys").keys);
                }
                Command::DESTROY => {
                    self.ended += 1;
                    self.circuits.remove(at);
                }
                _ => {}
            }
        }
    }

    /// Sends cells on all circuits in turn, as many as are taken.
    fn supply(&mut self, now: Instant) {
        loop {
            let mut any = false;
            for circuit in &mut self.circuits {
                if circuit.is_blocked || circuit.layers.hops() == 0 || self.endpoint.capacity(self.conn) == 0
                {
                    continue;
                }
                let mut body = [0; BODY_LEN];
                relay::write(&mut body, RelayCommand::DROP, None, &[], &mut self.rng);
                circuit.layers.seal(0, &mut body);
                let state = self.endpoint.send(now, self.conn, circuit.circ_id, Command::RELAY, &body);
                circuit.is_blocked = state == FlowState::Blocked;
                any = true;
            }
            if !any {
                return;
            }
        }
    }

    fn transmit(&mut self, now: Instant) -> bool {
        let (mut out, mut any) = (Vec::new(), false);
        while let Some(transmit) = self.endpoint.poll_transmit(now, &mut out) {
            let datagrams = out.chunks(transmit.stride);
            self.to_relay.extend(datagrams.map(|datagram| (now + DELAY, datagram.to_vec())));
            out.clear();
            any = true;
        }
        any
    }

    fn begin(&mut self, now: Instant, circuits: u32) {
        for number in 1..=circuits {
            let circ_id = Role::Initiator.circ_id(number).expect("it is not zero");
            let (handshake, body) = create2(&mut self.rng);
            self.endpoint.send(now, self.conn, circ_id, Command::CREATE2, &body);
            let (handshake, layers) = (Some(handshake), OriginLayers::new());
            self.circuits.push(Circuit { circ_id, handshake, layers, is_blocked: false });
        }
    }

    fn next_at(&mut self) -> Option<Instant> {
        let came = [self.to_it.front(), self.to_relay.front()].map(|next| next.map(|(at, _)| *at));
        came.into_iter().chain([self.endpoint.poll_timeout()]).flatten().min()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Quic,
    Dtls,
    Sctp,
}

fn endpoint(over: Over, number: u8, max_queue_bytes: usize) -> Box<dyn Endpoint> {
    #[allow(clippy::disallowed_methods, reason = "an anchor can be had no other way")]
    let anchor = std::time::Instant::now();
    let (secret, seed) = (Zeroizing::new([number; 32]), Seed::from_number(number.into()));
    const GOOD: &str = "the defaults are good";
    match over {
        Over::Quic => {
            let shared_receive_window_bytes = max_queue_bytes / 2;
            let options = QuicOptions { shared_receive_window_bytes, ..QuicOptions::new(anchor) };
            Box::new(QuicEndpoint::new(options, &secret, &seed).expect(GOOD))
        }
        Over::Dtls => {
            let mut options = DtlsOptions::new(anchor);
            bound(&mut options.session, max_queue_bytes);
            tcp_dtls::endpoint(options, &secret, &seed).expect(GOOD)
        }
        Over::Sctp => {
            let mut options = SctpOptions::new(anchor);
            bound(&mut options.session, max_queue_bytes);
            sctp_dtls::endpoint(options, &secret, &seed).expect(GOOD)
        }
    }
}

/// As a relay does that may hold so much in queues.
fn bound(options: &mut SessionOptions, max_queue_bytes: usize) {
    options.pool_bytes_max = (max_queue_bytes / 2).clamp(POOL_BYTES_MIN, options.pool_bytes_max);
}

struct Town {
    attacked: Attacked,
    street: Street,
}

impl Town {
    fn new(over: Over, bounds: &Bounds, neighbours: u8, circuits: u32) -> Self {
        let attacked = Attacked::new(bounds, || endpoint(over, super::OURS, bounds.max_queue_bytes));
        let mut town = Town { attacked, street: Street(BTreeMap::new()) };
        for number in 1..=neighbours {
            let mut endpoint = endpoint(over, number, 1 << 30);
            let options = town.attacked.vouch(number, endpoint.public_key(), &mut town.street);
            let conn = endpoint.open(town.attacked.now, options);
            let rng = Seed::from_number(number.into()).rng();
            let neighbour = Neighbour {
                endpoint,
                conn,
                is_ready: false,
                circuits: Vec::new(),
                rng,
                ended: 0,
                to_relay: VecDeque::new(),
                to_it: VecDeque::new(),
            };
            town.street.0.insert(number, neighbour);
        }
        town.run(Duration::from_secs(1));
        let now = town.attacked.now;
        for neighbour in town.street.0.values_mut() {
            assert!(neighbour.is_ready);
            neighbour.begin(now, circuits);
        }
        town
    }

    /// Bytes of cells that the relay took.
    fn read_bytes(&self) -> u64 {
        self.attacked.relay.stats().transports[1].cells_in * CELL_LEN as u64
    }

    fn run(&mut self, time: Duration) {
        let end = self.attacked.now + time;
        loop {
            let now = self.attacked.now;
            for (number, neighbour) in &mut self.street.0 {
                neighbour.work(now);
                while let Some(datagram) = pop_due(&mut neighbour.to_relay, now) {
                    self.attacked.deliver(*number, datagram.len(), &datagram);
                }
            }
            if self.attacked.timeout().is_some_and(|at| at <= now) {
                self.attacked.handle_timeout();
            }
            self.attacked.poll(&mut self.street);
            let next = self.street.0.values_mut().filter_map(Neighbour::next_at).min();
            let next = [next, self.attacked.timeout()].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.attacked.now = now.max(next);
        }
        self.attacked.now = end;
    }
}

/// `RelayBandwidthBurst` lets much pass at first, so that windows grow, and then `RelayBandwidthRate` next to nothing.
fn rate_stops_reading(over: Over) {
    const MAX: usize = 16 << 20;
    const BURST: u64 = 20_000_000;
    let limit = Limit { rate_bytes_per_s: 75_000, burst_bytes: BURST };
    let bounds = Bounds { max_queue_bytes: MAX, relay_bandwidth: Some(limit) };
    let mut town = Town::new(over, &bounds, 6, 8);
    town.run(Duration::from_secs(1));
    let after_burst = town.read_bytes();
    assert!(after_burst >= BURST * 9 / 10, "{after_burst} bytes were read");
    town.run(Duration::from_secs(30));
    let then = town.read_bytes() - after_burst;
    assert!((20 * 75_000..40 * 75_000).contains(&then), "{then} bytes were read in 30 seconds");
    town.attacked.assert_bounds(&format!("a rate over {over:?}"));
    let ended: usize = town.street.0.values().map(|neighbour| neighbour.ended).sum();
    assert_eq!((ended, town.attacked.pressures, town.attacked.relay.circuits()), (0, 0, 48));
}

#[test]
fn a_rate_that_stops_reading_ends_nobody_over_quic() {
    rate_stops_reading(Over::Quic);
}

#[test]
fn a_rate_that_stops_reading_ends_nobody_over_tcp_dtls() {
    rate_stops_reading(Over::Dtls);
}

#[test]
fn a_rate_that_stops_reading_ends_nobody_over_sctp_dtls() {
    rate_stops_reading(Over::Sctp);
}
