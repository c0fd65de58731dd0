//! Framing: from the plaintext of a channel to its cells, and back.
//!
//! 1. The first cell of each side is VERSIONS, with a two-byte circuit id (tor-spec, "Cell packet
//!    format"): what comes before it is an error.
//! 2. From then on circuit ids have four bytes, which is all that link protocols 4 and 5 know.
//! 3. A cell that lies whole in the chunk at hand is lent from it. Only a cell that straddles
//!    chunks is put together in a buffer of the framer's own, unless it is too long to be of use: its bytes are dropped
//!    as they come.

use super::{BODY_LEN, Body, CELL_HEADER_LEN, CELL_LEN, CircId, Command, VAR_HEADER_LEN};

/// Bytes before the body of the first VERSIONS cell: two-byte circuit id, command, length.
const FIRST_HEADER_LEN: usize = 5;

/// The longest variable-length body there is; the limit a [`Framer`] starts with, because CERTS may
/// be long.
pub const VAR_BODY_LEN_MAX: usize = u16::MAX as usize;

/// Cuts a channel's decrypted byte stream into cells.
///
/// ```
/// use heddle_proto::cell::frame::{Framer, write_versions};
///
/// let mut chunk = Vec::new();
/// write_versions(&mut chunk, &[4, 5]);
/// let mut framer = Framer::new();
/// let mut rest = &chunk[..];
/// loop {
///     let (used, frame) = framer.next(rest)?;
///     rest = &rest[used..];
///     let Some(frame) = frame else { break };
///     assert_eq!(frame.body, [0, 4, 0, 5]);
/// }
/// # Ok::<(), heddle_proto::cell::frame::FrameError>(())
/// ```
#[derive(Debug)]
pub struct Framer {
    versions_seen: bool,
    body_len_max: usize,
    /// The longest variable-length body that is of use.
    used_len_max: usize,
    /// The beginning of a cell whose end has not come yet: shorter than its header and `used_len_max`.
    partial: Vec<u8>,
    /// Bytes to come of a cell that is of no use.
    skipped_len: usize,
    /// Whether `partial` is a whole cell that the last call lent out.
    lent: bool,
}

/// A cell, lent for as long as its chunk and its framer are left alone.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The circuit, or `None` when the cell concerns the channel (id zero).
    pub circ_id: Option<CircId>,
    pub command: Command,
    /// The body: [`BODY_LEN`] bytes, or the stated length for variable-length commands.
    pub body: &'a [u8],
    /// The whole cell as it travelled, for the transcript that AUTHENTICATE signs.
    pub bytes: &'a [u8],
}

/// Why a byte stream is no sequence of cells. The peer's fault; the channel dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The first cell is not VERSIONS.
    NotVersions(Command),
    /// The first cell names a circuit.
    VersionsCircId(u16),
    /// A variable-length body is longer than the channel's state allows.
    TooLong { command: Command, len: usize, len_max: usize },
}

impl Default for Framer {
    fn default() -> Self {
        Self::new()
    }
}

impl Framer {
    /// A framer that expects VERSIONS, with the limit [`VAR_BODY_LEN_MAX`].
    pub fn new() -> Self {
        Framer {
            versions_seen: false,
            body_len_max: VAR_BODY_LEN_MAX,
            used_len_max: VAR_BODY_LEN_MAX,
            partial: Vec::new(),
            skipped_len: 0,
            lent: false,
        }
    }

    /// Sets the longest body, in bytes, that variable-length cells may have from now on.
    pub fn set_body_len_max(&mut self, body_len_max: usize) {
        self.body_len_max = body_len_max;
    }

    /// Drops the bytes of variable-length cells with longer bodies from now on, except those of a handshake, which are
    /// refused.
    pub fn set_used_len_max(&mut self, used_len_max: usize) {
        self.used_len_max = used_len_max;
    }

    /// Memory for cells that are begun.
    pub fn state_bytes(&self) -> usize {
        self.partial.capacity()
    }

