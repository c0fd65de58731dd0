//! A circuit of a hostile client: built as it should be, and then used as it should not.

use super::attack::Attack;
use crate::{ECHO, HOLE, OR_PORT, SERVER, SOURCE};
use core::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use core::num::NonZeroU16;
use heddle_client::Hop;
use heddle_proto::cell::create::{Create2, Created2, FAST_KEY_LEN};
use heddle_proto::cell::extend::{Extend2, Extended2, LinkSpec};
use heddle_proto::cell::flow_control::Sendme;
use heddle_proto::cell::relay::{self, DATA_LEN, RelayCommand, StreamId};
use heddle_proto::cell::stream::{Begin, BeginFlags, Host, HostName, Resolve};
use heddle_proto::cell::{BODY_LEN, Body, CircId, Command};
use heddle_proto::crypto::onionskin::{ClientHandshake, HandshakeType};
use heddle_proto::crypto::tor1::{CellDigest, OriginLayers};
use heddle_seam::rng::Rng;
use std::collections::VecDeque;

/// DATA cells after which an exit that runs the old windows wants a SENDME.
const SENDME_AFTER: u32 = 100;
/// DATA for a stream whose window takes 500 cells.
const TOO_MUCH_DATA: usize = 520;
/// Streams or questions at once.
const FLOOD: usize = 60;
/// What a server is asked for that is never read.
const MUCH: u64 = 20_000_000;
/// What a server is asked for that is acknowledged twice.
const ENOUGH: u64 = 150_000;

/// A cell for the channel.
pub(super) type Cell = (CircId, Command, Body);

pub(super) struct Circuit {
    id: CircId,
    attack: Attack,
    path: Vec<Hop>,
    layers: OriginLayers,
    joining: Option<ClientHandshake>,
    out: VecDeque<Cell>,
    streams: u16,
    data_cells: u32,
    has_struck: bool,
    is_over: bool,
    rng: Rng,
}

impl Circuit {
    /// A circuit over the first relays of this path, as many as the attack wants.
    pub fn new(id: CircId, attack: Attack, path: Vec<Hop>, rng: Rng) -> Self {
        let mut circuit = Circuit {
            id,
            attack,
            path,
            layers: OriginLayers::new(),
            joining: None,
            out: VecDeque::new(),
            streams: 0,
            data_cells: 0,
            has_struck: false,
            is_over: false,
            rng,
        };
        let (joining, onionskin) = ClientHandshake::fast(&mut circuit.rng);
        circuit.joining = Some(joining);
        circuit.queue(Command::CREATE_FAST, &onionskin[..FAST_KEY_LEN]);
        circuit
    }

    pub fn poll_cell(&mut self) -> Option<Cell> {
        self.out.pop_front()
    }

    /// Whether the rule is broken, as far as this side goes.
    pub fn has_struck(&self) -> bool {
        self.has_struck && self.out.is_empty()
    }

    /// Whether a relay has ended it.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether cells that come are still read.
    pub fn reads(&self) -> bool {
        self.attack != Attack::NeverReadsData || self.data_cells == 0
    }

    pub fn on_cell(&mut self, command: Command, body: &Body) {
        match command {
            Command::CREATED_FAST => self.join(&body[..2 * FAST_KEY_LEN]),
            Command::DESTROY => self.is_over = true,
            Command::RELAY => self.on_relay(body),
            _ => {}
        }
    }

    fn join(&mut self, reply: &[u8]) {
        let Some(joining) = self.joining.take() else { return };
        let Ok(established) = joining.finish(reply) else { return };
        self.layers.add_hop(&established.keys);
        let hops = self.layers.hops();
        match self.attack.hops() {
            Some(wanted) if hops < wanted => {
                let hop = self.path[hops].clone();
                let data = self.extend(&hop);
                self.send(Command::RELAY_EARLY, RelayCommand::EXTEND2, None, &data);
            }
            Some(wanted) if hops == wanted => self.strike(),
            // A relay that has a channel to another already takes that, whatever address is asked for.
            _ => {}
        }
    }

