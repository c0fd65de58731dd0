//! Making and unmaking a circuit's hop on a channel (tor-spec, "CREATE and CREATED cells" and
//! "Tearing down circuits").

use super::BODY_LEN;
use super::read::{Malformed, Reader, write_counted};

/// Handshake type: ntor.
pub const HTYPE_NTOR: u16 = 2;
/// Handshake type: ntor-v3, which carries extensions.
pub(crate) const HTYPE_NTOR_V3: u16 = 3;

/// The longest handshake that fits CREATE2, in bytes.
pub(crate) const CREATE2_HDATA_LEN_MAX: usize = BODY_LEN - 4;
/// The longest handshake that fits CREATED2, in bytes.
pub const CREATED2_HDATA_LEN_MAX: usize = BODY_LEN - 2;
/// Bytes of key material that each side contributes to CREATE_FAST.
pub const FAST_KEY_LEN: usize = 20;

/// CREATE2: the client's half of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Create2<'a> {
    /// [`HTYPE_NTOR`], [`HTYPE_NTOR_V3`] or something to refuse.
    pub htype: u16,
    /// At most [`CREATE2_HDATA_LEN_MAX`] bytes.
    pub hdata: &'a [u8],
}

impl<'a> Create2<'a> {
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        Ok(Create2 { htype: reader.u16()?, hdata: reader.counted()? })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.htype.to_be_bytes());
        write_counted(out, self.hdata);
    }
}

/// CREATED2: the relay's half of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created2<'a> {
    /// At most [`CREATED2_HDATA_LEN_MAX`] bytes.
    pub hdata: &'a [u8],
}

impl<'a> Created2<'a> {
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        Ok(Created2 { hdata: Reader::new(body).counted()? })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        write_counted(out, self.hdata);
    }
}

/// CREATE_FAST: the client's half of a handshake without public keys, for a first hop only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateFast {
    /// X.
    pub key_material: [u8; FAST_KEY_LEN],
}

impl CreateFast {
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        Ok(CreateFast { key_material: Reader::new(body).array()? })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.key_material);
    }
}

/// CREATED_FAST: the relay's half of a handshake without public keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreatedFast {
    /// Y.
    pub key_material: [u8; FAST_KEY_LEN],
    /// KH, which proves that the relay derived the same keys.
    pub derivative_key: [u8; FAST_KEY_LEN],
}

impl CreatedFast {
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        Ok(CreatedFast { key_material: reader.array()?, derivative_key: reader.array()? })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.key_material);
        out.extend_from_slice(&self.derivative_key);
    }
}

/// Why a circuit ends, in DESTROY and TRUNCATED. A received reason is never passed on: the next
/// DESTROY says [`DestroyReason::DESTROYED`], so that reasons are no side channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DestroyReason(pub u8);

impl DestroyReason {
    /// No reason given; the only one that clients send.
    pub const NONE: DestroyReason = DestroyReason(0);
    /// The other side broke the protocol.
    pub const PROTOCOL: DestroyReason = DestroyReason(1);
    pub const INTERNAL: DestroyReason = DestroyReason(2);
    /// A client sent TRUNCATE.
    pub const REQUESTED: DestroyReason = DestroyReason(3);
    pub const HIBERNATING: DestroyReason = DestroyReason(4);
    /// Out of memory, sockets or circuit ids.
    pub const RESOURCELIMIT: DestroyReason = DestroyReason(5);
    /// The next relay could not be reached.
    pub const CONNECTFAILED: DestroyReason = DestroyReason(6);
    /// The next relay is not the one that was asked for.
    pub const OR_IDENTITY: DestroyReason = DestroyReason(7);
    /// The channel that carried the circuit died.
    pub const CHANNEL_CLOSED: DestroyReason = DestroyReason(8);
    /// The circuit is too old or too dirty.
    pub const FINISHED: DestroyReason = DestroyReason(9);
    /// Making the circuit took too long.
    pub const TIMEOUT: DestroyReason = DestroyReason(10);
    /// The next hop destroyed the circuit.
    pub const DESTROYED: DestroyReason = DestroyReason(11);
    pub(crate) const NOSUCHSERVICE: DestroyReason = DestroyReason(12);

    /// Reads the body of DESTROY or TRUNCATED. Unknown reasons are kept; none at all is NONE.
    pub fn parse(body: &[u8]) -> Self {
        body.first().map_or(Self::NONE, |reason| DestroyReason(*reason))
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.0);
    }

    fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::NONE => "NONE",
            Self::PROTOCOL => "PROTOCOL",
            Self::INTERNAL => "INTERNAL",
            Self::REQUESTED => "REQUESTED",
            Self::HIBERNATING => "HIBERNATING",
            Self::RESOURCELIMIT => "RESOURCELIMIT",
            Self::CONNECTFAILED => "CONNECTFAILED",
            Self::OR_IDENTITY => "OR_IDENTITY",
            Self::CHANNEL_CLOSED => "CHANNEL_CLOSED",
            Self::FINISHED => "FINISHED",
            Self::TIMEOUT => "TIMEOUT",
            Self::DESTROYED => "DESTROYED",
            Self::NOSUCHSERVICE => "NOSUCHSERVICE",
            _ => return None,
        })
    }
}

impl core::fmt::Debug for DestroyReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "reason {}", self.0),
        }
    }
}

impl core::fmt::Display for DestroyReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Debug::fmt(self, f)
    }
}
