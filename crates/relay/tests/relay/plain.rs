//! A transport without cryptography: a line that states who one is, then cells as they are.

use heddle_proto::cell::frame::{Framer, write_fixed, write_variable, write_versions};
use heddle_proto::cell::{BODY_LEN, Body, CELL_LEN, CircId, Command};
use heddle_proto::channel::{Channel, ChannelError, Incoming, Opened, Role, StreamTransport, Target};
use heddle_proto::ids::{Ed25519Id, RelayIds, RsaId};
use heddle_proto::transport::{Isolation, Scope, Transport, TransportId};
use heddle_seam::rng::Rng;
use heddle_seam::time::{Duration, Instant, UnixTime};
use std::net::{IpAddr, SocketAddr};

/// The longest statement of who one is.
const LINE_LEN_MAX: usize = 100;
/// Bytes that a channel takes at once.
const READ_LEN_MAX: usize = 10_000;

/// The identities of the test relay of that number.
pub fn ids(number: u8) -> RelayIds {
    RelayIds { rsa: RsaId([number; 20]), ed25519: Ed25519Id([number; 32]) }
}

/// What a relay says first on its channels. Another word would be how many seconds our clock is ahead of its.
pub fn relay_line(number: u8, addr: IpAddr) -> Vec<u8> {
    format!("relay {number} {addr}\n").into_bytes()
}

/// What whoever begins a handshake may say as often as it likes before that line. It means nothing.
pub const FILLER: u8 = b'#';

/// What a client says first.
pub const CLIENT_LINE: &[u8] = b"client\n";

pub struct PlainTransport {
    pub number: u8,
    pub addr: IpAddr,
    /// What each channel says that it takes itself once it is open, and again as much until it is told to give back
    /// what it does not need.
    pub state_bytes: usize,
}

impl PlainTransport {
    fn channel(&self, now: Instant, role: Role, target: Option<Target>) -> Box<dyn Channel> {
        let mut framer = Framer::new();
        let mut versions = Vec::new();
        write_versions(&mut versions, &[5]);
        framer.next(&versions).expect("VERSIONS comes first");
        Box::new(PlainChannel {
            role,
            target,
            open: false,
            deadline: now + Duration::from_secs(60),
            framer,
            incoming: Vec::new(),
            used_len: 0,
            body: Box::new([0; BODY_LEN]),
            padding: Vec::new(),
            outgoing: relay_line(self.number, self.addr),
            writable: 0,
            begun_len: 0,
            state_bytes: self.state_bytes,
            spare_bytes: self.state_bytes,
        })
    }
}

static PLAIN: Transport = Transport {
    name: "plain",
    id: TransportId::TLS,
    isolation: Isolation {
        ordering: Scope::Channel,
        congestion: Scope::Channel,
        backpressure: Scope::Channel,
    },
};

impl StreamTransport for PlainTransport {
    fn transport(&self) -> &'static Transport {
        &PLAIN
    }

    fn accept(&mut self, now: Instant, _: UnixTime, _: SocketAddr, _: SocketAddr) -> Box<dyn Channel> {
        self.channel(now, Role::Responder, None)
    }

    fn dial(&mut self, now: Instant, _: UnixTime, target: &Target, _: SocketAddr) -> Box<dyn Channel> {
        self.channel(now, Role::Initiator, Some(target.clone()))
    }
}

/// What both ends of any channel get.
pub fn export_secret(label: &[u8], context: &[u8], out: &mut [u8]) -> bool {
    for (index, to) in (0_u64..).zip(out) {
        let mixed = label.iter().chain(context).fold(index, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17)
        });
        *to = mixed as u8;
    }
    true
}

struct PlainChannel {
    role: Role,
    target: Option<Target>,
    open: bool,
    deadline: Instant,
    framer: Framer,
    incoming: Vec<u8>,
    used_len: usize,
    body: Box<Body>,
    padding: Vec<u8>,
    outgoing: Vec<u8>,
    writable: usize,
    /// Bytes of a cell that has not come whole.
    begun_len: usize,
    state_bytes: usize,
    spare_bytes: usize,
}

