//! Relay cells: what two ends of a circuit say to each other (tor-spec, "Relay cells").
//!
//! This is the layout under tor1 relay encryption, inside the body of a RELAY or RELAY_EARLY cell:
//!
//! | field      | bytes |                                                             |
//! |------------|-------|-------------------------------------------------------------|
//! | command    | 1     |                                                             |
//! | recognized | 2     | zero at the hop that the cell is meant for                  |
//! | stream id  | 2     | zero when the cell concerns the circuit                     |
//! | digest     | 4     | the beginning of the running digest                         |
//! | length     | 2     |                                                             |
//! | data       | length|                                                             |
//! | padding    | rest  | four zeros, then random bytes, so that digests cannot be guessed |

use core::num::NonZeroU16;
use core::ops::Range;

use super::{BODY_LEN, Body};
use heddle_seam::rng::Rng;

/// Bytes before a relay cell's data.
pub const HEADER_LEN: usize = 11;
/// The most data one relay cell carries, in bytes (`RELAY_PAYLOAD_SIZE`).
pub const DATA_LEN: usize = BODY_LEN - HEADER_LEN;
/// Where "recognized" lies in a body.
pub(crate) const RECOGNIZED: Range<usize> = 1..3;
/// Where the digest lies in a body.
pub const DIGEST: Range<usize> = 5..9;
/// Zeros between the data and the random padding.
const PADDING_ZEROS_LEN: usize = 4;

/// The head of a relay cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayHeader {
    pub command: RelayCommand,
    /// The stream, or `None` when the cell concerns the circuit (id zero).
    pub stream_id: Option<StreamId>,
    /// Bytes of data, at most [`DATA_LEN`].
    pub length: u16,
}

/// Why a decrypted body is no relay cell. The other end's fault; the circuit dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayError {
    /// The stated length, in bytes, is more than a cell can hold.
    TooLong(u16),
}

/// Reads the header of a decrypted and recognized `body`, and lends its data.
pub fn parse(body: &Body) -> Result<(RelayHeader, &[u8]), RelayError> {
    let length = u16::from_be_bytes([body[9], body[10]]);
    let data = body[HEADER_LEN..].get(..usize::from(length)).ok_or(RelayError::TooLong(length))?;
    let header = RelayHeader {
        command: RelayCommand(body[0]),
        stream_id: StreamId::new(u16::from_be_bytes([body[3], body[4]])),
        length,
    };
    Ok((header, data))
}

/// Writes a whole relay cell into `body`, with "recognized" and digest zero: header, `data`, and
/// padding from `rng_padding`.
///
/// # Panics
///
/// When `data` is longer than [`DATA_LEN`], which is the caller's mistake.
pub fn write(
    body: &mut Body,
    command: RelayCommand,
    stream_id: Option<StreamId>,
    data: &[u8],
    rng_padding: &mut Rng,
) {
    assert!(data.len() <= DATA_LEN, "{} bytes do not fit a relay cell", data.len());
    body[HEADER_LEN..HEADER_LEN + data.len()].copy_from_slice(data);
    write_around(body, command, stream_id, data.len(), rng_padding);
}

/// Writes header and padding around `length` bytes of data that `body` already holds behind
/// [`HEADER_LEN`], so that stream data can be read from a socket straight into its cell.
///
/// # Panics
///
/// When `length` is more than [`DATA_LEN`], which is the caller's mistake.
pub(crate) fn write_around(
    body: &mut Body,
    command: RelayCommand,
    stream_id: Option<StreamId>,
    length: usize,
    rng_padding: &mut Rng,
) {
    assert!(length <= DATA_LEN, "{length} bytes do not fit a relay cell");
    body[..HEADER_LEN].fill(0);
    body[0] = command.0;
    body[3..5].copy_from_slice(&stream_id.map_or(0, StreamId::get).to_be_bytes());
    body[9..HEADER_LEN].copy_from_slice(&(length as u16).to_be_bytes());
    let padding = &mut body[HEADER_LEN + length..];
    let zeros_len = padding.len().min(PADDING_ZEROS_LEN);
    let (zeros, random) = padding.split_at_mut(zeros_len);
    zeros.fill(0);
    rng_padding.fill(random);
}

/// A stream's name on one circuit; never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(NonZeroU16);

impl StreamId {
    /// The id `raw`, or `None` for zero, which means the circuit itself.
    pub const fn new(raw: u16) -> Option<Self> {
        match NonZeroU16::new(raw) {
            Some(id) => Some(StreamId(id)),
            None => None,
        }
    }

    /// The number on the wire.
    pub const fn get(self) -> u16 {
        self.0.get()
    }
}

impl core::fmt::Display for StreamId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

/// A relay cell's command. One that is not understood is dropped, but counts for digests and windows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelayCommand(pub u8);