    /// The next cell, and how many bytes of `chunk` it used up.
    ///
    /// The caller goes on behind the used bytes until there is no frame; then all of `chunk` is
    /// used, and a cell that has begun in it waits for the next chunk. After an error the channel
    /// is to be closed: the stream has no next cell.
    pub fn next<'a>(&'a mut self, chunk: &'a [u8]) -> Result<(usize, Option<Frame<'a>>), FrameError> {
        if self.lent {
            self.lent = false;
            self.partial.clear();
            self.partial.shrink_to(CELL_LEN);
        }
        let mut used = 0;
        loop {
            used += self.skip(&chunk[used..]);
            let rest = &chunk[used..];
            if !self.partial.is_empty() {
                let (more, is_whole) = self.gather(rest)?;
                used += more;
                if is_whole {
                    return Ok((used, Some(self.lend_partial())));
                }
                if self.skipped_len == 0 {
                    return Ok((used, None));
                }
                continue;
            }
            match self.measure(rest)? {
                Measure::Whole(len) if len <= rest.len() => {
                    let frame = self.lend(&rest[..len]);
                    return Ok((used + len, Some(frame)));
                }
                Measure::Useless(len) => self.skipped_len = len,
                Measure::Whole(_) | Measure::Header(_) => {
                    self.partial.extend_from_slice(rest);
                    return Ok((chunk.len(), None));
                }
            }
        }
    }

    /// Drops what comes of a cell that is of no use; returns how much.
    fn skip(&mut self, chunk: &[u8]) -> usize {
        let skipped = self.skipped_len.min(chunk.len());
        self.skipped_len -= skipped;
        skipped
    }

    /// Goes on with the cell that an earlier chunk began; returns how much it used and whether the cell is whole.
    fn gather(&mut self, chunk: &[u8]) -> Result<(usize, bool), FrameError> {
        let mut used = 0;
        loop {
            let (wanted, whole) = match self.measure(&self.partial)? {
                Measure::Header(len) => (len, false),
                Measure::Whole(len) => (len, true),
                Measure::Useless(len) => {
                    self.skipped_len = len - self.partial.len();
                    self.partial.clear();
                    return Ok((used, false));
                }
            };
            let missing = wanted - self.partial.len();
            let taken = missing.min(chunk.len() - used);
            self.partial.extend_from_slice(&chunk[used..used + taken]);
            used += taken;
            if taken < missing || whole {
                return Ok((used, taken == missing));
            }
        }
    }

    fn lend_partial(&mut self) -> Frame<'_> {
        self.lent = true;
        let frame = split(&self.partial, self.versions_seen);
        self.versions_seen = true;
        frame
    }

    fn lend<'a>(&mut self, bytes: &'a [u8]) -> Frame<'a> {
        let frame = split(bytes, self.versions_seen);
        self.versions_seen = true;
        frame
    }

    /// How long the cell is that begins with `bytes`, or how much of it is needed to know.
    fn measure(&self, bytes: &[u8]) -> Result<Measure, FrameError> {
        if !self.versions_seen {
            return self.measure_first(bytes);
        }
        let Some(header) = bytes.first_chunk::<CELL_HEADER_LEN>() else {
            return Ok(Measure::Header(CELL_HEADER_LEN));
        };
        let command = Command(header[CELL_HEADER_LEN - 1]);
        if !command.is_variable() {
            return Ok(Measure::Whole(CELL_LEN));
        }
        match bytes.first_chunk::<VAR_HEADER_LEN>() {
            Some(header) => self.measure_variable(command, header),
            None => Ok(Measure::Header(VAR_HEADER_LEN)),
        }
    }

    fn measure_first(&self, bytes: &[u8]) -> Result<Measure, FrameError> {
        let Some(header) = bytes.first_chunk::<FIRST_HEADER_LEN>() else {
            return Ok(Measure::Header(FIRST_HEADER_LEN));
        };
        let command = Command(header[2]);
        let circ_id = u16::from_be_bytes([header[0], header[1]]);
        if command != Command::VERSIONS {
            return Err(FrameError::NotVersions(command));
        }
        if circ_id != 0 {
            return Err(FrameError::VersionsCircId(circ_id));
        }
        self.measure_variable(command, header)
    }

    fn measure_variable<const N: usize>(
        &self,
        command: Command,
        header: &[u8; N],
    ) -> Result<Measure, FrameError> {
        let len = usize::from(u16::from_be_bytes([header[N - 2], header[N - 1]]));
        if len > self.body_len_max {
            return Err(FrameError::TooLong { command, len, len_max: self.body_len_max });
        }
        if len <= self.used_len_max {
            return Ok(Measure::Whole(N + len));
        }
        match command {
            Command::CERTS | Command::AUTH_CHALLENGE | Command::AUTHENTICATE => {
                Err(FrameError::TooLong { command, len, len_max: self.used_len_max })
            }
            _ => Ok(Measure::Useless(N + len)),
        }
    }
}