impl PlainChannel {
    fn open(&mut self) -> Result<Option<Opened>, ChannelError> {
        let Some(end) = self.incoming.iter().position(|byte| *byte == b'\n') else {
            return match self.incoming.len() > LINE_LEN_MAX {
                true => Err(ChannelError::PeerMisbehaved("a long line")),
                false => Ok(None),
            };
        };
        let line: Vec<u8> = self.incoming.drain(..=end).collect();
        let line = String::from_utf8_lossy(&line[..end]).into_owned();
        let mut words = line.split(' ');
        let (kind, number) = (words.next(), words.next().and_then(|number| number.parse().ok()));
        let addr: Option<IpAddr> = words.next().and_then(|addr| addr.parse().ok());
        let peer = match (kind, number) {
            (Some("relay"), Some(number)) => Some(ids(number)),
            (Some("client"), None) => None,
            _ => return Err(ChannelError::PeerMisbehaved("a line that states nothing")),
        };
        if let Some(target) = &self.target {
            let right = |peer: RelayIds| {
                peer.rsa == target.rsa && target.ed25519.is_none_or(|wanted| wanted == peer.ed25519)
            };
            if !peer.is_some_and(right) {
                return Err(ChannelError::WrongIdentity);
            }
        }
        self.open = true;
        let peer_addrs = addr.into_iter().collect();
        let clock_ahead_s = words.next().map_or(0, |ahead_s| ahead_s.parse().expect("seconds"));
        let (role, our_addr) = (self.role, None);
        Ok(Some(Opened { role, peer, peer_addrs, our_addr, clock_ahead_s, link_protocol: 5 }))
    }
}

impl Channel for PlainChannel {
    fn state_bytes(&self) -> usize {
        if self.open { self.state_bytes + self.spare_bytes } else { 0 }
    }

    fn give_back(&mut self) {
        self.spare_bytes = 0;
    }

    /// Takes only a few cells' worth, as a transport may.
    fn handle_read(&mut self, _: Instant, bytes: &[u8]) -> Result<usize, ChannelError> {
        assert!(self.incoming.len() - self.used_len <= LINE_LEN_MAX, "the caller drains what came");
        let taken = bytes.len().min(READ_LEN_MAX);
        let begun = if self.open || !self.incoming.is_empty() { Some(0) } else { None };
        let filler = || bytes[..taken].iter().position(|byte| *byte != FILLER).unwrap_or(taken);
        self.incoming.extend_from_slice(&bytes[begun.unwrap_or_else(filler)..taken]);
        Ok(taken)
    }

    fn handle_eof(&mut self, _: Instant) -> Result<(), ChannelError> {
        Err(ChannelError::PeerClosed)
    }

    fn handle_window(&mut self, _bytes: usize) {}

    fn handle_writable(&mut self, _now: Instant, bytes: usize) {
        self.writable = bytes;
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ChannelError> {
        match !self.open && now >= self.deadline {
            true => Err(ChannelError::TimedOut),
            false => Ok(()),
        }
    }

    fn handle_wall_clock(&mut self, _: UnixTime) {}

    fn next_incoming(&mut self, _: Instant) -> Result<Option<Incoming<'_>>, ChannelError> {
        if !self.open {
            return Ok(self.open()?.map(Incoming::Opened));
        }
        loop {
            let (used, frame) = self
                .framer
                .next(&self.incoming[self.used_len..])
                .map_err(|_| ChannelError::PeerMisbehaved("no cell"))?;
            self.used_len += used;
            self.begun_len = if frame.is_some() { 0 } else { self.begun_len + used };
            let Some(frame) = frame else {
                self.incoming.clear();
                self.used_len = 0;
                return Ok(None);
            };
            if frame.command == Command::VPADDING && frame.circ_id.is_none() {
                self.padding = frame.body.to_vec();
                return Ok(Some(Incoming::Vpadding { body: &self.padding }));
            }
            if let (Some(circ_id), Some(body)) = (frame.circ_id, frame.fixed_body()) {
                *self.body = *body;
                return Ok(Some(Incoming::Cell { circ_id, command: frame.command, body: &self.body }));
            }
        }
    }

    fn capacity(&self) -> usize {
        match self.open {
            true => self.writable.saturating_sub(self.outgoing.len()) / CELL_LEN,
            false => 0,
        }
    }

    fn send(&mut self, _: Instant, circ_id: CircId, command: Command, body: &Body) {
        assert!(self.capacity() > 0, "at most the capacity is sent");
        write_fixed(&mut self.outgoing, circ_id.get(), command, body);
    }

    fn send_vpadding(&mut self, _: Instant, body: &[u8]) {
        write_variable(&mut self.outgoing, 0, Command::VPADDING, body);
    }

    fn export_secret(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> bool {
        export_secret(label, context, out)
    }

    fn propose_circ_id(&self, rng: &mut Rng) -> CircId {
        let high = if self.role == Role::Initiator { 1 << 31 } else { 0 };
        CircId::new(high | (rng.next_u32() >> 1).max(1)).expect("not zero")
    }

    fn poll_transmit(&mut self, _: Instant, out: &mut Vec<u8>) -> bool {
        let len = self.outgoing.len().min(self.writable);
        out.extend(self.outgoing.drain(..len));
        self.writable -= len;
        !self.outgoing.is_empty()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (!self.open).then_some(self.deadline)
    }

    fn buffered_bytes(&self) -> usize {
        self.begun_len + self.outgoing.len()
    }

    fn close(&mut self) {}
}