impl RelayCommand {
    pub const BEGIN: RelayCommand = RelayCommand(1);
    pub const DATA: RelayCommand = RelayCommand(2);
    pub const END: RelayCommand = RelayCommand(3);
    pub const CONNECTED: RelayCommand = RelayCommand(4);
    pub const SENDME: RelayCommand = RelayCommand(5);
    pub(crate) const EXTEND: RelayCommand = RelayCommand(6);
    pub(crate) const EXTENDED: RelayCommand = RelayCommand(7);
    pub const TRUNCATE: RelayCommand = RelayCommand(8);
    pub const TRUNCATED: RelayCommand = RelayCommand(9);
    pub const DROP: RelayCommand = RelayCommand(10);
    pub const RESOLVE: RelayCommand = RelayCommand(11);
    pub const RESOLVED: RelayCommand = RelayCommand(12);
    pub const BEGIN_DIR: RelayCommand = RelayCommand(13);
    pub const EXTEND2: RelayCommand = RelayCommand(14);
    pub const EXTENDED2: RelayCommand = RelayCommand(15);
    pub(crate) const CONFLUX_LINK: RelayCommand = RelayCommand(19);
    pub(crate) const CONFLUX_LINKED: RelayCommand = RelayCommand(20);
    pub(crate) const CONFLUX_LINKED_ACK: RelayCommand = RelayCommand(21);
    pub(crate) const CONFLUX_SWITCH: RelayCommand = RelayCommand(22);
    pub(crate) const ESTABLISH_INTRO: RelayCommand = RelayCommand(32);
    pub(crate) const ESTABLISH_RENDEZVOUS: RelayCommand = RelayCommand(33);
    pub(crate) const INTRODUCE1: RelayCommand = RelayCommand(34);
    pub(crate) const INTRODUCE2: RelayCommand = RelayCommand(35);
    pub(crate) const RENDEZVOUS1: RelayCommand = RelayCommand(36);
    pub(crate) const RENDEZVOUS2: RelayCommand = RelayCommand(37);
    pub(crate) const INTRO_ESTABLISHED: RelayCommand = RelayCommand(38);
    pub(crate) const RENDEZVOUS_ESTABLISHED: RelayCommand = RelayCommand(39);
    pub(crate) const INTRODUCE_ACK: RelayCommand = RelayCommand(40);
    pub const PADDING_NEGOTIATE: RelayCommand = RelayCommand(41);
    pub(crate) const PADDING_NEGOTIATED: RelayCommand = RelayCommand(42);
    pub const XOFF: RelayCommand = RelayCommand(43);
    pub const XON: RelayCommand = RelayCommand(44);
    /// Heddle's own, in test networks: the client wants DATAGRAM cells to go (`docs/reference/forwarding.md`).
    pub const FORWARD: RelayCommand = RelayCommand(200);
    /// The answer to it.
    pub const FORWARDED: RelayCommand = RelayCommand(201);
    /// Heddle's own, in test networks: the client wants to know what a hop counted of its circuit.
    pub const MEASURE: RelayCommand = RelayCommand(202);
    /// The answer to it.
    pub const MEASURED: RelayCommand = RelayCommand(203);

    fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::BEGIN => "BEGIN",
            Self::DATA => "DATA",
            Self::END => "END",
            Self::CONNECTED => "CONNECTED",
            Self::SENDME => "SENDME",
            Self::EXTEND => "EXTEND",
            Self::EXTENDED => "EXTENDED",
            Self::TRUNCATE => "TRUNCATE",
            Self::TRUNCATED => "TRUNCATED",
            Self::DROP => "DROP",
            Self::RESOLVE => "RESOLVE",
            Self::RESOLVED => "RESOLVED",
            Self::BEGIN_DIR => "BEGIN_DIR",
            Self::EXTEND2 => "EXTEND2",
            Self::EXTENDED2 => "EXTENDED2",
            Self::CONFLUX_LINK => "CONFLUX_LINK",
            Self::CONFLUX_LINKED => "CONFLUX_LINKED",
            Self::CONFLUX_LINKED_ACK => "CONFLUX_LINKED_ACK",
            Self::CONFLUX_SWITCH => "CONFLUX_SWITCH",
            Self::ESTABLISH_INTRO => "ESTABLISH_INTRO",
            Self::ESTABLISH_RENDEZVOUS => "ESTABLISH_RENDEZVOUS",
            Self::INTRODUCE1 => "INTRODUCE1",
            Self::INTRODUCE2 => "INTRODUCE2",
            Self::RENDEZVOUS1 => "RENDEZVOUS1",
            Self::RENDEZVOUS2 => "RENDEZVOUS2",
            Self::INTRO_ESTABLISHED => "INTRO_ESTABLISHED",
            Self::RENDEZVOUS_ESTABLISHED => "RENDEZVOUS_ESTABLISHED",
            Self::INTRODUCE_ACK => "INTRODUCE_ACK",
            Self::PADDING_NEGOTIATE => "PADDING_NEGOTIATE",
            Self::PADDING_NEGOTIATED => "PADDING_NEGOTIATED",
            Self::XOFF => "XOFF",
            Self::XON => "XON",
            Self::FORWARD => "FORWARD",
            Self::FORWARDED => "FORWARDED",
            Self::MEASURE => "MEASURE",
            Self::MEASURED => "MEASURED",
            _ => return None,
        })
    }
}

impl core::fmt::Debug for RelayCommand {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "relay command {}", self.0),
        }
    }
}

impl core::fmt::Display for RelayCommand {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Debug::fmt(self, f)
    }
}

impl core::fmt::Display for RelayError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            RelayError::TooLong(length) => write!(f, "a relay cell claims {length} bytes of data"),
        }
    }
}

impl core::error::Error for RelayError {}
