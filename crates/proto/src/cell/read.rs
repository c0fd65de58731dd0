//! Fields on the wire: big-endian, read within bounds, written into a vector.

/// Why bytes are not the message they should be. Always the fault of who sent them.
///
/// What dies of it is the receiver's choice: a link message's fault closes the channel, a circuit
/// message's the circuit, a stream message's the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The bytes end before the message does.
    Truncated,
    /// A field has a value that the specification forbids, or a required one is missing.
    Invalid(&'static str),
}

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Malformed::Truncated => f.write_str("the message ends too early"),
            Malformed::Invalid(what) => f.write_str(what),
        }
    }
}

impl core::error::Error for Malformed {}

/// A cursor over a message. Every read either succeeds whole or says [`Malformed::Truncated`].
#[derive(Clone, Copy)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Malformed::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed::Truncated)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Bytes behind a two-byte length.
    pub(super) fn counted(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.u16()?;
        self.bytes(usize::from(len))
    }
}

/// Writes `bytes` behind a two-byte length.
///
/// # Panics
///
/// When `bytes` is longer than 65,535 bytes, which is the caller's mistake.
pub(super) fn write_counted(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u16::try_from(bytes.len()).expect("what we send fits a two-byte length");
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(bytes);
}