/// What the beginning of a cell says about its length in bytes.
enum Measure {
    /// This much is needed to know.
    Header(usize),
    /// The cell has this length.
    Whole(usize),
    /// So has this one, which is too long to be of use.
    Useless(usize),
}

/// The parts of the whole cell `bytes`.
fn split(bytes: &[u8], versions_seen: bool) -> Frame<'_> {
    if !versions_seen {
        return Frame { circ_id: None, command: Command::VERSIONS, body: &bytes[FIRST_HEADER_LEN..], bytes };
    }
    let command = Command(bytes[4]);
    let header_len = if command.is_variable() { VAR_HEADER_LEN } else { CELL_HEADER_LEN };
    let circ_id = CircId::new(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    Frame { circ_id, command, body: &bytes[header_len..], bytes }
}

impl<'a> Frame<'a> {
    /// The body of a fixed-length cell; `None` for variable-length commands.
    pub fn fixed_body(&self) -> Option<&'a Body> {
        if self.command.is_variable() { None } else { self.body.first_chunk() }
    }
}

impl core::fmt::Display for FrameError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            FrameError::NotVersions(command) => {
                write!(f, "the first cell is {command} instead of VERSIONS")
            }
            FrameError::VersionsCircId(id) => {
                write!(f, "the first VERSIONS cell names circuit {id}")
            }
            FrameError::TooLong { command, len, len_max } => {
                write!(f, "a {command} cell has {len} bytes where {len_max} are allowed")
            }
        }
    }
}

impl core::error::Error for FrameError {}

/// Appends a fixed-length cell: `body`, then zeros up to [`BODY_LEN`]. Id zero is the channel.
///
/// # Panics
///
/// When `body` is longer than [`BODY_LEN`], which is the caller's mistake.
pub fn write_fixed(out: &mut Vec<u8>, circ_id: u32, command: Command, body: &[u8]) {
    assert!(body.len() <= BODY_LEN, "{} bytes do not fit a {command} cell", body.len());
    out.extend_from_slice(&header(circ_id, command));
    out.extend_from_slice(body);
    out.resize(out.len() + BODY_LEN - body.len(), 0);
}

/// Appends a variable-length cell. Id zero is the channel.
///
/// # Panics
///
/// When `body` is longer than [`VAR_BODY_LEN_MAX`] or `command` has a fixed length, which is the
/// caller's mistake.
pub fn write_variable(out: &mut Vec<u8>, circ_id: u32, command: Command, body: &[u8]) {
    assert!(command.is_variable(), "{command} cells have a fixed length");
    out.extend_from_slice(&header(circ_id, command));
    super::read::write_counted(out, body);
}

/// Appends the first cell of a channel, which alone has a two-byte circuit id.
pub fn write_versions(out: &mut Vec<u8>, versions: &[u16]) {
    out.extend_from_slice(&[0, 0, Command::VERSIONS.0]);
    let body: Vec<u8> = versions.iter().flat_map(|version| version.to_be_bytes()).collect();
    super::read::write_counted(out, &body);
}

fn header(circ_id: u32, command: Command) -> [u8; CELL_HEADER_LEN] {
    let [a, b, c, d] = circ_id.to_be_bytes();
    [a, b, c, d, command.0]
}