    fn on_relay(&mut self, body: &Body) {
        let mut body = *body;
        let Some((_, digest)) = self.layers.open(&mut body) else { return };
        let Ok((header, data)) = relay::parse(&body) else { return };
        match header.command {
            RelayCommand::EXTENDED2 => {
                if let Ok(extended) = Extended2::parse(data) {
                    self.join(extended.hdata());
                }
            }
            RelayCommand::TRUNCATED => self.is_over = true,
            RelayCommand::DATA => self.on_data(digest),
            _ => {}
        }
    }

    fn on_data(&mut self, digest: CellDigest) {
        self.data_cells += 1;
        if self.data_cells != SENDME_AFTER {
            return;
        }
        match self.attack {
            Attack::WrongSendme => {
                let wrong = self.rng.array();
                self.acknowledge(wrong);
            }
            Attack::SendmeTwice => (0..2).for_each(|_| self.acknowledge(digest)),
            _ => return,
        }
        self.has_struck = true;
    }

    /// Breaks a rule, or begins what leads to it.
    fn strike(&mut self) {
        self.has_struck = !matches!(self.attack, Attack::WrongSendme | Attack::SendmeTwice);
        match self.attack {
            Attack::WrongSendme | Attack::SendmeTwice => self.begin_source(ENOUGH),
            Attack::StreamSendme => {
                self.begin_source(ENOUGH);
                let stream = StreamId::new(self.streams);
                (0..20).for_each(|_| self.say(RelayCommand::SENDME, stream, &[]));
            }
            Attack::DataBeyondWindow => {
                // While there is no connection nothing is written there, so the window does not open again.
                let stream = self.begin(HOLE, OR_PORT);
                let data: [u8; DATA_LEN] = self.rng.array();
                (0..TOO_MUCH_DATA).for_each(|_| self.say(RelayCommand::DATA, stream, &data));
            }
            Attack::TooManyEarly => {
                (0..12).for_each(|_| self.send(Command::RELAY_EARLY, RelayCommand::DROP, None, &[]));
            }
            Attack::Replay => {
                self.say(RelayCommand::DROP, None, &[]);
                self.out.extend(self.out.back().copied());
            }
            Attack::BeginFlood => (0..FLOOD).for_each(|_| _ = self.begin(SERVER, ECHO)),
            Attack::ResolveFlood => (0..FLOOD).for_each(|_| self.ask()),
            Attack::NeverReadsData => (0..4).for_each(|_| self.begin_source(MUCH)),
            Attack::ExtendToSelf | Attack::ExtendToNobody | Attack::ExtendElsewhere | Attack::ExtendCut => {
                let data = self.bad_extend();
                self.send(Command::RELAY_EARLY, RelayCommand::EXTEND2, None, &data);
            }
            _ => {}
        }
    }

    fn bad_extend(&mut self) -> Vec<u8> {
        let [guard, next] = [0, 1].map(|place| self.path[place].clone());
        match self.attack {
            Attack::ExtendToSelf => self.extend(&guard),
            Attack::ExtendToNobody => {
                let mut hop = next;
                hop.target.rsa.0 = self.rng.array();
                hop.target.ed25519.iter_mut().for_each(|id| id.0 = self.rng.array());
                self.extend(&hop)
            }
            Attack::ExtendElsewhere => {
                let mut hop = next;
                hop.target.addrs = vec![(HOLE, OR_PORT).into()];
                self.extend(&hop)
            }
            _ => {
                let mut data = self.extend(&next);
                data.truncate(self.rng.below(data.len() as u64) as usize);
                data
            }
        }
    }

