//! What the relay knows of a channel: cells come out, cells go in, and how they are isolated.
//!
//! A transport implements [`StreamTransport`] and [`Channel`]; the relay calls them and knows no
//! transport by name.

use crate::cell::{Body, CircId, Command};
use crate::ids::RelayIds;
use crate::transport::Transport;
use core::any::Any;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use heddle_seam::node::SocketError;
use heddle_seam::rng::Rng;
use heddle_seam::time::{Instant, UnixTime};

/// Who opened the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Initiator,
    Responder,
}

impl Role {
    /// The other side.
    pub const fn other(self) -> Role {
        match self {
            Role::Initiator => Role::Responder,
            Role::Responder => Role::Initiator,
        }
    }

    /// "In link protocol version 4 or higher, whichever node initiated the connection sets its MSB to 1, and whichever
    /// node didn't initiate the connection sets its MSB to 0" (tor-spec, "Choosing circuit IDs in create cells").
    const fn id_bit(self) -> u32 {
        match self {
            Role::Initiator => 1 << 31,
            Role::Responder => 0,
        }
    }

    /// The id of this number, whose highest bit does not count, among those that this side picks. Zero is none.
    pub const fn circ_id(self, number: u32) -> Option<CircId> {
        CircId::new(number & !Role::Initiator.id_bit() | self.id_bit())
    }

    /// Whether this side picks such an id.
    pub const fn picks(self, circ_id: CircId) -> bool {
        circ_id.get() & Role::Initiator.id_bit() == self.id_bit()
    }
}

/// Whom to dial: a relay of an EXTEND2 cell or of the consensus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The identities that the peer must prove. EXTEND2 may leave out the Ed25519 identity; then
    /// any is accepted together with the RSA identity.
    pub rsa: crate::ids::RsaId,
    pub ed25519: Option<crate::ids::Ed25519Id>,
    /// Addresses to try, in order; at most four are kept.
    pub addrs: Vec<SocketAddr>,
}

/// What a handshake found out about the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    pub role: Role,
    /// The identities that the peer proved, or `None` for a client.
    pub peer: Option<RelayIds>,
    /// Addresses that the peer says are its own, at most eight (NETINFO).
    pub peer_addrs: Vec<IpAddr>,
    /// Our address as the peer sees it (NETINFO).
    pub our_addr: Option<IpAddr>,
    /// How many seconds our clock is ahead of the peer's, or behind it (NETINFO); zero where it does not say.
    pub clock_ahead_s: i64,
    /// 4 or 5.
    pub link_protocol: u16,
}