    /// What EXTEND2 says to be extended to a relay, whose onionskin is waited for.
    fn extend(&mut self, hop: &Hop) -> Vec<u8> {
        let (joining, onionskin) = ClientHandshake::ntor(&hop.target.rsa.0, &hop.ntor_key, &mut self.rng);
        self.joining = Some(joining);
        let addr = match hop.target.addrs.first() {
            Some(SocketAddr::V4(addr)) => *addr,
            _ => SocketAddrV4::new(Ipv4Addr::LOCALHOST, OR_PORT),
        };
        let mut specs = vec![LinkSpec::Ipv4(addr), LinkSpec::RsaId(hop.target.rsa.0)];
        specs.extend(hop.target.ed25519.map(|id| LinkSpec::Ed25519Id(id.0)));
        let htype = HandshakeType::Ntor.htype().expect("it has a number");
        let mut data = Vec::new();
        Extend2 { specs, htype, hdata: &onionskin }.encode(&mut data);
        data
    }

    fn acknowledge(&mut self, digest: CellDigest) {
        let mut data = Vec::new();
        Sendme::Authenticated(digest).encode(&mut data);
        self.say(RelayCommand::SENDME, None, &data);
    }

    fn begin(&mut self, to: IpAddr, port: u16) -> Option<StreamId> {
        let IpAddr::V4(to) = to else { return None };
        self.streams += 1;
        let stream = StreamId::new(self.streams);
        let port = NonZeroU16::new(port)?;
        let mut data = Vec::new();
        Begin { host: Host::Ipv4(to), port, flags: BeginFlags(0) }.encode(&mut data);
        self.say(RelayCommand::BEGIN, stream, &data);
        stream
    }

    fn begin_source(&mut self, bytes: u64) {
        let stream = self.begin(SERVER, SOURCE);
        self.say(RelayCommand::DATA, stream, &bytes.to_be_bytes());
    }

    fn ask(&mut self) {
        self.streams += 1;
        let name = format!("n{}.example", self.rng.next_u32());
        let mut data = Vec::new();
        Resolve::Name(HostName::new(&name).expect("it is a name")).encode(&mut data);
        self.say(RelayCommand::RESOLVE, StreamId::new(self.streams), &data);
    }

    fn say(&mut self, command: RelayCommand, stream: Option<StreamId>, data: &[u8]) {
        self.send(Command::RELAY, command, stream, data);
    }

    fn send(&mut self, cell_command: Command, command: RelayCommand, stream: Option<StreamId>, data: &[u8]) {
        let mut body = [0; BODY_LEN];
        relay::write(&mut body, command, stream, data, &mut self.rng);
        self.layers.seal(self.layers.hops() - 1, &mut body);
        self.out.push_back((self.id, cell_command, body));
    }

    fn queue(&mut self, command: Command, bytes: &[u8]) {
        let mut body = [0; BODY_LEN];
        body[..bytes.len()].copy_from_slice(bytes);
        self.out.push_back((self.id, command, body));
    }
}

/// The bodies of cells that want a circuit, or answer one, and are no good for it.
pub(super) fn bad_create(rng: &mut Rng) -> (Command, Body) {
    let random: Body = rng.array();
    let mut bytes = Vec::new();
    let ntor = HandshakeType::Ntor.htype().expect("it has a number");
    let command = match rng.below(6) {
        // What has the right length is for another relay, or for none.
        0 => {
            Create2 { htype: ntor, hdata: &random[..84] }.encode(&mut bytes);
            Command::CREATE2
        }
        1 => {
            Create2 { htype: ntor, hdata: &random[..rng.below(84) as usize] }.encode(&mut bytes);
            Command::CREATE2
        }
        2 => {
            Create2 { htype: ntor + 1, hdata: &random[..rng.below(400) as usize] }.encode(&mut bytes);
            Command::CREATE2
        }
        3 => {
            Created2 { hdata: &random[..64] }.encode(&mut bytes);
            Command::CREATED2
        }
        4 => return (Command::CREATE2, random),
        _ => return (Command::CREATE, random),
    };
    let mut body = random;
    body[..bytes.len()].copy_from_slice(&bytes);
    (command, body)
}