/// What comes out of a channel.
#[derive(Debug)]
pub enum Incoming<'a> {
    /// The handshake is over; cells may flow. Once, and before any cell.
    Opened(Opened),
    /// A fixed-length cell of a circuit, lent for this call.
    Cell { circ_id: CircId, command: Command, body: &'a Body },
    /// A VPADDING cell of circuit 0: padding, an offer if the peer proved to be a relay, or a word about credit
    /// (`docs/reference/pair.md`).
    Vpadding { body: &'a [u8] },
}

/// Work of a channel that is too slow for the data path: it owns all that it needs.
pub type Work = Box<dyn FnOnce() -> Done + Send>;
/// What came of it, for the channel alone.
pub type Done = Box<dyn Any + Send>;

/// One channel to one peer. It ends by an error of any of its calls; the relay then closes its
/// socket and its circuits.
pub trait Channel: Send {
    /// Bytes that came from the socket. Returns how many were taken, at least one of them: the rest
    /// is given again once [`Channel::next_incoming`] is drained, which bounds what is buffered.
    fn handle_read(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, ChannelError>;

    /// The peer sent a FIN, which ends the channel: [`ChannelError::PeerClosed`]. C tor leaves without
    /// a close_notify, so a bare FIN is an ordinary end and no fault.
    fn handle_eof(&mut self, now: Instant) -> Result<(), ChannelError>;

    /// From now on this many bytes may be sent.
    fn handle_writable(&mut self, now: Instant, bytes: usize);

    /// The system lets this many bytes be on their way unacknowledged ([`Input::Writable`]). A message that nobody can
    /// read before its end had better be shorter.
    ///
    /// [`Input::Writable`]: heddle_seam::node::Input::Writable
    fn handle_window(&mut self, bytes: usize);

    /// A time that [`Channel::poll_timeout`] named has come. Padding and handshake time-outs.
    fn handle_timeout(&mut self, now: Instant) -> Result<(), ChannelError>;

    /// Work that is too slow for the data path, a signature, after bytes or a time came; until
    /// [`Channel::handle_work`] the handshake stands still.
    fn poll_work(&mut self) -> Option<Work> {
        None
    }

    /// What came of [`Channel::poll_work`]. [`Channel::next_incoming`] is to be asked then.
    fn handle_work(&mut self, _now: Instant, _done: Done) -> Result<(), ChannelError> {
        Ok(())
    }

    /// The wall clock, for certificates and NETINFO.
    fn handle_wall_clock(&mut self, now: UnixTime);

    /// What came in, one at a time, until `None`.
    fn next_incoming(&mut self, now: Instant) -> Result<Option<Incoming<'_>>, ChannelError>;

    /// Cells that would leave promptly if sent now.
    fn capacity(&self) -> usize;

    /// Takes a cell for the wire; at most [`Channel::capacity`] of them.
    fn send(&mut self, now: Instant, circ_id: CircId, command: Command, body: &Body);

    /// A candidate for the id of a circuit that we open, of the half that is ours.
    fn propose_circ_id(&self, rng: &mut Rng) -> CircId;

    /// Appends what is to be sent now to `out`, at most what is writable; returns whether more waits.
    fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool;

    /// Queues a VPADDING cell of circuit 0, which stock Tor drops at any length without a word. At most
    /// [`VPADDING_LEN_MAX`] bytes, and only on an open channel.
    fn send_vpadding(&mut self, now: Instant, body: &[u8]);

    /// Fills `out` from the exporter of the channel's TLS session (RFC 8446, section 7.5), so that both ends get the
    /// same secret that nobody else has. Returns whether it could: TLS 1.3 only.
    fn export_secret(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> bool;

    /// When [`Channel::handle_timeout`] is to be called.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Memory for what came and is not whole yet, and for what is to be sent and is in no cell any more, once the
    /// channel is open: before, what a handshake takes is bounded by itself.
    fn buffered_bytes(&self) -> usize {
        0
    }

    /// Memory that an open channel takes beside [`Channel::buffered_bytes`]: its session, and buffers that it keeps to
    /// use again.
    fn state_bytes(&self) -> usize {
        0
    }

    /// Nothing passed for a while: buffers that are empty are given back.
    fn give_back(&mut self) {}

    /// Says goodbye: what is queued is followed by a TLS close_notify or its like.
    fn close(&mut self);
}

/// The longest VPADDING cell that we send, or read.
pub const VPADDING_LEN_MAX: usize = 2048;

/// Makes channels out of byte streams.
pub trait StreamTransport: Send {
    fn transport(&self) -> &'static Transport;

    /// A channel for a peer that connected to us.
    fn accept(
        &mut self,
        now: Instant,
        wall: UnixTime,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Box<dyn Channel>;

    /// A channel to `target`, over a stream that was just connected to `peer`.
    fn dial(&mut self, now: Instant, wall: UnixTime, target: &Target, peer: SocketAddr) -> Box<dyn Channel>;
}

/// Why a channel ends, by blame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelError {
    /// The peer broke the protocol.
    PeerMisbehaved(&'static str),
    /// The peer speaks nothing that we speak.
    PeerIncompatible(&'static str),
    /// The peer is not whom we dialled.
    WrongIdentity,
    /// TLS failed; the text is the library's.
    Tls(String),
    /// The handshake, or the peer's part in it, took too long.
    TimedOut,
    /// The peer closed the channel.
    PeerClosed,
    /// The socket broke.
    Socket(SocketError),
    /// The peer took nothing of what waits for it.
    Stuck,
    /// Nobody needed the channel any more.
    Idle,
    /// Others need the place.
    Crowded,
    /// This relay stops.
    Shutdown,
}

impl ChannelError {
    /// One word for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            ChannelError::PeerMisbehaved(_) => "misbehaved",
            ChannelError::PeerIncompatible(_) => "incompatible",
            ChannelError::WrongIdentity => "wrong_identity",
            ChannelError::Tls(_) => "tls",
            ChannelError::TimedOut => "timed_out",
            ChannelError::PeerClosed => "peer_closed",
            ChannelError::Socket(_) => "socket",
            ChannelError::Stuck => "stuck",
            ChannelError::Idle => "idle",
            ChannelError::Crowded => "crowded",
            ChannelError::Shutdown => "shutdown",
        }
    }
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChannelError::PeerMisbehaved(what) => write!(f, "the peer broke the protocol: {what}"),
            ChannelError::PeerIncompatible(what) => write!(f, "the peer is incompatible: {what}"),
            ChannelError::WrongIdentity => f.write_str("the peer is not the relay that was dialled"),
            ChannelError::Tls(what) => write!(f, "TLS failed: {what}"),
            ChannelError::TimedOut => f.write_str("the handshake timed out"),
            ChannelError::PeerClosed => f.write_str("the peer closed the channel"),
            ChannelError::Socket(error) => write!(f, "{error}"),
            ChannelError::Stuck => f.write_str("the peer took nothing for too long"),
            ChannelError::Idle => f.write_str("the channel was idle"),
            ChannelError::Crowded => f.write_str("others need the place"),
            ChannelError::Shutdown => f.write_str("this relay stops"),
        }
    }
}

impl core::error::Error for ChannelError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_picks_the_ids_of_its_half() {
        let picked = |role: Role, number| role.circ_id(number).map(CircId::get);
        assert_eq!(picked(Role::Initiator, 7), Some(0x8000_0007));
        assert_eq!(picked(Role::Responder, 7), Some(7));
        for role in [Role::Initiator, Role::Responder] {
            for number in [1, 7, u32::MAX >> 1] {
                let circ_id = role.circ_id(number).expect("it is not zero");
                assert!(role.picks(circ_id) && !role.other().picks(circ_id));
                assert_eq!(role.circ_id(1 << 31 | number), Some(circ_id), "the highest bit does not count");
            }
        }
        assert_eq!(picked(Role::Initiator, 0), Some(0x8000_0000));
        assert_eq!(picked(Role::Responder, 0), None);
        assert_eq!(picked(Role::Responder, 1 << 31), None);
    }
}
